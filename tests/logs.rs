//! The access log: one line per request, also for those that toron answers itself.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::process::Command;

use rustix::process::Signal;
use support::client::Client;
use support::process::{OnDrop, Process};
use support::setup::Engine;
use support::toron::listening_on;
use support::upstream::{Script, Step, Then, Upstream};
use support::{TempDir, PATIENCE};

#[test]
fn every_request_has_its_line() {
    let upstream = Upstream::start();
    let dir = TempDir::new("logs");
    let (config, log) = (dir.join("config.yaml"), dir.join("access.log"));
    let text = format!(
        "server: {{host: 127.0.0.1, port: 0}}\nlogging: {{access_log: {}}}\n\
         routes: [{{prefix: /up, target: 'http://{}'}}, {{prefix: /small, max_body_bytes: 10, target: 'http://{}'}}]\n",
        log.display(),
        upstream.addr,
        upstream.addr
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command.arg("serve").arg("-c").arg(&config);
    let mut process = Process::spawn(command, "toron", OnDrop::Kill);
    let addr = process.wait_line(PATIENCE, listening_on);
    for request in [
        "GET /up/a HTTP/1.1\r\nHost: t.example\r\n\r\n",
        "GET /none HTTP/1.1\r\nHost: t.example\r\n\r\n",
        "POST /small HTTP/1.1\r\nHost: t.example\r\nContent-Length: 11\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: t.example\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let mut client = Client::connect(addr, PATIENCE).unwrap();
        client.send(request.as_bytes(), PATIENCE);
        assert!(client.receive_responses(1, PATIENCE), "{request}");
    }
    process.signal(Signal::TERM);
    assert!(process.wait(PATIENCE).is_some());
    let log = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = log
        .lines()
        .map(|line| line.split_once(' ').expect("a time in front").1)
        .map(|line| line.split(" in=").next().unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            "127.0.0.1 GET t.example /up/a route=\"/up\" status=200",
            "127.0.0.1 GET t.example /none route=\"-\" status=404",
            "127.0.0.1 POST t.example /small route=\"-\" status=413",
            "127.0.0.1 GET t.example /health route=\"-\" status=200",
            "127.0.0.1 - - - route=\"-\" status=400",
        ]
    );
}

/// A toron with this configuration and what it says.
fn with_config(text: &str) -> (TempDir, Process, std::net::SocketAddr) {
    let dir = TempDir::new("logs");
    let config = dir.join("config.yaml");
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command.arg("serve").arg("-c").arg(&config);
    let process = Process::spawn(command, "toron", OnDrop::Kill);
    let addr = process.wait_line(PATIENCE, listening_on);
    (dir, process, addr)
}

/// The first warning about `path`, which is asked for until there is one: a line a second is
/// written, whatever it is about.
fn warning_about(process: &Process, addr: std::net::SocketAddr, path: &str) -> String {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let mut client = Client::connect(addr, PATIENCE).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n");
        client.send(request.as_bytes(), PATIENCE);
        assert!(client.receive_responses(1, PATIENCE), "{path}");
        let status = client.parsed().responses[0].status;
        assert!(matches!(status, 502 | 504), "{path}: {status}");
        let wanted = format!(" route {path}: ");
        let lines = process.log_lines();
        if let Some(line) = lines.into_iter().find(|line| line.contains(&wanted)) {
            assert!(line.contains(" WARN "), "{line}");
            return line.split_once(&wanted).unwrap().1.to_owned();
        }
        assert!(std::time::Instant::now() < deadline, "no line about {path}");
    }
}

/// What an operator reads about an upstream that fails: which route, which target, and what.
#[test]
fn failures_of_upstreams_are_told_with_route_and_target() {
    for engine in Engine::ALL {
        // A port that nobody listens on: it was just given up.
        let refusing = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .unwrap();
        let (closing, silent) = (Upstream::start(), Upstream::start());
        closing.set_script(Script {
            answers: vec![vec![]],
            repeat_last: true,
            then: Then::Close,
            ..Script::default()
        });
        silent.set_script(Script {
            answers: vec![vec![Step::Hang]],
            repeat_last: true,
            ..Script::default()
        });
        let (closes, hangs) = (closing.addr, silent.addr);
        let (_dir, process, addr) = with_config(&format!(
            "server: {{host: 127.0.0.1, port: 0, engine: {}, worker_pool_size: 1}}\n\
             proxy: {{transport: {{response_header_timeout: 200ms}}}}\n\
             firewall: {{enabled: false}}\n\
             routes:\n\
             - {{prefix: /refuses, target: 'http://{refusing}'}}\n\
             - {{prefix: /closes, target: 'http://{closes}'}}\n\
             - {{prefix: /hangs, target: 'http://{hangs}'}}\n\
             - {{prefix: /unknown, target: 'http://no-such-host.invalid:81/x'}}\n",
            engine.name()
        ));
        let line = warning_about(&process, addr, "/refuses");
        let told =
            format!("upstream http://{refusing} at {refusing}: cannot connect: Connection refused");
        assert!(line.starts_with(&told), "{line}");
        let line = warning_about(&process, addr, "/closes");
        let told = format!(
            "upstream http://{closes} at {closes}: closed the connection before a response"
        );
        assert!(line.starts_with(&told), "{line}");
        let line = warning_about(&process, addr, "/hangs");
        let told = format!(
            "upstream http://{hangs} at {hangs}: no response head within response_header_timeout"
        );
        assert!(line.starts_with(&told), "{line}");
        let line = warning_about(&process, addr, "/unknown");
        let told = "upstream http://no-such-host.invalid:81/x: its name has no address";
        assert!(line.starts_with(told), "{line}");
        // The requests that made no line of their own.
        assert!(line.contains("other upstream failure"), "{line}");
    }
}

/// With a log file, the terminal is still where a start that fails is told.
#[test]
fn a_failed_start_is_told_on_the_terminal_and_in_the_log() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|addr| (taken, addr)).unwrap();
    let dir = TempDir::new("logs");
    let (config, log) = (dir.join("config.yaml"), dir.join("error.log"));
    let text = format!(
        "server: {{listen: ['{}']}}\nlogging: {{error_log: {}}}\n\
         routes: [{{prefix: /, status: 404}}]\n",
        taken.1,
        log.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    let out = command
        .arg("serve")
        .arg("-c")
        .arg(&config)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let told = format!("toron: cannot listen on {}: ", taken.1);
    let terminal = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(terminal.starts_with(&told), "{terminal}");
    assert_eq!(terminal.lines().count(), 1, "{terminal}");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("cannot listen on"), "{log}");
}
