//! What a reactor counts as it goes, for `/metrics`: it alone writes, whoever is asked reads.

use crate::http::Reason;
use crate::policy::counter::{Buckets, Counter, Histogram};
use crate::policy::firewall::Decision;
use crate::policy::route_stats::Ended;

/// A limit in time that a peer was held to. The names are those of the settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// The head of a request (I3).
    Header,
    /// Silence between requests, or before the first.
    Idle,
    /// The body of a request: `read_timeout`, `min_body_rate` or `body_timeout` (I18, I20, I21).
    Read,
    /// The client's taking of a response (I29).
    Write,
    /// Establishing an upstream connection (I23); also where another target is tried then.
    Connect,
    /// The head of a response (I24).
    ResponseHeader,
    /// An upstream that neither takes nor sends (I26).
    UpstreamIdle,
    /// A tunnel in which nothing moves (R14).
    UpgradeIdle,
    /// From the request to the response head (I32).
    HeaderDeadline,
    /// From the request to its end (I33).
    RequestDeadline,
    /// Requests in flight when the process ends.
    ShutdownGrace,
}

impl Deadline {
    /// All of them, in order.
    pub const ALL: [Deadline; 11] = [
        Deadline::Header,
        Deadline::Idle,
        Deadline::Read,
        Deadline::Write,
        Deadline::Connect,
        Deadline::ResponseHeader,
        Deadline::UpstreamIdle,
        Deadline::UpgradeIdle,
        Deadline::HeaderDeadline,
        Deadline::RequestDeadline,
        Deadline::ShutdownGrace,
    ];

    /// The one that ended a request or connection for this reason.
    #[must_use]
    pub fn behind(reason: Reason) -> Option<Deadline> {
        match reason {
            Reason::HeaderTimeout => Some(Deadline::Header),
            Reason::ReadTimeout | Reason::MinBodyRate | Reason::BodyTimeout => Some(Deadline::Read),
            Reason::WriteTimeout => Some(Deadline::Write),
            Reason::ResponseHeaderTimeout => Some(Deadline::ResponseHeader),
            Reason::UpstreamIdleTimeout => Some(Deadline::UpstreamIdle),
            Reason::UpgradeIdleTimeout => Some(Deadline::UpgradeIdle),
            Reason::HeaderDeadline => Some(Deadline::HeaderDeadline),
            Reason::RequestDeadline => Some(Deadline::RequestDeadline),
            Reason::Shutdown => Some(Deadline::ShutdownGrace),
            // A connect_timeout is counted when it passes: another target may be tried then.
            _ => None,
        }
    }

    /// The name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Deadline::Header => "header_timeout",
            Deadline::Idle => "idle_timeout",
            Deadline::Read => "read_timeout",
            Deadline::Write => "write_timeout",
            Deadline::Connect => "connect_timeout",
            Deadline::ResponseHeader => "response_header_timeout",
            Deadline::UpstreamIdle => "upstream_idle_timeout",
            Deadline::UpgradeIdle => "upgrade_idle_timeout",
            Deadline::HeaderDeadline => "header_deadline",
            Deadline::RequestDeadline => "request_deadline",
            Deadline::ShutdownGrace => "shutdown_grace",
        }
    }
}

/// Buckets of the time that a turn takes, in nanoseconds: from a turn for one event to a stall that
/// users notice.
pub const TURN: Buckets<11> = Buckets {
    bounds: [
        20_000,
        50_000,
        100_000,
        200_000,
        500_000,
        1_000_000,
        2_000_000,
        5_000_000,
        10_000_000,
        50_000_000,
        250_000_000,
    ],
    per_second: 1_000_000_000,
};

/// One turn in so many is timed. That takes a second reading of the clock.
pub const TURNS_PER_SAMPLE: u64 = 16;

/// The cells of one reactor. In cache lines of their own (the prefetcher loads pairs).
#[derive(Debug)]
#[repr(align(128))]
pub struct Cells {
    /// Client connections accepted, those included that were refused at once.
    pub connections: Counter,
    /// Requests that were read to the end of their head, or refused before.
    pub received: Counter,
    /// Fields that were not passed on, as there was an underscore in their name (I4).
    pub underscores: Counter,
    /// Ended requests that no route took.
    pub unrouted: Ended,
    /// Refused or cut off without a route, by [`Reason::index`].
    pub refusals: [Counter; Reason::COUNT],
    /// Deadlines that passed, in the order of [`Deadline::ALL`].
    deadlines: [Counter; Deadline::ALL.len()],
    /// Upstream connections that stood.
    pub dialled: Counter,
    /// Upstream connections that could not be made.
    pub dials_failed: Counter,
    /// Idle upstream connections that were used again.
    pub reused: Counter,
    /// Violations (F1) by requests beyond the rate.
    pub rate_violations: Counter,
    /// Violations by slowness (F5).
    pub slowness_violations: Counter,
    /// Automatic blocks for requests beyond the rate.
    pub rate_blocks: Counter,
    /// Automatic blocks for slowness.
    pub slowness_blocks: Counter,
    /// How long turns took, without the wait for something to do; a sample.
    pub turns: Histogram<{ TURN.bounds.len() }>,
}

impl Default for Cells {
    fn default() -> Self {
        Cells {
            connections: Counter::default(),
            received: Counter::default(),
            underscores: Counter::default(),
            unrouted: Ended::default(),
            refusals: std::array::from_fn(|_| Counter::default()),
            deadlines: std::array::from_fn(|_| Counter::default()),
            dialled: Counter::default(),
            dials_failed: Counter::default(),
            reused: Counter::default(),
            rate_violations: Counter::default(),
            slowness_violations: Counter::default(),
            rate_blocks: Counter::default(),
            slowness_blocks: Counter::default(),
            turns: Histogram::default(),
        }
    }
}

impl Cells {
    /// A request was one too many, and so a violation (F1).
    pub fn count_violation(&self, decision: &Decision) {
        let reason = decision.cause().map(|cause| cause.reason);
        if let Some(Reason::RateLimit | Reason::AutoBlocked) = reason {
            self.rate_violations.add(1);
        }
        if reason == Some(Reason::AutoBlocked) {
            self.rate_blocks.add(1);
        }
    }

    /// A deadline has passed.
    pub fn deadline(&self, which: Deadline) {
        if let Some(counter) = self.deadlines.get(which as usize) {
            counter.add(1);
        }
    }

    /// How often a deadline has passed.
    #[must_use]
    pub fn deadlines(&self, which: Deadline) -> u64 {
        self.deadlines.get(which as usize).map_or(0, Counter::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_has_a_counter_and_a_name_of_its_own() {
        let cells = Cells::default();
        for (at, which) in Deadline::ALL.into_iter().enumerate() {
            (0..=at).for_each(|_| cells.deadline(which));
        }
        for (at, which) in Deadline::ALL.into_iter().enumerate() {
            assert_eq!(cells.deadlines(which), at as u64 + 1);
            let same = Deadline::ALL
                .iter()
                .filter(|d| d.as_str() == which.as_str());
            assert_eq!(same.count(), 1);
        }
    }
}
