//! The total deadlines of a route (I32, I33).

use super::{answered, post, GET, MILLIS, OK, SECOND};
use crate::stage::{on_time, Peer, Stage};

const HEADER: &str = r#"{"error":"504 Gateway Timeout: Request timed out"}"#;
const REQUEST: &str = r#"{"error":"504 Gateway Timeout: Request deadline exceeded"}"#;
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn i32_counts_from_the_request_and_releases_the_upstream() {
    for (config, route) in [
        ("server: {header_deadline: 2s}", ""),
        ("server: {header_deadline: 9s}", "header_deadline: 2s"),
    ] {
        let mut stage = Stage::new(config, route);
        let mut client = stage.client();
        let mut upstream = stage.request(&mut client, GET);
        let since = stage.now();
        upstream.send(b"HTTP/1.1 102 Processing\r\n\r\n");
        stage.until(SECOND, || client.has(b" 102 "));
        client.received.clear();
        let at = answered(&mut stage, 3 * SECOND, &mut client, 504, HEADER);
        on_time(since, 2 * SECOND, at);
        stage.until(MILLIS(1), || upstream.has_ended());
        assert_eq!(stage.counts().exchanges, 0);
        // The connection goes on.
        client.received.clear();
        let next = stage.request(&mut client, GET);
        next.send(OK);
        answered(&mut stage, SECOND, &mut client, 200, "OK");
    }
}

#[test]
fn i32_is_over_with_the_final_head_and_a_route_can_switch_it_off() {
    let mut stage = Stage::new("", "header_deadline: 2s");
    let mut client = stage.client();
    let upstream = stage.request(&mut client, GET);
    stage.pass(MILLIS(1_900));
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
    stage.pass(30 * SECOND);
    upstream.send(b"OK");
    stage.until(SECOND, || client.has(b"\r\n\r\nOK"));

    let mut stage = Stage::new("server: {header_deadline: 2s}", "header_deadline: 0");
    let mut client = stage.client();
    let upstream = stage.request(&mut client, GET);
    stage.pass(9 * SECOND);
    upstream.send(OK);
    answered(&mut stage, SECOND, &mut client, 200, "OK");
}

#[test]
fn i32_the_answer_can_be_spelled_out() {
    let answer = "header_deadline_response: {status: 503, headers: {Retry-After: 10}, body: later}";
    let mut stage = Stage::new("", &format!("header_deadline: 1s; {answer}"));
    let mut client = stage.client();
    let _upstream = stage.request(&mut client, GET);
    let since = stage.now();
    let at = answered(&mut stage, 2 * SECOND, &mut client, 503, "later");
    on_time(since, SECOND, at);
    let text = client.text();
    assert!(
        text.contains("\r\nRetry-After: 10\r\n") && text.contains("\r\nContent-Length: 5\r\n"),
        "{text}"
    );
}

#[test]
fn i33_before_the_head_it_is_a_504() {
    let mut stage = Stage::new("", "request_deadline: 2s");
    let mut client = stage.client();
    let mut upstream = stage.request(&mut client, &post(100_000));
    let since = stage.now();
    for _ in 0..19 {
        stage.pass(MILLIS(100));
        client.send(&[b'x'; 2_000]);
    }
    let at = answered(&mut stage, SECOND, &mut client, 504, REQUEST);
    on_time(since, 2 * SECOND, at);
    stage.until(MILLIS(1), || upstream.has_ended());
}

#[test]
fn i33_after_the_head_the_client_is_severed_and_nothing_is_held() {
    for drips in [false, true] {
        let mut stage = Stage::new("", "request_deadline: 2s");
        let mut client = stage.client();
        let mut upstream = stage.request(&mut client, GET);
        let since = stage.now();
        upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        for _ in 0..19 {
            stage.pass(MILLIS(100));
            upstream.send(if drips { b"x" } else { b"" });
        }
        let end = stage.until(SECOND, || client.has_ended());
        on_time(since, 2 * SECOND, end);
        stage.until(MILLIS(1), || upstream.has_ended());
        let counts = stage.counts();
        assert_eq!((counts.exchanges, counts.upstream_connections), (0, 0));
    }
}

#[test]
fn i33_an_event_stream_is_covered() {
    let mut stage = Stage::new("", "request_deadline: 2s");
    let mut client = stage.client();
    let upstream = stage.request(&mut client, GET);
    let since = stage.now();
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
    let end = stage.until(3 * SECOND, || client.has_ended());
    on_time(since, 2 * SECOND, end);
}

fn tunnel(stage: &mut Stage) -> (Peer, Peer) {
    let mut client = stage.client();
    let mut upstream = stage.request(&mut client, UPGRADE);
    upstream.send(SWITCH);
    stage.until(SECOND, || client.has(b"101"));
    upstream.received.clear();
    (client, upstream)
}

#[test]
fn i33_a_tunnel_outlives_the_deadline() {
    let mut stage = Stage::new("", "request_deadline: 2s; header_deadline: 1s");
    let (mut client, mut upstream) = tunnel(&mut stage);
    stage.pass(30 * SECOND);
    client.send(b"ping");
    stage.until(SECOND, || upstream.has(b"ping"));
    upstream.send(b"pong");
    stage.until(SECOND, || client.has(b"pong"));
}

#[test]
fn i33_unless_it_covers_upgrades() {
    let route = "request_deadline: 2s; request_deadline_covers_upgrades: true";
    for half in [None, Some(true), Some(false)] {
        let mut stage = Stage::new("", route);
        let begin = stage.now();
        let (mut client, mut upstream) = tunnel(&mut stage);
        let since = stage.now();
        stage.pass(SECOND);
        client.send(b"ping");
        stage.until(SECOND, || upstream.has(b"ping"));
        match half {
            Some(true) => client.remote.shutdown_write(),
            Some(false) => upstream.remote.shutdown_write(),
            None => {}
        }
        let held = |stage: &Stage| stage.counts().upstream_connections;
        let end = stage.look(2 * SECOND, |stage| (held(stage) == 0).then_some(()));
        let Some((end, ())) = end else {
            panic!("the tunnel goes on")
        };
        assert!(end.since(begin) >= 2 * SECOND);
        on_time(since, 2 * SECOND, end);
        stage.until(SECOND, || client.has_ended() && upstream.has_ended());
    }
}
