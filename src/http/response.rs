//! A response head from an upstream. Whatever is wrong with it is one and the
//! same answer to the client (502).

use super::field::{self, FieldSlot, Name, Plain};
use super::framing::{FramingFields, ResponseBody};
use super::method::Method;
use super::reason::Reason;
use super::request::{self, RequestFacts, UpgradeAsked};
use super::scan::{HeadScanner, Scan};
use super::syntax::{decimal, list, trim_ows, Version};

/// Most bytes of a response head (I27).
pub const MAX_RESPONSE_HEAD: usize = 64 * 1024;

/// What of the request decides how its response is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The request was HEAD.
    pub head: bool,
    /// The request went out with `Upgrade`.
    pub upgrade: bool,
}

impl Asked {
    /// What a request with these facts asks for.
    pub fn by(facts: &RequestFacts) -> Self {
        Self {
            head: facts.method == Method::Head,
            upgrade: facts.upgrade == UpgradeAsked::Yes,
        }
    }
}

/// What the life of a response depends on, without a borrow of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFacts {
    /// The status code, 100 to 999.
    pub status: u16,
    /// The upstream's version.
    pub version: Version,
    /// How long the body is.
    pub body: ResponseBody,
    /// The declared `Content-Length`, also where no body follows (HEAD, 304).
    pub declared_length: Option<u64>,
    /// Whether the connection may carry another request once the body has been
    /// read whole.
    pub keep_alive: bool,
    /// Seconds that the upstream keeps an idle connection
    /// (`Keep-Alive: timeout=`).
    pub keep_alive_timeout: Option<u64>,
    /// `text/event-stream`, or `X-Accel-Buffering: no` (R15).
    pub event_stream: bool,
}

impl ResponseFacts {
    /// An interim response: another one follows.
    pub fn is_interim(&self) -> bool {
        (100..=199).contains(&self.status) && self.status != 101
    }

    /// The connection becomes a tunnel.
    pub fn is_switch(&self) -> bool {
        self.status == 101
    }
}

/// A valid response head, borrowed from the receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'b, 'f> {
    /// What outlives the buffer.
    pub facts: ResponseFacts,
    /// The reason phrase as sent; empty when it holds other than ASCII.
    pub reason: &'b str,
    pub(super) head: &'b [u8],
    pub(super) fields: &'f [httparse::Header<'b>],
    pub(super) plain: Plain,
    pub(super) nominates: bool,
}

impl<'b, 'f> ResponseHead<'b, 'f> {
    /// All fields in order, as sent.
    pub fn fields(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + 'f {
        self.fields.iter().map(|f| (f.name, f.value))
    }

    /// Whether a 101 says what it switches to, and all of that is in the list `asked`: a server must not
    /// switch to anything else (RFC 9110 section 7.8).
    pub fn switches_within(&self, asked: &[u8]) -> bool {
        let mut named = self
            .fields()
            .filter(|(name, _)| name.eq_ignore_ascii_case("upgrade"))
            .flat_map(|(_, value)| list(value))
            .peekable();
        named.peek().is_some()
            && named.all(|name| list(asked).any(|asked| asked.eq_ignore_ascii_case(name)))
    }
}

/// Parses `head`, exactly the bytes of one head as found by
/// [`HeadScanner`]. Nothing that the scanner refuses passes here.
pub fn parse<'b, 'f>(
    head: &'b [u8],
    asked: Asked,
    slots: &'f mut [FieldSlot<'b>],
) -> Result<ResponseHead<'b, 'f>, Reason> {
    let mut parsed = httparse::Response::new(&mut []);
    let outcome = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut parsed,
        head,
        slots,
    );
    // The parser would skip empty lines in front.
    let whole = outcome == Ok(httparse::Status::Complete(head.len()));
    if !(whole && head.starts_with(b"HTTP/")) {
        return Err(fault(head, outcome.err()));
    }
    let status = parsed.code.unwrap_or(0);
    let version = match parsed.version {
        Some(1) => Version::Http11,
        _ => Version::Http10,
    };
    let fields: &'f [httparse::Header<'b>] = parsed.headers;
    let survey = Survey::of(head, fields);
    Ok(ResponseHead {
        facts: survey.facts(status, version, asked)?,
        reason: parsed.reason.unwrap_or(""),
        head,
        fields,
        plain: survey.plain,
        nominates: survey.nominates,
    })
}

