//! The seam: what an engine must supply.
//!
//! Callers submit [`Op`]s and get [`Event`]s back. An engine keeps these promises, and the
//! conformance suite (`tests/conformance/`) holds every engine to them:
//!
//! 1. **One final event per operation**, always, also after [`Engine::cancel`] and
//!    [`Engine::close`]. An event with `more` set is not final; only [`Op::Accept`] and
//!    [`Op::Recv`] with `many` report such.
//! 2. **Cancel is a hint.** The operation may complete all the same; what it brought (an accepted
//!    socket, received bytes) is then in the event and belongs to the caller.
//! 3. **A receive names no buffer.** The engine takes one from the pool when there are bytes, so
//!    idle connections hold none. An empty pool makes the operation wait, it never fails it.
//! 4. **A buffer given to an operation comes back in its final event**, whatever the outcome.
//! 5. **[`Engine::close`] may be called with operations in flight.** They are cancelled, each gets
//!    its final event, and the descriptor is closed when the last of them has ended; its number is
//!    not reused before.
//! 6. Events of one descriptor and one direction come in the order in which things happened.
//!    Nothing is promised between directions or descriptors.
//! 7. At most one receive and one send are in flight on a descriptor (polls aside).
//! 8. **A broken connection never looks like a finished one.** The kernel tells an error once: when
//!    a send has taken the `ECONNRESET`, a receive on the same socket returns 0 as after a FIN. An
//!    engine remembers errors it has reported (but `EPIPE`, which comes after a FIN or the own
//!    shutdown) and reports them again instead of [`Outcome::Eof`] or `Ok(0)`.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::buffer::{Buf, BufferPool};
pub use crate::fd::Fd;
use crate::pipe::Pipe;
use crate::slab::Token;
use crate::time::Time;

/// The caller's name for an operation: which table entry it belongs to, and which of the entry's
/// purposes it serves. Comes back in every event of the operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// Entry in the caller's table. Generational, so that an event for an entry that has gone is
    /// recognised even if its slot is in use again.
    pub token: Token,
    /// The caller's own subdivision (client side, upstream side, …).
    pub lane: u8,
}

/// The engine's name for one submitted operation, for [`Engine::cancel`]. Generational: cancelling
/// an operation that has ended is harmless.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OpId(NonZeroU64);

impl OpId {
    /// Of an engine's own entry. Kept in a form that leaves room for `None`: each socket and each
    /// connection has place for several.
    #[must_use]
    pub fn of(token: Token) -> OpId {
        // No slab has an entry of index 2^32 - 1.
        OpId(NonZeroU64::new(!token.to_u64()).unwrap_or(NonZeroU64::MIN))
    }

    /// The entry.
    #[must_use]
    pub fn token(self) -> Token {
        Token::from_u64(!self.0.get())
    }
}

/// What can be asked of an engine.
#[derive(Debug)]
pub enum Op {
    /// Accept connections until cancelled or failed ([`Outcome::Accepted`], `more` set). Accepted
    /// sockets are non-blocking, close-on-exec and have the options of [`SocketOptions`].
    Accept {
        /// A listening socket.
        listener: Fd,
    },
    /// Connect a socket made by [`Engine::socket`] ([`Outcome::Connected`]).
    Connect {
        /// The socket.
        fd: Fd,
        /// Where to.
        addr: SocketAddr,
    },
    /// Receive what is there, at least one byte, into a pooled buffer ([`Outcome::Received`] or
    /// [`Outcome::Eof`]).
    Recv {
        /// The socket.
        fd: Fd,
        /// Go on receiving until cancelled, end of stream or failure, a fresh buffer for each
        /// arrival. There is no back-pressure but the pool: for protocols that can bound what
        /// arrives.
        many: bool,
    },
    /// Receive behind what `buf` already holds ([`Outcome::Received`] with the same buffer grown).
    /// The buffer must have room.
    RecvInto {
        /// The socket.
        fd: Fd,
        /// A partly filled buffer.
        buf: Buf,
    },
    /// Send from the front of `buf` ([`Outcome::Sent`]); may send only a part.
    Send {
        /// The socket.
        fd: Fd,
        /// The bytes to send are the filled part.
        buf: Buf,
        /// More follows at once (`MSG_MORE`).
        more: bool,
    },
    /// Wait until a read would not block: bytes, end of stream or an error ([`Outcome::Ready`]).
    Readable {
        /// The socket.
        fd: Fd,
    },
    /// Wait until a write would not block ([`Outcome::Ready`]).
    Writable {
        /// The socket.
        fd: Fd,
    },
    /// Wait until the connection is broken: reset, or closed in both directions
    /// ([`Outcome::Ready`]). Does not report a mere half-close, nor unread bytes.
    Hangup {
        /// The socket.
        fd: Fd,
    },
    /// Wait until the other end has finished sending, though bytes may stand unread before its end
    /// of stream, or the connection is broken ([`Outcome::Ready`]; `POLLRDHUP`). How many bytes stand
    /// there, [`Engine::unread`] tells.
    ReadHangup {
        /// The socket.
        fd: Fd,
    },
    /// Wait for an empty buffer ([`Outcome::Buffer`]). Only needed after
    /// [`BufferPool::take`] gave none.
    Buffer,
}

