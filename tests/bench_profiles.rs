//! Every profile of `toron bench` against toron, nginx and HAProxy, two seconds each (an attack is a
//! second without and a second beside it), in front of the test origin. Nothing here is a measure of
//! speed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::nginx;
use support::process::{OnDrop, Process};
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::{TempDir, PATIENCE};
use toron::origin::{Upstream, UpstreamArgs};
use toron_reactor::EngineKind;

/// Ordinary load, all at the same time; `MIX` stands for a file.
const LOADS: [&str; 8] = [
    "/bytes/1000 --rate 100 --duration 2s",
    "/bytes/1000 --rate 100 --arrivals poisson --duration 2s --connections 8",
    "/delay/5 --closed --connections 2 --duration 2s --pipeline 2",
    "/delay/1 --rate 20..100/2s",
    "/bytes/10 --rate 20..100/2s/4 --keep-alive 0.5",
    "/ --mix MIX --rate 100 --duration 2s",
    "/discard --upload 1MiB --rate 5 --duration 2s",
    "/bytes/1048576 --rate 5 --duration 2s",
];

/// Attacks, one after another: some take all the processor they get.
const ATTACKS: [&str; 6] = [
    "/bytes/10 --attack slowloris=20 --attack-interval 200ms",
    "/discard --attack rudy=20 --attack-interval 200ms",
    "/bytes/100000 --attack slow-read=20 --attack-interval 200ms",
    "/bytes/10 --attack header-flood=1",
    "/bytes/10 --attack churn=1",
    "/bytes/10 --attack abort=1",
];

const MIX: &str = "\
requests:
  - {name: read, weight: 3, path: /bytes/100, headers: {Accept: '*/*'}}
  - {name: write, path: /discard, body_size: 20KiB, chunk_size: 4KiB}
";

fn origin() -> Upstream {
    let args = UpstreamArgs {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        engine: EngineKind::Auto,
        reactors: 1,
    };
    Upstream::start(&args).unwrap()
}

/// One proxy at a time, so that the loads do not starve each other.
static ALONE: Mutex<()> = Mutex::new(());

fn start(proxy: SocketAddr, engine: Engine, profile: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command.args([
        "bench",
        "--json",
        "--timeout",
        "60s",
        "--engine",
        engine.name(),
    ]);
    command.args(format!("http://{proxy}{profile}").split_whitespace());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn finish(child: Child, what: &str) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{what}: {said}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = format!(
        "{what}: {} {} {}",
        value["requests"], value["status"], value["errors"]
    );
    let n = |key: &str| value["requests"][key].as_u64().unwrap();
    assert!(n("answered") > 0, "{told}");
    assert_eq!(
        n("started"),
        n("answered") + n("timed_out") + n("failed"),
        "{told}"
    );
    match value["attack"].is_null() {
        true => assert_eq!(
            value["status"]["200"], value["requests"]["started"],
            "{told}"
        ),
        false => {
            let sent = value["attack"]["attackers"]["bytes"]["sent"].as_u64();
            assert!(sent.unwrap() > 0, "{told}");
        }
    }
}

/// Runs all profiles against a proxy, on one engine.
fn run_all(proxy: SocketAddr, name: &str, engine: Engine) {
    let dir = TempDir::new("bench");
    let mix = dir.join("mix.yaml");
    std::fs::write(&mix, MIX).unwrap();
    let what = |profile: &str| format!("{name}, {}: {profile}", engine.name());
    let loads = LOADS.map(|profile| {
        let profile = profile.replace("MIX", &mix.display().to_string());
        (what(&profile), start(proxy, engine, &profile))
    });
    for (what, child) in loads {
        finish(child, &what);
    }
    for profile in ATTACKS {
        let child = start(proxy, engine, &format!("{profile} --rate 50 --duration 1s"));
        finish(child, &what(profile));
    }
}

fn settings(engine: Engine, origin: SocketAddr) -> Settings {
    Settings::new(engine, vec![Route::new("/", &origin)])
}

#[test]
fn against_toron() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let origin = origin();
    for engine in Engine::ALL {
        let toron = Toron::start(&settings(engine, origin.addresses()[0]));
        run_all(toron.addr, toron.name(), engine);
    }
    origin.stop(PATIENCE).unwrap();
}

#[test]
fn against_nginx() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let origin = origin();
    let nginx = nginx::stand_in(&settings(Engine::Epoll, origin.addresses()[0]));
    run_all(nginx.addr, "nginx", Engine::Epoll);
    drop(nginx);
    origin.stop(PATIENCE).unwrap();
}

#[test]
fn against_haproxy() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let origin = origin();
    let (process, addr, dir) = haproxy(origin.addresses()[0]);
    run_all(addr, "HAProxy", Engine::IoUring);
    drop(process);
    drop(dir);
    origin.stop(PATIENCE).unwrap();
}

/// HAProxy in front of an origin. It cannot report the port it got for 0, so a free one is tried.
fn haproxy(origin: SocketAddr) -> (Process, SocketAddr, TempDir) {
    for _ in 0..5 {
        let dir = TempDir::new("haproxy");
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = probe.local_addr().unwrap();
        drop(probe);
        let config = dir.join("haproxy.cfg");
        let text = format!(
            "global\n maxconn 2000\ndefaults\n mode http\n timeout connect 10s\n timeout client 60s\n \
             timeout server 60s\nlisten l\n bind {addr}\n server o {origin}\n"
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-f").arg(&config).arg("-db");
        let mut process = Process::spawn(command, "haproxy", OnDrop::Terminate);
        let deadline = Instant::now() + PATIENCE;
        while process.is_running() && Instant::now() < deadline {
            if TcpStream::connect_timeout(&addr, Duration::from_secs(1)).is_ok() {
                return (process, addr, dir);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    panic!("HAProxy does not start (is haproxy installed?)");
}
