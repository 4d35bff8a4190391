//! One target of one route, for the whole process: its requests in flight (R19) and whether it is up
//! (R20).
//!
//! ```text
//!            consecutive_failures            cooldown_period over: one request
//!        Up ───────────────────────▶ Out ──────────────────────────────────────▶ OnTrial
//!        ▲ ▲                          │ ▲                                           │ │
//!        │ └──── a probe succeeds ────┘ └── it failed, or ended without an outcome ─┘ │
//!        └──────────────────────────── it succeeded ─────────────────────────────────┘
//! ```
//!
//! Where there are active probes, only they lead out of `Out`. The whole health is one word that is
//! changed by compare-and-swap: so there is one trial at a time, however many ask. Nothing else is
//! published by way of these words, so their operations need no ordering beyond their own.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use toron_reactor::Time;

use crate::policy::settings::{Health, Upstream};

/// Whether a target takes requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It does.
    Up,
    /// It does not.
    Out,
    /// It takes one, whose outcome decides.
    OnTrial,
}

impl Standing {
    /// The name in the admin API and the metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Up => "up",
            Standing::Out => "out",
            Standing::OnTrial => "trial",
        }
    }
}

/// What became of a target by an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It was taken out after so many failures in a row.
    Out(u32),
    /// The trial failed: it stays out.
    StillOut,
    /// It is up again.
    Up,
}

/// Health as one value; packed into a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word {
    standing: Standing,
    /// In a row.
    failures: u32,
    /// The last probe failed: only a probe takes the failures back.
    probe_failed: bool,
    /// `Out`: no trial before; in milliseconds of [`Time`].
    until: u64,
}

const FAILURES_BITS: u32 = 21;
const FAILURES_MOST: u32 = (1 << FAILURES_BITS) - 1;
const PROBE_AT: u32 = 2 + FAILURES_BITS;
/// 40 bits are left: 34 years of uptime.
const UNTIL_AT: u32 = PROBE_AT + 1;

impl Word {
    const UP: Word = Word {
        standing: Standing::Up,
        failures: 0,
        probe_failed: false,
        until: 0,
    };

    fn pack(self) -> u64 {
        let standing = match self.standing {
            Standing::Up => 0,
            Standing::Out => 1,
            Standing::OnTrial => 2,
        };
        standing
            | u64::from(self.failures.min(FAILURES_MOST)) << 2
            | u64::from(self.probe_failed) << PROBE_AT
            | self.until << UNTIL_AT
    }

    fn unpack(word: u64) -> Word {
        Word {
            standing: match word & 3 {
                0 => Standing::Up,
                1 => Standing::Out,
                _ => Standing::OnTrial,
            },
            failures: (word >> 2) as u32 & FAILURES_MOST,
            probe_failed: word >> PROBE_AT & 1 == 1,
            until: word >> UNTIL_AT,
        }
    }

    /// A request may be sent there now.
    fn takes_requests(self, now: Time, health: &Health) -> bool {
        match self.standing {
            Standing::Up => true,
            Standing::Out => !health.is_probed() && self.until <= millis(now, Duration::ZERO),
            Standing::OnTrial => false,
        }
    }

    fn out(self, now: Time, health: &Health) -> Word {
        let until = millis(now, health.cooldown_period);
        Word {
            standing: Standing::Out,
            until,
            ..self
        }
    }

    fn failed(self) -> Word {
        Word {
            failures: self.failures.saturating_add(1).min(FAILURES_MOST),
            ..self
        }
    }
}

/// A time and a length behind it, in whole milliseconds; the length is rounded up.
fn millis(now: Time, length: Duration) -> u64 {
    let length = u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    (now.0 / 1_000_000)
        .saturating_add(length)
        .min(u64::MAX >> UNTIL_AT)
}

/// What the process knows of one target of one route. See the module text.
#[derive(Debug)]
pub struct TargetState {
    in_flight: AtomicU32,
    health: AtomicU64,
}

impl Default for TargetState {
    /// Up, without requests.
    fn default() -> Self {
        TargetState {
            in_flight: AtomicU32::new(0),
            health: AtomicU64::new(Word::UP.pack()),
        }
    }
}

