//! When starts are due, slices end and the run is over.

use std::time::Duration;

use toron_reactor::{Time, Token};

use super::{Core, Final, Report};
use crate::bench::plan::{Load, Plan};
use crate::bench::record::{record, Times};
use crate::bench::usage::ThreadTime;

/// A start this much behind its time, though a connection was free, is late.
const LATE: Duration = Duration::from_millis(1);

/// A request that is to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) intended: Time,
    /// Stage of the profile, without the warm-up; counted from 0.
    pub(super) stage: usize,
}

/// The run's times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begin: Time,
    /// From here on is measured.
    pub(super) from: Time,
    /// Nothing begins from here on.
    pub(super) to: Time,
    slice: Duration,
    /// The slice at hand.
    index: u32,
    /// Processor time at `from`.
    used: Option<ThreadTime>,
    measuring: bool,
}

impl Clock {
    pub(super) fn new(plan: &Plan, begin: Time) -> Clock {
        let from = begin + plan.warmup;
        Clock {
            begin,
            from,
            to: from + plan.load.duration(),
            slice: plan.slice,
            index: 0,
            used: None,
            measuring: false,
        }
    }

    fn slice_end(&self) -> Time {
        self.from + self.slice * (self.index + 1)
    }
}

impl Core {
    /// Takes the next start off the schedule.
    pub(super) fn advance(&mut self) {
        self.next = self.schedule.as_mut().and_then(Iterator::next);
    }

    /// Whether a moment lies in the measured time.
    pub(super) fn is_measured(&self, at: Time) -> bool {
        self.clock.is_some_and(|c| c.from <= at && at < c.to)
    }

    /// The measured time has begun.
    pub(super) fn is_measuring(&self) -> bool {
        self.clock.is_some_and(|c| c.measuring)
    }

    /// Whether requests are still to begin.
    pub(super) fn goes_on(&self, now: Time) -> bool {
        !self.done && self.clock.is_none_or(|c| now < c.to)
    }

    fn next_start(&self, clock: &Clock) -> Option<Start> {
        let (after, stage) = self.next?;
        let warmup = usize::from(!self.plan.warmup.is_zero());
        Some(Start {
            intended: clock.begin + after,
            stage: stage.saturating_sub(warmup),
        })
    }

    /// When [`Core::due`] must be asked next.
    pub(super) fn next_moment(&self) -> Option<Time> {
        if self.done {
            return None;
        }
        if !self.born {
            return Some(Time(0));
        }
        let clock = self.clock.as_ref()?;
        let start = match &self.plan.load {
            Load::Open { .. } => self.next_start(clock).map(|start| match self.blocked {
                true => start.intended + self.plan.timeout,
                false => start.intended,
            }),
            Load::Closed { .. } => (!self.free.is_empty()).then_some(clock.begin),
        };
        let mark = match clock.measuring {
            true => clock.slice_end(),
            false => clock.from,
        };
        let start = start.filter(|at| *at < clock.to || self.schedule.is_some());
        // Once nothing begins any more, the last answer ends the run.
        let end = (self.under_way == 0 && self.next.is_none()).then_some(clock.to);
        [start, Some(mark), end].into_iter().flatten().min()
    }

    /// The next request that is due, and on which connection; without one, it has run out of time
    /// before one was free. `None`: nothing can begin at present.
    pub(super) fn due(&mut self, now: Time) -> Option<(Option<Token>, Start)> {
        let clock = self.clock?;
        if self.done {
            return None;
        }
        if self.schedule.is_none() {
            if now < clock.begin {
                return None;
            }
            let token = self.free.pop_front()?;
            let start = Start {
                intended: now,
                stage: 0,
            };
            return (now < clock.to).then_some((Some(token), start));
        }
        let start = self.next_start(&clock).filter(|s| s.intended <= now)?;
        if start.intended + self.plan.timeout <= now {
            self.give_up(start, now);
            self.advance();
            return Some((None, start));
        }
        let Some(token) = self.free.pop_front() else {
            self.blocked = true;
            return None;
        };
        Some((Some(token), start))
    }

    /// The start has been made.
    pub(super) fn begun(&mut self, start: Start, now: Time) {
        self.under_way += 1;
        if self.schedule.is_some() {
            self.advance();
        }
        if self.is_measured(start.intended) {
            self.record.counts.started += 1;
            if let Some(part) = self.last.stages.get_mut(start.stage) {
                part.started += 1;
            }
            let late = now.since(start.intended.max(self.unblocked));
            record(&mut self.record.lateness, late);
            self.record.counts.late += u64::from(late > LATE);
            self.record.counts.queued += u64::from(start.intended < self.unblocked);
        }
    }

    /// A connection has room again.
    pub(super) fn freed(&mut self, token: Token, now: Time) {
        self.free.push_back(token);
        if std::mem::take(&mut self.blocked) {
            self.unblocked = now;
        }
    }

    /// A start that found no connection in all its time.
    fn give_up(&mut self, start: Start, now: Time) {
        if !self.is_measured(start.intended) {
            return;
        }
        self.record.counts.started += 1;
        self.record.counts.timed_out += 1;
        self.record.counts.never_sent += 1;
        self.record.times(&Times {
            intended: start.intended,
            begun: now,
            first_byte: None,
            ended: now,
        });
        if let Some(part) = self.last.stages.get_mut(start.stage) {
            part.started += 1;
            part.lost += 1;
            record(&mut part.latency, now.since(start.intended));
        }
    }

    /// Begins the measured time, and ends slices.
    pub(super) fn mark(&mut self, now: Time) {
        let Some(clock) = &mut self.clock else { return };
        if !clock.measuring && clock.from <= now {
            clock.measuring = true;
            clock.used = ThreadTime::now();
            // Nobody listens any more when the run has been given up.
            let _ = self.reports.send(Report::Began);
        }
        while self.clock.is_some_and(|c| c.slice_end() <= now) {
            self.tell_slice();
        }
    }

    fn tell_slice(&mut self) {
        let Some(clock) = &mut self.clock else { return };
        let index = clock.index;
        clock.index += 1;
        let record = std::mem::take(&mut self.record);
        // Nobody listens any more when the run has been given up.
        let _ = self.reports.send(Report::Slice { index, record });
    }

    /// Whether nothing is to begin and nothing under way.
    pub(super) fn is_over(&self, now: Time) -> bool {
        !self.done
            && self.under_way == 0
            && self.next.is_none()
            && self.clock.is_some_and(|c| c.to <= now)
    }

    /// Tells the last slice and what is told once.
    pub(super) fn finish(&mut self, now: Time) {
        self.done = true;
        self.mark(now);
        self.tell_slice();
        let mut last = Final {
            unfinished: self.under_way as u64,
            ..std::mem::take(&mut self.last)
        };
        if let Some(clock) = &self.clock {
            last.elapsed = now.min(clock.to).since(clock.from);
            let used = clock.used.zip(ThreadTime::now());
            last.time = used.map(|(before, after)| after.since(before));
        }
        last.busy = Some(self.busy.clone());
        let _ = self.reports.send(Report::Done(Box::new(last)));
    }

    /// Tells, once, that every connection has been tried.
    pub(super) fn tell_ready(&mut self) {
        if self.untried == 0 {
            let _ = self.reports.send(Report::Ready { open: self.open });
        }
    }
}
