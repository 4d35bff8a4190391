use super::super::standing::Standing;
use super::*;

const A: &str = "192.0.2.1";

#[test]
fn f1_the_denial_that_reaches_the_threshold_blocks_and_clears_the_violations() {
    let (firewall, rules) = (Firewall::new(&rules()), rules());
    let a = client(A);
    let answers: Vec<_> = (0..6).map(|_| ask(&firewall, &rules, a, ms(0))).collect();
    let (rate, auto, blocked) = (Reason::RateLimit, Reason::AutoBlocked, Reason::Blocked);
    let expected = [
        None,
        None,
        Some(rate),
        Some(rate),
        Some(auto),
        Some(blocked),
    ];
    assert_eq!(answers, expected);
    let cause = *firewall
        .request(&rules, a, None, secs(100))
        .cause()
        .unwrap();
    let expected = Cause {
        reason: blocked,
        limit: 300,
        observed: 100,
        retry_after: Some(200),
    };
    assert_eq!(cause, expected);
    // After the block: the bucket is full again, and a denial is the first one.
    let after = secs(300);
    let answers: Vec<_> = (0..4).map(|_| ask(&firewall, &rules, a, after)).collect();
    assert_eq!(answers, [None, None, Some(rate), Some(rate)]);
}

#[test]
fn f1_the_403_of_the_denial_that_blocks_says_how_long() {
    let (firewall, rules) = (Firewall::new(&rules()), rules());
    for _ in 0..4 {
        let _ = firewall.request(&rules, client(A), None, ms(0));
    }
    let cause = *firewall
        .request(&rules, client(A), None, ms(0))
        .cause()
        .unwrap();
    let expected = Cause {
        reason: Reason::AutoBlocked,
        limit: 3,
        observed: 3,
        retry_after: Some(300),
    };
    assert_eq!(cause, expected);
    assert_eq!(cause.answer().status(), 403);
}

#[test]
fn f1_requests_refused_during_a_block_do_not_prolong_it() {
    let (firewall, rules) = (Firewall::new(&rules()), rules());
    provoke(&firewall, &rules, client(A), ms(0));
    for n in 0..600 {
        let now = ms(n * 500);
        let expected = Some(Reason::Blocked);
        assert_eq!(ask(&firewall, &rules, client(A), now), expected, "{n}");
    }
    assert_eq!(ask(&firewall, &rules, client(A), secs(300)), None);
}

#[test]
fn f1_violations_decay_by_one_for_each_admitted_request() {
    let rules = rules();
    // One in, one out, for ever: never a block.
    let mut standing = Standing::new(&rules, ms(0));
    assert!(standing.request(&rules, true, ms(0)).is_none());
    for second in 0..1000 {
        assert!(standing.request(&rules, true, secs(second)).is_none());
        let denied = standing.request(&rules, true, ms(second * 1000 + 999));
        assert_eq!(denied.unwrap().reason, Reason::RateLimit);
        assert_eq!(standing.violations(), 1);
    }
    // Two denials, then as many admitted ones as make up for them.
    let mut standing = Standing::new(&rules, ms(0));
    for _ in 0..4 {
        let _ = standing.request(&rules, true, ms(0));
    }
    assert_eq!(standing.violations(), 2);
    assert!(standing.request(&rules, true, secs(1)).is_none());
    assert_eq!(standing.violations(), 1);
    assert!(standing.request(&rules, true, secs(2)).is_none());
    assert!(standing.request(&rules, true, secs(3)).is_none());
    assert_eq!(standing.violations(), 0);
}

#[test]
fn f1_a_threshold_of_zero_never_blocks() {
    let rules = Rules {
        auto_block_threshold: 0,
        ..rules()
    };
    let firewall = Firewall::new(&rules);
    for _ in 0..1000 {
        let answer = ask(&firewall, &rules, client(A), ms(0));
        assert!(matches!(answer, None | Some(Reason::RateLimit)));
    }
}

