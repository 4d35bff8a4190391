//! The request that is to be explained, as it would come.

use std::net::IpAddr;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Its method.
    pub method: String,
    /// The URL as asked.
    pub url: String,
    /// Where it comes from.
    pub from: IpAddr,
    /// `Host` by the URL, unless a field says otherwise.
    host: Option<String>,
    /// The target in the first line.
    target: String,
    /// Further lines, `Name: value`.
    lines: Vec<String>,
}

impl Asked {
    /// A request for `url`, with these fields (`Name: value`), from `from`. Only what could not be
    /// put into a head is a fault here: what is wrong with a request is part of the explanation.
    pub fn new(method: &str, url: &str, fields: &[String], from: IpAddr) -> Result<Self, String> {
        let mut texts = fields.iter().map(String::as_str).chain([method, url]);
        if let Some(text) = texts.find(|text| text.contains(['\r', '\n'])) {
            return Err(format!("{text:?} holds a line break"));
        }
        if let Some(field) = fields.iter().find(|field| !field.contains(':')) {
            return Err(format!(
                "\"{field}\" is not a header (allowed: 'Name: value')"
            ));
        }
        let (host, target) = split(url)?;
        let names_host = |field: &String| {
            let name = field.split(':').next().unwrap_or_default();
            name.eq_ignore_ascii_case("host")
        };
        Ok(Asked {
            method: method.to_owned(),
            url: url.to_owned(),
            from,
            host: host.filter(|_| !fields.iter().any(names_host)),
            target,
            lines: fields.to_vec(),
        })
    }

    /// The head that would come.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if let Some(host) = &self.host {
            head.push_str(&format!("Host: {host}\r\n"));
        }
        for line in &self.lines {
            head.push_str(line);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// The fields as they were given.
    #[must_use]
    pub fn fields(&self) -> &[String] {
        &self.lines
    }
}

/// Authority and target of a URL. A path alone has no authority: a field must name the host.
fn split(url: &str) -> Result<(Option<String>, String), String> {
    if url.starts_with('/') || url == "*" {
        return Ok((None, url.to_owned()));
    }
    let scheme = url.get(..7).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("http://") {
        let https = url.get(..8).unwrap_or_default();
        let what = if https.eq_ignore_ascii_case("https://") {
            "toron itself speaks http; say http:// and -H 'X-Forwarded-Proto: https' --from the \
             address of the terminator in front of it"
        } else {
            "allowed: http://host/path, or /path with -H 'Host: …'"
        };
        return Err(format!(
            "\"{url}\" is not a URL that can be asked for ({what})"
        ));
    }
    let rest = url.get(7..).unwrap_or_default();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let slash = if target.starts_with('/') { "" } else { "/" };
    Ok((Some(authority.to_owned()), format!("{slash}{target}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::Ipv4Addr;

    use super::*;

    fn head(url: &str, fields: &[&str]) -> String {
        let fields: Vec<String> = fields.iter().map(|&f| f.to_owned()).collect();
        let asked = Asked::new("GET", url, &fields, Ipv4Addr::LOCALHOST.into()).unwrap();
        String::from_utf8(asked.head()).unwrap()
    }

    #[test]
    fn a_url_becomes_the_head_that_a_client_would_send() {
        for (url, fields, expected) in [
            (
                "http://a.b:81/x?y=/z",
                &[][..],
                "GET /x?y=/z HTTP/1.1\r\nHost: a.b:81\r\n\r\n",
            ),
            (
                "HTTP://a",
                &["X: 1"],
                "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n",
            ),
            ("http://a?q", &[], "GET /?q HTTP/1.1\r\nHost: a\r\n\r\n"),
            (
                "http://a/",
                &["HOST: b"],
                "GET / HTTP/1.1\r\nHOST: b\r\n\r\n",
            ),
            ("/x", &["Host: b"], "GET /x HTTP/1.1\r\nHost: b\r\n\r\n"),
            ("*", &[], "GET * HTTP/1.1\r\n\r\n"),
        ] {
            assert_eq!(head(url, fields), expected, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_a_fault() {
        let from = Ipv4Addr::LOCALHOST.into();
        for (method, url, field, said) in [
            (
                "GET",
                "example.com/x",
                "a: b",
                "is not a URL that can be asked for (allowed: ",
            ),
            ("GET", "https://a/", "a: b", "toron itself speaks http"),
            ("GET", "http://a/", "a", "is not a header"),
            ("GET", "http://a/", "a: b\r\nc: d", "holds a line break"),
            ("GET\n", "http://a/", "a: b", "holds a line break"),
        ] {
            let error = Asked::new(method, url, &[field.to_owned()], from).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
