//! What the peer takes while a send waits for room.

use toron_reactor::{Engine, Fd, Op, OpId, Outcome};

use crate::lab::{Lab, Peer};
use crate::rig::Rig;
use crate::sending::send_until_blocked;

/// Sends until a send waits for the peer, and nothing is on its way any more; returns that send, how
/// many bytes were sent before and how many of those the peer has not acknowledged.
fn clog<L: Lab>(rig: &mut Rig<L>, fd: Fd, bytes: &[u8]) -> (OpId, usize, u64) {
    let mut sent = 0;
    loop {
        let (send, n) = send_until_blocked(rig, fd, &bytes[sent..]);
        sent += n;
        // Or it was only delayed.
        let left = rig.wait(|rig| match rig.engine.acknowledged(fd) {
            Some(told) if told.bytes == 0 => Some(Some(told.left)),
            _ if rig.ended(send) => Some(None),
            _ => None,
        });
        if let Some(left) = left {
            return (send, sent, left);
        }
        let Outcome::Sent { n, .. } = rig.next(send).outcome else {
            panic!("the send fails")
        };
        sent += n;
    }
}

/// Each byte is told once; before and after there is no account.
pub fn acknowledgements_are_told_while_a_send_waits(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    assert_eq!(rig.engine.acknowledged(fd), None);
    let bytes = vec![7; rig.lab.more_than_fits()];
    let (send, sent, left) = clog(&mut rig, fd, &bytes);
    assert!(left > 0 && left <= sent as u64);
    let (mut acknowledged, mut read) = (0, 0);
    let after = rig.wait(|rig| {
        read += peer.recv(4 * 1024).len();
        let told = rig.engine.acknowledged(fd).expect("the send waits");
        acknowledged += told.bytes;
        (acknowledged >= 1024).then_some(told.left)
    });
    assert_eq!(acknowledged, left - after);
    assert!(!rig.ended(send), "less than a third of the buffer is free");
    let event = rig.wait(|rig| {
        read += peer.recv(usize::MAX).len();
        rig.ended(send).then(|| rig.next(send))
    });
    let Outcome::Sent { n, buf } = event.outcome else {
        panic!("{event:?}")
    };
    assert_eq!(rig.engine.acknowledged(fd), None);
    drop(buf);
    rig.wait(|_| {
        read += peer.recv(usize::MAX).len();
        (read == sent + n).then_some(())
    });
    rig.close(fd);
    rig.finish();
}

/// The same while a splice waits.
pub fn acknowledgements_are_told_while_a_splice_waits(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (from, source) = rig.accepted();
    let (to, peer) = rig.accepted();
    let mut pipe = rig.engine.pipe().unwrap();
    rig.wait(|rig| {
        source.send(&[7; 16 * 1024]);
        // Either may have nothing to do at this moment.
        let _ = rig.engine.splice_in(from, &mut pipe, 64 * 1024);
        let moved = rig.engine.splice_out(&mut pipe, to, 64 * 1024, false);
        (pipe.held() > 0 && moved.is_err()).then_some(())
    });
    rig.wait(|rig| {
        let told = rig.engine.acknowledged(to).expect("the splice waits");
        (told.bytes == 0).then_some(())
    });
    rig.wait(|rig| {
        peer.recv(4 * 1024);
        let told = rig.engine.acknowledged(to).expect("the splice waits");
        (told.bytes > 0).then_some(())
    });
    rig.wait(|rig| {
        peer.recv(usize::MAX);
        let held = pipe.held();
        rig.engine.splice_out(&mut pipe, to, held, false).ok()
    });
    assert_eq!(rig.engine.acknowledged(to), None);
    rig.engine.return_pipe(pipe);
    rig.close(from);
    rig.close(to);
    rig.finish();
}

/// A wait for room is a wait as well, whoever began it.
pub fn acknowledgements_are_told_while_room_is_awaited(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let bytes = vec![7; rig.lab.more_than_fits()];
    let (send, ..) = clog(&mut rig, fd, &bytes);
    rig.engine.cancel(send);
    rig.next(send);
    let room = rig.submit(Op::Writable { fd });
    assert!(rig.silent(room));
    rig.wait(|rig| {
        peer.recv(4 * 1024);
        let told = rig.engine.acknowledged(fd).expect("somebody waits");
        (told.bytes > 0).then_some(())
    });
    rig.close(fd);
    rig.cancelled(room);
    rig.finish();
}
