//! How the io_uring engine carries out operations: requests to the kernel and their completions.

use io_uring::types::Fd as RingFd;
use io_uring::{cqueue, opcode, squeue};

use super::ring::{self, BufferRing, Completion};
use super::{InFlight, Kind, Poll, Socket, Stage, UringEngine, Waiter, BELL};
use crate::buffer::{Buf, Lent, FIRST};
use crate::engine::{Event, Fd, Key, Op, OpId, Outcome};
use crate::send_queue::queued;
use crate::slab::Token;
use crate::sys::socket::{send_flags, RawAddr};

/// `IORING_RECVSEND_POLL_FIRST`, which the `io-uring` crate does not export.
const POLL_FIRST: u16 = 1;

/// Poll results that end a wait for room or for the end of the connection.
const BROKEN: i32 = libc::POLLERR as i32 | libc::POLLHUP as i32;

impl UringEngine {
    pub(super) fn start(&mut self, key: Key, op: Op) -> OpId {
        let poll = |fd, what| (Kind::Poll { fd, what }, fd);
        let (kind, fd) = match op {
            Op::Accept { listener } => return self.start_accept(key, listener),
            Op::Buffer => return self.start_buffer(key),
            Op::Connect { fd, addr } => {
                let addr = Box::new(RawAddr::from(&addr));
                (Kind::Connect { fd, addr }, fd)
            }
            Op::Recv { fd, many } => {
                let held_back = 0;
                let kind = Kind::Recv {
                    fd,
                    many,
                    held_back,
                };
                (kind, fd)
            }
            Op::RecvInto { fd, buf } => (Kind::RecvInto { fd, buf }, fd),
            Op::Send { fd, buf, more } => (Kind::Send { fd, buf, more }, fd),
            Op::Readable { fd } => poll(fd, Poll::Readable),
            Op::Writable { fd } => poll(fd, Poll::Writable),
            Op::Hangup { fd } => poll(fd, Poll::Hangup),
            Op::ReadHangup { fd } => poll(fd, Poll::ReadHangup),
        };
        let refused = match &kind {
            Kind::RecvInto { buf, .. } if buf.receivable() == 0 => Some(libc::EINVAL),
            _ => None,
        };
        let token = self.insert(key, kind);
        let socket = self.slot(fd);
        let refused =
            refused.or_else(|| (!socket.open || socket.closing.is_some()).then_some(libc::EBADF));
        if let Some(errno) = refused {
            self.end(token, |buf| Outcome::Failed { errno, buf });
            return OpId::of(token);
        }
        match self.ops.get(token).map(|op| &op.kind) {
            Some(Kind::Poll { what, .. }) => {
                let waits_for_room = *what == Poll::Writable;
                let socket = self.slot(fd);
                socket.polls.push(token);
                if waits_for_room {
                    // Whether it does is known when the kernel has been asked.
                    socket.send_queue.waits(|| queued(fd));
                }
            }
            Some(Kind::Connect { .. } | Kind::Send { .. }) => self.slot(fd).writer = Some(token),
            _ => self.slot(fd).reader = Some(token),
        }
        self.request(token);
        OpId::of(token)
    }

    pub(super) fn insert(&mut self, key: Key, kind: Kind) -> Token {
        self.ops.insert(InFlight {
            key,
            kind,
            stage: Stage::Kernel,
            cancelled: false,
        })
    }

    fn start_buffer(&mut self, key: Key) -> OpId {
        let token = self.insert(key, Kind::Buffer);
        if self.waiting.is_empty() {
            if let Some(buf) = self.pool.take() {
                self.end(token, |_| Outcome::Buffer(buf));
                return OpId::of(token);
            }
        }
        self.starve(token);
        OpId::of(token)
    }

    fn starve(&mut self, token: Token) {
        if let Some(op) = self.ops.get_mut(token) {
            op.stage = Stage::Starved;
            self.waiting.push_back(Waiter::Op(token));
        }
    }

