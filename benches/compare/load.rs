//! Loads: wrk for closed loops, `toron bench` for open ones, and this program itself for bodies.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use toron::bench::process::Usage;

use crate::peers::{Core, Peer};

/// What a load did to a proxy.
pub struct Run {
    /// Processor time of the proxy for one request, microseconds.
    pub cpu: f64,
    /// Of that in user mode.
    pub user: f64,
    /// Requests answered in a second.
    pub rate: f64,
    /// 99th percentile, microseconds.
    pub p99: f64,
    /// 99.9th percentile, microseconds.
    pub p999: f64,
    /// The generator kept its schedule.
    pub honest: bool,
}

/// Runs a command to its end.
fn done(mut command: Command) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if out.status.success() {
        return Ok(out);
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(format!("{name} failed ({}): {}", out.status, said.trim()))
}

fn used<T>(peer: &Peer, work: impl FnOnce() -> Result<T, String>) -> Result<(T, Usage), String> {
    let gone = || format!("{} has ended", peer.name);
    let before = Usage::of(peer.pid()).ok_or_else(gone)?;
    let result = work()?;
    let after = Usage::of(peer.pid()).ok_or_else(gone)?;
    Ok((result, after.since(&before)))
}

/// Answers of 1 KiB over `connections` connections, as fast as they come.
pub fn closed(
    peer: &Peer,
    core: Core,
    connections: usize,
    length: Duration,
    header: Option<&str>,
) -> Result<Run, String> {
    let threads = if core == Core::Any && connections > 1 {
        2
    } else {
        1
    };
    let mut command = core.command("wrk");
    command.arg(format!("-t{threads}"));
    command.arg(format!("-c{connections}"));
    command.arg(format!("-d{}s", length.as_secs()));
    command.args(["--timeout", "10s", "--latency"]);
    command.args(header.iter().flat_map(|line| ["-H", *line]));
    command.arg(peer.url("/bytes/1024"));
    let (out, usage) = used(peer, || done(command))?;
    let text = String::from_utf8_lossy(&out.stdout);
    if let Some(line) = text
        .lines()
        .find(|l| l.contains("errors") || l.contains("Non-2xx"))
    {
        return Err(format!("{}: wrk: {}", peer.name, line.trim()));
    }
    let figure = |key: &str| {
        let line = text
            .lines()
            .map(str::trim)
            .find_map(|l| l.strip_prefix(key))?;
        micros(line.trim())
    };
    let requests = text.lines().find(|l| l.contains(" requests in "));
    let requests = requests.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    let requests = requests.ok_or_else(|| format!("wrk gave no figures:\n{text}"))?;
    Ok(Run {
        cpu: usage.total.as_secs_f64() * 1e6 / requests,
        user: usage.user.as_secs_f64() * 1e6 / requests,
        rate: requests / length.as_secs_f64(),
        p99: figure("99%").unwrap_or(f64::NAN),
        p999: f64::NAN,
        honest: true,
    })
}

/// A time as wrk writes it, in microseconds.
fn micros(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let (unit, factor) = units.iter().find(|(unit, _)| text.ends_with(unit))?;
    let n: f64 = text.strip_suffix(unit)?.parse().ok()?;
    Some(n * factor)
}

/// Answers of 1 KiB at a rate, latency counted from when each request was to start.
pub fn open(peer: &Peer, core: Core, rate: u64, length: Duration) -> Result<Run, String> {
    let mut command = core.command(&peer.toron);
    command.args(["bench", &peer.url("/bytes/1024"), "--connections", "64"]);
    command.args(["--threads", "1", "--warmup", "1s", "--json", "--quiet"]);
    command.args(["--rate", &rate.to_string()]);
    command.args(["--duration", &format!("{}s", length.as_secs())]);
    let (out, usage) = used(peer, || done(command))?;
    let said: Value = serde_json::from_slice(&out.stdout).map_err(|error| error.to_string())?;
    let figure = |path: &str| said.pointer(path).and_then(Value::as_f64);
    let answered = figure("/requests/answered").filter(|n| *n > 0.0);
    let answered = answered.ok_or_else(|| format!("{}: no answers: {said}", peer.name))?;
    // The second of warm-up costs as much as the others, but its answers are not counted.
    let all = answered * (length.as_secs_f64() + 1.0) / length.as_secs_f64();
    Ok(Run {
        cpu: usage.total.as_secs_f64() * 1e6 / all,
        user: usage.user.as_secs_f64() * 1e6 / all,
        rate: figure("/requests_per_s").unwrap_or(f64::NAN),
        p99: figure("/latency_us/p99").unwrap_or(f64::NAN),
        p999: figure("/latency_us/p999").unwrap_or(f64::NAN),
        honest: said.pointer("/generator/verdict").and_then(Value::as_str) == Some("ok"),
    })
}

/// How bodies go.
#[derive(Clone, Copy)]
pub enum Transfer {
    /// To the server, with a length.
    Up,
    /// To the server, in chunks of 16 KiB.
    Chunked,
    /// From the server.
    Down,
}

impl Transfer {
    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Transfer::Up => "up",
            Transfer::Chunked => "chunked",
            Transfer::Down => "down",
        }
    }
}

/// Seconds of processor time that `parallel` transfers of `bytes` each cost the proxy.
pub fn transfer(
    peer: &Peer,
    core: Core,
    how: Transfer,
    bytes: u64,
    parallel: usize,
) -> Result<f64, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = core.command(&own);
    command.args(["transfer", how.as_str(), &peer.addr.to_string()]);
    command.args([bytes.to_string(), parallel.to_string()]);
    let ((), usage) = used(peer, || done(command).map(drop))?;
    Ok(usage.total.as_secs_f64())
}

/// Connections on which one request each was answered, and that wait.
pub fn idle(addr: SocketAddr, count: usize) -> Result<Vec<TcpStream>, String> {
    let one = |n| {
        let mut stream = crate::client::connect(addr)?;
        let answered = crate::client::get(&mut stream, "/bytes/1");
        answered.map_err(|error| io::Error::other(format!("number {n}: {error}")))?;
        Ok(stream)
    };
    let all: io::Result<Vec<_>> = (0..count).map(one).collect();
    all.map_err(|error| format!("{count} idle connections: {error}"))
}
