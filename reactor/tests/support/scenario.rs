//! One run: peers, faults and a relay, all from one seed; and what must hold.

use std::net::SocketAddr;
use std::time::Duration;

use toron_reactor::sim::{Faults, Random, Remote, RemoteListener, Route, SimEngine, World};
use toron_reactor::{mailbox, Address, Engine, Reactor, Stats, Wheel};

use super::audit::Audited;
use super::relay::{Counts, Mode, Order, Relay};

/// Steps after which a run counts as one that does not end.
const STEPS: usize = 200_000;

/// What a peer is going to do with its side of a connection.
#[derive(Clone, Debug)]
struct Plan {
    /// Sends so many bytes …
    total: usize,
    /// … and then ends its direction; or breaks off after so many, in this way.
    cut: Option<(usize, Cut)>,
    /// Bytes read at a time.
    appetite: usize,
    /// Chance to let a turn pass without doing anything.
    laziness: f64,
    /// How long at most.
    nap: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    Reset,
    Close,
}

/// A peer at work. `side` 0 is the client, 1 the upstream.
#[derive(Debug)]
struct Actor {
    remote: Option<Remote>,
    side: u8,
    /// Connection, once known.
    id: Option<u32>,
    plan: Plan,
    sent: usize,
    received: usize,
    asleep_until: toron_reactor::Time,
    end: End,
}

/// How a connection ended for an actor, and what it did itself.
#[derive(Clone, Copy, Default, Debug)]
struct End {
    /// Sent FIN after that many bytes.
    fin_after: Option<usize>,
    /// Read up to a FIN.
    saw_fin: bool,
    saw_cut: bool,
    /// Broke off or was cut off before it could see.
    left: bool,
}

/// Byte `i` of what `side` says on connection `id`. The first four bytes from the client are the
/// number of the connection.
fn byte(id: u32, side: u8, i: usize) -> u8 {
    if side == 0 && i < 4 {
        return id.to_le_bytes()[i];
    }
    let mix =
        (i as u32 ^ id.wrapping_mul(0x9e37_79b1) ^ u32::from(side) << 13).wrapping_mul(0x85eb_ca6b);
    (mix >> 24) as u8
}

impl Plan {
    fn new(random: &mut Random, most: usize, calm: bool) -> Plan {
        let bits = random.below(18);
        let total = 4 + random.below((1 << bits).min(most as u64)) as usize;
        let cut = random.chance(0.2).then(|| {
            let how = if random.below(2) == 0 {
                Cut::Reset
            } else {
                Cut::Close
            };
            (random.below(total as u64) as usize, how)
        });
        let nap = if calm {
            1 << random.below(6)
        } else {
            1 << random.below(17)
        };
        Plan {
            total,
            cut,
            appetite: 1 << random.between(if calm { 12 } else { 4 }, 18),
            laziness: [0.0, 0.1, 0.5][random.below(3) as usize],
            nap: Duration::from_millis(nap),
        }
    }
}

impl Actor {
    fn new(remote: Remote, side: u8, id: Option<u32>, plan: Plan) -> Actor {
        let asleep_until = toron_reactor::Time(0);
        let end = End::default();
        Actor {
            remote: Some(remote),
            side,
            id,
            plan,
            sent: 0,
            received: 0,
            asleep_until,
            end,
        }
    }

