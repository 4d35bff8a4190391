//! Clients that leave (I39).

use super::{post, GET, MILLIS, OK, SECOND};
use crate::stage::{Peer, Stage};
use toron_reactor::sim::Route;

/// A client with a request under way, and its upstream.
fn under_way(stage: &mut Stage, begun: bool) -> (Peer, Peer) {
    let mut client = stage.client();
    let upstream = stage.request(&mut client, GET);
    if begun {
        upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbo");
        stage.until(SECOND, || client.has(b"bo"));
    }
    (client, upstream)
}

#[test]
fn i39_a_fin_behind_the_request_is_no_abort() {
    for begun in [false, true] {
        let mut stage = Stage::new("", "");
        let (mut client, mut upstream) = under_way(&mut stage, begun);
        client.remote.shutdown_write();
        stage.pass(5 * SECOND);
        assert!(!upstream.has_ended());
        let rest = if begun { b"dy!".as_slice() } else { OK };
        upstream.send(rest);
        stage.until(SECOND, || client.has_ended());
        assert!(client.text().ends_with(if begun { "body!" } else { "OK" }));
    }
}

#[test]
fn i39_on_a_route_that_aborts_it_ends_the_upstream_at_once() {
    for begun in [false, true] {
        let mut stage = Stage::new("", "client_half_close: abort");
        let (mut client, mut upstream) = under_way(&mut stage, begun);
        let since = stage.now();
        client.remote.shutdown_write();
        let gone = stage.until(SECOND, || upstream.has_ended());
        assert!(gone.since(since) < MILLIS(1), "{:?}", gone.since(since));
        stage.until(SECOND, || client.has_ended());
        assert_eq!(stage.counts().exchanges, 0);
    }
}

#[test]
fn i39_while_dialling_as_well() {
    let mut stage = Stage::new("", "client_half_close: abort");
    let target = "127.0.1.1:81".parse().unwrap();
    stage.world.set_route(target, Route::Silent);
    let mut client = stage.client();
    stage.until(SECOND, || client.remote.is_open());
    client.send(GET.as_bytes());
    stage.pass(SECOND);
    assert_eq!(stage.counts().exchanges, 1);
    client.remote.shutdown_write();
    stage.until(MILLIS(1), || client.has_ended());
    assert_eq!(stage.counts().exchanges, 0);
}

#[test]
fn i39_a_client_that_resets_is_noticed_in_every_phase() {
    for begun in [false, true] {
        let mut stage = Stage::new("", "");
        let (client, mut upstream) = under_way(&mut stage, begun);
        client.remote.reset();
        stage.until(MILLIS(1), || upstream.has_ended());
    }
    // Behind an early response, when the rest of its body is not wanted any more.
    let mut stage = Stage::new("", "");
    let mut client = stage.client();
    let mut upstream = stage.request(&mut client, &post(1 << 20));
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbo");
    stage.until(SECOND, || client.has(b"bo"));
    client.remote.reset();
    stage.until(MILLIS(1), || upstream.has_ended());
}

/// More than 64 KiB, so that it is streamed, and less than a socket's buffer.
const STREAMED: usize = 100_000;
/// More than all buffers between a client and its upstream hold.
const ENDLESS: usize = 4 << 20;
/// What an upstream that reads nothing lets toron take, and some of it waits in front of toron.
const HELD_UP: usize = 500_000;

/// A request with a body of which `sent` bytes come, and then a FIN, while the upstream is dialled.
fn left_while_dialling(head: &str, sent: &[u8]) -> (Stage, Peer) {
    let mut stage = Stage::streaming("", "");
    stage.world.set_route(target(), Route::Silent);
    let client = stage.client();
    stage.until(SECOND, || client.remote.is_open());
    client.send(head.as_bytes());
    stage.pass(MILLIS(1));
    client.send(sent);
    stage.pass(MILLIS(100));
    assert_eq!(stage.counts().exchanges, 1);
    client.remote.shutdown_write();
    (stage, client)
}

