//! Pooled 64 KiB buffers.
//!
//! ```text
//!   0        HEADROOM          start            end                 HEADROOM + CAPACITY
//!   | headroom |  consumed       |  filled        |  room                |
//! ```
//!
//! Bytes arrive at `end`; whoever consumes moves `start`. The headroom in front lets a head that
//! grew while it was rewritten be put back in front of the body bytes that came with it, without
//! moving them and without a second buffer ([`Buf::replace_front`]).
//!
//! A buffer returns to its pool when it is dropped. Pools belong to one thread.

use std::alloc::{alloc, dealloc, handle_alloc_error, Layout};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

/// Payload bytes a buffer can receive.
pub const CAPACITY: usize = 64 * 1024;
/// Bytes in front of the payload that only [`Buf::replace_front`] uses.
pub const HEADROOM: usize = 4 * 1024;

const SIZE: usize = HEADROOM + CAPACITY;
const PAGE: usize = 4096;
/// Free buffers beyond this many give their pages back to the kernel. 64 buffers are 4 MiB: as
/// many as one turn of a busy reactor uses (epoll returns at most 256 events, of which a quarter
/// are receives that overlap).
const KEEP_RESIDENT: usize = 64;

/// A pool of buffers. Cloning gives another handle to the same pool.
#[derive(Clone)]
pub struct BufferPool {
    inner: Rc<Inner>,
}

struct Inner {
    all: RefCell<Vec<NonNull<u8>>>,
    free: RefCell<Vec<u32>>,
    limit: Cell<usize>,
    in_use: Cell<usize>,
    peak: Cell<usize>,
}

fn layout() -> Layout {
    // SIZE and PAGE are constants that satisfy the conditions (power of two, no overflow).
    match Layout::from_size_align(SIZE, PAGE) {
        Ok(layout) => layout,
        Err(_) => Layout::new::<[u8; SIZE]>(),
    }
}

impl BufferPool {
    /// A pool that hands out at most `limit` buffers at a time. Memory is taken when needed.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        BufferPool {
            inner: Rc::new(Inner {
                all: RefCell::new(Vec::new()),
                free: RefCell::new(Vec::new()),
                limit: Cell::new(limit),
                in_use: Cell::new(0),
                peak: Cell::new(0),
            }),
        }
    }

    /// An empty buffer, or `None` when `limit` buffers are out: then wait ([`crate::Op::Buffer`]).
    #[must_use]
    pub fn take(&self) -> Option<Buf> {
        let inner = &self.inner;
        if inner.in_use.get() >= inner.limit.get() {
            return None;
        }
        let id = inner.free.borrow_mut().pop().unwrap_or_else(|| inner.grow());
        let data = *inner.all.borrow().get(id as usize)?;
        inner.in_use.set(inner.in_use.get() + 1);
        inner.peak.set(inner.peak.get().max(inner.in_use.get()));
        Some(Buf {
            data,
            id,
            start: HEADROOM as u32,
            end: HEADROOM as u32,
            pool: Rc::clone(&self.inner),
        })
    }

    /// Buffers out of the pool.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.inner.in_use.get()
    }

    /// The most buffers that were ever out at a time.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.inner.peak.get()
    }

    /// How many buffers may be out at a time.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.inner.limit.get()
    }

    /// Changes the limit. Buffers that are out stay valid.
    pub fn set_limit(&self, limit: usize) {
        self.inner.limit.set(limit);
    }

    /// Whether [`BufferPool::take`] would succeed.
    #[must_use]
    pub fn has_free(&self) -> bool {
        self.inner.in_use.get() < self.inner.limit.get()
    }
}

impl Inner {
    fn grow(&self) -> u32 {
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc(layout()) };
        let Some(data) = NonNull::new(raw) else { handle_alloc_error(layout()) };
        let mut all = self.all.borrow_mut();
        all.push(data);
        (all.len() - 1) as u32
    }

    fn put(&self, id: u32, data: NonNull<u8>) {
        self.in_use.set(self.in_use.get() - 1);
        let mut free = self.free.borrow_mut();
        if free.len() >= KEEP_RESIDENT {
            // SAFETY: the range is one whole page-aligned allocation of this pool that nobody
            // refers to; its content may be lost.
            unsafe { libc::madvise(data.as_ptr().cast(), SIZE, libc::MADV_DONTNEED) };
        }
        free.push(id);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Every Buf holds an Rc to this, so none is out.
        for data in self.all.borrow().iter() {
            // SAFETY: allocated in `grow` with the same layout, freed once.
            unsafe { dealloc(data.as_ptr(), layout()) };
        }
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool({} of {} in use)", self.in_use(), self.limit())
    }
}

/// A buffer from a [`BufferPool`]; see the module text. Dereferences to its filled bytes.
pub struct Buf {
    data: NonNull<u8>,
    id: u32,
    start: u32,
    end: u32,
    pool: Rc<Inner>,
}

