//! Answers of an upstream behind a stripped prefix, mapped back (R8 to R10):
//! the target's own path is taken away and the prefix put in front.

use super::host::Authority;
use super::path::{strip_prefix, trim_trailing_slashes};
use super::syntax::trim_ows;

/// How a route changes paths; only for requests whose prefix was stripped.
#[derive(Clone, Copy, Debug)]
pub struct Rewrite<'a> {
    /// The prefix that was stripped.
    pub prefix: &'a [u8],
    /// The target URL's own path (may be empty).
    pub target_path: &'a [u8],
    /// The target URL's authority; its scheme is `http`.
    pub target_authority: &'a [u8],
    /// The scheme that the client used (`http` or `https`).
    pub client_scheme: &'a [u8],
    /// The authority that the client asked for; empty when unknown.
    pub client_host: &'a [u8],
    /// Whether `Location` is rewritten (R9).
    pub redirects: bool,
    /// Whether cookie paths are rewritten (R10).
    pub cookie_path: bool,
}

impl Rewrite<'_> {
    /// Appends `location` as the client must see it (R9).
    pub fn push_location(&self, location: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        if self.try_push_location(location, out).is_none() {
            out.truncate(start);
            out.extend_from_slice(location);
        }
    }

    fn try_push_location(&self, location: &[u8], out: &mut Vec<u8>) -> Option<()> {
        if location.starts_with(b"/") && !location.starts_with(b"//") {
            return self.push_mapped(location, out);
        }
        let (rest, default_port) = after_scheme(location)?;
        let end = rest
            .iter()
            .position(|b| b"/?#".contains(b))
            .unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let named = Authority::parse(authority)?;
        let target = Authority::parse(self.target_authority)?;
        if !named.same_as(default_port, &target, 80) {
            return None;
        }
        if !self.client_host.is_empty() {
            out.extend_from_slice(self.client_scheme);
            out.extend_from_slice(b"://");
            out.extend_from_slice(self.client_host);
        }
        if path.starts_with(b"/") {
            self.push_mapped(path, out)
        } else {
            self.push_mapped(b"/", out)?;
            out.extend_from_slice(path);
            Some(())
        }
    }

    /// Maps a rooted reference; what follows its path stays as it is.
    fn push_mapped(&self, reference: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let end = reference
            .iter()
            .position(|b| b"?#".contains(b))
            .unwrap_or(reference.len());
        let (path, rest) = reference.split_at_checked(end)?;
        let inner = strip_prefix(path, self.target_path)?;
        let prefix = trim_trailing_slashes(self.prefix);
        out.extend_from_slice(prefix);
        out.extend_from_slice(inner);
        if prefix.is_empty() && inner.is_empty() {
            out.push(b'/');
        }
        out.extend_from_slice(rest);
        Some(())
    }

    /// Appends one `Set-Cookie` value as the client must see it (R10): only the
    /// value of its `Path` attribute changes, every other byte stays.
    pub fn push_cookie(&self, cookie: &[u8], out: &mut Vec<u8>) {
        let keeps = cookie
            .get(..7)
            .is_some_and(|p| p.eq_ignore_ascii_case(b"__Host-"));
        for (i, part) in cookie.split(|&b| b == b';').enumerate() {
            if i > 0 {
                out.push(b';');
            }
            match path_attribute(part) {
                Some((before, path)) if i > 0 && !keeps => {
                    out.extend_from_slice(before);
                    self.push_cookie_path(path, out);
                }
                _ => out.extend_from_slice(part),
            }
        }
    }

    fn push_cookie_path(&self, path: &[u8], out: &mut Vec<u8>) {
        let prefix = trim_trailing_slashes(self.prefix);
        // A path above the target's own covers all that is behind the prefix.
        let inner = match strip_prefix(path, self.target_path) {
            Some(inner) if inner != b"/" => inner,
            Some(_) => b"",
            None if strip_prefix(self.target_path, path).is_some() => b"",
            None => return out.extend_from_slice(path),
        };
        out.extend_from_slice(prefix);
        out.extend_from_slice(inner);
        if prefix.is_empty() && inner.is_empty() {
            out.push(b'/');
        }
    }
}

fn after_scheme(location: &[u8]) -> Option<(&[u8], u16)> {
    [(&b"http://"[..], 80), (b"https://", 443)]
        .into_iter()
        .find_map(|(scheme, port)| {
            let (front, rest) = location.split_at_checked(scheme.len())?;
            front.eq_ignore_ascii_case(scheme).then_some((rest, port))
        })
}

