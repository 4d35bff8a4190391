//! Pooled buffers that receive 64 KiB.
//!
//! ```text
//!   0        HEADROOM          start            end                 HEADROOM + CAPACITY (76 KiB)
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

use crate::planted::{self, Bug};

/// Most bytes that receives bring into one buffer.
pub const RECEIVE: usize = 64 * 1024;
/// Most bytes that a receive into an empty buffer brings. With the pages that framing takes on either
/// side, the page of its request's head and what is known about it, a transfer by copy stays below
/// 72 KiB of resident memory like this; with receives of 64 KiB, 64 uploads took 78 KiB each.
pub const FIRST: usize = 48 * 1024;
/// Payload bytes a buffer can hold: one receive, and what framing or a head may add to it.
pub const CAPACITY: usize = RECEIVE + 8 * 1024;
/// Bytes in front of the payload that only [`Buf::replace_front`] uses.
pub const HEADROOM: usize = 4 * 1024;

/// Bytes that one buffer takes.
pub const SIZE: usize = HEADROOM + CAPACITY;
const PAGE: usize = 4096;
/// Free buffers that [`BufferPool::trim`] leaves resident: 1 MiB.
const KEEP_RESIDENT: usize = 16;

/// A pool of buffers. Cloning gives another handle to the same pool.
#[derive(Clone)]
pub struct BufferPool {
    inner: Rc<Inner>,
}

struct Inner {
    /// Every buffer that was ever made, by its number.
    all: RefCell<Vec<NonNull<Place>>>,
    /// Free buffers whose pages are resident; the one used last is on top, as its lines may still
    /// be in the cache.
    warm: RefCell<Vec<u32>>,
    /// Free buffers whose pages were given back.
    cold: RefCell<Vec<u32>>,
    /// The least `warm` has held since the last trim: nobody needed those.
    idle: Cell<usize>,
    limit: Cell<usize>,
    in_use: Cell<usize>,
    peak: Cell<usize>,
}

/// One buffer and what is known of it. Kept apart, so that what owns it is one word: connections have
/// room for several, and most of them are idle.
struct Place {
    data: NonNull<u8>,
    number: u32,
    start: u32,
    end: u32,
    /// While it is out, keeps the pool alive.
    pool: Option<Rc<Inner>>,
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
                warm: RefCell::new(Vec::new()),
                cold: RefCell::new(Vec::new()),
                idle: Cell::new(0),
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
        Some(self.hand_out(inner.pick()))
    }

    fn hand_out(&self, place: NonNull<Place>) -> Buf {
        let inner = &self.inner;
        inner.in_use.set(inner.in_use.get() + 1);
        inner.peak.set(inner.peak.get().max(inner.in_use.get()));
        let mut buf = Buf { place };
        let before = buf.place_mut().pool.replace(Rc::clone(inner));
        // What is unsafe here rests on it.
        assert!(before.is_none(), "a buffer is handed out twice");
        buf.clear();
        buf
    }

    /// A buffer for the kernel to receive into. It is not counted as in use until it is
    /// [claimed](BufferPool::claim). `None` when the pool is empty: what is lent comes on top of
    /// the limit, so an engine lends few.
    pub(crate) fn lend(&self) -> Option<Lent> {
        if !self.has_free() {
            return None;
        }
        Some(Lent {
            place: self.inner.pick(),
        })
    }

    /// Turns a lent buffer into which the kernel wrote `n` bytes into one in use. Gives it back
    /// unchanged while the limit is reached.
    pub(crate) fn claim(&self, lent: Lent, n: usize) -> Result<Buf, Lent> {
        if !self.has_free() {
            return Err(lent);
        }
        let mut buf = self.hand_out(lent.place);
        buf.grow_filled(n);
        Ok(buf)
    }

    /// Takes a lent buffer back that the kernel has no claim on any more.
    #[allow(clippy::needless_pass_by_value)] // the loan ends here
    pub(crate) fn take_back(&self, lent: Lent) {
        self.inner.shelve(lent.number());
    }

    /// Gives pages back to the kernel: those of buffers that nobody has needed since the last
    /// call. Engines call it about once a second, so that a burst does not stay resident, and a
    /// load that comes again within the second does not fault its pages in anew.
    pub fn trim(&self) {
        let inner = &self.inner;
        let mut warm = inner.warm.borrow_mut();
        let spare = inner
            .idle
            .get()
            .min(warm.len())
            .saturating_sub(KEEP_RESIDENT);
        let all = inner.all.borrow();
        for number in warm.drain(..spare) {
            if let Some(place) = all.get(number as usize) {
                // SAFETY: places live as long as the pool; the range is one whole page-aligned
                // allocation of this pool that nobody refers to; its content may be lost.
                unsafe {
                    let data = place.as_ref().data;
                    libc::madvise(data.as_ptr().cast(), SIZE, libc::MADV_DONTNEED);
                }
            }
            inner.cold.borrow_mut().push(number);
        }
        inner.idle.set(warm.len());
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
    /// A buffer nobody has, resident if possible.
    fn pick(&self) -> NonNull<Place> {
        let mut warm = self.warm.borrow_mut();
        let number = warm.pop().or_else(|| self.cold.borrow_mut().pop());
        self.idle.set(self.idle.get().min(warm.len()));
        let mut all = self.all.borrow_mut();
        if let Some(place) = number.and_then(|number| all.get(number as usize)) {
            return *place;
        }
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc(layout()) };
        let Some(data) = NonNull::new(raw) else {
            handle_alloc_error(layout())
        };
        let place = NonNull::from(Box::leak(Box::new(Place {
            data,
            number: all.len() as u32,
            start: HEADROOM as u32,
            end: HEADROOM as u32,
            pool: None,
        })));
        all.push(place);
        place
    }

    fn shelve(&self, number: u32) {
        self.warm.borrow_mut().push(number);
    }

    fn put(&self, number: u32) {
        self.in_use.set(self.in_use.get() - 1);
        self.shelve(number);
        if planted::active(Bug::BufferReleasedTwice) {
            self.shelve(number);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Every Buf holds an Rc to this, so none is out; an engine that lends to the kernel keeps
        // the pool until the kernel is done.
        for place in self.all.borrow().iter() {
            // SAFETY: made in `pick`: the place by a `Box`, its data with the same layout. Freed once.
            unsafe {
                let place = Box::from_raw(place.as_ptr());
                dealloc(place.data.as_ptr(), layout());
            }
        }
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "BufferPool({} of {} in use)",
            self.in_use(),
            self.limit()
        )
    }
}

