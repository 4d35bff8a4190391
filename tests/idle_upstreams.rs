//! Idle connections to upstreams (R17), and what becomes of them when their target goes (R22).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::Duration;

use support::backend::{Backend, Peer};
use support::client::Client;
use support::setup::{both, Engine, Route, Settings};
use support::toron::Toron;
use support::PATIENCE;

/// One reactor, so that the connection that is kept is the one that is taken again.
fn settings(engine: Engine, backend: &Backend) -> Settings {
    let mut settings = Settings::new(engine, vec![Route::new("/", &backend.addr)]);
    settings.worker_pool_size = 1;
    settings
}

/// One request of a client of its own, answered by `peer`, whose connection stays.
fn exchange(toron: &Toron, fields: &str, peer: impl FnOnce() -> Peer) -> Peer {
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    client.send(b"GET /x HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
    let mut peer = peer();
    peer.receive_head();
    peer.received.clear();
    peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{fields}\r\nOK").as_bytes());
    assert!(
        client.receive_responses(1, PATIENCE),
        "no answer: {:?}",
        client.end
    );
    assert_eq!(client.parsed().responses[0].status, 200);
    peer
}

#[test]
fn r17_an_idle_connection_is_used_again_until_a_byte_comes_unasked() {
    both(|engine| {
        let backend = Backend::start();
        let toron = Toron::start(&settings(engine, &backend));
        let first = exchange(&toron, "", || backend.accept());
        let mut again = exchange(&toron, "", || first);
        // Bytes that nobody asked for are the beginning of somebody's answer: of whose?
        again.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nWRONG");
        assert!(again.wait_end().is_some(), "it stays");
        exchange(&toron, "", || backend.accept());
    });
}

#[test]
fn r17_an_idle_connection_that_the_upstream_closes_is_closed_at_once() {
    both(|engine| {
        let backend = Backend::start();
        let toron = Toron::start(&settings(engine, &backend));
        let mut first = exchange(&toron, "", || backend.accept());
        first.shutdown_write();
        assert!(first.wait_end().is_some(), "it stays");
        let second = exchange(&toron, "", || backend.accept());
        second.reset();
        exchange(&toron, "", || backend.accept());
    });
}

#[test]
fn r17_an_idle_connection_ends_by_the_shorter_of_both_times() {
    both(|engine| {
        let backend = Backend::start();
        let mut set = settings(engine, &backend);
        set.transport
            .push(("idle_conn_timeout", "300ms".to_owned()));
        let toron = Toron::start(&set);
        let mut first = exchange(&toron, "", || backend.accept());
        assert!(first.wait_end().is_some(), "it outlives idle_conn_timeout");
        set.transport.clear();
        let toron = Toron::start(&set);
        // 2 s less one.
        let mut announced = exchange(&toron, "Keep-Alive: timeout=2\r\n", || backend.accept());
        let end = announced.ends_within(Duration::from_secs(15));
        assert!(
            end,
            "it outlives what was announced, and ends by the 30 s of the settings"
        );
        // Nothing is left of a second less one: not kept at all.
        let mut never = exchange(&toron, "Keep-Alive: timeout=1\r\n", || backend.accept());
        assert!(never.wait_end().is_some(), "it is kept");
    });
}

#[test]
fn r17_no_more_than_the_limit_stay_idle() {
    both(|engine| {
        let backend = Backend::start();
        let mut set = settings(engine, &backend);
        set.transport.push(("max_idle_per_target", "2".to_owned()));
        let toron = Toron::start(&set);
        let mut open: Vec<(Client, Peer)> = (0..5)
            .map(|_| {
                let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
                client.send(b"GET /x HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
                let mut peer = backend.accept();
                peer.receive_head();
                (client, peer)
            })
            .collect();
        for (client, peer) in &mut open {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK");
            assert!(client.receive_responses(1, PATIENCE), "no answer");
        }
        let mut peers: Vec<Peer> = open.into_iter().map(|(_, peer)| peer).collect();
        // The first two are kept, and the others closed.
        for peer in &mut peers[2..] {
            assert!(peer.wait_end().is_some(), "a third is kept");
        }
        for peer in &mut peers[..2] {
            assert!(
                !peer.ends_within(Duration::from_millis(100)),
                "one of two is closed"
            );
        }
    });
}

#[test]
fn r22_connections_to_a_target_that_goes_end_when_they_are_idle() {
    both(|engine| {
        let (old, new) = (Backend::start(), Backend::start());
        let toron = Toron::start(&settings(engine, &old));
        // Both at once, so that they are two connections.
        let begin = || {
            let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
            client.send(b"GET /x HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
            let mut peer = old.accept();
            peer.receive_head();
            (client, peer)
        };
        let finish = |(client, peer): &mut (Client, Peer)| {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK");
            assert!(client.receive_responses(1, PATIENCE), "no answer");
        };
        let (mut idle, mut used) = (begin(), begin());
        finish(&mut idle);
        toron.reload(&settings(engine, &new));
        assert!(idle.1.wait_end().is_some(), "an idle one stays");
        let cut = used.1.ends_within(Duration::from_millis(50));
        assert!(!cut, "a request in flight was cut");
        finish(&mut used);
        assert!(
            used.1.wait_end().is_some(),
            "it is kept behind its last request"
        );
        exchange(&toron, "", || new.accept());
    });
}
