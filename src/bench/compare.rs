//! Several targets in turn, and how sure their differences are.

use std::time::Duration;

use serde_json::{json, Value};

use super::bootstrap::{ratio, Ratio, DRAWS};
use super::measurement::{Measurement, Observer, Point};
use super::process::Usage;
use super::record::Record;

/// A target's figures of one round.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Round {
    /// Answers per second.
    pub rate: f64,
    /// Mean latency, nanoseconds.
    pub mean: f64,
    /// Median latency, nanoseconds.
    pub p50: f64,
    /// 99th percentile, nanoseconds.
    pub p99: f64,
    /// Processor time of the target's process per answer, nanoseconds.
    pub cpu: Option<f64>,
}

impl Round {
    /// Of a measurement, and what the target's process used meanwhile.
    #[must_use]
    pub fn of(measured: &Measurement, usage: Option<&Usage>) -> Round {
        let latency = &measured.total.latency;
        let completed = measured.total.counts.completed;
        let per_answer = |usage: &Usage| usage.total.as_nanos() as f64 / completed as f64;
        Round {
            rate: measured.rate(),
            mean: latency.mean(),
            p50: latency.value_at_quantile(0.5) as f64,
            p99: latency.value_at_quantile(0.99) as f64,
            cpu: usage.filter(|_| completed > 0).map(per_answer),
        }
    }
}

/// A compared figure: its name, and how it is taken from a round.
type Figure = (&'static str, fn(&Round) -> Option<f64>);

const FIGURES: [Figure; 5] = [
    ("throughput", |r| Some(r.rate)),
    ("mean latency", |r| Some(r.mean)),
    ("p50 latency", |r| Some(r.p50)),
    ("p99 latency", |r| Some(r.p99)),
    ("CPU per request", |r| r.cpu),
];

/// The ratios of a target to the first one, by figure.
#[must_use]
pub fn ratios(base: &[Round], other: &[Round], seed: u64) -> Vec<(&'static str, Ratio)> {
    let of = |(name, figure): &Figure| {
        let pair = |(a, b): (&Round, &Round)| figure(a).zip(figure(b));
        let pairs: Vec<(f64, f64)> = base.iter().zip(other).filter_map(pair).collect();
        Some((*name, ratio(&pairs, seed)?))
    };
    FIGURES.iter().filter_map(of).collect()
}

/// For people: a line for each figure.
#[must_use]
pub fn text(base: &str, other: &str, ratios: &[(&'static str, Ratio)]) -> String {
    let mut out = format!("\n  {other} / {base}\n");
    for (name, ratio) in ratios {
        let interval = match ratio.interval {
            None => "too few rounds for an interval".to_owned(),
            Some((low, high)) => {
                let sure = match (ratio.is_sure(), ratio.ratio > 1.0) {
                    (false, _) => "no difference shown",
                    (true, true) => "more",
                    (true, false) => "less",
                };
                format!("95% interval {low:.3} to {high:.3}: {sure}")
            }
        };
        out += &format!("  {name:<16} {:>7.3}   {interval}\n", ratio.ratio);
    }
    out
}

/// How the intervals were made, for the output.
#[must_use]
pub fn method(rounds: usize) -> String {
    format!(
        "{rounds} interleaved rounds; ratios of the sums over rounds; 95% intervals by percentile \
         bootstrap over rounds, paired, {DRAWS} draws"
    )
}

/// For the JSON.
#[must_use]
pub fn json(ratios: &[(&'static str, Ratio)]) -> Value {
    let one = |(name, ratio): &(&'static str, Ratio)| {
        let value = json!({
            "ratio": ratio.ratio,
            "low": ratio.interval.map(|i| i.0),
            "high": ratio.interval.map(|i| i.1),
            "sure": ratio.is_sure(),
        });
        (name.replace(' ', "_").to_ascii_lowercase(), value)
    };
    Value::Object(ratios.iter().map(one).collect())
}

/// Takes what the target's processes use between the beginning and the end of the measured time.
#[derive(Debug)]
pub struct Meter<'o> {
    pids: Vec<u32>,
    end: Duration,
    before: Option<Usage>,
    after: Option<Usage>,
    inner: &'o mut dyn Observer,
}

impl<'o> Meter<'o> {
    /// A meter of these processes for a measured time of that length; what it sees is passed on.
    pub fn new(pids: Vec<u32>, end: Duration, inner: &'o mut dyn Observer) -> Meter<'o> {
        Meter {
            pids,
            end,
            before: None,
            after: None,
            inner,
        }
    }

    fn read(&self) -> Option<Usage> {
        let mut sum: Option<Usage> = None;
        for pid in &self.pids {
            let usage = Usage::of(*pid)?;
            sum.get_or_insert_with(Usage::default).add(&usage);
        }
        sum
    }

    /// What was used; `None` without processes, or when one has ended.
    #[must_use]
    pub fn used(&self) -> Option<Usage> {
        let after = self.after.or_else(|| self.read())?;
        Some(after.since(&self.before?))
    }
}

impl Observer for Meter<'_> {
    fn began(&mut self) {
        self.before = self.before.or_else(|| self.read());
        self.inner.began();
    }

    fn slice(&mut self, point: &Point, record: &Record) {
        if point.at >= self.end && self.after.is_none() {
            self.after = self.read();
        }
        self.inner.slice(point, record);
    }
}

/// The CPU figures of a target for people.
#[must_use]
pub fn usage_text(usage: &Usage, answers: u64) -> String {
    let per = |n: f64| n / (answers.max(1) as f64);
    format!(
        "  target CPU  {:.2} µs per answer (user {:.2} s, system {:.2} s in all), context switches \
         {:.3} voluntary, {:.3} involuntary per answer\n",
        per(usage.total.as_secs_f64() * 1e6),
        usage.user.as_secs_f64(),
        usage.system.as_secs_f64(),
        per(usage.voluntary_switches as f64),
        per(usage.involuntary_switches as f64)
    )
}

/// The CPU figures of a target for the JSON.
#[must_use]
pub fn usage_json(usage: &Usage, answers: u64) -> Value {
    let per = |n: f64| n / (answers.max(1) as f64);
    json!({
        "us_per_answer": per(usage.total.as_secs_f64() * 1e6),
        "total_s": usage.total.as_secs_f64(),
        "user_s": usage.user.as_secs_f64(),
        "system_s": usage.system.as_secs_f64(),
        "voluntary_switches": usage.voluntary_switches,
        "involuntary_switches": usage.involuntary_switches,
    })
}
