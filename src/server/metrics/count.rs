//! Counting, where it happens: each of these is a few plain additions to cells of this reactor.

use std::rc::Rc;
use std::sync::Arc;

use toron_reactor::{Engine, Time};

use super::cells::{Deadline, TURN, TURNS_PER_SAMPLE};
use crate::http::Reason;
use crate::policy::route_stats::{Exchanged, RouteCells};
use crate::policy::snapshot::Snapshot;
use crate::server::state::Exchange;
use crate::server::{Core, Pinned};

/// The cells of routes that this reactor writes, by the ids of the routes in the present
/// configuration; filled as routes are used.
pub(crate) type CellsOfRoutes = Vec<Option<Arc<RouteCells>>>;

/// Room for a configuration with so many routes.
pub(crate) fn no_cells(routes: usize) -> CellsOfRoutes {
    std::iter::repeat_with(|| None).take(routes).collect()
}

impl Core {
    /// A request has been answered without a transaction; the route that it was for, if any, is one
    /// of the present configuration.
    pub(crate) fn count_answer(&mut self, route: Option<usize>, status: u16) {
        self.cells.received.add(1);
        let Some(route) = route else {
            return self.cells.unrouted.count(status);
        };
        let snapshot = Rc::clone(&self.snapshot);
        self.with_cells(&snapshot, route, |cells| cells.answered(status));
    }

    /// A transaction has ended.
    pub(crate) fn count_exchange(&mut self, exchange: &Exchange, now: Time) {
        let micros = |until: Time| until.0.saturating_sub(exchange.started.0) / 1_000;
        let request = Exchanged {
            status: exchange.status,
            to_head: exchange.moments.answered.map(micros),
            in_all: (exchange.status != 101).then(|| micros(now)),
            bytes_in: exchange.bytes_in,
            bytes_out: exchange.bytes_out,
        };
        self.with_cells(&exchange.snapshot, exchange.route, |cells| {
            cells.exchanged(&request);
        });
    }

    /// A request or connection was refused or cut off; its route, if any, is one of `snapshot`.
    pub(crate) fn count_refusal(&self, snapshot: &Snapshot, route: Option<usize>, reason: Reason) {
        match route.and_then(|route| snapshot.stats(route)) {
            Some(stats) => stats.refuse(reason),
            None => {
                if let Some(counter) = self.cells.refusals.get(reason.index()) {
                    counter.add(1);
                }
            }
        }
        if let Some(which) = Deadline::behind(reason) {
            self.cells.deadline(which);
        }
    }

    /// At the end of a turn: how long one in some turns took.
    pub(crate) fn time_turn<E: Engine>(&self, engine: &E) {
        if engine.stats().turns % TURNS_PER_SAMPLE == 0 {
            let taken = engine.clock().0.saturating_sub(engine.now().0);
            self.cells.turns.record(&TURN, taken);
        }
    }

    /// Calls `count` with this reactor's cells of a route of `snapshot`. Those of the present
    /// configuration are at hand; those of an older one, for what began before a reload, are asked
    /// for.
    fn with_cells(&mut self, snapshot: &Rc<Pinned>, route: usize, count: impl FnOnce(&RouteCells)) {
        let is_current = Rc::ptr_eq(snapshot, &self.snapshot);
        let place = self.route_cells.get_mut(route).filter(|_| is_current);
        if let Some(Some(cells)) = place {
            return count(cells);
        }
        let Some(stats) = snapshot.stats(route) else {
            return;
        };
        let cells = stats.cells(self.reactor);
        count(&cells);
        if let Some(place) = place {
            *place = Some(cells);
        }
    }
}
