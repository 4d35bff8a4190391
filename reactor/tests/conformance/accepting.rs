//! Accept and connect.

use std::collections::HashSet;

use toron_reactor::{Close, Engine, Op, Outcome};

use crate::lab::{Lab, Peer};
use crate::rig::Rig;

pub fn accepts_until_cancelled(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (listener, addr) = rig.lab.listen();
    assert_eq!(rig.engine.local_addr(listener).unwrap(), addr);
    let accept = rig.submit(Op::Accept { listener });
    let mut fds = Vec::new();
    for _ in 0..3 {
        let peer = rig.lab.dial(addr);
        let event = rig.next(accept);
        assert!(event.more);
        let Outcome::Accepted { fd, peer: from } = event.outcome else {
            panic!("{event:?}")
        };
        assert_eq!(from, peer.local_addr());
        rig.peer_sends(&peer, b"hello");
        assert_eq!(rig.reads(fd, 5), b"hello");
        fds.push(fd);
    }
    assert_eq!(rig.engine.stats().sockets, 3);
    rig.engine.cancel(accept);
    assert!(rig.cancelled(accept).is_none());
    for fd in fds {
        rig.close(fd);
    }
    rig.close(listener);
    rig.finish();
}

/// The connection is either in an event of the cancelled accept, or still in the queue.
pub fn a_cancelled_accept_loses_no_connection(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (listener, addr) = rig.lab.listen();
    for early in [true, false] {
        let accept = rig.submit(Op::Accept { listener });
        if early {
            rig.engine.cancel(accept);
        }
        let peer = rig.lab.dial(addr);
        rig.peer_sends(&peer, b"x");
        rig.engine.cancel(accept);
        let mut accepted = None;
        loop {
            let event = rig.next(accept);
            match event.outcome {
                Outcome::Accepted { fd, .. } => accepted = Some(fd),
                Outcome::Cancelled { buf: None } => {}
                other => panic!("{other:?}"),
            }
            if !event.more {
                break;
            }
        }
        let fd = match accepted {
            Some(fd) => fd,
            None => {
                let again = rig.submit(Op::Accept { listener });
                let event = rig.next(again);
                let Outcome::Accepted { fd, .. } = event.outcome else {
                    panic!("{event:?}")
                };
                rig.engine.cancel(again);
                rig.cancelled(again);
                fd
            }
        };
        assert_eq!(rig.reads(fd, 1), b"x");
        rig.close(fd);
    }
    rig.close(listener);
    rig.finish();
}

/// A crowd of connections is told in pieces, so that those that are open need not wait for all of it;
/// none is lost, whatever has been told when accepting is cancelled.
pub fn a_crowd_is_told_in_pieces<L: Lab>(lab: L) {
    const CROWD: usize = 100;
    let mut rig = Rig::new(lab);
    for told_before_cancel in [1, 40, 90] {
        let (listener, addr) = rig.lab.listen();
        let peers: Vec<_> = (0..CROWD).map(|_| rig.lab.dial(addr)).collect();
        let mut expected: HashSet<_> = peers.iter().map(Peer::local_addr).collect();
        let mut fds = Vec::new();
        let mut most = 0;
        let mut accept = rig.submit(Op::Accept { listener });
        let mut cancelled = false;
        while fds.len() < CROWD {
            let before = fds.len();
            rig.turn(std::time::Duration::from_millis(1));
            for event in std::mem::take(&mut rig.events) {
                match event.outcome {
                    Outcome::Accepted { fd, peer } => {
                        assert!(expected.remove(&peer), "{peer}");
                        fds.push(fd);
                    }
                    Outcome::Cancelled { buf: None } if !event.more => {
                        accept = rig.submit(Op::Accept { listener });
                    }
                    other => panic!("{other:?}"),
                }
            }
            // The end of an accept comes behind all that it has brought.
            if !cancelled {
                most = most.max(fds.len() - before);
                if fds.len() >= told_before_cancel {
                    rig.engine.cancel(accept);
                    cancelled = true;
                }
            }
        }
        assert!(most <= L::TOLD_AT_ONCE_MOST, "{most} in one turn");
        rig.engine.cancel(accept);
        rig.cancelled(accept);
        for fd in fds {
            rig.close(fd);
        }
        rig.close(listener);
    }
    rig.finish();
}

pub fn closing_a_listener_ends_its_accept(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (listener, addr) = rig.lab.listen();
    let accept = rig.submit(Op::Accept { listener });
    rig.turn(std::time::Duration::ZERO);
    rig.close(listener);
    rig.cancelled(accept);
    let fd = rig.engine.socket(&addr).unwrap();
    match rig.run(Op::Connect { fd, addr }) {
        Outcome::Failed {
            errno: libc::ECONNREFUSED,
            buf: None,
        } => {}
        other => panic!("{other:?}"),
    }
    rig.close(fd);
    rig.finish();
}

pub fn connects_both_ways(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    for dial in [true, false] {
        let (fd, peer) = if dial { rig.dialled() } else { rig.accepted() };
        rig.peer_sends(&peer, b"ping");
        assert_eq!(rig.reads(fd, 4), b"ping");
        rig.writes(fd, b"pong");
        assert_eq!(rig.peer_reads(&peer, 4), b"pong");
        rig.close(fd);
        rig.wait_for(|| peer.at_end());
    }
    rig.finish();
}

pub fn a_refused_connect_fails(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let addr = rig.lab.refusing();
    let fd = rig.engine.socket(&addr).unwrap();
    match rig.run(Op::Connect { fd, addr }) {
        Outcome::Failed {
            errno: libc::ECONNREFUSED,
            buf: None,
        } => {}
        other => panic!("{other:?}"),
    }
    rig.close(fd);
    rig.finish();
}

pub fn a_connect_in_flight_can_be_cancelled(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (addr, _guard) = rig.lab.silent();
    let fd = rig.engine.socket(&addr).unwrap();
    let connect = rig.submit(Op::Connect { fd, addr });
    assert!(rig.silent(connect));
    rig.engine.cancel(connect);
    assert!(rig.cancelled(connect).is_none());
    rig.engine.close(fd, Close::Reset);
    rig.finish();
}

pub fn a_connect_in_flight_can_be_closed(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (addr, _guard) = rig.lab.silent();
    let fd = rig.engine.socket(&addr).unwrap();
    let connect = rig.submit(Op::Connect { fd, addr });
    assert!(rig.silent(connect));
    rig.close(fd);
    assert!(rig.cancelled(connect).is_none());
    rig.finish();
}

/// It may be accepted, or dropped by an engine that finds it has no peer any more; the next one is
/// accepted in any case.
pub fn a_connection_reset_in_the_queue_does_no_harm(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (listener, addr) = rig.lab.listen();
    let first = rig.lab.dial(addr);
    rig.peer_sends(&first, b"hi");
    first.reset();
    let second = rig.lab.dial(addr);
    rig.peer_sends(&second, b"2");
    let accept = rig.submit(Op::Accept { listener });
    loop {
        let event = rig.next(accept);
        let Outcome::Accepted { fd, peer } = event.outcome else {
            panic!("{event:?}")
        };
        if peer == second.local_addr() {
            assert_eq!(rig.reads(fd, 1), b"2");
            rig.close(fd);
            break;
        }
        assert_eq!(rig.reads(fd, 2), b"hi");
        assert_eq!(rig.read_fails(fd), libc::ECONNRESET);
        rig.close(fd);
    }
    rig.engine.cancel(accept);
    rig.cancelled(accept);
    rig.close(listener);
    rig.finish();
}
