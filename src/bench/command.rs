//! `toron bench` from its arguments to its exit status.

use std::io::{self, IsTerminal, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toron_reactor::sys::process;
use toron_reactor::Chosen;

use super::measurement::{Measurement, Observer, Point};
use super::options::{BenchArgs, Sink};
use super::plan::{slice_for, Load, Plan};
use super::record::Record;
use super::run::{measure, Interrupt};
use super::text::{grouped, short_time};
use super::url::Url;
use super::verdict::Verdict;
use super::{json, text};

/// Runs it and writes the results. Exit status 0: it was measured.
#[must_use]
pub fn run(args: &BenchArgs) -> ExitCode {
    match bench(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("toron bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The plan for one target. Resolves its name. The error is for people.
fn plan(args: &BenchArgs, url: &Url) -> Result<Plan, String> {
    let load = match args.rate {
        Some(rate) => Load::Open {
            profile: rate.over(args.duration),
            arrivals: args.arrivals,
        },
        None => Load::Closed {
            duration: args.duration,
        },
    };
    Ok(Plan {
        addr: url.resolve()?,
        requests: args.requests.iter().map(|r| r.prepare(url)).collect(),
        slice: slice_for(load.duration()),
        load,
        connections: args.connections,
        threads: args.threads(),
        pipeline: args.pipeline,
        keep_alive: args.keep_alive,
        warmup: args.warmup(),
        timeout: args.timeout,
        seed: args.seed,
    })
}

/// Connects once, so that a target that is not there is told as such.
fn probe(url: &Url, plan: &Plan) -> Result<(), String> {
    let patience = plan.timeout.max(Duration::from_millis(1));
    TcpStream::connect_timeout(&plan.addr, patience)
        .map(drop)
        .map_err(|error| format!("cannot connect to {url} ({}): {error}", plan.addr))
}

/// The engine, and its name.
fn engine(args: &BenchArgs) -> Result<(Chosen, &'static str), String> {
    let (chosen, _) = args.engine.choose().map_err(|error| error.to_string())?;
    let name = match chosen {
        Chosen::IoUring => "io_uring",
        Chosen::Epoll => "epoll",
    };
    Ok((chosen, name))
}

fn bench(args: &BenchArgs) -> Result<(), String> {
    let interrupt = Interrupt::watch().map_err(|error| error.to_string())?;
    if let Err(error) = process::raise_descriptor_limit() {
        log::warn!("cannot raise the limit of descriptors: {error}");
    }
    let plan = Arc::new(plan(args, &args.url)?);
    let (chosen, engine) = engine(args)?;
    probe(&args.url, &plan)?;
    let url = args.url.to_string();
    let speaks = args.json != Some(Sink::Stdout);
    if speaks {
        print(&text::introduction(&url, engine, &plan))?;
    }
    let mut progress = Progress::new(args, &plan);
    let measured = measure(&plan, chosen, &interrupt, &mut progress);
    progress.end();
    let measured = measured.map_err(|error| error.to_string())?;
    let verdict = Verdict::of(&plan, &measured);
    if speaks {
        print(&text::result(&plan, &measured, &verdict))?;
    }
    if let Some(sink) = &args.json {
        let value = json::measurement(&url, engine, &plan, &measured, &verdict);
        write_json(sink, &value)?;
    }
    was_measured(&measured)
}

/// An error if there is not one sample, with what happened instead.
fn was_measured(measured: &Measurement) -> Result<(), String> {
    if measured.has_samples() {
        return Ok(());
    }
    let counts = &measured.total.counts;
    let what: Vec<String> = counts
        .failures()
        .map(|(kind, n)| format!("{} {}", grouped(n), kind.name()))
        .collect();
    Err(match (measured.interrupted, what.is_empty()) {
        (_, false) => format!(
            "nothing was measured: no response came ({})",
            what.join(", ")
        ),
        (true, true) => "nothing was measured: interrupted before the warm-up ended".to_owned(),
        (false, true) => "nothing was measured: no request was due".to_owned(),
    })
}

/// Writes to standard output. A reader that has gone is no failure of the measurement.
fn print(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn write_json(sink: &Sink, value: &Value) -> Result<(), String> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    text.push('\n');
    match sink {
        Sink::Stdout => print(&text),
        Sink::File(path) => std::fs::write(path, text)
            .map_err(|error| format!("cannot write {}: {error}", path.display())),
    }
}

/// A line on a terminal that says how far the run is; nothing elsewhere.
#[derive(Debug)]
struct Progress {
    shows: bool,
    duration: Duration,
    told: Duration,
    answered: u64,
    lost: u64,
    p99: u64,
}

/// Time between two updates.
const PROGRESS: Duration = Duration::from_millis(500);

impl Progress {
    fn new(args: &BenchArgs, plan: &Plan) -> Progress {
        Progress {
            shows: !args.quiet && io::stderr().is_terminal(),
            duration: plan.load.duration(),
            told: Duration::ZERO,
            answered: 0,
            lost: 0,
            p99: 0,
        }
    }

    /// Clears the line.
    fn end(&self) {
        if self.shows {
            eprint!("\r\x1b[K");
        }
    }
}

impl Observer for Progress {
    fn slice(&mut self, point: &Point, _record: &Record) {
        self.answered += point.answered;
        self.lost += point.lost;
        self.p99 = self.p99.max(point.p99);
        let since = point.at.saturating_sub(self.told);
        if self.shows && since >= PROGRESS {
            let rate = self.answered as f64 / since.as_secs_f64();
            eprint!(
                "\r\x1b[K{:>6.1} of {:.1} s  {rate:>9.0}/s  p99 {:>8}  {} lost",
                point.at.as_secs_f64(),
                self.duration.as_secs_f64(),
                short_time(self.p99),
                grouped(self.lost)
            );
            (self.told, self.answered, self.p99) = (point.at, 0, 0);
        }
    }
}
