//! Accepting on the ring: one multishot request for each listener.
//!
//! What it brings is told a few connections at a time, behind what happened on those that are open,
//! so that a flood of connections does not make them wait. When many wait to be told, accepting pauses
//! and the rest stay in the listener's queue.

use std::net::SocketAddr;

use super::{Kind, Stage, UringEngine};
use crate::engine::{Event, Fd, Key, OpId, Outcome};
use crate::slab::Token;
use crate::sys;

/// Connections told per turn.
const ACCEPT_BURST: usize = 16;
/// So many that wait to be told make accepting pause.
const FRESH_MOST: usize = 4 * ACCEPT_BURST;

impl UringEngine {
    pub(super) fn start_accept(&mut self, key: Key, listener: Fd) -> OpId {
        let kind = Kind::Accept {
            listener,
            pausing: false,
        };
        let token = self.insert(key, kind);
        self.slot(listener).reader = Some(token);
        let options = self.options;
        self.system_calls += 5;
        // Inherited by what is accepted.
        match sys::socket::set_options(listener, &options) {
            Ok(()) => self.request(token),
            Err(error) => {
                let errno = sys::errno(&error);
                self.end(token, |_| Outcome::Failed { errno, buf: None });
            }
        }
        OpId::of(token)
    }

    pub(super) fn accepted(&mut self, token: Token, result: i32, more: bool) {
        if result >= 0 {
            let fd = Fd(result);
            self.system_calls += 1;
            if let Ok(peer) = sys::socket::peer_addr(fd) {
                self.take_ownership(fd, false);
                self.fresh_connection(token, fd, peer);
            } else {
                // Reset before it was accepted.
                sys::close(fd);
            }
        }
        if more {
            return;
        }
        let Some(op) = self.ops.get_mut(token) else {
            return;
        };
        let Kind::Accept { pausing, .. } = &mut op.kind else {
            return;
        };
        let paused = std::mem::take(pausing);
        if op.cancelled {
            self.tell_all_fresh();
            self.end(token, |buf| Outcome::Cancelled { buf });
        } else if paused && matches!(-result, libc::ECANCELED | ..=0) {
            op.stage = Stage::Paused;
            self.paused.push(token);
        } else if result >= 0 || !sys::socket::ends_accept(-result) {
            self.request(token);
        } else {
            self.tell_all_fresh();
            self.end_failed(token, result);
        }
    }

    fn fresh_connection(&mut self, token: Token, fd: Fd, peer: SocketAddr) {
        let Some(op) = self.ops.get_mut(token) else {
            return;
        };
        self.fresh.push_back(Event {
            key: op.key,
            op: OpId::of(token),
            more: true,
            outcome: Outcome::Accepted { fd, peer },
        });
        if let Kind::Accept { pausing, .. } = &mut op.kind {
            if self.fresh.len() >= FRESH_MOST && !op.cancelled && !std::mem::replace(pausing, true)
            {
                self.cancel_request(token);
            }
        }
    }

    /// Tells of some of the connections that were accepted, and lets more come.
    pub(super) fn tell_fresh(&mut self) {
        let some = self.fresh.len().min(ACCEPT_BURST);
        self.done.extend(self.fresh.drain(..some));
        if self.fresh.is_empty() {
            while let Some(token) = self.paused.pop() {
                if self
                    .ops
                    .get(token)
                    .is_some_and(|op| op.stage == Stage::Paused)
                {
                    self.request(token);
                }
            }
        }
    }

    /// Before the end of an accept.
    pub(super) fn tell_all_fresh(&mut self) {
        self.done.extend(self.fresh.drain(..));
    }
}
