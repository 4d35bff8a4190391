//! The simulator itself: that it is strict about the rules of the seam, and what only it can do
//! (the conformance suite holds it to what the kernel does).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::time::Duration;

use toron_reactor::sim::{Faults, Remote, Route, SimEngine, World};
use toron_reactor::{Close, Engine, Event, Fd, Key, Op, OpId, Outcome, Time, Token};

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn key() -> Key {
    Key {
        token: Token {
            index: 0,
            generation: 0,
        },
        lane: 0,
    }
}

/// The next event of `op`; the clock runs as far as it must.
fn next(engine: &mut SimEngine, op: OpId) -> Event {
    let mut events = Vec::new();
    for _ in 0..1_000 {
        engine.turn(None, &mut events).unwrap();
        if let Some(i) = events.iter().position(|event| event.op == op) {
            return events.remove(i);
        }
    }
    panic!("{op:?} reports nothing")
}

fn accepted(world: &World, engine: &mut SimEngine) -> (Fd, Remote) {
    let listener = world.listen(addr("127.0.0.1:80"), 4).unwrap();
    let accept = engine.submit(key(), Op::Accept { listener });
    let remote = world.connect(addr("127.0.0.2:0"), addr("127.0.0.1:80"));
    match next(engine, accept).outcome {
        Outcome::Accepted { fd, .. } => (fd, remote),
        other => panic!("{other:?}"),
    }
}

fn calm() -> (World, SimEngine) {
    let world = World::new(1, Faults::none());
    let engine = world.engine(4);
    (world, engine)
}

#[test]
#[should_panic(expected = "a receive is in flight")]
fn two_receives_in_flight_are_refused() {
    let (world, mut engine) = calm();
    let (fd, _remote) = accepted(&world, &mut engine);
    engine.submit(key(), Op::Recv { fd, many: false });
    engine.submit(key(), Op::Recv { fd, many: true });
}

#[test]
#[should_panic(expected = "a send is in flight")]
fn two_sends_in_flight_are_refused() {
    let (world, mut engine) = calm();
    let (fd, _remote) = accepted(&world, &mut engine);
    for _ in 0..2 {
        let buf = engine.buffers().take().unwrap();
        engine.submit(
            key(),
            Op::Send {
                fd,
                buf,
                more: false,
            },
        );
    }
}

#[test]
#[should_panic(expected = "is closed")]
fn an_operation_on_a_closed_descriptor_is_refused() {
    let (world, mut engine) = calm();
    let (fd, _remote) = accepted(&world, &mut engine);
    engine.close(fd, Close::Orderly);
    engine.submit(key(), Op::Readable { fd });
}

#[test]
#[should_panic(expected = "is being closed")]
fn closing_twice_is_refused() {
    let (world, mut engine) = calm();
    let (fd, _remote) = accepted(&world, &mut engine);
    engine.submit(key(), Op::Readable { fd });
    engine.close(fd, Close::Orderly);
    engine.close(fd, Close::Orderly);
}

#[test]
#[should_panic(expected = "operations are in flight")]
fn a_socket_in_use_cannot_be_released() {
    let (world, mut engine) = calm();
    let (fd, _remote) = accepted(&world, &mut engine);
    engine.submit(key(), Op::Readable { fd });
    engine.release(fd);
}

#[test]
#[should_panic(expected = "not this engine's")]
fn a_released_socket_cannot_be_used() {
    let (world, mut engine) = calm();
    let (fd, _remote) = accepted(&world, &mut engine);
    engine.release(fd);
    engine.submit(key(), Op::Readable { fd });
}

#[test]
#[should_panic(expected = "a receive is in flight")]
fn splicing_past_a_receive_is_refused() {
    let (world, mut engine) = calm();
    let (fd, _remote) = accepted(&world, &mut engine);
    engine.submit(key(), Op::Recv { fd, many: false });
    let mut pipe = engine.pipe().unwrap();
    let _ = engine.splice_in(fd, &mut pipe, 10);
}

fn connect(world: &World, engine: &mut SimEngine, to: SocketAddr) -> (Outcome, Duration) {
    let start = world.now();
    let fd = engine.socket(&to).unwrap();
    let op = engine.submit(key(), Op::Connect { fd, addr: to });
    let event = next(engine, op);
    let took = world.now().since(start);
    engine.close(fd, Close::Orderly);
    (event.outcome, took)
}

#[test]
fn a_silent_address_times_out_as_in_linux() {
    let (world, mut engine) = calm();
    let to = addr("127.0.0.3:1");
    world.set_route(to, Route::Silent);
    let (outcome, took) = connect(&world, &mut engine, to);
    let timed_out = matches!(
        outcome,
        Outcome::Failed {
            errno: libc::ETIMEDOUT,
            ..
        }
    );
    assert!(timed_out, "{outcome:?}");
    assert_eq!(took.as_secs(), 127);
}

#[test]
fn a_full_queue_delays_the_next_connection() {
    let (world, mut engine) = calm();
    let listener = world.remote_listen(addr("127.0.0.3:1"), 0).unwrap();
    let (first, _) = connect(&world, &mut engine, listener.addr());
    assert!(matches!(first, Outcome::Connected), "{first:?}");
    let fd = engine.socket(&listener.addr()).unwrap();
    let op = engine.submit(
        key(),
        Op::Connect {
            fd,
            addr: listener.addr(),
        },
    );
    let mut events = Vec::new();
    engine
        .turn(Some(world.now() + Duration::from_millis(900)), &mut events)
        .unwrap();
    assert!(events.is_empty());
    let _accepted = listener.accept().unwrap();
    assert!(matches!(next(&mut engine, op).outcome, Outcome::Connected));
}

