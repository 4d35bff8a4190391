//! The `firewall` block. The camelCase names of an older format are understood, with their units.

use std::time::Duration;

use crate::policy::cidr::Cidr;

use super::addresses::read_cidrs;
use super::fields::is_token;
use super::section::Section;

/// What of the block has effect.
pub struct Firewall {
    /// Limit on the header block; zero is off.
    pub header_timeout: Duration,
    /// Most bytes of a head.
    pub max_header_bytes: usize,
    /// Most fields of a head.
    pub max_header_count: usize,
    /// Total time for a body, if written.
    pub body_timeout: Option<Duration>,
    /// Least average rate of a body, if written.
    pub min_body_rate: Option<u64>,
    /// Whose forwarding headers are believed.
    pub trusted_proxies: Vec<Cidr>,
    /// Where they name the client.
    pub client_ip_header: String,
    /// Most client connections; `None` where the firewall is off.
    pub max_connections_total: Option<u64>,
}

/// Client connections in all, where the files say nothing.
const MAX_CONNECTIONS_TOTAL: u64 = 10_000;

/// Reads `key`, or the older name if that is written. Both at once is a fault.
fn either(section: &Section<'_>, key: &'static str, older: &'static str) -> bool {
    let use_older = section.mark_of(older);
    section.known(older);
    if let (Some(_), Some(mark)) = (section.mark_of(key), use_older) {
        let text = format!("firewall.{older} is the older name of {key} (allowed: one of them)");
        section.report.fault(mark, text);
        return false;
    }
    if let Some(mark) = use_older {
        section.note_pending(key, mark);
    }
    use_older.is_some()
}

/// Fields that a request head may have at most: room for so many is set apart on the stack.
const MOST_FIELDS: i64 = 256;

fn number(s: &Section<'_>, key: &'static str, older: &'static str, most: i64) -> Option<i64> {
    let use_older = either(s, key, older);
    let written = s.integer(key, 0..=most);
    if use_older {
        s.integer(older, 0..=most)
    } else {
        written
    }
}

fn duration(s: &Section<'_>, key: &'static str, older: &'static str) -> Option<Duration> {
    let use_older = either(s, key, older);
    let written = s.duration(key);
    if !use_older {
        return written;
    }
    let n: u64 = s.number(older, 0..=i64::from(u32::MAX))?;
    Some(if older.ends_with("Ms") {
        Duration::from_millis(n)
    } else {
        Duration::from_secs(n)
    })
}

fn cidrs(s: &Section<'_>, key: &'static str, older: &'static str) -> Vec<Cidr> {
    let use_older = either(s, key, older);
    let written = read_cidrs(s, key);
    if use_older {
        read_cidrs(s, older)
    } else {
        written
    }
    .unwrap_or_default()
}

fn boolean(s: &Section<'_>, key: &'static str, older: &'static str) {
    let use_older = either(s, key, older);
    s.boolean(key);
    if use_older {
        s.boolean(older);
    }
}

/// Reads and checks the whole block.
pub fn read(s: Section<'_>) -> Firewall {
    let enabled = s.boolean("enabled").unwrap_or(true);
    s.choice("mode", &[("enforce", ()), ("observe", ())], 2);
    number(&s, "rate_limit_rps", "rateLimitRps", 1_000_000_000);
    number(&s, "rate_limit_burst", "rateLimitBurst", 1_000_000_000);
    boolean(&s, "adaptive_rate_limit", "adaptiveRateLimit");
    number(&s, "ewma_alpha_pct", "ewmaAlphaPct", 100);
    number(&s, "auto_block_threshold", "autoBlockThreshold", 1_000_000);
    duration(&s, "block_duration", "blockDurationSecs");
    number(&s, "block_escalation_factor", "blockEscalationFactor", 1000);
    duration(&s, "max_block_duration", "maxBlockDurationSecs");
    duration(&s, "strike_decay", "strikeDecaySecs");
    number(
        &s,
        "max_connections_per_ip",
        "maxConnectionsPerIp",
        1_000_000_000,
    );
    let total = number(
        &s,
        "max_connections_total",
        "maxConnectionsTotal",
        1_000_000_000,
    );
    number(
        &s,
        "max_tracked_addresses",
        "maxTrackedAddresses",
        1_000_000_000,
    );
    s.integer("ipv6_prefix", 1..=128);
    cidrs(&s, "allow", "allowList");
    cidrs(&s, "deny", "denyList");
    if let Some(mark) = s.mark_of("maxBodyBytes") {
        s.known("maxBodyBytes");
        let text = "firewall.maxBodyBytes is not a setting of the firewall (allowed: server.max_body_bytes)";
        s.report.fault(mark, text);
    }
    let header_timeout = duration(&s, "header_timeout", "headerTimeoutMs");
    let bytes = number(&s, "max_header_bytes", "maxHeaderBytes", 1 << 30);
    let count = number(&s, "max_header_count", "maxHeaderCount", MOST_FIELDS);
    at_least(&s, "max_header_bytes", "maxHeaderBytes", bytes, 256);
    at_least(&s, "max_header_count", "maxHeaderCount", count, 1);
    let rate = number(&s, "min_body_rate", "minBodyRateBps", i64::from(u32::MAX));
    let made = Firewall {
        header_timeout: header_timeout.unwrap_or(Duration::from_secs(10)),
        max_header_bytes: bytes
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(16_384),
        max_header_count: count.and_then(|n| usize::try_from(n).ok()).unwrap_or(100),
        body_timeout: duration(&s, "body_timeout", "bodyTimeoutMs"),
        min_body_rate: rate.and_then(|n| u64::try_from(n).ok()),
        trusted_proxies: cidrs(&s, "trusted_proxies", "trustedProxies"),
        client_ip_header: read_client_ip_header(&s),
        max_connections_total: enabled.then(|| {
            let written = total.and_then(|n| u64::try_from(n).ok());
            written.unwrap_or(MAX_CONNECTIONS_TOTAL)
        }),
    };
    s.finish();
    made
}

fn at_least(s: &Section<'_>, key: &str, older: &str, written: Option<i64>, least: i64) {
    if written.is_some_and(|n| n < least) {
        let name = if s.mark_of(key).is_some() { key } else { older };
        let text = format!("firewall.{name} is too small (allowed: {least} or more)");
        s.report.fault(s.value_mark(name), text);
    }
}

fn read_client_ip_header(s: &Section<'_>) -> String {
    let name = s.string("client_ip_header").unwrap_or("X-Forwarded-For");
    if !is_token(name) {
        let text = format!("firewall.client_ip_header: \"{name}\" is not a field name");
        s.report.fault(s.value_mark("client_ip_header"), text);
    }
    name.to_owned()
}
