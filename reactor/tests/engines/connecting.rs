//! Connections: how they come about and how they break.

use std::io::Read;
use std::net::TcpListener;
use std::os::fd::IntoRawFd;

use toron_reactor::{Close, Fd, NativeEngine, Op, Outcome, Shutdown};

use crate::rig::{key, received, Rig};

pub fn dialled_and_accepted<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(8);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let listening = Fd(listener.into_raw_fd());
    rig.engine.adopt(listening).unwrap();
    let accept = rig.engine.submit(
        key(9),
        Op::Accept {
            listener: listening,
        },
    );
    let mut ends = Vec::new();
    for _ in 0..3 {
        let dialled = rig.engine.socket(&addr).unwrap();
        let connect = rig.engine.submit(key(1), Op::Connect { fd: dialled, addr });
        assert!(matches!(rig.wait(connect), Outcome::Connected));
        let event = rig.await_event(accept);
        let Outcome::Accepted { fd, peer } = event.outcome else {
            panic!("{event:?}")
        };
        assert!(event.more && event.key == key(9));
        assert_eq!(peer, rig.engine.local_addr(dialled).unwrap());
        ends.push((dialled, fd));
    }
    for (dialled, accepted) in &ends {
        let early = rig.recv(*accepted);
        rig.expect_silence(early);
        let send = rig.send(*dialled, b"hello");
        assert!(matches!(rig.wait(send), Outcome::Sent { n: 5, ref buf } if buf.is_empty()));
        assert_eq!(received(rig.wait(early)), b"hello");
        rig.engine.shutdown(*dialled, Shutdown::Write);
        let end = rig.recv(*accepted);
        assert!(matches!(rig.wait(end), Outcome::Eof { buf: None }));
    }
    rig.engine.cancel(accept);
    assert!(matches!(rig.wait(accept), Outcome::Cancelled { .. }));
    for (dialled, accepted) in ends {
        rig.engine.close(dialled, Close::Orderly);
        rig.engine.close(accepted, Close::Orderly);
    }
    rig.engine.close(listening, Close::Orderly);
    rig.assert_empty();
}

pub fn a_refused_connection<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(1);
    let addr = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let fd = rig.engine.socket(&addr).unwrap();
    let connect = rig.engine.submit(key(1), Op::Connect { fd, addr });
    assert!(matches!(
        rig.wait(connect),
        Outcome::Failed {
            errno: libc::ECONNREFUSED,
            ..
        }
    ));
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}

pub fn a_reset_fails_the_receive<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(2);
    let (fd, mut peer) = rig.pair();
    let op = rig.recv(fd);
    let send = rig.send(fd, b"unread");
    assert!(matches!(rig.wait(send), Outcome::Sent { n: 6, .. }));
    let mut byte = [0];
    peer.read_exact(&mut byte).unwrap();
    drop(peer);
    assert!(matches!(
        rig.wait(op),
        Outcome::Failed {
            errno: libc::ECONNRESET,
            buf: None
        }
    ));
    let send = rig.send(fd, b"more");
    assert!(matches!(
        rig.wait(send),
        Outcome::Failed {
            errno: libc::EPIPE,
            buf: Some(_)
        }
    ));
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}

/// The kernel tells the error once, here to a receive that need not wait.
pub fn a_reset_that_came_before_the_receive<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(2);
    let (fd, mut peer) = rig.pair();
    let send = rig.send(fd, b"unread");
    assert!(matches!(rig.wait(send), Outcome::Sent { n: 6, .. }));
    peer.read_exact(&mut [0]).unwrap();
    drop(peer);
    let recv = rig.recv(fd);
    assert!(matches!(
        rig.wait(recv),
        Outcome::Failed {
            errno: libc::ECONNRESET,
            ..
        }
    ));
    rig.engine.close(fd, Close::Orderly);
    rig.assert_empty();
}
