//! The engine on `io_uring(7)`.
//!
//! # One system call per turn
//! Operations are queued and handed over by the same `io_uring_enter` that waits for completions.
//! Sends carry `MSG_DONTWAIT`, so each of them completes while it is submitted, with `EAGAIN` in
//! the worst case (then the engine polls for room and sends again).
//!
//! A call that submits a send so returns at once, with the news that it was sent. Waiting for one
//! completion more than there are sends would save that round, but what follows from a send (the
//! next piece, the next receive, a close) would then wait for some other socket: with a single
//! upload it waits for ever.
//!
//! # Receives
//! take their buffer from a ring of buffers lent to the kernel, when there are bytes. A socket that
//! the last receive found empty (`IORING_CQE_F_SOCK_NONEMPTY` not set) is polled first
//! (`IORING_RECVSEND_POLL_FIRST`), which saves an attempt that cannot succeed. Lent buffers do not
//! count against the pool's limit; what arrived in one waits inside the engine until the limit
//! allows it to be handed out, and while it does not, no more are lent.
//!
//! # Who owns what
//! The buffer of an operation lives in the operation's entry until the kernel's last completion of
//! it, whatever the caller does meanwhile. `user_data` is the entry's token with its generation. A
//! descriptor is closed when the last of its operations has ended.
//!
//! # Polls and half-closed connections
//! The kernel adds `POLLRDHUP` to every poll, so a wait for room on a connection whose peer has
//! finished sending would return at once, for ever. Such polls are armed multishot, which makes
//! them edge-triggered, and what they were not meant for is ignored.

mod accept;
mod ops;
mod ring;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::CancelBuilder;
use io_uring::{opcode, squeue};

use self::ring::{BufferRing, Completion, Ring};
use crate::broken::Broken;
use crate::buffer::{Buf, BufferPool, Lent};
use crate::engine::{
    Acknowledged, Close, Engine, Event, Fd, Key, Op, OpId, Outcome, Shutdown, SocketOptions, Stats,
    Wake,
};
use crate::native::{hand_out, Bell, EngineConfig, NativeEngine, Poll, Spare, TRIM_INTERVAL};
use crate::pipe::Pipe;
use crate::pipes::{self, PipePool};
use crate::send_queue::{queued, SendQueue};
use crate::slab::{Slab, Token};
use crate::sys;
use crate::sys::socket::RawAddr;
use crate::time::Time;

/// `user_data` of the poll on the bell. No token looks like this: indices are smaller.
const BELL: u64 = u64::MAX;
/// `user_data` of requests whose completions tell nothing.
const IGNORE: u64 = u64::MAX - 1;
/// Rounds of at most [`DROP_WAIT`] in which a dropped engine waits for the kernel to let go of its
/// buffers.
const DROP_ROUNDS: usize = 100;
const DROP_WAIT: Duration = Duration::from_millis(10);

/// What is known about a descriptor.
#[derive(Debug, Default)]
struct Socket {
    /// How the connection broke, if somebody has been told.
    failure: Broken,
    /// What the peer takes while a send waits.
    send_queue: SendQueue,
    /// Owned by this engine.
    open: bool,
    /// The last receive left nothing behind.
    dry: bool,
    /// Receive or accept in flight.
    reader: Option<Token>,
    /// Send or connect in flight.
    writer: Option<Token>,
    /// Polls in flight.
    polls: Vec<Token>,
    /// To be closed when nothing is in flight any more.
    closing: Option<Close>,
}

impl Socket {
    fn is_quiet(&self) -> bool {
        self.reader.is_none() && self.writer.is_none() && self.polls.is_empty()
    }
}

/// An operation whose final event has not been given, or whose last completion is still to come.
struct InFlight {
    key: Key,
    kind: Kind,
    stage: Stage,
    /// The caller wants it to end: nothing is submitted for it any more.
    cancelled: bool,
}

enum Kind {
    Accept { listener: Fd, pausing: bool },
    Connect { fd: Fd, addr: Box<RawAddr> },
    Recv { fd: Fd, many: bool, held_back: u32 },
    RecvInto { fd: Fd, buf: Buf },
    Send { fd: Fd, buf: Buf, more: bool },
    Poll { fd: Fd, what: Poll },
    Buffer,
}

/// Where an operation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The kernel has it.
    Kernel,
    /// A send that waits for room: the kernel has a poll.
    Polling,
    /// It waits for a buffer; the kernel has nothing.
    Starved,
    /// Its end is known and waits behind bytes held back for want of buffers.
    Ending,
    /// The final event has been given; the kernel's last completion is still to come.
    Over,
    /// An accept that goes on when what it brought has been told: the kernel has nothing.
    Paused,
}

