//! The connection firewall: what may connect, and how much it may ask. State of the process, shared
//! by all reactors; rules come in with each call, so that a reload keeps what is known; time comes
//! in, too.
//!
//! ```text
//!  accept ──▶ connect ─┐            ┌─▶ bucket    tokens (F1)
//!  head ────▶ request ─┼▶ table ─▶ standing ─▶ meter    windows and their average (F3)
//!  cut ─────▶ violate ─┘   │        └─▶ violations, strikes, blocks (F1, F2)
//!                          └ shard ×64: a lock, entries by address, who goes first when it is full
//!  client: whose address counts (F4)       decision: what comes out, with its numbers
//! ```
//!
//! A known address costs one hash, one lock and no allocation; the address of a connection's own
//! peer not even the hash.

mod bucket;
mod client;
mod decision;
mod flood;
mod key;
mod meter;
mod rules;
mod shard;
mod standing;
mod table;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use toron_reactor::Time;

pub use client::Client;
pub use decision::{Cause, Decision};
pub use flood::{Flood, Told, POLITE_AT_ONCE, POLITE_PER_SECOND};
pub use rules::{Mode, Rules};
pub use standing::{block_length, BlockedFor, MOST_STRIKES};
pub use table::TableStats;

use super::cidr::Cidr;
use crate::http::Reason;
use key::Key;
use standing::Standing;
use table::{Handle, Table};

/// What is known of all addresses, and how many connections there are.
#[derive(Debug)]
pub struct Firewall {
    table: Table,
    connections: AtomicU32,
    blocks_by_hand: AtomicU64,
}

/// A connection that is counted, in all and for its address, until this is dropped.
#[derive(Debug)]
pub struct Permit {
    firewall: Arc<Firewall>,
    held: Option<Handle>,
    /// When the connection was last seen.
    seen: Time,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(handle) = self.held {
            self.firewall.table.release(handle, self.seen);
        }
        self.firewall.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What becomes of a connection.
#[derive(Debug)]
pub struct Admission {
    /// The decision.
    pub decision: Decision,
    /// There unless the connection is refused.
    pub permit: Option<Permit>,
}

impl Admission {
    /// For a connection about which the firewall is not asked.
    pub const EXEMPT: Admission = Admission {
        decision: Decision::Admit,
        permit: None,
    };

    fn refuse(cause: Cause) -> Admission {
        Admission {
            decision: Decision::Refuse(cause),
            permit: None,
        }
    }
}

/// An address that is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// The address, or all that are filed with it.
    pub addresses: Cidr,
    /// Why.
    pub reason: BlockedFor,
    /// Automatic blocks that are not forgotten.
    pub strikes: u8,
    /// Time until the block ends.
    pub left: Duration,
    /// Connections that are open all the same.
    pub connections: u32,
}

const DENIED: Cause = Cause {
    reason: Reason::Denied,
    limit: 0,
    observed: 1,
    retry_after: None,
};

/// Per-address decisions are carried out in one mode only.
fn decide(rules: &Rules, cause: Cause) -> Decision {
    match rules.mode {
        Mode::Enforce => Decision::Refuse(cause),
        Mode::Observe => Decision::Observe(cause),
    }
}

impl Firewall {
    /// One that knows nothing. Room is set apart for as many addresses as `rules` allow; address
    /// space, no memory.
    #[must_use]
    pub fn new(rules: &Rules) -> Arc<Self> {
        Arc::new(Firewall {
            table: Table::new(rules.max_tracked_addresses),
            connections: AtomicU32::new(0),
            blocks_by_hand: AtomicU64::new(0),
        })
    }

    /// Connections that are counted now.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// What the table of addresses holds.
    #[must_use]
    pub fn stats(&self) -> TableStats {
        self.table.stats()
    }

    /// Addresses under a block that is enforced, those left out that still have connections open.
    /// Takes 64 locks, one after the other, and some nanoseconds for each such address.
    #[must_use]
    pub fn blocked_now(&self, now: Time) -> usize {
        self.table.blocked(now)
    }

