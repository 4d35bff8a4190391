#![allow(clippy::unwrap_used)]

use std::cmp::Ordering;
use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::policy::settings::tests::{limit_sources, limits};
use crate::policy::settings::{FixedResponse, Place, RouteKind, Source};

/// A route from `host|prefix|methods|headers`, lists separated by commas.
pub(crate) fn route(text: &str) -> Route {
    let parts: Vec<&str> = text.split('|').collect();
    let list = |i: usize| {
        let part: &str = parts.get(i).copied().unwrap_or("");
        part.split(',')
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (name, port) = match parts[0].rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port.parse().unwrap())),
        _ => (parts[0], None),
    };
    let host = match name.strip_prefix("*.") {
        _ if name.is_empty() => HostPattern::Any,
        Some(suffix) => HostPattern::Wildcard {
            suffix: suffix.to_owned(),
            port,
        },
        None => HostPattern::Exact {
            name: name.to_owned(),
            port,
        },
    };
    let mut methods = list(2);
    methods.sort();
    let mut headers: Vec<(String, String)> = list(3)
        .iter()
        .map(|h| h.split_once('=').unwrap())
        .map(|(n, v)| (n.to_owned(), v.to_owned()))
        .collect();
    headers.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    Route {
        id: 0,
        name: text.to_owned(),
        host,
        prefix: parts[1].to_owned(),
        methods,
        headers,
        source: Source::Config,
        origin: Place {
            file: "routes.yaml".into(),
            line: 1,
        },
        kind: RouteKind::Respond(FixedResponse {
            status: 200,
            headers: Vec::new(),
            body: String::new(),
        }),
        limits: limits(),
        limit_sources: limit_sources(),
    }
}

fn table(routes: &[&str]) -> Table {
    let made = compile(routes.iter().map(|r| route(r)).collect());
    assert!(made.duplicates.is_empty() && made.shadowed.is_empty());
    made.table
}

/// The name of the route, `404`, or `405 ` and the value of Allow.
fn find(table: &Table, host: &str, path: &str, method: &str, headers: &[(&str, &str)]) -> String {
    let header = |name: &str| {
        let found = headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_bytes())
    };
    match table.lookup(host.as_bytes(), path.as_bytes(), method.as_bytes(), header) {
        Lookup::Route(route) => route.name.clone(),
        Lookup::NotFound => "404".to_owned(),
        Lookup::MethodNotAllowed { allow } => format!("405 {allow}"),
    }
}

#[test]
fn r1_a_prefix_ends_at_a_segment_boundary() {
    let table = table(&["|/api", "|/a/b"]);
    for path in ["/api", "/api/", "/api/x", "//api", "/api//x", "//api//"] {
        assert_eq!(find(&table, "h", path, "GET", &[]), "|/api", "{path}");
    }
    for path in ["/apix", "/", "/Api", "/a", "/a/", "/a/bc", "/x/api", ""] {
        assert_eq!(find(&table, "h", path, "GET", &[]), "404", "{path}");
    }
    for path in ["/a/b", "/a//b", "//a///b//c"] {
        assert_eq!(find(&table, "h", path, "GET", &[]), "|/a/b", "{path}");
    }
}

#[test]
fn r1_hosts_are_compared_without_case_and_port() {
    let table = table(&[
        "example.com|/",
        "[::1]|/",
        "port.example.com:8080|/",
        "80.example.com:80|/",
    ]);
    for host in [
        "example.com",
        "EXAMPLE.com",
        "example.com:8080",
        "example.com.",
        "example.com:",
    ] {
        assert_eq!(
            find(&table, host, "/", "GET", &[]),
            "example.com|/",
            "{host}"
        );
    }
    for host in ["[::1]", "[::1]:80"] {
        assert_eq!(find(&table, host, "/", "GET", &[]), "[::1]|/", "{host}");
    }
    let with_port = "port.example.com:8080|/";
    assert_eq!(
        find(&table, "port.example.com:8080", "/", "GET", &[]),
        with_port
    );
    assert_eq!(
        find(&table, "80.example.com", "/", "GET", &[]),
        "80.example.com:80|/"
    );
    let long = "a".repeat(5000);
    for host in [
        "port.example.com",
        "port.example.com:81",
        "[::2]",
        "example.org",
        "",
        ":",
        "]",
        &long,
    ] {
        assert_eq!(find(&table, host, "/", "GET", &[]), "404", "{host}");
    }
    assert_eq!(
        find(&table, "port.example.com:65616", "/", "GET", &[]),
        "404"
    );
}

