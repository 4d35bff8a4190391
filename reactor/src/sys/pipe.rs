//! Pipes and `splice(2)`.

use std::io;
use std::ptr;

use super::{check, check_len};
use crate::engine::Fd;

/// A non-blocking pipe: read end and write end.
pub fn pipe() -> io::Result<(Fd, Fd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
    Ok((Fd(ends[0]), Fd(ends[1])))
}

/// Asks for a capacity (`F_SETPIPE_SZ`). `EPERM` past the per-user quota.
pub fn set_size(pipe: Fd, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    // SAFETY: no pointers are passed.
    check(unsafe { libc::fcntl(pipe.0, libc::F_SETPIPE_SZ, bytes) }).map(drop)
}

/// The capacity (`F_GETPIPE_SZ`).
pub fn size(pipe: Fd) -> io::Result<usize> {
    // SAFETY: no pointers are passed.
    check(unsafe { libc::fcntl(pipe.0, libc::F_GETPIPE_SZ) }).map(|n| n as usize)
}

/// Moves up to `max` bytes from `from` to `to`, one of which is a pipe, without waiting. (The
/// socket must be non-blocking as well: `SPLICE_F_NONBLOCK` concerns only the pipe.)
pub fn splice(from: Fd, to: Fd, max: usize, more: bool) -> io::Result<usize> {
    let mut flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    if more {
        flags |= libc::SPLICE_F_MORE;
    }
    let none = ptr::null_mut();
    // SAFETY: no offsets are passed; the call touches no memory of this process.
    check_len(unsafe { libc::splice(from.0, none, to.0, none, max, flags) })
}
