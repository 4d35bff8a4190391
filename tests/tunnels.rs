//! Upgraded connections (R14): what may become a tunnel. Both sides are played step by step, on both
//! engines.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use support::backend::{Backend, Peer};
use support::client::Client;
use support::readout::allow_readout;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::PATIENCE;

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
