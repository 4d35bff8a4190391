//! The pool of pipes of one engine.

use std::io;

use crate::engine::Fd;
use crate::pipe::Pipe;
use crate::sys;

/// Capacity asked for, bytes.
pub const PIPE_SIZE: usize = 64 * 1024;

/// Idle pipes kept. More are closed: a pipe costs two descriptors and, once used, up to its
/// capacity in pages of the user's quota.
const KEEP: usize = 64;

/// Pipes that hold nothing, ready to be used again.
#[derive(Debug, Default)]
pub(crate) struct PipePool {
    idle: Vec<Pipe>,
    out: usize,
}

impl PipePool {
    /// An empty pipe. Its size is what the kernel says it is: past the per-user page quota
    /// (`fs.pipe-user-pages-soft`) `pipe2(2)` does not fail but hands out one or two pages.
    pub(crate) fn take(&mut self) -> io::Result<Pipe> {
        let pipe = match self.idle.pop() {
            Some(pipe) => pipe,
            None => open()?,
        };
        self.out += 1;
        Ok(pipe)
    }

    /// Takes a pipe back; one that holds bytes would hand them to the next connection, and a small
    /// one is worth no slot (the quota may be free again by then): both are closed.
    pub(crate) fn give_back(&mut self, pipe: Pipe) {
        self.out = self.out.saturating_sub(1);
        if pipe.held == 0 && pipe.capacity >= PIPE_SIZE && self.idle.len() < KEEP {
            self.idle.push(pipe);
        } else {
            close(&pipe);
        }
    }

    /// Pipes out of the pool.
    pub(crate) fn out(&self) -> usize {
        self.out
    }
}

impl Drop for PipePool {
    fn drop(&mut self) {
        for pipe in &self.idle {
            close(pipe);
        }
    }
}

fn open() -> io::Result<Pipe> {
    let (read, write) = sys::pipe::pipe()?;
    let capacity = sys::pipe::size(read).and_then(|size| {
        if size >= PIPE_SIZE {
            return Ok(size);
        }
        // Refused past the quota; what is there is told below.
        let _ = sys::pipe::set_size(read, PIPE_SIZE);
        sys::pipe::size(read)
    });
    match capacity {
        Ok(capacity) => Ok(Pipe {
            read,
            write,
            held: 0,
            capacity,
        }),
        Err(error) => {
            sys::close(read);
            sys::close(write);
            Err(error)
        }
    }
}

fn close(pipe: &Pipe) {
    sys::close(pipe.read);
    sys::close(pipe.write);
}

/// [`crate::Engine::splice_in`] on real descriptors.
pub(crate) fn splice_in(from: Fd, pipe: &mut Pipe, max: usize) -> io::Result<usize> {
    let n = sys::pipe::splice(from, pipe.write, max, false)?;
    pipe.held += n;
    Ok(n)
}

/// [`crate::Engine::splice_out`] on real descriptors.
pub(crate) fn splice_out(pipe: &mut Pipe, to: Fd, max: usize, more: bool) -> io::Result<usize> {
    let n = sys::pipe::splice(pipe.read, to, max.min(pipe.held), more)?;
    pipe.held = pipe.held.saturating_sub(n);
    Ok(n)
}
