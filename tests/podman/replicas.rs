//! D12: replicas that come and go, by hundreds, and under load.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::engine::{ran_inside, Podman};
use crate::load::{self, Load};
use crate::on_each_engine;
use crate::rig::{await_that, container, Toron};
use crate::support::setup::Engine;
use crate::support::soak;

/// Probed all the time: probes must not outlive what they probe.
const LABELS: &[&str] = &[
    "toron.prefix=/api",
    "toron.response_header_timeout=5s",
    "toron.health_check=/",
    "toron.health_check_interval=200ms",
];

/// Descriptors that are sockets.
fn sockets(toron: &Toron) -> usize {
    let kinds = toron.proc().descriptor_kinds();
    kinds.get("socket").copied().unwrap_or(0)
}

/// Waits until it has as few sockets as it once had.
fn await_sockets(toron: &Toron, before: usize) {
    await_that("its sockets are gone", || match sockets(toron) {
        now if now <= before => Ok(()),
        now => Err(format!("{before} before, {now} now")),
    });
}

/// A paused replica costs the requests that are on their way to it, and no others.
fn pause(podman: &Podman, toron: &Toron) {
    let load = Load::start(toron.addr, "/api");
    toron.await_body("/api", "", "two");
    podman.run(&["pause", "two"]);
    let state = toron.await_discovery("two is out", |s| {
        container(s, "two")["route"] == Value::Null
    });
    let reason = container(&state, "two")["reason"].as_str().unwrap();
    assert!(reason.contains("not running (paused)"), "{reason}");
    for _ in 0..50 {
        assert_eq!(toron.get("/api", ""), (200, "one".to_owned()));
    }
    if soak() {
        // Past the header timeout of those that wait.
        std::thread::sleep(Duration::from_secs(6));
    }
    podman.run(&["unpause", "two"]);
    toron.await_body("/api", "", "two");
    let outcome = load.stop("paused");
    let late = outcome.failed.get("504").copied().unwrap_or(0);
    let others = outcome.failed.len() - usize::from(late > 0);
    assert!(others == 0 && late <= load::CLIENTS as usize, "{outcome:?}");
}

/// The last replica goes, and with it its route, its probes, its connections and their descriptors.
fn last_goes(podman: &Podman, toron: &Toron, before: usize) {
    podman.run(&["rm", "-f", "-t", "2", "two"]);
    toron.await_body("/api", "", "one");
    podman.run(&["kill", "one"]);
    let began = Instant::now();
    toron.await_status("/api", "", 404);
    let gone = began.elapsed();
    await_that("no upstream connection is left", || {
        match toron.api("status")["upstream_connections"].as_u64() {
            Some(0) => Ok(()),
            left => Err(format!("{left:?}")),
        }
    });
    await_sockets(toron, before);
    let all = began.elapsed();
    println!("the last one: 404 after {gone:?}, nothing left of it after {all:?}");
    assert!(!soak() || all < Duration::from_secs(1), "{all:?}");
    // A probe would come by five times a second.
    podman.run(&["rm", "-f", "-a", "-t", "0"]);
    let probed = TcpListener::bind("127.0.0.12:8080").expect("the address of one");
    probed.set_nonblocking(true).expect("not to wait");
    std::thread::sleep(Duration::from_secs(1));
    assert!(probed.accept().is_err(), "it is still probed");
}

/// One round: one is added, stopped, killed, started, restarted; two change places; one is removed.
fn round(podman: &Podman, toron: &Toron) {
    let answers = |name: &str| toron.await_body("/api", "", name);
    podman.replica("three", "127.0.0.13", LABELS);
    answers("three");
    podman.run(&["stop", "-t", "10", "one"]);
    podman.run(&["kill", "two"]);
    podman.run(&["start", "one"]);
    answers("one");
    podman.run(&["restart", "-t", "10", "three"]);
    answers("three");
    // They come back, each at the address that the other had.
    podman.run(&["rm", "-f", "-t", "10", "one", "two"]);
    podman.replica("two", "127.0.0.11", LABELS);
    podman.replica("one", "127.0.0.12", LABELS);
    answers("two");
    answers("one");
    podman.run(&["rm", "-f", "-t", "10", "three"]);
}

