//! The deadline wheel: one lazy entry per owner.

use std::time::Duration;

use crate::engine::Key;
use crate::slab::{Slab, Token};
use crate::time::Time;

/// Names a timer of a [`Wheel`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimerId(Token);

/// Deadlines of many owners, at most one each.
#[derive(Debug, Default)]
pub struct Wheel {
    timers: Slab<Timer>,
}

#[derive(Debug)]
struct Timer {
    key: Key,
    deadline: Option<Time>,
}

impl Wheel {
    /// An empty wheel.
    #[must_use]
    pub fn new(_now: Time) -> Self {
        Self::default()
    }

    /// A timer for an owner, not armed.
    pub fn insert(&mut self, key: Key) -> TimerId {
        TimerId(self.timers.insert(Timer { key, deadline: None }))
    }

    /// Removes a timer.
    pub fn remove(&mut self, id: TimerId) {
        self.timers.remove(id.0);
    }

    /// Sets (or moves, earlier or later) the deadline. `None` disarms.
    pub fn arm(&mut self, id: TimerId, deadline: Option<Time>) {
        if let Some(timer) = self.timers.get_mut(id.0) {
            timer.deadline = deadline;
        }
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
        self.timers.iter().filter_map(|(_, t)| t.deadline).min()
    }

    /// A deadline fires at most this much late (scheduling aside), and never early.
    pub const GRAIN: Duration = Duration::from_millis(4);

    /// Disarms every timer whose deadline has come and appends its key to `due`.
    pub fn advance(&mut self, now: Time, due: &mut Vec<Key>) {
        for token in self.timers.tokens() {
            if let Some(timer) = self.timers.get_mut(token) {
                if timer.deadline.is_some_and(|d| d <= now) {
                    timer.deadline = None;
                    due.push(timer.key);
                }
            }
        }
    }
}
