//! What one thread has measured: histograms and counts, a slice of time at a time.

use std::time::Duration;

use hdrhistogram::Histogram;
use toron_reactor::Time;

/// Significant decimal digits of the histograms.
const DIGITS: u8 = 3;
/// The least time that is told apart, in nanoseconds.
const LOWEST: u64 = 100;
/// The longest time recorded, in nanoseconds: an hour.
const HIGHEST: u64 = 3_600_000_000_000;

/// An empty histogram of nanoseconds.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    // The bounds are constants that satisfy the conditions (LOWEST >= 1, HIGHEST >= 2 LOWEST,
    // digits <= 5).
    Histogram::new_with_bounds(LOWEST, HIGHEST, DIGITS).unwrap_or_else(|_| empty())
}

fn empty() -> Histogram<u64> {
    unreachable!("the bounds of a histogram are valid")
}

/// Adds a time.
pub fn record(histogram: &mut Histogram<u64>, time: Duration) {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    histogram.saturating_record(nanos);
}

/// Why something failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Failure {
    /// Connect: nobody listens (`ECONNREFUSED`).
    Refused,
    /// Connect: no answer in time.
    ConnectTimeout,
    /// Connect: no way there.
    Unreachable,
    /// Connect: no local port left (`EADDRNOTAVAIL`).
    NoPort,
    /// Connect: no descriptor left.
    NoDescriptor,
    /// Connect: for another reason.
    Connect,
    /// Reset by the peer.
    Reset,
    /// Closed before a byte of the response.
    ClosedBefore,
    /// Closed within a response.
    ClosedWithin,
    /// What came is no response.
    BadResponse,
    /// Something came though nothing was asked: mostly a server that turns connections away.
    Unasked,
    /// For another reason.
    Other,
}

impl Failure {
    /// All kinds.
    pub const ALL: [Failure; 12] = [
        Failure::Refused,
        Failure::ConnectTimeout,
        Failure::Unreachable,
        Failure::NoPort,
        Failure::NoDescriptor,
        Failure::Connect,
        Failure::Reset,
        Failure::ClosedBefore,
        Failure::ClosedWithin,
        Failure::BadResponse,
        Failure::Unasked,
        Failure::Other,
    ];

    /// The key in the output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Failure::Refused => "connect_refused",
            Failure::ConnectTimeout => "connect_timeout",
            Failure::Unreachable => "connect_unreachable",
            Failure::NoPort => "connect_no_local_port",
            Failure::NoDescriptor => "connect_no_descriptor",
            Failure::Connect => "connect_other",
            Failure::Reset => "reset",
            Failure::ClosedBefore => "closed_before_response",
            Failure::ClosedWithin => "closed_within_response",
            Failure::BadResponse => "bad_response",
            Failure::Unasked => "answered_unasked",
            Failure::Other => "other",
        }
    }
}

/// Statuses 0 to 999, counted.
#[derive(Clone, Debug)]
pub struct Statuses(Vec<u64>);

impl Default for Statuses {
    fn default() -> Self {
        Statuses(vec![0; 1000])
    }
}

impl Statuses {
    fn count(&mut self, status: u16) {
        if let Some(n) = self.0.get_mut(usize::from(status)) {
            *n += 1;
        }
    }

    fn add(&mut self, other: &Statuses) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a += b;
        }
    }

    /// Those that occurred.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.0.iter().copied().enumerate().filter(|(_, n)| *n > 0)
    }
}

