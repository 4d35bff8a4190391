//! The engine over the simulated network.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use super::in_flight::{Held, Kind, Lane, Operation};
use super::net::{Description, Net};
use super::pipes::{SimPipe, PAGE};
use super::socket::{EndId, Owner, Readiness, State, SEGMENT};
use crate::buffer::{Buf, BufferPool, CAPACITY};
use crate::engine::{Acknowledged, Close, Engine, Event, Fd, Key, Op, OpId, Shutdown, Stats, Wake};
use crate::pipe::Pipe;
use crate::planted::{self, Bug};
use crate::slab::Slab;
use crate::time::Time;

/// `F_GETPIPE_SZ` of a new pipe.
const PIPE_CAPACITY: usize = 64 * 1024;

/// An [`Engine`] over a simulated network; made by [`super::World::engine`]. Breaking a rule of
/// the seam (a descriptor used after close, two receives in flight, …) panics with an explanation.
#[derive(Debug)]
pub struct SimEngine {
    pub(super) net: Rc<RefCell<Net>>,
    pub(super) id: u32,
    now: Time,
    pub(super) pool: BufferPool,
    pub(super) operations: Slab<Operation>,
    /// What has happened and has not been reported, in order for each descriptor and direction.
    pub(super) held: BTreeMap<Lane, VecDeque<Held>>,
    pipes: BTreeMap<i32, SimPipe>,
    pooled_pipes: Vec<i32>,
    next_pipe: i32,
    waker: Arc<Flag>,
    turns: u64,
}

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(&self) {
        self.0.store(true, Ordering::Release);
    }
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

fn would_block() -> io::Error {
    error(libc::EAGAIN)
}

impl SimEngine {
    pub(super) fn new(net: Rc<RefCell<Net>>, buffers: usize) -> SimEngine {
        let (id, now) = {
            let mut net = net.borrow_mut();
            net.engines += 1;
            (net.engines, net.now)
        };
        SimEngine {
            net,
            id,
            now,
            pool: BufferPool::new(buffers),
            operations: Slab::new(),
            held: BTreeMap::new(),
            pipes: BTreeMap::new(),
            pooled_pipes: Vec::new(),
            next_pipe: 0,
            waker: Arc::new(Flag::default()),
            turns: 0,
        }
    }

