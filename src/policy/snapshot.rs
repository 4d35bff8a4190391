//! All that holds at one moment, settings and routes together.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::bulkhead::{Bulkhead, Bulkheads, Permit};
use super::router::Table;
use super::settings::{Route, Settings};

/// All that holds at one moment. Shared as [`SharedSnapshot`] and swapped whole; a transaction
/// keeps the one it began with.
#[derive(Debug)]
pub struct Snapshot {
    /// Settings of the process.
    pub settings: Arc<Settings>,
    /// All routes, in order of matching, and how the one of a request is found.
    pub table: Table,
    /// The counters of the routes, by their ids.
    bulkheads: Vec<Arc<Bulkhead>>,
}

impl Snapshot {
    /// A configuration whose routes have no request in flight.
    #[must_use]
    pub fn new(settings: Arc<Settings>, table: Table) -> Self {
        let bulkheads = Bulkheads::default().of(&table);
        Snapshot {
            settings,
            table,
            bulkheads,
        }
    }

    /// Before it takes the place of another: counts on where routes were known before (I17), and
    /// makes its routes known.
    pub fn keep_counters(&mut self, known: &mut Bulkheads) {
        self.bulkheads = known.of(&self.table);
    }

    /// A slot for a request of `route`, one of this table; `None` when the route is full (I12).
    #[must_use]
    pub fn admit(&self, route: &Route) -> Option<Permit> {
        let bulkhead = self.bulkheads.get(route.id as usize)?;
        bulkhead.acquire(route.limits.max_concurrency)
    }

    /// How many requests of a route are in flight.
    #[must_use]
    pub fn in_flight_of(&self, route: &Route) -> u32 {
        let bulkhead = self.bulkheads.get(route.id as usize);
        bulkhead.map_or(0, |bulkhead| bulkhead.in_flight())
    }

    /// Every route with the number of its requests in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = (&Arc<Route>, u32)> {
        let counts = self.bulkheads.iter().map(|b| b.in_flight());
        self.table.routes().iter().zip(counts)
    }
}

/// How reactors get at the present [`Snapshot`].
pub type SharedSnapshot = Arc<ArcSwap<Snapshot>>;
