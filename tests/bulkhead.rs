//! Route bulkheads on real sockets (I12 to I17, and what I32 and I33 say about slots).

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::bulkheads::{await_in_flight, in_flight, read_out, Slots, ADMIN_KEY};
use support::client::Client;
use support::http::{End, Response};
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::{Script, Step, Then, Upstream, When};
use support::PATIENCE;

const FULL: &[u8] = br#"{"error":"503 Service Unavailable: Route concurrency limit reached"}"#;
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
const UPGRADE: &str =
    "GET /slow/up HTTP/1.1\r\nHost: t.example\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n")
}

/// `/slow` with a cap, and `/` beside it, both to `upstream`.
fn settings(engine: Engine, upstream: &Upstream, cap: u32) -> Settings {
    let mut slow = Route::new("/slow", &upstream.addr);
    slow.extra.push(("max_concurrency", cap.to_string()));
    let other = Route::new("/", &upstream.addr);
    let mut settings = Settings::new(engine, vec![slow, other]);
    settings.admin_key = Some(ADMIN_KEY.into());
    settings
}

/// Every request is received and never answered.
fn hang() -> Script {
    script(vec![Step::Hang], Then::Hang)
}

fn script(answer: Vec<Step>, then: Then) -> Script {
    Script {
        answers: vec![answer],
        repeat_last: true,
        when: When::AfterRequest,
        then,
    }
}

fn sent(toron: &Toron, request: &str) -> Client {
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    client.send(request.as_bytes(), PATIENCE);
    client
}

/// Goes away so that toron notices: a FIN behind a whole request is no such thing (I39).
fn reset(clients: impl IntoIterator<Item = Client>) {
    clients.into_iter().for_each(|mut client| client.reset());
}

/// So many requests that are in flight until their clients are reset.
fn hold(toron: &Toron, upstream: &Upstream, count: usize) -> Vec<Client> {
    let before = requests(upstream);
    let held = (0..count).map(|i| sent(toron, &get(&format!("/slow/{i}"))));
    let held: Vec<Client> = held.collect();
    let all = |n: usize| n >= before + count;
    assert!(
        upstream.wait_for(PATIENCE, |c| all(c.iter().map(|c| c.requests.len()).sum())),
        "{} of {count} requests arrived",
        requests(upstream) - before
    );
    held
}

fn requests(upstream: &Upstream) -> usize {
    upstream
        .connections()
        .iter()
        .map(|c| c.requests.len())
        .sum()
}

/// The first response, which must come whole.
fn response(client: &mut Client) -> Response {
    assert!(
        client.receive_responses(1, PATIENCE),
        "no response: {:?}",
        client.end
    );
    client.parsed().responses.remove(0)
}

fn assert_full(response: &Response) {
    assert_eq!(response.status, 503, "{response:?}");
    assert_eq!(response.body, FULL);
    assert_eq!(response.head.all("retry-after"), ["5"]);
    assert_eq!(response.head.all("content-type"), ["application/json"]);
    assert_eq!(
        response.head.all("content-length"),
        [FULL.len().to_string()]
    );
}

fn closes(response: &Response) -> bool {
    response.head.all("connection") == ["close"]
}

fn i12_exactly_the_cap_fits(engine: Engine) {
    let upstream = Upstream::start();
    upstream.begin(hang());
    let mut settings = settings(engine, &upstream, 5);
    settings.worker_pool_size = 8;
    let toron = Toron::start(&settings);
    for round in 0..3 {
        let mut clients: Vec<Client> = (0..40).map(|_| sent(&toron, &get("/slow/x"))).collect();
        // Those that are admitted get no answer: the others are all that can be told apart.
        let mut refused = 0;
        let deadline = std::time::Instant::now() + PATIENCE;
        while refused < 35 {
            assert!(std::time::Instant::now() < deadline, "{refused} refused");
            refused = 0;
            for client in &mut clients {
                client.receive(
                    usize::MAX,
                    std::time::Instant::now() + Duration::from_millis(1),
                );
                refused += client.complete_responses();
            }
        }
        let five = |c: &[support::upstream::Connection]| {
            c.iter().map(|c| c.requests.len()).sum::<usize>() == 5 * (round + 1)
        };
        assert!(
            upstream.wait_for(PATIENCE, five),
            "{} requests",
            requests(&upstream)
        );
        assert_eq!(refused, 35);
        for client in clients.iter().filter(|c| c.complete_responses() > 0) {
            let response = client.parsed().responses.remove(0);
            assert_full(&response);
            assert!(!closes(&response) && client.end.is_none());
        }
        let slots = Slots {
            route: "/slow".into(),
            in_flight: 5,
            cap: Some(5),
        };
        assert_eq!(read_out(&toron), [slots]);
        reset(clients);
        await_in_flight(&toron, "/slow", 0);
    }
}

