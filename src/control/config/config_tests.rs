#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::policy::settings::{Algorithm, ChunkedMode, HostPattern, Limits, Source};

pub(super) type Made = Result<(Arc<Settings>, Table, Vec<String>), Vec<String>>;

/// Loads two texts; an empty second one is no file. Files are called `c` and `r` in findings.
pub(super) fn load_texts(config: &str, routes: &str) -> Made {
    let routes = Some(routes).filter(|text| !text.is_empty());
    let show = |list: Vec<Finding>| {
        let short = |f: &Finding| {
            f.to_string()
                .replace("config.yaml", "c")
                .replace("routes.yaml", "r")
        };
        list.iter().map(short).collect::<Vec<_>>()
    };
    match super::load_texts(config, routes, &mut Endpoints::default()) {
        Ok(Loaded {
            snapshot, warnings, ..
        }) => Ok((snapshot.settings, snapshot.table, show(warnings))),
        Err(rejected) => Err(show(rejected.faults)),
    }
}

const ONE_ROUTE: &str = "routes:\n  - target: http://a\n";

fn settings(config: &str) -> Arc<Settings> {
    load_texts(config, ONE_ROUTE).unwrap().0
}

/// The faults of a config.yaml with a good routes.yaml.
pub(super) fn faults(config: &str) -> Vec<String> {
    load_texts(config, ONE_ROUTE).map(|_| ()).unwrap_err()
}

/// The faults of one route with these further keys, separated by `; `.
fn route_faults(keys: &str) -> Vec<String> {
    let routes = format!("routes:\n  - {}\n", keys.replace("; ", "\n    "));
    load_texts("", &routes).map(|_| ()).unwrap_err()
}

pub(super) fn route(config: &str, keys: &str) -> (Arc<Route>, Vec<String>) {
    let routes = format!("routes:\n  - {}\n", keys.replace("; ", "\n    "));
    let (_, table, warnings) = load_texts(config, &routes).unwrap();
    (table.routes()[0].clone(), warnings)
}

