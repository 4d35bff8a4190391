//! Between phase 1 and the dial: what may go on, and what is refused.

use std::rc::Rc;

use toron_reactor::{Buf, Engine};

use super::builtin::{describe, fixed_answer, write_json, Builtin};
use super::gate::client_of;
use super::lookup::lookup;
use super::refuse::Refusal;
use super::session::Session;
use super::state::Exchange;
use super::{Kit, Pinned};
use crate::http::answer::{Answer, Rendering};
use crate::http::method::Method;
use crate::http::path::normalise;
use crate::http::{Expect, RequestBody, RequestFacts, RequestHead, Target};
use crate::policy::router::Lookup;
use crate::policy::settings::{ChunkedMode, Route, RouteKind, Settings};
use crate::proxy::transaction::Orders;

/// A request that has been parsed, with what stands around it.
pub(super) struct Arrival<'a, 'b, 'f> {
    pub(super) snapshot: &'a Rc<Pinned>,
    pub(super) request: RequestHead<'b, 'f>,
    pub(super) head_len: usize,
    /// The normalised path.
    pub(super) path: &'a [u8],
    /// The whole buffer, head included.
    pub(super) input: &'a Buf,
    /// The length of the request, if it is whole in the buffer.
    pub(super) whole: Option<usize>,
}

impl Arrival<'_, '_, '_> {
    fn refusal(&self, answer: Answer) -> Refusal {
        Refusal {
            answer,
            whole: self.whole,
            keep_alive: self.request.facts.keep_alive,
            client: self.request.facts.version,
            head_only: self.request.facts.method == Method::Head,
        }
    }

    fn refuse(&self, answer: Answer) -> Verdict {
        Verdict::Refuse(self.refusal(answer))
    }

    /// By the firewall: a 403 ends the connection, whatever else has been sent on it, unless it is a
    /// trusted proxy's, which others share.
    fn turn_away(&self, answer: Answer, session: &Session) -> Verdict {
        let mut refusal = self.refusal(answer);
        let proxies = &self.snapshot.settings.trusted_proxies;
        if answer.status() == 403 && !proxies.contains(session.peer.ip()) {
            refusal.whole = None;
        }
        Verdict::Refuse(refusal)
    }

    fn rendering<'r>(&self, draining: bool, allow: &'r str) -> Rendering<'r> {
        Rendering {
            client: self.request.facts.version,
            head_only: self.request.facts.method == Method::Head,
            keep_alive: self.request.facts.keep_alive && self.whole.is_some() && !draining,
            allow,
        }
    }
}

/// What phase 1 came to.
pub(super) enum Verdict {
    /// The request goes on to an upstream.
    Proxy(Box<Exchange>, Orders),
    /// There is no buffer for the request; one is awaited.
    Wait,
    /// toron answers.
    Refuse(Refusal),
    /// The text of an answer has been written to the scratch buffer.
    Written {
        whole: Option<usize>,
        keep_alive: bool,
    },
}

impl<E: Engine> Kit<'_, '_, E> {
    pub(super) fn arrive(
        &mut self,
        session: &mut Session,
        snapshot: &Rc<Pinned>,
        request: RequestHead<'_, '_>,
        input: &Buf,
        head_len: usize,
        room: &mut [u8],
    ) -> Verdict {
        session.client = client_of(session.peer.ip(), &snapshot.settings, &request);
        let whole = whole_length(&request.facts, head_len, input.len());
        let mut arrival = Arrival {
            snapshot,
            request,
            head_len,
            path: b"*",
            input,
            whole,
        };
        if request.target == Target::Asterisk {
            return match self.ask_firewall(session, &snapshot.settings) {
                None => arrival.refuse(Answer::Options),
                Some(answer) => arrival.turn_away(answer, session),
            };
        }
        match normalise(request.path, room) {
            Ok(path) => {
                arrival.path = path;
                if self.core.shared.access_log.is_some() {
                    describe(&arrival.request, path, &mut self.core.described);
                }
            }
            Err(fault) => {
                log::debug!("{}: refused: {}", session.peer, fault.reason());
                return arrival.refuse(Answer::BadRequest);
            }
        }
        if let Some(answer) = self.probe(snapshot, &arrival.request, arrival.path) {
            return arrival.refuse(answer);
        }
        match self.ask_firewall(session, &snapshot.settings) {
            None => self.judge(session, &arrival),
            Some(answer) => arrival.turn_away(answer, session),
        }
    }

