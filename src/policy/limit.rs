//! Which setting a refusal enforces, what its value is, and where it was set.

use std::time::Duration;

use super::origin::Origin;
use super::settings::{Route, Settings};
use crate::http::chunk::{MAX_EXTENSION, MAX_TRAILERS};
use crate::http::request::MAX_CONNECTION_OPTIONS;
use crate::http::response::MAX_RESPONSE_HEAD;
use crate::http::Reason;

/// What a limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Time in milliseconds.
    Milliseconds,
    /// Time in seconds.
    Seconds,
    /// Requests per second.
    RequestsPerSecond,
    /// Fields, requests, connections, violations.
    Count,
}

impl Unit {
    /// A stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes/s",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::RequestsPerSecond => "requests/s",
            Unit::Count => "count",
        }
    }
}

/// A limit in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit<'a> {
    /// Its key in the files, without the section.
    pub setting: &'static str,
    /// Its value, with what it counts; none where it is no number.
    pub value: Option<(u64, Unit)>,
    /// Where it was set.
    pub origin: &'a Origin,
}

fn limit<'a>(setting: &'static str, value: u64, unit: Unit, origin: &'a Origin) -> Limit<'a> {
    let value = Some((value, unit));
    Limit {
        setting,
        value,
        origin,
    }
}

fn time<'a>(setting: &'static str, length: Duration, origin: &'a Origin) -> Limit<'a> {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    limit(setting, millis, Unit::Milliseconds, origin)
}

fn rule<'a>(setting: &'static str, origin: &'a Origin) -> Limit<'a> {
    Limit {
        setting,
        value: None,
        origin,
    }
}

fn built_in(setting: &'static str, value: usize, unit: Unit) -> Limit<'static> {
    limit(setting, value as u64, unit, &Origin::BUILT_IN)
}

/// What `reason` enforces on a request that `route` took, if on any. `None` where it enforces no
/// setting: the rules of HTTP, what an upstream or a client did.
#[must_use]
pub fn of<'a>(
    reason: Reason,
    settings: &'a Settings,
    route: Option<&'a Route>,
) -> Option<Limit<'a>> {
    of_process(reason, settings)
        .or_else(|| of_firewall(reason, settings))
        .or_else(|| of_toron(reason))
        .or_else(|| of_route(reason, route?))
        .or_else(|| of_unrouted(reason, settings))
}

fn of_process(reason: Reason, settings: &Settings) -> Option<Limit<'_>> {
    let sources = &settings.sources;
    Some(match reason {
        Reason::HeadTooLarge => limit(
            "max_header_bytes",
            settings.max_header_bytes as u64,
            Unit::Bytes,
            &sources.max_header_bytes,
        ),
        Reason::TooManyFields => limit(
            "max_header_count",
            settings.max_header_count as u64,
            Unit::Count,
            &sources.max_header_count,
        ),
        Reason::HeaderTimeout => {
            let origin = &sources.header_timeout;
            let setting = match origin.as_str() {
                "firewall" => "header_timeout",
                _ => "read_timeout",
            };
            time(setting, settings.header_timeout, origin)
        }
        Reason::BufferMemory => limit(
            "buffer_memory",
            settings.buffer_memory,
            Unit::Bytes,
            &sources.buffer_memory,
        ),
        Reason::ConnectTimeout => time(
            "connect_timeout",
            settings.connect_timeout,
            &sources.connect_timeout,
        ),
        Reason::Shutdown => time(
            "shutdown_grace",
            settings.shutdown_grace,
            &sources.shutdown_grace,
        ),
        Reason::AdminSubnet => rule("subnets", &sources.admin_subnets),
        Reason::AdminKey | Reason::AdminDisabled => rule("key", &sources.admin_key),
        _ => return None,
    })
}

fn of_firewall(reason: Reason, settings: &Settings) -> Option<Limit<'_>> {
    let (sources, rules) = (&settings.sources, &settings.firewall);
    let count = |setting, value: u32, origin| limit(setting, value.into(), Unit::Count, origin);
    Some(match reason {
        Reason::Denied => rule("deny", &sources.deny),
        Reason::Blocked | Reason::BlockedByHand => limit(
            "block_duration",
            rules.block_duration.as_secs(),
            Unit::Seconds,
            &sources.block_duration,
        ),
        Reason::AutoBlocked => count(
            "auto_block_threshold",
            rules.auto_block_threshold,
            &sources.auto_block_threshold,
        ),
        Reason::RateLimit => limit(
            "rate_limit_rps",
            rules.rate_limit_rps.into(),
            Unit::RequestsPerSecond,
            &sources.rate_limit_rps,
        ),
        Reason::ConnectionLimit => count(
            "max_connections_total",
            rules.max_connections_total,
            &sources.max_connections_total,
        ),
        Reason::AddressConnectionLimit => count(
            "max_connections_per_ip",
            rules.max_connections_per_ip,
            &sources.max_connections_per_ip,
        ),
        _ => return None,
    })
}

