//! `GET /internal/api/routes`: the table, in order of matching, with what holds for each route.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Fault, Office};
use crate::control::effective::{limits, LimitTable};
use crate::policy::settings::{Route, RouteKind};
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
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    limits: LimitTable,
    in_flight: u32,
    cap: Option<u32>,
}

fn entry(route: &Route, in_flight: u32) -> Entry<'_> {
    let (mut targets, mut weights) = (Vec::new(), Vec::new());
    let (mut status, mut algorithm) = (None, None);
    let kind = match &route.kind {
        RouteKind::Upstream(upstream) => {
            targets.extend(upstream.targets.iter().map(|target| target.url()));
            weights.extend(upstream.targets.iter().map(|target| target.weight));
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
        serde_json::to_writer(&mut text, &entry(route, in_flight))
            .map_err(|error| Fault::new(500, error.to_string()))?;
    }
    text.extend_from_slice(b"\n]\n");
    Ok(Reply::json(200, text))
}
