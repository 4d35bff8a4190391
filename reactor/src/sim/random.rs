//! The only source of chance in a simulation.

/// Pseudo-random numbers from one seed (SplitMix64, Steele, Lea and Flood 2014): small, without
/// bad seeds, and the same on every platform.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// `true` with the given probability. Draws nothing for 0, so that faults that are switched
    /// off do not disturb the sequence.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && (self.number() >> 11) as f64 / (1_u64 << 53) as f64 <= probability
    }

    /// Some of `n` (at least 1), mostly all, if `probability` strikes.
    pub(crate) fn shorten(&mut self, n: usize, probability: f64) -> usize {
        if n <= 1 || !self.chance(probability) {
            return n;
        }
        // Short pieces are where the mistakes are, so every second is tiny.
        let limit = if self.below(2) == 0 { n.min(16) } else { n };
        self.between(1, limit as u64) as usize
    }

    /// Puts `items` into an arbitrary order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}
