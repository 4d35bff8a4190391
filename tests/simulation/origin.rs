//! Scripted upstreams: strict about what they receive, free in what they send.

use std::net::SocketAddr;
use std::time::Duration;

use toron_reactor::sim::{Remote, RemoteListener, World};
use toron_reactor::Time;

use crate::ledger::Ledger;
use crate::message::{Body, Head, Inbox};
use crate::pattern::{self, Whose};
use crate::plan::{self, End, Upstream};

/// A connection that was ended is let go after this time at the latest.
const LET_GO: Duration = Duration::from_secs(30);
/// A dripping response drips so often; then the rest comes.
const DRIPS: usize = 60;
/// From one end of a calm network to the other and back.
pub const THERE_AND_BACK: Duration = Duration::from_micros(100);

/// All upstreams.
#[derive(Debug)]
pub struct Origin {
    doors: Vec<(Upstream, RemoteListener)>,
    connections: Vec<Connection>,
    made: usize,
}

/// Where in a request.
#[derive(Debug)]
enum Reading {
    Head,
    Body(usize, Body),
    /// The response is being sent.
    Answering,
    Tunnel {
        id: usize,
        received: usize,
    },
    /// Whatever comes is thrown away.
    Nothing,
}

#[derive(Debug)]
struct Connection {
    name: usize,
    door: SocketAddr,
    upstream: Upstream,
    remote: Remote,
    inbox: Inbox,
    reading: Reading,
    body_read: usize,
    trailers: Vec<String>,
    /// The request at hand came in chunks, so that its trailers come, too.
    chunked: bool,
    out: Vec<u8>,
    sent: usize,
    /// Bytes of `out` that belong to a response whose sending is to be noted.
    replying: Option<usize>,
    /// Where in `out` it ends.
    response_end: usize,
    drip: Option<(usize, Duration, usize)>,
    next_send: Time,
    next_receive: Time,
    then: Then,
    idle_since: Time,
    /// Stray bytes are sent then; when they were.
    stray_at: Option<Time>,
    strayed: Option<Time>,
    stray: Vec<u8>,
    gone: bool,
}

/// What follows when everything is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Next,
    Fin,
    Reset,
    Wait,
    Ended(Time),
}

impl Origin {
    pub fn new(world: &World, ledger: &Ledger) -> Origin {
        let door = |upstream: &Upstream| {
            let door = world.remote_listen(upstream.address, 64).unwrap();
            (*upstream, door)
        };
        Origin {
            doors: ledger.plan.upstreams.iter().map(door).collect(),
            connections: Vec::new(),
            made: 0,
        }
    }

    /// From now on nobody takes time to read: a request that moves, however slowly, is not stuck.
    pub fn hurry(&mut self) {
        let doors = self.doors.iter_mut().map(|(upstream, _)| upstream);
        let connections = self.connections.iter_mut().map(|c| &mut c.upstream);
        for upstream in doors.chain(connections) {
            upstream.receive = (usize::MAX, Duration::ZERO);
        }
    }

    /// Does what is due, and says when to be called again at the latest.
    pub fn act(&mut self, now: Time, ledger: &mut Ledger) -> Option<Time> {
        for (upstream, door) in &self.doors {
            while let Some(remote) = door.accept() {
                self.made += 1;
                ledger.note(now, || {
                    format!("upstream {} accepts {}", upstream.address, self.made)
                });
                self.connections
                    .push(Connection::new(self.made, *upstream, remote, now));
            }
        }
        let mut next = None;
        for connection in &mut self.connections {
            connection.act(now, ledger);
            next = earliest(next, connection.next_action(now));
        }
        let (gone, kept) = std::mem::take(&mut self.connections)
            .into_iter()
            .partition(|connection| connection.gone);
        self.connections = kept;
        for connection in gone {
            connection.leave();
        }
        next
    }
}

/// The earlier of two times, if any.
pub fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    a.into_iter().chain(b).min()
}