    /// Queues the kernel's request for an operation (again).
    pub(super) fn request(&mut self, token: Token) {
        let Some(op) = self.ops.get_mut(token) else {
            return;
        };
        op.stage = Stage::Kernel;
        let entry = match &mut op.kind {
            Kind::Accept { listener, .. } => opcode::AcceptMulti::new(RingFd(listener.0))
                .flags(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
                .build(),
            Kind::Connect { fd, addr } => {
                opcode::Connect::new(RingFd(fd.0), addr.as_ptr(), addr.len()).build()
            }
            Kind::Recv { fd, many, .. } => receive(*fd, *many, is_dry(&self.sockets, *fd)),
            Kind::RecvInto { fd, buf } => {
                let (place, room) = buf.room_ptr();
                let room = u32::try_from(room).unwrap_or(u32::MAX);
                opcode::Recv::new(RingFd(fd.0), place, room)
                    .ioprio(poll_first(is_dry(&self.sockets, *fd)))
                    .build()
            }
            Kind::Send { fd, buf, more } => {
                let len = u32::try_from(buf.len()).unwrap_or(u32::MAX);
                opcode::Send::new(RingFd(fd.0), buf.as_ptr(), len)
                    .flags(send_flags(*more))
                    .build()
            }
            Kind::Poll { fd, what } => {
                let (mask, multi) = match what {
                    Poll::Readable => (libc::POLLIN | libc::POLLRDHUP, false),
                    Poll::Writable => (libc::POLLOUT, false),
                    Poll::Hangup => (0, true),
                    Poll::ReadHangup => (libc::POLLRDHUP, false),
                };
                opcode::PollAdd::new(RingFd(fd.0), mask as u32)
                    .multi(multi)
                    .build()
            }
            Kind::Buffer => return,
        };
        // SAFETY: addresses point into a pooled buffer or a box that the operation's entry owns,
        // and the entry stays until the kernel's last completion (see `end`).
        unsafe { self.ring.push(entry.user_data(token.to_u64())) };
    }

    /// Waits for room to send. See the module text on half-closed connections for `multi`.
    fn poll_room(&mut self, token: Token, fd: Fd, multi: bool) {
        let poll = opcode::PollAdd::new(RingFd(fd.0), libc::POLLOUT as u32)
            .multi(multi)
            .build();
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(poll.user_data(token.to_u64())) };
    }

    /// [`crate::Engine::cancel`].
    pub(super) fn cancel_op(&mut self, token: Token) {
        let Some(op) = self.ops.get_mut(token) else {
            return;
        };
        match op.stage {
            Stage::Ending | Stage::Over => {}
            Stage::Starved => {
                if matches!(op.kind, Kind::Recv { held_back, .. } if held_back > 0) {
                    op.stage = Stage::Ending;
                    self.waiting.push_back(Waiter::End {
                        token,
                        outcome: Outcome::Cancelled { buf: None },
                    });
                } else {
                    self.end(token, |buf| Outcome::Cancelled { buf });
                }
            }
            Stage::Kernel | Stage::Polling => {
                // A send completes while it is submitted: there is nothing to cancel.
                let inline = op.stage == Stage::Kernel && matches!(op.kind, Kind::Send { .. });
                if !std::mem::replace(&mut op.cancelled, true) && !inline {
                    self.cancel_request(token);
                }
            }
            Stage::Paused => {
                self.tell_all_fresh();
                self.end(token, |buf| Outcome::Cancelled { buf });
            }
        }
    }

    /// Throws away what an operation received and could not be handed out yet.
    pub(super) fn drop_held_back(&mut self, token: Token) {
        let Some(InFlight {
            kind: Kind::Recv { held_back, .. },
            stage,
            ..
        }) = self.ops.get_mut(token)
        else {
            return;
        };
        if std::mem::take(held_back) == 0 {
            return;
        }
        let ending = *stage == Stage::Ending;
        let mut kept = std::collections::VecDeque::with_capacity(self.waiting.len());
        for waiter in self.waiting.drain(..) {
            match waiter {
                Waiter::Filled { token: t, lent, .. } if t == token => self.pool.take_back(lent),
                Waiter::End { token: t, .. } if t == token => {}
                waiter => kept.push_back(waiter),
            }
        }
        self.waiting = kept;
        if ending {
            self.end(token, |buf| Outcome::Cancelled { buf });
        }
    }

