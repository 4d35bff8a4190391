//! The admin API in the real binary, on both engines: who may ask, how bodies are taken, what the
//! endpoints say and do.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{json, Value};
use socket2::{Domain, SockAddr, Socket, Type};
use support::client::Client;
use support::http::{End, Response};
use support::setup::{both, Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::Upstream;
use support::PATIENCE;

const KEY: &str = "k";

struct Place {
    toron: Toron,
    upstream: Upstream,
}

fn start(engine: Engine, change: impl FnOnce(&mut Settings)) -> Place {
    let upstream = Upstream::start();
    let mut settings = Settings::new(engine, vec![Route::new("/", &upstream.addr)]);
    settings.admin_key = Some(KEY.into());
    change(&mut settings);
    let toron = Toron::start(&settings);
    Place { toron, upstream }
}

/// The address of the admin API's own listener.
fn admin_address(toron: &Toron) -> SocketAddr {
    toron.process().wait_line(PATIENCE, |line| {
        let (_, rest) = line.split_once("for the admin API listening on ")?;
        rest.trim().parse().ok()
    })
}

/// Sends `head` (its lines without the empty one) and `body` on a connection of its own.
fn ask_at(addr: SocketAddr, head: &str, body: &[u8]) -> Response {
    let mut client = Client::connect(addr, PATIENCE).unwrap();
    let mut request = format!("{}\r\nHost: t\r\n\r\n", head.replace('\n', "\r\n")).into_bytes();
    request.extend_from_slice(body);
    client.send(&request, PATIENCE);
    assert!(client.receive_responses(1, PATIENCE), "{head}: no answer");
    client.parsed().responses.remove(0)
}

/// As [`ask_at`], with the key.
fn ask(place: &Place, request: &str, body: &str) -> Response {
    let head = format!(
        "{request} HTTP/1.1\nX-Toron-Admin-Key: {KEY}\nContent-Length: {}",
        body.len()
    );
    ask_at(place.toron.addr, &head, body.as_bytes())
}

fn value(response: &Response) -> Value {
    let text = String::from_utf8_lossy(&response.body);
    serde_json::from_slice(&response.body).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn get(place: &Place, path: &str) -> Value {
    let response = ask(place, &format!("GET {path}"), "");
    assert_eq!(response.status, 200, "{path}");
    assert_eq!(response.head.all("content-type"), ["application/json"]);
    value(&response)
}

fn post(place: &Place, path: &str, body: &str) -> (u16, Value) {
    let response = ask(place, &format!("POST {path}"), body);
    (response.status, value(&response))
}

fn error(text: &str) -> Value {
    json!({ "error": text })
}

/// A connection from `source`.
fn connect_from(source: &str, to: SocketAddr) -> Client {
    let source: IpAddr = source.parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket
        .bind(&SockAddr::from(SocketAddr::new(source, 0)))
        .unwrap();
    socket.connect(&SockAddr::from(to)).unwrap();
    Client::over(TcpStream::from(socket))
}

#[test]
fn only_those_with_the_key_learn_anything() {
    both(|engine| {
        let place = start(engine, |_| {});
        let addr = place.toron.addr;
        let with = |fields: &str, path: &str| {
            let response = ask_at(addr, &format!("GET {path} HTTP/1.1{fields}"), b"");
            (response.status, value(&response))
        };
        let unauthorized = (401, error("401 Unauthorized"));
        for path in ["/internal/api/status", "/internal/api/nothing", "/internal"] {
            assert_eq!(with("", path), unauthorized, "{path}");
            assert_eq!(with("\nX-Toron-Admin-Key: no", path), unauthorized);
        }
        let denied = "403 Forbidden: Access denied by administrative subnet policy";
        for field in ["X-Forwarded-For: 127.0.0.1", "Via: 1.1 x"] {
            let fields = format!("\nX-Toron-Admin-Key: {KEY}\n{field}");
            let found = with(&fields, "/internal/api/status");
            assert_eq!(found, (403, error(denied)), "{field}");
        }
        let bearer = format!("\nAuthorization: Bearer {KEY}");
        assert_eq!(with(&bearer, "/internal/api/status").0, 200);
        let missing = (404, error("404 Not Found"));
        for path in ["/internal", "/internal/", "/internal/api", "/internal/api/"] {
            assert_eq!(with(&bearer, path), missing, "{path}");
        }
        assert!(place.upstream.connections().is_empty());
    });
}

#[test]
fn other_methods_are_told_which_are_allowed() {
    both(|engine| {
        let place = start(engine, |_| {});
        for (request, allow) in [
            ("POST /internal/api/status", "GET, HEAD"),
            ("DELETE /internal/api/routes", "GET, HEAD"),
            ("GET /internal/api/reload", "POST"),
            ("HEAD /internal/api/firewall/block", "POST"),
        ] {
            let response = ask(&place, request, "");
            assert_eq!(response.status, 405, "{request}");
            assert_eq!(response.head.all("allow"), [allow], "{request}");
        }
        let head = ask(&place, "HEAD /internal/api/routes", "");
        let whole = ask(&place, "GET /internal/api/routes", "");
        assert_eq!((head.status, head.body.len()), (200, 0));
        let length = whole.body.len().to_string();
        assert_eq!(head.head.all("content-length"), [length.as_str()]);
    });
}

const BLOCK: &str =
    "POST /internal/api/firewall/block HTTP/1.1\r\nHost: t\r\nX-Toron-Admin-Key: k\r\n";

/// However a body comes, it is read whole, and the next request on the connection is found.
#[test]
fn bodies_are_read_as_they_come() {
    both(|engine| {
        let place = start(engine, |settings| {
            settings.firewall = vec![
                ("rate_limit_rps", "0".into()),
                ("max_connections_per_ip", "0".into()),
            ];
        });
        let body = r#"{"address": "192.0.2.1", "duration": "60s"}"#;
        let length = body.len();
        let half = length / 2;
        let whole = format!("{BLOCK}Content-Length: {length}\r\n\r\n{body}");
        let chunks = format!(
            "{BLOCK}Transfer-Encoding: chunked\r\n\r\n{half:x}\r\n{}\r\n{:x};x=y\r\n{}\r\n0\r\nX-T: 1\r\n\r\n",
            &body[..half],
            length - half,
            &body[half..]
        );
        let next = "GET /behind HTTP/1.1\r\nHost: t\r\n\r\n";
        for request in [whole, chunks] {
            let all = format!("{request}{next}");
            for at in [
                1,
                request.len() / 2,
                request.len() - 1,
                request.len(),
                request.len() + 9,
            ] {
                let mut client = Client::connect(place.toron.addr, PATIENCE).unwrap();
                client.send(&all.as_bytes()[..at], PATIENCE);
                client.receive_until_quiet(Duration::from_millis(20));
                client.send(&all.as_bytes()[at..], PATIENCE);
                assert!(client.receive_responses(2, PATIENCE), "cut at {at}");
                let statuses: Vec<u16> =
                    client.parsed().responses.iter().map(|r| r.status).collect();
                assert_eq!(statuses, [200, 200], "cut at {at}");
            }
        }
        let list = get(&place, "/internal/api/firewall");
        assert_eq!(list["blocks"][0]["addresses"], "192.0.2.1/32");
    });
}

#[test]
fn a_client_that_waits_to_be_invited_is() {
    both(|engine| {
        let place = start(engine, |settings| {
            settings.firewall = vec![("rate_limit_rps", "0".into())];
        });
        let body = r#"{"address": "192.0.2.1"}"#;
        let mut client = Client::connect(place.toron.addr, PATIENCE).unwrap();
        let head = format!(
            "{BLOCK}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.send(head.as_bytes(), PATIENCE);
        let invited = |c: &Client| c.received.ends_with(b"HTTP/1.1 100 Continue\r\n\r\n");
        assert!(client.receive_until(PATIENCE, invited));
        client.send(body.as_bytes(), PATIENCE);
        assert!(client.receive_responses(1, PATIENCE));
        assert_eq!(client.parsed().responses[0].status, 200);
        // Without the key nobody is invited.
        let refused = head.replace("Key: k", "Key: x");
        let mut client = Client::connect(place.toron.addr, PATIENCE).unwrap();
        client.send(refused.as_bytes(), PATIENCE);
        assert!(client.receive_until_end(PATIENCE));
        assert!(client.received.starts_with(b"HTTP/1.1 401 "));
    });
}

#[test]
fn bodies_that_are_too_large_or_malformed_are_refused() {
    both(|engine| {
        let place = start(engine, |_| {});
        let declared =
            "413 Payload Too Large: request Content-Length exceeds effective route limit";
        let long = format!("10001\r\n{}", "x".repeat(0x10001));
        for (rest, status, said) in [
            ("Content-Length: 65537\r\n\r\n".to_owned(), 413, declared),
            (
                format!("Transfer-Encoding: chunked\r\n\r\n{long}"),
                413,
                "413 Payload Too Large",
            ),
            (
                "Transfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(),
                400,
                "400 Bad Request",
            ),
            (
                "Content-Length: 1\r\nExpect: a reward\r\n\r\n".to_owned(),
                417,
                "417 Expectation Failed",
            ),
        ] {
            let mut client = Client::connect(place.toron.addr, PATIENCE).unwrap();
            client.send(format!("{BLOCK}{rest}").as_bytes(), PATIENCE);
            assert!(client.receive_until_end(PATIENCE), "{said}");
            assert_eq!(client.end, Some(End::Fin), "{said}");
            let response = client.parsed().responses.remove(0);
            assert_eq!((response.status, value(&response)), (status, error(said)));
        }
    });
}

/// The deadlines of bodies hold here as on any route.
#[test]
fn a_slow_body_is_cut() {
    both(|engine| {
        let place = start(engine, |settings| {
            settings.server.push(("read_timeout", "300ms".into()));
        });
        let mut client = Client::connect(place.toron.addr, PATIENCE).unwrap();
        client.send(
            format!("{BLOCK}Content-Length: 10\r\n\r\nab").as_bytes(),
            PATIENCE,
        );
        assert!(client.receive_until_end(PATIENCE));
        let response = client.parsed().responses.remove(0);
        assert_eq!(
            (response.status, value(&response)),
            (408, error("408 Request Timeout"))
        );
        // A client that ends in the middle gets no answer.
        let mut client = Client::connect(place.toron.addr, PATIENCE).unwrap();
        client.send(
            format!("{BLOCK}Content-Length: 10\r\n\r\nab").as_bytes(),
            PATIENCE,
        );
        client.shutdown_write();
        assert!(client.receive_until_end(PATIENCE));
        assert_eq!(client.received, b"");
    });
}

#[test]
fn routes_are_told_in_order_of_matching() {
    both(|engine| {
        let place = start(engine, |settings| {
            settings.further_routes = "  - {prefix: /pay, host: Checkout.example.com, method: [post, get], headers: {X-Version: canary}, targets: [{url: 'http://127.0.0.1:9000/v1', weight: 3}, 'http://127.0.0.1:9001'], max_concurrency: 7}\n  - {prefix: /fixed, status: 404, body: none}\n".into();
        });
        let routes = get(&place, "/internal/api/routes");
        let prefixes: Vec<&str> = routes
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["prefix"].as_str().unwrap())
            .collect();
        assert_eq!(prefixes, ["/fixed", "/pay", "/"]);
        let pay = &routes[1];
        for (key, expected) in [
            ("host", json!("checkout.example.com")),
            ("method", json!("GET,POST")),
            ("headers", json!({"X-Version": "canary"})),
            ("source", json!("config")),
            (
                "targets",
                json!(["http://127.0.0.1:9000/v1", "http://127.0.0.1:9001"]),
            ),
            ("weights", json!([3, 1])),
            ("kind", json!("upstream")),
            ("in_flight", json!(0)),
            ("cap", json!(7)),
        ] {
            assert_eq!(pay[key], expected, "{key}");
        }
        assert!(
            pay["place"].as_str().unwrap().ends_with("routes.yaml:5"),
            "{}",
            pay["place"]
        );
        let cap = &pay["limits"]["max_concurrency"];
        assert_eq!(
            (&cap["value"], &cap["set_by"]),
            (&json!(7), &json!("route"))
        );
        let ceiling = &routes[2]["limits"]["max_body_bytes"];
        assert_eq!(
            (&ceiling["value"], &ceiling["set_by"]),
            (&json!(4_194_304), &json!("default"))
        );
        assert_eq!(routes[0]["targets"], json!([]));
        assert_eq!(routes[2]["method"], json!(""));
    });
}

/// A target that refuses connections is out, and both the list and the explanation say so.
#[test]
fn the_health_of_targets_is_told() {
    both(|engine| {
        let closed = support::listen().local_addr().unwrap();
        let place = start(engine, |settings| {
            let target = settings.routes[0].target.clone();
            settings.further_routes = format!(
                "  - {{prefix: /two, targets: ['http://{target}', 'http://{closed}'], consecutive_failures: 1}}\n"
            );
        });
        let two = |routes: Value| {
            routes
                .as_array()
                .unwrap()
                .iter()
                .find(|r| r["prefix"] == "/two")
                .cloned()
                .unwrap()
        };
        let health = |route: &Value| {
            let all = route["target_health"].as_array().unwrap().clone();
            all.iter()
                .map(|t| t["health"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            health(&two(get(&place, "/internal/api/routes"))),
            ["up", "up"]
        );
        // One reactor or the other begins with it.
        let deadline = Instant::now() + PATIENCE;
        while health(&two(get(&place, "/internal/api/routes"))) != ["up", "out"] {
            assert_eq!(
                ask_at(place.toron.addr, "GET /two HTTP/1.1", b"").status,
                200
            );
            assert!(Instant::now() < deadline, "it stays up");
        }
        let route = two(get(&place, "/internal/api/routes"));
        assert_eq!(
            route["target_health"][1]["target"],
            format!("http://{closed}")
        );
        let told = get(&place, "/internal/api/explain?url=http%3A%2F%2Ft%2Ftwo");
        let note = json!(format!("target http://{closed}: out after 1 failures"));
        assert!(
            told["notes"].as_array().unwrap().contains(&note),
            "{}",
            told["notes"]
        );
    });
}

/// Much longer than a buffer: it is sent in pieces, and requests beside it are answered meanwhile.
#[test]
fn ten_thousand_routes_come_whole() {
    both(|engine| {
        let place = start(engine, |settings| {
            let target = settings.routes[0].target.clone();
            settings.further_routes = (0..10_000)
                .map(|i| format!("  - {{prefix: /r{i}, target: 'http://{target}'}}\n"))
                .collect();
        });
        let mut asking = Client::connect(place.toron.addr, PATIENCE).unwrap();
        let request = format!(
            "GET /internal/api/routes HTTP/1.1\r\nHost: t\r\nX-Toron-Admin-Key: {KEY}\r\n\r\n"
        );
        asking.send(request.as_bytes(), PATIENCE);
        let beside = ask_at(place.toron.addr, "GET /r5/x HTTP/1.1", b"");
        assert_eq!(beside.status, 200);
        assert!(
            asking.receive_responses(1, 3 * PATIENCE),
            "{} bytes",
            asking.received.len()
        );
        let routes = value(&asking.parsed().responses[0]);
        assert_eq!(routes.as_array().unwrap().len(), 10_001);
        // The connection goes on behind it.
        asking.send(b"GET /r7 HTTP/1.1\r\nHost: t\r\n\r\n", PATIENCE);
        assert!(asking.receive_responses(2, PATIENCE));
    });
}

fn firewalled(engine: Engine) -> Place {
    start(engine, |settings| {
        settings.firewall = vec![
            ("rate_limit_rps", "0".into()),
            ("allow", "[127.0.0.9]".into()),
            ("trusted_proxies", "[127.0.0.8]".into()),
        ];
    })
}

#[test]
fn f7_a_block_by_hand_holds_until_it_is_lifted() {
    both(|engine| {
        let place = firewalled(engine);
        let addr = place.toron.addr;
        let mut open = connect_from("127.0.0.7", addr);
        let plain = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n";
        open.send(plain, PATIENCE);
        assert!(open.receive_responses(1, PATIENCE));
        let blocked = post(
            &place,
            "/internal/api/firewall/block",
            r#"{"address": "127.0.0.7", "duration": "5m"}"#,
        );
        let expected =
            json!({"blocked": "127.0.0.7/32", "seconds": 300, "enforced": true, "closed": 0});
        assert_eq!(blocked, (200, expected));
        let list = get(&place, "/internal/api/firewall");
        let block = &list["blocks"][0];
        assert_eq!(
            (&block["addresses"], &block["reason"], &block["connections"]),
            (&json!("127.0.0.7/32"), &json!("manual"), &json!(1))
        );
        assert!(
            (290..=300).contains(&block["seconds_left"].as_u64().unwrap()),
            "{block}"
        );
        assert_eq!(
            (&list["blocked"], &list["enabled"], &list["mode"]),
            (&json!(1), &json!(true), &json!("enforce"))
        );

        // The connection that was open is left alone, its next request is not.
        open.send(plain, PATIENCE);
        assert!(open.receive_responses(2, PATIENCE));
        assert_eq!(open.parsed().responses[1].status, 403);
        let mut fresh = connect_from("127.0.0.7", addr);
        assert!(fresh.receive_until_end(PATIENCE));
        assert!(fresh.received.starts_with(b"HTTP/1.1 403 "));

        let lifted = post(
            &place,
            "/internal/api/firewall/unblock?address=127.0.0.7",
            "",
        );
        assert_eq!(
            lifted,
            (
                200,
                json!({"unblocked": "127.0.0.7/32", "was_blocked": true})
            )
        );
        let again = post(
            &place,
            "/internal/api/firewall/unblock",
            "address=127.0.0.7",
        );
        assert_eq!(again.1["was_blocked"], false);
        let mut fresh = connect_from("127.0.0.7", addr);
        fresh.send(plain, PATIENCE);
        assert!(fresh.receive_responses(1, PATIENCE));
        assert_eq!(fresh.parsed().responses[0].status, 200);
    });
}

/// Whatever a connection is doing, on whichever reactor it is.
#[test]
fn f7_close_ends_the_connections_that_are_open() {
    both(|engine| {
        let place = firewalled(engine);
        let addr = place.toron.addr;
        let mut clients: Vec<Client> = (0..12).map(|_| connect_from("127.0.0.7", addr)).collect();
        for (i, client) in clients.iter_mut().enumerate() {
            let text: &[u8] = match i % 3 {
                0 => b"GET / HTTP/1.1\r\nHost: t\r\n\r\n",
                1 => b"POST /up HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\nxyz",
                _ => b"GET /unfinished HTTP/1.1\r\n",
            };
            client.send(text, PATIENCE);
        }
        let mut other = connect_from("127.0.0.6", addr);
        let deadline = Instant::now() + PATIENCE;
        while get(&place, "/internal/api/status")["exchanges"] != 4 {
            assert!(Instant::now() < deadline, "the uploads do not begin");
        }
        for client in clients.iter_mut().step_by(3) {
            assert!(client.receive_responses(1, PATIENCE));
        }
        let (status, told) = post(
            &place,
            "/internal/api/firewall/block?close=true&address=127.0.0.7&duration=1m",
            "",
        );
        assert_eq!((status, &told["closed"]), (200, &json!(12)), "{told}");
        for client in &mut clients {
            assert!(client.receive_until_end(PATIENCE), "it stays open");
        }
        other.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n", PATIENCE);
        assert!(other.receive_responses(1, PATIENCE));
        let left = get(&place, "/internal/api/firewall");
        assert_eq!(left["blocks"][0]["connections"], 0);
    });
}

#[test]
fn f7_blocks_that_make_no_sense_are_explained() {
    both(|engine| {
        let place = firewalled(engine);
        for (body, status, said) in [
            ("", 400, "400 Bad Request: address is missing (allowed: 192.0.2.7, 2001:db8::7)"),
            ("address=example.com", 400, "400 Bad Request: address: \"example.com\" is not an address (allowed: 192.0.2.7, 2001:db8::7, or as listed)"),
            ("address=192.0.2.0/24", 400, "400 Bad Request: address: \"192.0.2.0/24\" is not one client's (allowed: an address, which stands for 192.0.2.0/32; firewall.deny takes blocks of any size)"),
            ("address=192.0.2.7&duration=300", 400, "400 Bad Request: duration: \"300\" has no unit (allowed: a duration such as 300s, 5m, 1h30m, up to a year)"),
            ("address=192.0.2.7&duration=-5s", 400, "400 Bad Request: duration: \"-5s\" is out of bounds (allowed: a duration such as 300s, 5m, 1h30m, up to a year)"),
            ("address=192.0.2.7&address=192.0.2.8", 400, "400 Bad Request: address is given twice"),
            ("address=127.0.0.9", 409, "409 Conflict: address: 127.0.0.9: it is allowed, and so never blocked (firewall.allow)"),
            ("address=127.0.0.8", 409, "409 Conflict: address: 127.0.0.8: it is a trusted proxy, which is never blocked (firewall.trusted_proxies)"),
        ] {
            let found = post(&place, "/internal/api/firewall/block", body);
            assert_eq!(found, (status, error(said)), "{body}");
        }
        assert_eq!(get(&place, "/internal/api/firewall")["blocked"], 0);
        // An IPv6 address stands for its owner's network, and is taken back as it is listed.
        let six = post(
            &place,
            "/internal/api/firewall/block",
            "address=2001:db8::7",
        );
        assert_eq!(six.1["blocked"], "2001:db8::/64");
        let lifted = post(
            &place,
            "/internal/api/firewall/unblock",
            "address=2001:db8::%2F64",
        );
        assert_eq!(lifted.1["was_blocked"], true);
    });
}

/// The traffic listener knows nothing of the admin API then, and the admin listener no routes.
#[test]
fn the_admin_api_may_have_a_listener_of_its_own() {
    both(|engine| {
        let place = start(engine, |settings| {
            settings.admin.push(("listen", "127.0.0.1:0".into()));
            settings.firewall = vec![
                ("max_connections_total", "2".into()),
                ("rate_limit_rps", "1".into()),
                ("rate_limit_burst", "1".into()),
            ];
        });
        let admin = admin_address(&place.toron);
        let with_key = |path: &str| format!("GET {path} HTTP/1.1\nX-Toron-Admin-Key: {KEY}");
        let status = |addr, path: &str| ask_at(addr, &with_key(path), b"").status;
        assert_eq!(status(place.toron.addr, "/internal/api/status"), 404);
        let mut scraper = connect_from("127.0.0.3", place.toron.addr);
        scraper.send(b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n", PATIENCE);
        assert!(scraper.receive_responses(1, PATIENCE));
        assert_eq!(scraper.parsed().responses[0].status, 404);
        drop(scraper);
        assert!(place.upstream.connections().is_empty(), "it went upstream");
        // The firewall's limits are for traffic: the operator gets in while they are reached.
        let await_places = |taken: u64| {
            let deadline = Instant::now() + PATIENCE;
            let open = || {
                value(&ask_at(admin, &with_key("/internal/api/status"), b""))
                    ["firewall_connections"]
                    .clone()
            };
            while open() != taken {
                assert!(Instant::now() < deadline, "{} places are taken", open());
            }
        };
        await_places(0);
        let full: Vec<Client> = (0..2)
            .map(|_| connect_from("127.0.0.5", place.toron.addr))
            .collect();
        await_places(2);
        for _ in 0..5 {
            assert_eq!(status(admin, "/internal/api/status"), 200);
        }
        assert_eq!(status(admin, "/metrics"), 200);
        assert_eq!(status(admin, "/health"), 200);
        assert_eq!(status(admin, "/"), 404);
        assert_eq!(
            ask_at(admin, "GET /internal/api/status HTTP/1.1", b"").status,
            401
        );
        // Whoever is not inside the subnets is no operator.
        drop(full);
        await_places(0);
        let mut outside = connect_from("127.0.0.4", admin);
        outside.send(
            with_key("/internal/api/status")
                .replace('\n', "\r\n")
                .as_bytes(),
            PATIENCE,
        );
        outside.send(b"\r\nHost: t\r\n\r\n", PATIENCE);
        assert!(outside.receive_responses(1, PATIENCE));
        assert_eq!(outside.parsed().responses[0].status, 403);
        assert!(place.upstream.connections().is_empty());
    });
}