fn i13_keep_alive_survives_where_nothing_is_owed(engine: Engine) {
    let upstream = Upstream::start();
    let toron = Toron::start(&settings(engine, &upstream, 1));
    upstream.begin(hang());
    let held = hold(&toron, &upstream, 1);
    assert!(upstream.wait_for_answers(PATIENCE, 1));
    upstream.set_script(Script::default());

    // Without a body, and with one that came with the head: the connection goes on.
    let whole = "POST /slow HTTP/1.1\r\nHost: t.example\r\nContent-Length: 4\r\n\r\nbody";
    let chunks = "POST /slow HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                  2\r\nbo\r\n2;x=y\r\ndy\r\n0\r\nX-A: b\r\n\r\n";
    for request in [get("/slow/a").as_str(), whole, chunks] {
        let mut client = sent(&toron, request);
        let refused = response(&mut client);
        assert_full(&refused);
        assert!(!closes(&refused));
        client.send(get("/other").as_bytes(), PATIENCE);
        assert!(client.receive_responses(2, PATIENCE), "{:?}", client.end);
        assert_eq!(client.parsed().responses[1].status, 200);
    }
    // Pipelined behind one another: each gets its own answer.
    let mut client = sent(&toron, &(get("/slow/a") + &get("/slow/b") + &get("/other")));
    assert!(client.receive_responses(3, PATIENCE));
    let statuses: Vec<u16> = client.parsed().responses.iter().map(|r| r.status).collect();
    assert_eq!(statuses, [503, 503, 200]);
    // A body is owed: close, with an end that can be read.
    for owing in [
        "POST /slow HTTP/1.1\r\nHost: t.example\r\nContent-Length: 10\r\n\r\nbody",
        "POST /slow HTTP/1.1\r\nHost: t.example\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
        "POST /slow HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /slow HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\nx\r\n\r\n",
    ] {
        let mut client = sent(&toron, owing);
        let refused = response(&mut client);
        assert_full(&refused);
        assert!(closes(&refused) && refused.interim.is_empty());
        assert!(client.receive_until_end(PATIENCE));
        assert_eq!(client.end, Some(End::Fin));
    }
    // HEAD: the length, and no body.
    let mut client = sent(&toron, "HEAD /slow HTTP/1.1\r\nHost: t.example\r\n\r\n");
    let head = response(&mut client);
    assert_eq!((head.status, head.body.len()), (503, 0));
    assert_eq!(head.head.all("content-length"), [FULL.len().to_string()]);
    // An old client without keep-alive.
    let mut client = sent(&toron, "GET /slow HTTP/1.0\r\n\r\n");
    assert_full(&response(&mut client));
    assert!(client.receive_until_end(PATIENCE));

    let to_slow = upstream
        .connections()
        .iter()
        .flat_map(|c| c.heads().map(|h| h.target().to_owned()))
        .filter(|target| target.starts_with("/slow"))
        .count();
    assert_eq!(to_slow, 1, "a refused request was forwarded");
    reset(held);
}

