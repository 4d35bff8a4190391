//! What hostile clients and upstreams have done to request bodies, and to what comes behind them,
//! with the real binary on both engines.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::net::TcpStream;
use std::time::Duration;

use socket2::SockRef;

use support::backend::Backend;
use support::client::Client;
use support::readout::{allow_readout, await_readout};
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::{Connection, Script, Step, Then, Upstream, When};
use support::{contains, find, PATIENCE};

fn on_every_engine(test: fn(Engine)) {
    for engine in Engine::ALL {
        test(engine);
    }
}

fn start(engine: Engine, upstream: &impl ToString, route: &[(&'static str, &str)]) -> Toron {
    let mut to = Route::new("/", upstream);
    to.extra = route.iter().map(|&(k, v)| (k, v.to_owned())).collect();
    let mut settings = Settings::new(engine, vec![to]);
    allow_readout(&mut settings);
    Toron::start(&settings)
}

fn connect(toron: &Toron) -> Client {
    Client::connect(toron.addr, PATIENCE).unwrap()
}

/// Whether so many bytes stand behind a head.
fn contains_body(bytes: &[u8], len: usize) -> bool {
    bytes.len() > len && find(bytes, b"\r\n\r\n").is_some_and(|at| bytes.len() >= at + 4 + len)
}

/// The send of a collected body fails before the receive does when a stale connection is reset:
/// the request was idempotent and all of it was kept, but the client got a 502.
#[test]
fn i28_a_collected_body_is_sent_again_when_its_stale_connection_is_reset_in_the_middle() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let route = [
            ("stream_request_body", "false"),
            ("max_body_bytes", "32MiB"),
            ("max_concurrency", "5"),
        ];
        let toron = start(engine, &backend.addr, &route);
        // More than the sockets between the two hold.
        let body: Vec<u8> = (0..16_000_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let head = format!(
            "PUT /p HTTP/1.1\r\nHost: t.example\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let mut client = connect(&toron);
        client.send(b"GET /warm HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
        let mut stale = backend.accept();
        stale.receive_head();
        stale.send(ok);
        assert!(client.receive_responses(1, PATIENCE));
        client.send(head.as_bytes(), PATIENCE);
        client.send(&body, PATIENCE);
        assert!(stale.receive_until(|bytes| contains(bytes, b"PUT /p")));
        stale.reset();
        let mut fresh = backend
            .accept_within(PATIENCE)
            .expect("it is sent again on a fresh connection");
        assert!(fresh.receive_until(|bytes| contains_body(bytes, body.len())));
        assert!(fresh.received.ends_with(&body), "the body has changed");
        fresh.send(ok);
        assert!(client.receive_responses(2, PATIENCE));
        assert_eq!(client.parsed().responses[1].status, 200);
    });
}

/// A client that was never invited does not send its body after a final answer: what comes next is
/// its next request. The first bytes of it were thrown away as the body that was owed, and the rest
/// read as a request.
#[test]
fn i11_what_follows_an_answer_to_an_uninvited_body_is_not_cut_to_another_request() {
    on_every_engine(|engine| {
        let upstream = Upstream::start();
        upstream.set_script(Script {
            answers: vec![vec![Step::Send(
                b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_vec(),
            )]],
            when: When::AfterHead,
            ..Script::default()
        });
        let toron = start(engine, &upstream.addr, &[("stream_request_body", "true")]);
        let innocent = "GET /innocent?";
        let head = format!(
            "POST /a HTTP/1.1\r\nHost: t.example\r\nContent-Length: {}\r\n\
             Expect: 100-continue\r\n\r\n",
            innocent.len()
        );
        let mut client = connect(&toron);
        client.send(head.as_bytes(), PATIENCE);
        assert!(client.receive_responses(1, PATIENCE));
        let next = format!("{innocent}GET /smuggled HTTP/1.1\r\nHost: t.example\r\n\r\n");
        client.send(next.as_bytes(), PATIENCE);
        assert!(client.receive_until_end(PATIENCE), "the connection ends");
        let first = &client.parsed().responses[0];
        assert_eq!(first.status, 401);
        assert_eq!(first.head.all("connection"), ["close"]);
        assert_eq!(client.parsed().responses.len(), 1);
        let targets: Vec<String> = upstream
            .connections()
            .iter()
            .flat_map(|c| c.heads().map(|h| h.target().to_owned()).collect::<Vec<_>>())
            .collect();
        assert_eq!(targets, ["/a"]);
    });
}

/// Trailers beyond their limit were answered like malformed ones.
#[test]
fn trailers_beyond_their_limit_are_431() {
    on_every_engine(|engine| {
        for stream in ["false", "true"] {
            let upstream = Upstream::start();
            let toron = start(engine, &upstream.addr, &[("stream_request_body", stream)]);
            let mut client = connect(&toron);
            client.send(
                b"POST /a HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                  5\r\nhello\r\n0\r\n",
                PATIENCE,
            );
            let trailer = format!("X-T: {}\r\n\r\n", "a".repeat(5000));
            client.send(trailer.as_bytes(), PATIENCE);
            assert!(client.receive_responses(1, PATIENCE));
            let response = client.parsed().responses.remove(0);
            let body = &br#"{"error":"431 Request Header Fields Too Large"}"#[..];
            assert_eq!((response.status, response.body.as_slice()), (431, body));
            assert!(client.receive_until_end(PATIENCE));
        }
    });
}

/// An answer longer than a buffer lost its rest when it came while an interim response was on its
/// way; the connection was kept, so that the next response was read as its rest.
#[test]
fn i32_a_long_answer_behind_an_interim_response_is_whole() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let text = "x".repeat(200_000);
        let answer = format!("{{ status: 504, body: {text} }}");
        let route = [
            ("header_deadline", "1s"),
            ("header_deadline_response", answer.as_str()),
        ];
        let toron = start(engine, &backend.addr, &route);
        let mut client = Client::connect_with_window(toron.addr, 4096).unwrap();
        client.send(b"GET /a HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
        let mut peer = backend.accept();
        peer.receive_head();
        let interim = format!(
            "HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n",
            "y".repeat(7000)
        );
        let quiet = Duration::from_millis(300);
        peer.stream.set_write_timeout(Some(quiet)).unwrap();
        use std::io::Write as _;
        while peer.stream.write_all(interim.as_bytes()).is_ok() {}
        assert!(peer.ends_within(PATIENCE), "the deadline ends it");
        // Megabytes of interim responses are read only once.
        let whole = client.receive_until(PATIENCE, |c| c.received.ends_with(text.as_bytes()));
        let end = String::from_utf8_lossy(&client.received[client.received.len() - 100..]);
        assert!(whole, "{} bytes, ending with {end}", client.received.len());
        let response = client.parsed().responses.remove(0);
        assert_eq!((response.status, response.body.len()), (504, text.len()));
    });
}

