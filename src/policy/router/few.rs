//! A map of byte strings that mostly holds one.

use std::borrow::Borrow;

use crate::policy::map::{Key, Map};

/// Values by byte strings. A single one lies where the map itself does: a hop to the heap less, and in
/// a large table each is a cache miss.
#[derive(Debug, Default)]
pub(super) enum Few<V> {
    #[default]
    None,
    One(Key, V),
    Several(Map<Key, V>),
}

impl<V> Few<V> {
    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        match self {
            Few::None => None,
            Few::One(own, value) => {
                let own: &[u8] = own.borrow();
                (own == key).then_some(value)
            }
            Few::Several(all) => all.get(key),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Few::None)
    }

    /// All values, in no order.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        let (one, several) = match self {
            Few::None => (None, None),
            Few::One(_, value) => (Some(value), None),
            Few::Several(all) => (None, Some(all.values())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// Changes the value of `key`, which begins as the default.
    pub(super) fn change(&mut self, key: &[u8], act: impl FnOnce(&mut V))
    where
        V: Default,
    {
        match self {
            Few::Several(all) => act(all.entry(key.into()).or_default()),
            Few::One(own, value) if Borrow::<[u8]>::borrow(own) == key => act(value),
            Few::None | Few::One(..) => {
                let mut value = V::default();
                act(&mut value);
                *self = match std::mem::take(self) {
                    Few::None => Few::One(key.into(), value),
                    Few::One(own, first) => {
                        Few::Several([(own, first), (key.into(), value)].into_iter().collect())
                    }
                    several @ Few::Several(_) => several,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_several_are_found_and_changed() {
        let mut few: Few<u32> = Few::default();
        assert!(few.is_empty() && few.get(b"a").is_none());
        for key in [&b"a"[..], b"a", b"b", b"c", b"b"] {
            few.change(key, |count| *count += 1);
        }
        assert!(!few.is_empty());
        let found = [&b"a"[..], b"b", b"c", b"d"].map(|key| few.get(key).copied());
        assert_eq!(found, [Some(2), Some(2), Some(1), None]);
        let mut all: Vec<u32> = few.values().copied().collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 2]);
    }
}
