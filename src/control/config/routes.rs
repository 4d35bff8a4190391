//! The entries of `routes:`.

use std::sync::Arc;
use std::time::Duration;

use crate::control::resolve::Endpoints;
use crate::policy::settings::{
    Algorithm, Health, HostPattern, Place, Route, RouteKind, Source, Target, Upstream,
};

use super::fields::{is_token, read_fields};
use super::finding::Mark;
use super::fixed_response::fixed_response;
use super::inherited::Inherited;
use super::limits;
use super::section::{Report, Section};
use super::target;
use super::yaml::{Node, Value};

/// Longest label of a route in logs and metrics, in bytes.
const MAX_NAME: usize = 128;

/// A route, and what is only needed to check it.
pub struct ReadRoute {
    /// The route; its id is not set yet.
    pub route: Route,
    /// Where it begins.
    pub mark: Mark,
    /// Whether it asks for more than the defaults (I16).
    pub elevated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Upstream,
    Respond,
}

/// Keys that only a route to an upstream may have.
const UPSTREAM_KEYS: [&str; 17] = [
    "target",
    "targets",
    "algorithm",
    "target_max_concurrency",
    "retries",
    "health_check_path",
    "health_check_interval",
    "health_check_timeout",
    "consecutive_failures",
    "cooldown_period",
    "passive_statuses",
    "when_all_down",
    "strip_prefix",
    "rewrite_redirects",
    "rewrite_cookie_path",
    "preserve_host",
    "response_header_timeout",
];

/// Fields of responses: as conditions on requests they are mostly a mistake.
const RESPONSE_FIELDS: [&str; 16] = [
    "accept-ranges",
    "age",
    "cache-control",
    "content-security-policy",
    "etag",
    "expires",
    "location",
    "referrer-policy",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "vary",
    "x-content-type-options",
    "x-frame-options",
    "x-served-by",
];

/// Reads the list under `routes:`.
pub fn read(
    report: Report<'_>,
    node: &Node,
    inherited: &Inherited,
    endpoints: &mut Endpoints,
) -> Vec<ReadRoute> {
    let Value::List(list) = &node.value else {
        let kind = node.value.kind();
        report.fault(node.mark, format!("routes must be a list, not {kind}"));
        return Vec::new();
    };
    let mut routes = Vec::new();
    for node in list {
        if let Some(section) = Section::new(report, "routes[]", node) {
            routes.extend(read_route(section, inherited, endpoints));
        }
    }
    routes
}

/// `None` if what it is for cannot be told; lesser faults leave a route to go on with.
fn read_route(
    s: Section<'_>,
    inherited: &Inherited,
    endpoints: &mut Endpoints,
) -> Option<ReadRoute> {
    let kind = read_kind(&s)?;
    let host = read_host(&s);
    let prefix = read_prefix(&s);
    let methods = read_methods(&s);
    let constraints = read_constraints(&s, kind);
    let limits = limits::read(&s, inherited);
    let mark = s.mark;
    let file = s.report.file.clone();
    let kind = match kind {
        Kind::Upstream => RouteKind::Upstream(read_upstream(&s, endpoints)),
        Kind::Respond => {
            for key in UPSTREAM_KEYS {
                s.known(key);
                if let Some(mark) = s.mark_of(key) {
                    let text = format!("{key} has no meaning on a route that responds by itself");
                    s.report.fault(mark, text);
                }
            }
            RouteKind::Respond(fixed_response(&s, 200))
        }
    };
    s.finish();
    let mut route = Route {
        id: 0,
        name: String::new(),
        host,
        prefix,
        methods,
        headers: constraints,
        source: Source::Config,
        origin: Place {
            file,
            line: mark.line,
        },
        kind,
        limits: limits.limits,
        limit_sources: limits.sources,
    };
    route.name = label(&route);
    Some(ReadRoute {
        route,
        mark,
        elevated: limits.elevated,
    })
}

/// The label of a route: host, prefix, methods, fields.
#[must_use]
pub fn label(route: &Route) -> String {
    let mut name = show_key(route);
    if name.len() > MAX_NAME {
        let cut = (0..=MAX_NAME - 3)
            .rev()
            .find(|&at| name.is_char_boundary(at))
            .unwrap_or(0);
        name.truncate(cut);
        name.push_str("...");
    }
    name
}

/// What a route matches, in full: `example.com/api [GET,POST] {X-Tier=beta}`.
#[must_use]
pub fn show_key(route: &Route) -> String {
    let mut key = format!("{}{}", route.host, route.prefix);
    if !route.methods.is_empty() {
        key.push_str(&format!(" [{}]", route.methods.join(",")));
    }
    if !route.headers.is_empty() {
        let pairs: Vec<String> = route
            .headers
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        key.push_str(&format!(" {{{}}}", pairs.join("&")));
    }
    key
}

