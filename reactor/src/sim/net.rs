//! The simulated network: clock, endpoints, wires, listeners, descriptors.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::faults::Faults;
use super::random::Random;
use super::socket::{EndId, Endpoint, Owner, Readiness, Segment, State, SEGMENT};
use crate::broken::Broken;
use crate::engine::{Acknowledged, Close, Shutdown};
use crate::send_queue::SendQueue;
use crate::time::Time;

/// A SYN is repeated after 1, 2, 4, … s; the sixth repetition goes unanswered after 127 s
/// (`tcp_syn_retries` = 6).
const SYN_RETRIES: u32 = 6;
/// How long the kernel keeps a corked part of a segment back.
const CORK: Duration = Duration::from_millis(200);
/// The largest segment, as with segmentation offload.
const LARGEST: usize = 64 * 1024;

/// What a connect to an address meets before any listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The address answers as usual: by its listener, or with RST if there is none.
    Open,
    /// RST, whether somebody listens or not.
    Refused,
    /// SYNs are lost: the connect fails with `ETIMEDOUT` after 127 s.
    Silent,
    /// Answers that much later.
    Slow(Duration),
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    pub queue: VecDeque<EndId>,
    backlog: usize,
    /// Who takes the connections.
    pub owner: Owner,
}

/// What a descriptor refers to.
#[derive(Debug)]
pub(super) enum Description {
    Socket(EndId),
    Listener(SocketAddr),
}

/// An open descriptor.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub what: Description,
    /// The engine that owns it, if any does at present.
    pub engine: Option<u32>,
    /// Operations whose final event has not been returned.
    pub operations: usize,
    /// Set when it is to be closed as soon as `operations` is 0.
    pub closing: Option<Close>,
    /// How the connection broke, if somebody has been told.
    pub failure: Broken,
    /// What the peer takes while a send waits.
    pub send_queue: SendQueue,
}

/// Everything outside the engines.
#[derive(Debug)]
pub(super) struct Net {
    pub now: Time,
    pub random: Random,
    pub faults: Faults,
    ends: BTreeMap<EndId, Endpoint>,
    next_end: EndId,
    next_port: u16,
    listeners: BTreeMap<SocketAddr, Listener>,
    routes: BTreeMap<SocketAddr, Route>,
    /// When to look at which endpoint. Superfluous entries do no harm.
    agenda: BTreeSet<(Time, EndId)>,
    pub alarms: BTreeSet<Time>,
    pub descriptors: Vec<Option<Descriptor>>,
    /// Open descriptors of pipes, which have no number here.
    pub pipe_descriptors: usize,
    pub descriptor_limit: usize,
    /// Something happened that a script may want to react to.
    pub remote_changed: bool,
    pub engines: u32,
    /// Operations submitted so far.
    pub operations: u64,
}

impl Net {
    pub(super) fn new(seed: u64, faults: Faults) -> Net {
        Net {
            // Not 0, so that a time taken for "never" by mistake is noticed.
            now: Time(1_000_000_000_000),
            random: Random::new(seed),
            faults,
            ends: BTreeMap::new(),
            next_end: 0,
            next_port: 32_768,
            listeners: BTreeMap::new(),
            routes: BTreeMap::new(),
            agenda: BTreeSet::new(),
            alarms: BTreeSet::new(),
            descriptors: vec![None, None, None],
            pipe_descriptors: 0,
            descriptor_limit: 1 << 20,
            remote_changed: false,
            engines: 0,
            operations: 0,
        }
    }

    // ---- clock ----

    /// The next time at which something happens by itself.
    pub(super) fn next_event(&self) -> Option<Time> {
        let alarm = self.alarms.first().copied();
        let agenda = self.agenda.first().map(|(time, _)| *time);
        alarm.into_iter().chain(agenda).min()
    }

    /// Lets everything happen that happens up to `to`, in order.
    pub(super) fn advance_to(&mut self, to: Time) {
        loop {
            match self.next_event() {
                Some(time) if time <= to => {
                    self.now = self.now.max(time);
                    self.happen();
                }
                _ => break,
            }
        }
        self.now = self.now.max(to);
    }

    /// Works off what is due now.
    pub(super) fn happen(&mut self) {
        while self.alarms.first().is_some_and(|time| *time <= self.now) {
            self.alarms.pop_first();
            self.remote_changed = true;
        }
        while self
            .agenda
            .first()
            .is_some_and(|(time, _)| *time <= self.now)
        {
            let Some((_, id)) = self.agenda.pop_first() else {
                break;
            };
            self.visit(id);
        }
    }

