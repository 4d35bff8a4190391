//! The firewall at work: who may connect, what may be asked, and whose slowness is noted.

use std::net::IpAddr;

use toron_reactor::{Buf, Close, Context, Engine, Incoming};

use super::blame::{Blame, Told};
use super::ending::TOLD_TOTAL;
use super::lane::Lane;
use super::refuse::Refusal;
use super::session::{Session, Tag};
use super::{Kit, Server};
use crate::http::answer::{Answer, Rendering};
use crate::http::proxy_protocol::{self, ProxyHeader};
use crate::http::{Reason, RequestHead};
use crate::policy::firewall::{Admission, Cause, Client, Decision, Mode};
use crate::policy::limit;
use crate::policy::settings::Settings;
use crate::proxy::transaction::ClientEnd;

impl Server {
    /// A new connection: decided before a byte of it is read.
    pub(super) fn welcome<E: Engine>(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        let Incoming { fd, peer, listener } = incoming;
        let now = cx.now;
        self.core.cells.connections.add(1);
        let snapshot = self.core.pin();
        let settings = &snapshot.settings;
        let client = Client::peer(peer.ip(), &settings.trusted_proxies);
        let shared = &self.core.shared;
        let is_admin = shared.admin_listener.get() == Some(&listener);
        // Whoever has to deal with an attack must get in while it fills every place.
        let is_exempt = is_admin && !client.is_proxy && settings.admin.admits(client.address);
        let admission = if is_exempt {
            Admission::EXEMPT
        } else {
            shared.firewall.connect(&settings.firewall, client, now)
        };
        let refused = match admission.decision {
            Decision::Refuse(cause) => Some((cause, shared.flood.tell(now))),
            Decision::Admit | Decision::Observe(_) => None,
        };
        let mut kit = Kit {
            core: &mut self.core,
            cx,
        };
        kit.note(client.address, "connection", admission.decision);
        if let Some((cause, None)) = &refused {
            kit.turned_away(client.address, cause, 0);
            kit.cx.engine.close(fd, Close::Reset);
            return kit.cx.connection_ended();
        }
        let wheel = &mut *cx.wheel;
        let token = self.sessions.insert_with(|token| {
            let timer = wheel.insert(Lane::Deadline.key(token));
            let mut session = Session::new(token, fd, peer.ip(), timer, now);
            session.client = client;
            session.awaits_proxy_header = settings.proxy_protocol && client.is_proxy;
            session.account = admission.permit;
            session.is_admin = is_admin;
            session.is_exempt = is_exempt;
            session
        });
        self.core.sessions += 1;
        self.core.idle_sessions += 1;
        self.with_session(cx, token, |kit, session| match refused {
            None => kit.receive(session),
            Some((cause, told)) => {
                session.told = told;
                kit.turn_away(session, &cause);
            }
        });
    }
}

/// What is sent on a connection for which there is no descriptor; `explain` as in
/// `server.explain_header`.
#[must_use]
pub fn without_descriptor(explain: bool) -> Vec<u8> {
    let mut text = Vec::new();
    let rendering = Rendering {
        explain: explain.then_some(Reason::OutOfDescriptors),
        ..Rendering::CLOSE
    };
    Answer::ConnectionLimit.write(&rendering, &mut text);
    text
}

impl Server {
    /// A connection has been refused for want of a descriptor, with the answer that says so.
    pub(super) fn not_accepted<E: Engine>(&mut self, cx: &mut Context<'_, E>, peer: IpAddr) {
        self.core.cells.connections.add(1);
        let mut kit = Kit {
            core: &mut self.core,
            cx,
        };
        kit.core.asked.clear();
        let blame = Blame::from(Reason::OutOfDescriptors);
        let sent = without_descriptor(kit.core.snapshot.settings.explain_header);
        let told = Told {
            status: Answer::ConnectionLimit.status(),
            reason: Some(blame.reason),
            bytes: sent.len(),
            ..Told::default()
        };
        kit.note_refusal(peer.to_canonical(), &blame, told.status);
        kit.log_answer(peer.to_canonical(), None, &told);
    }
}

impl<E: Engine> Kit<'_, '_, E> {
    /// Tells a connection why it is refused: one send, then the short ending of those who are told.
    fn turn_away(&mut self, session: &mut Session, cause: &Cause) {
        // Nobody waits for a buffer to be refused with.
        let client = session.client.address;
        self.core.scratch.clear();
        let Some(mut buf) = self.cx.engine.buffers().take() else {
            self.turned_away(client, cause, 0);
            return self.close(session, Close::Reset);
        };
        let answer = cause.answer();
        let rendering = Rendering {
            date: &self.core.date(self.cx.now),
            explain: self
                .core
                .snapshot
                .settings
                .explain_header
                .then_some(cause.reason),
            ..Rendering::CLOSE
        };
        answer.write(&rendering, &mut self.core.scratch);
        buf.extend(&self.core.scratch);
        self.turned_away(client, cause, answer.status());
        session.begin_answer(ClientEnd::Linger, TOLD_TOTAL, self.now());
        self.send(session, buf, Tag::Answer);
    }

