//! Where HTTP meets descriptors: orders of the transaction become engine operations, completions
//! become its inputs.
//!
//! ```text
//!  incoming ─▶ gate.rs    the firewall, here and in front of judge.rs
//!              ▼
//!            head.rs      phase 1
//!              ▼
//!            judge.rs ──────▶ prepare.rs ──▶ exchange.rs ◀──▶ proxy::transaction
//!              │ lookup.rs                     │ target.rs    which target, and what is learned of it
//!              │ builtin.rs, admin/            │ connect.rs   dial, idle connections (upstream.rs)
//!              │                               │ collect.rs   bodies kept (collected.rs) before the dial
//!              │                               │ upload.rs    client ─▶ upstream: copy, splice
//!              ▼                               │ download.rs  upstream ─▶ client: heads, copy, splice
//!            refuse.rs                         │ tunnel.rs    both ways, raw
//!              ▼                               │ body.rs      chunks in place
//!            ending.rs ◀───────────────────────┘ splice.rs    pipes
//!            keep, close, linger               │ skip.rs      bytes still owed behind an early response
//!                                              │ slow.rs      peers that are slow but not idle
//!                                              │ watch.rs     clients that go away
//!                                              │ failure.rs   upstream failures, for the log
//!                                              │ note.rs      ends and refusals, for the logs
//!
//!  metrics/: what is counted, and /metrics
//!  session.rs, state.rs: what a connection and a request hold    shared.rs: what reactors share
//!  blame.rs, describe.rs: why, and what was asked for, in logs    log_gate.rs: what is left out of them
//!  ledger.rs: the last refusals    access_line.rs, access_log.rs: the access log
//!  lane.rs: what an event is about    explain.rs: what would become of a request
//!  wall.rs: Date    timestamp.rs: moments in logs    request_id.rs
//! ```
//!
//! One [`Server`] runs on each reactor. Its parts are one `impl` of `Kit`, a handler's view of
//! the reactor and of everything but the session at hand.

pub mod access_line;
pub mod access_log;
pub mod admin;
mod blame;
pub(crate) mod body;
mod builtin;
mod chunked;
mod collect;
mod collected;
mod connect;
pub mod describe;
mod download;
mod ending;
mod exchange;
pub mod explain;
mod failure;
mod gate;
mod head;
mod judge;
mod lane;
pub mod ledger;
mod log_gate;
mod lookup;
pub mod metrics;
mod note;
mod prepare;
mod refuse;
mod request_id;
mod session;
pub mod shared;
mod skip;
mod slow;
mod splice;
mod state;
pub mod target;
mod timestamp;
mod tunnel;
mod upload;
mod upstream;
mod wall;
mod watch;

pub use self::gate::without_descriptor;

use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::Cache;
use crossbeam_channel::Sender;
use toron_reactor::{
    Close, Context, Engine, Event, Fd, Incoming, Key, Outcome, Service, Slab, Stats, Time, TimerId,
    Token,
};

use crate::http::Reason;
use crate::policy::cidr::Cidr;
use crate::policy::hash::mix;
use crate::policy::pool::Balancers;
use crate::policy::snapshot::{SharedSnapshot, Snapshot};
use admin::desk::Reply;
use describe::Description;
use lane::Lane;
use log_gate::LogGate;
use metrics::cells::Cells;
use metrics::{no_cells, CellsOfRoutes};
use request_id::RequestIds;
use session::{Phase, Session};
use shared::{Counts, Shared};
use state::Exchange;
use upstream::Connections;
use wall::WallClock;

/// Messages to a server from other threads.
#[derive(Clone, Debug)]
pub enum Message {
    /// Look at the shared state: the configuration may have been replaced.
    Changed,
    /// The answer to what the session asked.
    Reply {
        /// Who asked.
        token: Token,
        /// The answer.
        reply: Reply,
    },
    /// Close the connections of these client addresses, and tell how many there were.
    Sever {
        /// Whose.
        addresses: Cidr,
        /// Whom to tell.
        count: Sender<usize>,
    },
}

/// The HTTP server of one reactor.
#[derive(Debug)]
pub struct Server {
    core: Core,
    sessions: Slab<Session>,
}

