//! How toron ends: its addresses are free at once while requests in flight are finished, and what
//! each signal does.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;
use support::client::Client;
use support::http::End;
use support::process::{OnDrop, Process};
use support::setup::Engine;
use support::toron::listening_on;
use support::upstream::Upstream;
use support::{TempDir, PATIENCE};

/// A toron on an address that can be asked for.
fn start(dir: &TempDir, engine: Engine, listen: SocketAddr, upstream: &Upstream) -> Process {
    start_with(
        dir,
        engine,
        &format!("listen: ['{listen}'], worker_pool_size: 4"),
        upstream,
    )
}

/// A toron with these keys of `server`.
fn start_with(dir: &TempDir, engine: Engine, server: &str, upstream: &Upstream) -> Process {
    let config = dir.join("config.yaml");
    let text = format!(
        "server: {{{server}, engine: {}}}\n\
         firewall: {{enabled: false}}\n\
         routes: [{{prefix: /, target: 'http://{}'}}]\n",
        engine.name(),
        upstream.addr
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command.arg("serve").arg("-c").arg(&config);
    Process::spawn(command, "toron", OnDrop::Kill)
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn started(process: &Process) -> SocketAddr {
    process.wait_line(PATIENCE, listening_on)
}

/// A request of which the upstream has the head and half of the body.
fn half_a_request(addr: SocketAddr, upstream: &Upstream) -> Client {
    let mut client = Client::connect(addr, PATIENCE).unwrap();
    let head = "PUT /half HTTP/1.1\r\nHost: t.example\r\nContent-Length: 200000\r\n\r\n";
    client.send(head.as_bytes(), PATIENCE);
    client.send(&[b'x'; 100_000], PATIENCE);
    let arrived = upstream.wait_for(PATIENCE, |all| {
        all.iter().any(|c| c.received.len() > 100_000)
    });
    assert!(arrived, "the request does not reach the upstream");
    client
}

fn wait_until_refused(addr: SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect_timeout(&addr, PATIENCE).is_ok() {
        assert!(Instant::now() < deadline, "{addr} still takes connections");
    }
}

fn a_successor_can_listen_while_requests_finish(engine: Engine) {
    let upstream = Upstream::start();
    let (dir, next_dir) = (TempDir::new("drain"), TempDir::new("drain-next"));
    let mut first = start(&dir, engine, any_port(), &upstream);
    let addr = started(&first);
    let mut client = half_a_request(addr, &upstream);

    first.signal(Signal::TERM);
    wait_until_refused(addr);
    let next = start(&next_dir, engine, addr, &upstream);
    assert_eq!(started(&next), addr);
    let mut other = Client::connect(addr, PATIENCE).unwrap();
    other.send(b"GET /next HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
    assert!(other.receive_responses(1, PATIENCE));

    assert!(
        first.is_running(),
        "the request in flight was not waited for"
    );
    client.send(&[b'x'; 100_000], PATIENCE);
    assert!(client.receive_responses(1, PATIENCE), "it was cut");
    assert_eq!(client.parsed().responses[0].status, 200);
    let status = first.wait(PATIENCE).expect("it does not end");
    assert_eq!(status.code(), Some(0), "{:?}", first.log_lines());
}

#[test]
fn a_successor_can_listen_while_requests_finish_on_epoll() {
    a_successor_can_listen_while_requests_finish(Engine::Epoll);
}

#[test]
fn a_successor_can_listen_while_requests_finish_on_io_uring() {
    a_successor_can_listen_while_requests_finish(Engine::IoUring);
}

/// Connections that were complete when the signal came, accepted or not, get their answer.
fn what_waits_to_be_accepted_is_served(engine: Engine) {
    let upstream = Upstream::start();
    let dir = TempDir::new("drain");
    let mut toron = start(&dir, engine, any_port(), &upstream);
    let addr = started(&toron);
    let mut clients: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = Client::connect(addr, PATIENCE).unwrap();
            client.send(b"GET /queued HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
            client
        })
        .collect();
    toron.signal(Signal::TERM);
    for client in &mut clients {
        assert!(client.receive_until_end(PATIENCE), "it stays open");
        assert_eq!(client.end, Some(End::Fin));
        let statuses: Vec<u16> = client.parsed().responses.iter().map(|r| r.status).collect();
        assert_eq!(statuses, [200]);
    }
    assert_eq!(toron.wait(PATIENCE).and_then(|s| s.code()), Some(0));
}

#[test]
fn what_waits_to_be_accepted_is_served_on_epoll() {
    what_waits_to_be_accepted_is_served(Engine::Epoll);
}

#[test]
fn what_waits_to_be_accepted_is_served_on_io_uring() {
    what_waits_to_be_accepted_is_served(Engine::IoUring);
}

/// SIGQUIT is an orderly end, as with nginx; what has no meaning changes nothing.
fn signals(engine: Engine) {
    let upstream = Upstream::start();
    let dir = TempDir::new("drain");
    let mut toron = start(&dir, engine, any_port(), &upstream);
    let addr = started(&toron);
    for (signal, name) in [
        (Signal::USR2, "SIGUSR2: ignored"),
        (Signal::ALARM, "SIGALRM: ignored"),
    ] {
        toron.signal(signal);
        toron.wait_line(PATIENCE, |line| line.contains(name).then_some(()));
    }
    let mut client = half_a_request(addr, &upstream);
    toron.signal(Signal::QUIT);
    wait_until_refused(addr);
    for (signal, line) in [
        (Signal::USR2, "SIGUSR2: ignored"),
        (Signal::HUP, "SIGHUP: not reloading"),
    ] {
        let before = toron.log_lines().len();
        toron.signal(signal);
        let mut at = 0;
        toron.wait_line(PATIENCE, |text| {
            at += 1;
            (at > before && text.contains(line)).then_some(())
        });
    }
    client.send(&[b'x'; 100_000], PATIENCE);
    assert!(client.receive_responses(1, PATIENCE), "it was cut");
    assert_eq!(toron.wait(PATIENCE).and_then(|s| s.code()), Some(0));
}

#[test]
fn sigquit_drains_and_sigusr2_is_ignored_on_epoll() {
    signals(Engine::Epoll);
}

#[test]
fn sigquit_drains_and_sigusr2_is_ignored_on_io_uring() {
    signals(Engine::IoUring);
}

/// Who was cut at the end of the grace is told, and how many there were.
fn the_end_of_the_grace_is_told(engine: Engine) {
    let upstream = Upstream::start();
    let dir = TempDir::new("drain");
    let listen = any_port();
    let server = format!("listen: ['{listen}'], worker_pool_size: 2, shutdown_grace: 300ms");
    let mut toron = start_with(&dir, engine, &server, &upstream);
    let mut client = half_a_request(started(&toron), &upstream);
    toron.signal(Signal::TERM);
    assert!(client.receive_until_end(PATIENCE));
    assert_eq!(toron.wait(PATIENCE).and_then(|s| s.code()), Some(0));
    for told in [
        "shutdown_grace is over: cut / PUT t.example/half of 127.0.0.1 after ",
        "server.shutdown_grace (300ms) was over: cut 1 requests in flight, and 0 connections without one",
    ] {
        toron.wait_line(PATIENCE, |line| line.contains(told).then_some(()));
    }
}

#[test]
fn the_end_of_the_grace_is_told_on_epoll() {
    the_end_of_the_grace_is_told(Engine::Epoll);
}

#[test]
fn the_end_of_the_grace_is_told_on_io_uring() {
    the_end_of_the_grace_is_told(Engine::IoUring);
}

/// Whoever asks twice does not want to wait, and is told what that cost.
fn a_second_signal_ends_at_once(engine: Engine) {
    let upstream = Upstream::start();
    let dir = TempDir::new("drain");
    let mut toron = start(&dir, engine, any_port(), &upstream);
    let addr = started(&toron);
    let mut client = half_a_request(addr, &upstream);
    toron.signal(Signal::INT);
    wait_until_refused(addr);
    toron.signal(Signal::INT);
    assert_eq!(toron.wait(PATIENCE).and_then(|s| s.code()), Some(1));
    toron.wait_line(PATIENCE, |line| {
        // Of the connections that were tried, one may not be closed yet.
        let told = "ending at once. Cut requests in flight: 1, client connections: ";
        line.contains(told).then_some(())
    });
    assert!(client.receive_until_end(PATIENCE));
    assert!(client.received.is_empty());
}

#[test]
fn a_second_signal_ends_at_once_on_epoll() {
    a_second_signal_ends_at_once(Engine::Epoll);
}

#[test]
fn a_second_signal_ends_at_once_on_io_uring() {
    a_second_signal_ends_at_once(Engine::IoUring);
}
