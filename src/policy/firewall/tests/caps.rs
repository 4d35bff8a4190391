use proptest::prelude::*;

use super::*;

fn connect(firewall: &Arc<Firewall>, rules: &Rules, who: Client) -> Result<Permit, Reason> {
    let admission = firewall.connect(rules, who, ms(0));
    match (admission.decision, admission.permit) {
        (Decision::Admit, Some(permit)) => Ok(permit),
        (Decision::Refuse(cause), None) => Err(cause.reason),
        other => panic!("{other:?}"),
    }
}

fn capped(per_ip: u32, total: u32) -> Rules {
    Rules {
        max_connections_per_ip: per_ip,
        max_connections_total: total,
        ..rules()
    }
}

fn set(text: &str) -> crate::policy::cidr::CidrSet {
    [text.parse().unwrap()].into_iter().collect()
}

#[test]
fn caps_hold_for_each_address_and_in_all() {
    let rules = capped(2, 3);
    let firewall = Firewall::new(&rules);
    let (a, b) = (client("192.0.2.1"), client("192.0.2.2"));
    let first = connect(&firewall, &rules, a).unwrap();
    let _second = connect(&firewall, &rules, a).unwrap();
    let refused = firewall.connect(&rules, a, ms(0));
    let expected = Cause {
        reason: Reason::AddressConnectionLimit,
        limit: 2,
        observed: 3,
        retry_after: Some(1),
    };
    assert_eq!(refused.decision, Decision::Refuse(expected));
    let third = connect(&firewall, &rules, b).unwrap();
    // In all comes before the address's own.
    for who in [a, b, client("192.0.2.3")] {
        let refused = firewall.connect(&rules, who, ms(0));
        let expected = Cause {
            reason: Reason::ConnectionLimit,
            limit: 3,
            observed: 4,
            retry_after: Some(1),
        };
        assert_eq!(refused.decision, Decision::Refuse(expected));
    }
    // No account is opened for who is not let in.
    assert_eq!(firewall.stats().tracked, 2);
    drop(first);
    let again = connect(&firewall, &rules, a).unwrap();
    drop((again, third));
    assert_eq!(firewall.connections(), 1);
}

#[test]
fn a_cap_of_zero_is_none() {
    let rules = capped(0, 0);
    let firewall = Firewall::new(&rules);
    let all: Vec<_> = (0..20_000)
        .map(|_| connect(&firewall, &rules, client("192.0.2.1")).unwrap())
        .collect();
    assert_eq!(firewall.connections(), 20_000);
    drop(all);
    assert_eq!(firewall.connections(), 0);
    firewall.table.check();
}

#[test]
fn an_ipv6_address_counts_with_its_64_and_a_mapped_one_as_ipv4() {
    let rules = capped(1, 0);
    let firewall = Firewall::new(&rules);
    let _six = connect(&firewall, &rules, client("2001:db8::1")).unwrap();
    let full = Err(Reason::AddressConnectionLimit);
    let refused = |text| connect(&firewall, &rules, client(text)).map(drop);
    assert_eq!(refused("2001:db8::ffff:ffff:ffff:ffff"), full);
    assert_eq!(refused("2001:db8:0:1::1"), Ok(()));
    let _four = connect(&firewall, &rules, client("192.0.2.1")).unwrap();
    assert_eq!(refused("::ffff:192.0.2.1"), full);
    assert_eq!(refused("192.0.2.2"), Ok(()));
    let by_host = Rules {
        ipv6_prefix: 128,
        ..rules
    };
    let _other = connect(&firewall, &by_host, client("2001:db8::2")).unwrap();
}

#[test]
fn deny_wins_over_allow_and_allow_over_everything_but_the_cap_in_all() {
    let rules = Rules {
        allow: set("192.0.2.0/24"),
        deny: set("192.0.2.66"),
        ..capped(1, 4)
    };
    let firewall = Firewall::new(&rules);
    let denied = client("192.0.2.66");
    let refused = firewall.connect(&rules, denied, ms(0));
    assert_eq!(refused.decision, Decision::Refuse(DENIED));
    assert_eq!(
        DENIED.answer(),
        crate::http::Answer::AddressBlocked { retry_after: None }
    );
    assert_eq!(ask(&firewall, &rules, denied, ms(0)), Some(Reason::Denied));
    let allowed = client("192.0.2.1");
    let _open: Vec<_> = (0..4)
        .map(|_| connect(&firewall, &rules, allowed).unwrap())
        .collect();
    let refused = connect(&firewall, &rules, allowed).map(drop);
    assert_eq!(refused, Err(Reason::ConnectionLimit));
    for _ in 0..1000 {
        assert_eq!(ask(&firewall, &rules, allowed, ms(0)), None);
    }
    // A block by hand does not reach it either.
    assert!(firewall.block(&rules, allowed.address, Duration::from_secs(60), ms(0)));
    assert_eq!(ask(&firewall, &rules, allowed, ms(0)), None);
    // The deny list also reaches who comes through a proxy that is on it.
    let refused = connect(&firewall, &rules, proxy("192.0.2.66")).map(drop);
    assert_eq!(refused, Err(Reason::Denied));
}

