//! What would become of a request, told without one: the checks between phase 1 and the dial, in
//! their order, by the functions that carry them out. What depends on what else goes on (rates,
//! slots, health) is left out.

use std::net::IpAddr;
use std::sync::Arc;

use super::admin::access;
use super::builtin::{is_internal, is_taken, only_reads, HEALTH, METRICS};
use super::collected::{intake, Intake};
use super::gate::client_of;
use super::judge::{check_body, unrouted};
use super::lookup::lookup;
use super::prepare::Forwarding;
use crate::http::forward::sane_request_id;
use crate::http::path::normalise;
use crate::http::{
    field_slots, request, Answer, HeadLimits, HeadScanner, Reason, RequestBody, RequestHead, Scan,
    Target, UpstreamFraming, MOST_FIELDS,
};
use crate::policy::explain::{consider, Considered};
use crate::policy::firewall::Mode;
use crate::policy::router::Lookup;
use crate::policy::settings::{Route, RouteKind, Settings, Upstream};
use crate::policy::snapshot::Snapshot;

/// What becomes of a request.
#[derive(Debug)]
pub enum Outcome<'s> {
    /// toron refuses it.
    Refused {
        /// With this.
        answer: Answer,
        /// Because of this.
        reason: Reason,
        /// The methods that would do, of a 405 by routes.
        allow: Option<String>,
    },
    /// One of the built-in endpoints answers.
    BuiltIn {
        /// With this, if it is always the same.
        answer: Option<Answer>,
    },
    /// The route answers by itself.
    Responds(&'s Arc<Route>),
    /// The route passes it on.
    Forwarded {
        /// Which.
        route: &'s Arc<Route>,
        /// The head that the first of its targets sees.
        head: Vec<u8>,
        /// The request id in it stands for one that is new for each request.
        is_new_id: bool,
        /// The length in it stands for that of a chunked body, which is collected.
        is_collected: bool,
    },
}

/// What can be said of a request.
#[derive(Debug)]
pub struct Judgement<'s> {
    /// Who sent it, as far as its fields are believed.
    pub client: IpAddr,
    /// Its authority, if it names one.
    pub host: Option<String>,
    /// Its path in the form that is matched, if it has one.
    pub path: Option<String>,
    /// All routes, in order of matching; none where it does not come to that.
    pub considered: Vec<Considered<'s>>,
    /// What becomes of it.
    pub outcome: Outcome<'s>,
}

fn refused<'s>(reason: Reason) -> Outcome<'s> {
    Outcome::Refused {
        answer: Answer::to(reason).unwrap_or(Answer::BadRequest),
        reason,
        allow: None,
    }
}

/// Judges the request with `head` (its final empty line included) on a connection from `peer`.
#[must_use]
pub fn explain<'s>(snapshot: &'s Snapshot, head: &[u8], peer: IpAddr) -> Judgement<'s> {
    let settings = &snapshot.settings;
    let unread = |outcome| Judgement {
        client: peer,
        host: None,
        path: None,
        considered: Vec::new(),
        outcome,
    };
    match HeadScanner::request().scan(head) {
        Scan::Complete { len, .. } if len <= settings.max_header_bytes => {}
        Scan::Complete { .. } | Scan::Incomplete => {
            return unread(refused(Reason::HeadTooLarge));
        }
        Scan::Bad(reason) => return unread(refused(reason)),
    }
    let mut slots = field_slots::<MOST_FIELDS>();
    let limits = HeadLimits {
        max_fields: settings.max_header_count,
    };
    match request::parse(head, &limits, &mut slots) {
        Ok(request) => judge(snapshot, &request, peer),
        Err(fault) => unread(refused(fault)),
    }
}

fn judge<'s>(snapshot: &'s Snapshot, request: &RequestHead<'_, '_>, peer: IpAddr) -> Judgement<'s> {
    let settings = &snapshot.settings;
    let client = client_of(peer, settings, request).address;
    let host = request.host.map(|host| lossy(host.as_bytes()));
    let mut judgement = Judgement {
        client,
        host,
        path: None,
        considered: Vec::new(),
        outcome: refused(Reason::NoRoute),
    };
    if request.target == Target::Asterisk {
        let answer = Some(Answer::Options);
        judgement.outcome = check_address(settings, client).unwrap_or(Outcome::BuiltIn { answer });
        return judgement;
    }
    let mut room = vec![0; request.path.len()];
    let path = match normalise(request.path, &mut room) {
        Ok(path) => path,
        Err(fault) => {
            judgement.outcome = refused(fault);
            return judgement;
        }
    };
    judgement.path = Some(lossy(path));
    if let Some(outcome) = built_in(snapshot, request, path, peer, client) {
        judgement.outcome = outcome;
        return judgement;
    }
    let host = request.host.map_or(&b""[..], |host| host.as_bytes());
    let field = |name: &str| request.field(name);
    judgement.considered = consider(&snapshot.table, host, path, request.method, field);
    judgement.outcome = route(snapshot, request, path, peer, client);
    judgement
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The deny list: all that the firewall knows of an address without having met it.
fn check_address<'s>(settings: &Settings, client: IpAddr) -> Option<Outcome<'s>> {
    let rules = &settings.firewall;
    let denies = rules.enabled && rules.mode == Mode::Enforce && rules.deny.contains(client);
    denies.then(|| refused(Reason::Denied))
}

