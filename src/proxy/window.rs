//! A sliding deadline with a minimum of progress (I18, I19, I29).

use std::time::Duration;

use toron_reactor::Time;

use super::clock::Clock;

/// A window of `length`: within it at least `quota` bytes must move. When they have, the next
/// window begins at that moment; when they have not, the deadline has passed. While paused the
/// clock stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    length: Duration,
    quota: u64,
    /// Of the present window.
    clock: Clock,
    moved: u64,
}

/// What moved in a window, and what had to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// Bytes that moved in it.
    pub moved: u64,
    /// Bytes that end it: the quota, or what was outstanding where that is less.
    pub needed: u64,
}

impl Window {
    /// A window that has not begun. A `length` of zero means that there is no deadline.
    #[must_use]
    pub fn new(length: Duration, quota: u64) -> Self {
        Window {
            length,
            quota,
            clock: Clock::Off,
            moved: 0,
        }
    }

    /// Begins the first window, or goes on after a pause. Nothing happens when it runs already.
    pub fn run(&mut self, now: Time) {
        self.clock.run(now);
    }

    /// Stops the clock: the other side is the reason that nothing moves.
    pub fn pause(&mut self, now: Time) {
        self.clock.pause(now);
    }

    /// Ends the window for good.
    pub fn stop(&mut self) {
        self.clock = Clock::Off;
        self.moved = 0;
    }

    /// `bytes` have moved; `outstanding` are still to come after them (`u64::MAX` when unknown).
    /// The quota of a window is never more than what was outstanding in it.
    pub fn progress(&mut self, now: Time, bytes: u64, outstanding: u64) {
        if self.clock == Clock::Off {
            return;
        }
        self.moved = self.moved.saturating_add(bytes);
        if self.moved >= self.needed(outstanding) {
            self.clock.restart(now);
            self.moved = 0;
        }
    }

    fn needed(&self, outstanding: u64) -> u64 {
        // What was outstanding when the window had the fewest bytes is `outstanding + moved`.
        let most = outstanding.saturating_add(self.moved);
        self.quota.min(most).max(1)
    }

    /// How much of its quota the present window has, with `outstanding` bytes still to come.
    #[must_use]
    pub fn shortfall(&self, outstanding: u64) -> Shortfall {
        Shortfall {
            moved: self.moved,
            needed: self.needed(outstanding),
        }
    }

    /// How long the window has lasted.
    #[must_use]
    pub fn spent(&self, now: Time) -> Duration {
        self.clock.spent(now)
    }

    /// When the window ends, if its clock runs.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let ends = self.clock.reaches(self.length)?;
        (!self.length.is_zero()).then_some(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(tenths: u64) -> Time {
        Time(1_000 * SECOND + tenths * SECOND / 10)
    }

    fn five_seconds() -> Window {
        Window::new(Duration::from_secs(5), 1024)
    }

    #[test]
    fn i18_a_window_ends_when_its_quota_is_reached_and_not_before() {
        let mut w = five_seconds();
        assert_eq!(w.deadline(), None);
        w.run(at(0));
        w.progress(at(49), 1023, 1_000_000);
        assert_eq!(w.deadline(), Some(at(50)));
        w.progress(at(49), 1, 999_999);
        assert_eq!(w.deadline(), Some(at(99)));
    }

    #[test]
    fn i18_the_quota_is_never_more_than_what_is_outstanding() {
        let mut w = five_seconds();
        w.run(at(0));
        w.progress(at(10), 19, 1);
        assert_eq!(w.deadline(), Some(at(50)));
        let short = |moved, needed| Shortfall { moved, needed };
        assert_eq!(w.shortfall(1), short(19, 20));
        assert_eq!(w.shortfall(u64::MAX), short(19, 1024));
        w.progress(at(20), 1, 0);
        assert_eq!(w.deadline(), Some(at(70)));
    }

    #[test]
    fn i19_a_pause_extends_the_deadline_by_its_length() {
        let mut w = five_seconds();
        w.run(at(0));
        w.pause(at(30));
        assert_eq!(w.deadline(), None);
        w.run(at(1_000));
        assert_eq!(w.deadline(), Some(at(1_020)));
    }

    #[test]
    fn i19_a_quota_of_zero_leaves_only_the_pause_rule() {
        let mut w = Window::new(Duration::from_secs(5), 0);
        w.run(at(0));
        w.progress(at(40), 1, u64::MAX);
        assert_eq!(w.deadline(), Some(at(90)));
        let (moved, needed) = (0, 1);
        assert_eq!(w.shortfall(u64::MAX), Shortfall { moved, needed });
    }

    #[test]
    fn a_length_of_zero_is_no_deadline() {
        let mut w = Window::new(Duration::ZERO, 1024);
        w.run(at(0));
        assert_eq!(w.deadline(), None);
    }
}
