//! What there is to show and to log of the containers.

use std::collections::{BTreeMap, HashMap};
use std::time::UNIX_EPOCH;

use log::Level;
use serde_json::{json, Value};

use super::group::Verdict;
use super::watch::Status;
use crate::policy::discovery::{ContainerView, DiscoveryView, RouteView};
use crate::policy::router::RouteKey;
use crate::policy::settings::Route;

/// Most lines logged for one list.
const MOST_LINES: usize = 20;

/// All there is to show. `shadowed` are keys whose route is another source's, and where that stands.
#[must_use]
pub fn view(
    status: &Status,
    verdicts: &[Verdict],
    routes: &[Route],
    shadowed: &HashMap<RouteKey, String>,
) -> DiscoveryView {
    let routes: HashMap<RouteKey, &Route> = routes.iter().map(|r| (RouteKey::of(r), r)).collect();
    let since = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).ok();
    let millis = status.last_sync.and_then(since).map(|d| d.as_millis());
    DiscoveryView {
        engine: status
            .engine
            .as_ref()
            .map(|e| (e.name.to_owned(), e.version.clone())),
        socket: status.socket.clone(),
        connected: status.connected,
        stale: status.stale,
        problem: status.problem.clone(),
        last_sync: millis.and_then(|millis| u64::try_from(millis).ok()),
        connects: status.connects,
        lists: status.lists,
        failed_lists: status.failed_lists,
        ignored_constraints: verdicts.iter().map(|v| v.ignored_constraints).sum(),
        containers: verdicts
            .iter()
            .map(|verdict| container(verdict, &routes, shadowed))
            .collect(),
    }
}

fn container(
    verdict: &Verdict,
    routes: &HashMap<RouteKey, &Route>,
    shadowed: &HashMap<RouteKey, String>,
) -> ContainerView {
    let mut shown = ContainerView {
        id: verdict.id.clone(),
        name: verdict.name.clone(),
        state: verdict.state.clone(),
        route: None,
        target: None,
        reason: None,
        notes: verdict.notes.clone(),
    };
    match &verdict.placed {
        Err(reason) => shown.reason = Some(reason.clone()),
        Ok(placed) => match shadowed.get(&placed.key) {
            Some(place) => {
                let reason = format!("its route {} is shadowed by that at {place}", placed.route);
                shown.reason = Some(reason);
            }
            None => {
                shown.route = routes.get(&placed.key).map(|route| route_view(route));
                shown.target = Some(placed.url.clone());
            }
        },
    }
    shown
}

fn route_view(route: &Route) -> RouteView {
    RouteView {
        name: route.name.clone(),
        host: route.host.to_string(),
        prefix: route.prefix.clone(),
        method: route.methods.join(","),
        headers: route.headers.clone(),
    }
}

/// What has changed for the operator between two lists, the first lines of it.
#[must_use]
pub fn changes(before: &[ContainerView], after: &[ContainerView]) -> Vec<(Level, String)> {
    let old: BTreeMap<&str, &ContainerView> = before.iter().map(|c| (c.id.as_str(), c)).collect();
    let mut lines = Vec::new();
    for now in after {
        let was = old.get(now.id.as_str()).copied();
        lines.extend(change(was, now));
    }
    let left: std::collections::BTreeSet<&str> = after.iter().map(|c| c.id.as_str()).collect();
    for gone in before.iter().filter(|c| !left.contains(c.id.as_str())) {
        if let Some(route) = &gone.route {
            let text = format!("container {} has gone from {}", gone.name, route.name);
            lines.push((Level::Info, text));
        }
    }
    if lines.len() > MOST_LINES {
        let more = lines.len() - MOST_LINES;
        lines.truncate(MOST_LINES);
        lines.push((Level::Info, format!("and {more} more changes")));
    }
    lines
}

fn change(was: Option<&ContainerView>, now: &ContainerView) -> Vec<(Level, String)> {
    let mut lines = Vec::new();
    let name = &now.name;
    let is_new = |what: fn(&ContainerView) -> String| was.is_none_or(|was| what(was) != what(now));
    let place = |c: &ContainerView| format!("{:?}{:?}", c.route, c.target);
    match (&now.route, &now.target) {
        (Some(route), Some(target)) if is_new(place) => {
            let text = format!("container {name} ({target}) is in {}", route.name);
            lines.push((Level::Info, text));
        }
        _ => {}
    }
    let reason = |c: &ContainerView| format!("{:?}", c.reason);
    if let Some(reason) = now.reason.as_ref().filter(|_| is_new(reason)) {
        // One that stops was told to; one that runs and gets nothing is a surprise.
        let level = if now.state == "running" {
            Level::Warn
        } else {
            Level::Info
        };
        lines.push((level, format!("container {name} is in no route: {reason}")));
    }
    for note in &now.notes {
        if !was.is_some_and(|was| was.notes.contains(note)) {
            lines.push((Level::Warn, format!("container {name}: {note}")));
        }
    }
    lines
}

