//! The time of day, for logs and `Date`.
//!
//! A reactor's clock is monotonic. The wall clock is looked at once a second, and in between counted
//! on from there: neither a log line nor a response costs a system call or an allocation.

use std::io::Write as _;
use std::time::{Duration, SystemTime};

use toron_reactor::Time;

/// Length of an HTTP date (RFC 9110 section 5.6.7).
pub(crate) const DATE: usize = 29;
/// How long the wall clock is counted on before it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct WallClock {
    looked: Option<(Time, SystemTime)>,
    /// The second that `date` shows.
    shown: Option<u64>,
    date: [u8; DATE],
}

impl WallClock {
    /// The time of day at `now`.
    pub(crate) fn at(&mut self, now: Time) -> SystemTime {
        match self.looked {
            Some((at, wall)) if now.since(at) < LOOK_AGAIN => wall + now.since(at),
            _ => {
                let wall = SystemTime::now();
                self.looked = Some((now, wall));
                wall
            }
        }
    }

    /// The value of a `Date` field at `now`.
    pub(crate) fn date(&mut self, now: Time) -> [u8; DATE] {
        let wall = self.at(now);
        let second = wall
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        if self.shown != Some(second) {
            self.shown = Some(second);
            // The text of a date has exactly that length.
            let _ = write!(&mut self.date[..], "{}", httpdate::HttpDate::from(wall));
        }
        self.date
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_moves_with_the_clock_of_the_reactor() {
        let mut clock = WallClock::default();
        let begin = Time(5_000_000_000);
        let date = clock.date(begin);
        let first = httpdate::parse_http_date(&String::from_utf8_lossy(&date));
        let before = clock.at(begin);
        let later = clock.at(begin + Duration::from_millis(999));
        assert_eq!(later, before + Duration::from_millis(999));
        let off = |date| before.duration_since(date).map(|off| off.as_secs());
        assert!(matches!(first.map(off), Ok(Ok(0))), "{date:?} {before:?}");
        // Then it is looked at again: no second has passed in truth.
        assert!(clock.at(begin + Duration::from_secs(1)) < later);
    }
}
