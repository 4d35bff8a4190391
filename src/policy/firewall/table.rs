//! All addresses of which something is known: a fixed number of shards, each behind a lock of its
//! own, and one bound over all of them.
//!
//! A lock is held for one look-up and what follows from it for one entry; never two at once.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use toron_reactor::Time;

use super::key::{Key, KeyHasher};
use super::rules::Rules;
use super::shard::Shard;
use super::standing::Standing;

/// Shards. Two reactors meet at one with a chance of one in so many, for some ten nanoseconds.
const SHARDS: usize = 64;

/// Entries for which room is set apart at first, in all shards together: address space, no memory
/// before it is used. Beyond that a shard grows, and a reactor that meets it then waits for the
/// copy.
const SET_APART_MOST: usize = 1 << 20;

/// Entries looked at under one lock when all are listed.
const SCAN: usize = 64;

/// How often room is sought for one entry, when other reactors take it away.
const TRIES: usize = 4;

/// A shard, and when it has something to give up, so that who needs room looks at 64 numbers and
/// takes one lock. Two cache lines of its own (the prefetcher loads pairs).
#[repr(align(128))]
struct Cell {
    next_victim: AtomicU64,
    shard: Mutex<Shard>,
}

/// Where an entry is, while something holds it there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    key: Key,
    /// Few bytes: each connection holds one.
    shard: u32,
    at: u32,
}

/// What the table holds, and what it could not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Addresses of which something is known.
    pub tracked: usize,
    /// Addresses that were given up to make room.
    pub evicted: u64,
    /// Times that there was no room, all entries being blocked or connected: the address was let in
    /// without an account.
    pub untracked: u64,
}

/// All addresses of which something is known.
pub struct Table {
    hasher: KeyHasher,
    cells: Box<[Cell]>,
    tracked: AtomicUsize,
    evicted: AtomicU64,
    untracked: AtomicU64,
}

impl Handle {
    /// Whether `key` is filed here.
    #[must_use]
    pub fn is_of(&self, key: Key) -> bool {
        self.key == key
    }

