//! What holds, as `toron check` shows it: the process, then the routes in order of matching. Lines
//! keep within [`WIDTH`] columns where names and URLs allow it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::discovery::DiscoverySettings;
use crate::policy::firewall::{Mode, Rules};
use crate::policy::settings::{
    EngineChoice, FixedResponse, HalfClose, LimitSources, Limits, LogSink, Route, RouteKind, SetBy,
    Settings, Upstream,
};
use crate::policy::snapshot::Snapshot;

use super::config::routes::show_key;
use super::config::values::{show_duration, show_size};
use super::discovery::socket::{candidates_here, find};

/// Columns of a line.
pub const WIDTH: usize = 100;

/// The effective settings and the table of routes.
pub struct Report<'a>(pub &'a Snapshot);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (label, parts) in process(&self.0.settings) {
            write_wrapped(f, &format!("{label:<16} "), &parts)?;
        }
        writeln!(f)?;
        write_routes(f, self.0.table.routes())
    }
}

/// `first` and the parts behind it; further lines begin below the first part.
fn write_wrapped(f: &mut fmt::Formatter<'_>, first: &str, parts: &[String]) -> fmt::Result {
    let indent = first.chars().count();
    let mut column = indent;
    f.write_str(first)?;
    for (i, part) in parts.iter().enumerate() {
        let comma = if i + 1 < parts.len() { "," } else { "" };
        let length = part.chars().count() + comma.len();
        if i > 0 && column + 1 + length > WIDTH {
            write!(f, "\n{:indent$}", "")?;
            column = indent;
        } else if i > 0 {
            f.write_str(" ")?;
            column += 1;
        }
        write!(f, "{part}{comma}")?;
        column += length;
    }
    writeln!(f)
}

fn process(settings: &Settings) -> Vec<(&'static str, Vec<String>)> {
    let engine = match settings.engine {
        EngineChoice::Auto => "auto",
        EngineChoice::IoUring => "io_uring",
        EngineChoice::Epoll => "epoll",
    };
    let head = format!(
        "{} and {} fields within {} (the stricter of server and firewall)",
        show_size(settings.max_header_bytes as u64),
        settings.max_header_count,
        off_or(settings.header_timeout)
    );
    let shutdown = [
        format!("drain delay {}", show_duration(settings.drain_delay)),
        format!("grace {}", show_duration(settings.shutdown_grace)),
    ];
    let listen = settings.listen.iter().map(ToString::to_string).collect();
    let mut lines = vec![
        ("listen", listen),
        ("engine", vec![engine.to_owned()]),
        ("reactors", vec![settings.worker_pool_size.to_string()]),
        ("request head", vec![head]),
        ("idle clients", vec![idle(settings)]),
        ("upstreams", upstreams(settings)),
        ("trusted proxies", trusted(settings)),
        ("firewall", firewall(&settings.firewall)),
        ("admin", admin(settings)),
        ("logs", logs(settings)),
        ("shutdown", shutdown.to_vec()),
    ];
    if settings.via {
        lines.push(("via", vec!["on".to_owned()]));
    }
    if let Some(discovery) = &settings.discovery {
        lines.push(("discovery", containers(discovery)));
    }
    lines
}

/// Which socket would be used; none is opened.
fn containers(settings: &DiscoverySettings) -> Vec<String> {
    let candidates = candidates_here(settings);
    let mut parts = match find(&candidates) {
        Some((candidate, _)) if candidate.rootless => vec![
            candidate.path.display().to_string(),
            "without root: published ports only".to_owned(),
        ],
        Some((candidate, _)) => vec![candidate.path.display().to_string()],
        None => {
            let mut places: Vec<String> = candidates
                .iter()
                .map(|c| c.path.display().to_string())
                .collect();
            if let Some(first) = places.first_mut() {
                first.insert_str(0, "no socket now at ");
            }
            places
        }
    };
    parts.push(format!(
        "list every {}",
        show_duration(settings.poll_interval)
    ));
    parts.push(format!("weight {}", settings.default_weight));
    parts.extend(settings.network.iter().map(|n| format!("network {n}")));
    parts
}

