//! The request path of `http` allocates nothing once its buffers are warm: one
//! keep-alive exchange, from the first byte of the head to the relayed answer.

#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use toron::http::chunk::{Decoder, Event};
use toron::http::path::{normalise, strip_prefix};
use toron::http::{
    field_slots, request, response, write_request_head, write_response_head, Answer, Asked,
    Forward, HeadLimits, HeadScanner, Rendering, Reply, Rewrite, Scan, UpstreamFraming, Version,
};

const REQUEST: &[u8] = b"GET /api/./items?id=7 HTTP/1.1\r\nHost: t.example\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\n\
    Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nCookie: a=1; b=2\r\nX-Forwarded-For: 9.9.9.9\r\n\
    \r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 302 Found\r\nServer: nginx\r\nContent-Type: text/html\r\n\
    Location: http://10.0.0.1:9000/v1/login\r\nSet-Cookie: sid=1; Path=/v1\r\n\
    Transfer-Encoding: chunked\r\nKeep-Alive: timeout=5\r\n\r\n";
const BODY: &[u8] = b"5\r\nhello\r\n0\r\n\r\n";

fn exchange(out: &mut Vec<u8>, scratch: &mut [u8]) -> usize {
    out.clear();
    let mut slots = field_slots::<128>();
    let Scan::Complete { skip, len } = HeadScanner::request().scan(REQUEST) else {
        panic!()
    };
    let head = &REQUEST[skip..skip + len];
    let request = request::parse(head, &HeadLimits { max_fields: 100 }, &mut slots).unwrap();
    let path = normalise(request.path, scratch).unwrap();
    let forward = Forward {
        path: strip_prefix(path, b"/api").unwrap(),
        stripped: Some(b"/api"),
        target_path: b"/v1",
        target_authority: b"10.0.0.1:9000",
        preserve_host: true,
        trusted: true,
        peer_ip: b"127.0.0.1",
        client_ip: b"9.9.9.9",
        scheme: b"http",
        request_id: b"0123456789abcdef",
        via: true,
        expect: false,
        keep_alive: true,
        framing: UpstreamFraming::AsReceived,
    };
    write_request_head(&request, &forward, out);
    let mut slots = field_slots::<128>();
    let Scan::Complete { len, .. } = HeadScanner::response().scan(RESPONSE) else {
        panic!()
    };
    let asked = Asked::by(&request.facts);
    let response = response::parse(&RESPONSE[..len], asked, &mut slots).unwrap();
    let rewrite = Rewrite {
        prefix: b"/api",
        target_path: b"/v1",
        target_authority: b"10.0.0.1:9000",
        client_scheme: b"http",
        client_host: b"t.example",
        redirects: true,
        cookie_path: true,
    };
    let reply = Reply {
        client: Version::Http11,
        keep_alive: true,
        rewrite: Some(rewrite),
        via: false,
    };
    write_response_head(&response, &reply, out);
    let (mut decoder, mut trailers, mut at) = (Decoder::new(), Vec::new(), 0);
    loop {
        let step = decoder.feed(&BODY[at..], &mut trailers);
        at += step.consumed;
        match step.event {
            Event::Data { .. } => {}
            Event::Done => break,
            Event::NeedMore | Event::Fault(_) => panic!(),
        }
    }
    Answer::NotFound.write(&Rendering::CLOSE, out);
    out.len()
}

#[test]
fn a_warm_exchange_allocates_nothing() {
    let mut out = Vec::with_capacity(64 * 1024);
    let mut scratch = [0; 8192];
    let written = exchange(&mut out, &mut scratch);
    assert!(
        out.windows(20).any(|w| w == b"Location: http://t.e"),
        "the exchange is a real one"
    );
    let info = measure(|| {
        for _ in 0..100 {
            assert_eq!(exchange(&mut out, &mut scratch), written);
        }
    });
    assert_eq!(info.count_total, 0, "{info:?}");
    let control = measure(|| drop(Vec::<u8>::with_capacity(std::hint::black_box(10))));
    assert_eq!(control.count_total, 1, "the counter counts");
}
