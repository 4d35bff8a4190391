//! In turn.

/// Smooth weighted round robin: over one cycle (the sum of the weights) every target is taken as
/// often as its weight says, and heavy targets are spread over the cycle instead of taken in a row.
///
/// Reactor `i` begins `i` steps into the cycle, so that over equal targets the whole process is
/// even to ±1 per reactor, and the first requests of many reactors do not meet at one target.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    targets: usize,
    turns: Turns,
}

#[derive(Clone, Debug)]
enum Turns {
    /// All weights are equal: the one to begin the search with. Of a thousand targets the first
    /// that is looked at is taken as a rule.
    Equal(usize),
    Weighted(Vec<Share>),
}

#[derive(Clone, Debug)]
struct Share {
    weight: i64,
    /// What it is owed.
    credit: i64,
}

impl RoundRobin {
    /// Over targets of these weights (0 counts as 1), for the reactor of this index.
    #[must_use]
    pub fn new(reactor: usize, weights: impl IntoIterator<Item = u32>) -> Self {
        let weights: Vec<i64> = weights.into_iter().map(|w| i64::from(w.max(1))).collect();
        let targets = weights.len();
        if weights.windows(2).all(|pair| pair[0] == pair[1]) {
            let turns = Turns::Equal(reactor % targets.max(1));
            return RoundRobin { targets, turns };
        }
        let total: i64 = weights.iter().sum();
        let shares = weights
            .into_iter()
            .map(|weight| Share { weight, credit: 0 });
        let turns = Turns::Weighted(shares.collect());
        let mut this = RoundRobin { targets, turns };
        let steps = usize::try_from(total).map_or(0, |cycle| reactor % cycle.max(1));
        for _ in 0..steps {
            this.next(|_| true);
        }
        this
    }

    /// The next target among those for which `usable` holds; `None` if there is none. Targets that
    /// are left out neither gain nor lose, so they do not get a burst when they come back.
    pub fn next(&mut self, usable: impl Fn(usize) -> bool) -> Option<usize> {
        match &mut self.turns {
            Turns::Equal(turn) => {
                let rest = *turn..self.targets;
                let found = rest.chain(0..*turn).find(|&i| usable(i))?;
                *turn = (found + 1) % self.targets;
                Some(found)
            }
            Turns::Weighted(shares) => next_share(shares, usable),
        }
    }
}

fn next_share(shares: &mut [Share], usable: impl Fn(usize) -> bool) -> Option<usize> {
    let mut total = 0;
    let mut best: Option<(usize, i64)> = None;
    for (i, share) in shares.iter_mut().enumerate().filter(|(i, _)| usable(*i)) {
        total += share.weight;
        share.credit += share.weight;
        if best.is_none_or(|(_, credit)| share.credit > credit) {
            best = Some((i, share.credit));
        }
    }
    let (best, _) = best?;
    if let Some(share) = shares.get_mut(best) {
        share.credit -= total;
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn take(rr: &mut RoundRobin, n: usize) -> Vec<usize> {
        (0..n).map(|_| rr.next(|_| true).unwrap()).collect()
    }

    #[test]
    fn equal_targets_come_in_turn_from_the_reactor_s_own_start() {
        assert_eq!(
            take(&mut RoundRobin::new(0, [1, 1, 1]), 6),
            [0, 1, 2, 0, 1, 2]
        );
        assert_eq!(take(&mut RoundRobin::new(4, [1, 1, 1]), 4), [1, 2, 0, 1]);
        assert_eq!(take(&mut RoundRobin::new(1, [7, 7, 7]), 4), [1, 2, 0, 1]);
    }

    #[test]
    fn those_left_share_the_turns_of_one_that_is_out() {
        let mut rr = RoundRobin::new(0, [1; 4]);
        let taken: Vec<usize> = (0..6).map(|_| rr.next(|i| i != 1).unwrap()).collect();
        assert_eq!(taken, [0, 2, 3, 0, 2, 3]);
    }

    #[test]
    fn a_heavy_target_is_spread() {
        // The example of nginx's description of the algorithm.
        assert_eq!(
            take(&mut RoundRobin::new(0, [5, 1, 1]), 7),
            [0, 0, 1, 0, 2, 0, 0]
        );
    }

    #[test]
    fn a_target_that_is_out_is_skipped_and_gets_no_burst_afterwards() {
        for weights in [[1, 1, 1], [2, 1, 1]] {
            let mut rr = RoundRobin::new(0, weights);
            for _ in 0..100 {
                assert_ne!(rr.next(|i| i != 1).unwrap(), 1);
            }
            let after = take(&mut rr, 12);
            let burst = after.iter().filter(|&&i| i == 1).count();
            assert!((3..=4).contains(&burst), "{after:?}");
            assert_eq!(rr.next(|_| false), None);
        }
        assert_eq!(RoundRobin::new(3, []).next(|_| true), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_cycle_is_exact(weights in prop::collection::vec(1u32..20, 1..8), reactor in 0usize..300) {
            let cycle: u32 = weights.iter().sum();
            let mut rr = RoundRobin::new(reactor, weights.iter().copied());
            let mut counts = vec![0; weights.len()];
            for i in take(&mut rr, cycle as usize * 3) {
                counts[i] += 1;
            }
            let expected: Vec<u32> = weights.iter().map(|w| w * 3).collect();
            prop_assert_eq!(counts, expected);
        }

        #[test]
        fn equal_targets_are_even_to_one_per_reactor(
            m in 1usize..10,
            requests in prop::collection::vec(0usize..50, 1..20),
        ) {
            let mut counts = vec![0usize; m];
            for (reactor, &n) in requests.iter().enumerate() {
                for i in take(&mut RoundRobin::new(reactor, vec![3; m]), n) {
                    counts[i] += 1;
                }
            }
            let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(max - min <= requests.len(), "{:?}", counts);
        }
    }
}
