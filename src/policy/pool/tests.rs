#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::policy::router::{compile, Table};
use crate::policy::settings::tests::{limit_sources, limits};
use crate::policy::settings::{
    Algorithm, Endpoint, HostPattern, Place, Route, RouteKind, Source, Target,
};

const SECOND: Duration = Duration::from_secs(1);
const T0: Time = Time(5_000_000_000);

fn at(seconds: u64) -> Time {
    T0 + Duration::from_secs(seconds)
}

fn health() -> Health {
    Health {
        check_path: None,
        check_interval: 5 * SECOND,
        check_timeout: 2 * SECOND,
        consecutive_failures: 3,
        cooldown_period: 10 * SECOND,
        passive_statuses: Vec::new(),
        try_when_all_down: false,
    }
}

fn probed() -> Health {
    Health {
        check_path: Some("/healthz".to_owned()),
        ..health()
    }
}

fn upstream(names: &[&str], health: Health) -> Upstream {
    let target = |name: &&str| {
        let (host, identity) = name.split_once('#').unwrap_or((name, ""));
        Arc::new(Target {
            authority: host.to_owned(),
            path: String::new(),
            weight: 1,
            endpoint: Arc::new(Endpoint::identified(0, host, 80, identity)),
        })
    };
    Upstream {
        targets: names.iter().map(target).collect(),
        algorithm: Algorithm::RoundRobin,
        target_max_concurrency: None,
        retries: 1,
        strip_prefix: true,
        rewrite_redirects: true,
        rewrite_cookie_path: true,
        preserve_host: true,
        health,
    }
}

fn table(upstream: Upstream) -> Table {
    let route = Route {
        id: 0,
        name: "/".to_owned(),
        host: HostPattern::Any,
        prefix: "/".to_owned(),
        methods: Vec::new(),
        headers: Vec::new(),
        source: Source::Config,
        origin: Place {
            file: "routes.yaml".into(),
            line: 1,
        },
        kind: RouteKind::Upstream(upstream),
        limits: limits(),
        limit_sources: limit_sources(),
    };
    compile(vec![route]).table
}

/// One route, as reactors see it.
struct Bench {
    pool: Arc<Pool>,
    upstream: Upstream,
    balancers: Balancers,
    known: Pools,
}

impl Bench {
    fn new(names: &[&str], health: Health) -> Self {
        let mut bench = Bench {
            pool: Arc::new(Pool {
                id: 0,
                targets: Vec::new(),
                going: Arc::default(),
            }),
            upstream: upstream(names, health),
            balancers: Balancers::new(0, 1),
            known: Pools::default(),
        };
        bench.publish(bench.upstream.clone());
        bench
    }

    fn publish(&mut self, upstream: Upstream) {
        self.upstream = upstream.clone();
        let pools = self.known.of(&table(upstream));
        self.pool = pools.into_iter().next().unwrap().unwrap();
    }

    fn take(&mut self, now: Time) -> Result<(usize, Lease), Unavailable> {
        self.take_but(now, &Tried::none())
    }

    fn take_but(&mut self, now: Time, tried: &Tried) -> Result<(usize, Lease), Unavailable> {
        let call = Call {
            client: IpAddr::from([192, 0, 2, 1]),
            now,
            tried,
        };
        let balancer = self.balancers.of(&self.pool, &self.upstream);
        self.pool.take(balancer, &self.upstream, &call)
    }

    /// Fails `times` requests to a target, taken by whatever means.
    fn fail(&self, target: usize, times: u32, now: Time) -> Option<Change> {
        let mut last = None;
        for _ in 0..times {
            let state = &self.pool.targets()[target];
            let mut lease = state.acquire(now, &self.upstream, false).unwrap();
            last = self
                .pool
                .failed(target, &mut lease, &self.upstream.health, now);
        }
        last
    }

    fn standings(&self) -> Vec<Standing> {
        self.pool.targets().iter().map(|t| t.standing()).collect()
    }
}

use Standing::{OnTrial, Out, Up};

#[test]
fn r20_failures_in_a_row_take_a_target_out_until_a_trial_succeeds() {
    let mut bench = Bench::new(&["a", "b"], health());
    assert_eq!(bench.fail(0, 2, T0), None);
    // A success between them takes both back.
    let (_, mut lease) = bench.take(T0).unwrap();
    assert_eq!(lease.succeeded(&health()), None);
    drop(lease);
    assert_eq!(bench.fail(0, 2, T0), None);
    assert_eq!(bench.fail(0, 1, T0), Some(Change::Out(3)));
    assert_eq!(bench.standings(), [Out, Up]);
    for _ in 0..10 {
        assert_eq!(bench.take(at(9)).unwrap().0, 1);
    }
    // Both take turns, but only one request is the trial.
    let taken: Vec<_> = (0..4).map(|_| bench.take(at(10)).unwrap()).collect();
    let trials: Vec<usize> = taken
        .iter()
        .filter(|t| t.1.is_trial())
        .map(|t| t.0)
        .collect();
    assert_eq!(trials, [0]);
    assert_eq!(bench.standings(), [OnTrial, Up]);
    for (target, mut lease) in taken {
        let change = (target == 0).then_some(Change::Up);
        assert_eq!(lease.succeeded(&health()), change);
    }
    assert_eq!(bench.standings(), [Up, Up]);
}