/// Splits `part` of a cookie into what precedes the value of a rooted `Path`
/// attribute, and that value.
fn path_attribute(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = part.iter().position(|&b| b == b'=')?;
    let (name, value) = part.split_at_checked(equals + 1)?;
    let name = name.strip_suffix(b"=").unwrap_or(name);
    let path = trim_ows(value);
    if !trim_ows(name).eq_ignore_ascii_case(b"path") || !path.starts_with(b"/") {
        return None;
    }
    Some((part.get(..equals + 1)?, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite<'a>(prefix: &'a [u8], target_path: &'a [u8]) -> Rewrite<'a> {
        Rewrite {
            prefix,
            target_path,
            target_authority: b"10.0.0.1:9000",
            client_scheme: b"https",
            client_host: b"t.example",
            redirects: true,
            cookie_path: true,
        }
    }

    fn location(prefix: &str, target_path: &str, value: &str) -> String {
        let mut out = Vec::new();
        rewrite(prefix.as_bytes(), target_path.as_bytes())
            .push_location(value.as_bytes(), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn cookie(prefix: &str, target_path: &str, value: &str) -> String {
        let mut out = Vec::new();
        rewrite(prefix.as_bytes(), target_path.as_bytes()).push_cookie(value.as_bytes(), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn r9_location() {
        for (prefix, base, sent, seen) in [
            ("/app", "", "/login", "/app/login"),
            ("/app", "/", "/login?next=/x#y", "/app/login?next=/x#y"),
            ("/app", "", "/", "/app/"),
            ("/app", "/v1", "/v1/x", "/app/x"),
            ("/app", "/v1", "/v1", "/app"),
            ("/app", "/v1", "/v10/x", "/v10/x"),
            ("/app", "/v1", "/other", "/other"),
            ("/", "/v1", "/v1", "/"),
            ("/", "", "/x", "/x"),
            (
                "/app",
                "",
                "http://10.0.0.1:9000/bar/",
                "https://t.example/app/bar/",
            ),
            ("/app", "", "HTTP://10.0.0.1:9000", "https://t.example/app/"),
            (
                "/app",
                "",
                "http://10.0.0.1:9000?q",
                "https://t.example/app/?q",
            ),
            ("/app", "", "http://10.0.0.1/bar/", "http://10.0.0.1/bar/"),
            (
                "/app",
                "/v1",
                "http://10.0.0.1:9000/x",
                "http://10.0.0.1:9000/x",
            ),
            ("/app", "", "//other/x", "//other/x"),
            (
                "/app",
                "",
                "https://login.example/auth?next=/x",
                "https://login.example/auth?next=/x",
            ),
            ("/app", "", "next", "next"),
            ("/app", "", "../up", "../up"),
            ("/app", "", "?q=1", "?q=1"),
            ("/app", "", "", ""),
            (
                "/app",
                "",
                "http://10.0.0.1:9000@evil/x",
                "http://10.0.0.1:9000@evil/x",
            ),
        ] {
            assert_eq!(location(prefix, base, sent), seen, "{prefix} {base} {sent}");
        }
    }

    #[test]
    fn r9_default_ports_of_both_schemes() {
        let rewrite = Rewrite {
            target_authority: b"h",
            ..rewrite(b"/app", b"")
        };
        for (sent, seen) in [
            ("http://H/x", "https://t.example/app/x"),
            ("http://h:80/x", "https://t.example/app/x"),
            ("https://h/x", "https://h/x"),
            ("https://h:80/x", "https://t.example/app/x"),
        ] {
            let mut out = Vec::new();
            rewrite.push_location(sent.as_bytes(), &mut out);
            assert_eq!(out, seen.as_bytes(), "{sent}");
        }
    }

    #[test]
    fn r10_cookie_path() {
        for (prefix, base, sent, seen) in [
            (
                "/app",
                "",
                "sid=1; Path=/; HttpOnly; Secure",
                "sid=1; Path=/app; HttpOnly; Secure",
            ),
            (
                "/app",
                "",
                "sid=1; path=/x;Secure",
                "sid=1; path=/app/x;Secure",
            ),
            ("/app", "", "a=1; Secure", "a=1; Secure"),
            (
                "/app",
                "",
                "v=path=/evil; Path=/",
                "v=path=/evil; Path=/app",
            ),
            ("/app", "", "path=/x; Secure", "path=/x; Secure"),
            (
                "/app",
                "",
                "__Host-a=1; Path=/; Secure",
                "__Host-a=1; Path=/; Secure",
            ),
            ("/app", "/v1", "a=1; Path=/v1", "a=1; Path=/app"),
            ("/app", "/v1", "a=1; Path=/v1/x", "a=1; Path=/app/x"),
            ("/app", "/v1", "a=1; Path=/", "a=1; Path=/app"),
            ("/app", "/v1", "a=1; Path=/v2", "a=1; Path=/v2"),
            ("/app", "", "a=1; Path=", "a=1; Path="),
            ("/app", "", "a=1; Path=rel", "a=1; Path=rel"),
            ("/", "", "a=1; Path=/", "a=1; Path=/"),
            ("/", "/v1", "a=1; Path=/v1/", "a=1; Path=/"),
            (
                "/app",
                "",
                "a=1; XPath=/; Comment=Path=/",
                "a=1; XPath=/; Comment=Path=/",
            ),
        ] {
            assert_eq!(cookie(prefix, base, sent), seen, "{prefix} {base} {sent}");
        }
    }
}
