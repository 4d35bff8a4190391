//! Which route takes a request (R1 to R5).
//!
//! Compiled once per change, read by every reactor without a lock. A look-up walks a tree of path
//! segments down to the deepest prefix that the path has, then tries the prefixes on the way back
//! up: in each first the exact host, then wildcards from the longest to the shortest, then routes
//! for any host; within these, routes grouped by the names of the fields they ask for, where the
//! values are one hash look-up. So the cost follows the depth of the path and the number of labels
//! of the host, not the number of routes (R3), and nothing is allocated.
//!
//! Order of matching, first wins (R2):
//! 1. longer prefix;
//! 2. explicit host, then wildcard host (longer suffix first), then any; one that names a port
//!    before the same one that does not;
//! 3. more fields;
//! 4. explicit method before none;
//! 5. host, prefix, methods, fields as text, so that file order never matters.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use self::entries::{Entries, Entry};
use self::few::Few;
use self::group::{Group, Names};
use super::hash::Fnv;
use super::settings::{HostPattern, Route, Source};
use crate::http::path::segments;

mod entries;
mod few;
mod group;

/// Most different methods in one table; what [`Allow`] can hold.
pub const MAX_METHODS: usize = 64;

/// Longest host name that can match (RFC 1035: 255 octets with length bytes, 253 as text).
pub const MAX_HOST: usize = 253;

/// A compiled set of routes.
#[derive(Debug, Default)]
pub struct Table {
    /// In order of matching; a route's id is its index.
    routes: Vec<Arc<Route>>,
    /// `nodes[0]` is `/`.
    nodes: Vec<Node>,
    /// Every method that a route names; bit `i` of a method set is `methods[i]`.
    methods: Vec<String>,
}

/// A path prefix.
#[derive(Debug, Default)]
struct Node {
    /// One segment further.
    children: Few<u32>,
    /// The nearest shorter prefix that has routes.
    parent: Option<u32>,
    /// Of routes that name a host.
    hosts: Option<Box<Hosts>>,
    any: Block,
}

/// The routes of one prefix by their hosts.
#[derive(Debug, Default)]
struct Hosts {
    exact: Few<Block>,
    wildcard: Few<Block>,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.hosts.is_none() && self.any.groups.is_empty() && self.any.plain.is_empty()
    }
}

/// The routes of one prefix and host.
#[derive(Debug, Default)]
struct Block {
    /// By [`Group::rank`].
    groups: Vec<Group>,
    /// Routes that ask for neither port nor fields, which match last: in most tables all of them.
    plain: Entries,
}

/// What became of a look-up.
#[derive(Debug)]
pub enum Lookup<'t> {
    /// This route takes the request.
    Route(&'t Arc<Route>),
    /// None does, whatever the method: 404.
    NotFound,
    /// None does, but with another method one would: 405.
    MethodNotAllowed {
        /// With these.
        allow: Allow<'t>,
    },
}

/// A set of methods, for the `Allow` field. Displays as its value (`GET, POST`), in the order of
/// the alphabet.
#[derive(Clone, Copy)]
pub struct Allow<'t> {
    methods: &'t [String],
    set: u64,
}

impl<'t> Allow<'t> {
    /// The methods, in the order of the alphabet.
    pub fn iter(&self) -> impl Iterator<Item = &'t str> + use<'t> {
        let set = self.set;
        let methods = self.methods.iter().enumerate();
        methods
            .filter(move |(i, _)| set >> i & 1 == 1)
            .map(|(_, method)| method.as_str())
    }
}

impl fmt::Display for Allow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, method) in self.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            f.write_str(method)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Allow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Two routes on the same key. Indices are gone by then, so both are held.
#[derive(Clone, Debug)]
pub struct Clash {
    /// The one that stays: of the source that wins, or the one written first.
    pub kept: Arc<Route>,
    /// The one that is left out.
    pub dropped: Arc<Route>,
}

/// What [`compile`] made.
#[derive(Debug)]
pub struct Compiled {
    /// The table, without the routes that were left out.
    pub table: Table,
    /// Same key, same source (R5): a fault of the configuration.
    pub duplicates: Vec<Clash>,
    /// Same key, another source (R6): reported, not a fault.
    pub shadowed: Vec<Clash>,
}

