//! Accepting while descriptors have run out, in the simulator, where the time of everything is known.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::time::Duration;

use toron_reactor::sim::{Faults, Remote, World};
use toron_reactor::{
    mailbox, Close, Context, Engine, Event, Fd, Incoming, Key, Op, Reactor, Service, Slab, Time,
    Wheel,
};

/// Keeps every connection until its client ends it.
#[derive(Default)]
struct Keeper {
    connections: Slab<Fd>,
}

impl<E: Engine> Service<E> for Keeper {
    type Message = ();

    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        let Incoming { fd, .. } = incoming;
        let token = self.connections.insert(fd);
        let key = Key { token, lane: 0 };
        cx.engine.submit(key, Op::Recv { fd, many: false });
    }

    fn event(&mut self, cx: &mut Context<'_, E>, event: Event) {
        if let Some(fd) = self.connections.remove(event.key.token) {
            cx.engine.close(fd, Close::Orderly);
            cx.connection_ended();
        }
    }

    fn deadline(&mut self, _: &mut Context<'_, E>, _: Key) {}

    fn message(&mut self, _: &mut Context<'_, E>, (): ()) {}

    fn drain(&mut self, _: &mut Context<'_, E>, _: Duration) {}

    fn is_finished(&self) -> bool {
        self.connections.is_empty()
    }
}

struct Stage {
    world: World,
    reactor: Reactor<toron_reactor::sim::SimEngine, Keeper>,
}

const SERVER: &str = "127.0.0.1:80";

fn stage() -> Stage {
    let world = World::new(1, Faults::none());
    let listener = world.listen(SERVER.parse().unwrap(), 1_000).unwrap();
    let (_, mailbox) = mailbox();
    let mut reactor = Reactor::new(world.engine(64), Keeper::default(), mailbox);
    reactor.listen(listener).unwrap();
    Stage { world, reactor }
}

impl Stage {
    fn connect(&self) -> Remote {
        let from: SocketAddr = "127.0.0.2:0".parse().unwrap();
        self.world.connect(from, SERVER.parse().unwrap())
    }

    /// Steps until this holds; says when, and how many steps it took.
    fn until(&mut self, mut holds: impl FnMut() -> bool) -> (Time, u32) {
        for steps in 0..10_000 {
            if holds() {
                return (self.world.now(), steps);
            }
            let limit = self.world.now() + Duration::from_secs(5);
            self.world.alarm(limit);
            self.reactor.step(Some(limit)).unwrap();
        }
        panic!("it does not happen, or the reactor spins");
    }
}

fn ended(clients: &[Remote]) -> usize {
    clients.iter().filter(|client| client.at_end()).count()
}

/// Sixteen of those who wait are refused at a time, the others keep their place; each time is later
/// than the last by more, up to a second. Nothing else is done meanwhile.
#[test]
fn without_descriptors_accepting_pauses_for_longer_and_longer() {
    let mut stage = stage();
    let open = stage.connect();
    stage.until(|| open.is_open());
    stage.world.advance(Duration::from_millis(1));
    stage.reactor.step(Some(stage.world.now())).unwrap();
    stage
        .world
        .set_descriptor_limit(stage.world.open_descriptors());
    let clients: Vec<Remote> = (0..16 * 8).map(|_| stage.connect()).collect();
    let (mut last, _) = stage.until(|| ended(&clients) == 16);
    for (batch, pause) in [100, 200, 400, 800, 1_000, 1_000, 1_000]
        .into_iter()
        .enumerate()
    {
        let refused = 16 * (batch + 2);
        let (now, steps) = stage.until(|| ended(&clients) == refused);
        let (took, pause) = (now.since(last), Duration::from_millis(pause));
        let late = Wheel::GRAIN + Duration::from_millis(1);
        assert!(
            took + Duration::from_millis(1) >= pause && took <= pause + late,
            "batch {batch}: {took:?}"
        );
        assert!(steps < 50, "batch {batch}: {steps} turns");
        last = now;
    }
    assert!(open.is_open() && !open.at_end(), "what is open goes on");

    // With a descriptor again the next one is taken, and the pauses begin anew.
    stage
        .world
        .set_descriptor_limit(stage.world.open_descriptors() + 1);
    let taken = stage.connect();
    let reactor_has = |stage: &Stage| stage.reactor.stats().connections;
    let before = stage.world.now();
    while reactor_has(&stage) < 2 {
        assert!(stage.world.now().since(before) < Duration::from_secs(2));
        let limit = stage.world.now() + Duration::from_millis(10);
        stage.reactor.step(Some(limit)).unwrap();
    }
    let clients: Vec<Remote> = (0..32).map(|_| stage.connect()).collect();
    let (first, _) = stage.until(|| ended(&clients) == 16);
    let (second, _) = stage.until(|| ended(&clients) == 32);
    assert!(second.since(first) < Duration::from_millis(110));
    drop((open, taken));
}
