//! Receives, buffers and ends of streams.

use toron_reactor::{Engine, Op, Outcome};

use crate::lab::{Lab, Peer};
use crate::rig::Rig;

pub fn receives_what_is_there(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let recv = rig.submit(Op::Recv { fd, many: false });
    assert!(rig.silent(recv));
    assert_eq!(
        rig.engine.stats().buffers,
        0,
        "a receive that waits holds no buffer"
    );
    rig.peer_sends(&peer, b"abc");
    let event = rig.next(recv);
    assert!(!event.more);
    let Outcome::Received { buf, n } = event.outcome else {
        panic!("{event:?}")
    };
    assert_eq!(n, buf.len());
    let first = buf.to_vec();
    drop(buf);
    let rest = rig.reads(fd, 3 - n);
    assert_eq!([first, rest].concat(), b"abc");
    rig.close(fd);
    rig.finish();
}

pub fn receives_many_until_end_of_stream(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let recv = rig.submit(Op::Recv { fd, many: true });
    let mut got = Vec::new();
    for piece in [b"one", b"two"] {
        rig.peer_sends(&peer, piece);
        let target = got.len() + 3;
        while got.len() < target {
            let event = rig.next(recv);
            assert!(event.more);
            let Outcome::Received { buf, n } = event.outcome else {
                panic!("{event:?}")
            };
            assert_eq!(n, buf.len());
            got.extend_from_slice(&buf);
        }
    }
    assert_eq!(got, b"onetwo");
    peer.shutdown_write();
    let event = rig.next(recv);
    assert!(!event.more);
    assert!(
        matches!(event.outcome, Outcome::Eof { buf: None }),
        "{event:?}"
    );
    rig.close(fd);
    rig.finish();
}

pub fn an_empty_pool_makes_a_receive_wait(lab: impl Lab) {
    let mut rig = Rig::with_buffers(lab, 1);
    let (fd, peer) = rig.accepted();
    let (other, other_peer) = rig.accepted();
    let only = rig.engine.buffers().take().unwrap();
    assert!(rig.engine.buffers().take().is_none());
    rig.peer_sends(&peer, b"abc");
    rig.peer_sends(&other_peer, b"x");
    let recv = rig.submit(Op::Recv { fd, many: false });
    assert!(rig.silent(recv));
    drop(only);
    let event = rig.next(recv);
    let Outcome::Received { buf, .. } = event.outcome else {
        panic!("{event:?}")
    };
    assert!(b"abc".starts_with(&buf));
    let left = 3 - buf.len();
    let waiting = rig.submit(Op::Recv {
        fd: other,
        many: false,
    });
    assert!(rig.silent(waiting));
    drop(buf);
    let event = rig.next(waiting);
    let Outcome::Received { buf, n: 1 } = event.outcome else {
        panic!("{event:?}")
    };
    assert_eq!(&*buf, b"x");
    drop(buf);
    rig.reads(fd, left);
    // End of stream and errors may need a buffer or not, but must not be lost.
    let only = rig.engine.buffers().take().unwrap();
    let end = rig.submit(Op::Recv { fd, many: false });
    let error = rig.submit(Op::Recv {
        fd: other,
        many: false,
    });
    peer.shutdown_write();
    other_peer.reset();
    for _ in 0..4 {
        rig.turn(std::time::Duration::from_millis(5));
    }
    drop(only);
    let event = rig.next(end);
    assert!(
        matches!(event.outcome, Outcome::Eof { buf: None }),
        "{event:?}"
    );
    let event = rig.next(error);
    let failed = matches!(
        event.outcome,
        Outcome::Failed {
            errno: libc::ECONNRESET,
            buf: None
        }
    );
    assert!(failed, "{event:?}");
    rig.close(fd);
    rig.close(other);
    rig.finish();
}

pub fn an_empty_pool_makes_a_receive_of_many_wait(lab: impl Lab) {
    let mut rig = Rig::with_buffers(lab, 1);
    let (fd, peer) = rig.accepted();
    let sent: Vec<u8> = (0..200_000_u32).map(|i| i as u8).collect();
    let recv = rig.submit(Op::Recv { fd, many: true });
    let (mut given, mut got) = (0, Vec::new());
    while got.len() < sent.len() {
        given += peer.send(&sent[given..]);
        let event = rig.next(recv);
        let Outcome::Received { buf, .. } = event.outcome else {
            panic!("{event:?}")
        };
        got.extend_from_slice(&buf);
        // The buffer is kept for a turn, so that the next bytes find the pool empty.
        rig.turn(std::time::Duration::ZERO);
    }
    assert_eq!(got, sent);
    peer.close();
    let event = rig.next(recv);
    assert!(
        matches!(event.outcome, Outcome::Eof { buf: None }),
        "{event:?}"
    );
    rig.close(fd);
    rig.finish();
}