    fn act(&mut self, world: &World, random: &mut Random) {
        let now = world.now();
        if self.remote.is_none() || self.asleep_until > now {
            return;
        }
        if random.chance(self.plan.laziness) {
            let nanos = random.below(self.plan.nap.as_nanos() as u64);
            self.asleep_until = now + Duration::from_nanos(nanos + 1_000);
            return world.alarm(self.asleep_until);
        }
        let Some(remote) = self.remote.take() else {
            return;
        };
        if remote.is_connecting() {
            self.remote = Some(remote);
            return;
        }
        self.read(&remote);
        self.write(&remote);
        if remote.available() > 0 {
            // Read more with the next turn, which must not be far.
            world.alarm(now + Duration::from_micros(50));
        }
        if let Some((after, how)) = self.plan.cut {
            if self.sent >= after {
                self.end.left = true;
                match how {
                    Cut::Reset => return remote.reset(),
                    Cut::Close => {
                        // FIN, unless there are unread bytes.
                        self.end.fin_after.get_or_insert(self.sent);
                        return remote.close();
                    }
                }
            }
        }
        if self.end.saw_fin && self.id.is_none() {
            // The client left before it said its number.
            self.end.fin_after = Some(0);
            return;
        }
        let finished = self.end.saw_fin && self.end.fin_after.is_some();
        let broken = remote.is_broken() && remote.available() == 0;
        if broken || finished {
            return;
        }
        self.remote = Some(remote);
    }

    fn read(&mut self, remote: &Remote) {
        let bytes = remote.recv(self.plan.appetite);
        for byte_received in bytes {
            if self.id.is_none() && self.received < 4 {
                // The upstream learns the number; checked by the client's own bytes below.
                self.header(byte_received);
            } else {
                let id = self.id.expect("known by now");
                let expected = byte(id, 1 - self.side, self.received);
                assert_eq!(
                    byte_received, expected,
                    "byte {} of connection {id} for side {} is wrong",
                    self.received, self.side
                );
            }
            self.received += 1;
        }
        self.end.saw_fin |= remote.at_end();
        self.end.saw_cut |= remote.is_broken() && remote.available() == 0 && !self.end.saw_fin;
    }

    fn header(&mut self, byte_received: u8) {
        // Numbers are below 256, so that the first byte tells and the others are zero.
        if self.received == 0 {
            self.id = Some(u32::from(byte_received));
        }
    }

    fn write(&mut self, remote: &Remote) {
        let Some(id) = self.id else { return };
        let limit = match self.plan.cut {
            Some((after, _)) => after.min(self.plan.total),
            None => self.plan.total,
        };
        if self.sent < limit {
            let end = limit.min(self.sent + (64 << 10));
            let bytes: Vec<u8> = (self.sent..end).map(|i| byte(id, self.side, i)).collect();
            self.sent += remote.send(&bytes);
        }
        if self.sent == self.plan.total && self.plan.cut.is_none() && remote.is_open() {
            if self.end.fin_after.is_none() {
                remote.shutdown_write();
            }
            self.end.fin_after.get_or_insert(self.sent);
        }
    }
}

/// What a run did, for statistics about how well the seeds cover things.
#[derive(Clone, Copy, Default, Debug)]
pub struct Summary {
    pub counts: Counts,
    pub connections: usize,
    pub delivered_whole: usize,
    pub steps: usize,
}