#[test]
fn r1_a_wildcard_takes_one_label_or_more() {
    let table = table(&["*.example.com|/", "*.a.example.com|/"]);
    assert_eq!(
        find(&table, "b.example.com", "/", "GET", &[]),
        "*.example.com|/"
    );
    assert_eq!(
        find(&table, "c.b.example.com:1", "/", "GET", &[]),
        "*.example.com|/"
    );
    assert_eq!(
        find(&table, "x.A.example.com", "/", "GET", &[]),
        "*.a.example.com|/"
    );
    assert_eq!(
        find(&table, "a.example.com", "/", "GET", &[]),
        "*.example.com|/"
    );
    for host in [
        "example.com",
        ".example.com",
        "xexample.com",
        "example.com.org",
    ] {
        assert_eq!(find(&table, host, "/", "GET", &[]), "404", "{host}");
    }
}

#[test]
fn r2_prefix_beats_host_beats_headers_beats_method() {
    let table = table(&[
        "|/a/b",
        "example.com|/a",
        "*.com|/a||X=1",
        "*.com|/a|GET",
        "|/a||X=1,Y=1",
        "|/a||X=1",
        "|/a|GET|Z=1",
        "|/a|GET",
        "|/a",
    ]);
    let all = [("x", "1"), ("Y", "1"), ("z", "1")];
    assert_eq!(find(&table, "example.com", "/a/b", "GET", &all), "|/a/b");
    assert_eq!(
        find(&table, "example.com", "/a", "GET", &all),
        "example.com|/a"
    );
    assert_eq!(find(&table, "x.com", "/a", "GET", &all), "*.com|/a||X=1");
    assert_eq!(find(&table, "x.com", "/a", "GET", &[]), "*.com|/a|GET");
    assert_eq!(find(&table, "h", "/a", "GET", &all), "|/a||X=1,Y=1");
    assert_eq!(
        find(&table, "h", "/a", "GET", &[("X", "1"), ("Z", "1")]),
        "|/a|GET|Z=1"
    );
    assert_eq!(
        find(&table, "h", "/a", "PUT", &[("X", "1"), ("Z", "1")]),
        "|/a||X=1"
    );
    assert_eq!(find(&table, "h", "/a", "GET", &[("X", "2")]), "|/a|GET");
    assert_eq!(find(&table, "h", "/a", "PUT", &[]), "|/a");
}

#[test]
fn r2_routes_that_ask_for_other_fields_compete() {
    let table = table(&["|/|GET|X=1", "|/||X=2", "|/|GET|Y=1", "|/|GET|Y=2"]);
    assert_eq!(
        find(&table, "h", "/", "GET", &[("X", "2"), ("Y", "1")]),
        "|/|GET|Y=1"
    );
    assert_eq!(
        find(&table, "h", "/", "PUT", &[("X", "2"), ("Y", "1")]),
        "|/||X=2"
    );
    assert_eq!(
        find(&table, "h", "/", "GET", &[("X", "1"), ("Y", "1")]),
        "|/|GET|X=1"
    );
}

