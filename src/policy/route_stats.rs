//! What is counted of one route: requests by the class of their status, latencies, bytes.
//!
//! ```text
//!  request ends ──▶ RouteCells of its route and reactor     one thread writes
//!  /metrics     ──▶ RouteStats: the sums over reactors
//! ```
//!
//! Cells are made when a reactor serves the route for the first time, so that memory follows the
//! routes and reactors that are in use: [`RouteCells`] and its place take 360 bytes, that is 3.6 MB
//! for 10,000 routes on each *active* reactor (one per core, see [`toron_reactor::placement`]), and
//! nothing on the others. To count a proxied request takes 67 instructions, 0.3% of the 26,600 that
//! toron takes for it in user space (callgrind, one connection on epoll; `benches/metrics.rs`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::counter::{Buckets, Counter, Distribution, Histogram};
use crate::http::Reason;

/// Buckets of latencies, in microseconds: from what a loopback origin takes to the default of
/// `response_header_timeout`. A sum of microseconds wraps after 58 years of 10,000 requests at a
/// time.
pub const LATENCY: Buckets<14> = Buckets {
    bounds: [
        500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 5_000_000, 10_000_000,
    ],
    per_second: 1_000_000,
};

/// Latencies in [`LATENCY`].
pub type Latency = Histogram<{ LATENCY.bounds.len() }>;
/// The sum of several.
pub type Latencies = Distribution<{ LATENCY.bounds.len() }>;

/// The class of the status that a client was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// None: the request ended before a response had begun.
    None,
    /// 101: the connection became a tunnel.
    Informational,
    /// 2xx
    Successful,
    /// 3xx
    Redirection,
    /// 4xx
    ClientError,
    /// 5xx and what lies beyond.
    ServerError,
}

impl Class {
    /// All of them, in order.
    pub const ALL: [Class; 6] = [
        Class::None,
        Class::Informational,
        Class::Successful,
        Class::Redirection,
        Class::ClientError,
        Class::ServerError,
    ];

    /// That of a status; 0 is none.
    #[must_use]
    pub fn of(status: u16) -> Class {
        match status {
            0..=99 => Class::None,
            100..=199 => Class::Informational,
            200..=299 => Class::Successful,
            300..=399 => Class::Redirection,
            400..=499 => Class::ClientError,
            500.. => Class::ServerError,
        }
    }

    /// The name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Class::None => "none",
            Class::Informational => "1xx",
            Class::Successful => "2xx",
            Class::Redirection => "3xx",
            Class::ClientError => "4xx",
            Class::ServerError => "5xx",
        }
    }
}

/// Ended requests by the class of their status.
#[derive(Debug, Default)]
pub struct Ended([Counter; Class::ALL.len()]);

impl Ended {
    /// Counts one.
    pub fn count(&self, status: u16) {
        if let Some(counter) = self.0.get(Class::of(status) as usize) {
            counter.add(1);
        }
    }

    /// How many there are of each class.
    #[must_use]
    pub fn counts(&self) -> [u64; Class::ALL.len()] {
        self.0.each_ref().map(Counter::get)
    }
}

/// A request that an upstream, or toron in its place, was to answer, and that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Exchanged {
    /// Status sent to the client; 0 if none was.
    pub status: u16,
    /// Microseconds from the request parsed to the response head, if that came.
    pub to_head: Option<u64>,
    /// Microseconds from the request parsed to its end; none for a tunnel, which lasts as long as
    /// its users like.
    pub in_all: Option<u64>,
    /// Bytes of the request's body, decoded.
    pub bytes_in: u64,
    /// Bytes sent to the client.
    pub bytes_out: u64,
}

/// What one reactor counts of one route.
#[derive(Debug, Default)]
pub struct RouteCells {
    ended: Ended,
    head: Latency,
    total: Latency,
    bytes_in: Counter,
    bytes_out: Counter,
}

impl RouteCells {
    /// Counts a request that was answered without an upstream.
    pub fn answered(&self, status: u16) {
        self.ended.count(status);
    }

    /// Counts a request that was on its way to an upstream.
    pub fn exchanged(&self, request: &Exchanged) {
        self.ended.count(request.status);
        if let Some(taken) = request.to_head {
            self.head.record(&LATENCY, taken);
        }
        if let Some(taken) = request.in_all {
            self.total.record(&LATENCY, taken);
        }
        self.bytes_in.add(request.bytes_in);
        self.bytes_out.add(request.bytes_out);
    }
}

/// What has been counted of a route on all reactors. Kept over reloads.
#[derive(Debug, Default)]
pub struct RouteStats {
    /// Of those reactors that have served it. A reactor takes the lock for its first request after a
    /// reload, and for requests that began before one; `/metrics` takes it once per route.
    cells: Mutex<Vec<(usize, Arc<RouteCells>)>>,
    /// By [`Reason::index`], made with the first. Shared by all reactors, as refusals are few: what
    /// refuses most, a full route, does so by an atomic of the whole process as well.
    refusals: OnceLock<Box<[AtomicU64; Reason::COUNT]>>,
}