/// A buffer that the kernel may write to at any time; not counted as in use. Must go back to the
/// pool by [`BufferPool::claim`] or [`BufferPool::take_back`], but only when the kernel is done.
#[derive(Debug)]
pub(crate) struct Lent {
    place: NonNull<Place>,
}

impl Lent {
    /// Where the kernel may write [`FIRST`] bytes.
    pub(crate) fn payload(&self) -> *mut u8 {
        // SAFETY: places live as long as the pool, which outlives its loans; HEADROOM lies inside the
        // allocation.
        unsafe { self.place.as_ref().data.as_ptr().add(HEADROOM) }
    }

    fn number(&self) -> u32 {
        // SAFETY: as in `payload`.
        unsafe { self.place.as_ref().number }
    }
}

/// A buffer from a [`BufferPool`]; see the module text. Dereferences to its filled bytes.
pub struct Buf {
    place: NonNull<Place>,
}

impl Buf {
    fn place(&self) -> &Place {
        // SAFETY: a place lives as long as its pool, which it keeps alive while it is out; whoever has
        // the `Buf` is the only one who has the place.
        unsafe { self.place.as_ref() }
    }

    fn place_mut(&mut self) -> &mut Place {
        // SAFETY: as in `place`, and `&mut self` makes the access unique.
        unsafe { self.place.as_mut() }
    }