    /// The time at which the next thing happens without anybody's doing; `None` if nothing will.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        let network = self.net.borrow().next_event();
        let operations = self.operations.iter().map(|(_, operation)| operation);
        let own = operations
            .filter(|o| !o.ended)
            .flat_map(|o| [Some(o.from), o.cancelled]);
        let held = self
            .held
            .values()
            .filter_map(|lane| lane.front())
            .map(|held| held.ready);
        let now = self.net.borrow().now;
        network
            .into_iter()
            .chain(own.flatten().filter(|t| *t > now))
            .chain(held)
            .min()
    }

    // ---- rules of the seam ----

    /// The endpoint of a socket that is open and this engine's.
    fn socket_end(&self, fd: Fd, what: &str) -> EndId {
        let net = self.net.borrow();
        let descriptor = net.descriptors.get(fd.0 as usize).and_then(Option::as_ref);
        let Some(descriptor) = descriptor else {
            panic!("{what}: descriptor {} is closed", fd.0)
        };
        assert!(
            descriptor.closing.is_none(),
            "{what}: descriptor {} is being closed",
            fd.0
        );
        assert!(
            descriptor.engine == Some(self.id),
            "{what}: descriptor {} is not this engine's",
            fd.0
        );
        match descriptor.what {
            Description::Socket(end) => end,
            Description::Listener(_) => panic!("{what}: descriptor {} is a listener", fd.0),
        }
    }

    fn listening(&self, fd: Fd, what: &str) -> SocketAddr {
        let net = self.net.borrow();
        let descriptor = net.descriptors.get(fd.0 as usize).and_then(Option::as_ref);
        match descriptor {
            Some(d) if d.closing.is_some() => panic!("{what}: listener {} is being closed", fd.0),
            Some(d) => match d.what {
                Description::Listener(addr) => addr,
                Description::Socket(_) => panic!("{what}: {} is not a listener", fd.0),
            },
            None => panic!("{what}: listener {} is closed", fd.0),
        }
    }

    fn in_flight(&self, fd: Fd, which: impl Fn(&Kind) -> bool) -> bool {
        self.operations
            .iter()
            .any(|(_, o)| o.fd == Some(fd) && which(&o.kind))
    }

    fn no_read_in_flight(&self, fd: Fd, what: &str) {
        assert!(
            !self.in_flight(fd, Kind::reads),
            "{what}: a receive is in flight on {} already",
            fd.0
        );
    }

    fn no_write_in_flight(&self, fd: Fd, what: &str) {
        assert!(
            !self.in_flight(fd, Kind::writes),
            "{what}: a send is in flight on {} already",
            fd.0
        );
    }

    /// Checks the rules for `op` and says where its events belong.
    fn admit(&self, op: &Op, sequence: u64) -> (Option<Fd>, Lane) {
        let fd = match op {
            Op::Accept { listener } => {
                self.listening(*listener, "accept");
                return (Some(*listener), Lane::Read(listener.0));
            }
            Op::Buffer => return (None, Lane::Buffer(sequence)),
            Op::Connect { fd, .. }
            | Op::Recv { fd, .. }
            | Op::RecvInto { fd, .. }
            | Op::Send { fd, .. }
            | Op::Readable { fd }
            | Op::Writable { fd }
            | Op::Hangup { fd }
            | Op::ReadHangup { fd } => *fd,
        };
        self.socket_end(fd, "submit");
        let lane = match op {
            Op::Recv { .. } => {
                self.no_read_in_flight(fd, "receive");
                Lane::Read(fd.0)
            }
            Op::RecvInto { buf, .. } => {
                self.no_read_in_flight(fd, "receive");
                assert!(buf.receivable() > 0, "receive into a buffer without room");
                Lane::Read(fd.0)
            }
            Op::Send { .. } | Op::Connect { .. } => {
                self.no_write_in_flight(fd, "send or connect");
                Lane::Write(fd.0)
            }
            Op::Writable { .. } => Lane::Write(fd.0),
            Op::Hangup { .. } | Op::ReadHangup { .. } => Lane::Hangup(fd.0),
            Op::Readable { .. } | Op::Accept { .. } | Op::Buffer => Lane::Read(fd.0),
        };
        (Some(fd), lane)
    }

    /// When this turn's waiting ends at the latest; `None` if nothing would ever end it.
    fn wait_until(&self, until: Option<Time>) -> Option<Time> {
        self.next_event().into_iter().chain(until).min()
    }
}

impl Engine for SimEngine {
    fn now(&self) -> Time {
        self.now
    }

    fn clock(&self) -> Time {
        self.now
    }

    fn submit(&mut self, key: Key, op: Op) -> OpId {
        let sequence = {
            let mut net = self.net.borrow_mut();
            net.operations += 1;
            net.operations
        };
        let (fd, lane) = self.admit(&op, sequence);
        let from = self.soon();
        if let (Op::Connect { addr, .. }, Some(fd)) = (&op, fd) {
            let end = self.socket_end(fd, "connect");
            let mut net = self.net.borrow_mut();
            if net.end(end).state == State::Fresh {
                net.connect(end, *addr);
            }
        }
        let kind = match op {
            Op::Accept { .. } => Kind::Accept,
            Op::Connect { .. } => Kind::Connect,
            Op::Recv { many, .. } => Kind::Recv { many },
            Op::RecvInto { buf, .. } => Kind::RecvInto(Some(buf)),
            Op::Send { buf, more, .. } => Kind::Send {
                buf: Some(buf),
                more,
                parked: false,
            },
            Op::Readable { .. } => Kind::Readable,
            Op::Writable { .. } => Kind::Writable,
            Op::Hangup { .. } => Kind::Hangup,
            Op::ReadHangup { .. } => Kind::ReadHangup,
            Op::Buffer => Kind::Buffer,
        };
        if let Some(fd) = fd {
            let mut net = self.net.borrow_mut();
            if let Some(Some(descriptor)) = net.descriptors.get_mut(fd.0 as usize) {
                descriptor.operations += 1;
            }
        }
        let operation = Operation {
            key,
            fd,
            lane,
            kind,
            sequence,
            from,
            cancelled: None,
            ended: false,
        };
        OpId::of(self.operations.insert(operation))
    }

