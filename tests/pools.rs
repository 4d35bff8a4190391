//! Upstream pools on real sockets: balancing (R18), caps (R19), health (R20), retries (R21) and
//! removed targets (R22), with several upstreams.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod support;

#[path = "pools/replica.rs"]
mod replica;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use replica::{refusing, Behaviour, Replica};
use support::client::Client;
use support::http::Response;
use support::setup::{Engine, Settings};
use support::toron::Toron;
use support::PATIENCE;

const FULL: &[u8] = br#"{"error":"503 Service Unavailable: All upstream targets are at capacity"}"#;
const UNHEALTHY: &[u8] =
    br#"{"error":"503 Service Unavailable: All upstream targets are unhealthy"}"#;
const REFUSED: &[u8] = br#"{"error":"502 Bad Gateway: Upstream connection failed"}"#;

/// One route to these targets, with these keys (`a: b; c: d`).
fn settings(engine: Engine, targets: &[String], keys: &str) -> Settings {
    let mut settings = Settings::new(engine, Vec::new());
    settings.further_routes = route(targets, keys);
    settings
}

fn route(targets: &[String], keys: &str) -> String {
    let mut text = format!("  - prefix: /\n    targets: [{}]\n", targets.join(", "));
    for key in keys.split("; ").filter(|key| !key.is_empty()) {
        text.push_str(&format!("    {key}\n"));
    }
    text
}

fn urls<'a>(replicas: impl IntoIterator<Item = &'a Replica>) -> Vec<String> {
    let addresses = replicas.into_iter().map(|replica| replica.addr);
    addresses.map(|addr| format!("'http://{addr}'")).collect()
}

fn replicas(count: usize) -> Vec<Replica> {
    (0..count).map(|_| Replica::start()).collect()
}

fn counts(replicas: &[Replica]) -> Vec<usize> {
    replicas.iter().map(Replica::requests).collect()
}

fn client(toron: &Toron) -> Client {
    Client::connect(toron.addr, PATIENCE).unwrap()
}

/// The response to a request on a connection that has had `before` responses.
fn ask(client: &mut Client, request: &str, before: usize) -> Response {
    client.send(request.as_bytes(), PATIENCE);
    assert!(
        client.receive_responses(before + 1, PATIENCE),
        "no response: {:?}",
        client.end
    );
    client.parsed().responses.remove(before)
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: t.example\r\n\r\n";
const POST: &str = "POST /x HTTP/1.1\r\nHost: t.example\r\nContent-Length: 3\r\n\r\nabc";

/// The response on a connection of its own.
fn once(toron: &Toron, request: &str) -> Response {
    ask(&mut client(toron), request, 0)
}

/// A request that is not waited for.
fn sent(toron: &Toron) -> Client {
    let mut client = client(toron);
    client.send(GET.as_bytes(), PATIENCE);
    client
}

/// Sends so many requests over 8 connections, all of which must succeed.
fn spread(toron: &Toron, requests: usize) {
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = client(toron);
                for n in 0..requests / 8 {
                    assert_eq!(ask(&mut client, GET, n).status, 200);
                }
            });
        }
    });
}

fn r18_round_robin_is_even_to_one_per_reactor(engine: Engine) {
    let replicas = replicas(3);
    let settings = settings(engine, &urls(&replicas), "");
    let toron = Toron::start(&settings);
    for round in 1..=3 {
        spread(&toron, 104);
        let counts = counts(&replicas);
        assert_eq!(counts.iter().sum::<usize>(), 104 * round);
        let apart = counts.iter().max().unwrap() - counts.iter().min().unwrap();
        assert!(apart <= settings.worker_pool_size, "{counts:?}");
    }
}

fn r18_weights_share_the_requests(engine: Engine) {
    let replicas = replicas(2);
    let list = format!("{{url: 'http://{}', weight: 3}}", replicas[0].addr);
    let list = [list, format!("'http://{}'", replicas[1].addr)];
    let toron = Toron::start(&settings(engine, &list, "algorithm: weighted_round_robin"));
    spread(&toron, 400);
    let counts = counts(&replicas);
    assert!(counts[0].abs_diff(300) <= 4, "{counts:?}");
    assert_eq!(counts[0] + counts[1], 400);
}

/// A client that a trusted proxy names.
fn of_client(n: usize) -> String {
    format!("GET /x HTTP/1.1\r\nHost: t.example\r\nX-Forwarded-For: 192.0.2.{n}\r\n\r\n")
}

