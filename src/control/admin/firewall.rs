//! `/internal/api/firewall`: who is blocked; blocking and unblocking by hand (F7).

use std::net::IpAddr;
use std::time::Duration;

use crossbeam_channel::unbounded;
use serde::Serialize;

use super::params::Params;
use super::{json, Fault, Office};
use crate::control::config::section::LONGEST;
use crate::control::config::values::{self, show_duration};
use crate::policy::cidr::Cidr;
use crate::policy::firewall::{Blocked, Firewall, Mode, Rules};
use crate::policy::settings::Settings;
use crate::server::admin::desk::{Question, Reply};
use crate::server::Message;

/// Blocks that are listed unless the question says how many.
const LISTED: usize = 1000;

/// How long reactors may take to close connections before the answer no longer waits for them.
const CLOSING: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct List {
    enabled: bool,
    mode: &'static str,
    connections: u32,
    tracked: usize,
    evicted: u64,
    untracked: u64,
    refused: u64,
    observed: u64,
    blocked: usize,
    blocks: Vec<Block>,
}

#[derive(Serialize)]
struct Block {
    addresses: String,
    reason: &'static str,
    strikes: u8,
    seconds_left: u64,
    connections: u32,
}

impl From<&Blocked> for Block {
    fn from(blocked: &Blocked) -> Self {
        Block {
            addresses: blocked.addresses.to_string(),
            reason: blocked.reason.as_str(),
            strikes: blocked.strikes,
            seconds_left: blocked.left.as_secs_f64().ceil() as u64,
            connections: blocked.connections,
        }
    }
}

fn mode(rules: &Rules) -> &'static str {
    match rules.mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
    }
}

pub(super) fn list(office: &Office, question: &Question) -> Result<Reply, Fault> {
    let mut params = Params::read(question)?;
    let most = params.number("limit")?.unwrap_or(LISTED);
    params.finish()?;
    let shared = &office.shared;
    let settings = shared.snapshot.load().settings.clone();
    let rules = &settings.firewall;
    let now = toron_reactor::sys::monotonic();
    let blocked = shared.firewall.blocked(rules, usize::MAX, now);
    let (stats, totals) = (shared.firewall.stats(), shared.total());
    Ok(json(&List {
        enabled: rules.enabled,
        mode: mode(rules),
        connections: shared.firewall.connections(),
        tracked: stats.tracked,
        evicted: stats.evicted,
        untracked: stats.untracked,
        refused: totals.refused,
        observed: totals.observed,
        blocked: blocked.len(),
        blocks: blocked.iter().take(most).map(Block::from).collect(),
    }))
}

/// The owner that a text names: an address, or what the list shows for it.
fn owner(text: &str, rules: &Rules) -> Result<Cidr, Fault> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let Ok(named) = bare.parse::<Cidr>() else {
        return Err(Fault::bad(format!(
            "address: \"{text}\" is not an address (allowed: 192.0.2.7, 2001:db8::7, or as listed)"
        )));
    };
    let owner = Firewall::owner(rules, named.network());
    let width = if named.network().is_ipv4() { 32 } else { 128 };
    if named.bits() == width || (named.network().is_ipv6() && named.bits() == owner.bits()) {
        return Ok(owner);
    }
    Err(Fault::bad(format!(
        "address: \"{text}\" is not one client's (allowed: an address, which stands for {owner}; \
         firewall.deny takes blocks of any size)"
    )))
}

/// An address that a block has no effect on would go on asking, and nobody would know why.
fn check_effect(address: IpAddr, settings: &Settings) -> Result<(), Fault> {
    let rules = &settings.firewall;
    let why = if !rules.enabled {
        "the firewall is off (firewall.enabled)"
    } else if settings.trusted_proxies.contains(address) {
        "it is a trusted proxy, which is never blocked (firewall.trusted_proxies)"
    } else if rules.allow.contains(address) && !rules.deny.contains(address) {
        "it is allowed, and so never blocked (firewall.allow)"
    } else {
        return Ok(());
    };
    Err(Fault::new(409, format!("address: {address}: {why}")))
}

fn length(text: Option<&str>, rules: &Rules) -> Result<Duration, Fault> {
    let Some(text) = text else {
        return Ok(rules.block_duration);
    };
    let allowed = "(allowed: a duration such as 300s, 5m, 1h30m, up to a year)";
    match values::duration(text) {
        Ok(read) if !read.negative && !read.length.is_zero() && read.length <= LONGEST => {
            Ok(read.length)
        }
        Ok(_) => Err(Fault::bad(format!(
            "duration: \"{text}\" is out of bounds {allowed}"
        ))),
        Err(bad) => Err(Fault::bad(format!(
            "duration: \"{text}\" {} {allowed}",
            bad.problem
        ))),
    }
}

fn address_of(params: &mut Params, rules: &Rules) -> Result<Cidr, Fault> {
    match params.text("address")? {
        Some(text) => owner(&text, rules),
        None => Err(Fault::bad(
            "address is missing (allowed: 192.0.2.7, 2001:db8::7)",
        )),
    }
}

pub(super) fn block(office: &Office, question: &Question) -> Result<Reply, Fault> {
    let settings = office.shared.snapshot.load().settings.clone();
    let rules = &settings.firewall;
    let mut params = Params::read(question)?;
    let addresses = address_of(&mut params, rules)?;
    let length = length(params.text("duration")?.as_deref(), rules)?;
    let close = params.switch("close")?.unwrap_or(false);
    params.finish()?;
    let address = addresses.network();
    check_effect(address, &settings)?;
    let now = toron_reactor::sys::monotonic();
    if !office.shared.firewall.block(rules, address, length, now) {
        let text = format!(
            "there is no room to note it: all of firewall.max_tracked_addresses ({}) are blocked or \
             connected",
            rules.max_tracked_addresses
        );
        return Err(Fault::new(503, text));
    }
    let closed = close.then(|| sever(office, addresses));
    let by = question.client;
    log::warn!(
        "{addresses}: blocked by hand for {} (asked by {by}), connections closed: {}",
        show_duration(length),
        closed.unwrap_or(0)
    );
    Ok(json(&serde_json::json!({
        "blocked": addresses.to_string(),
        "seconds": length.as_secs_f64().ceil() as u64,
        "enforced": rules.mode == Mode::Enforce,
        "closed": closed.unwrap_or(0),
    })))
}

/// Has every reactor close the connections of these clients; how many there were.
fn sever(office: &Office, addresses: Cidr) -> usize {
    let (count, counts) = unbounded();
    office.reactors.send(|_| Message::Sever {
        addresses,
        count: count.clone(),
    });
    drop(count);
    let mut closed = 0;
    while let Ok(n) = counts.recv_timeout(CLOSING) {
        closed += n;
    }
    closed
}

pub(super) fn unblock(office: &Office, question: &Question) -> Result<Reply, Fault> {
    let settings = office.shared.snapshot.load().settings.clone();
    let rules = &settings.firewall;
    let mut params = Params::read(question)?;
    let addresses = address_of(&mut params, rules)?;
    params.finish()?;
    let now = toron_reactor::sys::monotonic();
    let was_blocked = office
        .shared
        .firewall
        .unblock(rules, addresses.network(), now);
    if was_blocked {
        log::warn!(
            "{addresses}: unblocked by hand (asked by {})",
            question.client
        );
    }
    Ok(json(&serde_json::json!({
        "unblocked": addresses.to_string(),
        "was_blocked": was_blocked,
    })))
}
