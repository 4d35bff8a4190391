//! Requests that wait for their response hold no buffer, so that slow upstreams cannot empty the
//! pool.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::Read;
use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use support::client::Client;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::PATIENCE;

const WAITING: usize = 200;

#[derive(Debug, serde::Deserialize)]
struct Status {
    exchanges: usize,
    buffers: usize,
    pipes: usize,
}

fn status(toron: &Toron) -> Status {
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    let request = "GET /internal/api/status HTTP/1.1\r\nHost: t\r\nX-Toron-Admin-Key: k\r\n\r\n";
    client.send(request.as_bytes(), PATIENCE);
    assert!(client.receive_responses(1, PATIENCE));
    serde_json::from_slice(&client.parsed().responses[0].body).unwrap()
}

fn waiting_requests_hold_no_buffer(engine: Engine) {
    // An upstream that reads and never answers.
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = upstream.local_addr().unwrap();
    thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = upstream.accept() {
            let mut room = [0; 4096];
            assert!(stream.read(&mut room).unwrap() > 0);
            kept.push(stream);
        }
    });
    let mut settings = Settings::new(engine, vec![Route::new("/", &addr)]);
    settings.admin_key = Some("k".into());
    let toron = Toron::start(&settings);
    let mut clients = Vec::new();
    for i in 0..WAITING {
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        let post = i % 2 == 0;
        let request = if post {
            format!("POST /{i} HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody")
        } else {
            format!("GET /{i} HTTP/1.1\r\nHost: t\r\n\r\n")
        };
        client.send(request.as_bytes(), PATIENCE);
        clients.push(client);
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = status(&toron);
        // The one that asks has its own request in a buffer.
        if now.exchanges == WAITING && now.buffers <= 1 && now.pipes == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{now:?}");
        thread::yield_now();
    }
}

#[test]
fn waiting_requests_hold_no_buffer_on_epoll() {
    waiting_requests_hold_no_buffer(Engine::Epoll);
}

#[test]
fn waiting_requests_hold_no_buffer_on_io_uring() {
    waiting_requests_hold_no_buffer(Engine::IoUring);
}
