//! A sliding deadline with a minimum of progress (I18, I19, I29).

use std::time::Duration;

use toron_reactor::Time;

/// A window of `length`: within it at least `quota` bytes must move. When they have, the next
/// window begins at that moment; when they have not, the deadline has passed. While paused the
/// clock stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    length: Duration,
    quota: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not begun.
    Off,
    /// Running since `start`, with `moved` bytes in it.
    Running { start: Time, moved: u64 },
    /// Standing still with `spent` on the clock.
    Paused { spent: Duration, moved: u64 },
}

impl Window {
    /// A window that has not begun. A `length` of zero means that there is no deadline.
    #[must_use]
    pub fn new(length: Duration, quota: u64) -> Self {
        Window {
            length,
            quota,
            state: State::Off,
        }
    }

    /// Begins the first window, or goes on after a pause. Nothing happens when it runs already.
    pub fn run(&mut self, now: Time) {
        self.state = match self.state {
            State::Off => State::Running {
                start: now,
                moved: 0,
            },
            State::Running { start, moved } => State::Running { start, moved },
            State::Paused { spent, moved } => State::Running {
                start: Time(now.0.saturating_sub(nanos(spent))),
                moved,
            },
        };
    }

    /// Stops the clock: the other side is the reason that nothing moves.
    pub fn pause(&mut self, now: Time) {
        if let State::Running { start, moved } = self.state {
            self.state = State::Paused {
                spent: now.since(start),
                moved,
            };
        }
    }

    /// Ends the window for good.
    pub fn stop(&mut self) {
        self.state = State::Off;
    }

    /// `bytes` have moved; `outstanding` are still to come after them (`u64::MAX` when unknown).
    /// The quota of a window is never more than what was outstanding in it.
    pub fn progress(&mut self, now: Time, bytes: u64, outstanding: u64) {
        let (moved, restart) = match self.state {
            State::Off => return,
            State::Running { moved, .. } => (
                moved.saturating_add(bytes),
                State::Running {
                    start: now,
                    moved: 0,
                },
            ),
            State::Paused { moved, .. } => (
                moved.saturating_add(bytes),
                State::Paused {
                    spent: Duration::ZERO,
                    moved: 0,
                },
            ),
        };
        // What was outstanding when the window had the fewest bytes is `outstanding + moved`.
        let quota = self.quota.min(outstanding.saturating_add(moved)).max(1);
        self.state = match (self.state, moved >= quota) {
            (State::Off, _) => State::Off,
            (_, true) => restart,
            (State::Running { start, .. }, false) => State::Running { start, moved },
            (State::Paused { spent, .. }, false) => State::Paused { spent, moved },
        };
    }

    /// When the window ends, if its clock runs.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Running { start, .. } if !self.length.is_zero() => Some(start + self.length),
            State::Running { .. } | State::Off | State::Paused { .. } => None,
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
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
    }

    #[test]
    fn a_length_of_zero_is_no_deadline() {
        let mut w = Window::new(Duration::ZERO, 1024);
        w.run(at(0));
        assert_eq!(w.deadline(), None);
    }
}
