#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::policy::router::tests::{route, some_request, some_route, Asked};
use crate::policy::router::{compile, Lookup, RouteKey};

fn table(routes: &[&str]) -> Table {
    compile(routes.iter().map(|r| route(r)).collect()).table
}

/// What keeps each route, by name, from taking a request.
fn misses(table: &Table, asked: &Asked) -> Vec<(String, Vec<Miss>)> {
    let header = |name: &str| asked.field(name);
    let (host, path, method) = asked.line();
    consider(table, host, path, method, header)
        .into_iter()
        .map(|considered| (considered.route.name.clone(), considered.misses))
        .collect()
}

fn asked(host: &str, path: &str, method: &str, fields: &str) -> Asked {
    Asked::new(host, path, method, fields)
}

#[test]
fn everything_that_keeps_a_route_is_named() {
    let table = table(&["a.b:81|/x|POST|X=1,Y=2", "*.b|/x", "|/X", "|/xy/", "|/x/y"]);
    let field = |name: &str, wanted: &str, given: Option<&str>| Miss::Field {
        name: name.to_owned(),
        wanted: wanted.to_owned(),
        given: given.map(str::to_owned),
    };
    let found = misses(&table, &asked("a.b", "//xy", "GET", "y=3"));
    let of = |name: &str| &found.iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!(
        *of("a.b:81|/x|POST|X=1,Y=2"),
        [
            Miss::Segment,
            Miss::Port,
            field("X", "1", None),
            field("Y", "2", Some("3")),
            Miss::Method
        ]
    );
    assert_eq!(*of("*.b|/x"), [Miss::Segment]);
    assert_eq!(*of("|/X"), [Miss::Prefix]);
    assert_eq!(*of("|/xy/"), []);
    let found = misses(&table, &asked("b", "/x/", "GET", ""));
    let of = |name: &str| &found.iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!(*of("|/X"), [Miss::Case]);
    assert_eq!(*of("*.b|/x"), [Miss::Host]);
}

#[test]
fn r2_the_first_criterion_in_which_two_routes_differ_decides() {
    for (first, second, by) in [
        ("|/a/b", "h|/a", Precedence::LongerPrefix),
        ("h.c|/a", "*.c|/a|GET|X=1", Precedence::ClearerHost),
        ("*.c|/a", "|/a", Precedence::ClearerHost),
        ("*.b.c|/a", "*.c|/a", Precedence::LongerSuffix),
        ("h.c:81|/a", "h.c|/a||X=1", Precedence::NamesPort),
        ("|/a||X=1,Y=1", "|/a|GET|X=1", Precedence::MoreFields),
        ("|/a|GET", "|/a", Precedence::NamesMethod),
        ("|/a||X=1", "|/a||Y=1", Precedence::Order),
    ] {
        assert_eq!(Precedence::of(&route(first), &route(second)), by, "{first}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn explanations_and_look_ups_agree(
        routes in prop::collection::vec(some_route(), 0..40),
        requests in prop::collection::vec(some_request(), 30),
    ) {
        let mut routes: Vec<Route> = routes.iter().map(|r| route(r)).collect();
        let mut seen = std::collections::HashSet::new();
        routes.retain(|r| seen.insert(RouteKey::of(r)));
        let table = compile(routes).table;
        for asked in requests {
            let (host, path, method) = asked.line();
            let found = consider(&table, host, path, method, |name| asked.field(name));
            let winner = found.iter().find(|c| c.misses.is_empty());
            let looked_up = table.lookup(host, path, method, |name| asked.field(name));
            match (winner, looked_up) {
                (Some(winner), Lookup::Route(route)) => prop_assert_eq!(winner.route.id, route.id),
                (None, Lookup::NotFound) => {
                    prop_assert!(found.iter().all(|c| c.misses != [Miss::Method]));
                }
                (None, Lookup::MethodNotAllowed { allow }) => {
                    let other = found.iter().filter(|c| c.misses == [Miss::Method]);
                    let methods: BTreeSet<&str> =
                        other.flat_map(|c| c.route.methods.iter().map(String::as_str)).collect();
                    prop_assert_eq!(allow.iter().collect::<BTreeSet<&str>>(), methods);
                }
                (winner, looked_up) => prop_assert!(false, "{winner:?} but {looked_up:?}: {asked:?}"),
            }
        }
    }

    #[test]
    fn any_bytes_are_explained(host in any::<Vec<u8>>(), path in any::<Vec<u8>>()) {
        let table = table(&["a|/a", "*.b|/", "[::1]|/a/b"]);
        let found = consider(&table, &host, &path, b"GET", |_| None);
        let winner = found.iter().find(|c| c.misses.is_empty()).map(|c| c.route.id);
        let looked_up = match table.lookup(&host, &path, b"GET", |_| None) {
            Lookup::Route(route) => Some(route.id),
            Lookup::NotFound | Lookup::MethodNotAllowed { .. } => None,
        };
        prop_assert_eq!(winner, looked_up);
    }
}
