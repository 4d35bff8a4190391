//! The bytes of `/bytes/N` and its like: cheap to make anywhere, and no two words alike.
//!
//! The stream is a row of little-endian 64-bit words; word `k` is `(k + 1) × STEP` modulo 2^64.
//! `STEP` is odd, so the words are all different and a byte that is lost, doubled or moved shows,
//! whatever the distance (a pattern with a period would hide a loss of one period). One addition
//! makes eight bytes, so that the origin is not the bottleneck of a measurement.

use toron_reactor::Buf;

/// 2^64 divided by the golden ratio, odd: neighbouring words differ in all bytes.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bytes made at a time: they stay in the nearest cache until they are copied.
const BLOCK: usize = 4096;

/// The byte at position `at`.
#[must_use]
pub fn byte_at(at: u64) -> u8 {
    word(at / 8).to_le_bytes()[(at % 8) as usize]
}

/// Writes the bytes from position `at` on.
pub fn fill(at: u64, out: &mut [u8]) {
    let lead = (at.wrapping_neg() % 8) as usize;
    let (head, aligned) = out.split_at_mut(lead.min(out.len()));
    for (position, byte) in (at..).zip(head.iter_mut()) {
        *byte = byte_at(position);
    }
    let start = at + head.len() as u64;
    let mut next = word(start / 8);
    let mut words = aligned.chunks_exact_mut(8);
    for bytes in &mut words {
        bytes.copy_from_slice(&next.to_le_bytes());
        next = next.wrapping_add(STEP);
    }
    let tail = words.into_remainder();
    for (byte, value) in tail.iter_mut().zip(next.to_le_bytes()) {
        *byte = value;
    }
}

/// Appends the `n` bytes from position `at` on, or as many as fit; returns how many.
pub(super) fn append(at: u64, n: usize, buf: &mut Buf) -> usize {
    let mut block = [0; BLOCK];
    let n = n.min(buf.room());
    let mut done = 0;
    while done < n {
        let part = &mut block[..BLOCK.min(n - done)];
        fill(at + done as u64, part);
        done += buf.extend(part);
    }
    n
}

fn word(index: u64) -> u64 {
    index.wrapping_add(1).wrapping_mul(STEP)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use toron_reactor::BufferPool;

    #[test]
    fn every_cut_gives_the_same_bytes() {
        let whole: Vec<u8> = (0..300).map(byte_at).collect();
        for from in 0..40 {
            for to in from..300 {
                let mut part = vec![0; to - from];
                fill(from as u64, &mut part);
                assert_eq!(part, whole[from..to]);
            }
        }
    }

    #[test]
    fn a_shift_of_any_power_of_two_shows() {
        let mut here = [0; 16];
        let mut there = [0; 16];
        fill(0, &mut here);
        for power in 0..62 {
            fill(1 << power, &mut there);
            assert_ne!(here, there, "shift by 2^{power}");
        }
    }

    #[test]
    fn appends_what_fits() {
        let mut buf = BufferPool::new(1).take().unwrap();
        assert_eq!(append(5, 10_000, &mut buf), 10_000);
        assert!((5..).zip(buf.iter()).all(|(at, b)| *b == byte_at(at)));
        let room = buf.room();
        assert_eq!(append(10_005, usize::MAX, &mut buf), room);
        assert_eq!(buf.last().copied(), Some(byte_at(10_004 + room as u64)));
    }
}
