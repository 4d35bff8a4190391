//! What is asked: requests, ready to be sent, and how they are mixed.

use toron_reactor::buffer::RECEIVE;
use toron_reactor::Buf;

use super::url::Url;
use crate::http::chunk::{encode_size_line, CRLF, LAST_CHUNK};

/// Most bytes of a chunk: one fits into an empty buffer with its framing.
pub const LONGEST_CHUNK: u32 = 64 * 1024;
/// What bodies of a given size are made of.
const FILLING: [u8; 4096] = [b'x'; 4096];
/// Size line, the line end behind the data, and the last chunk.
const CHUNK_FRAMING: usize = 18 + 2 + 5;

/// The content of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Body {
    /// Neither content nor a length.
    #[default]
    None,
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many bytes, made while they are sent.
    Filling(u64),
}

impl Body {
    fn len(&self) -> u64 {
        match self {
            Body::None => 0,
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::Filling(n) => *n,
        }
    }

    /// Appends bytes from position `at` on, at most `most`; returns how many.
    fn append(&self, at: u64, most: usize, buf: &mut Buf) -> usize {
        let most = most.min(buf.room());
        let left = self.len().saturating_sub(at);
        let n = usize::try_from(left).unwrap_or(most).min(most);
        match self {
            Body::None => 0,
            Body::Bytes(bytes) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                buf.extend(bytes.get(at..at.saturating_add(n)).unwrap_or_default())
            }
            Body::Filling(_) => {
                let mut done = 0;
                while done < n {
                    let part = FILLING.len().min(n - done);
                    done += buf.extend(FILLING.get(..part).unwrap_or_default());
                }
                done
            }
        }
    }
}

/// One kind of request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// For the output.
    pub name: String,
    /// How often it is chosen, relative to the others.
    pub weight: u32,
    /// The method.
    pub method: String,
    /// Path and query; `None`: those of the URL.
    pub path: Option<String>,
    /// Fields beside `Host` and those of framing and persistence.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Body,
    /// Send the content in chunks of this size.
    pub chunk: Option<u32>,
}

impl Default for Template {
    fn default() -> Self {
        Template {
            name: "default".to_owned(),
            weight: 1,
            method: "GET".to_owned(),
            path: None,
            headers: Vec::new(),
            body: Body::None,
            chunk: None,
        }
    }
}

/// A request method. The error is for people.
pub fn method(word: &str) -> Result<String, String> {
    if word.is_empty() || !word.bytes().all(|b| b.is_ascii_alphabetic()) {
        return Err(format!("bad method \"{}\"", word.escape_debug()));
    }
    Ok(word.to_owned())
}

/// A field line, `Name: value`. The error is for people.
pub fn header(line: &str) -> Result<(String, String), String> {
    let bad = || format!("bad header \"{}\" (Name: value)", line.escape_debug());
    let (name, value) = line.split_once(':').ok_or_else(bad)?;
    let value = value.trim_matches([' ', '\t']);
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let good = !name.is_empty()
        && name.bytes().all(token)
        && value
            .bytes()
            .all(|b| b == b'\t' || (b >= b' ' && b != 0x7f));
    if ["transfer-encoding", "content-length"].contains(&&*name.to_ascii_lowercase()) {
        return Err(format!(
            "{name} follows from --body, --upload and --chunked"
        ));
    }
    good.then(|| (name.to_owned(), value.to_owned()))
        .ok_or_else(bad)
}

/// A request rendered for one target.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// [`Template::name`].
    pub name: String,
    weight: u32,
    /// The request is HEAD.
    pub is_head: bool,
    keep: Vec<u8>,
    close: Vec<u8>,
    body: Body,
    chunk: Option<u32>,
}

impl Template {
    /// Renders the request.
    #[must_use]
    pub fn prepare(&self, url: &Url) -> Prepared {
        Prepared {
            name: self.name.clone(),
            weight: self.weight,
            is_head: self.method == "HEAD",
            keep: self.head(url, false),
            close: self.head(url, true),
            body: self.body.clone(),
            chunk: self.chunk,
        }
    }

    fn head(&self, url: &Url, close: bool) -> Vec<u8> {
        let target = self.path.as_deref().unwrap_or(url.target());
        let mut head = format!("{} {target} HTTP/1.1\r\n", self.method);
        let given = |name: &str| {
            let mut names = self.headers.iter().map(|(name, _)| name);
            names.any(|n| n.eq_ignore_ascii_case(name))
        };
        if !given("host") {
            head += &format!("Host: {}\r\n", url.authority());
        }
        if !given("user-agent") {
            head += concat!(
                "User-Agent: toron-bench/",
                env!("CARGO_PKG_VERSION"),
                "\r\n"
            );
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if close && !given("connection") {
            head += "Connection: close\r\n";
        }
        if self.chunk.is_some() {
            head += "Transfer-Encoding: chunked\r\n";
        } else if self.body != Body::None && !given("content-length") {
            head += &format!("Content-Length: {}\r\n", self.body.len());
        }
        head += "\r\n";
        head.into_bytes()
    }
}

/// How far a request has been written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Written {
    /// So many bytes of the head.
    Head(usize),
    /// So many bytes of the content.
    Body(u64),
    /// All of it.
    #[default]
    All,
}

