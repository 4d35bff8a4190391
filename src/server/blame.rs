//! Why something was refused, and what was answered: what becomes a line of the log and an entry in
//! the list of refusals.

use crate::http::Reason;
use crate::policy::firewall::Cause;
use crate::policy::settings::Route;

/// Why something is refused or cut off, as it is told to operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blame {
    pub(crate) reason: Reason,
    /// Index of the route that was found, in the snapshot of the request.
    pub(crate) route: Option<usize>,
    /// The limit, where it is not simply what the configuration says.
    pub(crate) limit: Option<u64>,
    /// What was observed, in the unit of the limit.
    pub(crate) observed: Option<u64>,
}

impl Blame {
    pub(crate) fn on(self, route: &Route) -> Self {
        Blame {
            route: Some(route.id as usize),
            ..self
        }
    }

    pub(crate) fn with(reason: Reason, observed: u64) -> Self {
        Blame {
            observed: Some(observed),
            ..Blame::from(reason)
        }
    }
}

impl From<Reason> for Blame {
    fn from(reason: Reason) -> Self {
        Blame {
            reason,
            route: None,
            limit: None,
            observed: None,
        }
    }
}

impl From<&Cause> for Blame {
    fn from(cause: &Cause) -> Self {
        Blame {
            limit: Some(cause.limit),
            ..Blame::with(cause.reason, cause.observed)
        }
    }
}

/// An answer outside a transaction, as it is logged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// Status sent; 0 is none.
    pub(crate) status: u16,
    /// Index of the route in the present snapshot.
    pub(crate) route: Option<usize>,
    pub(crate) reason: Option<Reason>,
    /// Bytes of the answer.
    pub(crate) bytes: usize,
}