/// Which replica takes the requests of each of 60 clients.
fn homes(toron: &Toron, replicas: &[Replica]) -> Vec<usize> {
    let mut connection = client(toron);
    let home = |n: usize| {
        let before = counts(replicas);
        assert_eq!(ask(&mut connection, &of_client(n), n).status, 200);
        let after = counts(replicas);
        (0..replicas.len()).find(|&i| after[i] > before[i]).unwrap()
    };
    (0..60).map(home).collect()
}

fn r18_ip_hash_keeps_clients_where_they_are(engine: Engine) {
    let mut replicas = replicas(3);
    let keys = "algorithm: ip_hash; consecutive_failures: 1; cooldown_period: 1h";
    let mut settings = settings(engine, &urls(&replicas), keys);
    settings.firewall.push(("enabled", "false".into()));
    let trusted = "[127.0.0.1/32]".to_owned();
    settings.firewall.push(("trusted_proxies", trusted));
    let toron = Toron::start(&settings);
    let first = homes(&toron, &replicas);
    assert!((0..3).all(|i| first.contains(&i)), "{first:?}");
    assert_eq!(homes(&toron, &replicas), first);
    replicas[1].kill();
    let after = homes(&toron, &replicas);
    for (before, after) in first.iter().zip(after) {
        assert!(after != 1 && (*before == after || *before == 1));
    }
}

fn r18_the_less_loaded_target_is_taken(engine: Engine) {
    for algorithm in ["least_conn", "random_two"] {
        let replicas = replicas(2);
        let keys = format!("algorithm: {algorithm}");
        let toron = Toron::start(&settings(engine, &urls(&replicas), &keys));
        replicas[0].behave(Behaviour::Hold);
        // Of the first few requests one is held; from then on the other target is the less loaded.
        let mut held = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while replicas[0].requests() == 0 {
            assert!(Instant::now() < deadline);
            let taken = replicas[1].requests();
            held.push(sent(&toron));
            while replicas[0].requests() == 0 && replicas[1].requests() == taken {
                thread::yield_now();
            }
        }
        let before = replicas[1].requests();
        // One at a time: the other target never has as many in flight.
        let mut connection = client(&toron);
        for n in 0..40 {
            assert_eq!(ask(&mut connection, GET, n).status, 200);
        }
        assert_eq!(replicas[1].requests(), before + 40, "{algorithm}");
        assert_eq!(replicas[0].requests(), 1, "{algorithm}");
        replicas[0].behave(Behaviour::Answer(200));
        let mut last = held.pop().unwrap();
        assert!(last.receive_responses(1, PATIENCE));
    }
}

fn r19_a_target_takes_no_more_than_its_cap(engine: Engine) {
    let replicas = replicas(2);
    let keys = "target_max_concurrency: 2; max_concurrency: -1";
    let toron = Toron::start(&settings(engine, &urls(&replicas), keys));
    for replica in &replicas {
        replica.behave(Behaviour::Hold);
    }
    let mut held: Vec<Client> = (0..4).map(|_| sent(&toron)).collect();
    for replica in &replicas {
        replica.await_requests(2);
    }
    let mut connection = client(&toron);
    for (n, request) in [GET, POST, GET].into_iter().enumerate() {
        let refused = ask(&mut connection, request, n);
        assert_eq!((refused.status, refused.body.as_slice()), (503, FULL));
        assert_eq!(refused.head.all("retry-after"), ["5"]);
    }
    assert_eq!(counts(&replicas), [2, 2]);
    // Whoever goes away makes room at the same target.
    held.pop().unwrap().reset();
    replicas[1].behave(Behaviour::Answer(200));
    replicas[0].behave(Behaviour::Answer(200));
    for mut client in held {
        assert!(client.receive_responses(1, PATIENCE));
    }
    for n in 3..6 {
        assert_eq!(ask(&mut connection, POST, n).status, 200);
    }
}

fn is_out(toron: &Toron, replica: &Replica) {
    let line = format!("target http://{} is out", replica.addr);
    let found = |text: &str| text.contains(&line).then_some(());
    toron.process().wait_line(PATIENCE, found);
}

