//! A request to the admin API: its body is received, the question laid on the desk, the answer sent.

use toron_reactor::{Buf, Close, Engine, Outcome};

use super::access;
use super::desk::{Question, Reply, BODY_MOST};
use super::visit::{Terms, Visit};
use crate::http::answer::{FixedAnswer, Rendering, CONTINUE};
use crate::http::{Expect, Method, Reason, RequestBody, RequestHead};
use crate::server::blame::{Blame, Told};
use crate::server::body::{Chunked, Framing, Source};
use crate::server::builtin::is_internal;
use crate::server::judge::{Arrival, Verdict};
use crate::server::refuse::Refusal;
use crate::server::session::{Phase, Session, Tag};
use crate::server::Kit;

impl<E: Engine> Kit<'_, '_, E> {
    /// What becomes of a request to the admin API; `None` if it is not for that.
    pub(in crate::server) fn judge_visit(
        &mut self,
        session: &Session,
        arrival: &Arrival<'_, '_, '_>,
    ) -> Option<Verdict> {
        let Arrival {
            snapshot,
            request,
            path,
            ..
        } = *arrival;
        if !is_internal(path) {
            // No route is reached by way of the admin API's own listener.
            return session.is_admin.then(|| arrival.refuse(Reason::NoRoute));
        }
        if !self.core.serves_admin(session) {
            return Some(arrival.refuse(Reason::NoRoute));
        }
        let (peer, client) = (session.peer, session.client.address);
        let admitted = access::check(&snapshot.settings, &request, peer, client);
        let admitted = admitted.map_err(Blame::from);
        let source = admitted.and_then(|()| source_of(&request));
        Some(match source {
            Err(blame) => arrival.refuse(blame),
            Ok(source) => {
                let question = Question {
                    reactor: self.core.reactor,
                    token: session.token,
                    client,
                    method: text(request.method),
                    path: text(path),
                    query: request.query.map(text).unwrap_or_default(),
                    body: Vec::new(),
                };
                let facts = &request.facts;
                let terms = Terms {
                    version: facts.version,
                    head_only: facts.method == Method::Head,
                    keep_alive: facts.keep_alive,
                };
                let settings = &snapshot.settings;
                Verdict::Visit {
                    visit: Box::new(Visit::new(question, source, settings, terms)),
                    invited: facts.expect == Expect::Continue,
                }
            }
        })
    }

    /// Begins to receive the body of a request whose head, `head_len` bytes, and what follows it are
    /// in `input`. `invited`: the client waits for a 100.
    pub(in crate::server) fn begin_visit(
        &mut self,
        session: &mut Session,
        mut visit: Box<Visit>,
        head_len: usize,
        invited: bool,
    ) {
        let now = self.now();
        visit.asked.copy(&self.core.asked);
        visit.header_took = self.core.header_took;
        let is_bare = visit.source.outstanding() == 0;
        session.phase = Phase::Taking;
        if is_bare {
            session.request_len = head_len;
            session.own().visit = Some(visit);
            return self.lay_down(session);
        }
        visit.run(now);
        session.own().visit = Some(visit);
        let Some(mut input) = session.input.take() else {
            return;
        };
        input.consume(head_len);
        session.request_len = 0;
        if input.is_empty() {
            drop(input);
            if invited {
                self.send_text(session, CONTINUE, Tag::Continue);
            }
            return self.receive(session);
        }
        self.take_body(session, input);
    }

    /// Something came from the client while its body is awaited.
    pub(in crate::server) fn visit_received(&mut self, session: &mut Session, outcome: Outcome) {
        match outcome {
            Outcome::Received { buf, .. } => self.take_body(session, buf),
            Outcome::Cancelled { buf: None } => self.receive(session),
            // EOF in the middle of a body is closed without a response (I4).
            _ => self.visit_abandoned(session),
        }
    }

    /// The client has gone.
    pub(in crate::server) fn visit_abandoned(&mut self, session: &mut Session) {
        let reason = match session.phase {
            Phase::Taking => Reason::ClientLeftBody,
            _ => Reason::ClientLeftWaiting,
        };
        self.note_cut_visit(session, reason);
        self.close(session, Close::Orderly);
    }

    /// The request to the admin API, if one is under way, ends without an answer.
    pub(in crate::server) fn note_cut_visit(&mut self, session: &mut Session, reason: Reason) {
        let Some(visit) = session.take_visit() else {
            return;
        };
        self.recall(&visit);
        self.note_cut(session, reason);
    }

    /// What the visit asked for is the request at hand again.
    fn recall(&mut self, visit: &Visit) {
        self.core.asked.copy(&visit.asked);
        self.core.header_took = visit.header_took;
    }

