//! config.yaml, routes aside: `server`, `proxy`, `firewall`, `discovery`, `admin`, `logging`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::policy::settings::{
    Admin, ChunkedMode, EngineChoice, LogFormat, LogSink, Logging, Origin, ProcessSources, SetBy,
    Settings,
};

use super::addresses::{parse_ip, parse_listen, read_cidrs};
use super::discovery;
use super::firewall::{self, Firewall};
use super::inherited::{Inherited, Sourced, CHUNKED_MODES, DEFAULT_MAX_BODY_BYTES};
use super::section::{Section, LONGEST};
use super::yaml::{Node, Value};

/// What config.yaml says apart from routes.
pub struct Process<'a> {
    /// Settings of the process.
    pub settings: Settings,
    /// What routes inherit.
    pub inherited: Inherited,
    /// `routes`, if they stand here.
    pub routes: Option<&'a Node>,
}

/// What is written under `key`, or the default.
fn or<T>(s: &Section<'_>, key: &str, by: SetBy, written: Option<T>, default: T) -> Sourced<T> {
    written.map_or((default, Origin::DEFAULT), |value| {
        (value, s.origin(key, by))
    })
}

fn below<'a>(root: &Section<'a>, key: &'static str, name: &'static str) -> Section<'a> {
    root.section(key, name)
        .unwrap_or_else(|| Section::absent(root.report, name))
}

/// Reads the whole file below `root`. `admin_key` is the one of the environment.
pub fn read<'a>(root: Section<'a>, admin_key: Option<&str>) -> Process<'a> {
    let server = below(&root, "server", "server");
    let proxy = below(&root, "proxy", "proxy");
    let transport = below(&proxy, "transport", "proxy.transport");
    proxy.finish();
    let firewall = firewall::read(below(&root, "firewall", "firewall"));
    let discovery = discovery::read(&root);
    let admin = read_admin(below(&root, "admin", "admin"), admin_key);
    let logging = read_logging(below(&root, "logging", "logging"));
    root.known("routes");
    let routes = root.mark_of("routes").and_then(|_| root.node("routes"));
    root.finish();

    let of_server = server.choice("inbound_chunked_mode", &CHUNKED_MODES, 3);
    let of_transport = transport.choice("inbound_chunked_mode", &CHUNKED_MODES, 3);
    let key = "inbound_chunked_mode";
    let of_server = of_server.map(|mode| (mode, server.origin(key, SetBy::Server)));
    let mode = of_transport
        .map(|mode| (mode, transport.origin(key, SetBy::Transport)))
        .or(of_server);
    let inherited = read_inherited(&server, &transport, &firewall, mode);
    let mut settings = read_settings(&server, &transport, &inherited, firewall, admin, logging);
    settings.discovery = discovery;
    server.finish();
    transport.finish();
    Process {
        settings,
        inherited,
        routes,
    }
}

