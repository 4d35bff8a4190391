//! A small strict reader of HTTP/1.1 messages, independent of toron's own: it takes only the
//! canonical form that toron promises to send.

/// A head, line ends removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The first line.
    pub start: String,
    fields: Vec<(String, String)>,
}

impl Head {
    /// The only field of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self
            .fields
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let first = found.next();
        assert!(found.next().is_none(), "{name} twice in {self:?}");
        first.map(|(_, value)| value.as_str())
    }

    /// Whether `Connection` holds this option.
    pub fn connection(&self, option: &str) -> bool {
        self.field("connection").is_some_and(|value| {
            value
                .split(',')
                .any(|o| o.trim().eq_ignore_ascii_case(option))
        })
    }

    /// The framing that the fields declare.
    pub fn body(&self) -> Option<Body> {
        match (
            self.field("transfer-encoding"),
            self.field("content-length"),
        ) {
            (Some(coding), None) => {
                assert_eq!(coding, "chunked", "{self:?}");
                Some(Body::Chunked(Chunk::Size))
            }
            (None, Some(n)) => match n.parse() {
                Ok(n) => Some(Body::Length(n)),
                Err(_) => panic!("bad length in {self:?}"),
            },
            (None, None) => None,
            (Some(_), Some(_)) => panic!("length and coding in {self:?}"),
        }
    }

    /// Everything but fields whose name is in `without`.
    pub fn shown_without(&self, without: &[&str]) -> String {
        let mut text = self.start.clone();
        for (name, value) in &self.fields {
            if !without.iter().any(|w| name.eq_ignore_ascii_case(w)) {
                text.push_str(&format!("|{name}: {value}"));
            }
        }
        text
    }
}

/// Received bytes that are not read yet.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    read: usize,
}

impl Inbox {
    /// Adds what arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.read = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// What is not read.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// Takes up to `most` bytes.
    pub fn take(&mut self, most: usize) -> &[u8] {
        let from = self.read;
        self.read = self.bytes.len().min(from.saturating_add(most));
        &self.bytes[from..self.read]
    }

    fn line(&mut self) -> Option<String> {
        let end = self.rest().iter().position(|b| *b == b'\n')?;
        let line = self.take(end + 1);
        assert!(line.ends_with(b"\r\n"), "bare LF: {line:?}");
        let text = &line[..line.len() - 2];
        assert!(!text.contains(&b'\r'), "bare CR: {line:?}");
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// A head, once it is whole.
    pub fn head(&mut self) -> Option<Head> {
        let end = self.rest().windows(4).position(|w| w == b"\r\n\r\n")?;
        let stop = self.read + end + 4;
        let start = self.line()?;
        let mut fields = Vec::new();
        while self.read < stop - 2 {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else {
                panic!("no field: {line:?} behind {start:?}")
            };
            fields.push((name.to_owned(), value.to_owned()));
        }
        self.take(2);
        Some(Head { start, fields })
    }
}

/// Where in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    Size,
    Data(usize),
    DataEnd,
    Trailers,
}

/// A body that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    Length(usize),
    Chunked(Chunk),
    UntilClose,
}

impl Body {
    /// Reads what there is; `true` when the body is complete. Trailer lines go to `trailers`.
    pub fn read(
        &mut self,
        inbox: &mut Inbox,
        trailers: &mut Vec<String>,
        mut sink: impl FnMut(&[u8]),
    ) -> bool {
        loop {
            match self {
                Body::UntilClose => {
                    sink(inbox.take(usize::MAX));
                    return false;
                }
                Body::Length(left) => {
                    let part = inbox.take(*left);
                    *left -= part.len();
                    sink(part);
                    return *left == 0;
                }
                Body::Chunked(chunk) => match step(chunk, inbox, trailers, &mut sink) {
                    Some(true) => return true,
                    Some(false) => {}
                    None => return false,
                },
            }
        }
    }
}

/// `None`: more bytes are needed.
fn step(
    chunk: &mut Chunk,
    inbox: &mut Inbox,
    trailers: &mut Vec<String>,
    sink: &mut impl FnMut(&[u8]),
) -> Option<bool> {
    match chunk {
        Chunk::Size => {
            let line = inbox.line()?;
            let digits = !line.is_empty() && line.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(digits, "not a canonical chunk size: {line:?}");
            let size = usize::from_str_radix(&line, 16).unwrap();
            *chunk = if size == 0 {
                Chunk::Trailers
            } else {
                Chunk::Data(size)
            };
        }
        Chunk::Data(left) => {
            let part = inbox.take(*left);
            if part.is_empty() {
                return None;
            }
            *left -= part.len();
            sink(part);
            if *left == 0 {
                *chunk = Chunk::DataEnd;
            }
        }
        Chunk::DataEnd => {
            if inbox.rest().len() < 2 {
                return None;
            }
            assert_eq!(inbox.take(2), b"\r\n", "a chunk is longer than it says");
            *chunk = Chunk::Size;
        }
        Chunk::Trailers => {
            let line = inbox.line()?;
            if line.is_empty() {
                return Some(true);
            }
            trailers.push(line);
        }
    }
    Some(false)
}
