//! The main rules about time on real sockets, on both engines. What each does to the tick is held
//! with a clock that is made up (`tests/simulation/timing`); here only what comes of it counts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::{Duration, Instant};

use support::client::Client;
use support::http::{End, Head};
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::{Connection, Script, Step, Then, Upstream, When};
use support::{contains, show, PATIENCE};

/// Each test on both engines.
macro_rules! on_both_engines {
    ($($name:ident)*) => { $(
        mod $name {
            #[test]
            fn on_epoll() {
                super::$name(super::Engine::Epoll);
            }

            #[test]
            fn on_io_uring() {
                super::$name(super::Engine::IoUring);
            }
        }
    )* };
}

on_both_engines! {
    i18_a_body_that_stops_is_answered_408
    i20_a_body_below_the_rate_is_answered_408
    i21_a_steady_body_has_a_total_time
    i26_an_upstream_that_stalls_in_its_response
    i29_a_client_that_does_not_read
    i29_a_client_that_reads_slowly
    i32_a_header_deadline_with_an_answer_of_its_own
    i33_a_response_without_an_end
    i33_a_deadline_that_covers_upgrades
    i39_a_half_close_that_aborts
    i11_what_is_owed_is_drained
    i11_what_is_owed_does_not_come
}

struct Rig {
    upstream: Upstream,
    toron: Toron,
}

