//! The `firewall` block. The camelCase names of an older format are understood, with their units.

use std::time::Duration;

use crate::http::MOST_FIELDS;
use crate::policy::cidr::CidrSet;
use crate::policy::firewall::{Mode, Rules};
use crate::policy::settings::{Origin, ProcessSources, SetBy};

use super::addresses::read_cidrs;
use super::fields::is_token;
use super::inherited::Sourced;
use super::section::Section;

/// What of the block has effect.
pub struct Firewall {
    /// Limit on the header block; zero is off.
    pub header_timeout: Sourced<Duration>,
    /// Most bytes of a head.
    pub max_header_bytes: Sourced<usize>,
    /// Most fields of a head.
    pub max_header_count: usize,
    /// Total time for a body.
    pub body_timeout: Sourced<Duration>,
    /// Least average rate of a body.
    pub min_body_rate: Sourced<u64>,
    /// Whose forwarding headers are believed.
    pub trusted_proxies: CidrSet,
    /// Where they name the client.
    pub client_ip_header: String,
    /// What holds for client addresses.
    pub rules: Rules,
    /// Where those of its limits were set that nothing else overrides.
    pub sources: ProcessSources,
}

/// Reads `key`, or the older name if that is written. Both at once is a fault.
fn either(section: &Section<'_>, key: &'static str, older: &'static str) -> bool {
    let use_older = section.mark_of(older);
    section.known(older);
    if let (Some(_), Some(mark)) = (section.mark_of(key), use_older) {
        let text = format!("firewall.{older} is the older name of {key} (allowed: one of them)");
        section.report.fault(mark, text);
        return false;
    }
    use_older.is_some()
}

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

fn cidrs(s: &Section<'_>, key: &'static str, older: &'static str) -> CidrSet {
    let use_older = either(s, key, older);
    let written = read_cidrs(s, key);
    if use_older {
        read_cidrs(s, older)
    } else {
        written
    }
    .unwrap_or_default()
    .into_iter()
    .collect()
}

fn boolean(s: &Section<'_>, key: &'static str, older: &'static str) -> Option<bool> {
    let use_older = either(s, key, older);
    let written = s.boolean(key);
    if use_older {
        s.boolean(older)
    } else {
        written
    }
}

/// A number from `least` to `most`, or `default`.
fn count<N: TryFrom<i64>>(
    s: &Section<'_>,
    (key, older): (&'static str, &'static str),
    (least, most): (i64, i64),
    default: N,
) -> N {
    let written = number(s, key, older, most);
    at_least(s, key, older, written, least);
    let fits = written.and_then(|n| N::try_from(n).ok());
    fits.unwrap_or(default)
}

/// The largest count of anything that is not absurd.
const MOST: i64 = 1_000_000_000;

fn read_rules(s: &Section<'_>) -> Rules {
    let default = Rules::default();
    let modes = [("enforce", Mode::Enforce), ("observe", Mode::Observe)];
    let alpha = ("ewma_alpha_pct", "ewmaAlphaPct");
    let threshold = ("auto_block_threshold", "autoBlockThreshold");
    let factor = ("block_escalation_factor", "blockEscalationFactor");
    let per_ip = ("max_connections_per_ip", "maxConnectionsPerIp");
    let total = ("max_connections_total", "maxConnectionsTotal");
    let tracked = ("max_tracked_addresses", "maxTrackedAddresses");
    let prefix = s.integer("ipv6_prefix", 1..=128);
    Rules {
        enabled: s.boolean("enabled").unwrap_or(default.enabled),
        mode: s.choice("mode", &modes, 2).unwrap_or(default.mode),
        rate_limit_rps: count(
            s,
            ("rate_limit_rps", "rateLimitRps"),
            (0, MOST),
            default.rate_limit_rps,
        ),
        rate_limit_burst: count(
            s,
            ("rate_limit_burst", "rateLimitBurst"),
            (1, MOST),
            default.rate_limit_burst,
        ),
        adaptive_rate_limit: boolean(s, "adaptive_rate_limit", "adaptiveRateLimit")
            .unwrap_or(default.adaptive_rate_limit),
        ewma_alpha_pct: count(s, alpha, (0, 100), default.ewma_alpha_pct),
        auto_block_threshold: count(s, threshold, (0, 1_000_000), default.auto_block_threshold),
        block_duration: duration(s, "block_duration", "blockDurationSecs")
            .unwrap_or(default.block_duration),
        block_escalation_factor: count(s, factor, (1, 1000), default.block_escalation_factor),
        max_block_duration: duration(s, "max_block_duration", "maxBlockDurationSecs")
            .unwrap_or(default.max_block_duration),
        strike_decay: duration(s, "strike_decay", "strikeDecaySecs")
            .unwrap_or(default.strike_decay),
        max_connections_per_ip: count(s, per_ip, (0, MOST), default.max_connections_per_ip),
        max_connections_total: count(s, total, (0, MOST), default.max_connections_total),
        max_tracked_addresses: count(s, tracked, (1, MOST), default.max_tracked_addresses),
        ipv6_prefix: prefix
            .and_then(|n| u8::try_from(n).ok())
            .unwrap_or(default.ipv6_prefix),
        allow: cidrs(s, "allow", "allowList"),
        deny: cidrs(s, "deny", "denyList"),
    }
}

