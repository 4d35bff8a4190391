//! Upstreams that people run, behind toron on both engines: nginx, Node's http, Python's http.server
//! and uvicorn; asked by a raw client, curl and Python's http.client.
//!
//! `make tools` installs what they are made of.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "real_upstreams/checks.rs"]
mod checks;
#[path = "real_upstreams/clients.rs"]
mod clients;
#[path = "real_upstreams/origins.rs"]
mod origins;
mod support;
#[path = "real_upstreams/websocket.rs"]
mod websocket;

use std::time::Duration;

use checks::{body, connect, next, one};
use origins::Origin;
use support::http::Response;
use support::setup::{both, Engine, Route, Settings};
use support::toron::Toron;
use support::PATIENCE;

const REACTORS: u32 = 2;

/// toron with all of `origin` at `/`, and again behind `/app`, which is stripped.
fn front(engine: Engine, origin: &Origin) -> Toron {
    front_with(engine, origin, &[])
}

fn front_with(engine: Engine, origin: &Origin, extra: &[(&'static str, &str)]) -> Toron {
    let mut app = Route::new("/app", &origin.addr);
    app.strip_prefix = true;
    app.extra = extra
        .iter()
        .map(|(key, value)| (*key, (*value).to_owned()))
        .collect();
    let mut settings = Settings::new(engine, vec![Route::new("/", &origin.addr), app]);
    settings.worker_pool_size = REACTORS as usize;
    settings.max_body_bytes = Some(0);
    Toron::start(&settings)
}

/// What all four can do.
fn common(toron: &Toron, origin: &Origin) {
    println!("{} at {}", origin.name, origin.addr);
    clients::small_things_of_curl(toron);
    clients::login_of_curl(toron);
    clients::transfers_of_curl(toron, origin);
    clients::http_client(toron, origin);
}

/// What the applications of Node, uvicorn and Python do alike; `go` is the request that lets the next event come.
fn plain_things(toron: &Toron, go: &str) {
    let before: u32 = body(&one(toron, "GET /connections")).parse().unwrap();
    checks::connections_are_kept(toron, before + REACTORS - 1);
    checks::bodiless(toron, "\"1\"");
    checks::echo(toron.addr, "/app/echo");
    checks::events(toron, "/app/events", go);
}

fn upload(path: &str, length: usize, fields: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: t.example\r\nContent-Length: {length}\r\n{fields}\r\n")
        .into_bytes()
}

/// An upstream that answers without reading the body: its answer is what the client gets.
fn refused_early(toron: &Toron, path: &str) {
    for _ in 0..5 {
        let mut client = connect(toron);
        client.send(&upload(path, 8 << 20, ""), PATIENCE);
        client.send(&vec![b'x'; 8 << 20], PATIENCE);
        assert!(
            client.receive_responses(1, PATIENCE),
            "no answer: {:?}",
            client.end
        );
        assert_eq!(client.parsed().responses[0].status, 413);
    }
}

/// A client that sends the body when it has been told to go on.
fn continued(toron: &Toron, path: &str) -> Response {
    let mut client = connect(toron);
    client.send(&upload(path, 6, "Expect: 100-continue\r\n"), PATIENCE);
    let told = client.receive_until(PATIENCE, |c| {
        let parsed = c.parsed();
        !parsed.interim.is_empty() || !parsed.responses.is_empty()
    });
    assert!(told, "neither told to go on nor answered: {:?}", client.end);
    if client.parsed().responses.is_empty() {
        client.send(b"sesame", PATIENCE);
    }
    assert!(
        client.receive_responses(1, PATIENCE),
        "no answer: {:?}",
        client.end
    );
    client.parsed().responses.remove(0)
}

/// A response that ends before its end is not made whole.
fn cut(toron: &Toron, path: &str) {
    let mut client = connect(toron);
    client.send(
        format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n").as_bytes(),
        PATIENCE,
    );
    assert!(
        client.receive_until_end(PATIENCE),
        "{path}: the connection stays open"
    );
    let responses = client.parsed().responses;
    let response = responses.first().expect("what had come");
    assert_eq!((response.status, response.complete), (200, false), "{path}");
    assert_eq!(response.body, [b'x'; 100], "{path}");
}

#[test]
fn r10_r13_r14_r15_node() {
    let origin = origins::node();
    both(|engine| {
        let toron = front(engine, &origin);
        plain_things(&toron, "GET /go");
        websocket::converse(toron.addr, "/app/ws");
        common(&toron, &origin);
        let trailed = one(&toron, "GET /pieces\r\nTE: trailers\r\n");
        assert_eq!(trailed.head.first("trailer"), Some("X-Pieces"));
        let hinted = one(&toron, "GET /hints");
        let told: Vec<_> = hinted
            .interim
            .iter()
            .map(|h| h.start_line.as_str())
            .collect();
        assert_eq!(
            (told, body(&hinted)),
            (vec!["HTTP/1.1 103 Early Hints"], "hinted".to_owned())
        );
        let answer = continued(&toron, "/app/echo");
        assert_eq!((answer.status, body(&answer)), (200, "sesame".to_owned()));
        assert_eq!(continued(&toron, "/refuse").status, 413);
        refused_early(&toron, "/refuse");
        cut(&toron, "/cut-length");
        cut(&toron, "/cut-chunked");
        closed_before_an_answer(&toron);
    });
}

/// The upstream takes a request and goes: it is not sent again if it may have been executed.
fn closed_before_an_answer(toron: &Toron) {
    let hits = || -> u32 { body(&one(toron, "GET /hits")).parse().unwrap() };
    let before = hits();
    assert_eq!(
        one(toron, "POST /cut-before\r\nContent-Length: 0\r\n").status,
        502
    );
    assert_eq!(hits(), before + 1, "a POST was sent again");
    assert_eq!(one(toron, "GET /cut-before").status, 502);
    assert!(hits() > before + 1);
}

#[test]
fn r10_r12_r13_r14_r15_uvicorn() {
    let origin = origins::uvicorn("60");
    both(|engine| {
        let toron = front(engine, &origin);
        plain_things(&toron, "GET /go");
        websocket::converse(toron.addr, "/app/ws");
        common(&toron, &origin);
        let answer = continued(&toron, "/app/echo");
        assert_eq!((answer.status, body(&answer)), (200, "sesame".to_owned()));
        refused_early(&toron, "/refuse");
        // uvicorn reads X-Forwarded-For and X-Forwarded-Proto of whom it trusts.
        let forged =
            "GET /app/whoami\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n";
        let seen: serde_json::Value = serde_json::from_slice(&one(&toron, forged).body).unwrap();
        let wanted = serde_json::json!({
            "client": "127.0.0.1", "scheme": "http", "host": "t.example", "prefix": "/app",
            "path": "/whoami",
        });
        assert_eq!(seen, wanted);
    });
    assert!(
        !origin.log().iter().any(|line| line.contains("ERROR")),
        "{:?}",
        origin.log()
    );
}

/// An upstream whose patience with idle connections is about the pause between two requests: which of
/// the two is first is chance, and no request may notice.
#[test]
fn r17_r21_uvicorn_that_closes_idle_connections() {
    let origin = origins::uvicorn("0.05");
    both(|engine| {
        let toron = front(engine, &origin);
        let mut client = connect(&toron);
        for n in 0..30 {
            std::thread::sleep(Duration::from_micros(45_000 + n % 11 * 1000));
            let answer = next(&mut client, "GET /hello");
            assert_eq!(
                (answer.status, body(&answer)),
                (200, "hello".to_owned()),
                "request {n}"
            );
        }
    });
}

#[test]
fn r9_r10_r13_r15_python() {
    let origin = origins::python();
    both(|engine| {
        let toron = front(engine, &origin);
        plain_things(&toron, "POST /go\r\nContent-Length: 0\r\n");
        common(&toron, &origin);
        let whole = one(&toron, "GET /until-close");
        assert_eq!(whole.head.first("transfer-encoding"), Some("chunked"));
        assert_eq!(body(&whole), "until the end");
        let moved = one(&toron, "GET /app/folder");
        assert_eq!(
            (moved.status, moved.head.first("location")),
            (301, Some("/app/folder/"))
        );
    });
}

/// HTTP/1.0: one request a connection.
#[test]
fn r9_r13_python_m_http_server() {
    let origin = origins::plain_python();
    both(|engine| {
        let toron = front(engine, &origin);
        let mut client = connect(&toron);
        let folder = next(&mut client, "GET /app/folder/");
        assert_eq!(folder.status, 200);
        assert!(body(&folder).contains("Directory listing"));
        let moved = next(&mut client, "GET /app/folder");
        assert_eq!(
            (moved.status, moved.head.first("location")),
            (301, Some("/app/folder/"))
        );
        assert_eq!(next(&mut client, "HEAD /files-that-are-not").status, 404);
        let date = folder_date(&mut client);
        let unchanged = next(
            &mut client,
            &format!("GET /big\r\nIf-Modified-Since: {date}\r\n"),
        );
        assert_eq!(unchanged.status, 304);
        client.send(
            b"GET /big HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
            PATIENCE,
        );
        assert!(client.receive_until_end(PATIENCE), "no end");
        let responses = client.parsed().responses;
        assert!(responses.last().unwrap().body == origin.big(), "it differs");
    });
}

/// When the large file was last changed.
fn folder_date(client: &mut support::client::Client) -> String {
    let head = next(client, "HEAD /big").head;
    head.first("last-modified").unwrap().to_owned()
}

#[test]
fn r10_r13_r14_r15_nginx() {
    let behind = origins::node();
    let origin = origins::nginx(&behind);
    both(|engine| {
        let toron = front(engine, &origin);
        let tag = one(&toron, "HEAD /unchanged").head;
        checks::bodiless(&toron, tag.first("etag").unwrap());
        // No echo: nginx does not read an answer while it sends a request.
        checks::events(&toron, "/app/node/events", "GET /node/go");
        websocket::converse(toron.addr, "/app/node/ws");
        common(&toron, &origin);
        nginx_counts(&toron);
        refused_early(&toron, "/small");
        // 444: nginx closes the connection and says nothing.
        assert_eq!(one(&toron, "GET /gone").status, 502);
    });
}

/// nginx numbers its connections, and what comes on each.
fn nginx_counts(toron: &Toron) {
    let mut client = connect(toron);
    let mut ids: Vec<String> = (0..20)
        .map(|_| body(&next(&mut client, "GET /connections")))
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "one client on one reactor: {ids:?}");
    // One that is used three times, and closed by nginx.
    for n in 0..20 {
        let answer = next(&mut client, "GET /few");
        assert_eq!(answer.status, 200, "request {n}");
    }
}

/// nginx adds a slash by a redirect to itself, by the name it was asked for and its own port, unless
/// told otherwise: what has to be set for a stripped prefix.
#[test]
fn r9_nginx_adds_a_slash_behind_a_stripped_prefix() {
    let behind = origins::node();
    let origin = origins::nginx(&behind);
    both(|engine| {
        let moved = |toron: &Toron, path: &str| {
            let answer = one(toron, &format!("GET {path}"));
            assert_eq!(answer.status, 301, "{path}");
            answer.head.first("location").unwrap().to_owned()
        };
        let toron = front(engine, &origin);
        assert_eq!(moved(&toron, "/app/relative/inner"), "/app/relative/inner/");
        let other = format!("http://t.example:{}/folder/inner/", origin.addr.port());
        assert_eq!(moved(&toron, "/app/folder/inner"), other);
        let toron = front_with(engine, &origin, &[("preserve_host", "false")]);
        assert_eq!(
            moved(&toron, "/app/folder/inner"),
            "http://t.example/app/folder/inner/"
        );
    });
}