/// What comes before the bulkhead, and what it does not concern.
fn i12_only_what_passed_the_other_checks_takes_a_slot(engine: Engine) {
    let upstream = Upstream::start();
    let mut settings = settings(engine, &upstream, 1);
    settings.routes.truncate(1);
    settings.routes[0].prefix = "/".into();
    let extra = &mut settings.routes[0].extra;
    extra.push(("method", "[GET, POST]".into()));
    extra.push(("max_body_bytes", "1000".into()));
    let toron = Toron::start(&settings);
    upstream.begin(hang());
    let held = hold(&toron, &upstream, 1);
    for (request, status) in [
        (get("/slow"), 503),
        (get("/health"), 200),
        (get("/internal/x"), 401),
        ("DELETE / HTTP/1.1\r\nHost: t.example\r\n\r\n".into(), 405),
        (
            "POST / HTTP/1.1\r\nHost: t.example\r\nContent-Length: 1001\r\n\r\n".into(),
            413,
        ),
        (
            "POST / HTTP/1.1\r\nHost: t.example\r\nContent-Length: 1\r\nExpect: x\r\n\r\n".into(),
            417,
        ),
    ] {
        let mut client = sent(&toron, &request);
        assert_eq!(response(&mut client).status, status, "{request}");
    }
    let slots = read_out(&toron);
    assert_eq!((slots[0].in_flight, slots[0].cap), (1, Some(1)));
    reset(held);
    await_in_flight(&toron, "/ [GET,POST]", 0);
}

/// A respond route answers at once, so a slot is only taken for long by a client that does not take
/// the answer.
fn i12_a_fixed_answer_holds_its_slot_until_it_is_sent(engine: Engine) {
    let upstream = Upstream::start();
    let mut settings = settings(engine, &upstream, 1);
    let body = "x".repeat(6 << 20);
    settings.further_routes =
        format!("  - prefix: /fixed\n    status: 200\n    max_concurrency: 1\n    body: {body}\n");
    let toron = Toron::start(&settings);
    for _ in 0..2 {
        let mut slow = Client::connect_with_window(toron.addr, 4096).unwrap();
        slow.send(get("/fixed").as_bytes(), PATIENCE);
        await_in_flight(&toron, "/fixed", 1);
        let mut client = sent(&toron, &get("/fixed"));
        assert_full(&response(&mut client));
        slow.receive_until(PATIENCE, |c| c.received.len() > body.len());
        assert_eq!(response(&mut slow).body.len(), body.len());
        await_in_flight(&toron, "/fixed", 0);
        // And one that goes away in the middle.
        let mut gone = Client::connect_with_window(toron.addr, 4096).unwrap();
        gone.send(get("/fixed").as_bytes(), PATIENCE);
        await_in_flight(&toron, "/fixed", 1);
        gone.reset();
        await_in_flight(&toron, "/fixed", 0);
    }
}

fn i15_an_upgraded_stream_holds_its_slot_until_it_ends(engine: Engine) {
    let upstream = Upstream::start();
    let toron = Toron::start(&settings(engine, &upstream, 1));
    for by_client in [true, false] {
        let then = Step::Receive(b"end\n".to_vec());
        upstream.begin(script(
            vec![Step::Send(SWITCH.to_vec()), then],
            if by_client { Then::Hang } else { Then::Close },
        ));
        let mut tunnel = sent(&toron, UPGRADE);
        assert_eq!(response(&mut tunnel).status, 101);
        assert_full(&response(&mut sent(&toron, &get("/slow"))));
        tunnel.send(b"bytes\n", PATIENCE);
        assert_eq!(in_flight(&toron, "/slow"), 1);
        if !by_client {
            tunnel.send(b"end\n", PATIENCE);
            assert!(tunnel.receive_until_end(PATIENCE));
            // Half a tunnel is one still.
            assert_eq!(in_flight(&toron, "/slow"), 1);
        }
        tunnel.close();
        await_in_flight(&toron, "/slow", 0);
        upstream.begin(Script::default());
        assert_eq!(response(&mut sent(&toron, &get("/slow"))).status, 200);
        await_in_flight(&toron, "/slow", 0);
    }
}