fn read_inherited(
    server: &Section<'_>,
    transport: &Section<'_>,
    firewall: &Firewall,
    chunked_mode: Option<Sourced<ChunkedMode>>,
) -> Inherited {
    let secs = Duration::from_secs;
    let max_body_bytes = server.size("max_body_bytes", 0..=u64::MAX).map(|size| {
        if size > 0 {
            return size;
        }
        let text = "server.max_body_bytes: 0 lets bodies of any size through on every route \
                    without a ceiling of its own";
        server
            .report
            .warning(server.value_mark("max_body_bytes"), text);
        u64::MAX
    });
    if server.mark_of("request_deadline").is_some() {
        server.known("request_deadline");
        let text = "request_deadline is not allowed in server: it would cut event streams and \
                    downloads on every route (allowed: on a route, in routes.yaml)";
        server
            .report
            .fault(server.mark_of("request_deadline").unwrap_or_default(), text);
    }
    let of_server = |key, default| {
        let written = server.duration(key);
        or(server, key, SetBy::Server, written, secs(default))
    };
    let of_transport = |key, default| {
        let written = transport.duration(key);
        or(transport, key, SetBy::Transport, written, secs(default))
    };
    let progress = server.size("min_progress_bytes", 0..=1 << 30);
    let deadline = server.deadline("header_deadline");
    let by = SetBy::Server;
    Inherited {
        worker_pool_size: server.number("worker_pool_size", 1..=4096).unwrap_or(128),
        max_body_bytes: or(
            server,
            "max_body_bytes",
            by,
            max_body_bytes,
            DEFAULT_MAX_BODY_BYTES,
        ),
        read_timeout: of_server("read_timeout", 5),
        write_timeout: of_server("write_timeout", 5),
        min_progress_bytes: or(server, "min_progress_bytes", by, progress, 1024),
        upgrade_idle_timeout: of_server("upgrade_idle_timeout", 60),
        header_deadline: or(server, "header_deadline", by, deadline, None),
        chunked_mode: chunked_mode.unwrap_or((ChunkedMode::Normalize, Origin::DEFAULT)),
        response_header_timeout: of_transport("response_header_timeout", 10),
        upstream_idle_timeout: of_transport("upstream_idle_timeout", 60),
        body_timeout: firewall.body_timeout.clone(),
        min_body_rate: firewall.min_body_rate.clone(),
    }
}

fn read_settings(
    server: &Section<'_>,
    transport: &Section<'_>,
    inherited: &Inherited,
    firewall: Firewall,
    admin: (Admin, ProcessSources),
    logging: Logging,
) -> Settings {
    let secs = Duration::from_secs;
    let engines = [
        ("auto", EngineChoice::Auto),
        ("io_uring", EngineChoice::IoUring),
        ("epoll", EngineChoice::Epoll),
    ];
    let header_timeout = stricter(&inherited.read_timeout, &firewall.header_timeout);
    // A head is read into one pooled buffer of 64 KiB.
    let own = server.number("max_header_bytes", 256..=65_536);
    let own = or(server, "max_header_bytes", SetBy::Server, own, 8192);
    let (max_header_bytes, head_source) = match &firewall.max_header_bytes {
        stricter if stricter.0 < own.0 => stricter.clone(),
        _ => own,
    };
    let admin_sources = admin.1;
    let sources = ProcessSources {
        max_header_bytes: head_source,
        header_timeout: header_timeout.1,
        write_timeout: inherited.write_timeout.1.clone(),
        max_body_bytes: inherited.max_body_bytes.1.clone(),
        shutdown_grace: server.origin("shutdown_grace", SetBy::Server),
        buffer_memory: server.origin("buffer_memory", SetBy::Server),
        connect_timeout: transport.origin("connect_timeout", SetBy::Transport),
        admin_subnets: admin_sources.admin_subnets,
        admin_key: admin_sources.admin_key,
        ..firewall.sources
    };
    Settings {
        listen: read_listen(server),
        worker_pool_size: inherited.worker_pool_size,
        engine: server
            .choice("engine", &engines, 3)
            .unwrap_or(EngineChoice::Auto),
        header_timeout: header_timeout.0,
        read_timeout: inherited.read_timeout.0,
        write_timeout: inherited.write_timeout.0,
        idle_timeout: server.duration("idle_timeout").unwrap_or(secs(30)),
        max_header_bytes,
        max_header_count: firewall.max_header_count,
        max_body_bytes: inherited.max_body_bytes.0,
        min_progress_bytes: inherited.min_progress_bytes.0,
        min_body_rate: inherited.min_body_rate.0,
        body_timeout: inherited.body_timeout.0,
        shutdown_grace: server.duration("shutdown_grace").unwrap_or(secs(30)),
        drain_delay: server.duration("drain_delay").unwrap_or(Duration::ZERO),
        proxy_protocol: server.boolean("proxy_protocol").unwrap_or(false),
        via: server.boolean("via").unwrap_or(false),
        explain_header: server.boolean("explain_header").unwrap_or(false),
        watch: server.boolean("watch").unwrap_or(false),
        buffer_memory: server
            .size("buffer_memory", 65_536..=1 << 44)
            .unwrap_or(256 << 20),
        connect_timeout: transport.duration("connect_timeout").unwrap_or(secs(10)),
        idle_conn_timeout: transport.duration("idle_conn_timeout").unwrap_or(secs(30)),
        max_idle_per_target: transport
            .number("max_idle_per_target", 0..=1_000_000)
            .unwrap_or(100),
        dns_refresh: read_dns_refresh(transport),
        trusted_proxies: firewall.trusted_proxies,
        client_ip_header: firewall.client_ip_header,
        firewall: firewall.rules,
        discovery: None,
        logging,
        admin: admin.0,
        sources,
    }
}

