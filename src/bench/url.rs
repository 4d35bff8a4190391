//! Where a load goes: `http://host[:port]/path?query`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use crate::http::host::Authority;

/// The port of `http` (RFC 9110 section 4.2.1).
const DEFAULT_PORT: u16 = 80;

/// An `http` URL, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    authority: String,
    host: String,
    port: u16,
    target: String,
}

impl Url {
    /// Reads a URL. The error is for people.
    pub fn parse(text: &str) -> Result<Url, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("{text}: not a URL (http://host[:port]/path)"));
        };
        if scheme.eq_ignore_ascii_case("https") {
            return Err(format!(
                "{text}: https is not supported, the load is plain HTTP/1.1 (measure behind the \
                 TLS terminator)"
            ));
        }
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(format!("{text}: unknown scheme \"{scheme}\" (http)"));
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let Some(parsed) = Authority::parse(authority.as_bytes()) else {
            return Err(format!("{text}: bad host or port \"{authority}\""));
        };
        let host = String::from_utf8_lossy(parsed.host()).into_owned();
        let port = parsed.port().unwrap_or(DEFAULT_PORT);
        let target = match target.as_bytes().first() {
            None => "/".to_owned(),
            Some(b'?') => format!("/{target}"),
            Some(_) => target.to_owned(),
        };
        if !target.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!("{text}: the path must be percent-encoded"));
        }
        Ok(Url {
            authority: authority.to_owned(),
            host,
            port,
            target,
        })
    }

    /// Host and port as written, for the `Host` field.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The first address of the host. Asks the system's resolver, which may take seconds. The
    /// error is for people.
    pub fn resolve(&self) -> Result<SocketAddr, String> {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        let found = (bare, self.port).to_socket_addrs();
        let none = || format!("cannot resolve {}: no address", self.host);
        found
            .map_err(|error| format!("cannot resolve {}: {error}", self.host))?
            .next()
            .ok_or_else(none)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.target)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn good_ones() {
        for (text, authority, port, target) in [
            ("http://a", "a", 80, "/"),
            ("HTTP://a:8080/x?y=1#z", "a:8080", 8080, "/x?y=1"),
            ("http://[::1]:9/", "[::1]:9", 9, "/"),
            ("http://a?q", "a", 80, "/?q"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(
                (url.authority(), url.port, url.target()),
                (authority, port, target)
            );
        }
        let local = Url::parse("http://[::1]:9/").unwrap();
        assert_eq!(local.resolve(), Ok("[::1]:9".parse().unwrap()));
    }

    #[test]
    fn bad_ones() {
        for (text, said) in [
            ("localhost:80", "not a URL"),
            ("https://a/", "https is not supported"),
            ("ftp://a/", "unknown scheme"),
            ("http://", "bad host or port"),
            ("http://a:99999/", "bad host or port"),
            ("http://u@a/", "bad host or port"),
            ("http://a/ü", "percent-encoded"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
