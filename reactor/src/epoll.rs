//! The engine on `epoll(7)`: completions imitated by trying, parking, and trying again.
//!
//! # Edge-triggered, registered once
//! Each socket is registered when it first has to wait, once, for both directions, with `EPOLLET`,
//! and its readiness is remembered in a table indexed by descriptor. An operation on a socket that
//! is not known to be ready parks without a system call; an edge, `EAGAIN` or a short read changes
//! what is known. A request and its response so cost no `epoll_ctl` at all, where one-shot
//! registration costs one per wait (about 0.3 µs each, two per direction and request). The known
//! danger of edges, a wake-up that is consumed but not acted on, is met by the table: an edge sets
//! a flag that stays until the kernel itself says that the socket is dry. The flag is cleared only
//! by `EAGAIN`, or by a read that returned less than asked for while no end of stream and no error
//! have been seen (after a FIN, no new edge would tell of the zero that is still to be read).
//!
//! Listening sockets are level-triggered with `EPOLLEXCLUSIVE`, as several engines share them.
//!
//! # Fairness
//! What completes at once is queued and returned by the next turn without polling, but after
//! `POLL_INTERVAL` such completions the engine polls regardless, so that two fast peers cannot
//! starve the others.

mod ops;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thin_vec::ThinVec;

use crate::broken::Broken;
use crate::buffer::{Buf, BufferPool};
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
use crate::sys::poll::{Epoll, PollEvent, NO_EVENT};
use crate::time::Time;

/// Completions after which the kernel is asked for news even though work is at hand.
const POLL_INTERVAL: usize = 256;
/// Completions after which a turn returns, with the rest of the kernel's news kept for the next:
/// few enough that the buffers of a turn stay in the cache.
const TURN_SIZE: usize = 32;
/// Events fetched by one `epoll_wait`.
const BATCH: usize = 256;

const READ_MASK: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
const WRITE_MASK: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;
const ENDED_MASK: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
const BROKEN_MASK: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
const SOCKET_MASK: u32 =
    (libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
const LISTENER_MASK: u32 = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32;
/// `data` of the bell's registration; descriptors are smaller.
const BELL: u64 = u64::MAX;

/// What is known about a descriptor.
#[derive(Debug, Default)]
struct Socket {
    /// How the connection broke, if somebody has been told.
    failure: Broken,
    /// What the peer takes while a send waits.
    send_queue: SendQueue,
    /// Counts closes, so that news of a predecessor is recognised.
    generation: u32,
    /// Owned by this engine.
    open: bool,
    registered: bool,
    readable: bool,
    writable: bool,
    /// FIN or an error has been seen: reading ends only with what the kernel returns.
    ended: bool,
    /// Closed in both directions, or an error.
    broken: bool,
    /// The peer has sent urgent data (`MSG_OOB`), where reads end short and splice(2) finds nothing,
    /// though more has come: neither tells that the socket is empty.
    urgent: bool,
    /// Receive or accept that waits.
    reader: Option<OpId>,
    /// Send or connect that waits.
    writer: Option<OpId>,
    /// Polls that wait.
    polls: ThinVec<Token>,
    /// The receive stands in `starved`.
    starved: bool,
    /// The receive of many stands in `eager`.
    eager: bool,
    /// Stands in `closing`.
    closing: bool,
}

/// An operation that waits.
#[derive(Debug)]
struct Parked {
    key: Key,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Accept { listener: Fd },
    Connect { fd: Fd },
    Recv { fd: Fd, many: bool },
    RecvInto { fd: Fd, buf: Buf },
    Send { fd: Fd, buf: Buf, more: bool },
    Poll { fd: Fd, what: Poll },
    Buffer,
}

/// See the module text.
pub struct EpollEngine {
    epoll: Epoll,
    bell: Arc<Bell>,
    now: Time,
    trimmed: Time,
    ops: Slab<Parked>,
    sockets: Vec<Socket>,
    open: usize,
    /// Completions for the next turn to return.
    done: Vec<Event>,
    /// News from the kernel, of which `batch[next..filled]` are still to be looked at.
    batch: Box<[PollEvent; BATCH]>,
    next: usize,
    filled: usize,
    /// Operations that wait for a buffer, first come first served.
    starved: VecDeque<Token>,
    /// Sockets with a receive of many that has more to do.
    eager: VecDeque<Fd>,
    /// Closed by the caller, to be closed once the events of their operations are out.
    closing: Vec<(Fd, Close)>,
    since_poll: usize,
    /// Counts operations that never waited.
    at_once: u32,
    pool: BufferPool,
    pipes: PipePool,
    spare: Spare,
    options: SocketOptions,
    turns: u64,
    system_calls: u64,
}

impl NativeEngine for EpollEngine {
    const NAME: &'static str = "epoll";

    fn open(config: &EngineConfig) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let bell = Bell::new()?;
        epoll.add(bell.fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, BELL)?;
        let now = sys::monotonic();
        Ok(EpollEngine {
            epoll,
            bell: Arc::new(bell),
            now,
            trimmed: now,
            ops: Slab::new(),
            sockets: Vec::new(),
            open: 0,
            done: Vec::new(),
            batch: Box::new([NO_EVENT; BATCH]),
            next: 0,
            filled: 0,
            starved: VecDeque::new(),
            eager: VecDeque::new(),
            closing: Vec::new(),
            since_poll: 0,
            at_once: 0,
            pool: BufferPool::new(config.buffers),
            pipes: PipePool::default(),
            spare: Spare::new(),
            options: config.socket,
            turns: 0,
            system_calls: 0,
        })
    }
}