    /// The filled bytes.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        let place = self.place();
        // SAFETY: start <= end <= SIZE, and bytes below `end` have been written (by `extend`,
        // `replace_front`, or the kernel before `grow_filled`).
        unsafe {
            std::slice::from_raw_parts(
                place.data.as_ptr().add(place.start as usize),
                (place.end - place.start) as usize,
            )
        }
    }

    /// The filled bytes, to be changed in place.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        let place = self.place_mut();
        // SAFETY: as for `filled`, and `&mut self` makes the access unique.
        unsafe {
            std::slice::from_raw_parts_mut(
                place.data.as_ptr().add(place.start as usize),
                (place.end - place.start) as usize,
            )
        }
    }

    /// Bytes that still fit behind the filled ones.
    #[must_use]
    pub fn room(&self) -> usize {
        SIZE - self.place().end as usize
    }

    /// Drops `n` bytes (at most all) from the front.
    pub fn consume(&mut self, n: usize) {
        let place = self.place_mut();
        let filled = (place.end - place.start) as usize;
        if n >= filled {
            self.clear();
        } else {
            place.start += n as u32;
        }
    }

    /// Keeps only the first `n` filled bytes.
    pub fn truncate(&mut self, n: usize) {
        if n < self.filled().len() {
            let place = self.place_mut();
            place.end = place.start + n as u32;
        }
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        let place = self.place_mut();
        place.start = HEADROOM as u32;
        place.end = HEADROOM as u32;
    }

    /// Appends as much of `bytes` as fits and returns how much that was.
    pub fn extend(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.room());
        let place = self.place_mut();
        // SAFETY: `n` bytes from `end` on are inside the allocation; source and target are
        // different objects because `bytes` is borrowed while `self` is borrowed mutably.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                place.data.as_ptr().add(place.end as usize),
                n,
            );
        }
        place.end += n as u32;
        n
    }

    /// Replaces the first `old` filled bytes by `new`, which may be longer by what is free in
    /// front (at least [`HEADROOM`] for a buffer nothing was consumed from). The bytes behind are
    /// not moved. `false`, and nothing changed, if it does not fit.
    #[must_use]
    pub fn replace_front(&mut self, old: usize, new: &[u8]) -> bool {
        let old = old.min(self.filled().len());
        let place = self.place_mut();
        let border = place.start as usize + old;
        if new.len() > border {
            return false;
        }
        let start = border - new.len();
        // SAFETY: start..border lies inside the allocation and does not overlap `new`, which is
        // borrowed from elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(new.as_ptr(), place.data.as_ptr().add(start), new.len());
        }
        place.start = start as u32;
        true
    }

    /// Moves the filled bytes to where a fresh buffer starts, so that [`Buf::room`] is largest.
    pub fn compact(&mut self) {
        let place = self.place_mut();
        let n = place.end - place.start;
        if n == 0 || place.start == HEADROOM as u32 {
            return;
        }
        if n as usize > CAPACITY {
            return;
        }
        // SAFETY: both ranges lie inside the allocation; `copy` allows them to overlap.
        unsafe {
            std::ptr::copy(
                place.data.as_ptr().add(place.start as usize),
                place.data.as_ptr().add(HEADROOM),
                n as usize,
            );
        }
        place.start = HEADROOM as u32;
        place.end = HEADROOM as u32 + n;
    }

    /// Bytes that may still be received: [`FIRST`] into an empty buffer; after that the filled part
    /// stays within [`RECEIVE`], so that there is always room for the framing that is added to what
    /// was received.
    #[must_use]
    pub fn receivable(&self) -> usize {
        match (self.place().end as usize).saturating_sub(HEADROOM) {
            0 => FIRST,
            filled => RECEIVE.saturating_sub(filled),
        }
    }

    /// Where an engine writes received bytes: address and length ([`Buf::receivable`]).
    pub(crate) fn room_ptr(&mut self) -> (*mut u8, usize) {
        let place = self.place();
        // SAFETY: `end` <= SIZE, so the pointer stays inside (or one past) the allocation.
        (
            unsafe { place.data.as_ptr().add(place.end as usize) },
            self.receivable(),
        )
    }

    /// Counts `n` bytes as filled that an engine wrote at [`Buf::room_ptr`].
    pub(crate) fn grow_filled(&mut self, n: usize) {
        debug_assert!(n <= self.room());
        let n = n.min(self.room());
        self.place_mut().end += n as u32;
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
        let place = self.place_mut();
        let number = place.number;
        if let Some(pool) = place.pool.take() {
            pool.put(number);
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Buf({}, {} bytes)",
            self.place().number,
            self.filled().len()
        )
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
    fn a_lent_buffer_waits_to_be_claimed() {
        let pool = BufferPool::new(1);
        let lent = pool.lend();
        assert_eq!(pool.in_use(), 0);
        let held = pool.take();
        assert!(held.is_some() && pool.lend().is_none());
        let Some(Err(lent)) = lent.map(|l| pool.claim(l, 3)) else {
            panic!("limit exceeded")
        };
        drop(held);
        let buf = pool.claim(lent, 3);
        assert!(buf.as_ref().is_ok_and(|b| b.len() == 3));
        assert_eq!(pool.in_use(), 1);
        drop(buf);
        assert_eq!(pool.in_use(), 0);
        if let Some(lent) = pool.lend() {
            pool.take_back(lent);
        }
        assert_eq!((pool.in_use(), pool.inner.all.borrow().len()), (0, 2));
    }

    #[test]
    fn buffers_unused_for_two_trims_give_their_pages_back() {
        let pool = BufferPool::new(100);
        let burst: Vec<_> = (0..50).filter_map(|_| pool.take()).collect();
        drop(burst);
        pool.trim();
        assert_eq!(pool.inner.cold.borrow().len(), 0);
        drop((pool.take(), pool.take()));
        pool.trim();
        assert_eq!(pool.inner.cold.borrow().len(), 48 - KEEP_RESIDENT);
        let again: Vec<_> = (0..50).filter_map(|_| pool.take()).collect();
        assert_eq!((again.len(), pool.inner.all.borrow().len()), (50, 50));
    }

    #[test]
    fn a_receive_leaves_room_for_framing() {
        let pool = BufferPool::new(1);
        let Some(mut buf) = pool.take() else {
            panic!("pool is empty")
        };
        assert_eq!(buf.room_ptr().1, FIRST);
        buf.grow_filled(FIRST);
        assert_eq!(buf.room_ptr().1, RECEIVE - FIRST);
        buf.grow_filled(RECEIVE - FIRST);
        assert_eq!((buf.room_ptr().1, buf.room()), (0, CAPACITY - RECEIVE));
        buf.extend(&[0; CAPACITY - RECEIVE]);
        assert_eq!((buf.room_ptr().1, buf.room()), (0, 0));
    }

    #[test]
    fn a_front_may_grow_into_the_headroom() {
        let pool = BufferPool::new(1);
        let Some(mut buf) = pool.take() else {
            panic!("pool is empty")
        };
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
