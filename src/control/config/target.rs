//! The URL of a target (R16).

/// A target as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetUrl {
    /// Host and port as written, lower-case.
    pub authority: String,
    /// Host name or address, lower-case, IPv6 without brackets.
    pub host: String,
    /// 80 if not written.
    pub port: u16,
    /// Without a trailing slash; empty if there is none.
    pub path: String,
}

const HINT: &str = "(allowed: http://host[:port][/path])";

/// Reads a target. The error completes `"…" `.
pub fn parse(text: &str) -> Result<TargetUrl, String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        let hint = HINT.trim_end_matches(')');
        return Err(match parse(&format!("http://{text}")) {
            Ok(_) => format!("has no scheme {hint}; did you mean \"http://{text}\"?)"),
            Err(_) => format!("is not a URL {HINT}"),
        });
    };
    match scheme.to_ascii_lowercase().as_str() {
        "http" => {}
        "https" => {
            return Err(format!(
                "is https, which this version cannot dial yet {HINT}"
            ))
        }
        _ => return Err(format!("has an unknown scheme {HINT}")),
    }
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    if authority.contains('@') {
        return Err(format!(
            "holds user information, which would end up in logs {HINT}"
        ));
    }
    if path.contains(['?', '#']) {
        return Err(format!("has a query or fragment {HINT}"));
    }
    let (host, port) = split_port(authority)?;
    check_path(path)?;
    Ok(TargetUrl {
        authority: authority.to_ascii_lowercase(),
        host: parse_host(host)?,
        port,
        path: path.trim_end_matches('/').to_owned(),
    })
}

fn split_port(authority: &str) -> Result<(&str, u16), String> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
            let number = port.parse().ok().filter(|&n: &u16| digits && n > 0);
            let number = number.ok_or("has a bad port (allowed: 1 to 65535)")?;
            Ok((host, number))
        }
        _ => Ok((authority, 80)),
    }
}

fn parse_host(host: &str) -> Result<String, String> {
    if let Some(inside) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        let address: Result<std::net::Ipv6Addr, _> = inside.parse();
        return match address {
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err(format!("has a bad IPv6 address {HINT}")),
        };
    }
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if host.is_empty() {
        return Err(format!("has no host {HINT}"));
    }
    if !host.bytes().all(good) || host.starts_with('.') || host.len() > 253 {
        return Err(format!("has a bad host {HINT}"));
    }
    Ok(host.to_ascii_lowercase())
}

fn check_path(path: &str) -> Result<(), String> {
    if path.bytes().any(|b| !b.is_ascii_graphic() || b == b'\\') {
        return Err("has a path with a character that a URL cannot hold".to_owned());
    }
    if path
        .split('/')
        .any(|segment| segment == "." || segment == "..")
    {
        return Err("has a path with a dot segment".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn url(authority: &str, host: &str, port: u16, path: &str) -> TargetUrl {
        let own = str::to_owned;
        TargetUrl {
            authority: own(authority),
            host: own(host),
            port,
            path: own(path),
        }
    }

    #[test]
    fn urls() {
        for (text, expected) in [
            ("http://a", url("a", "a", 80, "")),
            ("http://a/", url("a", "a", 80, "")),
            ("HTTP://A:81/v1/", url("a:81", "a", 81, "/v1")),
            (
                "http://my_app.local:9000/a//b",
                url("my_app.local:9000", "my_app.local", 9000, "/a//b"),
            ),
            ("http://[::1]:9000/x", url("[::1]:9000", "::1", 9000, "/x")),
            ("http://[0:0::1]", url("[0:0::1]", "::1", 80, "")),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn faults() {
        for (text, problem) in [
            ("https://a", "is https, which"),
            ("ftp://a", "has an unknown scheme"),
            ("a:9000", "has no scheme (allowed: http://host[:port][/path]; did you mean \"http://a:9000\"?)"),
            ("", "is not a URL"),
            ("http://", "has no host"),
            ("http://:80", "has no host"),
            ("http://a:0", "has a bad port"),
            ("http://a:65536", "has a bad port"),
            ("http://a:", "has a bad port"),
            ("http://u:p@a", "holds user information"),
            ("http://a/x?y", "has a query"),
            ("http://a?y", "has a query"),
            ("http://a/../b", "has a path with a dot"),
            ("http://a/ b", "has a path with a character"),
            ("http://a b", "has a bad host"),
            ("http://[::g]", "has a bad IPv6"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(problem), "{text}: {error}");
        }
    }
}
