//! S1: the proxy's own 413 is lost in a reset. S18: body limits on chunked uploads.

use std::time::{Duration, Instant};

use crate::support::http::End;
use crate::support::setup::{Engine, Route, Settings};
use crate::support::toron::Toron;
use crate::support::upstream::{Script, Upstream};
use crate::support::{show, PATIENCE};
use crate::{connect, on_every_engine, pattern, post, post_chunked};

const LIMIT: u64 = 1000;
const DECLARED: &str =
    "{\"error\":\"413 Payload Too Large: request Content-Length exceeds effective route limit\"}";
const COUNTED: &str = "{\"error\":\"413 Payload Too Large\"}";

fn limited(engine: Engine, upstream: &Upstream, mode: &str) -> Toron {
    let mut settings = Settings::new(engine, vec![Route::new("/", &upstream.addr)]);
    settings.max_body_bytes = Some(LIMIT);
    settings.server.push(("inbound_chunked_mode", mode.into()));
    Toron::start(&settings)
}

fn in_chunks(body: &[u8], size: usize) -> Vec<u8> {
    let mut framed = Vec::new();
    for chunk in body.chunks(size) {
        framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
    }
    framed
}

// S1: write 5 MB, only then read: no failed write, the 413, an orderly end.

const S1_BODY: usize = 5_000_000;
const S1_RUNS: usize = 50;

fn writes_all_then_reads_the_413(toron: &Toron, head: &[u8], body: &[u8], error: &str) {
    for run in 0..S1_RUNS {
        let mut client = connect(toron);
        client.send(head, PATIENCE);
        client.send(body, PATIENCE);
        assert_eq!(client.send_error, None, "run {run}: a write failed");
        client.receive_until_end(PATIENCE);
        let parsed = client.parsed();
        let statuses: Vec<u16> = parsed.responses.iter().map(|r| r.status).collect();
        assert_eq!(statuses, [413], "run {run}: {:?}", show(&client.received));
        let response = &parsed.responses[0];
        assert!(response.complete, "run {run}: the 413 is cut");
        assert_eq!(String::from_utf8_lossy(&response.body), error, "run {run}");
        assert_eq!(response.head.all("connection"), ["close"], "run {run}");
        assert_eq!(client.end, Some(End::Fin), "run {run}");
    }
}

fn s1_i8_i9_own_413_survives(engine: Engine) {
    let upstream = Upstream::start();
    let toron = limited(engine, &upstream, "normalize");
    let body = vec![b'A'; S1_BODY];
    writes_all_then_reads_the_413(&toron, &post("/", S1_BODY), &body, DECLARED);
    assert!(
        upstream.connections().is_empty(),
        "a refused request was dialled for"
    );
}

#[test]
fn s1_i8_i9_own_413_survives_on_epoll() {
    s1_i8_i9_own_413_survives(Engine::Epoll);
}

#[test]
fn s1_i8_i9_own_413_survives_on_io_uring() {
    s1_i8_i9_own_413_survives(Engine::IoUring);
}

/// The same for the second tier: the length is not known before it is too much.
fn s1_i9_i10_own_413_survives_a_counted_body(engine: Engine) {
    for mode in ["normalize", "passthrough"] {
        let upstream = Upstream::start();
        let toron = limited(engine, &upstream, mode);
        let mut framed = in_chunks(&vec![b'A'; S1_BODY], 50_000);
        framed.extend_from_slice(b"0\r\n\r\n");
        writes_all_then_reads_the_413(&toron, &post_chunked("/"), &framed, COUNTED);
        let over = upstream.wait_for(PATIENCE, |all| all.iter().all(|c| c.ended.is_some()));
        assert!(over, "{mode}: an upstream connection outlives its refusal");
        let whole: usize = upstream
            .connections()
            .iter()
            .map(|c| c.requests.len())
            .sum();
        assert_eq!(whole, 0, "{mode}: a refused request is whole upstream");
    }
}

#[test]
fn s1_i9_i10_own_413_survives_a_counted_body_on_epoll() {
    s1_i9_i10_own_413_survives_a_counted_body(Engine::Epoll);
}