    /// The checks between the firewall and the dial, in their order: built-in endpoints, route,
    /// chunked mode, declared length, target. No step after a refusal runs.
    fn judge(&mut self, session: &mut Session, arrival: &Arrival<'_, '_, '_>) -> Verdict {
        let Arrival {
            snapshot,
            request,
            path,
            whole,
            ..
        } = *arrival;
        let draining = self.core.is_draining();
        if let Some(answered) = self.builtin(session, snapshot, &request, path) {
            return match answered {
                Builtin::Answer(answer) => arrival.refuse(answer),
                Builtin::Text(text) => {
                    self.core.scratch.clear();
                    let rendering = arrival.rendering(draining, "");
                    let keep_alive = write_json(&text, &rendering, &mut self.core.scratch);
                    Verdict::Written { whole, keep_alive }
                }
            };
        }
        let route = match lookup(snapshot, &request, path) {
            Lookup::Route(route) => route,
            Lookup::NotFound => {
                return arrival.refuse(unrouted(&snapshot.settings, &request.facts))
            }
            Lookup::MethodNotAllowed { allow } => {
                if unrouted(&snapshot.settings, &request.facts) != Answer::NotFound {
                    return arrival.refuse(Answer::DeclaredTooLarge);
                }
                let allow: Vec<&str> = allow.iter().collect();
                let allow = allow.join(", ");
                let rendering = arrival.rendering(draining, &allow);
                let keep_alive = self.write_answer(Answer::MethodNotAllowed, &rendering);
                return Verdict::Written { whole, keep_alive };
            }
        };
        if let Some(answer) = check_body(&request.facts, route) {
            return arrival.refuse(answer);
        }
        match &route.kind {
            RouteKind::Respond(fixed) => {
                self.core.scratch.clear();
                let rendering = arrival.rendering(draining, "");
                let keep_alive = fixed_answer(fixed).write(&rendering, &mut self.core.scratch);
                Verdict::Written { whole, keep_alive }
            }
            RouteKind::Upstream(upstream) => {
                match self.prepare(session, arrival, route, upstream) {
                    Ok(Some((exchange, orders))) => Verdict::Proxy(exchange, orders),
                    Ok(None) => Verdict::Wait,
                    Err(answer) => arrival.refuse(answer),
                }
            }
        }
    }
}

/// The length of the request in the buffer, if its body is whole there.
fn whole_length(facts: &RequestFacts, head_len: usize, have: usize) -> Option<usize> {
    match facts.body {
        RequestBody::None => Some(head_len),
        RequestBody::Length(n) => {
            let end = head_len.checked_add(usize::try_from(n).ok()?)?;
            (end <= have).then_some(end)
        }
        RequestBody::Chunked => None,
    }
}

/// An unmatched request with a body follows the rule of I8.
fn unrouted(settings: &Settings, facts: &RequestFacts) -> Answer {
    match facts.body {
        RequestBody::Length(n) if n > settings.max_body_bytes => Answer::DeclaredTooLarge,
        RequestBody::None | RequestBody::Length(_) | RequestBody::Chunked => Answer::NotFound,
    }
}

/// Chunked mode, declared length, expectation.
fn check_body(facts: &RequestFacts, route: &Route) -> Option<Answer> {
    match facts.body {
        RequestBody::Chunked if route.limits.chunked_mode == ChunkedMode::Reject => {
            Some(Answer::ChunkedDisabled)
        }
        RequestBody::Length(n) if n > route.limits.max_body_bytes => Some(Answer::DeclaredTooLarge),
        _ if facts.expect == Expect::Other => Some(Answer::ExpectationFailed),
        RequestBody::None | RequestBody::Length(_) | RequestBody::Chunked => None,
    }
}
