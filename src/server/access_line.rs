//! One line of the access log.
//!
//! What stands in it comes from clients in part: bytes that would end a field, a line or a string are
//! escaped, whatever the parser of heads lets through.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::describe::Description;
use super::timestamp::stamp;
use crate::http::client_address::{ip_text, IP_ROOM};
use crate::http::syntax::push_decimal;
use crate::http::Reason;
use crate::policy::settings::{LogFormat, Target};
use crate::proxy::window::Shortfall;

/// How long the phases of a request took; `None` for those that it did not reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// From the first byte of the head to its last.
    pub header: Option<Duration>,
    /// From the head to the first attempt to reach an upstream: what collecting the body took.
    pub queue: Option<Duration>,
    /// The last attempt to connect, until it stood; zero for an idle connection.
    pub connect: Option<Duration>,
    /// From the head to the upstream's response head.
    pub first_byte: Option<Duration>,
    /// From the first byte of the head to the end.
    pub total: Option<Duration>,
}

/// What is told of a request at its end.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// When it ended.
    pub at: SystemTime,
    /// Who sent it.
    pub client: IpAddr,
    /// What it asked for.
    pub asked: &'a Description,
    /// Name of the route that took it.
    pub route: Option<&'a str>,
    /// The target tried last.
    pub target: Option<&'a Target>,
    /// Status sent; 0 is none.
    pub status: u16,
    /// Body bytes received.
    pub bytes_in: u64,
    /// Bytes sent to the client.
    pub bytes_out: u64,
    /// How long it took.
    pub times: Times,
    /// Why it did not end well, if it did not.
    pub reason: Option<Reason>,
    /// What came in the window of the body that ended too soon; only then do its fields stand in the
    /// line.
    pub shortfall: Option<Shortfall>,
}