/// The place of a route in the order of matching.
pub(super) type Rank = (
    Reverse<usize>,
    (u8, Reverse<usize>, bool),
    Reverse<usize>,
    bool,
);

pub(super) fn rank(route: &Route) -> Rank {
    let host = match &route.host {
        HostPattern::Exact { port, .. } => (0, Reverse(0), port.is_none()),
        HostPattern::Wildcard { suffix, port } => (1, Reverse(suffix.len()), port.is_none()),
        HostPattern::Any => (2, Reverse(0), true),
    };
    (
        Reverse(route.prefix.len()),
        host,
        Reverse(route.headers.len()),
        route.methods.is_empty(),
    )
}

/// What makes a route the same as another: host, prefix, methods, fields (names without case).
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct RouteKey {
    host: String,
    prefix: String,
    methods: Vec<String>,
    headers: Vec<(String, String)>,
}

impl RouteKey {
    /// The key of `route`.
    #[must_use]
    pub fn of(route: &Route) -> Self {
        let headers = route
            .headers
            .iter()
            .map(|(n, v)| (n.to_ascii_lowercase(), v.clone()));
        RouteKey {
            host: route.host.to_string(),
            prefix: route.prefix.clone(),
            methods: route.methods.clone(),
            headers: headers.collect(),
        }
    }
}

/// Sorts `routes` into the order of matching, numbers them, and builds the table. Of several with
/// the same key one stays: the source named first in [`Source`], then the one given first.
///
/// `methods`, `headers` and `prefix` must be in the normal form that [`Route`] asks for. No more
/// than [`MAX_METHODS`] different methods may occur: routes that name further ones never match.
#[must_use]
pub fn compile(routes: Vec<Route>) -> Compiled {
    let mut sorted: Vec<(RouteKey, Route)> = routes
        .into_iter()
        .map(|route| (RouteKey::of(&route), route))
        .collect();
    sorted.sort_by(|(a_key, a), (b_key, b)| {
        rank(a)
            .cmp(&rank(b))
            .then_with(|| a_key.cmp(b_key))
            .then(a.source.cmp(&b.source))
    });
    let mut made = Compiled {
        table: Table::default(),
        duplicates: Vec::new(),
        shadowed: Vec::new(),
    };
    let mut last: Option<RouteKey> = None;
    let mut names = HashSet::new();
    for (key, mut route) in sorted {
        let kept = made.table.routes.last();
        match kept.filter(|_| last.as_ref() == Some(&key)) {
            Some(kept) => {
                let same_source = is_file(kept.source) == is_file(route.source);
                let clash = Clash {
                    kept: kept.clone(),
                    dropped: Arc::new(route),
                };
                let clashes = if same_source {
                    &mut made.duplicates
                } else {
                    &mut made.shadowed
                };
                clashes.push(clash);
            }
            None => {
                if !names.insert(route.name.clone()) {
                    route.name = distinct(&route.name, &key);
                }
                route.id = u32::try_from(made.table.routes.len()).unwrap_or(u32::MAX);
                made.table.routes.push(Arc::new(route));
                last = Some(key);
            }
        }
    }
    made.table.build();
    made
}

/// The name of a route that another has as well: names are cut, and are labels of metrics, which must
/// be told apart. The same from one start to the next.
fn distinct(name: &str, key: &RouteKey) -> String {
    let mut hasher = Fnv::default();
    key.hash(&mut hasher);
    format!("{name}~{:016x}", hasher.finish())
}

/// `config` and `static` are both made by the files.
fn is_file(source: Source) -> bool {
    match source {
        Source::Config | Source::Static => true,
        Source::OciDiscovery => false,
    }
}