    fn take_body(&mut self, session: &mut Session, mut buf: Buf) {
        let now = self.now();
        // By field, as the spill is borrowed as well.
        let visit = session.own.as_mut().and_then(|own| own.visit.as_mut());
        let Some(visit) = visit else {
            return;
        };
        let portion = match visit
            .source
            .take(&mut buf, 0, Framing::Plain, &mut session.spill)
        {
            Ok(portion) => portion,
            Err(reason) => return self.refuse_visit(session, reason),
        };
        let body = &mut visit.question.body;
        let length = body.len() + portion.bytes;
        if length > BODY_MOST {
            let blame = too_large(Reason::BodyTooLarge, length as u64);
            return self.refuse_visit(session, blame);
        }
        body.extend_from_slice(buf.get(..portion.bytes).unwrap_or_default());
        if portion.last {
            visit.source.end();
        }
        visit.progress(now, portion.bytes);
        if portion.last {
            self.lay_down(session);
        } else {
            drop(buf);
            self.receive(session);
        }
    }

    /// The client sends its body too slowly.
    pub(in crate::server) fn body_too_slow(&mut self, session: &mut Session) {
        let now = self.now();
        let Some((reason, observed)) = session.visit().and_then(|visit| visit.overdue(now)) else {
            return;
        };
        if let Some(op) = session.recv {
            self.cx.engine.cancel(op);
        }
        self.note_slowness(session);
        self.refuse_visit(session, Blame::with(reason, observed));
    }

    /// Ends a request of which something is still to come.
    fn refuse_visit(&mut self, session: &mut Session, blame: impl Into<Blame>) {
        let mut refusal = Refusal::unread(blame);
        if let Some(visit) = session.take_visit() {
            self.recall(&visit);
            refusal.client = visit.version;
            refusal.head_only = visit.head_only;
        }
        self.refuse(session, refusal);
    }

    fn lay_down(&mut self, session: &mut Session) {
        session.phase = Phase::Asking;
        // Whoever answers sees what this reactor holds right now; of the others, what they held
        // after their last turn.
        self.core.publish(self.cx.engine.stats());
        let Some(visit) = session.visit_mut() else {
            return;
        };
        let body = std::mem::take(&mut visit.question.body);
        let mut question = visit.question.clone();
        question.body = body;
        if self.core.shared.desk.ask(question) {
            return self.watch_unread(session);
        }
        self.reply(session, Reply::ending());
    }

    /// The answer to what was asked has come.
    pub(in crate::server) fn reply(&mut self, session: &mut Session, reply: Reply) {
        let visit = session.take_visit();
        let Some(visit) = visit.filter(|_| session.phase == Phase::Asking) else {
            return;
        };
        self.recall(&visit);
        let explains = self.core.snapshot.settings.explain_header;
        let rendering = Rendering {
            client: visit.version,
            // The body goes out on its own: it may be long.
            head_only: true,
            keep_alive: visit.keep_alive && !self.core.is_draining(),
            allow: "",
            date: &self.core.date(self.cx.now),
            explain: reply.reason.filter(|_| explains),
        };
        self.core.scratch.clear();
        let keep_alive = FixedAnswer {
            status: reply.status,
            fields: &reply.fields,
            body: &reply.body,
        }
        .write(&rendering, &mut self.core.scratch);
        if !visit.head_only {
            self.core.body = reply.body;
        }
        let told = Told {
            status: reply.status,
            route: None,
            reason: reply.reason,
            bytes: self.core.scratch.len() + self.core.body.len(),
        };
        if let Some(reason) = reply.reason {
            self.note_refusal(session.client.address, &reason.into(), told.status);
        }
        let whole = Some(session.request_len);
        self.answer_written(session, whole, keep_alive, &told);
    }
}

/// A body beyond [`BODY_MOST`], which is no setting.
fn too_large(reason: Reason, observed: u64) -> Blame {
    Blame {
        limit: Some(BODY_MOST as u64),
        ..Blame::with(reason, observed)
    }
}

/// Methods, paths and queries are visible ASCII by now.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The body of a request to the admin API; the error is its refusal.
fn source_of(request: &RequestHead<'_, '_>) -> Result<Source, Blame> {
    match request.facts.body {
        RequestBody::Length(n) if n > BODY_MOST as u64 => {
            Err(too_large(Reason::DeclaredTooLarge, n))
        }
        _ if request.facts.expect == Expect::Other => Err(Reason::UnknownExpectation.into()),
        RequestBody::None => Ok(Source::None),
        RequestBody::Length(n) => Ok(Source::Length(n)),
        RequestBody::Chunked => Ok(Source::Chunked(Chunked::default())),
    }
}
