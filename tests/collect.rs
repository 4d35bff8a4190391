//! Request bodies that are collected before the upstream is dialled, and those that are not (I11,
//! I35 to I37), with the real binary on both engines.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::Duration;

use support::client::Client;
use support::http::{Request, Response};
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::{Connection, Script, Step, Upstream, When};
use support::PATIENCE;

/// Time in which a dial would have been noticed.
const A_MOMENT: Duration = Duration::from_millis(100);

struct Place {
    upstream: Upstream,
    toron: Toron,
}

impl Place {
    fn client(&self) -> Client {
        Client::connect(self.toron.addr, PATIENCE).unwrap()
    }

    /// The one request that the upstream has got.
    fn request(&self) -> Request {
        let one = |all: &[Connection]| all.iter().any(|c| !c.requests.is_empty());
        assert!(self.upstream.wait_for(PATIENCE, one), "no request came");
        let mut all: Vec<Request> = self
            .upstream
            .connections()
            .into_iter()
            .flat_map(|c| c.requests)
            .collect();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn is_dialled(&self) -> bool {
        self.upstream.wait_for(A_MOMENT, |all| !all.is_empty())
    }
}

fn place(engine: Engine, route: &[(&'static str, &str)], server: &[(&'static str, &str)]) -> Place {
    let own = |list: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        list.iter().map(|&(k, v)| (k, v.to_owned())).collect()
    };
    let upstream = Upstream::start();
    let mut to = Route::new("/", &upstream.addr);
    to.extra = own(route);
    let mut settings = Settings::new(engine, vec![to]);
    settings.server.extend(own(server));
    let toron = Toron::start(&settings);
    Place { upstream, toron }
}

fn answer(client: &mut Client) -> Response {
    assert!(client.receive_responses(1, PATIENCE), "no whole response");
    client.parsed().responses.remove(0)
}

fn on_every_engine(test: fn(Engine)) {
    for engine in Engine::ALL {
        test(engine);
    }
}

#[test]
fn i37_a_short_body_is_whole_before_the_dial_and_comes_with_its_head() {
    on_every_engine(|engine| {
        let place = place(engine, &[], &[]);
        let mut client = place.client();
        let head = "PUT /a HTTP/1.1\r\nHost: t.example\r\nContent-Length: 10\r\n\r\n";
        client.send(head.as_bytes(), PATIENCE);
        client.send(b"01234", PATIENCE);
        assert!(!place.is_dialled());
        client.send(
            b"56789GET /next HTTP/1.1\r\nHost: t.example\r\n\r\n",
            PATIENCE,
        );
        assert!(client.receive_responses(2, PATIENCE), "both are answered");
        let seen: Vec<(String, Vec<u8>)> = place
            .upstream
            .connections()
            .into_iter()
            .flat_map(|c| c.requests)
            .map(|r| (r.head.target().to_owned(), r.body))
            .collect();
        let expected = [("/a", &b"0123456789"[..]), ("/next", b"")];
        assert_eq!(seen.len(), 2);
        for ((target, body), seen) in expected.iter().zip(&seen) {
            assert_eq!((*target, *body), (seen.0.as_str(), seen.1.as_slice()));
        }
    });
}

#[test]
fn i37_normalize_sends_a_length_and_drops_trailers() {
    on_every_engine(|engine| {
        let place = place(engine, &[], &[]);
        let mut client = place.client();
        let head = "POST /a HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\
                    Trailer: X-Sum\r\n\r\n5;a=b\r\nhello\r\n";
        client.send(head.as_bytes(), PATIENCE);
        assert!(!place.is_dialled());
        client.send(b"6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n", PATIENCE);
        assert_eq!(answer(&mut client).status, 200);
        let request = place.request();
        assert_eq!(request.body, b"hello world");
        assert_eq!(request.head.all("content-length"), ["11"]);
        for absent in ["transfer-encoding", "trailer", "x-sum"] {
            assert!(request.head.all(absent).is_empty(), "{absent}");
        }
    });
}

