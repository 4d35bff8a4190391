//! Answers in place of a transaction: refusals, built-in and fixed answers.

use toron_reactor::Engine;

use super::blame::{Blame, Told};
use super::session::{Session, Tag};
use super::Kit;
use crate::http::answer::{Answer, Rendering};
use crate::http::Version;
use crate::proxy::transaction::ClientEnd;

/// What is answered in place of an upstream, and what becomes of the connection.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) answer: Answer,
    /// Why, where it is a refusal.
    pub(super) blame: Option<Blame>,
    /// The methods for `Allow`, where it is one's matter.
    pub(super) allow: String,
    /// Length of the request in the buffer, if it is whole there and its connection may go on.
    pub(super) whole: Option<usize>,
    /// The client would go on with its connection.
    pub(super) keep_alive: bool,
    pub(super) client: Version,
    pub(super) head_only: bool,
}

impl Refusal {
    /// The head could not be understood: whatever follows it is not understood either.
    pub(super) fn unread(blame: impl Into<Blame>) -> Self {
        let client = Version::Http11;
        let blame = blame.into();
        Refusal {
            answer: Answer::to(blame.reason).unwrap_or(Answer::BadRequest),
            blame: Some(blame),
            allow: String::new(),
            whole: None,
            keep_alive: false,
            client,
            head_only: false,
        }
    }
}

impl<E: Engine> Kit<'_, '_, E> {
    pub(super) fn refuse(&mut self, session: &mut Session, refusal: Refusal) {
        let Refusal {
            answer,
            blame,
            allow,
            whole,
            keep_alive,
            client,
            head_only,
        } = refusal;
        let reason = blame.map(|blame| blame.reason);
        let rendering = Rendering {
            client,
            head_only,
            keep_alive: keep_alive && whole.is_some() && !self.core.is_draining(),
            allow: &allow,
            date: &self.core.date(self.cx.now),
            explain: reason.filter(|_| self.core.snapshot.settings.explain_header),
        };
        self.core.scratch.clear();
        let keep_alive = answer.write(&rendering, &mut self.core.scratch);
        let told = Told {
            status: answer.status(),
            route: blame.and_then(|blame| blame.route),
            reason,
            bytes: self.core.scratch.len(),
        };
        if let Some(blame) = blame {
            self.note_refusal(session.client.address, &blame, told.status);
        }
        if !answer.lingers() {
            return self.send_answer(session, ClientEnd::Sever, &told);
        }
        self.answer_written(session, whole, keep_alive, &told);
    }

    /// Sends the answer in the scratch buffer, and [`Core::body`](super::Core) behind it.
    pub(super) fn answer_written(
        &mut self,
        session: &mut Session,
        whole: Option<usize>,
        keep_alive: bool,
        told: &Told,
    ) {
        session.request_len = whole.unwrap_or(0);
        let then = match whole {
            Some(_) if keep_alive => ClientEnd::Keep,
            Some(_) => ClientEnd::Close,
            None => ClientEnd::Linger,
        };
        self.send_answer(session, then, told);
    }

    fn send_answer(&mut self, session: &mut Session, then: ClientEnd, told: &Told) {
        let now = self.now();
        // Whoever has sent more may still be sending, and must be able to read this (I9).
        let then = match then {
            ClientEnd::Close if session.has_leftover() => ClientEnd::Linger,
            then => then,
        };
        session.begin_answer(then, self.core.snapshot.settings.write_timeout, now);
        let since = std::mem::replace(&mut session.since, now);
        session.served = session.served.saturating_add(1);
        self.core.requests += 1;
        self.core.count_answer(told.route, told.status);
        if then != ClientEnd::Keep {
            // Nothing of it is wanted any more, and the answer may need a buffer.
            session.input = None;
            session.request_len = 0;
        }
        self.log_answer(session.client.address, Some(since), told);
        let text = std::mem::take(&mut self.core.scratch);
        let body = std::mem::take(&mut self.core.body);
        if body.is_empty() {
            self.send_text(session, &text, Tag::Answer);
        } else {
            self.send_long(session, &text, body);
        }
        self.core.scratch = text;
    }
}
