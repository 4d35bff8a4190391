//! Connections to upstreams, in use and idle.
//!
//! A receive is in flight on every connection from the moment it stands: while the connection is
//! idle it notices the upstream closing it or sending an unasked byte (R17), and when the
//! connection is taken again the same receive brings the response. So neither costs an operation.

use std::net::SocketAddr;
use std::time::Duration;

use toron_reactor::{Fd, OpId, Slab, Time, Token};

use crate::policy::map::Map;

/// A connection to an upstream.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub fd: Fd,
    /// [`crate::policy::settings::Endpoint::id`] of where it goes.
    pub endpoint: u32,
    /// The address that was dialled.
    pub address: SocketAddr,
    /// The session whose request it carries; `None` while idle.
    pub owner: Option<Token>,
    /// The receive in flight.
    pub recv: Option<OpId>,
    /// A wait for the socket to be readable is in flight.
    pub polls_readable: bool,
    /// A wait for the socket to be writable is in flight.
    pub polls_writable: bool,
    /// When it must not be used any more, if idle.
    pub idle_until: Time,
}

/// All upstream connections of a reactor.
#[derive(Debug, Default)]
pub struct Connections {
    all: Slab<Connection>,
    /// By endpoint; the ids are toron's own.
    idle: Map<u32, Vec<Token>>,
    idle_count: usize,
}

impl Connections {
    /// Adds a connection that is being dialled for `owner`.
    pub fn insert(&mut self, fd: Fd, endpoint: u32, address: SocketAddr, owner: Token) -> Token {
        self.all.insert(Connection {
            fd,
            endpoint,
            address,
            owner: Some(owner),
            recv: None,
            polls_readable: false,
            polls_writable: false,
            idle_until: Time(0),
        })
    }

    /// The connection, unless it has gone.
    #[must_use]
    pub fn get(&self, token: Token) -> Option<&Connection> {
        self.all.get(token)
    }

    /// The connection, unless it has gone.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut Connection> {
        self.all.get_mut(token)
    }

    /// Forgets a connection, idle or not, and returns it so that it can be closed.
    pub fn remove(&mut self, token: Token) -> Option<Connection> {
        let connection = self.all.remove(token)?;
        if connection.owner.is_none() {
            if let Some(list) = self.idle.get_mut(&connection.endpoint) {
                list.retain(|&t| t != token);
            }
            self.idle_count -= 1;
        }
        Some(connection)
    }

    /// Puts a connection among the idle ones. `false` if there are `most` of its endpoint already:
    /// then it is to be closed.
    pub fn park(&mut self, token: Token, now: Time, keep: Duration, most: usize) -> bool {
        let Some(connection) = self.all.get_mut(token) else {
            return false;
        };
        let list = self.idle.entry(connection.endpoint).or_default();
        if list.len() >= most || keep.is_zero() {
            return false;
        }
        connection.owner = None;
        connection.idle_until = now + keep;
        list.push(token);
        self.idle_count += 1;
        true
    }

    /// Takes the idle connection of `endpoint` that was used last, for `owner`.
    pub fn take_idle(&mut self, endpoint: u32, owner: Token, now: Time) -> Option<Token> {
        let list = self.idle.get_mut(&endpoint)?;
        // Those announced for a shorter time may be over while older ones are not.
        let all = &self.all;
        let is_good = |&t: &Token| all.get(t).is_some_and(|c| c.idle_until > now);
        let token = list.remove(list.iter().rposition(is_good)?);
        let connection = self.all.get_mut(token)?;
        self.idle_count -= 1;
        connection.owner = Some(owner);
        Some(token)
    }

    /// Idle connections whose time is over.
    pub fn expired(&self, now: Time, into: &mut Vec<Token>) {
        let all = &self.all;
        let idle = self.idle.values().flatten();
        into.extend(
            idle.copied()
                .filter(|&t| all.get(t).is_some_and(|c| c.idle_until <= now)),
        );
    }

    /// When the first idle connection's time is over.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Time> {
        // Lists are in order of parking, but the time an upstream announced may differ.
        let idle = self.idle.values().flatten();
        idle.filter_map(|&t| self.all.get(t))
            .map(|c| c.idle_until)
            .min()
    }

    /// Idle connections to endpoints for which `holds`.
    #[must_use]
    pub fn idle_where(&self, holds: impl Fn(u32) -> bool) -> Vec<Token> {
        let chosen = self.idle.iter().filter(|(&endpoint, _)| holds(endpoint));
        chosen.flat_map(|(_, list)| list).copied().collect()
    }

    /// Forgets that there have been endpoints for which `holds` and to which no idle connection is
    /// left.
    pub fn forget(&mut self, holds: impl Fn(u32) -> bool) {
        self.idle
            .retain(|&endpoint, list| !list.is_empty() || !holds(endpoint));
    }

    /// Idle connections.
    #[must_use]
    pub fn idle_len(&self) -> usize {
        self.idle_count
    }

    /// Connections, idle or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const OWNER: Token = Token {
        index: 7,
        generation: 0,
    };
    const KEEP: Duration = Duration::from_secs(30);
    const ADDRESS: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9000);

    #[test]
    fn r17_the_connection_used_last_is_taken_first_and_only_within_its_time() {
        let mut all = Connections::default();
        let a = all.insert(Fd(3), 1, ADDRESS, OWNER);
        let b = all.insert(Fd(4), 1, ADDRESS, OWNER);
        assert!(all.park(a, Time(0), KEEP, 2));
        assert!(all.park(b, Time(1), KEEP, 2));
        assert_eq!(all.take_idle(2, OWNER, Time(2)), None);
        assert_eq!(all.take_idle(1, OWNER, Time(2)), Some(b));
        let late = Time(0) + KEEP;
        assert_eq!(all.take_idle(1, OWNER, late), None);
        let mut expired = Vec::new();
        all.expired(late, &mut expired);
        assert_eq!(expired, [a]);
        assert_eq!(all.remove(a).unwrap().fd, Fd(3));
        assert_eq!((all.idle_len(), all.len()), (0, 1));
    }

    #[test]
    fn r17_idle_connections_are_limited() {
        let mut all = Connections::default();
        let a = all.insert(Fd(3), 1, ADDRESS, OWNER);
        let b = all.insert(Fd(4), 1, ADDRESS, OWNER);
        assert!(all.park(a, Time(0), KEEP, 1));
        assert!(!all.park(b, Time(0), KEEP, 1));
        assert!(!all.park(b, Time(0), Duration::ZERO, 9));
        assert_eq!(all.idle_where(|endpoint| endpoint == 1), [a]);
        assert_eq!(all.idle_where(|endpoint| endpoint != 1), []);
        all.forget(|_| true);
        assert_eq!(all.idle_len(), 1);
        all.remove(a);
        all.forget(|_| true);
        assert!(all.idle.is_empty());
    }
}
