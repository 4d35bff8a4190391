//! S10: a client that does not read fills the proxy's memory, or blocks others. S11: server-sent
//! events arrive late or in a lump.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::readout::{allow_readout, await_readout};
use crate::support::setup::{Engine, Route, Settings};
use crate::support::toron::Toron;
use crate::support::{show, PATIENCE};
use crate::{ask, connect, get, on_every_engine};
use toron::origin::{pattern, Upstream as Origin, UpstreamArgs};

fn origin() -> Origin {
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    Origin::start(&UpstreamArgs {
        listen,
        ..UpstreamArgs::default()
    })
    .unwrap()
}

// S10

const S10_CLIENTS: usize = 20;
const S10_BYTES: u64 = 200_000_000;
const S10_FAST: usize = 200;
/// KiB: what is allowed for all of them.
const S10_GROWTH: u64 = 20_000;

/// Receives the rest of a body of the pattern and compares each byte; nothing of it is kept.
fn rest_is_the_pattern(client: &mut Client, head: usize) {
    let mut at = 0;
    let mut expected = vec![0; 64 * 1024];
    client.received.drain(..head);
    loop {
        let piece = &client.received[..];
        expected.resize(expected.len().max(piece.len()), 0);
        pattern::fill(at, &mut expected[..piece.len()]);
        assert!(piece == &expected[..piece.len()], "another byte after {at}");
        at += piece.len() as u64;
        client.received.clear();
        if at >= S10_BYTES {
            assert_eq!(at, S10_BYTES);
            return;
        }
        let came = client.receive(usize::MAX, Instant::now() + PATIENCE);
        assert!(came, "ended after {at}: {:?}", client.end);
    }
}

fn s10_slow_readers(engine: Engine, path: &str) {
    let origin = origin();
    let mut slow = Route::new("/", &origin.addresses()[0]);
    // The clients below take 1 KiB at a time; the kernel tells the proxy of it in larger steps.
    slow.extra.push(("write_timeout", "60s".into()));
    let toron = Toron::start(&Settings::new(engine, vec![slow]));
    // What is made once is not growth.
    assert_eq!(ask(&toron, "/bytes/1000000", PATIENCE), Some(200));
    let before = toron.proc().resident_kib();
    let mut clients: Vec<Client> = (0..S10_CLIENTS).map(|_| connect(&toron)).collect();
    for client in &mut clients {
        client.send(&get(path), PATIENCE);
    }
    for fast in 0..S10_FAST {
        for client in &mut clients {
            let came = client.receive(1024, Instant::now() + PATIENCE);
            assert!(came, "a slow reader is cut off: {:?}", client.end);
        }
        assert_eq!(ask(&toron, "/bytes/1000", PATIENCE), Some(200), "{fast}");
    }
    let growth = toron.proc().resident_kib().saturating_sub(before);
    println!(
        "{}: {growth} KiB for {S10_CLIENTS} slow readers",
        engine.name()
    );
    assert!(growth < S10_GROWTH, "{growth} KiB");
    // One of them reads on, and finds every byte in its place.
    let mut one = clients.remove(0);
    let head = one.parsed().responses[0].body_at;
    rest_is_the_pattern(&mut one, head);
}

#[test]
fn s10_i35_slow_readers_cost_little_on_epoll() {
    s10_slow_readers(Engine::Epoll, &format!("/bytes/{S10_BYTES}"));
}

#[test]
fn s10_i35_slow_readers_cost_little_on_io_uring() {
    s10_slow_readers(Engine::IoUring, &format!("/bytes/{S10_BYTES}"));
}

/// One that does not read at all falls to its write timeout; so does one that takes a byte now and
/// then.
#[test]
fn s10_i29_a_stalled_reader_falls_to_the_write_timeout() {
    on_every_engine(|engine| {
        let origin = origin();
        let mut route = Route::new("/", &origin.addresses()[0]);
        route.extra.push(("write_timeout", "500ms".into()));
        let mut settings = Settings::new(engine, vec![route]);
        allow_readout(&mut settings);
        let toron = Toron::start(&settings);
        for path in ["/bytes/50000000", "/chunked/50000000"] {
            let mut client = connect(&toron);
            client.send(&get(path), PATIENCE);
            assert!(client.receive(1, Instant::now() + PATIENCE), "no answer");
            await_readout(&toron, "a stalled reader keeps its request", |r| {
                r.exchanges == 0 && r.upstream_connections == 0
            });
            client.receive_until_end(PATIENCE);
            let cut = client.parsed().responses.remove(0);
            assert!(!cut.complete, "{path}: whole after all");
        }
    });
}

// S11

const S11_TIMEOUT: &str = "300ms";

fn s11_events(engine: Engine) {
    let backend = Backend::start();
    let mut route = Route::new("/", &backend.addr);
    // None of these is meant for an event stream.
    for key in [
        "response_header_timeout",
        "upstream_idle_timeout",
        "header_deadline",
    ] {
        route.extra.push((key, S11_TIMEOUT.into()));
    }
    let mut settings = Settings::new(engine, vec![route]);
    settings.server.push(("read_timeout", S11_TIMEOUT.into()));
    settings.server.push(("write_timeout", S11_TIMEOUT.into()));
    let toron = Toron::start(&settings);
    let mut client = connect(&toron);
    client.send(&get("/events"), PATIENCE);
    let mut peer = backend.accept();
    peer.receive_head();
    peer.send(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    // Nothing follows until the client has the head; nothing until it has the event before.
    let opened = client.receive_until(PATIENCE, |c| !c.parsed().responses.is_empty());
    assert!(
        opened,
        "the head waits for a body: {}",
        show(&client.received)
    );
    let mut expected = Vec::new();
    for i in 0..5 {
        let event = format!("data: {i}\n\n");
        peer.send(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
        expected.extend_from_slice(event.as_bytes());
        let came = client.receive_until(PATIENCE, |c| c.parsed().responses[0].body == expected);
        assert!(came, "event {i} is held back");
        if i == 3 {
            // Quiet for several times as long as every timeout.
            let unasked = client.receive(1, Instant::now() + Duration::from_millis(1200));
            assert!(!unasked && client.end.is_none(), "a quiet stream is cut");
        }
    }
    // A client that closes sends FIN, which alone might be a half-close (I39): what it answers to
    // the next event tells.
    client.close();
    let closed = Instant::now();
    while !peer.ends_within(Duration::from_millis(100)) {
        assert!(closed.elapsed() < PATIENCE, "the upstream's stream goes on");
        if peer.stream.write_all(b"9\r\ndata: x\n\n\r\n").is_err() {
            break;
        }
    }
}

#[test]
fn s11_i26_i39_events_come_at_once_on_epoll() {
    s11_events(Engine::Epoll);
}

#[test]
fn s11_i26_i39_events_come_at_once_on_io_uring() {
    s11_events(Engine::IoUring);
}
