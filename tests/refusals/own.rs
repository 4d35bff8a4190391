//! Refusals that need a state of their own: something is full, has run out, is gone, or ends.

use std::time::Instant;

use rustix::process::{getrlimit, prlimit, Pid, Resource, Rlimit, Signal};

use super::cases::Limit::{Default as Unwritten, Written};
use super::cases::{case, get, with, Case, LONG};
use super::firewall::{assert_limit, connect_from};
use super::support::client::Client;
use super::support::metrics::scrape;
use super::support::setup::both;
use super::support::toron::Toron;
use super::support::upstream::Connection;
use super::support::{TempDir, PATIENCE};
use super::{ask, refusals, Place};

/// Whoever waits for the slot is refused, by the route's own cap or the guardrail's.
#[test]
fn a_full_route_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        let body = r#"{"error":"503 Service Unavailable: Route concurrency limit reached"}"#;
        let waits = |path: &str, count: usize| {
            let client = place.client(get(path).as_bytes());
            let seen = place.hangs.wait_for(PATIENCE, |all| {
                all.iter().flat_map(Connection::heads).count() >= count
            });
            assert!(seen, "{path}");
            client
        };
        let _waiting = waits("/full", 1);
        let full = case(get("/full"), body, "route_full")
            .by(Written(
                "max_concurrency",
                Some(1),
                "route",
                "    max_concurrency: 1",
            ))
            .seen(2, 2);
        place.play(&full);
        // min(32, max(1, 2 / 4)) is 1.
        let _too = waits("/guarded", 2);
        let guarded = case(get("/guarded"), body, "route_full").seen(2, 2);
        place.play(&Case {
            limit: Written("max_concurrency", Some(1), "guardrail", "/guarded"),
            ..guarded
        });
    });
}

/// Without a descriptor for the upstream.
#[test]
fn a_lack_of_descriptors_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        // The connection of the list makes what else its reactor needs; then there is one more.
        let _first = refusals(place.toron.addr);
        let mut client = place.client(b"GET /pla");
        let pid = place.toron.process().pid();
        let of_process = Pid::from_raw(i32::try_from(pid).unwrap());
        // It has raised its soft limit to the hard one, which is this process's, too.
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = |current| Rlimit { current, maximum };
        // As many as are open: the request is on its way to a connection that was accepted.
        accepted(&place, 1);
        prlimit(of_process, Resource::Nofile, limit(Some(3))).unwrap();
        client.send(b"in HTTP/1.1\r\nHost: t.example\r\n\r\n", PATIENCE);
        assert!(client.receive_responses(1, PATIENCE));
        prlimit(of_process, Resource::Nofile, limit(maximum)).unwrap();
        let body = r#"{"error":"503 Service Unavailable: Out of local resources"}"#;
        place.check(&case(get("/plain"), body, "local_resources"), &mut client);
    });
}

/// Waits until so many client connections are open beside the one that asks.
fn accepted(place: &Place, count: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = ask(place.toron.addr, "/internal/api/status");
        if status["sessions"].as_u64() == Some(count + 1) {
            return;
        }
        assert!(Instant::now() < deadline, "{status}");
        std::thread::yield_now();
    }
}

/// Who waits for the one place that its target has, and who finds none that is up.
#[test]
fn targets_that_are_full_or_out_are_named() {
    both(|engine| {
        let place = Place::start(engine);
        let _waiting = place.client(get("/targets-full").as_bytes());
        let seen = place.hangs.wait_for(PATIENCE, |all| {
            all.iter().flat_map(Connection::heads).count() >= 1
        });
        assert!(seen);
        let body = r#"{"error":"503 Service Unavailable: All upstream targets are at capacity"}"#;
        let full = case(get("/targets-full"), body, "targets_full").by(Written(
            "target_max_concurrency",
            Some(1),
            "route",
            "target_max_concurrency: 1",
        ));
        place.play(&full);
        // Out as soon as a probe has failed; until then it is dialled.
        let is_out = || {
            let routes = ask(place.toron.addr, "/internal/api/routes");
            let mut routes = routes.as_array().unwrap().iter();
            let route = routes.find(|route| route["prefix"] == "/targets-out");
            route.unwrap()["target_health"][0]["health"] == "out"
        };
        let deadline = Instant::now() + PATIENCE;
        while !is_out() {
            assert!(Instant::now() < deadline, "no probe has failed");
            std::thread::yield_now();
        }
        let body = r#"{"error":"503 Service Unavailable: All upstream targets are unhealthy"}"#;
        place.play(&case(get("/targets-out"), body, "targets_unhealthy"));
        let found = scrape(&place.toron);
        let healthy = |route: &str| -> Vec<f64> {
            let of_route = found
                .samples
                .iter()
                .filter(|s| s.labels.get("route").is_some_and(|r| r == route));
            of_route
                .filter(|s| s.name == "toron_target_healthy")
                .map(|s| s.value)
                .collect()
        };
        assert_eq!(
            (healthy("/targets-out"), healthy("/targets-full")),
            (vec![0.0], vec![1.0])
        );
    });
}

