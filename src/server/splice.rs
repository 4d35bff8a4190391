//! When bodies move by `splice`, and the pipe they take.

use toron_reactor::{Engine, Pipe};

/// Bodies with fewer bytes outstanding are copied: a pipe and two more system calls do not pay.
pub(crate) const SPLICE_MIN: u64 = 64 * 1024;
/// Most bytes that wait in a pipe (I35).
pub(crate) const SPLICE_CHUNK: u64 = 64 * 1024;
/// Rounds of splicing in one handler before others get their turn.
pub(crate) const SPLICE_ROUNDS: usize = 16;

/// The pipe in use, or one from the pool. Pipes below 64 KiB (past the kernel's quota) do not pay.
pub(crate) fn hold_pipe<'p, E: Engine>(
    engine: &mut E,
    pipe: &'p mut Option<Pipe>,
) -> Option<&'p mut Pipe> {
    if pipe.is_none() {
        let fresh = engine.pipe().ok()?;
        if (fresh.capacity() as u64) < SPLICE_CHUNK {
            engine.return_pipe(fresh);
            return None;
        }
        *pipe = Some(fresh);
    }
    pipe.as_mut()
}
