//! What all threads have measured together.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::generator::Final;
use super::record::{histogram, merge, Part, Record};
use super::usage::ThreadTime;

/// A slice of time in short, for plots and tables. Requests are counted where they ended.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Point {
    /// Its end, from the beginning of the measured time.
    pub at: Duration,
    /// Its length.
    pub length: Duration,
    /// Answers.
    pub answered: u64,
    /// Failures and time-outs.
    pub lost: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Median latency in nanoseconds.
    pub p50: u64,
    /// 99th percentile in nanoseconds.
    pub p99: u64,
    /// Longest in nanoseconds.
    pub max: u64,
}

impl Point {
    fn of(index: u32, slice: Duration, record: &Record) -> Point {
        let counts = &record.counts;
        Point {
            at: slice * (index + 1),
            length: slice,
            answered: counts.answered,
            lost: counts.timed_out + counts.failed,
            received: counts.received,
            sent: counts.sent,
            p50: record.latency.value_at_quantile(0.5),
            p99: record.latency.value_at_quantile(0.99),
            max: record.latency.max(),
        }
    }
}

/// Follows a run.
pub trait Observer: std::fmt::Debug {
    /// The warm-up is over.
    fn began(&mut self) {}

    /// A slice has been measured by all threads.
    fn slice(&mut self, _point: &Point, _record: &Record) {}
}

/// Follows nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Nobody;

impl Observer for Nobody {}

/// See the module text.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Everything added up.
    pub total: Record,
    /// Slice by slice.
    pub series: Vec<Point>,
    /// By stage of the profile.
    pub stages: Vec<Part>,
    /// By kind of request, if there are several.
    pub requests: Vec<Part>,
    /// Time spent on the events of one turn, in nanoseconds.
    pub busy: Histogram<u64>,
    /// Processor time of each thread over the measured time.
    pub times: Vec<ThreadTime>,
    /// The measured time as it was.
    pub elapsed: Duration,
    /// It was interrupted.
    pub interrupted: bool,
    /// Requests under way when it was.
    pub unfinished: u64,
    /// Connections that stood when the load began.
    pub open: usize,
    slice: Duration,
    threads: usize,
    /// Slices that not all threads have reported.
    partial: BTreeMap<u32, (usize, Record)>,
}

impl Measurement {
    /// Nothing yet.
    #[must_use]
    pub fn new(slice: Duration, threads: usize) -> Measurement {
        Measurement {
            total: Record::default(),
            series: Vec::new(),
            stages: Vec::new(),
            requests: Vec::new(),
            busy: histogram(),
            times: Vec::new(),
            elapsed: Duration::ZERO,
            interrupted: false,
            unfinished: 0,
            open: 0,
            slice,
            threads,
            partial: BTreeMap::new(),
        }
    }

    /// A thread has measured a slice.
    pub fn slice(&mut self, index: u32, record: &Record, observer: &mut dyn Observer) {
        let (reported, sum) = self.partial.entry(index).or_default();
        *reported += 1;
        sum.add(record);
        if *reported == self.threads {
            if let Some((_, record)) = self.partial.remove(&index) {
                self.complete(index, &record, observer);
            }
        }
    }

    fn complete(&mut self, index: u32, record: &Record, observer: &mut dyn Observer) {
        self.total.add(record);
        let point = Point::of(index, self.slice, record);
        observer.slice(&point, record);
        self.series.push(point);
    }

    /// A thread has ended.
    pub fn thread_ended(&mut self, last: &Final) {
        add_parts(&mut self.stages, &last.stages);
        add_parts(&mut self.requests, &last.requests);
        if let Some(busy) = &last.busy {
            merge(&mut self.busy, busy);
        }
        self.times.extend(last.time);
        self.elapsed = self.elapsed.max(last.elapsed);
        self.unfinished += last.unfinished;
    }

    /// All threads have ended.
    pub fn end(&mut self, observer: &mut dyn Observer) {
        for (index, (_, record)) in std::mem::take(&mut self.partial) {
            self.complete(index, &record, observer);
        }
        // The last of a thread's slices can come before others of an earlier index.
        self.series.sort_by_key(|point| point.at);
    }

    /// Adds a later measurement of the same kind, as if it had gone on.
    pub fn append(&mut self, later: &Measurement) {
        self.total.add(&later.total);
        let shift = self.elapsed;
        self.series.retain(|point| point.at <= shift);
        self.series.extend(later.within().map(|point| Point {
            at: point.at + shift,
            ..*point
        }));
        add_parts(&mut self.stages, &later.stages);
        add_parts(&mut self.requests, &later.requests);
        merge(&mut self.busy, &later.busy);
        for (sum, time) in self.times.iter_mut().zip(&later.times) {
            sum.running += time.running;
            sum.waiting += time.waiting;
        }
        self.elapsed += later.elapsed;
        self.open += later.open;
        self.unfinished += later.unfinished;
        self.interrupted |= later.interrupted;
    }

    /// The whole slices of the measured time: those behind it hold the last answers only.
    pub fn within(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().filter(|point| point.at <= self.elapsed)
    }

    /// Answers per second of the measured time.
    #[must_use]
    pub fn rate(&self) -> f64 {
        per_second(self.total.counts.completed, self.elapsed)
    }

    /// Bytes received per second.
    #[must_use]
    pub fn receive_rate(&self) -> f64 {
        per_second(self.total.counts.received, self.elapsed)
    }

    /// Bytes sent per second.
    #[must_use]
    pub fn send_rate(&self) -> f64 {
        per_second(self.total.counts.sent, self.elapsed)
    }

    /// Whether there is anything to tell: an answer, or a request that waited in vain for one.
    #[must_use]
    pub fn has_samples(&self) -> bool {
        !self.total.latency.is_empty()
    }
}

fn add_parts(into: &mut Vec<Part>, from: &[Part]) {
    if into.len() < from.len() {
        into.resize_with(from.len(), Part::default);
    }
    for (sum, part) in into.iter_mut().zip(from) {
        sum.add(part);
    }
}

/// Per second; 0 of no time.
#[must_use]
pub fn per_second(n: u64, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    n as f64 / time.as_secs_f64()
}