impl Table {
    /// All routes, in order of matching.
    #[must_use]
    pub fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }

    /// The route of a request.
    ///
    /// `host` is the host of the request as received, with or without port; `path` the normalised
    /// path without query (I6); `method` as received (methods have case, RFC 9110,
    /// section 9.1); `header` gives the value of a field by its lower-case name, the first if
    /// there are several.
    pub fn lookup<'r>(
        &self,
        host: &[u8],
        path: &[u8],
        method: &[u8],
        header: impl Fn(&str) -> Option<&'r [u8]>,
    ) -> Lookup<'_> {
        let mut lower = [0; MAX_HOST];
        let (host, port) = split_host(host, &mut lower);
        let method = self.method_bit(method);
        let request = Request {
            host,
            port,
            method,
            header: &header,
        };
        let mut allow = 0;
        let mut at = self.deepest(path);
        while let Some(node) = at.and_then(|at| self.nodes.get(at as usize)) {
            if let Some(route) = self.lookup_in(node, &request, &mut allow) {
                return Lookup::Route(route);
            }
            at = node.parent;
        }
        if allow == 0 {
            Lookup::NotFound
        } else {
            Lookup::MethodNotAllowed {
                allow: Allow {
                    methods: &self.methods,
                    set: allow,
                },
            }
        }
    }

    /// The deepest node on the way of `path`.
    fn deepest(&self, path: &[u8]) -> Option<u32> {
        let mut at = 0;
        let mut node = self.nodes.first()?;
        for segment in segments(path) {
            match node.children.get(segment) {
                Some(&child) => {
                    at = child;
                    node = self.nodes.get(at as usize)?;
                }
                None => break,
            }
        }
        Some(at)
    }

    fn lookup_in<'r, H>(
        &self,
        node: &Node,
        request: &Request<'_, H>,
        allow: &mut u64,
    ) -> Option<&Arc<Route>>
    where
        H: Fn(&str) -> Option<&'r [u8]>,
    {
        let named = node.hosts.as_deref();
        named
            .and_then(|hosts| self.lookup_host(hosts, request, allow))
            .or_else(|| self.lookup_block(&node.any, request, allow))
    }

    /// Among the routes that name a host.
    fn lookup_host<'r, H>(
        &self,
        hosts: &Hosts,
        request: &Request<'_, H>,
        allow: &mut u64,
    ) -> Option<&Arc<Route>>
    where
        H: Fn(&str) -> Option<&'r [u8]>,
    {
        if let Some(block) = hosts.exact.get(request.host) {
            if let Some(route) = self.lookup_block(block, request, allow) {
                return Some(route);
            }
        }
        if !hosts.wildcard.is_empty() {
            let dots = request.host.iter().enumerate().filter(|(_, &b)| b == b'.');
            // A dot in front has no label before it.
            for (dot, _) in dots.filter(|&(dot, _)| dot > 0) {
                let suffix = request.host.get(dot + 1..).unwrap_or_default();
                if let Some(block) = hosts.wildcard.get(suffix) {
                    if let Some(route) = self.lookup_block(block, request, allow) {
                        return Some(route);
                    }
                }
            }
        }
        None
    }

    fn lookup_block<'r, H>(
        &self,
        block: &Block,
        request: &Request<'_, H>,
        allow: &mut u64,
    ) -> Option<&Arc<Route>>
    where
        H: Fn(&str) -> Option<&'r [u8]>,
    {
        let mut best: Option<(&Group, u32)> = None;
        for group in &block.groups {
            // Groups of the same rank compete; those behind are out.
            if best.is_some_and(|(b, _)| b.rank() != group.rank()) {
                break;
            }
            if group.port.is_some_and(|port| request.port != Some(port)) {
                continue;
            }
            let found = group.find(request.header, |id| self.route(id), request.method, allow);
            if let Some(id) = found.filter(|&id| best.is_none_or(|(_, best)| id < best)) {
                best = Some((group, id));
            }
        }
        let id = match best {
            Some((_, id)) => id,
            None => block.plain.first_with(request.method, allow, |_| true)?,
        };
        self.routes.get(id as usize)
    }

    fn route(&self, id: u32) -> Option<&Route> {
        self.routes.get(id as usize).map(|route| &**route)
    }

    /// The bit of a method; 0 if no route names it.
    fn method_bit(&self, method: &[u8]) -> u64 {
        let at = self.methods.iter().position(|m| m.as_bytes() == method);
        at.filter(|&at| at < MAX_METHODS).map_or(0, |at| 1 << at)
    }

    /// Fills `nodes` and `methods` from the sorted `routes`.
    fn build(&mut self) {
        let mut methods: Vec<String> = self
            .routes
            .iter()
            .flat_map(|route| route.methods.iter().cloned())
            .collect();
        methods.sort();
        methods.dedup();
        self.methods = methods;
        self.nodes = vec![Node::default()];
        let mut all_names = HashSet::new();
        for (id, route) in (0..).zip(&self.routes) {
            let methods = route
                .methods
                .iter()
                .fold(0, |set, method| set | self.method_bit(method.as_bytes()));
            if methods == 0 && !route.methods.is_empty() {
                continue;
            }
            let node = node_of(&mut self.nodes, route.prefix.as_bytes());
            let entry = Entry { id, methods };
            let names = shared(&mut all_names, route);
            let add = |port| move |block: &mut Block| block.add(entry, route, port, names);
            match &route.host {
                HostPattern::Any => add(None)(&mut node.any),
                HostPattern::Wildcard { suffix, port } => {
                    let hosts = node.hosts.get_or_insert_default();
                    hosts.wildcard.change(suffix.as_bytes(), add(*port));
                }
                HostPattern::Exact { name, port } => {
                    let hosts = node.hosts.get_or_insert_default();
                    hosts.exact.change(name.as_bytes(), add(*port));
                }
            }
        }
        // A parent was made before its children.
        for at in 0..self.nodes.len() {
            let Some(node) = self.nodes.get(at) else {
                break;
            };
            let nearest = if node.is_empty() {
                node.parent
            } else {
                u32::try_from(at).ok()
            };
            let children: Vec<u32> = node.children.values().copied().collect();
            for child in children {
                if let Some(child) = self.nodes.get_mut(child as usize) {
                    child.parent = nearest;
                }
            }
        }
    }
}

