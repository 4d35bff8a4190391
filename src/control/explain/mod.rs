//! `toron explain`: which route would take a request, why the others would not, within which limits,
//! and what the upstream would see.
//!
//! ```text
//!  command line ─▶ run ──────────────────────▶ asked ─▶ mod ─▶ text, or JSON
//!                   └─ --running ─▶ running ─▶ the admin API of a toron that runs: asked ─▶ mod
//! ```

mod asked;
mod running;
mod text;

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::config::routes::show_key;
use super::config::{load, Inputs};
use super::effective::limits;
use super::resolve::Endpoints;
use crate::args::ExplainArgs;
use crate::policy::explain::{Considered, Miss, Precedence};
use crate::policy::settings::{Route, RouteKind};
use crate::policy::snapshot::Snapshot;
use crate::server::explain::{explain, Judgement, Outcome};
pub use asked::Asked;

/// Routes that are shown beside the one that takes the request.
const SHOWN: usize = 20;

/// What can be said of a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The request.
    pub request: Request,
    /// `forwarded`, `responds`, `built_in` or `refused`.
    pub outcome: String,
    /// Status of the answer, where toron gives it.
    pub status: Option<u16>,
    /// Body of the answer, where toron gives it.
    pub body: Option<String>,
    /// Methods that would do, of a 405.
    pub allow: Option<String>,
    /// Why it is refused, as a reason code.
    pub reason: Option<String>,
    /// The route that takes it, also where a limit of the route refuses it.
    pub route: Option<Winner>,
    /// What its first target would see.
    pub upstream: Option<Forwarded>,
    /// The limits that hold.
    pub limits: Vec<Limit>,
    /// Other routes, those that came nearest first.
    pub considered: Vec<Loser>,
    /// Routes that are not shown because they did not come near.
    pub further: usize,
    /// What else is to be known.
    pub notes: Vec<String>,
}

/// The request that is explained.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// As asked.
    pub method: String,
    /// As asked.
    pub url: String,
    /// The host that is looked up.
    pub host: Option<String>,
    /// The path that is looked up.
    pub path: Option<String>,
    /// The resolved client.
    pub client: String,
}

/// The route that takes a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Winner {
    /// Host, prefix, methods and fields.
    pub route: String,
    /// Where it was written.
    pub place: String,
    /// Who made it.
    pub source: String,
    /// Its targets.
    pub targets: Vec<String>,
    /// How one is chosen.
    pub algorithm: Option<String>,
}

/// What an upstream sees.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Forwarded {
    /// Which target.
    pub target: String,
    /// The first line.
    pub request_line: String,
    /// The fields, in order.
    pub headers: Vec<(String, String)>,
}

/// A limit, as in [`super::effective::Limit`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// Its key in the files.
    pub name: String,
    /// Its value for machines.
    pub value: serde_json::Value,
    /// Its value for people.
    pub shown: String,
    /// Which setting it came from.
    pub set_by: String,
    /// Where that stands, if it is written.
    pub place: Option<String>,
}

/// A route that does not take a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Loser {
    /// Host, prefix, methods and fields.
    pub route: String,
    /// Where it was written.
    pub place: String,
    /// It would take the request if the winner did not.
    pub matches: bool,
    /// Why it does not take it.
    pub why: Vec<String>,
}

/// Explains what `snapshot` would do with a request.
#[must_use]
pub fn of(snapshot: &Snapshot, asked: &Asked) -> Explanation {
    let judgement = explain(snapshot, &asked.head(), asked.from);
    let mut told = Explanation {
        request: Request {
            method: asked.method.clone(),
            url: asked.url.clone(),
            host: judgement.host.clone(),
            path: judgement.path.clone(),
            client: judgement.client.to_string(),
        },
        outcome: String::new(),
        status: None,
        body: None,
        allow: None,
        reason: None,
        route: None,
        upstream: None,
        limits: Vec::new(),
        considered: Vec::new(),
        further: 0,
        notes: Vec::new(),
    };
    tell_outcome(&judgement, &mut told);
    tell_routes(&judgement, asked, &mut told);
    told
}

fn tell_outcome(judgement: &Judgement<'_>, told: &mut Explanation) {
    let outcome = match &judgement.outcome {
        Outcome::Refused {
            answer,
            reason,
            allow,
        } => {
            told.status = Some(answer.status());
            told.body = Some(answer.body().to_owned());
            told.reason = Some(reason.code().to_owned());
            told.allow.clone_from(allow);
            "refused"
        }
        Outcome::BuiltIn { answer } => {
            told.status = Some(answer.map_or(200, |answer| answer.status()));
            told.body = answer.map(|answer| answer.body().to_owned());
            "built_in"
        }
        Outcome::Responds(route) => {
            if let RouteKind::Respond(fixed) = &route.kind {
                told.status = Some(fixed.status);
                told.body = Some(fixed.body.clone());
            }
            "responds"
        }
        Outcome::Forwarded {
            route,
            head,
            is_new_id,
            is_collected,
        } => {
            told.upstream = Some(forwarded(route, head, *is_new_id, *is_collected));
            "forwarded"
        }
    };
    told.outcome = outcome.to_owned();
}

fn forwarded(route: &Route, head: &[u8], is_new_id: bool, is_collected: bool) -> Forwarded {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.trim_end().split("\r\n");
    let request_line = lines.next().unwrap_or_default().to_owned();
    let field = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        let value = match name {
            "X-Request-Id" if is_new_id => "(a new one for each request)",
            "Content-Length" if is_collected => "(that of the body, which is collected first)",
            _ => value,
        };
        (name.to_owned(), value.to_owned())
    };
    let target = route.targets().first().map(|target| target.url());
    Forwarded {
        target: target.unwrap_or_default(),
        request_line,
        headers: lines.map(field).collect(),
    }
}

