//! The lines that written heads are made of.

use std::ops::Range;

use super::syntax::{decimal, push_decimal, Version};

/// Appends one field line.
pub(crate) fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Field lines of a received head on their way into a new one. Lines that stand one behind the other
/// there, and look as toron would write them, go in one piece.
pub(super) struct Lines<'b> {
    head: &'b [u8],
    run: Range<usize>,
}

impl<'b> Lines<'b> {
    /// Of `head`, from which the fields were parsed; its first `taken` bytes are taken already.
    pub(super) fn of(head: &'b [u8], taken: usize) -> Self {
        Lines {
            head,
            run: 0..taken,
        }
    }

    /// Takes a field whose value is the number `n`, which is written without leading zeros.
    #[inline]
    pub(super) fn push_length(&mut self, out: &mut Vec<u8>, field: &httparse::Header<'b>, n: u64) {
        let is_exact = !matches!(field.value, [b'0', _, ..]) && decimal(field.value) == Some(n);
        if is_exact {
            return self.push(out, field);
        }
        self.flush(out);
        push_length(out, field.name.as_bytes(), n);
    }

    /// Takes a field. Its line is not in `out` before [`Lines::flush`].
    #[inline]
    pub(super) fn push(&mut self, out: &mut Vec<u8>, field: &httparse::Header<'b>) {
        match self.line_of(field) {
            Some(line) if line.start == self.run.end => self.run.end = line.end,
            Some(line) => {
                self.flush(out);
                self.run = line;
            }
            None => {
                self.flush(out);
                push_field(out, field.name.as_bytes(), field.value);
            }
        }
    }

    /// Appends what was taken.
    #[inline]
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head.get(self.run.clone()).unwrap_or_default());
        self.run = 0..0;
    }

    /// Where the line of a field stands, if it is written with one space and no more.
    #[inline]
    fn line_of(&self, field: &httparse::Header<'b>) -> Option<Range<usize>> {
        let place = |at: *const u8| (at as usize).wrapping_sub(self.head.as_ptr() as usize);
        let start = place(field.name.as_ptr());
        let colon = start.wrapping_add(field.name.len());
        let value = place(field.value.as_ptr());
        let end = value.wrapping_add(field.value.len());
        let is_exact = value == colon.wrapping_add(2)
            && self.head.get(colon..value) == Some(b": ")
            && self.head.get(end..end.wrapping_add(2)) == Some(b"\r\n");
        is_exact.then(|| start..end.wrapping_add(2))
    }
}

/// Appends a field whose value is a number.
pub(crate) fn push_length(out: &mut Vec<u8>, name: &[u8], length: u64) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    push_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

/// Appends a status line; `reason` empty means the standard phrase.
pub(crate) fn push_status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(if reason.is_empty() {
        reason_phrase(status).as_bytes()
    } else {
        reason
    });
    out.extend_from_slice(b"\r\n");
}

/// Appends the `Connection` field that tells a client of this version whether
/// its connection goes on; nothing where that is the default.
pub(crate) fn push_persistence(out: &mut Vec<u8>, client: Version, keep_alive: bool) {
    match (client, keep_alive) {
        (_, false) => out.extend_from_slice(b"Connection: close\r\n"),
        (Version::Http10, true) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (Version::Http11, true) => {}
    }
}

/// The standard phrase of a status; empty for one that is not registered.
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Payload Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        511 => "Network Authentication Required",
        _ => "",
    }
}
