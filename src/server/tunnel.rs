//! After a 101: bytes in both directions, whatever they mean (R14).
//!
//! Each direction holds one buffer at a time: what was received is sent before more is received.
//! Messages go by copy; what follows a portion that is larger than messages are goes by `splice`, until
//! the sender pauses.
//!
//! Where one side's connection breaks, the other is reset: an orderly end would pass a part off as all that
//! there was. What came before the break goes on first, as long as it is taken at once. A side that had
//! finished sending before has nothing to add: then the other is closed, which loses nothing on its way.

use thin_vec::ThinVec;
use toron_reactor::{Buf, Engine, Op, Shutdown};

use super::body::Source;
use super::lane::Lane;
use super::session::{Session, Tag};
use super::splice::{self, Round, SPLICE_ROUNDS};
use super::Kit;
use crate::proxy::transaction::{self, Input, Side};

/// A portion of so many bytes begins a run by splice. (A choice: messages of some kilobytes are to go in
/// two system calls. Processor time of 512 MiB in pieces of 64 KiB, by copy and so, medians of 5
/// interleaved rounds: up 0.24 and 0.10 s on epoll, 0.30 and 0.12 s on io_uring; down 0.20 and 0.14 s,
/// 0.24 and 0.13 s.)
const BULK: usize = 16 * 1024;

