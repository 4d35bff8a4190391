//! The list of refusals: every literal body that toron refuses with, provoked in the real binary on
//! both engines, with the limit that it names, its value, what was observed, and the line it was set
//! on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "refusals/cases.rs"]
mod cases;
#[path = "refusals/complete.rs"]
mod complete;
#[path = "refusals/firewall.rs"]
mod firewall;
#[path = "refusals/malformed.rs"]
mod malformed;
#[path = "refusals/own.rs"]
mod own;
mod support;

use std::net::{SocketAddr, TcpListener};
use std::time::Instant;

use cases::Limit::{BuiltIn, Default as Unwritten, None as NoLimit, Written};
use cases::{get, of_heads, of_routes, with, Case, CONFIG, ROUTES};
use serde_json::Value;
use support::client::Client;
use support::http::Response;
use support::setup::{both, Engine};
use support::toron::Toron;
use support::upstream::{Script, Step, Then, Upstream, When};
use support::{show, PATIENCE};

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
    _others: Vec<Upstream>,
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
        let answers_with = |answer: &[u8], then| scripted(vec![Step::Send(answer.to_vec())], then);
        let bad_head = answers_with(b"HTTP/1.1 200 OK\r\nNoColon\r\n\r\n", Then::Keep);
        let two_lengths = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
        let bad_framing = answers_with(two_lengths, Then::Keep);
        let chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        let bad_chunk = answers_with(chunk, Then::Keep);
        let upgrade = b"HTTP/1.1 101 Over\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let switches = answers_with(upgrade, Then::Reset);
        let huge = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(70_000));
        let huge_head = answers_with(huge.as_bytes(), Then::Keep);
        let config = CONFIG.replace("ENGINE", engine.name());
        let routes = ROUTES
            .replace("BAD-HEAD", &bad_head.addr.to_string())
            .replace("BAD-FRAMING", &bad_framing.addr.to_string())
            .replace("BAD-CHUNK", &bad_chunk.addr.to_string())
            .replace("SWITCHES", &switches.addr.to_string())
            .replace("HUGE-HEAD", &huge_head.addr.to_string())
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
            _others: vec![
                garbage,
                closes,
                answers,
                bad_head,
                bad_framing,
                bad_chunk,
                switches,
                huge_head,
            ],
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
        // Only of the bodies that a route takes.
        let is_window = case.reason == "read_timeout" && !entry["route"].is_null();
        assert_eq!(entry["window"].is_object(), is_window, "{entry}");
        match case.observed {
            None => assert!(entry["observed"].is_null(), "{entry}"),
            Some((least, most)) => {
                let observed = entry["observed"].as_u64();
                let within = observed.is_some_and(|n| (least..=most).contains(&n));
                assert!(within, "{least} to {most}: {entry}");
            }
        }
    }

    /// The entry for a client that sends so many bytes of its body, once its window has begun, and no
    /// more. On a busy machine they may come before the window or behind it: then it is tried again.
    fn drip(&self, path: &str, body: usize, outstanding: usize) -> Value {
        let length = format!("Content-Length: {outstanding}\r\n");
        for _ in 0..10 {
            let before = self.hangs.connections().len();
            let mut client = self.client(with("POST", path, &length).as_bytes());
            let arrived = self.hangs.wait_for(PATIENCE, |all| {
                let mut later = all.iter().skip(before);
                later.any(|connection| connection.heads().next().is_some())
            });
            assert!(arrived, "{path}");
            client.send(&b"x".repeat(body), PATIENCE);
            assert!(client.receive_responses(1, PATIENCE), "{path}");
            let entry = refusals(self.toron.addr).swap_remove(0);
            assert_eq!(entry["reason"], "read_timeout", "{entry}");
            if entry["window"]["bytes"] == body {
                return entry;
            }
        }
        panic!("{path}: {body} bytes never came within a window");
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

/// A window that had too few bytes says how many came, how many were needed, and who says so.
#[test]
fn i18_the_bytes_of_a_window_are_named() {
    both(|engine| {
        let place = Place::start(engine);
        for (path, body, outstanding, needed, written) in [
            ("/drip", 40, 1_000, 64, Some("min_progress_bytes: 64")),
            ("/drip", 40, 50, 50, Some("min_progress_bytes: 64")),
            ("/pause", 1_000, 10_000, 1_024, None),
        ] {
            let entry = place.drip(path, body, outstanding);
            assert_eq!(entry["limit"]["setting"], "read_timeout", "{entry}");
            let window = &entry["window"];
            assert_eq!(window["needed"], needed, "{entry}");
            assert_eq!(window["setting"], "min_progress_bytes", "{entry}");
            let (by, at) = match written {
                Some(on) => {
                    let line = line_of(&place.routes, on);
                    ("route", format!("routes.yaml:{line}"))
                }
                None => ("default", "default".to_owned()),
            };
            assert_eq!(window["set_by"], by, "{entry}");
            let told = window["set_at"].as_str().unwrap_or_default();
            assert!(told.ends_with(&at), "{at}: {entry}");
        }
    });
}

#[test]
fn what_is_wrong_with_heads_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        of_heads().iter().for_each(|case| place.play(case));
    });
}

#[test]
fn what_is_malformed_is_named() {
    both(|engine| {
        let place = Place::start(engine);
        let cases = [malformed::lines(), malformed::fields(), malformed::chunks()];
        let cases = cases.into_iter().chain([malformed::of_upstreams()]);
        cases.flatten().for_each(|case| place.play(&case));
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
