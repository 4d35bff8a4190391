//! Containers together.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::super::container::tests::container;
use super::super::container::Health as OwnHealth;
use super::super::labels::tests::inherited;
use super::*;
use crate::policy::discovery::ContainerEngine;
use crate::policy::router::{compile, Lookup};

fn settings() -> DiscoverySettings {
    DiscoverySettings {
        engine: ContainerEngine::Auto,
        socket: None,
        poll_interval: Duration::from_secs(10),
        default_weight: 1,
        network: None,
    }
}

fn endpoint(at: SocketAddr, id: &str) -> Arc<Endpoint> {
    // The identity stands in for the number, which the real ones count up.
    let number = id
        .bytes()
        .fold(0u32, |n, b| n.wrapping_mul(31) + u32::from(b));
    Arc::new(Endpoint::new(number, &at.ip().to_string(), at.port()))
}

fn made(containers: &[Container]) -> Desired {
    desired(
        containers,
        &settings(),
        &inherited(),
        BTreeSet::new(),
        &mut endpoint,
    )
}

fn targets(route: &Route) -> Vec<String> {
    match &route.kind {
        RouteKind::Upstream(upstream) => upstream.targets.iter().map(|t| t.url()).collect(),
        RouteKind::Respond(_) => Vec::new(),
    }
}

fn weights(route: &Route) -> Vec<u32> {
    match &route.kind {
        RouteKind::Upstream(upstream) => upstream.targets.iter().map(|t| t.weight).collect(),
        RouteKind::Respond(_) => Vec::new(),
    }
}

/// `host/prefix [methods] {headers} -> targets`, one line for each route.
fn shown(desired: &Desired) -> Vec<String> {
    let line = |route: &Route| format!("{} -> {}", route.name, targets(route).join(" "));
    desired.routes.iter().map(line).collect()
}

fn app(name: &str, last: u8, more: &[(&str, &str)]) -> Container {
    let mut labels = vec![
        ("toron.host", "app.example.com"),
        ("toron.prefix", "/service"),
        ("toron.port", "8080"),
    ];
    labels.extend(more);
    container(name, [172, 17, 0, last], &labels)
}

fn notes_of<'d>(desired: &'d Desired, name: &str) -> &'d [String] {
    let verdict = desired.verdicts.iter().find(|v| v.name == name);
    &verdict.unwrap().notes
}

fn reason_of(desired: &Desired, name: &str) -> String {
    let verdict = desired.verdicts.iter().find(|v| v.name == name);
    verdict.unwrap().placed.clone().unwrap_err()
}

#[test]
fn d9_replicas_form_one_pool() {
    let containers = [
        app("web-app-3", 4, &[]),
        app("web-app-1", 2, &[]),
        app("web-app-2", 3, &[]),
    ];
    let made = made(&containers);
    assert_eq!(
        shown(&made),
        [
            "app.example.com/service -> http://172.17.0.2:8080 http://172.17.0.3:8080 \
          http://172.17.0.4:8080"
        ]
    );
    assert_eq!(made.routes[0].source, Source::OciDiscovery);
    let names: Vec<&str> = made.verdicts.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["web-app-1", "web-app-2", "web-app-3"]);
    let placed = made.verdicts[0].placed.as_ref().unwrap();
    assert_eq!(placed.url, "http://172.17.0.2:8080");
    assert_eq!(placed.key, RouteKey::of(&made.routes[0]));
}

#[test]
fn d9_host_method_and_headers_keep_pools_apart() {
    let containers = [
        app("base", 2, &[]),
        app("canary", 3, &[("toron.header.x-version", "canary")]),
        app("canary-2", 4, &[("toron.headers", "X-VERSION=canary")]),
        app("write", 5, &[("toron.method", "put,POST")]),
        app("write-2", 6, &[("toron.method", "POST,PUT")]),
        app("other", 7, &[("toron.host", "APP.example.com.")]),
    ];
    assert_eq!(
        shown(&made(&containers)),
        [
            "app.example.com/service -> http://172.17.0.2:8080 http://172.17.0.7:8080",
            "app.example.com/service {X-Version=canary} -> http://172.17.0.3:8080 \
             http://172.17.0.4:8080",
            "app.example.com/service [POST,PUT] -> http://172.17.0.5:8080 http://172.17.0.6:8080",
        ]
    );
}