/// What waits for the pool, first come first served.
enum Waiter {
    /// An operation that needs a buffer.
    Op(Token),
    /// Received bytes that the limit does not allow to be handed out yet.
    Filled {
        token: Token,
        lent: Lent,
        n: i32,
        more: bool,
    },
    /// The end of a receive of many that has bytes held back.
    End { token: Token, outcome: Outcome },
}

/// See the module text.
pub struct UringEngine {
    // Dropped first: the kernel must have let go of the memory below.
    ring: Ring,
    buffers: BufferRing,
    ops: Slab<InFlight>,
    pool: BufferPool,
    bell: Arc<Bell>,
    now: Time,
    trimmed: Time,
    sockets: Vec<Socket>,
    open: usize,
    /// Completions for the next turn to return.
    done: Vec<Event>,
    /// Connections that have been accepted and not been told yet.
    fresh: VecDeque<Event>,
    /// Accepts in stage `Paused`.
    paused: Vec<Token>,
    /// Scratch space of a turn.
    reaped: Vec<Completion>,
    waiting: VecDeque<Waiter>,
    /// Closed by the caller and quiet, to be closed once the events of their operations are out.
    closing: Vec<Fd>,
    /// Entries of `ops` in stage `Over`.
    over: usize,
    pipes: PipePool,
    spare: Spare,
    options: SocketOptions,
    turns: u64,
    system_calls: u64,
}

impl NativeEngine for UringEngine {
    const NAME: &'static str = "io_uring";

    fn open(config: &EngineConfig) -> io::Result<Self> {
        let ring = Ring::new()?;
        let buffers = BufferRing::register(&ring)?;
        let now = sys::monotonic();
        let mut engine = UringEngine {
            ring,
            buffers,
            ops: Slab::new(),
            pool: BufferPool::new(config.buffers),
            bell: Arc::new(Bell::new()?),
            now,
            trimmed: now,
            sockets: Vec::new(),
            open: 0,
            done: Vec::new(),
            fresh: VecDeque::new(),
            paused: Vec::new(),
            reaped: Vec::new(),
            waiting: VecDeque::new(),
            closing: Vec::new(),
            over: 0,
            pipes: PipePool::default(),
            spare: Spare::new(),
            options: config.socket,
            turns: 0,
            system_calls: 0,
        };
        engine.arm_bell();
        Ok(engine)
    }
}