/// How an operation went.
#[derive(Debug)]
pub enum Outcome {
    /// A connection. The descriptor is the caller's now.
    Accepted {
        /// The connected socket.
        fd: Fd,
        /// Its other end.
        peer: SocketAddr,
    },
    /// The connection stands.
    Connected,
    /// `n` bytes were added at the end of `buf`.
    Received {
        /// Holds what it held before and the new bytes.
        buf: Buf,
        /// How many are new; at least 1.
        n: usize,
    },
    /// The peer has finished sending.
    Eof {
        /// The buffer given with [`Op::RecvInto`].
        buf: Option<Buf>,
    },
    /// `n` bytes, at least 1, were taken from the front of `buf`; what is left must be sent by
    /// another operation. (An empty buffer completes with 0.)
    Sent {
        /// Holds what is not sent yet.
        buf: Buf,
        /// How many were sent.
        n: usize,
    },
    /// A poll condition holds.
    Ready,
    /// An empty buffer.
    Buffer(Buf),
    /// The operation failed.
    Failed {
        /// `errno`.
        errno: i32,
        /// The buffer given with the operation.
        buf: Option<Buf>,
    },
    /// The operation ended by [`Engine::cancel`] or [`Engine::close`] without any effect.
    Cancelled {
        /// The buffer given with the operation.
        buf: Option<Buf>,
    },
}

/// A completion.
#[derive(Debug)]
pub struct Event {
    /// As given to [`Engine::submit`].
    pub key: Key,
    /// As returned by [`Engine::submit`].
    pub op: OpId,
    /// Further events of this operation follow.
    pub more: bool,
    /// How it went.
    pub outcome: Outcome,
}

/// How a descriptor is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// `close(2)`: unsent bytes are still delivered by the kernel. (Unread bytes make the kernel
    /// send RST: finish with [`Engine::shutdown`] and drain first where the peer must read what
    /// was sent.)
    Orderly,
    /// RST at once (`SO_LINGER` 0): the peer is to see a cut, and unsent bytes are dropped.
    Reset,
}

/// Which direction [`Engine::shutdown`] ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Send FIN after what is queued (`SHUT_WR`).
    Write,
    /// Both directions (`SHUT_RDWR`).
    Both,
}

/// What the other end has taken while a send waited; see [`Engine::acknowledged`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledged {
    /// Bytes acknowledged since the send began to wait, or since it was last asked.
    pub bytes: u64,
    /// Bytes sent and not acknowledged yet.
    pub left: u64,
}

/// Options every accepted and dialled TCP socket gets: `TCP_NODELAY`, and
/// `SO_KEEPALIVE` with these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// `TCP_KEEPIDLE`, seconds.
    pub keepalive_idle: u32,
    /// `TCP_KEEPINTVL`, seconds.
    pub keepalive_interval: u32,
    /// `TCP_KEEPCNT`.
    pub keepalive_probes: u32,
}

impl Default for SocketOptions {
    /// 60 s, 15 s, 4: a peer that vanished is noticed within 130 s.
    fn default() -> Self {
        SocketOptions {
            keepalive_idle: 60,
            keepalive_interval: 15,
            keepalive_probes: 4,
        }
    }
}

/// Ends a [`Engine::turn`] that waits, from any thread.
pub trait Wake: Send + Sync {
    /// Makes the engine's current or next turn return soon. Cheap when the engine is not waiting.
    fn wake(&self);
}

/// What an engine holds at present. All but `turns` and `system_calls` are zero when everything
/// has been given back.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Operations whose final event has not been returned by a turn.
    pub operations: usize,
    /// Sockets accepted or made and not closed yet.
    pub sockets: usize,
    /// Buffers out of the pool (those lent to the kernel for receiving aside).
    pub buffers: usize,
    /// Pipes out of the pool.
    pub pipes: usize,
    /// Turns taken.
    pub turns: u64,
    /// System calls made on the data path.
    pub system_calls: u64,
}

/// A source of completions. See the module text for what is promised.
pub trait Engine {
    /// The monotonic time, read once per turn (and at creation).
    fn now(&self) -> Time;

    /// The monotonic time at this very moment: reads the clock.
    fn clock(&self) -> Time;

    /// Starts an operation. Its events carry `key`.
    fn submit(&mut self, key: Key, op: Op) -> OpId;