/// The string of a key is for people: pairs that look alike when written out are not the same.
#[test]
fn d9_grouping_compares_pairs() {
    let containers = [
        app("a", 2, &[("toron.header.x-a", "1&X-B=2")]),
        app("b", 3, &[("toron.headers", "X-A=1,X-B=2")]),
    ];
    assert_eq!(made(&containers).routes.len(), 2);
}

#[test]
fn d9_one_address_is_one_target_and_weights_are_kept() {
    let mut twin = app("b", 2, &[("toron.weight", "5")]);
    twin.host_network = true;
    let mut first = app("a", 9, &[("toron.weight", "3")]);
    first.host_network = true;
    let made = made(&[twin, first, app("c", 7, &[])]);
    assert_eq!(
        targets(&made.routes[0]),
        ["http://127.0.0.1:8080", "http://172.17.0.7:8080"]
    );
    assert_eq!(weights(&made.routes[0]), [3, 1]);
    assert!(made.verdicts.iter().all(|v| v.placed.is_ok()));
}

#[test]
fn d9_the_first_name_decides_and_the_conflict_is_told() {
    let containers = [
        app(
            "b",
            3,
            &[
                ("toron.read_timeout", "9s"),
                ("toron.strip_prefix", "false"),
            ],
        ),
        app("a", 2, &[("toron.read_timeout", "7s")]),
    ];
    let made = made(&containers);
    let route = &made.routes[0];
    assert_eq!(route.limits.read_timeout, Duration::from_secs(7));
    let RouteKind::Upstream(upstream) = &route.kind else {
        unreachable!()
    };
    assert!(upstream.strip_prefix);
    assert_eq!(notes_of(&made, "a"), [""; 0]);
    let [note] = notes_of(&made, "b") else {
        panic!("{:?}", notes_of(&made, "b"))
    };
    assert!(note.contains("differs from a,"), "{note}");
    assert!(
        note.ends_with("in toron.strip_prefix, toron.read_timeout"),
        "{note}"
    );
}

#[test]
fn d6_d11_every_container_has_a_route_or_a_reason() {
    let mut stopped = app("stopped", 2, &[]);
    stopped.state = "exited".to_owned();
    let mut sick = app("sick", 3, &[]);
    sick.health = OwnHealth::Unhealthy;
    let mut lost = app("lost", 4, &[]);
    lost.networks.clear();
    let off = app("off", 5, &[("toron.enable", "off")]);
    let greedy = container("greedy", [10, 0, 0, 1], &[]);
    let good = app("good", 6, &[]);
    let made = made(&[stopped, sick, lost, off, greedy, good]);
    assert_eq!(
        shown(&made),
        ["app.example.com/service -> http://172.17.0.6:8080"]
    );
    for (name, said) in [
        ("stopped", "not running (exited)"),
        ("sick", "health check fails"),
        ("lost", "no address"),
        ("off", "toron.enable is \"off\""),
        ("greedy", "all traffic"),
    ] {
        let reason = reason_of(&made, name);
        assert!(reason.contains(said), "{name}: {reason}");
    }
    let unfinished = made.verdicts.iter().filter(|v| v.unfinished);
    assert_eq!(
        unfinished.map(|v| v.name.as_str()).collect::<Vec<_>>(),
        ["lost"]
    );
}

#[test]
fn a_table_has_room_for_so_many_methods() {
    let method = |n: usize| format!("M{n:02}");
    let containers: Vec<Container> = (0..70)
        .map(|n| app(&method(n), n as u8, &[("toron.method", &method(n))]))
        .collect();
    let taken: BTreeSet<String> = ["GET".to_owned(), "M00".to_owned()].into();
    let made = desired(&containers, &settings(), &inherited(), taken, &mut endpoint);
    assert_eq!(made.routes.len(), 63);
    assert!(reason_of(&made, "M63").contains("64 methods"));
}

