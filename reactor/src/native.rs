//! What the two kernel engines share: how they are opened, how they hand out what has completed, the
//! bell that wakes them, and the spare descriptor.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::buffer::RECEIVE;
use crate::engine::{Engine, Event, Fd, Shutdown, SocketOptions, Wake};
use crate::sys;

/// What a kernel engine is opened with.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Buffers that may be out at a time.
    pub buffers: usize,
    /// Options of accepted and dialled sockets.
    pub socket: SocketOptions,
}

impl Default for EngineConfig {
    /// 256 buffers: 16 MiB.
    fn default() -> Self {
        EngineConfig {
            buffers: 256,
            socket: SocketOptions::default(),
        }
    }
}

/// An engine that runs on the kernel. Must be opened on the thread that uses it.
pub trait NativeEngine: Engine + Sized {
    /// `io_uring` or `epoll`, as in the configuration.
    const NAME: &'static str;

    /// Opens the engine. Fails when descriptors or locked memory run out, or the kernel lacks what
    /// is needed.
    fn open(config: &EngineConfig) -> io::Result<Self>;
}

/// How often unused buffers are looked for.
pub(crate) const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// What a socket is polled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Poll {
    Readable,
    Writable,
    Hangup,
    ReadHangup,
}

/// Moves the completions to the caller, without copying them if its list is empty.
pub(crate) fn hand_out(done: &mut Vec<Event>, events: &mut Vec<Event>) {
    if events.is_empty() {
        std::mem::swap(done, events);
    } else {
        events.append(done);
    }
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

/// Wakes an engine. Only a bell rung while the engine sleeps costs a system call.
#[derive(Debug)]
pub(crate) struct Bell {
    state: AtomicU8,
    /// An eventfd that the engine polls edge-triggered, so that it need not be read.
    fd: Fd,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Bell {
            state: AtomicU8::new(AWAKE),
            fd: sys::poll::eventfd()?,
        })
    }

    pub(crate) fn fd(&self) -> Fd {
        self.fd
    }

    /// The engine is about to wait. `false`: it was rung, and must not.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.state
            .compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// The engine does not wait (any more). Tells whether the bell was rung, and takes note.
    pub(crate) fn wake_up(&self) -> bool {
        self.state.load(Ordering::SeqCst) != AWAKE
            && self.state.swap(AWAKE, Ordering::SeqCst) == RUNG
    }
}

impl Wake for Bell {
    fn wake(&self) {
        if self.state.swap(RUNG, Ordering::SeqCst) == ASLEEP {
            sys::poll::ring_eventfd(self.fd);
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

/// A descriptor kept back so that a connection can be refused politely when there is no other.
#[derive(Debug)]
pub(crate) struct Spare(Option<Fd>);

impl Spare {
    pub(crate) fn new() -> Self {
        Spare(sys::spare_descriptor().ok())
    }

    /// [`Engine::refuse_one`] on a real listener.
    pub(crate) fn refuse_one(&mut self, listener: Fd, answer: &[u8]) -> Option<SocketAddr> {
        if let Some(spare) = self.0.take() {
            sys::close(spare);
        }
        let refused = match sys::socket::accept(listener) {
            Ok((fd, peer)) => {
                // What does not fit into an empty send buffer is lost: nobody waits here.
                let _ = sys::socket::send(fd, answer, false);
                // Bytes of the request that were read by nobody would turn the close into a reset
                // that can overtake the answer.
                let _ = sys::socket::shutdown(fd, Shutdown::Write);
                let _ = sys::socket::discard(fd, RECEIVE);
                sys::close(fd);
                Some(peer)
            }
            Err(_) => None,
        };
        self.0 = sys::spare_descriptor().ok();
        refused
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(spare) = self.0.take() {
            sys::close(spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rung_before_the_sleep_prevents_it() -> io::Result<()> {
        let bell = Bell::new()?;
        bell.wake();
        assert!(!bell.fall_asleep());
        assert!(bell.wake_up());
        assert!(!bell.wake_up());
        assert!(bell.fall_asleep());
        assert!(!bell.wake_up());
        Ok(())
    }

    #[test]
    fn only_a_sleeping_engine_costs_a_system_call() -> io::Result<()> {
        let bell = Bell::new()?;
        let readable = || sys::poll::poll_now(bell.fd(), libc::POLLIN);
        bell.wake();
        assert_eq!(readable()?, 0);
        assert!(bell.wake_up());
        assert!(bell.fall_asleep());
        bell.wake();
        bell.wake();
        assert_eq!(readable()?, libc::POLLIN);
        Ok(())
    }
}