#[test]
fn r4_another_method_would_do() {
    let table = table(&[
        "|/a|POST,PUT",
        "example.com|/a|DELETE",
        "|/a|PATCH|X=1",
        "|/b|GET",
        "|/b",
    ]);
    assert_eq!(find(&table, "h", "/a", "GET", &[]), "405 POST, PUT");
    assert_eq!(
        find(&table, "example.com", "/a/b", "GET", &[]),
        "405 DELETE, POST, PUT"
    );
    assert_eq!(
        find(&table, "h", "/a", "GET", &[("X", "1")]),
        "405 PATCH, POST, PUT"
    );
    assert_eq!(find(&table, "h", "/a", "post", &[]), "405 POST, PUT");
    assert_eq!(find(&table, "h", "/b", "PUT", &[]), "|/b");
    assert_eq!(find(&table, "h", "/c", "GET", &[]), "404");
}

#[test]
fn an_empty_table_finds_nothing() {
    assert_eq!(find(&table(&[]), "h", "/", "GET", &[]), "404");
    assert_eq!(find(&Table::default(), "h", "/", "GET", &[]), "404");
}

#[test]
fn r5_r6_one_of_a_key_stays() {
    let mut discovered = route("h|/a||x-tier=1");
    discovered.source = Source::OciDiscovery;
    let mut first = route("h|/a||X-Tier=1");
    first.name = "first".to_owned();
    let mut second = route("h|/a||x-TIER=1");
    second.name = "second".to_owned();
    let made = compile(vec![discovered, first, second]);
    assert_eq!(made.table.routes().len(), 1);
    assert_eq!(made.table.routes()[0].name, "first");
    assert_eq!(made.duplicates.len(), 1);
    assert_eq!(made.duplicates[0].kept.name, "first");
    assert_eq!(made.duplicates[0].dropped.name, "second");
    assert_eq!(made.shadowed.len(), 1);
    assert_eq!(made.shadowed[0].dropped.source, Source::OciDiscovery);
}

#[test]
fn routes_of_one_name_are_told_apart() {
    let mut routes: Vec<Route> = ["|/a", "|/b", "|/c"].map(route).into();
    for route in &mut routes {
        "cut...".clone_into(&mut route.name);
    }
    let names = |routes: Vec<Route>| {
        let table = compile(routes).table;
        let names: Vec<String> = table.routes().iter().map(|r| r.name.clone()).collect();
        names
    };
    let found = names(routes.clone());
    assert_eq!(found[0], "cut...");
    assert!(found[1].starts_with("cut...~") && found[1] != found[2]);
    // Whatever they are compiled with.
    routes.remove(1);
    assert_eq!(names(routes), [found[0].clone(), found[2].clone()]);
}

#[test]
fn r3_values_cost_the_same_however_many_there_are() {
    let asked = |routes: u32| {
        let list: Vec<Route> = (0..routes)
            .map(|i| route(&format!("h|/a||X-Tenant={i},X-Tier=1")))
            .collect();
        let table = compile(list).table;
        let asked = std::cell::Cell::new(0);
        let header = |name: &str| -> Option<&'static [u8]> {
            asked.set(asked.get() + 1);
            Some(if name == "x-tenant" { b"7" } else { b"1" })
        };
        let found = table.lookup(b"h", b"/a", b"GET", header);
        assert!(matches!(found, Lookup::Route(r) if r.name == "h|/a||X-Tenant=7,X-Tier=1"));
        asked.get()
    };
    assert_eq!(asked(10), asked(10_000));
}

/// Values that are too long to be one key, beside some that are not.
#[test]
fn r1_long_values_of_several_fields_are_told_apart() {
    let long = |end: &str| format!("{}{end}", "v".repeat(200));
    let text = |a: &str, b: &str| format!("h|/a||A={a},B={b}");
    let pairs = [
        (long("1"), long("2")),
        (long("1"), long("3")),
        (long("2"), long("1")),
        (long("1"), "s".to_owned()),
        ("s".to_owned(), "s".to_owned()),
    ];
    let routes: Vec<String> = pairs.iter().map(|(a, b)| text(a, b)).collect();
    let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
    let table = table(&routes);
    for ((a, b), name) in pairs.iter().zip(routes) {
        assert_eq!(find(&table, "h", "/a", "GET", &[("A", a), ("B", b)]), name);
    }
    for (a, b) in [(long("2"), long("2")), (long("3"), "s".to_owned())] {
        assert_eq!(
            find(&table, "h", "/a", "GET", &[("A", &a), ("B", &b)]),
            "404"
        );
        assert_eq!(find(&table, "h", "/a", "GET", &[("A", &a)]), "404");
    }
}