impl EpollEngine {
    /// Asks the kernel for news. Returns whether the bell was rung.
    fn poll(&mut self, until: Option<Time>, may_wait: bool) -> io::Result<bool> {
        let mut timeout = Some(Duration::ZERO);
        if may_wait && self.bell.fall_asleep() {
            timeout = until.map(|t| t.since(sys::monotonic()));
        }
        let result = self.epoll.wait(&mut self.batch[..], timeout);
        let rung = self.bell.wake_up();
        self.system_calls += 1;
        self.since_poll = 0;
        self.next = 0;
        self.filled = 0;
        self.filled = result?;
        Ok(rung)
    }

    /// Looks at the news until there is none left or the turn is full.
    fn digest(&mut self) {
        while self.next < self.filled && self.done.len() < TURN_SIZE {
            let event = self.batch[self.next];
            self.next += 1;
            if event.u64 != BELL {
                self.apply(event.u64, event.events);
            }
        }
    }

    fn apply(&mut self, data: u64, mask: u32) {
        let Ok(number) = i32::try_from(data & 0xffff_ffff) else {
            return;
        };
        let fd = Fd(number);
        let Some(socket) = self.sockets.get_mut(number as usize) else {
            return;
        };
        if !socket.registered || u64::from(socket.generation) != data >> 32 {
            return;
        }
        socket.readable |= mask & READ_MASK != 0;
        socket.writable |= mask & WRITE_MASK != 0;
        socket.ended |= mask & ENDED_MASK != 0;
        socket.broken |= mask & BROKEN_MASK != 0;
        socket.urgent |= mask & libc::EPOLLPRI as u32 != 0;
        if socket.readable && socket.reader.is_some() {
            self.progress_read(fd);
        }
        if self
            .entry(fd)
            .is_some_and(|s| s.writable && s.writer.is_some())
        {
            self.progress_write(fd);
        }
        if self.entry(fd).is_some_and(|s| !s.polls.is_empty()) {
            self.progress_polls(fd);
        }
    }

    /// Gives free buffers to those who wait for one.
    fn feed_starved(&mut self) {
        while self.pool.has_free() && self.done.len() < TURN_SIZE {
            let Some(token) = self.starved.pop_front() else {
                return;
            };
            match self.ops.get(token).map(|op| &op.kind) {
                Some(Kind::Buffer) => match self.pool.take() {
                    Some(buf) => self.end(token, |_| Outcome::Buffer(buf)),
                    None => return self.starved.push_front(token),
                },
                Some(Kind::Recv { fd, .. }) => {
                    let fd = *fd;
                    if let Some(socket) = self.entry_mut(fd) {
                        socket.starved = false;
                    }
                    self.progress_read(fd);
                }
                _ => {}
            }
        }
    }