impl Prepared {
    /// Appends what comes next to `buf`, as far as it goes in, and moves `written` on.
    pub fn write(&self, close: bool, written: &mut Written, buf: &mut Buf) {
        if let Written::Head(from) = *written {
            let head = if close { &self.close } else { &self.keep };
            let from = from + buf.extend(head.get(from..).unwrap_or_default());
            *written = match (from == head.len(), self.has_content()) {
                (false, _) => Written::Head(from),
                (true, true) => Written::Body(0),
                (true, false) => Written::All,
            };
        }
        while let Written::Body(at) = *written {
            if buf.len() >= RECEIVE {
                return;
            }
            let most = RECEIVE - buf.len();
            let n = match self.chunk {
                None => self.body.append(at, most, buf),
                Some(size) => match self.write_chunk(size as usize, at, buf) {
                    Some(n) => n,
                    None => return,
                },
            };
            let at = at + n as u64;
            *written = if at >= self.body.len() {
                Written::All
            } else {
                Written::Body(at)
            };
        }
    }

    fn has_content(&self) -> bool {
        self.chunk.is_some() || self.body.len() > 0
    }

    /// One chunk, and the last one behind it at the end. `None` if there is no room for a whole one.
    fn write_chunk(&self, size: usize, at: u64, buf: &mut Buf) -> Option<usize> {
        let left = self.body.len().saturating_sub(at);
        let n = usize::try_from(left).unwrap_or(size).min(size);
        if buf.room() < n + CHUNK_FRAMING {
            return None;
        }
        if n > 0 {
            buf.extend(encode_size_line(n as u64, &mut [0; 18]));
            self.body.append(at, n, buf);
            buf.extend(CRLF);
        }
        if at + n as u64 >= self.body.len() {
            buf.extend(LAST_CHUNK);
        }
        Some(n)
    }
}

/// Chooses among requests by weight: the index.
#[must_use]
pub fn choose(requests: &[Prepared], random: &mut fastrand::Rng) -> usize {
    if requests.len() < 2 {
        return 0;
    }
    let total: u64 = requests.iter().map(|r| u64::from(r.weight)).sum();
    let mut at = random.u64(0..total.max(1));
    for (i, request) in requests.iter().enumerate() {
        let weight = u64::from(request.weight);
        if at < weight {
            return i;
        }
        at -= weight;
    }
    0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use toron_reactor::BufferPool;

    fn render(template: &Template, close: bool) -> Vec<u8> {
        let url = Url::parse("http://a:1/x?y").unwrap();
        let prepared = template.prepare(&url);
        let pool = BufferPool::new(1);
        let (mut written, mut wire) = (Written::Head(0), Vec::new());
        while written != Written::All {
            let mut buf = pool.take().unwrap();
            let before = written;
            prepared.write(close, &mut written, &mut buf);
            assert!(written != before && !buf.is_empty());
            wire.extend_from_slice(&buf);
        }
        wire
    }

    fn text(template: &Template, close: bool) -> String {
        String::from_utf8(render(template, close)).unwrap()
    }

    #[test]
    fn a_plain_request() {
        let agent = concat!(
            "User-Agent: toron-bench/",
            env!("CARGO_PKG_VERSION"),
            "\r\n"
        );
        let get = Template::default();
        let expected = format!("GET /x?y HTTP/1.1\r\nHost: a:1\r\n{agent}\r\n");
        assert_eq!(text(&get, false), expected);
        let close = format!("GET /x?y HTTP/1.1\r\nHost: a:1\r\n{agent}Connection: close\r\n\r\n");
        assert_eq!(text(&get, true), close);
        let own = Template {
            headers: vec![
                ("host".into(), "b".into()),
                ("User-Agent".into(), "z".into()),
            ],
            path: Some("/q".into()),
            ..get
        };
        let expected = "GET /q HTTP/1.1\r\nhost: b\r\nUser-Agent: z\r\n\r\n";
        assert_eq!(text(&own, false), expected);
    }

    #[test]
    fn bodies_of_every_framing() {
        let mut post = Template {
            method: "POST".into(),
            headers: vec![("User-Agent".into(), "z".into())],
            body: Body::Bytes(b"hello".to_vec()),
            ..Template::default()
        };
        assert!(text(&post, false).ends_with("Content-Length: 5\r\n\r\nhello"));
        post.chunk = Some(3);
        let chunks = "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
        assert!(text(&post, false).ends_with(chunks));
        post.body = Body::None;
        assert!(text(&post, false).ends_with("chunked\r\n\r\n0\r\n\r\n"));
        post.body = Body::Bytes(Vec::new());
        post.chunk = None;
        assert!(text(&post, false).ends_with("Content-Length: 0\r\n\r\n"));
        let head = text(&post, false).len() + 5;
        post.body = Body::Filling(300_000);
        assert_eq!(render(&post, false).len(), head + 300_000);
        post.chunk = Some(LONGEST_CHUNK);
        assert!(render(&post, false).len() > 300_000);
    }

    #[test]
    fn weights_are_kept() {
        let url = Url::parse("http://a/").unwrap();
        let of = |weight| Template {
            weight,
            ..Template::default()
        };
        let requests: Vec<Prepared> = [1, 0, 3].map(|w| of(w).prepare(&url)).into();
        let mut random = fastrand::Rng::with_seed(1);
        let mut counts = [0_u32; 3];
        for _ in 0..40_000 {
            counts[choose(&requests, &mut random)] += 1;
        }
        // Standard deviation 87.
        assert!(
            counts[0].abs_diff(10_000) < 500 && counts[1] == 0,
            "{counts:?}"
        );
    }
}
