//! What the labels of a container ask for. Pure; every label can hold anything.
//!
//! Values are read as those of the same settings in the files are: the labels become a section as if
//! they stood in one, so that names, units, limits and hints are the same. A value that is wrong
//! leaves the default and is told to the operator (D11).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::constraints::{self, Constraints, GROUPED, SINGLE};
use crate::control::config::fields::is_token;
use crate::control::config::finding::{Findings, Mark};
use crate::control::config::inherited::Inherited;
use crate::control::config::limits;
use crate::control::config::routes::{normal_prefix, parse_host};
use crate::control::config::section::{Report, Section};
use crate::control::config::yaml::{Entry, Node, Value};
use crate::policy::settings::{ChunkedMode, HostPattern, LimitSources, Limits};

/// The label that a container must have.
pub const ENABLE: &str = "toron.enable";

/// Longest remark kept about a container, in bytes: labels may hold much.
const MAX_NOTE: usize = 300;

/// Labels that are on or off.
const SWITCHES: [&str; 4] = [
    "strip_prefix",
    "rewrite_redirects",
    "rewrite_cookie_path",
    "stream_request_body",
];

/// What of a route is not its key; the same for all containers behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// R7.
    pub strip_prefix: bool,
    /// R9.
    pub rewrite_redirects: bool,
    /// R10.
    pub rewrite_cookie_path: bool,
    /// Path of the probe.
    pub health_check: Option<String>,
    /// Time between probes; zero is none.
    pub health_check_interval: Duration,
    /// Limits, with what they inherit.
    pub limits: Limits,
    /// Where these came from.
    pub limit_sources: LimitSources,
}

/// What the labels of a container ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// `toron.host`.
    pub host: HostPattern,
    /// `toron.prefix`, normalised.
    pub prefix: String,
    /// `toron.method`: upper-case, sorted.
    pub methods: Vec<String>,
    /// `toron.header.…` and `toron.headers`.
    pub headers: Vec<(String, String)>,
    /// `toron.port`.
    pub port: Option<u16>,
    /// `toron.network`.
    pub network: Option<String>,
    /// `toron.address`.
    pub address: Option<IpAddr>,
    /// `toron.weight`.
    pub weight: Option<u32>,
    /// The rest.
    pub options: Options,
}

/// The outcome of reading the labels of one container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// What they ask for, or why there can be no route.
    pub asked: Result<Asked, String>,
    /// Values that are wrong, and what else the operator should know.
    pub notes: Vec<String>,
    /// How many constraints do not hold because they cannot be read.
    pub ignored_constraints: usize,
}

/// Reads the labels of a container. `place` names it where it is told who set a limit.
#[must_use]
pub fn read(labels: &BTreeMap<String, String>, place: &str, inherited: &Inherited) -> Reading {
    let enable = labels.get(ENABLE).map_or("", |text| text.trim());
    if !["true", "1", "yes"].contains(&enable.to_ascii_lowercase().as_str()) {
        let reason = format!("{ENABLE} is \"{enable}\" (allowed: true, 1, yes)");
        return Reading {
            asked: Err(cut(reason)),
            notes: Vec::new(),
            ignored_constraints: 0,
        };
    }
    let fields = constraints::read(labels);
    let findings = Findings::default();
    let file: Arc<str> = place.into();
    let report = Report {
        file: &file,
        findings: &findings,
    };
    let node = Node {
        mark: Mark::default(),
        value: Value::Map(entries(labels)),
    };
    let asked = match Section::new(report, "toron", &node) {
        Some(section) => read_section(section, fields.fields.clone(), inherited),
        None => Err("its labels cannot be read".to_owned()),
    };
    finish(asked, findings, fields)
}

fn finish(asked: Result<Asked, String>, findings: Findings, fields: Constraints) -> Reading {
    let (faults, warnings) = findings.into_sorted();
    let ignored_constraints = fields.ignored.len();
    let ignored = fields
        .ignored
        .into_iter()
        .map(|text| format!("{text}; it takes requests without this field"));
    let said = faults.into_iter().chain(warnings).map(|f| f.message);
    let notes = ignored.chain(fields.notes).chain(said).map(cut).collect();
    Reading {
        asked: asked.map_err(cut),
        notes,
        ignored_constraints,
    }
}

