#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Barrier;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::policy::router::tests::route;
use crate::policy::router::{compile, Table};

fn table(routes: &[&str]) -> Table {
    compile(routes.iter().map(|text| route(text)).collect()).table
}

#[test]
fn i12_exactly_the_cap_fits() {
    let bulkhead = Arc::new(Bulkhead::default());
    let mut held: Vec<Permit> = (0..5).map_while(|_| bulkhead.acquire(Some(5))).collect();
    assert_eq!((held.len(), bulkhead.in_flight()), (5, 5));
    assert!(bulkhead.acquire(Some(5)).is_none());
    held.pop();
    assert_eq!(bulkhead.in_flight(), 4);
    held.extend(bulkhead.acquire(Some(5)));
    assert!(held.len() == 5 && bulkhead.acquire(Some(5)).is_none());
    drop(held);
    assert_eq!(bulkhead.in_flight(), 0);
}

#[test]
fn i12_without_a_cap_all_are_counted() {
    let bulkhead = Arc::new(Bulkhead::default());
    let held: Vec<Permit> = (0..1000).map_while(|_| bulkhead.acquire(None)).collect();
    assert_eq!((held.len(), bulkhead.in_flight()), (1000, 1000));
}

#[test]
fn i14_a_slot_that_unwinds_is_given_back() {
    let bulkhead = Arc::new(Bulkhead::default());
    let its = Arc::clone(&bulkhead);
    let ended = thread::spawn(move || {
        let _permit = its.acquire(Some(1)).unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(ended.join().is_err());
    assert_eq!(bulkhead.in_flight(), 0);
}

#[test]
fn i17_a_changed_cap_keeps_the_count() {
    let bulkhead = Arc::new(Bulkhead::default());
    // Those admitted before there was a cap count as well.
    let mut held: Vec<Permit> = (0..4).map_while(|_| bulkhead.acquire(None)).collect();
    assert!(bulkhead.acquire(Some(4)).is_none());
    held.extend(bulkhead.acquire(Some(5)));
    assert_eq!(held.len(), 5);
    // Lowered below what is in flight: none until there are fewer.
    for left in (2..5).rev() {
        assert!(bulkhead.acquire(Some(2)).is_none());
        held.pop();
        assert_eq!(bulkhead.in_flight(), left);
    }
    assert!(bulkhead.acquire(Some(2)).is_none());
    held.pop();
    assert!(bulkhead.acquire(Some(2)).is_some());
}

#[test]
fn i17_routes_that_stay_keep_their_counters() {
    let mut known = Bulkheads::default();
    let before = known.of(&table(&["|/a", "|/b", "example.com|/a|GET|X-Tier=beta"]));
    let after_table = table(&["|/c", "|/b", "example.com|/a|GET|x-tier=beta", "|/a|GET"]);
    let after = known.of(&after_table);
    let same = |name: &str| {
        let at = |table: &Table| table.routes().iter().position(|r| r.name == name);
        after[at(&after_table).unwrap()].clone()
    };
    let stays = |bulkhead: &Arc<Bulkhead>| before.iter().any(|b| Arc::ptr_eq(b, bulkhead));
    assert!(stays(&same("|/b")));
    // Field names have no case.
    assert!(stays(&same("example.com|/a|GET|x-tier=beta")));
    // Another key is another route.
    assert!(!stays(&same("|/c")) && !stays(&same("|/a|GET")));
}

#[test]
fn i17_a_route_that_comes_back_meets_its_old_requests() {
    let mut known = Bulkheads::default();
    let permit = {
        let first = known.of(&table(&["|/a", "|/b"]));
        first[0].acquire(Some(1)).unwrap()
    };
    assert_eq!(known.of(&table(&["|/b"])).len(), 1);
    let again = known.of(&table(&["|/a"]));
    assert_eq!(again[0].in_flight(), 1);
    assert!(again[0].acquire(Some(1)).is_none());
    drop(permit);
    assert!(again[0].acquire(Some(1)).is_some());
    // What nobody holds any more is forgotten.
    drop(again);
    known.of(&table(&["|/c"]));
    assert_eq!(known.known.len(), 1);
}

/// What one thread does: acquires, and gives back when it holds `keeps`, so many times.
#[derive(Clone, Debug)]
struct Load {
    rounds: u32,
    keeps: usize,
}

fn load() -> impl Strategy<Value = Load> {
    (10_000..40_000u32, 0..4usize).prop_map(|(rounds, keeps)| Load { rounds, keeps })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Threads that acquire and give back while another one changes the cap: what is in flight
    /// never exceeds the largest cap, as many slots are given back as were taken, and in the end
    /// exactly the cap fits.
    #[test]
    fn i12_i14_threads_never_exceed_the_cap_and_give_all_back(
        low in 1..6u32,
        more in 0..6u32,
        loads in prop::collection::vec(load(), 2..6),
    ) {
        let bulkhead = Arc::new(Bulkhead::default());
        let (cap, high) = (AtomicU32::new(low), low + more);
        // Counted by the holders, so that the bulkhead's own number is not believed.
        let (held, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let (given, done) = (AtomicU64::new(0), AtomicBool::new(false));
        // All at once: a thread is over before the next one has started otherwise.
        let start = Barrier::new(loads.len());
        let work = |load: &Load| {
            let mut mine = Vec::new();
            start.wait();
            for _ in 0..load.rounds {
                if let Some(permit) = bulkhead.acquire(Some(cap.load(Ordering::Relaxed))) {
                    most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    most.fetch_max(bulkhead.in_flight(), Ordering::SeqCst);
                    given.fetch_add(1, Ordering::Relaxed);
                    mine.push(permit);
                }
                while mine.len() > load.keeps {
                    held.fetch_sub(1, Ordering::SeqCst);
                    mine.pop();
                }
            }
            held.fetch_sub(u32::try_from(mine.len()).unwrap(), Ordering::SeqCst);
        };
        thread::scope(|scope| {
            let workers: Vec<_> = loads.iter().map(|load| scope.spawn(|| work(load))).collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    cap.store(high, Ordering::Relaxed);
                    thread::yield_now();
                    cap.store(low, Ordering::Relaxed);
                }
            });
            for worker in workers {
                worker.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        prop_assert!(given.into_inner() > 0);
        prop_assert!(most.into_inner() <= high);
        prop_assert_eq!(bulkhead.in_flight(), 0);
        let fit: Vec<Permit> = (0..=low).map_while(|_| bulkhead.acquire(Some(low))).collect();
        prop_assert_eq!(fit.len(), low as usize);
    }
}
