//! An upload at a steady 2 MiB/s lasts however long it takes, though the route's `read_timeout` is
//! 1 s; the same upload, once it pauses, is severed (I18, I19). `TORON_SOAK=1` (make soak) sends
//! 200 MiB. That the pause is cut after 1 s to the tick is held where time is made up
//! (`tests/simulation/timing/sending.rs`); here it is printed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use support::client::Client;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::{contains, find, show, soak, PATIENCE};

const MIB: usize = 1 << 20;
const PIECE: usize = 64 * 1024;
/// 2 MiB/s.
const EVERY: Duration = Duration::from_micros(31_250);

fn length() -> usize {
    if soak() {
        200 * MIB
    } else {
        6 * MIB
    }
}

/// An origin that answers each request with the number of body bytes that came, when all have.
fn counting_origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || count(stream));
        }
    });
    addr
}

fn count(mut stream: std::net::TcpStream) {
    let mut room = vec![0; PIECE];
    let mut head = Vec::new();
    let mut body = loop {
        match stream.read(&mut room) {
            Ok(n) if n > 0 => head.extend_from_slice(&room[..n]),
            _ => return,
        }
        if let Some(end) = find(&head, b"\r\n\r\n") {
            break head.len() - end - 4;
        }
    };
    while body < length() {
        match stream.read(&mut room) {
            Ok(n) if n > 0 => body += n,
            _ => return,
        }
    }
    let text = body.to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    let _ = stream.write_all(answer.as_bytes());
}

/// Sends the head and `bytes` of the body, each piece in its time. Says when the last was sent.
fn upload(toron: &Toron, bytes: usize) -> (Client, Instant) {
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    let head = format!(
        "PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
        length()
    );
    client.send(head.as_bytes(), PATIENCE);
    let piece = [b'x'; PIECE];
    let mut due = Instant::now();
    let mut last = due;
    for _ in 0..bytes / PIECE {
        client.send(&piece, PATIENCE);
        last = Instant::now();
        // The rate is what the test is about.
        due += EVERY;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        assert_eq!(client.send_error, None, "severed");
        client.sent.clear();
    }
    (client, last)
}

fn toron(engine: Engine) -> Toron {
    let mut route = Route::new("/", &counting_origin());
    route.extra.push(("read_timeout", "1s".to_owned()));
    route.extra.push(("max_body_bytes", "300MiB".to_owned()));
    Toron::start(&Settings::new(engine, vec![route]))
}

fn a_steady_upload_lasts(engine: Engine) {
    let toron = toron(engine);
    let (mut client, _) = upload(&toron, length());
    let whole = length().to_string();
    client.receive_until(PATIENCE, |c| contains(&c.received, whole.as_bytes()));
    let expected = format!("\r\n\r\n{whole}");
    assert!(
        client.received.starts_with(b"HTTP/1.1 200 ")
            && client.received.ends_with(expected.as_bytes()),
        "{}",
        show(&client.received)
    );
}

fn an_upload_that_pauses_is_severed(engine: Engine) {
    let toron = toron(engine);
    let (mut client, since) = upload(&toron, length() / 2);
    assert!(client.receive_until_end(PATIENCE), "nobody minds");
    println!("{}: severed after {:.3?}", engine.name(), since.elapsed());
    assert!(
        client
            .received
            .starts_with(b"HTTP/1.1 408 Request Timeout\r\n"),
        "{}",
        show(&client.received)
    );
}

/// All at the same time: what they do most is wait.
#[test]
fn i19_a_steady_upload_lasts_and_one_that_pauses_is_severed() {
    thread::scope(|scope| {
        for engine in Engine::ALL {
            scope.spawn(move || a_steady_upload_lasts(engine));
            scope.spawn(move || an_upload_that_pauses_is_severed(engine));
        }
    });
}
