//! S2: a steady upload is cut by a timeout meant for silence. S3: the upstream answers early.
//! S4: Expect: 100-continue, three parties waiting for each other.

use std::time::{Duration, Instant};

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::http::End;
use crate::support::setup::{Engine, Route, Settings};
use crate::support::toron::Toron;
use crate::support::upstream::{Script, Step, Then, Upstream, When};
use crate::support::{contains, show, PATIENCE};
use crate::{connect, on_every_engine, pattern, post};

// S2

const S2_BODY: usize = 1_000_000;
const S2_PIECE: usize = 20_000;
/// Ten pieces a second: 200 KB/s.
const S2_PACE: Duration = Duration::from_millis(100);

/// Sends a body at a constant rate, until it is whole or an answer comes.
fn send_steadily(client: &mut Client, body: &[u8]) {
    for piece in body.chunks(S2_PIECE) {
        client.send(piece, PATIENCE);
        if client.receive(usize::MAX, Instant::now() + S2_PACE) || client.end.is_some() {
            return;
        }
    }
}

fn s2_steady_upload(engine: Engine) {
    let upstream = Upstream::start();
    let limited = {
        let mut route = Route::new("/limited", &upstream.addr);
        route.extra.push(("request_deadline", "2s".into()));
        route
    };
    let mut settings = Settings::new(engine, vec![Route::new("/", &upstream.addr), limited]);
    settings
        .transport
        .push(("response_header_timeout", "1s".into()));
    settings.server.push(("read_timeout", "1s".into()));
    let toron = Toron::start(&settings);
    let body = pattern(S2_BODY);

    let mut client = connect(&toron);
    client.send(&post("/upload", S2_BODY), PATIENCE);
    send_steadily(&mut client, &body);
    assert!(client.receive_responses(1, PATIENCE), "{:?}", client.end);
    assert_eq!(client.parsed().responses[0].status, 200);
    let request = upstream.connections().remove(0).requests.remove(0);
    assert!(request.body == body, "the body has changed on its way");

    // The deadline of the route holds all the same: at two of five seconds.
    upstream.begin(Script::default());
    let mut client = connect(&toron);
    client.send(&post("/limited", S2_BODY), PATIENCE);
    send_steadily(&mut client, &body);
    assert!(client.receive_responses(1, PATIENCE), "{:?}", client.end);
    let parsed = client.parsed();
    let error = "{\"error\":\"504 Gateway Timeout: Request deadline exceeded\"}";
    let got = (
        parsed.responses[0].status,
        String::from_utf8_lossy(&parsed.responses[0].body),
    );
    assert_eq!(got, (504, error.into()));
    assert!(client.sent.len() < S2_BODY, "cut only when all was sent");
    let over = upstream.wait_for(PATIENCE, |all| all.iter().all(|c| c.ended.is_some()));
    assert!(over, "the upstream goes on waiting");
    assert!(upstream.connections()[0].requests.is_empty());
}

#[test]
fn s2_i18_i24_i33_steady_upload_on_epoll() {
    s2_steady_upload(Engine::Epoll);
}

#[test]
fn s2_i18_i24_i33_steady_upload_on_io_uring() {
    s2_steady_upload(Engine::IoUring);
}

// S3

const S3_RUNS: usize = 50;
const S3_BODY: usize = 5_000_000;

fn announces_close(client: &Client) -> bool {
    let parsed = client.parsed();
    let response = parsed.responses.first();
    response.is_some_and(|r| r.head.all("connection").contains(&"close"))
}

