//! How many requests of a route are in flight, and whether there is room for one more (I12 to I17).
//!
//! One counter per route for the whole process. A request holds a [`Permit`] from the moment it is
//! admitted; whatever ends it drops the permit, and only that takes it off the counter (I14). The
//! cap is not kept here: it comes with each request from the configuration the request runs with,
//! so that a reload changes the cap and not the count (I17). Routes without a cap are counted as
//! well: one may get a cap while its requests are in flight.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use super::by_route::ByRoute;

/// The counter of one route, shared by all reactors.
///
/// Nothing else is published by way of the counter, so its operations need no ordering beyond its
/// own.
#[derive(Debug, Default)]
pub struct Bulkhead {
    in_flight: AtomicU32,
}

impl Bulkhead {
    /// A slot, unless `cap` are taken (`None` is no cap). However many ask at the same time, no more
    /// than `cap` get one. After the cap was lowered there may be more in flight than it allows;
    /// then none is given until there are fewer.
    #[must_use]
    pub fn acquire(self: &Arc<Self>, cap: Option<u32>) -> Option<Permit> {
        let cap = cap.unwrap_or(u32::MAX);
        self.in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                (taken < cap).then_some(taken + 1)
            })
            .is_ok()
            .then(|| Permit(Arc::clone(self)))
    }

    /// Requests in flight at this moment.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// A slot of a [`Bulkhead`]. Dropping it is the one way to give it back, and cannot happen twice.
#[derive(Debug)]
#[must_use = "a slot that is dropped is free again"]
pub struct Permit(Arc<Bulkhead>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The counters of all routes, kept over reloads: a route that stays keeps its counter (I17), and
/// one that comes back meets its old requests.
pub type Bulkheads = ByRoute<Bulkhead>;

#[cfg(test)]
#[path = "bulkhead_tests.rs"]
mod tests;
