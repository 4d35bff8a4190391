//! A request head: httparse for the cutting, strict checks (I4, I6) around it.

use super::field::{self, FieldSlot, Name, Plain};
use super::framing::{FramingFields, RequestBody};
use super::host::Authority;
use super::method::Method;
use super::reason::Reason;
use super::request_line::{RequestLine, Target};
use super::scan::{self, HeadScanner, Scan};
use super::syntax::{has_byte, list, Version};

/// Limits on a head beyond its size in bytes, which the caller's buffer sets.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Most fields (`firewall.max_header_count`); the slots given to `parse`
    /// are a limit as well.
    pub max_fields: usize,
}

/// Most options in all `Connection` fields together. Each may name a field to
/// remove, so that forwarding costs fields × options comparisons.
pub const MAX_CONNECTION_OPTIONS: usize = 32;

/// What the client expects before it sends its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing (also every HTTP/1.0 client, RFC 9110 section 10.1.1).
    None,
    /// `100-continue`.
    Continue,
    /// Something else: 417 (I11).
    Other,
}

/// A protocol change that the client asks for (RFC 9110 section 7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeAsked {
    /// None, or not properly named in `Connection`.
    No,
    /// To `h2c`: not passed on (R14); the request goes on without it.
    H2c,
    /// To something else, which the upstream decides about.
    Yes,
}

/// What the life of a request depends on, without a borrow of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// The method.
    pub method: Method,
    /// The client's version.
    pub version: Version,
    /// How long the body is.
    pub body: RequestBody,
    /// Whether the client wants to go on with this connection.
    pub keep_alive: bool,
    /// What it expects before it sends the body.
    pub expect: Expect,
    /// Whether it asks for another protocol.
    pub upgrade: UpgradeAsked,
    /// Whether it takes trailers (`TE: trailers`).
    pub te_trailers: bool,
}

/// A valid request head, borrowed from the receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'b, 'f> {
    /// What outlives the buffer.
    pub facts: RequestFacts,
    /// The method as sent.
    pub method: &'b [u8],
    /// The form of the target.
    pub target: Target<'b>,
    /// The path as sent, not normalised; `*` in asterisk form, `/` when an
    /// absolute target has none.
    pub path: &'b [u8],
    /// What stands behind the first `?`, byte for byte.
    pub query: Option<&'b [u8]>,
    /// The authority asked for; only an HTTP/1.0 request may have none.
    pub host: Option<Authority<'b>>,
    /// Fields that are not passed on, as there is an underscore in their name
    /// (I4).
    pub underscores: u32,
    pub(super) head: &'b [u8],
    pub(super) fields: &'f [httparse::Header<'b>],
    pub(super) plain: Plain,
    pub(super) nominates: bool,
}

impl<'b, 'f> RequestHead<'b, 'f> {
    /// All fields in order, as sent.
    pub fn fields(&self) -> impl DoubleEndedIterator<Item = (&'b str, &'b [u8])> + 'f {
        self.fields.iter().map(|f| (f.name, f.value))
    }

    /// The first field called `name` (any case).
    pub fn field(&self, name: &str) -> Option<&'b [u8]> {
        self.fields
            .iter()
            .find(|f| f.name.eq_ignore_ascii_case(name))
            .map(|f| f.value)
    }

    /// Appends the protocols of all `Upgrade` fields as one list.
    pub fn push_protocols(&self, out: &mut Vec<u8>) {
        let fields = self
            .fields()
            .filter(|(name, _)| name.eq_ignore_ascii_case("upgrade"));
        for (_, value) in fields {
            out.extend_from_slice(value);
            out.push(b',');
        }
    }
}

/// Parses `head`, exactly the bytes of one head as found by
/// [`HeadScanner`]. Nothing that the scanner refuses passes
/// here, wherever the bytes came from.
pub fn parse<'b, 'f>(
    head: &'b [u8],
    limits: &HeadLimits,
    slots: &'f mut [FieldSlot<'b>],
) -> Result<RequestHead<'b, 'f>, Reason> {
    let room = limits.max_fields.min(slots.len());
    let mut parsed = httparse::Request::new(&mut []);
    let outcome = parsed.parse_with_uninit_headers(head, slots.get_mut(..room).unwrap_or_default());
    let whole = outcome == Ok(httparse::Status::Complete(head.len()));
    let line = RequestLine::parsed(&parsed);
    let Some(line) = line.filter(|_| whole && scan::has_strict_lines(head)) else {
        return Err(fault(head, outcome.err()));
    };
    let fields: &'f [httparse::Header<'b>] = parsed.headers;
    let survey = Survey::of(head, fields);
    let goal = line.goal()?;
    Ok(RequestHead {
        facts: survey.facts(Method::of(line.method), line.version)?,
        method: line.method,
        target: goal.target,
        path: goal.path,
        query: goal.query,
        host: survey.host(line.version, &goal.target)?,
        underscores: survey.underscores,
        head,
        fields,
        plain: survey.plain,
        nominates: survey.nominates,
    })
}

