//! The deadline wheel: one lazy entry per owner.
//!
//! A hierarchical timer wheel (Varghese and Lauck, 1987, scheme 7): eight levels of 64 slots, a
//! slot of level *n* being 64ⁿ ticks wide. A level-0 slot is one tick of [`Wheel::GRAIN`]; the
//! eight levels reach further than [`Time`] does, so no deadline is too far to be filed.
//!
//! Most deadlines are moved again and again and never come (every byte received moves an idle
//! deadline). So a timer is *filed* in at most one slot and moved as rarely as possible: arming a
//! deadline that is later than the slot, or none, only stores it. When the slot's turn comes, the
//! timer is filed again where its deadline is by then. Only arming a deadline earlier than the slot
//! moves the timer at once.
//!
//! Slots are doubly linked lists through the timers themselves, so nothing is allocated but for
//! [`Wheel::insert`]; a bitmap per level finds the next slot without a search.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use crate::engine::Key;
use crate::planted::{self, Bug};
use crate::slab::{Slab, Token};
use crate::time::Time;

const LEVELS: usize = 8;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const GRAIN_NANOS: u64 = 4_000_000;

/// Names a timer of a [`Wheel`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimerId(Token);

/// Deadlines of many owners, at most one each.
#[derive(Debug)]
pub struct Wheel {
    timers: Slab<Timer>,
    levels: [Level; LEVELS],
    /// Every tick up to and including this one has been worked off.
    elapsed: u64,
}

/// Each connection has one: packed.
#[derive(Debug)]
struct Timer {
    deadline: Option<Time>,
    filed: Option<Filed>,
    key: Key,
    previous: Option<Link>,
    next: Option<Link>,
}

/// Where a timer is filed.
#[derive(Clone, Copy, Debug)]
struct Filed {
    /// The tick it was filed for, not before the tick of any deadline filed lazily since.
    tick: u64,
    place: SlotId,
}

/// A slot of a level.
#[derive(Clone, Copy, Debug)]
struct SlotId(NonZeroU16);

impl SlotId {
    fn new(level: usize, slot: usize) -> SlotId {
        SlotId(NonZeroU16::MIN.saturating_add((level * SLOTS + slot) as u16))
    }

    fn level(self) -> usize {
        usize::from(self.0.get() - 1) / SLOTS
    }

    fn slot(self) -> usize {
        usize::from(self.0.get() - 1) % SLOTS
    }
}

/// The position of a timer that is filed. It is unlinked before it goes, so no link outlives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Link(NonZeroU32);

impl Link {
    fn to(index: u32) -> Link {
        Link(NonZeroU32::MIN.saturating_add(index))
    }

    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// Bit *n* is set if slot *n* has timers.
    occupied: u64,
    heads: [Option<Link>; SLOTS],
}

impl Default for Wheel {
    fn default() -> Self {
        Wheel::new(Time(0))
    }
}

/// The first tick at which `deadline` has come for certain.
fn tick_of(deadline: Time) -> u64 {
    deadline.0.div_ceil(GRAIN_NANOS)
}

impl Wheel {
    /// A deadline fires at most this much late (scheduling aside), and never early.
    pub const GRAIN: Duration = Duration::from_nanos(GRAIN_NANOS);