fn target() -> std::net::SocketAddr {
    "127.0.1.1:81".parse().unwrap()
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Chunks of 1,000 bytes, and the last one.
fn chunks(bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..bytes / 1_000 {
        body.extend_from_slice(b"3e8\r\n");
        body.resize(body.len() + 1_000, b'x');
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

#[test]
fn i39_a_fin_inside_the_body_is_noticed_while_dialling() {
    let part = vec![b'x'; STREAMED - 1];
    let chunk = b"3e8\r\npart of it";
    for (head, sent) in [
        (post(STREAMED), &part[..]),
        (post(STREAMED), b"".as_slice()),
        (CHUNKED.to_owned(), chunk.as_slice()),
        (CHUNKED.to_owned(), b"".as_slice()),
    ] {
        let (mut stage, mut client) = left_while_dialling(&head, sent);
        stage.until(MILLIS(1), || client.has_ended());
        assert_eq!(stage.counts().exchanges, 0);
        assert_eq!(client.text(), "");
    }
}

#[test]
fn i39_a_whole_body_that_waits_for_the_dial_is_sent_though_its_client_has_finished() {
    let whole = vec![b'x'; STREAMED];
    let in_chunks = chunks(STREAMED);
    for (head, sent) in [(post(STREAMED), &whole), (CHUNKED.to_owned(), &in_chunks)] {
        let (mut stage, mut client) = left_while_dialling(&head, sent);
        stage.pass(MILLIS(100));
        assert_eq!(stage.counts().exchanges, 1);
        // The next SYN is answered.
        stage.world.set_route(target(), Route::Open);
        let mut upstream = stage.upstream(5 * SECOND);
        stage.until(SECOND, || upstream.has(&sent[sent.len() - 500..]));
        upstream.send(OK);
        stage.until(SECOND, || client.has_ended());
        assert!(client.text().ends_with("OK"), "{}", client.text());
    }
}

/// An upload whose upstream reads nothing, and whose client sends this and then a FIN.
fn left_while_held_up(head: &str, sent: &[u8]) -> (Stage, Peer, Peer) {
    let mut stage = Stage::streaming("server: {max_body_bytes: 0}", "");
    let mut client = stage.client();
    let upstream = stage.request(&mut client, head);
    let mut rest = sent;
    while !rest.is_empty() {
        rest = &rest[client.remote.send(rest)..];
        stage.pass(MILLIS(10));
    }
    assert_eq!(client.remote.unsent(), 0, "all of it must be with toron");
    assert_eq!(stage.counts().exchanges, 1);
    client.remote.shutdown_write();
    (stage, client, upstream)
}

#[test]
fn i39_a_fin_inside_the_body_is_noticed_while_the_upstream_takes_nothing() {
    let part = vec![b'x'; HELD_UP];
    // What waits in front of toron is less than the chunk that it belongs to, or many chunks.
    let mut chunk = b"3e8000\r\n".to_vec();
    chunk.extend_from_slice(&part);
    let mut many = chunks(HELD_UP - 20_000);
    many.truncate(many.len() - 5);
    for (head, sent) in [
        (post(ENDLESS), part),
        (CHUNKED.to_owned(), chunk),
        (CHUNKED.to_owned(), many),
    ] {
        let (mut stage, mut client, upstream) = left_while_held_up(&head, &sent);
        let before = upstream.remote.available();
        stage.until(MILLIS(1), || client.has_ended());
        assert_eq!(stage.counts().exchanges, 0);
        assert_eq!(upstream.remote.available(), before, "it takes nothing");
    }
}

#[test]
fn i39_a_whole_body_that_is_held_up_arrives_though_its_client_has_finished() {
    let whole = vec![b'x'; HELD_UP];
    let in_chunks = chunks(HELD_UP);
    for (head, sent) in [(post(HELD_UP), &whole), (CHUNKED.to_owned(), &in_chunks)] {
        let (mut stage, mut client, mut upstream) = left_while_held_up(&head, sent);
        stage.pass(MILLIS(100));
        assert_eq!(stage.counts().exchanges, 1);
        let mut taken = 0;
        stage.until(SECOND, || {
            taken += upstream.take(usize::MAX);
            taken >= HELD_UP && upstream.received.ends_with(&sent[sent.len() - 5..])
        });
        upstream.send(OK);
        stage.until(SECOND, || client.has_ended());
        assert!(client.text().ends_with("OK"), "{}", client.text());
    }
}

/// A reset is no FIN: what came before it does not matter.
#[test]
fn i39_a_reset_behind_a_whole_body_is_noticed_while_it_is_held_up() {
    let whole = vec![b'x'; HELD_UP];
    for finished in [false, true] {
        let (mut stage, client, upstream) = left_while_held_up(&post(HELD_UP), &whole);
        if finished {
            stage.pass(MILLIS(100));
        }
        client.remote.reset();
        stage.pass(MILLIS(1));
        assert_eq!(stage.counts().exchanges, 0);
        drop(upstream);
    }
}

/// A request behind the one under way keeps toron from reading.
#[test]
fn i39_on_a_route_that_aborts_a_fin_behind_a_further_request_is_noticed() {
    for aborts in [true, false] {
        let key = if aborts {
            "client_half_close: abort"
        } else {
            ""
        };
        let mut stage = Stage::new("", key);
        let mut client = stage.client();
        let mut upstream = stage.request(&mut client, GET);
        client.send(GET.as_bytes());
        stage.pass(MILLIS(10));
        client.remote.shutdown_write();
        stage.pass(MILLIS(1));
        assert_eq!(stage.counts().exchanges, u64::from(!aborts) as usize);
        assert_eq!(upstream.has_ended(), aborts);
    }
}
