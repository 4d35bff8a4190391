//! Turns, time and wake-ups.

use std::time::Duration;

use toron_reactor::{Engine, Op, Outcome};

use crate::lab::Lab;
use crate::rig::Rig;

pub fn a_turn_ends_at_its_time_and_not_before(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, _peer) = rig.accepted();
    let recv = rig.submit(Op::Recv { fd, many: false });
    let mut events = Vec::new();
    // What is still on the way (a handshake's end) may end a turn; then time stands still here.
    rig.turn(Duration::from_millis(20));
    for millis in [1, 3, 10, 30] {
        let until = rig.engine.now() + Duration::from_millis(millis);
        rig.engine.turn(Some(until), &mut events).unwrap();
        assert!(events.is_empty());
        assert!(
            rig.engine.now() >= until,
            "{:?} before {until:?}",
            rig.engine.now()
        );
    }
    rig.engine.cancel(recv);
    rig.cancelled(recv);
    rig.close(fd);
    rig.finish();
}

pub fn a_turn_without_time_does_not_wait(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, _peer) = rig.accepted();
    let recv = rig.submit(Op::Recv { fd, many: false });
    let mut events = Vec::new();
    for _ in 0..100 {
        // Would hang for ever if it waited for an event.
        rig.engine
            .turn(Some(toron_reactor::Time(0)), &mut events)
            .unwrap();
        let now = rig.engine.now();
        rig.engine.turn(Some(now), &mut events).unwrap();
    }
    assert!(events.is_empty());
    rig.engine.cancel(recv);
    rig.cancelled(recv);
    rig.close(fd);
    rig.finish();
}

pub fn a_wake_up_ends_a_turn(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let waker = rig.engine.waker();
    let mut events = Vec::new();
    for _ in 0..10 {
        waker.wake();
        waker.wake();
        // A turn without a limit: would hang for ever if the wake-up were lost.
        rig.engine.turn(None, &mut events).unwrap();
    }
    for _ in 0..50 {
        // From another thread, at any moment between before the turn and in its middle.
        let waker = rig.engine.waker();
        let thread = std::thread::spawn(move || waker.wake());
        rig.engine.turn(None, &mut events).unwrap();
        thread.join().unwrap();
    }
    assert!(events.is_empty());
    rig.finish();
}

/// A receive, then the end of stream, in this order also when they are known at once.
pub fn events_of_one_direction_keep_their_order(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let recv = rig.submit(Op::Recv { fd, many: true });
    rig.peer_sends(&peer, b"abc");
    crate::lab::Peer::close(peer);
    let mut got = Vec::new();
    loop {
        let event = rig.next(recv);
        match event.outcome {
            Outcome::Received { buf, .. } => got.extend_from_slice(&buf),
            Outcome::Eof { buf: None } => break,
            other => panic!("{other:?}"),
        }
        assert!(event.more);
    }
    assert_eq!(got, b"abc");
    rig.close(fd);
    rig.finish();
}
