//! What the suite needs around an engine: peers, and ways to make things happen.

use std::net::SocketAddr;

use toron_reactor::{Engine, Fd};

/// A place where an engine can be tested.
pub trait Lab {
    type Engine: Engine;
    type Peer: Peer;
    type Door: Door<Peer = Self::Peer>;

    /// So many connections the engine tells of in one turn at most.
    const TOLD_AT_ONCE_MOST: usize;

    /// A new engine with so many buffers.
    fn engine(&self, buffers: usize) -> Self::Engine;
    /// More bytes than the buffers of a connection hold.
    fn more_than_fits(&self) -> usize;
    /// A listening socket for `Op::Accept`, and its address.
    fn listen(&self) -> (Fd, SocketAddr);
    /// A peer that connects (or tries to) to `to`.
    fn dial(&self, to: SocketAddr) -> Self::Peer;
    /// A listener of the other side.
    fn door(&self) -> Self::Door;
    /// An address at which nobody listens.
    fn refusing(&self) -> SocketAddr;
    /// An address that does not answer, while the guard lives.
    fn silent(&self) -> (SocketAddr, Box<dyn std::any::Any>);
}

/// A listener of the other side.
pub trait Door {
    type Peer: Peer;
    fn addr(&self) -> SocketAddr;
    fn accept(&self) -> Option<Self::Peer>;
}

/// The other end of a connection. Nothing here waits.
pub trait Peer {
    fn local_addr(&self) -> SocketAddr;
    /// Sends a prefix of `bytes` and tells how much.
    fn send(&self, bytes: &[u8]) -> usize;
    /// Reads up to `max` bytes of what is there.
    fn recv(&self, max: usize) -> Vec<u8>;
    /// End of stream, everything before it having been read.
    fn at_end(&self) -> bool;
    /// The connection was reset.
    fn is_reset(&self) -> bool;
    fn shutdown_write(&self);
    fn reset(self);
    fn close(self);
}