fn limits(config: &str, keys: &str) -> Limits {
    route(config, &format!("target: http://a; {keys}"))
        .0
        .limits
        .clone()
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn the_defaults() {
    let s = settings("");
    assert_eq!(s.listen, ["0.0.0.0:8080".parse().unwrap()]);
    assert_eq!(
        (s.worker_pool_size, s.max_header_bytes, s.max_header_count),
        (128, 8192, 100)
    );
    assert_eq!(
        (s.header_timeout, s.read_timeout, s.write_timeout),
        (secs(5), secs(5), secs(5))
    );
    assert_eq!(
        (s.idle_timeout, s.shutdown_grace, s.drain_delay),
        (secs(30), secs(30), secs(0))
    );
    assert_eq!(
        (s.connect_timeout, s.idle_conn_timeout, s.dns_refresh),
        (secs(10), secs(30), secs(30))
    );
    assert_eq!((s.max_body_bytes, s.min_progress_bytes), (4_194_304, 1024));
    assert_eq!((s.max_idle_per_target, s.buffer_memory), (100, 256 << 20));
    assert_eq!(s.admin.subnets.len(), 2);
    let l = limits("", "prefix: /");
    assert_eq!(
        (l.response_header_timeout, l.upstream_idle_timeout),
        (secs(10), secs(60))
    );
    assert_eq!(
        (l.body_timeout, l.min_body_rate, l.max_concurrency),
        (Some(secs(30)), 100, None)
    );
    assert_eq!(
        (l.upgrade_idle_timeout, l.chunked_mode),
        (secs(60), ChunkedMode::Normalize)
    );
}

#[test]
fn i3_the_stricter_header_deadline_and_size_hold() {
    let both = |server: &str, firewall: &str| {
        let config =
            format!("server: {{read_timeout: {server}}}\nfirewall: {{header_timeout: {firewall}}}");
        settings(&config).header_timeout
    };
    assert_eq!(both("3s", "10s"), secs(3));
    assert_eq!(both("30s", "10s"), secs(10));
    assert_eq!(both("0", "10s"), secs(10));
    assert_eq!(both("3s", "0"), secs(3));
    assert_eq!(both("0", "0"), secs(0));
    let s = settings("server: {max_header_bytes: 65536}\nfirewall: {max_header_bytes: 1000, max_header_count: 7}");
    assert_eq!((s.max_header_bytes, s.max_header_count), (1000, 7));
}

#[test]
fn i7_i21_own_limits_replace_inherited_ones() {
    let config = "server: {max_body_bytes: 1000, read_timeout: 7s}\nproxy: {transport: {response_header_timeout: 9s}}";
    let l = limits(config, "max_body_bytes: 0; read_timeout: 0");
    assert_eq!(
        (l.max_body_bytes, l.read_timeout, l.body_timeout),
        (1000, secs(7), Some(secs(30)))
    );
    assert_eq!(l.response_header_timeout, secs(9));
    let l = limits(config, "max_body_bytes: 2000");
    assert_eq!(
        (l.max_body_bytes, l.body_timeout, l.max_concurrency),
        (2000, None, None)
    );
    assert_eq!(
        limits(config, "max_body_bytes: 500").body_timeout,
        Some(secs(30))
    );
    assert_eq!(limits(config, "read_timeout: 1s").body_timeout, None);
    assert_eq!(limits(config, "stream_request_body: on").body_timeout, None);
    assert_eq!(
        limits(config, "read_timeout: 1s; body_timeout: 2s").body_timeout,
        Some(secs(2))
    );
    assert_eq!(
        limits("server: {max_body_bytes: 0}", "prefix: /").max_body_bytes,
        u64::MAX
    );
    assert_eq!(
        limits("", "min_progress_bytes: 0; min_body_rate: 0").min_body_rate,
        0
    );
}

#[test]
fn chunked_mode_is_the_route_s_else_the_transport_s_else_the_server_s() {
    let server = "server: {inbound_chunked_mode: reject}\n";
    let both = format!("{server}proxy: {{transport: {{inbound_chunked_mode: passthrough}}}}");
    assert_eq!(limits("", "prefix: /").chunked_mode, ChunkedMode::Normalize);
    assert_eq!(
        limits(server, "prefix: /").chunked_mode,
        ChunkedMode::Reject
    );
    assert_eq!(
        limits(&both, "prefix: /").chunked_mode,
        ChunkedMode::Passthrough
    );
    let own = limits(&both, "inbound_chunked_mode: normalize");
    assert_eq!(own.chunked_mode, ChunkedMode::Normalize);
}

#[test]
fn i16_the_guardrail() {
    let cap = |config: &str, keys: &str| {
        let (route, _) = route(config, &format!("target: http://a; {keys}"));
        (
            route.limits.max_concurrency,
            route.limit_sources.max_concurrency.by,
        )
    };
    assert_eq!(cap("", "max_body_bytes: 4194304"), (None, SetBy::Default));
    assert_eq!(
        cap("", "max_body_bytes: 4194305"),
        (Some(32), SetBy::Guardrail)
    );
    assert_eq!(
        cap("", "response_header_timeout: 10s"),
        (None, SetBy::Default)
    );
    assert_eq!(
        cap("", "response_header_timeout: 11s"),
        (Some(32), SetBy::Guardrail)
    );
    assert_eq!(
        cap("", "max_body_bytes: 5MiB; max_concurrency: 0"),
        (Some(32), SetBy::Guardrail)
    );
    assert_eq!(
        cap("", "max_body_bytes: 5MiB; max_concurrency: 3"),
        (Some(3), SetBy::Route)
    );
    assert_eq!(
        cap("", "max_body_bytes: 5MiB; max_concurrency: -1"),
        (None, SetBy::Route)
    );
    assert_eq!(
        cap("server: {worker_pool_size: 9}", "max_body_bytes: 5MiB").0,
        Some(2)
    );
    // What the server allows to all is not what a route asks for.
    assert_eq!(cap("server: {max_body_bytes: 1GiB}", "prefix: /").0, None);
    let (_, warnings) = route(
        "",
        "target: http://a; max_body_bytes: 5MiB; max_concurrency: -1",
    );
    assert!(
        warnings.iter().any(|w| w.contains("without any cap")),
        "{warnings:?}"
    );
    let (_, warnings) = route(
        "",
        "target: http://a; max_body_bytes: 5MiB; max_concurrency: 33",
    );
    assert!(
        warnings.iter().any(|w| w.contains("add up to 33")),
        "{warnings:?}"
    );
}

#[test]
fn i32_i33_deadlines_of_zero_or_less_are_off_and_i34_none_covers_the_server() {
    let server = "server: {header_deadline: 9s}";
    assert_eq!(limits(server, "prefix: /").header_deadline, Some(secs(9)));
    assert_eq!(limits(server, "header_deadline: 0").header_deadline, None);
    assert_eq!(limits(server, "header_deadline: -1").header_deadline, None);
    assert_eq!(limits("", "request_deadline: -5s").request_deadline, None);
    assert_eq!(
        limits("", "request_deadline: 1m").request_deadline,
        Some(secs(60))
    );
    assert_eq!(
        faults("server:\n  request_deadline: 5s\n"),
        ["c:2:3: request_deadline is not allowed in server: it would cut event streams and downloads on \
          every route (allowed: on a route, in r)"]
    );
}

#[test]
fn a_route_in_full() {
    let (made, _) = route(
        "",
        "type: proxy; host: WWW.Example.com:81; prefix: /api/; method: [post, GET]; \
         headers: {X-B: 1, a: yes}; targets: [\"http://a:1/v1/\", {url: \"http://b\", weight: 2}]; \
         algorithm: weighted_round_robin; strip_prefix: off; retries: 0",
    );
    assert_eq!(made.name, "www.example.com:81/api [GET,POST] {a=yes&X-B=1}");
    let name = "www.example.com".to_owned();
    assert_eq!(
        made.host,
        HostPattern::Exact {
            name,
            port: Some(81)
        }
    );
    assert_eq!(
        (made.source, made.origin.to_string()),
        (Source::Config, "routes.yaml:2".to_owned())
    );
    let RouteKind::Upstream(upstream) = &made.kind else {
        unreachable!()
    };
    assert_eq!(
        (upstream.algorithm, upstream.retries),
        (Algorithm::RoundRobin, 0)
    );
    assert!(!upstream.strip_prefix && upstream.preserve_host && upstream.rewrite_redirects);
    assert_eq!(upstream.targets[0].url(), "http://a:1/v1");
    assert_eq!(
        (
            upstream.targets[1].weight,
            upstream.targets[1].endpoint.port
        ),
        (2, 80)
    );
}

#[test]
fn a_fixed_answer_and_its_constraints() {
    let keys = "status: 503; headers: {Retry-After: 5}; body: later; match_headers: {X-Tier: beta}";
    let (made, _) = route("", keys);
    assert_eq!(made.headers, [("X-Tier".to_owned(), "beta".to_owned())]);
    let RouteKind::Respond(response) = &made.kind else {
        unreachable!()
    };
    assert_eq!((response.status, response.body.as_str()), (503, "later"));
    assert_eq!(
        response.headers,
        [("Retry-After".to_owned(), "5".to_owned())]
    );
}

#[test]
fn faults_of_config_yaml_are_exact() {
    for (config, expected) in [
        ("server: 5", "c:1:9: server must be a mapping of keys, not a single value"),
        ("- a", "c:1:1: the file must be a mapping of keys, not a list"),
        (
            "sever: {}",
            "c:1:1: unknown key \"sever\" (allowed: admin, discovery, firewall, logging, proxy, \
             routes, server; did you mean \"server\"?)",
        ),
        (
            "server: {read_timeout: 5}",
            "c:1:24: server.read_timeout: \"5\" has no unit (allowed: a duration such as 250ms, 5s, \
             1m30s, 0; did you mean \"5s\"?)",
        ),
        (
            "server: {read_timeout: -5s}",
            "c:1:24: server.read_timeout: \"-5s\" is negative (allowed: a duration such as 250ms, 5s, 1m30s, 0)",
        ),
        (
            "server: {read_timeout: 9999999h}",
            "c:1:24: server.read_timeout: \"9999999h\" is longer than a year (allowed: a duration such \
             as 250ms, 5s, 1m30s, 0)",
        ),
        ("server: {read_timeout: }", "c:1:10: server.read_timeout has no value"),
        (
            "server: {worker_pool_size: 0}",
            "c:1:28: server.worker_pool_size: 0 is too small (allowed: 1 to 4096)",
        ),
        (
            "server: {port: -1}",
            "c:1:16: server.port: -1 is negative (allowed: 0 to 65535)",
        ),
        (
            "server: {port: \"80\"}",
            "c:1:16: server.port: \"80\" in quotes is a text, not a number (allowed: 0 to 65535)",
        ),
        (
            "server: {engine: iouring}",
            "c:1:18: server.engine: unknown value \"iouring\" (allowed: auto, io_uring, epoll; did you \
             mean \"io_uring\"?)",
        ),
        (
            "server: {via: maybe}",
            "c:1:15: server.via: \"maybe\" is not on or off (allowed: true, false, on, off, yes, no)",
        ),
        (
            "server: {host: example.com}",
            "c:1:16: server.host: \"example.com\" is not an address (allowed: an IPv4 or IPv6 address, localhost)",
        ),
        (
            "server: {buffer_memory: 1KB}",
            "c:1:25: server.buffer_memory: \"1KB\" is too small (allowed: bytes, or a size such as 64KB, \
             4MiB, 65536 to 17592186044416)",
        ),
        (
            "admin: {subnets: [10.0.0.0/40]}",
            "c:1:19: admin.subnets: \"10.0.0.0/40\" has a bad number of bits (allowed: 10.0.0.0/8, \
             192.0.2.1, 2001:db8::/32)",
        ),
        (
            "admin: {listen: 9901}",
            "c:1:17: admin.listen: \"9901\" is a port without an address (allowed: 127.0.0.1:9901, \
             which this machine alone reaches, or 0.0.0.0:9901 for every IPv4 address)",
        ),
        (
            "admin: {listen: ':9901'}",
            "c:1:17: admin.listen: \":9901\" is a port without an address (allowed: 127.0.0.1:9901, \
             which this machine alone reaches, or 0.0.0.0:9901 for every IPv4 address)",
        ),
        (
            "admin: {listen: '::1'}",
            "c:1:17: admin.listen: \"::1\" is not an address with a port (allowed: 127.0.0.1:9901, \
             [::1]:9901)",
        ),
        (
            "firewall: {deny: [example.com]}",
            "c:1:19: firewall.deny: \"example.com\" is not an address or address block (allowed: \
             10.0.0.0/8, 192.0.2.1, 2001:db8::/32)",
        ),
        (
            "discovery: {engine: containerd}",
            "c:1:21: discovery.engine: containerd speaks gRPC, not the Docker API (allowed: auto, docker, podman)",
        ),
    ] {
        assert_eq!(faults(config), [expected], "{config}");
    }
}

#[test]
fn faults_of_a_route_are_exact() {
    for (keys, expected) in [
        (
            "target: https://a",
            "r:2:13: target \"https://a\" is https, which this version cannot dial yet (allowed: \
             http://host[:port][/path])",
        ),
        (
            "target: http://a; algorithm: least_con",
            "r:3:16: routes[].algorithm: unknown value \"least_con\" (allowed: round_robin, least_conn, \
             random_two, ip_hash; did you mean \"least_conn\"?)",
        ),
        (
            "type: static; dir: /srv",
            "r:2:11: routes of type static are not supported yet (allowed: upstream, respond)",
        ),
        (
            "dir: /srv",
            "r:2:10: routes of type static are not supported yet (allowed: upstream, respond)",
        ),
        (
            "prefix: /a",
            "r:2:5: a route says nothing about where its requests go (allowed: target or targets, or \
             status, headers and body for a fixed answer)",
        ),
        (
            "target: http://a; stream_request_body: false; inbound_chunked_mode: passthrough",
            "r:3:26: stream_request_body: false contradicts inbound_chunked_mode: passthrough, which \
             cannot collect a body (allowed: normalize or reject with it)",
        ),
        (
            "target: http://a; max_concurrency: -2",
            "r:3:22: routes[].max_concurrency: -2 is too small (allowed: -1 to 1000000)",
        ),
        (
            "target: http://a; prefix: api",
            "r:3:13: routes[].prefix: \"api\" does not begin with a slash (did you mean \"/api\"?)",
        ),
        (
            "target: http://a; host: \"*\"",
            "r:3:11: routes[].host: \"*\" is not a host (allowed: example.com, *.example.com, [::1], \
             each with or without :port)",
        ),
        (
            "target: http://a; method: GET POST",
            "r:3:13: routes[].method: \"GET POST\" is not a method (allowed: a method such as GET, or a \
             list such as [GET, POST])",
        ),
        (
            "status: 200; algorithm: round_robin",
            "r:3:5: algorithm has no meaning on a route that responds by itself",
        ),
        ("status: 204; body: x", "r:3:11: a 204 response has no body (RFC 9110, section 6.4.1)"),
        (
            "targets: [http://a, http://A/]",
            "r:2:25: routes[].targets: \"http://a\" is listed twice (allowed: once; weight gives it more)",
        ),
        (
            "target: http://a; headers: {X-A: }",
            "r:3:15: routes[].headers: \"X-A\" has no value (allowed: a text; \"\" is the empty one)",
        ),
        (
            "target: http://a; headers: {X-A: 1, x-a: 2}",
            "r:3:23: headers: \"x-a\" is given twice (names are compared without case)",
        ),
    ] {
        assert_eq!(route_faults(keys), [expected], "{keys}");
    }
    let unknown = route_faults("target: http://a; prefx: /a");
    assert_eq!(unknown.len(), 1);
    assert!(
        unknown[0].starts_with("r:3:5: unknown key \"prefx\" in a route (allowed: "),
        "{unknown:?}"
    );
    assert!(
        unknown[0].ends_with("; did you mean \"prefix\"?)"),
        "{unknown:?}"
    );
}

#[test]
fn r5_duplicates_and_overlaps_name_both_places() {
    let routes =
        "routes:\n  - {prefix: /a, target: http://a}\n  - {prefix: /a/, target: http://b}\n";
    assert_eq!(
        load_texts("", routes).map(|_| ()),
        Err(vec![
            "r:3:5: the same route is already at r:2: /a".to_owned()
        ])
    );
    let routes = "routes:\n  - {method: [GET, PUT], target: http://a}\n  - {method: GET, target: http://b}\n";
    assert_eq!(
        load_texts("", routes).map(|_| ()),
        Err(vec![
            "r:3:5: overlaps with the route at r:2: both take GET for /".to_owned()
        ])
    );
    // In the two files together as well.
    let config = "routes:\n  - target: http://a\n";
    assert_eq!(
        load_texts(config, ONE_ROUTE).map(|_| ()),
        Err(vec!["r:2:5: the same route is already at c:2: /".to_owned()])
    );
}

#[test]
fn faults_of_both_files_come_in_one_run() {
    let made = load_texts(
        "server:\n  prt: 1\n  via: 7\n",
        "routes:\n  - target: ftp://a\n    wieght: 1\n",
    );
    let faults = made.map(|_| ()).unwrap_err();
    let places: Vec<&str> = faults
        .iter()
        .map(|f| f.split(": ").next().unwrap())
        .collect();
    assert_eq!(places, ["c:2:3", "c:3:8", "r:2:13", "r:3:5"], "{faults:?}");
}

#[test]
fn what_has_effect_brings_no_warning() {
    let config = "server:\n  watch: true\nfirewall:\n  enabled: true\n  rateLimitRps: 5\ndiscovery:\n  enabled: off\n";
    let (_, _, warnings) = load_texts(
        config,
        "routes:\n  - target: http://a\n    algorithm: ip_hash\n",
    )
    .unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn discovery_alone_needs_no_routes() {
    let (_, table, warnings) = load_texts("discovery: {}", "").unwrap();
    assert!(table.routes().is_empty());
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(load_texts("discovery: {enabled: no}", "").is_err());
    assert!(load_texts("", "").map(|_| ()).unwrap_err()[0].starts_with("c: there are no routes"));
}

#[test]
fn built_in_paths_are_pointed_out() {
    for (prefix, said) in [
        ("/health", "wins over"),
        ("/metrics", "wins over"),
        ("/internal/x", "never reached"),
    ] {
        let (_, warnings) = route("", &format!("target: http://a; prefix: {prefix}"));
        assert!(warnings[0].contains(said), "{warnings:?}");
    }
}

/// A folder of its own that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("toron-config-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        for (file, text) in files {
            fs::write(path.join(file), text).unwrap();
        }
        Folder(path)
    }

    fn inputs(&self) -> Inputs {
        Inputs {
            folders: vec![self.0.join("absent"), self.0.clone()],
            ..Inputs::default()
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn first_fault(inputs: &Inputs) -> String {
    load(inputs, &mut Endpoints::default()).unwrap_err().faults[0].to_string()
}

#[test]
fn files_are_found() {
    let folder = Folder::new("found", &[("config.yaml", ""), ("routes.yaml", ONE_ROUTE)]);
    let loaded = load(&folder.inputs(), &mut Endpoints::default()).unwrap();
    assert_eq!(
        loaded.files,
        [folder.0.join("config.yaml"), folder.0.join("routes.yaml")]
    );
    let one = Folder::new("one", &[("toron.yaml", ONE_ROUTE)]);
    let loaded = load(&one.inputs(), &mut Endpoints::default()).unwrap();
    assert_eq!(loaded.files, [one.0.join("toron.yaml")]);
    let given = Inputs {
        config: Some(one.0.join("toron.yaml")),
        ..folder.inputs()
    };
    assert_eq!(
        load(&given, &mut Endpoints::default()).unwrap().files.len(),
        1
    );
}

#[test]
fn files_that_are_missing_or_double_are_faults() {
    let both = Folder::new(
        "both",
        &[
            ("config.yaml", ""),
            ("toron.yaml", ""),
            ("routes.yaml", ONE_ROUTE),
        ],
    );
    assert!(first_fault(&both.inputs()).contains("toron.yaml: both this file and "));
    let none = Folder::new("none", &[]);
    assert!(first_fault(&none.inputs()).starts_with("config.yaml: not found in "));
    let absent = Inputs {
        config: Some(none.0.join("x.yaml")),
        ..Inputs::default()
    };
    assert!(first_fault(&absent).contains("x.yaml: cannot be read: No such file"));
    let bytes = Folder::new("bytes", &[]);
    fs::write(bytes.0.join("config.yaml"), b"a: 1\nb: \xff\n").unwrap();
    assert!(first_fault(&bytes.inputs()).ends_with("config.yaml:2:1: not UTF-8 on this line"));
}

#[test]
fn the_key_of_the_environment_is_used_when_none_is_written() {
    let folder = Folder::new("key", &[("config.yaml", ""), ("routes.yaml", ONE_ROUTE)]);
    let inputs = Inputs {
        admin_key: Some("secret".to_owned()),
        ..folder.inputs()
    };
    let loaded = load(&inputs, &mut Endpoints::default()).unwrap();
    assert_eq!(
        loaded.snapshot.settings.admin.key.as_deref(),
        Some("secret")
    );
}

#[test]
fn a_reload_keeps_endpoints() {
    let folder = Folder::new("reload", &[("config.yaml", ""), ("routes.yaml", ONE_ROUTE)]);
    let mut endpoints = Endpoints::default();
    let id = |loaded: &Loaded| match &loaded.snapshot.table.routes()[0].kind {
        RouteKind::Upstream(upstream) => upstream.targets[0].endpoint.id,
        RouteKind::Respond(_) => unreachable!(),
    };
    let first = load(&folder.inputs(), &mut endpoints).unwrap();
    let second = load(&folder.inputs(), &mut endpoints).unwrap();
    assert_eq!(id(&first), id(&second));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands under a known key is read or refused with a place, never a panic.
    #[test]
    fn any_value_under_any_key(
        key in prop::sample::select(vec![
            "target", "targets", "host", "prefix", "method", "headers", "status", "type", "weight",
            "max_body_bytes", "max_concurrency", "read_timeout", "header_deadline", "passive_statuses",
            "header_deadline_response", "stream_request_body", "algorithm",
        ]),
        value in prop::sample::select(vec![
            "", "1", "-1", "[]", "{}", "[[]]", "{a: b}", "\"\"", "x", "5s", "true", "[GET]", "~", "%",
            "99999999999999999999", "{url: 1}", "[{url: }]", "é", "http://", "[::1]", "*.", "\":\"",
        ]),
        base in prop::sample::select(vec!["", "target: http://a\n    ", "status: 200\n    "]),
    ) {
        let text = format!("routes:\n  - {base}{key}: {value}\n");
        if let Err(faults) = load_texts("", &text) {
            prop_assert!(!faults.is_empty());
            for fault in faults {
                prop_assert!(fault.starts_with("r:"), "{}", fault);
            }
        }
    }
}
