//! A part of the table of addresses: what lies behind one lock. Every method touches a handful of
//! entries, never all of them.
//!
//! ```text
//! place of an entry     when                          who goes when room is needed
//! Held                  it has connections            never
//! Blocked(until)        a block is enforced           never before its end, then by its end
//! Recent                else                          the least recently seen
//! ```

use std::collections::BTreeSet;

use hashbrown::HashTable;
use toron_reactor::Time;

use super::key::Key;
use super::rules::Mode;
use super::standing::Standing;

/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In no list.
    Held,
    /// In `blocks`, under this end.
    Blocked(Time),
    /// In the list of the unblocked.
    Recent,
    /// In the list of free slots, chained by `older`.
    Free,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    hash: u64,
    standing: Standing,
    connections: u32,
    place: Place,
    seen: Time,
    newer: u32,
    older: u32,
}

/// A part of the table.
#[derive(Debug)]
pub struct Shard {
    index: HashTable<u32>,
    slots: Vec<Slot>,
    free: u32,
    newest: u32,
    oldest: u32,
    blocks: BTreeSet<(Time, u32)>,
}

impl Shard {
    /// With room for so many entries; more make it grow. Memory is only touched when it is used.
    #[must_use]
    pub fn with_capacity(entries: usize) -> Self {
        Shard {
            index: HashTable::with_capacity(entries),
            slots: Vec::with_capacity(entries),
            free: NONE,
            newest: NONE,
            oldest: NONE,
            blocks: BTreeSet::new(),
        }
    }

    /// The entry of `key`.
    #[must_use]
    pub fn find(&self, hash: u64, key: Key) -> Option<u32> {
        let same = |&at: &u32| self.slot(at).is_some_and(|slot| slot.key == key);
        self.index.find(hash, same).copied()
    }

    /// A new entry. There must be none of that key.
    pub fn insert(&mut self, hash: u64, key: Key, standing: Standing, now: Time) -> u32 {
        let slot = Slot {
            key,
            hash,
            standing,
            connections: 0,
            place: Place::Held,
            seen: now,
            newer: NONE,
            older: NONE,
        };
        let at = self.free;
        let at = match self.slots.get_mut(at as usize) {
            Some(free) => {
                self.free = free.older;
                *free = slot;
                at
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let Shard { index, slots, .. } = self;
        let hash_of = |&at: &u32| slots.get(at as usize).map_or(0, |slot| slot.hash);
        index.insert_unique(hash, at, hash_of);
        self.file(at, now);
        at
    }

    /// What is known of the address, and how many connections it has. [`Shard::file`] must follow
    /// when a block has begun or ended.
    pub fn entry(&mut self, at: u32) -> Option<(Key, &mut Standing, u32)> {
        let slot = self.slots.get_mut(at as usize)?;
        (slot.place != Place::Free).then_some((slot.key, &mut slot.standing, slot.connections))
    }

    /// Counts a connection; the entry stays until it is counted down.
    pub fn connect(&mut self, at: u32, now: Time) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.connections += 1;
        }
        self.file(at, now);
    }

