//! Which reactor serves a new connection.
//!
//! # The rule
//! 1. **Active** at first are as many reactors as there are cores this process may keep busy
//!    (affinity mask and control-group quota), at most the whole pool. These, and only these,
//!    accept, all on the same listening sockets.
//! 2. The reactor that accepted a connection **keeps** it if it serves at most [`SLACK`] more
//!    than the least loaded active one (or an eighth more, for large numbers); otherwise it
//!    **gives** it to that one through the mailbox.
//! 3. When every active reactor serves `high_water` connections, **one more becomes active** and
//!    is given the connection. It does not accept. When fewer than half of `high_water` per
//!    remaining active reactor are served in all, the last one stops being active: it keeps the
//!    connections it has, and gets no more.
//!
//! The kernel decides who accepts, and it favours whoever went to sleep last; rule 2 corrects it.
//! Giving costs a wake-up of the other thread, so small differences are left alone. More threads
//! than cores serve nobody faster: they share the same cores, cut batches into smaller ones
//! and the pools of idle upstream connections into slivers. What rule 3 buys is bounded tables and
//! a bounded time for one turn.
//!
//! # Figures
//! L4 relay by copy, 1 KiB answers, 2 cores shared with the load and with other work, medians of
//! the ratios of neighbouring runs (7 rounds of 1 s each in turn): processor time per request,
//! against 2 reactors.
//!
//! | connections | epoll: 1 | 128 | io_uring: 1 | 128 |
//! | --- | --- | --- | --- | --- |
//! | 1 | 1.06 | 0.99 | 1.15 | 0.99 |
//! | 16 | 0.89 | 0.92 | 0.85 | 1.01 |
//! | 64 | 0.99 | 0.98 | 0.86 | 1.03 |
//! | 1,000 | 0.96 | 1.09 | 0.90 | 0.94 |
//!
//! The means over connections for 128 are 0.99 on both engines; the spread (0.92 to 1.09) is that
//! of the machine, as the same two threads work in both cases and 126 sleep on their mailboxes. A
//! single reactor spends less per request at 16 connections and more, because it wakes less often,
//! but serves 0.65 to 0.85 of the requests per second: it has one core. Hence one reactor per core
//! and not fewer.

use std::sync::atomic::{fence, AtomicBool, AtomicUsize, Ordering};

/// Connections by which the least loaded reactor may be outdone. One: with a few busy connections
/// (a load test with two, say) each has a core of its own, and a client that connects anew for
/// every request is served where it was accepted.
pub const SLACK: usize = 1;

/// Connections on each active reactor beyond which one more is woken. A choice, not a measurement:
/// it keeps the tables of a reactor within a few MiB, and two active ones then hold more
/// connections (each with its upstream's) than a process on common limits has descriptors for.
pub const HIGH_WATER: usize = 16_384;

/// What one reactor serves, alone on its cache line: others read it with every accept.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Load(AtomicUsize);

/// Connections per reactor, and which reactors are active. Shared by all reactors of a pool.
#[derive(Debug)]
pub struct Placement {
    loads: Box<[Load]>,
    /// Reactors that accept.
    accepting: usize,
    /// Reactors that connections may be given to, `accepting` at least.
    active: AtomicUsize,
    high_water: usize,
    /// The pool ends: every reactor keeps what it accepts.
    stopping: AtomicBool,
}

impl Placement {
    /// A pool of `reactors` on `cores`.
    #[must_use]
    pub fn new(reactors: usize, cores: usize, high_water: usize) -> Self {
        let reactors = reactors.max(1);
        let accepting = cores.clamp(1, reactors);
        Placement {
            loads: (0..reactors).map(|_| Load::default()).collect(),
            accepting,
            active: AtomicUsize::new(accepting),
            high_water: high_water.max(1),
            stopping: AtomicBool::new(false),
        }
    }

