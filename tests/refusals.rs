//! The list of refusals: every literal body that toron refuses with, provoked in the real binary on
//! both engines, with the limit that it names, its value, what was observed, and the line it was set
//! on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use rustix::process::{getrlimit, prlimit, Pid, Resource, Rlimit};
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};
use support::client::Client;
use support::http::Response;
use support::setup::Engine;
use support::toron::Toron;
use support::upstream::{Connection, Script, Step, Then, Upstream, When};
use support::{show, PATIENCE};

const CONFIG: &str = "\
server:
  host: 127.0.0.1
  port: 0
  engine: ENGINE
  worker_pool_size: 2
  max_header_bytes: 1024
  read_timeout: 400ms
  max_body_bytes: 100000
  buffer_memory: 65536
  header_deadline: 20s
  explain_header: on
proxy:
  transport:
    response_header_timeout: 300ms
firewall:
  enabled: false
admin:
  key: k
  subnets: [127.0.0.0/8]
";

const ROUTES: &str = "\
routes:
  - {prefix: /plain, target: 'http://HANGS'}
  - prefix: /small
    max_body_bytes: 10
    target: http://HANGS
  - {prefix: /get, method: GET, target: 'http://HANGS'}
  - prefix: /reading
    read_timeout: 200ms
    target: http://HANGS
  - prefix: /full
    target: http://HANGS
    response_header_timeout: 30s
    max_concurrency: 1
  - {prefix: /refuses, target: 'http://REFUSES', retries: 0}
  - {prefix: /garbage, target: 'http://GARBAGE'}
  - {prefix: /closes, target: 'http://CLOSES', retries: 0}
  - {prefix: /unknown, target: 'http://no-such-host.invalid:81'}
  - prefix: /head-late
    header_deadline: 200ms
    response_header_timeout: 30s
    target: http://HANGS
  - prefix: /late
    request_deadline: 200ms
    response_header_timeout: 30s
    target: http://HANGS
  - {prefix: /memory, stream_request_body: false, max_body_bytes: 1MB, target: 'http://HANGS'}
  - prefix: /reject
    inbound_chunked_mode: reject
    target: http://HANGS
  - {prefix: /fine, target: 'http://ANSWERS'}
  - {prefix: /guarded, response_header_timeout: 11s, target: 'http://HANGS'}
";

