//! The settings of the firewall, as they hold at one moment.

use std::time::Duration;

use super::super::cidr::CidrSet;

/// Whether decisions about an address are carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// They are.
    Enforce,
    /// They are counted and logged only. What was learned so is discarded when the mode changes.
    Observe,
}

/// `firewall`, as far as it is about addresses. Given in with each call: a reload changes the rules
/// and keeps what is known of the addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Off: no deny list, blocks, rates or caps.
    pub enabled: bool,
    /// Whether decisions about an address are carried out. The total cap holds in both modes.
    pub mode: Mode,
    /// Tokens that a bucket gains per second. 0 = no rate limit.
    pub rate_limit_rps: u32,
    /// Tokens that a bucket holds at most, and at first. At least 1.
    pub rate_limit_burst: u32,
    /// Whether the rate follows an address's own traffic (F3).
    pub adaptive_rate_limit: bool,
    /// Weight of the newest window in the average, in percent, up to 100.
    pub ewma_alpha_pct: u8,
    /// Violations that lead to a block. 0 = none do.
    pub auto_block_threshold: u32,
    /// Length of the first block.
    pub block_duration: Duration,
    /// Factor from one block to the next (F2). 0 and 1 = all are as long as the first.
    pub block_escalation_factor: u32,
    /// Length that escalation does not go beyond.
    pub max_block_duration: Duration,
    /// Time after the last automatic block at which strikes are forgotten.
    pub strike_decay: Duration,
    /// Most connections of one address. 0 = unlimited.
    pub max_connections_per_ip: u32,
    /// Most connections in all. 0 = unlimited.
    pub max_connections_total: u32,
    /// Most addresses about which something is known. At least 1.
    pub max_tracked_addresses: usize,
    /// Leading bits of an IPv6 address that make out its owner, 1 to 128.
    pub ipv6_prefix: u8,
    /// Addresses that are never limited or blocked. The total cap holds for them, too.
    pub allow: CidrSet,
    /// Addresses that are always refused; wins over `allow`.
    pub deny: CidrSet,
}

impl Rules {
    /// Most connections in all that are let in, if there is such a limit.
    #[must_use]
    pub fn connection_cap(&self) -> Option<u32> {
        let limit = self.max_connections_total;
        (self.enabled && limit > 0).then_some(limit)
    }
}

impl Default for Rules {
    /// What holds where nothing is written.
    fn default() -> Self {
        Rules {
            enabled: true,
            mode: Mode::Enforce,
            rate_limit_rps: 100,
            rate_limit_burst: 200,
            adaptive_rate_limit: false,
            ewma_alpha_pct: 20,
            auto_block_threshold: 10,
            block_duration: Duration::from_secs(300),
            block_escalation_factor: 2,
            max_block_duration: Duration::from_secs(3600),
            strike_decay: Duration::from_secs(3600),
            max_connections_per_ip: 50,
            max_connections_total: 10_000,
            max_tracked_addresses: 200_000,
            ipv6_prefix: 64,
            allow: CidrSet::default(),
            deny: CidrSet::default(),
        }
    }
}
