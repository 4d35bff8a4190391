//! The test origin on real sockets, on both engines.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "origin/client.rs"]
mod client;

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use client::{Client, Response};
use toron::origin::{pattern, run, Upstream, UpstreamArgs};
use toron_reactor::{EngineKind, ReactorStats};

/// How often a condition is looked at before a test gives up; 5 ms apart.
const LOOKS: usize = 4000;

/// A running origin.
struct Origin {
    upstream: Upstream,
    addr: SocketAddr,
}

fn args(engine: EngineKind) -> UpstreamArgs {
    UpstreamArgs {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        engine,
        reactors: 1,
    }
}

/// Runs a test on every engine that the kernel allows; afterwards nothing may be held.
fn on_both(test: impl Fn(&Origin)) {
    for engine in [EngineKind::Epoll, EngineKind::IoUring] {
        if let Err(error) = engine.choose() {
            eprintln!("not run on {engine:?}: {error}");
            continue;
        }
        let upstream = Upstream::start(&args(engine)).unwrap();
        let addr = upstream.addresses()[0];
        let origin = Origin { upstream, addr };
        test(&origin);
        origin.await_stats("nothing is held", |s| {
            (s.connections, s.engine.buffers, s.timers) == (0, 0, 0)
        });
        origin.upstream.stop(Duration::from_secs(5)).unwrap();
    }
}

impl Origin {
    fn connect(&self) -> Client {
        Client::to(self.addr)
    }

    fn await_stats(&self, what: &str, holds: impl Fn(&ReactorStats) -> bool) {
        let mut last = None;
        for _ in 0..LOOKS {
            let stats = self.upstream.pool().stats();
            if stats.iter().all(&holds) {
                return;
            }
            last = Some(stats);
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("not so: {what}: {last:?}");
    }

    fn curl(&self, target: &str, options: &[&str]) -> Vec<u8> {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "20"])
            .args(options)
            .arg(format!("http://{}{target}", self.addr))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{target}: {output:?}");
        output.stdout
    }
}

fn patterned(n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    pattern::fill(0, &mut bytes);
    bytes
}

/// Not `assert_eq`, which would print megabytes.
fn assert_same(what: &str, got: &[u8], expected: &[u8]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let differs = got.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}");
}