/// What is wrong with a head that does not pass: what the scanner says, then what the parser minds.
#[cold]
fn fault(head: &[u8], error: Option<httparse::Error>) -> Reason {
    if let Scan::Bad(reason) = HeadScanner::response().scan(head) {
        return reason;
    }
    match error {
        Some(httparse::Error::TooManyHeaders) => Reason::ResponseHeadTooLarge,
        Some(httparse::Error::Version | httparse::Error::Status) => Reason::BadStatusLine,
        _ if !head.starts_with(b"HTTP/") => Reason::BadStatusLine,
        _ => Reason::ResponseHead,
    }
}

#[derive(Default)]
struct Survey {
    framing: FramingFields,
    options: usize,
    nominates: bool,
    close: bool,
    keep_alive: bool,
    timeout: Option<u64>,
    event_stream: bool,
    plain: Plain,
}

impl Survey {
    fn of(head: &[u8], fields: &[httparse::Header<'_>]) -> Self {
        let mut survey = Survey::default();
        for (at, f) in fields.iter().enumerate() {
            survey.take(head, at, f);
        }
        survey
    }

    fn take<'b>(&mut self, head: &'b [u8], at: usize, f: &httparse::Header<'b>) {
        match Name::of(f.name) {
            Name::ContentLength => self.framing.content_length(f.value),
            Name::TransferEncoding => self.framing.transfer_encoding(field::untrimmed(head, f)),
            Name::Connection => {
                for option in list(f.value) {
                    self.options += 1;
                    let close = option.eq_ignore_ascii_case(b"close");
                    let keep_alive = option.eq_ignore_ascii_case(b"keep-alive");
                    self.close |= close;
                    self.keep_alive |= keep_alive;
                    self.nominates |= !close && !keep_alive;
                }
            }
            Name::KeepAlive => self.timeout = list(f.value).find_map(keep_alive_timeout),
            Name::ContentType => {
                self.event_stream |= is_event_stream(f.value);
                self.plain.add(at);
            }
            Name::XAccelBuffering => {
                self.event_stream |= f.value.eq_ignore_ascii_case(b"no");
                self.plain.add(at);
            }
            Name::Other => self.plain.add(at),
            _ => {}
        }
    }

    fn facts(&self, status: u16, version: Version, asked: Asked) -> Result<ResponseFacts, Reason> {
        if status < 100 {
            return Err(Reason::BadStatusLine);
        }
        if status == 101 && !asked.upgrade {
            return Err(Reason::UnaskedUpgrade);
        }
        if self.options > request::MAX_CONNECTION_OPTIONS {
            return Err(Reason::TooManyConnectionOptions);
        }
        let body = self.framing.response_body(version, status, asked.head)?;
        let persistent = !self.close && (version == Version::Http11 || self.keep_alive);
        Ok(ResponseFacts {
            status,
            version,
            body,
            declared_length: self.framing.length(),
            keep_alive: persistent && body != ResponseBody::UntilClose && status != 101,
            keep_alive_timeout: self.timeout,
            event_stream: self.event_stream,
        })
    }
}

fn keep_alive_timeout(parameter: &[u8]) -> Option<u64> {
    let at = parameter.iter().position(|&b| b == b'=')?;
    let (name, value) = parameter.split_at_checked(at)?;
    if !trim_ows(name).eq_ignore_ascii_case(b"timeout") {
        return None;
    }
    decimal(trim_ows(value.get(1..)?))
}

fn is_event_stream(content_type: &[u8]) -> bool {
    let media = content_type
        .split(|&b| b == b';')
        .next()
        .unwrap_or_default();
    trim_ows(media).eq_ignore_ascii_case(b"text/event-stream")
}
