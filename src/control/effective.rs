//! The limits that hold for a route, one by one, each with where it was set.

use std::time::Duration;

use serde::ser::{SerializeMap, Serializer};
use serde::Serialize;
use serde_json::Value;

use super::config::values::{show_duration, show_size};
use crate::policy::origin::{Origin, SetBy};
use crate::policy::settings::{HalfClose, Route};

/// A limit.
#[derive(Clone, PartialEq, Debug)]
pub struct Limit {
    /// Its key in the files.
    pub name: &'static str,
    /// Its value as in the files: a text for durations, a number for sizes; null is off or
    /// unlimited.
    pub value: Value,
    /// For people.
    pub shown: String,
    /// Which setting it came from, and where that stands.
    pub origin: Origin,
}

/// The limits of a route; as JSON an object of objects.
#[derive(Clone, PartialEq, Debug)]
pub struct LimitTable(pub Vec<Limit>);

impl Serialize for LimitTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for limit in &self.0 {
            map.serialize_entry(limit.name, &Shown(limit))?;
        }
        map.end()
    }
}

struct Shown<'a>(&'a Limit);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Limit { value, origin, .. } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("value", value)?;
        map.serialize_entry("set_by", origin.as_str())?;
        if let Some(place) = &origin.at {
            map.serialize_entry("place", &place.to_string())?;
        }
        map.end()
    }
}

struct Rows(Vec<Limit>);

impl Rows {
    fn add(&mut self, name: &'static str, value: Value, shown: String, origin: &Origin) {
        self.0.push(Limit {
            name,
            value,
            shown,
            origin: origin.clone(),
        });
    }

    /// Zero is off.
    fn time(&mut self, name: &'static str, time: Option<Duration>, origin: &Origin) {
        match time.filter(|time| !time.is_zero()) {
            None => self.add(name, Value::Null, "off".to_owned(), origin),
            Some(time) => {
                let shown = show_duration(time);
                self.add(name, Value::from(shown.as_str()), shown, origin);
            }
        }
    }

    fn word(&mut self, name: &'static str, word: &str, origin: &Origin) {
        self.add(name, Value::from(word), word.to_owned(), origin);
    }
}

/// Everything that limits requests of `route`. What can only be set on a route is listed where it
/// is.
#[must_use]
pub fn limits(route: &Route) -> LimitTable {
    let (limits, by) = (&route.limits, &route.limit_sources);
    let mut rows = Rows(Vec::new());
    let ceiling = Some(limits.max_body_bytes).filter(|&size| size != u64::MAX);
    let shown = show_size(limits.max_body_bytes);
    rows.add("max_body_bytes", ceiling.into(), shown, &by.max_body_bytes);
    let cap = limits.max_concurrency;
    let shown = cap.map_or("none".to_owned(), |cap| cap.to_string());
    rows.add("max_concurrency", cap.into(), shown, &by.max_concurrency);
    rows.time("read_timeout", Some(limits.read_timeout), &by.read_timeout);
    rows.time(
        "write_timeout",
        Some(limits.write_timeout),
        &by.write_timeout,
    );
    if route.upstream().is_some() {
        body_limits(&mut rows, route);
        upstream_limits(&mut rows, route);
    }
    LimitTable(rows.0)
}

/// Of what only a route can set.
fn own(route: &Route) -> Origin {
    Origin {
        by: SetBy::Route,
        at: Some(route.origin.clone()),
    }
}

fn body_limits(rows: &mut Rows, route: &Route) {
    let (limits, by, own) = (&route.limits, &route.limit_sources, own(route));
    let least = limits.min_progress_bytes;
    let bytes = match least {
        0 => "any byte".to_owned(),
        least => show_size(least),
    };
    let shown = format!("{bytes} in each read_timeout");
    rows.add(
        "min_progress_bytes",
        least.into(),
        shown,
        &by.min_progress_bytes,
    );
    let rate = limits.min_body_rate;
    let shown = match rate {
        0 => "off".to_owned(),
        rate => format!("{} per second", show_size(rate)),
    };
    let value = Some(rate).filter(|&rate| rate > 0);
    rows.add("min_body_rate", value.into(), shown, &by.min_body_rate);
    rows.time("body_timeout", limits.body_timeout, &by.body_timeout);
    let mode = limits.chunked_mode.as_str();
    rows.word("inbound_chunked_mode", mode, &by.chunked_mode);
    match limits.stream_request_body {
        Some(true) => rows.word("stream_request_body", "true", &own),
        Some(false) => rows.word("stream_request_body", "false", &own),
        None => {}
    }
    if limits.client_half_close == HalfClose::Abort {
        rows.word("client_half_close", "abort", &own);
    }
}

fn upstream_limits(rows: &mut Rows, route: &Route) {
    let (limits, by, own) = (&route.limits, &route.limit_sources, own(route));
    let times = [
        (
            "response_header_timeout",
            limits.response_header_timeout,
            &by.response_header_timeout,
        ),
        (
            "upstream_idle_timeout",
            limits.upstream_idle_timeout,
            &by.upstream_idle_timeout,
        ),
        (
            "upgrade_idle_timeout",
            limits.upgrade_idle_timeout,
            &by.upgrade_idle_timeout,
        ),
    ];
    for (name, time, by) in times {
        rows.time(name, Some(time), by);
    }
    rows.time(
        "header_deadline",
        limits.header_deadline,
        &by.header_deadline,
    );
    if let Some(deadline) = limits.request_deadline {
        rows.time("request_deadline", Some(deadline), &by.request_deadline);
        if limits.request_deadline_covers_upgrades {
            rows.word("request_deadline_covers_upgrades", "true", &own);
        }
    }
    if let Some(cap) = route.upstream().and_then(|u| u.target_max_concurrency) {
        let shown = cap.to_string();
        let origin = &by.target_max_concurrency;
        rows.add("target_max_concurrency", cap.into(), shown, origin);
    }
}
