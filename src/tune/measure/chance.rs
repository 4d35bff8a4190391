//! Whether a difference between a setting's two values can be chance.
//!
//! The interval is that of `toron bench --compare`. A percentile bootstrap over few rounds is too
//! narrow, though (of 300 simulated settings without any effect, intervals of 98.75% over 10 rounds
//! left out 1 in 4%, not 1.25%), so a difference counts only if a second, exact test agrees: were
//! the setting without effect, each round's two values could as well have come in the other order,
//! so all 2^n ways to swap them are equally likely, and the share of those in which the sum of
//! differences is as large as it was is the probability of such a sum by chance (Fisher's
//! randomisation test, paired).
//!
//! Where several figures of several settings are compared, each gets its part of the 5% (Bonferroni),
//! so that one of them all is taken for better by chance in 5% of the runs at most.

use crate::bench::bootstrap::{ratio_at, Ratio};

/// Probability by which something without effect may be taken for an effect, in the whole run.
pub const RISK: f64 = 0.05;
/// Up to so many rounds all ways to swap are tried.
const EXACT: usize = 14;
/// Beyond it so many drawn ones.
const DRAWN: u32 = 20_000;

/// A difference between two values of a setting.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Difference {
    /// The ratio of the sums, with an interval of the confidence asked for; `None` if the old ones
    /// are all zero, and the new ones are not.
    pub ratio: Option<Ratio>,
    /// The probability of as large a difference by chance.
    pub chance: f64,
    /// Whether it is taken for real.
    pub is_sure: bool,
}

/// Compares pairs of (old value, new value) when so many comparisons are made in all. `None` if all
/// are zero.
#[must_use]
pub fn compare(pairs: &[(f64, f64)], comparisons: usize, seed: u64) -> Option<Difference> {
    let risk = risk_of_each(comparisons);
    let ratio = ratio_at(pairs, seed, 1.0 - risk);
    let is_something = |pair: &(f64, f64)| pair.0 > 0.0 || pair.1 > 0.0;
    if !pairs.iter().any(is_something) {
        return None;
    }
    let chance = chance(pairs, seed);
    Some(Difference {
        ratio,
        chance,
        is_sure: ratio.is_none_or(|ratio| ratio.is_sure()) && chance <= risk,
    })
}

impl Difference {
    /// Whether the new value is larger.
    #[must_use]
    pub fn is_more(&self) -> bool {
        self.ratio.is_none_or(|ratio| ratio.ratio > 1.0)
    }

    /// Whether both differ by at least this share of the old one.
    #[must_use]
    pub fn is_at_least(&self, share: f64) -> bool {
        let least = |ratio: Ratio| (ratio.ratio - 1.0).abs() >= share;
        self.ratio.is_none_or(least)
    }
}

/// Rounds below which not even the clearest difference is sure: all of n rounds have it in the same
/// direction by chance in 2 of 2^n cases.
#[must_use]
pub fn rounds_needed(comparisons: usize) -> u32 {
    (1..64u32)
        .find(|n| 2.0 / f64::from(*n).exp2() <= risk_of_each(comparisons))
        .unwrap_or(64)
}

/// The part of [`RISK`] that one comparison has.
#[must_use]
pub fn risk_of_each(comparisons: usize) -> f64 {
    RISK / comparisons.max(1) as f64
}

