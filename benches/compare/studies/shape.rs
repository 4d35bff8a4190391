//! Rows about what a process is at rest: memory, its start, its sleep.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use toron::bench::process::Usage;

use super::{origin, proxies, start_all, torons, EPOLL, URING};
use crate::load;
use crate::peers::{memory as bytes_of, Core, Peer};
use crate::table::{Column, Table};
use crate::Options;

const ANONYMOUS: &str = "RssAnon:";
const RESIDENT: &str = "VmRSS:";
const IDLE: usize = 4000;
const STALLED: usize = 200;

/// One round of [`memory`], for a process that has just started.
fn weigh(peer: &Peer, table: &mut Table) -> Result<(), String> {
    let whole = bytes_of(peer.pid(), RESIDENT) as f64 / 1048576.0;
    table.add(peer.name, "whole", whole);
    eprintln!("  {}", peer.name);
    // Whatever is made once is made now.
    drop(load::idle(peer.addr, 500)?);
    std::thread::sleep(Duration::from_millis(500));
    let before = bytes_of(peer.pid(), ANONYMOUS);
    let held = load::idle(peer.addr, IDLE)?;
    let with = bytes_of(peer.pid(), ANONYMOUS);
    drop(held);
    table.add(peer.name, "idle", grown(before, with) / IDLE as f64);
    table.add(peer.name, "active", stalled(peer)?);
    Ok(())
}

pub(super) fn memory(options: &Options) -> Result<Table, String> {
    let columns = [
        Column {
            key: "idle",
            title: "bytes per idle connection",
            digits: 0,
        },
        Column {
            key: "active",
            title: "bytes per stalled download",
            digits: 0,
        },
        Column {
            key: "whole",
            title: "idle process, MiB",
            digits: 1,
        },
    ];
    let title = format!(
        "Memory beside the kernel's: {IDLE} idle connections, {STALLED} downloads that nobody reads, \
         and the process before any connection"
    );
    let mut table = Table::new("memory", title, &columns);
    let origin = origin(Core::Any)?;
    for _ in 0..options.rounds {
        for kind in proxies() {
            let peers = start_all(&[kind], Core::Any, origin.addr)?;
            weigh(peers.first().ok_or("nobody started")?, &mut table)?;
        }
    }
    for name in [URING, EPOLL] {
        table.goal(
            &format!("{name}: bytes per idle connection"),
            (name, "idle"),
            &[],
            512.0,
        );
        table.goal(
            &format!("{name}: bytes per stalled download"),
            (name, "active"),
            &[],
            67584.0,
        );
        table.goal(
            &format!("{name}: MiB of an idle process"),
            (name, "whole"),
            &[],
            30.0,
        );
    }
    Ok(table)
}

fn grown(before: u64, after: u64) -> f64 {
    after.saturating_sub(before) as f64
}

/// Bytes that a download which nobody reads takes.
fn stalled(peer: &Peer) -> Result<f64, String> {
    let before = bytes_of(peer.pid(), ANONYMOUS);
    let ask = || {
        let mut stream = TcpStream::connect(peer.addr)?;
        stream.write_all(b"GET /bytes/67108864 HTTP/1.1\r\nHost: t\r\n\r\n")?;
        Ok(stream)
    };
    let all: Result<Vec<TcpStream>, std::io::Error> = (0..STALLED).map(|_| ask()).collect();
    let all = all.map_err(|error| error.to_string())?;
    // Until nothing changes any more.
    let mut last = 0;
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(100));
        let now = bytes_of(peer.pid(), ANONYMOUS);
        if now == last {
            break;
        }
        last = now;
    }
    drop(all);
    Ok(grown(before, last) / STALLED as f64)
}

pub(super) fn start(options: &Options) -> Result<Table, String> {
    let columns = [
        Column {
            key: "first",
            title: "start to first answer, ms",
            digits: 1,
        },
        Column {
            key: "wakes",
            title: "wake-ups in 5 s at rest",
            digits: 0,
        },
    ];
    let title = "Start and rest".to_owned();
    let mut table = Table::new("start", title, &columns);
    let origin = origin(Core::Any)?;
    for _ in 0..options.rounds {
        for (name, kind) in proxies() {
            let began = Instant::now();
            let peer = Peer::start(name, &kind, Core::Any, origin.addr)?;
            table.add(name, "first", began.elapsed().as_secs_f64() * 1e3);
            drop(peer);
        }
    }
    for (name, kind) in torons() {
        let peer = Peer::start(name, &kind, Core::Any, origin.addr)?;
        // The first answer's connections have gone, and with them the last deadline.
        std::thread::sleep(Duration::from_secs(35));
        let switches = || Usage::of(peer.pid()).map_or(0, |usage| usage.voluntary_switches);
        let before = switches();
        std::thread::sleep(Duration::from_secs(5));
        table.add(name, "wakes", (switches() - before) as f64);
    }
    for name in [URING, EPOLL] {
        table.goal(
            &format!("{name}: ms to the first answer"),
            (name, "first"),
            &[],
            50.0,
        );
        table.goal(
            &format!("{name}: wake-ups at rest"),
            (name, "wakes"),
            &[],
            0.0,
        );
    }
    Ok(table)
}