/// The labels as if they stood in a file, those that ask for fields left out.
fn entries(labels: &BTreeMap<String, String>) -> Vec<Entry> {
    let named = labels.iter().filter_map(|(label, text)| {
        let is_field = label.starts_with(SINGLE) || label == GROUPED;
        let key = label.strip_prefix("toron.").filter(|_| !is_field)?;
        let text = match text.trim() {
            "1" if SWITCHES.contains(&key) => "true",
            "0" if SWITCHES.contains(&key) => "false",
            text => text,
        };
        // `--label toron.host=` is the same as no label.
        let text = Some(text).filter(|text| !text.is_empty())?;
        let value = Value::Scalar {
            text: text.to_owned(),
            plain: true,
        };
        Some(Entry {
            key: key.to_owned(),
            mark: Mark::default(),
            value: Node {
                mark: Mark::default(),
                value,
            },
        })
    });
    named.collect()
}

fn read_section(
    s: Section<'_>,
    headers: Vec<(String, String)>,
    inherited: &Inherited,
) -> Result<Asked, String> {
    s.known("enable");
    let host = read_host(&s);
    let prefix = read_prefix(&s);
    let port = s.number("port", 1..=65_535);
    let asked = Asked {
        methods: read_methods(&s),
        headers,
        port,
        network: s.string("network").map(str::to_owned),
        address: read_address(&s),
        weight: s.number("weight", 1..=1000),
        options: read_options(&s, inherited),
        host,
        prefix,
    };
    if matches!(asked.prefix.as_str(), "/health" | "/metrics") {
        fault(
            &s,
            "prefix",
            &format!("this route wins over the built-in {}", asked.prefix),
        );
    }
    s.finish();
    let below_internal = asked.prefix == "/internal" || asked.prefix.starts_with("/internal/");
    if asked.host == HostPattern::Any && asked.prefix == "/" {
        let reason = "it would take all traffic: neither toron.host nor toron.prefix limits it \
                      (allowed: one of them, or both)";
        return Err(reason.to_owned());
    }
    if below_internal {
        let reason = "toron answers everything below /internal itself (allowed: another \
                      toron.prefix)";
        return Err(reason.to_owned());
    }
    Ok(asked)
}

fn fault(s: &Section<'_>, key: &str, problem: &str) {
    s.report
        .fault(Mark::default(), format!("toron.{key}: {problem}"));
}

fn read_host(s: &Section<'_>) -> HostPattern {
    let text = s.string("host").unwrap_or_default();
    parse_host(text).unwrap_or_else(|| {
        let problem = format!(
            "\"{text}\" is not a host (allowed: example.com, *.example.com, [::1], each with or \
             without :port)"
        );
        fault(s, "host", &problem);
        HostPattern::Any
    })
}

fn read_prefix(s: &Section<'_>) -> String {
    let text = s.string("prefix").unwrap_or("/");
    let slash = if text.starts_with('/') { "" } else { "/" };
    normal_prefix(&format!("{slash}{text}")).unwrap_or_else(|problem| {
        fault(s, "prefix", &format!("\"{text}\" {problem}"));
        "/".to_owned()
    })
}

fn read_methods(s: &Section<'_>) -> Vec<String> {
    let text = s.string("method").unwrap_or_default();
    let words = text.split(',').map(str::trim).filter(|w| !w.is_empty());
    let mut methods: Vec<String> = words.map(str::to_ascii_uppercase).collect();
    if methods.iter().any(|method| !is_token(method)) {
        let problem = format!("\"{text}\" is not a method (allowed: GET, or several: GET,HEAD)");
        fault(s, "method", &problem);
        return Vec::new();
    }
    methods.sort();
    methods.dedup();
    methods
}

