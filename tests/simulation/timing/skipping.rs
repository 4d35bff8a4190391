//! Expectations, and what is owed behind an early response (I11).

use super::{post, MILLIS, OK, SECOND};
use crate::stage::{on_time, Peer, Stage};

const EXPECT: &str =
    "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n";
const REFUSED: &[u8] = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";

#[test]
fn i11_toron_sends_the_100_itself_after_a_second_of_silence() {
    let mut stage = Stage::streaming("", "");
    let mut client = stage.client();
    let mut upstream = stage.request(&mut client, EXPECT);
    assert!(upstream.text().contains("100-continue"));
    let since = stage.now();
    let at = stage.until(2 * SECOND, || client.has(b"\r\n\r\n"));
    on_time(since, SECOND, at);
    assert_eq!(client.text(), "HTTP/1.1 100 Continue\r\n\r\n");
    // One that comes later is not passed on.
    upstream.send(b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"0123456789");
    stage.until(SECOND, || upstream.has(b"0123456789"));
    upstream.send(OK);
    stage.until(SECOND, || client.has(b"OK"));
    assert_eq!(client.text().matches(" 100 ").count(), 1);
}

#[test]
fn i19_the_clients_clock_begins_with_the_100() {
    let mut stage = Stage::streaming("", "read_timeout: 3s; min_body_rate: 0");
    let mut client = stage.client();
    let _upstream = stage.request(&mut client, EXPECT);
    let invited = stage.until(2 * SECOND, || client.has(b" 100 "));
    let at = stage.until(4 * SECOND, || client.has(b" 408 "));
    on_time(invited, 3 * SECOND, at);
}

#[test]
fn i11_a_final_answer_comes_at_once_and_the_body_is_not_invited() {
    let mut stage = Stage::streaming("", "");
    let mut client = stage.client();
    let mut upstream = stage.request(&mut client, EXPECT);
    let since = stage.now();
    upstream.send(REFUSED);
    let at = stage.until(SECOND, || client.has(b"\r\n\r\n"));
    assert!(at.since(since) < MILLIS(1));
    assert!(client.text().starts_with("HTTP/1.1 401 "));
    // Its next bytes may be the body or a request: nobody knows, so there is no next request.
    assert!(client.text().contains("Connection: close"));
    let end = stage.until(SECOND, || client.has_ended());
    assert!(end.since(at) < MILLIS(1));
    client.send(b"0123456789GET /evil HTTP/1.1\r\nHost: t\r\n\r\n");
    stage.pass(2 * SECOND);
    assert!(!upstream.text().contains("evil"));
    stage.nobody_waits();
}

/// An early response while `owed` bytes are to come; says whether it announces the end.
fn answered_early(stage: &mut Stage, owed: usize) -> (Peer, Peer, bool) {
    let mut client = stage.client();
    let mut upstream = stage.request(&mut client, &post(owed + 10));
    client.send(b"0123456789");
    stage.until(SECOND, || upstream.has(b"0123456789"));
    upstream.send(REFUSED);
    stage.until(SECOND, || client.has(b"\r\n\r\n"));
    let closes = client.text().contains("Connection: close");
    client.received.clear();
    (client, upstream, closes)
}

#[test]
fn i11_what_is_owed_is_thrown_away_and_the_connection_kept() {
    for owed in [1, 5_000, 65_536] {
        for cut in [owed, 1, 700] {
            let mut stage = Stage::streaming("", "");
            let (mut client, mut upstream, closes) = answered_early(&mut stage, owed);
            assert!(!closes);
            // What is owed looks like requests to /evil, the next one follows at its heels.
            let evil = "GET /evil HTTP/1.1\r\nHost: t\r\n\r\n".repeat(owed / 10 + 1);
            let mut bytes = evil.as_bytes()[..owed].to_vec();
            bytes.extend_from_slice(b"GET /next HTTP/1.1\r\nHost: t\r\n\r\n");
            for piece in bytes.chunks(cut.max(owed / 50)) {
                client.send(piece);
                stage.pass(MILLIS(1));
            }
            let mut next = stage.upstream(SECOND);
            stage.until(SECOND, || next.has(b"\r\n\r\n"));
            assert!(
                next.text().starts_with("GET /next HTTP/1.1\r\n"),
                "{}",
                next.text()
            );
            next.send(OK);
            stage.until(SECOND, || client.has(b"OK"));
            assert!(upstream.has_ended() && !upstream.text().contains("evil"));
            stage.nobody_waits();
        }
    }
}

#[test]
fn i11_what_does_not_come_within_100_ms_is_not_waited_for() {
    let mut stage = Stage::streaming("", "");
    let (mut client, _upstream, closes) = answered_early(&mut stage, 5_000);
    assert!(!closes);
    let since = stage.now();
    client.send(&[b'x'; 4_999]);
    let end = stage.until(SECOND, || client.has_ended());
    on_time(since, MILLIS(100), end);
    // What comes now is thrown away, too.
    client.send(b"xGET /evil HTTP/1.1\r\nHost: t\r\n\r\n");
    stage.pass(2 * SECOND);
    stage.nobody_waits();
    assert_eq!((client.text().as_str(), stage.counts().sessions), ("", 0));
}

#[test]
fn i11_more_than_64_kib_is_not_taken_for_the_sake_of_a_connection() {
    let mut stage = Stage::streaming("", "");
    let (mut client, _upstream, closes) = answered_early(&mut stage, 65_537);
    assert!(closes);
    stage.until(MILLIS(1), || client.has_ended());
}

#[test]
fn i11_what_is_left_of_a_chunked_body_is_not_known() {
    let mut stage = Stage::streaming("", "");
    let mut client = stage.client();
    let head = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let upstream = stage.request(&mut client, head);
    upstream.send(REFUSED);
    stage.until(SECOND, || client.has(b"\r\n\r\n"));
    assert!(client.text().contains("Connection: close"));
    client.send(b"0\r\n\r\nGET /evil HTTP/1.1\r\nHost: t\r\n\r\n");
    stage.pass(2 * SECOND);
    stage.nobody_waits();
}

/// What is owed arrives in the very turn in which the response ends, by the receive that was under
/// way for the upload.
#[test]
fn i11_what_is_owed_may_have_been_received_already() {
    for response_first in [true, false] {
        let mut stage = Stage::streaming("", "");
        let mut client = stage.client();
        let mut upstream = stage.request(&mut client, &post(50));
        let evil = "GET /evil HTTP/1.1\r\nHost: t\r\n\r\n".repeat(2);
        let rest = evil[..50].to_owned() + "GET /next HTTP/1.1\r\nHost: t\r\n\r\n";
        if response_first {
            upstream.send(REFUSED);
        }
        client.send(rest.as_bytes());
        if !response_first {
            upstream.send(REFUSED);
        }
        let next = stage.look(SECOND, |stage| {
            if upstream.has(b"/next") {
                return Some(None);
            }
            stage.next_upstream().map(Some)
        });
        // On the same upstream connection if its body was whole after all, else on another.
        let mut next = match next {
            Some((_, Some(other))) => other,
            Some((_, None)) => upstream,
            None => panic!("the next request does not come"),
        };
        stage.until(SECOND, || next.has(b"GET /next HTTP/1.1\r\n"));
        next.send(OK);
        stage.until(SECOND, || client.has(b"\r\n\r\nOK"));
        stage.nobody_waits();
    }
}
