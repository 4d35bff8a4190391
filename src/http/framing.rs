//! How long a body is (RFC 9112 section 6.3): the one place that decides, for
//! requests and for responses. Where RFC 9112 leaves a choice between repairing
//! and refusing, this refuses: every repair is a way to make two parties see
//! two different messages.

use super::reason::Reason;
use super::syntax::{decimal, is_token, trim_ows, Version};

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// Neither length nor coding: no body.
    None,
    /// Exactly so many bytes; 0 when the client said `Content-Length: 0`.
    Length(u64),
    /// The chunked coding.
    Chunked,
}

impl RequestBody {
    /// Whether no body byte follows the head.
    pub fn is_empty(self) -> bool {
        matches!(self, RequestBody::None | RequestBody::Length(0))
    }
}

/// The body of a response, as it comes from an upstream or goes to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// No body follows, whatever the fields say.
    None,
    /// Exactly so many bytes.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// Everything until the connection closes.
    UntilClose,
}

/// Collects the framing fields of one head.
#[derive(Clone, Copy, Debug, Default)]
pub struct FramingFields {
    length: Option<u64>,
    coded: bool,
    chunked: bool,
    other: bool,
    fault: Option<Reason>,
}

impl FramingFields {
    /// Takes the value of one `Content-Length` field. Equal copies merge.
    pub fn content_length(&mut self, value: &[u8]) {
        match (decimal(value), self.length) {
            (None, _) => self.fail(Reason::BadContentLength),
            (Some(n), Some(before)) if n != before => self.fail(Reason::ConflictingLengths),
            (Some(n), _) => self.length = Some(n),
        }
    }

    /// Takes what stands behind the colon of one `Transfer-Encoding` field,
    /// white space included: a tab there is a known way to hide the field from
    /// one of two parsers.
    pub fn transfer_encoding(&mut self, untrimmed: &[u8]) {
        self.coded = true;
        if untrimmed
            .iter()
            .any(|&b| b != b' ' && !b.is_ascii_graphic())
        {
            self.fail(Reason::ObfuscatedCoding);
        }
        for element in untrimmed.split(|&b| b == b',') {
            self.coding(trim_ows(element));
        }
    }

    fn coding(&mut self, element: &[u8]) {
        let name = element
            .split(|&b| b == b';')
            .next()
            .map_or(element, trim_ows);
        if self.chunked {
            self.fail(Reason::ChunkedNotLast);
        } else if element.eq_ignore_ascii_case(b"chunked") {
            self.chunked = true;
        } else if !is_token(name) || hides_chunked(element) {
            self.fail(Reason::ObfuscatedCoding);
        } else {
            self.other = true;
        }
    }

    fn fail(&mut self, reason: Reason) {
        self.fault.get_or_insert(reason);
    }

    /// The declared length, if any (also of a message that has no body, such as
    /// the answer to HEAD).
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    fn consistent(&self, version: Version) -> Result<(), Reason> {
        if let Some(reason) = self.fault {
            return Err(reason);
        }
        if self.coded && self.length.is_some() {
            return Err(Reason::LengthAndCoding);
        }
        if self.coded && version == Version::Http10 {
            return Err(Reason::CodingOnHttp10);
        }
        if self.other {
            return Err(Reason::UnsupportedCoding);
        }
        Ok(())
    }

    /// The body of a request (I4).
    pub fn request_body(&self, version: Version) -> Result<RequestBody, Reason> {
        self.consistent(version)?;
        Ok(match (self.chunked, self.length) {
            (true, _) => RequestBody::Chunked,
            (false, Some(n)) => RequestBody::Length(n),
            (false, None) => RequestBody::None,
        })
    }

    /// The body of a response with `status` to a request that was HEAD or not
    /// (I27, R13).
    pub fn response_body(
        &self,
        version: Version,
        status: u16,
        to_head: bool,
    ) -> Result<ResponseBody, Reason> {
        self.consistent(version)?;
        if to_head || never_has_body(status) {
            return Ok(ResponseBody::None);
        }
        Ok(match (self.chunked, self.length) {
            (true, _) => ResponseBody::Chunked,
            (false, Some(n)) => ResponseBody::Length(n),
            (false, None) => ResponseBody::UntilClose,
        })
    }
}

fn hides_chunked(element: &[u8]) -> bool {
    element
        .windows(7)
        .any(|w| w.eq_ignore_ascii_case(b"chunked"))
}