    /// A new connection, before a byte of it is read: deny list and blocks, then the cap in all,
    /// then the cap of the address. A trusted proxy is exempt from blocks and its own cap.
    #[must_use]
    pub fn connect(self: &Arc<Self>, rules: &Rules, peer: Client, now: Time) -> Admission {
        let denied = rules.enabled && rules.deny.contains(peer.address);
        let denied = denied.then(|| decide(rules, DENIED));
        if let Some(Decision::Refuse(cause)) = denied {
            return Admission::refuse(cause);
        }
        let counted = self.count_connection(rules);
        let exempt = !rules.enabled || peer.is_proxy || rules.allow.contains(peer.address);
        let admission = match counted {
            Ok(()) if exempt => self.permit(Decision::Admit, None, now),
            Ok(()) => self.connect_tracked(rules, peer, now),
            // No entry is made for who is not let in.
            Err(full) if exempt || rules.mode == Mode::Observe => Admission::refuse(full),
            Err(full) => {
                let key = Key::of(peer.address, rules.ipv6_prefix);
                let blocked = self.table.with_known(key, now, |shard, handle| {
                    shard.entry(handle.at()).and_then(|(_, standing, _)| {
                        standing.turn_to(rules, now);
                        standing.blocked(now)
                    })
                });
                Admission::refuse(blocked.flatten().unwrap_or(full))
            }
        };
        match (admission.decision, denied) {
            (Decision::Admit | Decision::Observe(_), Some(decision)) => Admission {
                decision,
                ..admission
            },
            _ => admission,
        }
    }