fn read_kind(s: &Section<'_>) -> Option<Kind> {
    let written = |keys: &[&str]| keys.iter().any(|key| s.mark_of(key).is_some());
    let kinds = [
        ("upstream", Kind::Upstream),
        ("respond", Kind::Respond),
        ("proxy", Kind::Upstream),
    ];
    let reserved = match s.mark_of("type") {
        Some(_) => s
            .string("type")
            .filter(|t| matches!(*t, "static" | "k8s-ingress")),
        None => Some("static").filter(|_| written(&["dir"])),
    };
    if let Some(name) = reserved {
        let text =
            format!("routes of type {name} are not supported yet (allowed: upstream, respond)");
        let key = if s.mark_of("type").is_some() {
            "type"
        } else {
            "dir"
        };
        s.report.fault(s.value_mark(key), text);
        return None;
    }
    if s.mark_of("type").is_some() {
        return s.choice("type", &kinds, 2);
    }
    s.known("type");
    match (
        written(&["target", "targets"]),
        written(&["status", "body"]),
    ) {
        (_, false) => Some(Kind::Upstream),
        (false, true) => Some(Kind::Respond),
        (true, true) => {
            let text = "a route has both a target and a fixed answer (allowed: target or targets, \
                        or status, headers and body)";
            s.report.fault(s.mark, text);
            None
        }
    }
}

fn read_host(s: &Section<'_>) -> HostPattern {
    let text = s.string("host").unwrap_or("");
    parse_host(text).unwrap_or_else(|| bad_host(s, text))
}

/// A host as it is written on a route: a name, `*.` and a name, or an IPv6 literal in brackets,
/// each with or without a port; nothing is every host.
#[must_use]
pub fn parse_host(text: &str) -> Option<HostPattern> {
    let lower = text.to_ascii_lowercase();
    let (name, port) = match lower.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => match port.parse() {
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => {
                (name, Some(number))
            }
            _ => return None,
        },
        _ => (lower.as_str(), None),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let label = |l: &str| {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        !l.is_empty() && l.len() <= 63 && l.bytes().all(good)
    };
    let is_name = |n: &str| n.len() <= 253 && n.split('.').all(label);
    let bracketed = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    match (name.strip_prefix("*."), bracketed) {
        _ if lower.is_empty() => Some(HostPattern::Any),
        (Some(suffix), _) if is_name(suffix) => Some(HostPattern::Wildcard {
            suffix: suffix.to_owned(),
            port,
        }),
        (None, Some(inside)) if inside.parse::<std::net::Ipv6Addr>().is_ok() => {
            Some(HostPattern::Exact {
                name: name.to_owned(),
                port,
            })
        }
        (None, None) if is_name(name) => Some(HostPattern::Exact {
            name: name.to_owned(),
            port,
        }),
        _ => None,
    }
}

fn bad_host(s: &Section<'_>, text: &str) -> HostPattern {
    let text = format!(
        "routes[].host: \"{text}\" is not a host (allowed: example.com, *.example.com, [::1], each \
         with or without :port)"
    );
    s.report.fault(s.value_mark("host"), text);
    HostPattern::Any
}

fn read_prefix(s: &Section<'_>) -> String {
    let Some(text) = s.string("prefix") else {
        return "/".to_owned();
    };
    match normal_prefix(text) {
        Ok(prefix) => prefix,
        Err(problem) => {
            let text = format!("routes[].prefix: \"{text}\" {problem}");
            s.report.fault(s.value_mark("prefix"), text);
            "/".to_owned()
        }
    }
}

/// A prefix in the form of a normalised path (I6): unreserved characters not encoded,
/// anything outside ASCII encoded, no repeated or trailing slash. The error completes `"…" `.
pub fn normal_prefix(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        // What nginx and Traefik write for exact paths, expressions and rules.
        if text.contains([' ', '~', '^', '=', '(', '`']) {
            return Err(
                "does not begin with a slash; it is a plain prefix, without operators".to_owned(),
            );
        }
        return Err(format!(
            "does not begin with a slash (did you mean \"/{text}\"?)"
        ));
    }
    let mut path = String::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'/' if path.ends_with('/') => {}
            b'?' | b'#' => return Err("has a query or fragment, which no path holds".to_owned()),
            b'\\' | 0..=b' ' | 0x7f => {
                return Err("holds a character that no request path can have".to_owned());
            }
            b'%' => {
                let hex = [rest.next(), rest.next()].map(|b| char::from(b?).to_digit(16));
                let [Some(high), Some(low)] = hex else {
                    return Err("has a percent sign without two hexadecimal digits".to_owned());
                };
                match char::from_u32(high * 16 + low) {
                    Some('\0' | '\\') => {
                        return Err("holds a character that no request path can have".to_owned());
                    }
                    Some(c) if c.is_ascii_alphanumeric() || "-._~".contains(c) => path.push(c),
                    _ => path.push_str(&format!("%{:02X}", high * 16 + low)),
                }
            }
            0x80.. => path.push_str(&format!("%{byte:02X}")),
            byte => path.push(char::from(byte)),
        }
    }
    if path
        .split('/')
        .any(|segment| segment == "." || segment == "..")
    {
        return Err("has a dot segment, which no normalised path holds".to_owned());
    }
    match path.strip_suffix('/') {
        Some("") | None => Ok(path),
        Some(short) => Ok(short.to_owned()),
    }
}

