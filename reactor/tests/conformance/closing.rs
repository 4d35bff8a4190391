//! Close, cancel, and handing over.

use toron_reactor::{Close, Engine, Op, Outcome};

use crate::lab::{Door, Lab, Peer};
use crate::rig::Rig;
use crate::sending::send_until_blocked;

pub fn closing_with_operations_in_flight(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let door = rig.lab.door();
    for how in [Close::Orderly, Close::Reset] {
        let (fd, peer) = rig.accepted();
        let bytes = vec![1; rig.lab.more_than_fits()];
        let (send, _) = send_until_blocked(&mut rig, fd, &bytes);
        let buf = rig.filled(b"abc");
        let recv = rig.submit(Op::RecvInto { fd, buf });
        let hangup = rig.submit(Op::Hangup { fd });
        let readable = rig.submit(Op::Readable { fd });
        rig.engine.close(fd, how);
        // Until the last event is out, the number stays taken.
        let ops = [send, recv, hangup, readable];
        let mut others = Vec::new();
        for op in ops {
            if ops.iter().any(|op| !rig.ended(*op)) {
                let other = rig.engine.socket(&door.addr()).unwrap();
                assert_ne!(
                    other, fd,
                    "the number is used again while operations are in flight"
                );
                others.push(other);
            }
            let event = rig.next(op);
            assert!(!event.more);
            match event.outcome {
                Outcome::Cancelled { buf } => {
                    assert_eq!(buf.is_some(), op == send || op == recv, "{op:?}");
                }
                Outcome::Sent { n, .. } => assert!(op == send && n > 0),
                other => panic!("{other:?}"),
            }
        }
        for other in others {
            rig.close(other);
        }
        rig.wait(|rig| (rig.engine.stats().sockets == 0).then_some(()));
        rig.wait(|_| {
            peer.recv(usize::MAX);
            let seen = if how == Close::Orderly {
                peer.at_end()
            } else {
                peer.is_reset()
            };
            seen.then_some(())
        });
    }
    rig.finish();
}

pub fn closing_with_unread_bytes_resets(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    rig.peer_sends(&peer, b"unread");
    rig.readable(fd);
    rig.writes(fd, b"answer");
    rig.close(fd);
    rig.wait_for(|| peer.is_reset());
    rig.finish();
}

pub fn a_reset_drops_what_was_not_sent(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let bytes = vec![1; rig.lab.more_than_fits()];
    let (send, sent) = send_until_blocked(&mut rig, fd, &bytes);
    rig.engine.cancel(send);
    rig.next(send);
    rig.engine.close(fd, Close::Reset);
    rig.wait_for(|| peer.is_reset());
    let mut got = 0;
    loop {
        let bytes = peer.recv(usize::MAX);
        if bytes.is_empty() {
            break;
        }
        got += bytes.len();
    }
    assert!(
        got < sent,
        "{got} of {sent} bytes arrived in spite of the reset"
    );
    assert!(!peer.at_end());
    rig.finish();
}

pub fn cancelling_what_has_ended_is_harmless(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    rig.peer_sends(&peer, b"x");
    let recv = rig.submit(Op::Recv { fd, many: false });
    rig.next(recv);
    let next = rig.submit(Op::Recv { fd, many: false });
    rig.engine.cancel(recv);
    rig.engine.cancel(recv);
    assert!(rig.silent(next), "a cancellation hit the successor");
    rig.engine.cancel(next);
    rig.engine.cancel(next);
    rig.cancelled(next);
    rig.engine.cancel(next);
    rig.close(fd);
    rig.finish();
}

/// Cancelled without effect, or completed: the bytes are in the event or still in the socket.
pub fn a_cancelled_receive_loses_no_bytes(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    for round in 0..20 {
        let recv = rig.submit(Op::Recv { fd, many: false });
        if round % 2 == 0 {
            rig.turn(std::time::Duration::ZERO);
        }
        rig.peer_sends(&peer, b"abcdef");
        rig.engine.cancel(recv);
        let mut got = match rig.next(recv).outcome {
            Outcome::Received { buf, .. } => buf.to_vec(),
            Outcome::Cancelled { buf: None } => Vec::new(),
            other => panic!("{other:?}"),
        };
        let left = 6 - got.len();
        got.extend(rig.reads(fd, left));
        assert_eq!(got, b"abcdef");
    }
    rig.close(fd);
    rig.finish();
}

/// What the peer gets is what the events say was sent.
pub fn a_cancelled_send_says_what_it_sent(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let mut sent = 0;
    for round in 0..20_u8 {
        let buf = rig.filled(&[round; 1000]);
        let send = rig.submit(Op::Send {
            fd,
            buf,
            more: false,
        });
        if round % 2 == 0 {
            rig.turn(std::time::Duration::ZERO);
        }
        rig.engine.cancel(send);
        match rig.next(send).outcome {
            Outcome::Sent { buf, n } => {
                assert_eq!(buf.len(), 1000 - n);
                sent += n;
            }
            Outcome::Cancelled { buf: Some(buf) } => assert_eq!(buf.len(), 1000),
            other => panic!("{other:?}"),
        }
    }
    rig.close(fd);
    let mut got = 0;
    rig.wait(|_| {
        got += peer.recv(usize::MAX).len();
        peer.at_end().then_some(())
    });
    assert_eq!(got, sent);
    rig.finish();
}

pub fn another_engine_can_adopt_a_socket(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    rig.peer_sends(&peer, b"one");
    assert_eq!(rig.reads(fd, 3), b"one");
    rig.engine.release(fd);
    assert_eq!(rig.engine.stats().sockets, 0);
    let engine = rig.lab.engine(4);
    let first = std::mem::replace(&mut rig.engine, engine);
    rig.engine.adopt(fd).unwrap();
    assert_eq!(rig.engine.stats().sockets, 1);
    rig.peer_sends(&peer, b"two");
    assert_eq!(rig.reads(fd, 3), b"two");
    rig.writes(fd, b"three");
    assert_eq!(rig.peer_reads(&peer, 5), b"three");
    rig.close(fd);
    rig.wait_for(|| peer.at_end());
    drop(first);
    rig.finish();
}