/// The names of the fields that a route asks for, the same for all that ask for the same ones.
fn shared(all: &mut HashSet<Names>, route: &Route) -> Names {
    let names = route
        .headers
        .iter()
        .map(|(name, _)| name.to_ascii_lowercase());
    let names: Names = names.collect();
    if let Some(known) = all.get(&names) {
        return known.clone();
    }
    all.insert(names.clone());
    names
}

/// The node of a prefix, made if need be.
fn node_of<'n>(nodes: &'n mut Vec<Node>, prefix: &[u8]) -> &'n mut Node {
    let mut at = 0;
    for segment in segments(prefix) {
        let known = nodes[at].children.get(segment).copied();
        let child = known.unwrap_or_else(|| {
            let next = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            nodes[at].children.change(segment, |child| *child = next);
            nodes.push(Node::default());
            next
        });
        at = child as usize;
    }
    &mut nodes[at]
}

impl Block {
    /// Entries come in rising order of their ids.
    fn add(&mut self, entry: Entry, route: &Route, port: Option<u16>, names: Names) {
        if route.headers.is_empty() && port.is_none() {
            self.plain.push(entry);
            return;
        }
        let found = self.groups.iter().position(|g| g.asks_for(port, &names));
        let at = found.unwrap_or_else(|| {
            let group = Group::new(port, names);
            let at = self.groups.partition_point(|g| g.rank() <= group.rank());
            self.groups.insert(at, group);
            at
        });
        self.groups[at].add(entry, route);
    }
}

/// What a look-up asks about.
struct Request<'a, H> {
    /// Lower-case, without port or trailing dot.
    host: &'a [u8],
    port: Option<u16>,
    /// Its bit; 0 if no route names it.
    method: u64,
    header: &'a H,
}

/// Host (lower-case, in `lower`) and port of a `Host` value. A port that is missing or empty is
/// 80, the default of `http` (RFC 9110, section 4.2.1). A host that is too long to match is empty.
pub(super) fn split_host<'b>(
    host: &[u8],
    lower: &'b mut [u8; MAX_HOST],
) -> (&'b [u8], Option<u16>) {
    // In an IPv6 literal the last colon may be inside the brackets.
    let (name, port) = match host.iter().rposition(|&b| b == b':' || b == b']') {
        Some(colon) if host.get(colon) == Some(&b':') => {
            let (name, port) = host.split_at(colon);
            (name, port.get(1..).unwrap_or_default())
        }
        _ => (host, &b""[..]),
    };
    let port = if port.is_empty() {
        Some(80)
    } else {
        parse_port(port)
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    let Some(lower) = lower.get_mut(..name.len()) else {
        return (b"", port);
    };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    (lower, port)
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0u16, |port, &b| {
        let digit = b.checked_sub(b'0').filter(|&d| d < 10)?;
        port.checked_mul(10)?.checked_add(u16::from(digit))
    })
}

#[cfg(test)]
#[path = "router_tests.rs"]
pub(crate) mod tests;