#[test]
fn lists_of_methods_that_overlap_are_told() {
    let containers = [
        app("a", 2, &[("toron.method", "GET,HEAD")]),
        app("b", 3, &[("toron.method", "GET,POST")]),
        app("c", 4, &[("toron.method", "PUT")]),
    ];
    let made = made(&containers);
    assert_eq!(made.routes.len(), 3);
    let [note] = notes_of(&made, "b") else {
        panic!("{:?}", notes_of(&made, "b"))
    };
    assert!(note.starts_with("GET requests go to the route app.example.com/service [GET,HEAD]"));
    // And so it is.
    let table = compile(made.routes).table;
    let found = table.lookup(b"app.example.com", b"/service", b"GET", |_| None);
    assert!(matches!(found, Lookup::Route(route) if route.methods == ["GET", "HEAD"]));
}

/// Containers that collide in every way that names, addresses and labels allow.
fn any_container() -> impl Strategy<Value = Container> {
    let labels = prop::collection::btree_map(
        prop::sample::select(vec![
            "toron.host",
            "toron.prefix",
            "toron.method",
            "toron.headers",
            "toron.header.X-A",
            "toron.header.x-a",
            "toron.port",
            "toron.weight",
            "toron.read_timeout",
            "toron.max_body_bytes",
            "toron.address",
        ]),
        prop::sample::select(vec![
            "",
            "/",
            "/a",
            "a.example",
            "A.EXAMPLE",
            "GET",
            "get,post",
            "POST,GET",
            "X-A=1",
            "{\"x-a\":\"1\"}",
            "{",
            "1",
            "2",
            "5s",
            "8MiB",
            "127.0.0.7",
            "\u{1F980}",
        ]),
        0..6,
    );
    (0u8..4, 0u8..4, 0u8..12, labels).prop_map(|(name, last, kind, labels)| {
        let labels: Vec<(&str, &str)> = labels.into_iter().collect();
        let mut c = container(&format!("c{name}"), [10, 0, 0, last], &labels);
        c.id = format!("{name}-{last}-{kind}-{labels:?}");
        match kind {
            0 => c.state = "exited".to_owned(),
            1 => c.health = OwnHealth::Starting,
            2 => c.networks.clear(),
            3 => c.host_network = true,
            4 => c.reachable = false,
            _ => {}
        }
        c
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_containers_cannot_matter(
        (listed, shuffled) in prop::collection::vec(any_container(), 0..12)
            .prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle()))
    ) {
        // An engine gives each id once.
        let unique = |list: Vec<Container>| {
            let by_id: BTreeMap<_, _> = list.iter().map(|c| (c.id.clone(), c.clone())).collect();
            let mut seen = BTreeSet::new();
            list.into_iter()
                .filter(|c| seen.insert(c.id.clone()))
                .map(|c| by_id[&c.id].clone())
                .collect::<Vec<_>>()
        };
        let (listed, shuffled) = (made(&unique(listed)), made(&unique(shuffled)));
        let text = |d: &Desired| format!("{:?}", d.routes);
        prop_assert_eq!(text(&listed), text(&shuffled));
        prop_assert_eq!(&listed.verdicts, &shuffled.verdicts);

        let keys: BTreeSet<RouteKey> = listed.routes.iter().map(RouteKey::of).collect();
        prop_assert_eq!(keys.len(), listed.routes.len());
        for verdict in &listed.verdicts {
            match &verdict.placed {
                Ok(placed) => {
                    let route = listed.routes.iter().find(|r| RouteKey::of(r) == placed.key);
                    prop_assert!(targets(route.unwrap()).contains(&placed.url));
                }
                Err(reason) => prop_assert!(!reason.is_empty()),
            }
        }
        let compiled = compile(listed.routes);
        prop_assert!(compiled.duplicates.is_empty() && compiled.shadowed.is_empty());
    }
}