/// The upstream switches protocols, and then resets the tunnel.
#[test]
fn an_upstream_that_leaves_a_tunnel_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        let upgrade = with(
            "GET",
            "/ws",
            "Connection: Upgrade\r\nUpgrade: websocket\r\n",
        );
        let mut client = place.client(upgrade.as_bytes());
        assert!(client.receive_until_end(PATIENCE));
        assert!(client.received.starts_with(b"HTTP/1.1 101 "));
        let entry = &refusals(place.toron.addr)[0];
        assert_eq!(entry["reason"], "upstream_left_tunnel", "{entry}");
        assert_eq!(
            (&entry["ended_by"], &entry["status"]),
            (&"upstream".into(), &101.into())
        );
    });
}

#[test]
fn what_the_admin_api_refuses_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        let request = with(
            "POST",
            "/internal/api/firewall/block",
            "X-Toron-Admin-Key: k\r\n",
        );
        let body =
            r#"{"error":"400 Bad Request: address is missing (allowed: 192.0.2.7, 2001:db8::7)"}"#;
        place.play(&case(request, body, "admin_request"));
        // Without a key nobody can ask for the list.
        let config = place.config.replace("  key: k\n", "");
        let toron = Toron::start_files(&config, &place.routes, None);
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        client.send(get("/internal/api/status").as_bytes(), PATIENCE);
        assert!(client.receive_responses(1, PATIENCE));
        let response = &client.parsed().responses[0];
        assert_eq!(response.body, br#"{"error":"404 Not Found"}"#);
        assert_eq!(
            response.head.first("X-Toron-Reason"),
            Some("admin_disabled")
        );
    });
}

/// No route has to do with it: what holds is what stands in config.yaml itself, or its defaults.
#[test]
fn a_body_that_comes_too_slowly_for_the_admin_api_is_named() {
    let no_window = "  read_timeout: 1h\n";
    let total = "  body_timeout: 300ms\n";
    let rate = "  min_body_rate: 1000\n";
    let window = Written("read_timeout", Some(400), "server", "read_timeout: 400ms");
    let of_total = Written("body_timeout", Some(300), "firewall", "body_timeout: 300ms");
    let of_rate = Written(
        "min_body_rate",
        Some(1000),
        "firewall",
        "min_body_rate: 1000",
    );
    let unwritten = Unwritten("min_body_rate", 100);
    let cases = [
        ("read_timeout", "  read_timeout: 400ms\n", "", window, 400),
        ("body_timeout", no_window, total, of_total, 300),
        ("min_body_rate", no_window, rate, of_rate, 0),
        ("min_body_rate", no_window, "", unwritten, 0),
    ];
    let head = with(
        "POST",
        "/internal/api/firewall/block",
        "X-Toron-Admin-Key: k\r\nContent-Length: 50\r\n",
    );
    both(|engine| {
        let mut place = Place::start(engine);
        let written = place.config.clone();
        for (reason, of_server, of_firewall, limit, least) in &cases {
            let enabled = "  enabled: false\n";
            place.config = written
                .replace("  read_timeout: 400ms\n", of_server)
                .replace(enabled, &format!("{enabled}{of_firewall}"));
            place.toron = Toron::start_files(&place.config, &place.routes, None);
            let most = if *least == 0 { 0 } else { LONG };
            let slow = case(head.as_str(), r#"{"error":"408 Request Timeout"}"#, reason)
                .by(*limit)
                .seen(*least, most);
            place.play(&slow);
        }
    });
}

/// The host stands in it twice: as such, and as what the client asked for.
#[test]
fn a_head_that_does_not_fit_for_the_upstream_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        let large = "max_header_bytes: 65536";
        let config = place.config.replace("max_header_bytes: 1024", large);
        let config = config.replace("enabled: false", &format!("enabled: false\n  {large}"));
        let routes = place
            .routes
            .replace("{prefix: /plain,", "{prefix: /plain, preserve_host: on,");
        let place = Place {
            toron: Toron::start_files(&config, &routes, None),
            ..place
        };
        let host = "h".repeat(50_000);
        let request = format!("GET /plain HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let body = r#"{"error":"431 Request Header Fields Too Large"}"#;
        place.play(&case(request, body, "forwarded_head_too_large"));
    });
}