    /// Asks for an early end of an operation. Its final event still comes.
    fn cancel(&mut self, op: OpId);

    /// Waits until there is at least one event, `until` has come, or somebody woke the engine, and
    /// appends what there is to `events`. Never waits when `until` is not later than now. `None`
    /// waits without limit.
    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()>;

    /// Wakes this engine from elsewhere.
    fn waker(&self) -> Arc<dyn Wake>;

    /// The pool of buffers of this engine.
    fn buffers(&self) -> &BufferPool;

    /// A non-blocking TCP socket for a connection to `addr`'s family, with the options of
    /// [`SocketOptions`]. Fails with `EMFILE`/`ENFILE` when descriptors run out.
    fn socket(&mut self, addr: &SocketAddr) -> io::Result<Fd>;

    /// Takes ownership of a connected, non-blocking socket that came from another thread.
    fn adopt(&mut self, fd: Fd) -> io::Result<()>;

    /// Gives up ownership of a socket without operations in flight, so that another engine can
    /// [`adopt`](Engine::adopt) it.
    fn release(&mut self, fd: Fd);

    /// Ends one or both directions. An error means that the connection is gone already, which the
    /// operations in flight will tell; so there is none to return.
    fn shutdown(&mut self, fd: Fd, how: Shutdown);

    /// Closes a socket; see promise 5.
    fn close(&mut self, fd: Fd, how: Close);

    /// A pipe from the pool, or why there is none.
    fn pipe(&mut self) -> io::Result<Pipe>;

    /// Gives a pipe back. One that still holds bytes is closed, never pooled.
    fn return_pipe(&mut self, pipe: Pipe);

    /// Moves up to `max` bytes from a socket into a pipe without copying. `Ok(0)` is end of
    /// stream. `WouldBlock` means that the socket is dry *or* that the pipe is full: if the pipe
    /// holds bytes, empty it first, else wait for [`Op::Readable`].
    fn splice_in(&mut self, from: Fd, pipe: &mut Pipe, max: usize) -> io::Result<usize>;

    /// Moves up to `max` bytes from a pipe into a socket. `WouldBlock`: wait for
    /// [`Op::Writable`]. `more`: further bytes follow at once.
    fn splice_out(&mut self, pipe: &mut Pipe, to: Fd, max: usize, more: bool) -> io::Result<usize>;

    /// Reads and throws away up to `max` bytes without copying them (`MSG_TRUNC`). `Ok(0)` is end
    /// of stream; `WouldBlock`: wait for [`Op::Readable`].
    fn discard(&mut self, fd: Fd, max: usize) -> io::Result<usize>;

    /// Bytes that have arrived and were not received yet (`SIOCINQ`).
    fn unread(&mut self, fd: Fd) -> io::Result<usize>;

    /// Bytes that a send or [`Engine::splice_out`] on this connection would take now without waiting
    /// for the peer: the free part of the send buffer (`SO_MEMINFO`). The kernel may grant a little
    /// more, and less when the machine is out of memory for sockets.
    fn send_room(&mut self, fd: Fd) -> usize;

    /// Copies bytes that have arrived behind what `buf` holds, as many as a receive would take, and
    /// leaves them unread (`MSG_PEEK`). `Ok(0)` is end of stream, `WouldBlock` nothing.
    fn peek(&mut self, fd: Fd, buf: &mut Buf) -> io::Result<usize>;

    /// Whether a connection on which nothing is in flight but polls, and perhaps a receive, can be
    /// used: no end of stream, no stray bytes, no error. What a receive has taken already is not
    /// seen here: ask [`Engine::is_pending`] as well.
    fn is_idle(&mut self, fd: Fd) -> bool;

    /// What the other end's kernel has acknowledged since an [`Op::Send`], [`Op::Writable`] or
    /// [`Engine::splice_out`] began to wait for room on `fd`, or since this was last asked. Whoever
    /// waits is not told of it: there is room again only when a third of the send buffer is free.
    /// `None`: nothing waits.
    fn acknowledged(&mut self, fd: Fd) -> Option<Acknowledged>;

    /// Whether an operation has not ended as far as this engine knows: its final event has not been
    /// returned by a turn. (Its event may be among those that are being handled.)
    fn is_pending(&self, op: OpId) -> bool;

    /// The listening address of a socket.
    fn local_addr(&self, fd: Fd) -> io::Result<SocketAddr>;

    /// When descriptors have run out: gives up the spare descriptor, accepts one connection with
    /// it, sends it `answer` without waiting, closes it and takes the spare back. The other end of the
    /// connection that was refused so, if there was one.
    fn refuse_one(&mut self, listener: Fd, answer: &[u8]) -> Option<SocketAddr>;

    /// What is held at present.
    fn stats(&self) -> Stats;
}