fn r20_passive_failures_take_a_target_out(engine: Engine) {
    for (behaviour, keys) in [
        (Behaviour::Close, ""),
        (Behaviour::Reset, ""),
        (Behaviour::Hold, "response_header_timeout: 100ms"),
        (Behaviour::Answer(500), "passive_statuses: [500, 502]"),
    ] {
        let replicas = replicas(2);
        let keys = format!("consecutive_failures: 2; cooldown_period: 1h; {keys}");
        let toron = Toron::start(&settings(engine, &urls(&replicas), &keys));
        replicas[0].behave(behaviour);
        let mut connection = client(&toron);
        let mut failed = 0;
        for n in 0..20 {
            let status = ask(&mut connection, GET, n).status;
            failed += usize::from(status != 200);
        }
        assert_eq!(replicas[0].requests(), 2, "{behaviour:?}");
        // What was lost before a response byte went to the other target.
        let retried = matches!(behaviour, Behaviour::Close | Behaviour::Reset);
        assert_eq!(failed, if retried { 0 } else { 2 }, "{behaviour:?}");
        is_out(&toron, &replicas[0]);
    }
}

fn r20_one_trial_in_the_whole_process(engine: Engine) {
    let replicas = replicas(2);
    let keys = "consecutive_failures: 1; cooldown_period: 200ms";
    let mut settings = settings(engine, &urls(&replicas), keys);
    settings.worker_pool_size = 4;
    let toron = Toron::start(&settings);
    replicas[0].behave(Behaviour::Close);
    let mut connection = client(&toron);
    for n in 0..4 {
        assert_eq!(ask(&mut connection, GET, n).status, 200);
    }
    is_out(&toron, &replicas[0]);
    let failed = replicas[0].requests();
    replicas[0].behave(Behaviour::Hold);
    // 50 at once ask until one of them is the trial, which hangs.
    let tried = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let mut connection = client(&toron);
                let mut asked = 0;
                while !tried.load(Ordering::SeqCst) {
                    connection.send(GET.as_bytes(), PATIENCE);
                    asked += 1;
                    let limit = Instant::now() + PATIENCE;
                    while connection.complete_responses() < asked {
                        connection.receive(4096, Instant::now() + Duration::from_millis(20));
                        if connection.complete_responses() < asked
                            && replicas[0].requests() > failed
                        {
                            tried.store(true, Ordering::SeqCst);
                        }
                        assert!(Instant::now() < limit);
                        if tried.load(Ordering::SeqCst) {
                            break;
                        }
                    }
                }
                // Whoever still waits is the trial or is answered by the other target.
                if connection.receive_responses(asked, Duration::from_millis(500)) {
                    answered.fetch_add(1, Ordering::SeqCst);
                } else {
                    replicas[0].behave(Behaviour::Answer(200));
                    assert!(connection.receive_responses(asked, PATIENCE));
                }
            });
        }
    });
    assert_eq!(answered.load(Ordering::SeqCst), 49);
    assert_eq!(replicas[0].requests(), failed + 1);
    // It succeeded: both take their turns again.
    let before = counts(&replicas);
    spread(&toron, 40);
    let after = counts(&replicas);
    assert!(
        (16..=24).contains(&(after[0] - before[0])),
        "{before:?} {after:?}"
    );
}

fn r20_requests_never_take_out_the_last_target(engine: Engine) {
    let (one, _first) = refusing();
    let (other, _second) = refusing();
    for targets in [vec![one], vec![one, other]] {
        let urls: Vec<String> = targets.iter().map(|a| format!("'http://{a}'")).collect();
        let keys = "consecutive_failures: 1; cooldown_period: 1h";
        let toron = Toron::start(&settings(engine, &urls, keys));
        let mut connection = client(&toron);
        for n in 0..10 {
            let response = ask(&mut connection, if n % 2 == 0 { GET } else { POST }, n);
            assert_eq!((response.status, response.body.as_slice()), (502, REFUSED));
        }
    }
}

fn r20_probes_take_targets_out_and_bring_them_back(engine: Engine) {
    let replicas = replicas(2);
    let keys = "health_check_path: /healthz; health_check_interval: 50ms; consecutive_failures: 2";
    let toron = Toron::start(&settings(engine, &urls(&replicas), keys));
    replicas[0].answer_probes(503);
    is_out(&toron, &replicas[0]);
    let asked = format!(
        "the last probe of target http://{}, GET /healthz: answers with status 503",
        replicas[0].addr
    );
    toron
        .process()
        .wait_line(PATIENCE, |text| text.contains(&asked).then_some(()));
    let before = replicas[0].requests();
    spread(&toron, 40);
    assert_eq!(replicas[0].requests(), before);
    replicas[1].answer_probes(404);
    is_out(&toron, &replicas[1]);
    let mut connection = client(&toron);
    for (n, request) in [GET, POST].into_iter().enumerate() {
        let refused = ask(&mut connection, request, n);
        assert_eq!((refused.status, refused.body.as_slice()), (503, UNHEALTHY));
    }
    assert_eq!(replicas[1].requests(), 40);
    replicas[0].answer_probes(204);
    let line = format!("target http://{} is up again", replicas[0].addr);
    toron
        .process()
        .wait_line(PATIENCE, |text| text.contains(&line).then_some(()));
    assert_eq!(once(&toron, GET).status, 200);
    assert_eq!(
        (replicas[0].requests(), replicas[1].requests()),
        (before + 1, 40)
    );
}

