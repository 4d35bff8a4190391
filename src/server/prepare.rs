//! From a judged request to an exchange: the target is chosen, and the request for it written.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use toron_reactor::{Buf, Engine};

use super::blame::Blame;
use super::body::{Chunked, Source};
use super::collected::{intake, Collected, Intake};
use super::judge::Arrival;
use super::session::{Phase, Session};
use super::splice::SPLICE_MIN;
use super::state::{Exchange, Moments, Upload};
use super::target::blame_of;
use super::{Kit, Pinned};
use crate::http::client_address::ip_text;
use crate::http::forward::sane_request_id;
use crate::http::path::{normalise, strip_prefix};
use crate::http::request::{self, UpgradeAsked};
use crate::http::{
    field_slots, write_request_head, Expect, Forward, HeadLimits, Reason, RequestBody,
    RequestFacts, RequestHead, UpstreamFraming, Version, MOST_FIELDS,
};
use crate::policy::pool::Tried;
use crate::policy::settings::{self, HalfClose, Route, RouteKind, Settings, Upstream};
use crate::proxy::transaction::{Facts, Limits, Orders, Transaction};

/// What became of a request that was to be written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rebuilt {
    /// It is there.
    Written,
    /// There is no buffer for it; one is awaited.
    Waits,
    /// What was kept of it does not fit for the target.
    DoesNotFit,
}

impl<E: Engine> Kit<'_, '_, E> {
    /// Makes the exchange: the target is chosen and the request for it written. `None` when there
    /// is no buffer for it; one is awaited.
    pub(super) fn prepare(
        &mut self,
        session: &mut Session,
        arrival: &Arrival<'_, '_, '_>,
        route: &Arc<Route>,
        upstream: &Upstream,
    ) -> Result<Option<(Box<Exchange>, Orders)>, Blame> {
        let Arrival {
            snapshot,
            request,
            head_len,
            path,
            input,
            whole,
        } = *arrival;
        let intake = intake(request.facts.body, &route.limits, whole.is_some());
        if intake != Intake::Stream {
            return self.prepare_to_collect(session, arrival, route, upstream, intake);
        }
        let Some(mut buf) = self.take_buffer(session) else {
            return Ok(None);
        };
        let (target, lease) = self
            .choose_target(
                snapshot,
                route.id as usize,
                upstream,
                session.client.address,
                &Tried::none(),
            )
            .map_err(blame_of)?;
        let mut request_id = [0; 32];
        self.core.request_id.next(&mut request_id);
        let forwarding = Forwarding {
            settings: &snapshot.settings,
            route,
            upstream,
            target,
            peer: session.peer,
            client: session.client.address,
            request_id: &request_id,
            framing: UpstreamFraming::AsReceived,
            expect: true,
        };
        if !forwarding.write(&request, path, &mut self.core.scratch, &mut buf) {
            return Err(Reason::ForwardedHeadTooLarge.into());
        }
        let have = input.get(head_len..).unwrap_or_default();
        let (source, taken) = first_portion(&request.facts, have, &mut buf);
        let facts = facts(&request.facts, source.outstanding(), false);
        let (mut exchange, orders) = self.begin(arrival, route, upstream, facts);
        exchange.request_id = request_id;
        exchange.target = target;
        exchange.lease = Some(lease);
        exchange.request = Some(buf);
        exchange.upload = Upload::new(source);
        exchange.bytes_in = taken as u64;
        session.request_len = head_len + taken;
        Ok(Some((exchange, orders)))
    }