impl Connection {
    fn new(name: usize, upstream: Upstream, remote: Remote, now: Time) -> Connection {
        Connection {
            name,
            door: upstream.address,
            upstream,
            remote,
            inbox: Inbox::default(),
            reading: Reading::Head,
            body_read: 0,
            trailers: Vec::new(),
            chunked: false,
            out: Vec::new(),
            sent: 0,
            replying: None,
            drip: None,
            response_end: 0,
            next_send: now,
            next_receive: now,
            then: Then::Next,
            idle_since: now,
            stray_at: None,
            strayed: None,
            stray: Vec::new(),
            gone: false,
        }
    }

    fn next_action(&self, now: Time) -> Option<Time> {
        let mut next = None;
        if self.remote.available() > 0 && self.next_receive > now {
            next = Some(self.next_receive);
        }
        if self.sent < self.out.len() && self.next_send > now {
            next = earliest(next, Some(self.next_send));
        }
        if let Then::Ended(at) = self.then {
            next = earliest(next, Some(at + LET_GO));
        }
        let idle = self.upstream.idle.filter(|_| self.is_idle());
        next = earliest(next, idle.map(|idle| plan::tick(self.idle_since + idle)));
        earliest(next, self.stray_at)
    }

    fn is_idle(&self) -> bool {
        matches!(self.reading, Reading::Head)
            && self.inbox.rest().is_empty()
            && self.sent == self.out.len()
            && self.then == Then::Next
            && self.idle_since != Time(0)
    }

    fn act(&mut self, now: Time, ledger: &mut Ledger) {
        loop {
            let was_busy = !matches!(self.reading, Reading::Head);
            let before = (self.remote.available(), self.inbox.rest().len(), self.sent);
            self.receive(now, ledger);
            self.read(now, ledger);
            self.send(now, ledger);
            let after = (self.remote.available(), self.inbox.rest().len(), self.sent);
            let next = matches!(self.reading, Reading::Head) && after.1 > 0 && was_busy;
            if self.gone || (before == after && !next) {
                break;
            }
        }
        self.end(now, ledger);
    }

    fn receive(&mut self, now: Time, ledger: &Ledger) {
        if now < self.next_receive || self.remote.available() == 0 {
            return;
        }
        let (most, pause) = self.upstream.receive;
        let bytes = self.remote.recv(most);
        self.next_receive = now + pause;
        let prompt = ledger.plan.calm && pause.is_zero();
        if let (Some(at), true) = (self.strayed, prompt) {
            assert!(
                now.since(at) < THERE_AND_BACK,
                "a connection on which stray bytes had come was used again"
            );
        }
        self.stray_at = None;
        self.inbox.push(&bytes);
    }

    fn read(&mut self, now: Time, ledger: &mut Ledger) {
        loop {
            match &mut self.reading {
                Reading::Head => {
                    let Some(head) = self.inbox.head() else {
                        return;
                    };
                    self.begin(now, &head, ledger);
                }
                Reading::Body(id, body) => {
                    let id = *id;
                    let valid = ledger.plan.requests[id].malformed.is_none();
                    let from = &mut self.body_read;
                    let complete = body.read(&mut self.inbox, &mut self.trailers, |bytes| {
                        if valid {
                            pattern::check(Whose::Client, id, *from, bytes);
                        }
                        *from += bytes.len();
                    });
                    let early = ledger.plan.requests[id].reply.early;
                    if complete {
                        self.complete(now, id, ledger);
                        self.reading = Reading::Answering;
                    } else {
                        if early.is_some_and(|n| self.body_read >= n) && self.replying.is_none() {
                            self.reply(now, id, ledger);
                        }
                        return;
                    }
                }
                Reading::Answering => {
                    // The next request must wait for its turn: toron does not pipeline.
                    assert!(
                        self.inbox.rest().is_empty()
                            || self.sent == self.out.len()
                            || ledger.strays,
                        "bytes behind a request: {:?}",
                        String::from_utf8_lossy(self.inbox.rest())
                    );
                    return;
                }
                Reading::Tunnel { id, received } => {
                    let bytes = self.inbox.take(usize::MAX);
                    pattern::check(Whose::Client, *id, *received, bytes);
                    *received += bytes.len();
                    return;
                }
                Reading::Nothing => {
                    self.inbox.take(usize::MAX);
                    return;
                }
            }
        }
    }