/// What is no setting.
fn of_toron(reason: Reason) -> Option<Limit<'static>> {
    Some(match reason {
        Reason::TooManyConnectionOptions => {
            built_in("connection options", MAX_CONNECTION_OPTIONS, Unit::Count)
        }
        Reason::ChunkExtensionTooLong => {
            built_in("chunk extensions", MAX_EXTENSION.into(), Unit::Bytes)
        }
        Reason::TrailersTooLarge => built_in("trailers", MAX_TRAILERS, Unit::Bytes),
        Reason::ResponseHeadTooLarge => built_in("response head", MAX_RESPONSE_HEAD, Unit::Bytes),
        _ => return None,
    })
}

fn of_route(reason: Reason, route: &Route) -> Option<Limit<'_>> {
    let (limits, sources) = (&route.limits, &route.limit_sources);
    Some(match reason {
        Reason::DeclaredTooLarge | Reason::BodyTooLarge => limit(
            "max_body_bytes",
            limits.max_body_bytes,
            Unit::Bytes,
            &sources.max_body_bytes,
        ),
        Reason::ChunkedDisabled => rule("inbound_chunked_mode", &sources.chunked_mode),
        Reason::RouteFull => limit(
            "max_concurrency",
            limits.max_concurrency.unwrap_or(u32::MAX).into(),
            Unit::Count,
            &sources.max_concurrency,
        ),
        Reason::TargetsFull => {
            let cap = route.upstream()?.target_max_concurrency?;
            let origin = &sources.target_max_concurrency;
            limit("target_max_concurrency", cap.into(), Unit::Count, origin)
        }
        Reason::MinBodyRate => limit(
            "min_body_rate",
            limits.min_body_rate,
            Unit::BytesPerSecond,
            &sources.min_body_rate,
        ),
        _ => return time_of_route(reason, route),
    })
}

fn time_of_route(reason: Reason, route: &Route) -> Option<Limit<'_>> {
    let (limits, sources) = (&route.limits, &route.limit_sources);
    let (setting, length, origin) = match reason {
        Reason::ReadTimeout => ("read_timeout", limits.read_timeout, &sources.read_timeout),
        Reason::BodyTimeout => ("body_timeout", limits.body_timeout?, &sources.body_timeout),
        Reason::WriteTimeout => (
            "write_timeout",
            limits.write_timeout,
            &sources.write_timeout,
        ),
        Reason::ResponseHeaderTimeout => (
            "response_header_timeout",
            limits.response_header_timeout,
            &sources.response_header_timeout,
        ),
        Reason::UpstreamIdleTimeout => (
            "upstream_idle_timeout",
            limits.upstream_idle_timeout,
            &sources.upstream_idle_timeout,
        ),
        Reason::UpgradeIdleTimeout => (
            "upgrade_idle_timeout",
            limits.upgrade_idle_timeout,
            &sources.upgrade_idle_timeout,
        ),
        Reason::HeaderDeadline => (
            "header_deadline",
            limits.header_deadline?,
            &sources.header_deadline,
        ),
        Reason::RequestDeadline => (
            "request_deadline",
            limits.request_deadline?,
            &sources.request_deadline,
        ),
        _ => return None,
    };
    Some(time(setting, length, origin))
}

/// Where no route took the request, the server's own limits hold.
fn of_unrouted(reason: Reason, settings: &Settings) -> Option<Limit<'_>> {
    let sources = &settings.sources;
    Some(match reason {
        Reason::DeclaredTooLarge | Reason::BodyTooLarge => limit(
            "max_body_bytes",
            settings.max_body_bytes,
            Unit::Bytes,
            &sources.max_body_bytes,
        ),
        Reason::MinBodyRate => limit(
            "min_body_rate",
            settings.min_body_rate,
            Unit::BytesPerSecond,
            &sources.min_body_rate,
        ),
        Reason::ReadTimeout => time("read_timeout", settings.read_timeout, &sources.read_timeout),
        Reason::BodyTimeout => time("body_timeout", settings.body_timeout, &sources.body_timeout),
        Reason::WriteTimeout => time(
            "write_timeout",
            settings.write_timeout,
            &sources.write_timeout,
        ),
        _ => return None,
    })
}
