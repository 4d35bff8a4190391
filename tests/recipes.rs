//! The recipes in configs/recipes: `toron check --strict` accepts each of them, and toron does what
//! they say, with targets rewritten to a scripted upstream and long times shortened.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use support::client::Client;
use support::http::Response;
use support::setup::Engine;
use support::toron::{check_files, Toron};
use support::upstream::{Connection, Script, Step, Then, Upstream, When};
use support::{show, PATIENCE};

const MIB: usize = 1024 * 1024;

/// Every recipe, and words of what `toron check` shows for it.
const RECIPES: [(&str, &[&str]); 6] = [
    (
        "large-upload",
        &[
            "/legacy/upload",
            "200MiB (route)",
            "16 (route",
            "read 10s (route)",
        ],
    ),
    (
        "slow-report",
        &[
            "8 (route",
            "write 30s (route)",
            "response header 1m (route)",
        ],
    ),
    (
        "chunked-stream",
        &["500MiB (route)", "32 (route", "read 15s (route)"],
    ),
    ("request-deadline", &["request deadline 30s (route)"]),
    (
        "header-deadline",
        &["header deadline 30s (server)", "none (default)"],
    ),
    ("header-deadline-answer", &["header deadline 5s (route)"]),
];

fn folder(recipe: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("configs/recipes")
        .join(recipe)
}

fn routes_of(recipe: &str) -> String {
    std::fs::read_to_string(folder(recipe).join("routes.yaml")).unwrap()
}

/// The recipe's own, or one that says nothing.
fn config_of(recipe: &str) -> String {
    let path = folder(recipe).join("config.yaml");
    match path.exists() {
        true => std::fs::read_to_string(path).unwrap(),
        false => "server:\n  port: 8080\n".to_owned(),
    }
}

#[test]
fn toron_check_accepts_every_recipe_without_a_warning() {
    for (recipe, words) in RECIPES {
        let shown = check_files(&["--strict"], &config_of(recipe), &routes_of(recipe))
            .unwrap_or_else(|e| panic!("{recipe}: {e}"));
        for word in words {
            assert!(shown.contains(word), "{recipe}: no {word:?} in\n{shown}");
        }
    }
}

#[test]
fn the_readme_lists_every_recipe_and_no_other() {
    let readme = std::fs::read_to_string(folder("README.md")).unwrap();
    let mut listed: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| [")?.split(']').next())
        .collect();
    let mut present: Vec<String> = std::fs::read_dir(folder(""))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let mut tested: Vec<&str> = RECIPES.iter().map(|(recipe, _)| *recipe).collect();
    listed.sort_unstable();
    present.sort_unstable();
    tested.sort_unstable();
    assert_eq!(listed, present);
    assert_eq!(tested, present);
}

/// A recipe at work.
struct Kitchen {
    upstream: Upstream,
    toron: Toron,
}

impl Kitchen {
    /// `changes` are texts of the routes and of the configuration that are replaced; each must be
    /// there.
    fn start(recipe: &str, engine: Engine, changes: &[(&str, &str)]) -> Self {
        let upstream = Upstream::start();
        let routes: Vec<String> = routes_of(recipe)
            .lines()
            .map(|line| match line.split_once("target:") {
                Some((indent, _)) if indent.trim().is_empty() => {
                    format!("{indent}target: http://{}", upstream.addr)
                }
                _ => line.to_owned(),
            })
            .collect();
        let listen = format!("port: 0\n  engine: {}", engine.name());
        let mut config = config_of(recipe).replace("port: 8080", &listen);
        match config.contains("host: \"0.0.0.0\"") {
            true => config = config.replace("0.0.0.0", "127.0.0.1"),
            false => config = config.replace("server:\n", "server:\n  host: 127.0.0.1\n"),
        }
        let mut routes = routes.join("\n");
        for (from, to) in changes {
            assert!(
                routes.contains(from) || config.contains(from),
                "{recipe}: nowhere {from:?}"
            );
            routes = routes.replace(from, to);
            config = config.replace(from, to);
        }
        let toron = Toron::start_files(&config, &routes, None);
        Kitchen { upstream, toron }
    }

    fn connect(&self) -> Client {
        Client::connect(self.toron.addr, PATIENCE).unwrap()
    }

    fn ask(&self, request: &[u8]) -> Response {
        let mut client = self.connect();
        client.send(request, PATIENCE);
        assert!(
            client.receive_responses(1, PATIENCE),
            "no whole answer: {}",
            show(&client.received)
        );
        client.parsed().responses.remove(0)
    }

    fn answer_with(&self, steps: Vec<Step>, then: Then) {
        self.upstream.begin(Script {
            answers: vec![steps],
            repeat_last: true,
            when: When::AfterRequest,
            then,
        });
    }

    /// Waits for the log of the upstream.
    fn upstream_saw(&self, what: &str, done: impl Fn(&[Connection]) -> bool) {
        assert!(
            self.upstream.wait_for(PATIENCE, done),
            "the upstream never saw {what}: {:?}",
            self.upstream
                .connections()
                .iter()
                .map(|c| (c.requests.len(), c.received.len(), c.ended))
                .collect::<Vec<_>>()
        );
    }
}

fn on_every_engine(test: fn(Engine)) {
    for engine in Engine::ALL {
        test(engine);
    }
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n").into_bytes()
}

fn post(path: &str, length: usize) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: t.example\r\nContent-Length: {length}\r\n\r\n")
        .into_bytes()
}

