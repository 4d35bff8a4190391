//! A slab with generations: a token of an entry that has gone never finds its successor.

use crate::planted::{self, Bug};

/// Names an entry of a [`Slab`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Token {
    /// Position in the slab.
    pub index: u32,
    /// How often the position had been emptied when the entry was made.
    pub generation: u32,
}

impl Token {
    /// Packs the token into one word (for kernel `user_data`).
    #[must_use]
    pub fn to_u64(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }

    /// The inverse of [`Token::to_u64`].
    #[must_use]
    pub fn from_u64(word: u64) -> Token {
        Token {
            index: word as u32,
            generation: (word >> 32) as u32,
        }
    }
}

/// `slab::Slab` plus a generation per position.
#[derive(Debug)]
pub struct Slab<T> {
    entries: slab::Slab<T>,
    generations: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            entries: slab::Slab::new(),
            generations: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// An empty slab.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Entries present.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No entries present.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry.
    pub fn insert(&mut self, value: T) -> Token {
        self.insert_with(|_| value)
    }

    /// Adds an entry that knows its own token.
    pub fn insert_with(&mut self, make: impl FnOnce(Token) -> T) -> Token {
        let vacant = self.entries.vacant_entry();
        let index = vacant.key();
        if index >= self.generations.len() {
            self.generations.resize(index + 1, 0);
        }
        let token = Token {
            index: index as u32,
            generation: self.generations[index],
        };
        vacant.insert(make(token));
        token
    }

    /// Whether the entry is still there.
    #[must_use]
    pub fn contains(&self, token: Token) -> bool {
        self.get(token).is_some()
    }

    /// The entry, unless it has gone.
    #[must_use]
    pub fn get(&self, token: Token) -> Option<&T> {
        let index = token.index as usize;
        if self.generations.get(index) != Some(&token.generation) {
            return None;
        }
        self.entries.get(index)
    }

    /// The entry, unless it has gone.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let index = token.index as usize;
        if self.generations.get(index) != Some(&token.generation) {
            return None;
        }
        self.entries.get_mut(index)
    }

    /// The entry that is at a position now, whatever its generation: for links that are undone before an
    /// entry goes.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)
    }

    /// Takes the entry out, unless it has gone.
    pub fn remove(&mut self, token: Token) -> Option<T> {
        if !self.contains(token) {
            return None;
        }
        let index = token.index as usize;
        if !planted::active(Bug::StaleGeneration) {
            self.generations[index] = self.generations[index].wrapping_add(1);
        }
        Some(self.entries.remove(index))
    }

    /// All entries with their tokens.
    pub fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        self.entries.iter().map(|(index, value)| {
            (
                Token {
                    index: index as u32,
                    generation: self.generations[index],
                },
                value,
            )
        })
    }

    /// The tokens of all entries.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        self.iter().map(|(token, _)| token).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_removed_entry_finds_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert("a");
        assert_eq!(slab.remove(a), Some("a"));
        let b = slab.insert("b");
        assert_eq!(a.index, b.index);
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get(b), Some(&"b"));
        assert_eq!(Token::from_u64(b.to_u64()), b);
    }

    /// Random insertions and removals: every token finds its own entry or nothing.
    #[test]
    fn tokens_never_find_a_stranger() {
        let mut random = crate::sim::Random::new(1);
        let mut slab = Slab::new();
        let mut made: Vec<(Token, u64, bool)> = Vec::new();
        for n in 0..2_000_u64 {
            if made.is_empty() || random.below(2) == 0 {
                let token = slab.insert_with(|token| (token, n));
                assert!(made.iter().all(|(other, ..)| *other != token));
                made.push((token, n, true));
            } else {
                let pick = random.below(made.len() as u64) as usize;
                let (token, value, there) = &mut made[pick];
                assert_eq!(slab.remove(*token), there.then_some((*token, *value)));
                *there = false;
            }
            assert_eq!(slab.len(), made.iter().filter(|(.., there)| *there).count());
            for (token, value, there) in &made {
                assert_eq!(slab.get(*token), there.then_some(&(*token, *value)));
            }
        }
        assert_eq!(slab.tokens().len(), slab.len());
    }
}
