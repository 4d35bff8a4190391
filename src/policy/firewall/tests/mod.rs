//! The rules of the firewall with a made-up clock. Each test names the rule that it holds.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod blocks;
mod bucket;
mod caps;
mod clients;
mod meter;
mod observe;
mod room;

use super::*;

/// So many milliseconds after the beginning of a test.
fn ms(n: u64) -> Time {
    Time(1_000_000_000_000 + n * 1_000_000)
}

fn secs(n: u64) -> Time {
    ms(n * 1000)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn client(text: &str) -> Client {
    Client {
        address: ip(text),
        is_proxy: false,
    }
}

fn proxy(text: &str) -> Client {
    Client {
        address: ip(text),
        is_proxy: true,
    }
}

/// Two tokens, one more each second, blocked at the third violation for 300 s.
fn rules() -> Rules {
    Rules {
        rate_limit_rps: 1,
        rate_limit_burst: 2,
        auto_block_threshold: 3,
        ..Rules::default()
    }
}

/// The reason for which a request is refused, if it is.
fn ask(firewall: &Firewall, rules: &Rules, client: Client, now: Time) -> Option<Reason> {
    match firewall.request(rules, client, None, now) {
        Decision::Admit => None,
        Decision::Refuse(cause) => Some(cause.reason),
        Decision::Observe(cause) => panic!("observed: {cause:?}"),
    }
}

/// Asks until blocked, all at `now`; returns how many requests that took.
fn provoke(firewall: &Firewall, rules: &Rules, client: Client, now: Time) -> u32 {
    for n in 1..10_000 {
        if ask(firewall, rules, client, now) == Some(Reason::AutoBlocked) {
            return n;
        }
    }
    panic!("no block");
}

fn only_blocked(firewall: &Firewall, rules: &Rules, now: Time) -> Blocked {
    let all = firewall.blocked(rules, 10, now);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}
