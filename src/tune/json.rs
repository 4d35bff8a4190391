//! The audit for machines.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::row::{Effect, Group, Means, Verdict};
use crate::policy::demand::Demand;

/// Grows when the meaning of a member changes; new members do not change it.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Audit<'a> {
    format: u32,
    toron: &'static str,
    configuration: &'a [String],
    demand: Counted,
    missing: usize,
    settings: Vec<Setting<'a>>,
}

/// What the configuration asks for.
#[derive(Serialize)]
struct Counted {
    clients: u64,
    clients_are_limited: bool,
    targets: u64,
    idle_upstreams: u64,
    reactors: u64,
}

#[derive(Serialize)]
struct Setting<'a> {
    group: &'a str,
    name: &'a str,
    /// As it stands, tabs included; null if unknown.
    present: Option<&'a str>,
    /// Why it is unknown.
    unknown: Option<&'a str>,
    proposed: Option<&'a str>,
    verdict: Verdict,
    must_have: bool,
    means: Means,
    effect: Effect,
    why: &'a str,
    evidence: &'a str,
    risk: &'a str,
    /// Of what was tried with --measure.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<&'a Value>,
}

/// One JSON object on several lines. `measured` is by name.
pub(super) fn write(
    groups: &[Group],
    demand: &Demand,
    configuration: &[String],
    measured: &BTreeMap<String, Value>,
) -> serde_json::Result<String> {
    let settings = groups.iter().flat_map(|group| {
        group.rows.iter().map(|row| Setting {
            group: group.title,
            name: &row.name,
            present: row.present.as_deref().ok(),
            unknown: row.present.as_ref().err().map(String::as_str),
            proposed: row.proposed.as_deref(),
            verdict: row.verdict,
            must_have: row.must_have,
            means: row.means,
            effect: row.effect,
            why: &row.why,
            evidence: &row.evidence,
            risk: &row.risk,
            measured: measured.get(&row.name),
        })
    });
    let settings: Vec<Setting<'_>> = settings.collect();
    let audit = Audit {
        format: FORMAT,
        toron: env!("CARGO_PKG_VERSION"),
        configuration,
        demand: Counted {
            clients: demand.clients,
            clients_are_limited: demand.clients_are_limited,
            targets: demand.targets,
            idle_upstreams: demand.idle_upstreams(),
            reactors: demand.reactors,
        },
        missing: settings
            .iter()
            .filter(|setting| setting.verdict == Verdict::Missing)
            .count(),
        settings,
    };
    serde_json::to_string_pretty(&audit).map(|text| text + "\n")
}
