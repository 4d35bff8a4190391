//! Active probes of upstream targets (R20): off the reactors, on a thread with a small reactor of its
//! own, however many targets there are.
//!
//! ```text
//!  publish ── list of checks ──▶ Prober ── message ──▶ Probes (service.rs), one timer per target
//!                                                        │ GET health_check_path, 2xx is healthy
//!                                                        ▼
//!                                                      policy::pool::TargetState
//! ```

mod check;
mod service;

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;

use toron_reactor::{mailbox, Address, EngineConfig, EpollEngine, NativeEngine, Reactor};

pub use self::check::{checks_of, Check};
pub use self::service::{Message, Probes};
use crate::policy::snapshot::Snapshot;

/// Buffers of the thread: probes hold one only while bytes are at hand.
const BUFFERS: usize = 256;

/// The thread that probes, made when there is first something to probe. Dropping it stops it.
#[derive(Debug, Default)]
pub struct Prober {
    thread: Mutex<Option<Thread>>,
}

#[derive(Debug)]
struct Thread {
    address: Address<Message>,
    handle: thread::JoinHandle<()>,
}

impl Prober {
    /// Probes the targets of this configuration from now on, in place of those before. One that
    /// stays keeps its time; the connection of one that goes is closed.
    pub fn watch(&self, snapshot: &Snapshot) {
        let checks = checks_of(snapshot);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() && checks.is_empty() {
            return;
        }
        if thread.is_none() {
            match start() {
                Ok(started) => *thread = Some(started),
                Err(error) => {
                    log::error!("no target is probed: cannot start the thread for it: {error}");
                    return;
                }
            }
        }
        let address = thread.as_ref().map(|thread| &thread.address);
        if address.is_some_and(|address| address.send(Message::Watch(checks)).is_err()) {
            log::error!("targets are not probed any more: the thread for it has ended");
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        let thread = self.thread.get_mut();
        let Some(thread) = thread.unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        let told = thread.address.send(Message::Stop).is_ok();
        if told && thread.handle.join().is_err() {
            log::error!("the thread that probes had panicked");
        }
    }
}

fn start() -> io::Result<Thread> {
    let (address, mailbox) = mailbox();
    let config = EngineConfig {
        buffers: BUFFERS,
        ..EngineConfig::default()
    };
    let run = move || {
        // The engine belongs to the thread that opens it.
        let reactor = EpollEngine::open(&config)
            .map(|engine| Reactor::new(engine, Probes::new(fastrand::u64(..)), mailbox));
        let ended = reactor.and_then(|mut reactor| {
            while !reactor.service().is_stopped() {
                reactor.step(None)?;
            }
            Ok(())
        });
        if let Err(error) = ended {
            log::error!("targets are not probed any more: {error}");
        }
    };
    let handle = thread::Builder::new()
        .name("probes".to_owned())
        .spawn(run)?;
    Ok(Thread { address, handle })
}
