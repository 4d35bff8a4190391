//! The rig itself: its parsers, its judge, and the whole of it against nginx, whose answers are
//! known. A rig that cannot fail a case proves nothing about the cases that pass.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::{Duration, Instant};

use support::bank;
use support::case::{Case, ClientSees, Expect, UpstreamSees};
use support::client::Client;
use support::http::{parse_request, parse_responses, End, Progress};
use support::process::Proc;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::{Connection, Script, Step, Then, Upstream, When};
use support::verdict::{self, ClientSaw};

/// Cases that nginx fails, and a part of the fault that the runner has to find.
const NGINX_FAILS: [(&str, &str); 15] = [
    ("af-host-mismatch", "upstream received \"other.example\""),
    ("bl-204-with-length", "response has Content-Length"),
    ("cn-legacy-hop", "upstream sees Proxy-Connection"),
    ("cn-nominated-removed", "upstream sees X-Foo"),
    ("hc-after-get", "close-without-response"),
    ("hl-one-big-value", "response 1: 400, allowed [Code(431)]"),
    (
        "ho-port-too-big",
        "bytes of the request reached the upstream",
    ),
    (
        "hs-lf-in-header-block",
        "connection not closed by the proxy",
    ),
    ("ix-to-http10", "interim [103]"),
    ("rf-cl-invalid", "response 1: 200, allowed [Code(502)]"),
    ("rf-status-not-number", "what is no HTTP response"),
    (
        "rl-fragment-in-target",
        "bytes of the request reached the upstream",
    ),
    (
        "rl-http09",
        "upstream received a malformed request: Host fields: []",
    ),
    (
        "rl-lf-ends-request-line",
        "response 1: 200, allowed [Code(400)]",
    ),
    ("te-vtab", "response 1: 501, allowed [Code(400)]"),
];

/// Kinds that need nothing of the proxy that nginx lacks.
const NGINX_KINDS: [&str; 23] = [
    "request-line",
    "header-syntax",
    "obs-fold",
    "host",
    "absolute-form",
    "options-asterisk",
    "connect",
    "content-length",
    "transfer-encoding",
    "cl-te",
    "pipelining",
    "connection-header/hop-by-hop",
    "upgrade",
    "response-framing",
    "HEAD/204/304 bodies",
    "1xx",
    "keep-alive",
    "HTTP/1.0",
    "path-normalisation/traversal",
    "expect-100",
    "early-response",
    "half-close",
    "abort",
];

#[test]
fn the_runner_finds_the_faults_of_nginx_and_no_others() {
    let known = |id: &str| {
        let case = id.split(' ').next();
        NGINX_FAILS.iter().find(|(k, _)| Some(*k) == case)
    };
    // nginx has one mode of reading chunks.
    let jobs: Vec<_> = bank::jobs()
        .into_iter()
        .filter(|j| !j.id.ends_with("[passthrough]"))
        .filter(|j| NGINX_KINDS.contains(&j.kind.as_str()) || known(&j.id).is_some())
        .collect();
    let failures = bank::play(&jobs, Engine::Epoll, Toron::start_stand_in);
    for failure in &failures {
        let (_, fault) = known(&failure.id).unwrap_or_else(|| panic!("{}", failure.report));
        assert!(
            failure.report.contains(fault),
            "not found: {fault}\n{}",
            failure.report
        );
    }
    // Another release of nginx may have mended some of them, not most.
    assert!(
        failures.len() * 3 >= NGINX_FAILS.len() * 2,
        "only {} faults found",
        failures.len()
    );
}

/// A server that answers every connection wrongly: the follow-ups and the probe must notice.
#[test]
fn another_ones_answer_is_a_fault() {
    let upstream = Upstream::start();
    let wrong = Upstream::start();
    wrong.begin(Script {
        answers: vec![vec![Step::Send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nNO".to_vec(),
        )]],
        repeat_last: true,
        when: When::AfterRequest,
        then: Then::Keep,
    });
    let toron = Toron::start_stand_in(&Settings::new(
        Engine::Epoll,
        vec![Route::new("/", &wrong.addr)],
    ));
    let stage = support::play::Stage {
        toron: &toron,
        upstream: &upstream,
    };
    let line = bank::BANK
        .lines()
        .find(|l| l.contains("\"rf-extra-after-cl\""))
        .unwrap();
    let report = support::play::run(line, &stage).unwrap_err();
    assert!(
        report.contains("follow-up got another's answer"),
        "{report}"
    );
}