/// What is wrong with a head that does not pass: what the scanner says, then the request line, then
/// what the parser minds.
#[cold]
fn fault(head: &[u8], error: Option<httparse::Error>) -> Reason {
    if let Scan::Bad(reason) = HeadScanner::request().scan(head) {
        return reason;
    }
    match (RequestLine::cut(head), error) {
        (Err(reason), _) => reason,
        (Ok(_), Some(httparse::Error::TooManyHeaders)) => Reason::TooManyFields,
        (Ok(_), _) => Reason::BadHead,
    }
}

/// One pass over the fields.
struct Survey<'b> {
    hosts: usize,
    host: &'b [u8],
    framing: FramingFields,
    options: usize,
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    nominates: bool,
    upgrade: UpgradeAsked,
    expect: Expect,
    te_trailers: bool,
    underscores: u32,
    plain: Plain,
}

impl<'b> Survey<'b> {
    fn of(head: &'b [u8], fields: &[httparse::Header<'b>]) -> Self {
        let mut survey = Survey {
            hosts: 0,
            host: b"",
            framing: FramingFields::default(),
            options: 0,
            close: false,
            keep_alive: false,
            upgrade_option: false,
            nominates: false,
            upgrade: UpgradeAsked::No,
            expect: Expect::None,
            te_trailers: false,
            underscores: 0,
            plain: Plain::default(),
        };
        for (at, f) in fields.iter().enumerate() {
            survey.take(head, at, f);
        }
        survey
    }

    fn take(&mut self, head: &'b [u8], at: usize, f: &httparse::Header<'b>) {
        match Name::of(f.name) {
            Name::Host => {
                self.hosts += 1;
                self.host = f.value;
            }
            Name::ContentLength => self.framing.content_length(f.value),
            Name::TransferEncoding => {
                self.framing.transfer_encoding(field::untrimmed(head, f));
            }
            // What most clients send.
            Name::Connection if f.value == b"keep-alive" => self.option(f.value),
            Name::Connection => list(f.value).for_each(|option| self.option(option)),
            Name::Upgrade => list(f.value).for_each(|protocol| self.protocol(protocol)),
            Name::Expect => self.expectation(f.value),
            Name::Te => {
                self.te_trailers |= list(f.value).any(|t| t.eq_ignore_ascii_case(b"trailers"));
            }
            Name::Other if has_byte(f.name.as_bytes(), b'_') => self.underscores += 1,
            Name::Other => self.plain.add(at),
            _ => {}
        }
    }

    fn option(&mut self, option: &[u8]) {
        self.options += 1;
        if option.eq_ignore_ascii_case(b"close") {
            self.close = true;
        } else if option.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
        } else if option.eq_ignore_ascii_case(b"upgrade") {
            self.upgrade_option = true;
        } else {
            self.nominates = true;
        }
    }

    fn protocol(&mut self, protocol: &[u8]) {
        if protocol.eq_ignore_ascii_case(b"h2c") {
            self.upgrade = UpgradeAsked::H2c;
        } else if self.upgrade == UpgradeAsked::No {
            self.upgrade = UpgradeAsked::Yes;
        }
    }

    fn expectation(&mut self, value: &[u8]) {
        let is_continue = value.eq_ignore_ascii_case(b"100-continue");
        self.expect = match self.expect {
            Expect::Other => Expect::Other,
            Expect::None | Expect::Continue if is_continue => Expect::Continue,
            Expect::None | Expect::Continue => Expect::Other,
        };
    }

    fn facts(&self, method: Method, version: Version) -> Result<RequestFacts, Reason> {
        let body = self.framing.request_body(version)?;
        if self.options > MAX_CONNECTION_OPTIONS {
            return Err(Reason::TooManyConnectionOptions);
        }
        let modern = version == Version::Http11;
        Ok(RequestFacts {
            method,
            version,
            body,
            keep_alive: !self.close && (modern || self.keep_alive),
            expect: if modern { self.expect } else { Expect::None },
            upgrade: if modern && self.upgrade_option {
                self.upgrade
            } else {
                UpgradeAsked::No
            },
            te_trailers: self.te_trailers,
        })
    }

    fn host(&self, version: Version, target: &Target<'b>) -> Result<Option<Authority<'b>>, Reason> {
        let named = match self.hosts {
            0 if version == Version::Http10 => None,
            0 => return Err(Reason::MissingHost),
            1 => Some(Authority::parse(self.host).ok_or(Reason::BadHost)?),
            _ => return Err(Reason::RepeatedHost),
        };
        Ok(match target {
            Target::Absolute(authority) => Some(*authority),
            Target::Origin | Target::Asterisk => named,
        })
    }
}
