//! Properties over random inputs; each failure prints the seed.

use super::chunks::decode;
use super::*;
use crate::http::path::normalise;

const CASES: u64 = 100_000;

const HEADS: [&str; 8] = [
    "GET / HTTP/1.1\r\nHost: t.example\r\n\r\n",
    "\r\nPOST /a/../b%2e?q=1 HTTP/1.1\r\nHost: t.example:80\r\nContent-Length: 5\r\n\r\nhello",
    "PUT http://t.example/x HTTP/1.1\r\nHost: o\r\nTransfer-Encoding: chunked\r\n\r\n",
    "GET /ws HTTP/1.1\r\nHost: [::1]\r\nConnection: Upgrade, X-A\r\nUpgrade: websocket\r\nX-A: 1\r\n\r\n",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\nX-Forwarded-For: 1.2.3.4, 5.6.7.8\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: t.example\r\nTE: trailers\r\nExpect: 100-continue\r\n\r\n",
    "HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/x\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5\r\nConnection: close\r\n\r\n",
];

const BODIES: [&str; 5] = [
    "5\r\nhello\r\n0\r\n\r\nGET /",
    "3;x=y\r\nhel\r\n002\r\nlo\r\n0\r\nX-T: v\r\nY: \tz\r\n\r\n",
    "ffffffffffffffff\r\n",
    "1;aaaaaaaaaaaaaaaaaaa\r\nz\r\n0;b\r\nHost: x\r\n\r\n",
    "10\r\n0123456789abcdef\r\n0\r\n\r\n",
];

const PATHS: [&str; 4] = [
    "/a/b/../c/./d//e/",
    "/%2e%2E/..%2f%41",
    "/app/%252e/x%00y",
    "/..a/.b/...%5c.%2F",
];

const SPICE: &[u8] = b"\r\n\t :;,=%/.?#\\\0\x01\x7f\xff05fFaZ*[]@";

/// A valid sample with a few bytes changed, put in, taken out or doubled.
fn mutate(random: &mut Random, samples: &[&str]) -> Vec<u8> {
    let mut bytes = random.pick(samples).as_bytes().to_vec();
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len());
        let byte = *random.pick(SPICE);
        match random.below(5) {
            _ if bytes.is_empty() => bytes.push(byte),
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            _ => {
                let end = (at + random.below(12)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
    bytes
}

fn scan_cut(mut scanner: HeadScanner, bytes: &[u8], mut cut: impl FnMut() -> usize) -> Scan {
    let mut received = 0;
    loop {
        match scanner.scan(&bytes[..received]) {
            Scan::Incomplete if received < bytes.len() => {
                received = (received + cut().max(1)).min(bytes.len());
            }
            outcome => return outcome,
        }
    }
}

#[test]
fn any_segmentation_of_a_head_gives_the_same_outcome() {
    for seed in 0..CASES / 4 {
        let mut random = Random::new(seed);
        let bytes = mutate(&mut random, &HEADS);
        for scanner in [HeadScanner::request(), HeadScanner::response()] {
            let whole = scan_cut(scanner.clone(), &bytes, || bytes.len());
            let bytewise = scan_cut(scanner.clone(), &bytes, || 1);
            let cut = scan_cut(scanner, &bytes, || random.below(9));
            assert_eq!(
                (whole, whole),
                (bytewise, cut),
                "seed {seed}: {}",
                bytes.escape_ascii()
            );
        }
    }
}

/// What a server makes of a head that comes whole, and of one that comes byte by byte: the same, down
/// to the reason.
#[test]
fn a_head_that_is_found_is_judged_as_one_that_is_scanned() {
    let asked = Asked {
        head: false,
        upgrade: true,
    };
    let (mut refused, mut passed) = (0u64, 0u64);
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let bytes = mutate(&mut random, &HEADS);
        let request = |outcome| match outcome {
            Scan::Incomplete => None,
            Scan::Bad(reason) => Some(Err(reason)),
            Scan::Complete { skip, len } => {
                let mut slots = field_slots::<32>();
                let head = request::parse(&bytes[skip..skip + len], &LIMITS, &mut slots);
                Some(head.map(|head| (len, head.facts)))
            }
        };
        let response = |outcome| match outcome {
            Scan::Incomplete => None,
            Scan::Bad(reason) => Some(Err(reason)),
            Scan::Complete { skip, len } => {
                let mut slots = field_slots::<32>();
                let head = response::parse(&bytes[skip..skip + len], asked, &mut slots);
                Some(head.map(|head| (len, head.facts)))
            }
        };
        let bytewise = |scanner| scan_cut(scanner, &bytes, || 1);
        let shown = bytes.escape_ascii();
        for most in [usize::MAX, 40] {
            let found = request(HeadScanner::request().find(&bytes, most));
            let scanned = request(bytewise(HeadScanner::request()));
            assert_eq!(found, scanned, "seed {seed}: {shown}");
            refused += u64::from(matches!(found, Some(Err(_))));
            let found = response(HeadScanner::response().find(&bytes, most));
            let scanned = response(bytewise(HeadScanner::response()));
            assert_eq!(found, scanned, "seed {seed}: {shown}");
            passed += u64::from(matches!(found, Some(Ok(_))));
        }
    }
    assert!(
        refused > CASES / 10 && passed > CASES / 20,
        "{refused} requests refused, {passed} responses passed"
    );
}

#[test]
fn any_segmentation_of_a_chunked_body_gives_the_same_outcome() {
    for seed in 0..CASES / 4 {
        let mut random = Random::new(seed);
        let bytes = mutate(&mut random, &BODIES);
        let whole = decode(&bytes, || bytes.len());
        assert_eq!(
            whole,
            decode(&bytes, || 1),
            "seed {seed}: {}",
            bytes.escape_ascii()
        );
        let cut = decode(&bytes, || random.below(7));
        assert_eq!(whole, cut, "seed {seed}: {}", bytes.escape_ascii());
    }
}

#[test]
fn chunks_encoded_are_decoded() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let (mut body, mut wire) = (Vec::new(), Vec::new());
        for _ in 0..random.below(6) {
            let piece: Vec<u8> = (0..=random.below(300))
                .map(|_| random.next() as u8)
                .collect();
            wire.extend_from_slice(chunk::encode_size_line(piece.len() as u64, &mut [0; 18]));
            wire.extend_from_slice(&piece);
            wire.extend_from_slice(chunk::CRLF);
            body.extend_from_slice(&piece);
        }
        wire.extend_from_slice(chunk::LAST_CHUNK);
        let end = wire.len();
        wire.extend_from_slice(b"next");
        let seen = decode(&wire, || random.below(50));
        assert_eq!((seen.data, seen.consumed), (body, end), "seed {seed}");
        assert_eq!(seen.end, Some(Ok(())), "seed {seed}");
    }
}