fn post(target: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn assert_closed(client: &mut Client) {
    assert_eq!(client.rest(), b"");
}

#[test]
fn patterns_of_every_length_on_one_connection() {
    on_both(|origin| {
        let mut client = origin.connect();
        for n in [0, 1, 65_535, 65_536, 65_537, 5_000_003] {
            let response = client.get(&format!("/bytes/{n}"));
            assert_eq!(response.status, 200);
            assert_same("bytes", &response.body, &patterned(n));
        }
        for (n, query) in [
            (0, ""),
            (1, ""),
            (100_003, "?chunk=7"),
            (3_000_001, "?chunk=32768"),
            (2_000_001, ""),
        ] {
            let response = client.get(&format!("/chunked/{n}{query}"));
            assert_eq!(response.field("content-length"), None);
            assert_same("chunked", &response.body, &patterned(n));
        }
    });
}

#[test]
fn the_listing_and_what_is_not_there() {
    on_both(|origin| {
        let mut client = origin.connect();
        let listing = client.get("/");
        for path in ["/echo", "/bytes/N", "/ws", "/close-early"] {
            assert!(listing.text().contains(path));
        }
        assert!(listing.field("date").unwrap().ends_with(" GMT"));
        assert_eq!(client.get("/nothing").status, 404);
        assert_eq!(client.get("/bytes/x").status, 400);
        assert_eq!(client.get("/").status, 200);
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_both(|origin| {
        let mut client = origin.connect();
        let wire = [
            &b"\r\nGET /bytes/3 HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            &post("/echo", b"first"),
            b"HEAD /bytes/9 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST /discard HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
              3\r\nabc\r\n0\r\n\r\n",
            &post("/status/404", b"ignored"),
            b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
              2\r\nde\r\n1\r\nf\r\n0\r\nX-Sum: 1\r\n\r\n",
            b"GET /bytes/4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        ]
        .concat();
        for cut in [wire.len(), 50, 1] {
            for part in wire.chunks(cut) {
                client.send(part);
            }
            assert_same("1", &client.response().body, &patterned(3));
            assert_eq!(client.response().text(), "first");
            assert!(client.head().contains("Content-Length: 9"));
            let sum = crc32fast::hash(b"abc");
            let expected = format!("{{\"bytes\":3,\"crc32\":\"{sum:08x}\"}}\n");
            assert_eq!(client.response().text(), expected);
            assert_eq!(client.response().status, 404);
            let echoed = client.response();
            assert_eq!((echoed.text(), &*echoed.trailers), ("def", "X-Sum: 1\n"));
            let last = client.response();
            assert_same("last", &last.body, &patterned(4));
            assert_eq!(last.field("connection"), Some("close"));
            assert_closed(&mut client);
            client = origin.connect();
        }
    });
}

#[test]
fn an_echo_streams() {
    on_both(|origin| {
        let body = patterned(3_000_001);
        for chunked in [false, true] {
            let mut client = origin.connect();
            let mut writer = client.stream.try_clone().unwrap();
            let wire = if chunked {
                let mut wire =
                    b"PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                for part in body.chunks(50_001) {
                    wire.extend(format!("{:x}\r\n", part.len()).bytes());
                    wire.extend(part);
                    wire.extend(b"\r\n");
                }
                wire.extend(b"0\r\n\r\n");
                wire
            } else {
                post("/echo", &body)
            };
            let sender = std::thread::spawn(move || writer.write_all(&wire));
            let response = client.response();
            sender.join().unwrap().unwrap();
            assert_eq!(
                response.field("transfer-encoding"),
                chunked.then_some("chunked")
            );
            assert_same("echo", &response.body, &body);
            assert_eq!(client.get("/bytes/2").status, 200);
        }
    });
}

#[test]
fn an_echo_sends_what_has_come_before_the_rest_is_there() {
    on_both(|origin| {
        let mut client = origin.connect();
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
        assert!(client.head().contains("Content-Length: 6"));
        assert_eq!(client.bytes(3), b"abc");
        client.send("def");
        assert_eq!(client.bytes(3), b"def");
    });
}

#[test]
fn an_echo_without_a_body_shows_the_head() {
    on_both(|origin| {
        let mut client = origin.connect();
        let head = "GET /echo?x=1 HTTP/1.1\r\nHost: a\r\nX-Odd:  two  blanks\r\n\r\n";
        client.send(head);
        assert_eq!(client.response().text(), head);
        client.send(post("/echo", b""));
        let empty = client.response();
        assert_eq!((empty.status, empty.text()), (200, ""));
        client
            .send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        assert_eq!(client.response().text(), "");
        client.send("HEAD /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        assert!(client.head().contains("Content-Length: 3"));
        assert_eq!(client.get("/").status, 200);
    });
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    on_both(|origin| {
        const TOTAL: usize = 256 << 20;
        let mut client = origin.connect();
        client.send(format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {TOTAL}\r\n\r\n"
        ));
        client
            .stream
            .set_write_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        let block = vec![b'x'; 1 << 20];
        let mut sent = 0;
        while sent < TOTAL {
            match client.stream.write(&block) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(
            sent < TOTAL,
            "everything was taken from a client that does not read"
        );
        origin.await_stats("one buffer for one echo", |s| s.engine.buffers <= 1);
        client.stream.shutdown(Shutdown::Write).unwrap();
        client.head();
        assert_same("echo", &client.bytes(sent), &vec![b'x'; sent]);
        assert_closed(&mut client);
    });
}

#[test]
fn discard_counts_and_sums() {
    on_both(|origin| {
        let body = patterned(1_234_567);
        let sum = crc32fast::hash(&body);
        let expected = format!("{{\"bytes\":1234567,\"crc32\":\"{sum:08x}\"}}\n");
        let mut client = origin.connect();
        client.send(post("/discard", &body));
        assert_eq!(client.response().text(), expected);
        client.send(post("/discard", b""));
        assert_eq!(
            client.response().text(),
            "{\"bytes\":0,\"crc32\":\"00000000\"}\n"
        );
    });
}

#[test]
fn delays_and_drips_are_never_early() {
    on_both(|origin| {
        let mut client = origin.connect();
        let start = Instant::now();
        assert_eq!(client.get("/delay/50").text(), "after 50 ms\n");
        assert!(start.elapsed() >= Duration::from_millis(50));
        assert_eq!(client.get("/delay/0").status, 200);
        let start = Instant::now();
        assert_same("drip", &client.get("/drip/5/10").body, &patterned(5));
        assert!(start.elapsed() >= Duration::from_millis(40));
        assert_same("drip", &client.get("/drip/300/0").body, &patterned(300));
        // The reset of a client that leaves with unread bytes ends the wait.
        client.send("GET /bytes/9 HTTP/1.1\r\nHost: a\r\n\r\n");
        client.send("GET /delay/3600000 HTTP/1.1\r\nHost: a\r\n\r\n");
        client.stream.peek(&mut [0]).unwrap();
        drop(client);
    });
}

#[test]
fn a_stall_sends_half() {
    on_both(|origin| {
        let mut client = origin.connect();
        client.send("GET /stall HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.head().contains("Content-Length: 1024"));
        assert_same("half", &client.bytes(512), &patterned(512));
        client.assert_silence();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.assert_silence();
        let mut large = origin.connect();
        large.send("GET /stall/400001 HTTP/1.1\r\nHost: a\r\n\r\n");
        large.head();
        assert_same("half", &large.bytes(200_000), &patterned(200_000));
    });
}

#[test]
fn statuses() {
    on_both(|origin| {
        let mut client = origin.connect();
        for status in [200, 204, 205, 301, 304, 404, 418, 500, 503, 599] {
            let response = client.get(&format!("/status/{status}"));
            assert_eq!(response.status, status);
        }
        assert_eq!(client.get("/status/302").field("location"), Some("/"));
        assert_eq!(client.get("/status/103").status, 103);
        assert_eq!(client.response().status, 200);
        assert_eq!(client.get("/status/101").status, 400);
    });
}

#[test]
fn events() {
    on_both(|origin| {
        let mut client = origin.connect();
        let response = client.get("/sse?count=3&interval=5");
        assert_eq!(response.field("content-type"), Some("text/event-stream"));
        assert_eq!(
            response.text(),
            "id: 1\ndata: event 1\n\nid: 2\ndata: event 2\n\nid: 3\ndata: event 3\n\n"
        );
        client.send("GET /sse?interval=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        client.head();
        for _ in 0..20 {
            assert_eq!(client.line().len(), 2);
            assert!(client.line().starts_with("id: "));
        }
    });
}

#[test]
fn expectations() {
    on_both(|origin| {
        let mut client = origin.connect();
        let head = "Host: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
        for target in ["/echo", "/discard", "/bytes/3"] {
            client.send(format!("POST {target} HTTP/1.1\r\n{head}"));
            assert_eq!(client.response().status, 100);
            client.assert_silence();
            client.send("abc");
            assert_eq!(client.response().status, 200);
        }
        // Who has begun to send needs no invitation.
        client.send(format!("POST /echo HTTP/1.1\r\n{head}abc"));
        assert_eq!(client.response().text(), "abc");
        client.send(format!("POST /close-early HTTP/1.1\r\n{head}"));
        assert_eq!(client.response().status, 413);
        assert_closed(&mut client);
        let mut client = origin.connect();
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: more\r\n\r\n");
        assert_eq!(client.response().status, 417);
        assert_closed(&mut client);
    });
}

#[test]
fn closing_early_lets_the_answer_arrive() {
    on_both(|origin| {
        let mut client = origin.connect();
        client.send(post("/close-early", &patterned(2_000_000)));
        let response = client.response();
        assert_eq!(
            (response.status, response.field("connection")),
            (413, Some("close"))
        );
        assert_closed(&mut client);

        let mut client = origin.connect();
        client.send("POST /close-early?abrupt HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n");
        assert_eq!(client.response().status, 413);
        // The other end is gone: its kernel refuses what comes.
        let refused = (0..LOOKS).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            client.stream.write_all(b"x").is_err()
        });
        assert!(refused);
    });
}

#[test]
fn http10() {
    on_both(|origin| {
        let mut client = origin.connect();
        client.send("GET /bytes/5 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let response = client.response();
        assert_eq!(response.field("connection"), Some("keep-alive"));
        client.send("GET /chunked/70000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let response = client.response();
        assert_eq!(response.field("connection"), Some("close"));
        assert_eq!(response.field("transfer-encoding"), None);
        assert_same("until close", &response.body, &patterned(70_000));
        let mut client = origin.connect();
        client.send("POST /echo HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(client.response().text(), "abc");
        assert_closed(&mut client);
        let mut client = origin.connect();
        client.send("GET /sse?count=2&interval=1 HTTP/1.0\r\n\r\n");
        assert!(client.response().text().ends_with("data: event 2\n\n"));
    });
}

#[test]
fn what_is_refused() {
    on_both(|origin| {
        let long = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "y".repeat(40_000)
        );
        for (wire, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\nHost: a\n\n", 400),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            (
                "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                400,
            ),
            (
                "POST /discard HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab",
                400,
            ),
            (&long, 431),
        ] {
            let mut client = origin.connect();
            client.send(wire);
            assert_eq!(client.response().status, status, "{wire:.60}");
            assert_closed(&mut client);
        }
        // An echo that has begun can only be cut.
        let mut client = origin.connect();
        client
            .send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
        client.head();
        assert_eq!(client.bytes(6), b"1\r\na\r\n");
        client.send("broken");
        assert_closed(&mut client);
    });
}

const HANDSHAKE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\n\
    Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A masked frame of at most 64 KiB.
fn frame(lead: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x12, 0x34, 0x56, 0x78];
    let mut out = vec![lead];
    match payload.len() {
        n @ 0..=125 => out.push(0x80 | n as u8),
        n => {
            out.push(0x80 | 126);
            out.extend((n as u16).to_be_bytes());
        }
    }
    out.extend(mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m));
    out
}

fn open_websocket(origin: &Origin) -> Client {
    let mut client = origin.connect();
    client.send(HANDSHAKE);
    let response = client.response();
    assert_eq!(response.status, 101);
    assert_eq!(
        response.field("sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    client
}

#[test]
fn frames_are_echoed() {
    on_both(|origin| {
        let mut client = open_websocket(origin);
        client.send(frame(0x81, b"hello"));
        assert_eq!(client.bytes(7), b"\x81\x05hello");
        client.send([frame(0x89, b"ping"), frame(0x8a, b"pong")].concat());
        assert_eq!(client.bytes(6), b"\x8a\x04ping");
        let long = patterned(60_000);
        for byte in frame(0x82, &long).chunks(777) {
            client.send(byte);
        }
        assert_eq!(client.bytes(4), [0x82, 126, 0xea, 0x60]);
        assert_same("frame", &client.bytes(60_000), &long);
        client.send(frame(0x88, &[3, 232]));
        assert_eq!(client.rest(), [0x88, 2, 3, 232]);

        let mut client = open_websocket(origin);
        client.send(b"\x81\x01x");
        assert_eq!(client.rest(), [0x88, 2, 3, 234]);
    });
}

#[test]
fn handshakes_that_are_none() {
    on_both(|origin| {
        let mut client = origin.connect();
        let plain = client.get("/ws");
        assert_eq!(plain.status, 426);
        assert_eq!(plain.field("sec-websocket-version"), Some("13"));
        client.send(HANDSHAKE.replace("Version: 13", "Version: 8"));
        assert_eq!(client.response().status, 426);
        client.send(HANDSHAKE.replace("dGhl", "AAA"));
        assert_eq!(client.response().status, 400);
        // Frames may come right behind the handshake.
        client.send([HANDSHAKE.as_bytes(), &frame(0x81, b"x")].concat());
        assert_eq!(client.response().status, 101);
        assert_eq!(client.bytes(3), b"\x81\x01x");
    });
}

#[test]
fn curl_agrees() {
    on_both(|origin| {
        let bytes = patterned(300_000);
        assert_same("curl", &origin.curl("/bytes/300000", &[]), &bytes);
        assert_same("curl", &origin.curl("/chunked/300000", &[]), &bytes);
        assert_same(
            "curl",
            &origin.curl("/chunked/300000", &["--http1.0"]),
            &bytes,
        );
        let file = std::env::temp_dir().join(format!("toron-origin-{}", std::process::id()));
        std::fs::write(&file, &bytes).unwrap();
        let path = file.to_str().unwrap();
        let sum = crc32fast::hash(&bytes);
        let expected = format!("{{\"bytes\":300000,\"crc32\":\"{sum:08x}\"}}\n").into_bytes();
        let chunked = "Transfer-Encoding: chunked";
        let expect = "Expect: 100-continue";
        for options in [
            &["-T", path][..],
            &["-T", path, "-H", chunked],
            &["-T", path, "-H", expect],
            &["-T", path, "-H", chunked, "-H", expect],
        ] {
            assert_eq!(origin.curl("/discard", options), expected);
            assert_same("curl", &origin.curl("/echo", options), &bytes);
        }
        std::fs::remove_file(&file).unwrap();
        let status = origin.curl("/status/418", &["-o", "/dev/null", "-w", "%{http_code}"]);
        assert_eq!(status, b"418");
        let head = origin.curl("/bytes/77", &["--head"]);
        assert!(String::from_utf8(head)
            .unwrap()
            .contains("Content-Length: 77"));
    });
}

#[test]
fn stopping_ends_what_has_no_end() {
    for engine in [EngineKind::Epoll, EngineKind::IoUring] {
        if engine.choose().is_err() {
            continue;
        }
        let upstream = Upstream::start(&args(engine)).unwrap();
        let addr = upstream.addresses()[0];
        let origin = Origin { upstream, addr };
        let mut idle = origin.connect();
        assert_eq!(idle.get("/").status, 200);
        let mut frames = open_websocket(&origin);
        let begin = |target: &str| {
            let mut client = origin.connect();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        };
        let mut events = begin("/sse");
        events.head();
        let mut stall = begin("/stall");
        stall.head();
        stall.bytes(512);
        let mut delayed = begin("/delay/100");
        origin.await_stats("all are there", |s| s.connections == 5);
        let Origin { upstream, .. } = origin;
        let stopping = std::thread::spawn(move || upstream.stop(Duration::from_secs(10)));
        assert_closed(&mut idle);
        assert_eq!(frames.rest(), [0x88, 2, 3, 233]);
        drop(frames);
        events.rest();
        assert_closed(&mut stall);
        let Response { status, .. } = delayed.response();
        assert_eq!(status, 200);
        assert_closed(&mut delayed);
        stopping.join().unwrap().unwrap();
    }
}

#[test]
fn run_ends_on_sigterm() {
    use signal_hook::consts::SIGTERM;
    // From here on the signal does not end the process.
    let mut seen = signal_hook::iterator::Signals::new([SIGTERM]).unwrap();
    let thread = std::thread::spawn(|| run(&args(EngineKind::Auto)));
    for _ in 0..LOOKS {
        // The thread may not listen yet, so the signal is sent until it has ended.
        signal_hook::low_level::raise(SIGTERM).unwrap();
        if thread.is_finished() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(thread.join().unwrap(), ExitCode::SUCCESS);
    assert!(seen.pending().next().is_some());
}

#[test]
fn an_address_in_use_is_told() {
    let first = Upstream::start(&args(EngineKind::Auto)).unwrap();
    let addr = first.addresses()[0];
    let second = UpstreamArgs {
        listen: vec![addr],
        ..args(EngineKind::Auto)
    };
    let error = Upstream::start(&second).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&addr.to_string()));
    assert_eq!(run(&second), ExitCode::FAILURE);
    first.stop(Duration::ZERO).unwrap();
}
