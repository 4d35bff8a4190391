//! Polls, closing and what is in flight meanwhile.

use std::io::{Read, Write};

use toron_reactor::{Close, NativeEngine, Op, Outcome, Shutdown};

use crate::rig::{in_millis, key, Rig, TURNS};

pub fn close_ends_what_is_in_flight<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(64);
    let (fd, peer) = rig.pair();
    let send = rig.clog(fd);
    let recv = rig.recv(fd);
    let polls = [
        rig.engine.submit(key(2), Op::Readable { fd }),
        rig.engine.submit(key(3), Op::Hangup { fd }),
        rig.engine.submit(key(4), Op::Writable { fd }),
    ];
    rig.expect_silence(recv);
    rig.engine.close(fd, Close::Reset);
    rig.engine.close(fd, Close::Reset);
    let fresh = rig.engine.socket(&peer.local_addr().unwrap()).unwrap();
    assert_ne!(
        fresh, fd,
        "the number is reused although operations are in flight"
    );
    assert!(matches!(rig.wait(recv), Outcome::Cancelled { buf: None }));
    let Outcome::Cancelled { buf: Some(buf) } = rig.wait(send) else {
        panic!("buffer lost")
    };
    assert!(!buf.is_empty());
    drop(buf);
    for poll in polls {
        assert!(matches!(rig.wait(poll), Outcome::Cancelled { buf: None }));
    }
    rig.engine.close(fresh, Close::Orderly);
    rig.assert_empty();
    let mut peer = peer;
    let mut bytes = vec![0; 1 << 20];
    let error = loop {
        match peer.read(&mut bytes) {
            Ok(0) => panic!("an orderly end"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

pub fn polls_of_a_half_closed_connection<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(64);
    let (fd, mut peer) = rig.pair();
    let send = rig.clog(fd);
    let writable = rig.engine.submit(key(2), Op::Writable { fd });
    let hangup = rig.engine.submit(key(3), Op::Hangup { fd });
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    rig.expect_silence(writable);
    rig.expect_silence(hangup);
    rig.expect_silence(send);
    let calls = rig.engine.stats().system_calls;
    rig.expect_silence(hangup);
    let spent = rig.engine.stats().system_calls - calls;
    assert!(spent < 50, "{spent} calls to wait for nothing");
    let readable = rig.engine.submit(key(4), Op::Readable { fd });
    assert!(matches!(rig.wait(readable), Outcome::Ready));
    let mut bytes = vec![0; 1 << 20];
    let mut woken = 0;
    for _ in 0..TURNS {
        let _ = peer.read(&mut bytes).unwrap();
        let until = in_millis(&rig.engine, 1);
        rig.engine.turn(Some(until), &mut rig.events).unwrap();
        woken = rig
            .events
            .iter()
            .filter(|e| e.op == send || e.op == writable)
            .count();
        if woken == 2 {
            break;
        }
    }
    assert_eq!(woken, 2);
    assert!(matches!(rig.wait(writable), Outcome::Ready));
    assert!(matches!(rig.wait(send), Outcome::Sent { .. }));
    rig.expect_silence(hangup);
    // Unread bytes turn the close of the peer into a reset.
    drop(peer);
    assert!(matches!(rig.wait(hangup), Outcome::Ready));
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}

pub fn a_hangup_of_both_sides<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(1);
    let (fd, peer) = rig.pair();
    let hangup = rig.engine.submit(key(3), Op::Hangup { fd });
    rig.engine.shutdown(fd, Shutdown::Write);
    rig.expect_silence(hangup);
    drop(peer);
    assert!(matches!(rig.wait(hangup), Outcome::Ready));
    let late = rig.engine.submit(key(3), Op::Hangup { fd });
    assert!(matches!(rig.wait(late), Outcome::Ready));
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}

pub fn a_dropped_engine_closes_its_sockets<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(4);
    let (fd, mut peer) = rig.pair();
    let recv = rig.recv(fd);
    rig.engine.submit(key(3), Op::Hangup { fd });
    rig.expect_silence(recv);
    drop(rig);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

/// More operations than any queue between engine and kernel holds.
pub fn a_flood_of_operations<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(4);
    let (fd, mut peer) = rig.pair();
    let ops: Vec<_> = (0..6000)
        .map(|_| rig.engine.submit(key(5), Op::Readable { fd }))
        .collect();
    rig.expect_silence(ops[0]);
    peer.write_all(b"x").unwrap();
    for op in ops.iter().step_by(2) {
        rig.engine.cancel(*op);
    }
    let mut ended = 0;
    for _ in 0..TURNS {
        ended += rig.events.drain(..).filter(|e| !e.more).count();
        if ended == ops.len() {
            break;
        }
        let until = in_millis(&rig.engine, 50);
        rig.engine.turn(Some(until), &mut rig.events).unwrap();
    }
    assert_eq!(ended, ops.len());
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}
