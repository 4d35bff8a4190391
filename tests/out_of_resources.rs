//! Out of descriptors, and out of memory for rings: what is open goes on, who cannot be served is
//! told, and nothing spins.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::process::Command;
use std::time::Instant;

use support::backend::Backend;
use support::client::Client;
use support::process::{OnDrop, Process};
use support::readout::KEY;
use support::setup::{Engine, Route, Settings};
use support::toron::{listening_on, Toron};
use support::{show, TempDir, PATIENCE};

/// Enough for the process itself and some connections.
const DESCRIPTORS: u32 = 80;
const REFUSED: &str = r#"{"error":"503 Service Unavailable: Connection limit reached"}"#;
const NO_DESCRIPTOR: &str = r#"{"error":"503 Service Unavailable: Out of local resources"}"#;
const ACCEPTING_FAILS: &str = "cannot accept connections";

/// `/fixed` is answered by toron itself, everything else by the backend.
fn toron(engine: Engine, backend: &Backend) -> Toron {
    let mut settings = Settings::new(engine, vec![Route::new("/", &backend.addr)]);
    settings.further_routes = "  - {prefix: /fixed, status: 200, body: fixed}\n".to_owned();
    settings.descriptor_limit = Some(DESCRIPTORS);
    // Of several reactors one may serve a connection with the spare descriptor that another has just
    // closed in order to refuse it.
    settings.worker_pool_size = 1;
    settings.admin_key = Some(KEY.to_owned());
    settings.server.push(("idle_timeout", "60s".to_owned()));
    Toron::start(&settings)
}

/// Asks on an open connection; the status and the body.
fn ask(client: &mut Client, path: &str) -> (u16, String) {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Toron-Admin-Key: {KEY}\r\n\r\n");
    client.send(request.as_bytes(), PATIENCE);
    assert!(
        client.receive_responses(1, PATIENCE),
        "{path}: {}",
        show(&client.received)
    );
    let response = client.parsed().responses.remove(0);
    client.received.clear();
    client.sent.clear();
    let body = String::from_utf8_lossy(&response.body).into_owned();
    (response.status, body)
}

/// A figure of the read-out.
fn figure(client: &mut Client, name: &str) -> u64 {
    let (status, body) = ask(client, "/internal/api/status");
    assert_eq!(status, 200, "{body}");
    let status: serde_json::Value = serde_json::from_str(&body).unwrap();
    status[name].as_u64().unwrap()
}

/// Waits until no more than `most` connections are open.
fn await_sessions(client: &mut Client, most: u64) {
    let deadline = Instant::now() + PATIENCE;
    while figure(client, "sessions") > most {
        assert!(Instant::now() < deadline, "connections that do not end");
    }
}

/// Connects until nobody else is let in; the connections that are open.
fn fill(toron: &Toron) -> Vec<Client> {
    let mut open = Vec::new();
    while open.len() < DESCRIPTORS as usize {
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        // One that is refused is told so without being read.
        let (status, body) = ask(&mut client, "/fixed");
        if status == 503 {
            assert_eq!(body, REFUSED);
            return open;
        }
        assert_eq!((status, body.as_str()), (200, "fixed"));
        open.push(client);
    }
    panic!("the limit does not hold");
}

fn accepting_pauses(engine: Engine) {
    let backend = Backend::start();
    let toron = toron(engine, &backend);
    let began = Instant::now();
    let mut open = fill(&toron);
    let before = figure(&mut open[0], "turns");
    // Each of them waits for the next attempt.
    for _ in 0..5 {
        let mut late = Client::connect(toron.addr, PATIENCE).unwrap();
        assert!(late.receive_until_end(PATIENCE));
        assert!(
            late.received.ends_with(REFUSED.as_bytes()),
            "{}",
            show(&late.received)
        );
    }
    // In the pauses between, a reactor that spins takes ten thousands of turns.
    let turns = figure(&mut open[0], "turns") - before;
    assert!(turns < 1_000, "{turns} turns");
    for client in &mut open {
        assert_eq!(ask(client, "/fixed"), (200, "fixed".to_owned()));
    }
    let told = toron.process().log_lines();
    let told = told.iter().filter(|l| l.contains(ACCEPTING_FAILS)).count();
    let seconds = began.elapsed().as_secs() as usize + 1;
    assert!((1..=seconds).contains(&told), "{told} lines in {seconds} s");

    // As soon as one goes, the next is served.
    open.pop();
    let sessions = open.len() as u64;
    await_sessions(&mut open[0], sessions);
    let mut next = Client::connect(toron.addr, PATIENCE).unwrap();
    assert_eq!(ask(&mut next, "/fixed"), (200, "fixed".to_owned()));
}

