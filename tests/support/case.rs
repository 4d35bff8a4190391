//! The case bank: its format (tests/cases/README.md), read exactly. A key that is not known here is
//! an error, so that nothing in the bank goes unchecked.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::from_latin1;
use super::setup::{Engine, Route, Settings};
use super::upstream::{Script, Step, Then, When};

/// One allowed outcome of a response.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Outcome {
    Code(u16),
    Word(Word),
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Word {
    #[serde(rename = "any-2xx")]
    Any2xx,
    #[serde(rename = "close-without-response")]
    CloseWithoutResponse,
}

impl Outcome {
    /// `seen` is a status, or `None` for a connection closed without a response.
    pub fn allows(&self, seen: Option<u16>) -> bool {
        match (self, seen) {
            (Outcome::Code(code), Some(status)) => *code == status,
            (Outcome::Word(Word::Any2xx), Some(status)) => (200..300).contains(&status),
            (Outcome::Word(Word::CloseWithoutResponse), None) => true,
            _ => false,
        }
    }
}

/// A number for the whole, or one per route prefix.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum PerRoute {
    All(i64),
    Prefixes(BTreeMap<String, i64>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    burst: u32,
    per_sec: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoBlock {
    ttl_ms: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    pub route_host: Option<String>,
    pub routes: Option<Vec<String>>,
    pub max_body_bytes: Option<u64>,
    pub max_concurrency: Option<PerRoute>,
    pub chunked_mode: Option<String>,
    pub read_window_ms: Option<u64>,
    pub min_bytes_per_window: Option<u64>,
    pub response_header_timeout_ms: Option<u64>,
    pub request_deadline_ms: Option<u64>,
    pub trusted_proxies: Vec<String>,
    pub rate_limit: Option<RateLimit>,
    pub auto_block: Option<AutoBlock>,
    pub max_connections_per_ip: Option<u32>,
    pub note: Option<String>,
    pub repeat_case: Option<u32>,
    /// Bodies are not collected: the upstream of the case acts before it has the body.
    #[serde(skip)]
    pub streams: bool,
}

/// What a `note` asks the rig to arrange before the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    Nothing,
    /// Another client holds a request under this path, whose upstream never answers.
    HoldRequest(&'static str),
    /// Abuse until 403, then a request every 500 ms until 2.5 s after the block.
    ProvokeBlock,
    /// 20 connections opened and ended in four ways.
    ChurnConnections,
}

impl Setup {
    /// The meaning of the note. A note that is not known is an error.
    pub fn arrangement(&self) -> Result<Arrangement, String> {
        let Some(note) = &self.note else {
            return Ok(Arrangement::Nothing);
        };
        match note.as_str() {
            // Said by `routes` and `upstream_then` already.
            "no other route"
            | "/evil has no route, so the second answer is 404 from the proxy"
            | "upstream sends FIN 100 ms after the first answer, without Connection: close" => {
                Ok(Arrangement::Nothing)
            }
            "one other client holds a request whose upstream never answers" => {
                Ok(Arrangement::HoldRequest("/held"))
            }
            "/api is full" => Ok(Arrangement::HoldRequest("/api/held")),
            "first provoke 403, keep asking every 500 ms; after 2.5 s from the block this request must pass" => {
                Ok(Arrangement::ProvokeBlock)
            }
            "open and end 20 connections: 5 by FIN, 5 by RST, 5 after a 400, 5 by half-close; then this" => {
                Ok(Arrangement::ChurnConnections)
            }
            other => Err(format!("setup note not known to the rig: {other:?}")),
        }
    }

    /// toron's settings; `upstream` stands for U.
    pub fn settings(&self, engine: Engine, upstream: &str) -> Result<Settings, String> {
        let mut routes = match &self.routes {
            None => vec![Route::new("/", upstream)],
            Some(lines) => lines
                .iter()
                .map(|l| route(l, upstream))
                .collect::<Result<Vec<_>, _>>()?,
        };
        if let Some(PerRoute::Prefixes(caps)) = &self.max_concurrency {
            for (prefix, cap) in caps {
                let mut capped = Route::new(prefix, upstream);
                capped.extra.push(("max_concurrency", cap.to_string()));
                routes.push(capped);
            }
        }
        for route in &mut routes {
            route.host.clone_from(&self.route_host);
            if let Some(PerRoute::All(cap)) = &self.max_concurrency {
                route.extra.push(("max_concurrency", cap.to_string()));
            }
            if self.streams {
                route.extra.push(("stream_request_body", "true".into()));
            }
            if let Some(ms) = self.request_deadline_ms {
                route.extra.push(("request_deadline", format!("{ms}ms")));
            }
        }
        let mut settings = Settings::new(engine, routes);
        settings.max_body_bytes = Some(self.max_body_bytes.unwrap_or(0));
        let server = &mut settings.server;
        // Where nothing is said: short enough for a 408 to come within a case's limit of 3 s.
        let window = self.read_window_ms.unwrap_or(2000);
        server.push(("read_timeout", format!("{window}ms")));
        server.extend(
            self.min_bytes_per_window
                .map(|n| ("min_progress_bytes", n.to_string())),
        );
        server.extend(
            self.chunked_mode
                .clone()
                .map(|mode| ("inbound_chunked_mode", mode)),
        );
        settings.transport.extend(
            self.response_header_timeout_ms
                .map(|ms| ("response_header_timeout", format!("{ms}ms"))),
        );
        self.firewall(&mut settings.firewall);
        Ok(settings)
    }

    fn firewall(&self, firewall: &mut Vec<(&'static str, String)>) {
        if let Some(limit) = &self.rate_limit {
            firewall.push(("rate_limit_burst", limit.burst.to_string()));
            // toron takes whole numbers only; the burst is what the cases are about.
            firewall.push(("rate_limit_rps", limit.per_sec.ceil().to_string()));
        }
        if let Some(block) = &self.auto_block {
            // Few tokens and a low threshold, so that a handful of requests provokes the block.
            firewall.push(("rate_limit_burst", "5".into()));
            firewall.push(("rate_limit_rps", "2".into()));
            firewall.push(("auto_block_threshold", "3".into()));
            firewall.push(("block_duration", format!("{}ms", block.ttl_ms)));
        }
        firewall.extend(
            self.max_connections_per_ip
                .map(|n| ("max_connections_per_ip", n.to_string())),
        );
        if !self.trusted_proxies.is_empty() {
            firewall.push((
                "trusted_proxies",
                format!("[{}]", self.trusted_proxies.join(", ")),
            ));
        }
    }
}

/// `/app -> U strip_prefix=/app`
fn route(line: &str, upstream: &str) -> Result<Route, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let [prefix, "->", "U", options @ ..] = words.as_slice() else {
        return Err(format!("route not understood: {line:?}"));
    };
    let mut route = Route::new(prefix, upstream);
    for option in options {
        match option.split_once('=') {
            Some(("strip_prefix", stripped)) if stripped == *prefix => route.strip_prefix = true,
            _ => {
                return Err(format!(
                    "route option not understood: {option:?} in {line:?}"
                ))
            }
        }
    }
    Ok(route)
}

/// One step of the client.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SendStep {
    pub bytes: Option<String>,
    pub repeat: Option<usize>,
    pub pause_ms: Option<u64>,
    pub wait_for: Option<String>,
    pub recv: Option<usize>,
    pub shutdown_write: bool,
    pub reset: bool,
    pub close: bool,
    pub timeout_ms: Option<u64>,
}