/// What the list must say about a limit.
enum Limit {
    /// No setting is the reason.
    None,
    /// Setting, value, by whom it was set, and what stands on its line.
    Written(&'static str, Option<u64>, &'static str, &'static str),
    /// Setting and value; nothing is written.
    Default(&'static str, u64),
    /// Setting and value of a part of toron.
    BuiltIn(&'static str, u64),
}
use Limit::{BuiltIn, Default as Unwritten, None as NoLimit, Written};

struct Case {
    request: Vec<u8>,
    body: &'static str,
    reason: &'static str,
    limit: Limit,
    /// Least and most of what was observed; for times there is no most that a busy machine keeps.
    observed: Option<(u64, u64)>,
}

const LONG: u64 = 60_000;

fn case(request: impl Into<Vec<u8>>, body: &'static str, reason: &'static str) -> Case {
    Case {
        request: request.into(),
        body,
        reason,
        limit: NoLimit,
        observed: None,
    }
}

impl Case {
    fn by(self, limit: Limit) -> Case {
        Case { limit, ..self }
    }

    fn seen(self, least: u64, most: u64) -> Case {
        let observed = Some((least, most));
        Case { observed, ..self }
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n")
}

fn with(method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: t.example\r\n{fields}\r\n")
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

/// Heads and bodies that no route has to do with.
fn of_heads() -> Vec<Case> {
    let head = "GET / HTTP/1.1\r\nHost: t.example\r\n";
    let long = format!("{head}X-Long: {}\r\n\r\n", "a".repeat(2000));
    let many = format!("{head}{}\r\n", "A:b\r\n".repeat(110));
    let bad = r#"{"error":"400 Bad Request"}"#;
    let too_large = r#"{"error":"431 Request Header Fields Too Large"}"#;
    let none = r#"{"error":"405 Method Not Allowed"}"#;
    let coding = r#"{"error":"501 Not Implemented: Unsupported Transfer-Encoding"}"#;
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    vec![
        case("GET / HTTP/1.1\nHost: t\r\n\r\n", bad, "bare_lf"),
        case(with("POST", "/plain", both), bad, "length_and_coding"),
        case(get("/a/../../b"), bad, "path_above_root"),
        case(with("POST", "/plain", CHUNKED) + "x\r\n", bad, "chunk_size"),
        case(long, too_large, "head_too_large")
            .by(Written(
                "max_header_bytes",
                Some(1024),
                "server",
                "max_header_bytes: 1024",
            ))
            .seen(1025, 4096),
        case(many, too_large, "too_many_fields")
            .by(Unwritten("max_header_count", 100))
            .seen(111, 111),
        case(
            with("POST", "/plain", CHUNKED) + "0\r\nA: " + &"b".repeat(5000) + "\r\n\r\n",
            too_large,
            "trailers_too_large",
        )
        .by(BuiltIn("trailers", 4096)),
        case(head, r#"{"error":"408 Request Timeout"}"#, "header_timeout")
            .by(Written(
                "read_timeout",
                Some(400),
                "server",
                "read_timeout: 400ms",
            ))
            .seen(400, LONG),
        case(
            "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n",
            none,
            "connect_method",
        ),
        case(
            with("POST", "/plain", "Expect: magic\r\nContent-Length: 1\r\n") + "x",
            r#"{"error":"417 Expectation Failed"}"#,
            "unknown_expectation",
        ),
        case(
            with("POST", "/plain", "Transfer-Encoding: gzip, chunked\r\n"),
            coding,
            "unsupported_coding",
        ),
        case(
            "GET / HTTP/3.0\r\nHost: t.example\r\n\r\n",
            r#"{"error":"505 HTTP Version Not Supported"}"#,
            "unsupported_version",
        ),
        case(get("/none"), r#"{"error":"404 Not Found"}"#, "no_route"),
        case(with("POST", "/get", ""), none, "method_not_allowed"),
        case(
            with("POST", "/none", "Content-Length: 200000\r\n"),
            DECLARED,
            "declared_too_large",
        )
        .by(Written(
            "max_body_bytes",
            Some(100_000),
            "server",
            "max_body_bytes: 100000",
        ))
        .seen(200_000, 200_000),
        case(
            with(
                "GET",
                "/internal/api/status",
                "X-Forwarded-For: 192.0.2.1\r\n",
            ),
            r#"{"error":"403 Forbidden: Access denied by administrative subnet policy"}"#,
            "admin_subnet",
        )
        .by(Written("subnets", None, "admin", "subnets:")),
        case(
            with("GET", "/internal/api/status", "X-Toron-Admin-Key: no\r\n"),
            r#"{"error":"401 Unauthorized"}"#,
            "admin_key",
        )
        .by(Written("key", None, "admin", "key: k")),
    ]
}

const DECLARED: &str =
    r#"{"error":"413 Payload Too Large: request Content-Length exceeds effective route limit"}"#;

/// What a route, or the upstream behind it, is the reason for.
fn of_routes() -> Vec<Case> {
    let length = |n: usize| format!("Content-Length: {n}\r\n");
    let failed = r#"{"error":"502 Bad Gateway: Upstream connection failed"}"#;
    vec![
        case(
            with("POST", "/small", &length(11)),
            DECLARED,
            "declared_too_large",
        )
        .by(Written(
            "max_body_bytes",
            Some(10),
            "route",
            "max_body_bytes: 10",
        ))
        .seen(11, 11),
        case(
            with("POST", "/small", CHUNKED) + "c\r\nhello, world\r\n",
            r#"{"error":"413 Payload Too Large"}"#,
            "body_too_large",
        )
        .by(Written(
            "max_body_bytes",
            Some(10),
            "route",
            "max_body_bytes: 10",
        ))
        .seen(12, 12),
        case(
            with("POST", "/reading", &length(100)) + "begin",
            r#"{"error":"408 Request Timeout"}"#,
            "read_timeout",
        )
        .by(Written(
            "read_timeout",
            Some(200),
            "route",
            "read_timeout: 200ms",
        ))
        .seen(200, LONG),
        case(
            with("POST", "/memory", &length(100_000)) + "begin",
            r#"{"error":"503 Service Unavailable: Buffer memory exhausted"}"#,
            "buffer_memory",
        )
        .by(Written(
            "buffer_memory",
            Some(65_536),
            "server",
            "buffer_memory: 65536",
        ))
        .seen(100_000, 110_000),
        case(
            with("POST", "/reject", CHUNKED),
            r#"{"error":"501 Not Implemented: Inbound chunked transfer encoding is disabled"}"#,
            "chunked_disabled",
        )
        .by(Written(
            "inbound_chunked_mode",
            None,
            "route",
            "inbound_chunked_mode: reject",
        )),
        case(get("/refuses"), failed, "connect_failed"),
        case(
            get("/garbage"),
            r#"{"error":"502 Bad Gateway: Invalid upstream response"}"#,
            "bad_status_line",
        ),
        case(
            get("/closes"),
            r#"{"error":"502 Bad Gateway: Upstream closed the connection"}"#,
            "upstream_closed",
        ),
        case(
            get("/unknown"),
            r#"{"error":"502 Bad Gateway: Upstream name does not resolve"}"#,
            "name_not_resolved",
        ),
        case(
            get("/plain"),
            r#"{"error":"504 Gateway Timeout: Upstream response header timeout expired"}"#,
            "response_header_timeout",
        )
        .by(Written(
            "response_header_timeout",
            Some(300),
            "transport",
            "response_header_timeout: 300ms",
        ))
        .seen(300, LONG),
        case(
            get("/head-late"),
            r#"{"error":"504 Gateway Timeout: Request timed out"}"#,
            "header_deadline",
        )
        .by(Written(
            "header_deadline",
            Some(200),
            "route",
            "header_deadline: 200ms",
        ))
        .seen(200, LONG),
        case(
            get("/late"),
            r#"{"error":"504 Gateway Timeout: Request deadline exceeded"}"#,
            "request_deadline",
        )
        .by(Written(
            "request_deadline",
            Some(200),
            "route",
            "request_deadline: 200ms",
        ))
        .seen(200, LONG),
    ]
}

/// The number of the one line that holds `what`.
fn line_of(text: &str, what: &str) -> usize {
    let mut lines = text.lines().enumerate().filter(|(_, l)| l.contains(what));
    let found = lines.next().unwrap_or_else(|| panic!("no {what}"));
    assert!(lines.next().is_none(), "{what} stands twice");
    found.0 + 1
}

/// What a built-in endpoint says. Asked again while there is no room for the connection.
fn ask(addr: SocketAddr, path: &str) -> Value {
    let fields = "X-Toron-Admin-Key: k\r\nConnection: close\r\n";
    let request = with("GET", path, fields);
    let response = until_served(|| {
        let mut client = Client::connect(addr, PATIENCE).unwrap();
        client.send(request.as_bytes(), PATIENCE);
        client
    });
    serde_json::from_slice(&response.1.body).unwrap()
}

/// Asks until the answer is a 200; the connection and the answer.
fn until_served(ask: impl Fn() -> Client) -> (Client, Response) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = ask();
        assert!(client.receive_responses(1, PATIENCE), "no answer");
        let response = client.parsed().responses.remove(0);
        if response.status == 200 {
            return (client, response);
        }
        assert!(Instant::now() < deadline, "{}", response.status);
    }
}

/// What the list says, newest first.
fn refusals(addr: SocketAddr) -> Vec<Value> {
    match ask(addr, "/internal/api/refusals") {
        Value::Array(list) => list,
        other => panic!("no list: {other:?}"),
    }
}

struct Place {
    toron: Toron,
    config: String,
    routes: String,
    hangs: Upstream,
    _others: [Upstream; 3],
}

impl Place {
    fn start(engine: Engine) -> Place {
        let scripted = |answer: Vec<Step>, then| {
            let upstream = Upstream::start();
            upstream.set_script(Script {
                answers: vec![answer],
                repeat_last: true,
                when: When::AfterHead,
                then,
            });
            upstream
        };
        // A port that nobody listens on: it was just given up.
        let refusing = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
        let hangs = scripted(vec![Step::Hang], Then::Keep);
        let garbage = scripted(vec![Step::Send(b"garbage\r\n\r\n".to_vec())], Then::Keep);
        let closes = scripted(vec![], Then::Close);
        let late = b"HTTP/1.1 504 Late\r\nContent-Length: 0\r\n\r\n";
        let answers = scripted(vec![Step::Send(late.to_vec())], Then::Keep);
        let config = CONFIG.replace("ENGINE", engine.name());
        let routes = ROUTES
            .replace("HANGS", &hangs.addr.to_string())
            .replace("GARBAGE", &garbage.addr.to_string())
            .replace("CLOSES", &closes.addr.to_string())
            .replace("ANSWERS", &answers.addr.to_string())
            .replace("REFUSES", &refusing.unwrap().to_string());
        let toron = Toron::start_files(&config, &routes, None);
        Place {
            toron,
            config,
            routes,
            hangs,
            _others: [garbage, closes, answers],
        }
    }

    fn client(&self, request: &[u8]) -> Client {
        let mut client = Client::connect(self.toron.addr, PATIENCE).unwrap();
        client.send(request, PATIENCE);
        client
    }

    fn play(&self, case: &Case) {
        let mut client = self.client(&case.request);
        self.check(case, &mut client);
    }

    /// The answer, and what the list says of it.
    fn check(&self, case: &Case, client: &mut Client) {
        let shown = show(&case.request);
        assert!(client.receive_responses(1, PATIENCE), "no answer: {shown}");
        let response = &client.parsed().responses[0];
        let body = String::from_utf8_lossy(&response.body);
        assert_eq!(body, case.body, "{shown}");
        let explained = response.head.first("X-Toron-Reason");
        assert_eq!(explained, Some(case.reason), "{shown}");
        assert!(response.head.first("Date").is_some(), "{shown}");
        let list = refusals(self.toron.addr);
        let entry = &list[0];
        assert_eq!(entry["reason"], case.reason, "{shown}: {entry}");
        assert_eq!(entry["status"], response.status, "{entry}");
        assert_eq!(entry["client"], "127.0.0.1", "{entry}");
        self.check_limit(case, entry);
        match case.observed {
            None => assert!(entry["observed"].is_null(), "{entry}"),
            Some((least, most)) => {
                let observed = entry["observed"].as_u64();
                let within = observed.is_some_and(|n| (least..=most).contains(&n));
                assert!(within, "{least} to {most}: {entry}");
            }
        }
    }

    fn check_limit(&self, case: &Case, entry: &Value) {
        let limit = &entry["limit"];
        let (setting, value, by, at) = match &case.limit {
            NoLimit => return assert!(limit.is_null(), "{entry}"),
            Written(setting, value, by @ ("route" | "guardrail"), on) => {
                let line = line_of(&self.routes, on);
                (setting, *value, *by, format!("routes.yaml:{line}"))
            }
            Written(setting, value, by, on) => {
                let line = line_of(&self.config, on);
                (setting, *value, *by, format!("config.yaml:{line}"))
            }
            Unwritten(setting, value) => (setting, Some(*value), "default", "default".to_owned()),
            BuiltIn(setting, value) => (setting, Some(*value), "built in", "built in".to_owned()),
        };
        assert_eq!(limit["setting"], *setting, "{entry}");
        assert_eq!(limit["value"].as_u64(), value, "{entry}");
        assert_eq!(limit["unit"].is_null(), value.is_none(), "{entry}");
        assert_eq!(limit["set_by"], by, "{entry}");
        let told = limit["set_at"].as_str().unwrap_or_default();
        assert!(told.ends_with(&at), "{at}: {entry}");
    }
}

fn both(test: impl Fn(Engine)) {
    Engine::ALL.into_iter().for_each(test);
}

#[test]
fn what_is_wrong_with_heads_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        of_heads().iter().for_each(|case| place.play(case));
    });
}

#[test]
fn what_routes_and_upstreams_refuse_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        of_routes().iter().for_each(|case| place.play(case));
        let entry = &refusals(place.toron.addr)[0];
        for (key, value) in [
            ("method", "GET"),
            ("host", "t.example"),
            ("path", "/late"),
            ("route", "/late"),
            ("ended_by", "toron"),
        ] {
            assert_eq!(entry[key], value, "{entry}");
        }
        assert!(humantime::parse_rfc3339(entry["time"].as_str().unwrap()).is_ok());
        // What an upstream says is no refusal, and not explained.
        let mut client = place.client(get("/fine").as_bytes());
        assert!(client.receive_responses(1, PATIENCE));
        let response = &client.parsed().responses[0];
        assert_eq!(response.head.start_line, "HTTP/1.1 504 Late");
        assert!(response.head.first("X-Toron-Reason").is_none());
        assert_eq!(&refusals(place.toron.addr)[0], entry);
    });
}

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
                "max_concurrency: 1",
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

