#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use toron_reactor::sim::{Faults, Remote, RemoteListener, Route, SimEngine, World};
use toron_reactor::{mailbox, Address, Reactor};

use super::*;
use crate::control::config::load_texts;
use crate::control::probe::checks_of;
use crate::control::resolve::Endpoints;
use crate::policy::pool::Standing;
use crate::policy::snapshot::{Counters, Snapshot};

const SECOND: Duration = Duration::from_secs(1);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Probes in a simulated network.
struct Stage {
    world: World,
    reactor: Reactor<SimEngine, Probes>,
    address: Address<Message>,
    counters: Counters,
    endpoints: Endpoints,
    snapshot: Snapshot,
}

impl Stage {
    /// Of one route with these keys, every 5 s.
    fn new(route: &str) -> Stage {
        let world = World::new(1, Faults::none());
        let (address, mailbox) = mailbox();
        let reactor = Reactor::new(world.engine(16), Probes::new(7), mailbox);
        let (mut endpoints, mut counters) = (Endpoints::default(), Counters::default());
        let snapshot = snapshot(route, &mut endpoints, &mut counters);
        let stage = Stage {
            world,
            reactor,
            address,
            counters,
            endpoints,
            snapshot,
        };
        stage.watch();
        stage
    }

    fn watch(&self) {
        let checks = checks_of(&self.snapshot);
        self.address.send(Message::Watch(checks)).unwrap();
    }

    fn reload(&mut self, route: &str) {
        self.snapshot = snapshot(route, &mut self.endpoints, &mut self.counters);
        self.watch();
    }

