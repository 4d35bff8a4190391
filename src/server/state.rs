//! What a request under way holds, and what each of its two directions does.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use toron_reactor::{Buf, Engine, Pipe, Time, Token};

use super::body::{Framing, Source};
use super::collected::Collected;
use super::describe::Description;
use super::Pinned;
use crate::http::{HeadScanner, Reason, RequestFacts};
use crate::policy::bulkhead::Permit;
use crate::policy::pool::{Lease, Tried};
use crate::policy::settings::{Route, Target};
use crate::proxy::transaction::Transaction;

/// What a request under way holds. Used again for the next one.
#[derive(Debug)]
pub struct Exchange {
    /// The state machine.
    pub transaction: Transaction,
    /// The configuration that the request began with.
    pub snapshot: Rc<Pinned>,
    /// Its route in the snapshot.
    pub route: usize,
    /// Its slot of the route, until the request has ended or toron answers in the upstream's place.
    pub permit: Option<Permit>,
    /// What the request asked for.
    pub facts: RequestFacts,
    /// When the head had come.
    pub started: Time,
    /// Length of the head in the session's `input`, or in `kept`.
    pub head_len: usize,
    /// The request as it came, once it has been sent but may have to be sent again: requests that
    /// wait for a response hold no buffer.
    pub kept: Vec<u8>,
    /// The id sent to the upstream.
    pub request_id: [u8; 32],
    /// Index of the target tried last.
    pub target: usize,
    /// Its place at that target, from the choice until the request has ended or toron answers in
    /// the upstream's place.
    pub lease: Option<Lease>,
    /// Targets tried before.
    pub tried: Tried,
    /// How many of the target's addresses were dialled.
    pub dials: usize,
    /// Which of them was the first, to be taken modulo their number.
    pub first_address: usize,
    /// The address of the upstream connection in use, or of the last.
    pub address: Option<SocketAddr>,
    /// The upstream connection.
    pub upstream: Option<Token>,
    /// The request head for the upstream, and the body bytes that came with it, until sent.
    pub request: Option<Buf>,
    /// The body, where it is collected.
    pub collected: Option<Collected>,
    /// The client has finished sending, and all of the request stands in front of its FIN.
    pub fin_is_harmless: bool,
    /// A send to the upstream is in flight.
    pub upstream_busy: bool,
    /// Some byte was written to the present upstream connection.
    pub upstream_touched: bool,
    /// An interim response has come on the present upstream connection.
    pub interim_seen: bool,
    /// A response head that is not whole yet.
    pub response: Option<Buf>,
    /// Finds its end.
    pub scanner: HeadScanner,
    /// The direction to the upstream.
    pub upload: Upload,
    /// The direction to the client.
    pub download: Download,
    /// Status sent to the client; 0 before.
    pub status: u16,
    /// Body bytes received from the client.
    pub bytes_in: u64,
    /// Bytes sent to the client.
    pub bytes_out: u64,
    /// Host that the client asked for, where redirects are rewritten.
    pub host: Vec<u8>,
    /// Protocols that it asked to change to, as a list (RFC 9110 section 7.8).
    pub protocols: Vec<u8>,
    /// What it asked for, for logs.
    pub asked: Description,
    /// When it got where.
    pub moments: Moments,
    /// How much of a limit on its body was used, where that is what it is refused for.
    pub observed: u64,
    /// Why it does not end well, once that is known.
    pub cause: Option<Reason>,
}

/// When a request got where.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    /// How long its head took.
    pub header: Duration,
    /// The first attempt to reach an upstream began.
    pub dialled: Option<Time>,
    /// The present one began.
    pub connecting: Option<Time>,
    /// It stood.
    pub connected: Option<Time>,
    /// The response head came.
    pub answered: Option<Time>,
}

impl Exchange {
    /// For a request whose head has come at `started`.
    pub(super) fn begun(
        transaction: Transaction,
        snapshot: &Rc<Pinned>,
        facts: RequestFacts,
        started: Time,
    ) -> Box<Exchange> {
        Box::new(Exchange {
            transaction,
            snapshot: Rc::clone(snapshot),
            route: 0,
            permit: None,
            facts,
            started,
            head_len: 0,
            kept: Vec::new(),
            request_id: [0; 32],
            target: 0,
            lease: None,
            tried: Tried::none(),
            dials: 0,
            first_address: 0,
            address: None,
            upstream: None,
            request: None,
            collected: None,
            fin_is_harmless: false,
            upstream_busy: false,
            upstream_touched: false,
            interim_seen: false,
            response: None,
            scanner: HeadScanner::response(),
            upload: Upload::default(),
            download: Download::default(),
            status: 0,
            bytes_in: 0,
            bytes_out: 0,
            host: Vec::new(),
            protocols: Vec::new(),
            asked: Description::default(),
            moments: Moments::default(),
            observed: 0,
            cause: None,
        })
    }

