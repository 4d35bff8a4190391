//! Polls, the idle check and discard.

use std::io::ErrorKind;

use toron_reactor::{Engine, Op, Outcome};

use crate::lab::{Lab, Peer};
use crate::rig::Rig;
use crate::sending::send_until_blocked;

pub fn readable_on_bytes_end_and_reset(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let poll = rig.submit(Op::Readable { fd });
    assert!(rig.silent(poll));
    rig.peer_sends(&peer, b"x");
    assert!(matches!(rig.next(poll).outcome, Outcome::Ready));
    // A poll consumes nothing, and reports again while the condition holds.
    rig.readable(fd);
    assert_eq!(rig.reads(fd, 1), b"x");
    let poll = rig.submit(Op::Readable { fd });
    assert!(rig.silent(poll));
    rig.engine.cancel(poll);
    rig.cancelled(poll);
    peer.shutdown_write();
    rig.readable(fd);
    rig.reads_eof(fd);
    rig.readable(fd);
    rig.close(fd);

    let (fd, peer) = rig.dialled();
    peer.reset();
    rig.readable(fd);
    assert_eq!(rig.read_fails(fd), libc::ECONNRESET);
    rig.close(fd);
    rig.finish();
}

pub fn writable_when_there_is_room(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    rig.writable(fd);
    let bytes = vec![1; rig.lab.more_than_fits()];
    let (send, _) = send_until_blocked(&mut rig, fd, &bytes);
    rig.engine.cancel(send);
    rig.next(send);
    let poll = rig.submit(Op::Writable { fd });
    assert!(rig.silent(poll));
    rig.wait(|rig| {
        peer.recv(usize::MAX);
        rig.ended(poll).then_some(())
    });
    assert!(matches!(rig.next(poll).outcome, Outcome::Ready));
    rig.close(fd);
    rig.finish();
}

pub fn no_hangup_on_half_close(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    for by_peer in [true, false] {
        let (fd, peer) = rig.accepted();
        let hangup = rig.submit(Op::Hangup { fd });
        rig.peer_sends(&peer, b"unread");
        assert!(rig.silent(hangup));
        if by_peer {
            peer.shutdown_write();
        } else {
            rig.half_close(fd);
            rig.wait_for(|| peer.at_end());
        }
        assert!(rig.silent(hangup));
        rig.engine.cancel(hangup);
        rig.cancelled(hangup);
        assert_eq!(rig.reads(fd, 6), b"unread");
        rig.close(fd);
    }
    rig.finish();
}

pub fn hangup_on_reset(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let hangup = rig.submit(Op::Hangup { fd });
    let recv = rig.submit(Op::Recv { fd, many: false });
    assert!(rig.silent(hangup));
    peer.reset();
    assert!(matches!(rig.next(hangup).outcome, Outcome::Ready));
    let event = rig.next(recv);
    let failed = matches!(
        event.outcome,
        Outcome::Failed {
            errno: libc::ECONNRESET,
            ..
        }
    );
    assert!(failed, "{event:?}");
    rig.close(fd);

    // With unread bytes in the way, and closing with unread bytes as the cause.
    let (fd, peer) = rig.accepted();
    rig.peer_sends(&peer, b"unread");
    rig.writes(fd, b"unread there");
    let hangup = rig.submit(Op::Hangup { fd });
    assert!(rig.silent(hangup));
    peer.close();
    assert!(matches!(rig.next(hangup).outcome, Outcome::Ready));
    assert_eq!(rig.reads(fd, 6), b"unread");
    assert_eq!(rig.read_fails(fd), libc::ECONNRESET);
    rig.close(fd);
    rig.finish();
}

pub fn hangup_when_closed_both_ways(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let hangup = rig.submit(Op::Hangup { fd });
    rig.half_close(fd);
    rig.wait_for(|| peer.at_end());
    assert!(rig.silent(hangup));
    peer.close();
    assert!(matches!(rig.next(hangup).outcome, Outcome::Ready));
    rig.reads_eof(fd);
    rig.close(fd);
    rig.finish();
}

/// Whatever stands unread before the end; and how much that is.
pub fn a_fin_is_noticed_behind_unread_bytes(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    for unread in [0, 6] {
        let (fd, peer) = rig.accepted();
        let ended = rig.submit(Op::ReadHangup { fd });
        let hangup = rig.submit(Op::Hangup { fd });
        rig.peer_sends(&peer, &b"unread"[..unread]);
        assert!(rig.silent(ended));
        assert_eq!(rig.engine.unread(fd).unwrap(), unread);
        peer.shutdown_write();
        assert!(matches!(rig.next(ended).outcome, Outcome::Ready));
        assert_eq!(rig.engine.unread(fd).unwrap(), unread);
        assert!(rig.silent(hangup), "it is no hang-up");
        if unread > 0 {
            assert_eq!(rig.reads(fd, unread), b"unread");
        }
        assert_eq!(rig.engine.unread(fd).unwrap(), 0);
        // It stays true, also behind the end of stream.
        rig.reads_eof(fd);
        let again = rig.run(Op::ReadHangup { fd });
        assert!(matches!(again, Outcome::Ready), "{again:?}");
        rig.close(fd);
        rig.cancelled(hangup);
    }
    rig.finish();
}

