//! Monotonic time as a plain number, so that a simulator can make it up.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since an arbitrary origin (`CLOCK_MONOTONIC` in the real engines).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    /// Saturates at the end of time (584 years after the origin).
    fn add(self, d: Duration) -> Time {
        Time(
            self.0
                .saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    /// Saturates at zero.
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}
