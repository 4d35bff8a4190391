//! An engine under test, with an account of its operations.

use std::collections::HashMap;
use std::time::Duration;

use toron_reactor::{
    Buf, Close, Engine, Event, Fd, Key, Op, OpId, Outcome, Shutdown, Stats, Token,
};

use crate::lab::{Door, Lab, Peer};

/// Turns a condition may take to come true. A turn waits for at most [`STEP`], so this is 10 s of
/// patience on a real engine, which is used up only when a test fails.
const PATIENCE: usize = 2_000;
const STEP: Duration = Duration::from_millis(5);

/// One engine, the lab around it, and what has been submitted and reported.
pub struct Rig<L: Lab> {
    pub lab: L,
    pub engine: L::Engine,
    /// Reported and not asked for yet.
    pub events: Vec<Event>,
    /// Submitted and not ended: the key given, and whether several events may come.
    open: HashMap<OpId, (Key, bool)>,
    submitted: u32,
}

impl<L: Lab> Rig<L> {
    pub fn new(lab: L) -> Self {
        Self::with_buffers(lab, 16)
    }

    pub fn with_buffers(lab: L, buffers: usize) -> Self {
        let engine = lab.engine(buffers);
        Rig {
            lab,
            engine,
            events: Vec::new(),
            open: HashMap::new(),
            submitted: 0,
        }
    }

    pub fn submit(&mut self, op: Op) -> OpId {
        let key = Key {
            token: Token {
                index: self.submitted,
                generation: 7,
            },
            lane: 3,
        };
        self.submitted += 1;
        let many = matches!(op, Op::Accept { .. } | Op::Recv { many: true, .. });
        let id = self.engine.submit(key, op);
        assert!(
            self.open.insert(id, (key, many)).is_none(),
            "{id:?} names two operations"
        );
        assert_eq!(self.engine.stats().operations, self.open.len());
        id
    }

    /// Whether the final event of an operation has been reported.
    pub fn ended(&self, op: OpId) -> bool {
        !self.open.contains_key(&op)
    }

    /// One turn of at most `wait`.
    pub fn turn(&mut self, wait: Duration) {
        let mut events = Vec::new();
        let until = self.engine.now() + wait;
        self.engine.turn(Some(until), &mut events).unwrap();
        for event in events {
            self.audit(&event);
            self.events.push(event);
        }
        assert_eq!(self.engine.stats().operations, self.open.len());
    }

    /// Promise 1: one final event, `more` only where it is allowed.
    fn audit(&mut self, event: &Event) {
        let Some((key, many)) = self.open.get(&event.op).copied() else {
            panic!("an event of an operation that has ended: {event:?}")
        };
        assert_eq!(key, event.key);
        if event.more {
            assert!(
                many,
                "only accept and receive of many report several events: {event:?}"
            );
            let brought = matches!(
                event.outcome,
                Outcome::Accepted { .. } | Outcome::Received { .. }
            );
            assert!(brought, "an event without an effect is final: {event:?}");
        } else {
            self.open.remove(&event.op);
        }
    }

    /// The next event of `op`.
    pub fn next(&mut self, op: OpId) -> Event {
        for _ in 0..PATIENCE {
            if let Some(i) = self.events.iter().position(|event| event.op == op) {
                return self.events.remove(i);
            }
            self.turn(STEP);
        }
        panic!("{op:?} reports nothing")
    }

    /// Submits and returns the first outcome.
    pub fn run(&mut self, op: Op) -> Outcome {
        let op = self.submit(op);
        self.next(op).outcome
    }

    /// Whether `op` has reported anything by now; takes a few turns.
    pub fn silent(&mut self, op: OpId) -> bool {
        for _ in 0..4 {
            self.turn(STEP);
        }
        !self.events.iter().any(|event| event.op == op)
    }

    /// Takes turns until `condition` gives something.
    pub fn wait<T>(&mut self, mut condition: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..PATIENCE {
            if let Some(value) = condition(self) {
                return value;
            }
            self.turn(Duration::from_millis(1));
        }
        panic!("what was waited for does not happen")
    }

    pub fn wait_for(&mut self, condition: impl Fn() -> bool) {
        self.wait(|_| condition().then_some(()));
    }

    /// The peer sends all of `bytes` (which must fit into its buffer).
    pub fn peer_sends(&mut self, peer: &L::Peer, bytes: &[u8]) {
        let mut sent = 0;
        self.wait(|_| {
            sent += peer.send(&bytes[sent..]);
            (sent == bytes.len()).then_some(())
        });
    }

    /// Reads at the peer until there are `n` bytes.
    pub fn peer_reads(&mut self, peer: &L::Peer, n: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.wait(|_| {
            bytes.extend(peer.recv(n - bytes.len()));
            (bytes.len() == n).then_some(())
        });
        bytes
    }

