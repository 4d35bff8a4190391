//! The kernel engines on real sockets: what the scripted conformance suite, which must also run on
//! the simulator, cannot ask.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::time::Duration;

use toron_reactor::{
    Close, Engine, EngineConfig, EpollEngine, Event, Fd, Key, NativeEngine, Op, OpId, Outcome,
    Shutdown, Time, Token, UringEngine,
};

/// Turns an engine may take to do what a test waits for.
const TURNS: usize = 2000;

struct Rig<E> {
    engine: E,
    events: Vec<Event>,
}

fn key(lane: u8) -> Key {
    Key {
        token: Token {
            index: 7,
            generation: 3,
        },
        lane,
    }
}

fn in_millis<E: Engine>(engine: &E, millis: u64) -> Time {
    engine.now() + Duration::from_millis(millis)
}

impl<E: NativeEngine> Rig<E> {
    fn new(buffers: usize) -> Self {
        let config = EngineConfig {
            buffers,
            ..EngineConfig::default()
        };
        Rig {
            engine: E::open(&config).unwrap(),
            events: Vec::new(),
        }
    }

    /// A connection: the engine's end and the test's end.
    fn pair(&mut self) -> (Fd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let (ours, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let fd = Fd(ours.into_raw_fd());
        self.engine.adopt(fd).unwrap();
        (fd, peer)
    }

    /// The next event of an operation.
    fn await_event(&mut self, op: OpId) -> Event {
        for _ in 0..TURNS {
            if let Some(at) = self.events.iter().position(|e| e.op == op) {
                return self.events.remove(at);
            }
            let until = in_millis(&self.engine, 50);
            self.engine.turn(Some(until), &mut self.events).unwrap();
        }
        panic!("no event of {op:?}");
    }

    fn wait(&mut self, op: OpId) -> Outcome {
        let event = self.await_event(op);
        assert!(!event.more, "{event:?} is not final");
        event.outcome
    }

    /// Turns until the engine has had the time to do what it could do; nothing must come of `op`.
    fn expect_silence(&mut self, op: OpId) {
        for _ in 0..5 {
            let until = in_millis(&self.engine, 2);
            self.engine.turn(Some(until), &mut self.events).unwrap();
        }
        assert!(!self.events.iter().any(|e| e.op == op), "{:?}", self.events);
    }

    fn recv(&mut self, fd: Fd) -> OpId {
        self.engine.submit(key(0), Op::Recv { fd, many: false })
    }

    fn send(&mut self, fd: Fd, bytes: &[u8]) -> OpId {
        let mut buf = self.engine.buffers().take().unwrap();
        assert_eq!(buf.extend(bytes), bytes.len());
        self.engine.submit(
            key(1),
            Op::Send {
                fd,
                buf,
                more: false,
            },
        )
    }

    /// Fills the connection until nothing more goes in, and returns the waiting send.
    fn clog(&mut self, fd: Fd) -> OpId {
        for _ in 0..TURNS {
            let op = self.send(fd, &[9; 65536]);
            for _ in 0..20 {
                let until = in_millis(&self.engine, 1);
                self.engine.turn(Some(until), &mut self.events).unwrap();
                if self.events.iter().any(|e| e.op == op) {
                    break;
                }
            }
            if !self.events.iter().any(|e| e.op == op) {
                return op;
            }
            self.events.clear();
        }
        panic!("the connection takes everything");
    }

    fn assert_empty(&mut self) {
        self.events.clear();
        for _ in 0..3 {
            let until = in_millis(&self.engine, 1);
            self.engine.turn(Some(until), &mut self.events).unwrap();
        }
        assert!(self.events.is_empty(), "{:?}", self.events);
        let stats = self.engine.stats();
        assert_eq!(
            (stats.operations, stats.sockets, stats.buffers, stats.pipes),
            (0, 0, 0, 0),
            "{stats:?}"
        );
    }
}

fn received(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Received { buf, n } => {
            assert_eq!(buf.len(), n);
            buf.to_vec()
        }
        other => panic!("{other:?}"),
    }
}

