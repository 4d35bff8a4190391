use proptest::prelude::*;

use super::super::bucket::Bucket;
use super::*;

#[test]
fn f1_a_bucket_starts_full_and_each_request_takes_one_token() {
    let firewall = Firewall::new(&rules());
    let rules = Rules {
        rate_limit_burst: 5,
        auto_block_threshold: 0,
        ..rules()
    };
    let a = client("192.0.2.1");
    for _ in 0..5 {
        assert_eq!(ask(&firewall, &rules, a, ms(0)), None);
    }
    let cause = *firewall.request(&rules, a, None, ms(0)).cause().unwrap();
    let expected = Cause {
        reason: Reason::RateLimit,
        limit: 1,
        observed: 6,
        retry_after: Some(1),
    };
    assert_eq!(cause, expected);
    // Refilled lazily, exactly: 999 ms are not yet a token, 1000 ms are one and no more.
    assert_eq!(ask(&firewall, &rules, a, ms(999)), Some(Reason::RateLimit));
    assert_eq!(ask(&firewall, &rules, a, ms(1000)), None);
    assert_eq!(ask(&firewall, &rules, a, ms(1000)), Some(Reason::RateLimit));
    // Never beyond the burst, however long it waits; others have their own.
    assert_eq!(ask(&firewall, &rules, client("192.0.2.2"), ms(1000)), None);
    for _ in 0..5 {
        assert_eq!(ask(&firewall, &rules, a, secs(1_000_000)), None);
    }
    let then = secs(1_000_000);
    assert_eq!(ask(&firewall, &rules, a, then), Some(Reason::RateLimit));
}

#[test]
fn f1_a_rate_of_zero_is_off() {
    let firewall = Firewall::new(&rules());
    let rules = Rules {
        rate_limit_rps: 0,
        ..rules()
    };
    for _ in 0..1000 {
        assert_eq!(ask(&firewall, &rules, client("::1"), ms(0)), None);
    }
}

#[test]
fn f1_a_clock_that_steps_back_gains_nothing_and_loses_nothing() {
    let mut bucket = Bucket::full(2, secs(10));
    assert!(bucket.take() && bucket.take());
    bucket.refill(1, 2, secs(5));
    assert_eq!(bucket.tokens(), 0);
    bucket.refill(1, 2, secs(11));
    assert_eq!(bucket.tokens(), 1);
    // The longest times and highest rates do not overflow.
    bucket.refill(u64::MAX, u32::MAX, Time(u64::MAX));
    assert_eq!(bucket.tokens(), u64::from(u32::MAX));
    assert_eq!(bucket.wait(u64::MAX), 1);
}

#[test]
fn f1_retry_after_is_whole_seconds_and_at_least_one() {
    let mut bucket = Bucket::full(1, ms(0));
    assert_eq!(bucket.wait(1), 1);
    assert!(bucket.take());
    assert_eq!(bucket.wait(1), 1);
    assert_eq!(bucket.wait(1_000_000), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Against the definition: in every stretch of time at most burst + rps·length are let in, and
    /// one that is refused could not have been let in.
    #[test]
    fn f1_every_stretch_of_time_gets_what_it_is_owed_and_no_more(
        rps in 1u32..50,
        burst in 1u32..20,
        gaps in prop::collection::vec(0u64..400_000_000, 1..120),
    ) {
        let rules = Rules { rate_limit_rps: rps, rate_limit_burst: burst, auto_block_threshold: 0, ..Rules::default() };
        let firewall = Firewall::new(&rules);
        let mut now = ms(0);
        let mut admitted: Vec<u64> = Vec::new();
        let owed = |length: u64| u128::from(burst) * 1_000_000_000 + u128::from(rps) * u128::from(length);
        for gap in gaps {
            now = Time(now.0 + gap);
            let fits = |extra: u128| admitted.iter().enumerate().all(|(i, &since)| {
                let taken = (admitted.len() - i) as u128 + extra;
                taken * 1_000_000_000 <= owed(now.0 - since)
            });
            let could = fits(1);
            let is_in = ask(&firewall, &rules, client("192.0.2.9"), now).is_none();
            prop_assert_eq!(is_in, could, "at {:?} after {:?}", now, admitted);
            if is_in {
                admitted.push(now.0);
            }
        }
    }
}