    /// Makes the exchange of a request whose body is collected first.
    fn prepare_to_collect(
        &mut self,
        session: &mut Session,
        arrival: &Arrival<'_, '_, '_>,
        route: &Arc<Route>,
        upstream: &Upstream,
        intake: Intake,
    ) -> Result<Option<(Box<Exchange>, Orders)>, Blame> {
        let request = arrival.request.facts;
        let client = session.client.address;
        self.check_targets(arrival.snapshot, route.id as usize, upstream, client)
            .map_err(blame_of)?;
        let (collected, source) = match request.body {
            RequestBody::Length(n) => {
                let limit = arrival.snapshot.settings.buffer_memory;
                let memory = &self.core.shared.memory;
                if !memory.has_room(n, limit) {
                    let wanted = memory.used().saturating_add(n);
                    return Err(Blame::with(Reason::BufferMemory, wanted));
                }
                (Collected::with_length(n), Source::Length(n))
            }
            RequestBody::None | RequestBody::Chunked => {
                let collected = Collected::in_room(self.room(), intake);
                (collected, Source::Chunked(Chunked::default()))
            }
        };
        let facts = facts(&request, source.outstanding(), true);
        let (mut exchange, orders) = self.begin(arrival, route, upstream, facts);
        self.core.request_id.next(&mut exchange.request_id);
        let head = arrival.input.get(..arrival.head_len).unwrap_or_default();
        exchange.kept.extend_from_slice(head);
        exchange.collected = Some(collected);
        exchange.upload = Upload::new(source);
        session.request_len = arrival.head_len;
        Ok(Some((exchange, orders)))
    }

    fn begin(
        &mut self,
        arrival: &Arrival<'_, '_, '_>,
        route: &Arc<Route>,
        upstream: &Upstream,
        facts: Facts,
    ) -> (Box<Exchange>, Orders) {
        let Arrival {
            snapshot,
            request,
            head_len,
            ..
        } = *arrival;
        if request.underscores > 0 {
            self.core.cells.underscores.add(request.underscores.into());
        }
        let limits = limits(&snapshot.settings, &route.limits, upstream);
        let (transaction, orders) = Transaction::begin(self.now(), facts, limits);
        let mut exchange = self.fresh_exchange(snapshot, transaction, request.facts);
        exchange.route = route.id as usize;
        exchange.head_len = head_len;
        exchange.host.clear();
        if let Some(host) = request.host {
            exchange.host.extend_from_slice(host.as_bytes());
        }
        exchange.protocols.clear();
        if facts.upgrade {
            request.push_protocols(&mut exchange.protocols);
        }
        exchange.asked.copy(&self.core.asked);
        exchange.moments = Moments {
            header: self.core.header_took,
            ..Moments::default()
        };
        (exchange, orders)
    }

    /// An exchange that has ended, if there is one, else a new one.
    fn fresh_exchange(
        &mut self,
        snapshot: &Rc<Pinned>,
        transaction: Transaction,
        facts: RequestFacts,
    ) -> Box<Exchange> {
        let started = self.now();
        let Some(mut exchange) = self.core.retired.pop() else {
            return Exchange::begun(transaction, snapshot, facts, started);
        };
        exchange.begin_again(transaction, snapshot, facts, started);
        exchange
    }

    pub(super) fn begin_exchange(
        &mut self,
        session: &mut Session,
        exchange: Box<Exchange>,
        orders: &Orders,
    ) {
        session.phase = Phase::Exchange;
        session.exchange = Some(exchange);
        self.core.exchanges += 1;
        self.core.cells.received.add(1);
        self.carry_out(session, orders);
    }

    /// Writes the request for the present target anew, from what is kept of it.
    pub(super) fn rebuild_request(&mut self, session: &mut Session) -> Rebuilt {
        let Some(mut buf) = self.take_buffer(session) else {
            return Rebuilt::Waits;
        };
        let Some(exchange) = session.exchange.as_deref_mut() else {
            return Rebuilt::DoesNotFit;
        };
        let snapshot = Rc::clone(&exchange.snapshot);
        let kept = match session.input.as_deref() {
            Some(input) if exchange.kept.is_empty() => {
                input.get(..session.request_len).unwrap_or_default()
            }
            _ => exchange.kept.as_slice(),
        };
        let (head, body) = kept.split_at_checked(exchange.head_len).unwrap_or_default();
        let collected = exchange.collected.as_ref();
        let mut slots = field_slots::<MOST_FIELDS>();
        let limits = HeadLimits {
            max_fields: MOST_FIELDS,
        };
        let Ok(request) = request::parse(head, &limits, &mut slots) else {
            return Rebuilt::DoesNotFit;
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
                    peer: session.peer,
                    client: session.client.address,
                    request_id: &exchange.request_id,
                    framing: collected.map_or(UpstreamFraming::AsReceived, Collected::framing),
                    expect: collected.is_none(),
                }
                .write(&request, path, &mut self.core.scratch, &mut buf),
                RouteKind::Respond(_) => false,
            },
            _ => false,
        };
        self.core.path_room = room;
        if !fits || buf.extend(body) < body.len() {
            return Rebuilt::DoesNotFit;
        }
        if let Some(collected) = exchange.collected.as_mut() {
            collected.rewind();
            collected.fill(&mut buf);
        }
        exchange.request = Some(buf);
        Rebuilt::Written
    }
}

