//! Phase 1: from the first byte of a head to a transaction, or a refusal.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use toron_reactor::{Buf, Close, Engine, Op, Outcome};

use super::body::{Chunked, Source};
use super::builtin::{describe, fixed_answer, ip_text, write_json, Builtin};
use super::lane::Lane;
use super::lookup::lookup;
use super::session::{Phase, Session, Tag};
use super::state::{Download, Exchange, Upload};
use super::{Kit, Pinned};
use crate::http::answer::{Answer, Rendering};
use crate::http::forward::sane_request_id;
use crate::http::method::Method;
use crate::http::path::{normalise, strip_prefix};
use crate::http::request::{self, UpgradeAsked};
use crate::http::{
    field_slots, write_request_head, Expect, Forward, HeadLimits, HeadScanner, RequestBody,
    RequestFacts, RequestHead, Scan, Target, UpstreamFraming, Version,
};
use crate::policy::router::Lookup;
use crate::policy::settings::{self, ChunkedMode, Route, RouteKind, Settings, Upstream};
use crate::proxy::transaction::{ClientEnd, Facts, Limits, Orders, Transaction};

/// Most fields of a head that a configuration may allow.
pub const MOST_FIELDS: usize = 256;

/// The beginning of a head up to this length is kept as its own few bytes until more of it comes, so
/// that slow heads hold no buffers. It must fit into the headroom of the next receive's buffer.
const PARTIAL_MOST: usize = toron_reactor::buffer::HEADROOM;

/// Why a request goes no further, and what becomes of its connection.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    answer: Answer,
    /// Length of the request in the buffer, if it is whole there and its connection may go on.
    whole: Option<usize>,
    /// The client would go on with its connection.
    keep_alive: bool,
    client: Version,
    head_only: bool,
}

