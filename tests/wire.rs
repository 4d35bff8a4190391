//! The case bank (tests/cases/wire.jsonl) against the real binary, on both engines.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;

use support::bank;
use support::setup::Engine;
use support::toron::{check, Toron};

/// Kinds that toron is held to. The others are read, and counted in the output.
const IN_FORCE: &[&str] = &[
    "request-line",
    "header-syntax",
    "obs-fold",
    "host",
    "absolute-form",
    "options-asterisk",
    "connect",
    "content-length",
    "transfer-encoding",
    "cl-te",
    "pipelining",
    "connection-header/hop-by-hop",
    "upgrade",
    "response-framing",
    "HEAD/204/304 bodies",
    "1xx",
    "keep-alive",
    "HTTP/1.0",
    "header-limits",
    "path-normalisation/traversal",
    "chunk-size",
    "chunk-ext",
    "chunk-trailer",
    "trailers",
    "expect-100",
    "half-close",
    "abort",
    "early-response",
    "body-limit",
    "timeouts",
    "xff",
    "firewall",
    "slow-client",
    "redirect-rewrite",
    "cookie-rewrite",
    "concurrency",
];

fn play_kinds_in_force(engine: Engine) {
    let (in_force, later): (Vec<_>, Vec<_>) = bank::jobs()
        .into_iter()
        .partition(|job| IN_FORCE.contains(&job.kind.as_str()));
    let failures = bank::play(&in_force, engine, Toron::start);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for job in &later {
        *kinds.entry(&job.kind).or_default() += 1;
    }
    println!(
        "{}: {} cases in force, {} failed",
        engine.name(),
        in_force.len(),
        failures.len()
    );
    println!(
        "not in force yet: {} cases of the kinds {kinds:?}",
        later.len()
    );
    let reports: Vec<&str> = failures.iter().map(|f| f.report.as_str()).collect();
    let ids: Vec<&str> = failures.iter().map(|f| f.id.as_str()).collect();
    assert!(
        failures.is_empty(),
        "failed: {ids:?}\n\n{}",
        reports.join("\n")
    );
}

#[test]
fn wire_cases_on_epoll() {
    play_kinds_in_force(Engine::Epoll);
}

#[test]
fn wire_cases_on_io_uring() {
    play_kinds_in_force(Engine::IoUring);
}

/// A kind that is misspelt here would silently be out of force.
#[test]
fn every_kind_in_force_has_cases() {
    let jobs = bank::jobs();
    for kind in IN_FORCE {
        assert!(
            jobs.iter().any(|job| job.kind == *kind),
            "no case of kind {kind}"
        );
    }
}

/// The rig writes files that toron reads; a key that one of them does not know shows here first.
#[test]
fn toron_check_accepts_the_settings_of_every_kind_in_force() {
    for job in bank::jobs()
        .iter()
        .filter(|job| IN_FORCE.contains(&job.kind.as_str()))
    {
        for engine in Engine::ALL {
            let settings = job.settings(engine, "127.0.0.1:9000");
            let table = check(&settings).unwrap_or_else(|e| {
                panic!(
                    "{}:\n{e}\n{}{}",
                    job.id,
                    settings.config_yaml(),
                    settings.routes_yaml()
                )
            });
            assert!(
                table.contains("127.0.0.1:9000"),
                "{}: no route in {table:?}",
                job.id
            );
        }
    }
}
