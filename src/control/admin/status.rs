//! `GET /internal/api/status`: what this process is and holds.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::{json, Fault, Office};
use crate::server::admin::desk::{Question, Reply};

#[derive(Serialize)]
struct Status<'a> {
    version: &'static str,
    engine: &'static str,
    uptime_seconds: u64,
    draining: bool,
    reactors: usize,
    active_reactors: u64,
    sessions: u64,
    exchanges: u64,
    requests: u64,
    firewall_refused: u64,
    firewall_observed: u64,
    firewall_connections: u32,
    firewall_addresses: usize,
    firewall_evicted: u64,
    firewall_untracked: u64,
    upstream_connections: u64,
    upstream_idle: u64,
    operations: u64,
    sockets: u64,
    buffers: u64,
    pipes: u64,
    turns: u64,
    system_calls: u64,
    routes_in_all: usize,
    /// Those with a cap, or with requests in flight.
    routes: Vec<Slots<'a>>,
}

#[derive(Serialize)]
struct Slots<'a> {
    route: &'a str,
    in_flight: u32,
    cap: Option<u32>,
}

pub(super) fn answer(office: &Office, _: &Question) -> Result<Reply, Fault> {
    let shared = &office.shared;
    let totals = shared.total();
    let addresses = shared.firewall.stats();
    let started = shared.started.load(Ordering::Relaxed);
    let now = toron_reactor::sys::monotonic().0;
    let snapshot = shared.snapshot.load();
    let slots = snapshot.in_flight().map(|(route, in_flight)| Slots {
        route: &route.name,
        in_flight,
        cap: route.limits.max_concurrency,
    });
    Ok(json(&Status {
        version: env!("CARGO_PKG_VERSION"),
        engine: shared.engine,
        uptime_seconds: now.saturating_sub(started) / 1_000_000_000,
        draining: shared.draining.load(Ordering::Relaxed),
        reactors: shared.gauges.len(),
        active_reactors: totals.active_reactors,
        sessions: totals.sessions,
        exchanges: totals.exchanges,
        requests: totals.requests,
        firewall_refused: totals.refused,
        firewall_observed: totals.observed,
        firewall_connections: shared.firewall.connections(),
        firewall_addresses: addresses.tracked,
        firewall_evicted: addresses.evicted,
        firewall_untracked: addresses.untracked,
        upstream_connections: totals.upstream_connections,
        upstream_idle: totals.upstream_idle,
        operations: totals.operations,
        sockets: totals.sockets,
        buffers: totals.buffers,
        pipes: totals.pipes,
        turns: totals.turns,
        system_calls: totals.system_calls,
        routes_in_all: snapshot.table.routes().len(),
        routes: slots
            .filter(|s| s.cap.is_some() || s.in_flight > 0)
            .collect(),
    }))
}
