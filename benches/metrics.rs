//! What counting a request costs, and looking at the process: `cargo bench --bench metrics`.
//! Instructions: `valgrind --tool=callgrind --toggle-collect='*counted*' <the bench's binary> once`,
//! over 1,048,576 requests.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use toron::policy::route_stats::{Exchanged, RouteCells, RouteStats};
use toron::server::metrics::process::Process;

const REQUESTS: u64 = 1 << 20;
const SCRAPES: u64 = 1 << 10;

/// The counting of one request, as the server does it.
#[inline(never)]
fn counted(cells: &Arc<RouteCells>, n: u64) {
    // Most answers take a millisecond or two.
    let taken = 300 + n % 2_000;
    cells.exchanged(&Exchanged {
        status: 200,
        to_head: Some(taken),
        in_all: Some(taken + 50),
        bytes_in: 0,
        bytes_out: 1_024,
    });
}

/// Nanoseconds per call, the best of some rounds.
fn measure(rounds: u32, calls: u64, mut call: impl FnMut(u64)) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let start = Instant::now();
        (0..calls).for_each(&mut call);
        best = best.min(start.elapsed().as_nanos() as f64 / calls as f64);
    }
    best
}

fn main() {
    // Once is for counting instructions, and for tests of the benches themselves.
    let once = std::env::args().any(|a| a == "once" || a == "--test");
    let rounds = if once { 1 } else { 9 };
    let stats = RouteStats::default();
    let cells = stats.cells(0);
    let ns = measure(rounds, REQUESTS, |n| counted(black_box(&cells), n));
    println!("{:24} {ns:8.1} ns", "a request counted");
    let ns = measure(rounds, SCRAPES, |_| {
        black_box(stats.durations());
    });
    println!("{:24} {ns:8.1} ns", "a histogram summed");
    let ns = measure(rounds, SCRAPES, |_| {
        black_box(Process::here());
    });
    println!("{:24} {ns:8.1} ns", "the process looked at");
    println!("{} bytes for a route and reactor", size_of::<RouteCells>());
}