impl UringEngine {
    fn arm_bell(&mut self) {
        let fd = io_uring::types::Fd(self.bell.fd().0);
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32)
            .multi(true)
            .build();
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(poll.user_data(BELL)) };
    }

    /// Asks the kernel to end a request.
    fn cancel_request(&mut self, token: Token) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(token.to_u64())).build();
        let entry = entry.user_data(IGNORE).flags(squeue::Flags::SKIP_SUCCESS);
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(entry) };
    }

    /// One `io_uring_enter`, and what it brought. Returns whether the bell was rung.
    fn enter(&mut self, until: Option<Time>, may_wait: bool) -> io::Result<bool> {
        let (mut want, mut timeout) = (0, None);
        if may_wait && self.bell.fall_asleep() {
            want = 1;
            timeout = until.map(|t| t.since(sys::monotonic()));
        }
        let result = self.ring.enter(want, timeout, true);
        let rung = self.bell.wake_up();
        result?;
        let mut reaped = std::mem::take(&mut self.reaped);
        self.ring.reap(&mut reaped);
        for completion in reaped.drain(..) {
            self.complete(completion);
        }
        self.reaped = reaped;
        Ok(rung)
    }

    /// Gives free buffers to those who wait for one.
    fn feed_waiting(&mut self) {
        self.buffers.replenish(&self.pool);
        let mut available = self.buffers.lent();
        while let Some(waiter) = self.waiting.pop_front() {
            match waiter {
                Waiter::Filled {
                    token,
                    lent,
                    n,
                    more,
                } => {
                    match ring::claim(&self.pool, lent, n) {
                        Ok(buf) => self.deliver(token, buf, n, more),
                        Err(lent) => {
                            let waiter = Waiter::Filled {
                                token,
                                lent,
                                n,
                                more,
                            };
                            return self.waiting.push_front(waiter);
                        }
                    }
                    if let Some(Kind::Recv { held_back, .. }) =
                        self.ops.get_mut(token).map(|op| &mut op.kind)
                    {
                        *held_back = held_back.saturating_sub(1);
                    }
                }
                Waiter::End { token, outcome } => self.end(token, |_| outcome),
                Waiter::Op(token) => match self.ops.get(token) {
                    // It has been cancelled.
                    None => {}
                    Some(op) if op.stage != Stage::Starved => {}
                    Some(InFlight {
                        kind: Kind::Buffer, ..
                    }) => match self.pool.take() {
                        Some(buf) => self.end(token, |_| Outcome::Buffer(buf)),
                        None => return self.waiting.push_front(waiter),
                    },
                    Some(_) if available > 0 => {
                        available -= 1;
                        self.request(token);
                    }
                    Some(_) => return self.waiting.push_front(waiter),
                },
            }
        }
    }

    fn close_now(&mut self, fd: Fd, how: Close) {
        if how == Close::Reset {
            // Fails only if the connection is gone already.
            let _ = sys::socket::reset_on_close(fd);
        }
        sys::close(fd);
        self.system_calls += 1;
        self.forget(fd);
    }

    /// Ends ownership of a descriptor.
    fn forget(&mut self, fd: Fd) {
        if let Some(socket) = self.entry_mut(fd) {
            let was_open = socket.open;
            let mut polls = std::mem::take(&mut socket.polls);
            polls.clear();
            *socket = Socket {
                polls,
                ..Socket::default()
            };
            self.open -= usize::from(was_open);
        }
    }

    /// Begins ownership of a descriptor. `dry`: there is certainly nothing to be read yet.
    fn take_ownership(&mut self, fd: Fd, dry: bool) {
        let socket = self.slot(fd);
        if !socket.open {
            socket.open = true;
            socket.dry = dry;
            self.open += 1;
        }
    }

    /// The table entry of a descriptor, made if necessary.
    fn slot(&mut self, fd: Fd) -> &mut Socket {
        let index = usize::try_from(fd.0).unwrap_or(0);
        if index >= self.sockets.len() {
            self.sockets.resize_with(index + 1, Socket::default);
        }
        &mut self.sockets[index]
    }

    fn entry_mut(&mut self, fd: Fd) -> Option<&mut Socket> {
        usize::try_from(fd.0)
            .ok()
            .and_then(|i| self.sockets.get_mut(i))
    }
}

impl Engine for UringEngine {
    fn now(&self) -> Time {
        self.now
    }

    fn clock(&self) -> Time {
        sys::monotonic()
    }

    fn submit(&mut self, key: Key, op: Op) -> OpId {
        self.start(key, op)
    }

    fn cancel(&mut self, op: OpId) {
        self.cancel_op(op.token());
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.turns += 1;
        let expired = until.is_some_and(|t| t <= self.now);
        loop {
            self.feed_waiting();
            let idle = self.done.is_empty() && self.fresh.is_empty();
            let rung = self.enter(until, idle && !expired)?;
            self.now = sys::monotonic();
            let late = expired || until.is_some_and(|t| t <= self.now);
            if !self.done.is_empty() || !self.fresh.is_empty() || rung || late {
                break;
            }
        }
        self.tell_fresh();
        if self.now.since(self.trimmed) >= TRIM_INTERVAL {
            self.trimmed = self.now;
            self.pool.trim();
        }
        hand_out(&mut self.done, events);
        while let Some(fd) = self.closing.pop() {
            let how = self.slot(fd).closing.unwrap_or(Close::Orderly);
            self.close_now(fd, how);
        }
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        let bell: Arc<Bell> = Arc::clone(&self.bell);
        bell
    }

    fn buffers(&self) -> &BufferPool {
        &self.pool
    }

    fn socket(&mut self, addr: &SocketAddr) -> io::Result<Fd> {
        let fd = sys::socket::tcp(addr)?;
        if let Err(error) = sys::socket::set_options(fd, &self.options) {
            sys::close(fd);
            return Err(error);
        }
        self.system_calls += 6;
        self.take_ownership(fd, true);
        Ok(fd)
    }

    fn adopt(&mut self, fd: Fd) -> io::Result<()> {
        self.take_ownership(fd, false);
        Ok(())
    }

    fn release(&mut self, fd: Fd) {
        self.forget(fd);
    }

    fn shutdown(&mut self, fd: Fd, how: Shutdown) {
        self.system_calls += 1;
        // An error means that the connection is gone, which the operations in flight tell.
        let _ = sys::socket::shutdown(fd, how);
    }