#[test]
fn r20_a_trial_that_fails_begins_the_cooldown_anew_and_one_without_outcome_is_repeated() {
    let mut bench = Bench::new(&["a", "b"], health());
    bench.fail(0, 3, T0);
    let trial = |bench: &mut Bench, now| {
        let taken = [bench.take(now).unwrap(), bench.take(now).unwrap()];
        taken.into_iter().find(|(_, lease)| lease.is_trial())
    };
    let (target, mut lease) = trial(&mut bench, at(10)).unwrap();
    let change = bench.pool.failed(target, &mut lease, &health(), at(12));
    assert_eq!(change, Some(Change::StillOut));
    drop(lease);
    assert!(trial(&mut bench, at(21)).is_none());
    let (_, lease) = trial(&mut bench, at(22)).unwrap();
    assert!(trial(&mut bench, at(22)).is_none());
    // The client went away.
    drop(lease);
    let (_, mut lease) = trial(&mut bench, at(22)).unwrap();
    assert_eq!(lease.succeeded(&health()), Some(Change::Up));
}

#[test]
fn r20_failures_of_requests_never_take_the_last_target_out() {
    let mut bench = Bench::new(&["a", "b"], health());
    assert_eq!(bench.fail(1, 3, T0), Some(Change::Out(3)));
    assert_eq!(bench.fail(0, 100, T0), None);
    assert_eq!(bench.standings(), [Up, Out]);
    // As soon as the other one is up again, the next failure does.
    let (_, mut lease) = bench.take_but(at(10), &tried(&[0])).unwrap();
    assert_eq!(lease.succeeded(&health()), Some(Change::Up));
    assert_eq!(bench.fail(0, 1, at(10)), Some(Change::Out(101)));
    let mut alone = Bench::new(&["a"], health());
    assert_eq!(alone.fail(0, 100, T0), None);
    assert!(alone.take(T0).is_ok());
}

#[test]
fn r20_a_request_that_began_before_its_target_went_out_says_nothing() {
    let mut bench = Bench::new(&["a", "b"], health());
    let (target, mut lease) = bench.take(T0).unwrap();
    assert_eq!(target, 0);
    bench.fail(0, 3, T0);
    assert_eq!(lease.succeeded(&health()), None);
    assert_eq!(bench.pool.failed(0, &mut lease, &health(), at(1)), None);
    assert_eq!(bench.standings(), [Out, Up]);
}

#[test]
fn r20_with_active_probes_only_a_probe_brings_a_target_back() {
    let mut bench = Bench::new(&["a", "b"], probed());
    bench.fail(0, 3, T0);
    for _ in 0..4 {
        assert_eq!(bench.take(at(1000)).unwrap().0, 1);
    }
    let states: Vec<_> = bench.pool.targets().to_vec();
    // Probes take out the last one, too.
    assert_eq!(states[1].probe_failed(at(1000), &probed()), None);
    assert_eq!(states[1].probe_failed(at(1005), &probed()), None);
    let change = states[1].probe_failed(at(1010), &probed());
    assert_eq!(change, Some(Change::Out(3)));
    assert_eq!(states[1].probe_failed(at(1015), &probed()), None);
    assert_eq!(bench.take(at(1015)).unwrap_err(), Unavailable::Unhealthy);
    assert_eq!(states[0].probe_succeeded(), Some(Change::Up));
    assert_eq!(states[0].probe_succeeded(), None);
    assert_eq!(bench.take(at(1016)).unwrap().0, 0);
}

#[test]
fn r20_what_probes_find_is_not_talked_over_by_requests_that_succeed() {
    let mut bench = Bench::new(&["a", "b"], probed());
    let state = Arc::clone(&bench.pool.targets()[0]);
    for n in 0..3 {
        assert_eq!(bench.standings(), [Up, Up]);
        let (_, mut lease) = bench.take_but(at(n), &tried(&[1])).unwrap();
        assert_eq!(lease.succeeded(&probed()), None);
        drop(lease);
        let _ = state.probe_failed(at(n), &probed());
    }
    assert_eq!(bench.standings(), [Out, Up]);
    // Failures of both kinds count together.
    let other = Arc::clone(&bench.pool.targets()[1]);
    assert_eq!(state.probe_succeeded(), Some(Change::Up));
    bench.fail(1, 1, at(5));
    assert_eq!(other.probe_failed(at(5), &probed()), None);
    assert_eq!(bench.fail(1, 1, at(5)), Some(Change::Out(3)));
}