fn r20_all_out_can_be_tried_anyway(engine: Engine) {
    let replicas = replicas(2);
    let keys = "health_check_path: /healthz; health_check_interval: 50ms; \
                consecutive_failures: 1; when_all_down: try";
    let toron = Toron::start(&settings(engine, &urls(&replicas), keys));
    for replica in &replicas {
        replica.answer_probes(500);
        is_out(&toron, replica);
    }
    spread(&toron, 40);
    let counts = counts(&replicas);
    assert!(counts.iter().all(|&n| n >= 18), "{counts:?}");
}

fn r21_a_killed_target_costs_no_idempotent_request(engine: Engine) {
    let mut replicas = replicas(3);
    let keys = "cooldown_period: 50ms";
    let toron = Toron::start(&settings(engine, &urls(&replicas), keys));
    let over = AtomicBool::new(false);
    let asked: [AtomicUsize; 6] = Default::default();
    let each_asks = |more: usize| {
        let marks = asked.each_ref().map(|n| n.load(Ordering::SeqCst));
        let deadline = Instant::now() + PATIENCE;
        let short = |(n, mark): (&AtomicUsize, &usize)| n.load(Ordering::SeqCst) < mark + more;
        while asked.iter().zip(&marks).any(short) {
            assert!(Instant::now() < deadline, "nothing is answered");
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        for asked in &asked {
            let (over, toron) = (&over, &toron);
            scope.spawn(move || {
                let mut n = 0;
                let mut connection = client(toron);
                while !over.load(Ordering::SeqCst) {
                    let response = ask(&mut connection, GET, n);
                    assert_eq!(response.status, 200, "{response:?}");
                    n += 1;
                    asked.fetch_add(1, Ordering::SeqCst);
                    if n == 100 {
                        (n, connection) = (0, client(toron));
                    }
                }
            });
        }
        // Set whatever happens here, or a failure would hang.
        let kills = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..9 {
                let replica = &mut replicas[round % 3];
                let mark = replica.requests();
                replica.await_requests(mark + 10);
                replica.kill();
                each_asks(8);
                replica.restart();
                // Until its cooldown is over it is no alternative when the next one goes.
                let mark = replica.requests();
                replica.await_requests(mark + 10);
                // A request that met this kill must not meet the next one: it has one retry.
                each_asks(2);
            }
        }));
        over.store(true, Ordering::SeqCst);
        kills.unwrap();
    });
}

/// A POST that may have been executed is not sent again; one that found nobody is.
fn r21_a_post_is_sent_again_only_after_a_connect_failure(engine: Engine) {
    let replicas = replicas(1);
    let (dead, _socket) = refusing();
    let mut list = urls(&replicas);
    list.push(format!("'http://{dead}'"));
    let toron = Toron::start(&settings(engine, &list, "consecutive_failures: 1000"));
    let mut connection = client(&toron);
    for n in 0..10 {
        assert_eq!(ask(&mut connection, POST, n).status, 200);
    }
    assert_eq!(replicas[0].requests(), 10);
    let pair = self::replicas(2);
    let toron = Toron::start(&settings(
        engine,
        &urls(&pair),
        "consecutive_failures: 1000",
    ));
    pair[0].behave(Behaviour::Close);
    pair[1].behave(Behaviour::Reset);
    for _ in 0..10 {
        assert_eq!(once(&toron, POST).status, 502);
    }
    assert_eq!(counts(&pair).iter().sum::<usize>(), 10);
    // Of a GET the other target is asked, once.
    assert_eq!(once(&toron, GET).status, 502);
    assert_eq!(counts(&pair).iter().sum::<usize>(), 12);
}

