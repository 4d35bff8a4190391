//! Scripted clients. They know what they asked for, and hold every byte that comes back against it.

use std::net::SocketAddr;
use std::time::Duration;

use toron_reactor::sim::{Remote, World};
use toron_reactor::{Time, Wheel};

use crate::judge;
use crate::ledger::Ledger;
use crate::message::{Body, Head, Inbox};
use crate::origin::earliest;
use crate::pattern::{self, Whose};
use crate::plan::{self, Ending, Leaving};
use crate::setup;

/// A client that expects 100 sends its body after this time all the same.
const EXPECTANT: Duration = Duration::from_millis(2_500);
/// A client gives up when nothing has moved for this long.
const PATIENCE: Duration = Duration::from_secs(100);
/// What a client may owe behind an early response, and for how long (I11).
const OWED_MOST: usize = 65_536;
const OWED_WITHIN: Duration = Duration::from_millis(100);
/// The network, in a calm world.
const SLACK: Duration = Duration::from_millis(5);

/// A stretch of what the client sends.
#[derive(Debug)]
struct Part {
    id: usize,
    bytes: Vec<u8>,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Head,
    Body,
    Tunnel,
}

/// Where in the stream of responses.
#[derive(Debug)]
enum Reading {
    Head,
    Body {
        head: Head,
        body: Body,
        read: usize,
        canned: Vec<u8>,
        trailers: Vec<String>,
    },
    Tunnel {
        id: usize,
        read: usize,
    },
    /// The response said that the connection ends.
    End,
}

/// See the module text.
#[derive(Debug)]
pub struct Client {
    plan: plan::Client,
    server: SocketAddr,
    start: Time,
    remote: Option<Remote>,
    pub done: bool,
    parts: Vec<Part>,
    part: usize,
    at: usize,
    sent: usize,
    will_send: usize,
    received: usize,
    inbox: Inbox,
    reading: Reading,
    /// Final responses that have come.
    answered: usize,
    continued: usize,
    interims: Vec<u16>,
    fin_sent: bool,
    switched: bool,
    head_sent_at: Time,
    next_send: Time,
    next_receive: Time,
    moved: Time,
    idle_since: Option<Time>,
    /// The last request whose response came before it was sent whole, and when.
    owed: Option<(usize, Time)>,
}

impl Client {
    pub fn new(ledger: &Ledger, nth: usize, server: SocketAddr, now: Time) -> Client {
        let plan = ledger.plan.clients[nth].clone();
        let mut parts = Vec::new();
        for &id in &plan.requests {
            let request = &ledger.plan.requests[id];
            let (head, body) = request.bytes();
            parts.push(Part {
                id,
                bytes: head,
                what: What::Head,
            });
            if !body.is_empty() {
                parts.push(Part {
                    id,
                    bytes: body,
                    what: What::Body,
                });
            }
            if let Some((up, _)) = request.tunnel.filter(|(up, _)| *up > 0) {
                parts.push(Part {
                    id,
                    bytes: pattern::bytes(Whose::Client, id, up),
                    what: What::Tunnel,
                });
            }
        }
        let total: usize = parts.iter().map(|part| part.bytes.len()).sum();
        let will_send = match plan.ending {
            Ending::Leave(mille, _) | Ending::Stop(mille) => total * mille / 1000,
            _ => total,
        };
        let start = now + plan.start;
        Client {
            plan,
            server,
            start,
            remote: None,
            done: false,
            parts,
            part: 0,
            at: 0,
            sent: 0,
            will_send,
            received: 0,
            inbox: Inbox::default(),
            reading: Reading::Head,
            answered: 0,
            continued: 0,
            interims: Vec::new(),
            fin_sent: false,
            switched: false,
            head_sent_at: start,
            next_send: start,
            next_receive: start,
            moved: start,
            idle_since: Some(start),
            owed: None,
        }
    }

    /// Does what is due, and says when to be called again at the latest.
    pub fn act(&mut self, world: &World, now: Time, ledger: &mut Ledger) -> Option<Time> {
        if self.done {
            return None;
        }
        if now < self.start {
            return Some(self.start);
        }
        if self.remote.is_none() {
            let remote = world.connect(self.plan.address, self.server);
            if let Some(window) = self.plan.window {
                remote.set_receive_capacity(window);
            }
            ledger.note(now, || format!("{} connects", self.name()));
            self.moved = now;
            self.remote = Some(remote);
        }
        self.receive(now, ledger);
        self.send(now, ledger);
        self.end(now, ledger);
        if self.done {
            self.remote = None;
            return None;
        }
        Some(self.next_action(now))
    }

