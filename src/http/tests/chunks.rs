use super::*;
use chunk::{Decoder, Event};

/// What a decoder makes of `input` cut at `cut` bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded {
    pub data: Vec<u8>,
    pub trailers: Vec<u8>,
    pub end: Option<Result<(), Reason>>,
    pub consumed: usize,
}

pub fn decode(input: &[u8], mut cut: impl FnMut() -> usize) -> Decoded {
    let mut decoder = Decoder::new();
    let mut seen = Decoded {
        data: vec![],
        trailers: vec![],
        end: None,
        consumed: 0,
    };
    let mut received = 0;
    loop {
        let part = &input[seen.consumed..received];
        let step = decoder.feed(part, &mut seen.trailers);
        assert!(step.consumed <= part.len());
        seen.consumed += step.consumed;
        assert!(seen.trailers.len() <= chunk::MAX_TRAILERS + 1);
        match step.event {
            Event::Data { start, end } => {
                assert!(start < end);
                seen.data.extend_from_slice(&part[start..end]);
                assert_eq!(decoder.total(), seen.data.len() as u64);
            }
            Event::NeedMore if received == input.len() => return seen,
            Event::NeedMore => {
                assert_eq!(seen.consumed, received);
                received = (received + cut().max(1)).min(input.len());
            }
            Event::Done => {
                assert!(decoder.is_done());
                seen.end = Some(Ok(()));
                return seen;
            }
            Event::Fault(fault) => {
                seen.end = Some(Err(fault));
                return seen;
            }
        }
    }
}

fn whole(input: &str) -> Decoded {
    decode(input.as_bytes(), || input.len())
}

#[test]
fn chunk_grammar_accepts() {
    for (input, data, trailers, rest) in [
        ("5\r\nhello\r\n0\r\n\r\n", "hello", "", ""),
        (
            "3;x=y\r\nhel\r\n002\r\nlo\r\n0\r\n\r\nGET",
            "hello",
            "",
            "GET",
        ),
        ("5;name=value\r\nhello\r\n0;z\r\n\r\n", "hello", "", ""),
        ("5;a=\"b\tc\"\r\nhello\r\n0\r\n\r\n", "hello", "", ""),
        (
            "A\r\n0123456789\r\na\r\n0123456789\r\n00\r\n\r\n",
            "01234567890123456789",
            "",
            "",
        ),
        ("0\r\n\r\n\r\n", "", "", "\r\n"),
        (
            "0\r\nX-Checksum: abc\r\nY:\r\n\r\nz",
            "",
            "X-Checksum: abc\r\nY:\r\n",
            "z",
        ),
    ] {
        let seen = whole(input);
        assert_eq!(seen.end, Some(Ok(())), "{input:?}");
        assert_eq!(seen.data, data.as_bytes(), "{input:?}");
        assert_eq!(seen.trailers, trailers.as_bytes(), "{input:?}");
        assert_eq!(&input[seen.consumed..], rest, "{input:?}");
    }
}

#[test]
fn chunk_grammar_refuses() {
    for (input, reason) in [
        ("1zzqq\r\nZ\r\n0\r\n\r\n", "chunk_size"),
        ("\r\n\r\n", "chunk_size"),
        (";a\r\n", "chunk_size"),
        ("+5\r\n", "chunk_size"),
        ("-5\r\n", "chunk_size"),
        ("0x5\r\n", "chunk_size"),
        (" 5\r\n", "chunk_size"),
        ("5 \r\n", "chunk_size"),
        ("5 ;a\r\n", "chunk_size"),
        ("5\nhello", "chunk_size"),
        ("5\rhello", "chunk_bare_cr"),
        ("10000000000000000\r\n", "chunk_size_too_large"),
        ("000000000000000000000000000000000", "chunk_size_too_large"),
        ("5\r\nhello\r\n\r\n", "chunk_size"),
        ("5\r\nhello\r\n;a\r\n", "chunk_size"),
        ("5\r\nhello!!\r\n", "chunk_data_end"),
        ("5\r\nhello\n0\r\n\r\n", "chunk_data_end"),
        ("5\r\nhello\rX", "chunk_data_end"),
        ("0\r\nXXGET /evil HTTP/1.1\r\n", "bad_trailer"),
        ("5;a\nhello", "chunk_bare_lf"),
        ("5;a\0\r\n", "chunk_extension_byte"),
        ("5;a\rb", "chunk_bare_cr"),
        ("5\r\nhello\r\n0\r\n\n", "chunk_bare_lf"),
        ("0\r\n\rX", "chunk_bare_cr"),
        ("0\r\nA: b\nC", "chunk_bare_lf"),
        ("0\r\nA: b\r\n c\r\n", "bad_trailer"),
        ("0\r\n:a: b\r\n", "bad_trailer"),
        ("0\r\n: b\r\n", "bad_trailer"),
        ("0\r\nA : b\r\n", "bad_trailer"),
        ("0\r\nA\r\n", "bad_trailer"),
        ("0\r\nA: \0\r\n", "bad_trailer"),
    ] {
        let fault = whole(input).end.and_then(Result::err);
        assert_eq!(fault.map(Reason::code), Some(reason), "{input:?}");
    }
}

