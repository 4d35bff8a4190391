//! The prefixes that are one segment longer than another.

use std::borrow::Borrow;

use crate::policy::map::{Key, Map};

/// Indices of nodes by their last segment. A single one needs no map: a look-up passes a level of the
/// tree without a hop to the heap.
#[derive(Debug, Default)]
pub(super) enum Children {
    #[default]
    None,
    One(Key, u32),
    Several(Map<Key, u32>),
}

impl Children {
    /// The child with this segment.
    pub(super) fn get(&self, segment: &[u8]) -> Option<u32> {
        match self {
            Children::None => None,
            Children::One(key, child) => {
                let own: &[u8] = key.borrow();
                (own == segment).then_some(*child)
            }
            Children::Several(all) => all.get(segment).copied(),
        }
    }

    /// Adds one with a segment that none has yet.
    pub(super) fn insert(&mut self, segment: &[u8], child: u32) {
        *self = match std::mem::take(self) {
            Children::None => Children::One(segment.into(), child),
            Children::One(key, first) => {
                let both = [(key, first), (segment.into(), child)];
                Children::Several(both.into_iter().collect())
            }
            Children::Several(mut all) => {
                all.insert(segment.into(), child);
                Children::Several(all)
            }
        };
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> Vec<u32> {
        match self {
            Children::None => Vec::new(),
            Children::One(_, child) => vec![*child],
            Children::Several(all) => all.values().copied().collect(),
        }
    }
}