/// Plain counts. Those of requests are of requests whose intended start lies in the measured time.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Requests whose start was due.
    pub started: u64,
    /// … that were answered, whatever the status.
    pub answered: u64,
    /// … that had no answer within the limit.
    pub timed_out: u64,
    /// … of these, never sent: no connection was free all the time.
    pub never_sent: u64,
    /// … that failed.
    pub failed: u64,
    /// Answers that came within the measured time, whenever their requests began.
    pub completed: u64,
    /// Bytes received within the measured time.
    pub received: u64,
    /// Bytes sent within the measured time.
    pub sent: u64,
    /// Connections established (at any time).
    pub connects: u64,
    /// Idle connections that the peer closed (at any time).
    pub closed_idle: u64,
    /// Starts that were late though a connection was free: the generator's fault.
    pub late: u64,
    /// Starts that waited for a free connection: the target's slowness, or too few connections.
    pub queued: u64,
    /// Failures by kind, in the order of [`Failure::ALL`]; those of connects at any time.
    pub failures: [u64; Failure::ALL.len()],
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.started += other.started;
        self.answered += other.answered;
        self.timed_out += other.timed_out;
        self.never_sent += other.never_sent;
        self.failed += other.failed;
        self.completed += other.completed;
        self.received += other.received;
        self.sent += other.sent;
        self.connects += other.connects;
        self.closed_idle += other.closed_idle;
        self.late += other.late;
        self.queued += other.queued;
        for (a, b) in self.failures.iter_mut().zip(other.failures) {
            *a += b;
        }
    }

    /// Counts a failure.
    pub fn count(&mut self, kind: Failure) {
        if let Some(n) = self.failures.get_mut(kind as usize) {
            *n += 1;
        }
    }

    /// Failures that occurred, by kind.
    pub fn failures(&self) -> impl Iterator<Item = (Failure, u64)> + '_ {
        let all = Failure::ALL.into_iter().zip(self.failures);
        all.filter(|(_, n)| *n > 0)
    }
}

/// What was measured in a slice of time, or in all.
#[derive(Clone, Debug)]
pub struct Record {
    /// From the intended start (open loop) or the start (closed loop) to the last byte; time-outs
    /// with the time they took.
    pub latency: Histogram<u64>,
    /// The same to the first byte.
    pub first_byte: Histogram<u64>,
    /// From the actual start to the last byte.
    pub service: Histogram<u64>,
    /// From the intended start, or from when a connection was free if that was later, to the
    /// actual start: what the generator itself added.
    pub lateness: Histogram<u64>,
    /// From the beginning of a connect to its end.
    pub connect: Histogram<u64>,
    /// Plain counts.
    pub counts: Counts,
    /// Answers by status.
    pub statuses: Statuses,
}

impl Default for Record {
    fn default() -> Self {
        Record {
            latency: histogram(),
            first_byte: histogram(),
            service: histogram(),
            lateness: histogram(),
            connect: histogram(),
            counts: Counts::default(),
            statuses: Statuses::default(),
        }
    }
}

/// Adds all of `from`, which has the same bounds.
pub fn merge(into: &mut Histogram<u64>, from: &Histogram<u64>) {
    let added = into.add(from);
    debug_assert!(added.is_ok(), "histograms of one kind");
}

impl Record {
    /// Adds what another has measured.
    pub fn add(&mut self, other: &Record) {
        merge(&mut self.latency, &other.latency);
        merge(&mut self.first_byte, &other.first_byte);
        merge(&mut self.service, &other.service);
        merge(&mut self.lateness, &other.lateness);
        merge(&mut self.connect, &other.connect);
        self.counts.add(&other.counts);
        self.statuses.add(&other.statuses);
    }

    /// Counts an answer.
    pub fn answer(&mut self, status: u16) {
        self.counts.answered += 1;
        self.statuses.count(status);
    }
}

/// The life of an answered request, or of one that ran out of time.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When it should have started.
    pub intended: Time,
    /// When it did.
    pub begun: Time,
    /// When the first byte of the response came.
    pub first_byte: Option<Time>,
    /// When the last byte came, or it was given up.
    pub ended: Time,
}

impl Record {
    /// Adds the times of a request.
    pub fn times(&mut self, times: &Times) {
        record(&mut self.latency, times.ended.since(times.intended));
        record(&mut self.service, times.ended.since(times.begun));
        if let Some(first) = times.first_byte {
            record(&mut self.first_byte, first.since(times.intended));
        }
    }
}

/// What became of the requests of one stage or of one kind.
#[derive(Clone, Debug)]
pub struct Part {
    /// See [`Record::latency`].
    pub latency: Histogram<u64>,
    /// Requests whose start was due.
    pub started: u64,
    /// … that were answered.
    pub answered: u64,
    /// … that timed out or failed.
    pub lost: u64,
}

impl Default for Part {
    fn default() -> Self {
        Part {
            latency: histogram(),
            started: 0,
            answered: 0,
            lost: 0,
        }
    }
}

impl Part {
    /// Adds what another thread has measured.
    pub fn add(&mut self, other: &Part) {
        merge(&mut self.latency, &other.latency);
        self.started += other.started;
        self.answered += other.answered;
        self.lost += other.lost;
    }
}
