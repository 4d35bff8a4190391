//! The generator in a simulated network, where time is exact: what a stall weighs, and that every
//! request is accounted for whatever goes wrong.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::unbounded;
use toron_reactor::sim::{Faults, Remote, RemoteListener, SimEngine, World};
use toron_reactor::{mailbox, Reactor, Time};

use super::{Command, Generator, Report};
use crate::bench::measurement::{Measurement, Nobody};
use crate::bench::mix::Template;
use crate::bench::plan::{Load, Plan};
use crate::bench::profile::{Arrivals, RateSpec};
use crate::bench::url::Url;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const SECOND: u64 = 1_000_000_000;

/// A server that answers at once, but in the first part of each second not at all.
struct Server {
    world: World,
    listener: RemoteListener,
    begin: Time,
    stall: Duration,
    clients: Vec<(Remote, Vec<u8>)>,
}

impl Server {
    /// When the present stall ends.
    fn stalled_until(&self) -> Option<Time> {
        let now = self.world.now();
        let into = now.since(self.begin).as_nanos() as u64 % SECOND;
        let left = (self.stall.as_nanos() as u64).checked_sub(into)?;
        (left > 0).then(|| now + Duration::from_nanos(left))
    }

    fn act(&mut self) {
        let clients = std::iter::from_fn(|| self.listener.accept()).map(|c| (c, Vec::new()));
        self.clients.extend(clients.collect::<Vec<_>>());
        let stalled = self.stalled_until();
        let mut waits = false;
        for (client, input) in &mut self.clients {
            input.extend(client.recv(usize::MAX));
            while let Some(end) = input.windows(4).position(|w| w == b"\r\n\r\n") {
                if stalled.is_some() {
                    waits = true;
                    break;
                }
                client.send(ANSWER);
                input.drain(..end + 4);
            }
        }
        self.clients
            .retain(|(client, _)| client.is_open() && !client.at_end());
        if let (Some(until), true) = (stalled, waits) {
            self.world.alarm(until);
        }
    }
}

fn plan(addr: SocketAddr, load: Load, connections: usize) -> Plan {
    let url = Url::parse(&format!("http://{addr}/")).unwrap();
    Plan {
        addr,
        requests: vec![Template::default().prepare(&url)],
        load,
        connections,
        threads: 1,
        pipeline: 1,
        keep_alive: 1.0,
        warmup: Duration::from_secs(1),
        timeout: Duration::from_secs(5),
        seed: 1,
        slice: Duration::from_secs(1),
    }
}

fn open(rate: &str, seconds: u64) -> Load {
    Load::Open {
        profile: RateSpec::parse(rate)
            .unwrap()
            .over(Duration::from_secs(seconds)),
        arrivals: Arrivals::Constant,
    }
}

/// Runs a load against a server that stalls so long in each second.
fn run(world: &World, stall: Duration, make: impl Fn(SocketAddr) -> Plan) -> Measurement {
    let listener = world
        .remote_listen("10.0.0.1:80".parse().unwrap(), 4096)
        .unwrap();
    let plan = Arc::new(make(listener.addr()));
    let (sender, reports) = unbounded();
    let (address, mailbox) = mailbox();
    let generator = Generator::new(Arc::clone(&plan), 0, sender);
    let mut reactor: Reactor<SimEngine, Generator> =
        Reactor::new(world.engine(4096), generator, mailbox);
    // The connections are made before.
    let begin = world.now() + Duration::from_secs(1);
    let mut server = Server {
        world: world.clone(),
        listener,
        begin,
        stall,
        clients: Vec::new(),
    };
    address.send(Command::Begin(begin)).unwrap();
    let mut measured = Measurement::new(plan.slice, 1);
    for _ in 0..20_000_000 {
        server.act();
        reactor.step(None).unwrap();
        while let Ok(report) = reports.try_recv() {
            match report {
                Report::Ready { open } => measured.open = open,
                Report::Began => {}
                Report::Slice { index, record } => measured.slice(index, &record, &mut Nobody),
                Report::Done(last) => measured.thread_ended(&last),
            }
        }
        if reactor.service().is_done() {
            measured.end(&mut Nobody);
            return measured;
        }
    }
    panic!("no end: {:?}", reactor.service());
}

fn milliseconds(measured: &Measurement, quantile: f64) -> f64 {
    measured.total.latency.value_at_quantile(quantile) as f64 / 1e6
}

/// Within the histogram's precision and what the network adds (0.1 ms there and back).
fn assert_near(what: f64, expected: f64, tolerance: f64) {
    assert!(
        (what - expected).abs() <= tolerance,
        "{what}, not {expected}"
    );
}

