//! Deadlines of peers that are slow but not idle.
//!
//! A peer that reads steadily from a connection whose send buffer is full moves no byte of toron's
//! for a long time (see [`toron_reactor::Engine::acknowledged`]). So before such a deadline is
//! held against it, what it acknowledged is counted.

use toron_reactor::{Acknowledged, Engine, Fd};

use super::metrics::cells::Deadline;
use super::session::Session;
use super::Kit;
use crate::proxy::transaction::{Input, Side};

impl<E: Engine> Kit<'_, '_, E> {
    /// A deadline of the request under way may have passed.
    pub(super) fn exchange_deadline(&mut self, session: &mut Session) {
        self.count_acknowledged(session, Some(session.fd), Side::Client);
        let upstream = session.exchange.as_ref().and_then(|x| x.upstream);
        let upstream = upstream.and_then(|token| self.core.upstreams.get(token));
        self.count_acknowledged(session, upstream.map(|c| c.fd), Side::Upstream);
        let overdue = session
            .exchange
            .as_ref()
            .is_some_and(|x| x.transaction.connect_is_overdue(self.cx.now));
        if overdue {
            self.core.cells.dials_failed.add(1);
            self.core.cells.deadline(Deadline::Connect);
            self.tell_failure(session, &"no connection within connect_timeout");
        }
        self.step(session, Input::Tick);
    }

    fn count_acknowledged(&mut self, session: &mut Session, fd: Option<Fd>, by: Side) {
        let told = fd.and_then(|fd| self.cx.engine.acknowledged(fd));
        if let Some(Acknowledged { bytes, left }) = told {
            self.step(session, Input::Acknowledged { by, bytes, left });
        }
    }

    /// Whether the client has taken enough of an answer outside a transaction to get more of it.
    pub(super) fn answer_is_taken(&mut self, session: &mut Session) -> bool {
        let now = self.cx.now;
        let acknowledged = self.cx.engine.acknowledged(session.fd);
        let Some(writing) = session.writing_mut() else {
            return false;
        };
        if let Some(Acknowledged { bytes, left }) = acknowledged {
            writing.acknowledged(now, bytes, left);
        }
        !writing.is_over(now)
    }
}