fn dialled_and_accepted<E: NativeEngine>() {
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

fn a_refused_connection<E: NativeEngine>() {
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

fn an_empty_pool_makes_receives_wait<E: NativeEngine>() {
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

fn a_waiting_receive_without_buffer_can_be_cancelled<E: NativeEngine>() {
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

fn close_ends_what_is_in_flight<E: NativeEngine>() {
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

fn polls_of_a_half_closed_connection<E: NativeEngine>() {
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

fn a_hangup_of_both_sides<E: NativeEngine>() {
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

fn many_receives_keep_their_order<E: NativeEngine>() {
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

fn many_receives_without_buffers_can_be_cancelled<E: NativeEngine>() {
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

fn received_behind_what_is_there<E: NativeEngine>() {
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

fn a_reset_fails_the_receive<E: NativeEngine>() {
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
fn a_reset_that_came_before_the_receive<E: NativeEngine>() {
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

/// More than one receive brings is there, and nothing arrives any more that could tell so.
fn all_that_came_is_received<E: NativeEngine>() {
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

fn spliced_through_a_pipe<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(1);
    let (from, mut source) = rig.pair();
    let (to, mut sink) = rig.pair();
    let mut pipe = rig.engine.pipe().unwrap();
    let dry = rig.engine.splice_in(from, &mut pipe, 1000).unwrap_err();
    assert_eq!(dry.kind(), std::io::ErrorKind::WouldBlock);
    source.write_all(b"0123456789").unwrap();
    let ready = rig.engine.submit(key(0), Op::Readable { fd: from });
    assert!(matches!(rig.wait(ready), Outcome::Ready));
    assert_eq!(rig.engine.splice_in(from, &mut pipe, 8).unwrap(), 8);
    assert_eq!(rig.engine.splice_out(&mut pipe, to, 5, false).unwrap(), 5);
    assert_eq!(pipe.held(), 3);
    rig.engine.return_pipe(pipe);
    let mut fresh = rig.engine.pipe().unwrap();
    assert_eq!(fresh.held(), 0);
    assert_eq!(rig.engine.splice_in(from, &mut fresh, 100).unwrap(), 2);
    assert_eq!(
        rig.engine.splice_out(&mut fresh, to, 100, false).unwrap(),
        2
    );
    let mut bytes = [0; 7];
    sink.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"0123489");
    source.write_all(b"thrown away").unwrap();
    let ready = rig.engine.submit(key(0), Op::Readable { fd: from });
    assert!(matches!(rig.wait(ready), Outcome::Ready));
    assert!(!rig.engine.is_idle(from) && rig.engine.is_idle(to));
    assert_eq!(rig.engine.discard(from, 6).unwrap(), 6);
    assert_eq!(rig.engine.discard(from, 1 << 20).unwrap(), 5);
    drop(source);
    let ready = rig.engine.submit(key(0), Op::Readable { fd: from });
    assert!(matches!(rig.wait(ready), Outcome::Ready));
    assert_eq!(rig.engine.splice_in(from, &mut fresh, 100).unwrap(), 0);
    rig.engine.return_pipe(fresh);
    rig.engine.close(from, Close::Orderly);
    rig.engine.close(to, Close::Orderly);
    rig.assert_empty();
}

fn a_turn_waits_until_its_time<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(1);
    for micros in [0, 300, 3_000] {
        let until = rig.engine.now() + Duration::from_micros(micros);
        rig.engine.turn(Some(until), &mut rig.events).unwrap();
        assert!(rig.engine.now() >= until && rig.events.is_empty());
    }
}

fn a_wake_ends_a_turn<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(1);
    let waker = rig.engine.waker();
    waker.wake();
    rig.engine.turn(None, &mut rig.events).unwrap();
    for _ in 0..20 {
        let waker = rig.engine.waker();
        let other = std::thread::spawn(move || waker.wake());
        rig.engine.turn(None, &mut rig.events).unwrap();
        other.join().unwrap();
    }
    assert!(rig.events.is_empty());
}

/// What follows from a completion must not wait for another.
fn every_completion_ends_a_turn<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(4);
    let (fd, mut peer) = rig.pair();
    let waker = rig.engine.waker();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if is_done.recv_timeout(Duration::from_secs(20)).is_err() {
            waker.wake();
        }
    });
    let recv = rig.recv(fd);
    rig.expect_silence(recv);
    for _ in 0..3 {
        let send = rig.send(fd, b"x");
        rig.engine.turn(None, &mut rig.events).unwrap();
        assert!(matches!(rig.events[..], [Event { op, .. }] if op == send));
        rig.events.clear();
    }
    peer.write_all(b"y").unwrap();
    rig.engine.turn(None, &mut rig.events).unwrap();
    assert!(matches!(rig.events[..], [Event { op, .. }] if op == recv));
    done.send(()).unwrap();
    watchdog.join().unwrap();
}

fn a_dropped_engine_closes_its_sockets<E: NativeEngine>() {
    let mut rig = Rig::<E>::new(4);
    let (fd, mut peer) = rig.pair();
    let recv = rig.recv(fd);
    rig.engine.submit(key(3), Op::Hangup { fd });
    rig.expect_silence(recv);
    drop(rig);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

/// More operations than any queue between engine and kernel holds.
fn a_flood_of_operations<E: NativeEngine>() {
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

macro_rules! on_both_engines {
    ($($test:ident,)*) => {
        mod epoll {
            use super::EpollEngine;
            $(#[test] fn $test() { super::$test::<EpollEngine>(); })*
        }
        mod uring {
            use super::UringEngine;
            $(#[test] fn $test() {
                if super::uring_is_available() { super::$test::<UringEngine>(); }
            })*
        }
    };
}

on_both_engines! {
    dialled_and_accepted,
    a_refused_connection,
    an_empty_pool_makes_receives_wait,
    a_waiting_receive_without_buffer_can_be_cancelled,
    close_ends_what_is_in_flight,
    polls_of_a_half_closed_connection,
    a_hangup_of_both_sides,
    many_receives_keep_their_order,
    many_receives_without_buffers_can_be_cancelled,
    received_behind_what_is_there,
    a_reset_fails_the_receive,
    a_reset_that_came_before_the_receive,
    all_that_came_is_received,
    spliced_through_a_pipe,
    a_turn_waits_until_its_time,
    a_wake_ends_a_turn,
    every_completion_ends_a_turn,
    a_dropped_engine_closes_its_sockets,
    a_flood_of_operations,
}

/// Whether this kernel lets the process have a ring. Says so when not: a green run must not look
/// as if io_uring had been tested.
fn uring_is_available() -> bool {
    match toron_reactor::EngineKind::IoUring.choose() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}