    fn close(&mut self, fd: Fd, how: Close) {
        let Some(socket) = self.entry_mut(fd) else {
            return;
        };
        if socket.closing.is_some() || !(socket.open || socket.reader.is_some()) {
            return;
        }
        socket.closing = Some(how);
        if socket.is_quiet() {
            if self.done.is_empty() {
                self.close_now(fd, how);
            } else {
                self.closing.push(fd);
            }
            return;
        }
        let (reader, writer) = (socket.reader, socket.writer);
        let polls = socket.polls.clone();
        for token in reader.into_iter().chain(writer).chain(polls) {
            self.drop_held_back(token);
            self.cancel_op(token);
        }
    }

    fn pipe(&mut self) -> io::Result<Pipe> {
        self.pipes.take()
    }

    fn return_pipe(&mut self, pipe: Pipe) {
        self.pipes.give_back(pipe);
    }

    fn splice_in(&mut self, from: Fd, pipe: &mut Pipe, max: usize) -> io::Result<usize> {
        self.system_calls += 1;
        let result = pipes::splice_in(from, pipe, max);
        self.slot(from).failure.read(result)
    }

    fn splice_out(&mut self, pipe: &mut Pipe, to: Fd, max: usize, more: bool) -> io::Result<usize> {
        self.system_calls += 1;
        let result = pipes::splice_out(pipe, to, max, more);
        let socket = self.slot(to);
        match &result {
            Ok(_) => socket.send_queue.moved(),
            Err(error) if pipe.held > 0 && error.kind() == io::ErrorKind::WouldBlock => {
                socket.send_queue.waits(|| queued(to));
            }
            Err(_) => {}
        }
        socket.failure.write(result)
    }

    fn discard(&mut self, fd: Fd, max: usize) -> io::Result<usize> {
        self.system_calls += 1;
        let result = sys::socket::discard(fd, max);
        self.slot(fd).failure.read(result)
    }

    fn unread(&mut self, fd: Fd) -> io::Result<usize> {
        self.system_calls += 1;
        sys::socket::unread(fd)
    }

    fn send_room(&mut self, fd: Fd) -> usize {
        self.system_calls += 1;
        sys::socket::send_room(fd)
    }

    fn peek(&mut self, fd: Fd, buf: &mut Buf) -> io::Result<usize> {
        self.system_calls += 1;
        let result = sys::socket::peek(fd, buf);
        self.slot(fd).failure.read(result)
    }

    fn is_idle(&mut self, fd: Fd) -> bool {
        self.system_calls += 1;
        sys::socket::is_quiet(fd)
    }

    fn acknowledged(&mut self, fd: Fd) -> Option<Acknowledged> {
        let told = self.slot(fd).send_queue.acknowledged(|| queued(fd));
        self.system_calls += u64::from(told.is_some());
        told
    }

    fn is_pending(&self, op: OpId) -> bool {
        self.ops
            .get(op.token())
            .is_some_and(|op| op.stage != Stage::Over)
    }

    fn local_addr(&self, fd: Fd) -> io::Result<SocketAddr> {
        sys::socket::local_addr(fd)
    }

    fn refuse_one(&mut self, listener: Fd, answer: &[u8]) -> Option<SocketAddr> {
        self.spare.refuse_one(listener, answer)
    }

    fn stats(&self) -> Stats {
        let finals = self.done.iter().filter(|e| !e.more).count();
        Stats {
            operations: self.ops.len() - self.over + finals,
            sockets: self.open,
            buffers: self.pool.in_use(),
            pipes: self.pipes.out(),
            turns: self.turns,
            system_calls: self.system_calls + self.ring.enters,
        }
    }
}

impl Drop for UringEngine {
    fn drop(&mut self) {
        for token in self.ops.tokens() {
            self.drop_held_back(token);
            self.cancel_op(token);
        }
        for _ in 0..DROP_ROUNDS {
            if self.ops.is_empty() || self.ring.enter(1, Some(DROP_WAIT), true).is_err() {
                break;
            }
            let mut reaped = std::mem::take(&mut self.reaped);
            self.ring.reap(&mut reaped);
            for completion in reaped {
                self.complete(completion);
            }
            self.done.clear();
        }
        if self.ops.is_empty() {
            self.buffers.take_back(&self.pool);
        } else {
            // The kernel may still write to these.
            std::mem::forget(self.pool.clone());
            std::mem::forget(std::mem::take(&mut self.ops));
        }
        for (index, socket) in self.sockets.iter().enumerate() {
            if socket.open {
                sys::close(Fd(i32::try_from(index).unwrap_or(-1)));
            }
        }
    }
}
