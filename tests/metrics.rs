//! `/metrics` of the real binary on both engines: a real parser accepts it, its numbers are those of
//! what happened, and only who may see it does. That they add up after a storm is in tests/storm.rs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use socket2::{Domain, Socket, Type};

use support::client::Client;
use support::http::Response;
use support::metrics::{fetch, parse, scrape, Exposition, Format};
use support::setup::{both, Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::{Script, Step, Then, Upstream};
use support::{soak, PATIENCE};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Sends a request on a connection of its own; the answer.
fn ask(toron: &Toron, request: &str) -> Response {
    ask_on(Client::connect(toron.addr, PATIENCE).unwrap(), request)
}

fn ask_on(mut client: Client, request: &str) -> Response {
    client.send(request.as_bytes(), PATIENCE);
    assert!(client.receive_responses(1, PATIENCE), "{request}");
    client.parsed().responses.remove(0)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n")
}

/// Waits until the metrics say so.
fn await_metrics(toron: &Toron, what: &str, done: impl Fn(&Exposition) -> bool) -> Exposition {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = scrape(toron);
        if done(&now) {
            return now;
        }
        assert!(Instant::now() < deadline, "{what}: {:?}", now.samples);
    }
}

/// Every kind of route label: a field's value may hold what has to be escaped.
fn settings(engine: Engine, upstream: &Upstream) -> Settings {
    let mut capped = Route::new("/capped", &upstream.addr);
    capped.extra.push(("max_concurrency", "3".into()));
    capped.extra.push(("max_body_bytes", "10".into()));
    let mut odd = Route::new("/odd", &upstream.addr);
    odd.extra
        .push(("headers", r#"{X-Odd: 'a "quoted" \ value'}"#.into()));
    let mut settings = Settings::new(engine, vec![capped, odd, Route::new("/", &upstream.addr)]);
    settings
        .further_routes
        .push_str("  - {prefix: /fixed, status: 302, headers: {Location: /}, body: gone}\n");
    settings
}

#[test]
fn a_real_parser_accepts_both_formats_and_the_numbers_are_those_of_what_happened() {
    both(|engine| {
        let upstream = Upstream::start();
        upstream.begin(always(OK));
        let toron = Toron::start(&settings(engine, &upstream));
        for _ in 0..3 {
            assert_eq!(ask(&toron, &get("/a")).status, 200);
        }
        let odd = "GET /odd HTTP/1.1\r\nHost: t\r\nX-Odd: a \"quoted\" \\ value\r\n\r\n";
        assert_eq!(ask(&toron, odd).status, 200);
        assert_eq!(ask(&toron, &get("/fixed")).status, 302);
        let post = |path: &str, body: &str| {
            let length = body.len();
            format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}")
        };
        assert_eq!(ask(&toron, &post("/capped", "12345")).status, 200);
        assert_eq!(ask(&toron, &post("/capped", "12345678901")).status, 413);
        assert_eq!(ask(&toron, "GET / HTTP/1.1\r\nHost:\0\r\n\r\n").status, 400);
        assert_eq!(ask(&toron, &get("/health")).status, 200);

        let text = fetch(&toron, Format::Text);
        let open = fetch(&toron, Format::OpenMetrics);
        let (found, open) = (
            parse(Format::Text, &text),
            parse(Format::OpenMetrics, &open),
        );
        found.check();
        found.adds_up();
        let names = |all: &Exposition| {
            let name = |s: &support::metrics::Sample| format!("{} {:?}", s.name, s.labels);
            all.samples.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(&found), names(&open));
        the_labels_are_those_that_are_documented(&found);

        let requests = |route, class| {
            found.count(
                "toron_requests_total",
                &[("route", route), ("class", class)],
            )
        };
        let odd = r#"/odd {X-Odd=a "quoted" \ value}"#;
        assert_eq!(requests("/", "2xx"), 3);
        assert_eq!(requests(odd, "2xx"), 1, "{:?}", names(&found));
        assert_eq!(requests("/fixed", "3xx"), 1);
        assert_eq!(
            (requests("/capped", "2xx"), requests("/capped", "4xx")),
            (1, 1)
        );
        // /health, and the metrics themselves as they begin.
        assert_eq!((requests("", "2xx"), requests("", "4xx")), (2, 1));
        let refusals = |route, reason| {
            found.count(
                "toron_refusals_total",
                &[("route", route), ("reason", reason)],
            )
        };
        assert_eq!(refusals("/capped", "declared_too_large"), 1);
        assert_eq!(refusals("", "control_byte"), 1);
        assert_eq!(found.sum("toron_refusals_total", &[]), 2);
        for name in [
            "toron_response_head_seconds",
            "toron_request_duration_seconds",
        ] {
            let (count, sum) = (format!("{name}_count"), format!("{name}_sum"));
            assert_eq!(found.count(&count, &[("route", "/")]), 3);
            assert_eq!(found.count(&count, &[("route", "/capped")]), 1);
            assert_eq!(found.get(&count, &[("route", "/fixed")]), None);
            assert!(found.get(&sum, &[("route", "/")]).unwrap() > 0.0);
        }
        let bytes = |name, route| found.count(name, &[("route", route)]);
        assert_eq!(bytes("toron_request_body_bytes_total", "/capped"), 5);
        let out = bytes("toron_response_bytes_total", "/");
        assert!(out > 3 * 5 && out < 3 * 500, "{out}");
        let slots = [("route", "/capped")];
        assert_eq!(
            found.get("toron_route_requests_in_flight", &slots),
            Some(0.0)
        );
        let limit = found.get("toron_route_requests_in_flight_limit", &slots);
        assert_eq!(limit, Some(3.0));
        let build = found.sum("toron_build_info", &[("engine", engine.name())]);
        assert_eq!(build, 1);
        let connects = |how| found.count("toron_upstream_connects_total", &[("how", how)]);
        assert_eq!(connects("reused") + connects("dialled"), 5);
        assert_eq!(
            found.count("toron_client_connections_accepted_total", &[]),
            10
        );
    });
}

/// The head of the second is written when its body has been collected.
#[test]
fn i4_fields_with_an_underscore_are_counted_once() {
    both(|engine| {
        let upstream = Upstream::start();
        upstream.begin(always(OK));
        let toron = Toron::start(&settings(engine, &upstream));
        let fields = "X_Real_IP: 1\r\nA-B: c\r\nA_B: d\r\n";
        ask(
            &toron,
            &format!("GET / HTTP/1.1\r\nHost: t\r\n{fields}\r\n"),
        );
        let post = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n";
        ask(&toron, &format!("{post}{fields}\r\n1\r\nx\r\n0\r\n\r\n"));
        let dropped = scrape(&toron).count("toron_request_fields_dropped_total", &[]);
        assert_eq!(dropped, 4);
    });
}

fn the_labels_are_those_that_are_documented(found: &Exposition) {
    for sample in &found.samples {
        let name = &sample.name;
        let plain = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|s| name.strip_suffix(s));
        let family = toron::server::metrics::families()
            .find(|family| family.name == name || Some(family.name) == plain)
            .unwrap_or_else(|| panic!("{name} is no metric"));
        let mut labels: Vec<&str> = family.labels.to_vec();
        if name.ends_with("_bucket") {
            labels.push("le");
        }
        labels.sort_unstable();
        let its: Vec<&str> = sample.labels.keys().map(String::as_str).collect();
        assert_eq!(its, labels, "{name}");
    }
}