    fn name(&self) -> String {
        format!("client {}", self.plan.address.ip())
    }

    fn remote(&self) -> &Remote {
        self.remote.as_ref().unwrap()
    }

    fn next_action(&self, now: Time) -> Time {
        let later = |at: Time| (at > now).then_some(at);
        let mut next = Some(self.moved + PATIENCE);
        next = earliest(next, later(self.next_send));
        next = earliest(next, later(self.next_receive));
        next = earliest(next, later(self.head_sent_at + EXPECTANT));
        next.unwrap_or(now)
    }

    // ---- receiving ----

    fn receive(&mut self, now: Time, ledger: &mut Ledger) {
        while !self.done && now >= self.next_receive && self.remote().available() > 0 {
            let (most, pause) = self.plan.receive;
            let most = match self.plan.ending {
                Ending::LeaveReading(n, _) => most.min(n.saturating_sub(self.received).max(1)),
                _ => most,
            };
            let bytes = self.remote().recv(most);
            self.received += bytes.len();
            self.moved = now;
            self.next_receive = now + pause;
            self.inbox.push(&bytes);
            self.read(now, ledger);
            if let Ending::LeaveReading(n, leaving) = self.plan.ending {
                if self.received >= n {
                    self.leave(now, leaving, ledger);
                }
            }
        }
    }

    fn read(&mut self, now: Time, ledger: &mut Ledger) {
        loop {
            match &mut self.reading {
                Reading::Head => {
                    let Some(head) = self.inbox.head() else {
                        return;
                    };
                    self.begin(now, head, ledger);
                }
                Reading::Body {
                    head,
                    body,
                    read,
                    canned,
                    trailers,
                } => {
                    // The judge says whether it may be another's.
                    let id: Option<usize> = head.field("x-id").and_then(|id| id.parse().ok());
                    let complete = body.read(&mut self.inbox, trailers, |bytes| {
                        if let Some(id) = id {
                            pattern::check(Whose::Upstream, id, *read, bytes);
                        } else {
                            canned.extend_from_slice(bytes);
                        }
                        *read += bytes.len();
                    });
                    if !complete {
                        return;
                    }
                    self.complete(now, ledger);
                }
                Reading::Tunnel { id, read } => {
                    let bytes = self.inbox.take(usize::MAX);
                    pattern::check(Whose::Upstream, *id, *read, bytes);
                    *read += bytes.len();
                    return;
                }
                Reading::End => {
                    let rest = self.inbox.rest();
                    assert!(
                        rest.is_empty(),
                        "bytes behind the last response: {:?}",
                        String::from_utf8_lossy(rest)
                    );
                    return;
                }
            }
        }
    }

    fn begin(&mut self, now: Time, head: Head, ledger: &mut Ledger) {
        let Some(&id) = self.plan.requests.get(self.answered) else {
            panic!("a response to no request: {head:?}")
        };
        let entry = ledger.entries[id];
        assert!(
            entry.first_sent.is_some(),
            "a response before its request: {head:?}"
        );
        let request = &ledger.plan.requests[id];
        let whole_head = entry.last_sent.is_some() || self.head_is_sent(id);
        let status = judge::status(&head);
        ledger.note(now, || {
            format!("{} gets {} for {id}", self.name(), head.start)
        });
        if (100..200).contains(&status) && status != 101 {
            assert!(!request.http10, "an interim response to HTTP/1.0");
            self.interim(status, request);
            return;
        }
        if status == 101 {
            assert!(request.tunnel.is_some(), "a 101 that nobody asked for");
            assert_eq!(head.field("x-id"), Some(&*id.to_string()));
            self.answered += 1;
            self.switched = true;
            ledger.tally.tunnels += 1;
            self.reading = Reading::Tunnel { id, read: 0 };
            return;
        }
        // toron cannot know that an answer is for HEAD when it could not read the request.
        let head_only = request.method == "HEAD" && (whole_head || head.field("x-id").is_some());
        let bodiless = head_only || matches!(status, 204 | 304);
        let body = match (bodiless, head.body()) {
            // Or whether it was for HEAD: the head may not have arrived.
            (true, _) if status == 408 => Body::UntilClose,
            (true, _) => Body::Length(0),
            (false, Some(body)) => body,
            (false, None) => {
                assert!(request.http10, "until close for HTTP/1.1: {head:?}");
                Body::UntilClose
            }
        };
        assert!(
            !(request.http10 && matches!(body, Body::Chunked(_))),
            "chunked for HTTP/1.0"
        );
        self.reading = Reading::Body {
            head,
            body,
            read: 0,
            canned: Vec::new(),
            trailers: Vec::new(),
        };
    }

