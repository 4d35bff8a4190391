//! `/internal/api/explain`: what this toron would do with a request, as `toron explain` tells it.

use std::net::{IpAddr, Ipv4Addr};

use super::params::Params;
use super::{json, Fault, Office};
use crate::control::explain::{of, Asked, Explanation};
use crate::http::answer::Answer;
use crate::http::Reason;
use crate::policy::firewall::Mode;
use crate::policy::pool::Standing;
use crate::policy::settings::{Route, RouteKind};
use crate::policy::snapshot::Snapshot;
use crate::server::admin::desk::{Question, Reply};

pub(super) fn answer(office: &Office, question: &Question) -> Result<Reply, Fault> {
    let mut params = Params::read(question)?;
    let method = params.text("method")?.unwrap_or_else(|| "GET".to_owned());
    let url = params
        .text("url")?
        .ok_or_else(|| Fault::bad("url is missing (allowed: http://host/path)"))?;
    let fields = params.texts("header")?;
    let from = match params.text("from")? {
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(text) => text
            .parse()
            .map_err(|_| Fault::bad(format!("from: \"{text}\" is not an address")))?,
    };
    params.finish()?;
    let asked = Asked::new(&method, &url, &fields, from).map_err(Fault::bad)?;
    let snapshot = office.shared.snapshot.load_full();
    let mut told = of(&snapshot, &asked);
    let block = blocked(office, &snapshot, &told.request.client);
    let mut reason = match &block {
        Some(_) if carries_out_blocks(&snapshot, &told.request.client) => Some(Reason::Blocked),
        _ => None,
    };
    told.notes.extend(block);
    let place = told.route.as_ref().map(|route| route.place.clone());
    if let Some(place) = place {
        told.notes.extend(slots(&snapshot, &place));
        told.notes.extend(targets_out(&snapshot, &place));
        reason = reason.or_else(|| unavailable(&snapshot, &place));
    }
    if let Some(reason) = reason {
        refuse_now(&mut told, reason);
    }
    Ok(json(&told))
}

/// What would be let through by the files, but is refused at this moment.
fn refuse_now(told: &mut Explanation, reason: Reason) {
    let Some(answer) = Answer::to(reason) else {
        return;
    };
    if told.outcome != "refused" {
        told.outcome = "refused".to_owned();
        told.status = Some(answer.status());
        told.body = Some(answer.body().to_owned());
        told.reason = Some(reason.code().to_owned());
    }
}

fn carries_out_blocks(snapshot: &Snapshot, client: &str) -> bool {
    let rules = &snapshot.settings.firewall;
    let is_allowed = |client| rules.allow.contains(client);
    rules.enabled && rules.mode == Mode::Enforce && !client.parse().is_ok_and(is_allowed)
}

/// Why the route takes no request at this moment.
fn unavailable(snapshot: &Snapshot, place: &str) -> Option<Reason> {
    let is_it = |route: &Route| route.origin.to_string() == place;
    let (route, taken) = snapshot.in_flight().find(|(route, _)| is_it(route))?;
    if route.limits.max_concurrency.is_some_and(|cap| taken >= cap) {
        return Some(Reason::RouteFull);
    }
    let RouteKind::Upstream(upstream) = &route.kind else {
        return None;
    };
    let now = toron_reactor::sys::monotonic();
    let mut states = snapshot.targets().filter(|(route, ..)| is_it(route));
    let is_up = states.any(|(.., state)| state.is_available(now, &upstream.health));
    let is_refused = !is_up && !upstream.health.try_when_all_down;
    is_refused.then_some(Reason::TargetsUnhealthy)
}

/// What holds at this moment for the client.
fn blocked(office: &Office, snapshot: &Snapshot, client: &str) -> Option<String> {
    let client: IpAddr = client.parse().ok()?;
    let now = toron_reactor::sys::monotonic();
    let rules = &snapshot.settings.firewall;
    let all = office.shared.firewall.blocked(rules, usize::MAX, now);
    let block = all.iter().find(|block| block.addresses.contains(client))?;
    Some(format!(
        "{} is blocked for another {} s ({}): 403",
        block.addresses,
        block.left.as_secs(),
        block.reason.as_str()
    ))
}

/// How full the route is at this moment.
fn slots(snapshot: &Snapshot, place: &str) -> Option<String> {
    let is_it = |route: &Route| route.origin.to_string() == place;
    let (route, taken) = snapshot.in_flight().find(|(route, _)| is_it(route))?;
    let full = |cap: u32| if taken >= cap { ": full, 503" } else { "" };
    Some(match route.limits.max_concurrency {
        None => format!("requests in flight on the route: {taken}"),
        Some(cap) => format!("slots of the route in use: {taken} of {cap}{}", full(cap)),
    })
}

/// Which targets of the route take no requests at this moment.
fn targets_out<'s>(snapshot: &'s Snapshot, place: &'s str) -> impl Iterator<Item = String> + 's {
    let out = snapshot.targets().filter(move |(route, _, state)| {
        state.standing() != Standing::Up && route.origin.to_string() == place
    });
    out.map(|(_, target, state)| {
        let (url, standing) = (target.url(), state.standing().as_str());
        format!(
            "target {url}: {standing} after {} failures",
            state.failures()
        )
    })
}
