//! The request line (RFC 9112 section 3): three tokens, and the four forms of a
//! target.

use super::host::Authority;
use super::method::Method;
use super::reason::Reason;
use super::syntax::{has_byte, visible_run, Version};

/// The form of the request target (RFC 9112 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'b> {
    /// `/path?query`.
    Origin,
    /// `http://authority/path?query`; the authority replaces `Host` (I6).
    Absolute(Authority<'b>),
    /// `OPTIONS *`, answered by toron itself.
    Asterisk,
}

/// Where a request goes.
pub(super) struct Goal<'b> {
    pub(super) target: Target<'b>,
    pub(super) path: &'b [u8],
    pub(super) query: Option<&'b [u8]>,
}

pub(super) struct RequestLine<'b> {
    pub(super) method: &'b [u8],
    pub(super) version: Version,
    target: &'b [u8],
}

impl<'b> RequestLine<'b> {
    /// The line as the parser has found it; `None` if it takes what this does not.
    pub(super) fn parsed(parsed: &httparse::Request<'_, 'b>) -> Option<Self> {
        let target = parsed.path?.as_bytes();
        (visible_run(target) == target.len()).then_some(Self {
            method: parsed.method?.as_bytes(),
            target,
            version: match parsed.version? {
                1 => Version::Http11,
                _ => Version::Http10,
            },
        })
    }

    /// Cuts the first line of a head, to say what is wrong with it.
    pub(super) fn cut(head: &'b [u8]) -> Result<Self, Reason> {
        let line = head.split(|&b| b == b'\r').next().unwrap_or_default();
        let mut parts = line.split(|&b| b == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Reason::BadRequestLine);
        };
        if target.is_empty() {
            return Err(Reason::BadRequestLine);
        }
        if visible_run(target) != target.len() {
            return Err(Reason::BadTarget);
        }
        Ok(Self {
            method,
            target,
            version: version_of(version)?,
        })
    }

    /// What the target means for this method.
    pub(super) fn goal(&self) -> Result<Goal<'b>, Reason> {
        let target = self.target;
        let method = Method::of(self.method);
        if method == Method::Connect {
            return Err(Reason::ConnectMethod);
        }
        if has_byte(target, b'#') {
            return Err(Reason::FragmentInTarget);
        }
        match target {
            [b'/', ..] => {
                let (path, query) = split_query(target);
                Ok(Goal {
                    target: Target::Origin,
                    path,
                    query,
                })
            }
            b"*" if method == Method::Options => Ok(Goal::ASTERISK),
            _ => absolute(target, method),
        }
    }
}

impl Goal<'static> {
    const ASTERISK: Self = Goal {
        target: Target::Asterisk,
        path: b"*",
        query: None,
    };
}

fn version_of(text: &[u8]) -> Result<Version, Reason> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', a, b'.', b] if a.is_ascii_digit() && b.is_ascii_digit() => {
            Err(Reason::UnsupportedVersion)
        }
        _ => Err(Reason::BadVersion),
    }
}

fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    if !has_byte(target, b'?') {
        return (target, None);
    }
    match target.iter().position(|&b| b == b'?') {
        Some(at) => (target.get(..at).unwrap_or_default(), target.get(at + 1..)),
        None => (target, None),
    }
}

fn strip_scheme(target: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"]
        .into_iter()
        .find_map(|scheme| {
            let (front, rest) = target.split_at_checked(scheme.len())?;
            front.eq_ignore_ascii_case(scheme).then_some(rest)
        })
}

fn absolute(target: &[u8], method: Method) -> Result<Goal<'_>, Reason> {
    let rest = strip_scheme(target).ok_or(Reason::BadTarget)?;
    let end = rest
        .iter()
        .position(|&b| b == b'/' || b == b'?')
        .unwrap_or(rest.len());
    let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, &[]));
    if authority.contains(&b'@') {
        return Err(Reason::UserinfoInTarget);
    }
    let authority = Authority::parse(authority).ok_or(Reason::BadAuthority)?;
    let (path, query) = split_query(rest);
    // RFC 9112 section 3.2.4: no path and no query means the server itself.
    if method == Method::Options && path.is_empty() && query.is_none() {
        return Ok(Goal::ASTERISK);
    }
    let path = if path.is_empty() { b"/" } else { path };
    Ok(Goal {
        target: Target::Absolute(authority),
        path,
        query,
    })
}