    fn visit(&mut self, id: EndId) {
        if let Some(State::Connecting { to, attempt, at }) = self.ends.get(&id).map(|e| e.state) {
            if at <= self.now {
                self.answer_syn(id, to, attempt);
            }
        }
        while let Some(end) = self.ends.get_mut(&id) {
            match end.inbound.front() {
                Some((time, _)) if *time <= self.now => {}
                _ => break,
            }
            let Some((_, segment)) = end.inbound.pop_front() else {
                break;
            };
            self.deliver(id, segment);
        }
        self.transmit(id);
    }

    fn latency(&mut self) -> Duration {
        let (low, high) = self.faults.latency;
        let nanos = self
            .random
            .between(low.as_nanos() as u64, high.as_nanos() as u64);
        let mut latency = Duration::from_nanos(nanos);
        if self.random.chance(self.faults.stall) {
            let most = self.faults.stall_for.as_nanos() as u64;
            latency += Duration::from_nanos(self.random.below(most + 1));
        }
        latency
    }

    // ---- endpoints ----

    pub(super) fn end(&mut self, id: EndId) -> &mut Endpoint {
        match self.ends.get_mut(&id) {
            Some(end) => end,
            None => panic!("endpoint {id} has gone: a handle was used after close"),
        }
    }

    pub(super) fn peek(&self, id: EndId) -> Option<&Endpoint> {
        self.ends.get(&id)
    }

    fn add(&mut self, state: State, owner: Owner, local: SocketAddr, remote: SocketAddr) -> EndId {
        let mut end = Endpoint::new(state, owner, local, remote);
        let (low, high) = self.faults.send_buffer;
        end.send_capacity = self.random.between(low as u64, high as u64) as usize;
        let (low, high) = self.faults.receive_buffer;
        end.recv_capacity = self.random.between(low as u64, high as u64) as usize;
        self.next_end += 1;
        self.ends.insert(self.next_end, end);
        self.next_end
    }

    /// An unconnected socket. Port 0 is replaced by a free one.
    pub(super) fn socket(&mut self, owner: Owner, local: SocketAddr) -> EndId {
        let local = self.with_port(local);
        self.add(State::Fresh, owner, local, local)
    }

    fn with_port(&mut self, mut addr: SocketAddr) -> SocketAddr {
        if addr.port() == 0 {
            addr.set_port(self.next_port);
            self.next_port = self.next_port.checked_add(1).unwrap_or(32_768);
        }
        addr
    }

    /// Endpoints that still exist; 0 when every connection was closed on both sides.
    pub(super) fn endpoints(&self) -> usize {
        self.ends.len()
    }

    // ---- listening and connecting ----

    pub(super) fn listen(
        &mut self,
        addr: SocketAddr,
        backlog: usize,
        owner: Owner,
    ) -> Result<SocketAddr, i32> {
        let addr = self.with_port(addr);
        if self.listeners.contains_key(&addr) {
            return Err(libc::EADDRINUSE);
        }
        self.listeners.insert(
            addr,
            Listener {
                queue: VecDeque::new(),
                backlog,
                owner,
            },
        );
        Ok(addr)
    }

    pub(super) fn listener(&mut self, addr: SocketAddr) -> Option<&mut Listener> {
        self.listeners.get_mut(&addr)
    }

    /// Stops listening: connections that nobody accepted are reset.
    pub(super) fn unlisten(&mut self, addr: SocketAddr) {
        let queued = self.listeners.remove(&addr).map(|listener| listener.queue);
        for id in queued.into_iter().flatten() {
            self.close(id, Close::Reset);
        }
    }

    pub(super) fn set_route(&mut self, addr: SocketAddr, route: Route) {
        self.routes.insert(addr, route);
    }

    fn route(&self, addr: SocketAddr) -> Route {
        self.routes.get(&addr).copied().unwrap_or(Route::Open)
    }

