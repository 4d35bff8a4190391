//! What toron answers by itself on the traffic listener, and the access log.

use std::io::Write as _;
use std::net::IpAddr;

use toron_reactor::Engine;

use super::lookup::lookup;
use super::session::Session;
use super::state::Exchange;
use super::Kit;
use crate::http::answer::{Answer, FixedAnswer};
use crate::http::{Method, RequestHead};
use crate::policy::router::Lookup;
use crate::policy::settings::FixedResponse;
use crate::policy::snapshot::Snapshot;

impl<E: Engine> Kit<'_, '_, E> {
    /// The answer to a monitor, which costs no token and is limited by nothing.
    pub(crate) fn probe(
        &self,
        session: &Session,
        snapshot: &Snapshot,
        request: &RequestHead<'_, '_>,
        path: &[u8],
    ) -> Option<Answer> {
        if path != b"/health" {
            return None;
        }
        let asks = matches!(request.facts.method, Method::Get | Method::Head);
        // A monitor must not stay green while the application behind is dead.
        let taken = !session.is_admin
            && matches!(
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

    /// One line for a request that toron answers without an upstream: the answer is in the scratch
    /// buffer.
    pub(crate) fn log_answer(&mut self, session: &Session) {
        if self.core.shared.access_log.is_none() {
            return;
        }
        let core = &mut *self.core;
        let status = core
            .scratch
            .get(9..12)
            .and_then(|s| std::str::from_utf8(s).ok());
        let described = match core.described.as_slice() {
            [] => b"- - -",
            described => described,
        };
        let lines = &mut core.log_lines;
        let _ = write!(lines, "{} {} ", wall_clock(), session.client.address);
        lines.extend_from_slice(described);
        let _ = writeln!(
            lines,
            " route=\"-\" status={} in=0 out={} us=0",
            status.unwrap_or("-"),
            core.scratch.len() + core.body.len()
        );
    }

    /// One line for a request that has ended.
    pub(crate) fn log_request(&mut self, session: &Session, exchange: &Exchange) {
        if self.core.shared.access_log.is_none() {
            return;
        }
        let route = exchange.route().map_or("-", |route| route.name.as_str());
        let taken = self.now().since(exchange.started).as_micros();
        let lines = &mut self.core.log_lines;
        let _ = write!(lines, "{} {} ", wall_clock(), session.client.address);
        lines.extend_from_slice(&exchange.log);
        let _ = writeln!(
            lines,
            " route={route:?} status={} in={} out={} us={taken}",
            exchange.status, exchange.bytes_in, exchange.bytes_out
        );
    }
}

/// RFC 3339 with milliseconds, UTC.
fn wall_clock() -> humantime::Rfc3339Timestamp {
    humantime::format_rfc3339_millis(std::time::SystemTime::now())
}

/// Most bytes of a method, host and path in the access log.
const LOGGED: (usize, usize, usize) = (16, 128, 256);

/// Method, host and path for the access log.
pub(crate) fn describe(request: &RequestHead<'_, '_>, path: &[u8], out: &mut Vec<u8>) {
    let cut = |bytes: &[u8], most: usize, out: &mut Vec<u8>| {
        out.extend_from_slice(bytes.get(..most).unwrap_or(bytes));
    };
    cut(request.method, LOGGED.0, out);
    out.push(b' ');
    cut(
        request.host.map_or(&b"-"[..], |host| host.as_bytes()),
        LOGGED.1,
        out,
    );
    out.push(b' ');
    cut(path, LOGGED.2, out);
}

/// The answer that a configuration spells out.
pub(crate) fn fixed_answer(fixed: &FixedResponse) -> FixedAnswer<'_> {
    FixedAnswer {
        status: fixed.status,
        fields: &fixed.headers,
        body: fixed.body.as_bytes(),
    }
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
    fn a_mapped_address_is_shown_as_ipv4() {
        let mapped = "::ffff:192.0.2.1"
            .parse()
            .unwrap_or(IpAddr::from([0, 0, 0, 0]));
        assert_eq!(ip_text(mapped, &mut [0; 48]), b"192.0.2.1");
    }
}