/// Each byte behind a request held a buffer for as long as the request lasted: a few thousand
/// clients of a slow route emptied the pool for all.
#[test]
fn i35_a_few_bytes_behind_a_request_hold_no_buffer() {
    on_every_engine(|engine| {
        let upstream = Upstream::start();
        upstream.set_script(Script {
            answers: vec![vec![Step::Hang]],
            repeat_last: true,
            then: Then::Hang,
            ..Script::default()
        });
        // The test is not about what ends such a request.
        let route = [
            ("response_header_timeout", "60s"),
            ("max_concurrency", "100"),
        ];
        let toron = start(engine, &upstream.addr, &route);
        let whole = b"GET /slow HTTP/1.1\r\nHost: t.example\r\n\r\n";
        let mut clients: Vec<Client> = (0..60).map(|_| connect(&toron)).collect();
        for (i, client) in clients.iter_mut().enumerate() {
            let with = if i % 2 == 0 { &b"GET /n"[..] } else { b"" };
            client.send(&[&whole[..], with].concat(), PATIENCE);
        }
        let all = |c: &[Connection]| c.iter().map(|c| c.requests.len()).sum::<usize>() == 60;
        assert!(upstream.wait_for(PATIENCE, all));
        for client in clients.iter_mut().skip(1).step_by(2) {
            client.send(b"GET /n", PATIENCE);
        }
        await_readout(&toron, "buffers", |now| now.buffers < 10);
        // And what comes later belongs behind them.
        upstream.begin(Script::default());
        for client in &mut clients {
            client.send(b"ext HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
            assert!(client.receive_responses(2, PATIENCE));
            let statuses: Vec<u16> = client.parsed().responses.iter().map(|r| r.status).collect();
            assert_eq!(statuses, [502, 200]);
        }
    });
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A malformed chunk in the segment of the head: the client got a closed connection without a byte, and
/// the log said 200. The request has been carried out, so that it is not sent again.
#[test]
fn i27_a_malformed_chunk_that_comes_with_its_head_is_a_502() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = start(engine, &backend.addr, &[("retries", "2")]);
        for version in ["1.0", "1.1"] {
            let mut client = connect(&toron);
            let request = format!("GET /p HTTP/{version}\r\nHost: t.example\r\n\r\n");
            client.send(request.as_bytes(), PATIENCE);
            let mut peer = backend.accept();
            peer.receive_head();
            peer.send(&[CHUNKED, b"2\r\nok\r\nzz\r\n"].concat());
            // On a second connection nobody would answer.
            assert!(client.receive_responses(1, PATIENCE));
            let response = &client.parsed().responses[0];
            assert_eq!(response.status, 502);
            let body = r#"{"error":"502 Bad Gateway: Invalid upstream response"}"#;
            assert_eq!(String::from_utf8_lossy(&response.body), body);
            await_readout(&toron, "the end", |r| r.upstream_connections == 0);
        }
    });
}

