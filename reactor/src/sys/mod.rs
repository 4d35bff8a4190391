//! System calls as small safe functions that return [`io::Result`].
//!
//! Descriptors are [`Fd`]s, plain numbers: a wrong one yields `EBADF`, or acts on another socket
//! of this process, but cannot break memory safety. Ownership is kept by the engines.

pub mod pipe;
pub mod poll;
pub mod process;
pub mod socket;

use std::io;

use crate::engine::Fd;
use crate::time::Time;

/// The result of a system call that returns -1 on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// The same for calls that return a count of bytes.
pub(crate) fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The errno inside an error; `EIO` for errors that did not come from the system.
#[must_use]
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// `CLOCK_MONOTONIC`.
#[must_use]
pub fn monotonic() -> Time {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid place for the result. The call cannot fail with this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    Time(
        (now.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(now.tv_nsec as u64),
    )
}

/// `close(2)`. There is nothing to be done about its errors: the descriptor is gone either way.
pub fn close(fd: Fd) {
    // SAFETY: closing a number is memory-safe whatever it refers to.
    unsafe { libc::close(fd.0) };
}

/// Opens `/dev/null`: a descriptor to be given up when one is needed badly.
pub fn spare_descriptor() -> io::Result<Fd> {
    // SAFETY: the path is a NUL-terminated literal.
    check(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }).map(Fd)
}