    fn cancel(&mut self, op: OpId) {
        let at = self.soon();
        if let Some(operation) = self.operations.get_mut(op.token()) {
            operation.cancelled.get_or_insert(at);
        }
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.turns += 1;
        let before = events.len();
        self.net.borrow_mut().remote_changed = false;
        let idle = self.chance(|f| f.idle_turn);
        loop {
            self.net.borrow_mut().happen();
            self.perform_all();
            self.report(events);
            let woken = self.waker.0.swap(false, Ordering::Acquire);
            let net = self.net.borrow();
            if events.len() > before || woken || idle || net.remote_changed {
                break;
            }
            let Some(to) = self.wait_until(until) else {
                break;
            };
            if until.is_some_and(|until| until <= net.now) {
                break;
            }
            drop(net);
            self.net.borrow_mut().advance_to(to);
        }
        if self.chance(|f| f.pause) {
            let mut net = self.net.borrow_mut();
            let most = net.faults.pause_for.as_nanos() as u64;
            let to = net.now + Duration::from_nanos(net.random.below(most + 1));
            net.advance_to(to);
        }
        self.now = self.net.borrow().now;
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::<Flag>::clone(&self.waker)
    }

    fn buffers(&self) -> &BufferPool {
        &self.pool
    }

    fn socket(&mut self, addr: &SocketAddr) -> io::Result<Fd> {
        if self.chance(|f| f.socket_error) {
            return Err(error(libc::EMFILE));
        }
        let local = match addr {
            SocketAddr::V4(_) => SocketAddr::from(([127, 0, 0, 1], 0)),
            SocketAddr::V6(_) => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0)),
        };
        let mut net = self.net.borrow_mut();
        let end = net.socket(Owner::Process, local);
        match net.open(Description::Socket(end), Some(self.id)) {
            Ok(fd) => Ok(Fd(fd)),
            Err(errno) => {
                net.close(end, Close::Orderly);
                Err(error(errno))
            }
        }
    }

    fn adopt(&mut self, fd: Fd) -> io::Result<()> {
        let mut net = self.net.borrow_mut();
        match net
            .descriptors
            .get_mut(fd.0 as usize)
            .and_then(Option::as_mut)
        {
            Some(descriptor) if descriptor.engine.is_none() && descriptor.closing.is_none() => {
                descriptor.engine = Some(self.id);
                Ok(())
            }
            _ => Err(error(libc::EBADF)),
        }
    }

    fn release(&mut self, fd: Fd) {
        self.socket_end(fd, "release");
        assert!(
            !self.in_flight(fd, |_| true),
            "release: operations are in flight on {}",
            fd.0
        );
        let mut net = self.net.borrow_mut();
        if let Some(Some(descriptor)) = net.descriptors.get_mut(fd.0 as usize) {
            descriptor.engine = None;
        }
    }

    fn shutdown(&mut self, fd: Fd, how: Shutdown) {
        let end = self.socket_end(fd, "shutdown");
        self.net.borrow_mut().shutdown(end, how);
    }

    fn close(&mut self, fd: Fd, how: Close) {
        let listener = {
            let net = self.net.borrow();
            let descriptor = net.descriptors.get(fd.0 as usize).and_then(Option::as_ref);
            descriptor.is_some_and(|d| matches!(d.what, Description::Listener(_)))
        };
        if listener {
            self.listening(fd, "close");
        } else {
            self.socket_end(fd, "close");
        }
        let in_flight: Vec<OpId> = self
            .operations
            .iter()
            .filter(|(_, operation)| operation.fd == Some(fd))
            .map(|(token, _)| OpId::of(token))
            .collect();
        {
            let mut net = self.net.borrow_mut();
            if let Some(Some(descriptor)) = net.descriptors.get_mut(fd.0 as usize) {
                descriptor.closing = Some(how);
                if descriptor.operations == 0 {
                    net.close_descriptor(fd.0);
                }
            }
        }
        for op in in_flight {
            self.cancel(op);
        }
    }

    fn pipe(&mut self) -> io::Result<Pipe> {
        if self.chance(|f| f.pipe_error) {
            return Err(error(libc::EMFILE));
        }
        let number = match self.pooled_pipes.pop() {
            Some(number) => number,
            None => self.new_pipe()?,
        };
        let capacity = self.pipes.get(&number).map_or(0, |pipe| pipe.capacity);
        Ok(Pipe {
            read: Fd(number),
            write: Fd(number),
            held: 0,
            capacity,
        })
    }

    fn return_pipe(&mut self, pipe: Pipe) {
        let number = pipe.read.0;
        let held = self.sim_pipe(number).held();
        if held == 0 || planted::active(Bug::DirtyPipePooled) {
            assert!(
                !self.pooled_pipes.contains(&number),
                "pipe {number} is returned twice"
            );
            self.pooled_pipes.push(number);
        } else {
            self.pipes.remove(&number);
            self.net.borrow_mut().pipe_descriptors -= 2;
        }
    }

    fn splice_in(&mut self, from: Fd, pipe: &mut Pipe, max: usize) -> io::Result<usize> {
        let end = self.socket_end(from, "splice_in");
        self.no_read_in_flight(from, "splice_in");
        let fragment = self.fragment();
        let again = self.chance(|f| f.again);
        let net = Rc::clone(&self.net);
        let inside = self.sim_pipe(pipe.read.0);
        let most = max.min(inside.room(fragment));
        if most == 0 || again {
            return Err(would_block());
        }
        let read = net
            .borrow_mut()
            .receive(end, most, |bytes| inside.put(bytes, fragment));
        let n = self.transferred(from, read)?;
        pipe.held += n;
        Ok(n)
    }

    fn splice_out(&mut self, pipe: &mut Pipe, to: Fd, max: usize, more: bool) -> io::Result<usize> {
        let end = self.socket_end(to, "splice_out");
        self.no_write_in_flight(to, "splice_out");
        let again = self.chance(|f| f.again);
        let net = Rc::clone(&self.net);
        let space = net.borrow_mut().space(end).map_err(error);
        let space = match net.borrow_mut().descriptor(to.0) {
            Some(descriptor) => descriptor.failure.write(space)?,
            None => space?,
        };
        let inside = self.sim_pipe(pipe.read.0);
        let n = space.min(max).min(inside.held());
        if n == 0 || again {
            if inside.held() > 0 {
                net.borrow_mut().send_waits(to.0, end);
            }
            return Err(would_block());
        }
        net.borrow_mut().send_moved(to.0);
        net.borrow_mut().send(end, &inside.take(n), more);
        pipe.held = pipe.held.saturating_sub(n);
        Ok(n)
    }

    fn discard(&mut self, fd: Fd, max: usize) -> io::Result<usize> {
        let end = self.socket_end(fd, "discard");
        self.no_read_in_flight(fd, "discard");
        let read = self.net.borrow_mut().receive(end, max, |_| {});
        self.transferred(fd, read)
    }

    fn unread(&mut self, fd: Fd) -> io::Result<usize> {
        let end = self.socket_end(fd, "unread");
        Ok(self.net.borrow_mut().end(end).recv.len())
    }

    fn send_room(&mut self, fd: Fd) -> usize {
        let end = self.socket_end(fd, "send_room");
        self.net.borrow_mut().end(end).send_room()
    }

    fn peek(&mut self, fd: Fd, buf: &mut Buf) -> io::Result<usize> {
        let end = self.socket_end(fd, "peek");
        let read = self
            .net
            .borrow_mut()
            .peek_bytes(end, buf.receivable(), |bytes| {
                buf.extend(bytes);
            });
        self.transferred(fd, read)
    }

    fn is_idle(&mut self, fd: Fd) -> bool {
        let end = self.socket_end(fd, "is_idle");
        assert!(
            !self.in_flight(fd, |kind| !kind.polls() && !kind.reads()),
            "is_idle: {} is in use",
            fd.0
        );
        let mut net = self.net.borrow_mut();
        let end = net.end(end);
        end.state == State::Open && !end.readable()
    }

    fn acknowledged(&mut self, fd: Fd) -> Option<Acknowledged> {
        let end = self.socket_end(fd, "acknowledged");
        self.net.borrow_mut().acknowledged(fd.0, end)
    }

    fn is_pending(&self, op: OpId) -> bool {
        self.operations.contains(op.token())
    }

    fn local_addr(&self, fd: Fd) -> io::Result<SocketAddr> {
        let net = self.net.borrow();
        let descriptor = net.descriptors.get(fd.0 as usize).and_then(Option::as_ref);
        match descriptor.map(|d| &d.what) {
            Some(Description::Listener(addr)) => Ok(*addr),
            Some(Description::Socket(end)) => net
                .peek(*end)
                .map(|end| end.local)
                .ok_or_else(|| error(libc::EBADF)),
            None => Err(error(libc::EBADF)),
        }
    }

    fn refuse_one(&mut self, listener: Fd, answer: &[u8]) -> Option<SocketAddr> {
        let addr = self.listening(listener, "refuse_one");
        let mut net = self.net.borrow_mut();
        let end = net
            .listener(addr)
            .and_then(|listener| listener.queue.pop_front())?;
        let space = net.space(end).unwrap_or(0);
        net.send(end, &answer[..answer.len().min(space)], false);
        net.shutdown(end, Shutdown::Write);
        let unread = net.end(end).recv.len().min(CAPACITY);
        net.receive_exactly(end, unread, |_| {});
        let peer = net.peek(end).map(|end| end.remote);
        net.close(end, Close::Orderly);
        peer
    }

    fn stats(&self) -> Stats {
        let net = self.net.borrow();
        let mine = net
            .descriptors
            .iter()
            .flatten()
            .filter(|d| d.engine == Some(self.id));
        Stats {
            operations: self.operations.len(),
            sockets: mine
                .filter(|d| matches!(d.what, Description::Socket(_)))
                .count(),
            buffers: self.pool.in_use(),
            pipes: self.pipes.len() - self.pooled_pipes.len(),
            turns: self.turns,
            system_calls: 0,
        }
    }
}

