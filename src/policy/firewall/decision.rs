//! What the firewall decides, with the numbers that explain it.

use crate::http::Answer;

/// Why a connection or request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// The address is on the deny list. Limit 0, observed 1.
    Denied,
    /// A block is in force. Limit: its length in seconds; observed: how long it has lasted.
    Blocked,
    /// The bucket is empty, and that was the violation that led to a block (F1). Limit: violations
    /// that do; observed: violations.
    AutoBlocked,
    /// The bucket is empty. Limit: requests per second that are let in; observed: requests that
    /// came in this second or the one before, whichever saw more.
    RateLimit,
    /// Too many connections in all. Limit: how many may be open; observed: with this one.
    ConnectionLimit,
    /// Too many connections of the address. Limit and observed as above.
    AddressConnectionLimit,
}

impl Reason {
    /// All of them, for counters.
    pub const ALL: [Reason; 6] = [
        Reason::Denied,
        Reason::Blocked,
        Reason::AutoBlocked,
        Reason::RateLimit,
        Reason::ConnectionLimit,
        Reason::AddressConnectionLimit,
    ];

    /// A stable name for logs and metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Reason::Denied => "denied",
            Reason::Blocked => "blocked",
            Reason::AutoBlocked => "auto_blocked",
            Reason::RateLimit => "rate_limit",
            Reason::ConnectionLimit => "connection_limit",
            Reason::AddressConnectionLimit => "address_connection_limit",
        }
    }

    /// The setting that the limit comes from.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            Reason::Denied => "firewall.deny",
            Reason::Blocked => "firewall.block_duration",
            Reason::AutoBlocked => "firewall.auto_block_threshold",
            Reason::RateLimit => "firewall.rate_limit_rps",
            Reason::ConnectionLimit => "firewall.max_connections_total",
            Reason::AddressConnectionLimit => "firewall.max_connections_per_ip",
        }
    }
}

/// What is wrong, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause {
    /// Which rule.
    pub reason: Reason,
    /// Its limit, in the unit that [`Reason`] says.
    pub limit: u64,
    /// What was observed, in the same unit.
    pub observed: u64,
    /// Whole seconds after which it is worth trying again, if that is known.
    pub retry_after: Option<u32>,
}

impl Cause {
    /// What the client is told.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let retry_after = self.retry_after;
        match self.reason {
            Reason::Denied | Reason::Blocked | Reason::AutoBlocked => {
                Answer::AddressBlocked { retry_after }
            }
            Reason::RateLimit => Answer::RateLimited {
                retry_after: retry_after.unwrap_or(1),
            },
            Reason::ConnectionLimit => Answer::ConnectionLimit,
            Reason::AddressConnectionLimit => Answer::AddressConnectionLimit,
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