#[test]
fn i37_a_longer_body_is_sent_piece_by_piece_after_it_was_collected() {
    on_every_engine(|engine| {
        let place = place(engine, &[("stream_request_body", "false")], &[]);
        let body: Vec<u8> = (0..3_000_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut client = place.client();
        let head = format!(
            "POST /a HTTP/1.1\r\nHost: t.example\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.send(head.as_bytes(), PATIENCE);
        client.send(&body[..2_999_999], PATIENCE);
        assert!(!place.is_dialled());
        client.send(&body[2_999_999..], PATIENCE);
        assert_eq!(answer(&mut client).status, 200);
        assert!(place.request().body == body, "the body has changed");
    });
}

#[test]
fn i37_on_a_route_with_a_high_ceiling_a_longer_body_goes_on_in_chunks() {
    on_every_engine(|engine| {
        let route = [("max_body_bytes", "8MiB"), ("max_concurrency", "5")];
        let place = place(engine, &route, &[]);
        let body: Vec<u8> = (0..500_000_u32).map(|i| (i * 11 % 253) as u8).collect();
        let mut client = place.client();
        client.send(
            b"POST /a HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n",
            PATIENCE,
        );
        let chunk = |bytes: &[u8]| {
            let mut text = format!("{:x}\r\n", bytes.len()).into_bytes();
            text.extend_from_slice(bytes);
            text.extend_from_slice(b"\r\n");
            text
        };
        client.send(&chunk(&body[..60_000]), PATIENCE);
        assert!(!place.is_dialled(), "it may still be a short one");
        client.send(&chunk(&body[60_000..200_000]), PATIENCE);
        assert!(place.upstream.wait_for(PATIENCE, |all| !all.is_empty()));
        client.send(&chunk(&body[200_000..]), PATIENCE);
        client.send(b"0\r\nX-Sum: 1\r\n\r\n", PATIENCE);
        assert_eq!(answer(&mut client).status, 200);
        let request = place.request();
        assert!(request.body == body, "the body has changed");
        assert_eq!(request.head.all("transfer-encoding"), ["chunked"]);
    });
}

#[test]
fn i36_a_streamed_chunk_passes_before_the_next_has_come() {
    on_every_engine(|engine| {
        for route in [
            ("stream_request_body", "true"),
            ("inbound_chunked_mode", "passthrough"),
        ] {
            let place = place(engine, &[route], &[]);
            let mut client = place.client();
            client.send(
                b"POST /a HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                  5\r\nfirst\r\n",
                PATIENCE,
            );
            let came = |all: &[Connection]| all.iter().any(|c| ends_with(c, b"5\r\nfirst\r\n"));
            assert!(place.upstream.wait_for(PATIENCE, came), "{route:?}");
            client.send(b"0\r\n\r\n", PATIENCE);
            assert_eq!(answer(&mut client).status, 200);
        }
    });
}

fn ends_with(connection: &Connection, bytes: &[u8]) -> bool {
    connection.received.ends_with(bytes)
}

#[test]
fn i11_a_collected_request_gets_one_100_from_toron_and_the_upstream_no_expectation() {
    on_every_engine(|engine| {
        let place = place(engine, &[], &[]);
        let mut client = place.client();
        client.send(
            b"POST /a HTTP/1.1\r\nHost: t.example\r\nContent-Length: 5\r\n\
              Expect: 100-continue\r\n\r\n",
            PATIENCE,
        );
        let invited = b"HTTP/1.1 100 Continue\r\n\r\n";
        assert!(client.receive_until(PATIENCE, |c| c.received == invited));
        assert!(!place.is_dialled());
        client.send(b"hello", PATIENCE);
        let response = answer(&mut client);
        assert_eq!((response.status, response.interim.len()), (200, 1));
        assert!(place.request().head.all("expect").is_empty());
    });
}

#[test]
fn i11_a_streamed_request_takes_its_expectation_along() {
    on_every_engine(|engine| {
        let place = place(engine, &[("stream_request_body", "true")], &[]);
        place.upstream.set_script(Script {
            answers: vec![vec![Step::Send(
                b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_vec(),
            )]],
            when: When::AfterHead,
            ..Script::default()
        });
        let mut client = place.client();
        client.send(
            b"POST /a HTTP/1.1\r\nHost: t.example\r\nContent-Length: 500000\r\n\
              Expect: 100-continue\r\n\r\n",
            PATIENCE,
        );
        let response = answer(&mut client);
        assert_eq!((response.status, response.interim.len()), (401, 0));
        let heads: Vec<String> = place
            .upstream
            .connections()
            .iter()
            .flat_map(|c| c.heads().map(|h| h.all("expect").join(",")))
            .collect();
        assert_eq!(heads, ["100-continue"]);
    });
}

const EXHAUSTED: &[u8] = br#"{"error":"503 Service Unavailable: Buffer memory exhausted"}"#;

#[test]
fn i37_bodies_beyond_the_buffer_memory_are_refused_and_it_comes_back() {
    on_every_engine(|engine| {
        let place = place(
            engine,
            &[("stream_request_body", "false")],
            &[("buffer_memory", "200KiB")],
        );
        // Declared: refused before a byte of the body is read.
        let mut holder = place.client();
        let head = "POST /a HTTP/1.1\r\nHost: t.example\r\nContent-Length: 150000\r\n\r\n";
        holder.send(head.as_bytes(), PATIENCE);
        holder.send(&[b'x'; 1000], PATIENCE);
        let mut late = place.client();
        loop {
            late.send(head.as_bytes(), PATIENCE);
            // The holder's head may not have been read yet.
            if late.receive_until(A_MOMENT, |c| c.complete_responses() == 1) {
                break;
            }
            late = place.client();
        }
        let response = late.parsed().responses.remove(0);
        assert_eq!(
            (response.status, response.body.as_slice()),
            (503, EXHAUSTED)
        );
        assert_eq!(response.head.all("retry-after"), ["1"]);
        // Chunked: refused when it has become too much.
        let mut chunked = place.client();
        chunked.send(
            b"POST /a HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n\
              249f0\r\n",
            PATIENCE,
        );
        chunked.send(&[b'y'; 150_000], PATIENCE);
        let response = answer(&mut chunked);
        assert_eq!(
            (response.status, response.body.as_slice()),
            (503, EXHAUSTED)
        );
        assert!(!place.is_dialled());
        // The holder is not touched, and what it held comes back.
        holder.send(&vec![b'x'; 149_000], PATIENCE);
        assert_eq!(answer(&mut holder).status, 200);
        let mut next = place.client();
        next.send(head.as_bytes(), PATIENCE);
        next.send(&vec![b'x'; 150_000], PATIENCE);
        assert_eq!(answer(&mut next).status, 200);
    });
}

#[test]
fn i10_a_collected_chunked_body_above_the_ceiling_never_reaches_the_upstream() {
    on_every_engine(|engine| {
        let place = place(engine, &[("max_body_bytes", "1000")], &[]);
        let mut client = place.client();
        client.send(
            b"POST /a HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n",
            PATIENCE,
        );
        for _ in 0..3 {
            client.send(b"190\r\n", PATIENCE);
            client.send(&[b'z'; 400], PATIENCE);
            client.send(b"\r\n", PATIENCE);
        }
        let response = answer(&mut client);
        let body = &br#"{"error":"413 Payload Too Large"}"#[..];
        assert_eq!((response.status, response.body.as_slice()), (413, body));
        assert!(!place.is_dialled());
    });
}
