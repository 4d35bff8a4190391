//! An engine without a kernel: sends and connects succeed at once, and what is received is what the
//! scenario lays down. What it costs itself is a few dozen instructions per operation.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use toron_reactor::{
    Acknowledged, BufferPool, Close, Engine, Event, Fd, Key, Op, OpId, Outcome, Pipe, Shutdown,
    Stats, Time, Token, Wake,
};

/// How much later each turn is.
const TURN: Duration = Duration::from_micros(10);

/// See the module text.
pub struct Canned {
    now: Time,
    /// Operations that wait, by descriptor: the one receive (or accept), and polls.
    waiting: Vec<Waiting>,
    done: Vec<Event>,
    pool: BufferPool,
    /// What was sent last on a descriptor, where it is kept.
    sent: Vec<Vec<u8>>,
    keeps_sent: bool,
    made: u32,
}

#[derive(Default)]
struct Waiting {
    receive: Option<(Key, OpId)>,
    polls: Vec<(Key, OpId)>,
}

struct Deaf;

impl Wake for Deaf {
    fn wake(&self) {}
}

impl Default for Canned {
    fn default() -> Self {
        Canned {
            now: Time(1_000_000_000),
            waiting: Vec::new(),
            done: Vec::new(),
            pool: BufferPool::new(64),
            sent: Vec::new(),
            keeps_sent: true,
            made: 0,
        }
    }
}

impl Canned {
    /// A connection has come to the listener.
    pub fn connection(&mut self, listener: Fd, peer: SocketAddr) -> Fd {
        let fd = self.open();
        let (key, op) = self.at(listener).receive.expect("nobody accepts");
        self.done.push(Event {
            key,
            op,
            more: true,
            outcome: Outcome::Accepted { fd, peer },
        });
        fd
    }

    /// Bytes have come to a descriptor on which a receive waits.
    pub fn bytes(&mut self, fd: Fd, bytes: &[u8]) {
        let mut buf = self.pool.take().expect("a buffer");
        let n = buf.extend(bytes);
        let (key, op) = self.at(fd).receive.take().expect("nobody receives");
        self.report(key, op, Outcome::Received { buf, n });
    }

    /// What was sent last on a descriptor.
    pub fn sent(&self, fd: Fd) -> &[u8] {
        &self.sent[index(fd)]
    }

    /// From now on what is sent is not kept.
    pub fn forget_sent(&mut self) {
        self.keeps_sent = false;
    }

    /// The descriptor that was made last.
    pub fn last(&self) -> Fd {
        Fd(i32::try_from(self.waiting.len()).expect("few") - 1)
    }

    /// A fresh descriptor.
    pub fn open(&mut self) -> Fd {
        self.waiting.push(Waiting::default());
        self.sent.push(Vec::new());
        self.last()
    }

    fn at(&mut self, fd: Fd) -> &mut Waiting {
        &mut self.waiting[index(fd)]
    }

    fn report(&mut self, key: Key, op: OpId, outcome: Outcome) {
        self.done.push(Event {
            key,
            op,
            more: false,
            outcome,
        });
    }
}

fn index(fd: Fd) -> usize {
    usize::try_from(fd.0).expect("a descriptor")
}

impl Engine for Canned {
    fn now(&self) -> Time {
        self.now
    }

    fn clock(&self) -> Time {
        self.now
    }

    fn submit(&mut self, key: Key, op: Op) -> OpId {
        self.made = self.made.wrapping_add(1);
        let id = |fd: Fd, made: u32| {
            OpId::of(Token {
                index: fd.0.unsigned_abs(),
                generation: made,
            })
        };
        match op {
            Op::Accept { listener: fd } | Op::Recv { fd, .. } => {
                let op = id(fd, self.made);
                self.at(fd).receive = Some((key, op));
                op
            }
            Op::Send { fd, mut buf, .. } => {
                if self.keeps_sent {
                    self.sent[index(fd)] = buf.to_vec();
                }
                let n = buf.len();
                buf.consume(n);
                let op = id(fd, self.made);
                self.report(key, op, Outcome::Sent { buf, n });
                op
            }
            Op::Connect { fd, .. } => {
                let op = id(fd, self.made);
                self.report(key, op, Outcome::Connected);
                op
            }
            Op::Readable { fd }
            | Op::Writable { fd }
            | Op::Hangup { fd }
            | Op::ReadHangup { fd } => {
                let op = id(fd, self.made);
                self.at(fd).polls.push((key, op));
                op
            }
            Op::RecvInto { .. } | Op::Buffer => panic!("no scenario cuts heads or lacks buffers"),
        }
    }

    fn cancel(&mut self, op: OpId) {
        let Some(waiting) = self.waiting.get_mut(op.token().index as usize) else {
            return;
        };
        let polls = waiting.polls.iter().position(|(_, id)| *id == op);
        let ended = match polls {
            Some(at) => Some(waiting.polls.remove(at)),
            None => waiting.receive.take_if(|(_, id)| *id == op),
        };
        if let Some((key, op)) = ended {
            self.report(key, op, Outcome::Cancelled { buf: None });
        }
    }

    fn turn(&mut self, _until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.now = self.now + TURN;
        events.append(&mut self.done);
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(Deaf)
    }

    fn buffers(&self) -> &BufferPool {
        &self.pool
    }

    fn socket(&mut self, _addr: &SocketAddr) -> io::Result<Fd> {
        Ok(self.open())
    }

    fn adopt(&mut self, _fd: Fd) -> io::Result<()> {
        Ok(())
    }

    fn release(&mut self, _fd: Fd) {}

    fn shutdown(&mut self, _fd: Fd, _how: Shutdown) {}

    fn close(&mut self, fd: Fd, _how: Close) {
        let waiting = std::mem::take(self.at(fd));
        for (key, op) in waiting.receive.into_iter().chain(waiting.polls) {
            self.report(key, op, Outcome::Cancelled { buf: None });
        }
    }

    fn pipe(&mut self) -> io::Result<Pipe> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn return_pipe(&mut self, _pipe: Pipe) {}

    fn splice_in(&mut self, _from: Fd, _pipe: &mut Pipe, _max: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn splice_out(&mut self, _: &mut Pipe, _: Fd, _: usize, _: bool) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn discard(&mut self, _fd: Fd, _max: usize) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn unread(&mut self, _fd: Fd) -> io::Result<usize> {
        Ok(0)
    }

    fn peek(&mut self, _fd: Fd, _buf: &mut toron_reactor::Buf) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn send_room(&mut self, _fd: Fd) -> usize {
        0
    }

    fn is_idle(&mut self, _fd: Fd) -> bool {
        true
    }

    fn acknowledged(&mut self, _fd: Fd) -> Option<Acknowledged> {
        None
    }

    fn is_pending(&self, op: OpId) -> bool {
        let waiting = self.waiting.get(op.token().index as usize);
        waiting.is_some_and(|w| w.receive.is_some_and(|(_, id)| id == op))
    }

    fn local_addr(&self, _fd: Fd) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn refuse_one(&mut self, _listener: Fd, _answer: &[u8]) -> Option<SocketAddr> {
        None
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}