#[test]
fn normal_paths_stay_normal_and_hold_no_dot_segment() {
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let raw = mutate(&mut random, &PATHS);
        let (mut first, mut second) = (vec![0; raw.len()], vec![0; raw.len()]);
        let Ok(normal) = normalise(&raw, &mut first) else {
            continue;
        };
        assert!(normal.len() <= raw.len() && normal.starts_with(b"/"));
        assert_eq!(
            normalise(normal, &mut second),
            Ok(normal),
            "seed {seed}: {}",
            raw.escape_ascii()
        );
        let dots = normal
            .split(|&b| b == b'/')
            .any(|s| s == b"." || s == b"..");
        assert!(!dots, "seed {seed}: {}", raw.escape_ascii());
    }
}

fn forward_of<'a>(path: &'a [u8]) -> Forward<'a> {
    Forward {
        path,
        stripped: Some(b"/a"),
        target_path: b"/v1",
        target_authority: b"10.0.0.1",
        preserve_host: true,
        trusted: true,
        peer_ip: b"::1",
        client_ip: b"::1",
        scheme: b"http",
        request_id: b"r",
        via: true,
        expect: true,
        keep_alive: true,
        framing: UpstreamFraming::AsReceived,
    }
}

/// What is written for an upstream must itself be one valid head that means the
/// same: read it back.
#[test]
fn a_forwarded_head_reads_back_the_same() {
    let mut out = Vec::new();
    let mut accepted = 0;
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let bytes = mutate(&mut random, &HEADS[..6]);
        with_request(&bytes, |r, _| {
            let Ok(request) = r else { return };
            if request.target == Target::Asterisk {
                return;
            }
            let mut scratch = vec![0; request.path.len()];
            let Ok(path) = normalise(request.path, &mut scratch) else {
                return;
            };
            out.clear();
            write_request_head(&request, &forward_of(path), &mut out);
            let shown = bytes.escape_ascii();
            with_request(&out, |again, rest| {
                let again = again.unwrap_or_else(|e| panic!("seed {seed}: {e:?}: {shown}"));
                assert!(rest.is_empty(), "seed {seed}: {shown}");
                assert_eq!(again.method, request.method, "seed {seed}: {shown}");
                assert_eq!(again.facts.body, request.facts.body, "seed {seed}: {shown}");
                assert_eq!(again.query, request.query, "seed {seed}: {shown}");
                assert_eq!(again.path, [b"/v1", path].concat(), "seed {seed}: {shown}");
            })
            .unwrap_or_else(|| panic!("seed {seed}: not a whole head: {shown}"));
            accepted += 1;
        });
    }
    assert!(
        accepted > CASES / 10,
        "only {accepted} inputs were accepted"
    );
}

