//! The access log: one line per request, also for those that toron answers itself.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::process::Command;

use rustix::process::Signal;
use support::client::Client;
use support::process::{OnDrop, Process};
use support::toron::listening_on;
use support::upstream::Upstream;
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
