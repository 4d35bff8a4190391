//! Whether the figures are the target's or the generator's own.

use std::time::Duration;

use super::measurement::Measurement;
use super::plan::{Load, Plan};

/// Share of late starts from which on the schedule counts as not kept.
const MANY_LATE: f64 = 0.01;
/// Share of late starts that is worth a word.
const SOME_LATE: f64 = 0.001;
/// Share of a processor from which on a thread has no more to give.
const BUSY: f64 = 0.95;
/// Share of a processor that is worth a word.
const RATHER_BUSY: f64 = 0.8;
/// Share of the time spent waiting for a processor that is worth a word.
const STARVED: f64 = 0.1;
/// A turn this long delays whatever else was due.
const LONG_TURN: Duration = Duration::from_millis(2);

/// How the generator did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grade {
    /// It had time left.
    Good,
    /// Signs of strain; the highest percentiles may be its own.
    Strained,
    /// It was the bottleneck.
    Bottleneck,
}

impl Grade {
    /// In the JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Grade::Good => "good",
            Grade::Strained => "strained",
            Grade::Bottleneck => "bottleneck",
        }
    }
}

/// What there is to say about a measurement, and the figures behind it.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// How the generator did.
    pub grade: Grade,
    /// Why, a sentence each.
    pub reasons: Vec<String>,
    /// What else a reader has to know, a sentence each.
    pub notes: Vec<String>,
    /// Share of the starts that were late by the generator's own fault.
    pub late: f64,
    /// The share of a processor that the busiest thread used; `None` if unknown.
    pub cpu: Option<f64>,
    /// The share of the time that a thread was ready but had no processor, at most.
    pub starved: Option<f64>,
    /// 99th percentile of the time spent on the events of one turn.
    pub turn: Duration,
    /// Processor time of all threads per answer.
    pub cpu_per_request: Option<Duration>,
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

impl Verdict {
    /// Judges.
    #[must_use]
    pub fn of(plan: &Plan, measured: &Measurement) -> Verdict {
        let counts = &measured.total.counts;
        let elapsed = measured.elapsed.as_secs_f64();
        let most = |f: &dyn Fn(&super::usage::ThreadTime) -> Duration| {
            let longest = measured.times.iter().map(f).max();
            longest
                .filter(|_| elapsed > 0.0)
                .map(|t| t.as_secs_f64() / elapsed)
        };
        let used: Duration = measured.times.iter().map(|t| t.running).sum();
        let per_request = u32::try_from(counts.completed)
            .ok()
            .and_then(|n| used.checked_div(n));
        let mut verdict = Verdict {
            grade: Grade::Good,
            reasons: Vec::new(),
            notes: Vec::new(),
            late: share(counts.late, counts.started),
            cpu: most(&|t| t.running),
            starved: most(&|t| t.waiting),
            turn: Duration::from_nanos(measured.busy.value_at_quantile(0.99)),
            cpu_per_request: per_request.filter(|_| !measured.times.is_empty()),
        };
        verdict.judge();
        verdict.note(plan, measured);
        verdict
    }

    fn judge(&mut self) {
        let late = percent(self.late);
        if self.late > MANY_LATE {
            let why = format!(
                "{late} of the starts were more than 1 ms late though a connection was free"
            );
            self.find(Grade::Bottleneck, why);
        } else if self.late > SOME_LATE {
            let why = format!("{late} of the starts were more than 1 ms late");
            self.find(Grade::Strained, why);
        }
        let cpu = self.cpu.unwrap_or_default();
        if cpu > BUSY {
            let why = format!(
                "a thread used {} of a processor: more threads, or another machine",
                percent(cpu)
            );
            self.find(Grade::Bottleneck, why);
        } else if cpu > RATHER_BUSY {
            self.find(
                Grade::Strained,
                format!("a thread used {} of a processor", percent(cpu)),
            );
        }
        let starved = self.starved.unwrap_or_default();
        if starved > STARVED {
            let why = format!(
                "a thread waited {} of the time for a processor: the machine is shared with other work",
                percent(starved)
            );
            self.find(Grade::Strained, why);
        }
        if self.turn > LONG_TURN {
            let why = format!(
                "1% of the turns took longer than {:.1} ms",
                self.turn.as_secs_f64() * 1e3
            );
            self.find(Grade::Strained, why);
        }
    }

    fn find(&mut self, grade: Grade, why: String) {
        if self.grade != Grade::Bottleneck {
            self.grade = grade;
        }
        self.reasons.push(why);
    }

    fn note(&mut self, plan: &Plan, measured: &Measurement) {
        let counts = &measured.total.counts;
        match &plan.load {
            Load::Closed { .. } => self.notes.push(
                "closed loop: a connection asks again only when it has been answered, so a stall \
                 delays requests that are then missing here; for latency use --rate"
                    .to_owned(),
            ),
            Load::Open { .. } => {
                let queued = share(counts.queued, counts.started);
                if queued > SOME_LATE {
                    self.notes.push(format!(
                        "{} of the starts waited because all {} connections were busy; that is in \
                         the latency",
                        percent(queued),
                        plan.connections
                    ));
                }
            }
        }
        if counts.never_sent > 0 {
            self.notes.push(format!(
                "{} requests were never sent: no connection was free within {:?}",
                counts.never_sent, plan.timeout
            ));
        }
        if counts.timed_out > 0 {
            self.notes.push(format!(
                "{} requests had no answer within {:?}; they are samples of that length",
                counts.timed_out, plan.timeout
            ));
        }
        if measured.unfinished > 0 {
            self.notes.push(format!(
                "{} requests were under way at the interruption",
                measured.unfinished
            ));
        }
    }

    /// In one line.
    #[must_use]
    pub fn headline(&self, plan: &Plan) -> &'static str {
        match (self.grade, &plan.load) {
            (Grade::Good, Load::Open { .. }) => "the generator kept its schedule",
            (Grade::Good, Load::Closed { .. }) => "the generator was not the bottleneck",
            (Grade::Strained, _) => {
                "the generator was strained; the highest percentiles may be its own"
            }
            (Grade::Bottleneck, Load::Open { .. }) => {
                "the generator could not keep its schedule: these figures are partly its own"
            }
            (Grade::Bottleneck, Load::Closed { .. }) => {
                "the generator was the bottleneck: the target may be faster than this"
            }
        }
    }
}