/// The shorter of two timeouts, of which zero is none.
fn stricter(a: &Sourced<Duration>, b: &Sourced<Duration>) -> Sourced<Duration> {
    if a.0.is_zero() || (b.0 < a.0 && !b.0.is_zero()) {
        b.clone()
    } else {
        a.clone()
    }
}

fn read_dns_refresh(transport: &Section<'_>) -> Duration {
    let refresh = transport
        .duration("dns_refresh")
        .unwrap_or(Duration::from_secs(30));
    if refresh < Duration::from_secs(1) {
        let text = "proxy.transport.dns_refresh is too short (allowed: 1s or more)";
        transport
            .report
            .fault(transport.value_mark("dns_refresh"), text);
    }
    refresh.min(LONGEST)
}

/// Unlike `server.listen` it names its address, so that nobody opens the admin API to every network
/// unawares; and a port that is written does not follow the default.
fn read_admin_listen(admin: &Section<'_>) -> Option<SocketAddr> {
    let text = admin.string("listen")?;
    let fault = |problem: &str| {
        let text = format!("admin.listen: \"{text}\" {problem}");
        admin.report.fault(admin.value_mark("listen"), text);
    };
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match parse_listen(text, 0) {
        Some(_) if is_port(text.strip_prefix(':').unwrap_or(text)) => fault(
            "is a port without an address (allowed: 127.0.0.1:9901, which this machine alone \
             reaches, or 0.0.0.0:9901 for every IPv4 address)",
        ),
        Some(address) if Some(address) == parse_listen(text, 1) => return Some(address),
        Some(_) | None => {
            fault("is not an address with a port (allowed: 127.0.0.1:9901, [::1]:9901)");
        }
    }
    None
}

fn read_listen(server: &Section<'_>) -> Vec<SocketAddr> {
    let port = server.number("port", 0..=65_535).unwrap_or(8080);
    let host = server.string("host");
    if let Some(list) = server.list("listen") {
        if host.is_some() {
            let text = "server.listen and server.host exclude each other (allowed: one of them)";
            server
                .report
                .fault(server.mark_of("listen").unwrap_or_default(), text);
        }
        if list.is_empty() {
            server.report.fault(
                server.value_mark("listen"),
                "server.listen is an empty list",
            );
        }
        return read_addresses(server, list, port);
    }
    let address = match host {
        None => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        Some(host) => parse_ip(host),
    };
    if address.is_none() {
        let text = format!(
            "server.host: \"{}\" is not an address (allowed: an IPv4 or IPv6 address, localhost)",
            host.unwrap_or_default()
        );
        server.report.fault(server.value_mark("host"), text);
    }
    address
        .map(|address| SocketAddr::new(address, port))
        .into_iter()
        .collect()
}

