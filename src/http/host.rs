//! The authority of a request: `uri-host [ ":" port ]` (RFC 9110 section 7.2).

use std::net::Ipv6Addr;

use super::syntax::alphanumeric_and;

/// A valid authority without userinfo, borrowed from where it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'b> {
    text: &'b [u8],
    host_len: usize,
    port: Option<u16>,
}

impl<'b> Authority<'b> {
    /// Checks `text`. `None`: empty host, a byte outside the grammar, a broken
    /// IPv6 literal, or a port that is not a number up to 65535.
    pub fn parse(text: &'b [u8]) -> Option<Self> {
        let host_len = match text.first()? {
            b'[' => ipv6_len(text)?,
            _ => reg_name_len(text)?,
        };
        let port = match text.get(host_len..)? {
            [] | [b':'] => None,
            [b':', digits @ ..] => Some(port_number(digits)?),
            _ => return None,
        };
        Some(Self {
            text,
            host_len,
            port,
        })
    }

    /// The authority as written.
    pub fn as_bytes(&self) -> &'b [u8] {
        self.text
    }

    /// The host alone; an IPv6 literal keeps its brackets (R1).
    pub fn host(&self) -> &'b [u8] {
        self.text.get(..self.host_len).unwrap_or_default()
    }

    /// The port, if one is written.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether both name the same place when a missing port means
    /// `default_port` here and `other_default` there.
    pub fn same_as(&self, default_port: u16, other: &Authority<'_>, other_default: u16) -> bool {
        self.host().eq_ignore_ascii_case(other.host())
            && self.port.unwrap_or(default_port) == other.port.unwrap_or(other_default)
    }
}

fn port_number(digits: &[u8]) -> Option<u16> {
    u16::try_from(super::syntax::decimal(digits)?).ok()
}

fn ipv6_len(text: &[u8]) -> Option<usize> {
    let close = text.iter().position(|&b| b == b']')?;
    let inner = std::str::from_utf8(text.get(1..close)?).ok()?;
    inner.parse::<Ipv6Addr>().ok()?;
    Some(close + 1)
}

/// Bytes of a `reg-name` (RFC 3986 section 3.2.2) that stand for themselves.
const PLAIN: [bool; 256] = alphanumeric_and(b"-._~!$&'()*+,;=");

fn reg_name_len(text: &[u8]) -> Option<usize> {
    let mut len = 0;
    loop {
        let rest = text.get(len..)?;
        let run = rest.iter().position(|&b| !PLAIN[usize::from(b)]);
        len += run.unwrap_or(rest.len());
        match text.get(len..)? {
            [] | [b':', ..] => return (len > 0).then_some(len),
            [b'%', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => len += 3,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn i4_authorities() {
        let good: [(&[u8], &[u8], Option<u16>); 8] = [
            (b"t.example", b"t.example", None),
            (b"T.EXAMPLE", b"T.EXAMPLE", None),
            (b"t.example:80", b"t.example", Some(80)),
            (b"t.example:", b"t.example", None),
            (b"t.example:65535", b"t.example", Some(65535)),
            (b"[2001:db8::1]", b"[2001:db8::1]", None),
            (b"[::1]:8080", b"[::1]", Some(8080)),
            (b"a_b.example", b"a_b.example", None),
        ];
        for (text, host, port) in good {
            let a = Authority::parse(text).unwrap();
            assert_eq!((a.host(), a.port(), a.as_bytes()), (host, port, text));
        }
        let bad: [&[u8]; 18] = [
            b"",
            b":80",
            b"t.example:65536",
            b"t.example:x",
            b"t.example:+80",
            b"[::1",
            b"[]",
            b"[::1]x",
            b"[::1%25eth0]",
            b"[v1.x]",
            b"a b",
            b"a/b",
            b"u@h",
            b"a:1:2",
            b"::1",
            b"a%zz",
            b"a\xff",
            b"a, b",
        ];
        for text in bad {
            assert_eq!(Authority::parse(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn r9_default_ports() {
        let a = Authority::parse(b"H.example").unwrap();
        let b = Authority::parse(b"h.example:80").unwrap();
        assert!(a.same_as(80, &b, 80));
        assert!(!a.same_as(443, &b, 80));
    }
}
