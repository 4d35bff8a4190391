//! One end of a simulated TCP connection: what a kernel keeps for a socket.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use crate::time::Time;

/// Names an endpoint; never used twice in a world.
pub(super) type EndId = u32;

/// Bytes of an Ethernet segment, below which corked bytes are not sent on their own.
pub(super) const SEGMENT: usize = 1448;

/// What travels.
#[derive(Debug)]
pub(super) enum Segment {
    Data(Vec<u8>),
    Fin,
    Rst,
}

/// Who holds the descriptor of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// A process with an engine.
    Process,
    /// The test script.
    Remote,
    /// In a listener's queue.
    Queued,
    /// Nobody: closed, the kernel finishes alone.
    Orphan,
}

/// The part of the TCP state that cannot be derived from the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Not connected yet.
    Fresh,
    /// SYN sent for the n-th time, answered or repeated at this time.
    Connecting {
        to: SocketAddr,
        attempt: u32,
        at: Time,
    },
    /// Connected, perhaps half-closed.
    Open,
    /// Reset, refused or timed out.
    Dead,
}

/// One end of a connection.
pub(super) struct Endpoint {
    pub state: State,
    pub owner: Owner,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub peer: Option<EndId>,
    /// Arrived and not read.
    pub recv: VecDeque<u8>,
    pub recv_capacity: usize,
    /// A FIN arrived, behind what is in `recv`.
    pub fin_received: bool,
    /// `SHUT_RD`.
    pub recv_shut: bool,
    /// Given by the process and not on the wire.
    pub send: VecDeque<u8>,
    pub send_capacity: usize,
    /// `SHUT_WR` or close: a FIN follows `send`.
    pub fin_queued: bool,
    pub fin_sent: bool,
    /// `MSG_MORE`: less than a segment waits until then.
    pub corked_until: Time,
    /// `sk_err`: reported once.
    pub error: Option<i32>,
    /// On the way to this endpoint, with the time of arrival (ascending).
    pub inbound: VecDeque<(Time, Segment)>,
    pub bytes_inbound: usize,
}

impl fmt::Debug for Endpoint {
    /// Without the bytes, which would fill the screen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} to {}: {:?}, {:?}, {} bytes to read, {} inbound, {} to send{}{}, error {:?}",
            self.local,
            self.remote,
            self.owner,
            self.state,
            self.recv.len(),
            self.bytes_inbound,
            self.send.len(),
            if self.fin_received {
                ", FIN received"
            } else {
                ""
            },
            if self.fin_sent { ", FIN sent" } else { "" },
            self.error
        )
    }
}

/// What a receive finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readiness {
    /// So many bytes can be read.
    Bytes(usize),
    Eof,
    Failed(i32),
    WouldBlock,
}

impl Endpoint {
    pub(super) fn new(state: State, owner: Owner, local: SocketAddr, remote: SocketAddr) -> Self {
        Endpoint {
            state,
            owner,
            local,
            remote,
            peer: None,
            recv: VecDeque::new(),
            recv_capacity: 0,
            fin_received: false,
            recv_shut: false,
            send: VecDeque::new(),
            send_capacity: 0,
            fin_queued: false,
            fin_sent: false,
            corked_until: Time(0),
            error: None,
            inbound: VecDeque::new(),
            bytes_inbound: 0,
        }
    }

    /// What `recv(2)` would say, in the order in which `tcp_recvmsg` asks. Takes the error.
    pub(super) fn take_readiness(&mut self) -> Readiness {
        if !self.recv.is_empty() {
            return Readiness::Bytes(self.recv.len());
        }
        if self.fin_received {
            return Readiness::Eof;
        }
        if let Some(errno) = self.error.take() {
            return Readiness::Failed(errno);
        }
        match self.state {
            _ if self.recv_shut => Readiness::Eof,
            State::Dead => Readiness::Eof,
            State::Fresh => Readiness::Failed(libc::ENOTCONN),
            State::Connecting { .. } | State::Open => Readiness::WouldBlock,
        }
    }

    /// Bytes `send(2)` would take now, or its error, in the order in which `tcp_sendmsg` asks.
    pub(super) fn take_space(&mut self) -> Result<usize, i32> {
        if let Some(errno) = self.error.take() {
            return Err(errno);
        }
        match self.state {
            State::Dead | State::Fresh => Err(libc::EPIPE),
            State::Connecting { .. } => Ok(0),
            State::Open if self.fin_queued => Err(libc::EPIPE),
            State::Open => Ok(self.send_room()),
        }
    }

    /// Free bytes of the send buffer (`SO_MEMINFO`).
    pub(super) fn send_room(&self) -> usize {
        match self.state {
            State::Open => self.send_capacity.saturating_sub(self.send.len()),
            State::Dead | State::Fresh | State::Connecting { .. } => 0,
        }
    }

    /// `POLLIN`.
    pub(super) fn readable(&self) -> bool {
        !self.recv.is_empty() || self.fin_received || self.recv_shut || self.broken()
    }

    /// `POLLOUT`: only when a third of the buffer is free (`sk_stream_is_writeable`).
    pub(super) fn writable(&self) -> bool {
        match self.state {
            State::Fresh | State::Dead => true,
            State::Connecting { .. } => self.error.is_some(),
            State::Open => {
                let free = self.send_room();
                self.error.is_some() || self.fin_queued || free * 3 >= self.send_capacity
            }
        }
    }

    /// `POLLHUP` or `POLLERR`.
    pub(super) fn hung_up(&self) -> bool {
        let both = self.fin_queued && (self.fin_received || self.recv_shut);
        both || self.broken()
    }

    /// `POLLRDHUP`, or what ends every poll.
    pub(super) fn read_hung_up(&self) -> bool {
        self.fin_received || self.recv_shut || self.broken()
    }

    fn broken(&self) -> bool {
        self.error.is_some() || matches!(self.state, State::Dead | State::Fresh)
    }

    /// Bytes the peer may have on the wire or in `recv`.
    pub(super) fn window(&self) -> usize {
        self.recv_capacity
            .saturating_sub(self.recv.len() + self.bytes_inbound)
    }

    /// The connection is gone for this side.
    pub(super) fn die(&mut self, errno: Option<i32>) {
        self.state = State::Dead;
        self.error = errno;
        self.send.clear();
    }
}
