//! Hostile clients beside a normal load, to see what the normal load feels of them.
//!
//! They run on a reactor of their own, so that the generator of the normal load is not delayed by
//! them more than by any other process.

mod attacker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{unbounded, Receiver};
use serde_json::{json, Value};
use toron_reactor::{
    mailbox, Address, Chosen, EngineConfig, EpollEngine, Mailbox, NativeEngine, Reactor,
    UringEngine,
};

use self::attacker::Attacker;
use super::run::run_to_end;
use super::url::Url;
use crate::control::config::hint::allowed;

/// Buffers beyond one for each connection.
const SPARE_BUFFERS: usize = 64;

/// How the clients misbehave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A head that grows by a field now and then, and never ends.
    Slowloris,
    /// A body that comes a byte at a time (R-U-Dead-Yet).
    Rudy,
    /// Asks, and then hardly reads.
    SlowRead,
    /// A head without end, as fast as it is taken.
    HeaderFlood,
    /// Connects, asks once, closes, and so on.
    Churn,
    /// Connects, asks, and resets the connection at once, and so on.
    Abort,
}

impl Kind {
    /// Names on the command line.
    pub const ALL: [(&'static str, Kind); 6] = [
        ("slowloris", Kind::Slowloris),
        ("rudy", Kind::Rudy),
        ("slow-read", Kind::SlowRead),
        ("header-flood", Kind::HeaderFlood),
        ("churn", Kind::Churn),
        ("abort", Kind::Abort),
    ];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Kind::ALL.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }

    /// Connections unless given: many for those that hold them, few for those that are busy.
    fn usual_connections(self) -> usize {
        match self {
            Kind::Slowloris | Kind::Rudy | Kind::SlowRead => 200,
            Kind::HeaderFlood | Kind::Churn | Kind::Abort => 10,
        }
    }
}

/// An attack as it stands on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttackSpec {
    /// How the clients misbehave.
    pub kind: Kind,
    /// How many there are at a time.
    pub connections: usize,
}

impl AttackSpec {
    /// Reads `NAME` or `NAME=CONNECTIONS`. The error is for people.
    pub fn parse(text: &str) -> Result<AttackSpec, String> {
        let (name, number) = match text.split_once('=') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let Some((_, kind)) = Kind::ALL.iter().find(|(known, _)| *known == name) else {
            let names = Kind::ALL.map(|(name, _)| name);
            return Err(format!(
                "unknown attack \"{name}\" {}",
                allowed(name, &names)
            ));
        };
        let connections = match number.map(str::parse) {
            None => kind.usual_connections(),
            Some(Ok(n)) if n > 0 => n,
            Some(_) => return Err(format!("bad number of connections in \"{text}\"")),
        };
        Ok(AttackSpec {
            kind: *kind,
            connections,
        })
    }
}

/// What the attackers need to know.
#[derive(Clone, Debug)]
pub struct AttackPlan {
    /// See [`AttackSpec`].
    pub spec: AttackSpec,
    /// Where to connect.
    pub addr: SocketAddr,
    /// What they ask for.
    pub url: Url,
    /// Time between two steps of the slow ones.
    pub interval: Duration,
}

/// What the attackers met with.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct AttackStats {
    /// Connections that stood.
    pub connected: u64,
    /// Connects that failed.
    pub not_connected: u64,
    /// Connections that the target closed or reset.
    pub closed_by_target: u64,
    /// Answers 1xx and 2xx, 3xx, 4xx, 5xx.
    pub answers: [u64; 4],
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Connections open at the end.
    pub open: u64,
    /// Time that connections were open which the target closed, in milliseconds, added up.
    pub held_ms: u64,
}

impl AttackStats {
    /// Mean time after which the target closed a connection.
    #[must_use]
    pub fn mean_held(&self) -> Option<Duration> {
        let mean = self.held_ms.checked_div(self.closed_by_target)?;
        Some(Duration::from_millis(mean))
    }

    /// For the JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let [ok, redirects, refusals, failures] = self.answers;
        json!({
            "connected": self.connected,
            "not_connected": self.not_connected,
            "closed_by_target": self.closed_by_target,
            "mean_ms_until_closed": self.mean_held().map(|t| t.as_secs_f64() * 1e3),
            "answers": { "2xx": ok, "3xx": redirects, "4xx": refusals, "5xx": failures },
            "bytes": { "sent": self.sent, "received": self.received },
            "open_at_end": self.open,
        })
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let [ok, redirects, refusals, failures] = self.answers;
        let held = self
            .mean_held()
            .map_or(String::new(), |t| format!(" after {t:?} on average"));
        format!(
            "{} connected, {} could not; the target closed {}{held}; answers {ok} 2xx, {redirects} 3xx, \
             {refusals} 4xx, {failures} 5xx; {} open at the end",
            self.connected, self.not_connected, self.closed_by_target, self.open
        )
    }
}

/// An attack under way.
#[derive(Debug)]
pub struct Attack {
    address: Address<()>,
    stats: Receiver<AttackStats>,
    thread: JoinHandle<io::Result<()>>,
}

impl Attack {
    /// Begins it. Fails if there is no thread.
    pub fn start(plan: AttackPlan, engine: Chosen) -> io::Result<Attack> {
        let (address, mailbox) = mailbox();
        let (sender, stats) = unbounded();
        let attacker = Attacker::new(Arc::new(plan), sender);
        let body = move || match engine {
            Chosen::IoUring => attack::<UringEngine>(attacker, mailbox),
            Chosen::Epoll => attack::<EpollEngine>(attacker, mailbox),
        };
        let thread = thread::Builder::new()
            .name("attack".to_owned())
            .spawn(body)?;
        Ok(Attack {
            address,
            stats,
            thread,
        })
    }

    /// Ends it, and says what the attackers met with.
    pub fn stop(self) -> io::Result<AttackStats> {
        // One that has ended by a failure says so below.
        let _ = self.address.send(());
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the attack panicked")))?;
        self.stats.recv().map_err(io::Error::other)
    }
}

fn attack<E: NativeEngine>(attacker: Attacker, mailbox: Mailbox<()>) -> io::Result<()> {
    let config = EngineConfig {
        buffers: attacker.connections() + SPARE_BUFFERS,
        ..EngineConfig::default()
    };
    let reactor = Reactor::<E, Attacker>::new(E::open(&config)?, attacker, mailbox);
    run_to_end(reactor, Attacker::is_done)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn attacks_are_read() {
        let spec = AttackSpec::parse("slow-read=7").unwrap();
        assert_eq!((spec.kind, spec.connections), (Kind::SlowRead, 7));
        assert_eq!(AttackSpec::parse("churn").unwrap().connections, 10);
        for (text, said) in [
            ("x", "slowloris"),
            ("rudy=0", "bad number"),
            ("rudy=", "bad number"),
        ] {
            let error = AttackSpec::parse(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
