//! How the epoll engine carries out operations: try, park, try again.

use std::io;
use std::net::SocketAddr;

use super::{would_block, EpollEngine, Kind, Parked, Poll, LISTENER_MASK, SOCKET_MASK, TURN_SIZE};
use crate::buffer::Buf;
use crate::engine::{Event, Fd, Key, Op, OpId, Outcome};
use crate::send_queue::queued;
use crate::slab::Token;
use crate::sys::{self, errno};

/// Connections accepted per news of a listener: what is left is told again, here or to another
/// engine that shares it.
const ACCEPT_BURST: usize = 16;

/// Arrivals delivered by a receive of many before others get their turn.
const MANY_BURST: usize = 8;

impl EpollEngine {
    pub(super) fn start(&mut self, key: Key, op: Op) -> OpId {
        let kind = match op {
            Op::Accept { listener } => Kind::Accept { listener },
            Op::Recv { fd, many: false } => match self.receive_at_once(key, fd) {
                Some(op) => return op,
                None => Kind::Recv { fd, many: false },
            },
            Op::Send { fd, buf, more } => match self.send_at_once(key, fd, buf, more) {
                Ok(op) => return op,
                Err(buf) => Kind::Send { fd, buf, more },
            },
            Op::Recv { fd, many } => Kind::Recv { fd, many },
            Op::RecvInto { fd, buf } => Kind::RecvInto { fd, buf },
            Op::Readable { fd } => Kind::Poll {
                fd,
                what: Poll::Readable,
            },
            Op::Writable { fd } => Kind::Poll {
                fd,
                what: Poll::Writable,
            },
            Op::Hangup { fd } => Kind::Poll {
                fd,
                what: Poll::Hangup,
            },
            Op::ReadHangup { fd } => Kind::Poll {
                fd,
                what: Poll::ReadHangup,
            },
            Op::Buffer => Kind::Buffer,
            Op::Connect { fd, addr } => {
                let token = self.ops.insert(Parked {
                    key,
                    kind: Kind::Connect { fd },
                });
                self.start_connect(token, fd, &addr);
                return OpId::of(token);
            }
        };
        let token = self.ops.insert(Parked { key, kind });
        match self.ops.get(token).map(|op| &op.kind) {
            Some(Kind::Accept { listener }) => self.start_accept(token, *listener),
            Some(Kind::Recv { fd, .. } | Kind::RecvInto { fd, .. }) => self.start_read(token, *fd),
            Some(Kind::Send { fd, .. }) => self.start_send(token, *fd),
            Some(Kind::Poll { fd, what }) => self.start_poll(token, *fd, *what),
            Some(Kind::Buffer) => self.start_buffer(token),
            Some(Kind::Connect { .. }) | None => {}
        }
        OpId::of(token)
    }

    /// Names an operation that never waited and so has no entry. No entry's token looks like it,
    /// so cancelling it is harmless.
    fn name_at_once(&mut self) -> OpId {
        self.at_once = self.at_once.wrapping_add(1);
        OpId::of(Token {
            index: u32::MAX,
            generation: self.at_once,
        })
    }

    /// A receive from a socket that is thought readable. `None` if it must wait. (Any other
    /// outcome has to be reported from here: the kernel tells an error only once.)
    fn receive_at_once(&mut self, key: Key, fd: Fd) -> Option<OpId> {
        let socket = self.entry(fd)?;
        if !socket.readable || !socket.open || socket.closing || socket.reader.is_some() {
            return None;
        }
        let mut buf = self.pool.take()?;
        let room = buf.receivable();
        let result = sys::socket::recv(fd, &mut buf);
        self.note_read(fd, room, &result);
        Some(match result {
            Ok(n) if n > 0 => self.report_success(key, Outcome::Received { buf, n }),
            Ok(_) => self.report_end(key, fd, Outcome::Eof { buf: None }),
            Err(error) if would_block(&error) => return None,
            Err(error) => self.report_end(key, fd, failed(&error, None)),
        })
    }