    fn begin(&mut self, now: Time, head: &Head, ledger: &mut Ledger) {
        let id: usize = match head.field("x-id").map(str::parse) {
            Some(Ok(id)) => id,
            _ => panic!("a request without an id: {head:?}"),
        };
        let request = &ledger.plan.requests[id];
        ledger.note(now, || {
            format!("upstream {} gets {}", self.name, head.start)
        });
        if request.malformed.is_none() {
            check_head(request, head, self.door);
        }
        let entry = &mut ledger.entries[id];
        entry.begun += 1;
        entry.begun_at = Some(now);
        assert!(entry.first_sent.is_some(), "request {id} was not sent");
        assert!(
            request.intake() != plan::Intake::Collected || entry.last_sent.is_some(),
            "request {id} was dialled before its body was whole"
        );
        self.chunked = head.field("transfer-encoding").is_some();
        self.body_read = 0;
        self.trailers.clear();
        self.idle_since = Time(0);
        self.out.clear();
        self.sent = 0;
        self.out.extend(request.interims());
        match head.body() {
            Some(body) => self.reading = Reading::Body(id, body),
            None => {
                self.complete(now, id, ledger);
                self.reading = match ledger.plan.requests[id].tunnel {
                    Some(_) => Reading::Tunnel { id, received: 0 },
                    None => Reading::Answering,
                };
            }
        }
    }

    fn complete(&mut self, now: Time, id: usize, ledger: &mut Ledger) {
        let request = &ledger.plan.requests[id];
        assert!(
            request.malformed.is_none(),
            "a malformed request arrived whole: {request:?}"
        );
        assert_eq!(
            self.body_read,
            request.body_length(),
            "body of request {id}"
        );
        let trailers = match request.body {
            plan::Body::Chunked(_, _, true) if self.chunked => vec![request.trailer()],
            _ => Vec::new(),
        };
        assert_eq!(self.trailers, trailers, "trailers of request {id}");
        let entry = &mut ledger.entries[id];
        entry.seen += 1;
        entry.seen_at = Some(now);
        assert!(
            request.idempotent() || entry.seen == 1,
            "request {id} was executed {} times",
            entry.seen
        );
        assert!(
            entry.last_sent.is_some(),
            "request {id} arrived whole though it was not sent whole"
        );
        ledger.note(now, || {
            format!("upstream {} has request {id} whole", self.name)
        });
        if self.replying.is_none() {
            self.reply(now, id, ledger);
        }
    }

    fn reply(&mut self, now: Time, id: usize, ledger: &mut Ledger) {
        let end = ledger.plan.requests[id].reply.end;
        ledger.strays |= matches!(end, End::Surplus | End::LateSurplus);
        let request = &ledger.plan.requests[id];
        let (mut response, at_once) = request.response();
        self.stray = response.split_off(at_once);
        self.response_end = self.out.len() + request.response_length();
        self.out.extend(response);
        self.replying = Some(id);
        self.drip = request.reply.drip.map(|(n, pause)| (n, pause, DRIPS));
        self.then = match request.reply.end {
            End::Keep | End::Surplus | End::LateSurplus => Then::Next,
            End::SayClose | End::CloseSilently | End::Garbage => Then::Fin,
            End::CutHead(_, rst) | End::CutBody(_, rst) => {
                if rst {
                    Then::Reset
                } else {
                    Then::Fin
                }
            }
            End::Stall | End::Never => Then::Wait,
        };
        if let Some((_, down)) = request.tunnel {
            self.out.extend(pattern::bytes(Whose::Upstream, id, down));
            self.then = Then::Fin;
        }
        ledger.note(now, || {
            format!(
                "upstream {} answers {id}: {:?}",
                self.name, request.reply.end
            )
        });
    }

