//! The demonstrations in configs/tune, in a short form: what the kernel and toron count has the right
//! sign. That the differences are significant is shown by their long form, in docs/tune.md, and by
//! this one with TORON_SOAK=1.
//!
//! Not in tests/tune, whose tests compare values of the whole machine that one of these changes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod support;
#[path = "tune/tree.rs"]
#[allow(dead_code)]
mod tree;

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use support::process::{OnDrop, Process};
use support::setup::Engine;
use support::{soak, TempDir, PATIENCE};
use tree::{said, Audit};

/// The quota is of the whole machine: one test at a time changes it.
static QUOTA_IN_USE: Mutex<()> = Mutex::new(());
const QUOTA: &str = "/proc/sys/fs/pipe-user-pages-soft";

/// Runs one; what it prints, and what it has measured of a setting.
fn run(script: &str, engine: Engine, setting: &str, rate: &str) -> (String, Value) {
    let dir = TempDir::new("demonstration");
    let json = dir.join("out.json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("configs/tune")
        .join(script);
    let mut command = Command::new("bash");
    command.arg(path).arg("--json").arg(&json);
    if !soak() {
        command.args(["--rounds", "1", "--seconds", "0.5", "--timeout", "1s"]);
        command.args(["--rate", rate]);
    }
    command.env("TORON", env!("CARGO_BIN_EXE_toron"));
    command.env("ENGINE", engine.name());
    let said = said(&mut command);
    assert_eq!(said.code, Some(0), "{said:?}");
    println!("{}", said.out);
    for line in said.out.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let audit = Audit::parse(&std::fs::read_to_string(json).unwrap());
    let measured = audit.get(setting)["measured"].clone();
    let judgement = &measured["judgement"];
    let wanted = if soak() { "helps" } else { "too_few_rounds" };
    assert_eq!(judgement, wanted, "{measured}");
    (said.out, measured)
}

fn counted(measured: &Value, which: &str, what: &str) -> u64 {
    measured["counted"][which][what].as_u64().expect("a count")
}

fn the_accept_queue_overflows_only_where_it_is_short(engine: Engine) {
    let (_, measured) = run("accept-queue.sh", engine, "net.core.somaxconn", "1000");
    let overflows = |which| counted(&measured, which, "TcpExtListenOverflows");
    let [old, new] = ["old", "new"].map(overflows);
    assert!(old > 0 && new == 0, "{measured}");
}

fn local_ports_run_out_only_where_they_are_few(engine: Engine) {
    let (_, measured) = run(
        "local-ports.sh",
        engine,
        "net.ipv4.ip_local_port_range",
        "300",
    );
    let [old, new] = ["old", "new"].map(|which| counted(&measured, which, "bad"));
    assert!(
        old > new && counted(&measured, "old", "due") > old,
        "{measured}"
    );
    assert_eq!(new, 0, "{measured}");
}

/// Pipes that toron has kept: of full size, so none under the quota that is used up. The quota is put
/// back.
fn pipes_are_too_small_only_under_the_quota(engine: Engine) {
    let _alone = QUOTA_IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = std::fs::read_to_string(QUOTA).unwrap();
    let (out, _) = run("pipe-quota.sh", engine, "fs.pipe-user-pages-soft", "10");
    assert_eq!(std::fs::read_to_string(QUOTA).unwrap(), before);
    let (_, kept) = out.split_once("pipes kept, by quota:\n").unwrap();
    let quota = format!("{}:", before.trim());
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for line in kept.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let pipes: u64 = words[2].parse().unwrap();
        let of = if words[1] == quota {
            &mut old
        } else {
            &mut new
        };
        of.push(pipes);
    }
    assert!(
        !old.is_empty() && old.iter().all(|pipes| *pipes == 0),
        "{kept}"
    );
    assert!(
        !new.is_empty() && new.iter().all(|pipes| *pipes > 0),
        "{kept}"
    );
}

on_both_engines! {
    the_accept_queue_overflows_only_where_it_is_short:
        the_accept_queue_overflows_on_epoll, the_accept_queue_overflows_on_io_uring;
    local_ports_run_out_only_where_they_are_few:
        local_ports_run_out_on_epoll, local_ports_run_out_on_io_uring;
    pipes_are_too_small_only_under_the_quota:
        pipes_are_too_small_on_epoll, pipes_are_too_small_on_io_uring;
}

/// Ended from outside, a demonstration leaves nothing: no process, no folder, no changed setting.
#[test]
fn an_ended_demonstration_leaves_nothing() {
    let _alone = QUOTA_IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = TempDir::new("ended");
    let before = std::fs::read_to_string(QUOTA).unwrap();
    let mut command = Command::new("bash");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/tune/pipe-quota.sh");
    command.arg(path).args(["--rounds", "99"]);
    command.env("TORON", env!("CARGO_BIN_EXE_toron"));
    command.env("TMPDIR", dir.path());
    let mut process = Process::spawn(command, "pipe-quota.sh", OnDrop::Terminate);
    let until = Instant::now() + PATIENCE;
    while std::fs::read_to_string(QUOTA).unwrap() == before {
        assert!(Instant::now() < until, "{:?}", process.log_lines());
        std::thread::sleep(Duration::from_millis(2));
    }
    process.signal(rustix::process::Signal::TERM);
    let status = process.wait(PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(143), "{:?}", process.log_lines());
    assert_eq!(std::fs::read_to_string(QUOTA).unwrap(), before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