fn read_methods(s: &Section<'_>) -> Vec<String> {
    let mut methods = Vec::new();
    for node in s.list("method").unwrap_or_default() {
        match &node.value {
            Value::Scalar { text, .. } if text.is_empty() => {}
            Value::Scalar { text, .. } if is_token(text) => methods.push(text.to_ascii_uppercase()),
            value => {
                let written = match value {
                    Value::Scalar { text, .. } => text.as_str(),
                    other => other.kind(),
                };
                let hint = "(allowed: a method such as GET, or a list such as [GET, POST])";
                let text = format!("routes[].method: \"{written}\" is not a method {hint}");
                s.report.fault(node.mark, text);
            }
        }
    }
    methods.sort();
    methods.dedup();
    methods
}

/// On a route that responds by itself `headers` are those of the answer, so constraints stand
/// under `match_headers`; other routes may use either name.
fn read_constraints(s: &Section<'_>, kind: Kind) -> Vec<(String, String)> {
    let key = match kind {
        Kind::Upstream if s.mark_of("match_headers").is_none() => "headers",
        Kind::Upstream | Kind::Respond => "match_headers",
    };
    s.known("match_headers");
    if s.mark_of(key).is_none() {
        s.known(key);
        return Vec::new();
    }
    let mut fields = read_fields(s, key);
    if kind == Kind::Upstream && key == "headers" {
        warn_of_response_fields(s, &fields);
    }
    fields.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    fields
}

/// Whoever means it writes `match_headers`, which cannot be misread.
fn warn_of_response_fields(s: &Section<'_>, fields: &[(String, String)]) {
    let is_of_responses = |name: &str| {
        let name = name.to_ascii_lowercase();
        RESPONSE_FIELDS.contains(&name.as_str()) || name.starts_with("access-control-allow-")
    };
    for (name, value) in fields.iter().filter(|(name, _)| is_of_responses(name)) {
        let text = format!(
            "headers on a route with a target are a condition: only requests that carry {name}: \
             {value} match; toron sets no fields of an upstream's responses (match_headers says the \
             same without this warning)"
        );
        s.report.warning(s.value_mark("headers"), text);
    }
}

fn read_upstream(s: &Section<'_>, endpoints: &mut Endpoints) -> Upstream {
    let cap = s.number("target_max_concurrency", 0..=1_000_000);
    Upstream {
        targets: read_targets(s, endpoints),
        algorithm: read_algorithm(s),
        target_max_concurrency: cap.filter(|&cap| cap > 0),
        retries: s.number("retries", 0..=10).unwrap_or(1),
        strip_prefix: s.boolean("strip_prefix").unwrap_or(true),
        rewrite_redirects: s.boolean("rewrite_redirects").unwrap_or(true),
        rewrite_cookie_path: s.boolean("rewrite_cookie_path").unwrap_or(true),
        preserve_host: s.boolean("preserve_host").unwrap_or(true),
        health: read_health(s),
    }
}

fn read_algorithm(s: &Section<'_>) -> Algorithm {
    let words = [
        ("round_robin", Algorithm::RoundRobin),
        ("least_conn", Algorithm::LeastConn),
        ("random_two", Algorithm::RandomTwo),
        ("ip_hash", Algorithm::IpHash),
        ("weighted_round_robin", Algorithm::RoundRobin),
        ("weighted_least_conn", Algorithm::LeastConn),
        ("random", Algorithm::RandomTwo),
    ];
    s.choice("algorithm", &words, 4)
        .unwrap_or(Algorithm::RoundRobin)
}

