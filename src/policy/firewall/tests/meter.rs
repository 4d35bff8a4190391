use proptest::prelude::*;

use super::super::meter::Meter;
use super::*;

fn adaptive() -> Rules {
    Rules {
        rate_limit_rps: 100,
        rate_limit_burst: 200,
        adaptive_rate_limit: true,
        auto_block_threshold: 0,
        ..Rules::default()
    }
}

#[test]
fn f3_the_average_follows_the_formula() {
    let mut meter = Meter::new(ms(0));
    let mut expected = 0.0;
    for (second, count) in [100u32, 0, 0, 50, 200, 7, 0, 1].into_iter().enumerate() {
        for _ in 0..count {
            meter.count(true);
        }
        meter.advance(20, ms(second as u64 * 1000 + 999));
        assert!(
            (meter.ewma() - expected).abs() < 1e-9,
            "window {second} is not over"
        );
        expected = 0.2 * f64::from(count) + 0.8 * expected;
        meter.advance(20, secs(second as u64 + 1));
        assert!(
            (meter.ewma() - expected).abs() < 1e-9,
            "{second}: {} {expected}",
            meter.ewma()
        );
    }
}

#[test]
fn f3_effective_rate_is_at_least_rps_and_at_most_four_times_it() {
    for (alpha, count, rps, expected) in [
        (100, 0, 100, 100),
        (100, 66, 100, 100),
        (100, 67, 100, 101),
        (100, 101, 100, 152),
        (20, 500, 100, 150),
        (100, 266, 100, 399),
        (100, 267, 100, 400),
        (100, 100_000, 100, 400),
        (0, 100_000, 100, 100),
        (100, 1, 1, 2),
    ] {
        let mut meter = Meter::new(ms(0));
        for _ in 0..count {
            meter.count(true);
        }
        meter.advance(alpha, secs(1));
        assert_eq!(meter.effective_rps(rps), expected, "{alpha} {count} {rps}");
    }
}

#[test]
fn f3_a_flood_cannot_raise_its_own_limit() {
    let (firewall, rules) = (Firewall::new(&adaptive()), adaptive());
    // 10,000 requests in each second, from the first on: what is let in settles at the bucket's
    // own rate, which never pays for itself.
    let mut admitted = Vec::new();
    for second in 0..120 {
        let asks = (0..10_000).map(|n| Time(secs(second).0 + n * 100_000));
        let is_in = |now: &Time| ask(&firewall, &rules, client("192.0.2.1"), *now).is_none();
        admitted.push(asks.filter(is_in).count());
    }
    assert!(admitted.iter().all(|&n| n <= 400), "{admitted:?}");
    let mut refused = Meter::new(ms(0));
    for _ in 0..10_000 {
        refused.count(false);
    }
    refused.advance(100, secs(1));
    assert_eq!(refused.effective_rps(100), 100);
    assert_eq!(refused.arrivals(), 10_000);
}

#[test]
fn f3_slowly_growing_traffic_is_let_in_and_a_fixed_rate_would_not_do_it() {
    let denied = |rules: &Rules| {
        let firewall = Firewall::new(rules);
        let mut denied = 0;
        // From 60 to 240 requests per second, one more each second.
        for second in 0..180 {
            let n = 60 + second;
            for k in 0..n {
                let now = Time(secs(second).0 + k * 1_000_000_000 / n);
                denied += u32::from(ask(&firewall, rules, client("192.0.2.1"), now).is_some());
            }
        }
        denied
    };
    assert_eq!(denied(&adaptive()), 0);
    let fixed = Rules {
        adaptive_rate_limit: false,
        ..adaptive()
    };
    assert!(denied(&fixed) > 1000);
}

#[test]
fn f3_idle_windows_count_as_zeros() {
    let mut meter = Meter::new(ms(0));
    for _ in 0..1000 {
        meter.count(true);
    }
    meter.advance(20, secs(1));
    assert_eq!(meter.effective_rps(100), 300);
    meter.advance(20, secs(2));
    assert_eq!(meter.effective_rps(100), 240);
    meter.advance(20, secs(1_000_000_000));
    assert_eq!(meter.effective_rps(100), 100);
}

#[test]
fn f3_the_burst_stays_as_it_is() {
    let (firewall, rules) = (Firewall::new(&adaptive()), adaptive());
    let a = client("192.0.2.1");
    for second in 0..60 {
        for k in 0..100 {
            let _ = ask(&firewall, &rules, a, ms(second * 1000 + k * 10));
        }
    }
    let later = secs(60);
    let admitted = (0..1000).filter(|_| ask(&firewall, &rules, a, later).is_none());
    assert!(admitted.count() <= 200);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However the gaps fall, skipping idle windows is the same as closing them one by one.
    #[test]
    fn f3_windows_closed_at_once_or_one_by_one_come_to_the_same(
        alpha in 0u8..=100,
        steps in prop::collection::vec((0u32..200, 0u64..8000), 1..40),
    ) {
        let (mut lazy, mut eager) = (Meter::new(ms(0)), Meter::new(ms(0)));
        let mut now = 0;
        for (count, gap) in steps {
            for _ in 0..count {
                lazy.count(true);
                eager.count(true);
            }
            for at in now..=now + gap {
                if at % 1000 == 0 {
                    eager.advance(alpha, ms(at));
                }
            }
            now += gap;
            lazy.advance(alpha, ms(now));
            prop_assert!((lazy.ewma() - eager.ewma()).abs() < 1e-6);
            prop_assert_eq!(lazy.window_end(), eager.window_end());
        }
    }
}
