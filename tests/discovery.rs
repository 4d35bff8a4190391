//! Discovery of containers, against an engine that is a script: what it does when all goes well, and
//! that nothing is lost when nothing does. tests/podman.rs has a real engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "discovery/fake.rs"]
mod fake;
#[path = "discovery/rig.rs"]
mod rig;
mod support;

use std::time::{Duration, Instant};

use fake::{Fake, FakeEngine, Lists};
use rig::{await_that, container, socket_dir, Named, Toron};
use serde_json::json;
use support::setup::Engine;
use support::upstream::Upstream;
use support::PATIENCE;

/// Events are what is tested: the poll must not help.
const SELDOM: &str = ", poll_interval: 60s";
const OFTEN: &str = ", poll_interval: 200ms";

const API: (&str, &str) = ("toron.prefix", "/api");

fn one(name: &str, server: &Named) -> Fake {
    Fake::docker(name, server.port(), &[API])
}

/// Start, a second replica, each of them gone: by events, within the patience of nobody.
fn replicas_come_and_go(engine: Engine) {
    let (_dir, socket) = socket_dir();
    let (a, b) = (Named::start("a"), Named::start("b"));
    let fake = FakeEngine::start(&socket, vec![one("web-1", &a)]);
    let toron = Toron::start(engine, &socket, SELDOM, "");
    // The list was read before the first connection was taken.
    assert_eq!(toron.get("/api/x", ""), (200, "a".to_owned()));
    fake.set(vec![one("web-1", &a), one("web-2", &b)]);
    toron.await_body("/api", "", "b");
    let routes = toron.api("routes");
    assert_eq!(routes[0]["source"], "oci-discovery");
    assert_eq!(routes[0]["targets"].as_array().unwrap().len(), 2);
    fake.set(vec![one("web-2", &b)]);
    await_that("one target", || {
        match toron.api("routes")[0]["targets"].as_array() {
            Some(targets) if targets.len() == 1 => Ok(()),
            targets => Err(format!("{targets:?}")),
        }
    });
    for _ in 0..4 {
        assert_eq!(toron.get("/api", ""), (200, "b".to_owned()));
    }
    fake.set(Vec::new());
    toron.await_status("/api", "", 404);
    assert_eq!(toron.api("routes"), json!([]));
    assert_eq!(fake.streams_opened(), 1);
}

#[test]
fn d3_d12_replicas_come_and_go_on_epoll() {
    replicas_come_and_go(Engine::Epoll);
}

#[test]
fn d3_d12_replicas_come_and_go_on_io_uring() {
    replicas_come_and_go(Engine::IoUring);
}

#[test]
fn d4_a_list_that_fails_changes_nothing_and_shows() {
    let (_dir, socket) = socket_dir();
    let (a, b) = (Named::start("a"), Named::start("b"));
    let fake = FakeEngine::start(&socket, vec![one("web", &a)]);
    let toron = Toron::start(Engine::Epoll, &socket, OFTEN, "");
    for how in [
        Lists::Error,
        Lists::Garbage,
        Lists::HalfJson,
        Lists::Cut,
        Lists::Slow,
    ] {
        fake.lists(how);
        // A change that cannot be seen.
        fake.set(vec![one("other", &b)]);
        let state = toron.await_discovery("stale", |s| s["stale"] == true);
        assert!(state["problem"].is_string(), "{state}");
        assert_eq!(
            container(&state, "web")["route"]["prefix"],
            "/api",
            "{how:?}"
        );
        assert_eq!(toron.get("/api", ""), (200, "a".to_owned()), "{how:?}");
        fake.set_silently(vec![one("web", &a)]);
        fake.lists(Lists::Well);
        let state = toron.await_discovery("fresh", |s| s["stale"] == false);
        assert_eq!(state["problem"], json!(null));
    }
    fake.set(vec![one("other", &b)]);
    toron.await_body("/api", "", "b");
}

#[test]
fn d3_a_stream_that_dies_silently_is_noticed_and_replaced() {
    let (_dir, socket) = socket_dir();
    let (a, b) = (Named::start("a"), Named::start("b"));
    let fake = FakeEngine::start(&socket, vec![one("web", &a)]);
    let toron = Toron::start(Engine::IoUring, &socket, OFTEN, "");
    fake.mute(true);
    fake.set(vec![one("other", &b)]);
    toron.await_body("/api", "", "b");
    await_that("a new stream", || match fake.streams_opened() {
        0 | 1 => Err("the same stream".to_owned()),
        _ => Ok(()),
    });
}