fn always(answer: &[u8]) -> Script {
    Script {
        answers: vec![vec![Step::Send(answer.to_vec())]],
        repeat_last: true,
        ..Script::default()
    }
}

/// A connection from another loopback address.
fn connect_from(source: [u8; 4], addr: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let source = SocketAddr::new(IpAddr::from(source), 0);
    socket.bind(&source.into()).unwrap();
    socket.connect(&addr.into()).unwrap();
    Client::over(socket.into())
}

/// Names of routes are cut; a series is told once all the same, or no scraper would take any of them.
#[test]
fn routes_whose_names_are_cut_are_told_apart() {
    let upstream = Upstream::start();
    upstream.begin(always(OK));
    let long = format!("/{}", "long".repeat(40));
    let prefixes = ["/a", "/b"].map(|end| format!("{long}{end}"));
    let routes = prefixes.iter().map(|p| Route::new(p, &upstream.addr));
    let toron = Toron::start(&Settings::new(Engine::Epoll, routes.collect()));
    for prefix in &prefixes {
        assert_eq!(ask(&toron, &get(prefix)).status, 200);
    }
    let of_routes = |found: &Exposition| {
        let samples = found.samples.iter();
        samples
            .filter(|s| s.name == "toron_response_bytes_total")
            .count()
    };
    // A request is counted when it has ended, which its client may know before.
    let found = await_metrics(&toron, "two routes", |found| of_routes(found) == 2);
    found.check();
}