/// The JSON object of `/internal/api/discovery`. `None` is discovery off.
#[must_use]
pub fn show(view: Option<&DiscoveryView>) -> Value {
    let Some(view) = view else {
        return json!({"enabled": false, "containers": []});
    };
    let containers: Vec<Value> = view.containers.iter().map(show_container).collect();
    json!({
        "enabled": true,
        "engine": view.engine.as_ref().map(|(name, _)| name),
        "engine_version": view.engine.as_ref().map(|(_, version)| version),
        "socket": view.socket.as_ref().map(|path| path.display().to_string()),
        "connected": view.connected,
        "stale": view.stale,
        "problem": view.problem,
        "last_sync": view.last_sync.map(time),
        "connects": view.connects,
        "lists": view.lists,
        "failed_lists": view.failed_lists,
        "ignored_constraints": view.ignored_constraints,
        "routed": view.routed(),
        "containers": containers,
    })
}

/// RFC 3339, UTC.
fn time(millis: u64) -> String {
    let at = UNIX_EPOCH + std::time::Duration::from_millis(millis);
    humantime::format_rfc3339_millis(at).to_string()
}

fn show_container(c: &ContainerView) -> Value {
    let route = c.route.as_ref().map(|route| {
        let headers: serde_json::Map<String, Value> = route
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        json!({
            "name": route.name,
            "host": route.host,
            "prefix": route.prefix,
            "method": route.method,
            "headers": headers,
        })
    });
    json!({
        "id": c.id,
        "name": c.name,
        "state": c.state,
        "route": route,
        "target": c.target,
        "reason": c.reason,
        "notes": c.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(id: &str, target: Option<&str>, reason: Option<&str>) -> ContainerView {
        let route = RouteView {
            name: "h/p".to_owned(),
            host: "h".to_owned(),
            prefix: "/p".to_owned(),
            method: String::new(),
            headers: Vec::new(),
        };
        ContainerView {
            id: id.to_owned(),
            name: format!("name-{id}"),
            state: "running".to_owned(),
            route: target.map(|_| route),
            target: target.map(str::to_owned),
            reason: reason.map(str::to_owned),
            notes: Vec::new(),
        }
    }

    fn lines(before: &[ContainerView], after: &[ContainerView]) -> Vec<String> {
        let lines = changes(before, after);
        let text = |(level, text): (Level, String)| format!("{level} {text}");
        lines.into_iter().map(text).collect()
    }

    #[test]
    fn what_changes_is_logged_once() {
        let a = shown("a", Some("http://1"), None);
        assert_eq!(
            lines(&[], std::slice::from_ref(&a)),
            ["INFO container name-a (http://1) is in h/p"]
        );
        assert!(lines(std::slice::from_ref(&a), std::slice::from_ref(&a)).is_empty());
        let moved = shown("a", Some("http://2"), None);
        assert_eq!(lines(std::slice::from_ref(&a), &[moved]).len(), 1);
        let mut out = shown("a", None, Some("it is tired"));
        assert_eq!(
            lines(std::slice::from_ref(&a), std::slice::from_ref(&out)),
            ["WARN container name-a is in no route: it is tired"]
        );
        out.notes.push("odd".to_owned());
        let noted = lines(&[shown("a", None, Some("it is tired"))], &[out]);
        assert_eq!(noted, ["WARN container name-a: odd"]);
        assert_eq!(
            lines(&[a], &[]),
            ["INFO container name-a has gone from h/p"]
        );
    }

    #[test]
    fn a_thousand_changes_are_not_a_thousand_lines() {
        let many: Vec<ContainerView> = (0..1000)
            .map(|n| shown(&n.to_string(), Some("http://1"), None))
            .collect();
        let lines = lines(&[], &many);
        assert_eq!(lines.len(), MOST_LINES + 1);
        assert_eq!(lines[MOST_LINES], "INFO and 980 more changes");
    }

    #[test]
    fn what_is_off_is_said_to_be_off() {
        assert_eq!(
            show(None).to_string(),
            r#"{"containers":[],"enabled":false}"#
        );
        let view = DiscoveryView {
            last_sync: Some(0),
            containers: vec![shown("a", Some("http://1"), None)],
            ..DiscoveryView::default()
        };
        let value = show(Some(&view));
        assert_eq!(value["last_sync"], "1970-01-01T00:00:00.000Z");
        assert_eq!(value["containers"][0]["route"]["prefix"], "/p");
        assert_eq!(value["routed"], 1);
    }
}
