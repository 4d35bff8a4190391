//! A service without a listener that is called at moments finer than the wheel's grain.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use toron_reactor::{
    mailbox, Close, Context, Engine, EngineConfig, EpollEngine, Event, Incoming, Key, NativeEngine,
    Reactor, Service, Time, UringEngine, Wheel,
};

/// Counts ticks of a tenth of a millisecond.
struct Metronome {
    next: Option<Time>,
    left: u32,
    /// How late each tick was.
    late: Vec<Duration>,
}

const TICK: Duration = Duration::from_micros(100);

impl<E: Engine> Service<E> for Metronome {
    type Message = ();

    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        cx.engine.close(incoming.fd, Close::Orderly);
        cx.connection_ended();
    }

    fn event(&mut self, _: &mut Context<'_, E>, _: Event) {}

    fn deadline(&mut self, _: &mut Context<'_, E>, _: Key) {}

    fn message(&mut self, cx: &mut Context<'_, E>, (): ()) {
        self.next = Some(cx.now);
    }

    fn next_moment(&self) -> Option<Time> {
        self.next.filter(|_| self.left > 0)
    }

    fn moment(&mut self, cx: &mut Context<'_, E>) {
        let due = self.next.expect("called only when asked for");
        assert!(due <= cx.now, "never early");
        self.late.push(cx.now.since(due));
        self.left -= 1;
        self.next = Some(due + TICK);
    }

    fn drain(&mut self, _: &mut Context<'_, E>, _: Duration) {}

    fn is_finished(&self) -> bool {
        true
    }
}

fn moments_come<E: NativeEngine>() {
    let engine = match E::open(&EngineConfig::default()) {
        Ok(engine) => engine,
        Err(error) => return eprintln!("not run on {}: {error}", E::NAME),
    };
    let service = Metronome {
        next: None,
        left: 500,
        late: Vec::new(),
    };
    let (address, mailbox) = mailbox();
    let mut reactor = Reactor::new(engine, service, mailbox);
    address.send(()).unwrap();
    while reactor.service().late.len() < 500 {
        reactor.step(None).unwrap();
    }
    let mut late = reactor.service().late.clone();
    late.sort();
    // With the wheel alone the median would be half its grain.
    assert!(late[late.len() / 4] < Wheel::GRAIN / 8, "{:?}", late[125]);
    // Nothing is asked for any more: a step ends with its own time.
    let until = reactor.engine().now() + TICK;
    reactor.step(Some(until)).unwrap();
    assert_eq!(reactor.service().late.len(), 500);
}

#[test]
fn on_epoll() {
    moments_come::<EpollEngine>();
}

#[test]
fn on_io_uring() {
    moments_come::<UringEngine>();
}
