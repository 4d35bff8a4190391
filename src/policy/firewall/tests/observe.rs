use super::*;

fn observing() -> Rules {
    Rules {
        mode: Mode::Observe,
        max_connections_per_ip: 1,
        max_connections_total: 3,
        deny: ["192.0.2.66".parse().unwrap()].into_iter().collect(),
        ..rules()
    }
}

fn observed(firewall: &Firewall, rules: &Rules, who: Client, now: Time) -> Option<Reason> {
    match firewall.request(rules, who, None, now) {
        Decision::Admit => None,
        Decision::Observe(cause) => Some(cause.reason),
        Decision::Refuse(cause) => panic!("refused: {cause:?}"),
    }
}

#[test]
fn observe_says_what_it_would_do_and_does_nothing_but_the_cap_in_all() {
    let rules = observing();
    let firewall = Firewall::new(&rules);
    let a = client("192.0.2.1");
    let seen: Vec<_> = (0..6)
        .map(|_| observed(&firewall, &rules, a, ms(0)))
        .collect();
    let (rate, auto) = (Some(Reason::RateLimit), Some(Reason::AutoBlocked));
    assert_eq!(seen, [None, None, rate, rate, auto, Some(Reason::Blocked)]);
    assert_eq!(
        only_blocked(&firewall, &rules, ms(0)).addresses.to_string(),
        "192.0.2.1/32"
    );
    let mut open = Vec::new();
    for (who, reason) in [
        ("192.0.2.1", Some(Reason::Blocked)),
        ("192.0.2.66", Some(Reason::Denied)),
        ("192.0.2.2", None),
    ] {
        let admission = firewall.connect(&rules, client(who), ms(0));
        let cause = admission.decision.cause();
        assert_eq!(cause.map(|cause| cause.reason), reason, "{who}");
        open.push(admission.permit.expect("let in"));
    }
    let full = firewall.connect(&rules, client("192.0.2.3"), ms(0));
    assert!(full.permit.is_none());
    assert_eq!(
        full.decision.cause().unwrap().reason,
        Reason::ConnectionLimit
    );
    drop(open);
    let one = firewall.connect(&rules, client("192.0.2.2"), ms(0));
    let two = firewall.connect(&rules, client("192.0.2.2"), ms(0));
    let cause = two.decision.cause().unwrap();
    assert_eq!(
        (cause.reason, cause.observed),
        (Reason::AddressConnectionLimit, 2)
    );
    assert!(one.permit.is_some() && two.permit.is_some());
    drop((one, two));
    assert_eq!(firewall.connections(), 0);
    firewall.table.check();
}

#[test]
fn observe_is_discarded_on_switching() {
    let (watching, enforcing) = (observing(), rules());
    let firewall = Firewall::new(&watching);
    let a = client("192.0.2.1");
    for _ in 0..6 {
        observed(&firewall, &watching, a, ms(0));
    }
    let held = firewall.connect(&watching, a, ms(0));
    // Neither the block nor the strike nor the empty bucket is left; the connection is.
    assert_eq!(firewall.blocked(&enforcing, 10, ms(0)), []);
    assert_eq!(ask(&firewall, &enforcing, a, ms(1)), None);
    assert_eq!(ask(&firewall, &enforcing, a, ms(1)), None);
    provoke(&firewall, &enforcing, a, ms(1));
    let blocked = only_blocked(&firewall, &enforcing, ms(1));
    assert_eq!((blocked.strikes, blocked.connections), (1, 1));
    drop(held);
    firewall.table.check();
}

#[test]
fn observed_blocks_take_no_room_for_good() {
    let rules = Rules {
        max_tracked_addresses: 10,
        auto_block_threshold: 1,
        rate_limit_burst: 1,
        ..observing()
    };
    let firewall = Firewall::new(&rules);
    for n in 0..100u8 {
        for _ in 0..2 {
            observed(
                &firewall,
                &rules,
                client(&format!("198.51.100.{n}")),
                ms(u64::from(n)),
            );
        }
    }
    let stats = firewall.stats();
    assert_eq!((stats.tracked, stats.evicted, stats.untracked), (10, 90, 0));
    firewall.table.check();
}