impl Rig {
    fn new(engine: Engine, route: &[(&'static str, &str)]) -> Rig {
        let upstream = Upstream::start();
        let mut settings = Settings::new(engine, vec![Route::new("/", &upstream.addr)]);
        let route = route.iter().map(|&(k, v)| (k, v.to_owned()));
        settings.routes[0].extra.extend(route);
        let toron = Toron::start(&settings);
        Rig { upstream, toron }
    }

    /// What the upstream does from now on as soon as it has seen a head.
    fn answers(&self, steps: Vec<Step>) {
        self.upstream.set_script(Script {
            answers: vec![steps],
            repeat_last: false,
            when: When::AfterHead,
            then: Then::Keep,
        });
    }

    fn client(&self, request: &str) -> Client {
        let mut client = Client::connect(self.toron.addr, PATIENCE).unwrap();
        client.send(request.as_bytes(), PATIENCE);
        client
    }

    fn upstream_has_request(&self) {
        let seen = self.upstream.wait_for(PATIENCE, |all| {
            all.iter().flat_map(Connection::heads).count() > 0
        });
        assert!(seen, "nothing came to the upstream");
    }

    /// toron has ended its connection to the upstream, on which no request was whole.
    fn upstream_was_cut(&self) {
        let ended = self
            .upstream
            .wait_for(PATIENCE, |all| all.iter().all(|c| c.ended.is_some()));
        assert!(ended, "the upstream connection stays open");
    }
}

fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n")
}

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

/// The one answer, and then the end of the connection.
fn assert_408(client: &mut Client) {
    assert!(client.receive_until_end(PATIENCE), "no end");
    let expected = b"HTTP/1.1 408 Request Timeout\r\n";
    let body = br#"{"error":"408 Request Timeout"}"#;
    let received = &client.received;
    assert!(
        received.starts_with(expected) && received.ends_with(body),
        "{}",
        show(received)
    );
}

fn i18_a_body_that_stops_is_answered_408(engine: Engine) {
    let rig = Rig::new(engine, &[("read_timeout", "300ms"), ("min_body_rate", "0")]);
    rig.answers(vec![Step::Hang]);
    let mut client = rig.client(&(post(100_000) + "begin"));
    assert_408(&mut client);
    rig.upstream_was_cut();
    assert!(rig
        .upstream
        .connections()
        .iter()
        .all(|c| c.requests.is_empty()));
}

fn i20_a_body_below_the_rate_is_answered_408(engine: Engine) {
    let rate = [("read_timeout", "1h"), ("min_body_rate", "1000000")];
    let rig = Rig::new(engine, &rate);
    rig.answers(vec![Step::Hang]);
    let mut client = rig.client(&(post(1_000_000) + &"x".repeat(2000)));
    assert_408(&mut client);
    rig.upstream_was_cut();
}

fn i21_a_steady_body_has_a_total_time(engine: Engine) {
    let rig = Rig::new(
        engine,
        &[("body_timeout", "500ms"), ("max_body_bytes", "2GiB")],
    );
    let mut client = rig.client(&post(1 << 30));
    let deadline = Instant::now() + PATIENCE;
    // Never a pause that another rule would mind.
    while client.received.is_empty() && client.end.is_none() {
        assert!(Instant::now() < deadline, "nobody minds");
        client.send(&[b'x'; 4096], PATIENCE);
        client.receive(4096, Instant::now() + Duration::from_millis(5));
    }
    // A 408 is not waited for, so a reset may overtake it where the client still sends.
    if client.end != Some(End::Reset) {
        let got = show(&client.received);
        assert!(client.received.starts_with(b"HTTP/1.1 408 "), "{got}");
    }
    rig.upstream_was_cut();
}

fn i26_an_upstream_that_stalls_in_its_response(engine: Engine) {
    let rig = Rig::new(engine, &[("upstream_idle_timeout", "300ms")]);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    rig.answers(vec![Step::Send(head.to_vec()), Step::Hang]);
    let mut client = rig.client(GET);
    assert!(client.receive_until_end(PATIENCE));
    let response = client.parsed().responses.remove(0);
    assert_eq!((response.status, response.complete), (200, false));
    rig.upstream_was_cut();
}

fn i29_a_client_that_does_not_read(engine: Engine) {
    for framing in ["Content-Length: 67108864", "Transfer-Encoding: chunked"] {
        let rig = Rig::new(engine, &[("write_timeout", "300ms")]);
        let mut bytes = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").into_bytes();
        if framing.contains("chunked") {
            bytes.extend_from_slice(b"4000000\r\n");
        }
        bytes.resize(bytes.len() + (64 << 20), b'x');
        rig.answers(vec![Step::Send(bytes)]);
        let _client = rig.client(GET);
        rig.upstream_has_request();
        // More than all buffers on the way hold: the upstream's write fails.
        let cut = rig.upstream.wait_for(PATIENCE, |all| {
            all.iter().any(|c| c.ended.is_some() || c.closed_here)
        });
        assert!(cut, "{framing}: the upstream connection stays open");
        let sent = rig.upstream.connections()[0].sent.len();
        assert!(sent < 64 << 20, "{framing}: {sent}");
    }
}

/// 200 KB a second: a send buffer that has grown to megabytes is not a third free for many windows.
fn i29_a_client_that_reads_slowly(engine: Engine) {
    let rig = Rig::new(engine, &[("write_timeout", "1s")]);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 << 20);
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + (64 << 20), b'x');
    rig.answers(vec![Step::Send(bytes)]);
    let mut client = rig.client(GET);
    rig.upstream_has_request();
    for _ in 0..50 {
        assert!(client.receive(20_000, Instant::now() + PATIENCE));
        // The rate is what the test is about.
        std::thread::sleep(Duration::from_millis(100));
    }
    let cut = |c: &Connection| c.ended.is_some() || c.closed_here;
    assert!(
        !rig.upstream.connections().iter().any(cut),
        "severed though it reads"
    );
}

fn i32_a_header_deadline_with_an_answer_of_its_own(engine: Engine) {
    let answer = "{status: 503, headers: {Retry-After: 10}, body: later}";
    let route = [
        ("header_deadline", "300ms"),
        ("header_deadline_response", answer),
    ];
    let rig = Rig::new(engine, &route);
    rig.answers(vec![Step::Hang]);
    let mut client = rig.client(GET);
    assert!(client.receive_responses(1, PATIENCE));
    let response = client.parsed().responses.remove(0);
    assert_eq!(
        (response.status, response.body.as_slice()),
        (503, &b"later"[..])
    );
    assert!(contains(&client.received, b"\r\nRetry-After: 10\r\n"));
    rig.upstream_was_cut();
    // The client's connection goes on.
    client.send(GET.as_bytes(), PATIENCE);
    assert!(client.receive_responses(2, PATIENCE));
    assert_eq!(client.parsed().responses[1].status, 200);
}