fn i17_a_reload_keeps_the_counters(engine: Engine) {
    let upstream = Upstream::start();
    upstream.begin(hang());
    let with_cap = |cap| settings(engine, &upstream, cap);
    let toron = Toron::start(&with_cap(4));
    let status = |client: &mut Client| response(client).status;
    let mut held = hold(&toron, &upstream, 4);
    assert_eq!(status(&mut sent(&toron, &get("/slow"))), 503);
    // Raised by two: exactly two more fit.
    toron.reload(&with_cap(6));
    held.extend(hold(&toron, &upstream, 2));
    assert_eq!(status(&mut sent(&toron, &get("/slow"))), 503);
    // Lowered to three: those in flight go on, and none is admitted until fewer than three are left.
    toron.reload(&with_cap(3));
    for left in [5, 4, 3] {
        reset(held.pop());
        await_in_flight(&toron, "/slow", left);
        assert_eq!(status(&mut sent(&toron, &get("/slow"))), 503);
    }
    reset(held.pop());
    await_in_flight(&toron, "/slow", 2);
    held.extend(hold(&toron, &upstream, 1));
    assert_eq!(status(&mut sent(&toron, &get("/slow"))), 503);
    // The route goes and comes back while its requests are still in flight.
    let mut without = with_cap(3);
    without.routes.remove(0);
    toron.reload(&without);
    toron.reload(&with_cap(3));
    assert_eq!(status(&mut sent(&toron, &get("/slow"))), 503);
    reset(held);
    await_in_flight(&toron, "/slow", 0);
    held = hold(&toron, &upstream, 3);
    assert_eq!(status(&mut sent(&toron, &get("/slow"))), 503);
    reset(held);
}

/// Reloads that change the cap while requests come and go: nothing but 200 and 503, and afterwards
/// exactly the cap fits.
fn i17_the_cap_changes_under_load(engine: Engine) {
    let upstream = Upstream::start();
    let with_cap = |cap| settings(engine, &upstream, cap);
    let toron = Toron::start(&with_cap(2));
    let over = AtomicBool::new(false);
    let work = || {
        let (mut good, mut full) = (0, 0);
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        while !over.load(Ordering::Relaxed) {
            client.received.clear();
            client.sent.clear();
            client.send(get("/slow/load").as_bytes(), PATIENCE);
            match response(&mut client).status {
                200 => good += 1,
                503 => full += 1,
                status => panic!("{status}"),
            }
        }
        (good, full)
    };
    let seen = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        for cap in [1, 5, 2, 7, 1, 3].into_iter().cycle().take(24) {
            toron.reload(&with_cap(cap));
            assert!(in_flight(&toron, "/slow") <= 7);
        }
        over.store(true, Ordering::Relaxed);
        let seen = workers.into_iter().map(|w| w.join().unwrap());
        seen.fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
    });
    println!(
        "{}: {} answered, {} refused over 24 reloads",
        engine.name(),
        seen.0,
        seen.1
    );
    assert!(seen.0 > 0 && seen.1 > 0, "{seen:?}");
    await_in_flight(&toron, "/slow", 0);
    upstream.begin(hang());
    let _held = hold(&toron, &upstream, 3);
    assert_full(&response(&mut sent(&toron, &get("/slow"))));
}

/// The slot is free when toron answers in the place of the upstream, and when it cuts a response
/// that stalls.
fn i32_i33_deadlines_release_the_slot(engine: Engine) {
    let upstream = Upstream::start();
    let stalls = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec();
    for (key, answer, expected) in [
        ("header_deadline", vec![Step::Hang], Some(504)),
        ("request_deadline", vec![Step::Hang], Some(504)),
        ("response_header_timeout", vec![Step::Hang], Some(504)),
        ("request_deadline", vec![Step::Send(stalls)], None),
    ] {
        let mut settings = settings(engine, &upstream, 1);
        settings.routes[0].extra.push((key, "300ms".into()));
        let toron = Toron::start(&settings);
        upstream.begin(script(answer, Then::Hang));
        for _ in 0..3 {
            let mut client = sent(&toron, &get("/slow"));
            match expected {
                Some(status) => assert_eq!(response(&mut client).status, status, "{key}"),
                None => {
                    assert!(client.receive_until_end(PATIENCE));
                    assert!(!client.parsed().responses[0].complete);
                }
            }
            await_in_flight(&toron, "/slow", 0);
        }
    }
}

