//! `toron bench` holds its memory, however long a run is: a short form here, ten minutes in
//! `make soak`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{soak, PATIENCE};
use toron::origin::{Upstream, UpstreamArgs};
use toron_reactor::EngineKind;

/// What may be added between a third of a run and its end: the summary of a slice is 80 bytes, there
/// are at most 240 of them, and the allocator keeps a few histograms of 200 KiB.
const GROWTH_KIB: u64 = 8 * 1024;

/// Resident memory; a process that has just ended has none left to be read.
fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn memory_is_constant() {
    let (seconds, rate) = if soak() { (600, 5000) } else { (3, 500) };
    let upstream = Upstream::start(&UpstreamArgs {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        engine: EngineKind::Auto,
        reactors: 1,
    })
    .unwrap();
    for engine in ["epoll", "io_uring"] {
        let url = format!("http://{}/bytes/1024", upstream.addresses()[0]);
        let run =
            format!("bench {url} --json --rate {rate} --duration {seconds}s --engine {engine}");
        let mut child = Command::new(env!("CARGO_BIN_EXE_toron"))
            .args(run.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let (mut early, mut late) = (0, 0);
        while child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < Duration::from_secs(seconds) + PATIENCE);
            if let Some(now) = resident_kib(child.id()) {
                if begin.elapsed() < Duration::from_secs(seconds) / 3 {
                    early = now.max(early);
                }
                late = now;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let output = child.wait_with_output().unwrap();
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        println!(
            "{engine}: {early} KiB after a third of {seconds} s at {rate}/s, {late} KiB at the end; p99 {} µs, {}",
            value["latency_us"]["p99"], value["generator"]["verdict"]
        );
        assert!(
            early > 0 && late <= early + GROWTH_KIB,
            "{engine}: {early} KiB, then {late} KiB"
        );
        assert!(value["requests"]["answered"].as_u64() >= Some(1));
    }
    upstream.stop(PATIENCE).unwrap();
}