/// The same for responses: one head, one framing.
#[test]
fn a_relayed_head_reads_back_the_same() {
    let mut out = Vec::new();
    let rewrite = Rewrite {
        prefix: b"/app",
        target_path: b"",
        target_authority: b"10.0.0.1",
        client_scheme: b"https",
        client_host: b"t.example",
        redirects: true,
        cookie_path: true,
    };
    let mut accepted = 0;
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let bytes = mutate(&mut random, &HEADS[6..]);
        let asked = Asked {
            head: random.below(4) == 0,
            upgrade: random.below(4) == 0,
        };
        let (mut slots, mut again) = (field_slots::<32>(), field_slots::<32>());
        let Scan::Complete { len, .. } = HeadScanner::response().scan(&bytes) else {
            continue;
        };
        let Ok(response) = response::parse(&bytes[..len], asked, &mut slots) else {
            continue;
        };
        out.clear();
        let reply = Reply {
            client: Version::Http11,
            keep_alive: true,
            rewrite: Some(rewrite),
            via: true,
        };
        let promised = write_response_head(&response, &reply, &mut out);
        let shown = bytes.escape_ascii();
        let seen = response::parse(&out, asked, &mut again)
            .unwrap_or_else(|e| panic!("seed {seed}: {e:?}: {shown}"));
        assert_eq!(
            seen.facts.status, response.facts.status,
            "seed {seed}: {shown}"
        );
        assert_eq!(seen.facts.body, promised.body, "seed {seed}: {shown}");
        accepted += 1;
    }
    assert!(
        accepted > CASES / 10,
        "only {accepted} inputs were accepted"
    );
}

/// The parsers do not lean on the scanner: what they accept it accepts, as the
/// same one head.
#[test]
fn what_parses_passes_the_scanner() {
    let mut accepted = [0u64; 2];
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let bytes = mutate(&mut random, &HEADS);
        let (mut slots, mut more) = (field_slots::<32>(), field_slots::<32>());
        let asked = Asked {
            head: false,
            upgrade: true,
        };
        let whole = Scan::Complete {
            skip: 0,
            len: bytes.len(),
        };
        let shown = bytes.escape_ascii();
        if request::parse(&bytes, &LIMITS, &mut slots).is_ok() {
            assert_eq!(
                HeadScanner::request().scan(&bytes),
                whole,
                "seed {seed}: {shown}"
            );
            accepted[0] += 1;
        }
        if response::parse(&bytes, asked, &mut more).is_ok() {
            assert_eq!(
                HeadScanner::response().scan(&bytes),
                whole,
                "seed {seed}: {shown}"
            );
            accepted[1] += 1;
        }
    }
    assert!(
        accepted.iter().all(|&n| n > CASES / 20),
        "accepted {accepted:?}"
    );
}

#[test]
fn no_bytes_make_it_panic() {
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let bytes: Vec<u8> = (0..random.below(64))
            .map(|_| {
                if random.below(3) == 0 {
                    *random.pick(SPICE)
                } else {
                    random.next() as u8
                }
            })
            .collect();
        let (mut slots, mut more) = (field_slots::<4>(), field_slots::<4>());
        let asked = Asked {
            head: false,
            upgrade: true,
        };
        let _ = request::parse(&bytes, &LIMITS, &mut slots);
        let _ = response::parse(&bytes, asked, &mut more);
        let _ = normalise(&bytes, &mut [0; 64]);
        let _ = host::Authority::parse(&bytes);
        let _ = decode(&bytes, || 3);
        let rewrite = Rewrite {
            prefix: &bytes,
            target_path: &bytes,
            target_authority: &bytes,
            client_scheme: b"http",
            client_host: &bytes,
            redirects: true,
            cookie_path: true,
        };
        let mut out = Vec::new();
        rewrite.push_location(&bytes, &mut out);
        rewrite.push_cookie(&bytes, &mut out);
        chunk::push_request_trailers(&bytes, &mut out);
    }
}