/// Behind a head that has gone out, it cuts the response.
#[test]
fn i31_a_malformed_chunk_behind_its_head_cuts_the_response() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = start(engine, &backend.addr, &[]);
        let mut client = connect(&toron);
        client.send(b"GET /p HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
        let mut peer = backend.accept();
        peer.receive_head();
        peer.send(CHUNKED);
        let has_head = |client: &Client| contains(&client.received, b"\r\n\r\n");
        assert!(client.receive_until(PATIENCE, has_head));
        peer.send(b"zz\r\n");
        assert!(client.receive_until_end(PATIENCE));
        let responses = client.parsed().responses;
        assert_eq!(responses.len(), 1);
        assert_eq!((responses[0].status, responses[0].complete), (200, false));
    });
}

/// One urgent byte (`MSG_OOB`) stopped a body that moved by splice, which does not pass it, though all the
/// rest had come: on epoll nothing went on, on io_uring the reactor asked again without end. TCP takes the
/// urgent byte itself out of the stream.
#[test]
fn an_urgent_byte_does_not_stop_an_upload() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = start(engine, &backend.addr, &[]);
        let body: Vec<u8> = (0..400_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let (begin, rest) = body.split_at(100_000);
        let head = format!(
            "PUT /p HTTP/1.1\r\nHost: t.example\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let stream = TcpStream::connect(toron.addr).unwrap();
        let mut client = Client::over(stream.try_clone().unwrap());
        client.send(&[head.as_bytes(), begin].concat(), PATIENCE);
        let mut peer = backend.accept();
        assert!(peer.receive_until(|bytes| contains_body(bytes, begin.len())));
        send_urgent(&stream);
        client.send(rest, PATIENCE);
        assert!(peer.receive_until(|bytes| contains_body(bytes, body.len())));
        assert!(peer.received.ends_with(&body), "the body has changed");
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert!(client.receive_responses(1, PATIENCE));
        assert_eq!(client.parsed().responses[0].status, 200);
    });
}

/// The same from an upstream.
#[test]
fn an_urgent_byte_does_not_stop_a_download() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = start(engine, &backend.addr, &[]);
        let body: Vec<u8> = (0..400_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let (begin, rest) = body.split_at(100_000);
        let mut client = connect(&toron);
        client.send(b"GET /p HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
        let mut peer = backend.accept();
        peer.receive_head();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        peer.send(&[head.as_bytes(), begin].concat());
        let has = |client: &Client, len| contains_body(&client.received, len);
        assert!(client.receive_until(PATIENCE, |client| has(client, begin.len())));
        send_urgent(&peer.stream);
        peer.send(rest);
        assert!(client.receive_until(PATIENCE, |client| has(client, body.len())));
        assert!(client.received.ends_with(&body), "the body has changed");
    });
}

fn send_urgent(stream: &TcpStream) {
    assert_eq!(SockRef::from(stream).send_out_of_band(b"!").unwrap(), 1);
}