#[test]
fn only_the_administrative_subnets_see_it_and_no_rate_limits_them() {
    both(|engine| {
        let upstream = Upstream::start();
        upstream.begin(always(OK));
        let mut settings = settings(engine, &upstream);
        settings.firewall = vec![
            ("rate_limit_rps", "1".into()),
            ("rate_limit_burst", "1".into()),
            ("auto_block_threshold", "0".into()),
        ];
        let toron = Toron::start(&settings);
        assert_eq!(ask(&toron, &get("/")).status, 200);
        let used_up = |response: Response| response.status == 429;
        let deadline = Instant::now() + PATIENCE;
        while !used_up(ask(&toron, &get("/"))) {
            assert!(Instant::now() < deadline, "no rate limit");
        }
        for _ in 0..20 {
            let response = ask(&toron, &get("/metrics"));
            assert_eq!(response.status, 200);
        }
        let denied = br#"{"error":"403 Forbidden: Access denied by administrative subnet policy"}"#;
        let other = connect_from([127, 0, 0, 2], toron.addr);
        let response = ask_on(other, &get("/metrics"));
        assert_eq!((response.status, &response.body[..]), (403, &denied[..]));
        let relayed = |field: &str| {
            let request = format!("GET /metrics HTTP/1.1\r\nHost: t\r\n{field}: x\r\n\r\n");
            ask_on(connect_from([127, 0, 0, 1], toron.addr), &request).status
        };
        // From an administrative address, but for whom? It costs a token like any other request.
        for field in ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"] {
            assert!([403, 429].contains(&relayed(field)), "{field}");
        }
        let refused = |found: &Exposition, reason| {
            found.count("toron_refusals_total", &[("route", ""), ("reason", reason)])
        };
        // The firewall's own count is told at the end of a turn, after the answer.
        let found = await_metrics(&toron, "refusals by rate", |found| {
            let by_rate = refused(found, "rate_limit");
            by_rate >= 1 && found.count("toron_firewall_refused_total", &[]) == by_rate
        });
        assert!(refused(&found, "admin_subnet") >= 1);
        let violations = found.sum("toron_firewall_violations_total", &[("kind", "rate")]);
        assert_eq!(violations, refused(&found, "rate_limit"));
    });
}

/// Requests to the admin API add up as well where nobody stays for the answer.
#[test]
fn a_question_whose_client_leaves_has_ended() {
    both(|engine| {
        let upstream = Upstream::start();
        let mut with_key = settings(engine, &upstream);
        with_key.admin_key = Some("k".into());
        let toron = Toron::start(&with_key);
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        let head = "POST /internal/api/reload HTTP/1.1\r\nHost: t\r\nX-Toron-Admin-Key: k\r\n\
                    Content-Length: 9\r\n\r\n";
        client.send(head.as_bytes(), PATIENCE);
        client.close();
        let left = [("route", ""), ("reason", "client_left_body")];
        let found = await_metrics(&toron, "the client has left", |found| {
            found.count("toron_refusals_total", &left) == 1
        });
        found.adds_up();
        let none = [("route", ""), ("class", "none")];
        assert_eq!(found.count("toron_requests_total", &none), 1);
    });
}