fn read_addresses(server: &Section<'_>, list: &[Node], port: u16) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for node in list {
        let text = match &node.value {
            Value::Scalar { text, .. } => text.as_str(),
            Value::Null | Value::List(_) | Value::Map(_) => "",
        };
        match parse_listen(text, port) {
            Some(address) if address.port() != 0 && addresses.contains(&address) => {
                let text = format!("server.listen: \"{address}\" is listed twice");
                server.report.fault(node.mark, text);
            }
            Some(address) => addresses.push(address),
            None => {
                let text = format!(
                    "server.listen: \"{text}\" is not an address (allowed: 127.0.0.1:8080, \
                     [::1]:8080, :8080, or an address or a port alone)"
                );
                server.report.fault(node.mark, text);
            }
        }
    }
    addresses
}

fn read_admin(admin: Section<'_>, from_environment: Option<&str>) -> (Admin, ProcessSources) {
    let written = admin.string("key");
    if written == Some("") {
        admin.report.fault(
            admin.value_mark("key"),
            "admin.key is empty (leave it out for none)",
        );
    }
    let key = written.or(from_environment).filter(|key| !key.is_empty());
    let loopback = ["127.0.0.1/32", "::1/128"]
        .iter()
        .filter_map(|block| block.parse().ok());
    let made = Admin {
        key: key.map(str::to_owned),
        subnets: read_cidrs(&admin, "subnets").unwrap_or_else(|| loopback.collect()),
        listen: read_admin_listen(&admin),
    };
    let admin_key = match written {
        None if made.key.is_some() => Origin {
            by: SetBy::Environment,
            at: None,
        },
        _ => admin.origin("key", SetBy::Admin),
    };
    let sources = ProcessSources {
        admin_subnets: admin.origin("subnets", SetBy::Admin),
        admin_key,
        ..ProcessSources::default()
    };
    admin.finish();
    (made, sources)
}

fn read_logging(logging: Section<'_>) -> Logging {
    use log::LevelFilter::{Debug, Error, Info, Off, Trace, Warn};
    let levels = [
        ("off", Off),
        ("error", Error),
        ("warn", Warn),
        ("info", Info),
        ("debug", Debug),
        ("trace", Trace),
        ("warning", Warn),
    ];
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let access_log = match logging.string("access_log") {
        None | Some("off" | "false" | "no") => None,
        Some("stdout" | "on" | "true" | "yes") => Some(LogSink::Stdout),
        Some(path) => Some(LogSink::File(PathBuf::from(path))),
    };
    if let Some(LogSink::File(path)) = &access_log {
        check_log_path(&logging, "access_log", path);
    }
    let error_log = logging.string("error_log").map(PathBuf::from);
    if let Some(path) = &error_log {
        check_log_path(&logging, "error_log", path);
    }
    let made = Logging {
        level: logging.choice("level", &levels, 6).unwrap_or(Info),
        format: logging
            .choice("format", &formats, 2)
            .unwrap_or(LogFormat::Text),
        access_log,
        error_log,
    };
    logging.finish();
    made
}

/// Who writes one of these means something else than a file of that name in the working directory.
const NO_FILES: [&str; 13] = [
    "", "stdout", "stderr", "syslog", "journal", "none", "null", "on", "off", "true", "false",
    "yes", "no",
];

/// A log is made when it is not there; its folder is not.
fn check_log_path(logging: &Section<'_>, key: &'static str, path: &Path) {
    let shown = path.display();
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let allowed = match NO_FILES.iter().any(|word| path == Path::new(word)) {
        true if key == "access_log" => Some("a path, stdout, off"),
        true => Some("a path; without one it is standard error"),
        false => None,
    };
    if let Some(allowed) = allowed {
        let text = format!("logging.{key}: \"{shown}\" is no path (allowed: {allowed})");
        return logging.report.fault(logging.value_mark(key), text);
    }
    let wrong = match folder {
        _ if path.is_dir() => "is a folder",
        Some(folder) if !folder.is_dir() => "is in a folder that does not exist",
        Some(_) | None => return,
    };
    let text = format!(
        "logging.{key}: \"{shown}\" {wrong} (allowed: a file, there or not, in a folder that exists)"
    );
    logging.report.fault(logging.value_mark(key), text);
}