    /// An empty wheel.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Wheel {
            timers: Slab::new(),
            levels: [Level {
                occupied: 0,
                heads: [None; SLOTS],
            }; LEVELS],
            elapsed: now.0 / GRAIN_NANOS,
        }
    }

    /// A timer for an owner, not armed.
    pub fn insert(&mut self, key: Key) -> TimerId {
        TimerId(self.timers.insert(Timer {
            key,
            deadline: None,
            filed: None,
            previous: None,
            next: None,
        }))
    }

    /// Removes a timer.
    pub fn remove(&mut self, id: TimerId) {
        if !self.timers.contains(id.0) {
            return;
        }
        self.unlink(id.0.index);
        self.timers.remove(id.0);
    }

    /// Sets (or moves, earlier or later) the deadline. `None` disarms. A deadline that has come
    /// already fires with the next [`Wheel::advance`].
    pub fn arm(&mut self, id: TimerId, deadline: Option<Time>) {
        let Some(timer) = self.timers.get_mut(id.0) else {
            return;
        };
        timer.deadline = deadline;
        let Some(deadline) = deadline else { return };
        let tick = tick_of(deadline).max(self.elapsed);
        match timer.filed {
            Some(filed) if filed.tick <= tick => {}
            Some(_) if planted::active(Bug::EarlierDeadlineIgnored) => {}
            Some(_) => {
                self.unlink(id.0.index);
                self.link(id.0.index, tick);
            }
            None => self.link(id.0.index, tick),
        }
    }

    /// The deadline that is armed.
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Time> {
        self.timers.get(id.0)?.deadline
    }

    /// Timers present, armed or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// No timers present.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// When [`Wheel::advance`] must be called next at the latest. May be earlier than the first
    /// deadline, never later than it by more than [`Wheel::GRAIN`].
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        let (_, _, tick) = self.next_slot()?;
        Some(Time(tick.saturating_mul(GRAIN_NANOS)))
    }

    /// Disarms every timer whose deadline has come and appends its key to `due`. A clock that
    /// jumped costs a step for each slot in use on the way, not for each tick.
    pub fn advance(&mut self, now: Time, due: &mut Vec<Key>) {
        let now = now.0 / GRAIN_NANOS;
        if now < self.elapsed {
            return;
        }
        while let Some((level, slot, tick)) = self.next_slot() {
            if tick > now {
                break;
            }
            self.elapsed = tick;
            self.work_off(level, slot, now, due);
        }
        self.elapsed = now;
    }

    /// The earliest slot in use and its first tick. Slots of a lower level always come before
    /// those of a higher one: a timer is on level *n* because its tick differs from `elapsed` in
    /// digit *n*, and from there on upwards it does not.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        let shift = SLOT_BITS * level as u32;
        let slot = self.levels[level].occupied.trailing_zeros() as usize;
        let above = self.elapsed >> shift >> SLOT_BITS << SLOT_BITS;
        Some((level, slot, (above | slot as u64) << shift))
    }

    /// Empties a slot whose first tick is `elapsed`: what is due fires, the rest is filed anew.
    fn work_off(&mut self, level: usize, slot: usize, now: u64, due: &mut Vec<Key>) {
        self.levels[level].occupied &= !(1 << slot);
        let mut cursor = self.levels[level].heads[slot].take();
        while let Some(link) = cursor {
            let Some(timer) = self.timers.at_mut(link.index()) else {
                break;
            };
            cursor = timer.next.take();
            timer.previous = None;
            timer.filed = None;
            let Some(deadline) = timer.deadline else {
                continue;
            };
            let tick = tick_of(deadline).max(self.elapsed);
            if tick <= now || planted::active(Bug::DeadlineEarly) {
                timer.deadline = None;
                due.push(timer.key);
            } else {
                self.link(link.index(), tick);
            }
        }
    }

    fn link(&mut self, index: u32, tick: u64) {
        let differing = tick ^ self.elapsed;
        let level = (u64::BITS - 1 - (differing | 1).leading_zeros()) / SLOT_BITS;
        let slot = (tick >> (SLOT_BITS * level)) as usize % SLOTS;
        let shelf = &mut self.levels[level as usize];
        let next = shelf.heads[slot].replace(Link::to(index));
        shelf.occupied |= 1 << slot;
        if let Some(timer) = self.linked(next) {
            timer.previous = Some(Link::to(index));
        }
        if let Some(timer) = self.timers.at_mut(index) {
            let place = SlotId::new(level as usize, slot);
            timer.filed = Some(Filed { tick, place });
            timer.previous = None;
            timer.next = next;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Some(timer) = self.timers.at_mut(index) else {
            return;
        };
        let Some(filed) = timer.filed.take() else {
            return;
        };
        let (previous, next) = (timer.previous.take(), timer.next.take());
        if let Some(timer) = self.linked(next) {
            timer.previous = previous;
        }
        if previous.is_some() {
            if let Some(timer) = self.linked(previous) {
                timer.next = next;
            }
            return;
        }
        let level = &mut self.levels[filed.place.level()];
        level.heads[filed.place.slot()] = next;
        if next.is_none() {
            level.occupied &= !(1 << filed.place.slot());
        }
    }

    fn linked(&mut self, link: Option<Link>) -> Option<&mut Timer> {
        self.timers.at_mut(link?.index())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sim::Random;

    fn key(n: u32) -> Key {
        Key {
            token: Token {
                index: n,
                generation: 0,
            },
            lane: 0,
        }
    }

    fn ms(n: u64) -> Time {
        Time(n * 1_000_000)
    }

    fn fired(wheel: &mut Wheel, now: Time) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.advance(now, &mut due);
        due.iter().map(|key| key.token.index).collect()
    }

    #[test]
    fn a_deadline_moved_earlier_fires_earlier_and_one_moved_later_does_not() {
        let mut wheel = Wheel::new(ms(1_000));
        let a = wheel.insert(key(1));
        wheel.arm(a, Some(ms(60_000)));
        wheel.arm(a, Some(ms(1_100)));
        assert!(wheel.next_wakeup().is_some_and(|t| t <= ms(1_104)));
        wheel.arm(a, Some(ms(2_000)));
        assert_eq!(fired(&mut wheel, ms(1_999)), []);
        assert_eq!(wheel.deadline(a), Some(ms(2_000)));
        assert_eq!(fired(&mut wheel, ms(2_000)), [1]);
        assert_eq!(fired(&mut wheel, ms(9_000)), []);
        assert_eq!(wheel.next_wakeup(), None);
        assert_eq!(wheel.len(), 1);
    }

    /// A receive that moves a deadline on leaves the wheel as it is: no list is touched, no bitmap.
    #[test]
    fn i22_a_deadline_that_moves_on_is_filed_once() {
        let mut wheel = Wheel::new(ms(1_000));
        let a = wheel.insert(key(1));
        wheel.arm(a, Some(ms(1_100)));
        let filed = |wheel: &Wheel| {
            let slots: Vec<u64> = wheel.levels.iter().map(|level| level.occupied).collect();
            (slots, wheel.next_wakeup())
        };
        let before = filed(&wheel);
        for moved in 1..10_000 {
            wheel.arm(a, Some(ms(1_100 + moved)));
            assert_eq!(filed(&wheel), before, "moved by {moved} ms");
        }
        // The entry fires early, and is put back to where its deadline is by then.
        assert_eq!(fired(&mut wheel, ms(1_200)), []);
        assert_ne!(filed(&wheel), before);
        assert_eq!(fired(&mut wheel, ms(11_098)), []);
        assert_eq!(fired(&mut wheel, ms(11_100)), [1]);
    }

    #[test]
    fn a_deadline_in_the_past_fires_at_once() {
        let mut wheel = Wheel::new(ms(1_001));
        let a = wheel.insert(key(1));
        wheel.arm(a, Some(ms(3)));
        assert!(wheel.next_wakeup().is_some_and(|t| t <= ms(1_001)));
        assert_eq!(fired(&mut wheel, ms(1_001)), [1]);
    }

    #[test]
    fn the_end_of_time_can_be_filed() {
        let mut wheel = Wheel::new(Time(0));
        let a = wheel.insert(key(1));
        wheel.arm(a, Some(Time(u64::MAX)));
        assert_eq!(fired(&mut wheel, ms(400 * 365 * 86_400_000)), []);
        assert!(wheel.next_wakeup().is_some());
        wheel.arm(a, Some(Time(0)));
        assert_eq!(fired(&mut wheel, ms(400 * 365 * 86_400_000)), [1]);
    }

    /// The wheel beside a list of deadlines.
    struct Model {
        random: Random,
        now: Time,
        wheel: Wheel,
        expected: BTreeMap<u32, (TimerId, Option<Time>)>,
        made: u32,
    }

    impl Model {
        fn new(seed: u64) -> Model {
            let mut random = Random::new(seed);
            let now = Time(random.below(1 << 50));
            let (wheel, expected) = (Wheel::new(now), BTreeMap::new());
            Model {
                random,
                now,
                wheel,
                expected,
                made: 0,
            }
        }

        /// A span between nothing and decades, short ones as likely as long ones.
        fn span(&mut self) -> u64 {
            let bits = self.random.below(60);
            self.random.below(1 << bits)
        }

        fn any(&mut self) -> Option<u32> {
            let n = self.random.below(self.expected.len().max(1) as u64) as usize;
            self.expected.keys().nth(n).copied()
        }

        fn step(&mut self) {
            match self.random.below(10) {
                0 | 1 => {
                    let id = self.wheel.insert(key(self.made));
                    self.expected.insert(self.made, (id, None));
                    self.made += 1;
                }
                2 => {
                    if let Some((id, _)) = self.any().and_then(|n| self.expected.remove(&n)) {
                        self.wheel.remove(id);
                    }
                }
                3..=6 => {
                    let span = self.span();
                    let deadline = match self.random.below(8) {
                        0 => None,
                        1 => Some(Time(self.now.0.saturating_sub(span))),
                        _ => Some(Time(self.now.0.saturating_add(span))),
                    };
                    if let Some(entry) = self.any().and_then(|n| self.expected.get_mut(&n)) {
                        entry.1 = deadline;
                        self.wheel.arm(entry.0, deadline);
                    }
                }
                7 => {
                    let to = self.wheel.next_wakeup().unwrap_or(self.now).max(self.now);
                    self.advance(to);
                }
                _ => {
                    let to = Time(self.now.0.saturating_add(self.span()));
                    self.advance(to);
                }
            }
            let first = self
                .expected
                .values()
                .filter_map(|(_, deadline)| *deadline)
                .min();
            if let Some(first) = first {
                let wakeup = self.wheel.next_wakeup();
                let latest = first.max(self.now) + Wheel::GRAIN;
                assert!(
                    wakeup.is_some_and(|w| w < latest),
                    "{wakeup:?} for {first:?}"
                );
            }
            assert_eq!(self.wheel.len(), self.expected.len());
        }

        fn advance(&mut self, to: Time) {
            self.now = to;
            for n in fired(&mut self.wheel, to) {
                let deadline = self.expected.get_mut(&n).and_then(|entry| entry.1.take());
                assert!(
                    deadline.is_some_and(|d| d <= to),
                    "{n} fired early: {deadline:?}, {to:?}"
                );
            }
            for (n, (_, deadline)) in &self.expected {
                let late = deadline.is_some_and(|d| d + Wheel::GRAIN <= to);
                assert!(!late, "{n} has not fired: {deadline:?}, {to:?}");
            }
        }
    }

    #[test]
    fn agrees_with_a_list_of_deadlines() {
        for seed in 0..400 {
            let mut model = Model::new(seed);
            for _ in 0..500 {
                model.step();
            }
        }
    }
}