fn i33_a_response_without_an_end(engine: Engine) {
    let rig = Rig::new(engine, &[("request_deadline", "500ms")]);
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
    let mut steps = vec![Step::Send(head.to_vec())];
    // Longer than anybody would wait for it.
    for _ in 0..10_000 {
        steps.push(Step::Pause(Duration::from_millis(10)));
        steps.push(Step::Send(b"data: 2\n\n".to_vec()));
    }
    rig.answers(steps);
    let mut client = rig.client(GET);
    assert!(client.receive_until_end(PATIENCE), "it goes on");
    assert!(client.received.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert!(!client.parsed().responses[0].complete);
    rig.upstream_was_cut();
}

fn i33_a_deadline_that_covers_upgrades(engine: Engine) {
    let route = [
        ("request_deadline", "500ms"),
        ("request_deadline_covers_upgrades", "true"),
    ];
    let rig = Rig::new(engine, &route);
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: t\r\n\r\n";
    rig.answers(vec![
        Step::Send(switch.to_vec()),
        Step::Receive(b"ping".to_vec()),
        Step::Send(b"pong".to_vec()),
        Step::Hang,
    ]);
    let upgrade = "GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: t\r\n\r\nping";
    let mut client = rig.client(upgrade);
    let ponged = |c: &Client| contains(&c.received, b"pong");
    assert!(
        client.receive_until(PATIENCE, ponged),
        "{}",
        show(&client.received)
    );
    assert!(client.receive_until_end(PATIENCE), "the tunnel goes on");
    rig.upstream_was_cut();
}

fn i39_a_half_close_that_aborts(engine: Engine) {
    let rig = Rig::new(engine, &[("client_half_close", "abort")]);
    rig.answers(vec![Step::Hang]);
    let mut client = rig.client(GET);
    rig.upstream_has_request();
    client.shutdown_write();
    rig.upstream_was_cut();
    assert!(client.receive_until_end(PATIENCE));
    assert!(client.received.is_empty(), "{}", show(&client.received));
}

/// Short bodies are collected as a rule, and then nothing is owed.
const STREAMED: [(&str, &str); 1] = [("stream_request_body", "true")];
const UNAUTHORIZED: &[u8] = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";

/// What is owed looks like requests; not one of them is one.
fn i11_what_is_owed_is_drained(engine: Engine) {
    for owed in [1, 40_000] {
        let rig = Rig::new(engine, &STREAMED);
        rig.answers(vec![Step::Send(UNAUTHORIZED.to_vec())]);
        let evil = "GET /evil HTTP/1.1\r\nHost: t\r\n\r\n".repeat(owed / 10 + 1);
        let mut client = rig.client(&(post(owed + 5) + "hello"));
        assert!(client.receive_responses(1, PATIENCE));
        let head = String::from_utf8_lossy(&client.received).to_lowercase();
        assert!(!head.contains("connection: close"), "{head}");
        // In one write, so that it is there in time.
        let rest = evil[..owed].to_owned() + "GET /next HTTP/1.1\r\nHost: t\r\n\r\n";
        client.send(rest.as_bytes(), PATIENCE);
        client.receive_until(PATIENCE, |c| contains(&c.received, b"\r\n\r\nOK"));
        let connections = rig.upstream.connections();
        let targets: Vec<&str> = connections
            .iter()
            .flat_map(Connection::heads)
            .map(Head::target)
            .collect();
        // A machine that stands still for 100 ms closes the connection; it reads no request then.
        let kept = contains(&client.received, b"\r\n\r\nOK");
        assert!(kept || client.end.is_some(), "neither kept nor closed");
        let expected: &[&str] = if kept { &["/", "/next"] } else { &["/"] };
        assert_eq!(targets, expected);
    }
}

fn i11_what_is_owed_does_not_come(engine: Engine) {
    let rig = Rig::new(engine, &STREAMED);
    rig.answers(vec![Step::Send(UNAUTHORIZED.to_vec())]);
    let expects =
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n";
    let mut client = rig.client(expects);
    assert!(client.receive_until_end(PATIENCE), "it is waited for");
    assert!(client.received.starts_with(b"HTTP/1.1 401 "));
    client.send(b"0123456789GET /evil HTTP/1.1\r\nHost: t\r\n\r\n", PATIENCE);
    client.close();
    // A later request shows that the server has got beyond that.
    let mut next = rig.client(GET);
    assert!(next.receive_responses(1, PATIENCE));
    let connections = rig.upstream.connections();
    let mut heads = connections.iter().flat_map(Connection::heads);
    assert!(heads.all(|head| head.target() != "/evil"));
}
