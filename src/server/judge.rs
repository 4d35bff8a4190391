//! Between phase 1 and the dial: what may go on, and what is refused.

use std::rc::Rc;
use std::sync::Arc;

use toron_reactor::{Buf, Engine};

use super::admin::visit::Visit;
use super::blame::{Blame, Told};
use super::builtin::fixed_answer;
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
use crate::http::{Expect, Reason, RequestBody, RequestFacts, RequestHead, Target};
use crate::policy::bulkhead::Permit;
use crate::policy::firewall::Cause;
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
    pub(super) fn nothing_owed(&self) -> Option<usize> {
        let chunked = || match self.request.facts.body {
            RequestBody::Chunked => chunked_length(self.input.get(self.head_len..)?),
            RequestBody::None | RequestBody::Length(_) => None,
        };
        self.whole
            .or_else(|| chunked().map(|body| self.head_len + body))
    }

    fn reply(&self, answer: Answer) -> Refusal {
        Refusal {
            answer,
            blame: None,
            allow: String::new(),
            whole: self.nothing_owed(),
            keep_alive: self.request.facts.keep_alive,
            client: self.request.facts.version,
            head_only: self.request.facts.method == Method::Head,
        }
    }

    pub(super) fn refuse(&self, blame: impl Into<Blame>) -> Verdict {
        let blame = blame.into();
        let mut refusal = self.reply(Answer::to(blame.reason).unwrap_or(Answer::BadRequest));
        refusal.blame = Some(blame);
        Verdict::Answer(refusal)
    }

    /// The methods that there are instead are `allow`.
    pub(super) fn refuse_method(&self, allow: &str) -> Verdict {
        let mut refusal = self.reply(Answer::MethodNotAllowed);
        refusal.allow = allow.to_owned();
        refusal.blame = Some(Reason::MethodNotAllowed.into());
        Verdict::Answer(refusal)
    }

    /// By the firewall: a 403 ends the connection, whatever else has been sent on it, unless it is a
    /// trusted proxy's, which others share.
    fn turn_away(&self, cause: &Cause, session: &Session) -> Verdict {
        let answer = cause.answer();
        let mut refusal = self.reply(answer);
        refusal.blame = Some(cause.into());
        let proxies = &self.snapshot.settings.trusted_proxies;
        if answer.status() == 403 && !proxies.contains(session.peer) {
            refusal.whole = None;
        }
        Verdict::Answer(refusal)
    }

    pub(super) fn rendering<'r>(&self, draining: bool, date: &'r [u8]) -> Rendering<'r> {
        Rendering {
            client: self.request.facts.version,
            head_only: self.request.facts.method == Method::Head,
            keep_alive: self.request.facts.keep_alive && self.nothing_owed().is_some() && !draining,
            allow: "",
            date,
            explain: None,
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
    Answer(Refusal),
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
        /// What it is, for the log.
        told: Told,
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
        session.client = client_of(session.peer, &snapshot.settings, &request);
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
            self.core.asked.take(&arrival.request, b"*");
            return match self.ask_firewall(session, &snapshot.settings) {
                None => Verdict::Answer(arrival.reply(Answer::Options)),
                Some(cause) => arrival.turn_away(&cause, session),
            };
        }
        match normalise(request.path, room) {
            Ok(path) => {
                arrival.path = path;
                self.core.asked.take(&arrival.request, path);
            }
            Err(fault) => {
                self.core.asked.take(&arrival.request, request.path);
                return arrival.refuse(fault);
            }
        }
        if let Some(answer) = self.probe(session, snapshot, &arrival.request, arrival.path) {
            return Verdict::Answer(arrival.reply(answer));
        }
        let metrics = self.asks_for_metrics(session, &arrival);
        if metrics == Some(Ok(())) {
            return self.expose(session, &arrival);
        }
        match self.ask_firewall(session, &snapshot.settings) {
            None => match metrics {
                Some(Err(reason)) => arrival.refuse(reason),
                Some(Ok(())) | None => self.judge(session, &arrival),
            },
            Some(cause) => arrival.turn_away(&cause, session),
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
        if let Some(answered) = self.judge_visit(session, arrival) {
            return answered;
        }
        let route = match lookup(snapshot, &request, path) {
            Lookup::Route(route) => route,
            Lookup::NotFound => {
                return arrival.refuse(unrouted(&snapshot.settings, &request.facts))
            }
            Lookup::MethodNotAllowed { allow } => {
                let blame = unrouted(&snapshot.settings, &request.facts);
                if blame.reason != Reason::NoRoute {
                    return arrival.refuse(blame);
                }
                let allow: Vec<&str> = allow.iter().collect();
                return arrival.refuse_method(&allow.join(", "));
            }
        };
        if let Some(blame) = check_body(&request.facts, route) {
            return arrival.refuse(blame.on(route));
        }
        let Some(permit) = snapshot.admit(route) else {
            let in_flight = snapshot.in_flight_of(route).saturating_add(1);
            let blame = Blame::with(Reason::RouteFull, u64::from(in_flight));
            return arrival.refuse(blame.on(route));
        };
        self.take_on(session, arrival, route, permit)
    }

    /// What is in the scratch buffer.
    pub(super) fn written(&self, status: u16, route: Option<usize>) -> Told {
        Told {
            status,
            route,
            reason: None,
            bytes: self.core.scratch.len(),
        }
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
                let date = self.core.date(self.cx.now);
                let rendering = arrival.rendering(self.core.is_draining(), &date);
                let keep_alive = fixed_answer(fixed).write(&rendering, &mut self.core.scratch);
                Verdict::Written {
                    whole: arrival.nothing_owed(),
                    keep_alive,
                    told: self.written(fixed.status, Some(route.id as usize)),
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
                    Err(blame) => arrival.refuse(blame.on(route)),
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
pub(super) fn unrouted(settings: &Settings, facts: &RequestFacts) -> Blame {
    match facts.body {
        RequestBody::Length(n) if n > settings.max_body_bytes => {
            Blame::with(Reason::DeclaredTooLarge, n)
        }
        RequestBody::None | RequestBody::Length(_) | RequestBody::Chunked => Reason::NoRoute.into(),
    }
}

/// Chunked mode, declared length, expectation.
pub(super) fn check_body(facts: &RequestFacts, route: &Route) -> Option<Blame> {
    match facts.body {
        RequestBody::Chunked if route.limits.chunked_mode == ChunkedMode::Reject => {
            Some(Reason::ChunkedDisabled.into())
        }
        RequestBody::Length(n) if n > route.limits.max_body_bytes => {
            Some(Blame::with(Reason::DeclaredTooLarge, n))
        }
        _ if facts.expect == Expect::Other => Some(Reason::UnknownExpectation.into()),
        RequestBody::None | RequestBody::Length(_) | RequestBody::Chunked => None,
    }
}