fn read_health(s: &Section<'_>) -> Health {
    let secs = Duration::from_secs;
    let check_path = s.string("health_check_path");
    if check_path.is_some_and(|path| !Health::is_path(path)) {
        let text = "routes[].health_check_path must begin with a slash, and hold neither white \
                    space nor a fragment";
        s.report.fault(s.value_mark("health_check_path"), text);
    }
    let mut passive_statuses = Vec::new();
    for node in s.list("passive_statuses").unwrap_or_default() {
        let number: Option<u16> = match &node.value {
            Value::Scalar { text, plain: true } => text.parse().ok(),
            Value::Scalar { .. } | Value::Null | Value::List(_) | Value::Map(_) => None,
        };
        match number.filter(|status| (300..=599).contains(status)) {
            Some(status) => passive_statuses.push(status),
            None => {
                let text = "routes[].passive_statuses: not a status (allowed: 300 to 599)";
                s.report.fault(node.mark, text);
            }
        }
    }
    let down = [("refuse", false), ("try", true)];
    Health {
        check_path: check_path.map(str::to_owned),
        check_interval: s.duration("health_check_interval").unwrap_or(secs(5)),
        check_timeout: s.duration("health_check_timeout").unwrap_or(secs(2)),
        consecutive_failures: s.number("consecutive_failures", 1..=1_000_000).unwrap_or(3),
        cooldown_period: s.duration("cooldown_period").unwrap_or(secs(10)),
        passive_statuses,
        try_when_all_down: s.choice("when_all_down", &down, 2).unwrap_or(false),
    }
}

fn read_targets(s: &Section<'_>, endpoints: &mut Endpoints) -> Vec<Arc<Target>> {
    let single = s.mark_of("target").and_then(|_| s.node("target"));
    let several = s.mark_of("targets").and_then(|_| s.list("targets"));
    for key in ["target", "targets"] {
        s.known(key);
    }
    let list = match (single, several) {
        (Some(_), Some(_)) => {
            let text = "target and targets exclude each other (allowed: one of them)";
            s.report
                .fault(s.mark_of("targets").unwrap_or_default(), text);
            return Vec::new();
        }
        (Some(node), None) => std::slice::from_ref(node),
        (None, Some(list)) => list,
        (None, None) if s.mark_of("target").or(s.mark_of("targets")).is_some() => {
            return Vec::new()
        }
        (None, None) => {
            let text = "a route says nothing about where its requests go (allowed: target or \
                        targets, or status, headers and body for a fixed answer)";
            s.report.fault(s.mark, text);
            // An unknown key may have been meant as one of a fixed answer.
            for key in ["status", "body"] {
                s.known(key);
            }
            return Vec::new();
        }
    };
    if list.is_empty() {
        s.report
            .fault(s.value_mark("targets"), "routes[].targets is an empty list");
    }
    let mut targets: Vec<Arc<Target>> = Vec::new();
    for node in list {
        let Some(target) = read_target(s, node, endpoints) else {
            continue;
        };
        if targets.iter().any(|t| t.url() == target.url()) {
            let text = format!(
                "routes[].targets: \"{}\" is listed twice (allowed: once; weight gives it more)",
                target.url()
            );
            s.report.fault(node.mark, text);
        }
        targets.push(Arc::new(target));
    }
    targets
}

/// A URL, or a mapping of `url` and `weight`.
fn read_target(s: &Section<'_>, node: &Node, endpoints: &mut Endpoints) -> Option<Target> {
    let (text, mark, weight) = match &node.value {
        Value::Scalar { text, .. } => (text.as_str(), node.mark, 1),
        Value::Map(_) => {
            let target = Section::new(s.report, "targets[]", node)?;
            let weight = target.number("weight", 1..=1000).unwrap_or(1);
            let url = target.string("url");
            let mark = target.value_mark("url");
            if target.mark_of("url").is_none() {
                s.report.fault(node.mark, "a target has no url");
            }
            target.finish();
            (url?, mark, weight)
        }
        Value::Null | Value::List(_) => {
            let text = "a target must be a URL, or a mapping of url and weight";
            s.report.fault(node.mark, text);
            return None;
        }
    };
    match target::parse(text) {
        Ok(url) => Some(Target {
            endpoint: endpoints.get(&url.host, url.port),
            authority: url.authority,
            path: url.path,
            weight,
        }),
        Err(problem) => {
            s.report.fault(mark, format!("target \"{text}\" {problem}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_take_the_form_of_normalised_paths() {
        for (text, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("/api/", "/api"),
            ("//a//b//", "/a/b"),
            ("/%61pi%2f", "/api%2F"),
            ("/café", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9"),
        ] {
            assert_eq!(normal_prefix(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "", "api", "/a?b", "/a#b", "/a/../b", "/%2e/", "/a b", "/a\\b", "/%", "/%0", "/%zz",
            "/%00",
        ] {
            assert!(normal_prefix(text).is_err(), "{text}");
        }
    }
}
