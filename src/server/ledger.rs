//! The last refusals, for `/internal/api/refusals`: who was refused, by which limit, and where that
//! limit stands.
//!
//! Reactors write into a few rings; an entry is a value of fixed size, so that a ring allocates only
//! until it is full. A ring's lock is held for the copy of one entry, except when somebody asks for
//! the list.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::{json, Value};

use super::describe::{Description, METHOD_MOST};
use super::timestamp::stamp;
use crate::http::Reason;
use crate::policy::limit::{self, Unit};
use crate::policy::settings::{Origin, Route, Settings};
use crate::proxy::window::Shortfall;

/// How many refusals are kept.
pub const KEPT: usize = 1000;
/// Rings; reactors share them when there are more. Each keeps the last [`KEPT`] of its own, since
/// all of the last ones may be a single reactor's. Full, all of them take some 9 MB.
const RINGS: usize = 16;
/// Most bytes kept of a host.
const HOST_MOST: usize = 64;
/// Most bytes kept of a path.
const PATH_MOST: usize = 128;
/// Most bytes kept of a route's name, which has no more.
const ROUTE_MOST: usize = 128;

/// A short text, cut at `N` bytes.
#[derive(Clone, Copy, Debug)]
struct Short<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Short<N> {
    fn of(text: &[u8]) -> Self {
        let mut bytes = [0; N];
        let mut len = 0;
        for (place, byte) in bytes.iter_mut().zip(text) {
            *place = *byte;
            len += 1;
        }
        Short { bytes, len }
    }

    /// Null when it is empty. Bytes that are no text are replaced.
    fn shown(&self) -> Value {
        match self.bytes.get(..self.len).unwrap_or_default() {
            [] => Value::Null,
            text => String::from_utf8_lossy(text).into(),
        }
    }
}

/// The limit that was enforced.
#[derive(Clone, Debug)]
struct Enforced {
    setting: &'static str,
    value: Option<(u64, Unit)>,
    origin: Origin,
}

/// A window of a body that had too few bytes: the cause that a time alone does not tell.
#[derive(Clone, Debug)]
struct Missed {
    shortfall: Shortfall,
    /// Of `min_progress_bytes`.
    origin: Origin,
}

/// One refusal.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Over the process: the order in which they happened.
    number: u64,
    at: SystemTime,
    client: IpAddr,
    method: Short<METHOD_MOST>,
    host: Short<HOST_MOST>,
    path: Short<PATH_MOST>,
    route: Short<ROUTE_MOST>,
    reason: Reason,
    status: u16,
    limit: Option<Enforced>,
    observed: Option<u64>,
    window: Option<Missed>,
}

/// What happened, for an [`Entry`].
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    /// When.
    pub at: SystemTime,
    /// Who was refused.
    pub client: IpAddr,
    /// What it had asked for.
    pub asked: &'a Description,
    /// The route that took the request.
    pub route: Option<&'a Route>,
    /// Why.
    pub reason: Reason,
    /// Status sent; 0 is none.
    pub status: u16,
    /// The limit in force, where it is not simply what is configured.
    pub limit: Option<u64>,
    /// What was observed, in the unit of the limit.
    pub observed: Option<u64>,
    /// What came in the window of the body that ended too soon, where that is why.
    pub shortfall: Option<Shortfall>,
}

impl Entry {
    fn new(refused: &Refused<'_>, settings: &Settings, number: u64) -> Self {
        let limit = limit::of(refused.reason, settings, refused.route).map(|found| Enforced {
            setting: found.setting,
            value: found
                .value
                .map(|(value, unit)| (refused.limit.unwrap_or(value), unit)),
            origin: found.origin.clone(),
        });
        let window = refused.route.zip(refused.shortfall);
        let window = window.map(|(route, shortfall)| Missed {
            shortfall,
            origin: route.limit_sources.min_progress_bytes.clone(),
        });
        Entry {
            number,
            at: refused.at,
            client: refused.client,
            method: Short::of(refused.asked.method()),
            host: Short::of(refused.asked.host()),
            path: Short::of(refused.asked.path()),
            route: Short::of(refused.route.map_or("", |route| &route.name).as_bytes()),
            reason: refused.reason,
            status: refused.status,
            limit,
            observed: refused.observed,
            window,
        }
    }

