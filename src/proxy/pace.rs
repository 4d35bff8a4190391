//! What a request body must keep to as a whole: an average rate (I20) and a total time (I21).

use std::time::Duration;

use toron_reactor::Time;

use super::clock::{millis, Clock};
use crate::http::Reason;

/// The average is not judged before so much time (I20).
pub const GRACE: Duration = Duration::from_secs(2);

/// A deadline that moves with the bytes of a body: it is the moment when their average since the
/// first of them was awaited falls below `rate`, or their time is over. While paused the clock
/// stands still, so that neither blames a client for what an upstream does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second; 0 is off.
    rate: u64,
    /// For the whole body; zero is off.
    total: Duration,
    moved: u64,
    clock: Clock,
}

impl Pace {
    /// For a body that is not awaited yet.
    #[must_use]
    pub fn new(rate: u64, total: Duration) -> Self {
        Pace {
            rate,
            total,
            moved: 0,
            clock: Clock::Off,
        }
    }

    /// The body is awaited. Nothing happens when it was already.
    pub fn run(&mut self, now: Time) {
        self.clock.run(now);
    }

    /// Stops the clock: the other side is the reason that nothing moves.
    pub fn pause(&mut self, now: Time) {
        self.clock.pause(now);
    }

    /// The body has ended, or is not wanted any more.
    pub fn stop(&mut self) {
        self.clock = Clock::Off;
    }

    /// `bytes` have come. Those that came before the body was awaited do not count.
    pub fn progress(&mut self, bytes: u64) {
        if self.clock != Clock::Off {
            self.moved = self.moved.saturating_add(bytes);
        }
    }

    /// Which of the two rules is broken, with what was observed: bytes per second, or milliseconds.
    #[must_use]
    pub fn overdue(&self, now: Time) -> Option<(Reason, u64)> {
        let due = |length| self.clock.reaches(length).is_some_and(|at| at <= now);
        let spent = self.clock.spent(now);
        let average = GRACE.max(worth(self.moved, self.rate));
        if self.rate > 0 && due(average) {
            let observed = u128::from(self.moved) * 1_000 / spent.as_millis().max(1);
            return Some((
                Reason::MinBodyRate,
                u64::try_from(observed).unwrap_or(u64::MAX),
            ));
        }
        (!self.total.is_zero() && due(self.total)).then(|| (Reason::BodyTimeout, millis(spent)))
    }

    /// When the body is too slow, if nothing more of it comes and the clock runs.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if !matches!(self.clock, Clock::Running { .. }) {
            return None;
        }
        let average = (self.rate > 0).then(|| GRACE.max(worth(self.moved, self.rate)));
        let total = (!self.total.is_zero()).then_some(self.total);
        let length = match (average, total) {
            (Some(average), Some(total)) => average.min(total),
            (average, total) => average.or(total)?,
        };
        self.clock.reaches(length)
    }
}

/// The time after which `bytes` are an average of `rate`.
fn worth(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenths: u64) -> Time {
        Time(1_000_000_000_000 + tenths * 100_000_000)
    }

    fn hundred() -> Pace {
        Pace::new(100, Duration::ZERO)
    }

    #[test]
    fn i20_nothing_is_judged_in_the_grace_and_the_average_afterwards() {
        let mut pace = hundred();
        assert_eq!(pace.deadline(), None);
        pace.run(at(0));
        assert_eq!(pace.deadline(), Some(at(20)));
        pace.progress(199);
        assert_eq!(pace.deadline(), Some(at(20)));
        // 500 bytes are 100 B/s for five seconds, however they were spread.
        pace.progress(301);
        assert_eq!(pace.deadline(), Some(at(50)));
    }

    #[test]
    fn i20_bytes_before_the_first_window_do_not_count() {
        let mut pace = hundred();
        pace.progress(1_000_000);
        pace.run(at(0));
        assert_eq!(pace.deadline(), Some(at(20)));
    }

    #[test]
    fn i20_the_clock_stands_still_while_toron_does_not_read() {
        let mut pace = hundred();
        pace.run(at(0));
        pace.pause(at(10));
        assert_eq!(pace.deadline(), None);
        pace.progress(300);
        pace.run(at(500));
        assert_eq!(pace.deadline(), Some(at(520)));
    }

    #[test]
    fn i20_a_rate_of_zero_is_off() {
        let mut pace = Pace::new(0, Duration::ZERO);
        pace.run(at(0));
        assert_eq!(pace.deadline(), None);
    }

    #[test]
    fn i21_no_rate_extends_the_total() {
        let mut pace = Pace::new(100, Duration::from_secs(30));
        pace.run(at(0));
        assert_eq!(pace.deadline(), Some(at(20)));
        pace.progress(u64::MAX);
        assert_eq!(pace.deadline(), Some(at(300)));
        pace.stop();
        assert_eq!(pace.deadline(), None);
    }

    #[test]
    fn i21_the_total_holds_without_a_rate() {
        let mut pace = Pace::new(0, Duration::from_secs(3));
        pace.run(at(0));
        pace.pause(at(10));
        pace.run(at(40));
        assert_eq!(pace.deadline(), Some(at(60)));
    }
}
