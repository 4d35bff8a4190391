//! Discovery with a real Podman: the examples of configs/discovery as they stand there, replicas that
//! come and go under load, and an engine that is away for a while.
//!
//! Each test runs in namespaces of its own (tests/podman/engine.rs), which needs root, and fails where
//! there is no Podman: tests/tools.sh installs it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "podman/engine.rs"]
mod engine;
#[path = "podman/load.rs"]
mod load;
#[path = "podman/replicas.rs"]
mod replicas;
#[path = "discovery/rig.rs"]
mod rig;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use engine::{ran_inside, Podman};
use rig::{await_that, container, Toron};
use serde_json::Value;
use support::setup::Engine;
use support::soak;

fn example(podman: &Podman, name: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("configs/discovery")
        .join(name);
    let out = podman.command("bash").arg(script).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{name}: {said}");
}

/// The names of containers by what they answer with, their short ids.
fn names(podman: &Podman) -> BTreeMap<String, String> {
    let listed = podman.run(&["ps", "-a", "--format", "{{.ID}} {{.Names}}"]);
    let pair = |line: &str| {
        let (id, name) = line.split_once(' ')?;
        Some((id.trim().to_owned(), name.trim().to_owned()))
    };
    listed.lines().filter_map(pair).collect()
}

struct Examples {
    podman: Podman,
    toron: Toron,
    names: BTreeMap<String, String>,
}

impl Examples {
    /// The name of the container that answers, or the status.
    fn who(&self, request: &str, fields: &str) -> String {
        let response = self.toron.ask(request, fields);
        let body = String::from_utf8_lossy(&response.body).into_owned();
        if response.status != 200 {
            return response.status.to_string();
        }
        let name = self.names.get(&body);
        name.unwrap_or_else(|| panic!("{body} is none of {:?}", self.names))
            .clone()
    }

    /// How often each container answers.
    fn share(&self, count: usize, path: &str, fields: &str) -> BTreeMap<String, usize> {
        let mut share = BTreeMap::new();
        for _ in 0..count {
            *share
                .entry(self.who(&format!("GET {path}"), fields))
                .or_insert(0) += 1;
        }
        share
    }

    fn replicas(&self) {
        let fields = "Host: app.example.com\r\n";
        let share = self.share(30, "/service/x", fields);
        // Two reactors, each even to one.
        assert_eq!(share.len(), 3, "{share:?}");
        assert!(share.values().all(|n| (8..=12).contains(n)), "{share:?}");
        self.podman.run(&["stop", "-t", "5", "web-app-1"]);
        let state = self.toron.await_discovery("web-app-1 is out", |s| {
            container(s, "web-app-1")["route"] == Value::Null
        });
        let reason = &container(&state, "web-app-1")["reason"];
        assert!(reason.as_str().unwrap().contains("not running"), "{reason}");
        let share = self.share(20, "/service", fields);
        assert_eq!(share.len(), 2, "{share:?}");
    }

    fn canary(&self) {
        let host = "Host: checkout.example.com\r\n";
        let share = self.share(12, "/pay/process", host);
        assert_eq!(
            share.keys().collect::<Vec<_>>(),
            ["payment-base-1", "payment-base-2"]
        );
        for fields in ["X-Version: canary\r\n", "x-version: canary\r\n"] {
            let share = self.share(6, "/pay/process", &format!("{host}{fields}"));
            assert_eq!(share.keys().collect::<Vec<_>>(), ["payment-canary"]);
        }
        let other = format!("{host}X-Version: Canary\r\n");
        assert!(self.who("GET /pay", &other).starts_with("payment-base"));
        // Stopped, its requests join the baseline again.
        self.podman.run(&["rm", "-f", "-t", "2", "payment-canary"]);
        let canary = format!("{host}X-Version: canary\r\n");
        await_that("the baseline has them", || {
            match self.who("GET /pay", &canary) {
                name if name.starts_with("payment-base") => Ok(()),
                other => Err(other),
            }
        });
    }

    fn methods(&self) {
        let host = "Host: orders.example.com\r\n";
        let body = "Content-Length: 0\r\n";
        assert_eq!(self.who("GET /orders/7", host), "order-query-service");
        assert_eq!(
            self.who("POST /orders", &format!("{host}{body}")),
            "order-command-service"
        );
        let response = self.toron.ask("DELETE /orders", host);
        assert_eq!(response.status, 405);
        assert_eq!(response.head.first("allow"), Some("GET, POST"));
    }

