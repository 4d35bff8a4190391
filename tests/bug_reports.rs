//! What users of other proxies ran into (tests/cases/bug-reports.md), as tests named after it. S6, slots
//! that leak, is tests/storm.rs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "bug_reports/addresses.rs"]
mod addresses;
#[path = "bug_reports/connections.rs"]
mod connections;
#[path = "bug_reports/containers.rs"]
mod containers;
#[path = "discovery/fake.rs"]
mod fake;
#[path = "bug_reports/paths.rs"]
mod paths;
#[path = "bug_reports/readers.rs"]
mod readers;
#[path = "bug_reports/redirects.rs"]
mod redirects;
#[path = "bug_reports/refusals.rs"]
mod refusals;
#[path = "bug_reports/reloads.rs"]
mod reloads;
#[path = "discovery/rig.rs"]
mod rig;
#[path = "bug_reports/slow_clients.rs"]
mod slow_clients;
mod support;
#[path = "bug_reports/uploads.rs"]
mod uploads;

use std::time::Duration;

use support::client::Client;
use support::setup::Engine;
use support::toron::Toron;
use support::PATIENCE;

/// Runs a test on every engine.
fn on_every_engine(test: fn(Engine)) {
    for engine in Engine::ALL {
        test(engine);
    }
}

fn connect(toron: &Toron) -> Client {
    Client::connect(toron.addr, PATIENCE).unwrap()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n").into_bytes()
}

fn post(path: &str, length: usize) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: t.example\r\nContent-Length: {length}\r\n\r\n")
        .into_bytes()
}

fn post_chunked(path: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n")
        .into_bytes()
}

/// The status of one request on a connection of its own, or `None` without an answer in `limit`.
fn ask(toron: &Toron, path: &str, limit: Duration) -> Option<u16> {
    let mut client = Client::connect(toron.addr, limit).ok()?;
    client.send(&get(path), limit);
    client.receive_responses(1, limit);
    client.parsed().responses.first().map(|r| r.status)
}

/// Bytes in which every position tells itself.
fn pattern(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    toron::origin::pattern::fill(0, &mut bytes);
    bytes
}