/// Everything of a server but its sessions.
#[derive(Debug)]
pub(crate) struct Core {
    shared: Arc<Shared>,
    reactor: usize,
    /// The configuration in force, as it was seen last: to see that it is the same takes one load.
    current: Cache<SharedSnapshot, Arc<Snapshot>>,
    snapshot: Rc<Pinned>,
    balancers: Balancers,
    upstreams: Connections,
    sweep: Option<TimerId>,
    /// What it is armed for.
    sweep_at: Time,
    /// Heads are written here first.
    scratch: Vec<u8>,
    /// The body of the answer whose head is in `scratch`, where that is of a length of its own.
    body: Vec<u8>,
    /// Paths are normalised here.
    path_room: Vec<u8>,
    /// What the request at hand asked for.
    asked: Description,
    /// How long its head took to come.
    header_took: Duration,
    /// The time of day.
    wall: WallClock,
    /// Access-log lines of this turn.
    log_lines: Vec<u8>,
    /// For what upstreams do wrong.
    failure_gate: LogGate,
    /// For what the firewall does.
    firewall_gate: LogGate,
    /// Ended exchanges, to be used again: no allocation per request. Boxed, because they move
    /// between here and sessions and are large.
    #[allow(clippy::vec_box)]
    retired: Vec<Box<Exchange>>,
    /// Memory for the next body that is collected.
    rooms: Vec<Vec<u8>>,
    /// What this reactor counts for /metrics.
    cells: Arc<Cells>,
    /// What it counts of the routes of the present configuration.
    route_cells: CellsOfRoutes,
    sessions: usize,
    /// Those that wait for a request.
    idle_sessions: usize,
    exchanges: usize,
    requests: u64,
    /// Refused by the firewall.
    refused: u64,
    /// Those that it only observed.
    observed: u64,
    /// Dials for which there was no descriptor or local port.
    out_of_resources: u64,
    request_id: RequestIds,
    drain: Option<Drain>,
}

/// A configuration that requests of this reactor hold on to. Counted once more per reactor, so that
/// a request does not touch a counter that other reactors write, too.
#[derive(Debug)]
pub(crate) struct Pinned(Arc<Snapshot>);

impl Deref for Pinned {
    type Target = Snapshot;
    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    /// Idle connections are closed then.
    idle_until: Time,
    /// Everything is closed then.
    until: Time,
}

/// How long an idle connection may stay when the server ends: a request that is on its way is
/// still answered.
const IDLE_WHILE_DRAINING: Duration = Duration::from_secs(1);
/// Exchanges kept for use again; at about 1 KiB each.
const RETIRED_MOST: usize = 256;

/// A handler's view: this reactor, and everything but the session at hand.
pub(crate) struct Kit<'k, 'c, E: Engine> {
    pub(crate) core: &'k mut Core,
    pub(crate) cx: &'k mut Context<'c, E>,
}

impl Server {
    /// The server of reactor number `reactor`. `seed` makes its request ids.
    #[must_use]
    pub fn new(shared: Arc<Shared>, reactor: usize, seed: u64) -> Self {
        let mut current = Cache::new(Arc::clone(&shared.snapshot));
        let snapshot = Rc::new(Pinned(Arc::clone(current.load())));
        let balancers = Balancers::new(reactor, mix(seed) ^ reactor as u64);
        let route_cells = no_cells(snapshot.table.routes().len());
        let gauge = shared.gauges.get(reactor);
        let cells = gauge.map(|gauge| Arc::clone(&gauge.cells));
        let core = Core {
            shared,
            reactor,
            current,
            snapshot,
            balancers,
            upstreams: Connections::default(),
            sweep: None,
            sweep_at: Time(0),
            scratch: Vec::with_capacity(16 * 1024),
            body: Vec::new(),
            path_room: Vec::new(),
            asked: Description::default(),
            header_took: Duration::ZERO,
            wall: WallClock::default(),
            log_lines: Vec::new(),
            failure_gate: LogGate::of("upstream failure"),
            firewall_gate: LogGate::of("refusal"),
            retired: Vec::new(),
            rooms: Vec::new(),
            cells: cells.unwrap_or_default(),
            route_cells,
            sessions: 0,
            idle_sessions: 0,
            exchanges: 0,
            requests: 0,
            refused: 0,
            observed: 0,
            out_of_resources: 0,
            request_id: RequestIds::new(mix(seed) ^ mix(reactor as u64 + 1)),
            drain: None,
        };
        Server {
            core,
            sessions: Slab::new(),
        }
    }

