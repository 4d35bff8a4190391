//! One seed, from the first SYN to the last close.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use toron::http::{Answer, Reason};
use toron::policy::pool::Standing;
use toron::policy::settings::RouteKind;
use toron::policy::snapshot::Snapshot;
use toron::server::access_log::{self, LogSource};
use toron::server::shared::Shared;
use toron::server::{Message, Server};
use toron_reactor::sim::{Faults, Route, SimEngine, World};
use toron_reactor::{mailbox, Address, Reactor, Time};

use crate::client::Client;
use crate::ledger::{Ledger, Tally};
use crate::origin::{earliest, Origin};
use crate::plan::{Plan, Story, UPSTREAMS};
use crate::setup;

/// Turns of a seed at most: far beyond what any needs, so that a server that spins is noticed.
const TURNS: u64 = 3_000_000;
/// What is on its way when the faults are switched off: a stall, and delayed completions.
const UNDER_WAY: Duration = Duration::from_secs(10);

/// For closing the listener, which waits for its operations.
const CLOSING: Duration = Duration::from_millis(100);

pub fn server_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8080))
}

/// A server, and what keeps its mailbox open.
pub struct Machine {
    pub reactor: Reactor<SimEngine, Server>,
    shared: Arc<Shared>,
    /// The access log, as it is written.
    log: LogSource,
    _address: Address<Message>,
}

/// A server in a world.
pub fn machine(world: &World, snapshot: &Arc<Snapshot>, buffers: usize, seed: u64) -> Machine {
    let shared = Arc::new(ArcSwap::new(Arc::clone(snapshot)));
    let (sink, log) = access_log::channel();
    let shared = Shared::new(shared, 1, 1, Some(sink));
    let listener = world.listen(server_address(), 64).unwrap();
    let (address, mailbox) = mailbox();
    let server = Server::new(Arc::clone(&shared), 0, seed);
    let mut reactor = Reactor::new(world.engine(buffers), server, mailbox);
    reactor.listen(listener).unwrap();
    Machine {
        reactor,
        shared,
        log,
        _address: address,
    }
}

struct Scene {
    world: World,
    machine: Machine,
    snapshot: Arc<Snapshot>,
    ledger: Ledger,
    clients: Vec<Client>,
    origin: Option<Origin>,
    begin: Time,
    turns: u64,
    ended: bool,
    /// Lines of the access log.
    lines: Vec<u8>,
}

/// Plays a seed and checks everything.
pub fn play(seed: u64, snapshot: &Snapshot, traces: bool) -> Tally {
    let snapshot = &setup::anew(snapshot);
    let plan = Plan::new(seed);
    if traces {
        eprintln!("{plan:#?}");
    }
    let world = World::new(seed, plan.faults.clone());
    if plan.silent {
        world.set_route(UPSTREAMS[3].parse().unwrap(), Route::Silent);
    }
    let begin = world.now();
    let machine = machine(&world, snapshot, plan.buffers, seed);
    let count = plan.clients.len();
    let ledger = Ledger::new(plan, traces, begin);
    let origin = Some(Origin::new(&world, &ledger));
    let clients = (0..count)
        .map(|n| Client::new(&ledger, n, server_address(), begin))
        .collect();
    let mut scene = Scene {
        world,
        machine,
        snapshot: Arc::clone(snapshot),
        ledger,
        clients,
        origin,
        begin,
        turns: 0,
        ended: false,
        lines: Vec::new(),
    };
    match scene.ledger.plan.story {
        Story::Whole => scene.whole(),
        Story::Freeze(at) => scene.freeze(at),
        Story::Drain(at, grace) => scene.drain(at, grace),
    }
    scene.finish();
    scene.ledger.tally.turns = scene.turns;
    scene.ledger.tally
}

impl Scene {
    fn turn(&mut self, until: Option<Time>) {
        self.turns += 1;
        assert!(self.turns < TURNS, "the server spins");
        self.ended |= self.machine.reactor.step(until).unwrap();
        while let Ok(mut batch) = self.machine.log.batches.try_recv() {
            self.lines.extend_from_slice(&batch);
            batch.clear();
            let _ = self.machine.log.empty.try_send(batch);
        }
        self.check_slots();
        self.check_targets();
    }

