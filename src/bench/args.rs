//! What `toron bench` can be asked, as plain data.

use std::path::PathBuf;
use std::time::Duration;

use toron_reactor::sys::process;
use toron_reactor::EngineKind;

use super::attack::AttackSpec;
use super::mix::Template;
use super::profile::{Arrivals, RateSpec};
use super::url::Url;

/// For `toron bench --help`.
pub const HELP: &str = "\
toron bench, a load generator that counts what users would feel

Usage:
  toron bench [OPTIONS] URL
  toron bench [OPTIONS] --compare A=URL --compare B=URL …

Load:
  --rate N            open loop: N requests per second, whatever the answers do (default: 1000);
                      A..B over --duration, A..B/30s a ramp, A..B/30s/10 a staircase of 10 steps
  --arrivals NAME     constant (default) or poisson
  --closed            closed loop instead: each connection asks again when it has been answered
  --connections N     (default 50)
  --duration TIME     measured time (default 10s)
  --warmup TIME       load before it, not counted (default: a tenth of it, at most 1s)
  --timeout TIME      a request is given up after this, and is a sample of that length (default 5s)
  --pipeline N        requests under way on a connection (default 1)
  --keep-alive SHARE  share of requests that keep their connection (default 1)
  --threads N         (default: half the processors)
  --engine NAME       auto, io_uring or epoll
  --seed N            what chance follows from (default 1)

Request:
  --method NAME       (default GET, POST with a body)
  --header 'N: V'     may be repeated
  --body TEXT|@FILE   content
  --upload SIZE       content of that size (100MiB), made while it is sent
  --chunked[=SIZE]    send the content in chunks (default 16KiB)
  --mix FILE          several kinds of requests, from a YAML file (docs/bench.md)

Comparison and attacks:
  --compare NAME=URL  measure the targets in turn, round by round, and give ratios to the first
  --rounds N          (default 10; --duration is the time of all rounds of one target)
  --pid [NAME=]PID    the target's process: CPU per answer, context switches (with its children)
  --attack NAME[=N]   measure without, then beside N hostile connections: slowloris, rudy,
                      slow-read, header-flood, churn, abort
  --attack-interval TIME  between two steps of a slow attack (default 1s)

Output:
  --json [FILE]       everything, to standard output without FILE
  --csv FILE          slices of time
  --hgrm FILE         percentiles for HdrHistogram's plotter
  --hlog FILE         interval log of histograms
  --report FILE       one HTML page with plots
  --svg DIRECTORY     the plots alone
  --quiet             no progress line

Times are 250ms, 5s, 1m30s. Exit status: 0 the run was measured (whatever the answers), 1 it could
not be, 2 the command line makes no sense.
";

/// Where output goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sink {
    /// Standard output.
    Stdout,
    /// A file, replaced.
    File(PathBuf),
}

/// What `toron bench` is to do.
#[derive(Clone, PartialEq, Debug)]
pub struct BenchArgs {
    /// The targets with their names: one, or several to be compared.
    pub targets: Vec<Target>,
    /// Rounds of a comparison.
    pub rounds: u32,
    /// Hostile connections beside the load.
    pub attack: Option<AttackSpec>,
    /// Time between two steps of a slow attack.
    pub attack_interval: Duration,
    /// The rate; `None`: closed loop.
    pub rate: Option<RateSpec>,
    /// How starts are spread.
    pub arrivals: Arrivals,
    /// Connections.
    pub connections: usize,
    /// Measured time, unless the rate names its own.
    pub duration: Duration,
    /// Load before it.
    pub warmup: Option<Duration>,
    /// When a request is given up.
    pub timeout: Duration,
    /// Requests under way on a connection.
    pub pipeline: usize,
    /// Share of requests that keep their connection.
    pub keep_alive: f64,
    /// Threads; `None`: half the processors.
    pub threads: Option<usize>,
    /// Which engine to run on.
    pub engine: EngineKind,
    /// What chance follows from.
    pub seed: u64,
    /// What is asked.
    pub requests: Vec<Template>,
    /// Where the JSON goes.
    pub json: Option<Sink>,
    /// Files to be written.
    pub files: Files,
    /// No progress line.
    pub quiet: bool,
}

/// What is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its name in the output.
    pub name: String,
    /// Where it is.
    pub url: Url,
    /// Its processes.
    pub pids: Vec<u32>,
}

/// Files to be written, replaced if they are there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// Slices of time.
    pub csv: Option<PathBuf>,
    /// Percentiles.
    pub hgrm: Option<PathBuf>,
    /// Interval log.
    pub hlog: Option<PathBuf>,
    /// The page.
    pub report: Option<PathBuf>,
    /// Directory of the plots.
    pub svg: Option<PathBuf>,
}

impl BenchArgs {
    /// The measured time.
    #[must_use]
    pub fn measured(&self) -> Duration {
        self.rate
            .and_then(|rate| rate.length)
            .unwrap_or(self.duration)
    }

    /// The load before it.
    #[must_use]
    pub fn warmup(&self) -> Duration {
        let usual = (self.measured() / 10).min(Duration::from_secs(1));
        self.warmup.unwrap_or(usual)
    }

    /// Threads: no more than connections.
    #[must_use]
    pub fn threads(&self) -> usize {
        let usual = (process::cores() / 2).max(1);
        self.threads.unwrap_or(usual).min(self.connections).max(1)
    }
}
