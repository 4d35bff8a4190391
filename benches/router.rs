//! R3: what a look-up costs with 10 and with 10,000 routes: `cargo bench --bench router`.
//! Instructions: `valgrind --tool=callgrind --toggle-collect='*looked_up*' <the bench's binary> once
//! KIND ROUTES`, over 1,024 look-ups.
//!
//! Measured on two cores of an EPYC (2 MiB of L2, 32 MiB of L3), best of 1,000 rounds, and instructions:
//!
//! | routes by | 10 | 10,000 | ratio | instructions, 10 | 10,000 |
//! | --- | --- | --- | --- | --- | --- |
//! | prefix | 47 ns | 60 ns | 1.27 | 843 | 863 |
//! | host | 48 ns | 58 ns | 1.22 | 734 | 726 |
//! | wildcard host | 48 ns | 62 ns | 1.29 | 755 | 816 |
//! | field | 42 ns | 50 ns | 1.21 | 730 | 750 |
//! | two fields | 57 ns | 67 ns | 1.17 | 859 | 878 |
//! | all of them | 61 ns | 100 ns | 1.63 | 1,044 | 1,064 |
//!
//! What is left of the ratio is cache misses. Routes that ask for fields of other *names* are another
//! matter: on one host and prefix each set of names costs a look at the request's fields.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use toron::control::config::load_texts;
use toron::control::resolve::Endpoints;
use toron::policy::router::{Lookup, Table};

/// Host, path, value of X-Tenant.
type Request = (String, String, String);

const KINDS: [&str; 6] = ["prefix", "host", "wildcard", "header", "headers", "all"];

fn table(kind: &str, routes: usize) -> Table {
    let mut text = "routes:\n".to_owned();
    for i in 0..routes {
        let key = match kind {
            "prefix" => format!("prefix: /svc{i}/v1"),
            "host" => format!("host: h{i}.example.com"),
            "wildcard" => format!("host: \"*.h{i}.example.com\""),
            "header" => format!("headers: {{X-Tenant: t{i}}}"),
            "headers" => format!("headers: {{X-Tenant: t{i}, X-Env: live}}"),
            _ => format!(
                "host: h{i}.example.com, prefix: /svc{i}/v1, method: GET, headers: {{X-Tenant: t{i}}}"
            ),
        };
        writeln!(text, "  - {{{key}, target: http://127.0.0.1}}").unwrap();
    }
    load_texts("", Some(&text), &mut Endpoints::default())
        .unwrap()
        .snapshot
        .table
}

/// Requests for 1,024 of the routes, in no order that a cache could like.
fn requests(kind: &str, routes: usize) -> Vec<Request> {
    let before = if kind == "wildcard" { "x." } else { "" };
    let request = |i: usize| {
        let i = i * 7919 % routes;
        (
            format!("{before}h{i}.example.com"),
            format!("/svc{i}/v1/users/42"),
            format!("t{i}"),
        )
    };
    (0..1024).map(request).collect()
}

/// One look-up.
#[inline(never)]
fn looked_up(table: &Table, (host, path, tenant): &Request) {
    let found = table.lookup(host.as_bytes(), path.as_bytes(), b"GET", |name| {
        let value = if name == "x-env" { "live" } else { tenant };
        Some(value.as_bytes())
    });
    assert!(matches!(black_box(&found), Lookup::Route(_)));
}

/// Nanoseconds per look-up, the best of many rounds.
fn measure(table: &Table, requests: &[Request], rounds: usize) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let start = Instant::now();
        for request in requests {
            looked_up(table, request);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / requests.len() as f64);
    }
    best
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, once, kind, routes, ..] = arguments.as_slice() {
        if once == "once" {
            let routes = routes.parse().unwrap();
            measure(&table(kind, routes), &requests(kind, routes), 1);
            return;
        }
    }
    // `cargo test --all-targets` runs this too, without the flag: then only that it works.
    let rounds = if arguments.iter().any(|argument| argument == "--bench") {
        1000
    } else {
        1
    };
    for kind in KINDS {
        let cost = |routes| measure(&table(kind, routes), &requests(kind, routes), rounds);
        let (few, many) = (cost(10), cost(10_000));
        println!(
            "{kind:8}  10: {few:4.0} ns   10,000: {many:4.0} ns   x {:.2}",
            many / few
        );
    }
}
