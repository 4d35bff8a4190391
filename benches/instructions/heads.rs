//! Heads: found, parsed, written anew; and bodies in chunks.

use std::hint::black_box;

use toron::http::chunk::{Decoder, Event};
use toron::http::path::normalise;
use toron::http::{
    field_slots, request, response, write_request_head, write_response_head, Asked, Forward,
    HeadLimits, HeadScanner, Reply, RequestHead, ResponseHead, Scan, UpstreamFraming, Version,
};

use super::scenario::Run;
use super::texts::{BROWSER, GET, PAGE, RESPONSE};

/// As many as the server has room for.
const SLOTS: usize = 256;
const LIMITS: HeadLimits = HeadLimits { max_fields: 100 };
const PLAIN_GET: Asked = Asked {
    head: false,
    upgrade: false,
};

/// The head at the front of `bytes`, as the server finds it.
fn scanned(mut scanner: HeadScanner, bytes: &[u8]) -> &[u8] {
    match scanner.find(bytes, bytes.len()) {
        Scan::Complete { skip, len } => &bytes[skip..skip + len],
        other => panic!("{other:?}"),
    }
}

fn with_request<T>(bytes: &[u8], look: impl FnOnce(&RequestHead<'_, '_>) -> T) -> T {
    let head = scanned(HeadScanner::request(), bytes);
    let mut slots = field_slots::<SLOTS>();
    look(&request::parse(head, &LIMITS, &mut slots).expect("a good head"))
}

fn with_response<T>(bytes: &[u8], look: impl FnOnce(&ResponseHead<'_, '_>) -> T) -> T {
    let head = scanned(HeadScanner::response(), bytes);
    let mut slots = field_slots::<SLOTS>();
    look(&response::parse(head, PLAIN_GET, &mut slots).expect("a good head"))
}

fn parsed_request(bytes: &'static [u8], fields: usize) -> Run {
    let found = with_request(bytes, |head| head.fields().count());
    assert_eq!(found, fields);
    Box::new(move || {
        black_box(with_request(black_box(bytes), |head| head.facts));
    })
}

fn parsed_response(bytes: &'static [u8], fields: usize) -> Run {
    let found = with_response(bytes, |head| head.fields().count());
    assert_eq!(found, fields);
    Box::new(move || {
        black_box(with_response(black_box(bytes), |head| head.facts));
    })
}

/// The request head as wrk sends it.
pub fn request_head() -> Run {
    parsed_request(GET, 1)
}

/// The request head as a browser sends it.
pub fn browser_head() -> Run {
    parsed_request(BROWSER, 13)
}

/// A response head with little in it.
pub fn response_head() -> Run {
    parsed_response(RESPONSE, 3)
}

/// A response head as nginx sends it.
pub fn page_head() -> Run {
    parsed_response(PAGE, 11)
}

/// The browser's head for the upstream.
pub fn forward() -> Run {
    // Borrowed for as long as the program runs, so that only writing is counted.
    let slots = Box::leak(Box::new(field_slots::<SLOTS>()));
    let request = request::parse(BROWSER, &LIMITS, slots).expect("a good head");
    let mut out = Vec::with_capacity(4096);
    let mut write = move || {
        let mut room = [0; 1024];
        let path = normalise(request.path, &mut room).expect("a good path");
        let forward = Forward {
            path,
            stripped: None,
            target_path: b"",
            target_authority: b"127.0.0.1:9",
            preserve_host: true,
            trusted: false,
            peer_ip: b"192.0.2.1",
            client_ip: b"192.0.2.1",
            scheme: b"http",
            request_id: b"0123456789abcdef0123456789abcdef",
            via: false,
            expect: true,
            keep_alive: true,
            framing: UpstreamFraming::AsReceived,
        };
        out.clear();
        write_request_head(black_box(&request), &forward, &mut out);
        black_box(&out).ends_with(b"\r\nX-Request-Id: 0123456789abcdef0123456789abcdef\r\n\r\n")
    };
    assert!(write());
    Box::new(move || {
        black_box(write());
    })
}

/// The page's head for the client.
pub fn relay() -> Run {
    let slots = Box::leak(Box::new(field_slots::<SLOTS>()));
    let response = response::parse(PAGE, PLAIN_GET, slots).expect("a good head");
    let reply = Reply {
        client: Version::Http11,
        keep_alive: true,
        rewrite: None,
        via: false,
    };
    let mut out = Vec::with_capacity(4096);
    let mut write = move || {
        out.clear();
        write_response_head(black_box(&response), &reply, &mut out);
        black_box(out.len())
    };
    assert_eq!(write(), PAGE.len() - b"Connection: keep-alive\r\n".len());
    Box::new(move || {
        write();
    })
}

/// A body of 16 chunks of 1 KiB.
pub fn chunks() -> Run {
    let mut body = Vec::new();
    for _ in 0..16 {
        body.extend_from_slice(b"400\r\n");
        body.extend_from_slice(&[b'x'; 1024]);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    let decode = move || {
        let (mut decoder, mut trailers, mut at) = (Decoder::new(), Vec::new(), 0);
        loop {
            let step = decoder.feed(black_box(&body[at..]), &mut trailers);
            at += step.consumed;
            match step.event {
                Event::Data { .. } => {}
                Event::Done => return decoder.total(),
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(decode(), 16 * 1024);
    Box::new(move || {
        black_box(decode());
    })
}