impl<E: Engine> Kit<'_, '_, E> {
    /// Passes the 101 on, in the place of its first `len` bytes, with the tunnel bytes behind it,
    /// and opens both directions.
    pub(crate) fn begin_tunnel(&mut self, session: &mut Session, mut buf: Buf, len: usize) {
        if !buf.replace_front(len, &self.core.scratch) {
            self.step(
                session,
                Input::UpstreamGone {
                    response_begun: true,
                },
            );
            return;
        }
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.upload.forget();
        }
        self.send(session, buf, Tag::Tunnel);
        self.release_request(session);
        if is_upstream_busy(session) {
            // The request's own send has not been reported; the upload begins then.
            return;
        }
        match self.leftover(session) {
            Some(buf) => self.tunnel_from_client(session, buf),
            None => self.tunnel_sent_to_upstream(session),
        }
    }

    /// What the client sent behind its request: it was for the tunnel.
    fn leftover(&mut self, session: &mut Session) -> Option<Buf> {
        if let Some(input) = session.input.as_mut() {
            input.consume(std::mem::take(&mut session.request_len));
        }
        let input = session.input.take().filter(|input| !input.is_empty());
        if let Some(buf) = input.or_else(|| session.ahead.take()) {
            return Some(buf);
        }
        if session.spill.is_empty() {
            return None;
        }
        let mut buf = self.take_buffer(session)?;
        buf.extend(&session.spill);
        session.spill = ThinVec::new();
        Some(buf)
    }

    /// Bytes for the upstream.
    pub(crate) fn tunnel_from_client(&mut self, session: &mut Session, buf: Buf) {
        if is_upstream_busy(session) {
            session.ahead = Some(buf);
            return;
        }
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let Some(token) = exchange.upstream else {
            return;
        };
        let Some(connection) = self.core.upstreams.get(token) else {
            return;
        };
        exchange.bytes_in += buf.len() as u64;
        exchange.upload.copies = buf.len() < BULK;
        exchange.upstream_busy = true;
        let op = Op::Send {
            fd: connection.fd,
            buf,
            more: false,
        };
        self.cx.engine.submit(Lane::UpstreamSend.key(token), op);
        if self.step(session, Input::TunnelMoved) {
            self.watch_unread(session);
        }
    }

    /// The upstream has got everything so far.
    pub(crate) fn tunnel_sent_to_upstream(&mut self, session: &mut Session) {
        if let Some(buf) = self.leftover(session) {
            return self.tunnel_from_client(session, buf);
        }
        if !session.spill.is_empty() {
            // A buffer is awaited for it.
            return;
        }
        if session.eof {
            return self.tunnel_client_eof(session);
        }
        if splices_up(session) {
            return self.tunnel_splice_up(session);
        }
        self.receive(session);
    }

    /// Splices from the client to the upstream, in a run of that, while the client has more.
    pub(crate) fn tunnel_splice_up(&mut self, session: &mut Session) {
        if !splices_up(session) {
            return;
        }
        for _ in 0..SPLICE_ROUNDS {
            if !self.tunnel_splice_up_round(session) {
                return;
            }
        }
        self.poll_upstream_writable(session);
    }

    fn tunnel_splice_up_round(&mut self, session: &mut Session) -> bool {
        let Some(exchange) = session.exchange.as_mut() else {
            return false;
        };
        let Some(to) = self.core.upstream_fd(exchange) else {
            return false;
        };
        let pipe = &mut exchange.upload.pipe;
        let mut untold = Source::UntilClose;
        match splice::round(self.cx.engine, (session.fd, to), pipe, &mut untold) {
            Round::Taken(bytes) => {
                exchange.bytes_in += bytes;
                return true;
            }
            Round::Passed { .. } => return self.step(session, Input::TunnelMoved),
            Round::NoPipe | Round::SourceDry | Round::Done => {
                exchange.upload.copies = true;
                self.receive(session);
            }
            Round::SinkFull => {
                self.poll_upstream_writable(session);
                self.watch_unread(session);
            }
            Round::SourceEnded => {
                exchange.upload.give_back(self.cx.engine);
                session.eof = true;
                self.tunnel_client_eof(session);
            }
            Round::SourceFailed => self.client_gone(session),
            Round::SinkFailed => self.upstream_write_failed(session, false),
        }
        false
    }

    /// The client has finished sending: so does toron (half-close passed on).
    pub(crate) fn tunnel_client_eof(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        if exchange.upstream_busy || exchange.transaction.upload() != transaction::Upload::Tunnel {
            return;
        }
        if exchange.upload.broken {
            return self.client_gone(session);
        }
        if let Some(fd) = self.core.upstream_fd(exchange) {
            self.cx.engine.shutdown(fd, Shutdown::Write);
        }
        if self.step(session, Input::TunnelHalfClosed(Side::Client)) {
            self.watch_unread(session);
        }
    }

    /// Bytes for the client.
    pub(crate) fn tunnel_from_upstream(&mut self, session: &mut Session, buf: Buf) {
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.download.copies = buf.len() < BULK;
        }
        self.send(session, buf, Tag::Tunnel);
        self.step(session, Input::TunnelMoved);
    }

    /// The client has got everything so far.
    pub(crate) fn tunnel_sent_to_client(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        if exchange.transaction.download() != transaction::Download::Tunnel {
            return;
        }
        if exchange.download.copies {
            self.upstream_receive(session);
        } else {
            self.tunnel_splice_down(session);
        }
    }

    /// Splices from the upstream to the client, in a run of that, while the upstream has more.
    pub(crate) fn tunnel_splice_down(&mut self, session: &mut Session) {
        if !splices_down(session) {
            return;
        }
        for _ in 0..SPLICE_ROUNDS {
            if !self.tunnel_splice_down_round(session) {
                return;
            }
        }
        self.poll_client_writable(session);
    }

    fn tunnel_splice_down_round(&mut self, session: &mut Session) -> bool {
        let Some(exchange) = session.exchange.as_mut() else {
            return false;
        };
        let Some(from) = self.core.upstream_fd(exchange) else {
            return false;
        };
        let pipe = &mut exchange.download.pipe;
        let mut untold = Source::UntilClose;
        match splice::round(self.cx.engine, (from, session.fd), pipe, &mut untold) {
            Round::Taken(_) => return true,
            Round::Passed { bytes, .. } => {
                exchange.bytes_out += bytes;
                return self.step(session, Input::TunnelMoved);
            }
            Round::NoPipe | Round::SourceDry | Round::Done => {
                exchange.download.copies = true;
                self.upstream_receive(session);
            }
            Round::SinkFull => self.poll_client_writable(session),
            Round::SourceEnded => {
                exchange.download.give_back(self.cx.engine);
                self.tunnel_upstream_eof(session);
            }
            Round::SourceFailed => self.upstream_gone(session),
            Round::SinkFailed => self.client_broke(session),
        }
        false
    }

    /// The upstream has finished sending: so does toron.
    pub(crate) fn tunnel_upstream_eof(&mut self, session: &mut Session) {
        if session
            .exchange
            .as_ref()
            .is_some_and(|exchange| exchange.download.broken)
        {
            return self.upstream_gone(session);
        }
        self.cx.engine.shutdown(session.fd, Shutdown::Write);
        self.step(session, Input::TunnelHalfClosed(Side::Upstream));
    }

    // ---- broken connections ----

    /// The client's connection is broken, which shows while nothing is received from it, or by a send. If
    /// it is the end of a tunnel, what it sent before comes first: behind that, the receive tells.
    pub(crate) fn client_broke(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        if exchange.transaction.upload() == transaction::Upload::Tunnel {
            exchange.upload.broken = true;
            if session.recv.is_some() {
                return;
            }
            let to = self.core.upstream_fd(exchange);
            let is_held_up = to.is_none_or(|to| self.cx.engine.acknowledged(to).is_some());
            if exchange.upstream_busy && !is_held_up {
                // Taken at once, as far as is known: if it is not, that is known the next time.
                return self.watch_unread(session);
            }
        }
        self.client_gone(session);
    }

    /// Nothing more comes from the client, whose connection is broken.
    pub(crate) fn client_gone(&mut self, session: &mut Session) {
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.upload.broken |= exchange.transaction.upload() == transaction::Upload::Tunnel;
        }
        self.step(session, Input::ClientGone);
    }

    /// The upstream takes nothing more of a tunnel. What it sent before comes first.
    pub(crate) fn tunnel_upstream_broke(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        if exchange.transaction.download() == transaction::Download::Tunnel {
            exchange.download.broken = true;
            let connection = exchange.upstream.and_then(|x| self.core.upstreams.get(x));
            let receives = connection.is_some_and(|connection| connection.recv.is_some());
            let sends = session.output.is_busy();
            if receives || (sends && self.cx.engine.acknowledged(session.fd).is_none()) {
                return;
            }
        }
        self.upstream_gone(session);
    }

    /// Nothing more comes through a tunnel from the upstream, whose connection is broken.
    pub(crate) fn upstream_gone(&mut self, session: &mut Session) {
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.download.broken |=
                exchange.transaction.download() == transaction::Download::Tunnel;
        }
        let response_begun = true;
        self.step(session, Input::UpstreamGone { response_begun });
    }
}

/// A run by splice towards the upstream is on.
fn splices_up(session: &Session) -> bool {
    session.recv.is_none()
        && session.exchange.as_ref().is_some_and(|exchange| {
            exchange.transaction.upload() == transaction::Upload::Tunnel
                && !exchange.upstream_busy
                && !exchange.upload.copies
        })
}

/// A run by splice towards the client is on.
fn splices_down(session: &Session) -> bool {
    !session.output.is_busy()
        && session.exchange.as_ref().is_some_and(|exchange| {
            exchange.transaction.download() == transaction::Download::Tunnel
                && !exchange.download.copies
        })
}

/// A send to the upstream has not been reported yet.
fn is_upstream_busy(session: &Session) -> bool {
    session
        .exchange
        .as_ref()
        .is_some_and(|exchange| exchange.upstream_busy)
}
