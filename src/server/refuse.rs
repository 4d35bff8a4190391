//! Answers in place of a transaction: refusals, built-in and fixed answers.

use toron_reactor::Engine;

use super::session::{Phase, Session, Tag};
use super::Kit;
use crate::http::answer::{Answer, Rendering};
use crate::http::Version;
use crate::proxy::transaction::ClientEnd;
use crate::proxy::window::Window;
use crate::proxy::writing::QUOTA;

/// Why a request goes no further, and what becomes of its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) answer: Answer,
    /// Length of the request in the buffer, if it is whole there and its connection may go on.
    pub(super) whole: Option<usize>,
    /// The client would go on with its connection.
    pub(super) keep_alive: bool,
    pub(super) client: Version,
    pub(super) head_only: bool,
}

impl Refusal {
    /// The head could not be understood: whatever follows it is not understood either.
    pub(super) fn unread(answer: Answer) -> Self {
        let client = Version::Http11;
        Refusal {
            answer,
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
            whole,
            keep_alive,
            client,
            head_only,
        } = refusal;
        log::debug!("{}: {} {}", session.peer, answer.status(), answer.code());
        let rendering = Rendering {
            client,
            head_only,
            keep_alive: keep_alive && whole.is_some() && !self.core.is_draining(),
            allow: "",
        };
        let keep_alive = self.write_answer(answer, &rendering);
        if !answer.lingers() {
            return self.send_answer(session, ClientEnd::Sever);
        }
        self.answer_written(session, whole, keep_alive);
    }

    pub(crate) fn write_answer(&mut self, answer: Answer, rendering: &Rendering<'_>) -> bool {
        self.core.scratch.clear();
        answer.write(rendering, &mut self.core.scratch)
    }

    /// Sends the answer in the scratch buffer, and [`Core::body`](super::Core) behind it.
    pub(super) fn answer_written(
        &mut self,
        session: &mut Session,
        whole: Option<usize>,
        keep_alive: bool,
    ) {
        session.request_len = whole.unwrap_or(0);
        let then = match whole {
            Some(_) if keep_alive => ClientEnd::Keep,
            Some(_) => ClientEnd::Close,
            None => ClientEnd::Linger,
        };
        self.send_answer(session, then);
    }

    fn send_answer(&mut self, session: &mut Session, then: ClientEnd) {
        let now = self.now();
        // Whoever has sent more may still be sending, and must be able to read this (I9).
        let then = match then {
            ClientEnd::Close if session.has_leftover() => ClientEnd::Linger,
            then => then,
        };
        let mut window = Window::new(self.core.snapshot.settings.write_timeout, QUOTA);
        window.run(now);
        session.phase = Phase::Answering { then, window };
        session.since = now;
        session.served = session.served.saturating_add(1);
        self.core.requests += 1;
        if then != ClientEnd::Keep {
            // Nothing of it is wanted any more, and the answer may need a buffer.
            session.input = None;
            session.request_len = 0;
        }
        self.log_answer(session);
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
