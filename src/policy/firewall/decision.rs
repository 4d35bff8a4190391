//! What the firewall decides, with the numbers that explain it.

use crate::http::{Answer, Reason};

/// What is wrong, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause {
    /// Which rule: one of those that end by [`Party::Firewall`](crate::http::Party::Firewall).
    pub reason: Reason,
    /// Its limit. [`Denied`](Reason::Denied): 0. [`Blocked`](Reason::Blocked): how long the block is,
    /// in seconds. [`AutoBlocked`](Reason::AutoBlocked): violations that lead to one.
    /// [`RateLimit`](Reason::RateLimit): requests per second that are let in. Connection limits: how
    /// many may be open.
    pub limit: u64,
    /// What was observed, in the same unit. [`Denied`](Reason::Denied): 1. A block: how long it has
    /// lasted. [`RateLimit`](Reason::RateLimit): requests that came in this second or the one before,
    /// whichever saw more. Connection limits: with the one that is refused.
    pub observed: u64,
    /// Whole seconds after which it is worth trying again, if that is known.
    pub retry_after: Option<u32>,
}

impl Cause {
    /// What the client is told.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let retry_after = self.retry_after;
        match Answer::to(self.reason) {
            Some(Answer::RateLimited { .. }) => Answer::RateLimited {
                retry_after: retry_after.unwrap_or(1),
            },
            Some(Answer::ConnectionLimit) => Answer::ConnectionLimit,
            Some(Answer::AddressConnectionLimit) => Answer::AddressConnectionLimit,
            _ => Answer::AddressBlocked { retry_after },
        }
    }
}

/// What becomes of a connection or request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Nothing is wrong.
    Admit,
    /// It would be refused, but the mode is to observe: count it, log it, let it in.
    Observe(Cause),
    /// It is refused.
    Refuse(Cause),
}

impl Decision {
    /// What is wrong, if anything.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Decision::Admit => None,
            Decision::Observe(cause) | Decision::Refuse(cause) => Some(cause),
        }
    }

    /// Whether it is let in.
    #[must_use]
    pub fn admits(&self) -> bool {
        !matches!(self, Decision::Refuse(_))
    }
}
