//! Readiness: `epoll(7)`, `poll(2)` and `eventfd(2)`.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{check, close};
use crate::engine::Fd;

/// What epoll reports: a mask and the number given at registration.
pub(crate) type PollEvent = libc::epoll_event;

/// An event with nothing in it, to fill arrays with.
pub(crate) const NO_EVENT: PollEvent = PollEvent { events: 0, u64: 0 };

/// An epoll instance.
#[derive(Debug)]
pub struct Epoll {
    fd: Fd,
}

/// Set once `epoll_pwait2(2)` (Linux 5.11) was found to be missing or forbidden.
static NO_PWAIT2: AtomicBool = AtomicBool::new(false);

impl Epoll {
    /// A new instance, close-on-exec.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(|fd| Epoll { fd: Fd(fd) })
    }

    /// Registers `fd` for `mask`; events carry `data`.
    pub fn add(&self, fd: Fd, mask: u32, data: u64) -> io::Result<()> {
        let mut event = PollEvent {
            events: mask,
            u64: data,
        };
        // SAFETY: `event` lives through the call.
        check(unsafe { libc::epoll_ctl(self.fd.0, libc::EPOLL_CTL_ADD, fd.0, &mut event) })
            .map(drop)
    }

    /// Ends a registration.
    pub fn remove(&self, fd: Fd) -> io::Result<()> {
        // SAFETY: EPOLL_CTL_DEL ignores the event pointer.
        let result =
            unsafe { libc::epoll_ctl(self.fd.0, libc::EPOLL_CTL_DEL, fd.0, ptr::null_mut()) };
        check(result).map(drop)
    }

    /// Waits for at most `timeout` (`None`: without limit) and returns how many events were
    /// written to the front of `events`. The timeout has nanoseconds where the kernel offers
    /// them, else it is rounded up to milliseconds. A signal counts as no event.
    pub(crate) fn wait(
        &self,
        events: &mut [PollEvent],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let result = match timeout {
            Some(t) if !t.is_zero() && !NO_PWAIT2.load(Ordering::Relaxed) => {
                match self.pwait2(events, t) {
                    Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                        NO_PWAIT2.store(true, Ordering::Relaxed);
                        self.wait_millis(events, timeout)
                    }
                    result => result,
                }
            }
            _ => self.wait_millis(events, timeout),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            result => result,
        }
    }

    fn pwait2(&self, events: &mut [PollEvent], timeout: Duration) -> io::Result<usize> {
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
        };
        let len = i32::try_from(events.len()).unwrap_or(i32::MAX);
        // SAFETY: `events` has room for `len` events; the timeout lives through the call; no
        // signal mask is given.
        let n = unsafe {
            libc::epoll_pwait2(self.fd.0, events.as_mut_ptr(), len, &timeout, ptr::null())
        };
        check(n).map(|n| n as usize)
    }

    fn wait_millis(&self, events: &mut [PollEvent], limit: Option<Duration>) -> io::Result<usize> {
        let millis = limit.map_or(-1, |t| {
            i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let len = i32::try_from(events.len()).unwrap_or(i32::MAX);
        // SAFETY: `events` has room for `len` events.
        let n = unsafe { libc::epoll_wait(self.fd.0, events.as_mut_ptr(), len, millis) };
        check(n).map(|n| n as usize)
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        close(self.fd);
    }
}

/// Which of `mask` (`POLLIN`, `POLLOUT`, …) holds for `fd` right now; errors and hang-ups are
/// always told.
pub fn poll_now(fd: Fd, mask: i16) -> io::Result<i16> {
    let mut entry = libc::pollfd {
        fd: fd.0,
        events: mask,
        revents: 0,
    };
    // SAFETY: one entry is passed and counted.
    check(unsafe { libc::poll(&mut entry, 1, 0) })?;
    Ok(entry.revents)
}

/// A non-blocking eventfd.
pub fn eventfd() -> io::Result<Fd> {
    // SAFETY: no pointers are passed.
    check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }).map(Fd)
}

/// Adds one to an eventfd, which wakes whoever polls it.
pub fn ring_eventfd(fd: Fd) {
    let one = 1u64;
    // SAFETY: eight bytes are read from a live u64. (Fails only when 2^64 - 2 calls went unread.)
    unsafe { libc::write(fd.0, ptr::from_ref(&one).cast(), 8) };
}