/// One step of the upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamStep {
    bytes: Option<String>,
    repeat: Option<usize>,
    pause_ms: Option<u64>,
    recv: Option<String>,
    hang: bool,
}

impl UpstreamStep {
    fn steps(&self, out: &mut Vec<Step>) {
        let repeat = self.repeat.unwrap_or(1);
        if let Some(text) = &self.bytes {
            let bytes = from_latin1(text);
            match self.pause_ms {
                None => out.push(Step::Send(bytes.repeat(repeat))),
                Some(ms) => {
                    for _ in 0..repeat {
                        out.push(Step::Send(bytes.clone()));
                        out.push(Step::Pause(Duration::from_millis(ms)));
                    }
                }
            }
        } else if let Some(ms) = self.pause_ms {
            out.push(Step::Pause(Duration::from_millis(ms)));
        }
        out.extend(
            self.recv
                .as_deref()
                .map(|text| Step::Receive(from_latin1(text))),
        );
        if self.hang {
            out.push(Step::Hang);
        }
    }
}

/// Answer i of `upstream_send_seq`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    Text(String),
    Steps(Vec<UpstreamStep>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowUp {
    pub send: String,
    pub status: Vec<Outcome>,
    #[serde(default)]
    pub after_ms: u64,
    /// Words for a reader; what they say is the rule for every follow-up.
    #[serde(rename = "note")]
    _note: Option<String>,
}

type Fields = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamSees {
    pub complete_requests: Option<usize>,
    pub complete_requests_max: Option<usize>,
    pub targets: Option<Vec<String>>,
    pub targets_never: Vec<String>,
    pub targets_subset_of: Option<Vec<String>>,
    pub targets_prefix_of: Option<Vec<String>>,
    pub target_in: Option<Vec<String>>,
    pub host: Option<String>,
    pub host_never: Vec<String>,
    pub method: Option<String>,
    pub body: Option<String>,
    pub body_len: Option<usize>,
    pub bodies: Option<Vec<String>>,
    pub bodies_if_seen: Option<Vec<String>>,
    pub headers_present: Fields,
    pub headers_absent: Vec<String>,
    pub header_count: BTreeMap<String, usize>,
    pub header_not_contains: Fields,
    pub header_section_never: Vec<String>,
    pub never_bytes: Vec<String>,
    pub xff_last: Option<String>,
    pub upstream_conn_closed_within_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSees {
    pub body: Option<String>,
    pub bodies: Option<Vec<String>>,
    pub complete: Option<bool>,
    pub headers_present: Fields,
    pub headers_absent: Vec<String>,
    pub first_headers_present: Fields,
    pub first_headers_absent: Vec<String>,
    pub final_headers_absent: Vec<String>,
    pub header_value_in: BTreeMap<String, Vec<String>>,
    pub set_cookie_lines: Option<Vec<Vec<String>>>,
    pub interim: Vec<u16>,
    pub interim_allowed: Option<Vec<u16>>,
    pub no_interim: bool,
    pub never_bytes: Vec<String>,
    pub not_both: Option<(String, String)>,
    pub header_section_never: Vec<String>,
    pub head_within_ms: Option<u64>,
    pub first_body_byte_within_ms: Option<u64>,
    pub keepalive_announced_or_closed: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    pub status: Vec<Outcome>,
    pub status_seq: Option<Vec<Vec<Outcome>>>,
    pub response_count: Option<usize>,
    pub forwarded: bool,
    #[serde(default)]
    pub upstream_sees: UpstreamSees,
    #[serde(default)]
    pub client_sees: ClientSees,
    pub connection_closed_after: Option<bool>,
}

impl Expect {
    /// Final responses to wait for.
    pub fn responses(&self) -> usize {
        self.response_count
            .or(self.status_seq.as_ref().map(Vec::len))
            .unwrap_or(1)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub id: String,
    pub kind: String,
    #[serde(default)]
    pub setup: Setup,
    send: Option<String>,
    #[serde(default)]
    send_steps: Vec<SendStep>,
    upstream_send: Option<String>,
    upstream_send_seq: Option<Vec<Answer>>,
    #[serde(default)]
    upstream_steps: Vec<UpstreamStep>,
    upstream_when: Option<String>,
    upstream_then: Option<String>,
    #[serde(default)]
    pub then: Vec<FollowUp>,
    pub expect: Expect,
    pub why: String,
    pub source: String,
    pub timeout_ms: Option<u64>,
}

impl Case {
    /// The upstream answers before it has the body.
    pub fn answers_early(&self) -> bool {
        self.upstream_when.as_deref() == Some("after-head")
    }

    /// Reads one line of the bank, with `{CLIENT_IP}`, `{UPSTREAM}` and `{PUBLIC}` filled in.
    pub fn parse(line: &str, upstream: &str, public: &str) -> Result<Case, String> {
        let line = line
            .replace("{CLIENT_IP}", "127.0.0.1")
            .replace("{UPSTREAM}", upstream)
            .replace("{PUBLIC}", public);
        let case: Case = serde_json::from_str(&line).map_err(|e| format!("{e} in {line}"))?;
        if case.send.is_some() != case.send_steps.is_empty() {
            return Err(format!("{}: either send or send_steps", case.id));
        }
        case.setup.arrangement()?;
        case.script()?;
        Ok(case)
    }

    /// The client's steps, whether given as `send` or as `send_steps`.
    pub fn steps(&self) -> Vec<SendStep> {
        match &self.send {
            Some(text) => vec![SendStep {
                bytes: Some(text.clone()),
                ..SendStep::default()
            }],
            None => self.send_steps.clone(),
        }
    }

    /// How long each awaited thing may take.
    pub fn limit(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.unwrap_or(3000))
    }

    /// What the upstream is to do.
    pub fn script(&self) -> Result<Script, String> {
        let mut following = Vec::new();
        for step in &self.upstream_steps {
            step.steps(&mut following);
        }
        let mut answers: Vec<Vec<Step>> = match (&self.upstream_send, &self.upstream_send_seq) {
            (Some(_), Some(_)) => return Err("upstream_send and upstream_send_seq".into()),
            (Some(text), None) => vec![vec![Step::Send(from_latin1(text))]],
            (None, Some(seq)) => seq.iter().map(answer).collect(),
            (None, None) if following.is_empty() => Vec::new(),
            (None, None) => vec![Vec::new()],
        };
        for answer in &mut answers {
            answer.extend(following.iter().cloned());
        }
        let when = match self.upstream_when.as_deref() {
            None | Some("after-request") => When::AfterRequest,
            Some("after-head") => When::AfterHead,
            Some(other) => return Err(format!("upstream_when {other:?}")),
        };
        let then = self.upstream_then.as_deref().map_or(Ok(Then::Keep), then)?;
        if answers.is_empty() && (then != Then::Keep || when != When::AfterRequest) {
            return Err("upstream_then or upstream_when without an answer".into());
        }
        Ok(Script {
            answers,
            repeat_last: self.upstream_send_seq.is_none(),
            when,
            then,
        })
    }
}

fn answer(answer: &Answer) -> Vec<Step> {
    match answer {
        Answer::Text(text) => vec![Step::Send(from_latin1(text))],
        Answer::Steps(list) => {
            let mut steps = Vec::new();
            for step in list {
                step.steps(&mut steps);
            }
            steps
        }
    }
}

fn then(word: &str) -> Result<Then, String> {
    Ok(match word.split_once('@') {
        None if word == "keep" => Then::Keep,
        None if word == "close" => Then::Close,
        None if word == "reset" => Then::Reset,
        None if word == "hang" => Then::Hang,
        None if word == "shutdown_write" => Then::ShutdownWrite,
        Some(("close", ms)) => {
            let ms = ms
                .parse()
                .map_err(|e| format!("upstream_then {word:?}: {e}"))?;
            Then::CloseAfter(Duration::from_millis(ms))
        }
        _ => return Err(format!("upstream_then {word:?}")),
    })
}