    /// Sends the first SYN.
    pub(super) fn connect(&mut self, id: EndId, to: SocketAddr) {
        let errors = [
            libc::ECONNREFUSED,
            libc::EHOSTUNREACH,
            libc::ENETUNREACH,
            libc::EADDRNOTAVAIL,
        ];
        if self.random.chance(self.faults.connect_error) {
            let errno = errors[self.random.below(4) as usize];
            self.end(id).die(Some(errno));
            return;
        }
        let slow = match self.route(to) {
            Route::Slow(delay) => delay,
            Route::Open | Route::Refused | Route::Silent => Duration::ZERO,
        };
        let at = self.now + slow + self.latency() + self.latency();
        let end = self.end(id);
        end.remote = to;
        end.state = State::Connecting { to, attempt: 0, at };
        self.agenda.insert((at, id));
    }

    /// The SYN has reached its goal, or not.
    fn answer_syn(&mut self, id: EndId, to: SocketAddr, attempt: u32) {
        if attempt > SYN_RETRIES {
            return self.fail_connect(id, libc::ETIMEDOUT);
        }
        let route = self.route(to);
        let lost = self.random.chance(self.faults.syn_lost) || route == Route::Silent;
        let (full, owner) = match self.listeners.get(&to) {
            Some(listener) => (listener.queue.len() > listener.backlog, listener.owner),
            None => (false, Owner::Orphan),
        };
        if lost || (full && route != Route::Refused) {
            let at = self.now + Duration::from_secs(1 << attempt);
            self.end(id).state = State::Connecting {
                to,
                attempt: attempt + 1,
                at,
            };
            self.agenda.insert((at, id));
            return;
        }
        if owner == Owner::Orphan || route == Route::Refused {
            self.fail_connect(id, libc::ECONNREFUSED);
            return;
        }
        let from = self.end(id).local;
        let accepted = self.add(State::Open, Owner::Queued, to, from);
        self.end(accepted).peer = Some(id);
        self.remote_changed |= owner == Owner::Remote;
        if let Some(listener) = self.listeners.get_mut(&to) {
            listener.queue.push_back(accepted);
        }
        let end = self.end(id);
        end.state = State::Open;
        end.peer = Some(accepted);
        self.remote_changed |= self.end(id).owner == Owner::Remote;
    }

    fn fail_connect(&mut self, id: EndId, errno: i32) {
        let end = self.end(id);
        end.die(Some(errno));
        self.remote_changed |= self.end(id).owner == Owner::Remote;
    }

    // ---- the wire ----

    /// Puts on the wire what the peer's window takes, and the FIN behind it.
    pub(super) fn transmit(&mut self, id: EndId) {
        loop {
            let Some(end) = self.ends.get(&id) else {
                return;
            };
            let (State::Open, Some(peer)) = (end.state, end.peer) else {
                return;
            };
            if end.send.is_empty() {
                if end.fin_queued && !end.fin_sent {
                    self.end(id).fin_sent = true;
                    self.put_on_wire(peer, Segment::Fin);
                }
                return;
            }
            let window = self.ends.get(&peer).map_or(0, Endpoint::window);
            let mut most = window.min(end.send.len()).min(LARGEST);
            if end.corked_until > self.now && !end.fin_queued {
                most -= most % SEGMENT;
                self.agenda.insert((end.corked_until, id));
            }
            if most == 0 {
                return;
            }
            let n = self.random.shorten(most, self.faults.short_segment);
            let end = self.end(id);
            let bytes: Vec<u8> = end.send.drain(..n).collect();
            self.remote_changed |= self.end(id).owner == Owner::Remote;
            self.put_on_wire(peer, Segment::Data(bytes));
        }
    }

    /// Bytes that have not arrived at the other end; `None` for what is no connection.
    fn unacknowledged(&self, id: EndId) -> Option<u64> {
        let end = self.ends.get(&id)?;
        let peer = self.ends.get(&end.peer?);
        let inbound = peer.map_or(0, |peer| peer.bytes_inbound);
        Some((end.send.len() + inbound) as u64)
    }

    /// A send on a descriptor, or a wait for room, has found none.
    pub(super) fn send_waits(&mut self, number: i32, id: EndId) {
        let queued = self.unacknowledged(id);
        if let Some(descriptor) = self.descriptor(number) {
            descriptor.send_queue.waits(|| queued);
        }
    }

    /// A send on a descriptor was taken.
    pub(super) fn send_moved(&mut self, number: i32) {
        if let Some(descriptor) = self.descriptor(number) {
            descriptor.send_queue.moved();
        }
    }

    pub(super) fn acknowledged(&mut self, number: i32, id: EndId) -> Option<Acknowledged> {
        let queued = self.unacknowledged(id);
        let descriptor = self.descriptor(number)?;
        descriptor.send_queue.acknowledged(|| queued)
    }

