//! Bugs that can be planted, to prove that the simulator finds them.
//!
//! Without the feature `planted-bugs`, [`active`] is the constant `false` and nothing of this is in
//! the build. With it, a test chooses one bug for its own thread (`plant`), runs the simulator, and
//! fails unless the simulator complains (`tests/planted_bugs.rs`).

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A pipe that still holds bytes goes back to the pool.
    DirtyPipePooled,
    /// The slab answers to the token of an entry that has gone.
    StaleGeneration,
    /// A returned buffer is counted as returned twice.
    BufferReleasedTwice,
    /// A cancelled operation is forgotten: no final event.
    CancelLost,
    /// A deadline moved to an earlier time stays filed at the later one.
    EarlierDeadlineIgnored,
    /// A deadline fires when its slot comes, though it was moved to later.
    DeadlineEarly,
    /// A multishot operation reports again after its final event.
    EventAfterFinal,
    /// A readiness event is consumed and not acted on.
    WakeUpLost,
    /// A send that took a part is treated as if it had taken all.
    PartialSendTakenAsWhole,
    /// The buffer of a cancelled operation does not come back.
    BufferKeptOnCancel,
    /// An end of stream that comes with the last bytes is forgotten.
    FinBehindBytesLost,
    /// A connection is reported as ended twice.
    ConnectionEndedTwice,
    /// A socket that a cancelled accept brought all the same is not owned by anybody.
    AcceptAfterCancelLeaked,
    /// A receive reports a clean end after a send has taken the error of a reset.
    ResetTakenForEnd,
}

impl Bug {
    /// All of them.
    pub const ALL: &'static [Bug] = &[
        Bug::DirtyPipePooled,
        Bug::StaleGeneration,
        Bug::BufferReleasedTwice,
        Bug::CancelLost,
        Bug::EarlierDeadlineIgnored,
        Bug::DeadlineEarly,
        Bug::EventAfterFinal,
        Bug::WakeUpLost,
        Bug::PartialSendTakenAsWhole,
        Bug::BufferKeptOnCancel,
        Bug::FinBehindBytesLost,
        Bug::ConnectionEndedTwice,
        Bug::AcceptAfterCancelLeaked,
        Bug::ResetTakenForEnd,
    ];
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Chooses the bug of this thread, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.with(|cell| cell.set(bug));
    }

    /// Whether `bug` is planted in this thread.
    #[must_use]
    pub fn active(bug: Bug) -> bool {
        PLANTED.with(Cell::get) == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use switch::{active, plant};

/// Whether `bug` is planted in this thread: never, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[must_use]
#[inline(always)]
pub const fn active(_bug: Bug) -> bool {
    false
}
