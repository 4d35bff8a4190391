//! What a hostile client or upstream has done to toron once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::thread;
use std::time::Instant;

use support::client::Client;
use support::http::Response;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::{Script, Step, Upstream};
use support::PATIENCE;

fn toron(engine: Engine, upstream: &Upstream, prefix: &str, strip_prefix: bool) -> Toron {
    let mut route = Route::new(prefix, &upstream.addr);
    route.strip_prefix = strip_prefix;
    let mut settings = Settings::new(engine, vec![route]);
    settings.admin_key = Some("k".into());
    Toron::start(&settings)
}

fn ask(toron: &Toron, request: &str) -> Response {
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    client.send(request.as_bytes(), PATIENCE);
    assert!(client.receive_responses(1, PATIENCE), "no whole response");
    client.parsed().responses.remove(0)
}

fn answer_with(upstream: &Upstream, answer: Vec<u8>) {
    upstream.set_script(Script {
        answers: vec![vec![Step::Send(answer)]],
        repeat_last: true,
        ..Script::default()
    });
}

fn every_engine(test: fn(Engine)) {
    for engine in Engine::ALL {
        test(engine);
    }
}

fn buffers(toron: &Toron) -> u64 {
    let request = "GET /internal/api/status HTTP/1.1\r\nHost: t\r\nX-Toron-Admin-Key: k\r\n\r\n";
    let status: serde_json::Value = serde_json::from_slice(&ask(toron, request).body).unwrap();
    status["buffers"].as_u64().unwrap()
}

/// Thousands of first bytes once emptied the pool.
#[test]
fn the_beginning_of_a_head_holds_no_buffer() {
    every_engine(|engine| {
        let upstream = Upstream::start();
        let toron = toron(engine, &upstream, "/", false);
        let mut clients: Vec<Client> = (0..200)
            .map(|_| {
                let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
                client.send(b"GET /slow HTTP/1.1\r\nHost: t", PATIENCE);
                client
            })
            .collect();
        let deadline = Instant::now() + PATIENCE;
        // The one that asks has its own request in a buffer.
        while buffers(&toron) > 1 {
            assert!(Instant::now() < deadline, "{} buffers", buffers(&toron));
            thread::yield_now();
        }
        // And what comes later is put behind it.
        for client in &mut clients {
            client.send(b".example\r\nX-More: 1\r\n\r\n", PATIENCE);
            assert!(client.receive_responses(1, PATIENCE));
            assert_eq!(client.parsed().responses[0].status, 200);
        }
    });
}

/// Interim heads used the receive buffer up, so that the final head had no room.
#[test]
fn many_interim_responses_leave_room_for_the_final_one() {
    every_engine(|engine| {
        let upstream = Upstream::start();
        let toron = toron(engine, &upstream, "/", false);
        let mut answer = Vec::new();
        for _ in 0..1500 {
            answer.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n");
        }
        answer.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast");
        answer_with(&upstream, answer);
        let response = ask(&toron, "GET / HTTP/1.1\r\nHost: t.example\r\n\r\n");
        assert_eq!(
            (response.status, response.body.as_slice()),
            (200, &b"last"[..])
        );
        assert_eq!(response.interim.len(), 1500);
    });
}

/// Rewriting made the head outgrow the room in front of it.
#[test]
fn a_head_may_grow_by_rewriting() {
    every_engine(|engine| {
        let upstream = Upstream::start();
        let prefix = "/a-prefix-of-some-length";
        let toron = toron(engine, &upstream, prefix, true);
        let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
        for i in 0..200 {
            answer.extend_from_slice(format!("Set-Cookie: c{i}=1; Path=/\r\n").as_bytes());
        }
        answer.extend_from_slice(b"Content-Length: 4\r\n\r\nbody");
        answer_with(&upstream, answer);
        let request = format!("GET {prefix}/x HTTP/1.1\r\nHost: t.example\r\n\r\n");
        let response = ask(&toron, &request);
        assert_eq!(
            (response.status, response.body.as_slice()),
            (200, &b"body"[..])
        );
        assert!(response.complete);
    });
}

/// A chunked response that fills a whole receive must keep its framing.
#[test]
fn a_full_receive_leaves_room_for_its_framing() {
    every_engine(|engine| {
        let upstream = Upstream::start();
        let toron = toron(engine, &upstream, "/", false);
        let body: Vec<u8> = (0..1_000_000_u32).map(|i| b'a' + (i % 23) as u8).collect();
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        answer.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
        answer.extend_from_slice(&body);
        answer.extend_from_slice(b"\r\n0\r\n\r\n");
        answer_with(&upstream, answer);
        let response = ask(&toron, "GET / HTTP/1.1\r\nHost: t.example\r\n\r\n");
        assert!(response.complete && response.body == body);
    });
}

/// A route for /health of another host once took the built-in away from all.
#[test]
fn health_of_one_host_is_not_health_of_all() {
    let upstream = Upstream::start();
    let mut health = Route::new("/health", &upstream.addr);
    health.host = Some("app.example".into());
    let settings = Settings::new(Engine::Epoll, vec![Route::new("/", &upstream.addr), health]);
    let toron = Toron::start(&settings);
    let own = ask(&toron, "GET /health HTTP/1.1\r\nHost: t.example\r\n\r\n");
    assert_eq!(own.body, br#"{"status":"ok"}"#);
    let routed = ask(&toron, "GET /health HTTP/1.1\r\nHost: app.example\r\n\r\n");
    assert_eq!(routed.body, b"OK");
}

/// An upstream that takes a whole streamed PUT and closes must not be sent its head alone again.
#[test]
fn a_streamed_body_is_never_sent_again_without_itself() {
    every_engine(|engine| {
        let upstream = Upstream::start();
        let toron = toron(engine, &upstream, "/", false);
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        client.send(b"GET /warm HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
        assert!(client.receive_responses(1, PATIENCE));
        upstream.set_script(Script {
            answers: vec![vec![]],
            repeat_last: true,
            then: support::upstream::Then::Close,
            ..Script::default()
        });
        client.send(
            b"PUT /p HTTP/1.1\r\nHost: t.example\r\nContent-Length: 300000\r\n\r\n",
            PATIENCE,
        );
        client.send(&vec![b'x'; 30_000], PATIENCE);
        let begun =
            |c: &[support::upstream::Connection]| c.iter().any(|c| c.received.len() > 30_000);
        assert!(upstream.wait_for(PATIENCE, begun));
        client.send(&vec![b'x'; 270_000], PATIENCE);
        assert!(client.receive_responses(2, PATIENCE));
        assert_eq!(client.parsed().responses[1].status, 502);
        let puts = upstream
            .connections()
            .iter()
            .flat_map(|c| c.heads().map(|_| ()).collect::<Vec<_>>())
            .count();
        assert_eq!(puts, 2, "the GET and one PUT");
    });
}