// The bank's format.

#[test]
fn an_unknown_key_or_note_is_an_error() {
    let good = r#"{"id":"x","kind":"k","send":"GET","why":"","source":"","expect":{"status":[200],
        "forwarded":true,"connection_closed_after":null}}"#;
    assert!(Case::parse(good, "", "").is_ok());
    for (from, to) in [
        (r#""id""#, r#""idd":1,"id""#),
        (
            r#""forwarded""#,
            r#""upstream_sees":{"hots":"x"},"forwarded""#,
        ),
        (
            r#""forwarded""#,
            r#""client_sees":{"bodys":"x"},"forwarded""#,
        ),
        (r#""send""#, r#""setup":{"max_bytes":1},"send""#),
        (r#""send""#, r#""setup":{"note":"stand on one leg"},"send""#),
        (
            r#""send""#,
            r#""upstream_then":"explode","upstream_send":"","send""#,
        ),
        (r#""send""#, r#""upstream_steps":[{"dance":true}],"send""#),
        (r#""send""#, r#""upstream_then":"close","send""#),
        (r#""send":"GET","#, ""),
        (r#""send":"GET""#, r#""send_steps":[{"byte":"x"}]"#),
        ("[200]", r#"["any-3xx"]"#),
    ] {
        assert!(good.contains(from));
        let bad = good.replacen(from, to, 1);
        assert!(Case::parse(&bad, "", "").is_err(), "accepted: {bad}");
    }
}

// The judge: every key catches what it is for.

fn expect(client: &str, upstream: &str, more: &str) -> Expect {
    let text = format!(
        r#"{{"status":["any-2xx"],"forwarded":true,"connection_closed_after":null,
            "client_sees":{client},"upstream_sees":{upstream}{more}}}"#
    );
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn saw(received: &str, closed: bool) -> ClientSaw {
    let received = support::from_latin1(received);
    let end = closed.then_some(End::Fin);
    let parsed = parse_responses(&received, &["GET".to_owned()], end);
    ClientSaw {
        received,
        parsed,
        closed,
        ..ClientSaw::default()
    }
}

#[test]
fn every_client_key_can_fail() {
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=1\r\nX-A: 1\r\n\r\nOK";
    let hinted = format!("HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n{good}");
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nOK";
    let plain = |c: &str| expect(c, "{}", "");
    for (sees, text, closed) in [
        (r#"{"body":"NO"}"#, good, false),
        (r#"{"bodies":["OK","OK"]}"#, good, false),
        (r#"{"complete":true}"#, cut, true),
        (r#"{"complete":false}"#, good, true),
        (r#"{"headers_present":{"X-A":"2"}}"#, good, false),
        (r#"{"headers_present":{"X-B":"1"}}"#, good, false),
        (r#"{"headers_absent":["x-a"]}"#, good, false),
        (r#"{"first_headers_present":{"X-B":"1"}}"#, good, false),
        (r#"{"first_headers_absent":["X-A"]}"#, good, false),
        (r#"{"final_headers_absent":["X-A"]}"#, good, false),
        (r#"{"header_value_in":{"X-A":["2","3"]}}"#, good, false),
        (r#"{"set_cookie_lines":[["b=1"]]}"#, good, false),
        (r#"{"set_cookie_lines":[["a=1"],["b=1"]]}"#, good, false),
        (r#"{"interim":[100]}"#, &hinted, false),
        (r#"{"interim_allowed":[100]}"#, &hinted, false),
        (r#"{"no_interim":true}"#, &hinted, false),
        (r#"{"never_bytes":["X-A"]}"#, good, false),
        (r#"{"not_both":["X-A","Set-Cookie"]}"#, good, false),
        (r#"{"header_section_never":["X-A: 1"]}"#, good, false),
        (r#"{"head_within_ms":1}"#, good, false),
        (r#"{"first_body_byte_within_ms":1}"#, good, false),
        (r#"{"keepalive_announced_or_closed":true}"#, good, false),
    ] {
        let faults = verdict::client(&plain(sees), &saw(text, closed));
        assert_eq!(faults.len(), 1, "{sees} on {text:?}: {faults:?}");
    }
    assert!(verdict::client(&plain("{}"), &saw(good, false)).is_empty());
    let more = |m: &str| expect("{}", "{}", m);
    for (keys, text, closed) in [
        ("", "HTTP/1.1 404 NO\r\nContent-Length: 0\r\n\r\n", false),
        ("", "", true),
        ("", "", false),
        (r#","status_seq":[["any-2xx"],[400]]"#, good, false),
        (r#","response_count":2"#, good, false),
        (
            "",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK\r\nHTTP",
            true,
        ),
        (
            "",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOKgarbage\r\n\r\n",
            false,
        ),
    ] {
        let faults = verdict::client(&more(keys), &saw(text, closed));
        assert!(!faults.is_empty(), "{keys} on {text:?}");
    }
    let mut kept = more("");
    kept.connection_closed_after = Some(false);
    assert!(!verdict::client(&kept, &saw(good, true)).is_empty());
    kept.connection_closed_after = Some(true);
    assert!(!verdict::client(&kept, &saw(good, false)).is_empty());
}

fn connection(received: &str) -> Connection {
    let received = support::from_latin1(received);
    let mut connection = Connection::default();
    connection.id = 1;
    connection.feed(&received);
    connection
}

#[test]
fn every_upstream_key_can_fail() {
    let request = "POST /a HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2\r\n\
                   Content-Length: 2\r\n\r\nhi";
    let seen = [connection(request)];
    let judge = |sees: &str| {
        let expect = expect("{}", sees, "");
        verdict::upstream(&expect.upstream_sees, &seen, &[1])
    };
    for sees in [
        r#"{"complete_requests":0}"#,
        r#"{"complete_requests_max":0}"#,
        r#"{"targets":["/a","/b"]}"#,
        r#"{"targets_never":["/a"]}"#,
        r#"{"targets_subset_of":["/b"]}"#,
        r#"{"targets_prefix_of":["/b","/a"]}"#,
        r#"{"target_in":["/b"]}"#,
        r#"{"host":"other"}"#,
        r#"{"host_never":["h"]}"#,
        r#"{"method":"GET"}"#,
        r#"{"body":"ho"}"#,
        r#"{"body_len":3}"#,
        r#"{"bodies":["hi","hi"]}"#,
        r#"{"bodies":["ho"],"complete_requests_max":2}"#,
        r#"{"bodies_if_seen":["ho"]}"#,
        r#"{"headers_present":{"X-A":"2"}}"#,
        r#"{"headers_absent":["x-a"]}"#,
        r#"{"header_count":{"X-A":2}}"#,
        r#"{"header_not_contains":{"X-A":"1"}}"#,
        r#"{"header_section_never":["X-A: 1"]}"#,
        r#"{"never_bytes":["hi"]}"#,
        r#"{"xff_last":"1.1.1.1"}"#,
        r#"{"upstream_conn_closed_within_ms":10}"#,
    ] {
        assert_eq!(judge(sees).len(), 1, "{sees}: {:?}", judge(sees));
    }
    assert!(judge("{}").is_empty());
    assert!(judge(r#"{"bodies":["hi","x"],"complete_requests_max":2}"#).is_empty());
    assert!(judge(r#"{"bodies_if_seen":["hi","x"],"xff_last":"2.2.2.2"}"#).is_empty());
    let malformed = [connection("GET /a HTTP/1.1\r\n\r\n")];
    assert!(!verdict::upstream(&UpstreamSees::default(), &malformed, &[]).is_empty());
}

/// A key that is added to the format has to be added to the two lists above.
#[test]
fn no_key_is_left_out_above() {
    let keys = |debug: String| debug.matches(": ").count();
    let client = format!("{:?}", ClientSees::default());
    let upstream = format!("{:?}", UpstreamSees::default());
    assert_eq!((keys(client), keys(upstream)), (19, 22));
}

// The scripted upstream, spoken to directly.

fn ending(then: Then, when: When, request: &[u8]) -> (Client, Upstream) {
    let upstream = Upstream::start();
    let answer = vec![Step::Send(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK".to_vec(),
    )];
    upstream.begin(Script {
        answers: vec![answer],
        repeat_last: true,
        when,
        then,
    });
    let mut client = Client::connect(upstream.addr, support::PATIENCE).unwrap();
    client.send(request, support::PATIENCE);
    assert!(
        client.receive_responses(1, support::PATIENCE),
        "no answer before {then:?}"
    );
    (client, upstream)
}

#[test]
fn the_upstream_ends_as_its_script_says() {
    let get = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for (then, end) in [
        (Then::Close, End::Fin),
        (Then::Reset, End::Reset),
        (Then::ShutdownWrite, End::Fin),
        (Then::CloseAfter(Duration::from_millis(50)), End::Fin),
    ] {
        let (mut client, _upstream) = ending(then, When::AfterRequest, get);
        assert!(client.receive_until_end(support::PATIENCE), "{then:?}");
        assert_eq!(client.end, Some(end), "{then:?}");
    }
    for then in [Then::Keep, Then::Hang] {
        let (mut client, upstream) = ending(then, When::AfterRequest, get);
        client.receive_until_quiet(Duration::from_millis(100));
        assert_eq!(client.end, None, "{then:?}");
        client.send(get, support::PATIENCE);
        let kept = then == Then::Keep;
        let patience = if kept {
            support::PATIENCE
        } else {
            Duration::from_millis(100)
        };
        assert_eq!(client.receive_responses(2, patience), kept, "{then:?}");
        client.reset();
        let noted = upstream.wait_for(support::PATIENCE, |c| {
            c[0].ended.is_some_and(|(_, end)| end == End::Reset)
        });
        assert!(noted, "the reset was not noted");
    }
    let half = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf";
    let (_client, upstream) = ending(Then::Keep, When::AfterHead, half);
    let connection = &upstream.connections()[0];
    assert!(connection.requests.is_empty() && connection.started.is_some());
}

// The strict parsers.

#[test]
fn malformed_requests_are_refused() {
    for bad in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloo\r\n0\r\n\r\n",
    ] {
        assert!(parse_request(bad.as_bytes()).is_err(), "accepted: {bad:?}");
    }
}

#[test]
fn a_request_is_complete_at_its_last_byte_and_not_before() {
    for whole in [
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
    ] {
        for cut in 0..whole.len() {
            let part = parse_request(&whole.as_bytes()[..cut]);
            assert!(!matches!(part, Ok(Progress::Complete(..)) | Err(_)), "{cut} of {whole:?}");
        }
        let more = format!("{whole}GET");
        let Ok(Progress::Complete(request, used)) = parse_request(more.as_bytes()) else {
            panic!("not complete: {whole:?}");
        };
        assert_eq!(used, whole.len());
        assert!(request.body.is_empty() || request.body == b"hello");
    }
}

#[test]
fn responses_are_framed_as_rfc_9112_says() {
    let parse = |text: &str, method: &str, end| {
        parse_responses(text.as_bytes(), &[method.to_owned()], end).responses
    };
    let complete = |text: &str, method: &str, end| parse(text, method, end)[0].complete;
    let sized = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    assert!(complete(sized, "HEAD", None));
    assert!(!complete(sized, "GET", None));
    assert!(complete(
        "HTTP/1.1 304 X\r\nContent-Length: 3\r\n\r\n",
        "GET",
        None
    ));
    let until_close = "HTTP/1.1 200 OK\r\n\r\nbody";
    assert!(!complete(until_close, "GET", None));
    assert!(!complete(until_close, "GET", Some(End::Reset)));
    assert!(complete(until_close, "GET", Some(End::Fin)));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nOK\r\n";
    assert!(!complete(chunked, "GET", Some(End::Fin)));
    assert!(complete(&format!("{chunked}0\r\n\r\n"), "GET", None));
    let two = format!("HTTP/1.1 100 Continue\r\n\r\n{sized}abc{sized}def");
    let got = parse(&two, "GET", None);
    assert_eq!(
        (got.len(), got[0].interim.len(), got[1].interim.len()),
        (2, 1, 0)
    );
    let switched = parse_responses(b"HTTP/1.1 101 X\r\n\r\nraw bytes", &[], None);
    assert_eq!(switched.tunnel, b"raw bytes");
}

#[test]
fn figures_of_proc_move() {
    let own = Proc(std::process::id());
    let (ticks, sockets) = (
        own.cpu_ticks(),
        own.descriptor_kinds().get("socket").copied(),
    );
    let opened = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let more: Vec<std::net::TcpListener> = (0..200).map(|_| opened.try_clone().unwrap()).collect();
    assert!(own.descriptor_kinds().get("socket").copied() >= Some(sockets.unwrap_or(0) + 100));
    assert!(own.descriptors() > more.len());
    let until = Instant::now() + support::PATIENCE;
    while own.cpu_ticks() < ticks + 5 {
        assert!(Instant::now() < until, "busy, and no processor time used");
    }
    let peak = own.peak_kib();
    let held = vec![1_u8; 64 << 20];
    assert!(own.peak_kib() >= peak.max(held.len() as u64 / 1024));
}
