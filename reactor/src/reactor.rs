//! One reactor: a loop that turns an engine and hands what it brings to a service.
//!
//! Nothing here knows threads or a real clock, so a simulator can drive it by [`Reactor::step`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::acceptor::{Acceptor, LogGate};
use crate::engine::{Engine, Event, Fd, Key, Outcome};
use crate::mailbox::{Address, Mail, Mailbox};
use crate::placement::Placement;
use crate::planted::{self, Bug};
use crate::service::{Context, Incoming, Service};
use crate::stats::ReactorStats;
use crate::time::Time;
use crate::wheel::Wheel;

/// Pieces of mail read per turn.
const MAIL_PER_TURN: usize = 64;

/// After a service's grace has passed it gets this long to end by itself; then the reactor ends
/// with whatever is open.
const AFTER_GRACE: Duration = Duration::from_secs(1);

/// A reactor's place among others: whom it may give connections to.
pub(crate) struct Seat<M> {
    pub(crate) index: usize,
    pub(crate) placement: Arc<Placement>,
    pub(crate) others: Arc<[Address<M>]>,
}

/// See the module text.
pub struct Reactor<E, S: Service<E>>
where
    E: Engine,
{
    // Before the engine, so that buffers and pipes it holds are gone when that is dropped.
    service: S,
    engine: E,
    wheel: Wheel,
    mailbox: Mailbox<S::Message>,
    acceptor: Acceptor,
    seat: Option<Seat<S::Message>>,
    events: Vec<Event>,
    due: Vec<Key>,
    /// Connections the service reported as ended in this turn.
    ended: usize,
    /// Connections given to the service and not ended.
    connections: usize,
    draining: Option<Drain>,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    grace: Duration,
    /// When the service has been told: the last moment for it to end.
    last_moment: Option<Time>,
}

impl<E: Engine, S: Service<E>> Reactor<E, S> {
    /// A reactor that serves the connections of its own listeners.
    pub fn new(engine: E, service: S, mailbox: Mailbox<S::Message>) -> Self {
        Self::seated(
            engine,
            service,
            mailbox,
            Arc::from([]),
            LogGate::default(),
            None,
        )
    }

    pub(crate) fn seated(
        engine: E,
        service: S,
        mailbox: Mailbox<S::Message>,
        refusal: Arc<[u8]>,
        log: LogGate,
        seat: Option<Seat<S::Message>>,
    ) -> Self {
        mailbox.wake_by(engine.waker());
        Reactor {
            service,
            wheel: Wheel::new(engine.now()),
            engine,
            mailbox,
            acceptor: Acceptor::new(refusal, log),
            seat,
            events: Vec::new(),
            due: Vec::new(),
            ended: 0,
            connections: 0,
            draining: None,
        }
    }

    /// Starts accepting on a listening socket, which the reactor owns from now on. Connections
    /// carry the number of calls before this one as [`Incoming::listener`].
    pub fn listen(&mut self, listener: Fd) -> io::Result<()> {
        self.engine.adopt(listener)?;
        self.acceptor.listen(&mut self.engine, listener);
        Ok(())
    }

    /// Stops accepting (what is queued is still taken), has the service finish what is in flight
    /// within `grace`, and then ends: [`Reactor::step`] returns `true`.
    pub fn drain(&mut self, grace: Duration) {
        if self.draining.is_none() {
            self.draining = Some(Drain {
                grace,
                last_moment: None,
            });
            self.acceptor.drain();
        }
    }

