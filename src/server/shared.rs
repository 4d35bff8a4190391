//! What all reactors of a server share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use toron_reactor::Stats;

use super::access_log::AccessLog;
use super::ledger::Ledger;
use super::metrics::cells::Cells;
use super::metrics::reloads::Reloads;
use crate::policy::firewall::{Firewall, Flood};
use crate::policy::memory::BufferMemory;
use crate::policy::snapshot::SharedSnapshot;

/// Shared by all reactors and the control threads.
#[derive(Debug)]
pub struct Shared {
    /// The configuration in force.
    pub snapshot: SharedSnapshot,
    /// What is known of client addresses, and how many connections there are. Kept over reloads.
    pub firewall: Arc<Firewall>,
    /// How many refused connections are told why.
    pub flood: Arc<Flood>,
    /// One per reactor.
    pub gauges: Vec<Gauges>,
    /// Where access-log lines go, if anywhere.
    pub access_log: Option<AccessLog>,
    /// What collected bodies hold.
    pub memory: Arc<BufferMemory>,
    /// `/health` says so, responses close their connections.
    pub draining: AtomicBool,
    /// Reactors among which the connections are spread as a rule (one for each core): each keeps its
    /// share of the idle upstream connections.
    pub active: usize,
    /// Which engine runs, for `/internal/api/status`; known when the reactors have started.
    pub engine: OnceLock<&'static str>,
    /// The last refusals.
    pub ledger: Ledger,
    /// How reloads ended.
    pub reloads: Arc<Reloads>,
    /// When the process began to serve (`CLOCK_MONOTONIC`, nanoseconds).
    pub started: AtomicU64,
}

impl Shared {
    /// For `reactors` reactors.
    #[must_use]
    pub fn new(
        snapshot: SharedSnapshot,
        reactors: usize,
        active: usize,
        access_log: Option<AccessLog>,
    ) -> Arc<Self> {
        let firewall = Firewall::new(&snapshot.load().settings.firewall);
        Arc::new(Shared {
            snapshot,
            firewall,
            flood: Arc::default(),
            gauges: (0..reactors).map(|_| Gauges::default()).collect(),
            access_log,
            memory: BufferMemory::new(),
            draining: AtomicBool::new(false),
            active: active.max(1),
            engine: OnceLock::new(),
            ledger: Ledger::new(reactors),
            reloads: Arc::default(),
            started: AtomicU64::new(0),
        })
    }

    /// The sum over all reactors.
    #[must_use]
    pub fn total(&self) -> Totals {
        self.gauges.iter().fold(Totals::default(), Totals::plus)
    }
}

/// What one reactor holds, written by it alone at the end of each turn.
#[derive(Debug, Default)]
// A cache line of its own: reactors write theirs at every turn.
#[repr(align(128))]
pub struct Gauges {
    /// What it counts as it goes.
    pub cells: Arc<Cells>,
    sessions: AtomicU64,
    idle_sessions: AtomicU64,
    exchanges: AtomicU64,
    upstream_connections: AtomicU64,
    upstream_idle: AtomicU64,
    operations: AtomicU64,
    sockets: AtomicU64,
    buffers: AtomicU64,
    pipes: AtomicU64,
    buffers_most: AtomicU64,
    pipes_most: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    observed: AtomicU64,
    out_of_resources: AtomicU64,
    turns: AtomicU64,
    system_calls: AtomicU64,
}

/// What a server counts of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Client connections.
    pub sessions: usize,
    /// Those that wait for a request.
    pub idle_sessions: usize,
    /// Requests in flight.
    pub exchanges: usize,
    /// Upstream connections, idle ones included.
    pub upstream_connections: usize,
    /// Idle upstream connections.
    pub upstream_idle: usize,
    /// Requests begun: what has ended and what is in flight, always.
    pub received: u64,
    /// Requests ended.
    pub requests: u64,
    /// Connections and requests that the firewall refused.
    pub refused: u64,
    /// Those that it would have refused, had it not been told to observe.
    pub observed: u64,
    /// Dials for which there was no descriptor or local port (R21).
    pub out_of_resources: u64,
}

impl Gauges {
    /// Publishes what is held now.
    pub fn publish(&self, counts: Counts, stats: Stats) {
        let set = |cell: &AtomicU64, value: u64| cell.store(value, Ordering::Relaxed);
        let most = |cell: &AtomicU64, value: u64| {
            if value > cell.load(Ordering::Relaxed) {
                set(cell, value);
            }
        };
        set(&self.sessions, counts.sessions as u64);
        set(&self.idle_sessions, counts.idle_sessions as u64);
        set(&self.exchanges, counts.exchanges as u64);
        set(
            &self.upstream_connections,
            counts.upstream_connections as u64,
        );
        set(&self.upstream_idle, counts.upstream_idle as u64);
        set(&self.requests, counts.requests);
        set(&self.refused, counts.refused);
        set(&self.observed, counts.observed);
        set(&self.out_of_resources, counts.out_of_resources);
        set(&self.operations, stats.operations as u64);
        set(&self.sockets, stats.sockets as u64);
        set(&self.buffers, stats.buffers as u64);
        set(&self.pipes, stats.pipes as u64);
        most(&self.buffers_most, stats.buffers as u64);
        most(&self.pipes_most, stats.pipes as u64);
        set(&self.turns, stats.turns);
        set(&self.system_calls, stats.system_calls);
    }
}

/// Sums of [`Gauges`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Totals {
    pub sessions: u64,
    pub idle_sessions: u64,
    pub exchanges: u64,
    pub upstream_connections: u64,
    pub upstream_idle: u64,
    pub operations: u64,
    pub sockets: u64,
    pub buffers: u64,
    pub pipes: u64,
    pub buffers_most: u64,
    pub pipes_most: u64,
    pub received: u64,
    pub requests: u64,
    pub refused: u64,
    pub observed: u64,
    pub out_of_resources: u64,
    pub turns: u64,
    pub system_calls: u64,
    /// Reactors that have ever had a connection.
    pub active_reactors: u64,
}

impl Totals {
    fn plus(self, gauge: &Gauges) -> Totals {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Totals {
            sessions: self.sessions + get(&gauge.sessions),
            idle_sessions: self.idle_sessions + get(&gauge.idle_sessions),
            exchanges: self.exchanges + get(&gauge.exchanges),
            upstream_connections: self.upstream_connections + get(&gauge.upstream_connections),
            upstream_idle: self.upstream_idle + get(&gauge.upstream_idle),
            operations: self.operations + get(&gauge.operations),
            sockets: self.sockets + get(&gauge.sockets),
            buffers: self.buffers + get(&gauge.buffers),
            pipes: self.pipes + get(&gauge.pipes),
            buffers_most: self.buffers_most + get(&gauge.buffers_most),
            pipes_most: self.pipes_most + get(&gauge.pipes_most),
            received: self.received + gauge.cells.received.get(),
            requests: self.requests + get(&gauge.requests),
            refused: self.refused + get(&gauge.refused),
            observed: self.observed + get(&gauge.observed),
            out_of_resources: self.out_of_resources + get(&gauge.out_of_resources),
            turns: self.turns + get(&gauge.turns),
            system_calls: self.system_calls + get(&gauge.system_calls),
            active_reactors: self.active_reactors + u64::from(get(&gauge.turns) > 0),
        }
    }
}
