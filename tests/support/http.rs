//! Strict HTTP/1.1 parsers for both sides of the proxy (RFC 9112), deliberately not toron's own:
//! what toron sends must be readable by somebody who forgives nothing.

use super::{find, to_latin1};

/// How a peer ended its side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Fin,
    Reset,
}

/// A start line and its fields, names and values as sent (OWS around values removed).
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub start_line: String,
    pub fields: Vec<(String, String)>,
    pub raw: Vec<u8>,
}

impl Head {
    /// All values of a field, names compared without case.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.fields
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
            .collect()
    }

    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    fn word(&self, i: usize) -> &str {
        self.start_line.splitn(3, ' ').nth(i).unwrap_or("")
    }

    pub fn method(&self) -> &str {
        self.word(0)
    }

    pub fn target(&self) -> &str {
        self.word(1)
    }
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// Splits one head off the front. `Ok(None)` = not there yet.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>, String> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        return if bytes.len() > 1 << 20 {
            Err("head above 1 MiB".into())
        } else {
            Ok(None)
        };
    };
    let raw = &bytes[..end + 4];
    let text = to_latin1(&raw[..end]);
    let mut lines = text.split("\r\n");
    let start_line = lines.next().unwrap_or("").to_owned();
    let mut fields = Vec::new();
    if start_line.chars().any(char::is_control) {
        return Err(format!("control character in start line {start_line:?}"));
    }
    for line in lines {
        if line.starts_with([' ', '\t']) {
            return Err(format!("folded or indented field line {line:?}"));
        }
        let (name, value) = line
            .split_once(':')
            .ok_or(format!("no colon in {line:?}"))?;
        if name.is_empty() || !name.chars().all(|c| u8::try_from(c).is_ok_and(is_token)) {
            return Err(format!("field name {name:?} is not a token"));
        }
        let value = value.trim_matches([' ', '\t']);
        if value
            .chars()
            .any(|c| c != '\t' && (c < ' ' || c == '\u{7f}'))
        {
            return Err(format!("control character in value of {name}: {value:?}"));
        }
        fields.push((name.to_owned(), value.to_owned()));
    }
    Ok(Some(Head {
        start_line,
        fields,
        raw: raw.to_vec(),
    }))
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// The declared framing of a head: at most one Content-Length of digits, or exactly `chunked`.
fn declared(head: &Head) -> Result<Option<Framing>, String> {
    let lengths = head.all("content-length");
    let codings = head.all("transfer-encoding");
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(None),
        ([one], []) => {
            if one.is_empty() || !one.bytes().all(|b| b.is_ascii_digit()) {
                return Err(format!("Content-Length {one:?}"));
            }
            one.parse()
                .map(|n| Some(Framing::Length(n)))
                .map_err(|e| format!("{one}: {e}"))
        }
        ([], [one]) if one.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
        ([], _) => Err(format!("Transfer-Encoding {codings:?}")),
        (_, []) => Err(format!("several Content-Length: {lengths:?}")),
        (_, _) => Err("Content-Length and Transfer-Encoding together".into()),
    }
}

/// A body as far as it has come.
struct Body {
    bytes: Vec<u8>,
    /// Bytes of input it takes, when it is complete.
    used: Option<usize>,
}

fn parse_body(framing: Framing, input: &[u8], end: Option<End>) -> Result<Body, String> {
    match framing {
        Framing::Length(n) => {
            let n = usize::try_from(n).map_err(|e| e.to_string())?;
            let have = input.len().min(n);
            Ok(Body {
                bytes: input[..have].to_vec(),
                used: (have == n).then_some(n),
            })
        }
        Framing::UntilClose => Ok(Body {
            bytes: input.to_vec(),
            used: (end == Some(End::Fin)).then_some(input.len()),
        }),
        Framing::Chunked => parse_chunks(input),
    }
}

/// Chunks without extensions, and a trailer section (RFC 9112 §7.1). A proxy that re-frames has no
/// business with extensions, so one is an error here.
fn parse_chunks(input: &[u8]) -> Result<Body, String> {
    let mut bytes = Vec::new();
    let mut at = 0;
    loop {
        let Some(eol) = find(&input[at..], b"\r\n") else {
            return match &input[at..] {
                part if part.len() > 18 => Err(format!("chunk size line {:?}", to_latin1(part))),
                _ => Ok(Body { bytes, used: None }),
            };
        };
        let line = &input[at..at + eol];
        if line.is_empty() || line.len() > 16 || !line.iter().all(u8::is_ascii_hexdigit) {
            return Err(format!("chunk size {:?}", to_latin1(line)));
        }
        let size = usize::from_str_radix(&to_latin1(line), 16).map_err(|e| e.to_string())?;
        at += eol + 2;
        if size == 0 {
            return parse_trailers(&input[at..], bytes, at);
        }
        let left = &input[at..];
        if left.len() < size {
            bytes.extend_from_slice(left);
            return Ok(Body { bytes, used: None });
        }
        bytes.extend_from_slice(&left[..size]);
        let after = &left[size..left.len().min(size.saturating_add(2))];
        if !b"\r\n".starts_with(after) {
            return Err(format!("chunk data followed by {:?}", to_latin1(after)));
        }
        if after.len() < 2 {
            return Ok(Body { bytes, used: None });
        }
        at += size + 2;
    }
}