impl Refusal {
    /// The head could not be understood: whatever follows it is not understood either.
    fn unread(answer: Answer) -> Self {
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

/// A request that has been parsed, with what stands around it.
struct Arrival<'a, 'b, 'f> {
    snapshot: &'a Rc<Pinned>,
    request: RequestHead<'b, 'f>,
    head_len: usize,
    /// The normalised path.
    path: &'a [u8],
    /// The whole buffer, head included.
    input: &'a Buf,
    /// The length of the request, if it is whole in the buffer.
    whole: Option<usize>,
}

impl Arrival<'_, '_, '_> {
    fn refuse(&self, answer: Answer) -> Verdict {
        Verdict::Refuse(Refusal {
            answer,
            whole: self.whole,
            keep_alive: self.request.facts.keep_alive,
            client: self.request.facts.version,
            head_only: self.request.facts.method == Method::Head,
        })
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
enum Verdict {
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
    /// Bytes of a head have come.
    pub(crate) fn head_received(&mut self, session: &mut Session, outcome: Outcome) {
        match outcome {
            Outcome::Received { buf, .. } => {
                if session.phase == Phase::Idle {
                    session.phase = Phase::Head;
                    session.since = self.now();
                }
                session.input = Some(with_partial(session, buf));
                self.advance_head(session);
            }
            // It was cancelled for a request that has ended.
            Outcome::Cancelled { buf: None } => self.receive(session),
            // EOF in the middle of a head is closed without a response (I4).
            _ => self.close(session, Close::Orderly),
        }
    }

    /// Looks for the end of the head, and begins the request when it is there.
    pub(crate) fn advance_head(&mut self, session: &mut Session) {
        let Some(mut input) = session.input.take() else {
            return;
        };
        let most = self.core.snapshot.settings.max_header_bytes;
        self.core.described.clear();
        match session.scanner.scan(&input) {
            Scan::Incomplete if input.len() >= most || input.receivable() == 0 => {
                session.input = Some(input);
                self.refuse(session, Refusal::unread(Answer::HeadTooLarge));
            }
            Scan::Incomplete if session.eof => self.close(session, Close::Orderly),
            Scan::Incomplete => {
                if !session.scanner.started() {
                    // Empty lines only (I5): still idle.
                    session.phase = Phase::Idle;
                }
                if input.len() <= PARTIAL_MOST {
                    session.partial.extend_from_slice(&input);
                    return self.receive(session);
                }
                input.compact();
                let op = Op::RecvInto {
                    fd: session.fd,
                    buf: input,
                };
                session.recv = Some(self.submit(session, Lane::ClientRecv, op));
            }
            Scan::Complete { len, .. } if len > most => {
                session.input = Some(input);
                self.refuse(session, Refusal::unread(Answer::HeadTooLarge));
            }
            Scan::Complete { skip, len } => {
                input.consume(skip);
                self.begin_request(session, input, len);
            }
            Scan::Bad(reason) => {
                log::debug!("{}: bad head: {reason}", session.peer);
                session.input = Some(input);
                self.refuse(session, Refusal::unread(Answer::BadRequest));
            }
        }
    }

    /// The header deadline has passed (I3).
    pub(crate) fn head_too_slow(&mut self, session: &mut Session) {
        self.core.described.clear();
        if let Some(op) = session.recv {
            self.cx.engine.cancel(op);
        }
        self.refuse(session, Refusal::unread(Answer::RequestTimeout));
    }

    fn begin_request(&mut self, session: &mut Session, input: Buf, head_len: usize) {
        let snapshot = self.core.pin();
        let head = input.get(..head_len).unwrap_or_default();
        let mut slots = field_slots::<MOST_FIELDS>();
        let limits = HeadLimits {
            max_fields: snapshot.settings.max_header_count,
        };
        let mut room = std::mem::take(&mut self.core.path_room);
        room.resize(input.len().max(room.len()), 0);
        self.core.described.clear();
        let verdict = match request::parse(head, &limits, &mut slots) {
            Ok(request) => self.arrive(session, &snapshot, request, &input, head_len, &mut room),
            Err(fault) => {
                log::debug!("{}: refused: {}", session.peer, fault.reason);
                Verdict::Refuse(Refusal::unread(fault.answer))
            }
        };
        self.core.path_room = room;
        session.input = Some(input);
        match verdict {
            Verdict::Proxy(exchange, orders) => {
                self.begin_exchange(session, exchange, &orders);
            }
            // The scan is done again when there is a buffer.
            Verdict::Wait => {
                // The client is not the one that is slow.
                session.since = self.now();
                session.scanner = HeadScanner::request();
            }
            Verdict::Refuse(refusal) => self.refuse(session, refusal),
            Verdict::Written { whole, keep_alive } => {
                self.answer_written(session, whole, keep_alive);
            }
        }
    }

    fn arrive(
        &mut self,
        session: &mut Session,
        snapshot: &Rc<Pinned>,
        request: RequestHead<'_, '_>,
        input: &Buf,
        head_len: usize,
        room: &mut [u8],
    ) -> Verdict {
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
            return arrival.refuse(Answer::Options);
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
        self.judge(session, &arrival)
    }

    /// The checks between phase 1 and the dial, in their order: built-in endpoints, route, chunked
    /// mode, declared length, target. No step after a refusal runs.
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

    /// Makes the exchange: the target is chosen and the request for it written. `None` when there
    /// is no buffer for it; one is awaited.
    fn prepare(
        &mut self,
        session: &mut Session,
        arrival: &Arrival<'_, '_, '_>,
        route: &Arc<Route>,
        upstream: &Upstream,
    ) -> Result<Option<(Box<Exchange>, Orders)>, Answer> {
        let Arrival {
            snapshot,
            request,
            head_len,
            path,
            input,
            ..
        } = *arrival;
        let Some(mut buf) = self.take_buffer(session) else {
            return Ok(None);
        };
        let index = route.id as usize;
        let target = self
            .core
            .balancers
            .get_mut(index)
            .and_then(Option::as_mut)
            .and_then(|balancer| balancer.next(|_| true))
            .unwrap_or(0);
        let mut request_id = [0; 32];
        self.core.request_id.next(&mut request_id);
        let forwarding = Forwarding {
            settings: &snapshot.settings,
            route,
            upstream,
            target,
            peer: session.peer.ip(),
            request_id: &request_id,
        };
        if !forwarding.write(&request, path, &mut self.core.scratch, &mut buf) {
            return Err(Answer::HeadTooLarge);
        }
        let have = input.get(head_len..).unwrap_or_default();
        let (source, taken) = first_portion(&request.facts, have, &mut buf);
        let facts = Facts {
            idempotent: request.facts.method.is_idempotent(),
            outstanding: source.outstanding(),
            keep_alive: request.facts.keep_alive,
            upgrade: request.facts.upgrade == UpgradeAsked::Yes,
            expects_continue: request.facts.expect == Expect::Continue,
            takes_interim: request.facts.version == Version::Http11,
        };
        let limits = limits(&snapshot.settings, &route.limits, upstream);
        let (transaction, orders) = Transaction::begin(self.now(), facts, limits);
        let mut exchange = self.fresh_exchange(snapshot, transaction, request.facts);
        exchange.route = index;
        exchange.request_id = request_id;
        exchange.head_len = head_len;
        exchange.target = target;
        exchange.request = Some(buf);
        exchange.upload = Upload::new(source);
        exchange.bytes_in = taken as u64;
        exchange.host.clear();
        if let Some(host) = request.host {
            exchange.host.extend_from_slice(host.as_bytes());
        }
        session.request_len = head_len + taken;
        exchange.log.extend_from_slice(&self.core.described);
        Ok(Some((exchange, orders)))
    }

    fn fresh_exchange(
        &mut self,
        snapshot: &Rc<Pinned>,
        transaction: Transaction,
        facts: RequestFacts,
    ) -> Box<Exchange> {
        let started = self.now();
        let Some(mut exchange) = self.core.retired.pop() else {
            return Box::new(Exchange {
                transaction,
                snapshot: Rc::clone(snapshot),
                route: 0,
                facts,
                started,
                head_len: 0,
                kept: Vec::new(),
                request_id: [0; 32],
                target: 0,
                dials: 0,
                upstream: None,
                request: None,
                upstream_busy: false,
                upstream_touched: false,
                interim_seen: false,
                response: None,
                scanner: HeadScanner::response(),
                upload: Upload::default(),
                download: Download::default(),
                status: 0,
                bytes_in: 0,
                bytes_out: 0,
                host: Vec::new(),
                log: Vec::new(),
            });
        };
        exchange.transaction = transaction;
        exchange.snapshot = Rc::clone(snapshot);
        exchange.facts = facts;
        exchange.started = started;
        exchange.kept.clear();
        exchange.dials = 0;
        exchange.upstream_busy = false;
        exchange.upstream_touched = false;
        exchange.interim_seen = false;
        exchange.status = 0;
        exchange.bytes_in = 0;
        exchange.bytes_out = 0;
        exchange.log.clear();
        exchange
    }

    fn begin_exchange(&mut self, session: &mut Session, exchange: Box<Exchange>, orders: &Orders) {
        session.phase = Phase::Exchange;
        session.exchange = Some(exchange);
        self.core.exchanges += 1;
        self.carry_out(session, orders);
    }

    /// Writes the request for the present target anew, from what is kept of it. `false` when it
    /// must wait for a buffer, or cannot be done.
    pub(crate) fn rebuild_request(&mut self, session: &mut Session) -> bool {
        let Some(mut buf) = self.take_buffer(session) else {
            return false;
        };
        let Some(exchange) = session.exchange.as_deref_mut() else {
            return false;
        };
        let snapshot = Rc::clone(&exchange.snapshot);
        let kept = match session.input.as_deref() {
            Some(input) if exchange.kept.is_empty() => {
                input.get(..session.request_len).unwrap_or_default()
            }
            _ => exchange.kept.as_slice(),
        };
        let (head, body) = kept.split_at_checked(exchange.head_len).unwrap_or_default();
        let mut slots = field_slots::<MOST_FIELDS>();
        let limits = HeadLimits {
            max_fields: MOST_FIELDS,
        };
        let Ok(request) = request::parse(head, &limits, &mut slots) else {
            return false;
        };
        let mut room = std::mem::take(&mut self.core.path_room);
        room.resize(head.len().max(room.len()), 0);
        let fits = match (
            normalise(request.path, &mut room),
            snapshot.table.routes().get(exchange.route),
        ) {
            (Ok(path), Some(route)) => match &route.kind {
                RouteKind::Upstream(upstream) => Forwarding {
                    settings: &snapshot.settings,
                    route,
                    upstream,
                    target: exchange.target,
                    peer: session.peer.ip(),
                    request_id: &exchange.request_id,
                }
                .write(&request, path, &mut self.core.scratch, &mut buf),
                RouteKind::Respond(_) => false,
            },
            _ => false,
        };
        self.core.path_room = room;
        let fits = fits && buf.extend(body) == body.len();
        if fits {
            exchange.request = Some(buf);
        }
        fits
    }

    // ---- refusals ----

    fn refuse(&mut self, session: &mut Session, refusal: Refusal) {
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

    /// Sends the answer in the scratch buffer.
    fn answer_written(&mut self, session: &mut Session, whole: Option<usize>, keep_alive: bool) {
        session.request_len = whole.unwrap_or(0);
        let then = match whole {
            Some(_) if keep_alive => ClientEnd::Keep,
            Some(_) => ClientEnd::Close,
            None => ClientEnd::Linger,
        };
        self.send_answer(session, then);
    }

    fn send_answer(&mut self, session: &mut Session, then: ClientEnd) {
        session.phase = Phase::Answering { then };
        session.since = self.now();
        session.served = session.served.saturating_add(1);
        self.core.requests += 1;
        if then != ClientEnd::Keep {
            // Nothing of it is wanted any more, and the answer may need a buffer.
            session.input = None;
            session.request_len = 0;
        }
        self.log_answer(session);
        let text = std::mem::take(&mut self.core.scratch);
        self.send_text(session, &text, Tag::Answer);
        self.core.scratch = text;
    }
}

/// Puts what is kept of the head in front of what has come.
fn with_partial(session: &mut Session, mut buf: Buf) -> Buf {
    let partial = std::mem::take(&mut session.partial);
    // An empty buffer's headroom takes it, as its length is limited to that.
    let fits = buf.replace_front(0, &partial);
    debug_assert!(fits, "the beginning of a head outgrew the headroom");
    buf
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

/// Appends the body bytes that came with the head, as far as they can be sent on as they are, and
/// returns what is left of the body and how many bytes were taken.
fn first_portion(facts: &RequestFacts, have: &[u8], buf: &mut Buf) -> (Source, usize) {
    match facts.body {
        RequestBody::None => (Source::None, 0),
        RequestBody::Length(n) => {
            let wanted = usize::try_from(n).unwrap_or(usize::MAX).min(have.len());
            let taken = buf.extend(have.get(..wanted).unwrap_or_default());
            (Source::Length(n - taken as u64), taken)
        }
        RequestBody::Chunked => (Source::Chunked(Chunked::default()), 0),
    }
}

fn limits(settings: &Settings, route: &settings::Limits, upstream: &Upstream) -> Limits {
    let alternatives = match upstream.targets.as_slice() {
        [only] => only.endpoint.addresses().len(),
        several => several.len(),
    };
    let retries = (upstream.retries as usize).min(alternatives.saturating_sub(1));
    Limits {
        connect_timeout: settings.connect_timeout,
        read_timeout: route.read_timeout,
        min_progress_bytes: route.min_progress_bytes,
        write_timeout: route.write_timeout,
        response_header_timeout: route.response_header_timeout,
        upstream_idle_timeout: route.upstream_idle_timeout,
        upgrade_idle_timeout: route.upgrade_idle_timeout,
        header_deadline: route.header_deadline.unwrap_or_default(),
        request_deadline: route.request_deadline.unwrap_or_default(),
        retries: u8::try_from(retries).unwrap_or(u8::MAX),
    }
}

/// What a forwarded head depends on.
struct Forwarding<'a> {
    settings: &'a Settings,
    route: &'a Route,
    upstream: &'a Upstream,
    target: usize,
    peer: IpAddr,
    request_id: &'a [u8; 32],
}

impl Forwarding<'_> {
    /// Writes the head into `buf`. `false` if it does not fit.
    fn write(
        &self,
        request: &RequestHead<'_, '_>,
        path: &[u8],
        out: &mut Vec<u8>,
        buf: &mut Buf,
    ) -> bool {
        let Some(target) = self.upstream.targets.get(self.target) else {
            return false;
        };
        let stripped = self.stripped(path);
        let trusted = self
            .settings
            .trusted_proxies
            .iter()
            .any(|cidr| cidr.contains(self.peer));
        let mut ip = [0; 48];
        let ip = ip_text(self.peer, &mut ip);
        let forward = Forward {
            path: stripped.unwrap_or(path),
            stripped: stripped.map(|_| self.route.prefix.as_bytes()),
            target_path: target.path.as_bytes(),
            target_authority: target.authority.as_bytes(),
            preserve_host: self.upstream.preserve_host,
            trusted,
            peer_ip: ip,
            client_ip: ip,
            scheme: b"http",
            request_id: sane_request_id(request, trusted).unwrap_or(self.request_id),
            via: self.settings.via,
            expect: true,
            keep_alive: true,
            framing: UpstreamFraming::AsReceived,
        };
        out.clear();
        write_request_head(request, &forward, out);
        buf.extend(out) == out.len()
    }

    fn stripped<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        if !self.upstream.strip_prefix || self.route.prefix == "/" {
            return None;
        }
        strip_prefix(path, self.route.prefix.as_bytes())
    }
}
