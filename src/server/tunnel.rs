//! After a 101: bytes in both directions, whatever they mean (R14).
//!
//! Each direction holds one buffer at a time: what was received is sent before more is received.

use thin_vec::ThinVec;
use toron_reactor::{Buf, Engine, Op, Shutdown};

use super::lane::Lane;
use super::session::{Session, Tag};
use super::Kit;
use crate::proxy::transaction::{self, Input, Side};

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
        self.receive(session);
    }

    /// The client has finished sending: so does toron (half-close passed on).
    pub(crate) fn tunnel_client_eof(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        if exchange.upstream_busy || exchange.transaction.upload() != transaction::Upload::Tunnel {
            return;
        }
        let fd = exchange
            .upstream
            .and_then(|t| self.core.upstreams.get(t))
            .map(|c| c.fd);
        if let Some(fd) = fd {
            self.cx.engine.shutdown(fd, Shutdown::Write);
        }
        if self.step(session, Input::TunnelHalfClosed(Side::Client)) {
            self.watch_unread(session);
        }
    }

    /// Bytes for the client.
    pub(crate) fn tunnel_from_upstream(&mut self, session: &mut Session, buf: Buf) {
        self.send(session, buf, Tag::Tunnel);
        self.step(session, Input::TunnelMoved);
    }

    /// The client has got everything so far.
    pub(crate) fn tunnel_sent_to_client(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        if exchange.transaction.download() == transaction::Download::Tunnel {
            self.upstream_receive(session);
        }
    }

    /// The upstream has finished sending: so does toron.
    pub(crate) fn tunnel_upstream_eof(&mut self, session: &mut Session) {
        self.cx.engine.shutdown(session.fd, Shutdown::Write);
        self.step(session, Input::TunnelHalfClosed(Side::Upstream));
    }
}

/// A send to the upstream has not been reported yet.
fn is_upstream_busy(session: &Session) -> bool {
    session
        .exchange
        .as_ref()
        .is_some_and(|exchange| exchange.upstream_busy)
}