    /// What is held now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.core.counts()
    }

    fn with_session<E: Engine>(
        &mut self,
        cx: &mut Context<'_, E>,
        token: Token,
        handle: impl FnOnce(&mut Kit<'_, '_, E>, &mut Session),
    ) {
        let Some(session) = self.sessions.get_mut(token) else {
            return;
        };
        let mut kit = Kit {
            core: &mut self.core,
            cx,
        };
        let was_idle = matches!(session.phase, Phase::Idle);
        handle(&mut kit, session);
        kit.core.idle_sessions += usize::from(matches!(session.phase, Phase::Idle));
        kit.core.idle_sessions -= usize::from(was_idle);
        if matches!(session.phase, Phase::Gone) {
            self.sessions.remove(token);
        } else {
            kit.arm(session);
        }
    }

    fn upstream_event<E: Engine>(
        &mut self,
        cx: &mut Context<'_, E>,
        lane: Lane,
        token: Token,
        outcome: Outcome,
    ) {
        let Some(connection) = self.core.upstreams.get_mut(token) else {
            return;
        };
        if lane == Lane::UpstreamRecv {
            connection.recv = None;
        }
        match connection.owner {
            Some(owner) => self.with_session(cx, owner, |kit, session| match lane {
                Lane::UpstreamConnect => kit.connect_ended(session, &outcome),
                Lane::UpstreamRecv => kit.upstream_received(session, outcome),
                Lane::UpstreamSend => kit.upstream_sent(session, outcome),
                Lane::UpstreamReadable => kit.upstream_readable(session, &outcome),
                Lane::UpstreamWritable => kit.upstream_writable(session, &outcome),
                Lane::ClientRecv
                | Lane::ClientSend
                | Lane::ClientReadable
                | Lane::ClientWritable
                | Lane::ClientHangup
                | Lane::ClientReadHangup
                | Lane::Buffer
                | Lane::Deadline
                | Lane::IdleSweep => {}
            }),
            // Idle: it was closed, or sent what nobody asked for (R17).
            None => {
                if let Some(connection) = self.core.upstreams.remove(token) {
                    cx.engine.close(connection.fd, Close::Orderly);
                }
            }
        }
    }

    /// Closes the connections of clients in `addresses`; not those of a trusted proxy, which others
    /// share, except where such a client's request is under way.
    fn sever<E: Engine>(&mut self, cx: &mut Context<'_, E>, addresses: Cidr) -> usize {
        let mut count = 0;
        for token in self.sessions.tokens() {
            self.with_session(cx, token, |kit, session| {
                if !session.client.is_proxy && addresses.contains(session.client.address) {
                    count += 1;
                    kit.break_off(session, Reason::BlockedByHand);
                }
            });
        }
        count
    }

    fn sweep<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let mut expired = Vec::new();
        self.core.upstreams.expired(cx.now, &mut expired);
        self.close_all(cx, &expired);
        let next = self.core.upstreams.next_expiry();
        if let (Some(timer), Some(at)) = (self.core.sweep, next) {
            cx.wheel.arm(timer, Some(at));
            self.core.sweep_at = at;
        }
    }

    fn close_idle_upstreams<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let idle = self.core.upstreams.idle_where(|_| true);
        self.close_all(cx, &idle);
    }

    /// Idle connections to targets that have been removed are of no use (R22).
    fn close_unused_upstreams<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let snapshot = Rc::clone(&self.core.snapshot);
        let unused = |endpoint| !snapshot.uses_endpoint(endpoint);
        let idle = self.core.upstreams.idle_where(unused);
        self.close_all(cx, &idle);
        self.core.upstreams.forget(unused);
    }

    fn close_all<E: Engine>(&mut self, cx: &mut Context<'_, E>, idle: &[Token]) {
        for &token in idle {
            if let Some(connection) = self.core.upstreams.remove(token) {
                cx.engine.close(connection.fd, Close::Orderly);
            }
        }
    }
}

impl Core {
    /// The socket of the upstream connection in use.
    pub(crate) fn upstream_fd(&self, exchange: &Exchange) -> Option<Fd> {
        Some(self.upstreams.get(exchange.upstream?)?.fd)
    }

    /// The configuration in force, pinned for a request that begins now.
    pub(crate) fn pin(&mut self) -> Rc<Pinned> {
        let current = self.current.load();
        if !Arc::ptr_eq(current, &self.snapshot.0) {
            self.snapshot = Rc::new(Pinned(Arc::clone(current)));
            // Ended exchanges hold on to the configuration that they had.
            self.retired.clear();
            let snapshot = &self.snapshot;
            self.balancers.retain(|pool| snapshot.holds_pool(pool));
            self.route_cells = no_cells(snapshot.table.routes().len());
        }
        Rc::clone(&self.snapshot)
    }

    fn counts(&self) -> Counts {
        Counts {
            sessions: self.sessions,
            idle_sessions: self.idle_sessions,
            exchanges: self.exchanges,
            upstream_connections: self.upstreams.len(),
            upstream_idle: self.upstreams.idle_len(),
            received: self.cells.received.get(),
            requests: self.requests,
            refused: self.refused,
            observed: self.observed,
            out_of_resources: self.out_of_resources,
        }
    }

