//! Ids of requests: unique in practice, and no system call or lock to make one.

use crate::policy::hash::mix;

/// Request ids: a random start, then one after the other.
#[derive(Debug)]
pub(crate) struct RequestIds {
    high: u64,
    low: u64,
}

impl RequestIds {
    pub(super) fn new(seed: u64) -> Self {
        RequestIds {
            high: mix(seed),
            low: mix(seed ^ 0x5851_f42d_4c95_7f2d),
        }
    }

    /// 32 hexadecimal digits, unique in practice.
    pub(crate) fn next(&mut self, text: &mut [u8; 32]) {
        self.low = self.low.wrapping_add(1);
        let (high, low) = text.split_at_mut(16);
        high.copy_from_slice(&hex(self.high));
        low.copy_from_slice(&hex(mix(self.low)));
    }
}

/// The hexadecimal digits of a word, all at once: each half is spread until a byte holds four bits.
fn hex(word: u64) -> [u8; 16] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let digits = |half: u64| {
        let x = (half << 16 | half) & 0x0000_ffff_0000_ffff;
        let x = (x << 8 | x) & 0x00ff_00ff_00ff_00ff;
        let x = (x << 4 | x) & 0x0f0f_0f0f_0f0f_0f0f;
        let letters = (x + 6 * ONES) >> 4 & ONES;
        let digits = x + u64::from(b'0') * ONES + letters * u64::from(b'a' - b'0' - 10);
        digits.to_be_bytes()
    };
    let mut text = [0; 16];
    let (high, low) = text.split_at_mut(8);
    high.copy_from_slice(&digits(word >> 32));
    low.copy_from_slice(&digits(word & 0xffff_ffff));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_formatter() {
        let mut word = 1u64;
        for _ in 0..1_000 {
            assert_eq!(hex(word), format!("{word:016x}").as_bytes());
            word = mix(word);
        }
        for word in [0, u64::MAX, 0x0123_4567_89ab_cdef, 0x9a9a_9a9a_a9a9_a9a9] {
            assert_eq!(hex(word), format!("{word:016x}").as_bytes());
        }
    }

    #[test]
    fn an_id_follows_another_and_begins_anywhere() {
        let (mut ids, mut others) = (RequestIds::new(7), RequestIds::new(8));
        let mut made = std::collections::HashSet::new();
        for _ in 0..1_000 {
            let mut id = [0; 32];
            ids.next(&mut id);
            assert!(id.iter().all(u8::is_ascii_hexdigit));
            assert!(made.insert(id));
            others.next(&mut id);
            assert!(made.insert(id));
        }
    }
}
