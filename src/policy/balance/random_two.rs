//! The less loaded of two that are drawn by lot (Mitzenmacher, "The power of two choices in
//! randomized load balancing", 2001): nearly as even as the least loaded of all, and many reactors
//! that know the same loads do not run to the same target.

use super::Load;

/// Draws two targets, each as likely as its weight says.
#[derive(Clone, Debug)]
pub struct RandomTwo {
    random: fastrand::Rng,
    /// The weights up to and including each target.
    sums: Vec<u64>,
}

/// Draws for one request. What has not been found by then (most targets are out, or one has most of
/// the weight) is looked for in order.
const DRAWS: usize = 16;

impl RandomTwo {
    /// Over targets of these weights.
    #[must_use]
    pub fn new(seed: u64, weights: &[u32]) -> Self {
        let sum = |sum: &mut u64, &weight: &u32| {
            *sum += u64::from(weight);
            Some(*sum)
        };
        RandomTwo {
            random: fastrand::Rng::with_seed(seed),
            sums: weights.iter().scan(0, sum).collect(),
        }
    }

    /// The less loaded of two usable targets; `None` if none is usable.
    pub fn choose(
        &mut self,
        usable: impl Fn(usize) -> bool,
        load: impl Fn(usize) -> Load,
    ) -> Option<usize> {
        let total = *self.sums.last()?;
        let mut first: Option<usize> = None;
        for _ in 0..DRAWS {
            let lot = self.random.u64(0..total);
            let drawn = self.sums.partition_point(|&sum| sum <= lot);
            match first {
                _ if !usable(drawn) => {}
                None => first = Some(drawn),
                Some(first) if first == drawn => {}
                Some(first) => return Some(less_loaded(first, drawn, load)),
            }
        }
        let begin = self.random.usize(0..self.sums.len());
        let mut rest = (begin..self.sums.len()).chain(0..begin);
        let mut next = |but: Option<usize>| rest.find(|&i| but != Some(i) && usable(i));
        let first = first.or_else(|| next(None))?;
        let second = next(Some(first));
        Some(second.map_or(first, |second| less_loaded(first, second, load)))
    }
}

fn less_loaded(first: usize, second: usize, load: impl Fn(usize) -> Load) -> usize {
    if load(second).is_below(load(first)) {
        second
    } else {
        first
    }
}
