//! The script's side of a simulation.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use super::engine::SimEngine;
use super::faults::Faults;
use super::net::{Description, Net, Route};
use super::random::Random;
use super::socket::{EndId, Owner, Readiness, State};
use crate::engine::{Close, Fd, Shutdown};
use crate::time::Time;

/// A simulated machine and its network. Cloning gives another handle to the same world.
#[derive(Clone, Debug)]
pub struct World {
    net: Rc<RefCell<Net>>,
}

impl World {
    /// A world in which everything follows from `seed`.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> World {
        World {
            net: Rc::new(RefCell::new(Net::new(seed, faults))),
        }
    }

    /// An engine with a pool of `buffers` buffers. Several engines of one world are several
    /// reactors of one process: they share the clock and the descriptors.
    #[must_use]
    pub fn engine(&self, buffers: usize) -> SimEngine {
        SimEngine::new(Rc::clone(&self.net), buffers)
    }

    /// A listening socket of the process. Port 0 takes a free one (see
    /// [`crate::Engine::local_addr`]).
    ///
    /// # Errors
    /// `EADDRINUSE`, `EMFILE`.
    pub fn listen(&self, addr: SocketAddr, backlog: usize) -> io::Result<Fd> {
        let mut net = self.net.borrow_mut();
        let addr = net
            .listen(addr, backlog, Owner::Process)
            .map_err(io::Error::from_raw_os_error)?;
        match net.open(Description::Listener(addr), None) {
            Ok(fd) => Ok(Fd(fd)),
            Err(errno) => {
                net.unlisten(addr);
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }

    /// A listening socket somewhere else, for the engine to connect to. Port 0 takes a free one.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub fn remote_listen(&self, addr: SocketAddr, backlog: usize) -> io::Result<RemoteListener> {
        let addr = self
            .net
            .borrow_mut()
            .listen(addr, backlog, Owner::Remote)
            .map_err(io::Error::from_raw_os_error)?;
        Ok(RemoteListener {
            net: Rc::clone(&self.net),
            addr,
        })
    }

    /// A peer that connects from `from` (port 0: a free one) to `to`.
    #[must_use]
    pub fn connect(&self, from: SocketAddr, to: SocketAddr) -> Remote {
        let mut net = self.net.borrow_mut();
        let end = net.socket(Owner::Remote, from);
        net.connect(end, to);
        Remote {
            net: Rc::clone(&self.net),
            end,
        }
    }

    /// What connects to `addr` meet from now on.
    pub fn set_route(&self, addr: SocketAddr, route: Route) {
        self.net.borrow_mut().set_route(addr, route);
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.net.borrow_mut().faults = faults;
    }

    /// What goes wrong at present.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.net.borrow().faults.clone()
    }

    /// At most so many descriptors may be open in the process (`RLIMIT_NOFILE`), listeners and
    /// both ends of pipes included.
    pub fn set_descriptor_limit(&self, limit: usize) {
        self.net.borrow_mut().descriptor_limit = limit;
    }

    /// Descriptors open in the process.
    #[must_use]
    pub fn open_descriptors(&self) -> usize {
        self.net.borrow().open_descriptors()
    }

    /// Ends of connections that somebody still holds, or whose other end somebody holds.
    #[must_use]
    pub fn endpoints(&self) -> usize {
        self.net.borrow().endpoints()
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.net.borrow().now
    }

    /// Lets time pass while the process does nothing.
    pub fn advance(&self, by: Duration) {
        let mut net = self.net.borrow_mut();
        let to = net.now + by;
        net.advance_to(to);
    }

    /// Makes a turn that waits return at `at`, so that the script can act then.
    pub fn alarm(&self, at: Time) {
        self.net.borrow_mut().alarms.insert(at);
    }

    /// When the next thing happens in the network by itself; `None` if nothing does.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        self.net.borrow().next_event()
    }

    /// A source of chance for the script, different for each call and given by the seed.
    #[must_use]
    pub fn random(&self) -> Random {
        Random::new(self.net.borrow_mut().random.number())
    }
}

