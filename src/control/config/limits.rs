//! The limits of a route: its own keys, else what it inherits, and the guardrail (I7,
//! I16, I21).

use std::sync::Arc;
use std::time::Duration;

use crate::policy::settings::{ChunkedMode, HalfClose, LimitSources, Limits, Origin, SetBy};

use super::fixed_response::read_fixed_response;
use super::inherited::{Inherited, Sourced, CHUNKED_MODES, DEFAULT_MAX_BODY_BYTES};
use super::section::Section;

/// A route that waits longer than this for response headers counts as elevated (I16).
const ELEVATED_RESPONSE_HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The limits of a route and what `toron check` needs to know about them.
pub struct RouteLimits {
    /// What holds.
    pub limits: Limits,
    /// Where it came from.
    pub sources: LimitSources,
    /// Whether the route's own keys ask for more than the defaults allow (I16).
    pub elevated: bool,
}

/// The guardrail's cap (I16).
#[must_use]
pub fn guardrail(worker_pool_size: usize) -> u32 {
    u32::try_from((worker_pool_size / 4).clamp(1, 32)).unwrap_or(32)
}

/// The route's own value of `key`, if it counts, else the inherited one.
fn or_inherited<T: Copy>(
    s: &Section<'_>,
    key: &str,
    own: Option<T>,
    inherited: &Sourced<T>,
) -> Sourced<T> {
    match own {
        Some(own) => (own, s.origin(key, SetBy::Route)),
        None => inherited.clone(),
    }
}

/// A timeout of its own: 0 inherits.
fn timeout(s: &Section<'_>, key: &'static str) -> Option<Duration> {
    s.duration(key).filter(|timeout| !timeout.is_zero())
}

/// The limits that a route inherits where it has no key of its own, with where they come from.
struct Inheritable {
    max_body_bytes: Sourced<u64>,
    max_concurrency: Sourced<Option<u32>>,
    read_timeout: Sourced<Duration>,
    write_timeout: Sourced<Duration>,
    min_progress_bytes: Sourced<u64>,
    min_body_rate: Sourced<u64>,
    body_timeout: Sourced<Option<Duration>>,
    response_header_timeout: Sourced<Duration>,
    upstream_idle_timeout: Sourced<Duration>,
    upgrade_idle_timeout: Sourced<Duration>,
    header_deadline: Sourced<Option<Duration>>,
    chunked_mode: Sourced<ChunkedMode>,
    /// Whether the route's own keys ask for more than the defaults allow (I16).
    elevated: bool,
}

/// Reads the limit keys of a route.
pub fn read(s: &Section<'_>, inherited: &Inherited) -> RouteLimits {
    let stream = s.boolean("stream_request_body");
    let held = read_inheritable(s, inherited, stream);
    check_streaming(s, stream, held.chunked_mode.0);
    let half_close = [("allow", HalfClose::Allow), ("abort", HalfClose::Abort)];
    let response = s.section("header_deadline_response", "header_deadline_response");
    let covers = s.boolean("request_deadline_covers_upgrades");
    let limits = Limits {
        max_body_bytes: held.max_body_bytes.0,
        max_concurrency: held.max_concurrency.0,
        read_timeout: held.read_timeout.0,
        write_timeout: held.write_timeout.0,
        min_progress_bytes: held.min_progress_bytes.0,
        min_body_rate: held.min_body_rate.0,
        body_timeout: held.body_timeout.0,
        response_header_timeout: held.response_header_timeout.0,
        upstream_idle_timeout: held.upstream_idle_timeout.0,
        upgrade_idle_timeout: held.upgrade_idle_timeout.0,
        header_deadline: held.header_deadline.0,
        header_deadline_response: response.map(|r| Arc::new(read_fixed_response(r, 504))),
        request_deadline: s.deadline("request_deadline").flatten(),
        request_deadline_covers_upgrades: covers.unwrap_or(false),
        stream_request_body: stream,
        chunked_mode: held.chunked_mode.0,
        client_half_close: s
            .choice("client_half_close", &half_close, 2)
            .unwrap_or(HalfClose::Allow),
    };
    RouteLimits {
        limits,
        elevated: held.elevated,
        sources: sources(s, held),
    }
}

