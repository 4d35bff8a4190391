//! From containers to routes: those that ask for the same requests form one pool (D9). Pure, and
//! nothing depends on the order in which containers are listed or were started.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::address::{locate, Wanted};
use super::container::Container;
use super::labels::{self, Asked, Options};
use crate::control::config::inherited::Inherited;
use crate::control::config::routes::label;
use crate::policy::discovery::DiscoverySettings;
use crate::policy::router::{RouteKey, MAX_METHODS};
use crate::policy::settings::{
    Algorithm, Endpoint, Health, Place, Route, RouteKind, Source, Target, Upstream,
};

/// What became of a container.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The engine's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// As the engine says it: `running`, …
    pub state: String,
    /// The route it is in, or why it is in none.
    pub placed: Result<Placed, String>,
    /// What else the operator should know.
    pub notes: Vec<String>,
    /// How many constraints do not hold because they cannot be read.
    pub ignored_constraints: usize,
    /// It runs but has no address: it may have one in a moment (D5).
    pub unfinished: bool,
}

/// The place of a container.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// The key of its route.
    pub key: RouteKey,
    /// The name of its route.
    pub route: String,
    /// Where requests for it go.
    pub url: String,
}

/// What the containers at hand come to.
#[derive(Debug, Default)]
pub struct Desired {
    /// In the order of their keys.
    pub routes: Vec<Route>,
    /// One for each container, by name.
    pub verdicts: Vec<Verdict>,
}

/// Whether two routes are the same in every respect, so that there is nothing to publish.
#[must_use]
pub fn is_same(a: &Route, b: &Route) -> bool {
    let (RouteKind::Upstream(one), RouteKind::Upstream(other)) = (&a.kind, &b.kind) else {
        return false;
    };
    // Every field: a new one must be compared, too.
    let Upstream {
        targets,
        algorithm,
        target_max_concurrency,
        retries,
        strip_prefix,
        rewrite_redirects,
        rewrite_cookie_path,
        preserve_host,
        health,
    } = one;
    let is_same_target = |(x, y): (&Arc<Target>, &Arc<Target>)| {
        x.authority == y.authority
            && x.path == y.path
            && x.weight == y.weight
            && x.endpoint.id == y.endpoint.id
    };
    RouteKey::of(a) == RouteKey::of(b)
        && a.origin == b.origin
        && a.headers == b.headers
        && a.limits == b.limits
        && a.limit_sources == b.limit_sources
        && targets.len() == other.targets.len()
        && targets.iter().zip(&other.targets).all(is_same_target)
        && *algorithm == other.algorithm
        && *target_max_concurrency == other.target_max_concurrency
        && *retries == other.retries
        && *strip_prefix == other.strip_prefix
        && *rewrite_redirects == other.rewrite_redirects
        && *rewrite_cookie_path == other.rewrite_cookie_path
        && *preserve_host == other.preserve_host
        && *health == other.health
}

/// Gives the endpoint of an address and port that the container with this id has.
pub type EndpointOf<'a> = dyn FnMut(SocketAddr, &str) -> Arc<Endpoint> + 'a;

/// One container that can take requests.
struct Member {
    /// Index into the verdicts.
    at: usize,
    address: SocketAddr,
    weight: u32,
    options: Options,
}

/// Makes the routes. `methods` are those that other routes name: a table holds no more than
/// [`MAX_METHODS`] in all.
#[must_use]
pub fn desired(
    containers: &[Container],
    settings: &DiscoverySettings,
    inherited: &Inherited,
    methods: BTreeSet<String>,
    endpoint: &mut EndpointOf<'_>,
) -> Desired {
    let mut sorted: Vec<&Container> = containers.iter().collect();
    sorted.sort_by_key(|c| (&c.name, &c.id));
    let mut made = Desired::default();
    let mut groups: BTreeMap<RouteKey, (Route, Vec<Member>)> = BTreeMap::new();
    for container in sorted {
        let at = made.verdicts.len();
        let (verdict, asked) = judge(container, settings, inherited);
        made.verdicts.push(verdict);
        if let Some((asked, address)) = asked {
            let member = Member {
                at,
                address,
                weight: asked.weight.unwrap_or(settings.default_weight),
                options: asked.options.clone(),
            };
            let route = route_of(container, asked);
            let group = groups.entry(RouteKey::of(&route));
            let (_, members) = group.or_insert_with(|| (route, Vec::new()));
            members.push(member);
        }
    }
    note_overlaps(&groups, &mut made.verdicts);
    let mut methods = methods;
    for (key, (mut route, members)) in groups {
        let with_its = &methods | &route.methods.iter().cloned().collect();
        if with_its.len() > MAX_METHODS {
            let reason = format!("all routes together name more than {MAX_METHODS} methods");
            refuse(&members, &reason, &mut made.verdicts);
            continue;
        }
        methods = with_its;
        note_conflicts(&members, &mut made.verdicts);
        settle(&mut route, &key, &members, &mut made.verdicts, endpoint);
        made.routes.push(route);
    }
    made
}