// ---- the firewall ----

const GUARDED: &str = "\
server:
  host: 127.0.0.1
  port: 0
  engine: ENGINE
  worker_pool_size: 2
  explain_header: on
firewall:
  rate_limit_rps: 1
  rate_limit_burst: 2
  auto_block_threshold: 2
  block_duration: 100s
  max_connections_per_ip: 3
  max_connections_total: 8
  allow: [127.0.0.1]
  deny: [127.0.0.9]
admin:
  key: k
";

fn connect_from(source: u8, to: SocketAddr) -> Client {
    let source = IpAddr::from([127, 0, 0, source]);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket
        .bind(&SockAddr::from(SocketAddr::new(source, 0)))
        .unwrap();
    socket.connect(&SockAddr::from(to)).unwrap();
    Client::over(TcpStream::from(socket))
}

/// The refusal that `client` gets, and what the newest entry of its address says.
fn refused(addr: SocketAddr, client: &mut Client, source: u8) -> (u16, String, Value) {
    assert!(client.receive_responses(1, PATIENCE), "no answer");
    let response = client.parsed().responses.pop().unwrap();
    let body = String::from_utf8_lossy(&response.body).into_owned();
    let from = format!("127.0.0.{source}");
    client.close();
    let list = refusals(addr);
    let entry = list
        .into_iter()
        .find(|entry| entry["client"] == from.as_str());
    let entry = entry.expect("an entry");
    let explained = response.head.first("X-Toron-Reason");
    assert_eq!(explained, entry["reason"].as_str());
    assert_eq!(entry["status"], response.status);
    assert_eq!(entry["ended_by"], "firewall");
    (response.status, body, entry)
}

