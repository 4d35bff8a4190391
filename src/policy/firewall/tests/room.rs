use std::collections::HashSet;
use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn room_for(most: usize) -> Rules {
    Rules {
        max_tracked_addresses: most,
        ..rules()
    }
}

fn numbered(n: u32) -> Client {
    Client {
        address: IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n)),
        is_proxy: false,
    }
}

/// Whether the account of `who` is there still: the bucket is not full.
fn is_known(firewall: &Firewall, rules: &Rules, who: Client, now: Time) -> bool {
    let asked = firewall
        .table
        .with_known(Key::of(who.address, rules.ipv6_prefix), now, |_, _| ());
    asked.is_some()
}

#[test]
fn a_flood_of_addresses_stays_within_bounds_and_evicts_no_live_block() {
    let rules = room_for(1000);
    let firewall = Firewall::new(&rules);
    for n in 0..300 {
        provoke(&firewall, &rules, numbered(n), ms(0));
    }
    for n in 1000..100_000 {
        let _ = ask(&firewall, &rules, numbered(n), ms(u64::from(n) / 100));
        assert!(firewall.stats().tracked <= 1000);
    }
    firewall.table.check();
    for n in 0..300 {
        assert_eq!(
            ask(&firewall, &rules, numbered(n), secs(2)),
            Some(Reason::Blocked)
        );
    }
    assert_eq!(firewall.stats().untracked, 0);
    assert_eq!(firewall.stats().tracked, 1000);
    // When the blocks have ended their entries may go.
    for n in 200_000..202_000 {
        let _ = ask(&firewall, &rules, numbered(n), secs(301));
    }
    assert!((0..300).all(|n| !is_known(&firewall, &rules, numbered(n), secs(302))));
    firewall.table.check();
}

#[test]
fn the_least_recently_seen_goes_first() {
    let rules = room_for(4);
    let firewall = Firewall::new(&rules);
    for n in 0..4 {
        let _ = ask(&firewall, &rules, numbered(n), ms(u64::from(n)));
    }
    // 0 is seen again, 2 has a connection, 3 is blocked until 10 s.
    let _ = ask(&firewall, &rules, numbered(0), ms(10));
    let two = firewall.connect(&rules, numbered(2), ms(11));
    firewall.block(&rules, numbered(3).address, Duration::from_secs(10), ms(12));
    let known = |newcomer: u32, now: Time| {
        let _ = ask(&firewall, &rules, numbered(newcomer), now);
        firewall.table.check();
        let mut present = Vec::new();
        firewall
            .table
            .scan(|key, _, _| present.push(key.block().to_string()));
        let all = (0..20).filter(|n| present.contains(&format!("11.0.0.{n}/32")));
        all.collect::<Vec<u32>>()
    };
    assert_eq!(known(10, ms(20)), [0, 2, 3, 10]);
    assert_eq!(known(11, ms(21)), [2, 3, 10, 11]);
    assert_eq!(known(12, ms(22)), [2, 3, 11, 12]);
    // The block ended after all of them were seen, so they go before it.
    assert_eq!(known(13, secs(11)), [2, 3, 12, 13]);
    assert_eq!(known(14, secs(11)), [2, 3, 13, 14]);
    assert_eq!(known(15, secs(11)), [2, 13, 14, 15]);
    // Without its connection it goes with those of its time: the list of a shard stays in order, so
    // which of them is first depends on who else is in the shard.
    drop(two);
    for newcomer in 16..19 {
        known(newcomer, secs(12));
    }
    assert_eq!(known(19, secs(12)), [16, 17, 18, 19]);
}

#[test]
fn where_all_are_blocked_or_connected_a_newcomer_is_let_in_without_an_account() {
    let rules = room_for(3);
    let firewall = Firewall::new(&rules);
    for n in 0..2 {
        provoke(&firewall, &rules, numbered(n), ms(0));
    }
    let held = firewall.connect(&rules, numbered(2), ms(0));
    for _ in 0..10 {
        assert_eq!(ask(&firewall, &rules, numbered(3), ms(1)), None);
    }
    let guest = firewall.connect(&rules, numbered(3), ms(1));
    assert!(guest.permit.is_some());
    assert_eq!(firewall.stats().untracked, 11);
    assert_eq!(firewall.connections(), 2);
    assert_eq!(
        ask(&firewall, &rules, numbered(0), ms(1)),
        Some(Reason::Blocked)
    );
    drop((held, guest));
    assert_eq!(firewall.connections(), 0);
    let _ = ask(&firewall, &rules, numbered(3), ms(2));
    assert!(is_known(&firewall, &rules, numbered(3), ms(2)));
    firewall.table.check();
}

