//! What a transaction must know of a request, of its limits and of its response.

use std::time::Duration;

/// What the transaction must know of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The method may be repeated (RFC 9110 §9.2.2).
    pub idempotent: bool,
    /// Body bytes still to come from the client after those that came with the head; `u64::MAX`
    /// when unknown (chunked), 0 when the request is whole.
    pub outstanding: u64,
    /// The body is collected before the upstream is dialled (I37).
    pub collect: bool,
    /// The client connection may be used again (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// The client asked for an upgrade that may be granted.
    pub upgrade: bool,
    /// The client waits for a 100 before it sends its body.
    pub expects_continue: bool,
    /// The client understands interim responses (not HTTP/1.0).
    pub takes_interim: bool,
}

/// The limits in force for a request: the route's, with what it inherits. A zero duration is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a connection to the upstream to stand (I23).
    pub connect_timeout: Duration,
    /// Length of a window in which the client must make progress while it sends (I18).
    pub read_timeout: Duration,
    /// Bytes of progress in a window (I18).
    pub min_progress_bytes: u64,
    /// Least average rate of the body in bytes per second (I20); 0 is off.
    pub min_body_rate: u64,
    /// For the whole body (I21).
    pub body_timeout: Duration,
    /// Length of a window in which the client must make progress while it receives (I29).
    pub write_timeout: Duration,
    /// From the request sent to the response head received (I24).
    pub response_header_timeout: Duration,
    /// How long an upstream may neither take nor send a byte of a body (I26).
    pub upstream_idle_timeout: Duration,
    /// How long neither side of a tunnel may send a byte (R14).
    pub upgrade_idle_timeout: Duration,
    /// From the request parsed to the final response head (I32).
    pub header_deadline: Duration,
    /// From the request parsed to the last byte of the response (I33).
    pub request_deadline: Duration,
    /// It goes on after a 101.
    pub deadline_covers_upgrades: bool,
    /// A FIN of the client behind its whole request means that it has gone (I39).
    pub half_close_aborts: bool,
    /// Further targets to try (R21).
    pub retries: u8,
}

/// A final response head, or the 101 of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFacts {
    /// The upstream connection may be used again, as far as the head says.
    pub keep_alive: bool,
    /// 101.
    pub switches: bool,
    /// Silence between bytes is in its nature (`text/event-stream`): I26 does not hold.
    pub event_stream: bool,
    /// The client cannot tell the end of the body but by the close of the connection.
    pub client_until_close: bool,
}