fn post_chunked(path: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n")
        .into_bytes()
}

fn body(length: usize) -> Vec<u8> {
    let mut body = vec![0; length];
    toron::origin::pattern::fill(0, &mut body);
    body
}

fn chunks(body: &[u8], size: usize) -> Vec<u8> {
    let mut framed = Vec::new();
    for chunk in body.chunks(size) {
        framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
    }
    framed.extend_from_slice(b"0\r\n\r\n");
    framed
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

const TOO_LARGE: &str =
    "{\"error\":\"413 Payload Too Large: request Content-Length exceeds effective route limit\"}";

#[test]
fn i7_i8_a_large_upload_passes_where_the_recipe_allows_it_and_nowhere_else() {
    on_every_engine(|engine| {
        let kitchen = Kitchen::start("large-upload", engine, &[]);
        let sent = body(5 * MIB);
        let mut request = post("/legacy/upload/disk.img", sent.len());
        request.extend_from_slice(&sent);
        assert_eq!(kitchen.ask(&request).status, 200);
        let seen = kitchen.upstream.connections().remove(0).requests.remove(0);
        assert!(seen.body == sent, "{} bytes arrived", seen.body.len());

        kitchen.upstream.begin(Script::default());
        for refused in [
            post("/api/x", 5 * MIB),
            post("/legacy/upload/x", 200 * MIB + 1),
        ] {
            let response = kitchen.ask(&refused);
            assert_eq!(
                (response.status, text(&response).as_str()),
                (413, TOO_LARGE)
            );
        }
        assert!(
            kitchen.upstream.connections().is_empty(),
            "a refused upload was dialled for"
        );
    });
}

#[test]
fn i37_an_upload_reaches_the_backend_while_it_is_sent() {
    on_every_engine(|engine| {
        let kitchen = Kitchen::start("large-upload", engine, &[]);
        // stream_request_body: true holds for short ones as well.
        let mut client = kitchen.connect();
        client.send(&post("/legacy/upload/short", 10), PATIENCE);
        client.send(b"12345", PATIENCE);
        kitchen.upstream_saw("half of ten bytes", |c| {
            c.iter().any(|c| c.received.ends_with(b"12345"))
        });
        client.send(b"67890", PATIENCE);
        assert!(client.receive_responses(1, PATIENCE));
        assert_eq!(client.parsed().responses[0].status, 200);
        kitchen.upstream.begin(Script::default());

        let sent = body(MIB);
        let mut client = kitchen.connect();
        client.send(&post("/legacy/upload/x", sent.len()), PATIENCE);
        client.send(&sent[..MIB / 2], PATIENCE);
        kitchen.upstream_saw("half of it", |c| {
            c.iter()
                .any(|c| c.started.is_some() && c.received.len() > MIB / 2)
        });
        client.send(&sent[MIB / 2..], PATIENCE);
        assert!(client.receive_responses(1, PATIENCE));
        assert_eq!(client.parsed().responses[0].status, 200);
    });
}

#[test]
fn i24_i25_a_report_may_take_its_time_but_not_for_ever() {
    // The client's write deadline is a tenth of what the backend takes.
    let shorter = [
        (
            "response_header_timeout: 60s",
            "response_header_timeout: 2s",
        ),
        ("write_timeout: 30s", "write_timeout: 60ms"),
    ];
    for engine in Engine::ALL {
        let kitchen = Kitchen::start("slow-report", engine, &shorter);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nreport".to_vec();
        let computes = Step::Pause(Duration::from_millis(600));
        kitchen.answer_with(vec![computes, Step::Send(answer)], Then::Keep);
        let response = kitchen.ask(&get("/legacy/reports/year"));
        assert_eq!((response.status, text(&response).as_str()), (200, "report"));

        kitchen.answer_with(vec![Step::Hang], Then::Keep);
        let response = kitchen.ask(&get("/legacy/reports/never"));
        let error = "{\"error\":\"504 Gateway Timeout: Upstream response header timeout expired\"}";
        assert_eq!((response.status, text(&response).as_str()), (504, error));
        kitchen.upstream_saw("the end", |c| c.iter().all(|c| c.ended.is_some()));
    }
}

#[test]
fn i36_chunks_reach_the_backend_as_they_come() {
    on_every_engine(|engine| {
        let kitchen = Kitchen::start("chunked-stream", engine, &[]);
        let sent = body(5 * MIB);
        let framed = chunks(&sent, 10_000);
        let mut client = kitchen.connect();
        client.send(&post_chunked("/legacy/stream-upload/x"), PATIENCE);
        client.send(&framed[..MIB], PATIENCE);
        kitchen.upstream_saw("the first mebibyte", |c| {
            c.iter()
                .any(|c| c.started.is_some() && c.received.len() > MIB - 64 * 1024)
        });
        client.send(&framed[MIB..], PATIENCE);
        assert!(client.receive_responses(1, PATIENCE));
        assert_eq!(client.parsed().responses[0].status, 200);
        let seen = kitchen.upstream.connections().remove(0).requests.remove(0);
        assert!(seen.body == sent, "{} bytes arrived", seen.body.len());
        assert_eq!(seen.head.all("transfer-encoding"), ["chunked"]);
    });
}

#[test]
fn i10_i36_a_fault_in_a_stream_is_never_a_whole_request() {
    let smaller = [("max_body_bytes: 524288000", "max_body_bytes: 300000")];
    for engine in Engine::ALL {
        let kitchen = Kitchen::start("chunked-stream", engine, &smaller);
        let too_much = chunks(&body(300_001), 1000);
        let mut broken = chunks(&body(200_000), 1000);
        broken.truncate(broken.len() - 5);
        broken.extend_from_slice(b"+1\r\nx\r\n0\r\n\r\n");
        for (framed, status, error) in [
            (too_much, 413, "{\"error\":\"413 Payload Too Large\"}"),
            (broken, 400, "{\"error\":\"400 Bad Request\"}"),
        ] {
            kitchen.upstream.begin(Script::default());
            let mut request = post_chunked("/legacy/stream-upload/x");
            request.extend_from_slice(&framed);
            let response = kitchen.ask(&request);
            assert_eq!((response.status, text(&response).as_str()), (status, error));
            kitchen.upstream_saw("the end", |c| c.iter().all(|c| c.ended.is_some()));
            let whole: usize = kitchen
                .upstream
                .connections()
                .iter()
                .map(|c| c.requests.len())
                .sum();
            assert_eq!(whole, 0, "{status}: a whole request upstream");
        }
    }
}

#[test]
fn i33_a_request_is_over_at_its_deadline() {
    for engine in Engine::ALL {
        let shorter = [("request_deadline: 30s", "request_deadline: 400ms")];
        let kitchen = Kitchen::start("request-deadline", engine, &shorter);
        assert_eq!(kitchen.ask(&get("/api/quick")).status, 200);

        kitchen.answer_with(vec![Step::Hang], Then::Keep);
        let response = kitchen.ask(&get("/api/silent"));
        let error = "{\"error\":\"504 Gateway Timeout: Request deadline exceeded\"}";
        assert_eq!((response.status, text(&response).as_str()), (504, error));

        // What the response header timeout does not bound: headers, then nothing.
        let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec();
        kitchen.answer_with(vec![Step::Send(begun), Step::Hang], Then::Keep);
        let mut client = kitchen.connect();
        client.send(&get("/api/stalls"), PATIENCE);
        assert!(client.receive_until_end(PATIENCE), "not cut");
        let cut = client.parsed().responses.remove(0);
        assert_eq!((cut.status, cut.complete), (200, false));
        kitchen.upstream_saw("the end", |c| c.iter().all(|c| c.ended.is_some()));
    }
}

#[test]
fn i32_response_headers_come_within_the_deadline_and_bodies_take_longer() {
    for engine in Engine::ALL {
        let shorter = [("header_deadline: 30s", "header_deadline: 400ms")];
        let kitchen = Kitchen::start("header-deadline", engine, &shorter);
        kitchen.answer_with(vec![Step::Hang], Then::Keep);
        let response = kitchen.ask(&get("/silent"));
        let error = "{\"error\":\"504 Gateway Timeout: Request timed out\"}";
        assert_eq!((response.status, text(&response).as_str()), (504, error));

        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n".to_vec();
        let later = Step::Pause(Duration::from_millis(800));
        kitchen.answer_with(
            vec![Step::Send(head), later, Step::Send(b"body".to_vec())],
            Then::Keep,
        );
        let response = kitchen.ask(&get("/slow-body"));
        assert_eq!((response.status, text(&response).as_str()), (200, "body"));
    }
}

#[test]
fn i32_the_answer_to_a_missed_deadline_is_the_recipes() {
    for engine in Engine::ALL {
        let shorter = [("header_deadline: 5s", "header_deadline: 400ms")];
        let kitchen = Kitchen::start("header-deadline-answer", engine, &shorter);
        kitchen.answer_with(vec![Step::Hang], Then::Keep);
        let response = kitchen.ask(&get("/silent"));
        assert_eq!(response.status, 504);
        assert_eq!(response.head.all("retry-after"), ["10"]);
        assert_eq!(
            response.head.all("content-type"),
            ["text/plain; charset=utf-8"]
        );
        assert_eq!(
            text(&response),
            "upstream is taking too long, try again shortly"
        );
    }
}

/// As many requests as the cap says are in flight; the next is turned away, and one more fits when
/// one of them is gone.
fn holds_exactly(kitchen: &Kitchen, request: &[u8], cap: usize) {
    kitchen.answer_with(vec![Step::Hang], Then::Keep);
    let send = || {
        let mut client = kitchen.connect();
        client.send(request, PATIENCE);
        client
    };
    let mut held: Vec<Client> = (0..cap).map(|_| send()).collect();
    kitchen.upstream_saw("all that fit", |c| {
        c.iter().flat_map(Connection::heads).count() == cap
    });
    let mut full = send();
    assert!(
        full.receive_responses(1, PATIENCE),
        "{cap} and one more fit"
    );
    let response = full.parsed().responses.remove(0);
    let error = "{\"error\":\"503 Service Unavailable: Route concurrency limit reached\"}";
    assert_eq!((response.status, text(&response).as_str()), (503, error));
    assert_eq!(response.head.all("retry-after"), ["5"]);
    held.pop().unwrap().reset();
    kitchen.upstream_saw("one of them end", |c| c.iter().any(|c| c.ended.is_some()));
    held.push(send());
    kitchen.upstream_saw("the next", |c| {
        c.iter().flat_map(Connection::heads).count() == cap + 1
    });
}

#[test]
fn i12_i13_the_recipes_caps_hold() {
    for engine in Engine::ALL {
        // Nothing that waits here may run into a time limit meanwhile.
        let upload = Kitchen::start(
            "large-upload",
            engine,
            &[("read_timeout: 10s", "read_timeout: 60s")],
        );
        holds_exactly(&upload, &post("/legacy/upload/x", 10), 16);
        let report = Kitchen::start("slow-report", engine, &[]);
        holds_exactly(&report, &get("/legacy/reports/x"), 8);
        let stream = Kitchen::start(
            "chunked-stream",
            engine,
            &[("read_timeout: 15s", "read_timeout: 60s")],
        );
        holds_exactly(&stream, &post_chunked("/legacy/stream-upload/x"), 32);
    }
}