#[test]
fn s1_i9_i10_own_413_survives_a_counted_body_on_io_uring() {
    s1_i9_i10_own_413_survives_a_counted_body(Engine::IoUring);
}

/// 16 MiB is what is thrown away at most; the rest of this is room for what sockets hold.
const S1_FLOOD: usize = 64 * 1024 * 1024;

/// A client that never stops: a flood ends by its size, a trickle by its time.
#[test]
fn s1_i9_a_client_that_never_stops_is_gone() {
    on_every_engine(|engine| {
        let upstream = Upstream::start();
        let toron = limited(engine, &upstream, "normalize");
        let piece = vec![b'A'; 64 * 1024];
        let mut flood = connect(&toron);
        flood.send(&post("/", usize::MAX >> 1), PATIENCE);
        let mut sent = 0;
        while flood.send_error.is_none() && sent < S1_FLOOD {
            flood.send(&piece, PATIENCE);
            sent += piece.len();
        }
        assert!(flood.send_error.is_some(), "{sent} bytes taken after a 413");

        let mut trickle = connect(&toron);
        trickle.send(&post("/", usize::MAX >> 1), PATIENCE);
        let deadline = Instant::now() + PATIENCE;
        while trickle.send_error.is_none() && Instant::now() < deadline {
            trickle.send(b"drip", PATIENCE);
            // Nothing more than the 413 comes; this waits between two drips.
            trickle.receive(usize::MAX, Instant::now() + Duration::from_millis(100));
        }
        assert!(trickle.send_error.is_some(), "a trickle is never cut off");
    });
}

// S18: 413, and the upstream never sees a whole request.

fn s18_body_limit_on_chunked_uploads(engine: Engine, mode: &str) {
    let upstream = Upstream::start();
    let toron = limited(engine, &upstream, mode);
    let hundreds = in_chunks(&pattern(2000), 100);
    // Of one declared mebibyte 2000 bytes come: enough to know.
    let mut huge = b"100000\r\n".to_vec();
    huge.extend_from_slice(&pattern(2000));
    let just_over = in_chunks(&pattern(1001), 1001);
    for body in [hundreds, huge, just_over] {
        upstream.begin(Script::default());
        let mut client = connect(&toron);
        client.send(&post_chunked("/upload"), PATIENCE);
        client.send(&body, PATIENCE);
        assert!(
            client.receive_responses(1, PATIENCE),
            "{mode}: no answer while the rest is owed: {:?}",
            show(&client.received)
        );
        let parsed = client.parsed();
        let response = &parsed.responses[0];
        let got = (response.status, String::from_utf8_lossy(&response.body));
        assert_eq!(got, (413, COUNTED.into()), "{mode}");
        let over = upstream.wait_for(PATIENCE, |all| all.iter().all(|c| c.ended.is_some()));
        assert!(
            over,
            "{mode}: the upstream waits for a rest that never comes"
        );
        for connection in upstream.connections() {
            assert!(connection.requests.is_empty(), "{mode}: a whole request");
            let last = connection.received.ends_with(b"0\r\n\r\n");
            assert!(!last, "{mode}: what was cut looks complete");
        }
    }
}

/// Decoded bytes are counted, not their framing: six times as many.
fn s18_framing_does_not_count(engine: Engine, mode: &str) {
    let upstream = Upstream::start();
    let toron = limited(engine, &upstream, mode);
    let body = pattern(1000);
    let mut framed = in_chunks(&body, 1);
    framed.extend_from_slice(b"0\r\n\r\n");
    let mut client = connect(&toron);
    client.send(&post_chunked("/upload"), PATIENCE);
    client.send(&framed, PATIENCE);
    assert!(client.receive_responses(1, PATIENCE));
    assert_eq!(client.parsed().responses[0].status, 200, "{mode}");
    let request = upstream.connections().remove(0).requests.remove(0);
    assert_eq!(request.body, body, "{mode}");
}

#[test]
fn s18_i10_body_limit_on_chunked_uploads() {
    on_every_engine(|engine| {
        for mode in ["normalize", "passthrough"] {
            s18_body_limit_on_chunked_uploads(engine, mode);
            s18_framing_does_not_count(engine, mode);
        }
    });
}