    /// An accepted connection.
    pub fn accepted(&mut self) -> (Fd, L::Peer) {
        let (listener, addr) = self.lab.listen();
        let accept = self.submit(Op::Accept { listener });
        let peer = self.lab.dial(addr);
        let event = self.next(accept);
        let Outcome::Accepted { fd, peer: from } = event.outcome else {
            panic!("{event:?}")
        };
        assert!(event.more);
        assert_eq!(from, peer.local_addr());
        self.engine.close(listener, Close::Orderly);
        self.cancelled(accept);
        (fd, peer)
    }

    /// A dialled connection.
    pub fn dialled(&mut self) -> (Fd, L::Peer) {
        let door = self.lab.door();
        let addr = door.addr();
        let fd = self.engine.socket(&addr).unwrap();
        let connected = self.run(Op::Connect { fd, addr });
        assert!(matches!(connected, Outcome::Connected), "{connected:?}");
        let peer = self.wait(|_| door.accept());
        (fd, peer)
    }

    /// Expects `op` to end as cancelled.
    pub fn cancelled(&mut self, op: OpId) -> Option<Buf> {
        let event = self.next(op);
        assert!(!event.more);
        match event.outcome {
            Outcome::Cancelled { buf } => buf,
            other => panic!("not cancelled: {other:?}"),
        }
    }

    /// A buffer with `bytes` (at most its capacity).
    pub fn filled(&mut self, bytes: &[u8]) -> Buf {
        let mut buf = self.engine.buffers().take().unwrap();
        assert_eq!(buf.extend(bytes), bytes.len());
        buf
    }

    /// Receives until there are `n` bytes.
    pub fn reads(&mut self, fd: Fd, n: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < n {
            match self.run(Op::Recv { fd, many: false }) {
                Outcome::Received { buf, n } => {
                    assert!(n > 0 && n == buf.len());
                    bytes.extend_from_slice(&buf);
                }
                other => panic!("{other:?} after {} of {n} bytes", bytes.len()),
            }
        }
        assert_eq!(bytes.len(), n, "more came than was expected");
        bytes
    }

    /// Sends all of `bytes`.
    pub fn writes(&mut self, fd: Fd, bytes: &[u8]) {
        for piece in bytes.chunks(toron_reactor::buffer::CAPACITY) {
            let mut buf = self.filled(piece);
            while !buf.is_empty() {
                let before = buf.len();
                match self.run(Op::Send {
                    fd,
                    buf,
                    more: false,
                }) {
                    Outcome::Sent { buf: rest, n } => {
                        assert!(n > 0 && rest.len() == before - n);
                        buf = rest;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    pub fn reads_eof(&mut self, fd: Fd) {
        match self.run(Op::Recv { fd, many: false }) {
            Outcome::Eof { buf: None } => {}
            other => panic!("not the end: {other:?}"),
        }
    }

    pub fn read_fails(&mut self, fd: Fd) -> i32 {
        match self.run(Op::Recv { fd, many: false }) {
            Outcome::Failed { errno, buf: None } => errno,
            other => panic!("not a failure: {other:?}"),
        }
    }

    /// Waits until a receive, splice or discard on `fd` would not block.
    pub fn readable(&mut self, fd: Fd) {
        let outcome = self.run(Op::Readable { fd });
        assert!(matches!(outcome, Outcome::Ready), "{outcome:?}");
    }

    pub fn writable(&mut self, fd: Fd) {
        let outcome = self.run(Op::Writable { fd });
        assert!(matches!(outcome, Outcome::Ready), "{outcome:?}");
    }

    pub fn close(&mut self, fd: Fd) {
        self.engine.close(fd, Close::Orderly);
    }

    pub fn half_close(&mut self, fd: Fd) {
        self.engine.shutdown(fd, Shutdown::Write);
    }

    /// Everything has been given back.
    pub fn finish(mut self) {
        for event in self.events.drain(..) {
            assert!(
                !matches!(event.outcome, Outcome::Accepted { .. }),
                "a connection that nobody asked for: {event:?}"
            );
        }
        self.wait(|rig| (rig.open.is_empty()).then_some(()));
        self.events.clear();
        // Closing may take a turn of its own.
        for _ in 0..PATIENCE {
            if self.engine.stats().sockets == 0 {
                break;
            }
            self.turn(Duration::from_millis(1));
        }
        let stats = self.engine.stats();
        let zero = Stats {
            turns: stats.turns,
            system_calls: stats.system_calls,
            ..Stats::default()
        };
        assert_eq!(stats, zero);
    }
}
