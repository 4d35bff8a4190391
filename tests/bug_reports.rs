//! What users of other proxies ran into (tests/cases/bug-reports.md), as tests named after it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::{Duration, Instant};

use support::client::Client;
use support::http::End;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::{Connection, Script, Upstream};
use support::{show, PATIENCE};

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n").into_bytes()
}

/// The status of one request on a connection of its own, or `None` without an answer in `limit`.
fn ask(toron: &Toron, path: &str, limit: Duration) -> Option<u16> {
    let mut client = Client::connect(toron.addr, limit).ok()?;
    client.send(&get(path), limit);
    client.receive_responses(1, limit);
    client.parsed().responses.first().map(|r| r.status)
}

// S1: the proxy's own 413 is lost in a reset.

const S1_BODY: usize = 5_000_000;

fn s1_own_413_survives(engine: Engine) {
    let upstream = Upstream::start();
    let mut settings = Settings::new(engine, vec![Route::new("/", &upstream.addr)]);
    settings.max_body_bytes = Some(1000);
    let toron = Toron::start(&settings);
    let head = format!("POST / HTTP/1.1\r\nHost: t.example\r\nContent-Length: {S1_BODY}\r\n\r\n");
    let body = vec![b'A'; S1_BODY];
    for run in 0..50 {
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        client.send(head.as_bytes(), PATIENCE);
        client.send(&body, PATIENCE);
        assert_eq!(client.send_error, None, "run {run}: a write failed");
        client.receive_until_end(PATIENCE);
        let parsed = client.parsed();
        let statuses: Vec<u16> = parsed.responses.iter().map(|r| r.status).collect();
        assert_eq!(statuses, [413], "run {run}: {:?}", show(&client.received));
        assert!(parsed.responses[0].complete, "run {run}: the 413 is cut");
        assert_eq!(client.end, Some(End::Fin), "run {run}");
    }
    assert!(
        upstream.connections().is_empty(),
        "a refused request was dialled for"
    );
}

#[test]
fn s1_own_413_survives_on_epoll() {
    s1_own_413_survives(Engine::Epoll);
}

#[test]
fn s1_own_413_survives_on_io_uring() {
    s1_own_413_survives(Engine::IoUring);
}

// S9: out of file descriptors, the accept loop spins.

const S9_DESCRIPTORS: u32 = 64;
const S9_IDLE: usize = 200;
const S9_STORM: Duration = Duration::from_secs(3);

fn s9_out_of_descriptors(engine: Engine) {
    let upstream = Upstream::start();
    let mut settings = Settings::new(engine, vec![Route::new("/", &upstream.addr)]);
    settings.descriptor_limit = Some(S9_DESCRIPTORS);
    let mut toron = Toron::start(&settings);
    let mut kept = Client::connect(toron.addr, PATIENCE).unwrap();
    kept.send(&get("/before"), PATIENCE);
    assert!(
        kept.receive_responses(1, PATIENCE),
        "no answer before the storm"
    );
    let lines = toron.process().log_lines().len();

    // Connections beyond the limit wait in the listener's backlog: connect succeeds all the same.
    let idle: Vec<Client> = (0..S9_IDLE)
        .filter_map(|_| Client::connect(toron.addr, Duration::from_secs(1)).ok())
        .collect();
    assert!(
        idle.len() > S9_DESCRIPTORS as usize,
        "only {} connections made",
        idle.len()
    );
    let (start, ticks) = (Instant::now(), toron.cpu_ticks());
    let mut answered = 1;
    while start.elapsed() < S9_STORM {
        kept.send(&get("/during"), Duration::from_secs(1));
        answered += 1;
        let came = kept.receive_responses(answered, Duration::from_secs(1));
        assert!(
            came,
            "the open connection was not answered within 1 s: {:?}",
            kept.end
        );
        let until = Instant::now() + Duration::from_millis(100);
        assert!(
            !kept.receive(1, until),
            "unasked bytes: {:?}",
            show(&kept.received)
        );
    }
    let percent = (toron.cpu_ticks() - ticks) as f64 / start.elapsed().as_secs_f64();
    let logged = toron.process().log_lines().len() - lines;
    let good = kept
        .parsed()
        .responses
        .iter()
        .all(|r| r.status == 200 && r.body == b"OK");
    assert!(good, "{:?}", show(&kept.received));

    drop(idle);
    let freed = Instant::now();
    // 2 s is what the report asks for; twice that leaves room for a loaded machine.
    while ask(&toron, "/after", Duration::from_millis(500)) != Some(200) {
        assert!(freed.elapsed() < Duration::from_secs(4), "no recovery");
    }
    println!(
        "{}: {percent:.1}% of a core, {logged} log lines, recovered in {:.1?}",
        engine.name(),
        freed.elapsed()
    );
    assert!(toron.process_mut().is_running());
    assert!(
        percent < 20.0,
        "{percent:.1}% of a core while out of descriptors"
    );
    assert!(logged < 50, "{logged} log lines while out of descriptors");
}

