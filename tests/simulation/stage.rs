//! A calm world with one server, for tests that play both sides by hand and know the time of
//! everything to the tick.

use std::sync::Arc;
use std::time::Duration;

use toron::policy::snapshot::Snapshot;
use toron_reactor::sim::{Faults, Remote, RemoteListener, World};
use toron_reactor::{Buf, Engine, Time, Wheel};

use crate::scene::{machine, server_address, Machine};
use crate::setup;

/// Segments on their way there and back, a few times.
const NETWORK: Duration = Duration::from_micros(500);
/// Where the route of every stage goes.
const TARGET: &str = "127.0.1.1:81";
/// Turns of one wait at most, so that a server that spins is noticed.
const TURNS: u32 = 1_000_000;

/// See the module text.
pub struct Stage {
    pub world: World,
    machine: Machine,
    door: RemoteListener,
}

impl Stage {
    /// A server whose config.yaml is `config` and which has one route, with the keys `route`
    /// (`a: b; c: d`).
    pub fn new(config: &str, route: &str) -> Stage {
        let keys: String = route
            .split("; ")
            .filter(|key| !key.is_empty())
            .map(|key| format!("    {key}\n"))
            .collect();
        let routes = format!("routes:\n  - prefix: /\n    target: http://{TARGET}\n{keys}");
        Stage::of(&setup::load(config, &routes))
    }

    /// One with this configuration, whose routes may go anywhere.
    pub fn of(snapshot: &Arc<Snapshot>) -> Stage {
        let world = World::new(1, Faults::none());
        let door = world.remote_listen(TARGET.parse().unwrap(), 16).unwrap();
        let machine = machine(&world, snapshot, 64, 1);
        Stage {
            world,
            machine,
            door,
        }
    }

    /// Another upstream.
    pub fn listen(&self, at: &str) -> RemoteListener {
        self.world.remote_listen(at.parse().unwrap(), 16).unwrap()
    }

    /// The next connection that comes by a door.
    pub fn at(&mut self, door: &RemoteListener, within: Duration) -> Peer {
        match self.look(within, |_| door.accept()) {
            Some((_, remote)) => Peer::new(remote),
            None => panic!("no connection to {} within {within:?}", door.addr()),
        }
    }

    /// One whose route streams also the short bodies, which are collected as a rule.
    pub fn streaming(config: &str, route: &str) -> Stage {
        Stage::new(config, &format!("stream_request_body: true; {route}"))
    }

    pub fn now(&self) -> Time {
        self.world.now()
    }

    pub fn client(&self) -> Peer {
        let from = "127.0.2.1:0".parse().unwrap();
        Peer::new(self.world.connect(from, server_address()))
    }

    /// What the server holds.
    pub fn counts(&self) -> toron::server::shared::Counts {
        self.machine.reactor.service().counts()
    }

    /// All buffers that the server has left: until they are dropped, it has none.
    pub fn all_buffers(&mut self) -> Vec<Buf> {
        let pool = self.machine.reactor.engine().buffers();
        std::iter::from_fn(|| pool.take()).collect()
    }

    /// Turns until `look` finds something, and says when; `None` if it does not `within` that time.
    pub fn look<T>(
        &mut self,
        within: Duration,
        mut look: impl FnMut(&Stage) -> Option<T>,
    ) -> Option<(Time, T)> {
        let limit = self.now() + within;
        for _ in 0..TURNS {
            if let Some(found) = look(self) {
                return Some((self.now(), found));
            }
            if self.now() >= limit {
                return None;
            }
            self.world.alarm(limit);
            self.machine.reactor.step(Some(limit)).unwrap();
        }
        panic!("the server spins");
    }

    /// Turns until this holds, and says when.
    pub fn until(&mut self, within: Duration, mut holds: impl FnMut() -> bool) -> Time {
        let found = self.look(within, |_| holds().then_some(()));
        match found {
            Some((at, ())) => at,
            None => panic!("it does not happen within {within:?}"),
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.look(time, |_| None::<()>);
    }

    /// A connection to the upstream that waits.
    pub fn next_upstream(&self) -> Option<Peer> {
        self.door.accept().map(Peer::new)
    }

    /// The next connection to the upstream.
    pub fn upstream(&mut self, within: Duration) -> Peer {
        match self.look(within, |stage| stage.door.accept()) {
            Some((_, remote)) => Peer::new(remote),
            None => panic!("no upstream connection within {within:?}"),
        }
    }

    /// The upstream's end of a request with this head, sent by `client`.
    pub fn request(&mut self, client: &mut Peer, head: &str) -> Peer {
        self.until(Duration::from_secs(1), || client.remote.is_open());
        client.send(head.as_bytes());
        let mut upstream = self.upstream(Duration::from_secs(1));
        self.until(Duration::from_secs(1), || upstream.has(b"\r\n\r\n"));
        upstream
    }

    /// No other connection to the upstream waits.
    pub fn nobody_waits(&self) {
        assert!(self.door.accept().is_none());
    }
}

/// One end of a connection, and what it has received.
pub struct Peer {
    pub remote: Remote,
    pub received: Vec<u8>,
}

impl Peer {
    fn new(remote: Remote) -> Peer {
        Peer {
            remote,
            received: Vec::new(),
        }
    }

    /// Sends all of it.
    pub fn send(&self, bytes: &[u8]) {
        assert_eq!(
            self.remote.send(bytes),
            bytes.len(),
            "the send buffer is full"
        );
    }

    /// Takes what has come.
    pub fn take(&mut self, most: usize) -> usize {
        let bytes = self.remote.recv(most);
        self.received.extend_from_slice(&bytes);
        bytes.len()
    }

    /// Whether these bytes have come.
    pub fn has(&mut self, bytes: &[u8]) -> bool {
        self.take(usize::MAX);
        self.received.windows(bytes.len()).any(|w| w == bytes)
    }

    /// What has come, as text.
    pub fn text(&mut self) -> String {
        self.take(usize::MAX);
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// The other side has closed or reset the connection.
    pub fn has_ended(&mut self) -> bool {
        self.take(usize::MAX);
        self.remote.at_end() || self.remote.is_broken()
    }
}

/// A deadline was kept: not early, and late by a tick of the wheel at most. Both moments are known to
/// the time that the network takes.
#[track_caller]
pub fn on_time(since: Time, limit: Duration, at: Time) {
    let waited = at.since(since);
    assert!(
        waited + NETWORK >= limit && waited <= limit + Wheel::GRAIN + NETWORK,
        "after {waited:?} instead of {limit:?}"
    );
}
