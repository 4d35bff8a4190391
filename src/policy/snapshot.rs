//! All that holds at one moment, settings and routes together.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::bulkhead::{Bulkhead, Bulkheads, Permit};
use super::by_route::ByRoute;
use super::route_stats::RouteStats;
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
    /// What has been counted of the routes, by their ids.
    stats: Vec<Arc<RouteStats>>,
}

/// What is kept of routes over changes of the configuration: the one value that all snapshots of a
/// process are made known to ([`Snapshot::keep_counters`]).
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests in flight by route.
    pub bulkheads: Bulkheads,
    /// What has been counted by route.
    pub stats: ByRoute<RouteStats>,
}

impl Snapshot {
    /// A configuration whose routes have no request in flight.
    #[must_use]
    pub fn new(settings: Arc<Settings>, table: Table) -> Self {
        let mut snapshot = Snapshot {
            settings,
            table,
            bulkheads: Vec::new(),
            stats: Vec::new(),
        };
        snapshot.keep_counters(&mut Counters::default());
        snapshot
    }

    /// Before it takes the place of another: counts on where routes were known before (I17), and
    /// makes its routes known.
    pub fn keep_counters(&mut self, kept: &mut Counters) {
        self.bulkheads = kept.bulkheads.of(&self.table);
        self.stats = kept.stats.of(&self.table);
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

    /// What is counted of a route, by its id.
    #[must_use]
    pub fn stats(&self, route: usize) -> Option<&Arc<RouteStats>> {
        self.stats.get(route)
    }
}

/// How reactors get at the present [`Snapshot`].
pub type SharedSnapshot = Arc<ArcSwap<Snapshot>>;