#[test]
fn d3_a_stream_that_ends_or_talks_nonsense_is_opened_again() {
    let (_dir, socket) = socket_dir();
    let (a, b) = (Named::start("a"), Named::start("b"));
    let fake = FakeEngine::start(&socket, vec![one("web", &a)]);
    let toron = Toron::start(Engine::Epoll, &socket, SELDOM, "");
    for (n, nonsense) in [&b""[..], b"no JSON\n", b"\xff\xfe\0\n"].iter().enumerate() {
        if nonsense.is_empty() {
            fake.end_streams();
        } else {
            fake.send(nonsense);
        }
        await_that("another stream", || match fake.streams_opened() {
            opened if opened == n + 2 => Ok(()),
            opened => Err(opened.to_string()),
        });
        toron.await_discovery("connected", |s| {
            s["connected"] == true && s["stale"] == false
        });
    }
    fake.set(vec![one("other", &b)]);
    toron.await_body("/api", "", "b");
}

/// One that never works: lists go on at the pace of growing waits, and nobody is flooded.
#[test]
fn d3_without_events_the_list_is_still_read() {
    let (_dir, socket) = socket_dir();
    let (a, b) = (Named::start("a"), Named::start("b"));
    let fake = FakeEngine::start(&socket, vec![one("web", &a)]);
    fake.greeting(b"nonsense\n");
    let toron = Toron::start(Engine::Epoll, &socket, ", poll_interval: 1s", "");
    fake.set_silently(vec![one("other", &b)]);
    let began = Instant::now();
    toron.await_body("/api", "", "b");
    let opened = fake.streams_opened();
    // Waits of 75 ms at least, then 150, 300, …: ten would take seconds.
    assert!(opened < 10 + began.elapsed().as_secs() as usize, "{opened}");
}

#[test]
fn d2_d3_an_engine_that_goes_and_comes_back() {
    let (_dir, socket) = socket_dir();
    let (a, b) = (Named::start("a"), Named::start("b"));
    let fake = FakeEngine::start(&socket, vec![one("web", &a)]);
    let toron = Toron::start(Engine::IoUring, &socket, "", "");
    let before = toron.discovery()["connects"].as_u64().unwrap();
    drop(fake);
    toron.await_discovery("stale", |s| s["stale"] == true && s["connected"] == false);
    assert_eq!(toron.get("/api", ""), (200, "a".to_owned()));
    // Long enough for waits of more than two seconds.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(toron.get("/api", ""), (200, "a".to_owned()));
    let _fake = FakeEngine::start(&socket, vec![one("other", &b)]);
    let began = Instant::now();
    toron.await_body("/api", "", "b");
    println!("effective after {:?}", began.elapsed());
    let state = toron.await_discovery("fresh", |s| s["stale"] == false);
    let connects = state["connects"].as_u64().unwrap() - before;
    assert!(connects < 20, "{connects} connects");
}

#[test]
fn d2_a_socket_that_appears_later_is_found() {
    let (_dir, socket) = socket_dir();
    let toron = Toron::start(Engine::Epoll, &socket, "", "");
    let state = toron.discovery();
    let problem = state["problem"].as_str().unwrap();
    assert!(problem.starts_with("no socket at "), "{state}");
    assert_eq!(toron.get("/api", "").0, 404);
    let a = Named::start("a");
    let _fake = FakeEngine::start(&socket, vec![one("web", &a)]);
    toron.await_body("/api", "", "a");
    let lines = toron.process.log_lines();
    let said = lines.iter().filter(|line| line.contains("no socket at"));
    assert_eq!(said.count(), 1, "{lines:#?}");
}

#[test]
fn d2_a_socket_of_grpc_is_told_as_such() {
    let (_dir, socket) = socket_dir();
    let fake = FakeEngine::start(&socket, Vec::new());
    fake.lists(Lists::Grpc);
    let toron = Toron::start(Engine::Epoll, &socket, "", "");
    let state = toron.await_discovery("said", |s| {
        s["problem"].as_str().is_some_and(|p| p.contains("gRPC"))
    });
    assert_eq!(state["stale"], true);
}