    /// No target is above its cap (R19); without probes one of each route is up, and one request at
    /// a time is the trial of another (R20).
    fn check_targets(&mut self) {
        let (mut held, mut out, mut trial) = (0, 0, 0);
        let mut up = HashSet::new();
        for (route, target, state) in self.snapshot.targets() {
            let RouteKind::Upstream(upstream) = &route.kind else {
                continue;
            };
            let (in_flight, url) = (state.in_flight(), target.url());
            let cap = upstream.target_max_concurrency.unwrap_or(u32::MAX);
            assert!(in_flight <= cap, "{in_flight} in flight at {url}");
            held += in_flight as usize;
            match state.standing() {
                Standing::Up => drop(up.insert(route.id)),
                Standing::Out => out = 1,
                Standing::OnTrial => {
                    trial = 1;
                    assert!(in_flight > 0, "the trial of {url} is lost");
                }
            }
        }
        assert!(held <= self.server().counts().exchanges, "{held} places");
        let pools = self.snapshot.table.routes().iter();
        let pools = pools.filter(|route| matches!(route.kind, RouteKind::Upstream(_)));
        assert_eq!(up.len(), pools.count(), "a route without any target");
        self.ledger.tally.out += out;
        self.ledger.tally.trial += trial;
    }

    /// Each request that has ended has left one line, also one whose head never came whole, and one
    /// that did not end well its reason.
    fn check_log(&self) {
        let text = std::str::from_utf8(&self.lines).unwrap();
        let mut requests = 0;
        for line in text.lines() {
            let field = |name: &str| {
                let (_, rest) = line.split_once(name).unwrap();
                rest.split(' ').next().unwrap().to_owned()
            };
            let (status, reason) = (field(" status="), field(" reason="));
            let told = Reason::ALL.into_iter().find(|r| r.code() == reason);
            // A connection that was not accepted has a line as well, but made no request.
            requests += u64::from(told != Some(Reason::OutOfDescriptors));
            match told {
                None => assert!(reason == "-" && status != "-", "{line}"),
                Some(told) => {
                    assert_eq!(field(" by="), told.ended_by().code(), "{line}");
                    let answer = Answer::to(told).map(|answer| answer.status().to_string());
                    // Its own answer, or what the upstream had begun to answer, or nothing.
                    let own = answer.as_ref() == Some(&status);
                    let begun = !line.contains(" first_byte_us=-");
                    assert!(own || begun || status == "-", "{line}");
                }
            }
        }
        assert_eq!(requests, self.server().counts().requests, "{text}");
    }

    /// No route is above its cap (I12), and whatever holds a slot has a client connection (I14).
    /// Every request that was received has ended or is in flight.
    fn check_slots(&self) {
        let counts = self.server().counts();
        let known = counts.requests + counts.exchanges as u64;
        assert_eq!(counts.received, known, "{counts:?}");
        assert!(counts.idle_sessions <= counts.sessions, "{counts:?}");
        let mut held = 0;
        for (route, in_flight) in self.snapshot.in_flight() {
            let cap = route.limits.max_concurrency.unwrap_or(u32::MAX);
            assert!(in_flight <= cap, "{in_flight} in flight: {}", route.name);
            held += in_flight as usize;
        }
        assert!(
            held <= self.server().counts().sessions,
            "{held} slots are held"
        );
    }

    /// Peers act, then the server, until `until` or, without it, until the clients are done.
    fn play(&mut self, until: Option<Time>) {
        loop {
            let now = self.world.now();
            if until.is_some_and(|until| now >= until) {
                return;
            }
            let mut next = until;
            for client in &mut self.clients {
                next = earliest(next, client.act(&self.world, now, &mut self.ledger));
            }
            if let Some(origin) = &mut self.origin {
                next = earliest(next, origin.act(now, &mut self.ledger));
            }
            if until.is_none() && self.clients.iter().all(|client| client.done) {
                return;
            }
            if let Some(next) = next.filter(|next| *next > now) {
                self.world.alarm(next);
            }
            self.turn(next);
        }
    }

