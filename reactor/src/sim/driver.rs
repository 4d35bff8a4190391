//! A reactor's loop for simulations: one service on one engine.

use std::io;
use std::time::Duration;

use crate::engine::{Engine, Event, Fd, Key, Op, OpId, Outcome};
use crate::service::{Context, Incoming, Service};
use crate::slab::Token;
use crate::time::Time;
use crate::wheel::Wheel;

/// The token of the driver's own operations; a service's slab never gets that far.
const OWN: u32 = u32::MAX;
/// How long a listener rests after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs a [`Service`] on an engine, one turn at a time. The fields are open, for scripts that look
/// into the service.
#[derive(Debug)]
pub struct Driver<E, S> {
    /// The engine.
    pub engine: E,
    /// The deadlines.
    pub wheel: Wheel,
    /// The service.
    pub service: S,
    /// Connections given to the service and not reported as ended.
    pub connections: usize,
    listeners: Vec<Listener>,
    events: Vec<Event>,
    due: Vec<Key>,
}

#[derive(Debug)]
struct Listener {
    fd: Fd,
    accept: Option<OpId>,
    retry: Option<Time>,
    closed: bool,
}

impl<E: Engine, S: Service<E>> Driver<E, S> {
    /// Accepts on `listeners` from the first turn on.
    pub fn new(mut engine: E, service: S, listeners: &[Fd]) -> Self {
        let wheel = Wheel::new(engine.now());
        let listeners = listeners
            .iter()
            .enumerate()
            .map(|(i, fd)| {
                let accept = Some(engine.submit(accept_key(i), Op::Accept { listener: *fd }));
                Listener {
                    fd: *fd,
                    accept,
                    retry: None,
                    closed: false,
                }
            })
            .collect();
        let (events, due) = (Vec::new(), Vec::new());
        Driver {
            engine,
            wheel,
            service,
            connections: 0,
            listeners,
            events,
            due,
        }
    }

    /// Calls into the service from outside, as a message from another thread would.
    pub fn with<T>(&mut self, f: impl FnOnce(&mut S, &mut Context<'_, E>) -> T) -> T {
        let mut ended = 0;
        let now = self.engine.now();
        let mut cx = Context {
            engine: &mut self.engine,
            wheel: &mut self.wheel,
            now,
            ended: &mut ended,
        };
        let result = f(&mut self.service, &mut cx);
        assert!(
            ended <= self.connections,
            "more connections ended than began"
        );
        self.connections -= ended;
        result
    }

    /// One turn: waits until something happens, at most until `until` or the next deadline, and
    /// lets the service handle it. `true` if there was anything to handle.
    ///
    /// # Errors
    /// The engine's.
    pub fn turn(&mut self, until: Option<Time>) -> io::Result<bool> {
        let retry = self
            .listeners
            .iter()
            .filter_map(|listener| listener.retry)
            .min();
        let until = [until, retry, self.wheel.next_wakeup()]
            .into_iter()
            .flatten()
            .min();
        let mut events = std::mem::take(&mut self.events);
        self.engine.turn(until, &mut events)?;
        let mut due = std::mem::take(&mut self.due);
        let mut handled = !events.is_empty();
        for event in events.drain(..) {
            if event.key.token.index == OWN {
                self.accepted(&event);
            } else {
                self.with(|service, cx| service.event(cx, event));
            }
        }
        self.wheel.advance(self.engine.now(), &mut due);
        handled |= !due.is_empty();
        for key in due.drain(..) {
            self.with(|service, cx| service.deadline(cx, key));
        }
        self.retry_accepts();
        if handled {
            self.with(S::turn_ended);
        }
        self.events = events;
        self.due = due;
        Ok(handled)
    }

    fn accepted(&mut self, event: &Event) {
        let index = event.key.token.generation;
        let now = self.engine.now();
        if let Some(listener) = self.listeners.get_mut(index as usize) {
            if !event.more {
                listener.accept = None;
            }
            if matches!(event.outcome, Outcome::Failed { .. }) && !listener.closed {
                listener.retry = Some(now + ACCEPT_PAUSE);
            }
        }
        if let Outcome::Accepted { fd, peer } = event.outcome {
            self.connections += 1;
            let incoming = Incoming {
                fd,
                peer,
                listener: index,
            };
            self.with(|service, cx| service.incoming(cx, incoming));
        }
    }

    fn retry_accepts(&mut self) {
        let now = self.engine.now();
        for (i, listener) in self.listeners.iter_mut().enumerate() {
            if listener.retry.is_some_and(|at| at <= now) {
                listener.retry = None;
                let op = Op::Accept {
                    listener: listener.fd,
                };
                listener.accept = Some(self.engine.submit(accept_key(i), op));
            }
        }
    }

    /// Closes the listeners and tells the service to finish within `grace`.
    pub fn drain(&mut self, grace: Duration) {
        for listener in &mut self.listeners {
            if !std::mem::replace(&mut listener.closed, true) {
                listener.retry = None;
                self.engine
                    .close(listener.fd, crate::engine::Close::Orderly);
            }
        }
        self.with(|service, cx| service.drain(cx, grace));
    }
}

fn accept_key(listener: usize) -> Key {
    Key {
        token: Token {
            index: OWN,
            generation: listener as u32,
        },
        lane: u8::MAX,
    }
}