fn tell_routes(judgement: &Judgement<'_>, asked: &Asked, told: &mut Explanation) {
    let takes = |c: &&Considered<'_>| c.misses.is_empty();
    let winner = judgement.considered.iter().find(takes).map(|c| c.route);
    if let Some(route) = winner {
        told.route = Some(describe(route));
        told.limits = limits(route).0.into_iter().map(Limit::from).collect();
    }
    let others = judgement.considered.iter();
    let mut others: Vec<&Considered<'_>> = others
        .filter(|c| winner.is_none_or(|winner| winner.id != c.route.id))
        .collect();
    let all = others.len();
    others.retain(|c| comes_near(&c.misses));
    others.sort_by_key(|c| (c.misses.len(), c.route.id));
    others.truncate(SHOWN);
    told.further = all - others.len();
    told.considered = others.into_iter().map(|c| lose(c, winner, asked)).collect();
}

/// Whether somebody may have expected the route to take the request: its prefix fits, or nearly.
fn comes_near(misses: &[Miss]) -> bool {
    !misses.contains(&Miss::Prefix)
}

fn describe(route: &Route) -> Winner {
    let (targets, algorithm) = match &route.kind {
        RouteKind::Respond(_) => (Vec::new(), None),
        RouteKind::Upstream(upstream) => (
            upstream.targets.iter().map(|target| target.url()).collect(),
            Some(upstream.algorithm.as_str().to_owned()),
        ),
    };
    Winner {
        route: show_key(route),
        place: route.origin.to_string(),
        source: route.source.as_str().to_owned(),
        algorithm,
        targets,
    }
}

impl From<super::effective::Limit> for Limit {
    fn from(limit: super::effective::Limit) -> Self {
        Limit {
            name: limit.name.to_owned(),
            value: limit.value,
            shown: limit.shown,
            set_by: limit.origin.as_str().to_owned(),
            place: limit.origin.at.map(|place| place.to_string()),
        }
    }
}

fn lose(
    considered: &Considered<'_>,
    winner: Option<&std::sync::Arc<Route>>,
    asked: &Asked,
) -> Loser {
    let route = considered.route;
    let why = match winner {
        Some(winner) if considered.misses.is_empty() => vec![precedence(winner, route)],
        _ => considered
            .misses
            .iter()
            .map(|miss| reason(miss, route, asked))
            .collect(),
    };
    Loser {
        route: show_key(route),
        place: route.origin.to_string(),
        matches: considered.misses.is_empty(),
        why,
    }
}

fn precedence(winner: &Route, loser: &Route) -> String {
    let because = match Precedence::of(winner, loser) {
        Precedence::LongerPrefix => "has a longer prefix",
        Precedence::ClearerHost => "names its host more exactly",
        Precedence::LongerSuffix => "has a wildcard that takes fewer hosts",
        Precedence::NamesPort => "names a port",
        Precedence::MoreFields => "asks for more headers",
        Precedence::NamesMethod => "names its methods",
        Precedence::Order => "comes first by host, prefix, methods and headers as text",
    };
    format!("matches as well, but the other {because}")
}

fn reason(miss: &Miss, route: &Route, asked: &Asked) -> String {
    let prefix = &route.prefix;
    match miss {
        Miss::Prefix => format!("the path does not begin with {prefix}"),
        Miss::Segment => format!("{prefix} ends in the middle of a segment of the path"),
        Miss::Case => format!("{prefix} differs from the path in upper and lower case"),
        Miss::Host => format!("the host is not {}", route.host),
        Miss::Port => format!("the port is not that of {}", route.host),
        Miss::Field {
            name,
            wanted,
            given: None,
        } => format!("there is no header {name} (asked for: {wanted})"),
        Miss::Field {
            name,
            wanted,
            given: Some(given),
        } => format!("the header {name} is {given} (asked for: {wanted})"),
        Miss::Method => format!("{} is not {}", asked.method, route.methods.join(" or ")),
    }
}

/// Runs the command.
#[must_use]
pub fn run(args: &ExplainArgs) -> ExitCode {
    match told(args) {
        Ok(explanation) if args.json => {
            let text = serde_json::to_string_pretty(&explanation);
            print(&(text.unwrap_or_default() + "\n"))
        }
        Ok(explanation) => print(&text::render(&explanation)),
        Err(lines) => {
            for line in lines {
                eprintln!("{line}");
            }
            ExitCode::FAILURE
        }
    }
}

/// A reader that has gone (`toron explain | head`) is no failure.
fn print(text: &str) -> ExitCode {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn told(args: &ExplainArgs) -> Result<Explanation, Vec<String>> {
    let one = |line: String| vec![format!("toron: {line}")];
    let asked = Asked::new(&args.method, &args.url, &args.headers, args.from).map_err(one)?;
    let inputs = Inputs::from_environment(args.files.config.clone(), args.files.routes.clone());
    let loaded = load(&inputs, &mut Endpoints::default());
    if args.running {
        let settings = loaded
            .as_ref()
            .ok()
            .map(|loaded| &*loaded.snapshot.settings);
        return running::ask(args, &asked, settings).map_err(one);
    }
    match loaded {
        Ok(loaded) => {
            let mut explanation = of(&loaded.snapshot, &asked);
            explanation.notes.push(
                "by the files alone: rates, blocks, slots and the health of targets are not considered"
                    .to_owned(),
            );
            Ok(explanation)
        }
        Err(rejected) => Err(rejected.faults.iter().map(ToString::to_string).collect()),
    }
}