    /// Notes that a connection was refused; the answer is in the scratch buffer, if it got one.
    fn turned_away(&mut self, client: IpAddr, cause: &Cause, status: u16) {
        self.core.asked.clear();
        let blame = Blame::from(cause);
        self.note_refusal(client, &blame, status);
        let told = Told {
            status,
            reason: Some(blame.reason),
            bytes: match status {
                0 => 0,
                _ => self.core.scratch.len(),
            },
            ..Told::default()
        };
        self.log_answer(client, None, &told);
    }

    /// Bytes have come from a trusted proxy that has to say first for whom the connection is (F4).
    /// One that does not is refused: to guess would be to believe.
    pub(super) fn proxy_header_received(&mut self, session: &mut Session, mut input: Buf) {
        match proxy_protocol::parse(&input) {
            ProxyHeader::Incomplete if session.eof => self.close(session, Close::Orderly),
            ProxyHeader::Incomplete => self.await_more(session, input),
            ProxyHeader::Invalid(reason) => {
                session.input = Some(input);
                self.refuse(session, Refusal::unread(reason));
            }
            ProxyHeader::Complete { len, source } => {
                session.awaits_proxy_header = false;
                if let Some(source) = source {
                    session.peer = source.ip();
                }
                input.consume(len);
                session.input = Some(input);
                // As on a connection that has just been opened.
                self.next_head(session);
            }
        }
    }

    /// What the firewall answers to the present request, if it does not let it in. One that has
    /// waited for a buffer has paid already.
    pub(super) fn ask_firewall(
        &mut self,
        session: &mut Session,
        settings: &Settings,
    ) -> Option<Cause> {
        if session.admitted || session.is_exempt {
            return None;
        }
        let now = self.now();
        let permit = session.account.as_mut();
        let firewall = &self.core.shared.firewall;
        let decision = firewall.request(&settings.firewall, session.client, permit, now);
        self.note(session.client.address, "request", decision);
        session.admitted = decision.admits();
        if !session.client.is_proxy {
            self.core.cells.count_violation(&decision);
        }
        match decision {
            Decision::Refuse(cause) => Some(cause),
            Decision::Admit | Decision::Observe(_) => None,
        }
    }

    /// The client of the present request was cut for slowness (F5).
    pub(super) fn note_slowness(&mut self, session: &mut Session) {
        if session.is_exempt {
            return;
        }
        let rules = &self.core.snapshot.settings.firewall;
        let (firewall, now) = (&self.core.shared.firewall, self.now());
        let exempt = session.client.is_proxy || rules.allow.contains(session.client.address);
        if rules.enabled && !exempt {
            self.core.cells.slowness_violations.add(1);
        }
        let blocked = firewall.violate(rules, session.client, session.account.as_mut(), now);
        if let Some(cause) = blocked {
            self.core.cells.slowness_blocks.add(1);
            let client = session.client.address;
            let would = match rules.mode {
                Mode::Enforce => "",
                Mode::Observe => "would be ",
            };
            tell_block(client, would, &cause, "slowness");
        }
    }

    /// Counts a decision and, once a second at most, says what it was. Each block is told.
    fn note(&mut self, client: IpAddr, what: &str, decision: Decision) {
        let (cause, would) = match decision {
            Decision::Admit => return,
            Decision::Refuse(cause) => {
                self.core.refused += 1;
                (cause, "")
            }
            Decision::Observe(cause) => {
                self.core.observed += 1;
                (cause, "would be ")
            }
        };
        if cause.reason == Reason::AutoBlocked {
            return tell_block(client, would, &cause, "its rate");
        }
        let Some(left_out) = self.core.firewall_gate.pass(self.cx.now) else {
            return;
        };
        let settings = &self.core.snapshot.settings;
        let code = cause.reason.code();
        let why = why(&cause, settings);
        log::info!("{client}: {what} {would}refused: {code} ({why}){left_out}");
    }
}

/// What was seen and what would have been allowed.
fn why(cause: &Cause, settings: &Settings) -> String {
    let Cause {
        observed, limit, ..
    } = cause;
    let setting = limit::of(cause.reason, settings, None).map_or("", |limit| limit.setting);
    match cause.reason {
        Reason::Denied => format!("firewall.{setting}"),
        Reason::Blocked => format!("for {limit}s, {observed}s ago"),
        Reason::RateLimit => format!("{observed} in a second, firewall.{setting} is {limit}"),
        _ => format!("this would be number {observed}, firewall.{setting} is {limit}"),
    }
}

/// An operator who looks for the begin of a block must find it, whatever else is refused.
fn tell_block(client: IpAddr, would: &str, cause: &Cause, last_for: &str) {
    let length = cause.retry_after.unwrap_or_default();
    let observed = cause.observed;
    log::info!(
        "{client}: {would}blocked for {length}s after {observed} violations, the last for {last_for} \
         (firewall.auto_block_threshold is {})",
        cause.limit
    );
}

/// Who sent `request` on a connection from `peer` (F4).
pub(super) fn client_of(
    peer: IpAddr,
    settings: &Settings,
    request: &RequestHead<'_, '_>,
) -> Client {
    let name = settings.client_ip_header.as_str();
    let lines = request.fields();
    let lines = lines.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    let proxies = &settings.trusted_proxies;
    Client::peer(peer, proxies).behind(proxies, name, lines.map(|(_, value)| value))
}
