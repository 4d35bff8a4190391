//! One thread's share of a load, as a service of a reactor.
//!
//! ```text
//!  pace.rs      when a start is due ─▶ a free connection   (slices, the end)
//!  dial.rs      connect, lose, connect again
//!  exchange.rs  write requests, read responses, tell the record
//! ```
//!
//! Open loop: a start that is due while no connection is free waits, in order; its latency counts
//! from when it was due. That is the difference to a closed loop, which asks later when answers
//! come later, and so leaves out just the requests that would have waited (coordinated omission).
//!
//! The schedule itself is the queue of starts that wait, so a target that hangs costs no memory.

mod connection;
mod dial;
mod exchange;
mod pace;
#[cfg(test)]
mod simulated_tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use toron_reactor::{
    sys, Close, Context, Engine, Event, Incoming, Key, Outcome, Service, Slab, Time, Token,
};

use self::connection::{Connection, Lane, Phase};
use self::pace::Clock;
use super::plan::{Load, Plan};
use super::profile::Schedule;
use super::record::{histogram, record, Part, Record};
use super::usage::ThreadTime;

/// What a generator tells.
#[derive(Debug)]
pub enum Report {
    /// Every connection has been tried.
    Ready {
        /// How many stand.
        open: usize,
    },
    /// The warm-up is over.
    Began,
    /// What was measured in a slice of time.
    Slice {
        /// Its number, from the beginning of the measured time.
        index: u32,
        /// What was measured.
        record: Box<Record>,
    },
    /// The end.
    Done(Box<Final>),
}

/// What is told once, at the end.
#[derive(Debug, Default)]
pub struct Final {
    /// By stage of the profile.
    pub stages: Vec<Part>,
    /// By kind of request, if there are several.
    pub requests: Vec<Part>,
    /// Time spent on the events of one turn.
    pub busy: Option<hdrhistogram::Histogram<u64>>,
    /// Processor time of the thread over the measured time.
    pub time: Option<ThreadTime>,
    /// The measured time as it was.
    pub elapsed: Duration,
    /// Requests under way when the run was interrupted.
    pub unfinished: u64,
}

/// What a generator can be told.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// Begin (with the warm-up) at this time.
    Begin(Time),
    /// End now, and tell what was measured.
    Stop,
}

/// See the module text.
#[derive(Debug)]
pub struct Generator {
    core: Core,
    connections: Slab<Connection>,
}

/// Everything but the connections.
#[derive(Debug)]
struct Core {
    plan: Arc<Plan>,
    reports: Sender<Report>,
    random: fastrand::Rng,
    /// Connections with room for a request, one entry for each request; stale entries are skipped.
    free: VecDeque<Token>,
    /// Starts to come (open loop).
    schedule: Option<Schedule>,
    /// The next of them.
    next: Option<(Duration, usize)>,
    clock: Option<Clock>,
    /// A start waits for a connection.
    blocked: bool,
    /// Since when one is free again.
    unblocked: Time,
    /// What is measured in this slice.
    record: Box<Record>,
    last: Final,
    busy: hdrhistogram::Histogram<u64>,
    /// Connections that have not been tried yet.
    untried: usize,
    /// Connections that stand.
    open: usize,
    /// Requests under way.
    under_way: usize,
    /// To be made at the end of the handler: how long to wait first, and how long the next time.
    remake: Option<(Duration, Duration)>,
    /// The first turn, in which the connections are made, has been.
    born: bool,
    done: bool,
}

/// A handler's view: the reactor, and everything but the connection at hand.
struct Kit<'k, 'c, E: Engine> {
    core: &'k mut Core,
    cx: &'k mut Context<'c, E>,
}

impl Generator {
    /// Thread `index` of a plan. It connects at once, and waits for [`Command::Begin`].
    #[must_use]
    pub fn new(plan: Arc<Plan>, index: usize, reports: Sender<Report>) -> Generator {
        let (schedule, stages) = match &plan.load {
            Load::Open { profile, arrivals } => {
                let warmed = profile.warmed_up(plan.warmup);
                let place = (index, plan.threads);
                let schedule = Schedule::new(&warmed, *arrivals, place, plan.seed);
                (Some(schedule), profile.stages().len())
            }
            Load::Closed { .. } => (None, 1),
        };
        let kinds = match plan.requests.len() {
            1 => 0,
            n => n,
        };
        let mut core = Core {
            reports,
            random: fastrand::Rng::with_seed(plan.seed ^ index as u64),
            free: VecDeque::new(),
            schedule,
            next: None,
            clock: None,
            blocked: false,
            unblocked: Time(0),
            record: Box::default(),
            last: Final {
                stages: vec![Part::default(); stages],
                requests: vec![Part::default(); kinds],
                ..Final::default()
            },
            busy: histogram(),
            untried: plan.connections_of(index),
            open: 0,
            under_way: 0,
            remake: None,
            born: false,
            done: false,
            plan,
        };
        core.advance();
        Generator {
            core,
            connections: Slab::new(),
        }
    }

