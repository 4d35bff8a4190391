//! A request to the admin API: its body is received, the question laid on the desk, the answer sent.

use toron_reactor::{Buf, Close, Engine, Outcome};

use super::access;
use super::desk::{Question, Reply, BODY_MOST};
use super::visit::{Terms, Visit};
use crate::http::answer::{Answer, FixedAnswer, Rendering, CONTINUE};
use crate::http::chunk::ChunkFault;
use crate::http::{Expect, Method, RequestBody, RequestHead};
use crate::server::body::{Chunked, Source};
use crate::server::judge::{Arrival, Verdict};
use crate::server::refuse::Refusal;
use crate::server::session::{Phase, Session, Tag};
use crate::server::Kit;

impl<E: Engine> Kit<'_, '_, E> {
    /// What becomes of a request to the admin API; `None` if it is not for that.
    pub(in crate::server) fn builtin(
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
        if path != b"/internal" && !path.starts_with(b"/internal/") {
            // No route is reached by way of the admin API's own listener.
            return session.is_admin.then(|| arrival.refuse(Answer::NotFound));
        }
        if !self.core.serves_admin(session) {
            return Some(arrival.refuse(Answer::NotFound));
        }
        let (peer, client) = (session.peer.ip(), session.client.address);
        let admitted = access::check(&snapshot.settings, &request, peer, client);
        let source = admitted.and_then(|()| source_of(&request));
        Some(match source {
            Err(answer) => arrival.refuse(answer),
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
        visit.described.extend_from_slice(&self.core.described);
        let is_bare = visit.source.outstanding() == 0;
        session.phase = Phase::Taking;
        session.since = now;
        if is_bare {
            session.request_len = head_len;
            session.visit = Some(visit);
            return self.lay_down(session);
        }
        visit.run(now);
        session.visit = Some(visit);
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
            _ => self.close(session, Close::Orderly),
        }
    }

    fn take_body(&mut self, session: &mut Session, mut buf: Buf) {
        let now = self.now();
        let Some(visit) = session.visit.as_mut() else {
            return;
        };
        let portion = match visit.source.take(&mut buf, 0, &mut session.spill) {
            Ok(portion) => portion,
            Err(ChunkFault::TrailersTooLarge) => {
                return self.refuse_visit(session, Answer::HeadTooLarge);
            }
            Err(ChunkFault::Bad(reason)) => {
                log::debug!("{}: bad body: {reason}", session.peer);
                return self.refuse_visit(session, Answer::BadRequest);
            }
        };
        let body = &mut visit.question.body;
        if body.len() + portion.bytes > BODY_MOST {
            return self.refuse_visit(session, Answer::BodyTooLarge);
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
        if let Some(op) = session.recv {
            self.cx.engine.cancel(op);
        }
        self.note_slowness(session);
        self.refuse_visit(session, Answer::RequestTimeout);
    }

    /// Ends a request of which something is still to come.
    fn refuse_visit(&mut self, session: &mut Session, answer: Answer) {
        let mut refusal = Refusal::unread(answer);
        if let Some(visit) = session.visit.take() {
            self.core.described = visit.described;
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
        let Some(visit) = session.visit.as_mut() else {
            return;
        };
        let body = std::mem::take(&mut visit.question.body);
        let mut question = visit.question.clone();
        question.body = body;
        if self.core.shared.desk.ask(question) {
            return self.watch_hangup(session);
        }
        let reply = Reply::of(Answer::AdminUnavailable);
        self.reply(session, reply);
    }

    /// The answer to what was asked has come.
    pub(in crate::server) fn reply(&mut self, session: &mut Session, reply: Reply) {
        let Some(visit) = session
            .visit
            .take()
            .filter(|_| session.phase == Phase::Asking)
        else {
            return;
        };
        let rendering = Rendering {
            client: visit.version,
            // The body goes out on its own: it may be long.
            head_only: true,
            keep_alive: visit.keep_alive && !self.core.is_draining(),
            allow: "",
        };
        self.core.described = visit.described;
        self.core.scratch.clear();
        let keep_alive = FixedAnswer {
            status: reply.status,
            fields: &reply.fields,
            body: &reply.body,
        }
        .write(&rendering, &mut self.core.scratch);
        self.core.body = if visit.head_only {
            Vec::new()
        } else {
            reply.body
        };
        self.answer_written(session, Some(session.request_len), keep_alive);
    }
}

/// Methods, paths and queries are visible ASCII by now.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The body of a request to the admin API; the error is its refusal.
fn source_of(request: &RequestHead<'_, '_>) -> Result<Source, Answer> {
    match request.facts.body {
        RequestBody::Length(n) if n > BODY_MOST as u64 => Err(Answer::DeclaredTooLarge),
        _ if request.facts.expect == Expect::Other => Err(Answer::ExpectationFailed),
        RequestBody::None => Ok(Source::None),
        RequestBody::Length(n) => Ok(Source::Length(n)),
        RequestBody::Chunked => Ok(Source::Chunked(Chunked::default())),
    }
}