fn idle(settings: &Settings) -> String {
    if settings.idle_timeout.is_zero() {
        return "stay connected".to_owned();
    }
    format!("closed after {}", show_duration(settings.idle_timeout))
}

fn upstreams(settings: &Settings) -> Vec<String> {
    let kept = if settings.idle_conn_timeout.is_zero() || settings.max_idle_per_target == 0 {
        "no idle connections".to_owned()
    } else {
        format!(
            "{} idle connections per target for {}",
            settings.max_idle_per_target,
            show_duration(settings.idle_conn_timeout)
        )
    };
    vec![
        format!("connect {}", off_or(settings.connect_timeout)),
        kept,
        format!("names anew every {}", show_duration(settings.dns_refresh)),
    ]
}

fn trusted(settings: &Settings) -> Vec<String> {
    let blocks = settings.trusted_proxies.blocks().iter();
    or_word(blocks.map(ToString::to_string).collect(), "none")
}

/// What an address may do; 0 is no limit, except for the burst.
fn firewall(rules: &Rules) -> Vec<String> {
    if !rules.enabled {
        return vec!["off: no denials, rates, blocks or caps of connections".to_owned()];
    }
    let mode = match rules.mode {
        Mode::Enforce => "on",
        Mode::Observe => "observes, refuses only beyond the cap in all",
    };
    let rate = match (rules.rate_limit_rps, rules.rate_limit_burst) {
        (0, _) => "any rate".to_owned(),
        (rps, burst) => format!("{rps} requests/s (burst {burst}) from an address"),
    };
    let block = match rules.auto_block_threshold {
        0 => "no automatic blocks".to_owned(),
        n => format!(
            "blocked for {} after {n} violations",
            show_duration(rules.block_duration)
        ),
    };
    let cap = |n: u32, of: &str| (n > 0).then(|| format!("{n} connections {of}"));
    let mut parts = vec![mode.to_owned(), rate, block];
    parts.extend(cap(rules.max_connections_per_ip, "from an address"));
    parts.extend(cap(rules.max_connections_total, "in all"));
    for (word, set) in [("allowed", &rules.allow), ("denied", &rules.deny)] {
        let mut blocks = set.blocks().iter().map(ToString::to_string);
        parts.extend(blocks.next().map(|first| format!("{word} {first}")));
        parts.extend(blocks);
    }
    parts
}

fn admin(settings: &Settings) -> Vec<String> {
    if settings.admin.key.is_none() {
        return vec!["no key: everything below /internal/ is 404".to_owned()];
    }
    let blocks = settings.admin.subnets.iter();
    let blocks: Vec<String> = blocks.map(ToString::to_string).collect();
    or_word(blocks, "nobody")
        .into_iter()
        .enumerate()
        .map(|(i, block)| match i {
            0 => format!("/internal/ with the key from {block}"),
            _ => block,
        })
        .collect()
}

fn logs(settings: &Settings) -> Vec<String> {
    let logging = &settings.logging;
    let access = match &logging.access_log {
        None => "off".to_owned(),
        Some(LogSink::Stdout) => "to standard output".to_owned(),
        Some(LogSink::File(path)) => format!("to {}", path.display()),
    };
    let error = logging.error_log.as_ref();
    let error = error.map_or("standard error".to_owned(), |p| p.display().to_string());
    let level = logging.level.to_string().to_lowercase();
    vec![
        format!("access {access}"),
        format!("errors to {error}"),
        format!("level {level}"),
    ]
}

fn or_word(list: Vec<String>, word: &str) -> Vec<String> {
    if list.is_empty() {
        vec![word.to_owned()]
    } else {
        list
    }
}

const HEAD: [&str; 4] = ["ROUTE", "TARGET", "CEILING", "CAP"];

