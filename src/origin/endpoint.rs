//! Which endpoint a path names, and with which parameters.

use std::time::Duration;

use crate::http::syntax::decimal;

/// The longest delay or interval: a day. What is longer is taken for a mistake.
const LONGEST: u64 = 24 * 60 * 60 * 1000;
/// The longest chunk; the frame of one fits into a buffer.
const LONGEST_CHUNK: u64 = 32 * 1024;
/// Length of the chunks of `/chunked/N` where the query says nothing.
const CHUNK: u64 = 16 * 1024;
/// Announced length of `/stall`.
const STALL: u64 = 1024;
/// Milliseconds between events of `/sse`.
const EVENT_INTERVAL: u64 = 500;

/// The page at `/`.
pub(super) const LISTING: &str = "\
toron upstream: a test origin

/                 this page
/echo             the request body comes back as it arrives, same length or chunked;
                  without a body, the request head as it was received
/bytes/N          N bytes of a pattern that tells every position, with Content-Length
/chunked/N        the same in chunks; ?chunk=SIZE (16384, at most 32768)
/discard          reads the body and tells its length and CRC-32
/delay/MS         answers after MS milliseconds
/stall, /stall/N  announces N bytes (1024), sends half of them, and then nothing
/drip/N/MS        N bytes, one every MS milliseconds
/status/N         answers with status N (200 to 599); N from 102 to 199 comes as an
                  interim response before a 200
/sse              events without end; ?count=N&interval=MS (500)
/ws               WebSocket: echoes frames
/close-early      413 before the body is read, then the connection is closed;
                  ?abrupt closes without reading what the client still sends
";

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Endpoint {
    /// `/`
    Listing,
    /// `/echo`
    Echo,
    /// `/bytes/N`
    Bytes(u64),
    /// `/chunked/N?chunk=SIZE`
    Chunked {
        /// Length of the body.
        bytes: u64,
        /// Length of each chunk but the last; 1 to [`LONGEST_CHUNK`].
        chunk: u32,
    },
    /// `/discard`
    Discard,
    /// `/delay/MS`
    Delay(Duration),
    /// `/stall`, `/stall/N`
    Stall(u64),
    /// `/drip/N/MS`
    Drip {
        /// Length of the body.
        bytes: u64,
        /// Time between two bytes.
        every: Duration,
    },
    /// `/status/N`
    Status(u16),
    /// `/sse?count=N&interval=MS`
    Events {
        /// How many; `None` for ever.
        count: Option<u64>,
        /// Time between two.
        every: Duration,
    },
    /// `/ws`
    WebSocket,
    /// `/close-early`
    CloseEarly {
        /// Close at once, so that the kernel answers what still comes with RST.
        abrupt: bool,
    },
    /// No such endpoint.
    Unknown,
    /// An endpoint with a parameter that makes no sense.
    BadParameter,
}

/// The endpoint of a path and query as sent. Escapes are not undone: no endpoint needs them.
pub(super) fn find(path: &[u8], query: Option<&[u8]>) -> Endpoint {
    let mut segments = path.split(|&b| b == b'/').skip(1);
    let name = segments.next().unwrap_or_default();
    let (first, second, rest) = (segments.next(), segments.next(), segments.next());
    if rest.is_some() {
        return Endpoint::Unknown;
    }
    let query = Query(query.unwrap_or_default());
    let found = match (name, first, second) {
        (b"", None, None) => Some(Endpoint::Listing),
        (b"echo", None, None) => Some(Endpoint::Echo),
        (b"bytes", Some(n), None) => decimal(n).map(Endpoint::Bytes),
        (b"chunked", Some(n), None) => chunked(n, query),
        (b"discard", None, None) => Some(Endpoint::Discard),
        (b"delay", Some(ms), None) => millis(ms).map(Endpoint::Delay),
        (b"stall", None, None) => Some(Endpoint::Stall(STALL)),
        (b"stall", Some(n), None) => decimal(n).map(Endpoint::Stall),
        (b"drip", Some(n), Some(ms)) => decimal(n)
            .zip(millis(ms))
            .map(|(bytes, every)| Endpoint::Drip { bytes, every }),
        (b"status", Some(n), None) => status(n),
        (b"sse", None, None) => events(query),
        (b"ws", None, None) => Some(Endpoint::WebSocket),
        (b"close-early", None, None) => Some(Endpoint::CloseEarly {
            abrupt: query.value(b"abrupt").is_some(),
        }),
        _ => Some(Endpoint::Unknown),
    };
    found.unwrap_or(Endpoint::BadParameter)
}

