//! Tables and properties over the folder as a whole. Each test names the rule
//! that it holds (I: ingress, R: routing).
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
mod chunks;
mod forwarding;
mod paths;
mod properties;
mod proxy_headers;
mod replies;
mod requests;
mod responses;

use super::*;

/// A small seeded generator (xorshift64*): a failing case prints its seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

pub const LIMITS: HeadLimits = HeadLimits { max_fields: 100 };

/// Scans and parses the head at the front of `bytes`, as a server does, and
/// hands it to `look` with what is left behind it.
pub fn with_request<T>(
    bytes: &[u8],
    look: impl FnOnce(Result<RequestHead<'_, '_>, Reason>, &[u8]) -> T,
) -> Option<T> {
    let mut slots = field_slots::<128>();
    match HeadScanner::request().find(bytes, usize::MAX) {
        Scan::Incomplete => None,
        Scan::Bad(reason) => Some(look(Err(reason), &[])),
        Scan::Complete { skip, len } => {
            let (head, rest) = bytes[skip..].split_at(len);
            Some(look(request::parse(head, &LIMITS, &mut slots), rest))
        }
    }
}
