//! A ring with batched submission and a registered descriptor, and the buffer ring that receives
//! take their buffers from.

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::collections::VecDeque;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::BufRingEntry;
use io_uring::{cqueue, squeue, EnterFlags, IoUring};

use crate::buffer::{Buf, BufferPool, Lent, FIRST};

/// Submission entries. More than that between two turns cost one more system call each time.
const SUBMISSIONS: u32 = 1024;
/// Completion entries: beyond them the kernel keeps completions in a list of its own, which
/// works but allocates.
const COMPLETIONS: u32 = 4096;

/// The kernel's side of a completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) user_data: u64,
    pub(super) result: i32,
    pub(super) flags: u32,
}

/// The layout of `struct io_uring_getevents_arg`.
#[repr(C)]
struct GetEventsArg {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_usec: u32,
    timespec: u64,
}

/// `io_uring_enter(2)` and the entries that wait for it.
pub(super) struct Ring {
    ring: IoUring,
    /// Entries that found the submission queue full.
    backlog: VecDeque<squeue::Entry>,
    /// Index of the registered ring descriptor; `None` where the kernel does not offer that.
    index: Option<u32>,
    no_iowait: EnterFlags,
    pub(super) enters: u64,
}

impl Ring {
    pub(super) fn new() -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(COMPLETIONS)
            .dontfork()
            .build(SUBMISSIONS)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let no_iowait = if ring.params().is_feature_no_iowait() {
            EnterFlags::NO_IOWAIT
        } else {
            EnterFlags::empty()
        };
        let mut ring = Ring {
            ring,
            backlog: VecDeque::new(),
            index: None,
            no_iowait,
            enters: 0,
        };
        ring.index = ring.register_descriptor();
        Ok(ring)
    }

    /// Saves the kernel from looking the descriptor up on every call. The `io-uring` crate keeps
    /// the index only inside a borrow of the ring, hence by hand.
    fn register_descriptor(&self) -> Option<u32> {
        #[repr(C)]
        struct Update {
            offset: u32,
            reserved: u32,
            data: u64,
        }
        const IORING_REGISTER_RING_FDS: u32 = 20;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&self.ring);
        let mut update = Update {
            offset: u32::MAX,
            reserved: 0,
            data: fd as u64,
        };
        // SAFETY: `update` has the layout of struct io_uring_rsrc_update and lives through the
        // call; one entry is announced.
        let result = unsafe {
            let place = ptr::from_mut(&mut update);
            libc::syscall(
                libc::SYS_io_uring_register,
                fd,
                IORING_REGISTER_RING_FDS,
                place,
                1,
            )
        };
        (result == 1).then_some(update.offset)
    }

    /// Queues an entry for the next [`Ring::enter`].
    ///
    /// # Safety
    /// What the entry points to must stay valid until its completion has been reaped.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() {
            // SAFETY: promised by the caller.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // Full: hand over what is there. This fails only when the kernel wants completions to
            // be reaped first; then the backlog waits for the next turn.
            let _ = self.enter(0, Some(Duration::ZERO), false);
            // SAFETY: promised by the caller.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// Submits what is queued and waits for `want` completions, at most for `timeout`. `events`:
    /// lets the kernel run deferred work (and so post completions).
    pub(super) fn enter(
        &mut self,
        want: u32,
        timeout: Option<Duration>,
        events: bool,
    ) -> io::Result<()> {
        let mut flags = EnterFlags::empty();
        if events {
            flags |= EnterFlags::GETEVENTS | self.no_iowait;
        }
        loop {
            self.submit_backlog();
            let queued = self.ring.submission().len() as u32;
            let want = if self.backlog.is_empty() { want } else { 0 };
            match self.enter_once(queued, want, flags, timeout) {
                Ok(_) if self.backlog.is_empty() => return Ok(()),
                Ok(n) if n > 0 => {}
                Ok(_) => return Ok(()),
                Err(error) => {
                    return match error.raw_os_error() {
                        // Interrupted, timed out, or completions must be reaped first.
                        Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
                        _ => Err(error),
                    };
                }
            }
        }
    }

    fn submit_backlog(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: whoever pushed the entry promised that what it points to stays valid.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    fn enter_once(
        &mut self,
        queued: u32,
        want: u32,
        mut flags: EnterFlags,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        self.enters += 1;
        let mut spec = io_uring::types::Timespec::new();
        let mut arg = GetEventsArg {
            sigmask: 0,
            sigmask_size: 0,
            min_wait_usec: 0,
            timespec: 0,
        };
        let (mut place, mut size) = (ptr::null(), 0);
        if let (Some(timeout), true) = (timeout, want > 0) {
            spec = spec.sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
            arg.timespec = ptr::from_ref(&spec) as u64;
            place = ptr::from_ref(&arg);
            size = size_of::<GetEventsArg>();
            flags |= EnterFlags::EXT_ARG;
        }
        let fd = match self.index {
            Some(index) => {
                flags |= EnterFlags::REGISTERED_RING;
                libc::c_int::try_from(index).unwrap_or(-1)
            }
            None => std::os::fd::AsRawFd::as_raw_fd(&self.ring),
        };
        // SAFETY: with EXT_ARG, `arg` and `spec` are live and have the kernel's layout, without it
        // no memory is passed. The entries are covered by the promise of `push`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                fd,
                queued,
                want,
                flags.bits(),
                place,
                size,
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// Moves all completions out of the ring.
    pub(super) fn reap(&mut self, into: &mut Vec<Completion>) {
        into.extend(self.ring.completion().map(|entry| Completion {
            user_data: entry.user_data(),
            result: entry.result(),
            flags: entry.flags(),
        }));
    }
}

/// Buffers lent to the kernel, from which a receive takes one when there are bytes.
pub(super) struct BufferRing {
    entries: NonNull<BufRingEntry>,
    tail: u16,
    lent: Vec<Option<Lent>>,
    /// Positions of `lent` without a buffer.
    vacant: Vec<u16>,
    /// How many buffers are to be lent.
    target: usize,
    /// The most that were used between two replenishments since `target` was last looked at.
    used: usize,
    /// A receive has found none since the last replenishment.
    missed: bool,
    /// Replenishments with such a receive in front of them, without one in between.
    missed_in_a_row: u32,
    age: u32,
}

impl BufferRing {
    /// The group's number.
    pub(super) const GROUP: u16 = 1;
    /// Positions, a power of two. 16 MiB at most; reached only when so many receives complete in
    /// one turn.
    const SIZE: u16 = 256;
    /// Buffers lent at least (unless the pool is smaller).
    const LEAST: usize = 16;
    /// So many replenishments in a row must have come too late before more is lent.
    const PERSISTS: u32 = 4;
    /// Turns between two looks at whether fewer buffers would do.
    const REVIEW: u32 = 4096;

    fn layout() -> Layout {
        let size = usize::from(Self::SIZE) * size_of::<BufRingEntry>();
        // SIZE and the page size satisfy the conditions.
        Layout::from_size_align(size, 4096).unwrap_or(Layout::new::<[u8; 4096]>())
    }

    pub(super) fn register(ring: &Ring) -> io::Result<Self> {
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc_zeroed(Self::layout()) };
        let Some(entries) = NonNull::new(raw.cast::<BufRingEntry>()) else {
            handle_alloc_error(Self::layout())
        };
        let buffers = BufferRing {
            entries,
            tail: 0,
            lent: (0..Self::SIZE).map(|_| None).collect(),
            vacant: (0..Self::SIZE).collect(),
            target: Self::LEAST,
            used: 0,
            missed: false,
            missed_in_a_row: 0,
            age: 0,
        };
        // SAFETY: the memory is page-aligned, holds SIZE entries, and is freed only after the
        // ring has been closed (see the order of fields in UringEngine).
        unsafe {
            ring.ring.submitter().register_buf_ring_with_flags(
                entries.as_ptr() as u64,
                Self::SIZE,
                Self::GROUP,
                0,
            )?;
        }
        Ok(buffers)
    }

    /// Buffers the kernel has.
    pub(super) fn lent(&self) -> usize {
        self.lent.len() - self.vacant.len()
    }

    /// Lends buffers until there are as many as seem needed. The ones used last are lent first,
    /// and no more than needed: the kernel goes through them round and round, so each takes its
    /// share of the cache.
    pub(super) fn replenish(&mut self, pool: &BufferPool) {
        let have = self.lent();
        self.missed_in_a_row = match std::mem::take(&mut self.missed) {
            true => self.missed_in_a_row + 1,
            false => 0,
        };
        if self.missed_in_a_row >= Self::PERSISTS {
            self.target = (self.target + 1).min(usize::from(Self::SIZE));
            self.age = 0;
        }
        self.review(have);
        let target = self.target.min(pool.limit().max(1));
        if have >= target {
            return;
        }
        for _ in have..target {
            let Some(position) = self.vacant.pop() else {
                break;
            };
            let Some(lent) = pool.lend() else {
                self.vacant.push(position);
                break;
            };
            self.add(position, lent);
        }
        self.publish();
    }

    fn review(&mut self, have: usize) {
        self.used = self.used.max(self.target.saturating_sub(have));
        self.age += 1;
        if self.age >= Self::REVIEW {
            self.target = self.target.min((self.used * 2).max(Self::LEAST));
            self.age = 0;
            self.used = 0;
        }
    }

    /// A receive found no buffer although the pool has some. It asks again after the next
    /// replenishment; if that goes on, more is lent, one at a time. What is lent becomes resident, as
    /// the kernel goes through it in turn: with twice as many for each receive that found none, 64
    /// uploads by copy took 41 MiB where their own buffers take 4.
    pub(super) fn grow(&mut self) {
        self.missed = true;
    }

    fn add(&mut self, position: u16, lent: Lent) {
        let slot = usize::from(self.tail & (Self::SIZE - 1));
        // SAFETY: `slot` is below SIZE. The kernel reads the entry only after `publish`. The
        // fields are written one by one because the tail lies inside the first entry.
        let entry = unsafe { &mut *self.entries.as_ptr().add(slot) };
        entry.set_addr(lent.payload() as u64);
        entry.set_len(FIRST as u32);
        entry.set_bid(position);
        self.tail = self.tail.wrapping_add(1);
        self.lent[usize::from(position)] = Some(lent);
    }

    fn publish(&self) {
        // SAFETY: `entries` points to the first entry of the ring, which holds the tail; the
        // kernel reads it with acquire semantics.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }

    /// The buffer that a completion names.
    pub(super) fn taken(&mut self, flags: u32) -> Option<Lent> {
        let position = cqueue::buffer_select(flags)?;
        let lent = self.lent.get_mut(usize::from(position))?.take()?;
        self.vacant.push(position);
        Some(lent)
    }

    /// Gives all buffers back to the pool. Only when the kernel is done with the ring.
    pub(super) fn take_back(&mut self, pool: &BufferPool) {
        for lent in self.lent.iter_mut().filter_map(Option::take) {
            pool.take_back(lent);
        }
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: allocated in `register` with the same layout; the ring is closed.
        unsafe { dealloc(self.entries.as_ptr().cast(), Self::layout()) };
    }
}

/// Claims a lent buffer into which `n` bytes were received.
pub(super) fn claim(pool: &BufferPool, lent: Lent, n: i32) -> Result<Buf, Lent> {
    pool.claim(lent, usize::try_from(n).unwrap_or(0))
}