impl TargetState {
    /// Requests in flight at this moment.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether it takes requests.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.word().standing
    }

    /// Failures in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.word().failures
    }

    /// A request may be sent there now, as far as its health goes.
    #[must_use]
    pub fn is_available(&self, now: Time, health: &Health) -> bool {
        self.word().takes_requests(now, health)
    }

    /// It is below its cap.
    #[must_use]
    pub fn has_room(&self, cap: Option<u32>) -> bool {
        cap.is_none_or(|cap| self.in_flight() < cap)
    }

    /// A place for one request; `None` if the target is full or, unless `anyway`, out.
    #[must_use]
    pub fn acquire(
        self: &Arc<Self>,
        now: Time,
        upstream: &Upstream,
        anyway: bool,
    ) -> Option<Lease> {
        let cap = upstream.target_max_concurrency.unwrap_or(u32::MAX);
        let room = |taken: u32| (taken < cap).then_some(taken + 1);
        let counted = self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        counted.ok()?;
        let mut lease = Lease {
            state: Arc::clone(self),
            kind: Kind::Ordinary,
        };
        let trial = |word: Word| {
            let due = word.standing == Standing::Out && word.takes_requests(now, &upstream.health);
            due.then_some(Word {
                standing: Standing::OnTrial,
                ..word
            })
        };
        if self.standing() == Standing::Up {
            return Some(lease);
        }
        if self.change(trial).is_some() {
            lease.kind = Kind::Trial;
            return Some(lease);
        }
        // It may be up by now.
        if self.standing() != Standing::Up {
            if !anyway {
                return None;
            }
            lease.kind = Kind::Anyway;
        }
        Some(lease)
    }

    /// A probe has succeeded.
    pub fn probe_succeeded(&self) -> Option<Change> {
        let before = self.change(|word| (word != Word::UP).then_some(Word::UP))?;
        (before.standing != Standing::Up).then_some(Change::Up)
    }

    /// A probe has failed.
    pub fn probe_failed(&self, now: Time, health: &Health) -> Option<Change> {
        let next = |word: Word| {
            let next = Word {
                probe_failed: true,
                ..word.failed()
            };
            let goes = next.failures >= health.consecutive_failures;
            Some(if goes { next.out(now, health) } else { next })
        };
        let before = self.change(next)?;
        let failures = before.failed().failures;
        let goes = before.standing == Standing::Up && failures >= health.consecutive_failures;
        goes.then_some(Change::Out(failures))
    }

    /// A request has failed there. `true` if the target has to go if it is not the last one that
    /// is up: [`TargetState::take_out`].
    pub(super) fn count_failure(&self, health: &Health) -> bool {
        let next = |word: Word| (word.standing == Standing::Up).then_some(word.failed());
        let before = self.change(next);
        before.is_some_and(|word| word.failed().failures >= health.consecutive_failures)
    }

    /// Takes it out, if that is still due.
    pub(super) fn take_out(&self, now: Time, health: &Health) -> Option<Change> {
        let next = |word: Word| {
            let due = word.standing == Standing::Up && word.failures >= health.consecutive_failures;
            due.then_some(word.out(now, health))
        };
        let before = self.change(next)?;
        Some(Change::Out(before.failures))
    }

    /// Up again without an outcome, where it was out.
    pub(super) fn revive(&self) {
        let is_out = |word: Word| (word.standing == Standing::Out).then_some(Word::UP);
        self.change(is_out);
    }

    fn word(&self) -> Word {
        Word::unpack(self.health.load(Ordering::Relaxed))
    }

    /// Puts what `next` makes of the present value in its place; returns the value before, or
    /// `None` if `next` wanted no change.
    fn change(&self, next: impl Fn(Word) -> Option<Word>) -> Option<Word> {
        let next = |word: u64| next(Word::unpack(word)).map(Word::pack);
        let changed = self
            .health
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        changed.ok().map(Word::unpack)
    }
}

/// What an outcome means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The target was up.
    Ordinary,
    /// It is the trial.
    Trial,
    /// All were out, and the route says to try.
    Anyway,
}

/// A request at a target. Dropping it is the one way to give its place back, and a trial without an
/// outcome.
#[derive(Debug)]
#[must_use = "a place that is dropped is free again"]
pub struct Lease {
    state: Arc<TargetState>,
    kind: Kind,
}

impl Lease {
    /// The target.
    #[must_use]
    pub fn state(&self) -> &Arc<TargetState> {
        &self.state
    }

    /// The outcome of this request decides about the target.
    #[must_use]
    pub fn is_trial(&self) -> bool {
        self.kind == Kind::Trial
    }

    /// The target has answered.
    pub fn succeeded(&mut self, health: &Health) -> Option<Change> {
        let kind = std::mem::replace(&mut self.kind, Kind::Ordinary);
        let probed = health.is_probed();
        let before = self.state.change(|word| {
            let clears = match (kind, word.standing) {
                (_, Standing::Up) => word != Word::UP && !(probed && word.probe_failed),
                (Kind::Trial, Standing::OnTrial) => true,
                (Kind::Anyway, Standing::Out | Standing::OnTrial) => !probed,
                (Kind::Ordinary | Kind::Trial, Standing::Out | Standing::OnTrial) => false,
            };
            clears.then_some(Word::UP)
        })?;
        (before.standing != Standing::Up).then_some(Change::Up)
    }

    /// The target has failed: for a trial and for a target that was out anyway that is all there is
    /// to say. `false` if it counts like any other failure.
    pub(super) fn stays_out(&mut self, now: Time, health: &Health) -> (bool, Option<Change>) {
        let kind = std::mem::replace(&mut self.kind, Kind::Ordinary);
        match kind {
            Kind::Ordinary => (false, None),
            Kind::Trial => {
                let next = |word: Word| {
                    let trial = word.standing == Standing::OnTrial;
                    trial.then_some(word.failed().out(now, health))
                };
                let change = self.state.change(next).map(|_| Change::StillOut);
                (true, change)
            }
            Kind::Anyway => {
                let next = |word: Word| {
                    let out = word.standing == Standing::Out;
                    out.then_some(word.failed().out(now, health))
                };
                // One that has come up meanwhile has this failure counted.
                (self.state.change(next).is_some(), None)
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.state.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.kind == Kind::Trial {
            // No outcome: the next request is the trial.
            let back = |word: Word| {
                let trial = word.standing == Standing::OnTrial;
                trial.then_some(Word {
                    standing: Standing::Out,
                    ..word
                })
            };
            self.state.change(back);
        }
    }
}
