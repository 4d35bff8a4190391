//! `toron check`: every fault of both files, or what holds.

use std::fmt::{self, Write};

use crate::policy::settings::{HalfClose, LimitSources, Limits, Route, RouteKind, SetBy};
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
    let mut parts = Parts(Vec::new());
    let (limits, sources) = (&route.limits, &route.limit_sources);
    let read = off_or(limits.read_timeout);
    parts.add("read", "read_timeout", &read, sources.read_timeout);
    let write = off_or(limits.write_timeout);
    parts.add("write", "write_timeout", &write, sources.write_timeout);
    if let RouteKind::Upstream(_) = route.kind {
        body_deadlines(&mut parts, limits, sources);
        upstream_deadlines(&mut parts, limits, sources);
        total_deadlines(&mut parts, limits, sources);
        let mode = limits.chunked_mode.as_str();
        let by = sources.chunked_mode;
        parts.add("chunked", "inbound_chunked_mode", mode, by);
    }
    parts.0
}

struct Parts(Vec<String>);

impl Parts {
    fn add(&mut self, name: &str, key: &str, value: &str, by: SetBy) {
        if !is_pending(&format!("routes[].{key}")) {
            self.0.push(format!("{name} {value} ({})", by.as_str()));
        }
    }
}

fn body_deadlines(parts: &mut Parts, limits: &Limits, sources: &LimitSources) {
    let body = limits.body_timeout.map_or("off".to_owned(), show_duration);
    parts.add("body", "body_timeout", &body, sources.body_timeout);
    let rate = match limits.min_body_rate {
        0 => "off".to_owned(),
        rate => show_rate(rate),
    };
    parts.add("body rate", "min_body_rate", &rate, sources.min_body_rate);
    if limits.client_half_close == HalfClose::Abort {
        parts.add("half-close", "client_half_close", "aborts", SetBy::Route);
    }
}

fn upstream_deadlines(parts: &mut Parts, limits: &Limits, sources: &LimitSources) {
    let head = off_or(limits.response_header_timeout);
    let by = sources.response_header_timeout;
    parts.add("response header", "response_header_timeout", &head, by);
    let idle = off_or(limits.upstream_idle_timeout);
    let by = sources.upstream_idle_timeout;
    parts.add("upstream idle", "upstream_idle_timeout", &idle, by);
    let upgrade = off_or(limits.upgrade_idle_timeout);
    let by = sources.upgrade_idle_timeout;
    parts.add("upgrade idle", "upgrade_idle_timeout", &upgrade, by);
}

fn total_deadlines(parts: &mut Parts, limits: &Limits, sources: &LimitSources) {
    if let Some(deadline) = limits.header_deadline {
        let shown = show_duration(deadline);
        let by = sources.header_deadline;
        parts.add("header deadline", "header_deadline", &shown, by);
    }
    if let Some(deadline) = limits.request_deadline {
        let covers = match limits.request_deadline_covers_upgrades {
            true => " with upgrades",
            false => "",
        };
        let shown = show_duration(deadline) + covers;
        parts.add("request deadline", "request_deadline", &shown, SetBy::Route);
    }
}

fn show_rate(bytes: u64) -> String {
    let shown = show_size(bytes);
    let unit = if shown.ends_with('B') { "/s" } else { "B/s" };
    shown + unit
}