#[test]
fn s9_out_of_descriptors_on_epoll() {
    s9_out_of_descriptors(Engine::Epoll);
}

#[test]
fn s9_out_of_descriptors_on_io_uring() {
    s9_out_of_descriptors(Engine::IoUring);
}

// S13: encoded dots walk out of a route.

/// Ways up and down again, behind `/public` or `/private`. `{}` is where the other route's name goes.
const S13_WAYS: [&str; 22] = [
    "/{}",
    "/./{}",
    "/../{}/x",
    "/%2e%2e/{}/x",
    "/%2E%2E/{}/x",
    "/.%2e/{}/x",
    "/%2e./{}/x",
    "/..%2f{}/x",
    "/..%2F{}/x",
    "/%2e%2e%2f{}/x",
    "/%2e%2e%2F%2e%2e%2f{}/x",
    "/%252e%252e/{}/x",
    "/%252e%252e%252f{}/x",
    "/a/../../{}/x",
    "/a/%2e%2e/%2e%2e/{}/x",
    "/a/b%2f..%2f..%2f..%2f{}/x",
    "//../{}/x",
    "//%2e%2e//%2e%2e/{}/x",
    "/..;/{}/x",
    "/..\\{}/x",
    "/%2e%2e%5c{}/x",
    "/../../../../{}/x",
];

/// `%XY` decoded once, wherever it stands: the most that an upstream does to a path.
fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = path
            .get(at + 1..at + 3)
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match hex.filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The first segment after dot segments are removed (RFC 3986 §5.2.4), with repeated slashes as one.
fn resolves_under(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    segments.first().map_or(String::new(), |s| format!("/{s}"))
}

fn targets(connections: &[Connection]) -> Vec<String> {
    connections
        .iter()
        .flat_map(|c| &c.requests)
        .map(|r| r.head.target().to_owned())
        .collect()
}

fn s13_encoded_dots(engine: Engine) {
    let upstreams = [
        ("/public", Upstream::start()),
        ("/private", Upstream::start()),
    ];
    let routes = upstreams
        .iter()
        .map(|(prefix, u)| Route::new(prefix, &u.addr))
        .collect();
    let toron = Toron::start(&Settings::new(engine, routes));
    let mut arrived = 0;
    for (own, other) in [("public", "private"), ("private", "public")] {
        for way in S13_WAYS {
            let path = format!("/{own}{}", way.replace("{}", other));
            upstreams
                .iter()
                .for_each(|(_, u)| u.begin(Script::default()));
            let status = ask(&toron, &path, PATIENCE);
            assert!(
                matches!(status, Some(200 | 400 | 403 | 404)),
                "{path}: {status:?} is neither served nor refused"
            );
            for (prefix, upstream) in &upstreams {
                for target in targets(&upstream.connections()) {
                    arrived += 1;
                    for read in [target.clone(), decoded(&target)] {
                        let under = resolves_under(&read);
                        assert_eq!(&under, prefix, "{path} went as {target} to {prefix}");
                    }
                }
            }
        }
    }
    // Never decoded twice, and inner empty segments kept.
    for path in [
        "/public/%252e%252e/x",
        "/public//a//b",
        "/public/%2F/x",
        "/public/a%20b",
    ] {
        let (_, public) = &upstreams[0];
        public.begin(Script::default());
        assert_eq!(ask(&toron, path, PATIENCE), Some(200), "{path}");
        assert_eq!(targets(&public.connections()), [path]);
    }
    assert!(arrived > 0, "every path was refused: the legal ones too");
}

#[test]
fn s13_encoded_dots_on_epoll() {
    s13_encoded_dots(Engine::Epoll);
}

#[test]
fn s13_encoded_dots_on_io_uring() {
    s13_encoded_dots(Engine::IoUring);
}

/// The test's own reading of paths.
#[test]
fn s13_paths_are_read_as_upstreams_read_them() {
    assert_eq!(decoded("/a/%2e%2E%2f%zz%"), "/a/../%zz%");
    assert_eq!(resolves_under("/public/../private/x"), "/private");
    assert_eq!(resolves_under("/public//./a/../b"), "/public");
    assert_eq!(resolves_under("/public/../../.."), "");
}