    /// Steps until the reactor has ended.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.step(None)? {}
        Ok(())
    }

    /// One turn: waits until something happens, at most until `until`, and handles it. `true` when
    /// the reactor has ended.
    pub fn step(&mut self, until: Option<Time>) -> io::Result<bool> {
        let until = self.wait_until(until);
        let mut events = std::mem::take(&mut self.events);
        self.engine.turn(until, &mut events)?;
        let mut handled = !events.is_empty();
        for event in events.drain(..) {
            self.handle_event(event);
        }
        self.events = events;
        handled |= self.read_mail();
        handled |= self.meet_deadlines();
        handled |= self.meet_moment();
        if handled {
            self.with_service(S::turn_ended);
        }
        if self.acceptor.turn_ended(&mut self.engine, &mut self.wheel) {
            self.tell_service_to_drain();
        }
        self.settle();
        Ok(self.has_ended())
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, to be set up (or, in the simulator, interfered with) between steps.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// What the reactor holds.
    pub fn stats(&self) -> ReactorStats {
        ReactorStats {
            running: true,
            engine: self.engine.stats(),
            connections: self.connections,
            accepted: self.acceptor.accepted(),
            timers: self.wheel.len(),
            buffers_peak: self.engine.buffers().peak(),
            buffers_limit: self.engine.buffers().limit(),
        }
    }

    fn wait_until(&self, until: Option<Time>) -> Option<Time> {
        if self.acceptor.is_hurried() || !self.mailbox.is_empty() {
            return Some(self.engine.now());
        }
        if self.awaits_connection() {
            // Nobody tells it if none comes.
            return Some(self.engine.now() + Duration::from_millis(1));
        }
        let last_moment = self.draining.and_then(|d| d.last_moment);
        let moment = self.service.next_moment();
        [until, self.wheel.next_wakeup(), last_moment, moment]
            .into_iter()
            .flatten()
            .min()
    }

    fn with_service<R>(&mut self, f: impl FnOnce(&mut S, &mut Context<'_, E>) -> R) -> R {
        let now = self.engine.now();
        let mut cx = Context {
            engine: &mut self.engine,
            wheel: &mut self.wheel,
            now,
            ended: &mut self.ended,
        };
        f(&mut self.service, &mut cx)
    }

    fn handle_event(&mut self, event: Event) {
        if !Acceptor::owns(event.key) {
            return self.with_service(|service, cx| service.event(cx, event));
        }
        let errno = match event.outcome {
            Outcome::Accepted { .. }
                if planted::active(Bug::AcceptAfterCancelLeaked) && self.acceptor.is_stopping() =>
            {
                None
            }
            Outcome::Accepted { fd, peer } => {
                let listener = self.acceptor.connection(event.key);
                self.place(Incoming { fd, peer, listener });
                None
            }
            Outcome::Failed { errno, .. } => Some(errno),
            _ => None,
        };
        if !event.more {
            let (acceptor, engine) = (&mut self.acceptor, &mut self.engine);
            for peer in acceptor.accept_ended(engine, &mut self.wheel, event.key, errno) {
                self.with_service(|service, cx| service.refused(cx, peer));
            }
        }
    }

    /// Serves a connection or gives it to another reactor.
    fn place(&mut self, incoming: Incoming) {
        if let Some(seat) = &self.seat {
            let mut target = seat.placement.place(seat.index);
            if target != seat.index && seat.placement.keeps_what_it_accepts() {
                seat.placement.ended(target, 1);
                seat.placement.count(seat.index);
                target = seat.index;
            }
            if target != seat.index {
                self.engine.release(incoming.fd);
                let given = seat
                    .others
                    .get(target)
                    .map(|a| a.post(Mail::Connection(incoming)));
                if matches!(given, Some(Ok(()))) {
                    return;
                }
                // It has ended meanwhile; this one has not.
                seat.placement.ended(target, 1);
                seat.placement.gone(target);
                seat.placement.count(seat.index);
                if self.engine.adopt(incoming.fd).is_err() {
                    self.ended += 1;
                    self.connections += 1;
                    // The engine does not have it.
                    return crate::sys::close(incoming.fd);
                }
            }
        }
        self.serve(incoming);
    }

    fn serve(&mut self, incoming: Incoming) {
        self.connections += 1;
        self.with_service(|service, cx| service.incoming(cx, incoming));
    }

    /// A connection that another reactor gave to this one, and counted here.
    pub(crate) fn take_over(&mut self, incoming: Incoming) {
        match self.engine.adopt(incoming.fd) {
            Ok(()) => self.serve(incoming),
            Err(error) => {
                log::error!("cannot take over a connection: {error}");
                crate::sys::close(incoming.fd);
                if let Some(seat) = &self.seat {
                    seat.placement.ended(seat.index, 1);
                }
            }
        }
    }

    fn read_mail(&mut self) -> bool {
        let mut any = false;
        for _ in 0..MAIL_PER_TURN {
            let Some(mail) = self.mailbox.take() else {
                break;
            };
            any = true;
            self.handle_mail(mail);
        }
        any
    }

    pub(crate) fn handle_mail(&mut self, mail: Mail<S::Message>) {
        match mail {
            Mail::Message(message) => self.with_service(|service, cx| service.message(cx, message)),
            Mail::Connection(incoming) => self.take_over(incoming),
            Mail::Drain(grace) => self.drain(grace),
            Mail::Stats(answer) => {
                self.settle();
                // Whoever asked may have given up waiting.
                let _ = answer.send(self.stats());
            }
        }
    }

    fn meet_deadlines(&mut self) -> bool {
        let now = self.engine.now();
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(now, &mut due);
        let any = !due.is_empty();
        for key in due.drain(..) {
            if Acceptor::owns(key) {
                self.acceptor.deadline(&mut self.engine);
            } else {
                self.with_service(|service, cx| service.deadline(cx, key));
            }
        }
        self.due = due;
        any
    }

    fn meet_moment(&mut self) -> bool {
        let now = self.engine.now();
        let due = self.service.next_moment().is_some_and(|at| at <= now);
        if due {
            self.with_service(S::moment);
        }
        due
    }

    fn tell_service_to_drain(&mut self) {
        let Some(Drain { grace, .. }) = self.draining else {
            return;
        };
        let last_moment = Some(self.engine.now() + grace + AFTER_GRACE);
        self.draining = Some(Drain { grace, last_moment });
        self.with_service(|service, cx| service.drain(cx, grace));
    }

    /// Passes on how many connections have ended.
    fn settle(&mut self) {
        let ended = std::mem::take(&mut self.ended);
        self.connections = self.connections.saturating_sub(ended);
        if let Some(seat) = &self.seat {
            seat.placement.ended(seat.index, ended);
        }
    }

    /// While the pool ends: another reactor is about to give it a connection, or to think better of
    /// it.
    fn awaits_connection(&self) -> bool {
        let counted = |seat: &Seat<S::Message>| seat.placement.load(seat.index);
        let counted = self.seat.as_ref().map_or(0, counted);
        self.draining.is_some() && counted > self.connections
    }

    fn has_ended(&self) -> bool {
        let Some(Drain {
            last_moment: Some(last_moment),
            ..
        }) = self.draining
        else {
            return false;
        };
        let is_done = self.service.is_finished() && self.mailbox.is_empty();
        (is_done && !self.awaits_connection()) || self.engine.now() >= last_moment
    }
}