    fn put_on_wire(&mut self, to: EndId, segment: Segment) {
        let mut at = self.now + self.latency();
        let Some(end) = self.ends.get_mut(&to) else {
            return;
        };
        if let Some((last, _)) = end.inbound.back() {
            at = at.max(*last);
        }
        if let Segment::Data(bytes) = &segment {
            end.bytes_inbound += bytes.len();
        }
        end.inbound.push_back((at, segment));
        self.agenda.insert((at, to));
    }

    fn deliver(&mut self, id: EndId, segment: Segment) {
        let reset = self.random.chance(self.faults.reset);
        let end = self.end(id);
        if let Segment::Data(bytes) = &segment {
            end.bytes_inbound -= bytes.len();
        }
        let remote = end.owner == Owner::Remote;
        match segment {
            Segment::Rst => self.be_reset(id),
            Segment::Data(_) | Segment::Fin if reset => {
                self.send_reset(id);
                self.be_reset_with(id, libc::ECONNRESET);
            }
            Segment::Fin => end.fin_received |= end.state == State::Open,
            Segment::Data(bytes) => {
                if end.state != State::Open || end.owner == Owner::Orphan {
                    self.send_reset(id);
                } else if end.recv_shut {
                    self.send_reset(id);
                    self.be_reset_with(id, libc::ECONNRESET);
                } else {
                    end.recv.extend(bytes);
                }
            }
        }
        self.remote_changed |= remote;
    }

    /// A RST arrived (`tcp_reset`): what was received stays readable.
    fn be_reset(&mut self, id: EndId) {
        let end = self.end(id);
        if end.state == State::Dead {
            return;
        }
        let errno = if end.fin_received {
            libc::EPIPE
        } else {
            libc::ECONNRESET
        };
        end.die(Some(errno));
    }

    fn be_reset_with(&mut self, id: EndId, errno: i32) {
        self.end(id).die(Some(errno));
    }

    /// Sends RST to the peer of `id`; `id` itself is dead after that.
    fn send_reset(&mut self, id: EndId) {
        let overtakes = self.random.chance(self.faults.reset_overtakes);
        let end = self.end(id);
        if end.state != State::Dead {
            end.die(None);
        }
        let Some(peer) = end.peer else { return };
        if overtakes {
            if let Some(peer) = self.ends.get_mut(&peer) {
                peer.inbound.clear();
                peer.bytes_inbound = 0;
            }
        }
        self.put_on_wire(peer, Segment::Rst);
    }

    // ---- what a process does with a socket ----

    /// Reads up to `max` bytes, perhaps fewer than there are; `read` gets them in order.
    pub(super) fn receive(&mut self, id: EndId, max: usize, read: impl FnMut(&[u8])) -> Readiness {
        let available = self.end(id).recv.len();
        let n = self.random.shorten(available.min(max), self.faults.short);
        self.receive_exactly(id, n, read)
    }

    /// The same, but leaves them unread.
    pub(super) fn peek_bytes(
        &mut self,
        id: EndId,
        max: usize,
        mut read: impl FnMut(&[u8]),
    ) -> Readiness {
        let end = self.end(id);
        let readiness = end.take_readiness();
        let Readiness::Bytes(n) = readiness else {
            return readiness;
        };
        let n = n.min(max);
        let (front, back) = end.recv.as_slices();
        read(&front[..n.min(front.len())]);
        read(&back[..n.saturating_sub(front.len())]);
        Readiness::Bytes(n)
    }

    /// Reads `n` bytes if there are any.
    pub(super) fn receive_exactly(
        &mut self,
        id: EndId,
        n: usize,
        mut read: impl FnMut(&[u8]),
    ) -> Readiness {
        let end = self.end(id);
        let readiness = end.take_readiness();
        if !matches!(readiness, Readiness::Bytes(_)) {
            return readiness;
        }
        let peer = end.peer;
        let (front, back) = end.recv.as_slices();
        read(&front[..n.min(front.len())]);
        read(&back[..n.saturating_sub(front.len())]);
        end.recv.drain(..n);
        if let Some(peer) = peer {
            self.transmit(peer);
        }
        Readiness::Bytes(n)
    }

    /// Bytes that a send would take now (0: would block).
    pub(super) fn space(&mut self, id: EndId) -> Result<usize, i32> {
        let short = self.faults.short;
        let space = self.end(id).take_space()?;
        Ok(self.random.shorten(space, short))
    }