/// The share of the ways to swap the values of rounds with as large a sum of differences.
fn chance(pairs: &[(f64, f64)], seed: u64) -> f64 {
    // Relative ones, so that a slow round weighs no more than others.
    let relative = |(old, new): &(f64, f64)| match old + new {
        sum if sum > 0.0 => (new - old) / sum,
        _ => 0.0,
    };
    let differences: Vec<f64> = pairs.iter().map(relative).collect();
    let seen = differences.iter().sum::<f64>().abs();
    // Sums of the same numbers in another order differ in their last digits.
    let is_as_large = |sum: f64| sum.abs() >= seen * (1.0 - 1e-9);
    let sum_of = |swapped: u64| -> f64 {
        let signed = differences.iter().enumerate();
        signed
            .map(|(n, d)| if swapped >> (n % 64) & 1 == 1 { -d } else { *d })
            .sum()
    };
    if differences.len() <= EXACT {
        let all = 1u64 << differences.len();
        let large = (0..all).filter(|swapped| is_as_large(sum_of(*swapped)));
        return large.count() as f64 / all as f64;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let large = (0..DRAWN).filter(|_| {
        let sum: f64 = differences
            .iter()
            .map(|d| if random.bool() { -d } else { *d })
            .sum();
        is_as_large(sum)
    });
    // The way it was is one of them.
    (large.count() + 1) as f64 / f64::from(DRAWN + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Noise of 20% around 1, and what disturbs both values of a round.
    fn pairs(rounds: usize, effect: f64, random: &mut fastrand::Rng) -> Vec<(f64, f64)> {
        (0..rounds)
            .map(|_| {
                let common = 0.5 + random.f64();
                let mut own = || common * (0.9 + 0.2 * random.f64());
                (own(), effect * own())
            })
            .collect()
    }

    #[test]
    fn what_has_no_effect_is_seldom_taken_for_one() {
        let mut random = fastrand::Rng::with_seed(5);
        for (rounds, comparisons) in [(6, 1), (10, 4)] {
            let alarms = (0..200).filter(|seed| {
                let pairs = pairs(rounds, 1.0, &mut random);
                compare(&pairs, comparisons, *seed).unwrap().is_sure
            });
            // 5% of 200 are 10, and chance adds at most three times its deviation of 3.2.
            let most = 200.0 * risk_of_each(comparisons);
            let alarms = alarms.count() as f64;
            assert!(
                alarms <= most + 3.0 * most.sqrt(),
                "{alarms} of 200 with {rounds} rounds, {comparisons} comparisons"
            );
        }
    }

    #[test]
    fn a_clear_effect_is_found_once_there_are_rounds_enough() {
        let mut random = fastrand::Rng::with_seed(6);
        for comparisons in [1, 4, 16, 64] {
            let needed = rounds_needed(comparisons) as usize;
            let enough = pairs(needed, 1.5, &mut random);
            let found = compare(&enough, comparisons, 1).unwrap();
            assert!(found.is_sure && found.is_more(), "{found:?}");
            assert!(
                found.is_at_least(0.3) && !found.is_at_least(0.7),
                "{found:?}"
            );
            let few = compare(&enough[1..], comparisons, 1).unwrap();
            assert!(!few.is_sure, "{few:?}");
        }
        assert_eq!([1, 4, 16].map(rounds_needed), [6, 8, 10]);
        // Many rounds: drawn ways to swap.
        let many = pairs(30, 1.2, &mut random);
        let found = compare(&many, 4, 1).unwrap();
        assert!(found.is_sure && found.chance < 0.001, "{found:?}");
    }

    #[test]
    fn the_chance_is_counted_exactly() {
        // Of eight ways two have a sum of 3 in one direction or the other.
        let same = [(1.0, 3.0), (1.0, 3.0), (1.0, 3.0)];
        assert!((chance(&same, 1) - 0.25).abs() < 1e-12);
        // No difference at all: every way is as large.
        assert!((chance(&[(1.0, 1.0); 5], 1) - 1.0).abs() < 1e-12);
        assert!((chance(&[(0.0, 0.0); 5], 1) - 1.0).abs() < 1e-12);
        // From nothing to something, and the reverse.
        assert!((chance(&[(0.0, 1.0); 4], 1) - 0.125).abs() < 1e-12);
    }

    #[test]
    fn from_nothing_to_something_there_is_no_ratio_but_a_difference() {
        let found = compare(&[(0.0, 1.0); 9], 1, 1).unwrap();
        assert!(found.is_sure && found.is_more() && found.ratio.is_none());
        let gone = compare(&[(1.0, 0.0); 9], 1, 1).unwrap();
        assert!(gone.is_sure && !gone.is_more());
        assert_eq!(compare(&[(0.0, 0.0); 9], 1, 1), None);
    }
}
