//! The deadlines of a client that sends a body: the sliding window, the rate and the total time. The
//! strictest severs; all of them run only while the body is awaited and toron reads (I18 to I21).

use toron_reactor::Time;

use super::clock::{self, millis};
use super::pace::Pace;
use super::window::{Shortfall, Window};
use crate::http::Reason;

/// See the module text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    window: Window,
    pace: Pace,
}

impl Reading {
    /// For a body that is not awaited yet.
    #[must_use]
    pub fn new(window: Window, pace: Pace) -> Self {
        Reading { window, pace }
    }

    /// The body is awaited.
    pub fn run(&mut self, now: Time) {
        self.window.run(now);
        self.pace.run(now);
    }

    /// toron does not read: the upstream is the reason that nothing moves.
    pub fn pause(&mut self, now: Time) {
        self.window.pause(now);
        self.pace.pause(now);
    }

    /// The body has ended, or is not wanted any more.
    pub fn stop(&mut self) {
        self.window.stop();
        self.pace.stop();
    }

    /// `bytes` have come; `outstanding` are still to come after them (`u64::MAX` when unknown).
    pub fn progress(&mut self, now: Time, bytes: u64, outstanding: u64) {
        self.window.progress(now, bytes, outstanding);
        self.pace.progress(bytes);
    }

    /// Which rule the client breaks, with what was observed: bytes per second for
    /// [`Reason::MinBodyRate`], milliseconds for the others.
    #[must_use]
    pub fn overdue(&self, now: Time) -> Option<(Reason, u64)> {
        if self.window.deadline().is_some_and(|at| at <= now) {
            return Some((Reason::ReadTimeout, millis(self.window.spent(now))));
        }
        self.pace.overdue(now)
    }

    /// How much of its quota the present window has, with `outstanding` bytes still to come.
    #[must_use]
    pub fn shortfall(&self, outstanding: u64) -> Shortfall {
        self.window.shortfall(outstanding)
    }

    /// When the client is too slow.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        clock::earliest([self.window.deadline(), self.pace.deadline()])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn reading(read_timeout: u64, rate: u64) -> Reading {
        Reading::new(
            Window::new(Duration::from_secs(read_timeout), 1024),
            Pace::new(rate, Duration::ZERO),
        )
    }

    #[test]
    fn i20_the_stricter_rule_severs() {
        let begin = Time(1_000_000_000_000);
        let mut window_first = reading(1, 100);
        window_first.run(begin);
        assert_eq!(
            window_first.deadline(),
            Some(begin + Duration::from_secs(1))
        );
        let mut rate_first = reading(5, 100);
        rate_first.run(begin);
        assert_eq!(rate_first.deadline(), Some(begin + Duration::from_secs(2)));
        // 600 bytes are enough for six seconds of the rate: the window is the stricter one.
        rate_first.progress(begin + Duration::from_secs(1), 600, 1 << 20);
        assert_eq!(rate_first.deadline(), Some(begin + Duration::from_secs(5)));
    }

    #[test]
    fn i19_both_clocks_stand_still_together() {
        let begin = Time(1_000_000_000_000);
        let mut reading = reading(1, 100);
        reading.run(begin);
        reading.pause(begin + Duration::from_millis(100));
        assert_eq!(reading.deadline(), None);
        reading.run(begin + Duration::from_secs(60));
        let left = Duration::from_millis(900);
        assert_eq!(
            reading.deadline(),
            Some(begin + Duration::from_secs(60) + left)
        );
    }
}