impl RouteStats {
    /// The cells that `reactor` writes, and nobody else may.
    #[must_use]
    pub fn cells(&self, reactor: usize) -> Arc<RouteCells> {
        let mut all = self.lock();
        if let Some((_, cells)) = all.iter().find(|(owner, _)| *owner == reactor) {
            return Arc::clone(cells);
        }
        let fresh = Arc::new(RouteCells::default());
        all.push((reactor, Arc::clone(&fresh)));
        fresh
    }

    /// Counts a request that was refused or cut off.
    pub fn refuse(&self, reason: Reason) {
        let made = || Box::new([const { AtomicU64::new(0) }; Reason::COUNT]);
        if let Some(count) = self.refusals.get_or_init(made).get(reason.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often requests were refused or cut off, for the reasons that occurred.
    pub fn refusals(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        let counts = self.refusals.get().into_iter().flat_map(|all| all.iter());
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        Reason::ALL.into_iter().zip(counts).filter(|(_, n)| *n > 0)
    }

    /// Whether any reactor has served the route.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Ended requests by the class of their status, in the order of [`Class::ALL`]; none if no
    /// reactor has served the route.
    #[must_use]
    pub fn ended(&self) -> Option<[u64; Class::ALL.len()]> {
        let all = self.lock();
        (!all.is_empty()).then(|| {
            let mut sums = [0; Class::ALL.len()];
            for (_, cells) in all.iter() {
                let counts = cells.ended.counts();
                sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
            }
            sums
        })
    }

    /// From the request parsed to the response head; none if there was no such request.
    #[must_use]
    pub fn heads(&self) -> Option<Latencies> {
        self.latencies(|cells| &cells.head)
    }

    /// From the request parsed to its end; none if there was no such request.
    #[must_use]
    pub fn durations(&self) -> Option<Latencies> {
        self.latencies(|cells| &cells.total)
    }

    fn latencies(&self, of: fn(&RouteCells) -> &Latency) -> Option<Latencies> {
        let mut sum = Latencies::default();
        for (_, cells) in self.lock().iter() {
            sum.add(of(cells));
        }
        (sum.count() > 0).then_some(sum)
    }

    /// Bytes of request bodies, and bytes sent to clients; none if no reactor has served the route.
    #[must_use]
    pub fn bytes(&self) -> Option<(u64, u64)> {
        let all = self.lock();
        let sum =
            |of: fn(&RouteCells) -> &Counter| all.iter().map(|(_, cells)| of(cells).get()).sum();
        (!all.is_empty()).then(|| (sum(|cells| &cells.bytes_in), sum(|cells| &cells.bytes_out)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Arc<RouteCells>)>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_reactor_has_cells_of_its_own_and_the_sum_is_of_all() {
        let stats = RouteStats::default();
        assert!(!stats.is_used() && stats.ended().is_none() && stats.heads().is_none());
        let ended = Exchanged {
            status: 204,
            to_head: Some(3_000),
            in_all: Some(11_000_000),
            bytes_in: 5,
            bytes_out: 100,
        };
        std::thread::scope(|scope| {
            for reactor in 0..4 {
                let stats = &stats;
                scope.spawn(move || {
                    let cells = stats.cells(reactor);
                    (0..1_000).for_each(|_| cells.exchanged(&ended));
                    stats.cells(reactor).answered(503);
                });
            }
        });
        assert!(stats.is_used());
        assert_eq!(stats.ended(), Some([0, 0, 4_000, 0, 0, 4]));
        let (head, total) = (stats.heads().unwrap(), stats.durations().unwrap());
        assert_eq!((head.counts[3], head.count()), (4_000, 4_000));
        assert_eq!((total.beyond, total.count()), (4_000, 4_000));
        assert_eq!(head.sum, 4_000 * 3_000);
        assert_eq!(stats.bytes(), Some((20_000, 400_000)));
    }

    #[test]
    fn refusals_are_told_by_their_reason() {
        let stats = RouteStats::default();
        assert_eq!(stats.refusals().count(), 0);
        for reason in [Reason::RouteFull, Reason::BareCr, Reason::RouteFull] {
            stats.refuse(reason);
        }
        let found: Vec<_> = stats.refusals().collect();
        assert_eq!(found, [(Reason::BareCr, 1), (Reason::RouteFull, 2)]);
    }

    #[test]
    fn classes_are_those_of_the_status() {
        let name = |status| Class::of(status).as_str();
        let found = [0, 101, 200, 304, 499, 500, 599].map(name);
        assert_eq!(found, ["none", "1xx", "2xx", "3xx", "4xx", "5xx", "5xx"]);
        for (at, class) in Class::ALL.iter().enumerate() {
            assert_eq!(*class as usize, at);
        }
    }

    #[test]
    fn the_cells_have_the_size_that_is_stated() {
        // Two counts of references in front, and the place in the list of a reactor and of the
        // route.
        let place = 8 + size_of::<(usize, Arc<RouteCells>)>();
        assert_eq!(size_of::<RouteCells>() + 16 + place, 360);
    }
}
