//! Routes that ask for the same fields, by the values that they ask for.

use std::cmp::Reverse;
use std::hash::Hasher;
use std::sync::Arc;

use super::entries::{Entries, Entry};
use super::few::Few;
use super::Route;
use crate::policy::hash::Fnv;
use crate::policy::map::Map;

/// Most bytes of several values together that are compared as one key.
const JOINED: usize = 256;

/// Names of fields: lower-case, sorted. Groups that ask for the same ones share them, so that they stay
/// near while groups are far apart.
pub(super) type Names = Arc<[String]>;

/// The routes of a block that ask for the same field names (and port).
#[derive(Debug)]
pub(super) struct Group {
    pub(super) port: Option<u16>,
    names: Names,
    values: Values,
}

/// The entries of a group by the values that they ask for.
#[derive(Debug)]
enum Values {
    /// Of the one field.
    One(Few<Entries>),
    /// Of several fields, in the order of their names.
    Several {
        /// Values one behind the other.
        joined: Few<Entries>,
        /// Those that are too long to be put together on the stack: by their hash, which the route
        /// must confirm.
        hashed: Map<u64, Entries>,
    },
}

/// Ends each of several values: no field value may hold it, so `ab`, `c` and `a`, `bc` are apart.
const END: &[u8] = b"\xff";

/// Several values one behind the other, if they are short enough.
fn join<'v, 'b>(
    mut values: impl Iterator<Item = Option<&'v [u8]>>,
    room: &'b mut [u8; JOINED],
) -> Joined<'b> {
    let mut len = 0;
    loop {
        let value = match values.next() {
            None => return Joined::Key(room.get(..len).unwrap_or_default()),
            Some(None) => return Joined::Absent,
            Some(Some(value)) => value,
        };
        for part in [value, END] {
            let Some(to) = room.get_mut(len..len + part.len()) else {
                return Joined::Long;
            };
            to.copy_from_slice(part);
            len += part.len();
        }
    }
}

enum Joined<'b> {
    Key(&'b [u8]),
    /// One of the fields is absent.
    Absent,
    Long,
}

/// The hash of several values; `None` if a field is absent.
fn hash<'v>(values: impl Iterator<Item = Option<&'v [u8]>>) -> Option<u64> {
    let mut hash = Fnv::default();
    for value in values {
        hash.write(value?);
        hash.write(END);
    }
    Some(hash.finish())
}

impl Group {
    /// One without entries.
    pub(super) fn new(port: Option<u16>, names: Names) -> Self {
        let values = match names.len() {
            1 => Values::One(Few::default()),
            _ => Values::Several {
                joined: Few::default(),
                hashed: Map::default(),
            },
        };
        Group {
            port,
            names,
            values,
        }
    }

    /// Whether its routes ask for this.
    pub(super) fn asks_for(&self, port: Option<u16>, names: &Names) -> bool {
        self.port == port && self.names == *names
    }

    /// The place among the groups of a block: with a port first, then by falling number of fields.
    pub(super) fn rank(&self) -> (bool, Reverse<usize>) {
        (self.port.is_none(), Reverse(self.names.len()))
    }

    /// Adds the entry of `route`.
    pub(super) fn add(&mut self, entry: Entry, route: &Route) {
        let values = || route.headers.iter().map(|(_, value)| value.as_bytes());
        let add = |entries: &mut Entries| entries.push(entry);
        match &mut self.values {
            Values::One(map) => map.change(values().next().unwrap_or_default(), add),
            Values::Several { joined, hashed } => {
                match join(values().map(Some), &mut [0; JOINED]) {
                    Joined::Key(key) => joined.change(key, add),
                    Joined::Absent | Joined::Long => {
                        let hash = hash(values().map(Some)).unwrap_or_default();
                        add(hashed.entry(hash).or_default());
                    }
                }
            }
        }
    }

    /// The first entry that takes the method of a request with these fields (see
    /// [`Entries::first_with`]).
    pub(super) fn find<'r, 't>(
        &self,
        header: impl Fn(&str) -> Option<&'r [u8]>,
        route: impl Fn(u32) -> Option<&'t Route>,
        method: u64,
        allow: &mut u64,
    ) -> Option<u32> {
        let values = || self.names.iter().map(|name| header(name));
        match &self.values {
            Values::One(map) => {
                let entries = map.get(values().next()??)?;
                entries.first_with(method, allow, |_| true)
            }
            Values::Several { joined, hashed } => match join(values(), &mut [0; JOINED]) {
                Joined::Absent => None,
                Joined::Key(key) => joined.get(key)?.first_with(method, allow, |_| true),
                Joined::Long => {
                    let entries = hashed.get(&hash(values())?)?;
                    let has_values_of = |route: &Route| {
                        let mut pairs = values().zip(&route.headers);
                        pairs.all(|(got, (_, value))| got == Some(value.as_bytes()))
                    };
                    let holds = |id| route(id).is_some_and(has_values_of);
                    entries.first_with(method, allow, holds)
                }
            },
        }
    }
}