impl Buf {
    /// The filled bytes.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        // SAFETY: start <= end <= SIZE, and bytes below `end` have been written (by `extend`,
        // `replace_front`, or the kernel before `grow_filled`).
        unsafe {
            std::slice::from_raw_parts(
                self.data.as_ptr().add(self.start as usize),
                (self.end - self.start) as usize,
            )
        }
    }

    /// The filled bytes, to be changed in place.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `filled`, and `&mut self` makes the access unique.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.data.as_ptr().add(self.start as usize),
                (self.end - self.start) as usize,
            )
        }
    }

    /// Bytes that still fit behind the filled ones.
    #[must_use]
    pub fn room(&self) -> usize {
        SIZE - self.end as usize
    }

    /// Drops `n` bytes (at most all) from the front.
    pub fn consume(&mut self, n: usize) {
        self.start += (n as u32).min(self.end - self.start);
        if self.start == self.end {
            self.clear();
        }
    }

    /// Keeps only the first `n` filled bytes.
    pub fn truncate(&mut self, n: usize) {
        if n < self.filled().len() {
            self.end = self.start + n as u32;
        }
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        self.start = HEADROOM as u32;
        self.end = HEADROOM as u32;
    }

    /// Appends as much of `bytes` as fits and returns how much that was.
    pub fn extend(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.room());
        // SAFETY: `n` bytes from `end` on are inside the allocation; source and target are
        // different objects because `bytes` is borrowed while `self` is borrowed mutably.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.data.as_ptr().add(self.end as usize),
                n,
            );
        }
        self.end += n as u32;
        n
    }

    /// Replaces the first `old` filled bytes by `new`, which may be longer by what is free in
    /// front (at least [`HEADROOM`] for a buffer nothing was consumed from). The bytes behind are
    /// not moved. `false`, and nothing changed, if it does not fit.
    #[must_use]
    pub fn replace_front(&mut self, old: usize, new: &[u8]) -> bool {
        let old = old.min(self.filled().len());
        let border = self.start as usize + old;
        if new.len() > border {
            return false;
        }
        let start = border - new.len();
        // SAFETY: start..border lies inside the allocation and does not overlap `new`, which is
        // borrowed from elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(new.as_ptr(), self.data.as_ptr().add(start), new.len());
        }
        self.start = start as u32;
        true
    }

    /// Moves the filled bytes to where a fresh buffer starts, so that [`Buf::room`] is largest.
    pub fn compact(&mut self) {
        let n = self.end - self.start;
        if n == 0 || self.start == HEADROOM as u32 {
            return;
        }
        if n as usize > CAPACITY {
            return;
        }
        // SAFETY: both ranges lie inside the allocation; `copy` allows them to overlap.
        unsafe {
            std::ptr::copy(
                self.data.as_ptr().add(self.start as usize),
                self.data.as_ptr().add(HEADROOM),
                n as usize,
            );
        }
        self.start = HEADROOM as u32;
        self.end = HEADROOM as u32 + n;
    }

    /// Where an engine writes received bytes: address and length of the room.
    pub(crate) fn room_ptr(&mut self) -> (*mut u8, usize) {
        // SAFETY: `end` <= SIZE, so the pointer stays inside (or one past) the allocation.
        (unsafe { self.data.as_ptr().add(self.end as usize) }, self.room())
    }

    /// Counts `n` bytes as filled that an engine wrote at [`Buf::room_ptr`].
    pub(crate) fn grow_filled(&mut self, n: usize) {
        debug_assert!(n <= self.room());
        self.end += n.min(self.room()) as u32;
    }

    /// The buffer's number in its pool.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.filled()
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        self.pool.put(self.id, self.data);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({}, {} bytes)", self.id, self.filled().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_returns() {
        let pool = BufferPool::new(1);
        let buf = pool.take().map(|mut b| {
            b.extend(b"abc");
            b
        });
        assert!(pool.take().is_none());
        drop(buf);
        assert_eq!(pool.in_use(), 0);
        assert!(pool.take().is_some_and(|b| b.is_empty()));
    }

    #[test]
    fn a_front_may_grow_into_the_headroom() {
        let pool = BufferPool::new(1);
        let Some(mut buf) = pool.take() else { panic!("pool is empty") };
        buf.extend(b"headbody");
        assert!(buf.replace_front(4, &[b'h'; 4 + HEADROOM]));
        assert!(buf.ends_with(b"body"));
        assert_eq!(buf.len(), HEADROOM + 8);
        assert!(!buf.replace_front(4, &[b'h'; 5]));
        buf.consume(HEADROOM + 4);
        assert_eq!(&*buf, b"body");
        buf.compact();
        assert_eq!(&*buf, b"body");
        assert_eq!(buf.room(), CAPACITY - 4);
    }
}