/// A listening socket of the script.
#[derive(Debug)]
pub struct RemoteListener {
    net: Rc<RefCell<Net>>,
    addr: SocketAddr,
}

impl RemoteListener {
    /// The address, with its port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A connection that waits, if one does.
    #[must_use]
    pub fn accept(&self) -> Option<Remote> {
        let mut net = self.net.borrow_mut();
        let queue: &mut VecDeque<EndId> = &mut net.listener(self.addr)?.queue;
        let end = queue.pop_front()?;
        net.end(end).owner = Owner::Remote;
        Some(Remote {
            net: Rc::clone(&self.net),
            end,
        })
    }
}

impl Drop for RemoteListener {
    /// Stops listening; connections that were not accepted are reset.
    fn drop(&mut self) {
        self.net.borrow_mut().unlisten(self.addr);
    }
}

/// An end of a connection that the script plays. Dropping it closes it.
pub struct Remote {
    net: Rc<RefCell<Net>>,
    end: EndId,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({:?})", self.net.borrow().peek(self.end))
    }
}

impl Remote {
    fn with<T>(&self, f: impl FnOnce(&mut super::socket::Endpoint) -> T) -> T {
        f(self.net.borrow_mut().end(self.end))
    }

    /// This end's address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.with(|end| end.local)
    }

    /// The other end's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.with(|end| end.remote)
    }

    /// The connect has not been answered yet.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        self.with(|end| matches!(end.state, State::Connecting { .. }))
    }

    /// The connection stands (it may be half-closed).
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.with(|end| end.state == State::Open)
    }

    /// The connection was refused, timed out or reset. What arrived before can still be read.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.with(|end| end.state == State::Dead)
    }

    /// Why the connection is broken, as `errno`.
    #[must_use]
    pub fn error(&self) -> Option<i32> {
        self.with(|end| end.error)
    }

    /// Sends a prefix of `bytes` and returns its length: 0 while the send buffer is full or the
    /// connection does not stand, and after [`Remote::shutdown_write`].
    pub fn send(&self, bytes: &[u8]) -> usize {
        let mut net = self.net.borrow_mut();
        let end = net.end(self.end);
        if end.state != State::Open || end.fin_queued {
            return 0;
        }
        let space = end.send_capacity.saturating_sub(end.send.len());
        let n = space.min(bytes.len());
        net.send(self.end, &bytes[..n], false);
        n
    }

    /// Bytes given to [`Remote::send`] that are not on the wire yet.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.with(|end| end.send.len())
    }

    /// Bytes that arrived and were not read.
    #[must_use]
    pub fn available(&self) -> usize {
        self.with(|end| end.recv.len())
    }

    /// Reads up to `max` bytes of what has arrived.
    pub fn recv(&self, max: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut net = self.net.borrow_mut();
        let n = net.end(self.end).recv.len().min(max);
        if n > 0 {
            let read = net.receive_exactly(self.end, n, |bytes| out.extend(bytes));
            debug_assert_eq!(read, Readiness::Bytes(n));
        }
        out
    }

    /// A FIN has arrived, and everything before it has been read.
    #[must_use]
    pub fn at_end(&self) -> bool {
        self.with(|end| end.fin_received && end.recv.is_empty())
    }

    /// Sets how many bytes may arrive without being read. What has arrived stays.
    pub fn set_receive_capacity(&self, bytes: usize) {
        self.with(|end| end.recv_capacity = bytes);
    }

    /// Sends FIN behind what was sent.
    pub fn shutdown_write(&self) {
        self.net.borrow_mut().shutdown(self.end, Shutdown::Write);
    }

    /// Closes with RST.
    pub fn reset(self) {
        self.net.borrow_mut().close(self.end, Close::Reset);
        self.forget();
    }

    /// Closes as `close(2)`: FIN behind what was sent, or RST if there are unread bytes.
    pub fn close(self) {}

    fn forget(mut self) {
        self.end = 0;
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.end != 0 {
            self.net.borrow_mut().close(self.end, Close::Orderly);
        }
    }
}