    /// Counts it down.
    pub fn disconnect(&mut self, at: u32, now: Time) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.connections = slot.connections.saturating_sub(1);
        }
        self.file(at, now);
    }

    /// The address has been seen: moves its entry to where it belongs.
    pub fn file(&mut self, at: u32, now: Time) {
        let Some(slot) = self.slot(at) else { return };
        let before = slot.place;
        let enforced = slot.standing.mode() == Mode::Enforce;
        let after = match slot.standing.block(now).filter(|_| enforced) {
            _ if slot.connections > 0 => Place::Held,
            Some(block) => Place::Blocked(block.until),
            None => Place::Recent,
        };
        if after == before {
            return match after {
                Place::Recent if self.newest != at => self.move_to_front(at, now),
                _ => self.seen(at, now),
            };
        }
        self.leave(at);
        // The list stays in order though the turns of reactors are not quite at one time.
        let newest = self.slot(self.newest).map_or(now, |newest| newest.seen);
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.seen = slot.seen.max(now).max(newest);
            slot.place = after;
        }
        match after {
            Place::Blocked(until) => {
                self.blocks.insert((until, at));
            }
            Place::Recent => self.link(at),
            Place::Held | Place::Free => {}
        }
    }

    /// From when on an entry may be given up: when the least recently seen one was seen, or when a
    /// block ends, whichever is earlier.
    #[must_use]
    pub fn next_victim(&self) -> Option<Time> {
        let seen = self.slot(self.oldest).map(|slot| slot.seen);
        let freed = self.blocks.first().map(|&(until, _)| until);
        match (seen, freed) {
            (Some(seen), Some(freed)) => Some(seen.min(freed)),
            (seen, freed) => seen.or(freed),
        }
    }

    /// Entries under a block that lasts beyond `now`, those with connections left out.
    #[must_use]
    pub fn blocked(&self, now: Time) -> usize {
        self.blocks.range((now, NONE)..).count()
    }

    /// Gives up the entry of [`Shard::next_victim`]. `false` if there is none yet.
    pub fn evict(&mut self, now: Time) -> bool {
        let seen = self.slot(self.oldest).map(|slot| slot.seen);
        let freed = self.blocks.first().copied();
        let victim = match (seen, freed.filter(|&(until, _)| until <= now)) {
            (Some(seen), Some((until, at))) if until < seen => at,
            (Some(_), _) => self.oldest,
            (None, Some((_, at))) => at,
            (None, None) => return false,
        };
        self.remove(victim);
        true
    }

    /// All entries from slot `from` on, at most `most` slots: key, standing and connections; and
    /// where to go on.
    pub fn scan(
        &self,
        from: usize,
        most: usize,
        mut look: impl FnMut(Key, &Standing, u32),
    ) -> Option<usize> {
        let rest = self.slots.get(from..).unwrap_or_default();
        for slot in rest.iter().take(most) {
            if slot.place != Place::Free {
                look(slot.key, &slot.standing, slot.connections);
            }
        }
        (rest.len() > most).then_some(from + most)
    }

    fn slot(&self, at: u32) -> Option<&Slot> {
        self.slots.get(at as usize)
    }

    fn remove(&mut self, at: u32) {
        self.leave(at);
        let free = self.free;
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return;
        };
        slot.place = Place::Free;
        slot.older = free;
        let hash = slot.hash;
        self.free = at;
        if let Ok(found) = self.index.find_entry(hash, |&other| other == at) {
            found.remove();
        }
    }

    fn seen(&mut self, at: u32, now: Time) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.seen = slot.seen.max(now);
        }
    }

    /// The same as leaving the list and being put in front of it, for an entry that stands behind
    /// others: what becomes of nearly every request behind a proxy. 571 instructions for
    /// such a request, 651 with the two steps.
    fn move_to_front(&mut self, at: u32, now: Time) {
        let second = self.newest;
        let newest = match self.slots.get_mut(second as usize) {
            Some(slot) => {
                slot.newer = at;
                slot.seen
            }
            None => now,
        };
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return;
        };
        slot.seen = slot.seen.max(now).max(newest);
        let newer = std::mem::replace(&mut slot.newer, NONE);
        let older = std::mem::replace(&mut slot.older, second);
        self.newest = at;
        if let Some(newer) = self.slots.get_mut(newer as usize) {
            newer.older = older;
        }
        match self.slots.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Takes the entry out of the list that it is in.
    fn leave(&mut self, at: u32) {
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return;
        };
        let (newer, older) = (slot.newer, slot.older);
        match std::mem::replace(&mut slot.place, Place::Held) {
            Place::Blocked(until) => {
                self.blocks.remove(&(until, at));
            }
            Place::Recent => {
                slot.newer = NONE;
                slot.older = NONE;
                match self.slots.get_mut(newer as usize) {
                    Some(newer) => newer.older = older,
                    None => self.newest = older,
                }
                match self.slots.get_mut(older as usize) {
                    Some(older) => older.newer = newer,
                    None => self.oldest = newer,
                }
            }
            Place::Held | Place::Free => {}
        }
    }

    /// Puts the entry in front of the list.
    fn link(&mut self, at: u32) {
        let second = std::mem::replace(&mut self.newest, at);
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.older = second;
            slot.newer = NONE;
        }
        match self.slots.get_mut(second as usize) {
            Some(slot) => slot.newer = at,
            None => self.oldest = at,
        }
    }

    /// What must hold between two calls.
    #[cfg(test)]
    pub fn check(&self) {
        let mut listed = 0;
        let (mut at, mut newer, mut seen) = (self.newest, NONE, Time(u64::MAX));
        while let Some(slot) = self.slot(at) {
            assert_eq!((slot.place, slot.newer), (Place::Recent, newer));
            assert!(slot.seen <= seen, "the list is out of order");
            (seen, newer, at) = (slot.seen, at, slot.older);
            listed += 1;
        }
        assert_eq!(self.oldest, newer);
        let count = |wanted: fn(&Place) -> bool| {
            let slots = self.slots.iter();
            slots.filter(|slot| wanted(&slot.place)).count()
        };
        assert_eq!(listed, count(|place| *place == Place::Recent));
        assert_eq!(
            self.blocks.len(),
            count(|place| matches!(place, Place::Blocked(_)))
        );
        assert_eq!(self.index.len(), count(|place| *place != Place::Free));
        for slot in self.slots.iter().filter(|slot| slot.place != Place::Free) {
            assert_eq!(slot.connections > 0, slot.place == Place::Held);
        }
    }
}
