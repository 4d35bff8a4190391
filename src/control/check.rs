//! `toron check`: every fault of both files, or what holds.

use std::fmt::{self, Write};

use crate::policy::settings::{LimitSources, Limits, Route, RouteKind, SetBy};
use crate::policy::snapshot::Snapshot;

use super::config::finding::Finding;
use super::config::pending::is_pending;
use super::config::routes::show_key;
use super::config::values::{show_duration, show_size};
use super::config::{load, Inputs, Rejected};
use super::resolve::Endpoints;

/// What `toron check` prints, and whether the configuration can be used.
pub struct Outcome {
    /// For standard output.
    pub output: String,
    /// For standard error.
    pub errors: String,
    /// Whether it can be used.
    pub good: bool,
}

/// Reads both files and tells all about them. Opens no socket and resolves no name.
#[must_use]
pub fn check(inputs: &Inputs) -> Outcome {
    match load(inputs, &mut Endpoints::default()) {
        Ok(loaded) => {
            let files: Vec<String> = loaded
                .files
                .iter()
                .map(|f| f.display().to_string())
                .collect();
            let output = format!("{}{}: good\n", Report(&loaded.snapshot), files.join(", "));
            Outcome {
                output,
                errors: lines("warning: ", &loaded.warnings),
                good: true,
            }
        }
        Err(Rejected { faults, warnings }) => {
            let errors = lines("", &faults) + &lines("warning: ", &warnings);
            Outcome {
                output: String::new(),
                errors,
                good: false,
            }
        }
    }
}

fn lines(before: &str, findings: &[Finding]) -> String {
    findings.iter().fold(String::new(), |mut text, finding| {
        // The place stays at the start of the line, where editors look for it.
        let place = finding.to_string();
        let message = finding.message.as_str();
        let place = place.strip_suffix(message).unwrap_or_default();
        let _ = writeln!(text, "{place}{before}{message}");
        text
    })
}

/// The effective settings and the table of routes.
struct Report<'a>(&'a Snapshot);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.0.settings;
        let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
        writeln!(f, "listen        {}", listen.join(", "))?;
        writeln!(f, "reactors      {}", settings.worker_pool_size)?;
        let timeout = off_or(settings.header_timeout);
        writeln!(
            f,
            "request head  {} and {} fields within {timeout} (the stricter of server and firewall)",
            show_size(settings.max_header_bytes as u64),
            settings.max_header_count
        )?;
        writeln!(f)?;
        let rows: Vec<[String; 4]> = self.0.table.routes().iter().map(|r| row(r)).collect();
        write_table(f, &rows, self.0)
    }
}

const HEAD: [&str; 4] = ["ROUTE", "TARGET", "CEILING", "CAP"];

fn write_table(
    f: &mut fmt::Formatter<'_>,
    rows: &[[String; 4]],
    snapshot: &Snapshot,
) -> fmt::Result {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|c| c.chars().count());
        cells
            .chain(HEAD.get(column).map(|h| h.len()))
            .max()
            .unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2)];
    let line = |f: &mut fmt::Formatter<'_>, cells: [&str; 4]| {
        let [key, target, ceiling, cap] = cells;
        let [a, b, c] = widths;
        writeln!(f, "{key:a$}  {target:b$}  {ceiling:c$}  {cap}")
    };
    line(f, HEAD)?;
    for (route, row) in snapshot.table.routes().iter().zip(rows) {
        let [key, target, ceiling, cap] = row;
        line(f, [key, target, ceiling, cap])?;
        writeln!(f, "  {}", deadlines(route).join(", "))?;
    }
    writeln!(f)
}

fn row(route: &Route) -> [String; 4] {
    let target = match &route.kind {
        RouteKind::Respond(response) => format!("responds {}", response.status),
        RouteKind::Upstream(upstream) => {
            let urls = upstream.targets.iter().map(|target| match target.weight {
                1 => target.url(),
                weight => format!("{} (weight {weight})", target.url()),
            });
            urls.collect::<Vec<_>>().join(", ")
        }
    };
    let (limits, sources) = (&route.limits, &route.limit_sources);
    let cap = limits
        .max_concurrency
        .map_or("none".to_owned(), |cap| cap.to_string());
    [
        show_key(route),
        target,
        format!(
            "{} ({})",
            show_size(limits.max_body_bytes),
            sources.max_body_bytes.as_str()
        ),
        format!("{cap} ({})", sources.max_concurrency.as_str()),
    ]
}

fn off_or(duration: std::time::Duration) -> String {
    if duration.is_zero() {
        "off".to_owned()
    } else {
        show_duration(duration)
    }
}

/// The limits in time that have effect; those that have none yet would only mislead.
fn deadlines(route: &Route) -> Vec<String> {
    let (limits, sources): (&Limits, &LimitSources) = (&route.limits, &route.limit_sources);
    let mut parts = Vec::new();
    let mut part = |name: &str, key: &str, value: String, by: SetBy| {
        if !is_pending(&format!("routes[].{key}")) {
            parts.push(format!("{name} {value} ({})", by.as_str()));
        }
    };
    part(
        "read",
        "read_timeout",
        off_or(limits.read_timeout),
        sources.read_timeout,
    );
    part(
        "write",
        "write_timeout",
        off_or(limits.write_timeout),
        sources.write_timeout,
    );
    let body = limits.body_timeout.map_or("off".to_owned(), show_duration);
    part("body", "body_timeout", body, sources.body_timeout);
    if let RouteKind::Respond(_) = route.kind {
        return parts;
    }
    let head = off_or(limits.response_header_timeout);
    part(
        "response header",
        "response_header_timeout",
        head,
        sources.response_header_timeout,
    );
    let idle = off_or(limits.upstream_idle_timeout);
    part(
        "upstream idle",
        "upstream_idle_timeout",
        idle,
        sources.upstream_idle_timeout,
    );
    let upgrade = off_or(limits.upgrade_idle_timeout);
    part(
        "upgrade idle",
        "upgrade_idle_timeout",
        upgrade,
        sources.upgrade_idle_timeout,
    );
    if let Some(deadline) = limits.header_deadline {
        let shown = show_duration(deadline);
        part(
            "header deadline",
            "header_deadline",
            shown,
            sources.header_deadline,
        );
    }
    if let Some(deadline) = limits.request_deadline {
        part(
            "request deadline",
            "request_deadline",
            show_duration(deadline),
            SetBy::Route,
        );
    }
    let mode = limits.chunked_mode.as_str().to_owned();
    part(
        "chunked",
        "inbound_chunked_mode",
        mode,
        sources.chunked_mode,
    );
    parts
}