    fn headers(&self) {
        let admin = "Host: mgmt.example.com\r\nX-Role: admin\r\n";
        assert_eq!(
            self.who("GET /tools", &format!("{admin}X-Env: production\r\n")),
            "admin-tool"
        );
        assert_eq!(self.who("GET /tools", admin), "404");
        let beta = "Host: app.example.com\r\nX-Feature: new-ui\r\nX-Group: beta-testers\r\n";
        assert_eq!(self.who("GET /beta", beta), "beta-tester");
        assert_eq!(self.who("GET /beta", "Host: app.example.com\r\n"), "404");
    }
}

const TAGS: [&str; 7] = [
    "my-web-service:v1.0",
    "payment-service:v1.0",
    "payment-service:v2.0",
    "order-read:latest",
    "order-write:latest",
    "admin-dashboard:latest",
    "ui-beta:latest",
];

fn examples(engine: Engine) {
    let podman = Podman::start(&TAGS);
    let toron = Toron::start(engine, &podman.socket(), "", "");
    for script in ["replicas.sh", "canary.sh", "methods.sh", "headers.sh"] {
        example(&podman, script);
    }
    toron.await_discovery("all have a route", |s| s["routed"] == 10);
    let examples = Examples {
        names: names(&podman),
        podman,
        toron,
    };
    // What runs is not yet what answers.
    let answers = |path: &str, fields: &str| {
        await_that(path, || match examples.toron.get(path, fields) {
            (200, _) => Ok(()),
            got => Err(format!("{got:?}")),
        });
    };
    for _ in 0..6 {
        answers("/service", "Host: app.example.com\r\n");
        answers("/pay", "Host: checkout.example.com\r\n");
        answers(
            "/pay",
            "Host: checkout.example.com\r\nX-Version: canary\r\n",
        );
    }
    answers("/orders", "Host: orders.example.com\r\n");
    examples.methods();
    examples.headers();
    examples.canary();
    examples.replicas();
}

#[test]
fn the_four_examples_work_as_written_on_epoll() {
    if !ran_inside("the_four_examples_work_as_written_on_epoll") {
        examples(Engine::Epoll);
    }
}

#[test]
fn the_four_examples_work_as_written_on_io_uring() {
    if !ran_inside("the_four_examples_work_as_written_on_io_uring") {
        examples(Engine::IoUring);
    }
}

const LABEL: &[&str] = &["toron.prefix=/api", "toron.response_header_timeout=5s"];

/// A toron for each engine, which both watch the same containers.
fn on_each_engine(podman: &Podman) -> [Toron; 2] {
    Engine::ALL.map(|engine| Toron::start(engine, &podman.socket(), "", ""))
}

/// Podman's service is away for a while: nothing is lost, and what changed meanwhile holds soon.
#[test]
fn d2_d4_podman_is_stopped_and_started_again() {
    if ran_inside("d2_d4_podman_is_stopped_and_started_again") {
        return;
    }
    let mut podman = Podman::start(&["replica:latest"]);
    podman.replica("one", "127.0.0.11", LABEL);
    let torons = on_each_engine(&podman);
    let connects = |toron: &Toron| toron.discovery()["connects"].as_u64().unwrap();
    let before: Vec<u64> = torons.iter().map(connects).collect();
    podman.stop_serving();
    for toron in &torons {
        toron.await_discovery("stale", |s| s["stale"] == true);
    }
    podman.replica("two", "127.0.0.12", LABEL);
    podman.run(&["stop", "-t", "5", "one"]);
    podman.run(&["start", "one"]);
    for toron in &torons {
        toron.await_body("/api", "", "one");
    }
    let away = Duration::from_secs(if soak() { 20 } else { 4 });
    let until = Instant::now() + away;
    while Instant::now() < until {
        for toron in &torons {
            assert_eq!(toron.get("/api", ""), (200, "one".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    podman.serve();
    let began = Instant::now();
    for (toron, before) in torons.iter().zip(before) {
        toron.await_body("/api", "", "two");
        let took = began.elapsed();
        let fresh = |s: &Value| s["stale"] == false && s["connected"] == true;
        toron.await_discovery("fresh", fresh);
        let connects = connects(toron) - before;
        println!("effective {took:?} after the service listens, {connects} connects");
        assert!(connects < 20, "{connects} connects");
        assert!(!soak() || took < Duration::from_secs(2), "{took:?}");
    }
}
