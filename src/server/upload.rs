//! The body of a request, from the client to the upstream.
//!
//! Known lengths move by `splice` once there is enough of them; the rest, and chunked bodies, by
//! one buffer at a time. Nothing is read that cannot be passed on.

use toron_reactor::{Buf, Engine, Op, Outcome};

use super::body::{self, Framing, Portion, Source};
use super::lane::Lane;
use super::session::{Phase, Session};
use super::splice::{self, Round, SPLICE_ROUNDS};
use super::state::{Mark, Upload};
use super::Kit;
use crate::http::Reason;
use crate::proxy::transaction::{self, Input, Side};

impl<E: Engine> Kit<'_, '_, E> {
    /// Does what the upload needs next.
    pub(crate) fn upload_next(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        if exchange.upstream_busy || exchange.transaction.upload() != transaction::Upload::Moving {
            return;
        }
        if let Some(buf) = exchange.upload.staged.take() {
            return self.upload_send(session, buf);
        }
        if exchange.upload.is_finished() {
            if self.step(session, Input::UploadDone) {
                self.watch_client(session);
            }
            return;
        }
        // What came with the head and is not sent yet.
        if session
            .input
            .as_ref()
            .is_some_and(|input| input.len() > session.request_len)
        {
            if let Some(mut input) = session.input.take() {
                input.consume(std::mem::take(&mut session.request_len));
                return self.upload_received(session, input);
            }
        }
        let upload = &exchange.upload;
        let is_copied = upload.copies || upload.mark == Mark::Passing;
        if splice::is_due(&upload.source, upload.pipe.is_some(), is_copied) {
            return self.upload_splice(session);
        }
        self.receive(session);
        self.step(session, Input::UploadWaits(Side::Client));
    }