/// By hand: 1000 starts a second, at each millisecond. Those at 0 to 199 ms of a second wait until
/// 200 ms: their latencies are 200, 199, … 1 ms. The other 800 take 0.1 ms. In order of length, 80%
/// of all take 0.1 ms, and from there on each tenth of a percent adds a millisecond: the 90th
/// percentile is 100 ms, the 95th 150, the 99th 190, the 99.9th 199, the longest 200. The mean is
/// (800 × 0.1 + 200 × 201 / 2) / 1000 = 20.18 ms.
#[test]
fn an_open_loop_shows_the_true_weight_of_a_stall() {
    let world = World::new(1, Faults::none());
    let stall = Duration::from_millis(200);
    // Enough connections for all that wait, and too few: then they wait in the generator.
    for (connections, extra) in [(256, 0.3), (10, 3.0)] {
        let measured = run(&world, stall, |addr| {
            plan(addr, open("1000", 10), connections)
        });
        let counts = measured.total.counts;
        assert_eq!((counts.started, counts.answered), (10_000, 10_000));
        assert_near(milliseconds(&measured, 0.5), 0.1, extra);
        for (quantile, expected) in [(0.9, 100.0), (0.95, 150.0), (0.99, 190.0), (0.999, 199.0)] {
            assert_near(milliseconds(&measured, quantile), expected, 1.0 + extra);
        }
        assert_near(measured.total.latency.max() as f64 / 1e6, 200.0, 1.0);
        assert_near(measured.total.latency.mean() / 1e6, 20.18, 0.2 + extra);
        // The generator itself was never late.
        assert_eq!(counts.late, 0);
        assert_near(measured.total.lateness.max() as f64 / 1e6, 0.0, 0.1);
        // With ten connections the rest waited in the generator, which the service time, counted
        // from the actual start, does not see.
        let service = measured.total.service.value_at_quantile(0.98) as f64 / 1e6;
        match connections {
            256 => assert_near(service, 180.0, 1.5),
            _ => assert!(
                counts.queued >= 1_500 && service < 1.0,
                "{service}, {counts:?}"
            ),
        }
    }
}

/// By hand: ten connections ask 10,000 times a second each while the server answers (0.1 ms there
/// and back): 80,000 requests a second, of which ten meet the stall. That is an eighth of a
/// thousandth: not even the 99.9th percentile shows it, though the server stood still for a fifth
/// of the time.
#[test]
fn a_closed_loop_hides_the_stall() {
    let world = World::new(1, Faults::none());
    let stall = Duration::from_millis(200);
    let duration = Duration::from_secs(2);
    let measured = run(&world, stall, |addr| {
        plan(addr, Load::Closed { duration }, 10)
    });
    let counts = measured.total.counts;
    assert_near(counts.answered as f64, 160_000.0, 1_600.0);
    assert_near(milliseconds(&measured, 0.999), 0.1, 0.01);
    assert_near(measured.total.latency.max() as f64 / 1e6, 200.0, 1.0);
    assert_eq!(counts.started, counts.answered);
}

#[test]
fn what_has_no_answer_in_time_is_a_sample_of_that_length() {
    let world = World::new(1, Faults::none());
    let measured = run(&world, Duration::from_secs(1), |addr| Plan {
        timeout: Duration::from_millis(300),
        ..plan(addr, open("100", 2), 5)
    });
    let counts = measured.total.counts;
    assert_eq!(
        (counts.started, counts.timed_out, counts.answered),
        (200, 200, 0)
    );
    assert!(counts.never_sent > 0, "{counts:?}");
    assert_eq!(measured.total.latency.len(), 200);
    // The wheel is late by 4 ms at most.
    assert!(milliseconds(&measured, 0.0) >= 299.0 && milliseconds(&measured, 1.0) <= 306.0);
}

#[test]
fn a_warm_up_is_not_counted() {
    let world = World::new(1, Faults::none());
    let measured = run(&world, Duration::ZERO, |addr| Plan {
        warmup: Duration::from_secs(3),
        ..plan(addr, open("100..200/2s/2", 0), 4)
    });
    assert_eq!(measured.total.counts.started, 300);
    let stages: Vec<u64> = measured.stages.iter().map(|s| s.started).collect();
    assert_eq!(stages, [100, 200]);
    assert_eq!(measured.elapsed, Duration::from_secs(2));
    assert_eq!(measured.series.iter().map(|p| p.answered).sum::<u64>(), 300);
}

#[test]
fn every_request_is_accounted_for_whatever_goes_wrong() {
    for seed in 0..40 {
        let world = World::new(seed, Faults::none());
        let mut random = world.random();
        world.set_faults(Faults::random(&mut random));
        let closed = random.below(3) == 0;
        let (pipeline, keep_alive) = (1 + random.below(4) as usize, [1.0, 0.5, 0.0]);
        let keep_alive = keep_alive[random.below(3) as usize];
        let duration = Duration::from_millis(500);
        let measured = run(&world, Duration::from_millis(100), |addr| Plan {
            pipeline,
            keep_alive,
            timeout: Duration::from_millis(200),
            warmup: Duration::from_millis(100),
            load: match closed {
                true => Load::Closed { duration },
                false => Load::Open {
                    profile: RateSpec::parse("2000").unwrap().over(duration),
                    arrivals: Arrivals::Poisson,
                },
            },
            ..plan(addr, open("1", 1), 8)
        });
        let counts = measured.total.counts;
        let over = counts.answered + counts.timed_out + counts.failed;
        assert_eq!(counts.started, over, "seed {seed}: {counts:?}");
        let samples = counts.answered + counts.timed_out;
        assert_eq!(measured.total.latency.len(), samples, "seed {seed}");
        let stages: u64 = measured.stages.iter().map(|s| s.started).sum();
        assert_eq!(stages, counts.started, "seed {seed}");
        let statuses: u64 = measured.total.statuses.iter().map(|(_, n)| n).sum();
        assert_eq!(statuses, counts.answered, "seed {seed}");
        assert_eq!(measured.unfinished, 0);
    }
}