/// Whether a route takes a request, straight from the text of R1; the path split by hand so that
/// nothing is shared with the table.
fn takes(route: &Route, host: &str, path: &str, headers: &HashMap<String, String>) -> bool {
    let name = host.split(':').next().unwrap().to_ascii_lowercase();
    let asked: u16 = host
        .split(':')
        .nth(1)
        .map_or(80, |port| port.parse().unwrap());
    let (host_fits, port) = match &route.host {
        HostPattern::Any => (true, &None),
        HostPattern::Exact { name: wanted, port } => (*wanted == name, port),
        HostPattern::Wildcard { suffix, port } => (name.ends_with(&format!(".{suffix}")), port),
    };
    let mut single = path.to_owned();
    while single.contains("//") {
        single = single.replace("//", "/");
    }
    let path_fits = route.prefix == "/"
        || single == route.prefix
        || single.starts_with(&format!("{}/", route.prefix));
    host_fits
        && port.is_none_or(|port| port == asked)
        && path_fits
        && route
            .headers
            .iter()
            .all(|(n, v)| headers.get(&n.to_ascii_lowercase()) == Some(v))
}

/// R2, criterion by criterion.
fn order(a: &Route, b: &Route) -> Ordering {
    fn class(host: &HostPattern) -> u8 {
        match host {
            HostPattern::Exact { .. } => 0,
            HostPattern::Wildcard { .. } => 1,
            HostPattern::Any => 2,
        }
    }
    fn length_and_port(host: &HostPattern) -> (usize, bool) {
        match host {
            HostPattern::Exact { port, .. } => (0, port.is_some()),
            HostPattern::Wildcard { suffix, port } => (suffix.len(), port.is_some()),
            HostPattern::Any => (0, false),
        }
    }
    let canonical = |r: &Route| {
        r.headers
            .iter()
            .map(|(n, v)| (n.to_ascii_lowercase(), v.clone()))
            .collect::<Vec<_>>()
    };
    b.prefix
        .len()
        .cmp(&a.prefix.len())
        .then(class(&a.host).cmp(&class(&b.host)))
        .then(length_and_port(&b.host).cmp(&length_and_port(&a.host)))
        .then(b.headers.len().cmp(&a.headers.len()))
        .then(a.methods.is_empty().cmp(&b.methods.is_empty()))
        .then_with(|| a.host.to_string().cmp(&b.host.to_string()))
        .then_with(|| a.prefix.cmp(&b.prefix))
        .then_with(|| a.methods.cmp(&b.methods))
        .then_with(|| canonical(a).cmp(&canonical(b)))
}

fn oracle(
    routes: &[Route],
    host: &str,
    path: &str,
    method: &str,
    headers: &HashMap<String, String>,
) -> String {
    let fitting = || routes.iter().filter(|r| takes(r, host, path, headers));
    let with_method =
        fitting().filter(|r| r.methods.is_empty() || r.methods.iter().any(|m| m == method));
    if let Some(route) = with_method.min_by(|a, b| order(a, b)) {
        return route.name.clone();
    }
    let mut allow: Vec<&str> = fitting()
        .flat_map(|r| r.methods.iter().map(String::as_str))
        .collect();
    allow.sort_unstable();
    allow.dedup();
    if allow.is_empty() {
        "404".to_owned()
    } else {
        format!("405 {}", allow.join(", "))
    }
}

