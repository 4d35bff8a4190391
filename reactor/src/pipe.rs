//! A kernel pipe as a place where bytes wait between two sockets.

use crate::fd::Fd;

/// A pipe from an engine's pool; give it back with [`crate::Engine::return_pipe`].
#[derive(Debug)]
pub struct Pipe {
    /// Read end (in the simulator: the pipe's number).
    pub(crate) read: Fd,
    /// Write end.
    pub(crate) write: Fd,
    /// Bytes inside.
    pub(crate) held: usize,
    /// Bytes that fit, as the kernel says (`F_GETPIPE_SZ`): past the per-user page quota pipes are
    /// small.
    pub(crate) capacity: usize,
}

impl Pipe {
    /// Bytes inside.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Bytes that fit. Below 64 KiB, copying through a buffer is cheaper.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}