/// Replicas are stopped, killed, restarted and added while requests come: none fails, as long as one
/// replica is well.
fn under_load(engine: Engine) {
    let (rounds, least) = if soak() { (10, 60) } else { (1, 10) };
    let podman = Podman::start(&["replica:latest"]);
    let toron = Toron::start(engine, &podman.socket(), "", "");
    toron.await_status("/api", "", 404);
    let before = sockets(&toron);
    for (name, address) in [("one", "127.0.0.11"), ("two", "127.0.0.12")] {
        podman.replica(name, address, LABELS);
    }
    toron.await_discovery("both", |s| s["routed"] == 2);
    toron.await_body("/api", "", "one");
    toron.await_body("/api", "", "two");
    let load = Load::start(toron.addr, "/api");
    for n in 0..rounds {
        round(&podman, &toron);
        // They are where they were, for the next.
        if n + 1 < rounds {
            podman.replica("three", "127.0.0.13", LABELS);
            toron.await_body("/api", "", "three");
            podman.run(&["rm", "-f", "-t", "10", "one", "two"]);
            podman.replica("one", "127.0.0.11", LABELS);
            podman.replica("two", "127.0.0.12", LABELS);
            toron.await_body("/api", "", "one");
            toron.await_body("/api", "", "two");
            podman.run(&["rm", "-f", "-t", "10", "three"]);
        }
    }
    while load.age() < Duration::from_secs(least) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let outcome = load.stop(engine.name());
    assert!(outcome.good > 1000, "{outcome:?}");
    let log = || toron.process.log_lines().join("\n");
    assert!(outcome.failed.is_empty(), "{outcome:?}\n{}", log());
    pause(&podman, &toron);
    last_goes(&podman, &toron, before);
}

#[test]
fn d12_replicas_come_and_go_under_load_on_epoll() {
    if !ran_inside("replicas::d12_replicas_come_and_go_under_load_on_epoll") {
        under_load(Engine::Epoll);
    }
}

#[test]
fn d12_replicas_come_and_go_under_load_on_io_uring() {
    if !ran_inside("replicas::d12_replicas_come_and_go_under_load_on_io_uring") {
        under_load(Engine::IoUring);
    }
}

/// A container is made and destroyed again and again: descriptors and memory stay as they were.
#[test]
fn d12_containers_made_and_destroyed_leave_nothing() {
    if ran_inside("replicas::d12_containers_made_and_destroyed_leave_nothing") {
        return;
    }
    let rounds = if soak() { 200 } else { 10 };
    let podman = Podman::start(&["replica:latest"]);
    let torons = on_each_engine(&podman);
    let mut early = Vec::new();
    for n in 1..=rounds {
        let name = format!("web-{n}");
        podman.replica(&name, "127.0.0.11", LABELS);
        torons.iter().for_each(|t| t.await_body("/api", "", &name));
        podman.run(&["rm", "-f", "-t", "0", &name]);
        torons.iter().for_each(|t| t.await_status("/api", "", 404));
        // Pools and buffers have their size after some.
        if n == rounds / 2 {
            let settled = |t: &Toron| (t.proc().descriptors(), t.proc().resident_kib());
            early = torons.iter().map(settled).collect();
        }
    }
    for (toron, (descriptors, memory)) in torons.iter().zip(early) {
        await_that("descriptors", || match toron.proc().descriptors() {
            now if now <= descriptors => Ok(()),
            now => Err(format!(
                "{descriptors} half way, {now} after {rounds} rounds"
            )),
        });
        let now = toron.proc().resident_kib();
        println!("{rounds} rounds: {descriptors} descriptors, {memory} KiB half way, {now} KiB at the end");
        assert!(now < memory + 1024, "{memory} KiB became {now} KiB");
    }
}