fn built_in<'s>(
    snapshot: &'s Snapshot,
    request: &RequestHead<'_, '_>,
    path: &[u8],
    peer: IpAddr,
    client: IpAddr,
) -> Option<Outcome<'s>> {
    let settings = &snapshot.settings;
    if path == HEALTH && only_reads(request) && !is_taken(snapshot, request, path) {
        let answer = Some(Answer::Healthy);
        return Some(Outcome::BuiltIn { answer });
    }
    // Who may see the metrics does not pass the firewall.
    let scraped = metrics(snapshot, request, path, peer, client);
    let is_answered = match &scraped {
        Some(Outcome::Refused { reason, .. }) => *reason == Reason::MethodNotAllowed,
        scraped => scraped.is_some(),
    };
    if is_answered {
        return scraped;
    }
    if let Some(outcome) = check_address(settings, client).or(scraped) {
        return Some(outcome);
    }
    if !is_internal(path) {
        return None;
    }
    // This speaks of the traffic listener.
    Some(if settings.admin.listen.is_some() {
        refused(Reason::NoRoute)
    } else {
        match access::check(settings, request, peer, client) {
            Ok(()) => Outcome::BuiltIn { answer: None },
            Err(reason) => refused(reason),
        }
    })
}

fn metrics<'s>(
    snapshot: &'s Snapshot,
    request: &RequestHead<'_, '_>,
    path: &[u8],
    peer: IpAddr,
    client: IpAddr,
) -> Option<Outcome<'s>> {
    if path != METRICS || is_taken(snapshot, request, path) {
        return None;
    }
    let settings = &snapshot.settings;
    Some(if settings.admin.listen.is_some() {
        refused(Reason::NoRoute)
    } else {
        match access::check_subnet(settings, request, peer, client) {
            Ok(()) if only_reads(request) => Outcome::BuiltIn { answer: None },
            Ok(()) => Outcome::Refused {
                answer: Answer::MethodNotAllowed,
                reason: Reason::MethodNotAllowed,
                allow: Some("GET, HEAD".to_owned()),
            },
            Err(reason) => refused(reason),
        }
    })
}

fn route<'s>(
    snapshot: &'s Snapshot,
    request: &RequestHead<'_, '_>,
    path: &[u8],
    peer: IpAddr,
    client: IpAddr,
) -> Outcome<'s> {
    let settings = &snapshot.settings;
    let route = match lookup(snapshot, request, path) {
        Lookup::Route(route) => route,
        Lookup::NotFound => return refused(unrouted(settings, &request.facts).reason),
        Lookup::MethodNotAllowed { allow } => {
            return match unrouted(settings, &request.facts).reason {
                Reason::NoRoute => Outcome::Refused {
                    answer: Answer::MethodNotAllowed,
                    reason: Reason::MethodNotAllowed,
                    allow: Some(allow.to_string()),
                },
                reason => refused(reason),
            }
        }
    };
    if let Some(blame) = check_body(&request.facts, route) {
        return refused(blame.reason);
    }
    match &route.kind {
        RouteKind::Respond(_) => Outcome::Responds(route),
        RouteKind::Upstream(upstream) => {
            forward(settings, request, path, (peer, client), route, upstream)
        }
    }
}

fn forward<'s>(
    settings: &Settings,
    request: &RequestHead<'_, '_>,
    path: &[u8],
    (peer, client): (IpAddr, IpAddr),
    route: &'s Arc<Route>,
    upstream: &Upstream,
) -> Outcome<'s> {
    let body = request.facts.body;
    let intake = intake(body, &route.limits, false);
    let is_collected = intake == Intake::Whole && body == RequestBody::Chunked;
    let forwarding = Forwarding {
        settings,
        route,
        upstream,
        target: 0,
        peer,
        client,
        request_id: &[b'0'; 32],
        framing: match is_collected {
            true => UpstreamFraming::Collected(0),
            false => UpstreamFraming::AsReceived,
        },
        expect: intake == Intake::Stream,
    };
    let mut head = Vec::new();
    if !forwarding.write_to(request, path, &mut head) {
        return refused(Reason::ForwardedHeadTooLarge);
    }
    let trusted = settings.trusted_proxies.contains(peer);
    Outcome::Forwarded {
        route,
        head,
        is_new_id: sane_request_id(request, trusted).is_none(),
        is_collected,
    }
}
