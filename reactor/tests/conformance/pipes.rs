//! Splicing.

use std::io::ErrorKind;

use toron_reactor::{Engine, Fd, Pipe};

use crate::lab::{Lab, Peer};
use crate::rig::Rig;

/// Moves `n` bytes from a socket into `pipe`, waiting for them.
fn fill<L: Lab>(rig: &mut Rig<L>, from: Fd, pipe: &mut Pipe, n: usize) {
    let target = pipe.held() + n;
    while pipe.held() < target {
        rig.readable(from);
        let before = pipe.held();
        let moved = rig.engine.splice_in(from, pipe, target - before).unwrap();
        assert!(moved > 0);
        assert_eq!(pipe.held(), before + moved);
    }
}

/// Empties `pipe` into a socket.
fn empty<L: Lab>(rig: &mut Rig<L>, pipe: &mut Pipe, to: Fd) {
    while pipe.held() > 0 {
        rig.writable(to);
        let held = pipe.held();
        let moved = rig.engine.splice_out(pipe, to, held, false).unwrap();
        assert!(moved > 0);
        assert_eq!(pipe.held(), held - moved);
    }
}

pub fn moves_bytes_and_sees_the_end(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (from, source) = rig.accepted();
    let (to, sink) = rig.dialled();
    let mut pipe = rig.engine.pipe().unwrap();
    assert_eq!(rig.engine.stats().pipes, 1);
    let dry = rig
        .engine
        .splice_in(from, &mut pipe, 10)
        .map_err(|e| e.kind());
    assert_eq!(dry, Err(ErrorKind::WouldBlock));
    let bytes: Vec<u8> = (0..150_000_u32).map(|i| (i / 7) as u8).collect();
    let (mut given, mut got) = (0, Vec::new());
    rig.wait(|rig| {
        given += source.send(&bytes[given..]);
        match rig.engine.splice_in(from, &mut pipe, 40_000) {
            Ok(n) => assert!(n > 0 && n <= 40_000 && n == pipe.held()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        while pipe.held() > 0 {
            let before = pipe.held();
            match rig.engine.splice_out(&mut pipe, to, before, false) {
                Ok(n) => assert!(n > 0 && pipe.held() == before - n),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    got.extend(sink.recv(usize::MAX));
                    rig.turn(std::time::Duration::from_millis(1));
                }
            }
        }
        got.extend(sink.recv(usize::MAX));
        (got.len() == bytes.len()).then_some(())
    });
    assert!(got == bytes, "the bytes differ");
    source.shutdown_write();
    rig.readable(from);
    assert_eq!(rig.engine.splice_in(from, &mut pipe, 10).unwrap(), 0);
    rig.engine.return_pipe(pipe);
    assert_eq!(rig.engine.stats().pipes, 0);
    rig.close(from);
    rig.close(to);
    rig.finish();
}

/// `WouldBlock` although the socket has more: what the pipe holds decides what it means.
pub fn a_full_pipe_says_would_block_with_bytes_held(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (from, source) = rig.accepted();
    let (to, sink) = rig.dialled();
    let mut pipe = rig.engine.pipe().unwrap();
    let mut given = 0;
    rig.wait(|rig| {
        given += source.send(&[5; 50_000]);
        match rig.engine.splice_in(from, &mut pipe, 64 * 1024) {
            Ok(n) => {
                assert!(n > 0);
                None
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                // Dry or full: only in the second case the socket is still readable.
                (pipe.held() > 0 && !rig.engine.is_idle(from)).then_some(())
            }
        }
    });
    // A page slot takes a whole fragment of a segment (up to 32 KiB), so a pipe can hold more than
    // its capacity; and less, if the fragments are small.
    assert!(pipe.held() < given);
    let end = rig
        .engine
        .splice_in(from, &mut pipe, 10)
        .map_err(|e| e.kind());
    assert_eq!(
        end,
        Err(ErrorKind::WouldBlock),
        "full is said before the end of stream"
    );
    let mut got = 0;
    let held = pipe.held();
    empty(&mut rig, &mut pipe, to);
    rig.wait(|_| {
        got += sink.recv(usize::MAX).len();
        (got == held).then_some(())
    });
    rig.readable(from);
    assert!(rig.engine.splice_in(from, &mut pipe, 10).unwrap() > 0);
    empty(&mut rig, &mut pipe, to);
    rig.engine.return_pipe(pipe);
    rig.close(from);
    rig.close(to);
    rig.finish();
}

/// A pipe counts pages: pieces of one byte fill it.
pub fn small_pieces_fill_a_pipe(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (from, source) = rig.accepted();
    let (to, sink) = rig.dialled();
    let mut pipe = rig.engine.pipe().unwrap();
    let mut expected = Vec::new();
    loop {
        assert!(
            pipe.held() < pipe.capacity() / 2,
            "pieces are merged: the test is out of date"
        );
        let byte = expected.len() as u8;
        rig.peer_sends(&source, &[byte]);
        rig.readable(from);
        match rig.engine.splice_in(from, &mut pipe, 1) {
            Ok(n) => assert_eq!(n, 1),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
        expected.push(byte);
    }
    assert!(pipe.held() > 0 && pipe.held() < pipe.capacity());
    empty(&mut rig, &mut pipe, to);
    assert_eq!(rig.peer_reads(&sink, expected.len()), expected);
    rig.engine.return_pipe(pipe);
    assert_eq!(rig.reads(from, 1), [expected.len() as u8]);
    rig.close(from);
    rig.close(to);
    rig.finish();
}

/// What a send buffer has room for is taken without a byte being read by the peer.
pub fn the_room_told_is_there(lab: impl Lab) {
    const MOST: usize = 48 * 1024;
    let mut rig = Rig::new(lab);
    let (from, source) = rig.accepted();
    let (to, sink) = rig.dialled();
    let mut pipe = rig.engine.pipe().unwrap();
    let (mut passed, most) = (0, rig.lab.more_than_fits());
    loop {
        let room = rig.engine.send_room(to).min(MOST);
        if room == 0 {
            break;
        }
        rig.peer_sends(&source, &vec![3; room]);
        fill(&mut rig, from, &mut pipe, room);
        let mut refusals = 0;
        while pipe.held() > 0 {
            let held = pipe.held();
            if rig.engine.splice_out(&mut pipe, to, held, false).is_err() {
                refusals += 1;
                assert!(refusals < 100, "{held} of {room} bytes have no room");
                rig.turn(std::time::Duration::ZERO);
            }
        }
        passed += room;
        assert!(passed < most, "{passed} bytes that nobody reads");
    }
    assert!(passed > 0);
    let mut read = 0;
    rig.wait(|rig| {
        read += sink.recv(usize::MAX).len();
        (rig.engine.send_room(to) > 0).then_some(())
    });
    rig.wait(|_| {
        read += sink.recv(usize::MAX).len();
        (read == passed).then_some(())
    });
    rig.engine.return_pipe(pipe);
    rig.close(from);
    rig.close(to);
    rig.finish();
}

pub fn a_dirty_pipe_is_not_used_again(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (from, source) = rig.accepted();
    let (to, sink) = rig.dialled();
    let mut pipe = rig.engine.pipe().unwrap();
    rig.peer_sends(&source, b"secret");
    fill(&mut rig, from, &mut pipe, 6);
    rig.engine.return_pipe(pipe);
    assert_eq!(rig.engine.stats().pipes, 0);
    for _ in 0..3 {
        let mut pipe = rig.engine.pipe().unwrap();
        assert_eq!(pipe.held(), 0);
        rig.peer_sends(&source, b"public");
        fill(&mut rig, from, &mut pipe, 6);
        empty(&mut rig, &mut pipe, to);
        assert_eq!(rig.peer_reads(&sink, 6), b"public");
        rig.engine.return_pipe(pipe);
    }
    rig.close(from);
    rig.close(to);
    rig.finish();
}

pub fn splice_reports_resets(lab: impl Lab) {
    let mut rig = Rig::new(lab);
    let (from, source) = rig.accepted();
    let (to, sink) = rig.dialled();
    let mut pipe = rig.engine.pipe().unwrap();
    rig.peer_sends(&source, b"some");
    let hangup = rig.submit(toron_reactor::Op::Hangup { fd: from });
    source.reset();
    rig.next(hangup);
    fill(&mut rig, from, &mut pipe, 4);
    let reset = rig
        .engine
        .splice_in(from, &mut pipe, 10)
        .map_err(|e| e.raw_os_error());
    assert_eq!(reset, Err(Some(libc::ECONNRESET)));
    let hangup = rig.submit(toron_reactor::Op::Hangup { fd: to });
    sink.reset();
    rig.next(hangup);
    for errno in [libc::ECONNRESET, libc::EPIPE] {
        let broken = rig
            .engine
            .splice_out(&mut pipe, to, 4, false)
            .map_err(|e| e.raw_os_error());
        assert_eq!(broken, Err(Some(errno)));
    }
    assert_eq!(pipe.held(), 4);
    rig.engine.return_pipe(pipe);
    rig.close(from);
    rig.close(to);
    rig.finish();
}