impl Line<'_> {
    /// Appends the line.
    pub fn write(&self, format: LogFormat, out: &mut Vec<u8>) {
        match format {
            LogFormat::Text => self.write_text(out),
            LogFormat::Json => self.write_json(out),
        }
        out.push(b'\n');
    }

    fn phases(&self) -> [(&'static str, Option<Duration>); 5] {
        [
            ("header_us", self.times.header),
            ("queue_us", self.times.queue),
            ("connect_us", self.times.connect),
            ("first_byte_us", self.times.first_byte),
            ("total_us", self.times.total),
        ]
    }

    fn window(&self) -> [(&'static str, Option<u64>); 2] {
        [
            ("window_bytes", self.shortfall.map(|short| short.moved)),
            ("window_needed", self.shortfall.map(|short| short.needed)),
        ]
    }

    fn write_text(&self, out: &mut Vec<u8>) {
        let asked = self.asked;
        out.extend_from_slice(&stamp(self.at));
        out.push(b' ');
        out.extend_from_slice(ip_text(self.client, &mut [0; IP_ROOM]));
        for part in [asked.method(), asked.host(), asked.path()] {
            out.push(b' ');
            push_word(out, part);
        }
        out.extend_from_slice(b" route=");
        push_string(out, self.route.unwrap_or("-").as_bytes());
        out.extend_from_slice(b" target=");
        match self.target {
            Some(target) => push_url(out, target),
            None => out.push(b'-'),
        }
        let status = (self.status > 0).then_some(u64::from(self.status));
        for (name, number) in [
            ("status", status),
            ("in", Some(self.bytes_in)),
            ("out", Some(self.bytes_out)),
        ] {
            push_named(out, name, number);
        }
        for (name, took) in self.phases() {
            push_named(out, name, took.map(micros));
        }
        let (by, reason) = match self.reason {
            Some(reason) => (reason.ended_by().code(), reason.code()),
            None => ("-", "-"),
        };
        for part in [" by=", by, " reason=", reason] {
            out.extend_from_slice(part.as_bytes());
        }
        for (name, bytes) in self.window().into_iter().filter(|(_, n)| n.is_some()) {
            push_named(out, name, bytes);
        }
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let asked = self.asked;
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(&stamp(self.at));
        out.extend_from_slice(b"\",\"client\":\"");
        out.extend_from_slice(ip_text(self.client, &mut [0; IP_ROOM]));
        out.push(b'"');
        let named = [
            (&b",\"method\":"[..], Some(asked.method())),
            (b",\"host\":", Some(asked.host())),
            (b",\"path\":", Some(asked.path())),
            (b",\"route\":", self.route.map(str::as_bytes)),
        ];
        for (key, value) in named {
            out.extend_from_slice(key);
            match value.filter(|value| !value.is_empty()) {
                Some(value) => push_string(out, value),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.extend_from_slice(b",\"target\":");
        match self.target {
            Some(target) => {
                out.push(b'"');
                push_url(out, target);
                out.push(b'"');
            }
            None => out.extend_from_slice(b"null"),
        }
        let status = (self.status > 0).then_some(u64::from(self.status));
        for (name, number) in [
            ("status", status),
            ("bytes_in", Some(self.bytes_in)),
            ("bytes_out", Some(self.bytes_out)),
        ] {
            push_member(out, name, number);
        }
        for (name, took) in self.phases() {
            push_member(out, name, took.map(micros));
        }
        match self.reason {
            Some(reason) => {
                let (by, reason) = (reason.ended_by().code(), reason.code());
                for part in [",\"ended_by\":\"", by, "\",\"reason\":\"", reason, "\""] {
                    out.extend_from_slice(part.as_bytes());
                }
            }
            None => out.extend_from_slice(b",\"ended_by\":null,\"reason\":null"),
        }
        for (name, bytes) in self.window().into_iter().filter(|(_, n)| n.is_some()) {
            push_member(out, name, bytes);
        }
        out.push(b'}');
    }
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// ` name=number`, or `-` where there is none.
fn push_named(out: &mut Vec<u8>, name: &str, number: Option<u64>) {
    out.push(b' ');
    out.extend_from_slice(name.as_bytes());
    out.push(b'=');
    match number {
        Some(number) => push_decimal(out, number),
        None => out.push(b'-'),
    }
}

/// A member of a JSON object behind others.
fn push_member(out: &mut Vec<u8>, name: &str, number: Option<u64>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    match number {
        Some(number) => push_decimal(out, number),
        None => out.extend_from_slice(b"null"),
    }
}

fn push_url(out: &mut Vec<u8>, target: &Target) {
    out.extend_from_slice(b"http://");
    push_escaped(out, target.authority.as_bytes(), b"\" \\");
    push_escaped(out, target.path.as_bytes(), b"\" \\");
}

/// A word of a line: what is empty is `-`.
fn push_word(out: &mut Vec<u8>, word: &[u8]) {
    match word {
        [] => out.push(b'-'),
        word => push_escaped(out, word, b"\" \\"),
    }
}

/// A string in quotes, as JSON has it.
fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    push_escaped(out, text, b"\"\\");
    out.push(b'"');
}

/// Whether a byte needs no look, whatever is special where it stands.
const ALWAYS_PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0x21;
    while b < 0x7f {
        table[b] = b as u8 != b'"' && b as u8 != b'\\';
        b += 1;
    }
    table
};

/// Escapes as JSON does: control bytes, and those of `special`. What is no UTF-8 is escaped byte by
/// byte.
fn push_escaped(out: &mut Vec<u8>, text: &[u8], special: &[u8]) {
    if text.iter().all(|&b| ALWAYS_PLAIN[usize::from(b)]) {
        return out.extend_from_slice(text);
    }
    let is_text = std::str::from_utf8(text).is_ok();
    let plain =
        |b: &u8| (0x20..0x7f).contains(b) && !special.contains(b) || (*b >= 0x80 && is_text);
    let mut rest = text;
    loop {
        let run = rest.iter().take_while(|b| plain(b)).count();
        let (front, back) = rest.split_at_checked(run).unwrap_or((rest, &[]));
        out.extend_from_slice(front);
        let [byte, tail @ ..] = back else {
            return;
        };
        // Writing to a Vec cannot fail.
        let _ = match byte {
            b'"' | b'\\' => write!(out, "\\{}", char::from(*byte)),
            byte => write!(out, "\\u{byte:04x}"),
        };
        rest = tail;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::http::{field_slots, request, HeadLimits};
    use crate::policy::settings::Endpoint;

    const AT: Duration = Duration::from_millis(1_700_000_000_123);

    fn asked(head: &str, path: &[u8]) -> Description {
        let mut slots = field_slots::<8>();
        let limits = HeadLimits { max_fields: 8 };
        let request = request::parse(head.as_bytes(), &limits, &mut slots).unwrap();
        let mut description = Description::default();
        description.take(&request, path);
        description
    }

    fn line<'a>(asked: &'a Description, target: Option<&'a Target>) -> Line<'a> {
        let millis = |n| Some(Duration::from_millis(n));
        Line {
            at: SystemTime::UNIX_EPOCH + AT,
            client: "192.0.2.1".parse().unwrap(),
            asked,
            route: Some("t.example/a {X-A=\"é\u{1}}"),
            target,
            status: 504,
            bytes_in: 1,
            bytes_out: 2,
            times: Times {
                header: millis(1),
                queue: millis(2),
                connect: None,
                first_byte: None,
                total: millis(5),
            },
            reason: Some(Reason::ConnectTimeout),
            shortfall: None,
        }
    }

    fn text(line: &Line<'_>, format: LogFormat) -> String {
        let mut out = Vec::new();
        line.write(format, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_forms_say_the_same() {
        let asked = asked("GET /a HTTP/1.1\r\nHost: t.example\r\n\r\n", b"/a");
        let target = Target {
            authority: "127.0.0.1:9".to_owned(),
            path: "/v1".to_owned(),
            weight: 1,
            endpoint: Arc::new(Endpoint::new(0, "127.0.0.1", 9)),
        };
        let line = line(&asked, Some(&target));
        assert_eq!(
            text(&line, LogFormat::Text),
            "2023-11-14T22:13:20.123Z 192.0.2.1 GET t.example /a \
             route=\"t.example/a {X-A=\\\"é\\u0001}\" target=http://127.0.0.1:9/v1 status=504 in=1 \
             out=2 header_us=1000 queue_us=2000 connect_us=- first_byte_us=- total_us=5000 \
             by=toron reason=connect_timeout\n"
        );
        let json: serde_json::Value = serde_json::from_str(&text(&line, LogFormat::Json)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "time": "2023-11-14T22:13:20.123Z", "client": "192.0.2.1", "method": "GET",
                "host": "t.example", "path": "/a", "route": "t.example/a {X-A=\"é\u{1}}",
                "target": "http://127.0.0.1:9/v1", "status": 504, "bytes_in": 1, "bytes_out": 2,
                "header_us": 1000, "queue_us": 2000, "connect_us": null, "first_byte_us": null,
                "total_us": 5000, "ended_by": "toron", "reason": "connect_timeout",
            })
        );
    }

    #[test]
    fn i18_a_window_that_had_too_few_bytes_is_told_in_both_forms() {
        let asked = asked("PUT /a HTTP/1.1\r\nHost: t.example\r\n\r\n", b"/a");
        let (moved, needed) = (1000, 1024);
        let line = Line {
            reason: Some(Reason::ReadTimeout),
            shortfall: Some(Shortfall { moved, needed }),
            ..line(&asked, None)
        };
        let told = text(&line, LogFormat::Text);
        let end = "by=toron reason=read_timeout window_bytes=1000 window_needed=1024\n";
        assert!(told.ends_with(end), "{told}");
        let json: serde_json::Value = serde_json::from_str(&text(&line, LogFormat::Json)).unwrap();
        assert_eq!(
            (&json["window_bytes"], &json["window_needed"]),
            (&1000.into(), &1024.into())
        );
    }

    #[test]
    fn nothing_of_a_client_can_end_a_field_or_a_line() {
        for b in 0..=255u8 {
            let path = [b'/', b, b'x'];
            let asked = asked("GET /a HTTP/1.0\r\n\r\n", &path);
            let line = Line {
                reason: None,
                status: 0,
                ..line(&asked, None)
            };
            let plain = text(&line, LogFormat::Text);
            assert_eq!(plain.matches('\n').count(), 1, "{b:#x}");
            let words: Vec<&str> = plain.split(' ').collect();
            assert_eq!((words[2], words[3]), ("GET", "-"), "{b:#x}");
            assert!(
                words[4].starts_with('/') && words[4].ends_with('x'),
                "{plain}"
            );
            assert!(words[5].starts_with("route="), "{plain}");
            assert!(!plain.bytes().any(|b| b < 0x20 && b != b'\n'), "{plain:?}");
            let json = text(&line, LogFormat::Json);
            assert_eq!(json.matches('\n').count(), 1, "{b:#x}");
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            let shown: String = ['/', char::from(b), 'x'].iter().collect();
            assert_eq!(json["path"], shown, "{b:#x}");
            assert!(json["status"].is_null() && json["reason"].is_null());
        }
    }
}
