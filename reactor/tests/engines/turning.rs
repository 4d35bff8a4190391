//! Turns, wake-ups and splicing.

use std::io::{Read, Write};
use std::time::Duration;

use toron_reactor::{Close, Event, NativeEngine, Op, Outcome};

use crate::rig::{key, Rig};

pub fn spliced_through_a_pipe<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(1);
    let (from, mut source) = rig.pair();
    let (to, mut sink) = rig.pair();
    let mut pipe = rig.engine.pipe().unwrap();
    let dry = rig.engine.splice_in(from, &mut pipe, 1000).unwrap_err();
    assert_eq!(dry.kind(), std::io::ErrorKind::WouldBlock);
    source.write_all(b"0123456789").unwrap();
    let ready = rig.engine.submit(key(0), Op::Readable { fd: from });
    assert!(matches!(rig.wait(ready), Outcome::Ready));
    assert_eq!(rig.engine.splice_in(from, &mut pipe, 8).unwrap(), 8);
    assert_eq!(rig.engine.splice_out(&mut pipe, to, 5, false).unwrap(), 5);
    assert_eq!(pipe.held(), 3);
    rig.engine.return_pipe(pipe);
    let mut fresh = rig.engine.pipe().unwrap();
    assert_eq!(fresh.held(), 0);
    assert_eq!(rig.engine.splice_in(from, &mut fresh, 100).unwrap(), 2);
    assert_eq!(
        rig.engine.splice_out(&mut fresh, to, 100, false).unwrap(),
        2
    );
    let mut bytes = [0; 7];
    sink.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"0123489");
    source.write_all(b"thrown away").unwrap();
    let ready = rig.engine.submit(key(0), Op::Readable { fd: from });
    assert!(matches!(rig.wait(ready), Outcome::Ready));
    assert!(!rig.engine.is_idle(from) && rig.engine.is_idle(to));
    assert_eq!(rig.engine.discard(from, 6).unwrap(), 6);
    assert_eq!(rig.engine.discard(from, 1 << 20).unwrap(), 5);
    drop(source);
    let ready = rig.engine.submit(key(0), Op::Readable { fd: from });
    assert!(matches!(rig.wait(ready), Outcome::Ready));
    assert_eq!(rig.engine.splice_in(from, &mut fresh, 100).unwrap(), 0);
    rig.engine.return_pipe(fresh);
    rig.engine.close(from, Close::Orderly);
    rig.engine.close(to, Close::Orderly);
    rig.assert_empty();
}

pub fn a_turn_waits_until_its_time<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(1);
    for micros in [0, 300, 3_000] {
        let until = rig.engine.now() + Duration::from_micros(micros);
        rig.engine.turn(Some(until), &mut rig.events).unwrap();
        assert!(rig.engine.now() >= until && rig.events.is_empty());
    }
}

pub fn a_wake_ends_a_turn<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(1);
    let waker = rig.engine.waker();
    waker.wake();
    rig.engine.turn(None, &mut rig.events).unwrap();
    for _ in 0..20 {
        let waker = rig.engine.waker();
        let other = std::thread::spawn(move || waker.wake());
        rig.engine.turn(None, &mut rig.events).unwrap();
        other.join().unwrap();
    }
    assert!(rig.events.is_empty());
}

/// What follows from a completion must not wait for another.
pub fn every_completion_ends_a_turn<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(4);
    let (fd, mut peer) = rig.pair();
    let waker = rig.engine.waker();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if is_done.recv_timeout(Duration::from_secs(20)).is_err() {
            waker.wake();
        }
    });
    let recv = rig.recv(fd);
    rig.expect_silence(recv);
    for _ in 0..3 {
        let send = rig.send(fd, b"x");
        rig.engine.turn(None, &mut rig.events).unwrap();
        assert!(matches!(rig.events[..], [Event { op, .. }] if op == send));
        rig.events.clear();
    }
    peer.write_all(b"y").unwrap();
    rig.engine.turn(None, &mut rig.events).unwrap();
    assert!(matches!(rig.events[..], [Event { op, .. }] if op == recv));
    done.send(()).unwrap();
    watchdog.join().unwrap();
}
