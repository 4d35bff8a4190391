//! Plays many cases of the bank: grouped by the settings that they need, a few groups at a time.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::case::{Case, Setup};
use super::play::{run, Stage};
use super::setup::{Engine, Settings};
use super::toron::Toron;
use super::upstream::Upstream;

/// Lines of the bank.
pub const BANK: &str = include_str!("../cases/wire.jsonl");

/// Groups played at the same time. More than cores: most of a case is waiting.
const AT_ONCE: usize = 6;
/// Cases that one toron is used for at most, so that the large group is spread as well.
const PER_TORON: usize = 12;

/// Kinds about bodies, whose cases must come out alike in both modes of reading chunks: the handling
/// of a body takes other paths in each.
const IN_BOTH_MODES: [&str; 11] = [
    "chunk-size",
    "chunk-ext",
    "chunk-trailer",
    "trailers",
    "body-limit",
    "expect-100",
    "early-response",
    "half-close",
    "abort",
    "timeouts",
    "slow-client",
];

/// A case as it is to be run.
pub struct Job {
    pub id: String,
    pub kind: String,
    line: String,
    setup: Setup,
}

/// A case that did not pass.
pub struct Failure {
    pub id: String,
    pub report: String,
}

/// All cases of the bank, those about bodies once for each mode.
///
/// # Panics
/// When a line is not understood to the last key: nothing in the bank may go unchecked.
pub fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for (i, line) in BANK.lines().enumerate() {
        let case = Case::parse(line, "127.0.0.1:1", "127.0.0.1:2")
            .unwrap_or_else(|e| panic!("tests/cases/wire.jsonl:{}: {e}", i + 1));
        let both = IN_BOTH_MODES.contains(&case.kind.as_str());
        let modes: &[Option<&str>] = match case.setup.chunked_mode {
            None if both => &[Some("normalize"), Some("passthrough")],
            _ => &[None],
        };
        for mode in modes {
            let mut setup = case.setup.clone();
            setup.streams = case.answers_early();
            setup.chunked_mode = setup.chunked_mode.or(mode.map(str::to_owned));
            let id = mode.map_or(case.id.clone(), |m| format!("{} [{m}]", case.id));
            jobs.push(Job {
                id,
                kind: case.kind.clone(),
                line: line.to_owned(),
                setup,
            });
        }
    }
    jobs
}

impl Job {
    /// The settings that the case runs with, for an upstream at `upstream`.
    pub fn settings(&self, engine: Engine, upstream: &str) -> Settings {
        self.setup
            .settings(engine, upstream)
            .unwrap_or_else(|e| panic!("{}: {e}", self.id))
    }
}

/// Plays `jobs` on `engine`, starting proxies with `start`.
pub fn play(jobs: &[Job], engine: Engine, start: fn(&Settings) -> Toron) -> Vec<Failure> {
    let mut groups: BTreeMap<String, Vec<&Job>> = BTreeMap::new();
    for job in jobs {
        let settings = job.settings(engine, "U");
        // What a firewall has learned of the address would decide about the next case.
        let own = if settings.firewall.is_empty() {
            ""
        } else {
            &job.id
        };
        groups
            .entry(settings.config_yaml() + &settings.routes_yaml() + own)
            .or_default()
            .push(job);
    }
    let mut batches: Vec<&[&Job]> = groups.values().flat_map(|g| g.chunks(PER_TORON)).collect();
    batches.sort_by_key(|batch| batch.len());
    let queue = Mutex::new(batches);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| loop {
                let Some(batch) = queue.lock().expect("queue").pop() else {
                    return;
                };
                let failed = play_batch(batch, engine, start);
                failures.lock().expect("failures").extend(failed);
            });
        }
    });
    let mut failures = failures.into_inner().expect("failures");
    failures.sort_by(|a: &Failure, b| a.id.cmp(&b.id));
    failures
}

fn play_batch(batch: &[&Job], engine: Engine, start: fn(&Settings) -> Toron) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut place: Option<(Upstream, Toron)> = None;
    for (i, job) in batch.iter().enumerate() {
        let (upstream, toron) = place.get_or_insert_with(|| open(job, engine, start));
        let Err(report) = run(&job.line, &Stage { toron, upstream }) else {
            continue;
        };
        let log = toron.process().log_lines();
        let running = toron.process_mut().is_running();
        place = None;
        let alone = {
            let (upstream, toron) = open(job, engine, start);
            run(
                &job.line,
                &Stage {
                    toron: &toron,
                    upstream: &upstream,
                },
            )
        };
        let before: Vec<&str> = batch[..i].iter().map(|j| j.id.as_str()).collect();
        let when = match alone {
            Err(_) => "fails alone as well".to_owned(),
            Ok(()) => format!("passes alone; fails after {before:?}"),
        };
        let tail = log[log.len().saturating_sub(20)..].join("\n      ");
        let report = format!(
            "{} {report}    {when}; proxy {}\n    last lines of its log:\n      {tail}\n",
            engine.name(),
            if running { "still runs" } else { "HAS ENDED" },
        );
        failures.push(Failure {
            id: job.id.clone(),
            report,
        });
    }
    failures
}

fn open(job: &Job, engine: Engine, start: fn(&Settings) -> Toron) -> (Upstream, Toron) {
    let upstream = Upstream::start();
    let address = upstream.addr.to_string();
    let settings = job
        .setup
        .settings(engine, &address)
        .expect("settings of a case");
    let toron = start(&settings);
    (upstream, toron)
}