/// A reset is the end of sending as well; the own FIN is not.
pub fn the_end_of_sending_is_noticed_by_reset_but_not_by_our_fin(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    rig.half_close(fd);
    let ended = rig.submit(Op::ReadHangup { fd });
    rig.wait_for(|| peer.at_end());
    assert!(rig.silent(ended));
    rig.engine.cancel(ended);
    rig.cancelled(ended);
    rig.close(fd);

    let (fd, peer) = rig.accepted();
    rig.peer_sends(&peer, b"unread");
    let ended = rig.submit(Op::ReadHangup { fd });
    assert!(rig.silent(ended));
    peer.reset();
    assert!(matches!(rig.next(ended).outcome, Outcome::Ready));
    let hangup = rig.run(Op::Hangup { fd });
    assert!(matches!(hangup, Outcome::Ready), "{hangup:?}");
    assert_eq!(rig.engine.unread(fd).unwrap(), 6);
    assert_eq!(rig.reads(fd, 6), b"unread");
    rig.close(fd);
    rig.finish();
}

pub fn peeking_leaves_bytes_unread(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let mut buf = rig.filled(b"held, ");
    let nothing = rig.engine.peek(fd, &mut buf).map_err(|e| e.kind());
    assert_eq!(nothing, Err(ErrorKind::WouldBlock));
    rig.peer_sends(&peer, b"unread");
    rig.wait(|rig| (rig.engine.unread(fd).unwrap() == 6).then_some(()));
    assert_eq!(rig.engine.peek(fd, &mut buf).unwrap(), 6);
    assert_eq!(&*buf, b"held, unread");
    assert_eq!(rig.engine.unread(fd).unwrap(), 6);
    peer.shutdown_write();
    let ended = rig.run(Op::ReadHangup { fd });
    assert!(matches!(ended, Outcome::Ready), "{ended:?}");
    assert_eq!(rig.engine.peek(fd, &mut buf).unwrap(), 6);
    assert_eq!(rig.reads(fd, 6), b"unread");
    assert_eq!(rig.engine.peek(fd, &mut buf).unwrap(), 0);
    rig.reads_eof(fd);
    drop(buf);
    rig.close(fd);
    rig.finish();
}

pub fn idle_says_whether_a_connection_can_be_used(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.dialled();
    assert!(rig.engine.is_idle(fd));
    rig.peer_sends(&peer, b"x");
    rig.readable(fd);
    assert!(!rig.engine.is_idle(fd), "a stray byte");
    assert_eq!(rig.reads(fd, 1), b"x");
    assert!(rig.engine.is_idle(fd));
    peer.shutdown_write();
    rig.readable(fd);
    assert!(!rig.engine.is_idle(fd), "the peer has finished");
    assert!(!rig.engine.is_idle(fd), "asking must not change the answer");
    rig.close(fd);

    let (fd, peer) = rig.dialled();
    let recv = rig.submit(Op::Recv { fd, many: false });
    assert!(rig.engine.is_pending(recv) && rig.engine.is_idle(fd));
    rig.peer_sends(&peer, b"x");
    assert!(matches!(rig.next(recv).outcome, Outcome::Received { .. }));
    assert!(!rig.engine.is_pending(recv), "its event was returned");
    rig.close(fd);

    let (fd, peer) = rig.dialled();
    peer.reset();
    rig.readable(fd);
    assert!(!rig.engine.is_idle(fd), "reset");
    assert!(!rig.engine.is_idle(fd), "asking must not change the answer");
    rig.close(fd);
    rig.finish();
}

pub fn discards_bytes(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let dry = rig.engine.discard(fd, 100).map_err(|e| e.kind());
    assert_eq!(dry, Err(ErrorKind::WouldBlock));
    rig.peer_sends(&peer, &[1; 1000]);
    rig.peer_sends(&peer, &[2; 10]);
    let mut left = 1000;
    while left > 0 {
        rig.readable(fd);
        let n = rig.engine.discard(fd, left.min(300)).unwrap();
        assert!(n > 0 && n <= left.min(300));
        left -= n;
    }
    assert_eq!(rig.reads(fd, 10), [2; 10]);
    peer.shutdown_write();
    rig.readable(fd);
    assert_eq!(rig.engine.discard(fd, 100).unwrap(), 0);
    rig.close(fd);

    let (fd, peer) = rig.accepted();
    peer.reset();
    rig.readable(fd);
    let error = rig.engine.discard(fd, 100).map_err(|e| e.raw_os_error());
    assert_eq!(error, Err(Some(libc::ECONNRESET)));
    rig.close(fd);
    rig.finish();
}
