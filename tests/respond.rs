//! Routes that answer from the edge.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::process::Command;

use support::client::Client;
use support::process::{OnDrop, Process};
use support::setup::Engine;
use support::toron::listening_on;
use support::{TempDir, PATIENCE};

/// Longer than any buffer: it goes out in pieces, and the connection goes on.
#[test]
fn a_long_body_comes_whole_and_the_next_answer_behind_it() {
    for engine in Engine::ALL {
        let dir = TempDir::new("respond");
        let body: String = (0..30_000).map(|i| format!("{i:06} ")).collect();
        let config = dir.join("config.yaml");
        let text = format!(
            "server: {{host: 127.0.0.1, port: 0, engine: {}}}\n\
             routes: [{{prefix: /long, status: 200, body: \"{body}\"}}, {{prefix: /, status: 404}}]\n",
            engine.name()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
        command.arg("serve").arg("-c").arg(&config);
        let process = Process::spawn(command, "toron", OnDrop::Kill);
        let addr = process.wait_line(PATIENCE, listening_on);
        let mut client = Client::connect(addr, PATIENCE).unwrap();
        let request = "GET /long HTTP/1.1\r\nHost: t\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n";
        client.send(request.as_bytes(), PATIENCE);
        assert!(client.receive_responses(2, PATIENCE));
        let responses = client.parsed().responses;
        assert!(
            responses[0].body == body.as_bytes(),
            "{}",
            responses[0].body.len()
        );
        assert_eq!(responses[1].status, 404);
    }
}
