//! What goes wrong with upstreams, told to the operator.

use std::fmt;

use toron_reactor::Engine;

use super::session::Session;
use super::Kit;
use crate::http::Reason;

/// What the upstream did that ends in this, unless it was told before with its cause.
pub(super) fn of(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::UpstreamClosed => Some("closed the connection before a response"),
        Reason::ResponseHeaderTimeout => Some("no response head within response_header_timeout"),
        Reason::UpstreamIdleTimeout => {
            Some("took no byte of the request within upstream_idle_timeout")
        }
        Reason::HeaderDeadline => Some("header_deadline passed before a response head"),
        Reason::RequestDeadline => Some("request_deadline passed before a response"),
        _ => None,
    }
}

impl<E: Engine> Kit<'_, '_, E> {
    /// Logs what went wrong with the upstream of the request under way: its route, its target and
    /// the address that was dialled, and `what`.
    pub(super) fn tell_failure(&mut self, session: &Session, what: &dyn fmt::Display) {
        let Some(left_out) = self.core.failure_gate.pass(self.cx.now) else {
            return;
        };
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        let Some(route) = exchange.route() else {
            return;
        };
        let target = exchange.tried_target();
        let url = target.map(|target| target.url()).unwrap_or_default();
        let name = &route.name;
        match exchange.address {
            Some(address) => {
                log::warn!("route {name}: upstream {url} at {address}: {what}{left_out}");
            }
            None => log::warn!("route {name}: upstream {url}: {what}{left_out}"),
        }
    }
}
