//! The whole server in the simulator, from accept to close, with scripted clients and upstreams.
//!
//! ```text
//!   plan     what a seed does: requests, responses, faults, behaviour of every peer
//!   client ──▶ toron::server::Server on the simulated engine ──▶ origin
//!      └──────────── judge, ledger: what may come of what ─────────┘
//!   stage    a calm world for tests of one rule: timing/, targets
//!   scene    one seed from the first SYN to the last close, and what must be left then: nothing
//! ```
//!
//! `TORON_SEED=7 cargo test --test simulation replay -- --nocapture` prints what seed 7 does.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client;
mod draw;
mod judge;
mod ledger;
mod message;
mod origin;
mod pattern;
mod plan;
mod scene;
mod segmentation;
mod setup;
mod stage;
mod targets;
mod timing;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ledger::Tally;

/// Seeds played by the test, unless `TORON_SEEDS` says otherwise.
const SEEDS: u64 = 10_000;

/// Streams that are cut, each in several ways.
const STREAMS: u64 = 300;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

fn sum(a: Tally, b: Tally) -> Tally {
    Tally {
        planned: a.planned + b.planned,
        canned: a.canned + b.canned,
        full: a.full + b.full,
        cut: a.cut + b.cut,
        none: a.none + b.none,
        tunnels: a.tunnels + b.tunnels,
        out: a.out + b.out,
        trial: a.trial + b.trial,
        turns: a.turns + b.turns,
    }
}

/// Takes seeds until there are no more, or one has failed. Returns what came of them and the seeds
/// that failed.
fn worker(next: &AtomicU64, end: u64, most: usize) -> (Tally, Vec<u64>) {
    let snapshot = setup::snapshot();
    let (mut tally, mut failed) = (Tally::default(), Vec::new());
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end || failed.len() >= most {
            return (tally, failed);
        }
        match catch_unwind(AssertUnwindSafe(|| scene::play(seed, &snapshot, false))) {
            Ok(of_seed) => tally = sum(tally, of_seed),
            Err(_) => {
                eprintln!(
                    "seed {seed} failed: TORON_SEED={seed} cargo test --test simulation replay -- \
                     --nocapture"
                );
                failed.push(seed);
            }
        }
    }
}

#[test]
fn every_seed_keeps_the_promises() {
    let first = variable("TORON_FIRST_SEED").unwrap_or(0);
    let count = variable("TORON_SEEDS").unwrap_or(SEEDS);
    let most = variable("TORON_FAILURES").unwrap_or(1) as usize;
    let next = AtomicU64::new(first);
    let outcomes: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| worker(&next, first + count, most)))
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let mut failed: Vec<u64> = outcomes.iter().flat_map(|o| o.1.clone()).collect();
    failed.sort_unstable();
    let tally = outcomes.iter().fold(Tally::default(), |t, o| sum(t, o.0));
    eprintln!("{tally:?}");
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
    // A simulation in which nothing happens proves nothing.
    assert!(tally.planned > count, "{tally:?}");
    for seldom in [
        tally.canned,
        tally.full,
        tally.cut,
        tally.none,
        tally.tunnels,
        tally.out,
        tally.trial,
    ] {
        assert!(seldom > count / 50, "{tally:?}");
    }
}

/// Plays the seed that the environment names, and prints what happens.
#[test]
fn replay() {
    let seed = variable("TORON_SEED");
    let tally = scene::play(seed.unwrap_or(0), &setup::snapshot(), seed.is_some());
    assert!(tally.turns > 0);
}

/// A stream of requests gives the same however it is cut, down to single bytes.
#[test]
fn any_segmentation_gives_the_same_outcome() {
    let snapshot = setup::snapshot();
    let first = variable("TORON_FIRST_SEED").unwrap_or(0);
    let seen: usize = (first..first + STREAMS)
        .map(|seed| segmentation::check(&snapshot, seed))
        .sum();
    assert!(seen > STREAMS as usize, "{seen} requests arrived");
}
