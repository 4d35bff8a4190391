#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn balancer(algorithm: Algorithm, weights: &[u32]) -> Balancer {
    let names: Vec<String> = (0..weights.len()).map(|i| format!("http://t{i}")).collect();
    let candidates = names.iter().zip(weights);
    let candidates = candidates.map(|(name, &weight)| Candidate { weight, name });
    Balancer::new(algorithm, 0, 7, candidates)
}

fn client(n: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n))
}

const ALL: [Algorithm; 4] = [
    Algorithm::RoundRobin,
    Algorithm::LeastConn,
    Algorithm::RandomTwo,
    Algorithm::IpHash,
];

/// How often each target is taken by `n` clients.
fn counts(balancer: &mut Balancer, targets: usize, n: u32) -> Vec<u32> {
    let mut counts = vec![0; targets];
    for i in 0..n {
        counts[balancer.choose(client(i), |_| true, |_| 0).unwrap()] += 1;
    }
    counts
}

#[test]
fn least_conn_takes_the_least_loaded_for_its_weight_and_takes_turns_among_equals() {
    let mut three = balancer(Algorithm::LeastConn, &[1, 1, 1]);
    let loads = [4, 2, 3];
    let taken = three.choose(client(0), |_| true, |i| loads[i]);
    assert_eq!(taken, Some(1));
    assert_eq!(three.choose(client(0), |i| i != 1, |i| loads[i]), Some(2));
    let mut heavy = balancer(Algorithm::LeastConn, &[4, 1]);
    assert_eq!(heavy.choose(client(0), |_| true, |i| [7, 2][i]), Some(0));
    assert_eq!(heavy.choose(client(0), |_| true, |i| [9, 2][i]), Some(1));
    assert_eq!(counts(&mut three, 3, 300), [100, 100, 100]);
    assert_eq!(counts(&mut heavy, 2, 100), [80, 20]);
}

/// Requests that stay: the loads end up as the weights say.
#[test]
fn least_conn_and_random_two_fill_by_weight() {
    for algorithm in [Algorithm::LeastConn, Algorithm::RandomTwo] {
        let mut balancer = balancer(algorithm, &[3, 1, 2]);
        let mut loads = [0u32; 3];
        for n in 0..600 {
            let i = balancer.choose(client(n), |_| true, |i| loads[i]).unwrap();
            loads[i] += 1;
        }
        for (load, due) in loads.into_iter().zip([300u32, 100, 200]) {
            let off = load.abs_diff(due);
            assert!(off <= due / 10, "{algorithm:?}: {loads:?}");
        }
    }
}

#[test]
fn random_two_never_takes_the_most_loaded_of_many() {
    let mut balancer = balancer(Algorithm::RandomTwo, &[1; 8]);
    for n in 0..1000 {
        let taken = balancer.choose(client(n), |_| true, |i| u32::from(i == 3));
        assert_ne!(taken, Some(3));
    }
}

#[test]
fn ip_hash_spreads_clients_by_weight_and_keeps_them() {
    let weights = [1, 2, 1, 4];
    let mut balancer = balancer(Algorithm::IpHash, &weights);
    let spread = counts(&mut balancer, 4, 80_000);
    for (count, weight) in spread.iter().zip(weights) {
        let off = count.abs_diff(weight * 10_000);
        // Five standard deviations.
        assert!(off < 700, "{spread:?}");
    }
    assert_eq!(spread, counts(&mut balancer, 4, 80_000));
    let mapped: IpAddr = "::ffff:10.0.0.9".parse().unwrap();
    let choose = |b: &mut Balancer, c| b.choose(c, |_| true, |_| 0);
    assert_eq!(
        choose(&mut balancer, mapped),
        choose(&mut balancer, client(9))
    );
}

#[test]
fn ip_hash_moves_only_the_clients_of_a_target_that_goes() {
    let mut balancer = balancer(Algorithm::IpHash, &[1; 10]);
    let mut moved_to: HashMap<usize, u32> = HashMap::new();
    for n in 0..10_000 {
        let before = balancer.choose(client(n), |_| true, |_| 0).unwrap();
        let after = balancer.choose(client(n), |i| i != 4, |_| 0).unwrap();
        if before == 4 {
            *moved_to.entry(after).or_default() += 1;
        } else {
            assert_eq!(before, after, "client {n}");
        }
    }
    // They spread over all nine others.
    assert_eq!(moved_to.len(), 9, "{moved_to:?}");
    assert!(moved_to.values().all(|&n| n > 60), "{moved_to:?}");
}

/// Of other names the order of the list does not matter.
#[test]
fn ip_hash_goes_by_names_and_not_by_places() {
    let candidate = |name| Candidate { weight: 1, name };
    let ab = Rendezvous::new(["a", "b", "c"].map(candidate).into_iter());
    let ba = Rendezvous::new(["c", "b", "a"].map(candidate).into_iter());
    for n in 0..100 {
        let of = |r: &Rendezvous| r.choose(client(n), |_| true).unwrap();
        assert_eq!(of(&ab), 2 - of(&ba));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_usable_target_is_found_if_there_is_one(
        weights in prop::collection::vec(1u32..20, 1..12),
        out in prop::collection::vec(any::<bool>(), 12),
        loads in prop::collection::vec(0u32..5, 12),
        algorithm in 0usize..4,
        who in any::<u32>(),
    ) {
        let mut balancer = balancer(ALL[algorithm], &weights);
        let usable = |i: usize| !out[i];
        let any = (0..weights.len()).any(usable);
        for n in 0..20 {
            let chosen = balancer.choose(client(who % 1000 + n), usable, |i| loads[i]);
            prop_assert_eq!(chosen.is_some(), any);
            prop_assert!(chosen.is_none_or(|i| i < weights.len() && usable(i)));
        }
    }
}
