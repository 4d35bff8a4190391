//! What clients and upstreams know of each other's doings, and the trace.

use toron_reactor::Time;

use crate::plan::{Client, Fate, Plan, Story};

/// What became of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// When its first and its last byte was given to the client's socket.
    pub first_sent: Option<Time>,
    pub last_sent: Option<Time>,
    /// How often an upstream has seen it whole, and when last.
    pub seen: u32,
    pub seen_at: Option<Time>,
    /// How often an upstream has begun to see it, and when last.
    pub begun: u32,
    pub begun_at: Option<Time>,
    /// An upstream has sent the response (what is planned of it).
    pub replied: bool,
}

/// What became of a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub planned: u64,
    pub canned: u64,
    pub full: u64,
    pub cut: u64,
    pub none: u64,
    pub tunnels: u64,
    /// Turns after which some target was out, and on trial.
    pub out: u64,
    pub trial: u64,
    pub turns: u64,
}

/// See the module text.
#[derive(Debug)]
pub struct Ledger {
    pub plan: Plan,
    pub entries: Vec<Entry>,
    pub tally: Tally,
    /// Bytes may have been put on an idle connection that nobody asked for.
    pub strays: bool,
    /// When that was done last.
    pub strayed_at: Time,
    /// Some crossed a request and were taken for its response.
    pub crossed: bool,
    /// A route was full: what is planned behind such a request may not come about.
    pub refused: bool,
    traces: bool,
    begin: Time,
}

impl Ledger {
    pub fn new(plan: Plan, traces: bool, begin: Time) -> Ledger {
        Ledger {
            entries: vec![Entry::default(); plan.requests.len()],
            plan,
            tally: Tally::default(),
            strays: false,
            strayed_at: begin,
            crossed: false,
            refused: false,
            traces,
            begin,
        }
    }

    /// Nothing but the plan of this request can be the reason for what becomes of it.
    pub fn is_strict(&self, id: usize) -> bool {
        let mut clients = self.plan.clients.iter();
        let client = clients.find(|client| client.requests.contains(&id));
        !self.crossed
            && !self.refused
            && (self.plan.calm || (self.plan.harmless && !self.strays))
            && self.plan.story == Story::Whole
            && self.plan.buffers >= 256
            && self.plan.upstreams.iter().all(|u| u.receive.1.is_zero())
            && client.is_some_and(Client::behaves)
    }

    /// The close that cuts a later response may be a reset, which destroys what is on its way: the
    /// client had sent further requests that were not read.
    pub fn may_be_torn(&self, id: usize) -> bool {
        let severed =
            |later: &usize| matches!(self.plan.requests[*later].fate(), Fate::Cut | Fate::Open);
        let mut clients = self.plan.clients.iter().filter(|client| client.pipelined);
        clients.any(|client| {
            let behind = client.requests.iter().skip_while(|one| **one != id).skip(1);
            behind.into_iter().any(severed)
        })
    }

    /// One line of the trace.
    pub fn note(&self, now: Time, text: impl FnOnce() -> String) {
        if self.traces {
            let at = now.since(self.begin);
            eprintln!("{:>13.6} {}", at.as_secs_f64(), text());
        }
    }
}