#[test]
fn limits_hold_for_each_chunk_alone() {
    let many = format!("{}0\r\n\r\n", "0001;abcdefgh\r\nx\r\n".repeat(100));
    let seen = whole(&many);
    assert_eq!((seen.end, seen.data.len()), (Some(Ok(())), 100));
}

#[test]
fn chunk_extensions_are_bounded() {
    let chunk = |n: usize| {
        format!(
            "1;{}\r\nx\r\n1;{}\r\ny\r\n0\r\n\r\n",
            "a".repeat(n - 1),
            "a"
        )
    };
    assert_eq!(whole(&chunk(256)).end, Some(Ok(())));
    let long = whole(&chunk(257)).end;
    assert_eq!(long, Some(Err(Reason::ChunkExtensionTooLong)));
}

#[test]
fn trailers_are_bounded_and_forbidden_names_refused() {
    let trailer = |n: usize| format!("0\r\nA: {}\r\n\r\n", "b".repeat(n - 5));
    let seen = whole(&trailer(4096));
    assert_eq!((seen.end, seen.trailers.len()), (Some(Ok(())), 4096));
    assert_eq!(
        whole(&trailer(4097)).end,
        Some(Err(Reason::TrailersTooLarge))
    );
    assert_eq!(
        whole(&trailer(9000)).end,
        Some(Err(Reason::TrailersTooLarge))
    );
    for name in [
        "Transfer-Encoding",
        "content-length",
        "CONNECTION",
        "Host",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Authorization",
        "Set-Cookie",
    ] {
        let seen = whole(&format!("0\r\n{name}: x\r\n\r\n"));
        assert_eq!(seen.end, Some(Err(Reason::ForbiddenTrailer)), "{name}");
    }
}

#[test]
fn trailers_passed_on_hold_nothing_that_a_head_would_not() {
    let all = b"X-Sum: 1\r\nX_y: 2\r\nX-Forwarded-For: 9\r\nProxy-Authorization: z\r\nE: f\r\n";
    let mut out = Vec::new();
    chunk::push_request_trailers(all, &mut out);
    assert_eq!(out, b"X-Sum: 1\r\nE: f\r\n");
    out.clear();
    chunk::push_response_trailers(b"X_y: 2\r\nProxy-Authenticate: z\r\n", &mut out);
    assert_eq!(out, b"X_y: 2\r\n");
}

#[test]
fn an_unfinished_body_is_not_done() {
    for input in [
        "",
        "5",
        "5\r\nhel",
        "5\r\nhello\r\n",
        "0\r\n",
        "0\r\n\r",
        "0\r\nA: b\r\n",
    ] {
        assert_eq!(whole(input).end, None, "{input:?}");
    }
}

#[test]
fn size_lines() {
    for (n, line) in [
        (1, "1\r\n"),
        (255, "ff\r\n"),
        (65536, "10000\r\n"),
        (u64::MAX, "ffffffffffffffff\r\n"),
    ] {
        assert_eq!(chunk::encode_size_line(n, &mut [0; 18]), line.as_bytes());
    }
}

/// Of every beginning of a body no more must come than what is left of it; and exactly that once the
/// size of its only chunk is known and it goes on in the shortest way.
#[test]
fn what_must_still_come_at_least_is_never_more_than_what_does() {
    for (body, size_line) in [
        (&b"0\r\n\r\n"[..], 0),
        (b"3\r\nabc\r\n0\r\n\r\n", 1),
        (b"10\r\n0123456789abcdef\r\n0\r\n\r\n", 2),
        (b"3;x=y\r\nabc\r\n00\r\nA: b\r\nC:\r\n\r\n", usize::MAX),
    ] {
        for at in 0..=body.len() {
            let (least, left) = (least_behind(&body[..at]), (body.len() - at) as u64);
            assert!(least <= left, "{at}: {least}");
            assert_eq!(least == 0, left == 0);
            if at >= size_line {
                assert_eq!(least, left, "{at}");
            }
        }
    }
}

fn least_behind(bytes: &[u8]) -> u64 {
    let (mut decoder, mut trailers, mut rest) = (Decoder::new(), Vec::new(), bytes);
    loop {
        let step = decoder.feed(rest, &mut trailers);
        rest = &rest[step.consumed..];
        match step.event {
            Event::Data { .. } => {}
            Event::NeedMore | Event::Done => return decoder.least_to_come(),
            Event::Fault(fault) => panic!("{fault:?}"),
        }
    }
}
