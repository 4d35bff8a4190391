//! What toron answers by itself on the traffic listener.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use toron_reactor::Engine;

use super::lookup::lookup;
use super::session::Session;
use super::Kit;
use crate::http::answer::{Answer, FixedAnswer, Rendering};
use crate::http::{Method, Reason, RequestHead};
use crate::policy::router::Lookup;
use crate::policy::settings::{FixedResponse, Settings};
use crate::policy::snapshot::Snapshot;

/// What a built-in endpoint answers.
pub(crate) enum Builtin {
    /// One of the refusals.
    Refusal(Reason),
    /// 200 with this JSON text.
    Text(String),
}

impl<E: Engine> Kit<'_, '_, E> {
    /// The answer to a monitor, which costs no token and is limited by nothing.
    pub(crate) fn probe(
        &self,
        snapshot: &Snapshot,
        request: &RequestHead<'_, '_>,
        path: &[u8],
    ) -> Option<Answer> {
        if path != b"/health" {
            return None;
        }
        let asks = matches!(request.facts.method, Method::Get | Method::Head);
        // A monitor must not stay green while the application behind is dead.
        let taken = matches!(
            lookup(snapshot, request, path),
            Lookup::Route(route) if route.prefix == "/health"
        );
        let answer = if self.core.is_draining() {
            Answer::Draining
        } else {
            Answer::Healthy
        };
        (asks && !taken).then_some(answer)
    }

    /// The answer of a built-in endpoint, if the path is one's.
    pub(crate) fn builtin(
        &mut self,
        session: &Session,
        snapshot: &Snapshot,
        request: &RequestHead<'_, '_>,
        path: &[u8],
    ) -> Option<Builtin> {
        if path == b"/internal" || path.starts_with(b"/internal/") {
            return Some(match admit(snapshot, request, session) {
                Err(reason) => Builtin::Refusal(reason),
                Ok(()) if path == b"/internal/api/refusals" => match request.facts.method {
                    Method::Get | Method::Head => Builtin::Text(self.core.shared.ledger.to_json()),
                    _ => Builtin::Refusal(Reason::MethodNotAllowed),
                },
                Ok(()) if path == b"/internal/api/status" => match request.facts.method {
                    Method::Get | Method::Head => Builtin::Text(self.status()),
                    _ => Builtin::Refusal(Reason::MethodNotAllowed),
                },
                Ok(()) => Builtin::Refusal(Reason::NoRoute),
            });
        }
        None
    }

    fn status(&self) -> String {
        // What this reactor holds right now; of the others, what they held after their last turn.
        self.core.publish(self.cx.engine.stats());
        let shared = &self.core.shared;
        let totals = shared.total();
        let addresses = shared.firewall.stats();
        let started = shared.started.load(Ordering::Relaxed);
        let uptime = self.now().0.saturating_sub(started) / 1_000_000_000;
        let fields = [
            ("uptime_seconds", uptime),
            ("reactors", shared.gauges.len() as u64),
            ("active_reactors", totals.active_reactors),
            ("sessions", totals.sessions),
            ("exchanges", totals.exchanges),
            ("requests", totals.requests),
            ("firewall_refused", totals.refused),
            ("firewall_observed", totals.observed),
            (
                "firewall_connections",
                u64::from(shared.firewall.connections()),
            ),
            ("firewall_addresses", addresses.tracked as u64),
            ("firewall_evicted", addresses.evicted),
            ("firewall_untracked", addresses.untracked),
            ("upstream_connections", totals.upstream_connections),
            ("upstream_out_of_resources", totals.out_of_resources),
            ("upstream_idle", totals.upstream_idle),
            ("operations", totals.operations),
            ("sockets", totals.sockets),
            ("buffers", totals.buffers),
            ("pipes", totals.pipes),
            ("turns", totals.turns),
            ("system_calls", totals.system_calls),
        ];
        let mut text = format!(
            "{{\"version\":\"{}\",\"engine\":\"{}\"",
            env!("CARGO_PKG_VERSION"),
            shared.engine.get().unwrap_or(&"")
        );
        for (name, value) in fields {
            // Writing to a String cannot fail.
            let _ = write!(text, ",\"{name}\":{value}");
        }
        text.push_str(",\"routes\":[");
        push_routes(&self.core.snapshot, &mut text);
        text.push_str("]}");
        text
    }
}

