//! An explanation for people, within [`WIDTH`] columns.

use std::fmt::Write;

use super::{Explanation, Limit, Loser};
use crate::control::report::WIDTH;

/// The text of an explanation.
#[must_use]
pub fn render(told: &Explanation) -> String {
    let mut page = Page(String::new());
    let request = &told.request;
    page.line(0, &format!("{} {}", request.method, request.url));
    let mut asked = Vec::new();
    if let Some(host) = &request.host {
        asked.push(format!("host {host}"));
    }
    if let Some(path) = &request.path {
        asked.push(format!("path {path}"));
    }
    asked.push(format!("client {}", request.client));
    page.line(2, &asked.join(", "));
    page.gap();
    outcome(told, &mut page);
    if let Some(upstream) = &told.upstream {
        page.gap();
        page.line(0, &format!("what {} would see", upstream.target));
        page.line(2, &upstream.request_line);
        for (name, value) in &upstream.headers {
            page.line(2, &format!("{name}: {value}"));
        }
    }
    if !told.limits.is_empty() {
        page.gap();
        page.line(0, "limits");
        limits(&told.limits, &mut page);
    }
    if told.route.is_some() || !told.considered.is_empty() || told.further > 0 {
        page.gap();
        losers(told, &mut page);
    }
    if !told.notes.is_empty() {
        page.gap();
        for note in &told.notes {
            page.line(0, note);
        }
    }
    page.0
}

fn outcome(told: &Explanation, page: &mut Page) {
    let status = told.status.unwrap_or_default();
    let said = match told.outcome.as_str() {
        "refused" => {
            let reason = told.reason.as_deref().unwrap_or_default();
            format!("refused: {status} ({reason})")
        }
        "built_in" => format!("answered by toron itself: {status}"),
        "responds" => format!("answered by the route: {status}"),
        _ => "passed on".to_owned(),
    };
    page.line(0, &said);
    if let Some(body) = told.body.as_deref().filter(|body| !body.is_empty()) {
        page.line(2, body);
    }
    if let Some(allow) = &told.allow {
        page.line(2, &format!("Allow: {allow}"));
    }
    if let Some(route) = &told.route {
        page.line(2, &format!("route {} at {}", route.route, route.place));
        if route.source != "config" {
            page.line(4, &format!("made by {}", route.source));
        }
        match route.targets.as_slice() {
            [] => {}
            [one] => page.line(2, &format!("target {one}")),
            several => {
                let how = route.algorithm.as_deref().unwrap_or("round_robin");
                page.line(2, &format!("one of {} targets, by {how}", several.len()));
                for target in several {
                    page.line(4, target);
                }
            }
        }
    }
}

fn limits(limits: &[Limit], page: &mut Page) {
    let width = |column: fn(&Limit) -> &str| {
        let cells = limits.iter().map(column);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let (a, b) = (width(|l| &l.name), width(|l| &l.shown));
    for limit in limits {
        let Limit {
            name,
            shown,
            set_by,
            ..
        } = limit;
        page.line(2, &format!("{name:a$}  {shown:b$}  {set_by}"));
    }
}

fn losers(told: &Explanation, page: &mut Page) {
    page.line(0, "other routes");
    for Loser {
        route, place, why, ..
    } in &told.considered
    {
        page.line(2, &format!("{route} at {place}"));
        for why in why {
            page.line(4, why);
        }
    }
    let none = told.considered.is_empty();
    match told.further {
        0 if none => page.line(2, "none"),
        0 => {}
        1 if none => page.line(2, "1, with another prefix"),
        n if none => page.line(2, &format!("{n}, all with other prefixes")),
        1 => page.line(2, "and 1 more that is further off"),
        n => page.line(2, &format!("and {n} more that are further off")),
    }
}

struct Page(String);

impl Page {
    fn gap(&mut self) {
        self.0.push('\n');
    }

    /// A line, indented; where it is too long it goes on, indented further, if possible from a
    /// space on. What could steer a terminal is shown, not obeyed.
    fn line(&mut self, indent: usize, text: &str) {
        let shown: String = text
            .chars()
            .flat_map(|c| {
                let escaped = c.is_control().then(|| c.escape_default());
                let plain = (!c.is_control()).then_some(c);
                escaped.into_iter().flatten().chain(plain)
            })
            .collect();
        let mut rest = shown.trim_end();
        let (mut indent, further) = (indent, indent + 4);
        loop {
            let room = WIDTH - indent;
            let cut = match rest.char_indices().nth(room) {
                None => rest.len(),
                Some((end, _)) => {
                    let space = rest.get(..=end).and_then(|head| head.rfind(' '));
                    space.filter(|&at| at > 0).unwrap_or(end)
                }
            };
            let (head, tail) = rest.split_at(cut);
            // Writing to a String cannot fail.
            let _ = writeln!(self.0, "{:indent$}{}", "", head.trim_end());
            rest = tail.trim_start();
            if rest.is_empty() {
                return;
            }
            indent = further;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_below_and_controls_are_shown() {
        let mut page = Page(String::new());
        page.line(2, &format!("{} {}", "a".repeat(60), "b".repeat(60)));
        page.line(0, &"é".repeat(250));
        page.line(0, "x\x1b[31m");
        let lines: Vec<&str> = page.0.lines().collect();
        let widths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [62, 66, 100, 100, 58, 11]);
        assert_eq!(lines.last(), Some(&"x\\u{1b}[31m"));
    }
}
