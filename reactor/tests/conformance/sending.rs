//! Sends, half-closed connections and broken ones.

use toron_reactor::{Engine, Fd, Op, OpId, Outcome, Shutdown};

use crate::lab::{Lab, Peer};
use crate::rig::Rig;

pub fn pattern(n: usize) -> Vec<u8> {
    (0..n as u32).map(|i| (i ^ (i >> 8)) as u8).collect()
}

/// Sends from `bytes` until a send waits for the peer; returns that send and how many bytes were
/// sent before.
pub fn send_until_blocked<L: Lab>(rig: &mut Rig<L>, fd: Fd, bytes: &[u8]) -> (OpId, usize) {
    let mut sent = 0;
    while sent < bytes.len() {
        let end = bytes.len().min(sent + toron_reactor::buffer::CAPACITY);
        let buf = rig.filled(&bytes[sent..end]);
        let send = rig.submit(Op::Send {
            fd,
            buf,
            more: false,
        });
        if rig.silent(send) {
            return (send, sent);
        }
        let outcome = rig.next(send).outcome;
        let Outcome::Sent { n, .. } = outcome else {
            panic!("{outcome:?}")
        };
        sent += n;
    }
    panic!("the kernel took {sent} bytes that nobody reads")
}

pub fn sends_and_says_how_much(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let bytes = pattern(50_000);
    rig.writes(fd, &bytes);
    assert_eq!(rig.peer_reads(&peer, bytes.len()), bytes);
    rig.close(fd);
    rig.finish();
}

pub fn an_empty_buffer_is_sent_at_once(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, _peer) = rig.accepted();
    let buf = rig.filled(b"");
    match rig.run(Op::Send {
        fd,
        buf,
        more: false,
    }) {
        Outcome::Sent { buf, n: 0 } => assert!(buf.is_empty()),
        other => panic!("{other:?}"),
    }
    rig.close(fd);
    rig.finish();
}

pub fn a_send_waits_for_the_peer_to_read(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let bytes = pattern(rig.lab.more_than_fits());
    let (send, mut sent) = send_until_blocked(&mut rig, fd, &bytes);
    let mut got = Vec::new();
    let event = rig.wait(|rig| {
        got.extend(peer.recv(usize::MAX));
        rig.ended(send).then(|| rig.next(send))
    });
    let Outcome::Sent { buf, n } = event.outcome else {
        panic!("{event:?}")
    };
    assert!(n > 0);
    drop(buf);
    sent += n;
    rig.wait(|_| {
        got.extend(peer.recv(usize::MAX));
        (got.len() == sent).then_some(())
    });
    assert!(got == bytes[..sent], "the bytes differ");
    rig.close(fd);
    rig.finish();
}

pub fn a_send_to_a_reset_peer_fails(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let hangup = rig.submit(Op::Hangup { fd });
    peer.reset();
    rig.next(hangup);
    for expected in [libc::ECONNRESET, libc::EPIPE] {
        let buf = rig.filled(b"lost");
        match rig.run(Op::Send {
            fd,
            buf,
            more: false,
        }) {
            Outcome::Failed {
                errno,
                buf: Some(buf),
            } => {
                assert_eq!(errno, expected);
                assert_eq!(&*buf, b"lost");
            }
            other => panic!("{other:?}"),
        }
    }
    rig.close(fd);
    rig.finish();
}

/// Closed looks like half-closed: the first send succeeds, the RST that answers it ends the
/// connection.
pub fn a_send_to_a_closed_peer_fails_at_last(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    peer.close();
    rig.reads_eof(fd);
    let hangup = rig.submit(Op::Hangup { fd });
    rig.writes(fd, b"x");
    rig.next(hangup);
    let buf = rig.filled(b"y");
    match rig.run(Op::Send {
        fd,
        buf,
        more: false,
    }) {
        Outcome::Failed {
            errno: libc::EPIPE,
            buf: Some(_),
        } => {}
        other => panic!("{other:?}"),
    }
    rig.close(fd);
    rig.finish();
}

pub fn half_closed_by_us_the_peer_can_go_on(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    rig.writes(fd, b"request");
    rig.half_close(fd);
    assert_eq!(rig.peer_reads(&peer, 7), b"request");
    rig.wait_for(|| peer.at_end());
    rig.peer_sends(&peer, b"answer");
    assert_eq!(rig.reads(fd, 6), b"answer");
    let buf = rig.filled(b"x");
    match rig.run(Op::Send {
        fd,
        buf,
        more: false,
    }) {
        Outcome::Failed {
            errno: libc::EPIPE,
            buf: Some(_),
        } => {}
        other => panic!("{other:?}"),
    }
    peer.close();
    rig.reads_eof(fd);
    rig.close(fd);
    rig.finish();
}

pub fn half_closed_by_the_peer_we_can_go_on(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    rig.peer_sends(&peer, b"request");
    peer.shutdown_write();
    assert_eq!(rig.reads(fd, 7), b"request");
    rig.reads_eof(fd);
    let bytes = pattern(30_000);
    rig.writes(fd, &bytes);
    assert_eq!(rig.peer_reads(&peer, bytes.len()), bytes);
    assert!(!peer.at_end() && !peer.is_reset());
    rig.close(fd);
    rig.wait_for(|| peer.at_end());
    rig.finish();
}

pub fn after_shutdown_of_both_nothing_is_sent(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let recv = rig.submit(Op::Recv { fd, many: false });
    assert!(rig.silent(recv));
    rig.engine.shutdown(fd, Shutdown::Both);
    let event = rig.next(recv);
    assert!(
        matches!(event.outcome, Outcome::Eof { buf: None }),
        "{event:?}"
    );
    let buf = rig.filled(b"x");
    match rig.run(Op::Send {
        fd,
        buf,
        more: false,
    }) {
        Outcome::Failed {
            errno: libc::EPIPE,
            buf: Some(_),
        } => {}
        other => panic!("{other:?}"),
    }
    rig.wait_for(|| peer.at_end());
    rig.close(fd);
    rig.finish();
}

pub fn bytes_held_back_with_more_arrive_in_the_end(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let mut buf = rig.filled(b"head");
    while !buf.is_empty() {
        let outcome = rig.run(Op::Send {
            fd,
            buf,
            more: true,
        });
        let Outcome::Sent { buf: rest, .. } = outcome else {
            panic!("{outcome:?}")
        };
        buf = rest;
    }
    drop(buf);
    rig.writes(fd, b"body");
    assert_eq!(rig.peer_reads(&peer, 8), b"headbody");
    // Nothing follows: the kernel waits for a while, then sends.
    let buf = rig.filled(b"x");
    let outcome = rig.run(Op::Send {
        fd,
        buf,
        more: true,
    });
    assert!(matches!(outcome, Outcome::Sent { n: 1, .. }), "{outcome:?}");
    drop(outcome);
    assert_eq!(rig.peer_reads(&peer, 1), b"x");
    rig.close(fd);
    rig.finish();
}

pub fn closing_delivers_what_was_sent(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let bytes = pattern(rig.lab.more_than_fits());
    let (send, mut sent) = send_until_blocked(&mut rig, fd, &bytes);
    rig.engine.cancel(send);
    if let Outcome::Sent { n, .. } = rig.next(send).outcome {
        sent += n;
    }
    rig.close(fd);
    let mut got = Vec::new();
    rig.wait(|_| {
        got.extend(peer.recv(usize::MAX));
        (got.len() >= sent && peer.at_end()).then_some(())
    });
    assert!(got == bytes[..sent], "the bytes differ");
    rig.finish();
}
