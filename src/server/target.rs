//! Which target a request goes to, and what is learned about the target from it (R18 to R21).

use std::net::IpAddr;

use toron_reactor::Engine;

use super::blame::Blame;
use super::session::Session;
use super::state::Exchange;
use super::{Kit, Pinned};
use crate::http::Reason;
use crate::policy::pool::{Call, Change, Lease, Tried, Unavailable};
use crate::policy::settings::{Health, Upstream};
use crate::proxy::transaction::ConnectFailure;

/// Why a request that finds no target is refused.
pub(super) fn blame_of(why: Unavailable) -> Blame {
    match why {
        Unavailable::Full => Blame::from(Reason::TargetsFull),
        Unavailable::Unhealthy => Blame::from(Reason::TargetsUnhealthy),
    }
}

/// The same for the transaction.
fn failure_of(why: Unavailable) -> ConnectFailure {
    match why {
        Unavailable::Full => ConnectFailure::TargetsFull,
        Unavailable::Unhealthy => ConnectFailure::TargetsUnhealthy,
    }
}

impl<E: Engine> Kit<'_, '_, E> {
    /// A place at a target of a route for a request of `client`.
    pub(super) fn choose_target(
        &mut self,
        snapshot: &Pinned,
        route: usize,
        upstream: &Upstream,
        client: IpAddr,
        tried: &Tried,
    ) -> Result<(usize, Lease), Unavailable> {
        let pool = snapshot.pool(route).ok_or(Unavailable::Unhealthy)?;
        let now = self.now();
        let balancer = self.core.balancers.of(pool, upstream);
        pool.take(balancer, upstream, &Call { client, now, tried })
    }

    /// Whether a request of a route would find a target now: its body need not be collected else.
    pub(super) fn check_targets(
        &self,
        snapshot: &Pinned,
        route: usize,
        upstream: &Upstream,
        client: IpAddr,
    ) -> Result<(), Unavailable> {
        let pool = snapshot.pool(route).ok_or(Unavailable::Unhealthy)?;
        let (now, tried) = (self.now(), &Tried::none());
        pool.check(upstream, &Call { client, now, tried })
    }

    /// The target for a request that has none yet.
    pub(super) fn first_target(
        &mut self,
        session: &mut Session,
        upstream: &Upstream,
    ) -> Result<(), ConnectFailure> {
        let Some(exchange) = session.exchange.as_mut() else {
            return Ok(());
        };
        if exchange.lease.is_some() {
            return Ok(());
        }
        let client = session.client.address;
        let (snapshot, route, tried) = place_of(exchange);
        let chosen = self.choose_target(&snapshot, route, upstream, client, &tried);
        let (target, lease) = chosen.map_err(failure_of)?;
        exchange.target = target;
        exchange.lease = Some(lease);
        Ok(())
    }

    /// Turns to a target that has not been tried, or to the next address of the only one. `false` if
    /// there is none.
    pub(super) fn next_target(&mut self, session: &mut Session, upstream: &Upstream) -> bool {
        let Some(exchange) = session.exchange.as_mut() else {
            return false;
        };
        if upstream.targets.len() == 1 {
            let only = upstream.targets.first();
            let addresses = only.map_or(0, |target| target.endpoint.addresses().len());
            return exchange.dials < addresses;
        }
        if !exchange.tried.add(exchange.target) {
            return false;
        }
        let client = session.client.address;
        let (snapshot, route, tried) = place_of(exchange);
        let chosen = self.choose_target(&snapshot, route, upstream, client, &tried);
        let Ok((target, lease)) = chosen else {
            return false;
        };
        exchange.target = target;
        exchange.lease = Some(lease);
        exchange.dials = 0;
        // Path and Host may differ from target to target.
        exchange.request = None;
        true
    }

    /// The target has failed the request.
    pub(super) fn blame(&mut self, session: &mut Session) {
        let now = self.now();
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let (snapshot, route, _) = place_of(exchange);
        let (Some(upstream), Some(pool)) = (upstream_of(&snapshot, route), snapshot.pool(route))
        else {
            return;
        };
        let Some(lease) = exchange.lease.as_mut() else {
            return;
        };
        let change = pool.failed(exchange.target, lease, &upstream.health, now);
        tell(exchange, upstream, change);
    }

    /// The target has answered with this status.
    pub(super) fn answered(&mut self, session: &mut Session, status: u16) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let snapshot = std::rc::Rc::clone(&exchange.snapshot);
        let Some(upstream) = upstream_of(&snapshot, exchange.route) else {
            return;
        };
        if upstream.health.passive_statuses.contains(&status) {
            return self.blame(session);
        }
        let Some(lease) = exchange.lease.as_mut() else {
            return;
        };
        let change = lease.succeeded(&upstream.health);
        tell(exchange, upstream, change);
    }
}

fn place_of(exchange: &Exchange) -> (std::rc::Rc<Pinned>, usize, Tried) {
    let snapshot = std::rc::Rc::clone(&exchange.snapshot);
    (snapshot, exchange.route, exchange.tried)
}

/// What the route says about its targets.
pub(super) fn upstream_of(snapshot: &Pinned, route: usize) -> Option<&Upstream> {
    snapshot.table.routes().get(route)?.upstream()
}

/// Tells the operator what has become of the request's target. So seldom that no line is left out:
/// a target goes once in its cooldown.
fn tell(exchange: &Exchange, upstream: &Upstream, change: Option<Change>) {
    let Some(change) = change else { return };
    let route = exchange.route().map_or("", |route| route.name.as_str());
    if let Some(target) = upstream.targets.get(exchange.target) {
        tell_change(change, route, &target.url(), &upstream.health);
    }
}

/// Tells the operator what has become of a target.
pub fn tell_change(change: Change, route: &str, url: &str, health: &Health) {
    let next = if health.is_probed() {
        "until a probe succeeds".to_owned()
    } else {
        let after = humantime::format_duration(health.cooldown_period);
        format!("a request tries it again in {after}")
    };
    match change {
        Change::Out(n) => {
            log::warn!("route {route}: target {url} is out, failures in a row: {n}; {next}");
        }
        Change::StillOut => log::info!("route {route}: target {url} is still out; {next}"),
        Change::Up => log::info!("route {route}: target {url} is up again"),
    }
}