    fn send(&mut self, now: Time, ledger: &mut Ledger) {
        while self.sent < self.out.len() && now >= self.next_send {
            let mut end = self.out.len();
            if let Some((n, pause, left)) = &mut self.drip {
                if *left > 0 {
                    end = end.min(self.sent + *n);
                    *left -= 1;
                    self.next_send = now + *pause;
                }
            }
            let n = self.remote.send(&self.out[self.sent..end]);
            self.sent += n;
            if n == 0 {
                break;
            }
        }
        let Some(id) = self.replying else { return };
        ledger.entries[id].replied |= self.sent >= self.response_end;
        if self.sent < self.out.len() {
            return;
        }
        match self.then {
            // An early response: the rest of the request must not be taken for another one.
            Then::Next if matches!(self.reading, Reading::Body(..)) => {}
            Then::Next => {
                self.replying = None;
                self.reading = Reading::Head;
                self.idle_since = now;
                match ledger.plan.requests[id].reply.end {
                    End::LateSurplus => self.stray_at = Some(plan::tick(now)),
                    End::Surplus => {
                        ledger.strays = true;
                        self.strayed = Some(now);
                    }
                    _ => {}
                }
            }
            Then::Fin => {
                self.remote.shutdown_write();
                self.then = Then::Ended(now);
                if !matches!(self.reading, Reading::Tunnel { .. } | Reading::Body(..)) {
                    self.reading = Reading::Nothing;
                }
            }
            Then::Reset | Then::Wait | Then::Ended(_) => {}
        }
    }

    fn end(&mut self, now: Time, ledger: &mut Ledger) {
        if self.stray_at.is_some_and(|at| at <= now) {
            ledger.strays = true;
            self.stray_at = None;
            let stray = std::mem::take(&mut self.stray);
            // A request that is on its way would take them for its response.
            if self.remote.available() == 0 {
                self.strayed = Some(now);
                ledger.strayed_at = now;
                self.out.extend(stray);
                self.drip = None;
                self.next_send = now;
                self.send(now, ledger);
            }
        }
        let idle = self.upstream.idle;
        let bored =
            self.is_idle() && idle.is_some_and(|idle| plan::tick(self.idle_since + idle) <= now);
        let let_go = matches!(self.then, Then::Ended(at) if at + LET_GO <= now);
        let cut = self.then == Then::Reset && self.sent == self.out.len();
        let half = matches!(self.reading, Reading::Tunnel { .. }) && !self.fin_sent();
        let ended = self.remote.is_broken() || (self.remote.at_end() && !half);
        let over = ended && self.remote.available() == 0;
        if over {
            self.check_end(ledger);
        }
        self.gone = bored || let_go || cut || over;
        if self.gone {
            ledger.note(now, || {
                format!(
                    "upstream {} ends: bored {bored} cut {cut} over {over}",
                    self.name
                )
            });
        }
    }

    fn fin_sent(&self) -> bool {
        matches!(self.then, Then::Ended(_))
    }

    fn leave(self) {
        if self.then == Then::Reset {
            self.remote.reset();
        }
    }

    /// A FIN that was passed on through a tunnel stands behind everything.
    fn check_end(&self, ledger: &Ledger) {
        if let Reading::Tunnel { id, received } = self.reading {
            if self.remote.at_end() && ledger.is_strict(id) {
                let whole = ledger.plan.requests[id].tunnel.map(|(up, _)| up);
                assert_eq!(whole, Some(received), "tunnel {id} towards the upstream");
            }
        }
    }
}

fn check_head(request: &plan::Request, head: &Head, door: SocketAddr) {
    let method = request.method;
    assert_eq!(
        head.start,
        format!("{method} {} HTTP/1.1", request.path_seen()),
        "at {door}"
    );
    assert_eq!(head.field("host"), Some("sim.test"));
    assert_eq!(
        head.connection("upgrade"),
        request.tunnel.is_some(),
        "{head:?}"
    );
    let length = head.field("content-length").map(str::to_owned);
    match &request.body {
        plan::Body::None => assert_eq!(head.body(), None, "{head:?}"),
        plan::Body::Length(n) => assert_eq!(length, Some(n.to_string()), "{head:?}"),
        plan::Body::Chunked(..) => match request.intake() {
            plan::Intake::Streamed => assert_eq!(length, None, "{head:?}"),
            plan::Intake::Collected => {
                assert_eq!(length, Some(request.body_length().to_string()), "{head:?}");
            }
            plan::Intake::Either => assert!(
                length
                    .as_ref()
                    .is_none_or(|n| *n == request.body_length().to_string()),
                "{head:?}"
            ),
        },
    }
}
