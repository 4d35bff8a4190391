//! The reactor's parts and a relay on them, over thousands of simulated runs.
//!
//! A run is given by its seed. To repeat one: `SEED=1234 cargo test -p toron-reactor --test
//! simulation replay -- --nocapture`. `SEEDS=100000` runs more of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::panic::{catch_unwind, AssertUnwindSafe};

use support::scenario::{run, Summary};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn ten_thousand_seeds() {
    let seeds = number("SEEDS").unwrap_or(10_000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let total = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| {
                scope.spawn(move || {
                    let mut total = Summary::default();
                    for seed in (part..seeds).step_by(threads as usize) {
                        add(&mut total, run_or_tell(seed));
                    }
                    total
                })
            })
            .collect();
        let mut total = Summary::default();
        for part in parts {
            add(
                &mut total,
                part.join().expect("see above which seed failed"),
            );
        }
        total
    });
    println!("{seeds} seeds: {total:?}");
    // A simulation in which nothing happens would prove nothing.
    let counts = total.counts;
    for (what, n) in [
        ("delivered whole", total.delivered_whole),
        ("completed", counts.completed),
        ("failed", counts.failed),
        ("timed out", counts.timed_out),
        ("refused", counts.refused),
        ("nudged", counts.nudged),
        ("stale", counts.stale),
    ] {
        assert!(n as u64 > seeds / 100, "too few sessions {what}: {n}");
    }
}

fn run_or_tell(seed: u64) -> Summary {
    match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        Ok(summary) => summary,
        Err(panic) => {
            eprintln!(
                "seed {seed} fails; to repeat it:\n    \
                 SEED={seed} cargo test -p toron-reactor --test simulation replay -- --nocapture"
            );
            std::panic::resume_unwind(panic);
        }
    }
}

fn add(total: &mut Summary, summary: Summary) {
    total.connections += summary.connections;
    total.delivered_whole += summary.delivered_whole;
    total.steps += summary.steps;
    let (sum, counts) = (&mut total.counts, summary.counts);
    sum.completed += counts.completed;
    sum.failed += counts.failed;
    sum.timed_out += counts.timed_out;
    sum.refused += counts.refused;
    sum.nudged += counts.nudged;
    sum.stale += counts.stale;
}

/// Repeats the run of the environment variable `SEED` (0 without).
#[test]
fn replay() {
    let seed = number("SEED").unwrap_or(0);
    println!("seed {seed}: {:?}", run(seed));
}

/// The same seed gives the same run, to the last step.
#[test]
fn runs_are_repeatable() {
    for seed in 0..50 {
        assert_eq!(
            format!("{:?}", run(seed)),
            format!("{:?}", run(seed)),
            "seed {seed}"
        );
    }
}