    /// Takes note of one completion.
    pub(super) fn complete(&mut self, completion: Completion) {
        let Completion {
            user_data,
            result,
            flags,
        } = completion;
        let more = cqueue::more(flags);
        if user_data == BELL {
            if !more {
                self.arm_bell();
            }
            return;
        }
        let token = Token::from_u64(user_data);
        let Some(op) = self.ops.get_mut(token) else {
            return;
        };
        if op.stage == Stage::Over {
            if !more {
                self.over -= 1;
                self.remove(token);
            }
            return;
        }
        match &op.kind {
            Kind::Accept { .. } => self.accepted(token, result, more),
            Kind::Recv { fd, .. } => {
                let fd = *fd;
                self.received(token, fd, result, flags);
            }
            Kind::RecvInto { fd, .. } => {
                let fd = *fd;
                self.slot(fd).dry = !cqueue::sock_nonempty(flags);
                self.received_into(token, result);
            }
            Kind::Send { fd, .. } if op.stage == Stage::Polling => {
                let fd = *fd;
                self.room_found(token, fd, result, more);
            }
            Kind::Send { fd, .. } => {
                let fd = *fd;
                self.sent(token, fd, result);
            }
            Kind::Poll { fd, what } => {
                let (fd, what) = (*fd, *what);
                self.polled(token, fd, what, result, more);
            }
            Kind::Connect { .. } if result == 0 => self.end(token, |_| Outcome::Connected),
            Kind::Connect { .. } => self.end_failed(token, result),
            Kind::Buffer => {}
        }
    }

    fn received(&mut self, token: Token, fd: Fd, result: i32, flags: u32) {
        let more = cqueue::more(flags);
        let lent = self.buffers.taken(flags);
        self.slot(fd).dry = !cqueue::sock_nonempty(flags);
        let Some(op) = self.ops.get(token) else {
            return;
        };
        let Kind::Recv { many, .. } = op.kind else {
            return;
        };
        let cancelled = op.cancelled;
        match lent {
            Some(lent) if result > 0 => {
                let goes_on = more || (many && !cancelled);
                self.hand_over(token, lent, result, goes_on);
                if goes_on && !more {
                    self.request(token);
                }
                return;
            }
            Some(lent) => self.pool.take_back(lent),
            None => {}
        }
        match -result {
            _ if more => {}
            0 => self.end_receive(token, Outcome::Eof { buf: None }),
            libc::ECANCELED => self.end_receive(token, Outcome::Cancelled { buf: None }),
            libc::ENOBUFS | libc::EAGAIN | libc::EINTR if cancelled => {
                self.end_receive(token, Outcome::Cancelled { buf: None });
            }
            libc::ENOBUFS => {
                if self.pool.has_free() {
                    self.buffers.grow();
                }
                self.starve(token);
            }
            libc::EAGAIN | libc::EINTR => self.request(token),
            errno => self.end_receive(token, Outcome::Failed { errno, buf: None }),
        }
    }

    /// Hands received bytes to the caller, or keeps them until the pool's limit allows it.
    fn hand_over(&mut self, token: Token, lent: Lent, n: i32, more: bool) {
        let lent = if self.waiting.is_empty() {
            match ring::claim(&self.pool, lent, n) {
                Ok(buf) => return self.deliver(token, buf, n, more),
                Err(lent) => lent,
            }
        } else {
            lent
        };
        if let Some(op) = self.ops.get_mut(token) {
            if let Kind::Recv { held_back, .. } = &mut op.kind {
                *held_back += 1;
            }
            if !more {
                op.stage = Stage::Ending;
            }
        }
        self.waiting.push_back(Waiter::Filled {
            token,
            lent,
            n,
            more,
        });
    }