/// What can be said about a container by itself.
fn judge(
    container: &Container,
    settings: &DiscoverySettings,
    inherited: &Inherited,
) -> (Verdict, Option<(Asked, SocketAddr)>) {
    let reading = labels::read(&container.labels, &place_of(container), inherited);
    let mut verdict = Verdict {
        id: container.id.clone(),
        name: container.name.clone(),
        state: container.state.clone(),
        placed: Err(String::new()),
        notes: reading.notes,
        ignored_constraints: reading.ignored_constraints,
        unfinished: false,
    };
    verdict.notes.extend(container.unknown.clone());
    let ready = reading
        .asked
        .and_then(|asked| container.is_ready().map(|()| asked));
    let asked = match ready {
        Ok(asked) => asked,
        Err(reason) => {
            verdict.placed = Err(reason);
            return (verdict, None);
        }
    };
    let wanted = Wanted {
        address: asked.address,
        port: asked.port,
        network: asked.network.as_deref().or(settings.network.as_deref()),
    };
    match locate(container, wanted) {
        Ok(located) => {
            verdict.notes.extend(located.note);
            (verdict, Some((asked, located.at)))
        }
        Err(reason) => {
            verdict.placed = Err(reason);
            verdict.unfinished = true;
            (verdict, None)
        }
    }
}

/// Where what a container asks for stands.
fn place_of(container: &Container) -> String {
    format!("container {}", container.name)
}

/// Further targets of a discovered route for one request. Replicas die together, and are still in the
/// list until the engine has told of it (D12): with the one of the files two that are removed by one
/// command cost 7 requests of 138,000.
const RETRIES: u32 = 3;

/// The route that a container asks for, without targets.
fn route_of(container: &Container, asked: Asked) -> Route {
    let options = asked.options;
    let upstream = Upstream {
        targets: Vec::new(),
        algorithm: Algorithm::RoundRobin,
        target_max_concurrency: None,
        retries: RETRIES,
        strip_prefix: options.strip_prefix,
        rewrite_redirects: options.rewrite_redirects,
        rewrite_cookie_path: options.rewrite_cookie_path,
        preserve_host: true,
        health: Health {
            check_path: options
                .health_check
                .filter(|_| !options.health_check_interval.is_zero()),
            check_interval: options.health_check_interval,
            check_timeout: Duration::from_secs(2),
            consecutive_failures: 3,
            cooldown_period: Duration::from_secs(10),
            passive_statuses: Vec::new(),
            try_when_all_down: false,
        },
    };
    let mut route = Route {
        id: 0,
        name: String::new(),
        host: asked.host,
        prefix: asked.prefix,
        methods: asked.methods,
        headers: asked.headers,
        source: Source::OciDiscovery,
        origin: Place {
            file: place_of(container).into(),
            line: 0,
        },
        kind: RouteKind::Upstream(upstream),
        limits: options.limits,
        limit_sources: options.limit_sources,
    };
    route.name = label(&route);
    route
}

fn refuse(members: &[Member], reason: &str, verdicts: &mut [Verdict]) {
    for member in members {
        if let Some(verdict) = verdicts.get_mut(member.at) {
            verdict.placed = Err(reason.to_owned());
        }
    }
}

/// The options of the first container by name hold for all of its group: start order cannot matter.
fn note_conflicts(members: &[Member], verdicts: &mut [Verdict]) {
    let Some(first) = members.first() else {
        return;
    };
    let name_of_first = verdicts.get(first.at).map(|v| v.name.clone());
    for member in members {
        let differences = first.options.differences(&member.options);
        if differences.is_empty() {
            continue;
        }
        let labels: Vec<String> = differences.iter().map(|d| format!("toron.{d}")).collect();
        if let (Some(verdict), Some(name)) = (verdicts.get_mut(member.at), &name_of_first) {
            verdict.notes.push(format!(
                "differs from {name}, whose value holds for the route, in {}",
                labels.join(", ")
            ));
        }
    }
}

/// Two routes that differ in their lists of methods alone may share some: which of them takes such
/// a request follows from the order of the lists, which nobody had in mind.
fn note_overlaps(groups: &BTreeMap<RouteKey, (Route, Vec<Member>)>, verdicts: &mut [Verdict]) {
    let mut taken: BTreeMap<(RouteKey, &str), &Route> = BTreeMap::new();
    for (route, members) in groups.values() {
        for method in &route.methods {
            let mut any_method = route.clone();
            any_method.methods.clear();
            let first = taken.entry((RouteKey::of(&any_method), method));
            let first = *first.or_insert(route);
            if std::ptr::eq(first, route) {
                continue;
            }
            for member in members {
                if let Some(verdict) = verdicts.get_mut(member.at) {
                    verdict.notes.push(format!(
                        "{method} requests go to the route {}, which names that method as well",
                        first.name
                    ));
                }
            }
        }
    }
}

/// Gives the route its targets, in the order of their URLs and each once, and its containers their
/// place.
fn settle(
    route: &mut Route,
    key: &RouteKey,
    members: &[Member],
    verdicts: &mut [Verdict],
    endpoint: &mut EndpointOf<'_>,
) {
    let mut targets: BTreeMap<String, Arc<Target>> = BTreeMap::new();
    for member in members {
        let Some(verdict) = verdicts.get_mut(member.at) else {
            continue;
        };
        let authority = member.address.to_string();
        let url = format!("http://{authority}");
        targets.entry(url.clone()).or_insert_with(|| {
            Arc::new(Target {
                authority,
                path: String::new(),
                weight: member.weight,
                endpoint: endpoint(member.address, &verdict.id),
            })
        });
        verdict.placed = Ok(Placed {
            key: key.clone(),
            route: route.name.clone(),
            url,
        });
    }
    if let RouteKind::Upstream(upstream) = &mut route.kind {
        upstream.targets = targets.into_values().collect();
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