fn parse_trailers(input: &[u8], bytes: Vec<u8>, at: usize) -> Result<Body, String> {
    if input.starts_with(b"\r\n") {
        return Ok(Body {
            bytes,
            used: Some(at + 2),
        });
    }
    // With a start line in front a trailer section is read by the rules of a head.
    let mut with_start = b"trailers\r\n".to_vec();
    let prefix = with_start.len();
    with_start.extend_from_slice(input);
    let used = parse_head(&with_start)?.map(|head| at + head.raw.len() - prefix);
    Ok(Body { bytes, used })
}

/// One request as an upstream sees it.
#[derive(Clone, Debug)]
pub struct Request {
    pub head: Head,
    pub body: Vec<u8>,
}

/// The state of the request at the front of a stream.
pub enum Progress {
    /// No complete head yet.
    Nothing,
    /// The head and a part of the body.
    Started(Head),
    /// A whole request and the bytes it took.
    Complete(Request, usize),
}

/// Reads one request from the front of `bytes`.
pub fn parse_request(bytes: &[u8]) -> Result<Progress, String> {
    let Some(head) = parse_head(bytes)? else {
        return Ok(Progress::Nothing);
    };
    let words: Vec<&str> = head.start_line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return Err(format!("request line {:?}", head.start_line));
    };
    if method.is_empty() || !method.bytes().all(is_token) {
        return Err(format!("method {method:?}"));
    }
    if target.is_empty() || !target.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("request target {target:?}"));
    }
    if version != "HTTP/1.1" && version != "HTTP/1.0" {
        return Err(format!("version {version:?}"));
    }
    if version == "HTTP/1.1" && head.all("host").len() != 1 {
        return Err(format!("Host fields: {:?}", head.all("host")));
    }
    let framing = declared(&head)?.unwrap_or(Framing::Length(0));
    let start = head.raw.len();
    let body = parse_body(framing, &bytes[start..], None)?;
    Ok(match body.used {
        Some(used) => Progress::Complete(
            Request {
                head,
                body: body.bytes,
            },
            start + used,
        ),
        None => Progress::Started(head),
    })
}

/// One final response with the interim ones that came before it.
#[derive(Clone, Debug)]
pub struct Response {
    pub interim: Vec<Head>,
    pub head: Head,
    pub status: u16,
    pub body: Vec<u8>,
    pub complete: bool,
    /// Offsets in the received bytes: end of the interim and final heads.
    pub body_at: usize,
}

/// Everything that a client has received, read as responses.
#[derive(Clone, Debug, Default)]
pub struct Received {
    pub responses: Vec<Response>,
    /// Interim responses that no final one has followed yet.
    pub interim: Vec<Head>,
    /// Bytes behind a 101, which are no longer HTTP.
    pub tunnel: Vec<u8>,
    /// An unfinished head.
    pub unfinished: Vec<u8>,
    pub error: Option<String>,
}

fn status_of(head: &Head) -> Result<u16, String> {
    let mut words = head.start_line.splitn(3, ' ');
    let (version, code) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if version != "HTTP/1.1" && version != "HTTP/1.0" {
        return Err(format!("status line {:?}", head.start_line));
    }
    if code.len() != 3 || !code.bytes().all(|b| b.is_ascii_digit()) || words.next().is_none() {
        return Err(format!("status line {:?}", head.start_line));
    }
    code.parse().map_err(|e| format!("{code}: {e}"))
}

/// Reads all responses in `bytes`; `methods` are those of the requests in order (GET beyond them).
pub fn parse_responses(bytes: &[u8], methods: &[String], end: Option<End>) -> Received {
    let mut got = Received::default();
    let mut at = 0;
    while at < bytes.len() {
        let method = methods
            .get(got.responses.len())
            .map_or("GET", String::as_str);
        match parse_response(&bytes[at..], method, end) {
            Err(e) => {
                got.error = Some(format!("{e} (at byte {at})"));
                break;
            }
            Ok(None) => {
                got.unfinished = bytes[at..].to_vec();
                break;
            }
            Ok(Some((mut response, used))) => {
                if (100..200).contains(&response.status) && response.status != 101 {
                    got.interim.push(response.head);
                    at += used.unwrap_or(0);
                    continue;
                }
                response.interim = std::mem::take(&mut got.interim);
                response.body_at += at;
                let status = response.status;
                got.responses.push(response);
                let Some(used) = used else { break };
                at += used;
                if status == 101 {
                    got.tunnel = bytes[at..].to_vec();
                    break;
                }
            }
        }
    }
    got
}

type Parsed = Option<(Response, Option<usize>)>;

fn parse_response(bytes: &[u8], method: &str, end: Option<End>) -> Result<Parsed, String> {
    let Some(head) = parse_head(bytes)? else {
        return Ok(None);
    };
    let status = status_of(&head)?;
    let declared = declared(&head)?;
    let bodyless = method == "HEAD" || status < 200 || status == 204 || status == 304;
    let framing = match declared {
        _ if bodyless => Framing::Length(0),
        Some(framing) => framing,
        None => Framing::UntilClose,
    };
    let body_at = head.raw.len();
    let body = parse_body(framing, &bytes[body_at..], end)?;
    let used = body.used.map(|n| n + body_at);
    let complete = used.is_some();
    let response = Response {
        interim: Vec::new(),
        head,
        status,
        body: body.bytes,
        complete,
        body_at,
    };
    Ok(Some((response, used)))
}