    /// The outcome as it is to be reported (promise 8).
    fn outcome(&mut self, fd: Fd, outcome: Outcome) -> Outcome {
        match self.entry_mut(fd) {
            Some(socket) => socket.failure.outcome(outcome),
            None => outcome,
        }
    }

    /// A send on a socket that is thought writable. Gives the buffer back if it must wait.
    fn send_at_once(&mut self, key: Key, fd: Fd, mut buf: Buf, more: bool) -> Result<OpId, Buf> {
        let Some(socket) = self.entry(fd) else {
            return Err(buf);
        };
        if !socket.writable || !socket.open || socket.closing || buf.is_empty() {
            return Err(buf);
        }
        self.system_calls += 1;
        match sys::socket::send(fd, &buf, more) {
            Ok(n) => {
                buf.consume(n);
                self.slot(fd).send_queue.moved();
                Ok(self.report_success(key, Outcome::Sent { buf, n }))
            }
            Err(error) if would_block(&error) => {
                self.send_waits(fd);
                Err(buf)
            }
            Err(error) => Ok(self.report_end(key, fd, failed(&error, Some(buf)))),
        }
    }

    fn report_success(&mut self, key: Key, outcome: Outcome) -> OpId {
        let op = self.name_at_once();
        self.done.push(Event {
            key,
            op,
            more: false,
            outcome,
        });
        op
    }

    /// The same for an end or a failure, of which note must be taken (promise 8).
    fn report_end(&mut self, key: Key, fd: Fd, outcome: Outcome) -> OpId {
        let outcome = self.outcome(fd, outcome);
        self.report_success(key, outcome)
    }

    fn start_accept(&mut self, token: Token, listener: Fd) {
        let options = self.options;
        let socket = self.slot(listener);
        socket.reader = Some(OpId::of(token));
        socket.readable = false;
        socket.registered = true;
        let data = data_of(listener, socket.generation);
        self.system_calls += 6;
        // The options are inherited by what is accepted.
        let result = sys::socket::set_options(listener, &options)
            .and_then(|()| self.epoll.add(listener, LISTENER_MASK, data));
        if let Err(error) = result {
            self.end(token, |_| failed(&error, None));
        }
    }

