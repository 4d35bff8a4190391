//! What a metric is made of: a row of a table.

use std::cell::OnceCell;

use toron_reactor::Time;

use super::cells::Cells;
use super::process::Process;
use super::text::{Kind, Text};
use crate::policy::settings::Route;
use crate::policy::snapshot::Snapshot;
use crate::server::shared::{Shared, Totals};

/// A metric: its name by the conventions of Prometheus, and where its samples come from.
pub struct Family {
    /// Ends in the unit (base units: seconds, bytes), and in `_total` if it only goes up.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// One or two sentences for operators; no backslash, no line feed.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Its samples.
    pub samples: Samples,
}

/// How the samples of a family are written. Each call must be quick: it runs on a reactor.
#[derive(Clone, Copy)]
pub enum Samples {
    /// All at once: a few.
    Once(fn(&View<'_>, &mut Text<'_>)),
    /// Those of one route per call.
    Routes(Each),
    /// At first what no route took, then as with `Routes`.
    Requests(fn(&View<'_>, &mut Text<'_>), Each),
}

/// Writes the samples of one route, by its id.
pub type Each = fn(&View<'_>, usize, &Route, &mut Text<'_>);

/// What samples are taken from.
pub struct View<'a> {
    /// What all reactors share.
    pub shared: &'a Shared,
    /// The configuration whose routes are told of.
    pub snapshot: &'a Snapshot,
    /// Sums over the reactors.
    pub totals: Totals,
    /// The time of this turn.
    pub now: Time,
    process: OnceCell<Option<Process>>,
}

impl<'a> View<'a> {
    /// Of this moment.
    #[must_use]
    pub fn new(shared: &'a Shared, snapshot: &'a Snapshot, now: Time) -> Self {
        View {
            shared,
            snapshot,
            totals: shared.total(),
            now,
            process: OnceCell::new(),
        }
    }

    /// What each reactor counts.
    pub fn cells(&self) -> impl Iterator<Item = &'a Cells> {
        self.shared.gauges.iter().map(|gauge| &*gauge.cells)
    }

    /// The sum of one counter over all reactors.
    pub fn sum(&self, of: impl Fn(&Cells) -> u64) -> u64 {
        self.cells().map(of).sum()
    }

    /// What the kernel says about this process.
    pub fn process(&self) -> Option<&Process> {
        self.process.get_or_init(Process::here).as_ref()
    }
}

/// The label that names a route.
pub fn route_label(route: &Route) -> (&'static str, &str) {
    ("route", &route.name)
}

/// The label of what no route took.
pub const NO_ROUTE: (&str, &str) = ("route", "");