#[test]
fn d5_an_address_that_comes_late_is_seen_without_an_event() {
    let (_dir, socket) = socket_dir();
    let a = Named::start("a");
    let late = |address: &str| {
        one("web", &a)
            .with("HostConfig", json!({"NetworkMode": "edge"}))
            .with(
                "NetworkSettings",
                json!({"Networks": {"edge": {"IPAddress": address}}}),
            )
    };
    let fake = FakeEngine::start(&socket, Vec::new());
    let toron = Toron::start(Engine::Epoll, &socket, SELDOM, "");
    fake.set(vec![late("")]);
    let state = toron.await_discovery("seen", |s| s["containers"][0]["name"] == "web");
    let reason = container(&state, "web")["reason"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(reason.contains("no address"), "{reason}");
    fake.set_silently(vec![late("127.0.0.1")]);
    toron.await_body("/api", "", "a");
}

/// A container that has the address of one that is gone: connections kept to that one are not its.
#[test]
fn d5_a_kept_connection_is_not_used_for_another_container() {
    for engine in Engine::ALL {
        let (_dir, socket) = socket_dir();
        let upstream = Upstream::start();
        let web = |id: &str| {
            let mut web = Fake::docker("web", upstream.addr.port(), &[API]);
            web.id = id.to_owned();
            web.entry["Id"] = json!(id);
            web
        };
        let fake = FakeEngine::start(&socket, vec![web("first")]);
        let toron = Toron::start(engine, &socket, SELDOM, "");
        let id = |state: &serde_json::Value| container(state, "web")["id"].clone();
        // A connection that the upstream would keep, for as long as anybody likes.
        assert_eq!(toron.get("/api", "").0, 200);
        let requests = |n: usize| upstream.connections()[n].requests.len();
        assert_eq!((upstream.connections().len(), requests(0)), (1, 1));
        fake.set(vec![web("second")]);
        toron.await_discovery("the other one", |s| id(s) == "second");
        assert_eq!(toron.get("/api", "").0, 200);
        assert_eq!(
            (upstream.connections().len(), requests(0), requests(1)),
            (2, 1, 1)
        );
        // Nor is it left open.
        assert!(upstream.wait_for(PATIENCE, |all| all[0].ended.is_some()));
    }
}

/// Podman's list: no kind of network, no exposed ports, no health.
#[test]
fn what_a_list_leaves_out_is_asked_for_once() {
    let (_dir, socket) = socket_dir();
    let a = Named::start("a");
    let mut bare = one("web", &a);
    bare.entry.as_object_mut().unwrap().remove("HostConfig");
    bare.entry["Labels"]
        .as_object_mut()
        .unwrap()
        .remove("toron.port");
    bare.entry["NetworkSettings"] = json!({"Networks": null});
    bare.inspected = json!({
        "State": {"Health": {"Status": ""}},
        "HostConfig": {"NetworkMode": "host"},
        "Config": {"ExposedPorts": {format!("{}/tcp", a.port()): {}, "1/udp": {}}},
        "NetworkSettings": {"Networks": {}},
    });
    let mut sick = bare.clone();
    sick.id = "sick".to_owned();
    sick.entry["Id"] = json!("sick");
    sick.entry["Names"] = json!(["/sick"]);
    sick.inspected["State"]["Health"]["Status"] = json!("starting");
    let fake = FakeEngine::start(&socket, vec![bare.clone(), sick.clone()]);
    let toron = Toron::start(Engine::Epoll, &socket, SELDOM, "");
    assert_eq!(toron.get("/api", ""), (200, "a".to_owned()));
    let state = toron.discovery();
    let reason = container(&state, "sick")["reason"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(reason.contains("health check"), "{reason}");
    let asked = fake.inspections();
    assert_eq!(asked, 2);
    sick.inspected["State"]["Health"]["Status"] = json!("healthy");
    fake.set(vec![bare, sick]);
    let state = toron.await_discovery("well", |s| s["routed"] == 2);
    assert!(container(&state, "sick")["target"].is_string());
    // Again only the one that has a check.
    assert_eq!(
        fake.inspections(),
        asked + state["lists"].as_u64().unwrap() as usize - 1
    );
}

#[test]
fn r6_routes_of_the_files_win_and_the_other_is_reported() {
    let (_dir, socket) = socket_dir();
    let a = Named::start("a");
    let file = "routes: [{prefix: /api, match_headers: {X-A: b}, status: 200, body: file}]";
    let labels = [API, ("toron.headers", "{\"x-a\":\"b\"}")];
    let shadowed = Fake::docker("web", a.port(), &labels);
    let _fake = FakeEngine::start(&socket, vec![shadowed, one("open", &a)]);
    let toron = Toron::start(Engine::Epoll, &socket, SELDOM, file);
    assert_eq!(toron.get("/api", "X-A: b\r\n"), (200, "file".to_owned()));
    assert_eq!(toron.get("/api", ""), (200, "a".to_owned()));
    let state = toron.discovery();
    let reason = container(&state, "web")["reason"].as_str().unwrap();
    assert!(
        reason.contains("shadowed by that at") && reason.contains("config.yaml:"),
        "{reason}"
    );
    // Without the other it comes through.
    let discovery = format!("{{socket_path: {}{SELDOM}}}", socket.display());
    toron.reload(Engine::Epoll, &discovery, "");
    assert_eq!(toron.get("/api", "X-A: b\r\n"), (200, "a".to_owned()));
    assert_eq!(container(&toron.discovery(), "web")["reason"], json!(null));
}

#[test]
fn r6_a_reload_keeps_what_was_discovered_and_applies_what_it_inherits() {
    let (_dir, socket) = socket_dir();
    let a = Named::start("a");
    let _fake = FakeEngine::start(&socket, vec![one("web", &a)]);
    let toron = Toron::start(Engine::IoUring, &socket, SELDOM, "");
    let on = format!("{{socket_path: {}{SELDOM}}}", socket.display());
    let file = "routes: [{prefix: /file, status: 200, body: file}]";
    toron.reload(Engine::IoUring, &on, file);
    assert_eq!(toron.get("/api", ""), (200, "a".to_owned()));
    assert_eq!(toron.get("/file", ""), (200, "file".to_owned()));
    let inherits = format!("{file}\nproxy: {{transport: {{response_header_timeout: 7s}}}}");
    toron.reload(Engine::IoUring, &on, &inherits);
    let routes = toron.api("routes").to_string();
    assert!(
        routes.contains("\"7s\"") || routes.contains("7000") || routes.contains(":7"),
        "{routes}"
    );
    toron.reload(Engine::IoUring, "{enabled: false}", file);
    assert_eq!(toron.get("/api", "").0, 404);
    assert_eq!(
        toron.discovery(),
        json!({"enabled": false, "containers": []})
    );
    toron.reload(Engine::IoUring, &on, file);
    toron.await_body("/api", "", "a");
}

#[test]
fn d11_every_container_has_its_route_or_its_reason() {
    let (_dir, socket) = socket_dir();
    let a = Named::start("a");
    let with = |name: &str, labels: &[(&str, &str)]| Fake::docker(name, a.port(), labels);
    let host = ("toron.host", "app.example.com");
    let canary = [
        host,
        API,
        ("toron.header.x-version", "canary"),
        ("toron.method", "put,GET"),
    ];
    let fakes = vec![
        with("good", &canary),
        with("off", &[("toron.enable", "nope")]),
        with("greedy", &[]),
        with(
            "broken",
            &[
                API,
                ("toron.headers", "{\"X-Version\":"),
                ("toron.weight", "-1"),
            ],
        ),
        with("down", &[API]).with("State", json!("exited")),
        with("sick", &[API]).with("Status", json!("Up 1 minute (unhealthy)")),
    ];
    let _fake = FakeEngine::start(&socket, fakes);
    let toron = Toron::start(Engine::Epoll, &socket, SELDOM, "");
    let state = toron.discovery();
    assert_eq!(state["engine"], "docker");
    assert_eq!(state["engine_version"], "24.0.7");
    assert_eq!(state["socket"], json!(socket.display().to_string()));
    assert_eq!(state["ignored_constraints"], 1);
    assert_eq!(state["routed"], 2);
    let good = container(&state, "good");
    assert_eq!(good["route"]["host"], "app.example.com");
    assert_eq!(good["route"]["method"], "GET,PUT");
    assert_eq!(good["route"]["headers"], json!({"X-Version": "canary"}));
    assert_eq!(
        good["target"],
        json!(format!("http://127.0.0.1:{}", a.port()))
    );
    let broken = container(&state, "broken");
    assert_eq!(broken["notes"].as_array().unwrap().len(), 2, "{broken}");
    for (name, said) in [
        ("off", "toron.enable"),
        ("greedy", "all traffic"),
        ("down", "not running (exited)"),
        ("sick", "health check fails"),
    ] {
        let c = container(&state, name);
        assert!(c["reason"].as_str().unwrap().contains(said), "{c}");
        assert_eq!(c["route"], json!(null));
    }
}

/// Annotations look like labels and are none: neither in the list nor in an inspection.
#[test]
fn d10_annotations_are_not_read() {
    let (_dir, socket) = socket_dir();
    let a = Named::start("a");
    let annotations =
        json!({"toron.enable": "true", "toron.prefix": "/other", "toron.method": "POST"});
    let mut web = one("web", &a).with("Annotations", annotations.clone());
    // Without a mode of the network it is asked for by itself.
    web.entry["HostConfig"] = json!({"Annotations": annotations});
    web.inspected = json!({
        "HostConfig": {"NetworkMode": "host", "Annotations": annotations},
        "Config": {"Annotations": annotations},
    });
    let fake = FakeEngine::start(&socket, vec![web]);
    let toron = Toron::start(Engine::Epoll, &socket, SELDOM, "");
    assert_eq!(toron.get("/api", ""), (200, "a".to_owned()));
    assert_eq!(toron.get("/other", "").0, 404);
    assert!(fake.inspections() > 0);
    let route = container(&toron.discovery(), "web")["route"].clone();
    assert_eq!(
        (&route["prefix"], &route["method"]),
        (&json!("/api"), &json!(""))
    );
}

#[test]
fn a_list_of_thousands_is_taken() {
    let (_dir, socket) = socket_dir();
    let a = Named::start("a");
    let fakes = (0..3000).map(|n| {
        Fake::docker(
            &format!("c{n}"),
            a.port(),
            &[("toron.host", &format!("h{n}.example"))],
        )
    });
    let fake = FakeEngine::start(&socket, fakes.collect());
    let toron = Toron::start(Engine::IoUring, &socket, SELDOM, "");
    toron.await_discovery("all", |s| s["routed"] == 3000);
    assert_eq!(
        toron.get("/", "Host: h2999.example\r\n"),
        (200, "a".to_owned())
    );
    // A storm of events is one list, or a few.
    let lists = fake.lists_read();
    for _ in 0..1000 {
        fake.tell("container", "start");
    }
    await_that("one more list", || match fake.lists_read() - lists {
        0 => Err("none".to_owned()),
        _ => Ok(()),
    });
    fake.set(Vec::new());
    toron.await_status("/", "Host: h2999.example\r\n", 404);
    let more = fake.lists_read() - lists;
    assert!(more < 20, "{more} lists");
}

/// Replicas that have died together, before the engine tells of it: whoever is left answers, whichever
/// of them a request is sent to first.
#[test]
fn d12_r21_replicas_that_die_together_cost_no_request() {
    for engine in Engine::ALL {
        let (_dir, socket) = socket_dir();
        let left = Named::start("left");
        let dead = |n: usize| {
            // Nobody listens there any more.
            let port = support::listen().local_addr().unwrap().port();
            Fake::docker(&format!("dead-{n}"), port, &[API])
        };
        let mut all: Vec<Fake> = (0..3).map(dead).collect();
        all.push(one("left", &left));
        let _fake = FakeEngine::start(&socket, all);
        let toron = Toron::start(engine, &socket, SELDOM, "");
        for n in 0..20 {
            let answer = toron.get("/api", "");
            assert_eq!(answer, (200, "left".to_owned()), "request {n}");
        }
    }
}

/// Rounds of one container that comes and goes leave nothing behind.
#[test]
fn d12_churn_leaves_no_descriptors() {
    let (_dir, socket) = socket_dir();
    let a = Named::start("a");
    let fake = FakeEngine::start(&socket, Vec::new());
    let toron = Toron::start(Engine::Epoll, &socket, SELDOM, "");
    let rounds = if support::soak() { 200 } else { 10 };
    let mut before = None;
    for round in 0..rounds {
        let mut fresh = one("web", &a);
        fresh.id = format!("web{round}");
        fresh.entry["Id"] = json!(fresh.id);
        fake.set(vec![fresh]);
        toron.await_body("/api", "", "a");
        fake.set(Vec::new());
        toron.await_status("/api", "", 404);
        if round == 2 {
            before = Some(toron.proc().descriptors());
        }
    }
    let before = before.unwrap();
    await_that("descriptors", || match toron.proc().descriptors() {
        now if now <= before => Ok(()),
        now => Err(format!("{before} before, {now} after {rounds} rounds")),
    });
}

#[test]
fn check_says_which_socket_it_would_use() {
    let (_dir, socket) = socket_dir();
    let config = |path: &str| format!("discovery: {{socket_path: {path}, network: edge}}\n");
    let check = |path: &str| {
        let dir = support::TempDir::new("check");
        let file = dir.join("config.yaml");
        std::fs::write(&file, config(path)).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toron"));
        let out = command.arg("check").arg("-c").arg(file).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.success(), text(&out.stdout) + &text(&out.stderr))
    };
    let path = socket.display().to_string();
    let (good, said) = check(&path);
    assert!(
        good && said.contains(&format!("no socket now at {path}")),
        "{said}"
    );
    let _fake = FakeEngine::start(&socket, Vec::new());
    let (good, said) = check(&format!("unix://{path}"));
    assert!(
        good && said.contains(&path) && !said.contains("no socket"),
        "{said}"
    );
    assert!(
        said.contains("list every 10s") && said.contains("network edge"),
        "{said}"
    );
    let (good, said) = check("/run/containerd/containerd.sock");
    assert!(!good && said.contains("gRPC"), "{said}");
}