    fn upload_send(&mut self, session: &mut Session, buf: Buf) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let Some(token) = exchange.upstream else {
            return;
        };
        let Some(connection) = self.core.upstreams.get(token) else {
            return;
        };
        exchange.upstream_busy = true;
        let op = Op::Send {
            fd: connection.fd,
            buf,
            more: false,
        };
        self.cx.engine.submit(Lane::UpstreamSend.key(token), op);
        if self.step(session, Input::UploadWaits(Side::Upstream)) {
            self.watch_unread(session);
        }
    }

    /// Body bytes have come by copy.
    pub(crate) fn upload_received(&mut self, session: &mut Session, mut buf: Buf) {
        let portion = match take_portion(session, &mut buf, Framing::Passed) {
            Ok(portion) => portion,
            Err(reason) => {
                self.step(session, Input::BadBody(reason));
                return;
            }
        };
        let framed = self.upload_frame(session, portion, &mut buf);
        debug_assert!(framed, "a receive leaves room for its framing");
        if !framed {
            self.step(session, Input::BadBody(Reason::ChunkSize));
            return;
        }
        let bytes = portion.bytes as u64;
        if !self.step(
            session,
            Input::Received {
                bytes,
                last: portion.last,
            },
        ) {
            return;
        }
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.upload.mark = Mark::Away;
            exchange.upload.staged = (!buf.is_empty()).then_some(buf);
        }
        self.upload_next(session);
    }

    fn upload_frame(&mut self, session: &mut Session, portion: Portion, buf: &mut Buf) -> bool {
        let Some(exchange) = session.exchange.as_mut() else {
            return false;
        };
        let upload = &mut exchange.upload;
        let Source::Chunked(chunked) = &upload.source else {
            return true;
        };
        let mut trailers = std::mem::take(&mut self.core.path_room);
        trailers.clear();
        crate::http::chunk::push_request_trailers(&chunked.trailers, &mut trailers);
        let fits = body::push_closing(Framing::Passed, portion, &trailers, buf);
        self.core.path_room = trailers;
        if portion.last {
            upload.source.end();
        }
        fits
    }

    fn upload_splice(&mut self, session: &mut Session) {
        for _ in 0..SPLICE_ROUNDS {
            if !self.upload_splice_round(session) {
                return;
            }
        }
        // Others get their turn; the socket most likely can be written at once.
        self.upload_await_upstream(session);
    }

    /// Moves one pipe's worth. `false` when there is nothing to do at present.
    fn upload_splice_round(&mut self, session: &mut Session) -> bool {
        let Some(exchange) = session.exchange.as_mut() else {
            return false;
        };
        let Some(to) = self.core.upstream_fd(exchange) else {
            return false;
        };
        let Upload { pipe, source, .. } = &mut exchange.upload;
        match splice::round(self.cx.engine, (session.fd, to), pipe, source) {
            Round::Taken(bytes) => {
                let last = source.outstanding() == 0;
                exchange.upload.mark = Mark::Away;
                exchange.bytes_in += bytes;
                return self.step(session, Input::Received { bytes, last });
            }
            Round::Passed { .. } => return self.step(session, Input::Passed),
            Round::Done => self.upload_next(session),
            Round::NoPipe => {
                exchange.upload.copies = true;
                self.upload_next(session);
            }
            Round::SourceDry if exchange.upload.mark.dry() => self.upload_next(session),
            Round::SourceDry => {
                self.poll_readable(session);
                self.step(session, Input::UploadWaits(Side::Client));
            }
            Round::SinkFull => self.upload_await_upstream(session),
            Round::SourceEnded => {
                session.eof = true;
                self.step(session, Input::ClientEof);
            }
            Round::SourceFailed => {
                self.step(session, Input::ClientGone);
            }
            Round::SinkFailed => self.upstream_write_failed(session, false),
        }
        false
    }

    fn upload_await_upstream(&mut self, session: &mut Session) {
        self.poll_upstream_writable(session);
        if self.step(session, Input::UploadWaits(Side::Upstream)) {
            self.watch_unread(session);
        }
    }

    pub(super) fn poll_upstream_writable(&mut self, session: &mut Session) {
        let Some(token) = session.exchange.as_ref().and_then(|x| x.upstream) else {
            return;
        };
        let Some(connection) = self.core.upstreams.get_mut(token) else {
            return;
        };
        if !connection.polls_writable {
            connection.polls_writable = true;
            let op = Op::Writable { fd: connection.fd };
            self.cx.engine.submit(Lane::UpstreamWritable.key(token), op);
        }
    }

    /// The client's socket can be read: the upload by splice, or discarding, goes on.
    pub(crate) fn client_readable(&mut self, session: &mut Session, outcome: &Outcome) {
        if matches!(outcome, Outcome::Cancelled { .. }) {
            return;
        }
        match session.phase {
            Phase::Lingering { .. } => self.discard(session),
            Phase::Skipping { .. } => self.skip_on(session),
            Phase::Exchange => {
                if let Some(exchange) = session.exchange.as_mut() {
                    exchange.upload.mark.readable();
                }
                self.upload_next(session);
            }
            _ => {}
        }
    }

    /// The upstream's socket can be written: the upload by splice goes on.
    pub(crate) fn upstream_writable(&mut self, session: &mut Session, outcome: &Outcome) {
        if let Some(token) = session.exchange.as_ref().and_then(|x| x.upstream) {
            if let Some(connection) = self.core.upstreams.get_mut(token) {
                connection.polls_writable = false;
            }
        }
        if !matches!(outcome, Outcome::Cancelled { .. }) {
            self.upload_next(session);
            self.tunnel_splice_up(session);
        }
    }

    /// Gives up moving the body.
    pub(crate) fn stop_upload(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        exchange.upload.give_back(self.cx.engine);
        let is_over = exchange.transaction.is_finished();
        if let Some(op) = session.recv {
            self.cx.engine.cancel(op);
        }
        // While the response goes on, a client that breaks off is noticed (I39).
        if !is_over {
            self.watch_unread(session);
        }
    }
}

/// Reduces what has come to body bytes within the ceiling (I10), or tells what is wrong.
pub(crate) fn take_portion(
    session: &mut Session,
    buf: &mut Buf,
    framing: Framing,
) -> Result<Portion, Reason> {
    let Some(exchange) = session.exchange.as_mut() else {
        return Err(Reason::BadHead);
    };
    let source = &mut exchange.upload.source;
    let portion = source.take(buf, 0, framing, &mut session.spill)?;
    let decoded = source.decoded();
    exchange.bytes_in += portion.bytes as u64;
    let ceiling = exchange
        .route()
        .map_or(u64::MAX, |route| route.limits.max_body_bytes);
    if decoded > ceiling {
        exchange.observed = decoded;
        return Err(Reason::BodyTooLarge);
    }
    Ok(portion)
}