    pub(super) fn deliver(&mut self, token: Token, buf: Buf, n: i32, more: bool) {
        let n = usize::try_from(n).unwrap_or(0);
        if more {
            self.report(token, Outcome::Received { buf, n });
        } else {
            self.end(token, |_| Outcome::Received { buf, n });
        }
    }

    /// Ends a receive, behind what it still has to hand out.
    fn end_receive(&mut self, token: Token, outcome: Outcome) {
        if let Some(op) = self.ops.get_mut(token) {
            if matches!(op.kind, Kind::Recv { held_back, .. } if held_back > 0) {
                op.stage = Stage::Ending;
                return self.waiting.push_back(Waiter::End { token, outcome });
            }
        }
        self.end(token, |_| outcome);
    }

    fn received_into(&mut self, token: Token, result: i32) {
        let cancelled = self.ops.get(token).is_some_and(|op| op.cancelled);
        match result {
            0 => self.end(token, |buf| Outcome::Eof { buf }),
            1.. => self.end(token, |buf| match buf {
                Some(mut buf) => {
                    let n = usize::try_from(result).unwrap_or(0);
                    buf.grow_filled(n);
                    Outcome::Received { buf, n }
                }
                None => Outcome::Failed {
                    errno: libc::EIO,
                    buf: None,
                },
            }),
            _ if !cancelled && is_again(result) => self.request(token),
            _ => self.end_failed(token, result),
        }
    }

    fn sent(&mut self, token: Token, fd: Fd, result: i32) {
        let cancelled = self.ops.get(token).is_some_and(|op| op.cancelled);
        match result {
            0.. => {
                self.slot(fd).send_queue.moved();
                self.end(token, |buf| match buf {
                    Some(mut buf) => {
                        let n = usize::try_from(result).unwrap_or(0);
                        buf.consume(n);
                        Outcome::Sent { buf, n }
                    }
                    None => Outcome::Failed {
                        errno: libc::EIO,
                        buf: None,
                    },
                });
            }
            _ if is_again(result) && !cancelled => {
                self.slot(fd).send_queue.waits(|| queued(fd));
                if let Some(op) = self.ops.get_mut(token) {
                    op.stage = Stage::Polling;
                }
                self.poll_room(token, fd, false);
            }
            _ if is_again(result) => self.cancelled(token),
            _ => self.end_failed(token, result),
        }
    }

    /// The poll of a send that waits for room has told something.
    fn room_found(&mut self, token: Token, fd: Fd, result: i32, more: bool) {
        let cancelled = self.ops.get(token).is_some_and(|op| op.cancelled);
        let ready = result < 0 || result & (i32::from(libc::POLLOUT) | BROKEN) != 0;
        if more {
            if ready && !cancelled {
                self.cancel_request(token);
            }
        } else if cancelled {
            self.cancelled(token);
        } else if ready {
            self.request(token);
        } else {
            self.poll_room(token, fd, true);
        }
    }

    fn polled(&mut self, token: Token, fd: Fd, what: Poll, result: i32, more: bool) {
        let cancelled = self.ops.get(token).is_some_and(|op| op.cancelled);
        let mask = match what {
            Poll::Readable => i32::MAX,
            Poll::Writable => i32::from(libc::POLLOUT) | BROKEN,
            Poll::Hangup => BROKEN,
            Poll::ReadHangup => i32::from(libc::POLLRDHUP) | BROKEN,
        };
        if result >= 0 && result & mask != 0 {
            if !more {
                return self.end(token, |_| Outcome::Ready);
            }
            if let Some(op) = self.ops.get_mut(token) {
                op.stage = Stage::Over;
                self.over += 1;
                let (key, op) = (op.key, OpId::of(token));
                self.done.push(Event {
                    key,
                    op,
                    more: false,
                    outcome: Outcome::Ready,
                });
            }
            self.cancel_request(token);
        } else if more {
            // A half-close, of no concern here.
        } else if cancelled {
            self.cancelled(token);
        } else if result < 0 {
            self.end_failed(token, result);
        } else {
            let mask = if what == Poll::Hangup {
                0
            } else {
                libc::POLLOUT as u32
            };
            let poll = opcode::PollAdd::new(RingFd(fd.0), mask).multi(true).build();
            // SAFETY: the entry points to nothing.
            unsafe { self.ring.push(poll.user_data(token.to_u64())) };
        }
    }

