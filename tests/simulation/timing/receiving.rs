//! Clients that receive a response (I29).

use super::{GET, MILLIS, SECOND};
use crate::stage::{Peer, Stage};

const CONFIG: &str = "server: {write_timeout: 2s}\nproxy: {transport: {upstream_idle_timeout: 0}}";
/// More than all buffers on the way.
const LENGTH: usize = 4 << 20;

/// The upstream sends what fits.
fn feed(upstream: &Peer, sent: &mut usize, body: &[u8]) {
    *sent += upstream.remote.send(&body[*sent..]);
}

/// A response in chunks of 16 KiB (copied), or of one length (spliced).
fn response(chunked: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    if chunked {
        bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..LENGTH / 16_384 {
            bytes.extend_from_slice(b"4000\r\n");
            bytes.resize(bytes.len() + 16_384, b'x');
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
    } else {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
        bytes.extend_from_slice(head.as_bytes());
        bytes.resize(bytes.len() + LENGTH, b'x');
    }
    bytes
}

#[test]
fn i29_a_client_that_takes_nothing_is_severed() {
    for chunked in [false, true] {
        let mut stage = Stage::new(CONFIG, "");
        let mut client = stage.client();
        let mut upstream = stage.request(&mut client, GET);
        let body = response(chunked);
        let mut sent = 0;
        let mut last = (stage.now(), 0);
        // Until nothing moves any more.
        for _ in 0..50 {
            feed(&upstream, &mut sent, &body);
            stage.pass(MILLIS(1));
            if sent > last.1 {
                last = (stage.now(), sent);
            }
        }
        assert!(sent < body.len());
        let gone = stage.until(3 * SECOND, || upstream.has_ended());
        let waited = gone.since(last.0);
        // The last byte that toron could pass on went some milliseconds before the last that the
        // upstream could send.
        assert!(
            waited > MILLIS(1_900) && waited < MILLIS(2_010),
            "{waited:?}"
        );
        client.take(usize::MAX);
        stage.until(SECOND, || client.has_ended());
        assert_eq!(stage.counts().sessions, 0);
    }
}

#[test]
fn i29_a_client_that_takes_enough_in_each_window_is_not() {
    for chunked in [false, true] {
        let mut stage = Stage::new(CONFIG, "");
        let mut client = stage.client();
        let upstream = stage.request(&mut client, GET);
        let body = response(chunked);
        let (mut sent, mut taken) = (0, 0);
        for _ in 0..100 {
            for _ in 0..20 {
                feed(&upstream, &mut sent, &body);
                stage.pass(MILLIS(50));
            }
            taken += client.take(128 * 1024);
            assert!(!client.remote.is_broken());
            if client.received.len() >= LENGTH {
                break;
            }
        }
        assert!(taken >= LENGTH, "{taken}");
    }
}

/// Takes so much every second, far less than would make the socket writable again. Says after how
/// many seconds it was severed.
fn sips(chunked: bool, sip: usize) -> Option<u32> {
    let mut stage = Stage::new(CONFIG, "");
    let mut client = stage.client();
    let mut upstream = stage.request(&mut client, GET);
    let body = response(chunked);
    let mut sent = 0;
    for _ in 0..50 {
        feed(&upstream, &mut sent, &body);
        stage.pass(MILLIS(1));
    }
    for second in 0..30 {
        client.take(sip);
        stage.pass(SECOND);
        if upstream.has_ended() {
            return Some(second);
        }
    }
    assert!(sent < body.len());
    None
}

#[test]
fn i29_what_the_client_takes_counts_though_the_kernel_takes_nothing() {
    for chunked in [false, true] {
        assert_eq!(sips(chunked, 2_000), None);
        let severed = sips(chunked, 100);
        assert!(severed.is_some_and(|after| after < 4), "{severed:?}");
    }
}

#[test]
fn i29_write_timeout_of_zero_is_off() {
    let config = "server: {write_timeout: 0}\nproxy: {transport: {upstream_idle_timeout: 0}}";
    let mut stage = Stage::new(config, "");
    let mut client = stage.client();
    let mut upstream = stage.request(&mut client, GET);
    let body = response(false);
    let mut sent = 0;
    for _ in 0..50 {
        feed(&upstream, &mut sent, &body);
        stage.pass(MILLIS(1));
    }
    stage.pass(100_000 * SECOND);
    assert!(!upstream.has_ended());
    for _ in 0..1_000 {
        feed(&upstream, &mut sent, &body);
        client.take(usize::MAX);
        stage.pass(MILLIS(1));
    }
    assert!(client.received.len() > LENGTH);
}