    /// The pool ends. Called before any reactor is told to drain: one that has drained and has no
    /// more connections than are counted for it will get no further one.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        // With the one in `keeps_what_it_accepts`: who gave a connection away without seeing the flag
        // has counted it before this.
        fence(Ordering::SeqCst);
    }

    /// Asked after a connection for another reactor is counted: that one may be about to end its
    /// thread.
    pub(crate) fn keeps_what_it_accepts(&self) -> bool {
        fence(Ordering::SeqCst);
        self.stopping.load(Ordering::Relaxed)
    }

    /// How many reactors accept: those with the lowest numbers.
    #[must_use]
    pub fn accepting(&self) -> usize {
        self.accepting
    }

    /// How many reactors are given connections at present.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Connections a reactor serves.
    #[must_use]
    pub fn load(&self, reactor: usize) -> usize {
        self.loads
            .get(reactor)
            .map_or(0, |load| load.0.load(Ordering::Relaxed))
    }

    /// Decides who serves a connection that `me` accepted, and counts it there.
    pub fn place(&self, me: usize) -> usize {
        let active = self.active();
        let (target, active_now) = decide(
            me,
            active,
            self.accepting,
            self.loads.len(),
            self.high_water,
            |reactor| self.load(reactor),
        );
        if active_now != active {
            // Another reactor may have come to a decision at the same time; the next will see.
            let _ = self.active.compare_exchange(
                active,
                active_now,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        self.count(target);
        target
    }

    /// Counts one more connection of `reactor`.
    pub(crate) fn count(&self, reactor: usize) {
        if let Some(load) = self.loads.get(reactor) {
            load.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Connections of `reactor` have ended.
    pub fn ended(&self, reactor: usize, connections: usize) {
        if connections == 0 {
            return;
        }
        if let Some(load) = self.loads.get(reactor) {
            // Saturating: a service that reports one end twice must not look overloaded for ever.
            let _ = load
                .0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                    Some(n.saturating_sub(connections))
                });
        }
    }

    /// A reactor has ended: nobody is to give it connections.
    pub(crate) fn gone(&self, reactor: usize) {
        if let Some(load) = self.loads.get(reactor) {
            load.0.store(usize::MAX / 2, Ordering::Relaxed);
        }
    }
}

/// The rule: the reactor that gets the connection, and how many are active from then on.
fn decide(
    me: usize,
    active: usize,
    accepting: usize,
    reactors: usize,
    high_water: usize,
    load: impl Fn(usize) -> usize,
) -> (usize, usize) {
    let total = (0..active).map(&load).fold(0usize, usize::saturating_add);
    let mut active_now = active;
    if active > accepting && total < high_water / 2 * (active - 1) {
        active_now = active - 1;
    }
    let mut least = (me, load(me));
    for reactor in 0..active_now {
        if load(reactor) < least.1 {
            least = (reactor, load(reactor));
        }
    }
    if least.1 >= high_water && active < reactors {
        return (active, active + 1);
    }
    let slack = SLACK.max(least.1 / 8);
    if load(me) <= least.1 + slack {
        (me, active_now)
    } else {
        (least.0, active_now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// me, active, loads → who gets it, active afterwards (two cores, high water 100)
    #[test]
    fn the_rule_as_a_table() {
        let table: &[(usize, usize, &[usize], usize, usize)] = &[
            // Small differences stay where they are, larger ones are evened out.
            (0, 2, &[0, 0, 0], 0, 2),
            (1, 2, &[0, 0, 0], 1, 2),
            (0, 2, &[1, 0, 0], 0, 2),
            (0, 2, &[2, 0, 0], 1, 2),
            (1, 2, &[2, 0, 0], 1, 2),
            (0, 2, &[18, 16, 0], 0, 2),
            (0, 2, &[19, 16, 0], 1, 2),
            // Inactive ones are left asleep until every active one is full.
            (0, 2, &[99, 100, 0], 0, 2),
            (0, 2, &[100, 99, 0], 0, 2),
            (0, 2, &[100, 100, 0], 2, 3),
            (1, 3, &[100, 100, 7], 2, 3),
            (1, 3, &[100, 100, 100], 1, 3),
            // They fall asleep again only when half of it would do.
            (0, 3, &[50, 50, 0], 2, 3),
            (0, 3, &[50, 49, 0], 0, 2),
            (0, 3, &[60, 10, 1], 1, 2),
            // One that has ended is never given anything.
            (0, 2, &[40, usize::MAX / 2, 0], 0, 2),
        ];
        for (me, active, loads, target, after) in table {
            let got = decide(*me, *active, 2, loads.len(), 100, |i| loads[i]);
            assert_eq!(
                got,
                (*target, *after),
                "me {me}, active {active}, loads {loads:?}"
            );
        }
    }

    #[test]
    fn a_flood_spreads_evenly_and_wakes_no_more_than_needed() {
        let placement = Placement::new(128, 2, 1000);
        for _ in 0..1900 {
            placement.place(0);
        }
        assert_eq!(placement.active(), 2);
        assert!(placement.load(0).abs_diff(placement.load(1)) <= SLACK.max(1900 / 2 / 8) + 1);
        for _ in 0..1900 {
            placement.place(1);
        }
        assert_eq!(placement.active(), 4);
        for reactor in 0..4 {
            placement.ended(reactor, placement.load(reactor));
        }
        placement.place(0);
        placement.place(0);
        assert_eq!(placement.active(), 2);
    }

    #[test]
    fn ends_counted_twice_do_no_lasting_harm() {
        let placement = Placement::new(1, 4, HIGH_WATER);
        assert_eq!((placement.accepting(), placement.place(0)), (1, 0));
        placement.ended(0, 2);
        assert_eq!(placement.load(0), 0);
    }
}
