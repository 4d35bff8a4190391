//! Getting a connection to an upstream, and giving it back.

use std::net::SocketAddr;
use std::time::Duration;

use toron_reactor::sys::socket::is_local_shortage;
use toron_reactor::{Close, Engine, Op, Outcome, Token};

use super::lane::Lane;
use super::session::Session;
use super::target::upstream_of;
use super::Kit;
use crate::policy::settings::Endpoint;
use crate::proxy::transaction::{ConnectFailure, Input};

/// Addresses of one target that are dialled for one request.
const ADDRESSES_MOST: usize = 8;

impl<E: Engine> Kit<'_, '_, E> {
    /// Takes an idle connection or dials.
    pub(crate) fn connect(&mut self, session: &mut Session, fresh: bool, other_target: bool) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let snapshot = std::rc::Rc::clone(&exchange.snapshot);
        let Some(upstream) = upstream_of(&snapshot, exchange.route) else {
            return;
        };
        if other_target && !self.next_target(session, upstream) {
            self.step(session, Input::NoOtherTarget);
            return;
        }
        if let Err(why) = self.first_target(session, upstream) {
            self.step(session, Input::ConnectFailed(why));
            return;
        }
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let Some(target) = upstream.targets.get(exchange.target) else {
            return;
        };
        // The only target again is tried at another address, not by what is idle.
        let again = other_target && exchange.dials > 0;
        if !fresh && !again {
            if let Some(token) = self.take_idle(&target.endpoint, session.token) {
                self.core.cells.reused.add(1);
                exchange.upstream = Some(token);
                exchange.address = self.core.upstreams.get(token).map(|c| c.address);
                self.step(session, Input::Connected { reused: true });
                return;
            }
        }
        self.dial(session, &target.endpoint);
    }

    /// Dials the next address of the present target.
    pub(crate) fn dial_next(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        let snapshot = std::rc::Rc::clone(&exchange.snapshot);
        let upstream = upstream_of(&snapshot, exchange.route);
        if let Some(target) = upstream.and_then(|u| u.targets.get(exchange.target)) {
            self.dial(session, &target.endpoint);
        }
    }

    /// An idle connection that is still good (I28) and goes to an address that the endpoint still
    /// has. The receive that waits on it may have ended in this very turn; else the socket itself is
    /// asked.
    fn take_idle(&mut self, endpoint: &Endpoint, owner: Token) -> Option<Token> {
        let now = self.now();
        while let Some(token) = self.core.upstreams.take_idle(endpoint.id, owner, now) {
            let connection = self.core.upstreams.get(token)?;
            let waits = connection
                .recv
                .is_some_and(|op| self.cx.engine.is_pending(op));
            let current = endpoint.addresses().contains(&connection.address);
            if waits && current && self.cx.engine.is_idle(connection.fd) {
                return Some(token);
            }
            if let Some(connection) = self.core.upstreams.remove(token) {
                self.cx.engine.close(connection.fd, Close::Orderly);
            }
        }
        None
    }

    /// Dials the first address of an endpoint whose turn it is, or the next one for this request.
    fn dial(&mut self, session: &mut Session, endpoint: &Endpoint) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let addresses = endpoint.addresses();
        if exchange.dials == 0 && addresses.len() > 1 {
            exchange.first_address = endpoint.next_turn();
        }
        let address = match addresses.len() {
            0 => None,
            n => addresses
                .get(exchange.first_address.wrapping_add(exchange.dials) % n)
                .copied(),
        };
        exchange.address = address;
        let Some(address) = address else {
            self.tell_failure(session, &"its name has no address");
            self.step(session, Input::ConnectFailed(ConnectFailure::NoAddress));
            return;
        };
        exchange.dials += 1;
        let more = exchange.dials < addresses.len().min(ADDRESSES_MOST);
        if !self.step(session, Input::Dialling { more }) {
            return;
        }
        self.dial_address(session, endpoint.id, address);
    }

    fn dial_address(&mut self, session: &mut Session, endpoint: u32, address: SocketAddr) {
        let fd = match self.cx.engine.socket(&address) {
            Ok(fd) => fd,
            Err(error) => {
                self.core.cells.dials_failed.add(1);
                self.core.out_of_resources += 1;
                self.tell_failure(session, &format_args!("no socket for it: {error}"));
                self.step(session, Input::ConnectFailed(ConnectFailure::NoResources));
                return;
            }
        };
        let token = self
            .core
            .upstreams
            .insert(fd, endpoint, address, session.token);
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.upstream = Some(token);
        }
        let op = Op::Connect { fd, addr: address };
        self.cx.engine.submit(Lane::UpstreamConnect.key(token), op);
        self.watch_client(session);
    }

    /// A dialled connection stands, or not.
    pub(crate) fn connect_ended(&mut self, session: &mut Session, outcome: &Outcome) {
        match outcome {
            Outcome::Connected => {
                self.core.cells.dialled.add(1);
                self.step(session, Input::Connected { reused: false });
            }
            &Outcome::Failed { errno, .. } => {
                let error = std::io::Error::from_raw_os_error(errno);
                self.tell_failure(session, &format_args!("cannot connect: {error}"));
                self.core.cells.dials_failed.add(1);
                self.close_upstream(session);
                let failure = if is_local_shortage(errno) {
                    self.core.out_of_resources += 1;
                    ConnectFailure::NoResources
                } else {
                    ConnectFailure::Failed
                };
                self.step(session, Input::ConnectFailed(failure));
            }
            _ => {}
        }
    }

    /// Gives the exchange's connection to the idle ones, or closes it.
    pub(crate) fn park_upstream(&mut self, session: &mut Session) {
        let now = self.now();
        let draining = self.core.drain.is_some();
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let Some(token) = exchange.upstream else {
            return;
        };
        let endpoint = self.core.upstreams.get(token).map(|c| c.endpoint);
        if endpoint.is_none_or(|endpoint| !self.core.snapshot.uses_endpoint(endpoint)) {
            // Its target has been removed meanwhile (R22).
            return;
        }
        let settings = &exchange.snapshot.settings;
        let keep = keep_for(
            settings.idle_conn_timeout,
            exchange.download.keep_alive_timeout(),
        );
        // The limit is the process's; a reactor that was woken for more connections than the usual
        // ones can hold may go beyond it by a share.
        let most = settings
            .max_idle_per_target
            .div_ceil(self.core.shared.active);
        if draining || !self.core.upstreams.park(token, now, keep, most) {
            return;
        }
        self.upstream_receive(session);
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.upstream = None;
        }
        let due = now + keep;
        if self.core.upstreams.idle_len() == 1 || due < self.core.sweep_at {
            let sweep = *self
                .core
                .sweep
                .get_or_insert_with(|| self.cx.wheel.insert(Lane::IdleSweep.key(token)));
            self.cx.wheel.arm(sweep, Some(due));
            self.core.sweep_at = due;
        }
    }
}

/// What the upstream announces less 1 s, so that toron is the one that closes (R17).
fn keep_for(configured: Duration, announced: Option<u64>) -> Duration {
    let announced = announced.map(|s| Duration::from_secs(s.saturating_sub(1)));
    announced.map_or(configured, |announced| announced.min(configured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r17_an_announced_time_is_kept_a_second_short() {
        let thirty = Duration::from_secs(30);
        assert_eq!(keep_for(thirty, None), thirty);
        assert_eq!(keep_for(thirty, Some(5)), Duration::from_secs(4));
        assert_eq!(keep_for(thirty, Some(60)), thirty);
        assert_eq!(keep_for(thirty, Some(0)), Duration::ZERO);
    }
}
