//! Why a route takes a request, and why each of the others does not: the rules R1 and R2 route by
//! route, where [`Table::lookup`] goes straight to the one. Both come to the same, which a property
//! test holds.

use std::sync::Arc;

use super::router::{rank, split_host, Table, MAX_HOST};
use super::settings::{HostPattern, Route};
use crate::http::path::{segments, strip_prefix};

/// What keeps a route from taking a request. A route without any would take it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Miss {
    /// The path does not begin with its prefix.
    Prefix,
    /// The path begins with the letters of its prefix, but in the middle of a segment.
    Segment,
    /// The path begins with its prefix but for upper and lower case.
    Case,
    /// Another host.
    Host,
    /// The right host, another port. A request that names none has 80.
    Port,
    /// It asks for a field with this value.
    Field {
        /// The name as written in the configuration.
        name: String,
        /// The value it asks for.
        wanted: String,
        /// What the request has instead, if the field is there at all.
        given: Option<String>,
    },
    /// Another method.
    Method,
}

/// Why one of two routes that would both take a request comes first (R2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precedence {
    /// Its prefix is longer.
    LongerPrefix,
    /// An explicit host comes before a wildcard, and that before any.
    ClearerHost,
    /// Its wildcard leaves fewer hosts.
    LongerSuffix,
    /// It names a port.
    NamesPort,
    /// It asks for more fields.
    MoreFields,
    /// It names methods.
    NamesMethod,
    /// Nothing but the stable order of host, prefix, methods and fields.
    Order,
}

impl Precedence {
    /// Of `first` before `second`.
    #[must_use]
    pub fn of(first: &Route, second: &Route) -> Precedence {
        let (a, b) = (rank(first), rank(second));
        let by = [
            (a.0 != b.0, Precedence::LongerPrefix),
            (a.1 .0 != b.1 .0, Precedence::ClearerHost),
            (a.1 .1 != b.1 .1, Precedence::LongerSuffix),
            (a.1 .2 != b.1 .2, Precedence::NamesPort),
            (a.2 != b.2, Precedence::MoreFields),
            (a.3 != b.3, Precedence::NamesMethod),
        ];
        let differs = by.iter().find(|(differs, _)| *differs);
        differs.map_or(Precedence::Order, |(_, precedence)| *precedence)
    }
}

/// A route and what keeps it from taking a request.
#[derive(Clone, Debug)]
pub struct Considered<'t> {
    /// The route.
    pub route: &'t Arc<Route>,
    /// Everything that does.
    pub misses: Vec<Miss>,
}

/// All routes in order of matching, each with what keeps it from taking the request that
/// [`Table::lookup`] is asked about by the same arguments. The first without a miss takes it; where
/// all have one, those that miss the method alone make it a 405.
pub fn consider<'t, 'r>(
    table: &'t Table,
    host: &[u8],
    path: &[u8],
    method: &[u8],
    header: impl Fn(&str) -> Option<&'r [u8]>,
) -> Vec<Considered<'t>> {
    let mut lower = [0; MAX_HOST];
    let (name, port) = split_host(host, &mut lower);
    let consider = |route: &'t Arc<Route>| {
        let mut misses = Vec::new();
        misses.extend(miss_prefix(&route.prefix, path));
        misses.extend(miss_host(&route.host, name, port));
        misses.extend(route.headers.iter().filter_map(|(name, wanted)| {
            let given = header(&name.to_ascii_lowercase());
            (given != Some(wanted.as_bytes())).then(|| Miss::Field {
                name: name.clone(),
                wanted: wanted.clone(),
                given: given.map(|value| String::from_utf8_lossy(value).into_owned()),
            })
        }));
        let methods = &route.methods;
        if !methods.is_empty() && !methods.iter().any(|m| m.as_bytes() == method) {
            misses.push(Miss::Method);
        }
        Considered { route, misses }
    };
    table.routes().iter().map(consider).collect()
}

fn miss_prefix(prefix: &str, path: &[u8]) -> Option<Miss> {
    let prefix = prefix.as_bytes();
    if strip_prefix(path, prefix).is_some() {
        return None;
    }
    let flat = flat(path);
    let lower = (flat.to_ascii_lowercase(), prefix.to_ascii_lowercase());
    Some(if flat.starts_with(prefix) {
        Miss::Segment
    } else if strip_prefix(&lower.0, &lower.1).is_some() {
        Miss::Case
    } else {
        Miss::Prefix
    })
}

/// A path as it is matched: without empty segments.
fn flat(path: &[u8]) -> Vec<u8> {
    let mut flat = Vec::with_capacity(path.len());
    for segment in segments(path) {
        flat.push(b'/');
        flat.extend_from_slice(segment);
    }
    flat
}

fn miss_host(pattern: &HostPattern, name: &[u8], port: Option<u16>) -> Option<Miss> {
    let (fits, wanted) = match pattern {
        HostPattern::Any => return None,
        HostPattern::Exact { name: wanted, port } => (wanted.as_bytes() == name, port),
        HostPattern::Wildcard { suffix, port } => {
            let front = name.strip_suffix(suffix.as_bytes());
            let front = front.and_then(|front| front.strip_suffix(b"."));
            (front.is_some_and(|front| !front.is_empty()), port)
        }
    };
    if !fits {
        Some(Miss::Host)
    } else if wanted.is_some() && *wanted != port {
        Some(Miss::Port)
    } else {
        None
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
