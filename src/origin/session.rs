//! One client connection: what it is doing and what it holds.

use toron_reactor::{Buf, Fd, Time, TimerId, Token};

use super::endpoint::Endpoint;
use super::feed::{Feed, Progress};
use super::websocket;
use crate::http::{HeadScanner, RequestBody, Version};
use crate::server::body::{Framing, Source};

/// Where a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// No byte of a request has come.
    Idle,
    /// A head is being received.
    Head,
    /// The body of the request is being received (and sent back, if it is echoed).
    Body,
    /// The response is being sent, or held back.
    Responding,
    /// Frames are turned round.
    WebSocket,
    /// Everything is sent; what still comes is thrown away, so that no RST destroys it.
    Lingering {
        /// The end of patience.
        until: Time,
        /// Bytes that are still taken.
        left: usize,
    },
    /// Closed; the entry goes at the end of the handler.
    Gone,
}

/// The request under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) endpoint: Endpoint,
    pub(super) version: Version,
    pub(super) head_only: bool,
    /// The connection goes on after the response.
    pub(super) keep_alive: bool,
    /// How the body is framed.
    pub(super) framing: RequestBody,
    /// What is still to come of it.
    pub(super) body: Source,
    /// It has come whole.
    pub(super) complete: bool,
    /// The body goes back in this framing.
    pub(super) echo: Option<Framing>,
    /// Body bytes that have come.
    pub(super) received: u64,
    pub(super) crc: crc32fast::Hasher,
}

impl Default for Request {
    fn default() -> Self {
        Request {
            endpoint: Endpoint::Unknown,
            version: Version::Http11,
            head_only: false,
            keep_alive: false,
            framing: RequestBody::None,
            body: Source::None,
            complete: true,
            echo: None,
            received: 0,
            crc: crc32fast::Hasher::new(),
        }
    }
}

/// A client connection.
#[derive(Debug)]
pub(super) struct Session {
    /// Its own token.
    pub(super) token: Token,
    /// The socket.
    pub(super) fd: Fd,
    /// Its one deadline.
    pub(super) timer: TimerId,
    pub(super) phase: Phase,
    /// When the connection was accepted or the last response ended.
    pub(super) since: Time,
    /// Received and not consumed.
    pub(super) input: Option<Buf>,
    /// Received behind a body, in the same buffer.
    pub(super) spill: Vec<u8>,
    /// Finds the end of a head.
    pub(super) scanner: HeadScanner,
    /// A receive is in flight.
    pub(super) receiving: bool,
    /// A send is in flight.
    pub(super) sending: bool,
    /// A wait for the connection to break is in flight.
    pub(super) watches_hangup: bool,
    /// A wait for a buffer is in flight.
    pub(super) awaits_buffer: bool,
    /// An empty buffer at hand, until the handler ends.
    pub(super) spare: Option<Buf>,
    /// The request under way.
    pub(super) request: Request,
    /// What is to be sent first: a head, or a whole short answer.
    pub(super) head: Vec<u8>,
    /// What follows it.
    pub(super) feed: Feed,
    /// How the response goes on when everything in flight is sent.
    pub(super) progress: Progress,
    /// When it does.
    pub(super) wake: Option<Time>,
    pub(super) frames: websocket::Echo,
    /// Nothing follows what is being sent on a WebSocket.
    pub(super) frames_end: bool,
}

impl Session {
    /// A fresh connection.
    pub(super) fn new(token: Token, fd: Fd, timer: TimerId, now: Time) -> Self {
        Session {
            token,
            fd,
            timer,
            phase: Phase::Idle,
            since: now,
            input: None,
            spill: Vec::new(),
            scanner: HeadScanner::request(),
            receiving: false,
            sending: false,
            watches_hangup: false,
            awaits_buffer: false,
            spare: None,
            request: Request::default(),
            head: Vec::new(),
            feed: Feed::Done,
            progress: Progress::Done,
            wake: None,
            frames: websocket::Echo::default(),
            frames_end: false,
        }
    }

    /// Bytes have come that nobody has read.
    pub(super) fn has_leftover(&self) -> bool {
        self.input.is_some() || !self.spill.is_empty()
    }

    /// What it does has no end of its own, so that nobody should wait for it.
    pub(super) fn is_endless(&self) -> bool {
        match self.phase {
            Phase::Idle | Phase::WebSocket => true,
            Phase::Responding => {
                self.progress == Progress::Never
                    || matches!(self.feed, Feed::Events(events) if events.count.is_none())
            }
            Phase::Head | Phase::Body | Phase::Lingering { .. } | Phase::Gone => false,
        }
    }
}
