//! Receives, and the pool they take their buffers from.

use std::io::Write;

use toron_reactor::{Close, NativeEngine, Op, Outcome};

use crate::rig::{key, received, Rig};

pub fn an_empty_pool_makes_receives_wait<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(2);
    let (a, mut peer_a) = rig.pair();
    let (b, mut peer_b) = rig.pair();
    let held = [
        rig.engine.buffers().take().unwrap(),
        rig.engine.buffers().take().unwrap(),
    ];
    peer_a.write_all(b"aaa").unwrap();
    let first = rig.recv(a);
    rig.expect_silence(first);
    peer_b.write_all(b"bbb").unwrap();
    let second = rig.recv(b);
    let third = rig.engine.submit(key(2), Op::Buffer);
    rig.expect_silence(second);
    rig.expect_silence(third);
    assert_eq!(rig.engine.stats().operations, 3);
    drop(held);
    assert_eq!(received(rig.wait(first)), b"aaa");
    assert_eq!(received(rig.wait(second)), b"bbb");
    assert!(matches!(rig.wait(third), Outcome::Buffer(_)));
    rig.engine.close(a, Close::Orderly);
    rig.engine.close(b, Close::Orderly);
    rig.assert_empty();
}

pub fn a_waiting_receive_without_buffer_can_be_cancelled<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(1);
    let (fd, mut peer) = rig.pair();
    let held = rig.engine.buffers().take().unwrap();
    peer.write_all(b"abc").unwrap();
    let op = rig.recv(fd);
    rig.expect_silence(op);
    rig.engine.cancel(op);
    let buffer = rig.engine.submit(key(2), Op::Buffer);
    rig.engine.cancel(buffer);
    assert!(matches!(rig.wait(buffer), Outcome::Cancelled { .. }));
    drop(held);
    // The bytes may have been taken off the socket before the cancel: then they are in the event.
    match rig.wait(op) {
        Outcome::Received { buf, .. } => assert_eq!(&*buf, b"abc"),
        Outcome::Cancelled { .. } => {
            let again = rig.recv(fd);
            assert_eq!(received(rig.wait(again)), b"abc");
        }
        other => panic!("{other:?}"),
    }
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}

pub fn many_receives_keep_their_order<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(3);
    let (fd, mut peer) = rig.pair();
    let op = rig.engine.submit(key(0), Op::Recv { fd, many: true });
    let sent: Vec<u8> = (0..2_000_000u32).map(|i| (i / 7) as u8).collect();
    let expected = sent.clone();
    let writer = std::thread::spawn(move || {
        peer.write_all(&sent).unwrap();
        peer
    });
    let mut got: Vec<u8> = Vec::new();
    let mut hoard = Vec::new();
    while got.len()
        + hoard
            .iter()
            .map(|b: &toron_reactor::Buf| b.len())
            .sum::<usize>()
        < expected.len()
    {
        let event = rig.await_event(op);
        assert!(event.more, "{event:?}");
        let Outcome::Received { buf, n } = event.outcome else {
            panic!("{event:?}")
        };
        assert!(n > 0 && rig.engine.buffers().in_use() <= 3);
        hoard.push(buf);
        if hoard.len() == 3 {
            rig.expect_silence(op);
            for buf in hoard.drain(..) {
                got.extend_from_slice(&buf);
            }
        }
    }
    for buf in hoard.drain(..) {
        got.extend_from_slice(&buf);
    }
    assert!(got == expected, "bytes differ");
    drop(writer.join().unwrap());
    assert!(matches!(rig.wait(op), Outcome::Eof { .. }));
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}

pub fn many_receives_without_buffers_can_be_cancelled<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(2);
    let (fd, mut peer) = rig.pair();
    let op = rig.engine.submit(key(0), Op::Recv { fd, many: true });
    peer.write_all(&vec![5; 1_000_000]).unwrap();
    let mut hoard = Vec::new();
    while hoard.len() < 2 {
        let event = rig.await_event(op);
        let Outcome::Received { buf, .. } = event.outcome else {
            panic!("{event:?}")
        };
        hoard.push(buf);
    }
    rig.expect_silence(op);
    rig.engine.cancel(op);
    rig.engine.cancel(op);
    let mut got: usize = hoard.drain(..).map(|buf| buf.len()).sum();
    loop {
        let event = rig.await_event(op);
        match event.outcome {
            Outcome::Received { buf, n } => got += n.min(buf.len()),
            Outcome::Cancelled { buf: None } => break,
            other => panic!("{other:?}"),
        }
        if !event.more {
            break;
        }
    }
    rig.expect_silence(op);
    // Nothing is lost between the cancelled receive and the next.
    while got < 1_000_000 {
        let next = rig.recv(fd);
        got += received(rig.wait(next)).len();
    }
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}

pub fn received_behind_what_is_there<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(2);
    let (fd, mut peer) = rig.pair();
    let mut buf = rig.engine.buffers().take().unwrap();
    buf.extend(b"GET ");
    let op = rig.engine.submit(key(0), Op::RecvInto { fd, buf });
    rig.expect_silence(op);
    peer.write_all(b"/path").unwrap();
    let Outcome::Received { buf, n: 5 } = rig.wait(op) else {
        panic!("nothing received")
    };
    assert_eq!(&*buf, b"GET /path");
    let op = rig.engine.submit(key(0), Op::RecvInto { fd, buf });
    rig.expect_silence(op);
    rig.engine.cancel(op);
    let Outcome::Cancelled { buf: Some(buf) } = rig.wait(op) else {
        panic!("buffer lost")
    };
    drop(peer);
    let op = rig.engine.submit(key(0), Op::RecvInto { fd, buf });
    let Outcome::Eof { buf: Some(mut buf) } = rig.wait(op) else {
        panic!("buffer lost")
    };
    assert_eq!(&*buf, b"GET /path");
    buf.extend(&vec![0; buf.room()]);
    let op = rig.engine.submit(key(0), Op::RecvInto { fd, buf });
    assert!(matches!(
        rig.wait(op),
        Outcome::Failed {
            errno: libc::EINVAL,
            buf: Some(_)
        }
    ));
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}

/// More than one receive brings is there, and nothing arrives any more that could tell so.
pub fn all_that_came_is_received<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(2);
    let (fd, mut peer) = rig.pair();
    let first = rig.recv(fd);
    rig.expect_silence(first);
    let sent = vec![7; 300 * 1024];
    let writer = std::thread::spawn(move || {
        peer.write_all(&sent).unwrap();
        peer
    });
    let mut got = received(rig.wait(first)).len();
    while got < 300 * 1024 {
        let op = rig.recv(fd);
        got += received(rig.wait(op)).len();
    }
    let mut peer = writer.join().unwrap();
    // Once more with everything queued before the first receive.
    peer.write_all(&vec![8; 150 * 1024]).unwrap();
    let mut got = 0;
    while got < 150 * 1024 {
        let op = rig.recv(fd);
        got += received(rig.wait(op)).len();
    }
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}