#[test]
fn r20_all_out_is_refused_or_tried() {
    let mut bench = Bench::new(&["a", "b"], probed());
    for state in bench.pool.targets() {
        for _ in 0..3 {
            let _ = state.probe_failed(T0, &probed());
        }
    }
    assert_eq!(bench.take(T0).unwrap_err(), Unavailable::Unhealthy);
    let trying = Health {
        try_when_all_down: true,
        ..probed()
    };
    bench.publish(upstream(&["a", "b"], trying.clone()));
    let (target, mut lease) = bench.take(T0).unwrap();
    // It is served, but only a probe brings the target back.
    assert_eq!(lease.succeeded(&trying), None);
    assert_eq!(bench.take_but(T0, &tried(&[target])).unwrap().0, 1 - target);
    assert_eq!(
        bench.take_but(T0, &tried(&[0, 1])).unwrap_err(),
        Unavailable::Full
    );
    assert_eq!(bench.standings(), [Out, Out]);
    bench.pool.targets()[1].probe_succeeded();
    for _ in 0..4 {
        assert_eq!(bench.take(T0).unwrap().0, 1);
    }
}

#[test]
fn r19_a_full_target_is_skipped_and_all_full_is_said_so() {
    let mut bench = Bench::new(&["a", "b"], health());
    bench.upstream.target_max_concurrency = Some(2);
    let held: Vec<_> = (0..4).map(|_| bench.take(T0).unwrap()).collect();
    let in_flight = |bench: &Bench| [0, 1].map(|i| bench.pool.targets()[i].in_flight());
    assert_eq!(in_flight(&bench), [2, 2]);
    assert_eq!(bench.take(T0).unwrap_err(), Unavailable::Full);
    // One is out and the other is full: it is room that is missing.
    bench.fail_at(1, T0);
    assert_eq!(bench.take(T0).unwrap_err(), Unavailable::Full);
    drop(held);
    assert_eq!(in_flight(&bench), [0, 0]);
    assert_eq!(bench.take(T0).unwrap().0, 0);
}

impl Bench {
    /// Takes a target out, full or not.
    fn fail_at(&self, target: usize, now: Time) {
        let health = &self.upstream.health;
        let state = &self.pool.targets()[target];
        while !state.count_failure(health) {}
        assert!(state.take_out(now, health).is_some());
    }
}

#[test]
fn r20_state_is_kept_by_route_and_target_over_changes() {
    let mut bench = Bench::new(&["a", "b"], health());
    bench.fail(0, 3, T0);
    let before = bench.pool.id();
    bench.publish(upstream(&["a", "b"], health()));
    assert_eq!(bench.pool.id(), before);
    let held = bench.take(T0).unwrap();
    bench.publish(upstream(&["c", "b", "a"], health()));
    assert_ne!(bench.pool.id(), before);
    assert_eq!(bench.standings(), [Up, Up, Out]);
    assert_eq!(bench.pool.targets()[1].in_flight(), 1);
    drop(held);
    // Gone and back: nothing is known of it any more.
    bench.publish(upstream(&["b"], health()));
    bench.publish(upstream(&["b", "a"], health()));
    assert_eq!(bench.standings(), [Up, Up]);
    // Another container with the address of the first.
    bench.publish(upstream(&["b", "a#one"], health()));
    bench.fail(1, 3, T0);
    bench.publish(upstream(&["b", "a#two"], health()));
    assert_eq!(bench.standings(), [Up, Up]);
}

#[test]
fn r20_the_last_target_that_is_left_is_up_again_unless_probes_say_otherwise() {
    let mut bench = Bench::new(&["a", "b"], health());
    bench.fail(0, 3, T0);
    bench.publish(upstream(&["a"], health()));
    assert_eq!(bench.standings(), [Up]);
    let mut bench = Bench::new(&["a", "b"], probed());
    bench.fail(0, 3, T0);
    bench.publish(upstream(&["a"], probed()));
    assert_eq!(bench.standings(), [Out]);
    assert_eq!(bench.take(at(100)).unwrap_err(), Unavailable::Unhealthy);
}