    /// Everything has been told.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.core.done
    }

    fn with<E: Engine>(
        &mut self,
        cx: &mut Context<'_, E>,
        token: Token,
        handle: impl FnOnce(&mut Kit<'_, '_, E>, &mut Connection),
    ) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let mut kit = Kit {
            core: &mut self.core,
            cx,
        };
        handle(&mut kit, connection);
        if connection.phase == Phase::Gone {
            self.connections.remove(token);
        } else {
            kit.arm(connection);
        }
        if let Some((wait, next)) = self.core.remake.take() {
            self.make(cx, wait, next);
        }
    }

    /// A connection that is tried after `wait`.
    fn make<E: Engine>(&mut self, cx: &mut Context<'_, E>, wait: Duration, next: Duration) {
        let (wheel, until) = (&mut *cx.wheel, cx.now + wait);
        let token = self.connections.insert_with(|token| {
            let timer = wheel.insert(Lane::Deadline.key(token));
            Connection::new(token, timer, until)
        });
        self.with(cx, token, |kit, connection| {
            connection.wait = next;
            if wait.is_zero() {
                kit.dial(connection);
            }
        });
    }

    /// Makes all connections.
    fn make_all<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        self.core.born = true;
        if self.core.untried == 0 {
            self.core.tell_ready();
        }
        for _ in 0..self.core.untried {
            self.make(cx, Duration::ZERO, connection::FIRST_WAIT);
        }
    }

    /// Closes everything and tells what was measured.
    fn end<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        for token in self.connections.tokens() {
            if let Some(connection) = self.connections.remove(token) {
                cx.wheel.remove(connection.timer);
                if let Some(fd) = connection.fd {
                    cx.engine.close(fd, Close::Orderly);
                }
            }
        }
        self.core.finish(cx.now);
    }
}

impl<E: Engine> Service<E> for Generator {
    type Message = Command;

    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        // There is no listener.
        cx.engine.close(incoming.fd, Close::Orderly);
        cx.connection_ended();
    }

    fn event(&mut self, cx: &mut Context<'_, E>, event: Event) {
        let Some(lane) = Lane::of(event.key) else {
            return;
        };
        let (token, more) = (event.key.token, event.more);
        let outcome = event.outcome;
        self.with(cx, token, |kit, connection| match lane {
            Lane::Connect => kit.dialled(connection, &outcome),
            Lane::Recv => kit.received(connection, outcome, more),
            Lane::Send => kit.sent(connection, outcome),
            Lane::Buffer => {
                connection.awaits_buffer = false;
                if let Outcome::Buffer(buf) = outcome {
                    kit.write_into(connection, buf);
                }
            }
            Lane::Deadline => {}
        });
    }

    fn deadline(&mut self, cx: &mut Context<'_, E>, key: Key) {
        self.with(cx, key.token, |kit, connection| {
            kit.deadline(connection);
        });
    }

    fn message(&mut self, cx: &mut Context<'_, E>, message: Command) {
        match message {
            Command::Begin(at) => self.core.clock = Some(Clock::new(&self.core.plan, at)),
            Command::Stop if !self.core.done => self.end(cx),
            Command::Stop => {}
        }
    }

    fn next_moment(&self) -> Option<Time> {
        self.core.next_moment()
    }

    fn moment(&mut self, cx: &mut Context<'_, E>) {
        if !self.core.born {
            self.make_all(cx);
        }
        self.core.mark(cx.now);
        while let Some((token, start)) = self.core.due(cx.now) {
            let Some(token) = token else { continue };
            self.with(cx, token, |kit, connection| kit.begin(connection, start));
        }
        if self.core.is_over(cx.now) {
            self.end(cx);
        }
    }

    fn turn_ended(&mut self, cx: &mut Context<'_, E>) {
        if self.core.is_measuring() {
            record(&mut self.core.busy, sys::monotonic().since(cx.now));
        }
    }

    fn drain(&mut self, _cx: &mut Context<'_, E>, _grace: Duration) {}

    fn is_finished(&self) -> bool {
        self.core.done
    }
}
