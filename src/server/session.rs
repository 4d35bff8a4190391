//! One client connection: what it is doing and what it holds.

use std::net::IpAddr;
use std::time::Duration;

use thin_vec::ThinVec;
use toron_reactor::{Buf, Fd, OpId, Time, TimerId, Token};

use super::admin::visit::Visit;
use super::metrics::cursor::Cursor;
use super::state::Exchange;
use crate::http::HeadScanner;
use crate::policy::bulkhead::Permit;
use crate::policy::firewall::{Client, Permit as Account, Told};
use crate::proxy::transaction::ClientEnd;
use crate::proxy::writing::Writing;

/// Up to so many bytes behind a request are copied to give their buffer back.
const SHELVED_MOST: usize = 4096;

/// Where a client connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No byte since the last response, or ever.
    Idle,
    /// A head is being received.
    Head,
    /// A transaction is under way.
    Exchange,
    /// The body of a request to the admin API is being received.
    Taking,
    /// A request to the admin API waits for its answer.
    Asking,
    /// An answer of toron's own, outside a transaction, is being sent.
    Answering {
        /// How the connection goes on afterwards.
        then: ClientEnd,
    },
    /// The response is sent; what is still to come of its request is thrown away (I11).
    Skipping {
        /// Bytes still to come of it.
        owed: u64,
        /// The connection is not kept for them any longer.
        until: Time,
    },
    /// The common ending of refusals (I9): everything is sent, what comes is thrown away.
    Lingering {
        /// When it began.
        started: Time,
        /// When the last bytes came.
        last: Time,
        /// Bytes thrown away.
        discarded: u64,
    },
    /// Closed; the entry goes at the end of the handler.
    Gone,
}

/// What a run of bytes to the client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// A 100 of toron's own.
    Continue,
    /// An interim response of the upstream.
    Interim,
    /// A part of the response.
    Response,
    /// An answer of toron's own.
    Answer,
    /// Tunnel bytes.
    Tunnel,
}

/// Bytes on their way to the client, in order.
#[derive(Debug, Default)]
pub struct Output {
    /// What the send in flight carries.
    pub in_flight: Option<Tag>,
    /// What follows. An interim response may be in flight when the response or an answer comes;
    /// nothing else can overlap, so two places are enough.
    queue: [Option<(Buf, Tag)>; 2],
}

impl Output {
    /// Adds to the end of the queue.
    pub fn push(&mut self, buf: Buf, tag: Tag) {
        debug_assert!(
            self.queue.iter().any(Option::is_none),
            "client output overflows"
        );
        if let Some(place) = self.queue.iter_mut().find(|place| place.is_none()) {
            *place = Some((buf, tag));
        }
    }

    /// Takes the first of the queue.
    pub fn pop(&mut self) -> Option<(Buf, Tag)> {
        let first = self.queue[0].take();
        self.queue.swap(0, 1);
        first
    }

    /// Whether anything is in flight or queued.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.in_flight.is_some() || self.queue.iter().any(Option::is_some)
    }
}

/// A client connection. Most of them are idle most of the time, and each costs what stands here: what
/// few need is boxed.
#[derive(Debug)]
pub struct Session {
    /// Its own token.
    pub token: Token,
    /// The socket.
    pub fd: Fd,
    /// The other end, or whom its PROXY protocol header names.
    pub peer: IpAddr,
    /// Who sent the present request: the other end, or whom a trusted proxy names (F4).
    pub client: Client,
    /// A PROXY protocol header has to come before anything else.
    pub awaits_proxy_header: bool,
    /// Counts the connection for the firewall; none for one that is refused.
    pub account: Option<Account>,
    /// The connection is refused, and told why.
    pub told: Option<Told>,
    /// It came on the admin API's own listener.
    pub is_admin: bool,
    /// The firewall has no say: an operator inside `admin.subnets`, on that listener.
    pub is_exempt: bool,
    /// The present request has passed the firewall.
    pub admitted: bool,
    /// Its one deadline.
    pub timer: TimerId,
    /// What it is doing.
    pub phase: Phase,
    /// When the phase began: accepted, last response sent, first byte of the head received.
    pub since: Time,
    /// Requests that have come before.
    pub served: u32,
    /// The client has finished sending.
    pub eof: bool,
    /// Received and not consumed: the current request's head, then what follows it.
    pub input: Option<Buf>,
    /// The beginning of a head that is not whole yet.
    pub partial: ThinVec<u8>,
    /// How many bytes of `input` belong to the current request.
    pub request_len: usize,
    /// Received while the current request was under way.
    pub ahead: Option<Buf>,
    /// Received behind a body, in the same buffer (see `upload.rs`), or a few bytes behind a
    /// request.
    pub spill: ThinVec<u8>,
    /// Finds the end of the head.
    pub scanner: HeadScanner,
    /// The receive in flight.
    pub recv: Option<OpId>,
    /// A wait for the socket to be readable is in flight.
    pub polls_readable: bool,
    /// A wait for the socket to be writable is in flight.
    pub polls_writable: bool,
    /// A wait for the connection to break is in flight.
    pub watches_hangup: bool,
    /// A wait for the end of what the client sends is in flight.
    pub watches_fin: bool,
    /// A wait for a buffer is in flight.
    pub awaits_buffer: bool,
    /// A buffer that was waited for.
    pub spare: Option<Buf>,
    /// What answers of toron's own take, once there was one.
    pub own: Option<Box<Own>>,
    /// Bytes on their way to the client.
    pub output: Output,
    /// The request under way.
    pub exchange: Option<Box<Exchange>>,
}