    fn head_is_sent(&self, id: usize) -> bool {
        let head = self.parts.iter().position(|part| part.id == id);
        head.is_some_and(|head| head < self.part)
    }

    fn interim(&mut self, status: u16, request: &plan::Request) {
        if status == 100 {
            self.continued += 1;
            assert!(request.expect, "a 100 that nobody waits for");
            assert!(self.continued == 1, "more than one 100");
            return;
        }
        self.interims.push(status);
        let planned = request.reply.interims.iter().filter(|s| **s == status);
        assert!(
            self.interims.len() <= 3 * planned.count(),
            "more interim responses than were sent"
        );
    }

    /// The client takes the response as complete.
    fn complete(&mut self, now: Time, ledger: &mut Ledger) {
        let Reading::Body {
            head,
            body,
            read,
            canned,
            trailers,
        } = std::mem::replace(&mut self.reading, Reading::Head)
        else {
            return;
        };
        let id = self.plan.requests[self.answered];
        self.answered += 1;
        self.continued = 0;
        self.interims.clear();
        let response = judge::Response {
            head: &head,
            read,
            canned: &canned,
            trailers: &trailers,
        };
        judge::complete(now, id, &response, ledger);
        let ends = head.connection("close")
            || body == Body::UntilClose
            || (ledger.plan.requests[id].http10 && !head.connection("keep-alive"));
        if ends {
            self.reading = Reading::End;
        } else if ledger.entries[id].last_sent.is_none() {
            self.goes_on_owing(now, id, ledger);
        }
        self.idle_since = Some(now);
        if self.plan.thinks {
            self.next_send = plan::tick(now);
        }
    }

    /// The connection goes on though the request was not sent whole (I11).
    fn goes_on_owing(&mut self, now: Time, id: usize, ledger: &Ledger) {
        let length = matches!(ledger.plan.requests[id].body, plan::Body::Length(_));
        let owed: usize = self.parts[self.part..]
            .iter()
            .filter(|part| part.id == id)
            .map(|part| part.bytes.len())
            .sum::<usize>()
            - self.at;
        assert!(
            length && owed <= OWED_MOST,
            "the connection goes on though {owed} bytes of request {id} were not sent"
        );
        self.owed = Some((id, now));
    }

    /// What was owed behind an early response may have come too late for the connection.
    fn owed_too_long(&self, ledger: &Ledger) -> bool {
        self.owed.is_some_and(|(id, since)| {
            let sent = ledger.entries[id].last_sent;
            let in_time = |at: Time| ledger.plan.calm && at + SLACK < since + OWED_WITHIN;
            !sent.is_some_and(in_time)
        })
    }

    // ---- sending ----

    /// The next bytes may go out now.
    fn may_send(&self, now: Time, ledger: &Ledger) -> bool {
        let Some(part) = self.parts.get(self.part) else {
            return false;
        };
        if now < self.next_send
            || self.sent >= self.will_send
            || matches!(self.reading, Reading::End)
        {
            return false;
        }
        let before = self.parts[..=self.part]
            .iter()
            .filter(|part| part.what == What::Head)
            .count();
        match part.what {
            What::Head => self.at > 0 || self.plan.pipelined || self.answered + 1 >= before,
            What::Body if ledger.plan.requests[part.id].expect && self.at == 0 => {
                self.continued > 0
                    || self.answered >= before
                    || now >= self.head_sent_at + EXPECTANT
            }
            What::Body => true,
            What::Tunnel => self.switched,
        }
    }

    fn send(&mut self, now: Time, ledger: &mut Ledger) {
        while !self.done && self.may_send(now, ledger) {
            let (most, pause) = self.plan.send;
            let part = &self.parts[self.part];
            let end = part
                .bytes
                .len()
                .min(self.at.saturating_add(most))
                .min(self.at + self.will_send - self.sent);
            let n = self.remote().send(&part.bytes[self.at..end]);
            if n == 0 && !part.bytes.is_empty() {
                return;
            }
            let entry = &mut ledger.entries[part.id];
            entry.first_sent.get_or_insert(now);
            self.idle_since = None;
            self.moved = now;
            self.next_send = now + pause;
            self.at += n;
            self.sent += n;
            if self.at == part.bytes.len() {
                if part.what == What::Head {
                    self.head_sent_at = now;
                }
                let next = self.parts.get(self.part + 1);
                if next.is_none_or(|next| next.id != part.id || next.what == What::Tunnel) {
                    entry.last_sent.get_or_insert(now);
                }
                self.part += 1;
                self.at = 0;
            }
        }
    }