#[test]
fn methods_versions_and_a_route_of_the_same_path() {
    both(|engine| {
        let upstream = Upstream::start();
        upstream.begin(always(OK));
        let toron = Toron::start(&settings(engine, &upstream));
        let response = ask(
            &toron,
            "POST /metrics HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n",
        );
        assert_eq!(response.status, 405);
        assert_eq!(response.head.first("Allow"), Some("GET, HEAD"));
        let head = ask(&toron, "HEAD /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!((head.status, head.body.len()), (200, 0));
        let media = head.head.first("Content-Type");
        assert_eq!(media, Some("text/plain; version=0.0.4; charset=utf-8"));
        // Up to the close.
        let mut old = Client::connect(toron.addr, PATIENCE).unwrap();
        old.send(b"GET /metrics HTTP/1.0\r\n\r\n", PATIENCE);
        assert!(old.receive_until_end(PATIENCE));
        let body = &old.parsed().responses[0].body;
        parse(Format::Text, body).check();
        // The next request on the connection is answered behind the metrics.
        let mut kept = Client::connect(toron.addr, PATIENCE).unwrap();
        kept.send((get("/metrics") + &get("/a")).as_bytes(), PATIENCE);
        assert!(kept.receive_responses(2, PATIENCE));
        assert_eq!(kept.parsed().responses[1].body, b"hello");

        let mut own = settings(engine, &upstream);
        own.routes.push(Route::new("/metrics", &upstream.addr));
        toron.reload(&own);
        assert_eq!(ask(&toron, &get("/metrics")).body, b"hello");
    });
}

#[test]
fn routes_that_stay_go_on_counting_over_a_reload_and_others_are_told_no_more() {
    both(|engine| {
        let upstream = Upstream::start();
        upstream.begin(always(OK));
        let routes = |prefixes: &[&str]| {
            let route = |prefix: &&str| Route::new(prefix, &upstream.addr);
            Settings::new(engine, prefixes.iter().map(route).collect())
        };
        let toron = Toron::start(&routes(&["/stays", "/goes", "/"]));
        let count = |found: &Exposition, route| {
            let labels = [("route", route), ("class", "2xx")];
            found.get("toron_requests_total", &labels)
        };
        for path in ["/stays", "/goes", "/stays"] {
            assert_eq!(ask(&toron, &get(path)).status, 200);
        }
        toron.reload(&routes(&["/comes", "/stays", "/"]));
        assert_eq!(ask(&toron, &get("/stays")).status, 200);
        assert_eq!(ask(&toron, &get("/comes")).status, 200);
        let found = await_metrics(&toron, "what was answered", |found| {
            count(found, "/stays") == Some(3.0) && count(found, "/comes") == Some(1.0)
        });
        found.check();
        assert_eq!(count(&found, "/goes"), None);
        assert_eq!(
            found.count("toron_config_reloads_total", &[("outcome", "applied")]),
            1
        );
        assert_eq!(found.count("toron_config_last_reload_successful", &[]), 1);
        assert_eq!(found.count("toron_config_routes", &[]), 3);

        let mut bad = routes(&["/stays"]);
        bad.further_routes
            .push_str("  - {prefix: no-slash, status: 200}\n");
        let outcome = toron.try_reload(&bad);
        assert!(outcome.contains("nothing was changed"), "{outcome}");
        let found = scrape(&toron);
        let rejected = [("outcome", "rejected")];
        assert_eq!(found.count("toron_config_reloads_total", &rejected), 1);
        assert_eq!(
            found.get("toron_config_last_reload_successful", &[]),
            Some(0.0)
        );
        assert_eq!(count(&found, "/comes"), Some(1.0));
    });
}

#[test]
fn deadlines_are_told_by_their_kind() {
    both(|engine| {
        let upstream = Upstream::start();
        upstream.begin(Script {
            answers: vec![vec![Step::Hang]],
            repeat_last: true,
            then: Then::Hang,
            ..Script::default()
        });
        let mut late = Route::new("/late", &upstream.addr);
        late.extra.push(("response_header_timeout", "100ms".into()));
        let mut deadline = Route::new("/deadline", &upstream.addr);
        deadline.extra.push(("header_deadline", "100ms".into()));
        let mut slow = Route::new("/slow", &upstream.addr);
        slow.extra.push(("read_timeout", "100ms".into()));
        let mut settings = Settings::new(engine, vec![late, deadline, slow]);
        settings.server.push(("read_timeout", "300ms".into()));
        settings.server.push(("idle_timeout", "100ms".into()));
        let toron = Toron::start(&settings);
        assert_eq!(ask(&toron, &get("/late")).status, 504);
        assert_eq!(ask(&toron, &get("/deadline")).status, 504);
        assert_eq!(ask(&toron, "GET / HTTP/1.1\r\n").status, 408);
        let body = "POST /slow HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\n1";
        assert_eq!(ask(&toron, body).status, 408);
        let mut idle = Client::connect(toron.addr, PATIENCE).unwrap();
        idle.send(get("/nowhere").as_bytes(), PATIENCE);
        assert!(idle.receive_until_end(PATIENCE));
        let found = await_metrics(&toron, "all are over", |found| {
            found.sum("toron_requests_in_flight", &[]) == 0
        });
        let passed = |kind| found.count("toron_deadlines_total", &[("kind", kind)]);
        for kind in [
            "response_header_timeout",
            "header_deadline",
            "header_timeout",
            "read_timeout",
        ] {
            assert_eq!(passed(kind), 1, "{kind}");
        }
        assert!(passed("idle_timeout") >= 1);
        assert_eq!(passed("request_deadline"), 0);
        let labels = [("route", "/late"), ("reason", "response_header_timeout")];
        assert_eq!(found.count("toron_refusals_total", &labels), 1);
        found.adds_up();
    });
}

/// More than a buffer takes, and a client that takes it slowly: others are served meanwhile, and all
/// of it comes.
#[test]
fn many_routes_come_whole_and_piece_by_piece() {
    let count = if soak() { 10_000 } else { 400 };
    both(|engine| {
        let upstream = Upstream::start();
        upstream.begin(always(OK));
        let name = |i| format!("/a-route-with-a-name-of-some-length/{i:05}");
        let routes = (0..count).map(|i| Route::new(&name(i), &upstream.addr));
        let toron = Toron::start(&Settings::new(engine, routes.collect()));
        let mut user = Client::connect(toron.addr, PATIENCE).unwrap();
        let before = toron.proc().resident_kib();
        for i in 0..count {
            user.send(get(&name(i)).as_bytes(), PATIENCE);
            assert!(user.receive_until(PATIENCE, |c| c.received.ends_with(b"hello")));
            user.received.clear();
        }
        let used = toron.proc().resident_kib().saturating_sub(before);
        println!("{}: {used} KiB for {count} routes", engine.name());
        let used = |s: &&support::metrics::Sample| s.name == "toron_requests_total";
        // A request is counted when it has ended, which its client may know before.
        await_metrics(&toron, "all routes", |found| {
            found.samples.iter().filter(used).count() > count
        });
        let mut slow = Client::connect_with_window(toron.addr, 4096).unwrap();
        slow.send(get("/metrics").as_bytes(), PATIENCE);
        assert!(slow.receive(100, Instant::now() + PATIENCE));
        // It is far from done, and waits for its client.
        assert_eq!(ask(&toron, &get(&name(0))).status, 200);
        let end = |c: &Client| c.received.ends_with(b"\n\r\n0\r\n\r\n");
        assert!(slow.receive_until(6 * PATIENCE, end));
        let body = slow.parsed().responses.remove(0).body;
        assert!(body.len() > count * 1000);
        let found = parse(Format::Text, &body);
        found.check();
        // And the one that no route has.
        assert_eq!(found.samples.iter().filter(used).count(), count + 1);
        tell_what_it_costs(&toron, engine);
    });
}

/// Figures of ten expositions to a client that takes them at once.
fn tell_what_it_costs(toron: &Toron, engine: Engine) {
    const ROUNDS: u64 = 10;
    let ticks = toron.cpu_ticks();
    let sizes = (0..ROUNDS).map(|_| fetch(toron, Format::Text).len());
    let size = sizes.max().unwrap_or_default();
    let cpu = (toron.cpu_ticks() - ticks) * 10 / ROUNDS;
    println!(
        "{}: {size} bytes, {cpu} ms of processor time",
        engine.name()
    );
    let found = scrape(toron);
    let buckets = found.samples.iter();
    for bucket in buckets.filter(|s| s.name == "toron_reactor_turn_seconds_bucket") {
        let (bound, count) = (&bucket.labels["le"], bucket.value);
        println!("{}: {count} sampled turns up to {bound} s", engine.name());
    }
}
