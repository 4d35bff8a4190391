//! Between phase 1 and the dial: what may go on, and what is refused.

use std::rc::Rc;
use std::sync::Arc;

use toron_reactor::{Buf, Engine};

use super::admin::visit::Visit;
use super::builtin::{describe, fixed_answer};
use super::gate::client_of;
use super::lookup::lookup;
use super::refuse::Refusal;
use super::session::Session;
use super::state::Exchange;
use super::{Kit, Pinned};
use crate::http::answer::{Answer, Rendering};
use crate::http::chunk::{Decoder, Event};
use crate::http::method::Method;
use crate::http::path::normalise;
use crate::http::{Expect, RequestBody, RequestFacts, RequestHead, Target};
use crate::policy::bulkhead::Permit;
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
    /// The length of the request, if it is whole in the buffer; a chunked one never counts as such.
    pub(super) whole: Option<usize>,
}

impl Arrival<'_, '_, '_> {
    /// The length of the request, if nothing of it is owed when toron answers by itself.
    fn nothing_owed(&self) -> Option<usize> {
        let chunked = || match self.request.facts.body {
            RequestBody::Chunked => chunked_length(self.input.get(self.head_len..)?),
            RequestBody::None | RequestBody::Length(_) => None,
        };
        self.whole
            .or_else(|| chunked().map(|body| self.head_len + body))
    }

    fn refusal(&self, answer: Answer) -> Refusal {
        Refusal {
            answer,
            whole: self.nothing_owed(),
            keep_alive: self.request.facts.keep_alive,
            client: self.request.facts.version,
            head_only: self.request.facts.method == Method::Head,
        }
    }

    pub(super) fn refuse(&self, answer: Answer) -> Verdict {
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

    /// For an answer in the scratch buffer that holds no slot.
    fn written(&self, keep_alive: bool) -> Verdict {
        Verdict::Written {
            whole: self.nothing_owed(),
            keep_alive,
            permit: None,
        }
    }

    fn rendering<'r>(&self, draining: bool, allow: &'r str) -> Rendering<'r> {
        Rendering {
            client: self.request.facts.version,
            head_only: self.request.facts.method == Method::Head,
            keep_alive: self.request.facts.keep_alive && self.nothing_owed().is_some() && !draining,
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
    /// A question to the admin API.
    Visit {
        /// Who asks what.
        visit: Box<Visit>,
        /// The client waits for a 100 before it sends its body.
        invited: bool,
    },
    /// The text of an answer has been written to the scratch buffer.
    Written {
        whole: Option<usize>,
        keep_alive: bool,
        /// The slot of the route that answers, until the answer has been sent.
        permit: Option<Permit>,
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
        if let Some(answer) = self.probe(session, snapshot, &arrival.request, arrival.path) {
            return arrival.refuse(answer);
        }
        match self.ask_firewall(session, &snapshot.settings) {
            None => self.judge(session, &arrival),
            Some(answer) => arrival.turn_away(answer, session),
        }
    }

    /// The checks between the firewall and the dial, in their order: built-in endpoints, route,
    /// chunked mode, declared length, bulkhead, target. No step after a refusal runs.
    fn judge(&mut self, session: &mut Session, arrival: &Arrival<'_, '_, '_>) -> Verdict {
        let Arrival {
            snapshot,
            request,
            path,
            ..
        } = *arrival;
        let draining = self.core.is_draining();
        if let Some(answered) = self.builtin(session, arrival) {
            return answered;
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
                return arrival.written(keep_alive);
            }
        };
        if let Some(answer) = check_body(&request.facts, route) {
            return arrival.refuse(answer);
        }
        let Some(permit) = snapshot.admit(route) else {
            return arrival.refuse(Answer::RouteFull);
        };
        self.take_on(session, arrival, route, permit)
    }

    /// A request that has passed all checks and holds its slot.
    fn take_on(
        &mut self,
        session: &mut Session,
        arrival: &Arrival<'_, '_, '_>,
        route: &Arc<Route>,
        permit: Permit,
    ) -> Verdict {
        match &route.kind {
            RouteKind::Respond(fixed) => {
                self.core.scratch.clear();
                let rendering = arrival.rendering(self.core.is_draining(), "");
                let keep_alive = fixed_answer(fixed).write(&rendering, &mut self.core.scratch);
                Verdict::Written {
                    whole: arrival.nothing_owed(),
                    keep_alive,
                    permit: Some(permit),
                }
            }
            RouteKind::Upstream(upstream) => {
                match self.prepare(session, arrival, route, upstream) {
                    Ok(Some((mut exchange, orders))) => {
                        exchange.permit = Some(permit);
                        Verdict::Proxy(exchange, orders)
                    }
                    // Judged again when there is a buffer: nothing is in flight until then.
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

/// The length of a chunked body with its framing, if all of it is there and well formed.
fn chunked_length(bytes: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::default();
    let mut trailers = Vec::new();
    let mut at = 0;
    loop {
        let step = decoder.feed(bytes.get(at..)?, &mut trailers);
        at += step.consumed;
        match step.event {
            Event::Data { .. } => {}
            Event::Done => return Some(at),
            Event::NeedMore | Event::Fault(_) => return None,
        }
    }
}

/// An unmatched request with a body follows the rule of I8.
pub(super) fn unrouted(settings: &Settings, facts: &RequestFacts) -> Answer {
    match facts.body {
        RequestBody::Length(n) if n > settings.max_body_bytes => Answer::DeclaredTooLarge,
        RequestBody::None | RequestBody::Length(_) | RequestBody::Chunked => Answer::NotFound,
    }
}

/// Chunked mode, declared length, expectation.
pub(super) fn check_body(facts: &RequestFacts, route: &Route) -> Option<Answer> {
    match facts.body {
        RequestBody::Chunked if route.limits.chunked_mode == ChunkedMode::Reject => {
            Some(Answer::ChunkedDisabled)
        }
        RequestBody::Length(n) if n > route.limits.max_body_bytes => Some(Answer::DeclaredTooLarge),
        _ if facts.expect == Expect::Other => Some(Answer::ExpectationFailed),
        RequestBody::None | RequestBody::Length(_) | RequestBody::Chunked => None,
    }
}
