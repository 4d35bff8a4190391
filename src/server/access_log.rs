//! The access log: lines are made on the reactor and written by a thread of their own.
//!
//! A reactor gathers the lines of a turn and hands them over without waiting. When the writer is
//! behind (a stalled disk), lines are dropped and counted, never waited for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crossbeam_channel::{bounded, Receiver, Sender, TrySendError};

/// Batches under way to the writer. A batch is one reactor's lines of one turn, about 256 lines of
/// 150 bytes at most under load, so that a stalled disk costs some 40 MB before lines are dropped.
const BATCHES: usize = 1024;

/// The reactors' end.
#[derive(Clone, Debug)]
pub struct AccessLog {
    sender: Sender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// The writer's end.
#[derive(Debug)]
pub struct LogSource {
    /// Batches of whole lines.
    pub batches: Receiver<Vec<u8>>,
    /// Where written batches go back to, so that their memory serves again.
    pub empty: Sender<Vec<u8>>,
    /// Lines dropped so far.
    pub dropped: Arc<AtomicU64>,
}

/// Both ends.
#[must_use]
pub fn channel() -> (AccessLog, LogSource) {
    let (sender, batches) = bounded(BATCHES);
    let (empty_sender, empty) = bounded(BATCHES);
    let dropped = Arc::new(AtomicU64::new(0));
    let log = AccessLog {
        sender,
        empty,
        dropped: Arc::clone(&dropped),
    };
    (
        log,
        LogSource {
            batches,
            empty: empty_sender,
            dropped,
        },
    )
}

impl AccessLog {
    /// What was dropped so far because the writer was behind.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Hands the lines over and leaves `lines` empty.
    pub fn hand_over(&self, lines: &mut Vec<u8>) {
        let fresh = self.empty.try_recv().unwrap_or_default();
        let batch = std::mem::replace(lines, fresh);
        match self.sender.try_send(batch) {
            Ok(()) => {}
            Err(TrySendError::Full(mut batch) | TrySendError::Disconnected(mut batch)) => {
                let lost = batch.iter().filter(|&&b| b == b'\n').count() as u64;
                self.dropped.fetch_add(lost, Ordering::Relaxed);
                batch.clear();
                *lines = batch;
            }
        }
    }
}