/// What a connection has for answers of toron's own, and for requests to the admin API.
#[derive(Debug, Default)]
pub struct Own {
    /// A text that waits for a buffer.
    pub unsent: Option<Unsent>,
    /// How long the client may take for an answer outside a transaction (I29).
    pub writing: Option<Writing>,
    /// The slot of the route whose fixed answer is being sent.
    pub permit: Option<Permit>,
    /// What is still to be told of the metrics that the client has asked for.
    pub exposition: Option<Box<Cursor>>,
    /// The request to the admin API under way.
    pub visit: Option<Box<Visit>>,
}

/// What is left of a text on its way to the client.
#[derive(Debug)]
pub struct Unsent {
    /// The text.
    pub text: Vec<u8>,
    /// How much of it has been put into buffers.
    pub at: usize,
    /// What it is.
    pub tag: Tag,
}

impl Unsent {
    /// What no buffer holds yet.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }
}

impl Session {
    /// A fresh connection.
    #[must_use]
    pub fn new(token: Token, fd: Fd, peer: IpAddr, timer: TimerId, now: Time) -> Self {
        Session {
            token,
            fd,
            peer,
            client: Client {
                address: peer,
                is_proxy: false,
            },
            awaits_proxy_header: false,
            account: None,
            told: None,
            is_admin: false,
            is_exempt: false,
            admitted: false,
            timer,
            phase: Phase::Idle,
            since: now,
            served: 0,
            eof: false,
            input: None,
            partial: ThinVec::new(),
            request_len: 0,
            ahead: None,
            spill: ThinVec::new(),
            scanner: HeadScanner::request(),
            recv: None,
            polls_readable: false,
            polls_writable: false,
            watches_hangup: false,
            watches_fin: false,
            awaits_buffer: false,
            spare: None,
            own: None,
            output: Output::default(),
            exchange: None,
        }
    }

    /// Keeps a text until what is in flight has been taken, or there is a buffer for it.
    pub fn keep_unsent(&mut self, text: Vec<u8>, tag: Tag) {
        self.keep_rest(text, 0, tag);
    }

    /// The same for what is behind the first `at` bytes.
    pub fn keep_rest(&mut self, text: Vec<u8>, at: usize, tag: Tag) {
        if at < text.len() {
            self.own().unsent = Some(Unsent { text, at, tag });
        } else if let Some(own) = self.own.as_mut() {
            own.unsent = None;
        }
    }

    /// What waits for a buffer.
    #[must_use]
    pub fn unsent(&self) -> Option<&Unsent> {
        self.own.as_ref()?.unsent.as_ref()
    }

    /// Takes what waits for a buffer.
    pub fn take_unsent(&mut self) -> Option<Unsent> {
        self.own.as_mut()?.unsent.take()
    }

    /// The window of the answer outside a transaction that is being sent.
    #[must_use]
    pub fn writing(&self) -> Option<&Writing> {
        self.own.as_ref()?.writing.as_ref()
    }

    /// The same, to be changed.
    pub fn writing_mut(&mut self) -> Option<&mut Writing> {
        self.own.as_mut()?.writing.as_mut()
    }

    /// The request to the admin API under way.
    #[must_use]
    pub fn visit(&self) -> Option<&Visit> {
        self.own.as_ref()?.visit.as_deref()
    }

    /// The same, to be changed.
    pub fn visit_mut(&mut self) -> Option<&mut Visit> {
        self.own.as_mut()?.visit.as_deref_mut()
    }

    /// Ends the request to the admin API.
    pub fn take_visit(&mut self) -> Option<Box<Visit>> {
        self.own.as_mut()?.visit.take()
    }

    /// Gives the slot of a fixed answer back.
    pub fn release_permit(&mut self) {
        if let Some(own) = self.own.as_mut() {
            own.permit = None;
        }
    }

    /// Room for an answer of toron's own.
    pub fn own(&mut self) -> &mut Own {
        self.own.get_or_insert_default()
    }

    /// An answer outside a transaction begins, for which the client has a window of `limit` to take
    /// some of it.
    pub fn begin_answer(&mut self, then: ClientEnd, limit: Duration, now: Time) {
        let mut writing = Writing::new(limit);
        writing.run(now);
        self.own().writing = Some(writing);
        self.phase = Phase::Answering { then };
    }

    /// Puts a few bytes that belong to the next request aside, so that they hold no buffer for as
    /// long as the present one lasts. All of that must have come, and be consumed.
    pub fn shelve_leftover(&mut self) {
        let (place, other) = match self.input {
            Some(_) => (&mut self.input, self.ahead.is_some()),
            None => (&mut self.ahead, false),
        };
        let Some(buf) = place.as_deref() else {
            return;
        };
        if buf.is_empty() {
            *place = None;
        } else if !other && self.spill.is_empty() && buf.len() <= SHELVED_MOST {
            self.spill.extend_from_slice(buf);
            *place = None;
        }
    }

    /// Bytes have come that belong to no request yet.
    #[must_use]
    pub fn has_leftover(&self) -> bool {
        self.input
            .as_ref()
            .is_some_and(|input| input.len() > self.request_len)
            || self.ahead.is_some()
            || !self.spill.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/performance.md says what an idle connection takes. Whoever adds a field here adds it to
    /// each of a million connections: what few need goes into a box.
    #[test]
    fn a_connection_stays_small() {
        assert!(size_of::<Session>() <= 304);
    }
}
