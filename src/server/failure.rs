//! What goes wrong with upstreams, told to the operator.

use std::fmt;
use std::time::Duration;

use toron_reactor::{Engine, Time};

use super::session::Session;
use super::Kit;
use crate::http::Reason;

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

/// What the upstream did that ends in this, unless it was told before with its cause.
pub(super) fn of(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::UpstreamClosed => Some("closed the connection before a response"),
        Reason::ResponseHeaderTimeout => Some("no response head within response_header_timeout"),
        Reason::UpstreamIdleTimeout => {
            Some("took no byte of the request within upstream_idle_timeout")
        }
        Reason::HeaderDeadline => Some("header_deadline passed before a response head"),
        Reason::RequestDeadline => Some("request_deadline passed before a response"),
        _ => None,
    }
}

impl<E: Engine> Kit<'_, '_, E> {
    /// Logs what went wrong with the upstream of the request under way: its route, its target and
    /// the address that was dialled, and `what`.
    pub(super) fn tell_failure(&mut self, session: &Session, what: &dyn fmt::Display) {
        let Some(left_out) = self.core.gate.pass(self.cx.now) else {
            return;
        };
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        let Some(route) = exchange.route() else {
            return;
        };
        let target = exchange.tried_target();
        let url = target.map(|target| target.url()).unwrap_or_default();
        let name = &route.name;
        match exchange.address {
            Some(address) => {
                log::warn!("route {name}: upstream {url} at {address}: {what}{left_out}");
            }
            None => log::warn!("route {name}: upstream {url}: {what}{left_out}"),
        }
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
