//! `/internal/api/explain`: what this toron would do with a request, as `toron explain` tells it.

use std::net::{IpAddr, Ipv4Addr};

use super::params::Params;
use super::{json, Fault, Office};
use crate::control::explain::{of, Asked};
use crate::policy::pool::Standing;
use crate::policy::settings::Route;
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
    told.notes
        .extend(blocked(office, &snapshot, &told.request.client));
    let place = told.route.as_ref().map(|route| route.place.clone());
    if let Some(place) = place {
        told.notes.extend(slots(&snapshot, &place));
        told.notes.extend(targets_out(&snapshot, &place));
    }
    Ok(json(&told))
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
