//! Each timing rule on the whole server, with a clock that is made up.

mod heads;
mod leaving;
mod receiving;
mod sending;
mod skipping;
mod totals;
mod upstreams;

use std::time::Duration;

use toron_reactor::Time;

use crate::stage::{Peer, Stage};

const SECOND: Duration = Duration::from_secs(1);
const MILLIS: fn(u64) -> Duration = Duration::from_millis;
const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";

/// The head of a POST with `length` bytes.
fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n")
}

/// Waits for an answer with this status and body, and then for the end of the connection; says when
/// each came.
fn answered_and_closed(
    stage: &mut Stage,
    within: Duration,
    client: &mut Peer,
    status: u16,
    body: &str,
) -> (Time, Time) {
    let at = answered(stage, within, client, status, body);
    let end = stage.until(SECOND, || client.has_ended());
    (at, end)
}

/// Waits for an answer with this status and body.
fn answered(
    stage: &mut Stage,
    within: Duration,
    client: &mut Peer,
    status: u16,
    body: &str,
) -> Time {
    let begins = format!("HTTP/1.1 {status} ");
    let at = stage.until(within, || !client.text().is_empty());
    let text = client.text();
    assert!(
        text.starts_with(&begins) && text.ends_with(&format!("\r\n\r\n{body}")),
        "{text}"
    );
    at
}

const TIMEOUT: &str = r#"{"error":"408 Request Timeout"}"#;
