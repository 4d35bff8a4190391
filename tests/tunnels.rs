//! Upgraded connections (R14): what may become a tunnel, and how the break of one side of it reaches the
//! other. Both are played step by step, on both engines.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::{ErrorKind, Write};
use std::time::Duration;

use support::backend::{Backend, Peer};
use support::client::Client;
use support::http::End;
use support::readout::{allow_readout, await_readout};
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::{contains, PATIENCE};

fn on_every_engine(test: fn(&Toron, &Backend)) {
    for engine in Engine::ALL {
        let backend = Backend::start();
        let mut route = Route::new("/", &backend.addr);
        // Nothing here may be ended by a timeout instead.
        route.extra.push(("max_concurrency", "-1".into()));
        route.extra.push(("upgrade_idle_timeout", "60s".into()));
        let mut settings = Settings::new(engine, vec![route]);
        allow_readout(&mut settings);
        let toron = Toron::start(&settings);
        test(&toron, &backend);
    }
}

/// A client that asks for these protocols, and the upstream's side, to which it has come.
fn ask(toron: &Toron, backend: &Backend, protocols: &str) -> (Client, Peer) {
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    let request =
        format!("GET /t HTTP/1.1\r\nHost: t.example\r\nConnection: Upgrade\r\n{protocols}\r\n");
    client.send(request.as_bytes(), PATIENCE);
    let mut peer = backend.accept();
    peer.receive_head();
    (client, peer)
}

#[test]
fn r14_a_101_that_names_nothing_that_was_asked_for_is_a_502() {
    on_every_engine(|toron, backend| {
        let asked = "Upgrade: websocket\r\nUpgrade: irc/6.9, rta/x11\r\n";
        for named in [
            "",
            "Upgrade: h2c\r\n",
            "Upgrade: irc\r\n",
            "Upgrade: rta/x11, h2c\r\n",
        ] {
            let (mut client, mut peer) = ask(toron, backend, asked);
            let head = format!("HTTP/1.1 101 X\r\nConnection: Upgrade\r\n{named}\r\nraw");
            peer.send(head.as_bytes());
            assert!(client.receive_responses(1, PATIENCE), "{named}");
            let response = &client.parsed().responses[0];
            assert_eq!(response.status, 502, "{named}");
            let body = r#"{"error":"502 Bad Gateway: Invalid upstream response"}"#;
            assert_eq!(String::from_utf8_lossy(&response.body), body);
            assert!(peer.wait_end().is_some(), "{named}");
        }
        for named in ["IRC/6.9", "WebSocket", "rta/x11, irc/6.9"] {
            let (mut client, mut peer) = ask(toron, backend, asked);
            let head =
                format!("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: {named}\r\n\r\nraw");
            peer.send(head.as_bytes());
            let opened = |client: &Client| client.received.ends_with(b"\r\n\r\nraw");
            assert!(client.receive_until(PATIENCE, opened), "{named}");
            client.send(b"up", PATIENCE);
            assert!(
                peer.receive_until(|bytes| bytes.ends_with(b"up")),
                "{named}"
            );
        }
    });
}

/// An open tunnel.
fn open(toron: &Toron, backend: &Backend) -> (Client, Peer) {
    let (mut client, mut peer) = ask(toron, backend, "Upgrade: echo\r\n");
    peer.send(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    let opened = |client: &Client| contains(&client.received, b"\r\n\r\n");
    assert!(client.receive_until(PATIENCE, opened));
    client.send(b"ping", PATIENCE);
    assert!(peer.receive_until(|bytes| bytes.ends_with(b"ping")));
    (client, peer)
}

/// What is sent right before a break: a message, which goes by copy, and what ends by splice. Neither is
/// more than a socket takes at once.
fn last_words() -> [Vec<u8>; 2] {
    [40, 40_000].map(|n: u32| (0..n).map(|i| (i * 7 % 251) as u8).collect())
}

/// An orderly end would tell the upstream that this was all.
#[test]
fn r14_a_reset_of_the_client_reaches_the_upstream_behind_what_it_sent() {
    on_every_engine(|toron, backend| {
        for words in last_words() {
            let (mut client, mut peer) = open(toron, backend);
            client.send(&words, PATIENCE);
            client.reset();
            let came = peer.receive_until(|bytes| bytes.ends_with(&words));
            assert!(came, "{} bytes", words.len());
            assert!(matches!(peer.wait_end(), Some(End::Reset)));
        }
    });
}

#[test]
fn r14_a_reset_of_the_upstream_reaches_the_client_behind_what_it_sent() {
    on_every_engine(|toron, backend| {
        for words in last_words() {
            let (mut client, mut peer) = open(toron, backend);
            peer.send(&words);
            peer.reset();
            assert!(client.receive_until_end(PATIENCE));
            assert!(client.received.ends_with(&words), "{} bytes", words.len());
            assert!(matches!(client.end, Some(End::Reset)));
        }
    });
}

/// What cannot go on does not keep the break from being told.
#[test]
fn r14_a_reset_behind_what_the_upstream_does_not_take_reaches_it() {
    on_every_engine(|toron, backend| {
        let (mut client, mut peer) = open(toron, backend);
        client.send_until_full(200_000_000, Duration::from_millis(300));
        client.reset();
        await_readout(toron, "the tunnel", |r| r.exchanges == 0);
        assert!(matches!(peer.wait_end(), Some(End::Reset)));
    });
}

/// The break shows in a send, while the other side says nothing.
#[test]
fn r14_a_break_that_a_send_meets_reaches_the_other_side() {
    on_every_engine(|toron, backend| {
        let (mut client, peer) = open(toron, backend);
        client.send(&[b'c'; 100_000], PATIENCE);
        // Closing with unread bytes resets.
        assert_eq!(peer.stream.peek(&mut [0]).unwrap(), 1);
        drop(peer);
        client.send(&[b'c'; 100_000], PATIENCE);
        assert!(client.receive_until_end(PATIENCE));
        // A reset is told once, to the send if that is the first to ask.
        let told = client.send_error == Some(ErrorKind::ConnectionReset);
        assert!(told || matches!(client.end, Some(End::Reset)));

        let (mut client, mut peer) = open(toron, backend);
        client.reset();
        let sent = peer.stream.write_all(&[b'p'; 100_000]);
        let told = sent.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
        assert!(told || matches!(peer.wait_end(), Some(End::Reset)));
    });
}

#[test]
fn r14_an_orderly_end_of_one_side_is_a_half_close_on_the_other() {
    on_every_engine(|toron, backend| {
        let (mut client, mut peer) = open(toron, backend);
        client.shutdown_write();
        assert!(matches!(peer.wait_end(), Some(End::Fin)));
        peer.send(b"late");
        assert!(client.receive_until(PATIENCE, |client| client.received.ends_with(b"late")));
        peer.shutdown_write();
        assert!(client.receive_until_end(PATIENCE));
        assert!(matches!(client.end, Some(End::Fin)));

        let (mut client, mut peer) = open(toron, backend);
        peer.shutdown_write();
        assert!(client.receive_until_end(PATIENCE));
        assert!(matches!(client.end, Some(End::Fin)));
        client.send(b"late", PATIENCE);
        assert!(peer.receive_until(|bytes| bytes.ends_with(b"late")));
        client.shutdown_write();
        assert!(matches!(peer.wait_end(), Some(End::Fin)));
    });
}