/// Reads and checks the whole block.
pub fn read(s: Section<'_>) -> Firewall {
    let rules = read_rules(&s);
    if let Some(mark) = s.mark_of("maxBodyBytes") {
        s.known("maxBodyBytes");
        let text = "firewall.maxBodyBytes is not a setting of the firewall (allowed: server.max_body_bytes)";
        s.report.fault(mark, text);
    }
    let header_timeout = duration(&s, "header_timeout", "headerTimeoutMs");
    let bytes = number(&s, "max_header_bytes", "maxHeaderBytes", 1 << 30);
    let most_fields = i64::try_from(MOST_FIELDS).unwrap_or(i64::MAX);
    let count = number(&s, "max_header_count", "maxHeaderCount", most_fields);
    at_least(&s, "max_header_bytes", "maxHeaderBytes", bytes, 256);
    at_least(&s, "max_header_count", "maxHeaderCount", count, 1);
    let rate = number(&s, "min_body_rate", "minBodyRateBps", i64::from(u32::MAX));
    let secs = Duration::from_secs;
    let body_timeout = duration(&s, "body_timeout", "bodyTimeoutMs");
    let bytes = bytes.and_then(|n| usize::try_from(n).ok());
    let rate = rate.and_then(|n| u64::try_from(n).ok());
    let made = Firewall {
        header_timeout: (
            header_timeout.unwrap_or(secs(10)),
            origin(&s, "header_timeout", "headerTimeoutMs"),
        ),
        max_header_bytes: (
            bytes.unwrap_or(16_384),
            origin(&s, "max_header_bytes", "maxHeaderBytes"),
        ),
        max_header_count: count.and_then(|n| usize::try_from(n).ok()).unwrap_or(100),
        body_timeout: (
            body_timeout.unwrap_or(secs(30)),
            origin(&s, "body_timeout", "bodyTimeoutMs"),
        ),
        min_body_rate: (
            rate.unwrap_or(100),
            origin(&s, "min_body_rate", "minBodyRateBps"),
        ),
        trusted_proxies: read_trusted_proxies(&s),
        client_ip_header: read_client_ip_header(&s),
        rules,
        sources: sources(&s),
    };
    s.finish();
    made
}

/// To trust everybody is mostly meant as "whoever stands in front", and lets each client choose its
/// address.
fn read_trusted_proxies(s: &Section<'_>) -> CidrSet {
    let (key, older) = ("trusted_proxies", "trustedProxies");
    let proxies = cidrs(s, key, older);
    if let Some(all) = proxies.blocks().iter().find(|block| block.bits() == 0) {
        let key = if s.mark_of(key).is_some() { key } else { older };
        let text = format!(
            "firewall.{key}: {all} is every address: any client may say that it is another, and so is \
             held by no rate, block or deny list"
        );
        s.report.warning(s.value_mark(key), text);
    }
    proxies
}

/// Where a key is set, under either name.
fn origin(s: &Section<'_>, key: &str, older: &str) -> Origin {
    let name = if s.mark_of(key).is_some() { key } else { older };
    s.origin(name, SetBy::Firewall)
}