    /// Reports from an operation that goes on.
    fn report(&mut self, token: Token, outcome: Outcome) {
        if let Some(op) = self.ops.get(token) {
            self.done.push(Event {
                key: op.key,
                op: OpId::of(token),
                more: true,
                outcome,
            });
        }
    }

    fn cancelled(&mut self, token: Token) {
        self.end(token, |buf| Outcome::Cancelled { buf });
    }

    /// Ends an operation by the kernel's negative result.
    pub(super) fn end_failed(&mut self, token: Token, result: i32) {
        self.end(token, |buf| match -result {
            libc::ECANCELED => Outcome::Cancelled { buf },
            errno => Outcome::Failed { errno, buf },
        });
    }

    /// Ends an operation of which the kernel has nothing any more; `outcome` gets the buffer that
    /// was given with it.
    pub(super) fn end(&mut self, token: Token, outcome: impl FnOnce(Option<Buf>) -> Outcome) {
        let Some(op) = self.remove(token) else { return };
        let (fd, buf) = match op.kind {
            Kind::RecvInto { fd, buf } | Kind::Send { fd, buf, .. } => (fd, Some(buf)),
            Kind::Recv { fd, .. } | Kind::Connect { fd, .. } | Kind::Poll { fd, .. } => (fd, None),
            Kind::Accept { listener, .. } => (listener, None),
            Kind::Buffer => (Fd(-1), None),
        };
        let outcome = outcome(buf);
        let event = Event {
            key: op.key,
            op: OpId::of(token),
            more: false,
            outcome: match self.entry_mut(fd) {
                Some(socket) => socket.failure.outcome(outcome),
                None => outcome,
            },
        };
        self.done.push(event);
    }

    fn remove(&mut self, token: Token) -> Option<InFlight> {
        let op = self.ops.remove(token)?;
        let fd = match &op.kind {
            Kind::Accept { listener, .. } => *listener,
            Kind::Connect { fd, .. }
            | Kind::Recv { fd, .. }
            | Kind::RecvInto { fd, .. }
            | Kind::Send { fd, .. }
            | Kind::Poll { fd, .. } => *fd,
            Kind::Buffer => return Some(op),
        };
        if let Some(socket) = self.entry_mut(fd) {
            if socket.reader == Some(token) {
                socket.reader = None;
            } else if socket.writer == Some(token) {
                socket.writer = None;
            } else {
                socket.polls.retain(|t| *t != token);
            }
            if socket.closing.is_some() && socket.is_quiet() {
                self.closing.push(fd);
            }
        }
        Some(op)
    }
}

/// A receive that takes its buffer from the ring of lent ones.
fn receive(fd: Fd, many: bool, dry: bool) -> squeue::Entry {
    if many {
        return opcode::RecvMulti::new(RingFd(fd.0), BufferRing::GROUP).build();
    }
    opcode::Recv::new(RingFd(fd.0), std::ptr::null_mut(), FIRST as u32)
        .buf_group(BufferRing::GROUP)
        .ioprio(poll_first(dry))
        .build()
        .flags(squeue::Flags::BUFFER_SELECT)
}

fn is_dry(sockets: &[Socket], fd: Fd) -> bool {
    usize::try_from(fd.0)
        .ok()
        .and_then(|i| sockets.get(i))
        .is_some_and(|s| s.dry)
}

fn poll_first(dry: bool) -> u16 {
    if dry {
        POLL_FIRST
    } else {
        0
    }
}

fn is_again(result: i32) -> bool {
    matches!(-result, libc::EAGAIN | libc::EINTR)
}