/// There is no descriptor for the connection: it is refused on the one that is kept for that.
#[test]
fn a_connection_without_a_descriptor_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        let config = place
            .config
            .replace("worker_pool_size: 2", "worker_pool_size: 1");
        let toron = Toron::start_files(&config, &place.routes, Some(80));
        let mut open = Vec::new();
        let refused = loop {
            assert!(open.len() < 80, "the limit does not hold");
            let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
            client.send(get("/health").as_bytes(), PATIENCE);
            assert!(client.receive_responses(1, PATIENCE));
            let response = client.parsed().responses.remove(0);
            if response.status != 200 {
                break response;
            }
            open.push(client);
        };
        drop(open);
        let body = br#"{"error":"503 Service Unavailable: Connection limit reached"}"#;
        assert_eq!(
            (refused.status, refused.body.as_slice()),
            (503, body.as_slice())
        );
        assert_eq!(
            refused.head.first("X-Toron-Reason"),
            Some("out_of_descriptors")
        );
        let entry = &refusals(toron.addr)[0];
        assert_eq!(entry["reason"], "out_of_descriptors", "{entry}");
        assert_eq!(
            (&entry["status"], &entry["client"]),
            (&503.into(), &"127.0.0.1".into())
        );
        assert!(
            entry["limit"].is_null() && entry["observed"].is_null(),
            "{entry}"
        );
        let found = scrape(&toron);
        let labels = [("route", ""), ("reason", "out_of_descriptors")];
        assert!(found.count("toron_refusals_total", &labels) >= 1);
    });
}

/// By hand, with what it has open: a request that waits for its response.
#[test]
fn a_request_that_is_cut_by_hand_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        let config = place
            .config
            .replace("enabled: false", "block_duration: 100s");
        let toron = Toron::start_files(&config, &place.routes, None);
        let mut held = connect_from(30, toron.addr);
        held.send(get("/full").as_bytes(), PATIENCE);
        let seen = place.hangs.wait_for(PATIENCE, |all| {
            all.iter().flat_map(Connection::heads).count() >= 1
        });
        assert!(seen);
        let form = "address=127.0.0.30&close=true";
        let fields = format!(
            "X-Toron-Admin-Key: k\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n",
            form.len()
        );
        let mut admin = Client::connect(toron.addr, PATIENCE).unwrap();
        let request = with("POST", "/internal/api/firewall/block", &fields) + form;
        admin.send(request.as_bytes(), PATIENCE);
        assert!(admin.receive_responses(1, PATIENCE));
        assert_eq!(admin.parsed().responses[0].status, 200);
        assert!(held.receive_until_end(PATIENCE));
        let entry = &refusals(toron.addr)[0];
        assert_eq!(entry["reason"], "blocked_by_hand", "{entry}");
        assert_eq!(
            (&entry["client"], &entry["path"]),
            (&"127.0.0.30".into(), &"/full".into())
        );
        assert!(entry["status"].is_null(), "{entry}");
        assert_limit(
            entry,
            &config,
            ("block_duration", Some(100)),
            "block_duration: 100s",
        );
        let found = scrape(&toron);
        assert_eq!(
            found.count("toron_firewall_blocks_total", &[("kind", "manual")]),
            1
        );
    });
}

/// The access log outlives the process.
#[test]
fn a_request_that_is_cut_at_the_end_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        let dir = TempDir::new("ending");
        let log = dir.join("access.log");
        let config = place
            .config
            .replace("  header_deadline: 20s\n", "  shutdown_grace: 100ms\n")
            + &format!("logging:\n  access_log: {}\n", log.display());
        let mut toron = Toron::start_files(&config, &place.routes, None);
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        client.send(get("/full").as_bytes(), PATIENCE);
        let seen = place.hangs.wait_for(PATIENCE, |all| {
            all.iter().flat_map(Connection::heads).count() >= 1
        });
        assert!(seen);
        toron.process().signal(Signal::TERM);
        assert!(
            toron.process_mut().wait(PATIENCE).is_some(),
            "it does not end"
        );
        let log = std::fs::read_to_string(log).unwrap();
        let reason = toron::http::Reason::Shutdown;
        assert!(log.contains(&format!(" by=toron reason={reason}")), "{log}");
    });
}