/// A request for the table.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    host: String,
    path: String,
    method: String,
    fields: HashMap<String, String>,
}

impl Asked {
    /// Fields as `name=value`, names in lower case, separated by commas.
    pub(crate) fn new(host: &str, path: &str, method: &str, fields: &str) -> Self {
        let fields = fields.split(',').filter_map(|f| f.split_once('='));
        Asked {
            host: host.to_owned(),
            path: path.to_owned(),
            method: method.to_owned(),
            fields: fields.map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
        }
    }

    /// Host, path and method.
    pub(crate) fn line(&self) -> (&[u8], &[u8], &[u8]) {
        (
            self.host.as_bytes(),
            self.path.as_bytes(),
            self.method.as_bytes(),
        )
    }

    pub(crate) fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.get(name).map(String::as_bytes)
    }
}

/// A request that may meet some of [`some_route`].
pub(crate) fn some_request() -> impl Strategy<Value = Asked> {
    let one_of = |list: &[&'static str]| prop::sample::select(list.to_vec());
    let host = one_of(&[
        "a.b.c", "A.b.C:81", "b.c", "x.b.c", "x.b.c:81", "c", "other",
    ]);
    let path = one_of(&[
        "/", "/a", "/a/", "/a/b", "//a//b/x", "/ab", "/a/b/c/d", "/b/", "/c",
    ]);
    let method = one_of(&["GET", "POST", "PUT", "DELETE"]);
    let fields = one_of(&[
        "", "x=1", "x=2", "x=1,y=1", "x=11,y=", "y=1", "x=1,y=2", "x=2,y=1",
    ]);
    (host, path, method, fields).prop_map(|(h, p, m, f)| Asked::new(h, p, m, f))
}

pub(crate) fn some_route() -> impl Strategy<Value = String> {
    let one_of = |list: &[&'static str]| prop::sample::select(list.to_vec());
    let host = one_of(&[
        "", "", "", "a.b.c", "b.c", "a.b.c:81", "*.c", "*.b.c", "*.c:81", "*.b.c:81",
    ]);
    let prefix = one_of(&["/", "/", "/a", "/a", "/a/b", "/ab", "/a/b/c", "/b"]);
    let methods = one_of(&["", "", "GET", "GET,POST", "PUT", "POST"]);
    let headers = one_of(&["", "", "X=1", "x=2", "Y=1", "X=1,Y=1", "X=11,Y="]);
    (host, prefix, methods, headers).prop_map(|(h, p, m, f)| format!("{h}|{p}|{m}|{f}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_linear_search(
        routes in prop::collection::vec(some_route(), 0..40),
        shuffled in any::<bool>(),
        requests in prop::collection::vec(some_request(), 30),
    ) {
        let mut routes: Vec<Route> = routes.iter().map(|r| route(r)).collect();
        let mut seen = HashSet::new();
        routes.retain(|r| seen.insert(RouteKey::of(r)));
        let mut given = routes.clone();
        if shuffled {
            given.reverse();
        }
        let table = compile(given).table;
        routes.sort_by(order);
        let listed: Vec<&str> = table.routes().iter().map(|r| r.name.as_str()).collect();
        let expected: Vec<&str> = routes.iter().map(|r| r.name.as_str()).collect();
        prop_assert_eq!(listed, expected);
        for Asked { host, path, method, fields } in requests {
            let pairs: Vec<(&str, &str)> =
                fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            prop_assert_eq!(
                find(&table, &host, &path, &method, &pairs),
                oracle(&routes, &host, &path, &method, &fields),
                "{} {}{} {:?}", method, host, path, fields
            );
        }
    }

    #[test]
    fn any_bytes_are_looked_up(host in any::<Vec<u8>>(), path in any::<Vec<u8>>()) {
        let table = table(&["a|/a", "*.b|/", "[::1]|/a/b"]);
        let _ = table.lookup(&host, &path, b"GET", |_| None);
    }
}