fn s3_early_answer(engine: Engine, then: Then) {
    let upstream = Upstream::start();
    let answer = b"HTTP/1.1 413 Too Big\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbig!";
    upstream.begin(Script {
        answers: vec![vec![Step::Send(answer.to_vec())]],
        repeat_last: true,
        when: When::AfterHead,
        then,
    });
    let toron = Toron::start(&Settings {
        max_body_bytes: Some(0),
        ..Settings::new(engine, vec![Route::new("/", &upstream.addr)])
    });
    let body = vec![b'b'; S3_BODY];
    for run in 0..S3_RUNS {
        let mut client = connect(&toron);
        client.send(&post("/upload", S3_BODY), PATIENCE);
        client.send(&body, PATIENCE);
        assert_eq!(client.send_error, None, "run {run}: a write failed");
        client.receive_responses(1, PATIENCE);
        // A body that the sockets' buffers have taken whole before the answer came is consumed: the
        // client's connection may be kept then.
        if announces_close(&client) {
            client.receive_until_end(PATIENCE);
            assert_eq!(client.end, Some(End::Fin), "run {run}: {then:?}");
        }
        let parsed = client.parsed();
        let got: Vec<_> = parsed
            .responses
            .iter()
            .map(|r| (r.status, show(&r.body)))
            .collect();
        assert_eq!(got, [(413, "big!".to_owned())], "run {run}: {then:?}");
    }
    let connections = upstream.connections();
    assert_eq!(connections.len(), S3_RUNS);
    for connection in connections {
        assert_eq!(connection.heads().count(), 1, "used again");
    }
}

/// The upstream closes at once, or goes on reading for a while as careful servers do.
#[test]
fn s3_i30_an_early_answer_is_relayed() {
    on_every_engine(|engine| {
        s3_early_answer(engine, Then::Close);
        s3_early_answer(engine, Then::Reset);
        s3_early_answer(engine, Then::CloseAfter(Duration::from_millis(50)));
    });
}

// S4: nobody may wait for ever.

/// Above 64 KiB, so that it is streamed and the expectation goes along.
const S4_BODY: usize = 100_000;

fn s4_head() -> Vec<u8> {
    let mut head = post("/upload", S4_BODY);
    head.truncate(head.len() - 2);
    head.extend_from_slice(b"Expect: 100-continue\r\n\r\n");
    head
}

/// A client that sends no body byte before the 100, and what the upstream gets and says.
fn s4_body_follows_the_100(engine: Engine, upstream_says_100: bool) {
    let backend = Backend::start();
    let toron = Toron::start(&Settings::new(engine, vec![Route::new("/", &backend.addr)]));
    let mut client = connect(&toron);
    client.send(&s4_head(), PATIENCE);
    let mut peer = backend.accept();
    peer.receive_head();
    let expects = contains(
        &peer.received.to_ascii_lowercase(),
        b"expect: 100-continue\r\n",
    );
    assert!(expects, "{}", show(&peer.received));
    let head = peer.received.len();
    if upstream_says_100 {
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n");
    }
    let invited = client.receive_until(PATIENCE, |c| c.parsed().interim.len() == 1);
    assert!(invited, "no 100: {}", show(&client.received));
    client.send(&pattern(S4_BODY), PATIENCE);
    assert!(peer.receive_until(|got| got.len() == head + S4_BODY));
    assert!(peer.received[head..] == pattern(S4_BODY), "another body");
    peer.send(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    assert!(client.receive_responses(1, PATIENCE));
    let response = client.parsed().responses.remove(0);
    assert_eq!((response.status, response.interim.len()), (201, 1));
}

fn s4_final_answer_instead_of_the_100(engine: Engine) {
    let backend = Backend::start();
    let toron = Toron::start(&Settings::new(engine, vec![Route::new("/", &backend.addr)]));
    let mut client = connect(&toron);
    client.send(&s4_head(), PATIENCE);
    let mut peer = backend.accept();
    peer.receive_head();
    peer.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
    assert!(client.receive_responses(1, PATIENCE), "{:?}", client.end);
    let response = client.parsed().responses.remove(0);
    assert_eq!(
        (response.status, response.body.as_slice()),
        (401, &b"no"[..])
    );
    assert_eq!(response.interim.len(), 0, "the body was invited after all");
    // The body is still owed: what comes now is not a request.
    client.send(
        b"GET /not-a-request HTTP/1.1\r\nHost: t.example\r\n\r\n",
        PATIENCE,
    );
    assert!(
        client.receive_until_end(PATIENCE),
        "kept open for an owed body"
    );
    assert_eq!(client.parsed().responses.len(), 1);
    assert!(peer.wait_end().is_some(), "the upstream's connection stays");
    assert!(!contains(&peer.received, b"not-a-request"));
}

#[test]
fn s4_i11_expect_100_continue() {
    on_every_engine(|engine| {
        s4_body_follows_the_100(engine, true);
        s4_body_follows_the_100(engine, false);
        s4_final_answer_instead_of_the_100(engine);
    });
}