    /// For the next request, after the one before has given back what it held. What is written at
    /// every beginning is left to that, and memory is kept.
    pub(super) fn begin_again(
        &mut self,
        transaction: Transaction,
        snapshot: &Rc<Pinned>,
        facts: RequestFacts,
        started: Time,
    ) {
        self.transaction = transaction;
        self.snapshot = Rc::clone(snapshot);
        self.facts = facts;
        self.started = started;
        self.kept.clear();
        self.lease = None;
        self.tried = Tried::none();
        self.dials = 0;
        self.address = None;
        self.fin_is_harmless = false;
        self.upstream_busy = false;
        self.upstream_touched = false;
        self.interim_seen = false;
        self.status = 0;
        self.bytes_in = 0;
        self.bytes_out = 0;
        self.observed = 0;
        self.cause = None;
    }

    /// The route that took the request.
    #[must_use]
    pub fn route(&self) -> Option<&Arc<Route>> {
        self.snapshot.table.routes().get(self.route)
    }

    /// The target tried last.
    #[must_use]
    pub fn tried_target(&self) -> Option<&Arc<Target>> {
        self.route()?.targets().get(self.target)
    }
}

/// Where a source stands at urgent data (`MSG_OOB`). splice(2) does not pass it: it finds nothing there,
/// while the socket can be read. A receive does, and leaves the urgent byte out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Mark {
    /// As far as is known, nowhere near.
    #[default]
    Away,
    /// The socket can be read, and nothing has been taken since: if nothing can be spliced, it is there.
    Suspected,
    /// One receive goes past it.
    Passing,
}

impl Mark {
    /// The source can be read.
    pub(super) fn readable(&mut self) {
        if *self == Mark::Away {
            *self = Mark::Suspected;
        }
    }

    /// Nothing could be spliced. Whether it is to be received.
    pub(super) fn dry(&mut self) -> bool {
        if *self == Mark::Suspected {
            *self = Mark::Passing;
        }
        *self == Mark::Passing
    }
}

/// The direction to the upstream.
#[derive(Debug, Default)]
pub struct Upload {
    /// What is still to come from the client.
    pub source: Source,
    /// Framed and ready to be sent.
    pub(super) staged: Option<Buf>,
    /// The pipe in use.
    pub(super) pipe: Option<Pipe>,
    /// Pipes cannot be had, or are too small.
    pub(super) copies: bool,
    pub(super) mark: Mark,
    /// The client's end of a tunnel is broken: the upstream is to see that.
    pub(super) broken: bool,
}

impl Upload {
    /// For a body.
    #[must_use]
    pub fn new(source: Source) -> Self {
        Upload {
            source,
            ..Upload::default()
        }
    }

    /// Gives everything back that is held.
    pub fn give_back<E: Engine>(&mut self, engine: &mut E) {
        self.staged = None;
        if let Some(pipe) = self.pipe.take() {
            engine.return_pipe(pipe);
        }
    }

    /// The request had its body: what comes from the client now is something else.
    pub fn forget(&mut self) {
        self.source = Source::None;
    }

    /// Nothing is held, and nothing is to come.
    pub(super) fn is_finished(&self) -> bool {
        self.source.outstanding() == 0 && self.staged.is_none() && self.pipe.is_none()
    }
}

/// The direction to the client.
#[derive(Debug, Default)]
pub struct Download {
    pub(super) source: Source,
    pub(super) framing: Framing,
    pub(super) pipe: Option<Pipe>,
    pub(super) copies: bool,
    pub(super) mark: Mark,
    /// The upstream's end of a tunnel is broken: the client is to see that.
    pub(super) broken: bool,
    /// The whole body has come.
    pub(super) complete: bool,
    /// Bytes came behind the response.
    pub(super) surplus: bool,
    /// The end of the body is still to be framed, for which there was no buffer.
    pub(super) owes_last_chunk: bool,
    pub(super) keep_alive_timeout: Option<u64>,
}

impl Download {
    /// How the body is framed for the client.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// What the upstream announced in `Keep-Alive`, in seconds.
    #[must_use]
    pub fn keep_alive_timeout(&self) -> Option<u64> {
        self.keep_alive_timeout
    }

    /// Gives everything back that is held.
    pub fn give_back<E: Engine>(&mut self, engine: &mut E) {
        if let Some(pipe) = self.pipe.take() {
            engine.return_pipe(pipe);
        }
    }
}
