//! Maps with byte strings as keys, for the table of routes.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::hash::Fnv;

/// Keys of the tables come from the operator and only look-ups from peers, so a peer cannot fill a
/// bucket; a keyed hash would buy nothing here.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Fnv>>;

/// A segment, host or value as the key of a map. Short ones lie in the map itself: in a large table each
/// hop to the heap is a cache miss, and misses are all that a look-up costs.
#[derive(Debug)]
pub enum Key {
    /// Length and bytes, zeros behind.
    Short(u8, [u8; Key::SHORT]),
    /// One that does not fit.
    Long(Box<[u8]>),
}

impl Key {
    const SHORT: usize = 22;
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        let mut short = [0; Key::SHORT];
        match (short.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(bytes);
                Key::Short(len, short)
            }
            _ => Key::Long(bytes.into()),
        }
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        match self {
            Key::Short(len, short) => short.get(..usize::from(*len)).unwrap_or_default(),
            Key::Long(long) => long,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let (a, b): (&[u8], &[u8]) = (self.borrow(), other.borrow());
        a == b
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bytes: &[u8] = self.borrow();
        bytes.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_keys_are_found_by_their_bytes() {
        let mut map: Map<Key, usize> = Map::default();
        let text = [b'x'; 64];
        for len in 0..64 {
            map.insert(text[..len].into(), len);
        }
        for len in 0..64 {
            assert_eq!(map.get(&text[..len]), Some(&len));
        }
        assert_eq!(map.len(), 64);
        // Zeros behind a short key are not part of it.
        assert_eq!(map.get(&b"x\0"[..]), None);
    }
}