    fn start_connect(&mut self, token: Token, fd: Fd, addr: &SocketAddr) {
        if !self.is_open(fd) {
            return self.end(token, bad_descriptor);
        }
        self.system_calls += 1;
        match sys::socket::connect(fd, addr) {
            Ok(()) => self.end(token, |_| Outcome::Connected),
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                let socket = self.slot(fd);
                socket.readable = false;
                socket.writable = false;
                socket.writer = Some(OpId::of(token));
                self.register(fd, token);
            }
            Err(error) => self.end(token, |_| failed(&error, None)),
        }
    }

    fn start_read(&mut self, token: Token, fd: Fd) {
        if !self.is_open(fd) {
            return self.end(token, bad_descriptor);
        }
        let socket = self.slot(fd);
        socket.reader = Some(OpId::of(token));
        if socket.readable {
            self.progress_read(fd);
        } else {
            self.register(fd, token);
        }
    }

    fn start_send(&mut self, token: Token, fd: Fd) {
        if !self.is_open(fd) {
            return self.end(token, bad_descriptor);
        }
        let socket = self.slot(fd);
        socket.writer = Some(OpId::of(token));
        if socket.writable {
            self.progress_write(fd);
        } else {
            self.register(fd, token);
        }
    }

    fn start_poll(&mut self, token: Token, fd: Fd, what: Poll) {
        if !self.is_open(fd) {
            return self.end(token, bad_descriptor);
        }
        let socket = self.slot(fd);
        socket.polls.push(token);
        let holds = match what {
            Poll::Hangup => socket.broken,
            Poll::ReadHangup => socket.ended,
            Poll::Readable => socket.readable && self.is_so(fd, libc::POLLIN | libc::POLLRDHUP),
            Poll::Writable => socket.writable && self.is_so(fd, libc::POLLOUT),
        };
        if holds {
            return self.end(token, |_| Outcome::Ready);
        }
        match what {
            Poll::Hangup | Poll::ReadHangup => {}
            Poll::Readable => self.clear_readable(fd),
            Poll::Writable => self.send_waits(fd),
        }
        self.register(fd, token);
    }

    /// Verifies a readiness that is only thought to hold.
    fn is_so(&mut self, fd: Fd, mask: i16) -> bool {
        self.system_calls += 1;
        sys::poll::poll_now(fd, mask).map_or(true, |found| found != 0)
    }

    fn start_buffer(&mut self, token: Token) {
        if self.starved.is_empty() {
            if let Some(buf) = self.pool.take() {
                return self.end(token, |_| Outcome::Buffer(buf));
            }
        }
        self.starved.push_back(token);
    }

    /// Registers a socket that has to wait. The kernel then tells its present state as well.
    fn register(&mut self, fd: Fd, waiting: Token) {
        let socket = self.slot(fd);
        if socket.registered {
            return;
        }
        socket.registered = true;
        let data = data_of(fd, socket.generation);
        self.system_calls += 1;
        if let Err(error) = self.epoll.add(fd, SOCKET_MASK, data) {
            self.slot(fd).registered = false;
            self.end(waiting, |buf| failed(&error, buf));
        }
    }

    pub(super) fn clear_readable(&mut self, fd: Fd) {
        if let Some(socket) = self.entry_mut(fd) {
            socket.readable = false;
        }
    }

    pub(super) fn clear_writable(&mut self, fd: Fd) {
        if let Some(socket) = self.entry_mut(fd) {
            socket.writable = false;
        }
    }

    /// There is no room to send.
    pub(super) fn send_waits(&mut self, fd: Fd) {
        self.clear_writable(fd);
        self.slot(fd).send_queue.waits(|| queued(fd));
    }

    /// Carries the waiting receive or accept on, on a socket that is thought readable.
    pub(super) fn progress_read(&mut self, fd: Fd) {
        let Some(token) = self.entry(fd).and_then(|s| s.reader.map(OpId::token)) else {
            return;
        };
        match self.ops.get(token).map(|op| &op.kind) {
            Some(Kind::Accept { .. }) => self.accept(token, fd),
            Some(Kind::Recv { many: false, .. }) => self.recv(token, fd),
            Some(Kind::Recv { many: true, .. }) => self.recv_many(token, fd),
            Some(Kind::RecvInto { .. }) => self.recv_into(token, fd),
            _ => {}
        }
    }

    fn accept(&mut self, token: Token, listener: Fd) {
        // Level-triggered: what is left shows again.
        self.clear_readable(listener);
        for _ in 0..ACCEPT_BURST {
            self.system_calls += 1;
            match sys::socket::accept(listener) {
                Ok((fd, peer)) => {
                    self.take_ownership(fd);
                    self.report(token, Outcome::Accepted { fd, peer });
                }
                Err(error) if would_block(&error) => return,
                Err(error) if sys::socket::ends_accept(errno(&error)) => {
                    return self.end(token, |_| failed(&error, None));
                }
                // The connection failed before it was accepted; the next one need not.
                Err(_) => {}
            }
        }
    }

    fn recv(&mut self, token: Token, fd: Fd) {
        let Some(mut buf) = self.pool.take() else {
            return self.starve(token, fd);
        };
        let room = buf.receivable();
        let result = sys::socket::recv(fd, &mut buf);
        self.note_read(fd, room, &result);
        match result {
            Ok(0) => self.end(token, |_| Outcome::Eof { buf: None }),
            Ok(n) => self.end(token, |_| Outcome::Received { buf, n }),
            Err(error) if would_block(&error) => self.register(fd, token),
            Err(error) => self.end(token, |_| failed(&error, None)),
        }
    }

    fn recv_many(&mut self, token: Token, fd: Fd) {
        for _ in 0..MANY_BURST {
            let Some(mut buf) = self.pool.take() else {
                return self.starve(token, fd);
            };
            let room = buf.receivable();
            let result = sys::socket::recv(fd, &mut buf);
            self.note_read(fd, room, &result);
            match result {
                Ok(0) => return self.end(token, |_| Outcome::Eof { buf: None }),
                Ok(n) => self.report(token, Outcome::Received { buf, n }),
                Err(error) if would_block(&error) => return self.register(fd, token),
                Err(error) => return self.end(token, |_| failed(&error, None)),
            }
            if !self.entry(fd).is_some_and(|s| s.readable) {
                return self.register(fd, token);
            }
            if self.done.len() >= TURN_SIZE {
                break;
            }
        }
        let socket = self.slot(fd);
        if !socket.eager {
            socket.eager = true;
            self.eager.push_back(fd);
        }
    }

    /// Queues a receive for the next free buffer.
    fn starve(&mut self, token: Token, fd: Fd) {
        let socket = self.slot(fd);
        if !socket.starved {
            socket.starved = true;
            self.starved.push_back(token);
        }
    }

    fn recv_into(&mut self, token: Token, fd: Fd) {
        let Some(op) = self.ops.get_mut(token) else {
            return;
        };
        let Kind::RecvInto { buf, .. } = &mut op.kind else {
            return;
        };
        let room = buf.receivable();
        if room == 0 {
            return self.end(token, |buf| Outcome::Failed {
                errno: libc::EINVAL,
                buf,
            });
        }
        let result = sys::socket::recv(fd, buf);
        self.note_read(fd, room, &result);
        match result {
            Err(error) if would_block(&error) => self.register(fd, token),
            Err(error) => self.end(token, |buf| failed(&error, buf)),
            Ok(n) => self.end(token, |buf| match buf {
                Some(buf) if n > 0 => Outcome::Received { buf, n },
                buf => Outcome::Eof { buf },
            }),
        }
    }

    /// What a `recv(2)` for `room` bytes tells about readiness.
    fn note_read(&mut self, fd: Fd, room: usize, result: &io::Result<usize>) {
        self.system_calls += 1;
        if let Some(socket) = self.entry_mut(fd) {
            socket.readable = match result {
                Ok(n) => *n == 0 || *n == room || socket.ended || socket.urgent,
                Err(error) => !would_block(error),
            };
        }
    }

    /// Carries the waiting send or connect on, on a socket that is thought writable.
    pub(super) fn progress_write(&mut self, fd: Fd) {
        let Some(token) = self.entry(fd).and_then(|s| s.writer.map(OpId::token)) else {
            return;
        };
        match self.ops.get_mut(token).map(|op| &mut op.kind) {
            Some(Kind::Send { buf, more, .. }) => {
                let result = if buf.is_empty() {
                    Ok(0)
                } else {
                    self.system_calls += 1;
                    sys::socket::send(fd, buf, *more)
                };
                self.note_send(token, fd, result);
            }
            Some(Kind::Connect { .. }) => {
                self.system_calls += 1;
                match sys::socket::take_error(fd) {
                    Ok(0) => self.end(token, |_| Outcome::Connected),
                    Ok(errno) => self.end(token, |_| Outcome::Failed { errno, buf: None }),
                    Err(error) => self.end(token, |_| failed(&error, None)),
                }
            }
            _ => {}
        }
    }

    fn note_send(&mut self, token: Token, fd: Fd, result: io::Result<usize>) {
        match result {
            Ok(n) => {
                self.slot(fd).send_queue.moved();
                self.end(token, |buf| match buf {
                    Some(mut buf) => {
                        buf.consume(n);
                        Outcome::Sent { buf, n }
                    }
                    None => Outcome::Failed {
                        errno: libc::EBADF,
                        buf: None,
                    },
                });
            }
            Err(error) if would_block(&error) => {
                self.send_waits(fd);
                self.register(fd, token);
            }
            Err(error) => self.end(token, |buf| failed(&error, buf)),
        }
    }

    /// Ends the polls whose condition holds, by what the kernel has just told.
    pub(super) fn progress_polls(&mut self, fd: Fd) {
        let mut at = 0;
        loop {
            let Some(socket) = self.entry(fd) else { return };
            let Some(token) = socket.polls.get(at).copied() else {
                return;
            };
            let holds = match self.ops.get(token).map(|op| &op.kind) {
                Some(Kind::Poll {
                    what: Poll::Readable,
                    ..
                }) => socket.readable,
                Some(Kind::Poll {
                    what: Poll::Writable,
                    ..
                }) => socket.writable,
                Some(Kind::Poll {
                    what: Poll::Hangup, ..
                }) => socket.broken,
                Some(Kind::Poll {
                    what: Poll::ReadHangup,
                    ..
                }) => socket.ended,
                _ => false,
            };
            if holds {
                self.end(token, |_| Outcome::Ready);
            } else {
                at += 1;
            }
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

    /// Ends an operation that has not ended yet, without effect.
    pub(super) fn cancel_parked(&mut self, token: Token) {
        self.end(token, |buf| Outcome::Cancelled { buf });
    }

    /// Ends an operation; `outcome` gets the buffer that was given with it.
    pub(super) fn end(&mut self, token: Token, outcome: impl FnOnce(Option<Buf>) -> Outcome) {
        let Some(Parked { key, kind }) = self.ops.remove(token) else {
            return;
        };
        let (fd, buf) = match kind {
            Kind::Accept { listener } => {
                self.unlisten(listener);
                (listener, None)
            }
            Kind::Recv { fd, .. } => {
                self.unlink_reader(token, fd);
                (fd, None)
            }
            Kind::RecvInto { fd, buf } => {
                self.unlink_reader(token, fd);
                (fd, Some(buf))
            }
            Kind::Connect { fd } => {
                self.unlink_writer(token, fd);
                (fd, None)
            }
            Kind::Send { fd, buf, .. } => {
                self.unlink_writer(token, fd);
                (fd, Some(buf))
            }
            Kind::Poll { fd, .. } => {
                if let Some(socket) = self.entry_mut(fd) {
                    socket.polls.retain(|t| *t != token);
                }
                (fd, None)
            }
            Kind::Buffer => (Fd(-1), None),
        };
        let outcome = outcome(buf);
        let outcome = self.outcome(fd, outcome);
        self.done.push(Event {
            key,
            op: OpId::of(token),
            more: false,
            outcome,
        });
    }

    /// A listener without an accept must not be polled: it would wake this engine for nothing,
    /// and with `EPOLLEXCLUSIVE` keep others asleep.
    fn unlisten(&mut self, listener: Fd) {
        if let Some(socket) = self.entry_mut(listener) {
            socket.registered = false;
            socket.reader = None;
            self.system_calls += 1;
            // Fails only if the descriptor is not registered.
            let _ = self.epoll.remove(listener);
        }
    }

    fn unlink_reader(&mut self, token: Token, fd: Fd) {
        let Some(socket) = self.entry_mut(fd) else {
            return;
        };
        if socket.reader != Some(OpId::of(token)) {
            return;
        }
        socket.reader = None;
        if std::mem::take(&mut socket.starved) {
            self.starved.retain(|t| *t != token);
        }
    }

    fn unlink_writer(&mut self, token: Token, fd: Fd) {
        if let Some(socket) = self.entry_mut(fd) {
            if socket.writer == Some(OpId::of(token)) {
                socket.writer = None;
            }
        }
    }

    fn is_open(&self, fd: Fd) -> bool {
        self.entry(fd).is_some_and(|s| s.open && !s.closing)
    }
}

fn data_of(fd: Fd, generation: u32) -> u64 {
    (u64::from(generation) << 32) | u64::from(fd.0 as u32)
}

fn failed(error: &io::Error, buf: Option<Buf>) -> Outcome {
    Outcome::Failed {
        errno: errno(error),
        buf,
    }
}

fn bad_descriptor(buf: Option<Buf>) -> Outcome {
    Outcome::Failed {
        errno: libc::EBADF,
        buf,
    }
}