    /// The place in the shard.
    #[must_use]
    pub fn at(&self) -> u32 {
        self.at
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Table {
    /// An empty one, with room set apart for `expected` addresses.
    #[must_use]
    pub fn new(expected: usize) -> Self {
        let mean = expected.min(SET_APART_MOST) / SHARDS;
        // Eight standard deviations above the mean of a random spread.
        let room = mean + 8 * mean.isqrt();
        let cell = |_| Cell {
            next_victim: AtomicU64::new(u64::MAX),
            shard: Mutex::new(Shard::with_capacity(room)),
        };
        Table {
            hasher: KeyHasher::new(),
            cells: (0..SHARDS).map(cell).collect(),
            tracked: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
            untracked: AtomicU64::new(0),
        }
    }

    /// What it holds.
    #[must_use]
    pub fn stats(&self) -> TableStats {
        TableStats {
            tracked: self.tracked.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
            untracked: self.untracked.load(Ordering::Relaxed),
        }
    }

    fn cell(&self, shard: u32) -> Option<&Cell> {
        self.cells.get(shard as usize)
    }

    /// Calls `act` with the entry of `key`, if there is one, and files it anew.
    pub fn with_known<T>(
        &self,
        key: Key,
        now: Time,
        act: impl FnOnce(&mut Shard, Handle) -> T,
    ) -> Option<T> {
        let hash = self.hasher.hash(key);
        let shard = shard_of(hash);
        let cell = self.cell(shard)?;
        let mut locked = lock(cell);
        let at = locked.find(hash, key)?;
        let done = act(&mut locked, Handle { key, shard, at });
        locked.file(at, now);
        publish(cell, &locked);
        Some(done)
    }

    /// The same, with a new entry where there is none. `None` when there is no room.
    pub fn with<T>(
        &self,
        key: Key,
        rules: &Rules,
        now: Time,
        act: impl FnOnce(&mut Shard, Handle) -> T,
    ) -> Option<T> {
        let hash = self.hasher.hash(key);
        let shard = shard_of(hash);
        let cell = self.cell(shard)?;
        let mut locked = lock(cell);
        let mut found = locked.find(hash, key);
        if found.is_none() {
            drop(locked);
            let room = self.make_room(rules.max_tracked_addresses, now);
            locked = lock(cell);
            found = locked.find(hash, key);
            match (found, room) {
                (None, true) => {
                    found = Some(locked.insert(hash, key, Standing::new(rules, now), now));
                }
                // Another reactor was faster.
                (Some(_), true) => {
                    self.tracked.fetch_sub(1, Ordering::Relaxed);
                }
                (_, false) => {}
            }
        }
        let Some(at) = found else {
            self.untracked.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let done = act(&mut locked, Handle { key, shard, at });
        locked.file(at, now);
        publish(cell, &locked);
        Some(done)
    }

    /// Calls `act` with an entry that a connection holds: no look-up, and nothing to file.
    pub fn with_held<T>(
        &self,
        handle: Handle,
        act: impl FnOnce(&mut Shard, Handle) -> T,
    ) -> Option<T> {
        let cell = self.cell(handle.shard)?;
        Some(act(&mut lock(cell), handle))
    }

    /// Counts a connection down and files the entry anew.
    pub fn release(&self, handle: Handle, now: Time) {
        if let Some(cell) = self.cell(handle.shard) {
            let mut locked = lock(cell);
            locked.disconnect(handle.at, now);
            publish(cell, &locked);
        }
    }

    /// Takes a place among `most`, if need be from the address that was least recently seen and is
    /// neither blocked nor connected. Past a maximum that was lowered, two go for each that comes.
    fn make_room(&self, most: usize, now: Time) -> bool {
        let count = |tracked: usize| (tracked < most).then_some(tracked + 1);
        for _ in 0..TRIES {
            let taken = self
                .tracked
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
            let Err(tracked) = taken else { return true };
            if !self.evict(now) {
                return false;
            }
            if tracked > most {
                self.evict(now);
                // Whoever else comes now evicts two as well: the table shrinks all the same.
                self.tracked.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    fn evict(&self, now: Time) -> bool {
        for _ in 0..TRIES {
            let victim = |cell: &&Cell| cell.next_victim.load(Ordering::Relaxed);
            let Some(cell) = self.cells.iter().min_by_key(victim) else {
                return false;
            };
            if victim(&cell) == u64::MAX {
                return false;
            }
            let mut locked = lock(cell);
            let gone = locked.evict(now);
            publish(cell, &locked);
            if gone {
                self.tracked.fetch_sub(1, Ordering::Relaxed);
                self.evicted.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Calls `look` with every entry, a few under each lock: what comes and goes meanwhile may be
    /// missed.
    pub fn scan(&self, mut look: impl FnMut(Key, &Standing, u32)) {
        for cell in &self.cells {
            let mut from = Some(0);
            while let Some(at) = from {
                from = lock(cell).scan(at, SCAN, &mut look);
            }
        }
    }

    /// Entries under a block, those with connections left out.
    pub fn blocked(&self, now: Time) -> usize {
        self.cells.iter().map(|cell| lock(cell).blocked(now)).sum()
    }

    /// What must hold when nothing is going on.
    #[cfg(test)]
    pub fn check(&self) {
        let mut entries = 0;
        for cell in &self.cells {
            let locked = lock(cell);
            locked.check();
            let published = cell.next_victim.load(Ordering::Relaxed);
            assert_eq!(
                published,
                locked.next_victim().map_or(u64::MAX, |time| time.0)
            );
        }
        self.scan(|_, _, _| entries += 1);
        assert_eq!(entries, self.stats().tracked);
    }
}

/// By bits from the middle: inside a shard the hash table uses the lowest and the highest ones.
fn shard_of(hash: u64) -> u32 {
    (hash >> 40) as u32 % SHARDS as u32
}

/// Nothing in a shard is left half done by a panic: what is done under the lock does not panic.
fn lock(cell: &Cell) -> MutexGuard<'_, Shard> {
    cell.shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn publish(cell: &Cell, shard: &Shard) {
    let next = shard.next_victim().map_or(u64::MAX, |time| time.0);
    if cell.next_victim.load(Ordering::Relaxed) != next {
        cell.next_victim.store(next, Ordering::Relaxed);
    }
}