    /// Continues the receives of many that were interrupted for fairness.
    fn feed_eager(&mut self) {
        for _ in 0..self.eager.len() {
            if self.done.len() >= TURN_SIZE {
                return;
            }
            if let Some(fd) = self.eager.pop_front() {
                if let Some(socket) = self.entry_mut(fd) {
                    socket.eager = false;
                }
                self.progress_read(fd);
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
            let generation = socket.generation.wrapping_add(1);
            let mut polls = std::mem::take(&mut socket.polls);
            polls.clear();
            *socket = Socket {
                generation,
                polls,
                ..Socket::default()
            };
            self.open -= usize::from(was_open);
        }
    }

    /// Begins ownership of a descriptor of which nothing is known: reads and writes are tried.
    fn take_ownership(&mut self, fd: Fd) {
        let socket = self.slot(fd);
        if !socket.open {
            socket.open = true;
            socket.readable = true;
            socket.writable = true;
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

    fn entry(&self, fd: Fd) -> Option<&Socket> {
        usize::try_from(fd.0).ok().and_then(|i| self.sockets.get(i))
    }

    fn entry_mut(&mut self, fd: Fd) -> Option<&mut Socket> {
        usize::try_from(fd.0)
            .ok()
            .and_then(|i| self.sockets.get_mut(i))
    }
}

impl Engine for EpollEngine {
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
        self.cancel_parked(op.token());
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.turns += 1;
        self.feed_starved();
        self.feed_eager();
        loop {
            if self.next >= self.filled {
                let idle = self.done.is_empty() && self.eager.is_empty();
                if idle || self.since_poll >= POLL_INTERVAL {
                    let expired = until.is_some_and(|t| t <= self.now);
                    let rung = self.poll(until, idle && !expired)?;
                    self.now = sys::monotonic();
                    self.digest();
                    let late = until.is_some_and(|t| t <= self.now);
                    if self.done.is_empty() && self.eager.is_empty() && !rung && !late && !expired {
                        continue;
                    }
                    break;
                }
                self.now = sys::monotonic();
                break;
            }
            self.digest();
            if !self.done.is_empty() {
                self.now = sys::monotonic();
                break;
            }
        }
        if self.now.since(self.trimmed) >= TRIM_INTERVAL {
            self.trimmed = self.now;
            self.pool.trim();
        }
        self.since_poll += self.done.len();
        hand_out(&mut self.done, events);
        for (fd, how) in std::mem::take(&mut self.closing) {
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
        self.take_ownership(fd);
        Ok(fd)
    }

    fn adopt(&mut self, fd: Fd) -> io::Result<()> {
        self.take_ownership(fd);
        Ok(())
    }

    fn release(&mut self, fd: Fd) {
        if self.entry(fd).is_some_and(|s| s.registered) {
            // Fails only if the descriptor is not registered.
            let _ = self.epoll.remove(fd);
            self.system_calls += 1;
        }
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
        if socket.closing || !(socket.open || socket.registered) {
            return;
        }
        socket.closing = true;
        let parked = [socket.reader, socket.writer];
        let polls = std::mem::take(&mut socket.polls);
        let parked = parked.into_iter().flatten().map(OpId::token);
        for token in parked.chain(polls) {
            self.cancel_parked(token);
        }
        if self.done.is_empty() {
            self.close_now(fd, how);
        } else {
            self.closing.push((fd, how));
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
        // With bytes in the pipe, EAGAIN may just as well mean that the pipe is full.
        let is_empty = pipe.held == 0 && result.as_ref().is_err_and(would_block);
        if is_empty && !self.slot(from).urgent {
            self.clear_readable(from);
        }
        self.slot(from).failure.read(result)
    }

    fn splice_out(&mut self, pipe: &mut Pipe, to: Fd, max: usize, more: bool) -> io::Result<usize> {
        self.system_calls += 1;
        let result = pipes::splice_out(pipe, to, max, more);
        match &result {
            Ok(_) => self.slot(to).send_queue.moved(),
            Err(error) if pipe.held > 0 && would_block(error) => self.send_waits(to),
            Err(_) => {}
        }
        self.slot(to).failure.write(result)
    }

    fn discard(&mut self, fd: Fd, max: usize) -> io::Result<usize> {
        self.system_calls += 1;
        let result = sys::socket::discard(fd, max);
        if result.as_ref().is_err_and(would_block) {
            self.clear_readable(fd);
        }
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
        self.ops.contains(op.token())
    }

    fn local_addr(&self, fd: Fd) -> io::Result<SocketAddr> {
        sys::socket::local_addr(fd)
    }

    fn refuse_one(&mut self, listener: Fd, answer: &[u8]) -> Option<SocketAddr> {
        self.spare.refuse_one(listener, answer)
    }

    fn stats(&self) -> Stats {
        Stats {
            operations: self.ops.len() + self.done.iter().filter(|e| !e.more).count(),
            sockets: self.open,
            buffers: self.pool.in_use(),
            pipes: self.pipes.out(),
            turns: self.turns,
            system_calls: self.system_calls,
        }
    }
}

impl Drop for EpollEngine {
    fn drop(&mut self) {
        for (index, socket) in self.sockets.iter().enumerate() {
            if socket.open {
                sys::close(Fd(i32::try_from(index).unwrap_or(-1)));
            }
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