fn read_address(s: &Section<'_>) -> Option<IpAddr> {
    let text = s.string("address")?;
    let address: Option<IpAddr> = text.parse().ok();
    let usable = address.filter(|a| !a.is_unspecified() && !a.is_multicast());
    if usable.is_none() {
        let problem = format!("\"{text}\" is not an address of a host (allowed: 127.0.0.2, ::1)");
        fault(s, "address", &problem);
    }
    usable
}

fn read_options(s: &Section<'_>, inherited: &Inherited) -> Options {
    let path = s.string("health_check");
    let is_path = |p: &str| p.starts_with('/') && p.bytes().all(|b| b > b' ' && b != 0x7f);
    if let Some(path) = path.filter(|p| !is_path(p)) {
        let problem = format!("\"{path}\" is not a path (allowed: /healthz)");
        fault(s, "health_check", &problem);
    }
    let interval = s.duration("health_check_interval");
    let mut limits = limits::read(s, inherited);
    if limits.limits.chunked_mode == ChunkedMode::Passthrough {
        // What cannot be collected is not: the contradiction is a fault of its own (I36).
        let stream = &mut limits.limits.stream_request_body;
        *stream = stream.filter(|&streams| streams);
    }
    Options {
        strip_prefix: s.boolean("strip_prefix").unwrap_or(true),
        rewrite_redirects: s.boolean("rewrite_redirects").unwrap_or(true),
        rewrite_cookie_path: s.boolean("rewrite_cookie_path").unwrap_or(true),
        health_check: path.filter(|p| is_path(p)).map(str::to_owned),
        health_check_interval: interval.unwrap_or(Duration::from_secs(5)),
        limits: limits.limits,
        limit_sources: limits.sources,
    }
}

/// No longer than [`MAX_NOTE`].
fn cut(mut text: String) -> String {
    if text.len() > MAX_NOTE {
        let at = (0..=MAX_NOTE).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(at.unwrap_or(0));
        text.push('…');
    }
    text
}

impl Options {
    /// Every option by its label, as text: to tell where two containers differ.
    fn shown(&self) -> Vec<(&'static str, String)> {
        fn show(value: &impl std::fmt::Debug) -> String {
            format!("{value:?}")
        }
        let l = &self.limits;
        vec![
            ("strip_prefix", show(&self.strip_prefix)),
            ("rewrite_redirects", show(&self.rewrite_redirects)),
            ("rewrite_cookie_path", show(&self.rewrite_cookie_path)),
            ("health_check", show(&self.health_check)),
            ("health_check_interval", show(&self.health_check_interval)),
            ("max_body_bytes", show(&l.max_body_bytes)),
            ("max_concurrency", show(&l.max_concurrency)),
            ("read_timeout", show(&l.read_timeout)),
            ("write_timeout", show(&l.write_timeout)),
            ("min_progress_bytes", show(&l.min_progress_bytes)),
            ("min_body_rate", show(&l.min_body_rate)),
            ("body_timeout", show(&l.body_timeout)),
            ("response_header_timeout", show(&l.response_header_timeout)),
            ("upstream_idle_timeout", show(&l.upstream_idle_timeout)),
            ("upgrade_idle_timeout", show(&l.upgrade_idle_timeout)),
            ("header_deadline", show(&l.header_deadline)),
            ("request_deadline", show(&l.request_deadline)),
            (
                "request_deadline_covers_upgrades",
                show(&l.request_deadline_covers_upgrades),
            ),
            ("stream_request_body", show(&l.stream_request_body)),
            ("inbound_chunked_mode", show(&l.chunked_mode)),
            ("client_half_close", show(&l.client_half_close)),
        ]
    }

    /// The labels in which another container of the same route differs.
    #[must_use]
    pub fn differences(&self, other: &Options) -> Vec<&'static str> {
        if self == other {
            return Vec::new();
        }
        let pairs = self.shown().into_iter().zip(other.shown());
        let differing = pairs.filter(|(mine, its)| mine != its);
        differing.map(|((name, _), _)| name).collect()
    }
}

#[cfg(test)]
#[path = "labels_tests.rs"]
pub(crate) mod tests;