    // ---- the end ----

    fn leave(&mut self, now: Time, leaving: Leaving, ledger: &Ledger) {
        ledger.note(now, || format!("{} leaves: {leaving:?}", self.name()));
        self.done = true;
        let Some(remote) = self.remote.take() else {
            return;
        };
        match leaving {
            Leaving::Reset => remote.reset(),
            Leaving::Close => remote.close(),
            Leaving::Fin => {
                remote.shutdown_write();
                self.remote = Some(remote);
                self.done = false;
                self.fin_sent = true;
            }
        }
    }

    fn end(&mut self, now: Time, ledger: &mut Ledger) {
        if self.done {
            return;
        }
        let everything = self.part == self.parts.len();
        let over = self.remote().available() == 0
            && (self.remote().at_end() || self.remote().is_broken())
            && !self.remote().is_connecting();
        let tunnel_open = matches!(self.reading, Reading::Tunnel { .. });
        // The other half of a tunnel goes on.
        let stops = matches!(self.plan.ending, Ending::Stop(_) | Ending::Leave(..));
        let half = tunnel_open && self.remote().is_open() && !self.fin_sent && !stops;
        if over && !half {
            let fin = self.remote().at_end();
            self.over(now, fin, ledger);
            return;
        }
        if now >= self.moved + PATIENCE {
            assert!(
                !ledger.plan.calm || self.will_send == 0,
                "{} waited for {PATIENCE:?} in vain",
                self.name()
            );
            self.done = true;
            return;
        }
        if self.fin_sent || !self.remote().is_open() {
            return;
        }
        match self.plan.ending {
            Ending::Leave(_, leaving) if self.sent >= self.will_send => {
                self.leave(now, leaving, ledger);
            }
            Ending::HalfClose if everything => self.leave(now, Leaving::Fin, ledger),
            _ if everything && tunnel_open => self.leave(now, Leaving::Fin, ledger),
            Ending::Clean | Ending::Leave(..) if self.answered == self.plan.requests.len() => {
                if matches!(self.reading, Reading::Head) {
                    self.leave(now, Leaving::Close, ledger);
                }
            }
            _ => {}
        }
    }

    /// The server has ended the connection.
    fn over(&mut self, now: Time, fin: bool, ledger: &mut Ledger) {
        ledger.note(now, || format!("{} sees the end, FIN {fin}", self.name()));
        self.done = true;
        if let (
            true,
            Reading::Body {
                body: Body::UntilClose,
                ..
            },
        ) = (fin, &self.reading)
        {
            self.complete(now, ledger);
        }
        match &self.reading {
            Reading::Tunnel { id, read } => {
                if fin && ledger.is_strict(*id) {
                    let whole = ledger.plan.requests[*id].tunnel.map(|(_, down)| down);
                    assert_eq!(whole, Some(*read), "tunnel {id} towards the client");
                }
            }
            Reading::End => {}
            Reading::Body { .. } => {
                ledger.tally.cut += 1;
                judge::cut(self.plan.requests[self.answered], ledger);
            }
            Reading::Head => match self.plan.requests.get(self.answered) {
                Some(&id) if ledger.entries[id].first_sent.is_some() => {
                    ledger.tally.none += 1;
                    if !self.owed_too_long(ledger) {
                        judge::unanswered(id, self.fin_sent, ledger);
                    }
                }
                _ => self.closed_idle(now, fin, ledger),
            },
        }
    }

    /// The server has closed a connection without a request.
    fn closed_idle(&self, now: Time, fin: bool, ledger: &Ledger) {
        if self.owed_too_long(ledger) {
            return;
        }
        let Some(since) = self.idle_since.filter(|_| fin && !self.fin_sent) else {
            return;
        };
        // Without a descriptor a connection is closed at once.
        let refused = ledger.plan.faults.accept_error > 0.0;
        if refused || matches!(ledger.plan.story, plan::Story::Drain(..)) {
            return;
        }
        let limit = if self.answered == 0 {
            setup::HEADER
        } else {
            setup::IDLE
        };
        let last = self.answered.checked_sub(1);
        let sent = last.and_then(|last| ledger.entries[self.plan.requests[last]].first_sent);
        let earliest = sent.unwrap_or(self.start) + limit;
        assert!(now >= earliest, "closed after less than {limit:?}");
        if ledger.plan.calm && self.plan.behaves() {
            let waited = now.since(since);
            let slack = Wheel::GRAIN + Duration::from_millis(2);
            assert!(
                waited + slack >= limit && waited <= limit + slack,
                "closed after {waited:?} instead of {limit:?}"
            );
        }
    }
}
