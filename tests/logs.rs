//! The access log: one line per request, also for those that toron answers itself.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use support::client::Client;
use support::process::{OnDrop, Process};
use support::setup::Engine;
use support::toron::listening_on;
use support::upstream::{Connection, Script, Step, Then, Upstream, When};
use support::{TempDir, PATIENCE};

#[test]
fn every_request_has_its_line() {
    let upstream = Upstream::start();
    let dir = TempDir::new("logs");
    let (config, log) = (dir.join("config.yaml"), dir.join("access.log"));
    // One reactor: several hand their lines over in any order.
    let text = format!(
        "server: {{host: 127.0.0.1, port: 0, worker_pool_size: 1}}\nlogging: {{access_log: {}}}\n\
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
    let target = upstream.addr;
    let ends: Vec<&str> = log
        .lines()
        .map(|line| line.split_once(" by=").unwrap().1)
        .collect();
    assert_eq!(
        ends,
        [
            "- reason=-",
            "toron reason=no_route",
            "toron reason=declared_too_large",
            "- reason=-",
            "toron reason=bad_request_line",
        ]
    );
    let lines: Vec<&str> = log
        .lines()
        .map(|line| line.split_once(' ').expect("a time in front").1)
        .map(|line| line.split(" in=").next().unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            &format!(
                "127.0.0.1 GET t.example /up/a route=\"/up\" target=http://{target} status=200"
            ),
            "127.0.0.1 GET t.example /none route=\"-\" target=- status=404",
            "127.0.0.1 POST t.example /small route=\"/small\" target=- status=413",
            "127.0.0.1 GET t.example /health route=\"-\" target=- status=200",
            "127.0.0.1 - - - route=\"-\" target=- status=400",
        ]
    );
}

/// Both logs in JSON: every line is an object, and what ended a request is said there, too, also of
/// one that toron answered with a configured answer, one that the client left, and a connection that
/// was refused before it was read.
#[test]
fn logs_in_json() {
    for engine in Engine::ALL {
        let upstream = Upstream::start();
        upstream.set_script(Script {
            answers: vec![vec![Step::Hang]],
            repeat_last: true,
            when: When::AfterHead,
            ..Script::default()
        });
        let text = format!(
            "server: {{host: 127.0.0.1, port: 0, engine: {}, worker_pool_size: 1}}\n\
             logging: {{format: json, access_log: access.log}}\n\
             firewall: {{deny: [127.0.0.9]}}\n\
             routes:\n\
             - {{prefix: /late, header_deadline: 100ms, header_deadline_response: {{status: 418}},\n\
             \x20  target: 'http://{}'}}\n\
             - {{prefix: /waits, target: 'http://{}'}}\n",
            engine.name(),
            upstream.addr,
            upstream.addr
        );
        let message = |line: &str| -> Option<String> {
            let line: Value = serde_json::from_str(line).unwrap();
            assert!(line["time"].is_string() && line["target"].is_string());
            (line["level"] == "INFO").then(|| line["message"].as_str().unwrap().to_owned())
        };
        let (dir, mut process) = started(&text);
        let listening = |line: &str| listening_on(&message(line)?);
        let addr = process.wait_line(PATIENCE, listening);
        let ask = |request: &str| {
            let mut client = Client::connect(addr, PATIENCE).unwrap();
            client.send(request.as_bytes(), PATIENCE);
            client
        };
        let mut late = ask("GET /late HTTP/1.1\r\nHost: t.example\r\n\r\n");
        assert!(late.receive_responses(1, PATIENCE));
        assert_eq!(late.parsed().responses[0].status, 418);
        late.close();
        let mut waits = ask("GET /waits HTTP/1.1\r\nHost: t.example\r\n\r\n");
        let seen =
            |n| move |all: &[Connection]| all.iter().flat_map(Connection::heads).count() == n;
        assert!(upstream.wait_for(PATIENCE, seen(2)));
        waits.reset();
        let gone = |all: &[Connection]| all.iter().all(|c| c.ended.is_some());
        assert!(upstream.wait_for(PATIENCE, gone));
        let mut partly = ask("GET / HTTP/1.1\r\nHo");
        partly.shutdown_write();
        assert!(partly.receive_until_end(PATIENCE));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let denied: SocketAddr = "127.0.0.9:0".parse().unwrap();
        socket.bind(&denied.into()).unwrap();
        socket.connect(&addr.into()).unwrap();
        let mut denied = Client::over(socket.into());
        assert!(denied.receive_responses(1, PATIENCE));
        denied.close();
        process.signal(Signal::TERM);
        assert!(process.wait(PATIENCE).is_some());
        let objects = |name: &str| -> Vec<Value> {
            let text = std::fs::read_to_string(dir.join(name)).unwrap();
            text.lines()
                .map(|l| serde_json::from_str(l).unwrap())
                .collect()
        };
        assert!(
            process
                .log_lines()
                .iter()
                .filter_map(|l| message(l))
                .count()
                > 1
        );
        let ends: Vec<_> = objects("access.log")
            .iter()
            .map(|line| {
                let text = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
                let words = ["client", "path", "ended_by", "reason"].map(text);
                (line["status"].as_u64(), words.join(" "))
            })
            .collect();
        let end = |status, words: &str| (status, words.to_owned());
        assert_eq!(
            ends,
            [
                end(Some(418), "127.0.0.1 /late toron header_deadline"),
                end(None, "127.0.0.1 /waits client client_left_waiting"),
                end(None, "127.0.0.1 - client client_left_head"),
                end(Some(403), "127.0.0.9 - firewall denied"),
            ]
        );
        let late = &objects("access.log")[0];
        let target = format!("http://{}", upstream.addr);
        assert_eq!(late["target"], target.as_str(), "{late}");
        assert!(late["total_us"].as_u64() >= Some(100_000), "{late}");
        assert!(
            late["connect_us"].is_u64() && late["first_byte_us"].is_null(),
            "{late}"
        );
    }
}

/// A toron with this configuration and what it says.
fn with_config(text: &str) -> (TempDir, Process, SocketAddr) {
    let (dir, process) = started(text);
    let addr = process.wait_line(PATIENCE, listening_on);
    (dir, process, addr)
}

fn started(text: &str) -> (TempDir, Process) {
    let dir = TempDir::new("logs");
    let config = dir.join("config.yaml");
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command.arg("serve").arg("-c").arg(&config);
    command.current_dir(dir.path());
    let process = Process::spawn(command, "toron", OnDrop::Kill);
    (dir, process)
}

/// The first warning about `path`, which is asked for until there is one: a line a second is
/// written, whatever it is about.
fn warning_about(process: &Process, addr: SocketAddr, path: &str) -> String {
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