    /// Turns until `done` finds something, for at most `within`.
    fn look<T>(&mut self, within: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
        let limit = self.world.now() + within;
        loop {
            if let Some(found) = done() {
                return Some(found);
            }
            if self.world.now() >= limit {
                return None;
            }
            self.world.alarm(limit);
            self.reactor.step(Some(limit)).unwrap();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.look(time, || None::<()>);
    }

    /// The next probe at a door, and what it asks for.
    fn probe(&mut self, door: &RemoteListener) -> (Remote, String) {
        let remote = self.look(6 * SECOND, || door.accept()).unwrap();
        let mut text = String::new();
        let whole = self.look(SECOND, || {
            text.push_str(&String::from_utf8(remote.recv(usize::MAX)).unwrap());
            text.ends_with("\r\n\r\n").then_some(())
        });
        assert!(whole.is_some(), "{text}");
        (remote, text)
    }

    /// Answers the next probe, and waits until its connection is closed.
    fn answer(&mut self, door: &RemoteListener, answer: &str) {
        let (remote, _) = self.probe(door);
        assert_eq!(remote.send(answer.as_bytes()), answer.len());
        let over = self.look(SECOND, || {
            (remote.at_end() || remote.is_broken()).then_some(())
        });
        assert!(over.is_some(), "the connection of a probe stays open");
    }

    fn standing(&self, target: usize) -> Standing {
        self.snapshot.pool(0).unwrap().targets()[target].standing()
    }

    fn door(&self, at: &str) -> RemoteListener {
        self.world.remote_listen(address(at), 64).unwrap()
    }
}

fn snapshot(route: &str, endpoints: &mut Endpoints, counters: &mut Counters) -> Snapshot {
    let text = format!("routes:\n  - {{prefix: /, {route}}}\n");
    let mut snapshot = load_texts("", Some(&text), endpoints).unwrap().snapshot;
    snapshot.keep_counters(counters);
    snapshot
}

const ONE: &str = "target: 'http://127.0.1.1:81/app', health_check_path: '/healthz?deep=1'";
const GOOD: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const BAD: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

#[test]
fn r20_probes_open_after_three_failures_and_close_after_a_success() {
    let mut stage = Stage::new(ONE);
    let door = stage.door("127.0.1.1:81");
    let (remote, text) = stage.probe(&door);
    assert_eq!(
        text,
        "GET /healthz?deep=1 HTTP/1.1\r\nHost: 127.0.1.1:81\r\nUser-Agent: toron/health\r\n\
         Accept: */*\r\nConnection: close\r\n\r\n"
    );
    remote.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 2");
    stage.pass(SECOND);
    remote.send(&GOOD.as_bytes()[10..]);
    stage.pass(SECOND);
    assert!(remote.at_end());
    for answer in [BAD, "HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n"] {
        stage.answer(&door, answer);
        assert_eq!(stage.standing(0), Standing::Up);
    }
    stage.answer(&door, BAD);
    assert_eq!(stage.standing(0), Standing::Out);
    stage.answer(&door, BAD);
    assert_eq!(stage.standing(0), Standing::Out);
    stage.answer(&door, GOOD);
    assert_eq!(stage.standing(0), Standing::Up);
    // Two are not three in a row.
    for answer in [BAD, BAD, GOOD, BAD, BAD] {
        stage.answer(&door, answer);
        assert_eq!(stage.standing(0), Standing::Up);
    }
}

#[test]
fn r20_a_probe_every_interval_and_no_answer_within_the_timeout_is_a_failure() {
    let mut stage = Stage::new(&format!("{ONE}, consecutive_failures: 1"));
    let door = stage.door("127.0.1.1:81");
    let (first, _) = stage.probe(&door);
    let begun = stage.world.now();
    let over = stage.look(3 * SECOND, || first.at_end().then_some(()));
    assert!(over.is_some());
    let waited = stage.world.now().since(begun);
    assert!(waited.abs_diff(2 * SECOND) < Duration::from_millis(10));
    assert_eq!(stage.standing(0), Standing::Out);
    let _second = stage.probe(&door);
    let between = stage.world.now().since(begun);
    assert!(
        between.abs_diff(5 * SECOND) < Duration::from_millis(10),
        "{between:?}"
    );
}

#[test]
fn r20_whatever_is_no_2xx_is_a_failure() {
    for answer in [
        "garbage\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "",
        BAD,
    ] {
        let mut stage = Stage::new(&format!("{ONE}, consecutive_failures: 1"));
        let door = stage.door("127.0.1.1:81");
        let (remote, _) = stage.probe(&door);
        remote.send(answer.as_bytes());
        if answer.is_empty() {
            remote.shutdown_write();
        }
        stage.pass(SECOND);
        assert_eq!(stage.standing(0), Standing::Out, "{answer:?}");
    }
    // Refused.
    let mut stage = Stage::new(&format!("{ONE}, consecutive_failures: 1"));
    stage.pass(6 * SECOND);
    assert_eq!(stage.standing(0), Standing::Out);
}

#[test]
fn r20_every_address_of_a_target_is_tried_in_a_probe() {
    let route = "target: 'http://name.test', health_check_path: /, consecutive_failures: 1";
    let mut stage = Stage::new(route);
    // Without an address nothing can be said.
    stage.pass(11 * SECOND);
    assert_eq!(stage.standing(0), Standing::Up);
    let endpoint = stage.endpoints.get("name.test", 80);
    endpoint.publish(vec![address("127.0.1.1:80"), address("127.0.1.2:80")]);
    let door = stage.door("127.0.1.2:80");
    for _ in 0..4 {
        stage.answer(&door, GOOD);
        assert_eq!(stage.standing(0), Standing::Up);
    }
    stage
        .world
        .set_route(address("127.0.1.2:80"), Route::Refused);
    drop(door);
    stage.pass(6 * SECOND);
    assert_eq!(stage.standing(0), Standing::Out);
}

#[test]
fn r20_a_machine_without_descriptors_says_nothing_of_its_targets() {
    let mut stage = Stage::new(&format!("{ONE}, consecutive_failures: 1"));
    let door = stage.door("127.0.1.1:81");
    stage.world.set_descriptor_limit(0);
    stage.pass(11 * SECOND);
    assert_eq!(stage.standing(0), Standing::Up);
    stage.world.set_descriptor_limit(10);
    stage.answer(&door, BAD);
    assert_eq!(stage.standing(0), Standing::Out);
}

#[test]
fn r22_a_target_that_goes_is_not_probed_any_more() {
    let mut stage =
        Stage::new("targets: ['http://127.0.1.1:81', 'http://127.0.1.2:81'], health_check_path: /");
    let doors = ["127.0.1.1:81", "127.0.1.2:81"].map(|at| stage.door(at));
    let (probes, _) = stage.probe(&doors[0]);
    stage.reload("target: 'http://127.0.1.2:81', health_check_path: /");
    let over = stage.look(SECOND, || probes.at_end().then_some(()));
    assert!(
        over.is_some(),
        "the connection of a target that has gone is open"
    );
    assert_eq!(stage.reactor.service().len(), 1);
    stage.answer(&doors[1], GOOD);
    stage.pass(11 * SECOND);
    assert!(doors[0].accept().is_none());
    // Without a path there are no probes at all.
    stage.reload("target: 'http://127.0.1.2:81'");
    stage.pass(SECOND);
    assert!(stage.reactor.service().is_empty());
    drop(doors);
    let stats = stage.reactor.stats();
    assert_eq!(
        (stats.timers, stats.engine.sockets, stats.engine.operations),
        (0, 0, 0)
    );
}

#[test]
fn r20_thousands_of_targets_are_probed_within_an_interval_each() {
    const TARGETS: usize = 3000;
    let name = |n: usize| format!("127.1.{}.{}:81", n / 250, n % 250 + 1);
    let list: Vec<String> = (0..TARGETS)
        .map(|n| format!("'http://{}'", name(n)))
        .collect();
    let route = format!("targets: [{}], health_check_path: /", list.join(", "));
    let mut stage = Stage::new(&route);
    let doors: Vec<_> = (0..TARGETS).map(|n| stage.door(&name(n))).collect();
    let mut counts = vec![0; TARGETS];
    // Three intervals; every third target swallows its probes.
    let mut open: Vec<Remote> = Vec::new();
    for _ in 0..150 {
        stage.pass(Duration::from_millis(100));
        for (n, door) in doors.iter().enumerate() {
            while let Some(remote) = door.accept() {
                counts[n] += 1;
                if n % 3 != 0 {
                    remote.send(GOOD.as_bytes());
                }
                open.push(remote);
            }
        }
        open.retain(|remote| !remote.at_end() && !remote.is_broken());
    }
    assert!(counts.iter().all(|&n| (2..=3).contains(&n)), "{counts:?}");
    stage.pass(7 * SECOND);
    let out = (0..TARGETS).filter(|&n| stage.standing(n) == Standing::Out);
    assert!(out.clone().all(|n| n % 3 == 0));
    assert!(out.count() > TARGETS / 4);
    let stats = stage.reactor.stats();
    assert_eq!(stats.timers, TARGETS);
    assert_eq!(stats.engine.buffers, 0);
}
