//! A stopwatch that can stand still.

use std::time::Duration;

use toron_reactor::Time;

/// Counts time while it runs. A pause leaves what it has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Clock {
    /// Not begun.
    #[default]
    Off,
    /// Counting; `since` is moved forward by what pauses took.
    Running {
        /// When it would have begun without pauses.
        since: Time,
    },
    /// Standing still.
    Paused {
        /// What it has counted.
        spent: Duration,
    },
}

impl Clock {
    /// Begins to count, or goes on after a pause. Nothing happens when it runs already.
    pub fn run(&mut self, now: Time) {
        *self = match *self {
            Clock::Off => Clock::Running { since: now },
            Clock::Running { since } => Clock::Running { since },
            Clock::Paused { spent } => Clock::Running {
                since: Time(now.0.saturating_sub(nanos(spent))),
            },
        };
    }

    /// Stands still, if it runs.
    pub fn pause(&mut self, now: Time) {
        if let Clock::Running { since } = *self {
            *self = Clock::Paused {
                spent: now.since(since),
            };
        }
    }

    /// Counts from zero again, running or paused as before.
    pub fn restart(&mut self, now: Time) {
        *self = match *self {
            Clock::Off => Clock::Off,
            Clock::Running { .. } => Clock::Running { since: now },
            Clock::Paused { .. } => Clock::Paused {
                spent: Duration::ZERO,
            },
        };
    }

    /// What it has counted.
    #[must_use]
    pub fn spent(&self, now: Time) -> Duration {
        match *self {
            Clock::Off => Duration::ZERO,
            Clock::Running { since } => now.since(since),
            Clock::Paused { spent } => spent,
        }
    }

    /// When it will have counted `length`, if it runs.
    #[must_use]
    pub fn reaches(&self, length: Duration) -> Option<Time> {
        match *self {
            Clock::Running { since } => Some(since + length),
            Clock::Off | Clock::Paused { .. } => None,
        }
    }
}

/// The earliest of some deadlines. One at the end of time is none. (Without branches: it is asked for
/// with every event, and an iterator over those that are there took seven times as long.)
#[must_use]
#[inline]
pub fn earliest<const N: usize>(deadlines: [Option<Time>; N]) -> Option<Time> {
    let far = u64::MAX;
    let first = deadlines
        .into_iter()
        .fold(far, |first, at| first.min(at.map_or(far, |at| at.0)));
    (first != far).then_some(Time(first))
}

/// Whole milliseconds.
#[must_use]
pub fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_pause_does_not_count() {
        let begin = Time(5_000_000_000);
        let mut clock = Clock::default();
        clock.pause(begin);
        assert_eq!(clock.reaches(SECOND), None);
        clock.run(begin);
        clock.pause(begin + SECOND);
        clock.run(begin + 9 * SECOND);
        clock.run(begin + 10 * SECOND);
        assert_eq!(clock.reaches(3 * SECOND), Some(begin + 11 * SECOND));
    }

    #[test]
    fn the_earliest_is_found_wherever_it_stands() {
        let at = |n| Some(Time(n));
        assert_eq!(earliest([None, None]), None);
        assert_eq!(earliest([at(u64::MAX), None]), None);
        assert_eq!(earliest([at(3), None, at(2), at(9)]), at(2));
        assert_eq!(earliest([None, at(0), at(u64::MAX)]), at(0));
    }

    #[test]
    fn a_paused_clock_that_restarts_stays_paused() {
        let begin = Time(5_000_000_000);
        let mut clock = Clock::default();
        clock.run(begin);
        clock.pause(begin + SECOND);
        clock.restart(begin + 2 * SECOND);
        assert_eq!(clock.reaches(SECOND), None);
        clock.run(begin + 3 * SECOND);
        assert_eq!(clock.reaches(SECOND), Some(begin + 4 * SECOND));
    }
}