impl SimEngine {
    fn sim_pipe(&mut self, number: i32) -> &mut SimPipe {
        match self.pipes.get_mut(&number) {
            Some(pipe) => pipe,
            None => panic!("pipe {number} is closed"),
        }
    }

    /// A direct read's result.
    fn transferred(&self, fd: Fd, read: Readiness) -> io::Result<usize> {
        let result = match read {
            Readiness::Bytes(n) => Ok(n),
            Readiness::Eof => Ok(0),
            Readiness::Failed(errno) => Err(error(errno)),
            Readiness::WouldBlock => Err(would_block()),
        };
        match self.net.borrow_mut().descriptor(fd.0) {
            Some(descriptor) => descriptor.failure.read(result),
            None => result,
        }
    }

    /// The size of the pieces in which the kernel happens to hold the bytes of a segment.
    fn fragment(&mut self) -> usize {
        let mut net = self.net.borrow_mut();
        let probability = net.faults.fragments;
        if net.random.chance(probability) {
            [128, SEGMENT, 8 * PAGE][net.random.below(3) as usize]
        } else {
            PAGE
        }
    }

    fn new_pipe(&mut self) -> io::Result<i32> {
        let tiny = self.chance(|f| f.pipe_tiny);
        let mut net = self.net.borrow_mut();
        if net.open_descriptors() + 2 > net.descriptor_limit {
            return Err(error(libc::EMFILE));
        }
        net.pipe_descriptors += 2;
        let capacity = if tiny {
            4096 << net.random.below(2)
        } else {
            // Some are raised, as the first of the kernel engines are.
            PIPE_CAPACITY << (2 * net.random.below(2))
        };
        self.next_pipe += 1;
        self.pipes.insert(self.next_pipe, SimPipe::new(capacity));
        Ok(self.next_pipe)
    }
}