#[test]
fn r20_exactly_one_trial_in_the_process() {
    const THREADS: usize = 8;
    let mut bench = Bench::new(&["a", "b"], health());
    for round in 0..50u64 {
        let now = at(100 * round);
        bench.fail_at(0, now);
        let due = now + 10 * SECOND;
        let trials = AtomicUsize::new(0);
        let barrier = Barrier::new(THREADS);
        let state = Arc::clone(&bench.pool.targets()[0]);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    let lease = state.acquire(due, &bench.upstream, false);
                    trials.fetch_add(usize::from(lease.is_some()), Ordering::SeqCst);
                    barrier.wait();
                    drop(lease);
                });
            }
        });
        assert_eq!(trials.load(Ordering::SeqCst), 1);
        assert_eq!(state.in_flight(), 0);
        let (_, mut lease) = bench.take_but(due, &tried(&[1])).unwrap();
        assert_eq!(lease.succeeded(&health()), Some(Change::Up));
    }
}

#[test]
fn r20_two_that_fail_at_the_same_time_do_not_both_go() {
    const TARGETS: usize = 4;
    for _ in 0..200 {
        let bench = Bench::new(&["a", "b", "c", "d"], health());
        let barrier = Barrier::new(TARGETS);
        let (pool, upstream) = (&bench.pool, &bench.upstream);
        thread::scope(|scope| {
            for i in 0..TARGETS {
                let barrier = &barrier;
                scope.spawn(move || {
                    let state = &pool.targets()[i];
                    barrier.wait();
                    for _ in 0..5 {
                        let Some(mut lease) = state.acquire(T0, upstream, false) else {
                            return;
                        };
                        let _ = pool.failed(i, &mut lease, &upstream.health, T0);
                    }
                });
            }
        });
        let up = bench.standings().iter().filter(|&&s| s == Up).count();
        assert_eq!(up, 1, "{:?}", bench.standings());
    }
}

fn tried(list: &[usize]) -> Tried {
    let mut tried = Tried::none();
    assert!(list.iter().all(|&i| tried.add(i)));
    tried
}

#[test]
fn tries_are_bounded() {
    let mut tried = Tried::none();
    for i in 0..Tried::MOST {
        assert!(tried.add(i) && tried.contains(i));
    }
    assert!(!tried.add(100));
    assert!(!tried.contains(100) && tried.contains(0));
}

/// One thing that happens to a pool.
#[derive(Clone, Debug)]
enum Happening {
    Take,
    Succeed(usize),
    Fail(usize),
    Drop(usize),
    Pass(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => Just(Happening::Take),
        2 => (0usize..8).prop_map(Happening::Succeed),
        4 => (0usize..8).prop_map(Happening::Fail),
        1 => (0usize..8).prop_map(Happening::Drop),
        1 => (0u64..12).prop_map(Happening::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, without probes: some target takes requests, each has one trial at most,
    /// the counts are those of the leases held, and the cap holds.
    #[test]
    fn r20_requests_always_find_a_target(
        targets in 1usize..5,
        cap in prop::option::of(1u32..4),
        happenings in prop::collection::vec(happening(), 1..120),
    ) {
        let names = ["a", "b", "c", "d", "e"];
        let mut bench = Bench::new(&names[..targets], health());
        bench.upstream.target_max_concurrency = cap;
        let mut held: Vec<(usize, Lease)> = Vec::new();
        let mut now = T0;
        for happening in happenings {
            match happening {
                Happening::Take => match bench.take(now) {
                    Ok(taken) => held.push(taken),
                    Err(why) => prop_assert_eq!(why, Unavailable::Full),
                },
                Happening::Succeed(i) if !held.is_empty() => {
                    let (_, mut lease) = held.swap_remove(i % held.len());
                    let _ = lease.succeeded(&bench.upstream.health);
                }
                Happening::Fail(i) if !held.is_empty() => {
                    let (target, mut lease) = held.swap_remove(i % held.len());
                    let health = &bench.upstream.health;
                    let _ = bench.pool.failed(target, &mut lease, health, now);
                }
                Happening::Drop(i) if !held.is_empty() => {
                    drop(held.swap_remove(i % held.len()));
                }
                Happening::Pass(seconds) => now = now + Duration::from_secs(seconds),
                Happening::Succeed(_) | Happening::Fail(_) | Happening::Drop(_) => {}
            }
            prop_assert!(bench.standings().contains(&Up), "{:?}", bench.standings());
            for (i, state) in bench.pool.targets().iter().enumerate() {
                let of = || held.iter().filter(|(target, _)| *target == i);
                prop_assert_eq!(state.in_flight() as usize, of().count());
                prop_assert!(cap.is_none_or(|cap| state.in_flight() <= cap));
                let trials = of().filter(|(_, lease)| lease.is_trial()).count();
                prop_assert!(trials <= 1);
                prop_assert_eq!(state.standing() == OnTrial, trials == 1);
            }
        }
    }
}
