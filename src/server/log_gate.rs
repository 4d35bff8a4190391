//! Lines of the log that would come with every request: one a second is enough.

use std::fmt;
use std::time::Duration;

use toron_reactor::Time;

/// Lets one line a second through to the log: what goes wrong with every request is told once, not
/// as often as there are requests.
#[derive(Debug)]
pub(crate) struct LogGate {
    /// What a line tells of, in the singular.
    what: &'static str,
    next: Time,
    suppressed: u64,
}

/// Lines that were left out since the last, as the end of the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeftOut {
    n: u64,
    what: &'static str,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what;
        match self.n {
            0 => Ok(()),
            1 => write!(
                f,
                " (1 other {what} since the last such line was not logged)"
            ),
            n => write!(
                f,
                " ({n} other {what}s since the last such line were not logged)"
            ),
        }
    }
}

impl LogGate {
    /// For lines of which each tells of one `what`, a noun that takes an s.
    pub(crate) fn of(what: &'static str) -> LogGate {
        LogGate {
            what,
            next: Time::default(),
            suppressed: 0,
        }
    }

    /// Whether to log now, and how many lines were left out since the last.
    pub(crate) fn pass(&mut self, now: Time) -> Option<LeftOut> {
        if now < self.next {
            self.suppressed += 1;
            return None;
        }
        self.next = now + Duration::from_secs(1);
        Some(LeftOut {
            n: std::mem::take(&mut self.suppressed),
            what: self.what,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_passes_and_tells_of_the_others() {
        let mut gate = LogGate::of("refusal");
        let left_out = |n| LeftOut { n, what: "refusal" };
        let start = Time(5_000_000_000);
        assert_eq!(gate.pass(start), Some(left_out(0)));
        let soon = start + Duration::from_millis(999);
        assert_eq!((gate.pass(soon), gate.pass(soon)), (None, None));
        let next = gate.pass(start + Duration::from_secs(1));
        assert_eq!(next, Some(left_out(2)));
        assert_eq!(left_out(0).to_string(), "");
        let one = " (1 other refusal since the last such line was not logged)";
        assert_eq!(left_out(1).to_string(), one);
        let two = " (2 other refusals since the last such line were not logged)";
        assert_eq!(left_out(2).to_string(), two);
    }
}