/// Appends the body bytes that came with the head, as far as they can be sent on as they are, and
/// returns what is left of the body and how many bytes were taken.
fn first_portion(facts: &RequestFacts, have: &[u8], buf: &mut Buf) -> (Source, usize) {
    match facts.body {
        RequestBody::None => (Source::None, 0),
        // It is streamed: what has come stays where it is until the head is sent, so that an upload
        // takes one buffer and not two (64 uploads at once took 7 MiB so, 4 MiB like this).
        RequestBody::Length(n) if n > SPLICE_MIN => (Source::Length(n), 0),
        RequestBody::Length(n) => {
            let wanted = usize::try_from(n).unwrap_or(usize::MAX).min(have.len());
            let taken = buf.extend(have.get(..wanted).unwrap_or_default());
            (Source::Length(n - taken as u64), taken)
        }
        RequestBody::Chunked => (Source::Chunked(Chunked::default()), 0),
    }
}

fn facts(request: &RequestFacts, outstanding: u64, collect: bool) -> Facts {
    Facts {
        idempotent: request.method.is_idempotent(),
        outstanding,
        collect,
        keep_alive: request.keep_alive,
        upgrade: request.upgrade == UpgradeAsked::Yes,
        expects_continue: request.expect == Expect::Continue,
        takes_interim: request.version == Version::Http11,
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
        min_body_rate: route.min_body_rate,
        body_timeout: route.body_timeout.unwrap_or_default(),
        write_timeout: route.write_timeout,
        response_header_timeout: route.response_header_timeout,
        upstream_idle_timeout: route.upstream_idle_timeout,
        upgrade_idle_timeout: route.upgrade_idle_timeout,
        header_deadline: route.header_deadline.unwrap_or_default(),
        request_deadline: route.request_deadline.unwrap_or_default(),
        deadline_covers_upgrades: route.request_deadline_covers_upgrades,
        half_close_aborts: route.client_half_close == HalfClose::Abort,
        retries: u8::try_from(retries).unwrap_or(u8::MAX),
    }
}

/// What a forwarded head depends on.
pub(super) struct Forwarding<'a> {
    pub(super) settings: &'a Settings,
    pub(super) route: &'a Route,
    pub(super) upstream: &'a Upstream,
    pub(super) target: usize,
    pub(super) peer: IpAddr,
    pub(super) client: IpAddr,
    pub(super) request_id: &'a [u8; 32],
    pub(super) framing: UpstreamFraming,
    /// An expectation goes along.
    pub(super) expect: bool,
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
        self.write_to(request, path, out) && buf.extend(out) == out.len()
    }

    /// Writes the head in place of what is in `out`. `false` if there is no such target.
    pub(super) fn write_to(
        &self,
        request: &RequestHead<'_, '_>,
        path: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(target) = self.upstream.targets.get(self.target) else {
            return false;
        };
        let stripped = self.stripped(path);
        let trusted = self.settings.trusted_proxies.contains(self.peer);
        let (mut peer, mut client) = ([0; 48], [0; 48]);
        let forward = Forward {
            path: stripped.unwrap_or(path),
            stripped: stripped.map(|_| self.route.prefix.as_bytes()),
            target_path: target.path.as_bytes(),
            target_authority: target.authority.as_bytes(),
            preserve_host: self.upstream.preserve_host,
            trusted,
            peer_ip: ip_text(self.peer, &mut peer),
            client_ip: ip_text(self.client, &mut client),
            scheme: b"http",
            request_id: sane_request_id(request, trusted).unwrap_or(self.request_id),
            via: self.settings.via,
            expect: self.expect,
            keep_alive: true,
            framing: self.framing,
        };
        out.clear();
        write_request_head(request, &forward, out);
        true
    }

    fn stripped<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        if !self.upstream.strip_prefix || self.route.prefix == "/" {
            return None;
        }
        strip_prefix(path, self.route.prefix.as_bytes())
    }
}