    /// Shows the others what this reactor holds.
    pub(crate) fn publish(&self, stats: Stats) {
        if let Some(gauge) = self.shared.gauges.get(self.reactor) {
            gauge.publish(self.counts(), stats);
        }
    }

    /// The value of a `Date` field.
    pub(crate) fn date(&mut self, now: Time) -> [u8; wall::DATE] {
        self.wall.date(now)
    }

    /// Whether `/internal` and `/metrics` are to be had on this connection.
    pub(crate) fn serves_admin(&self, session: &Session) -> bool {
        session.is_admin || self.shared.admin_listener.get().is_none()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.drain.is_some() || self.shared.draining.load(Ordering::Relaxed)
    }
}

impl<E: Engine> Service<E> for Server {
    type Message = Message;

    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        self.welcome(cx, incoming);
    }

    fn refused(&mut self, cx: &mut Context<'_, E>, peer: SocketAddr) {
        self.not_accepted(cx, peer.ip());
    }

    fn event(&mut self, cx: &mut Context<'_, E>, event: Event) {
        let Event { key, outcome, .. } = event;
        let Some(lane) = Lane::of(key) else { return };
        let token = key.token;
        match lane {
            Lane::ClientRecv => self.with_session(cx, token, |kit, session| {
                session.recv = None;
                kit.client_received(session, outcome);
            }),
            Lane::ClientSend => self.with_session(cx, token, |kit, session| {
                kit.client_sent(session, outcome);
            }),
            Lane::ClientReadable => self.with_session(cx, token, |kit, session| {
                session.polls_readable = false;
                kit.client_readable(session, &outcome);
            }),
            Lane::ClientWritable => self.with_session(cx, token, |kit, session| {
                session.polls_writable = false;
                kit.client_writable(session, &outcome);
            }),
            Lane::ClientHangup => self.with_session(cx, token, |kit, session| {
                session.watches_hangup = false;
                kit.client_hung_up(session, &outcome);
            }),
            Lane::ClientReadHangup => self.with_session(cx, token, |kit, session| {
                session.watches_fin = false;
                kit.client_finished(session, &outcome);
            }),
            Lane::Buffer => self.with_session(cx, token, |kit, session| {
                session.awaits_buffer = false;
                if let Outcome::Buffer(buf) = outcome {
                    session.spare = Some(buf);
                    kit.resume(session);
                }
            }),
            Lane::UpstreamConnect
            | Lane::UpstreamRecv
            | Lane::UpstreamSend
            | Lane::UpstreamReadable
            | Lane::UpstreamWritable => self.upstream_event(cx, lane, token, outcome),
            Lane::Deadline | Lane::IdleSweep => {}
        }
    }

    fn deadline(&mut self, cx: &mut Context<'_, E>, key: Key) {
        match Lane::of(key) {
            Some(Lane::Deadline) => {
                self.with_session(cx, key.token, |kit, session| {
                    kit.deadline(session);
                });
            }
            Some(Lane::IdleSweep) => self.sweep(cx),
            _ => {}
        }
    }

    fn message(&mut self, cx: &mut Context<'_, E>, message: Message) {
        match message {
            Message::Changed => {
                self.core.pin();
                self.close_unused_upstreams(cx);
                self.sweep(cx);
            }
            Message::Reply { token, reply } => {
                self.with_session(cx, token, |kit, session| kit.reply(session, reply));
            }
            Message::Sever { addresses, count } => {
                // Who asked may have given up waiting.
                let _ = count.send(self.sever(cx, addresses));
            }
        }
    }

    fn turn_ended(&mut self, cx: &mut Context<'_, E>) {
        self.core.publish(cx.engine.stats());
        self.core.time_turn(cx.engine);
        if let Some(log) = &self.core.shared.access_log {
            if !self.core.log_lines.is_empty() {
                log.hand_over(&mut self.core.log_lines);
            }
        }
    }

    fn drain(&mut self, cx: &mut Context<'_, E>, grace: Duration) {
        self.core.drain = Some(Drain {
            idle_until: cx.now + IDLE_WHILE_DRAINING.min(grace),
            until: cx.now + grace,
        });
        self.close_idle_upstreams(cx);
        for token in self.sessions.tokens() {
            // Arms the deadline anew, by the rules of draining.
            self.with_session(cx, token, |_, _| {});
        }
    }

    fn is_finished(&self) -> bool {
        self.core.drain.is_some() && self.sessions.is_empty() && self.core.upstreams.is_empty()
    }
}