/// Statuses whose responses end with the head: 1xx, 204, 304.
pub fn never_has_body(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

/// How a body that came as `from` goes on to a client of version `client`
/// (R13): what has no known length is chunked for HTTP/1.1 and ended by the
/// close for HTTP/1.0.
pub fn towards_client(from: ResponseBody, client: Version) -> ResponseBody {
    match (from, client) {
        (ResponseBody::None, _) => ResponseBody::None,
        (ResponseBody::Length(n), _) => ResponseBody::Length(n),
        (ResponseBody::Chunked | ResponseBody::UntilClose, Version::Http11) => {
            ResponseBody::Chunked
        }
        (ResponseBody::Chunked | ResponseBody::UntilClose, Version::Http10) => {
            ResponseBody::UntilClose
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lengths: &[&str], codings: &[&str]) -> FramingFields {
        let mut f = FramingFields::default();
        for v in lengths {
            f.content_length(v.as_bytes());
        }
        for v in codings {
            f.transfer_encoding(v.as_bytes());
        }
        f
    }

    #[test]
    fn i4_lengths() {
        let ask = |l: &[&str]| fields(l, &[]).request_body(Version::Http11);
        assert_eq!(ask(&[]), Ok(RequestBody::None));
        assert_eq!(ask(&["0"]), Ok(RequestBody::Length(0)));
        assert_eq!(ask(&["005"]), Ok(RequestBody::Length(5)));
        assert_eq!(ask(&["5", "5"]), Ok(RequestBody::Length(5)));
        assert_eq!(
            ask(&["18446744073709551615"]),
            Ok(RequestBody::Length(u64::MAX))
        );
        for bad in [
            "",
            "+5",
            "-1",
            "0x5",
            "5x",
            "5, 5",
            "5,",
            "18446744073709551616",
            "1 2",
            "٣",
        ] {
            assert_eq!(ask(&[bad]), Err(Reason::BadContentLength), "{bad}");
        }
        assert_eq!(ask(&["5", "10"]), Err(Reason::ConflictingLengths));
        assert_eq!(ask(&["5", "x"]), Err(Reason::BadContentLength));
    }

    #[test]
    fn i4_codings() {
        let ask = |c: &[&str]| fields(&[], c).request_body(Version::Http11);
        assert_eq!(ask(&[" chunked"]), Ok(RequestBody::Chunked));
        assert_eq!(ask(&["CHUNKED "]), Ok(RequestBody::Chunked));
        for bad in [
            "\tchunked",
            " chunked\t",
            " xchunked",
            " chunkedx",
            "",
            " ",
            ", chunked",
            "chunked,",
            " \"chunked\"",
            " chunked;q=1",
            " chun ked",
            " \x0bchunked",
            " xchunked, chunked",
            " gzip;a=chunked",
        ] {
            assert!(ask(&[bad]).is_err(), "{bad:?}");
        }
        assert_eq!(ask(&["chunked, chunked"]), Err(Reason::ChunkedNotLast));
        assert_eq!(ask(&["chunked", "chunked"]), Err(Reason::ChunkedNotLast));
        assert_eq!(ask(&["chunked, gzip"]), Err(Reason::ChunkedNotLast));
        assert_eq!(ask(&["chunked", "identity"]), Err(Reason::ChunkedNotLast));
        assert_eq!(ask(&["gzip, chunked"]), Err(Reason::UnsupportedCoding));
        assert_eq!(ask(&["gzip", "chunked"]), Err(Reason::UnsupportedCoding));
        assert_eq!(ask(&[" gzip"]), Err(Reason::UnsupportedCoding));
    }

    #[test]
    fn i4_length_with_coding_and_http10() {
        let both = fields(&["0"], &["chunked"]);
        assert_eq!(
            both.request_body(Version::Http11),
            Err(Reason::LengthAndCoding)
        );
        let old = fields(&[], &["chunked"]);
        assert_eq!(
            old.request_body(Version::Http10),
            Err(Reason::CodingOnHttp10)
        );
        let unsupported = fields(&["5"], &["gzip"]);
        assert_eq!(
            unsupported.request_body(Version::Http11),
            Err(Reason::LengthAndCoding)
        );
    }

    #[test]
    fn i27_r13_responses() {
        let plain = |f: FramingFields, s, h| f.response_body(Version::Http11, s, h);
        assert_eq!(
            plain(fields(&["9757"], &[]), 200, true),
            Ok(ResponseBody::None)
        );
        for status in [100, 103, 204, 304] {
            assert_eq!(
                plain(fields(&["5"], &[]), status, false),
                Ok(ResponseBody::None)
            );
        }
        assert_eq!(
            plain(fields(&["5"], &[]), 205, false),
            Ok(ResponseBody::Length(5))
        );
        assert_eq!(
            plain(fields(&[], &[]), 200, false),
            Ok(ResponseBody::UntilClose)
        );
        assert_eq!(
            plain(fields(&[], &["chunked"]), 200, false),
            Ok(ResponseBody::Chunked)
        );
        assert!(plain(fields(&["5"], &["chunked"]), 200, false).is_err());
        assert!(plain(fields(&["foo"], &[]), 304, false).is_err());
    }

    #[test]
    fn r13_towards_client() {
        use ResponseBody::{Chunked, Length, None, UntilClose};
        for (from, to11, to10) in [
            (None, None, None),
            (Length(3), Length(3), Length(3)),
            (Chunked, Chunked, UntilClose),
            (UntilClose, Chunked, UntilClose),
        ] {
            assert_eq!(towards_client(from, Version::Http11), to11);
            assert_eq!(towards_client(from, Version::Http10), to10);
        }
    }
}
