//! How much of what was sent the other end has taken.
//!
//! The kernel calls a full send buffer writable again only when a third of it is free, and that
//! buffer grows to several megabytes: a peer that reads steadily but slowly so looks as if it took
//! nothing for many seconds. The acknowledgements tell otherwise.

use crate::engine::{Acknowledged, Fd};
use crate::sys;

/// The account of one socket, kept only while a send or splice waits for room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendQueue {
    /// Bytes in the kernel's queue when waiting began, or when last asked.
    mark: Option<u64>,
}

impl SendQueue {
    /// There is no room to send, or not enough. Only the first time costs a system call.
    pub(crate) fn waits(&mut self, fd: Fd) {
        if self.mark.is_none() {
            // Fails only for what is no connection, of which nothing can be said.
            self.mark = queued(fd);
        }
    }

    /// A send was taken: it is told as such.
    pub(crate) fn moved(&mut self) {
        self.mark = None;
    }

    /// [`crate::Engine::acknowledged`].
    pub(crate) fn acknowledged(&mut self, fd: Fd) -> Option<Acknowledged> {
        let before = self.mark?;
        let left = queued(fd)?;
        self.mark = Some(left);
        Some(Acknowledged {
            bytes: before.saturating_sub(left),
            left,
        })
    }
}

fn queued(fd: Fd) -> Option<u64> {
    sys::socket::unacknowledged(fd).ok().map(|n| n as u64)
}