    fn calm_down(&mut self) {
        self.world.set_faults(Faults::none());
    }

    fn note(&self, text: &str) {
        self.ledger.note(self.world.now(), || text.to_owned());
    }

    /// Clients play to the end, then everything must go by itself.
    fn whole(&mut self) {
        self.play(None);
        self.note("the clients are done");
        self.calm_down();
        if let Some(origin) = &mut self.origin {
            origin.hurry();
        }
        let limit = self.world.now() + UNDER_WAY + setup::longest();
        loop {
            let counts = self.server().counts();
            let limit = if counts.sessions > 0 {
                limit
            } else {
                limit + setup::IDLE_UPSTREAM + Duration::from_secs(1)
            };
            if (counts.sessions, counts.upstream_connections) == (0, 0) {
                assert_eq!(counts.exchanges, 0);
                return;
            }
            assert!(
                self.world.now() < limit,
                "sessions or upstream connections outlive their clients: {:#?}",
                self.server()
            );
            let soon = self.world.now() + Duration::from_secs(1);
            self.play(Some(soon));
        }
    }

    /// At some time every peer stops acting: the deadlines must do the rest.
    fn freeze(&mut self, at: Duration) {
        self.play(Some(self.begin + at));
        self.note("every peer stands still");
        self.calm_down();
        let limit = self.world.now() + UNDER_WAY + setup::longest();
        self.idle_until(limit, |scene| scene.server().counts().sessions == 0);
        assert_eq!(
            self.server().counts().sessions,
            0,
            "sessions outlive their deadlines: {:#?}",
            self.server()
        );
    }

    /// Turns without any peer until `limit`, or until something holds.
    fn idle_until(&mut self, limit: Time, holds: impl Fn(&Scene) -> bool) {
        self.world.alarm(limit);
        while self.world.now() < limit && !holds(self) {
            self.turn(Some(limit));
        }
    }

    /// The server ends while there is work.
    fn drain(&mut self, at: Duration, grace: Duration) {
        self.play(Some(self.begin + at));
        self.note("draining");
        self.calm_down();
        self.machine.reactor.drain(grace);
        // The listener is closed first.
        let limit = self.world.now() + grace + toron_reactor::Wheel::GRAIN + CLOSING;
        self.play(Some(limit));
        assert!(
            self.ended,
            "not finished within its grace: {:#?}",
            self.server()
        );
    }

    fn server(&self) -> &Server {
        self.machine.reactor.service()
    }

    /// Nothing is left.
    fn finish(&mut self) {
        self.note("the end");
        self.calm_down();
        self.clients.clear();
        self.machine.reactor.drain(Duration::ZERO);
        let limit = self.world.now() + UNDER_WAY;
        self.idle_until(limit, |scene| scene.ended);
        assert!(self.ended, "{:#?}", self.server());
        // What was cancelled still reports.
        for _ in 0..10 {
            self.world.advance(UNDER_WAY / 10);
            self.turn(Some(self.world.now()));
        }
        self.check_log();
        let counted = self.machine.shared.firewall.connections();
        assert_eq!(counted, 0, "connections that the firewall still counts");
        let counts = self.server().counts();
        assert_eq!(
            (
                counts.sessions,
                counts.exchanges,
                counts.upstream_connections,
                counts.upstream_idle
            ),
            (0, 0, 0, 0)
        );
        let stats = self.machine.reactor.stats();
        assert_eq!(stats.connections, 0, "connections that did not end");
        let stats = (stats.engine, stats.timers);
        let held = (
            stats.0.operations,
            stats.0.sockets,
            stats.0.buffers,
            stats.0.pipes,
        );
        assert_eq!(held, (0, 0, 0, 0), "operations, sockets, buffers, pipes");
        // The sweep of idle connections keeps its timer.
        assert!(stats.1 <= 1, "timers are left");
        self.origin = None;
        self.world.advance(UNDER_WAY);
        assert_eq!(self.world.endpoints(), 0, "connections are left");
    }
}