/// `stream` is what the route says of streaming bodies.
fn read_inheritable(s: &Section<'_>, inherited: &Inherited, stream: Option<bool>) -> Inheritable {
    let own_body = s
        .size("max_body_bytes", 0..=u64::MAX)
        .filter(|&size| size > 0);
    let own_read = timeout(s, "read_timeout");
    let own_header = timeout(s, "response_header_timeout");
    let elevated = own_body.is_some_and(|size| size > DEFAULT_MAX_BODY_BYTES)
        || own_header.is_some_and(|t| t > ELEVATED_RESPONSE_HEADER_TIMEOUT);
    let governed_by_itself = own_read.is_some()
        || own_body.is_some_and(|size| size > inherited.max_body_bytes.0)
        || stream == Some(true);

    let time = |key, inherited| or_inherited(s, key, timeout(s, key), inherited);
    let size = |key, most, inherited| or_inherited(s, key, s.size(key, 0..=most), inherited);
    let own_deadline = s.deadline("header_deadline");
    let own_mode = s.choice("inbound_chunked_mode", &CHUNKED_MODES, 3);
    let key = "response_header_timeout";
    let from = inherited;
    Inheritable {
        max_body_bytes: or_inherited(s, "max_body_bytes", own_body, &from.max_body_bytes),
        max_concurrency: read_cap(s, elevated, from.worker_pool_size),
        read_timeout: or_inherited(s, "read_timeout", own_read, &from.read_timeout),
        write_timeout: time("write_timeout", &from.write_timeout),
        min_progress_bytes: size("min_progress_bytes", 1 << 30, &from.min_progress_bytes),
        min_body_rate: size("min_body_rate", 1 << 40, &from.min_body_rate),
        body_timeout: read_body_timeout(s, governed_by_itself, &from.body_timeout),
        response_header_timeout: or_inherited(s, key, own_header, &from.response_header_timeout),
        upstream_idle_timeout: time("upstream_idle_timeout", &from.upstream_idle_timeout),
        upgrade_idle_timeout: time("upgrade_idle_timeout", &from.upgrade_idle_timeout),
        header_deadline: or_inherited(s, "header_deadline", own_deadline, &from.header_deadline),
        chunked_mode: or_inherited(s, "inbound_chunked_mode", own_mode, &from.chunked_mode),
        elevated,
    }
}

fn sources(s: &Section<'_>, held: Inheritable) -> LimitSources {
    LimitSources {
        max_body_bytes: held.max_body_bytes.1,
        max_concurrency: held.max_concurrency.1,
        read_timeout: held.read_timeout.1,
        write_timeout: held.write_timeout.1,
        min_progress_bytes: held.min_progress_bytes.1,
        min_body_rate: held.min_body_rate.1,
        body_timeout: held.body_timeout.1,
        response_header_timeout: held.response_header_timeout.1,
        upstream_idle_timeout: held.upstream_idle_timeout.1,
        upgrade_idle_timeout: held.upgrade_idle_timeout.1,
        header_deadline: held.header_deadline.1,
        chunked_mode: held.chunked_mode.1,
        request_deadline: s.origin("request_deadline", SetBy::Route),
        target_max_concurrency: s.origin("target_max_concurrency", SetBy::Route),
    }
}

/// I12, I16: -1 is no cap, 0 or absent leaves it to the guardrail.
fn read_cap(s: &Section<'_>, elevated: bool, worker_pool_size: usize) -> Sourced<Option<u32>> {
    let own = s.origin("max_concurrency", SetBy::Route);
    match s.integer("max_concurrency", -1..=1_000_000) {
        Some(-1) => {
            if elevated {
                let text = "max_concurrency: -1 leaves a route that asks for more than the \
                            defaults without any cap";
                s.report.warning(s.value_mark("max_concurrency"), text);
            }
            (None, own)
        }
        Some(cap) if cap > 0 => (u32::try_from(cap).ok(), own),
        // No line of its own: where the route stands that asks for more than the defaults.
        _ if elevated => {
            let origin = Origin {
                by: SetBy::Guardrail,
                at: Some(s.place(s.mark)),
            };
            (Some(guardrail(worker_pool_size)), origin)
        }
        _ => (None, Origin::DEFAULT),
    }
}

/// I21: the firewall's total holds only where a route lives by the server's defaults.
fn read_body_timeout(
    s: &Section<'_>,
    governed_by_itself: bool,
    inherited: &Sourced<Duration>,
) -> Sourced<Option<Duration>> {
    match timeout(s, "body_timeout") {
        Some(own) => (Some(own), s.origin("body_timeout", SetBy::Route)),
        None if governed_by_itself => {
            let (by, at) = (SetBy::Route, Some(s.place(s.mark)));
            (None, Origin { by, at })
        }
        None => (
            Some(inherited.0).filter(|timeout| !timeout.is_zero()),
            inherited.1.clone(),
        ),
    }
}

/// I36.
fn check_streaming(s: &Section<'_>, stream: Option<bool>, mode: ChunkedMode) {
    if stream == Some(false) && mode == ChunkedMode::Passthrough {
        let text = "stream_request_body: false contradicts inbound_chunked_mode: passthrough, \
                    which cannot collect a body (allowed: normalize or reject with it)";
        s.report.fault(s.value_mark("stream_request_body"), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i16_the_guardrail_is_a_quarter_of_the_pool_within_1_and_32() {
        let caps = [1, 3, 4, 7, 8, 127, 128, 4096].map(guardrail);
        assert_eq!(caps, [1, 1, 1, 1, 2, 31, 32, 32]);
    }
}