struct Run {
    world: World,
    random: Random,
    reactor: Reactor<Audited<SimEngine>, Relay>,
    orders: Address<Order>,
    upstream: RemoteListener,
    listen: SocketAddr,
    clients: Vec<Actor>,
    servers: Vec<Actor>,
    /// Clients still to come.
    to_come: u32,
    made: u32,
    most: usize,
    calm: bool,
    /// Connections may be refused for want of descriptors.
    scarce: bool,
    meddling: f64,
    /// Turns in a row in which nothing happened.
    still: usize,
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Runs one seed to its end; panics if anything that must hold does not.
pub fn run(seed: u64) -> Summary {
    let mut run = Run::new(seed);
    let mut steps = 0;
    while !run.is_over() {
        steps += 1;
        assert!(steps < STEPS, "the run does not end: {}", run.picture());
        run.step();
    }
    run.finish(steps)
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random::new(seed ^ 0x7265_6c61_7900);
        let mut faults = Faults::random(&mut random);
        // In a calm run nothing takes so long that a deadline may fire.
        let calm = random.below(2) == 0;
        if calm {
            faults.stall = 0.0;
            faults.pause = 0.0;
            faults.syn_lost = 0.0;
            // A send waits for a third of its buffer: a few times what the reader takes at once.
            let most = 8 * faults.receive_buffer.0;
            faults.send_buffer.1 = faults.send_buffer.1.min(most);
            faults.send_buffer.0 = faults.send_buffer.0.min(most);
        }
        let most = 60 * faults.send_buffer.0.min(faults.receive_buffer.0);
        let world = World::new(seed, faults);
        let engine = Audited::new(world.engine(random.between(1, 12) as usize));
        let (listen, up) = (addr("127.0.0.1:80"), addr("127.0.0.3:8080"));
        let listener = world.listen(listen, 4).unwrap();
        let upstream = world
            .remote_listen(up, random.between(2, 40) as usize)
            .unwrap();
        if !calm && random.chance(0.1) {
            let routes = [
                Route::Silent,
                Route::Refused,
                Route::Slow(Duration::from_secs(9)),
            ];
            world.set_route(up, routes[random.below(3) as usize]);
        }
        let limited = random.chance(0.2);
        let scarce = limited || world.faults().accept_error > 0.0;
        if limited {
            world.set_descriptor_limit(random.between(3, 16) as usize);
        }
        let mut mode = || [Mode::Copy, Mode::Gather, Mode::Splice][random.below(3) as usize];
        let relay = Relay::new(up, [mode(), mode()]);
        let (orders, mailbox) = mailbox();
        let mut reactor = Reactor::new(engine, relay, mailbox);
        reactor.listen(listener).unwrap();
        let to_come = random.between(1, 8) as u32;
        let meddling = [0.0, 0.02, 0.3][random.below(3) as usize];
        let (clients, servers) = (Vec::new(), Vec::new());
        let made = 0;
        Run {
            world,
            random,
            reactor,
            orders,
            upstream,
            listen,
            clients,
            servers,
            to_come,
            made,
            most,
            calm,
            scarce,
            meddling,
            still: 0,
        }
    }

    fn picture(&self) -> String {
        let working = |actor: &&Actor| actor.remote.is_some();
        let actors: Vec<&Actor> = self
            .clients
            .iter()
            .chain(&self.servers)
            .filter(working)
            .collect();
        format!(
            "now {:?}, next {:?}\n{actors:?}\n{:?}",
            self.world.now(),
            self.world.next_event(),
            self.reactor.service()
        )
    }

    fn is_over(&self) -> bool {
        let idle = |actor: &Actor| actor.remote.is_none();
        self.to_come == 0
            && self.clients.iter().all(idle)
            && self.servers.iter().all(idle)
            && self.reactor.service().sessions().next().is_none()
    }

    fn step(&mut self) {
        self.peers();
        self.meddle();
        let before = self.world.now();
        self.reactor.step(None).unwrap();
        self.check(before);
    }

    fn peers(&mut self) {
        let come = self.to_come > 0 && (self.clients.is_empty() || self.random.chance(0.1));
        if come {
            self.to_come -= 1;
            let remote = self.world.connect(addr("127.0.0.2:0"), self.listen);
            let plan = Plan::new(&mut self.random, self.most, self.calm);
            self.clients
                .push(Actor::new(remote, 0, Some(self.made), plan));
            self.made += 1;
        } else if self.to_come > 0 {
            self.world
                .alarm(self.world.now() + Duration::from_millis(3));
        }
        while let Some(remote) = self.upstream.accept() {
            let plan = Plan::new(&mut self.random, self.most, self.calm);
            self.servers.push(Actor::new(remote, 1, None, plan));
        }
        for actor in self.clients.iter_mut().chain(&mut self.servers) {
            actor.act(&self.world, &mut self.random);
        }
    }

    /// Cancels and aborts from inside.
    fn meddle(&mut self) {
        if !self.random.chance(self.meddling) {
            return;
        }
        let n = self.random.below(8) as usize;
        let abort = self.random.chance(0.02);
        let order = if abort {
            Order::Abort(n)
        } else {
            Order::Nudge(n)
        };
        self.orders.send(order).unwrap();
        if self.random.chance(0.1) {
            let limit = self.random.between(1, 12) as usize;
            self.reactor.engine().buffers().set_limit(limit);
        }
    }