#[test]
fn accepting_pauses_without_descriptors_on_epoll() {
    accepting_pauses(Engine::Epoll);
}

#[test]
fn accepting_pauses_without_descriptors_on_io_uring() {
    accepting_pauses(Engine::IoUring);
}

/// A dial without a descriptor is answered at once, counted and logged, and costs the client nothing
/// but that answer.
fn a_dial_fails(engine: Engine) {
    let backend = Backend::start();
    let toron = toron(engine, &backend);
    let mut open = fill(&toron);
    let mut client = open.pop().unwrap();
    // Its place is the one that the last had.
    let last = open.pop().unwrap();
    assert_eq!(figure(&mut client, "upstream_out_of_resources"), 0);
    for failed in 1..3 {
        let (status, body) = ask(&mut client, "/proxied");
        assert_eq!((status, body.as_str()), (503, NO_DESCRIPTOR));
        assert_eq!(figure(&mut client, "upstream_out_of_resources"), failed);
    }
    let told = |line: &str| line.contains("no socket for it").then_some(());
    toron.process().wait_line(PATIENCE, told);

    drop(last);
    let sessions = open.len() as u64 + 1;
    await_sessions(&mut client, sessions);
    client.send(b"GET /proxied HTTP/1.1\r\nHost: t\r\n\r\n", PATIENCE);
    let mut peer = backend.accept();
    peer.receive_head();
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK");
    assert!(client.receive_responses(1, PATIENCE));
    assert_eq!(client.parsed().responses[0].status, 200);
}

#[test]
fn r21_a_dial_without_a_descriptor_is_503_on_epoll() {
    a_dial_fails(Engine::Epoll);
}

#[test]
fn r21_a_dial_without_a_descriptor_is_503_on_io_uring() {
    a_dial_fails(Engine::IoUring);
}

/// Kilobytes of locked memory that hold no ring of a reactor (140 on Linux 6.18), but a smaller one.
const NO_RING: u32 = 100;

/// Root is exempt by a capability; a user of its own is not, and is disturbed by no other test.
#[test]
fn auto_takes_epoll_where_rings_have_no_memory_and_says_so() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("not run: only root can become another user");
    }
    let dir = TempDir::new("rings");
    // Where such a user can read it.
    let place = std::env::temp_dir().join(format!("toron-auto-{}", std::process::id()));
    let script = format!(
        "set -e; umask 022; mkdir {place}; cp \"$0\" {place}/toron; cp \"$1\" {place}/config.yaml; \
         cd {place}; ulimit -l {NO_RING}; exec setpriv --reuid={user} --regid={user} --clear-groups \
         ./toron serve -c config.yaml",
        place = place.display(),
        user = 1_000_000 + std::process::id(),
    );
    let config = dir.join("config.yaml");
    std::fs::write(
        &config,
        "server: {host: 127.0.0.1, port: 0, engine: auto}\n\
         routes: [{prefix: /, status: 200, body: fixed}]\n",
    )
    .unwrap();
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_toron"))
        .arg(&config);
    command.env("RUST_LOG", "info");
    let process = Process::spawn(command, "toron", OnDrop::Kill);
    let addr = process.wait_line(PATIENCE, listening_on);
    let engine = |line: &str| line.split_once("engine ").map(|(_, why)| why.to_owned());
    let why = process.wait_line(PATIENCE, engine);
    let mut client = Client::connect(addr, PATIENCE).unwrap();
    assert_eq!(ask(&mut client, "/").0, 200);
    std::fs::remove_dir_all(&place).unwrap();
    // Kernels that charge rings to something else have nothing to fall back from.
    assert!(
        why.starts_with("epoll: no memory for a ring") || why.starts_with("io_uring: "),
        "{why}"
    );
    println!("{why}");
}