    fn to_json(&self) -> Value {
        let limit = self.limit.as_ref().map(|limit| {
            json!({
                "setting": limit.setting,
                "value": limit.value.map(|(value, _)| value),
                "unit": limit.value.map(|(_, unit)| unit.as_str()),
                "set_by": limit.origin.as_str(),
                "set_at": limit.origin.to_string(),
            })
        });
        let window = self.window.as_ref().map(|missed| {
            json!({
                "bytes": missed.shortfall.moved,
                "needed": missed.shortfall.needed,
                "setting": "min_progress_bytes",
                "set_by": missed.origin.as_str(),
                "set_at": missed.origin.to_string(),
            })
        });
        json!({
            "time": String::from_utf8_lossy(&stamp(self.at)),
            "client": self.client.to_string(),
            "method": self.method.shown(),
            "host": self.host.shown(),
            "path": self.path.shown(),
            "route": self.route.shown(),
            "reason": self.reason.code(),
            "ended_by": self.reason.ended_by().code(),
            "status": Some(self.status).filter(|status| *status != 0),
            "limit": limit,
            "observed": self.observed,
            "window": window,
        })
    }
}

/// A ring that grows until it holds [`KEPT`] entries.
#[derive(Debug, Default)]
struct Ring {
    entries: Vec<Entry>,
    /// Where the oldest is, once it is full.
    oldest: usize,
}

impl Ring {
    fn push(&mut self, entry: Entry) {
        if self.entries.len() < KEPT {
            self.entries.push(entry);
        } else if let Some(place) = self.entries.get_mut(self.oldest) {
            *place = entry;
            self.oldest = (self.oldest + 1) % KEPT;
        }
    }
}

/// The last refusals of the process.
#[derive(Debug)]
pub struct Ledger {
    rings: Vec<Mutex<Ring>>,
    next: AtomicU64,
}

impl Ledger {
    /// An empty one for so many reactors.
    #[must_use]
    pub fn new(reactors: usize) -> Self {
        Ledger {
            rings: (0..reactors.clamp(1, RINGS))
                .map(|_| Mutex::default())
                .collect(),
            next: AtomicU64::new(0),
        }
    }

    /// Adds one, on reactor number `reactor`.
    pub fn add(&self, reactor: usize, settings: &Settings, refused: &Refused<'_>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.push(reactor, Entry::new(refused, settings, number));
    }

    fn push(&self, reactor: usize, entry: Entry) {
        if let Some(ring) = self.rings.get(reactor % self.rings.len()) {
            ring.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(entry);
        }
    }

    /// The last [`KEPT`], newest first.
    #[must_use]
    pub fn list(&self) -> Vec<Entry> {
        let mut all = Vec::new();
        for ring in &self.rings {
            let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(&ring.entries);
        }
        all.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.number));
        all.truncate(KEPT);
        all
    }

    /// [`Ledger::list`] as an array of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        Value::Array(self.list().iter().map(Entry::to_json).collect()).to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousand_of_all_reactors_are_kept_in_order() {
        let ledger = Ledger::new(3);
        for number in 0..2_500 {
            let entry = Entry {
                number,
                at: SystemTime::UNIX_EPOCH,
                client: IpAddr::from([192, 0, 2, 1]),
                method: Short::of(b"GET"),
                host: Short::of(&[b'h'; 100]),
                path: Short::of(b"/\xff"),
                route: Short::of(b""),
                reason: Reason::HeadTooLarge,
                status: 431,
                limit: None,
                observed: None,
                window: None,
            };
            // Most on one reactor.
            ledger.push(usize::from(number % 10 == 0), entry);
        }
        // What the comment at RINGS says.
        let full = size_of::<Entry>() * KEPT * RINGS;
        assert!((8_500_000..9_500_000).contains(&full), "{full}");
        let listed = ledger.list();
        let seen: Vec<u64> = listed.iter().map(|e| e.number).collect();
        assert_eq!(seen, (1_500..2_500).rev().collect::<Vec<u64>>());
        let shown = listed[0].to_json();
        assert_eq!(shown["host"], "h".repeat(HOST_MOST));
        assert_eq!(
            (&shown["method"], &shown["path"]),
            (&json!("GET"), &json!("/\u{fffd}"))
        );
        assert!(shown["route"].is_null() && shown["limit"].is_null());
    }
}