    fn count_connection(&self, rules: &Rules) -> Result<(), Cause> {
        let limit = rules.connection_cap().unwrap_or(u32::MAX);
        let count = |open: u32| (open < limit).then(|| open + 1);
        self.connections
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count)
            .map(|_| ())
            .map_err(|open| Cause {
                reason: Reason::ConnectionLimit,
                limit: u64::from(limit),
                observed: u64::from(open) + 1,
                retry_after: Some(1),
            })
    }

    fn connect_tracked(self: &Arc<Self>, rules: &Rules, peer: Client, now: Time) -> Admission {
        let observing = rules.mode == Mode::Observe;
        let key = Key::of(peer.address, rules.ipv6_prefix);
        let outcome = self.table.with(key, rules, now, |shard, handle| {
            let (_, standing, connections) = shard.entry(handle.at())?;
            standing.turn_to(rules, now);
            let limit = rules.max_connections_per_ip;
            let cause = standing.blocked(now).or_else(|| {
                (limit > 0 && connections >= limit).then(|| Cause {
                    reason: Reason::AddressConnectionLimit,
                    limit: u64::from(limit),
                    observed: u64::from(connections) + 1,
                    retry_after: Some(1),
                })
            });
            if cause.is_none() || observing {
                shard.connect(handle.at(), now);
            }
            Some((cause, handle))
        });
        match outcome.flatten() {
            None => self.permit(Decision::Admit, None, now),
            Some((None, handle)) => self.permit(Decision::Admit, Some(handle), now),
            Some((Some(cause), handle)) if observing => {
                self.permit(Decision::Observe(cause), Some(handle), now)
            }
            Some((Some(cause), _)) => {
                self.connections.fetch_sub(1, Ordering::Relaxed);
                Admission::refuse(cause)
            }
        }
    }

    fn permit(self: &Arc<Self>, decision: Decision, held: Option<Handle>, seen: Time) -> Admission {
        Admission {
            decision,
            permit: Some(Permit {
                firewall: Arc::clone(self),
                held,
                seen,
            }),
        }
    }

    /// A request, when its head has been parsed: deny list, blocks, then a token. `permit` is its
    /// connection's.
    #[must_use]
    pub fn request(
        &self,
        rules: &Rules,
        client: Client,
        permit: Option<&mut Permit>,
        now: Time,
    ) -> Decision {
        if !rules.enabled {
            return Decision::Admit;
        }
        if rules.deny.contains(client.address) {
            return decide(rules, DENIED);
        }
        let cause = self.account(rules, client, permit, now, |standing| {
            standing.request(rules, !client.is_proxy, now)
        });
        cause.map_or(Decision::Admit, |cause| decide(rules, cause))
    }

    /// A connection of `client` had to be cut for slowness (F5). Returns the cause if that led to a
    /// block.
    pub fn violate(
        &self,
        rules: &Rules,
        client: Client,
        permit: Option<&mut Permit>,
        now: Time,
    ) -> Option<Cause> {
        if !rules.enabled || client.is_proxy {
            return None;
        }
        self.account(rules, client, permit, now, |standing| {
            standing.violate(rules, BlockedFor::Slowness, now)
        })
    }

    /// Asks what is known of `client`; nothing is said of one that is allowed, or has no account.
    fn account(
        &self,
        rules: &Rules,
        client: Client,
        permit: Option<&mut Permit>,
        now: Time,
        ask: impl FnOnce(&mut Standing) -> Option<Cause>,
    ) -> Option<Cause> {
        if rules.allow.contains(client.address) {
            return None;
        }
        let held = permit.and_then(|permit| {
            permit.seen = now;
            permit.held
        });
        let act = |shard: &mut shard::Shard, handle: Handle| {
            let (_, standing, _) = shard.entry(handle.at())?;
            standing.turn_to(rules, now);
            ask(standing)
        };
        let key = Key::of(client.address, rules.ipv6_prefix);
        match held.filter(|handle| handle.is_of(key)) {
            Some(handle) => self.table.with_held(handle, act).flatten(),
            None => self.table.with(key, rules, now, act).flatten(),
        }
    }

    /// The addresses that are filed with `address`, so that what is done to one is done to all.
    #[must_use]
    pub fn owner(rules: &Rules, address: IpAddr) -> Cidr {
        Key::of(address, rules.ipv6_prefix).block()
    }

    /// Blocks `address` by hand for `length` from now. `false` when there is no room to note it.
    pub fn block(&self, rules: &Rules, address: IpAddr, length: Duration, now: Time) -> bool {
        let key = Key::of(address, rules.ipv6_prefix);
        let noted = self.table.with(key, rules, now, |shard, handle| {
            if let Some((_, standing, _)) = shard.entry(handle.at()) {
                standing.turn_to(rules, now);
                standing.put_under_block(BlockedFor::Hand, length, now);
            }
        });
        if noted.is_some() {
            self.blocks_by_hand.fetch_add(1, Ordering::Relaxed);
        }
        noted.is_some()
    }

    /// How many blocks were put up by hand.
    #[must_use]
    pub fn blocks_by_hand(&self) -> u64 {
        self.blocks_by_hand.load(Ordering::Relaxed)
    }

    /// Ends the block of `address`. `false` if there was none. Strikes stay.
    pub fn unblock(&self, rules: &Rules, address: IpAddr, now: Time) -> bool {
        let key = Key::of(address, rules.ipv6_prefix);
        let lifted = self.table.with_known(key, now, |shard, handle| {
            let (_, standing, _) = shard.entry(handle.at())?;
            let was_blocked = standing.block(now).is_some();
            standing.lift_block();
            Some(was_blocked)
        });
        lifted.flatten().unwrap_or(false)
    }

    /// The addresses that are blocked in the present mode (when observing: would be), at most
    /// `most` of them, those that are blocked longest from now first.
    #[must_use]
    pub fn blocked(&self, rules: &Rules, most: usize, now: Time) -> Vec<Blocked> {
        let mut all = Vec::new();
        self.table.scan(|key, standing, connections| {
            if let Some(block) = standing
                .block(now)
                .filter(|_| standing.mode() == rules.mode)
            {
                all.push(Blocked {
                    addresses: key.block(),
                    reason: block.reason,
                    strikes: standing.strikes(rules, now),
                    left: block.until.since(now),
                    connections,
                });
            }
        });
        all.sort_by_key(|blocked| std::cmp::Reverse(blocked.left));
        all.truncate(most);
        all
    }
}
