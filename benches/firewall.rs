//! What the firewall costs a request, with 10,000 addresses tracked.
//!
//! `cargo bench --bench firewall` times the decision alone. `cargo bench --bench firewall -- instructions`
//! counts the instructions of the whole server per request under valgrind's callgrind, with all rules on
//! and off (see `firewall/instructions.rs`); that takes some minutes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "firewall/instructions.rs"]
mod instructions;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use toron::policy::firewall::{Client, Firewall, Permit, Rules};
use toron_reactor::Time;

const ADDRESSES: u32 = 10_000;
const ASKED: u32 = 1 << 20;

fn client(n: u32) -> Client {
    Client {
        address: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n)),
        is_proxy: false,
    }
}

fn firewall(rules: &Rules) -> Arc<Firewall> {
    let firewall = Firewall::new(rules);
    for n in 0..ADDRESSES {
        let _ = firewall.request(rules, client(n), None, Time(0));
    }
    firewall
}

/// Nanoseconds per call, the best of some rounds.
fn measure(rounds: u32, mut call: impl FnMut(u32)) -> f64 {
    let mut best = f64::MAX;
    for round in 0..rounds {
        let start = Instant::now();
        for n in 0..ASKED {
            call(round.wrapping_mul(ASKED).wrapping_add(n));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ASKED));
    }
    best
}

fn main() {
    if std::env::args().any(|a| a == "instructions") {
        return instructions::print();
    }
    // Once is for counting instructions, and for tests of the benches themselves.
    let once = std::env::args().any(|a| a == "once" || a == "--test");
    let rounds = if once { 1 } else { 9 };
    let on = Rules {
        adaptive_rate_limit: true,
        rate_limit_rps: 1_000_000,
        rate_limit_burst: 1_000_000,
        allow: ["192.0.2.0/24".parse().unwrap()].into_iter().collect(),
        deny: ["198.51.100.0/24".parse().unwrap()].into_iter().collect(),
        ..Rules::default()
    };
    let off = Rules {
        enabled: false,
        ..on.clone()
    };
    let shared = firewall(&on);
    let mut permit: Permit = shared.connect(&on, client(7), Time(0)).permit.unwrap();
    let at = |n: u32| Time(u64::from(n) * 1000);
    for (what, rules) in [("off", &off), ("own peer", &on)] {
        let ns = measure(rounds, |n| {
            black_box(shared.request(rules, client(7), Some(&mut permit), at(n)));
        });
        println!("{what:24} {ns:6.1} ns");
    }
    let ns = measure(rounds, |n| {
        let who = client(n.wrapping_mul(7919) % ADDRESSES);
        black_box(shared.request(&on, who, None, at(n)));
    });
    println!("{:24} {ns:6.1} ns", "behind a proxy");
    let small = Rules {
        max_tracked_addresses: ADDRESSES as usize,
        ..on
    };
    let ns = measure(rounds, |n| {
        black_box(shared.request(&small, client(ADDRESSES + n), None, at(n)));
    });
    println!("{:24} {ns:6.1} ns", "new address, table full");
    println!("{} bytes to a connection's permit", size_of::<Permit>());
}
