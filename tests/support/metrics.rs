//! What toron says at `/metrics`, read by Prometheus' own parser (python3-prometheus-client).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::client::Client;
use super::toron::Toron;
use super::PATIENCE;

/// A sample.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// A family as it is described.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Described {
    pub name: String,
    pub kind: String,
    pub help: String,
}

/// An exposition that the parser has accepted.
#[derive(Clone, Debug, Deserialize)]
pub struct Exposition {
    pub families: Vec<Described>,
    pub samples: Vec<Sample>,
}

/// Formats as the parser calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    OpenMetrics,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::OpenMetrics => "openmetrics",
        }
    }

    /// Fields of a request that asks for it.
    pub fn accept(self) -> &'static str {
        match self {
            Format::Text => "Accept: text/plain\r\n",
            Format::OpenMetrics => "Accept: application/openmetrics-text;version=1.0.0\r\n",
        }
    }
}

/// The metrics of a running toron.
pub fn scrape(toron: &Toron) -> Exposition {
    parse(Format::Text, &fetch(toron, Format::Text))
}

/// The text of the metrics.
pub fn fetch(toron: &Toron, format: Format) -> Vec<u8> {
    let mut client = Client::connect(toron.addr, PATIENCE).expect("connect for the metrics");
    let accept = format.accept();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: t\r\n{accept}Connection: close\r\n\r\n");
    client.send(request.as_bytes(), PATIENCE);
    assert!(client.receive_until_end(PATIENCE), "metrics without an end");
    let mut parsed = client.parsed();
    assert_eq!(parsed.responses.len(), 1, "{parsed:?}");
    let response = parsed.responses.remove(0);
    assert!(response.complete && response.status == 200, "{response:?}");
    response.body
}

/// Reads an exposition.
///
/// # Panics
/// When the parser does not accept it.
pub fn parse(format: Format, text: &[u8]) -> Exposition {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metrics/parse.py");
    // Debian's, which tests/tools.sh asks for the module; another may come first in PATH.
    let mut parser = Command::new("/usr/bin/python3")
        .arg(script)
        .arg(format.name())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("run python3 (make tools installs what the tests need)");
    let mut input = parser.stdin.take().expect("the parser's input");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Where it ends early, its exit status says why.
            let _ = input.write_all(text);
        });
        let out = parser.wait_with_output().expect("wait for the parser");
        assert!(
            out.status.success(),
            "the {} is not accepted (make tools installs the parser): {}",
            format.name(),
            String::from_utf8_lossy(&out.stderr)
        );
        serde_json::from_slice(&out.stdout).expect("read what the parser found")
    })
}

impl Exposition {
    /// The value of a series with exactly these labels, in any order.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |sample: &&Sample| {
            sample.name == name && sample.labels.len() == labels.len() && has(sample, labels)
        };
        self.samples.iter().find(fits).map(|sample| sample.value)
    }

    /// As [`Exposition::get`]; a series that is not there counts as 0.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.get(name, labels).unwrap_or(0.0) as u64
    }

    /// The sum of the series of a name that have these labels among theirs.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let fits = |sample: &&Sample| sample.name == name && has(sample, labels);
        let all = self.samples.iter().filter(fits);
        all.map(|sample| sample.value).sum::<f64>() as u64
    }

    /// What must hold of any exposition: series are told once, histograms are cumulative and end in
    /// their count.
    pub fn check(&self) {
        let mut seen = std::collections::HashSet::new();
        for sample in &self.samples {
            let key = format!("{} {:?}", sample.name, sample.labels);
            assert!(seen.insert(key.clone()), "told twice: {key}");
            assert!(sample.value >= 0.0, "{key}");
        }
        let mut before: Option<(&Sample, BTreeMap<String, String>)> = None;
        for sample in self.samples.iter().filter(|s| s.labels.contains_key("le")) {
            let mut others = sample.labels.clone();
            let bound = others.remove("le").unwrap_or_default();
            if let Some((last, its)) = &before {
                let same = *its == others && last.name == sample.name;
                assert!(!same || last.value <= sample.value, "{last:?} {sample:?}");
            }
            if bound == "+Inf" {
                let name = sample.name.replace("_bucket", "_count");
                let labels: Vec<_> = others.iter().map(|(n, v)| (&**n, &**v)).collect();
                assert_eq!(self.get(&name, &labels), Some(sample.value), "{sample:?}");
            }
            before = Some((sample, others));
        }
    }

    /// Every request that was received has ended, in a response or in none, or is in flight.
    ///
    /// Holds whenever no request is under way but the one that asks, and as long as no route has been
    /// taken away.
    pub fn adds_up(&self) {
        let all = self.sum("toron_requests_total", &[]);
        let aborts = self.sum("toron_requests_total", &[("class", "none")]);
        let responses = all - aborts;
        let received = self.count("toron_requests_received_total", &[]);
        let in_flight = self.count("toron_requests_in_flight", &[]);
        assert_eq!(
            received,
            responses + aborts + in_flight,
            "received = {responses} responses + {aborts} aborts + {in_flight} in flight"
        );
        assert_eq!(self.count("toron_requests_ended_total", &[]), all);
        let slots = self.sum("toron_route_requests_in_flight", &[]);
        assert!(slots <= in_flight, "{slots} slots, {in_flight} in flight");
    }
}

fn has(sample: &Sample, labels: &[(&str, &str)]) -> bool {
    let mut labels = labels.iter();
    labels.all(|(name, value)| sample.labels.get(*name).is_some_and(|its| its == value))
}