#[test]
fn f2_block_n_lasts_as_the_table_of_the_seed_says() {
    for (base, factor, max, expected) in [
        (300, 2, 3600, [300, 600, 1200, 2400, 3600, 3600]),
        (300, 1, 3600, [300; 6]),
        (300, 0, 3600, [300; 6]),
        (300, 3, 3600, [300, 900, 2700, 3600, 3600, 3600]),
        // Never less than the base.
        (300, 2, 60, [300; 6]),
        (1, 10, 100_000, [1, 10, 100, 1000, 10_000, 100_000]),
        // The product leaves every range before the last strike.
        (
            3600,
            1000,
            u64::MAX,
            [
                3600,
                3_600_000,
                3_600_000_000,
                3_600_000_000_000,
                3_600_000_000_000_000,
                3_600_000_000_000_000_000,
            ],
        ),
    ] {
        let rules = Rules {
            block_duration: Duration::from_secs(base),
            block_escalation_factor: factor,
            max_block_duration: Duration::from_secs(max),
            ..Rules::default()
        };
        let lengths = [1, 2, 3, 4, 5, 6].map(|n| block_length(&rules, n).as_secs());
        assert_eq!(lengths, expected, "{base} {factor} {max}");
        assert_eq!(
            block_length(&rules, MOST_STRIKES),
            block_length(&rules, 255)
        );
    }
}

#[test]
fn f2_strikes_outlive_the_block_and_are_forgotten_after_strike_decay() {
    let rules = Rules {
        max_block_duration: Duration::from_secs(100_000),
        ..rules()
    };
    let firewall = Firewall::new(&rules);
    let mut now = 0;
    for (gap, strikes, length) in [
        (0, 1, 300),
        // At once after the block ends.
        (300, 2, 600),
        (3599, 3, 1200),
        // Exactly the decay since the last block began: forgotten.
        (3600, 1, 300),
        (3599, 2, 600),
        (1_000_000, 1, 300),
    ] {
        now += gap;
        assert_eq!(firewall.blocked(&rules, 10, secs(now)), [], "at {now}");
        provoke(&firewall, &rules, client(A), secs(now));
        let blocked = only_blocked(&firewall, &rules, secs(now));
        let expected = (strikes, Duration::from_secs(length));
        assert_eq!((blocked.strikes, blocked.left), expected, "at {now}");
        assert_eq!(blocked.reason, BlockedFor::Rate);
    }
}

#[test]
fn f2_strikes_grow_to_sixteen_at_most() {
    let rules = Rules {
        block_duration: Duration::from_secs(1),
        block_escalation_factor: 1,
        ..rules()
    };
    let firewall = Firewall::new(&rules);
    for n in 1..=20u8 {
        let now = secs(u64::from(n) * 10);
        provoke(&firewall, &rules, client(A), now);
        let strikes = only_blocked(&firewall, &rules, now).strikes;
        assert_eq!(strikes, n.min(MOST_STRIKES));
    }
}

#[test]
fn f5_cuts_for_slowness_are_violations() {
    let (firewall, rules) = (Firewall::new(&rules()), rules());
    let a = client(A);
    assert_eq!(firewall.violate(&rules, a, None, ms(0)), None);
    assert_eq!(firewall.violate(&rules, a, None, ms(0)), None);
    let cause = firewall.violate(&rules, a, None, ms(0)).unwrap();
    assert_eq!((cause.reason, cause.observed), (Reason::AutoBlocked, 3));
    let blocked = only_blocked(&firewall, &rules, ms(0));
    assert_eq!(blocked.reason, BlockedFor::Slowness);
    // Two hundred connections that are cut together are one block: cuts during it do not count.
    for _ in 0..200 {
        assert_eq!(firewall.violate(&rules, a, None, secs(299)), None);
    }
    assert_eq!(ask(&firewall, &rules, a, secs(300)), None);
    assert_eq!(firewall.violate(&rules, a, None, secs(300)), None);
    // Neither proxies nor allowed addresses.
    let allowing = Rules {
        allow: ["192.0.2.7".parse().unwrap()].into_iter().collect(),
        ..rules.clone()
    };
    for _ in 0..10 {
        assert_eq!(
            firewall.violate(&rules, proxy("192.0.2.8"), None, ms(0)),
            None
        );
        assert_eq!(
            firewall.violate(&allowing, client("192.0.2.7"), None, ms(0)),
            None
        );
    }
}

