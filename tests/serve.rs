//! The process as an operator sees it: start, /health, the demo of `make run`, and its end.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use support::client::Client;
use support::process::{OnDrop, Process};
use support::setup::{Engine, Route, Settings};
use support::toron::{listening_on, stand_in, Toron};
use support::upstream::{Script, Step, Then, Upstream, When};
use support::{TempDir, PATIENCE};

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n").into_bytes()
}

fn health(engine: Engine) {
    let upstream = Upstream::start();
    let toron = Toron::start(&Settings::new(
        engine,
        vec![Route::new("/", &upstream.addr)],
    ));
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    client.send(&get("/health"), PATIENCE);
    assert!(client.receive_responses(1, PATIENCE));
    let response = client.parsed().responses.remove(0);
    assert_eq!(response.status, 200);
    assert_eq!(response.body, br#"{"status":"ok"}"#);
    assert!(upstream.connections().is_empty(), "/health went upstream");
}

#[test]
fn health_is_toron_s_own_answer_on_epoll() {
    health(Engine::Epoll);
}

#[test]
fn health_is_toron_s_own_answer_on_io_uring() {
    health(Engine::IoUring);
}

/// SIGTERM while a request is in flight: it is finished, an idle connection is closed, the exit
/// status is 0.
fn graceful_stop(engine: Engine, signal: Signal) {
    let upstream = Upstream::start();
    let slow = vec![
        Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl".to_vec()),
        Step::Pause(Duration::from_millis(500)),
        Step::Send(b"ow".to_vec()),
    ];
    let mut toron = Toron::start(&Settings::new(
        engine,
        vec![Route::new("/", &upstream.addr)],
    ));
    let mut idle = Client::connect(toron.addr, PATIENCE).unwrap();
    idle.send(&get("/before"), PATIENCE);
    assert!(idle.receive_responses(1, PATIENCE));
    upstream.set_script(Script {
        answers: vec![slow],
        repeat_last: false,
        when: When::AfterRequest,
        then: Then::Keep,
    });
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    client.send(&get("/slow"), PATIENCE);
    let arrived = upstream.wait_for(PATIENCE, |c| {
        c.iter()
            .flat_map(|c| &c.requests)
            .any(|r| r.head.target() == "/slow")
    });
    assert!(arrived, "the request did not reach the upstream");

    // nginx's word for an orderly end is SIGQUIT.
    toron
        .process()
        .signal(if stand_in() { Signal::QUIT } else { signal });
    assert!(
        client.receive_responses(1, PATIENCE),
        "the request in flight was cut"
    );
    assert_eq!(client.parsed().responses[0].body, b"slow");
    assert!(
        idle.receive_until_end(PATIENCE),
        "the idle connection stays open"
    );
    let status = toron.process_mut().wait(PATIENCE);
    assert_eq!(
        status.and_then(|s| s.code()),
        Some(0),
        "{:?}",
        toron.process().log_lines()
    );
    assert!(
        Client::connect(toron.addr, PATIENCE).is_err(),
        "still listening"
    );
}

#[test]
fn sigterm_finishes_what_is_in_flight_on_epoll() {
    graceful_stop(Engine::Epoll, Signal::TERM);
}

#[test]
fn sigterm_finishes_what_is_in_flight_on_io_uring() {
    graceful_stop(Engine::IoUring, Signal::TERM);
}

#[test]
fn sigint_finishes_what_is_in_flight() {
    graceful_stop(Engine::Epoll, Signal::INT);
}

// make run

/// The commands that configs/run.sh prints, with the address in place.
fn printed_commands(public: SocketAddr) -> Vec<String> {
    let script = include_str!("../configs/run.sh");
    let (_, text) = script
        .split_once("cat <<END")
        .expect("the text that run.sh prints");
    let (text, _) = text.split_once("\nEND\n").expect("its end");
    text.lines()
        .filter(|l| l.starts_with("  "))
        .map(|l| l.trim().replace("$public", &public.to_string()))
        .collect()
}

/// Starts the binary with `args` and waits for the address it listens on.
fn start(args: &[&str]) -> (Process, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command.args(args).env("RUST_LOG", "info");
    let process = Process::spawn(command, args[0], OnDrop::Kill);
    let addr = process.wait_line(PATIENCE, listening_on);
    (process, addr)
}

/// The demo's own files, on ports of the system's choice; its commands, as printed.
#[test]
fn the_commands_of_make_run_work_as_printed() {
    let dir = TempDir::new("demo");
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let adapted = |name: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(configs.join(name)).unwrap();
        assert!(text.contains(from), "{name} does not name {from}");
        let path = dir.join(name);
        std::fs::write(&path, text.replace(from, to)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (_origin, origin) = start(&["upstream", "--listen", "127.0.0.1:0"]);
    let config = adapted("config.yaml", "port: 8080", "port: 0");
    let routes = adapted("routes.yaml", "127.0.0.1:9000", &origin.to_string());
    let (_toron, public) = start(&["serve", "-c", &config, "-r", &routes]);

    let commands = printed_commands(public);
    assert_eq!(commands.len(), 3, "{commands:?}");
    for (command, status) in commands.iter().zip(["200", "413", "200"]) {
        let out = Command::new("sh").arg("-c").arg(command).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let start = format!("HTTP/1.1 {status} ");
        assert!(
            out.status.success() && text.starts_with(&start),
            "{command}:\n{text}"
        );
    }
}