fn millis(text: &[u8]) -> Option<Duration> {
    decimal(text)
        .filter(|ms| *ms <= LONGEST)
        .map(Duration::from_millis)
}

fn chunked(n: &[u8], query: Query<'_>) -> Option<Endpoint> {
    let chunk = query.number(b"chunk", CHUNK)?;
    if !(1..=LONGEST_CHUNK).contains(&chunk) {
        return None;
    }
    Some(Endpoint::Chunked {
        bytes: decimal(n)?,
        chunk: u32::try_from(chunk).ok()?,
    })
}

/// 101 would promise another protocol, and 100 is for the server to decide.
fn status(n: &[u8]) -> Option<Endpoint> {
    let status = u16::try_from(decimal(n)?).ok()?;
    (102..=599)
        .contains(&status)
        .then_some(Endpoint::Status(status))
}

fn events(query: Query<'_>) -> Option<Endpoint> {
    let every = query.number(b"interval", EVENT_INTERVAL)?;
    if every > LONGEST {
        return None;
    }
    let count = match query.value(b"count") {
        Some(n) => Some(decimal(n)?),
        None => None,
    };
    Some(Endpoint::Events {
        count,
        every: Duration::from_millis(every),
    })
}

#[derive(Clone, Copy)]
struct Query<'q>(&'q [u8]);

impl<'q> Query<'q> {
    /// The value of the first parameter of this name; empty if there is no `=`.
    fn value(self, name: &[u8]) -> Option<&'q [u8]> {
        self.0.split(|&b| b == b'&').find_map(|pair| {
            let mut halves = pair.splitn(2, |&b| b == b'=');
            (halves.next() == Some(name)).then(|| halves.next().unwrap_or_default())
        })
    }

    /// The number of this name, or `absent`; `None` if it is no number.
    fn number(self, name: &[u8], absent: u64) -> Option<u64> {
        self.value(name).map_or(Some(absent), decimal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(target: &str) -> Endpoint {
        match target.split_once('?') {
            Some((path, query)) => find(path.as_bytes(), Some(query.as_bytes())),
            None => find(target.as_bytes(), None),
        }
    }

    #[test]
    fn endpoints_are_found_with_their_parameters() {
        let ms = Duration::from_millis;
        for (target, endpoint) in [
            ("/", Endpoint::Listing),
            ("/echo", Endpoint::Echo),
            ("/bytes/18446744073709551615", Endpoint::Bytes(u64::MAX)),
            (
                "/chunked/9",
                Endpoint::Chunked {
                    bytes: 9,
                    chunk: 16384,
                },
            ),
            (
                "/chunked/9?x&chunk=7",
                Endpoint::Chunked { bytes: 9, chunk: 7 },
            ),
            ("/delay/20", Endpoint::Delay(ms(20))),
            ("/stall", Endpoint::Stall(1024)),
            ("/stall/3", Endpoint::Stall(3)),
            (
                "/drip/3/10",
                Endpoint::Drip {
                    bytes: 3,
                    every: ms(10),
                },
            ),
            ("/status/204", Endpoint::Status(204)),
            ("/status/103", Endpoint::Status(103)),
            (
                "/sse",
                Endpoint::Events {
                    count: None,
                    every: ms(500),
                },
            ),
            (
                "/sse?interval=1&count=2",
                Endpoint::Events {
                    count: Some(2),
                    every: ms(1),
                },
            ),
            ("/ws", Endpoint::WebSocket),
            ("/close-early", Endpoint::CloseEarly { abrupt: false }),
            ("/close-early?abrupt", Endpoint::CloseEarly { abrupt: true }),
        ] {
            assert_eq!(at(target), endpoint, "{target}");
        }
    }

    #[test]
    fn what_is_not_there_and_what_makes_no_sense() {
        for target in [
            "/x",
            "/echo/",
            "/bytes",
            "/bytes/1/2",
            "/drip/1",
            "/ws/1/2/3",
            "*",
            "",
        ] {
            let expected = if target.is_empty() || target == "*" {
                Endpoint::Listing
            } else {
                Endpoint::Unknown
            };
            assert_eq!(at(target), expected, "{target}");
        }
        for target in [
            "/bytes/",
            "/bytes/-1",
            "/bytes/18446744073709551616",
            "/delay/x",
            "/delay/86400001",
            "/status/101",
            "/status/99",
            "/status/600",
            "/chunked/1?chunk=0",
            "/chunked/1?chunk=32769",
            "/sse?count=x",
            "/sse?interval=86400001",
            "/drip/1/x",
        ] {
            assert_eq!(at(target), Endpoint::BadParameter, "{target}");
        }
    }
}