#[test]
fn a_maximum_that_is_lowered_is_reached_as_addresses_come() {
    let firewall = Firewall::new(&room_for(1000));
    for n in 0..1000 {
        let _ = ask(&firewall, &room_for(1000), numbered(n), ms(u64::from(n)));
    }
    let small = room_for(100);
    for n in 1000..2000 {
        let before = firewall.stats().tracked;
        let _ = ask(&firewall, &small, numbered(n), ms(u64::from(n)));
        let after = firewall.stats().tracked;
        assert_eq!(after, before.saturating_sub(1).max(100));
    }
    firewall.table.check();
}

#[test]
fn many_threads_keep_the_books_straight() {
    let rules = Rules {
        max_connections_per_ip: 3,
        max_connections_total: 40,
        ..room_for(50)
    };
    let firewall = Firewall::new(&rules);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (firewall, rules) = (&firewall, &rules);
            scope.spawn(move || {
                let mut open = Vec::new();
                for round in 0..5000u32 {
                    let who = numbered((round.wrapping_mul(2_654_435_761) ^ thread) % 200);
                    let now = ms(u64::from(round));
                    let mut admission = firewall.connect(rules, who, now);
                    let _ = firewall.request(rules, who, admission.permit.as_mut(), now);
                    open.extend(admission.permit);
                    if open.len() > 12 {
                        open.swap_remove(round as usize % 12);
                    }
                    assert!(firewall.connections() <= 40);
                }
            });
        }
    });
    assert_eq!(firewall.connections(), 0);
    assert!(firewall.stats().tracked <= 50);
    firewall.table.check();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Against a list in order of last sight.
    #[test]
    fn what_is_kept_is_what_was_seen_last(asked in prop::collection::vec(0u32..60, 1..300), most in 1usize..40) {
        let rules = Rules { auto_block_threshold: 0, ..room_for(most) };
        let firewall = Firewall::new(&rules);
        let mut order: Vec<u32> = Vec::new();
        for (at, n) in asked.into_iter().enumerate() {
            let _ = ask(&firewall, &rules, numbered(n), ms(at as u64));
            order.retain(|m| *m != n);
            order.push(n);
            let excess = order.len().saturating_sub(most);
            order.drain(..excess);
        }
        let mut kept = HashSet::new();
        firewall.table.scan(|key, _, _| { kept.insert(key.block().to_string()); });
        let expected: HashSet<_> = order.iter().map(|n| format!("{}/32", numbered(*n).address)).collect();
        prop_assert_eq!(kept, expected);
        firewall.table.check();
    }
}

#[test]
fn refusals_are_told_why_up_to_a_thousand_a_second() {
    let flood = Arc::new(Flood::default());
    let told = |now| (0..5000).filter(|_| flood.tell(now).is_some()).count();
    assert_eq!(told(ms(100)), POLITE_PER_SECOND as usize);
    assert_eq!(told(ms(999)), 0);
    assert_eq!(told(ms(1000)), POLITE_PER_SECOND as usize);
    // A turn of another reactor that began in the second before does not open it again.
    assert_eq!(told(ms(999)), 0);
    assert_eq!(told(secs(60)), POLITE_PER_SECOND as usize);
    // At most a thousand stay open, however long they take.
    let open: Vec<_> = (70..80)
        .flat_map(|second| std::iter::repeat_n(second, 200))
        .filter_map(|second| flood.tell(secs(second)))
        .collect();
    assert_eq!(open.len(), POLITE_AT_ONCE as usize);
    drop(open);
    assert_eq!(told(secs(90)), POLITE_PER_SECOND as usize);
}
