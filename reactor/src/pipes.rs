//! The pool of pipes of one engine.

use std::io;

use crate::engine::Fd;
use crate::pipe::Pipe;
use crate::sys;

/// Capacity of a pipe as the kernel makes it, bytes; smaller ones are not worth their calls.
pub const PIPE_SIZE: usize = 64 * 1024;

/// Capacity that the first [`LARGE_PIPES`] pipes are raised to. Processor time of an L4 relay for
/// 1 GiB on loopback, against 64 KiB pipes (medians of 7 interleaved rounds): 256 KiB 0.70 down
/// and 0.75 up, 1 MiB 0.65 and 0.69.
pub const LARGE_PIPE_SIZE: usize = 256 * 1024;

/// Pipes of an engine that are raised. An unprivileged user's quota is 16,384 pages
/// (`fs.pipe-user-pages-soft`): on two cores these take a quarter of it and leave 768 pipes of the
/// common size before the kernel hands out tiny ones.
pub const LARGE_PIPES: usize = 32;

/// Idle pipes kept. More are closed: a pipe costs two descriptors and, once used, up to its
/// capacity in pages of the user's quota.
pub const KEPT: usize = 64;

/// Pipes that hold nothing, ready to be used again.
#[derive(Debug, Default)]
pub(crate) struct PipePool {
    idle: Vec<Pipe>,
    out: usize,
    /// Pipes that were raised, idle or out.
    large: usize,
}

impl PipePool {
    /// An empty pipe. Its size is what the kernel says it is: past the per-user page quota
    /// (`fs.pipe-user-pages-soft`) `pipe2(2)` does not fail but hands out one or two pages.
    pub(crate) fn take(&mut self) -> io::Result<Pipe> {
        let pipe = match self.idle.pop() {
            Some(pipe) => pipe,
            None => {
                let pipe = open(self.large < LARGE_PIPES)?;
                self.large += usize::from(pipe.capacity > PIPE_SIZE);
                pipe
            }
        };
        self.out += 1;
        Ok(pipe)
    }

    /// Takes a pipe back; one that holds bytes would hand them to the next connection, and a small
    /// one is worth no slot (the quota may be free again by then): both are closed.
    pub(crate) fn give_back(&mut self, pipe: Pipe) {
        self.out = self.out.saturating_sub(1);
        if pipe.held == 0 && pipe.capacity >= PIPE_SIZE && self.idle.len() < KEPT {
            self.idle.push(pipe);
        } else {
            self.large -= usize::from(pipe.capacity > PIPE_SIZE);
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

fn open(large: bool) -> io::Result<Pipe> {
    let (read, write) = sys::pipe::pipe()?;
    if large {
        // Refused past the quota; what there is is asked for below.
        let _ = sys::pipe::set_size(read, LARGE_PIPE_SIZE);
    }
    match sys::pipe::size(read) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_pipes_of_full_size_are_used_again() -> io::Result<()> {
        let mut pool = PipePool::default();
        let clean = pool.take()?;
        let (mut dirty, mut small) = (pool.take()?, pool.take()?);
        let (read, write) = (clean.read, clean.write);
        dirty.held = 1;
        small.capacity = 4096;
        assert_eq!((pool.out(), pool.large), (3, 3));
        pool.give_back(clean);
        pool.give_back(dirty);
        assert_eq!(pool.large, 2);
        pool.give_back(small);
        assert_eq!((pool.out(), pool.idle.len()), (0, 1));
        let again = pool.take()?;
        assert_eq!((again.read, again.write), (read, write));
        pool.give_back(again);
        Ok(())
    }

    #[test]
    fn the_first_pipes_are_large() -> io::Result<()> {
        let mut pool = PipePool::default();
        let pipes: Vec<_> = (0..=LARGE_PIPES)
            .map(|_| pool.take())
            .collect::<Result<_, _>>()?;
        let sizes: Vec<_> = pipes.iter().map(Pipe::capacity).collect();
        // Less where the user's quota is used up already.
        assert!(sizes.iter().all(|size| *size <= LARGE_PIPE_SIZE));
        assert!(sizes[LARGE_PIPES] <= PIPE_SIZE);
        for (pipe, size) in pipes.iter().zip(&sizes) {
            assert_eq!(sys::pipe::size(pipe.read)?, *size);
        }
        for pipe in pipes {
            pool.give_back(pipe);
        }
        Ok(())
    }
}