#[test]
fn routes_refuse_and_delay() {
    let (world, mut engine) = calm();
    let listener = world.remote_listen(addr("127.0.0.3:1"), 4).unwrap();
    world.set_route(listener.addr(), Route::Slow(Duration::from_secs(9)));
    let (outcome, took) = connect(&world, &mut engine, listener.addr());
    assert!(matches!(outcome, Outcome::Connected), "{outcome:?}");
    assert_eq!(took.as_secs(), 9);
    world.set_route(listener.addr(), Route::Refused);
    let (outcome, _) = connect(&world, &mut engine, listener.addr());
    let refused = matches!(
        outcome,
        Outcome::Failed {
            errno: libc::ECONNREFUSED,
            ..
        }
    );
    assert!(refused, "{outcome:?}");
}

#[test]
fn without_descriptors_a_connection_waits_or_is_refused() {
    let (world, mut engine) = calm();
    let listener = world.listen(addr("127.0.0.1:80"), 4).unwrap();
    world.set_descriptor_limit(world.open_descriptors());
    let waits = world.connect(addr("127.0.0.2:0"), addr("127.0.0.1:80"));
    let accept = engine.submit(key(), Op::Accept { listener });
    let outcome = next(&mut engine, accept).outcome;
    assert!(
        matches!(
            outcome,
            Outcome::Failed {
                errno: libc::EMFILE,
                ..
            }
        ),
        "{outcome:?}"
    );
    assert_eq!(
        engine.pipe().unwrap_err().raw_os_error(),
        Some(libc::EMFILE)
    );
    let socket = engine.socket(&addr("127.0.0.1:80")).unwrap_err();
    assert_eq!(socket.raw_os_error(), Some(libc::EMFILE));
    // It keeps its place in the queue …
    assert!(waits.is_open());
    // … and is told when somebody refuses it.
    waits.send(b"request");
    world.advance(Duration::from_secs(1));
    assert!(engine.refuse_one(listener, b"busy").is_some());
    assert!(engine.refuse_one(listener, b"busy").is_none());
    world.advance(Duration::from_secs(1));
    assert_eq!(waits.recv(100), b"busy");
    assert!(waits.at_end());
}

#[test]
fn pipes_may_be_tiny() {
    let world = World::new(
        3,
        Faults {
            pipe_tiny: 1.0,
            ..Faults::none()
        },
    );
    let mut engine = world.engine(4);
    let (fd, remote) = accepted(&world, &mut engine);
    let mut pipe = engine.pipe().unwrap();
    assert!(pipe.capacity() <= 8192);
    assert_eq!(remote.send(&[1; 20_000]), 20_000);
    world.advance(Duration::from_secs(1));
    assert_eq!(
        engine.splice_in(fd, &mut pipe, 65_536).unwrap(),
        pipe.capacity()
    );
    let full = engine.splice_in(fd, &mut pipe, 65_536).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
    engine.return_pipe(pipe);
}

#[test]
fn a_turn_jumps_to_its_time_and_stops_for_an_alarm() {
    let (world, mut engine) = calm();
    let start = world.now();
    let mut events = Vec::new();
    let hours = start + Duration::from_secs(7_200);
    world.alarm(start + Duration::from_secs(5));
    engine.turn(Some(hours), &mut events).unwrap();
    assert_eq!(engine.now(), start + Duration::from_secs(5));
    engine.turn(Some(hours), &mut events).unwrap();
    assert_eq!(engine.now(), hours);
    // Nothing will ever happen: a turn without a limit returns instead of hanging.
    engine.turn(None, &mut events).unwrap();
    assert_eq!(engine.now(), hours);
    assert_eq!(world.next_event(), None);
    assert!(events.is_empty() && hours > Time(0));
}

/// A cancelled accept and a cancelled receive that win their races.
#[test]
fn cancellations_lose_their_race() {
    let world = World::new(
        5,
        Faults {
            cancel_race: 1.0,
            ..Faults::none()
        },
    );
    let mut engine = world.engine(4);
    let listener = world.listen(addr("127.0.0.1:80"), 4).unwrap();
    let remote = world.connect(addr("127.0.0.2:0"), addr("127.0.0.1:80"));
    world.advance(Duration::from_secs(1));
    let accept = engine.submit(key(), Op::Accept { listener });
    engine.cancel(accept);
    let mut events = Vec::new();
    engine.turn(None, &mut events).unwrap();
    assert_eq!(events.len(), 2);
    let Outcome::Accepted { fd, .. } = events[0].outcome else {
        panic!("{events:?}")
    };
    assert!(events[0].more && matches!(events[1].outcome, Outcome::Cancelled { .. }));

    remote.send(b"x");
    world.advance(Duration::from_secs(1));
    let recv = engine.submit(key(), Op::Recv { fd, many: false });
    engine.close(fd, Close::Orderly);
    let event = next(&mut engine, recv);
    assert!(
        matches!(event.outcome, Outcome::Received { n: 1, .. }),
        "{event:?}"
    );
    drop((event, events));
    assert_eq!(engine.stats().sockets, 0);
    assert_eq!(engine.stats().buffers, 0);
}
