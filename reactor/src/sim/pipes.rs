//! Simulated pipes. Like the kernel's they have page slots: many small pieces fill a pipe though
//! few bytes are in it, and a fragment of a segment larger than a page takes one slot, so that a
//! pipe can hold more bytes than its capacity says.

use std::collections::VecDeque;

pub(super) const PAGE: usize = 4096;

/// A pipe's inside.
#[derive(Debug)]
pub(super) struct SimPipe {
    bytes: VecDeque<u8>,
    /// Lengths of the pieces, one per slot in use.
    slots: VecDeque<usize>,
    pub capacity: usize,
}

impl SimPipe {
    pub(super) fn new(capacity: usize) -> SimPipe {
        SimPipe {
            bytes: VecDeque::new(),
            slots: VecDeque::new(),
            capacity,
        }
    }

    /// Bytes that can be put in by one splice if the fragments are of `fragment` bytes.
    pub(super) fn room(&self, fragment: usize) -> usize {
        (self.capacity / PAGE).saturating_sub(self.slots.len()) * fragment
    }

    pub(super) fn held(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn put(&mut self, bytes: &[u8], fragment: usize) {
        self.bytes.extend(bytes);
        let mut n = bytes.len();
        while n > 0 {
            let piece = n.min(fragment);
            self.slots.push_back(piece);
            n -= piece;
        }
    }

    pub(super) fn take(&mut self, n: usize) -> Vec<u8> {
        let taken: Vec<u8> = self.bytes.drain(..n.min(self.bytes.len())).collect();
        let mut left = taken.len();
        while let Some(piece) = self.slots.front_mut() {
            if *piece > left {
                *piece -= left;
                break;
            }
            left -= *piece;
            self.slots.pop_front();
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_fill_a_pipe() {
        let mut pipe = SimPipe::new(2 * PAGE);
        pipe.put(&[1, 2, 3], PAGE);
        assert_eq!(pipe.room(PAGE), PAGE);
        pipe.put(&[4], PAGE);
        assert_eq!((pipe.room(PAGE), pipe.held()), (0, 4));
        assert_eq!(pipe.take(2), [1, 2]);
        assert_eq!(pipe.room(PAGE), 0);
        assert_eq!(pipe.take(1), [3]);
        assert_eq!(pipe.room(PAGE), PAGE);
        assert_eq!(pipe.take(9), [4]);
        assert_eq!((pipe.room(PAGE), pipe.held()), (2 * PAGE, 0));
    }
}