    /// What must hold after every turn.
    fn check(&mut self, before: toron_reactor::Time) {
        let now = self.reactor.engine().now();
        for (_, session) in self.reactor.service().sessions() {
            assert!(
                session.deadline + Wheel::GRAIN > now,
                "a deadline did not fire: {session:?}"
            );
        }
        if self.calm {
            assert_eq!(
                self.reactor.service().counts.timed_out,
                0,
                "a deadline fired although everybody was at work"
            );
        }
        let sessions = self.reactor.service().sessions().count();
        assert_eq!(
            self.reactor.stats().connections,
            sessions,
            "connections and sessions"
        );
        // A turn may have returned for nothing; a hundred in a row mean that all is lost.
        self.still = if now > before { 0 } else { self.still + 1 };
        let quiet = self.world.next_event().is_none();
        assert!(
            self.still < 100 || !quiet,
            "nothing will ever happen again: {}",
            self.picture()
        );
    }

    fn finish(mut self, steps: usize) -> Summary {
        let mut summary = Summary {
            counts: self.reactor.service().counts,
            connections: self.clients.len(),
            delivered_whole: 0,
            steps,
        };
        for client in &self.clients {
            let server = self.servers.iter().find(|server| server.id == client.id);
            if self.scarce && server.is_none() && client.received == 0 {
                continue; // refused: a clean end without a byte
            }
            // A server that was told no number said nothing.
            let mute = |s: &&Actor| s.id.is_none() && s.end.fin_after.is_some();
            verify(client, server.or_else(|| self.servers.iter().find(mute)));
            if let Some(server) = server {
                verify(server, Some(client));
                if client.end.saw_fin && server.end.saw_fin {
                    summary.delivered_whole += 1;
                }
            }
        }
        self.drain();
        summary
    }

    /// Late connections meet a relay that drains; then everything must have been given back.
    fn drain(&mut self) {
        let late: Vec<Remote> = (0..self.random.below(3))
            .map(|_| self.world.connect(addr("127.0.0.2:0"), self.listen))
            .collect();
        for _ in 0..self.random.below(4) {
            self.reactor.step(None).unwrap();
        }
        self.reactor.drain(Duration::from_secs(3));
        let mut steps = 0;
        while !self.reactor.step(None).unwrap() {
            steps += 1;
            assert!(steps < 10_000, "draining does not end: {}", self.picture());
            while self.upstream.accept().is_some() {}
        }
        // The reactor has ended; what is in flight may still want to report.
        for _ in 0..1_000 {
            let stats = self.reactor.engine().stats();
            if stats.operations == 0 && stats.sockets == 0 {
                break;
            }
            self.world.advance(Duration::from_millis(1));
            self.reactor.step(None).unwrap();
        }
        drop(late);
        while self.upstream.accept().is_some() {}
        let stats = self.reactor.engine().stats();
        let zero = Stats {
            turns: stats.turns,
            system_calls: stats.system_calls,
            ..Stats::default()
        };
        assert_eq!(
            stats,
            zero,
            "something is left: {:?}",
            self.reactor.service()
        );
        assert_eq!(
            self.reactor.stats().connections,
            0,
            "connections not reported as ended"
        );
        assert_eq!(self.reactor.stats().timers, 0, "timers are left");
        self.servers.clear();
        self.clients.clear();
        assert_eq!(self.world.endpoints(), 0, "connections are left");
    }
}

/// A clean end of stream means that everything arrived, up to a clean end at the other side.
fn verify(reader: &Actor, writer: Option<&Actor>) {
    if !reader.end.saw_fin {
        return;
    }
    let Some(writer) = writer else {
        panic!(
            "side {} of {:?} saw an end that nobody made",
            reader.side, reader.id
        )
    };
    assert_eq!(
        Some(reader.received),
        writer.end.fin_after,
        "side {} of connection {:?} read {} bytes and a clean end of stream",
        reader.side,
        reader.id,
        reader.received
    );
}