fn sources(s: &Section<'_>) -> ProcessSources {
    ProcessSources {
        max_header_count: origin(s, "max_header_count", "maxHeaderCount"),
        min_body_rate: origin(s, "min_body_rate", "minBodyRateBps"),
        body_timeout: origin(s, "body_timeout", "bodyTimeoutMs"),
        deny: origin(s, "deny", "denyList"),
        block_duration: origin(s, "block_duration", "blockDurationSecs"),
        auto_block_threshold: origin(s, "auto_block_threshold", "autoBlockThreshold"),
        rate_limit_rps: origin(s, "rate_limit_rps", "rateLimitRps"),
        max_connections_total: origin(s, "max_connections_total", "maxConnectionsTotal"),
        max_connections_per_ip: origin(s, "max_connections_per_ip", "maxConnectionsPerIp"),
        ..ProcessSources::default()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config::load_texts;
    use crate::control::resolve::Endpoints;
    use crate::policy::settings::Settings;

    const ROUTES: &str = "routes: [{target: 'http://a'}]";

    fn settings(block: &str) -> Settings {
        let config = format!("firewall: {block}");
        match load_texts(&config, Some(ROUTES), &mut Endpoints::default()) {
            Ok(loaded) => (*loaded.snapshot.settings).clone(),
            Err(rejected) => unreachable!("{block}: {:?}", rejected.faults),
        }
    }

    fn faults(block: &str) -> Vec<String> {
        let config = format!("firewall:\n{block}");
        match load_texts(&config, Some(ROUTES), &mut Endpoints::default()) {
            Ok(_) => Vec::new(),
            Err(rejected) => rejected.faults.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn what_is_not_written_has_its_default() {
        assert_eq!(settings("{}").firewall, Rules::default());
        let changed = settings("{enabled: off, mode: observe, ipv6_prefix: 56}").firewall;
        let expected = Rules {
            enabled: false,
            mode: Mode::Observe,
            ipv6_prefix: 56,
            ..Rules::default()
        };
        assert_eq!(changed, expected);
    }

    #[test]
    fn older_names_carry_their_units() {
        let older = settings(
            "{rateLimitRps: 1, rateLimitBurst: 2, adaptiveRateLimit: true, ewmaAlphaPct: 3, \
             autoBlockThreshold: 4, blockDurationSecs: 5, blockEscalationFactor: 6, \
             maxBlockDurationSecs: 7, strikeDecaySecs: 8, maxConnectionsPerIp: 9, \
             maxConnectionsTotal: 10, headerTimeoutMs: 2500, maxHeaderCount: 11, \
             maxHeaderBytes: 300, trustedProxies: [10.0.0.0/8]}",
        );
        let newer = settings(
            "{rate_limit_rps: 1, rate_limit_burst: 2, adaptive_rate_limit: true, \
             ewma_alpha_pct: 3, auto_block_threshold: 4, block_duration: 5s, \
             block_escalation_factor: 6, max_block_duration: 7s, strike_decay: 8s, \
             max_connections_per_ip: 9, max_connections_total: 10, header_timeout: 2500ms, \
             max_header_count: 11, max_header_bytes: 300, trusted_proxies: [10.0.0.0/8]}",
        );
        assert_eq!(older, newer);
        let expected = Rules {
            rate_limit_rps: 1,
            rate_limit_burst: 2,
            adaptive_rate_limit: true,
            ewma_alpha_pct: 3,
            auto_block_threshold: 4,
            block_duration: Duration::from_secs(5),
            block_escalation_factor: 6,
            max_block_duration: Duration::from_secs(7),
            strike_decay: Duration::from_secs(8),
            max_connections_per_ip: 9,
            max_connections_total: 10,
            ..Rules::default()
        };
        assert_eq!(newer.firewall, expected);
        assert_eq!(newer.header_timeout, Duration::from_millis(2500));
        assert_eq!((newer.max_header_count, newer.max_header_bytes), (11, 300));
        assert_eq!(newer.trusted_proxies.blocks().len(), 1);
    }

    #[test]
    fn what_makes_no_sense_is_a_fault() {
        assert_eq!(
            faults("  maxBodyBytes: 5\n  headerTimeoutMs: 1\n  header_timeout: 1s\n"),
            [
                "config.yaml:2:3: firewall.maxBodyBytes is not a setting of the firewall (allowed: server.max_body_bytes)",
                "config.yaml:3:3: firewall.headerTimeoutMs is the older name of header_timeout (allowed: one of them)",
            ]
        );
        for key in [
            "rate_limit_burst",
            "rateLimitBurst",
            "block_escalation_factor",
            "max_tracked_addresses",
        ] {
            let said = format!(
                "config.yaml:2:{}: firewall.{key} is too small (allowed: 1 or more)",
                key.len() + 5
            );
            assert_eq!(faults(&format!("  {key}: 0\n")), [said]);
        }
        for block in [
            "rate_limit_rps: -1",
            "ewma_alpha_pct: 101",
            "ipv6_prefix: 0",
            "ipv6_prefix: 129",
            "mode: off",
            "deny: [x]",
        ] {
            assert_eq!(faults(&format!("  {block}\n")).len(), 1, "{block}");
        }
    }
}
