//! `GET /internal/api/routes`: the table, in order of matching, with what holds for each route.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Fault, Office};
use crate::control::effective::{limits, LimitTable};
use crate::policy::settings::{Route, RouteKind, Upstream};
use crate::policy::snapshot::Snapshot;
use crate::server::admin::desk::{Question, Reply};

#[derive(Serialize)]
struct Entry<'a> {
    route: &'a str,
    host: String,
    prefix: &'a str,
    /// Several are separated by commas; empty is any.
    method: String,
    headers: BTreeMap<&'a str, &'a str>,
    source: &'static str,
    place: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    targets: Vec<String>,
    /// In the order of the targets.
    target_health: Vec<Target>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    limits: LimitTable,
    in_flight: u32,
    cap: Option<u32>,
}

#[derive(Serialize)]
struct Target {
    target: String,
    /// `up`, `out` or `trial`.
    health: &'static str,
    /// In a row.
    failures: u32,
    in_flight: u32,
}

/// The state of the targets of a route.
fn target_health(snapshot: &Snapshot, upstream: &Upstream, route: &Route) -> Vec<Target> {
    let pool = snapshot.pool(route.id as usize);
    let states = pool.map_or(&[][..], |pool| pool.targets());
    let pairs = upstream.targets.iter().zip(states);
    pairs
        .map(|(target, state)| Target {
            target: target.url(),
            health: state.standing().as_str(),
            failures: state.failures(),
            in_flight: state.in_flight(),
        })
        .collect()
}

fn entry<'s>(snapshot: &Snapshot, route: &'s Route, in_flight: u32) -> Entry<'s> {
    let (mut targets, mut weights) = (Vec::new(), Vec::new());
    let (mut status, mut algorithm) = (None, None);
    let mut health = Vec::new();
    let kind = match &route.kind {
        RouteKind::Upstream(upstream) => {
            targets.extend(upstream.targets.iter().map(|target| target.url()));
            weights.extend(upstream.targets.iter().map(|target| target.weight));
            health = target_health(snapshot, upstream, route);
            algorithm = Some(upstream.algorithm.as_str());
            "upstream"
        }
        RouteKind::Respond(fixed) => {
            status = Some(fixed.status);
            "respond"
        }
    };
    let headers = route.headers.iter();
    Entry {
        route: &route.name,
        host: route.host.to_string(),
        prefix: &route.prefix,
        method: route.methods.join(","),
        headers: headers.map(|(n, v)| (n.as_str(), v.as_str())).collect(),
        source: route.source.as_str(),
        place: route.origin.to_string(),
        kind,
        status,
        targets,
        target_health: health,
        weights: Some(weights).filter(|weights| weights.iter().any(|&weight| weight != 1)),
        algorithm,
        limits: limits(route),
        in_flight,
        cap: route.limits.max_concurrency,
    }
}

pub(super) fn answer(office: &Office, _: &Question) -> Result<Reply, Fault> {
    let snapshot = office.shared.snapshot.load_full();
    let mut text = b"[".to_vec();
    for (i, (route, in_flight)) in snapshot.in_flight().enumerate() {
        text.extend_from_slice(if i == 0 { b"\n" } else { b",\n" });
        serde_json::to_writer(&mut text, &entry(&snapshot, route, in_flight))
            .map_err(|error| Fault::new(500, error.to_string()))?;
    }
    text.extend_from_slice(b"\n]\n");
    Ok(Reply::json(200, text))
}