/// At that moment, and not when the client has taken the answer, which may be a long one.
fn i32_the_slot_is_free_before_the_answer_is_taken(engine: Engine) {
    let upstream = Upstream::start();
    upstream.begin(hang());
    let mut settings = settings(engine, &upstream, 1);
    let body = "x".repeat(6 << 20);
    let extra = &mut settings.routes[0].extra;
    extra.push(("header_deadline", "300ms".into()));
    let answer = format!("{{status: 504, body: {body}}}");
    extra.push(("header_deadline_response", answer));
    let toron = Toron::start(&settings);
    let mut slow = Client::connect_with_window(toron.addr, 4096).unwrap();
    slow.send(get("/slow").as_bytes(), PATIENCE);
    await_in_flight(&toron, "/slow", 1);
    await_in_flight(&toron, "/slow", 0);
    slow.receive_until(PATIENCE, |c| c.received.len() > body.len());
    let late = response(&mut slow);
    assert_eq!((late.status, late.body.len()), (504, body.len()));
}

/// `-1` opts out of the guardrail, and the log says so at start.
fn i16_a_route_without_any_cap(engine: Engine) {
    let upstream = Upstream::start();
    upstream.begin(hang());
    let mut settings = settings(engine, &upstream, 1);
    settings.routes[0].extra = vec![
        ("max_concurrency", "-1".into()),
        ("response_header_timeout", "60s".into()),
    ];
    let toron = Toron::start(&settings);
    let warned = |line: &String| line.contains("WARN") && line.contains("without any cap");
    let log = toron.process().log_lines();
    assert_eq!(log.iter().filter(|line| warned(line)).count(), 1, "{log:?}");
    let held = hold(&toron, &upstream, 100);
    assert_eq!(in_flight(&toron, "/slow"), 100);
    reset(held);
    // With the guardrail: a pool of eight gives two.
    settings.worker_pool_size = 8;
    settings.routes[0].extra.remove(0);
    let toron = Toron::start(&settings);
    let held = hold(&toron, &upstream, 2);
    assert_full(&response(&mut sent(&toron, &get("/slow"))));
    assert_eq!(read_out(&toron)[0].cap, Some(2));
    reset(held);
}

on_both_engines! {
    i12_exactly_the_cap_fits:
        i12_exactly_the_cap_fits_on_epoll,
        i12_exactly_the_cap_fits_on_io_uring;
    i12_only_what_passed_the_other_checks_takes_a_slot:
        i12_only_what_passed_the_other_checks_takes_a_slot_on_epoll,
        i12_only_what_passed_the_other_checks_takes_a_slot_on_io_uring;
    i12_a_fixed_answer_holds_its_slot_until_it_is_sent:
        i12_a_fixed_answer_holds_its_slot_until_it_is_sent_on_epoll,
        i12_a_fixed_answer_holds_its_slot_until_it_is_sent_on_io_uring;
    i13_keep_alive_survives_where_nothing_is_owed:
        i13_keep_alive_survives_where_nothing_is_owed_on_epoll,
        i13_keep_alive_survives_where_nothing_is_owed_on_io_uring;
    i15_an_upgraded_stream_holds_its_slot_until_it_ends:
        i15_an_upgraded_stream_holds_its_slot_until_it_ends_on_epoll,
        i15_an_upgraded_stream_holds_its_slot_until_it_ends_on_io_uring;
    i16_a_route_without_any_cap:
        i16_a_route_without_any_cap_on_epoll,
        i16_a_route_without_any_cap_on_io_uring;
    i17_a_reload_keeps_the_counters:
        i17_a_reload_keeps_the_counters_on_epoll,
        i17_a_reload_keeps_the_counters_on_io_uring;
    i17_the_cap_changes_under_load:
        i17_the_cap_changes_under_load_on_epoll,
        i17_the_cap_changes_under_load_on_io_uring;
    i32_the_slot_is_free_before_the_answer_is_taken:
        i32_the_slot_is_free_before_the_answer_is_taken_on_epoll,
        i32_the_slot_is_free_before_the_answer_is_taken_on_io_uring;
    i32_i33_deadlines_release_the_slot:
        i32_i33_deadlines_release_the_slot_on_epoll,
        i32_i33_deadlines_release_the_slot_on_io_uring;
}
