//! The small YAML file of a request mix.
//!
//! ```yaml
//! keep_alive: 0.9        # share of requests that keep their connection
//! pipeline: 1            # requests under way on a connection
//! requests:
//!   - name: read         # for the output
//!     weight: 8          # relative to the others
//!     path: /bytes/1024  # else that of the URL
//!     headers: {Accept: "*/*"}
//!   - name: write
//!     method: POST
//!     path: /discard
//!     body_size: 64KiB   # or body: text
//!     chunk_size: 16KiB  # chunked
//! ```

use std::sync::Arc;

use super::mix::{header, method, Body, Template, LONGEST_CHUNK};
use crate::control::config::finding::Findings;
use crate::control::config::section::{Report, Section};
use crate::control::config::yaml;

/// Most kinds of requests.
const MOST_KINDS: usize = 1000;

/// A mix as it stands in a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Mix {
    /// The kinds of requests, at least one.
    pub requests: Vec<Template>,
    /// Share of requests that keep their connection.
    pub keep_alive: Option<f64>,
    /// Requests under way on a connection.
    pub pipeline: Option<usize>,
}

/// Reads a mix. The error names every fault with its place.
pub fn parse(file: &str, text: &str) -> Result<Mix, String> {
    let file: Arc<str> = Arc::from(file);
    let findings = Findings::default();
    let mix = yaml::parse(&file, text, &findings).and_then(|root| {
        let report = Report {
            file: &file,
            findings: &findings,
        };
        let section = Section::new(report, "", &root)?;
        let mix = read(&section);
        section.finish();
        Some(mix)
    });
    let (faults, _) = findings.into_sorted();
    if let (Some(mix), true) = (mix, faults.is_empty()) {
        return Ok(mix);
    }
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Err(match lines.is_empty() {
        true => format!("{file}: empty"),
        false => lines.join("\n"),
    })
}

fn read(section: &Section<'_>) -> Mix {
    let keep_alive = section.string("keep_alive").and_then(|text| {
        let share = text
            .parse()
            .ok()
            .filter(|share| (0.0..=1.0).contains(share));
        if share.is_none() {
            section.report.fault(
                section.value_mark("keep_alive"),
                format!("keep_alive: \"{text}\" is not a share between 0 and 1"),
            );
        }
        share
    });
    let pipeline = section.integer("pipeline", 1..=1000);
    let mut requests = Vec::new();
    for (i, node) in section
        .list("requests")
        .unwrap_or_default()
        .iter()
        .enumerate()
    {
        if let Some(section) = Section::new(section.report, "requests[]", node) {
            requests.push(kind(&section, i));
            section.finish();
        }
    }
    if requests.is_empty() || requests.len() > MOST_KINDS {
        let fault = format!("requests must be a list of 1 to {MOST_KINDS}");
        section.report.fault(section.mark, fault);
    }
    Mix {
        requests,
        keep_alive,
        pipeline: pipeline.and_then(|n| usize::try_from(n).ok()),
    }
}

fn kind(section: &Section<'_>, index: usize) -> Template {
    let fault = |key, message: String| section.report.fault(section.value_mark(key), message);
    let path = section.string("path").map(str::to_owned);
    if let Some(bad) = path
        .as_ref()
        .filter(|p| !p.starts_with('/') || !p.bytes().all(|b| b.is_ascii_graphic()))
    {
        fault(
            "path",
            format!("path \"{bad}\" must begin with / and be percent-encoded"),
        );
    }
    let mut headers = Vec::new();
    for (entry, value) in section.pairs("headers").unwrap_or_default() {
        match header(&format!("{}: {value}", entry.key)) {
            Ok(pair) => headers.push(pair),
            Err(error) => section.report.fault(entry.mark, error),
        }
    }
    let chunk = section.size("chunk_size", 1..=u64::from(LONGEST_CHUNK));
    let chunk = chunk.and_then(|n| u32::try_from(n).ok());
    let text = section
        .string("body")
        .map(|text| Body::Bytes(text.as_bytes().to_vec()));
    let filling = section.size("body_size", 0..=u64::MAX).map(Body::Filling);
    if text.is_some() && filling.is_some() {
        fault("body_size", "there is one of body and body_size".to_owned());
    }
    let body = text.or(filling).unwrap_or_default();
    let has_content = body != Body::None || chunk.is_some();
    let usual = if has_content { "POST" } else { "GET" };
    let written = section.string("method").unwrap_or(usual);
    let method = method(written).unwrap_or_else(|error| {
        fault("method", error);
        String::new()
    });
    let name = section.string("name").map_or_else(
        || {
            format!("{}: {method} {}", index + 1, path.as_deref().unwrap_or(""))
                .trim_end()
                .to_owned()
        },
        str::to_owned,
    );
    Template {
        name,
        weight: section.number("weight", 1..=1_000_000).unwrap_or(1),
        method,
        path,
        headers,
        body,
        chunk,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read() {
        let text = "keep_alive: 0.9\npipeline: 2\nrequests:\n  - name: read\n    weight: 8\n    path: /bytes/1024\n    headers: {Accept: \"*/*\"}\n  - path: /discard\n    body_size: 64KiB\n    chunk_size: 16KiB\n";
        let mix = parse("m.yaml", text).unwrap();
        assert_eq!((mix.keep_alive, mix.pipeline), (Some(0.9), Some(2)));
        assert_eq!(mix.requests[0].weight, 8);
        assert_eq!(
            mix.requests[0].headers,
            [("Accept".to_owned(), "*/*".to_owned())]
        );
        let write = &mix.requests[1];
        assert_eq!((&*write.name, &*write.method), ("2: POST /discard", "POST"));
        assert_eq!(
            (write.body.clone(), write.chunk),
            (Body::Filling(65536), Some(16384))
        );
    }

    #[test]
    fn every_fault_is_named_with_its_place() {
        let text = "keep_alive: 2\nrequests:\n  - path: x\n    wieght: 3\n    headers: {\"a b\": c}\n    method: G=T\n";
        let error = parse("m.yaml", text).unwrap_err();
        for said in [
            "m.yaml:1:13: keep_alive",
            "m.yaml:3:11: path",
            "wieght",
            "bad header",
            "bad method",
        ] {
            assert!(error.contains(said), "{said}: {error}");
        }
        assert!(parse("m.yaml", "requests: []\n")
            .unwrap_err()
            .contains("1 to 1000"));
        assert!(parse("m.yaml", "").is_err());
    }
}
