//! Lines of the log that would come with every request: one a second is enough.

use std::fmt;
use std::time::Duration;

use toron_reactor::Time;

/// Lets one line a second through to the log: what happens with every request is told once, not as
/// often as there are requests.
#[derive(Debug, Default)]
pub(crate) struct LogGate {
    next: Time,
    left_out: u64,
}

/// Lines that were left out since the last, as the end of the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            n => write!(f, " ({n} more since the last such line)"),
        }
    }
}

impl LogGate {
    /// Whether to log now, and how many lines were left out since the last.
    pub(crate) fn pass(&mut self, now: Time) -> Option<LeftOut> {
        if now < self.next {
            self.left_out += 1;
            return None;
        }
        self.next = now + Duration::from_secs(1);
        Some(LeftOut(std::mem::take(&mut self.left_out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_passes_and_tells_of_the_others() {
        let mut gate = LogGate::default();
        let start = Time(5_000_000_000);
        assert_eq!(gate.pass(start), Some(LeftOut(0)));
        let soon = start + Duration::from_millis(999);
        assert_eq!((gate.pass(soon), gate.pass(soon)), (None, None));
        let next = gate.pass(start + Duration::from_secs(1));
        assert_eq!(next, Some(LeftOut(2)));
        assert_eq!(LeftOut(0).to_string(), "");
        assert_eq!(LeftOut(2).to_string(), " (2 more since the last such line)");
    }
}