pub fn a_buffer_can_be_waited_for(lab: impl Lab) {
    let mut rig = Rig::with_buffers(lab, 2);
    let one = rig.engine.buffers().take().unwrap();
    let two = rig.engine.buffers().take().unwrap();
    let wait = rig.submit(Op::Buffer);
    let cancelled = rig.submit(Op::Buffer);
    assert!(rig.silent(wait));
    rig.engine.cancel(cancelled);
    assert!(rig.cancelled(cancelled).is_none());
    drop(one);
    let Outcome::Buffer(buf) = rig.next(wait).outcome else {
        panic!("no buffer")
    };
    assert!(buf.is_empty());
    drop((two, buf));
    // With a free one it comes at once.
    let Outcome::Buffer(buf) = rig.run(Op::Buffer) else {
        panic!("no buffer")
    };
    drop(buf);
    rig.finish();
}

pub fn receives_behind_what_a_buffer_holds(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let mut buf = rig.filled(b"GET ");
    rig.peer_sends(&peer, b"/ HTTP");
    while buf.len() < 10 {
        let before = buf.len();
        let outcome = rig.run(Op::RecvInto { fd, buf });
        let Outcome::Received { buf: grown, n } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(grown.len(), before + n);
        buf = grown;
    }
    assert_eq!(&*buf, b"GET / HTTP");
    drop(buf);
    rig.close(fd);
    rig.finish();
}

pub fn a_buffer_comes_back_at_end_of_stream(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let buf = rig.filled(b"rest");
    let recv = rig.submit(Op::RecvInto { fd, buf });
    peer.shutdown_write();
    let event = rig.next(recv);
    let Outcome::Eof { buf: Some(buf) } = event.outcome else {
        panic!("{event:?}")
    };
    assert_eq!(&*buf, b"rest");
    drop(buf);
    rig.close(fd);
    rig.finish();
}

pub fn a_buffer_comes_back_on_reset_and_cancel(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    let buf = rig.filled(b"rest");
    let recv = rig.submit(Op::RecvInto { fd, buf });
    assert!(rig.silent(recv));
    rig.engine.cancel(recv);
    let buf = rig.cancelled(recv).expect("the buffer");
    assert_eq!(&*buf, b"rest");
    let recv = rig.submit(Op::RecvInto { fd, buf });
    peer.reset();
    let event = rig.next(recv);
    let Outcome::Failed {
        errno,
        buf: Some(buf),
    } = event.outcome
    else {
        panic!("{event:?}")
    };
    assert_eq!(errno, libc::ECONNRESET);
    assert_eq!(&*buf, b"rest");
    drop(buf);
    rig.close(fd);
    rig.finish();
}

pub fn a_fin_stays_behind_unread_bytes(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    rig.peer_sends(&peer, &[7; 5000]);
    peer.close();
    assert_eq!(rig.reads(fd, 5000), [7; 5000]);
    rig.reads_eof(fd);
    rig.reads_eof(fd);
    rig.close(fd);
    rig.finish();
}

pub fn bytes_before_a_reset_can_be_read(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    rig.peer_sends(&peer, b"last words");
    rig.readable(fd);
    let hangup = rig.submit(Op::Hangup { fd });
    peer.reset();
    rig.next(hangup);
    assert_eq!(rig.reads(fd, 10), b"last words");
    assert_eq!(rig.read_fails(fd), libc::ECONNRESET);
    // The kernel tells an error once and says 0 after that; an engine stays with the error.
    assert_eq!(rig.read_fails(fd), libc::ECONNRESET);
    rig.close(fd);
    rig.finish();
}

/// Promise 8.
pub fn a_reset_told_to_a_sender_is_no_end_for_the_reader(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let mut pipe = rig.engine.pipe().unwrap();
    for way in 0..4 {
        let (fd, peer) = rig.accepted();
        let hangup = rig.submit(Op::Hangup { fd });
        peer.reset();
        rig.next(hangup);
        let buf = rig.filled(b"x");
        match rig.run(Op::Send {
            fd,
            buf,
            more: false,
        }) {
            Outcome::Failed {
                errno: libc::ECONNRESET,
                ..
            } => {}
            other => panic!("{other:?}"),
        }
        let errno = match way {
            0 => Some(rig.read_fails(fd)),
            1 => rig.engine.discard(fd, 10).unwrap_err().raw_os_error(),
            2 => rig
                .engine
                .splice_in(fd, &mut pipe, 10)
                .unwrap_err()
                .raw_os_error(),
            _ => {
                let buf = rig.filled(b"x");
                match rig.run(Op::RecvInto { fd, buf }) {
                    Outcome::Failed {
                        errno,
                        buf: Some(_),
                    } => Some(errno),
                    other => panic!("{other:?}"),
                }
            }
        };
        assert_eq!(errno, Some(libc::ECONNRESET), "way {way}");
        rig.close(fd);
    }
    rig.engine.return_pipe(pipe);
    rig.finish();
}

pub fn a_reset_after_fin_does_not_disturb_the_reader(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (fd, peer) = rig.accepted();
    rig.peer_sends(&peer, b"all");
    peer.shutdown_write();
    let hangup = rig.submit(Op::Hangup { fd });
    peer.reset();
    rig.next(hangup);
    assert_eq!(rig.reads(fd, 3), b"all");
    rig.reads_eof(fd);
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
    rig.close(fd);
    rig.finish();
}