fn assert_limit(entry: &Value, config: &str, (setting, value): (&str, Option<u64>), on: &str) {
    let limit = &entry["limit"];
    assert_eq!(limit["setting"], setting, "{entry}");
    assert_eq!(limit["value"].as_u64(), value, "{entry}");
    let at = format!("config.yaml:{}", line_of(config, on));
    assert!(
        limit["set_at"].as_str().unwrap().ends_with(&at),
        "{at}: {entry}"
    );
    assert_eq!(limit["set_by"], "firewall");
}

#[test]
fn what_the_firewall_refuses_is_named() {
    const BLOCKED: &str = r#"{"error":"403 Forbidden: Address is blocked"}"#;
    both(|engine| {
        let config = GUARDED.replace("ENGINE", engine.name());
        let routes = "routes:\n  - {prefix: /, status: 200, body: fine}\n";
        let toron = Toron::start_files(&config, routes, None);
        let addr = toron.addr;
        // Denied before a byte is read.
        let got = refused(addr, &mut connect_from(9, addr), 9);
        assert_eq!((got.0, got.1.as_str()), (403, BLOCKED));
        assert_eq!(got.2["reason"], "denied");
        assert_limit(&got.2, &config, ("deny", None), "deny:");
        // Two requests are let in, the third is one too many, the fourth blocks the address. All in
        // one write, so that no token is gained meanwhile.
        let mut client = connect_from(4, addr);
        client.send(get("/").repeat(4).as_bytes(), PATIENCE);
        assert!(client.receive_responses(4, PATIENCE));
        let statuses: Vec<u16> = client.parsed().responses.iter().map(|r| r.status).collect();
        assert_eq!(statuses, [200, 200, 429, 403]);
        let limited = r#"{"error":"429 Too Many Requests: Rate limit exceeded"}"#;
        let bodies: Vec<Response> = client.parsed().responses;
        assert_eq!(String::from_utf8_lossy(&bodies[2].body), limited);
        assert_eq!(String::from_utf8_lossy(&bodies[3].body), BLOCKED);
        let list = refusals(addr);
        let (last, before) = (&list[0], &list[1]);
        assert_eq!(
            (&before["reason"], &before["path"]),
            (&"rate_limit".into(), &"/".into())
        );
        let observed = before["observed"].as_u64();
        assert!(observed.is_some_and(|n| (1..=3).contains(&n)), "{before}");
        assert_limit(
            before,
            &config,
            ("rate_limit_rps", Some(1)),
            "rate_limit_rps: 1",
        );
        assert_eq!(last["reason"], "auto_blocked");
        let threshold = ("auto_block_threshold", Some(2));
        assert_limit(last, &config, threshold, "auto_block_threshold: 2");
        assert_eq!(
            (&last["observed"], &last["status"]),
            (&2.into(), &403.into())
        );
        client.close();
        let got = refused(addr, &mut connect_from(4, addr), 4);
        assert_eq!(
            (got.1.as_str(), &got.2["reason"]),
            (BLOCKED, &"blocked".into())
        );
        assert_limit(
            &got.2,
            &config,
            ("block_duration", Some(100)),
            "block_duration: 100s",
        );
        // One connection too many of an address, then of all.
        let mut open: Vec<Client> = (0..3).map(|_| served(3, addr)).collect();
        let got = refused(addr, &mut connect_from(3, addr), 3);
        let text = r#"{"error":"503 Service Unavailable: Per-address connection limit reached"}"#;
        assert_eq!((got.0, got.1.as_str()), (503, text));
        assert_eq!(got.2["reason"], "address_connection_limit");
        let per_ip = ("max_connections_per_ip", Some(3));
        assert_limit(&got.2, &config, per_ip, "max_connections_per_ip: 3");
        assert_eq!(got.2["observed"], 4);
        while open.len() < 8 {
            open.push(served(20 + u8::try_from(open.len()).unwrap(), addr));
        }
        let mut client = connect_from(50, addr);
        assert!(client.receive_responses(1, PATIENCE));
        open.clear();
        let got = refused(addr, &mut client, 50);
        let text = r#"{"error":"503 Service Unavailable: Connection limit reached"}"#;
        assert_eq!((got.0, got.1.as_str()), (503, text));
        assert_eq!(got.2["reason"], "connection_limit");
        let total = ("max_connections_total", Some(8));
        assert_limit(&got.2, &config, total, "max_connections_total: 8");
        assert_eq!(got.2["observed"], 9);
    });
}

/// A connection that has been answered, so that it is surely counted.
fn served(source: u8, addr: SocketAddr) -> Client {
    let connected = || {
        let mut client = connect_from(source, addr);
        client.send(get("/health").as_bytes(), PATIENCE);
        client
    };
    until_served(connected).0
}