    /// Takes bytes for sending; there must be space.
    pub(super) fn send(&mut self, id: EndId, bytes: &[u8], more: bool) {
        let corked_until = if more { self.now + CORK } else { Time(0) };
        let end = self.end(id);
        debug_assert!(end.send.len() + bytes.len() <= end.send_capacity);
        end.send.extend(bytes);
        end.corked_until = corked_until;
        self.transmit(id);
    }

    pub(super) fn shutdown(&mut self, id: EndId, how: Shutdown) {
        let end = self.end(id);
        match end.state {
            State::Fresh | State::Dead => return,
            State::Connecting { .. } => return end.die(Some(libc::ECONNRESET)),
            State::Open => {}
        }
        end.fin_queued = true;
        end.recv_shut |= how == Shutdown::Both;
        self.transmit(id);
    }

    /// `close(2)` of the last descriptor.
    pub(super) fn close(&mut self, id: EndId, how: Close) {
        let end = self.end(id);
        end.owner = Owner::Orphan;
        match end.state {
            State::Fresh | State::Dead => {}
            State::Connecting { .. } => end.die(None),
            State::Open if how == Close::Reset || !end.recv.is_empty() => self.send_reset(id),
            State::Open => {
                end.fin_queued = true;
                self.transmit(id);
            }
        }
        self.forget(id);
    }

    /// Frees both ends when nobody holds either.
    fn forget(&mut self, id: EndId) {
        let peer = self.ends.get(&id).and_then(|end| end.peer);
        match peer {
            Some(peer)
                if self
                    .ends
                    .get(&peer)
                    .is_some_and(|end| end.owner != Owner::Orphan) => {}
            Some(peer) => {
                self.ends.remove(&peer);
                self.ends.remove(&id);
            }
            None => {
                self.ends.remove(&id);
            }
        }
    }

    // ---- descriptors ----

    pub(super) fn open_descriptors(&self) -> usize {
        self.descriptors.iter().flatten().count() + self.pipe_descriptors
    }

    /// The lowest free number, as in Linux: numbers are used again at once.
    pub(super) fn open(&mut self, what: Description, engine: Option<u32>) -> Result<i32, i32> {
        if self.open_descriptors() >= self.descriptor_limit {
            return Err(libc::EMFILE);
        }
        let descriptor = Descriptor {
            what,
            engine,
            operations: 0,
            closing: None,
            failure: Broken::default(),
            send_queue: SendQueue::default(),
        };
        let number = match self.descriptors.iter().skip(3).position(Option::is_none) {
            Some(free) => free + 3,
            None => {
                self.descriptors.push(None);
                self.descriptors.len() - 1
            }
        };
        self.descriptors[number] = Some(descriptor);
        Ok(i32::try_from(number).unwrap_or(i32::MAX))
    }

    pub(super) fn descriptor(&mut self, number: i32) -> Option<&mut Descriptor> {
        self.descriptors.get_mut(number as usize)?.as_mut()
    }

    /// The end of a close that may have waited for operations.
    pub(super) fn close_descriptor(&mut self, number: i32) {
        let Some(descriptor) = self
            .descriptors
            .get_mut(number as usize)
            .and_then(Option::take)
        else {
            return;
        };
        match descriptor.what {
            Description::Socket(end) => {
                self.close(end, descriptor.closing.unwrap_or(Close::Orderly));
            }
            Description::Listener(addr) => self.unlisten(addr),
        }
    }

    /// Takes one connection from a listener's queue, as `accept4(2)`: without a descriptor it
    /// stays in the queue.
    pub(super) fn accept(
        &mut self,
        addr: SocketAddr,
        engine: u32,
    ) -> Result<Option<(i32, SocketAddr)>, i32> {
        let queue = self.listeners.get(&addr).map(|listener| &listener.queue);
        let Some(end) = queue.and_then(|queue| queue.front().copied()) else {
            return Ok(None);
        };
        let errors = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ECONNABORTED];
        if self.random.chance(self.faults.accept_error) {
            return Err(errors[self.random.below(4) as usize]);
        }
        let fd = self.open(Description::Socket(end), Some(engine))?;
        if let Some(listener) = self.listeners.get_mut(&addr) {
            listener.queue.pop_front();
        }
        let end = self.end(end);
        end.owner = Owner::Process;
        Ok(Some((fd, end.remote)))
    }
}