fn r22_a_removed_target_is_left_in_peace(engine: Engine) {
    let replicas = replicas(2);
    let keys = "health_check_path: /healthz; health_check_interval: 50ms";
    let mut settings = settings(engine, &urls(&replicas), keys);
    let toron = Toron::start(&settings);
    spread(&toron, 80);
    replicas[0].await_probes(1);
    // In flight at both, and idle connections on all reactors.
    let idle = replicas[0].connections();
    assert!(idle > 0);
    replicas[0].behave(Behaviour::Hold);
    let mark = replicas[0].requests();
    let mut held = vec![sent(&toron), sent(&toron)];
    replicas[0].await_requests(mark + 1);
    settings.further_routes = route(&urls(&replicas[1..]), keys);
    toron.reload(&settings);
    replicas[0].behave(Behaviour::Answer(200));
    for client in &mut held {
        assert!(client.receive_responses(1, PATIENCE));
        assert_eq!(client.parsed().responses[0].status, 200);
    }
    replicas[0].await_no_connection();
    let before = replicas[0].requests();
    spread(&toron, 40);
    replicas[1].await_probes(3);
    assert_eq!(
        (replicas[0].requests(), replicas[0].connections()),
        (before, 0)
    );
}

fn r16_ipv6_and_names(engine: Engine) {
    let listener = std::net::TcpListener::bind("[::1]:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let answering = thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut room = [0; 4096];
        assert!(stream.read(&mut room).unwrap() > 0);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(answer).unwrap();
    });
    let list = [format!("'http://{addr}'")];
    let toron = Toron::start(&settings(engine, &list, ""));
    assert_eq!(once(&toron, GET).status, 200);
    answering.join().unwrap();
    // Whatever addresses localhost has besides 127.0.0.1: the one that answers is found.
    let replica = Replica::start();
    let list = [format!("'http://localhost:{}'", replica.addr.port())];
    let toron = Toron::start(&settings(engine, &list, "retries: 0"));
    for n in 1..=8 {
        replica.behave(Behaviour::Answer(200));
        assert_eq!(once(&toron, GET).status, 200);
        assert_eq!(replica.requests(), n);
    }
}

on_both_engines! {
    r18_round_robin_is_even_to_one_per_reactor:
        r18_round_robin_is_even_to_one_per_reactor_on_epoll,
        r18_round_robin_is_even_to_one_per_reactor_on_io_uring;
    r18_weights_share_the_requests:
        r18_weights_share_the_requests_on_epoll,
        r18_weights_share_the_requests_on_io_uring;
    r18_ip_hash_keeps_clients_where_they_are:
        r18_ip_hash_keeps_clients_where_they_are_on_epoll,
        r18_ip_hash_keeps_clients_where_they_are_on_io_uring;
    r18_the_less_loaded_target_is_taken:
        r18_the_less_loaded_target_is_taken_on_epoll,
        r18_the_less_loaded_target_is_taken_on_io_uring;
    r19_a_target_takes_no_more_than_its_cap:
        r19_a_target_takes_no_more_than_its_cap_on_epoll,
        r19_a_target_takes_no_more_than_its_cap_on_io_uring;
    r20_passive_failures_take_a_target_out:
        r20_passive_failures_take_a_target_out_on_epoll,
        r20_passive_failures_take_a_target_out_on_io_uring;
    r20_one_trial_in_the_whole_process:
        r20_one_trial_in_the_whole_process_on_epoll,
        r20_one_trial_in_the_whole_process_on_io_uring;
    r20_requests_never_take_out_the_last_target:
        r20_requests_never_take_out_the_last_target_on_epoll,
        r20_requests_never_take_out_the_last_target_on_io_uring;
    r20_probes_take_targets_out_and_bring_them_back:
        r20_probes_take_targets_out_and_bring_them_back_on_epoll,
        r20_probes_take_targets_out_and_bring_them_back_on_io_uring;
    r20_all_out_can_be_tried_anyway:
        r20_all_out_can_be_tried_anyway_on_epoll,
        r20_all_out_can_be_tried_anyway_on_io_uring;
    r21_a_killed_target_costs_no_idempotent_request:
        r21_a_killed_target_costs_no_idempotent_request_on_epoll,
        r21_a_killed_target_costs_no_idempotent_request_on_io_uring;
    r21_a_post_is_sent_again_only_after_a_connect_failure:
        r21_a_post_is_sent_again_only_after_a_connect_failure_on_epoll,
        r21_a_post_is_sent_again_only_after_a_connect_failure_on_io_uring;
    r22_a_removed_target_is_left_in_peace:
        r22_a_removed_target_is_left_in_peace_on_epoll,
        r22_a_removed_target_is_left_in_peace_on_io_uring;
    r16_ipv6_and_names:
        r16_ipv6_and_names_on_epoll,
        r16_ipv6_and_names_on_io_uring;
}