#[test]
fn f7_blocks_by_hand_are_listed_and_lifted() {
    let (firewall, rules) = (Firewall::new(&rules()), rules());
    let minute = Duration::from_secs(60);
    assert!(firewall.block(&rules, ip("2001:db8::1"), minute, ms(0)));
    let blocked = only_blocked(&firewall, &rules, secs(10));
    assert_eq!(blocked.addresses.to_string(), "2001:db8::/64");
    assert_eq!(blocked.reason, BlockedFor::Hand);
    assert_eq!(
        (blocked.strikes, blocked.left),
        (0, Duration::from_secs(50))
    );
    // One host owns the /64.
    let neighbour = client("2001:db8::2");
    assert_eq!(
        ask(&firewall, &rules, neighbour, secs(10)),
        Some(Reason::Blocked)
    );
    let denied = firewall.connect(&rules, neighbour, secs(10));
    assert_eq!(denied.decision.cause().unwrap().reason, Reason::Blocked);
    assert!(firewall.unblock(&rules, ip("2001:db8::ffff"), secs(11)));
    assert!(!firewall.unblock(&rules, ip("2001:db8::ffff"), secs(11)));
    assert!(!firewall.unblock(&rules, ip("192.0.2.1"), secs(11)));
    assert_eq!(ask(&firewall, &rules, neighbour, secs(11)), None);
    assert_eq!(firewall.blocked(&rules, 10, secs(11)), []);
    // A block by hand ends by itself, too.
    assert!(firewall.block(&rules, ip("192.0.2.2"), minute, secs(11)));
    assert_eq!(
        ask(&firewall, &rules, client("192.0.2.2"), secs(70)),
        Some(Reason::Blocked)
    );
    assert_eq!(ask(&firewall, &rules, client("192.0.2.2"), secs(71)), None);
}

#[test]
fn f7_the_list_is_bounded_and_longest_first() {
    let (firewall, rules) = (Firewall::new(&rules()), rules());
    for n in 1..=100u8 {
        let length = Duration::from_secs(u64::from(n));
        assert!(firewall.block(&rules, IpAddr::from([192, 0, 2, n]), length, ms(0)));
    }
    let listed = firewall.blocked(&rules, 3, ms(0));
    let left: Vec<u64> = listed.iter().map(|b| b.left.as_secs()).collect();
    assert_eq!(left, [100, 99, 98]);
    assert_eq!(firewall.blocks_by_hand(), 100);
}

#[test]
fn f7_a_reload_keeps_buckets_blocks_and_strikes() {
    let firewall = Firewall::new(&rules());
    let (before, a, b) = (rules(), client(A), client("192.0.2.2"));
    provoke(&firewall, &before, a, ms(0));
    assert_eq!(ask(&firewall, &before, b, ms(0)), None);
    assert_eq!(ask(&firewall, &before, b, ms(0)), None);
    let after = Rules {
        rate_limit_burst: 100,
        block_duration: Duration::from_secs(10),
        ..before
    };
    // The block keeps its length; the empty bucket is not filled by a larger one.
    assert_eq!(ask(&firewall, &after, a, secs(299)), Some(Reason::Blocked));
    assert_eq!(ask(&firewall, &after, b, ms(0)), Some(Reason::RateLimit));
    provoke(&firewall, &after, a, secs(300));
    let blocked = only_blocked(&firewall, &after, secs(300));
    assert_eq!((blocked.strikes, blocked.left.as_secs()), (2, 20));
    // A smaller one takes what does not fit.
    let small = Rules {
        rate_limit_burst: 1,
        ..after
    };
    assert_eq!(ask(&firewall, &small, b, secs(1000)), None);
    assert_eq!(
        ask(&firewall, &small, b, secs(1000)),
        Some(Reason::RateLimit)
    );
}
