//! A client that goes away is noticed in every phase (I39).
//!
//! While toron receives from it, the receive tells. While it does not (the upstream is being dialled,
//! or takes no more), a reset shows as a hang-up of the socket. A FIN stands behind the bytes that
//! nobody reads for now; it is waited for by itself, and those bytes are counted: if they are fewer
//! than what is still to come of the request, it can never be whole. Of a chunked body the size does
//! not tell enough: it is looked through, as far as one buffer reaches. If it goes further, that is
//! repeated when some of it has been passed on.

use toron_reactor::{Engine, Op, Outcome};

use super::body::Source;
use super::lane::Lane;
use super::session::{Phase, Session};
use super::state::Exchange;
use super::Kit;
use crate::proxy::transaction::{self, Input};

impl<E: Engine> Kit<'_, '_, E> {
    /// Notices what the client does while its request is under way and none of it is to be read.
    pub(crate) fn watch_client(&mut self, session: &mut Session) {
        let is_whole = session
            .exchange
            .as_ref()
            .is_some_and(|x| x.transaction.request_is_whole());
        if !is_whole || session.has_leftover() || session.eof {
            self.watch_unread(session);
        } else {
            self.receive(session);
        }
    }

    /// Watches for the end of the client's connection while nothing is received from it.
    pub(crate) fn watch_unread(&mut self, session: &mut Session) {
        let minds_fin = session
            .exchange
            .as_ref()
            .is_some_and(|x| !x.fin_is_harmless && x.transaction.minds_fin());
        if !minds_fin {
            self.watch_hangup(session);
        } else if !session.watches_fin {
            session.watches_fin = true;
            let op = Op::ReadHangup { fd: session.fd };
            self.submit(session, Lane::ClientReadHangup, op);
        }
    }

    fn watch_hangup(&mut self, session: &mut Session) {
        if !session.watches_hangup {
            session.watches_hangup = true;
            self.submit(session, Lane::ClientHangup, Op::Hangup { fd: session.fd });
        }
    }

    /// The client has finished sending, or its connection is broken.
    pub(crate) fn client_finished(&mut self, session: &mut Session, outcome: &Outcome) {
        // A receive under way tells by itself, behind the bytes that it brings.
        if matches!(outcome, Outcome::Cancelled { .. })
            || session.phase != Phase::Exchange
            || session.recv.is_some()
        {
            return;
        }
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        let whole = if !exchange.transaction.minds_fin() {
            Whole::Certainly
        } else if exchange.transaction.half_close_aborts() {
            Whole::Never
        } else {
            self.can_be_whole(session, exchange)
        };
        if whole == Whole::Never {
            self.step(session, Input::ClientEof);
            return;
        }
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.fin_is_harmless |= whole == Whole::Certainly;
        }
        // If it was a reset, this tells.
        self.watch_hangup(session);
    }

    /// Whether the request is whole with what has come and is not looked at yet.
    fn can_be_whole(&mut self, session: &Session, exchange: &Exchange) -> Whole {
        let source = &exchange.upload.source;
        let unread = self.cx.engine.unread(session.fd).unwrap_or(0);
        let held = [
            received(session.input.as_deref(), session.request_len),
            received(session.ahead.as_deref(), 0),
        ];
        let bytes = held[0].len() + held[1].len() + unread;
        if (bytes as u64) < source.least_to_come() {
            return Whole::Never;
        }
        let Source::Chunked(chunked) = source else {
            return Whole::Certainly;
        };
        let Some(mut room) = self.cx.engine.buffers().take() else {
            return Whole::Unknown;
        };
        let peeked = match unread {
            0 => 0,
            _ => self.cx.engine.peek(session.fd, &mut room).unwrap_or(0),
        };
        match chunked.ends_within([held[0], held[1], &room]) {
            Some(true) => Whole::Certainly,
            Some(false) if peeked == unread => Whole::Never,
            Some(false) | None => Whole::Unknown,
        }
    }

    pub(crate) fn client_hung_up(&mut self, session: &mut Session, outcome: &Outcome) {
        // Where toron has sent its FIN, the client's makes the connection closed in both directions
        // though bytes may be unread: whoever reads them sees the end.
        let half_closed = match session.phase {
            Phase::Lingering { .. } => true,
            _ => session.exchange.as_ref().is_some_and(|exchange| {
                exchange.transaction.upload() == transaction::Upload::Tunnel
                    && exchange.transaction.download() == transaction::Download::Done
            }),
        };
        if !half_closed && !matches!(outcome, Outcome::Cancelled { .. }) {
            self.client_lost(session);
        }
    }
}

/// Whether a request whose client has finished sending is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whole {
    Certainly,
    Never,
    /// More of it must be looked at.
    Unknown,
}

/// What a buffer holds behind its first `skip` bytes.
fn received(buf: Option<&[u8]>, skip: usize) -> &[u8] {
    buf.and_then(|bytes| bytes.get(skip..)).unwrap_or_default()
}