/// Routes with a cap or with requests in flight, in order of matching.
fn push_routes(snapshot: &Snapshot, text: &mut String) {
    let mut between = "";
    for (route, in_flight) in snapshot.in_flight() {
        let cap = route.limits.max_concurrency;
        if cap.is_none() && in_flight == 0 {
            continue;
        }
        let name = serde_json::Value::from(route.name.as_str());
        let cap = cap.map_or("null".to_owned(), |cap| cap.to_string());
        let _ = write!(
            text,
            "{between}{{\"route\":{name},\"in_flight\":{in_flight},\"cap\":{cap}}}"
        );
        between = ",";
    }
}

/// Fields by which a proxy says that it passes a request on for somebody else.
const FORWARDED: [&str; 6] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Whether `client`, which asks on a connection from `peer`, is in `admin.subnets`. Nobody must be
/// able to hide behind a proxy's address, so a forwarding field is let pass only where a trusted
/// proxy says who the client is.
pub(crate) fn check_subnet(
    settings: &Settings,
    request: &RequestHead<'_, '_>,
    peer: IpAddr,
    client: IpAddr,
) -> Result<(), Reason> {
    let relayed = FORWARDED.iter().any(|name| request.field(name).is_some());
    let said = settings.trusted_proxies.contains(peer)
        && request.field(&settings.client_ip_header).is_some();
    let subnets = &settings.admin.subnets;
    let inside = subnets.iter().any(|subnet| subnet.contains(client));
    if inside && (said || !relayed) {
        Ok(())
    } else {
        Err(Reason::AdminSubnet)
    }
}

/// Who may use `/internal/`: there is a key, the client is in `admin.subnets`, and its request
/// carries the key.
fn admit(
    snapshot: &Snapshot,
    request: &RequestHead<'_, '_>,
    session: &Session,
) -> Result<(), Reason> {
    let settings = &snapshot.settings;
    let Some(key) = &settings.admin.key else {
        return Err(Reason::AdminDisabled);
    };
    check_subnet(settings, request, session.peer.ip(), session.client.address)?;
    let given = request.field("x-toron-admin-key").or_else(|| {
        request
            .field("authorization")
            .and_then(|value| value.strip_prefix(b"Bearer "))
    });
    match given {
        Some(given) if same(given, key.as_bytes()) => Ok(()),
        _ => Err(Reason::AdminKey),
    }
}

/// Comparison whose time depends on the length given only.
fn same(given: &[u8], key: &[u8]) -> bool {
    let mut difference = given.len() ^ key.len();
    for (i, byte) in given.iter().enumerate() {
        difference |= usize::from(byte ^ key.get(i % key.len().max(1)).copied().unwrap_or(0));
    }
    std::hint::black_box(difference) == 0
}

/// The answer that a configuration spells out.
pub(crate) fn fixed_answer(fixed: &FixedResponse) -> FixedAnswer<'_> {
    FixedAnswer {
        status: fixed.status,
        fields: &fixed.headers,
        body: fixed.body.as_bytes(),
    }
}

/// Appends a 200 with a JSON text; returns whether the connection goes on.
pub(crate) fn write_json(text: &str, rendering: &Rendering<'_>, out: &mut Vec<u8>) -> bool {
    let fields = [("Content-Type".to_owned(), "application/json".to_owned())];
    FixedAnswer {
        status: 200,
        fields: &fields,
        body: text.as_bytes(),
    }
    .write(rendering, out)
}

/// The text of an address.
pub(crate) fn ip_text(ip: IpAddr, room: &mut [u8; 48]) -> &[u8] {
    let mut left = &mut room[..];
    let before = left.len();
    // The longest text of an address has 45 bytes.
    let _ = write!(left, "{}", ip.to_canonical());
    let used = before - left.len();
    room.get(..used).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_whole() {
        assert!(same(b"secret", b"secret"));
        for wrong in [&b"secre"[..], b"secrets", b"Secret", b"", b"secretsecret"] {
            assert!(!same(wrong, b"secret"));
        }
        assert!(!same(b"x", b""));
    }

    #[test]
    fn a_mapped_address_is_shown_as_ipv4() {
        let mapped = "::ffff:192.0.2.1"
            .parse()
            .unwrap_or(IpAddr::from([0, 0, 0, 0]));
        assert_eq!(ip_text(mapped, &mut [0; 48]), b"192.0.2.1");
    }
}