fn write_routes(f: &mut fmt::Formatter<'_>, routes: &[Arc<Route>]) -> fmt::Result {
    let rows: Vec<[String; 4]> = routes.iter().map(|r| row(r)).collect();
    let head = HEAD.map(str::to_owned);
    let width = |column: usize| {
        let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let [a, b, c] = [width(0), width(1), width(2)];
    let line = |[key, target, ceiling, cap]: &[String; 4]| {
        format!("{key:a$}  {target:b$}  {ceiling:c$}  {cap}")
    };
    writeln!(f, "{}", line(&head))?;
    for (route, row) in routes.iter().zip(&rows) {
        writeln!(f, "{}", line(row))?;
        write_details(f, route)?;
    }
    writeln!(f)
}

fn row(route: &Route) -> [String; 4] {
    let target = match &route.kind {
        RouteKind::Respond(response) => format!("responds {}", response.status),
        RouteKind::Upstream(upstream) => match upstream.targets.as_slice() {
            [one] => one.url(),
            several => format!("{} targets", several.len()),
        },
    };
    let (limits, sources) = (&route.limits, &route.limit_sources);
    let cap = limits
        .max_concurrency
        .map_or("none".to_owned(), |cap| cap.to_string());
    [
        show_key(route),
        target,
        format!(
            "{} ({})",
            show_size(limits.max_body_bytes),
            sources.max_body_bytes.as_str()
        ),
        format!("{cap} ({})", sources.max_concurrency.as_str()),
    ]
}

/// The lines below a row.
fn write_details(f: &mut fmt::Formatter<'_>, route: &Route) -> fmt::Result {
    if let Some(condition) = condition(route) {
        writeln!(f, "  {condition}")?;
    }
    match &route.kind {
        RouteKind::Respond(response) => writeln!(f, "  {}", answer(response))?,
        RouteKind::Upstream(upstream) => {
            if upstream.targets.len() > 1 {
                let urls = upstream.targets.iter().map(|target| match target.weight {
                    1 => target.url(),
                    weight => format!("{} (weight {weight})", target.url()),
                });
                write_wrapped(f, "  targets ", &urls.collect::<Vec<_>>())?;
            }
            writeln!(f, "  {}", path(route, upstream))?;
            write_wrapped(f, "  ", &forwarding(route, upstream))?;
        }
    }
    write_wrapped(f, "  ", &deadlines(route))
}

/// What a request must carry, in words: `headers` is read as "fields to set" too easily.
fn condition(route: &Route) -> Option<String> {
    if route.headers.is_empty() {
        return None;
    }
    let fields = route.headers.iter().map(|(n, v)| format!("{n}: {v}"));
    let fields: Vec<String> = fields.collect();
    Some(format!("only requests with {}", fields.join(" and ")))
}

fn answer(response: &FixedResponse) -> String {
    let fields = response.headers.iter().map(|(n, v)| format!("{n}: {v}"));
    let mut parts: Vec<String> = fields.collect();
    parts.push(match response.body.len() {
        0 => "no body".to_owned(),
        1 => "a body of 1 byte".to_owned(),
        length => format!("a body of {length} bytes"),
    });
    format!("answers with {}", parts.join(", "))
}

/// Whether prefixes are taken away (R7); there is nothing to take at `/`.
fn strips(route: &Route, upstream: &Upstream) -> bool {
    upstream.strip_prefix && route.prefix != "/"
}

/// What becomes of a path, by example.
fn path(route: &Route, upstream: &Upstream) -> String {
    let example = format!("{}/x", route.prefix.trim_end_matches('/'));
    let target = upstream.targets.first().map(|t| t.url());
    let target = target.unwrap_or_default();
    if strips(route, upstream) {
        return format!("strip_prefix on: {example} goes to {target}/x");
    }
    let off = if upstream.strip_prefix {
        ""
    } else {
        "strip_prefix off: "
    };
    format!("{off}{example} goes to {target}{example}")
}

fn forwarding(route: &Route, upstream: &Upstream) -> Vec<String> {
    let on = |is_on: bool| if is_on { "on" } else { "off" };
    let mut parts = vec![
        upstream.algorithm.as_str().to_owned(),
        format!("retries {}", upstream.retries),
        format!("preserve_host {}", on(upstream.preserve_host)),
    ];
    if strips(route, upstream) {
        let redirects = on(upstream.rewrite_redirects);
        parts.push(format!("rewrite_redirects {redirects}"));
        let cookies = on(upstream.rewrite_cookie_path);
        parts.push(format!("rewrite_cookie_path {cookies}"));
    }
    let cap = upstream.target_max_concurrency;
    if let Some(cap) = cap {
        parts.push(format!("at most {cap} per target"));
    }
    let health = &upstream.health;
    if let Some(path) = health.check_path.as_ref().filter(|_| health.is_probed()) {
        let every = show_duration(health.check_interval);
        parts.push(format!("health {path} every {every}"));
    }
    parts
}

fn off_or(duration: Duration) -> String {
    if duration.is_zero() {
        "off".to_owned()
    } else {
        show_duration(duration)
    }
}

/// The limits in time.
fn deadlines(route: &Route) -> Vec<String> {
    let mut parts = Parts(Vec::new());
    let (limits, sources) = (&route.limits, &route.limit_sources);
    let read = off_or(limits.read_timeout);
    parts.add("read", &read, sources.read_timeout.by);
    let write = off_or(limits.write_timeout);
    parts.add("write", &write, sources.write_timeout.by);
    if route.upstream().is_some() {
        body_deadlines(&mut parts, limits, sources);
        upstream_deadlines(&mut parts, limits, sources);
        total_deadlines(&mut parts, limits, sources);
        let mode = limits.chunked_mode.as_str();
        let by = sources.chunked_mode.by;
        parts.add("chunked", mode, by);
    }
    parts.0
}

struct Parts(Vec<String>);

impl Parts {
    fn add(&mut self, name: &str, value: &str, by: SetBy) {
        self.0.push(format!("{name} {value} ({})", by.as_str()));
    }
}

fn body_deadlines(parts: &mut Parts, limits: &Limits, sources: &LimitSources) {
    let body = limits.body_timeout.map_or("off".to_owned(), show_duration);
    parts.add("body", &body, sources.body_timeout.by);
    let rate = match limits.min_body_rate {
        0 => "off".to_owned(),
        rate => show_rate(rate),
    };
    parts.add("body rate", &rate, sources.min_body_rate.by);
    if limits.client_half_close == HalfClose::Abort {
        parts.add("half-close", "aborts", SetBy::Route);
    }
}

fn upstream_deadlines(parts: &mut Parts, limits: &Limits, sources: &LimitSources) {
    let head = off_or(limits.response_header_timeout);
    let by = sources.response_header_timeout.by;
    parts.add("response header", &head, by);
    let idle = off_or(limits.upstream_idle_timeout);
    let by = sources.upstream_idle_timeout.by;
    parts.add("upstream idle", &idle, by);
    let upgrade = off_or(limits.upgrade_idle_timeout);
    let by = sources.upgrade_idle_timeout.by;
    parts.add("upgrade idle", &upgrade, by);
}

fn total_deadlines(parts: &mut Parts, limits: &Limits, sources: &LimitSources) {
    if let Some(deadline) = limits.header_deadline {
        let shown = show_duration(deadline);
        let by = sources.header_deadline.by;
        parts.add("header deadline", &shown, by);
    }
    if let Some(deadline) = limits.request_deadline {
        let covers = limits.request_deadline_covers_upgrades;
        let too = if covers { " with upgrades" } else { "" };
        let shown = show_duration(deadline) + too;
        parts.add("request deadline", &shown, SetBy::Route);
    }
}

fn show_rate(bytes: u64) -> String {
    let shown = show_size(bytes);
    let unit = if shown.ends_with('B') { "/s" } else { "B/s" };
    shown + unit
}