#[test]
fn s16_a_trusted_proxy_is_exempt_from_blocks_and_its_own_cap_but_not_from_the_total() {
    let rules = capped(1, 3);
    let firewall = Firewall::new(&rules);
    let p = proxy("10.0.0.1");
    let open: Vec<_> = (0..3)
        .map(|_| connect(&firewall, &rules, p).unwrap())
        .collect();
    let refused = connect(&firewall, &rules, p).map(drop);
    assert_eq!(refused, Err(Reason::ConnectionLimit));
    drop(open);
    // Its own requests have a bucket, but never lead to a block of all who come through it.
    let answers: Vec<_> = (0..100).map(|_| ask(&firewall, &rules, p, ms(0))).collect();
    assert_eq!(answers[..2], [None, None]);
    assert!(answers[2..].iter().all(|a| *a == Some(Reason::RateLimit)));
    assert!(firewall.block(&rules, p.address, Duration::from_secs(60), ms(0)));
    assert!(connect(&firewall, &rules, p).is_ok());
    // The client behind it is blocked, and only that one.
    provoke(&firewall, &rules, client("198.51.100.1"), ms(0));
    assert_eq!(ask(&firewall, &rules, client("198.51.100.2"), ms(0)), None);
}

#[test]
fn a_block_comes_before_the_caps() {
    let rules = capped(1, 1);
    let firewall = Firewall::new(&rules);
    let a = client("192.0.2.1");
    provoke(&firewall, &rules, a, ms(0));
    let _full = connect(&firewall, &rules, client("192.0.2.2")).unwrap();
    assert_eq!(
        connect(&firewall, &rules, a).map(drop),
        Err(Reason::Blocked)
    );
    let other = connect(&firewall, &rules, client("192.0.2.3")).map(drop);
    assert_eq!(other, Err(Reason::ConnectionLimit));
}

#[test]
fn disabled_switches_everything_off() {
    let rules = Rules {
        enabled: false,
        deny: set("0.0.0.0/0"),
        ..capped(1, 1)
    };
    let firewall = Firewall::new(&rules);
    let a = client("192.0.2.1");
    let open: Vec<_> = (0..10)
        .map(|_| connect(&firewall, &rules, a).unwrap())
        .collect();
    for _ in 0..100 {
        assert_eq!(ask(&firewall, &rules, a, ms(0)), None);
        assert_eq!(firewall.violate(&rules, a, None, ms(0)), None);
    }
    assert_eq!(firewall.stats().tracked, 0);
    // Connections are counted all the same: the cap holds from the moment it is switched on.
    let on = capped(1, 1);
    let refused = connect(&firewall, &on, a).map(drop);
    assert_eq!(refused, Err(Reason::ConnectionLimit));
    drop(open);
    assert!(connect(&firewall, &on, a).is_ok());
}

#[test]
fn a_request_finds_its_connection_s_own_account() {
    let rules = capped(10, 0);
    let firewall = Firewall::new(&rules);
    let a = client("192.0.2.1");
    let mut permit = connect(&firewall, &rules, a).unwrap();
    let mut request = |who| {
        firewall
            .request(&rules, who, Some(&mut permit), ms(0))
            .admits()
    };
    // One bucket, whether the connection is at hand or not.
    assert!(request(a));
    assert_eq!(ask(&firewall, &rules, a, ms(0)), None);
    assert!(!request(a));
    // Another client on the same connection has its own.
    assert!(request(client("192.0.2.2")) && request(client("192.0.2.2")));
    assert!(!request(client("192.0.2.2")));
    firewall.table.check();
}

#[derive(Clone, Debug)]
enum Step {
    Open(u8),
    Close(usize),
    Ask(u8),
    Block(u8),
    Unblock(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..12).prop_map(Step::Open),
        3 => any::<usize>().prop_map(Step::Close),
        3 => (0u8..12).prop_map(Step::Ask),
        1 => (0u8..12).prop_map(Step::Block),
        1 => (0u8..12).prop_map(Step::Unblock),
        1 => (0u64..400).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Counts agree with what is open at every step, however connections end, with so little room
    /// that entries come and go all the time.
    #[test]
    fn connections_are_counted_exactly(steps in prop::collection::vec(step(), 1..150), most in 3usize..20) {
        let rules = Rules { max_tracked_addresses: most, ..capped(3, 8) };
        let firewall = Firewall::new(&rules);
        let mut open: Vec<(u8, Permit)> = Vec::new();
        let mut now = 0;
        for step in steps {
            let address = |n: u8| IpAddr::from([192, 0, 2, n]);
            match step {
                Step::Open(n) => {
                    let who = Client { address: address(n), is_proxy: false };
                    let mine = open.iter().filter(|(m, _)| *m == n).count();
                    let admission = firewall.connect(&rules, who, ms(now));
                    let cause = admission.decision.cause().copied();
                    match cause.map(|cause| cause.reason) {
                        None => prop_assert!(open.len() < 8),
                        Some(Reason::ConnectionLimit) => prop_assert_eq!(open.len(), 8),
                        Some(Reason::AddressConnectionLimit) => {
                            prop_assert_eq!(cause.map(|c| c.observed), Some(4));
                            prop_assert!(mine >= 3);
                        }
                        Some(Reason::Blocked) => {}
                        other => prop_assert!(false, "{:?}", other),
                    }
                    open.extend(admission.permit.map(|permit| (n, permit)));
                }
                Step::Close(i) if !open.is_empty() => drop(open.swap_remove(i % open.len())),
                Step::Close(_) => {}
                Step::Ask(n) => {
                    let who = Client { address: address(n), is_proxy: false };
                    let own = open.iter_mut().find(|(m, _)| *m == n).map(|(_, permit)| permit);
                    let _ = firewall.request(&rules, who, own, ms(now));
                }
                Step::Block(n) => {
                    firewall.block(&rules, address(n), Duration::from_millis(100), ms(now));
                }
                Step::Unblock(n) => {
                    firewall.unblock(&rules, address(n), ms(now));
                }
                Step::Wait(n) => now += n,
            }
            prop_assert_eq!(firewall.connections() as usize, open.len());
            prop_assert!(firewall.stats().tracked <= most);
            firewall.table.check();
        }
        drop(open);
        prop_assert_eq!(firewall.connections(), 0);
        firewall.table.check();
    }
}
