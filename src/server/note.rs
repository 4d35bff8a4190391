//! What is noted of requests for operators: a line of the access log for each, and an entry in the
//! list of refusals for those that toron refused or cut off.

use std::net::IpAddr;

use toron_reactor::{Engine, Time};

use super::access_line::{Line, Times};
use super::blame::{Blame, Told};
use super::ledger::Refused;
use super::session::Session;
use super::state::{Exchange, Moments};
use super::Kit;
use crate::http::{Party, Reason};
use crate::proxy::window::Shortfall;

impl<E: Engine> Kit<'_, '_, E> {
    /// Adds to the list of refusals what `client` was refused outside a transaction.
    pub(super) fn note_refusal(&mut self, client: IpAddr, blame: &Blame, status: u16) {
        log::debug!("{client}: {status} {}", blame.reason);
        let now = self.now();
        let core = &mut *self.core;
        let snapshot = &core.snapshot;
        core.count_refusal(snapshot, blame.route, blame.reason);
        let route = blame.route.and_then(|at| snapshot.table.routes().get(at));
        let refused = Refused {
            at: core.wall.at(now),
            client,
            asked: &core.asked,
            route: route.map(AsRef::as_ref),
            reason: blame.reason,
            status,
            limit: blame.limit,
            observed: blame.observed,
            shortfall: None,
        };
        let ledger = &core.shared.ledger;
        ledger.add(core.reactor, &snapshot.settings, &refused);
    }

    /// The request under way does not end well: the first reason for that is the one that counts.
    /// What the client does to itself is no refusal.
    pub(super) fn note_cause(&mut self, session: &mut Session, reason: Reason) {
        let now = self.now();
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        if exchange.cause.is_some() {
            return;
        }
        exchange.cause = Some(reason);
        let (snapshot, route) = (&exchange.snapshot, exchange.route);
        self.core.count_refusal(snapshot, Some(route), reason);
        if reason.ended_by() == Party::Client {
            return;
        }
        let core = &mut *self.core;
        let refused = Refused {
            at: core.wall.at(now),
            client: session.client.address,
            asked: &exchange.asked,
            route: exchange.route().map(AsRef::as_ref),
            reason,
            status: exchange.status,
            limit: None,
            observed: observed(exchange, reason),
            shortfall: shortfall(exchange, Some(reason)),
        };
        let settings = &exchange.snapshot.settings;
        core.shared.ledger.add(core.reactor, settings, &refused);
    }

    /// Counts a request that ends outside a transaction and without an answer, adds it to the list of
    /// refusals unless that is the client's own doing, and logs it. What it asked for is at hand.
    pub(super) fn note_cut(&mut self, session: &Session, reason: Reason) {
        self.core.requests += 1;
        self.core.count_answer(None, 0);
        let client = session.client.address;
        match reason.ended_by() {
            Party::Client => self.core.count_refusal(&self.core.snapshot, None, reason),
            Party::Toron | Party::Upstream | Party::Firewall => {
                self.note_refusal(client, &reason.into(), 0);
            }
        }
        let told = Told {
            reason: Some(reason),
            ..Told::default()
        };
        self.log_answer(client, Some(session.since), &told);
    }

    /// One line for what toron answers without an upstream, or does not answer. The request, if it
    /// was understood, began at `since`.
    pub(super) fn log_answer(&mut self, client: IpAddr, since: Option<Time>, told: &Told) {
        if self.core.shared.access_log.is_none() {
            return;
        }
        let now = self.now();
        let core = &mut *self.core;
        let routes = core.snapshot.table.routes();
        let route = told.route.and_then(|at| routes.get(at));
        let line = Line {
            at: core.wall.at(now),
            client,
            asked: &core.asked,
            route: route.map(|route| route.name.as_str()),
            target: None,
            status: told.status,
            bytes_in: 0,
            bytes_out: told.bytes as u64,
            times: Times {
                header: since.map(|_| core.header_took),
                total: since.map(|since| now.since(since)),
                ..Times::default()
            },
            reason: told.reason,
            shortfall: None,
        };
        let format = core.snapshot.settings.logging.format;
        line.write(format, &mut core.log_lines);
    }

    /// One line for a request that has ended.
    pub(super) fn log_request(&mut self, session: &Session, exchange: &Exchange) {
        if self.core.shared.access_log.is_none() {
            return;
        }
        let now = self.now();
        let core = &mut *self.core;
        let route = exchange.route();
        let line = Line {
            at: core.wall.at(now),
            client: session.client.address,
            asked: &exchange.asked,
            route: route.map(|route| route.name.as_str()),
            // Before the first dial none was chosen for good.
            target: exchange
                .tried_target()
                .filter(|_| exchange.moments.dialled.is_some())
                .map(AsRef::as_ref),
            status: exchange.status,
            bytes_in: exchange.bytes_in,
            bytes_out: exchange.bytes_out,
            times: times(exchange.started, &exchange.moments, now),
            reason: exchange.cause,
            shortfall: shortfall(exchange, exchange.cause),
        };
        let format = core.snapshot.settings.logging.format;
        line.write(format, &mut core.log_lines);
    }
}

fn times(started: Time, moments: &Moments, now: Time) -> Times {
    let from_start = |at: Option<Time>| at.map(|at| at.since(started));
    let connect = |from: Time| Some(moments.connected?.since(from));
    Times {
        header: Some(moments.header),
        queue: from_start(moments.dialled),
        connect: moments.connecting.and_then(connect),
        first_byte: from_start(moments.answered),
        total: Some(moments.header + now.since(started)),
    }
}

/// What came in the window of the body that ended the exchange, if one did.
fn shortfall(exchange: &Exchange, cause: Option<Reason>) -> Option<Shortfall> {
    let short = exchange.transaction.shortfall();
    short.filter(|_| cause == Some(Reason::ReadTimeout))
}

/// What was observed where `reason` enforces a limit.
fn observed(exchange: &Exchange, reason: Reason) -> Option<u64> {
    match reason {
        Reason::BodyTooLarge | Reason::BufferMemory => Some(exchange.observed),
        Reason::ReadTimeout
        | Reason::MinBodyRate
        | Reason::BodyTimeout
        | Reason::WriteTimeout
        | Reason::HeaderDeadline
        | Reason::RequestDeadline
        | Reason::UpgradeIdleTimeout
        | Reason::ConnectTimeout
        | Reason::ResponseHeaderTimeout
        | Reason::UpstreamIdleTimeout => Some(exchange.transaction.observed()),
        _ => None,
    }
}
