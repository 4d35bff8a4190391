//! S13: encoded dots walk out of a route.

use crate::support::setup::{Engine, Route, Settings};
use crate::support::toron::Toron;
use crate::support::upstream::{Connection, Script, Upstream};
use crate::support::PATIENCE;
use crate::{ask, on_every_engine};

/// Ways up and down again, behind `/public` or `/private`. `{}` is where the other route's name goes.
const S13_WAYS: [&str; 22] = [
    "/{}",
    "/./{}",
    "/../{}/x",
    "/%2e%2e/{}/x",
    "/%2E%2E/{}/x",
    "/.%2e/{}/x",
    "/%2e./{}/x",
    "/..%2f{}/x",
    "/..%2F{}/x",
    "/%2e%2e%2f{}/x",
    "/%2e%2e%2F%2e%2e%2f{}/x",
    "/%252e%252e/{}/x",
    "/%252e%252e%252f{}/x",
    "/a/../../{}/x",
    "/a/%2e%2e/%2e%2e/{}/x",
    "/a/b%2f..%2f..%2f..%2f{}/x",
    "//../{}/x",
    "//%2e%2e//%2e%2e/{}/x",
    "/..;/{}/x",
    "/..\\{}/x",
    "/%2e%2e%5c{}/x",
    "/../../../../{}/x",
];

/// `%XY` decoded once, wherever it stands: the most that an upstream does to a path.
fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = path
            .get(at + 1..at + 3)
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match hex.filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The first segment after dot segments are removed (RFC 3986 §5.2.4), with repeated slashes as one.
fn resolves_under(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    segments.first().map_or(String::new(), |s| format!("/{s}"))
}

fn targets(connections: &[Connection]) -> Vec<String> {
    connections
        .iter()
        .flat_map(|c| &c.requests)
        .map(|r| r.head.target().to_owned())
        .collect()
}

fn s13_encoded_dots(engine: Engine) {
    let upstreams = [
        ("/public", Upstream::start()),
        ("/private", Upstream::start()),
    ];
    let routes = upstreams
        .iter()
        .map(|(prefix, u)| Route::new(prefix, &u.addr))
        .collect();
    let toron = Toron::start(&Settings::new(engine, routes));
    let mut arrived = 0;
    for (own, other) in [("public", "private"), ("private", "public")] {
        for way in S13_WAYS {
            let path = format!("/{own}{}", way.replace("{}", other));
            upstreams
                .iter()
                .for_each(|(_, u)| u.begin(Script::default()));
            let status = ask(&toron, &path, PATIENCE);
            assert!(
                matches!(status, Some(200 | 400 | 403 | 404)),
                "{path}: {status:?} is neither served nor refused"
            );
            for (prefix, upstream) in &upstreams {
                for target in targets(&upstream.connections()) {
                    arrived += 1;
                    for read in [target.clone(), decoded(&target)] {
                        let under = resolves_under(&read);
                        assert_eq!(&under, prefix, "{path} went as {target} to {prefix}");
                    }
                }
            }
        }
    }
    // Never decoded twice, and inner empty segments kept.
    for path in [
        "/public/%252e%252e/x",
        "/public//a//b",
        "/public/%2F/x",
        "/public/a%20b",
    ] {
        let (_, public) = &upstreams[0];
        public.begin(Script::default());
        assert_eq!(ask(&toron, path, PATIENCE), Some(200), "{path}");
        assert_eq!(targets(&public.connections()), [path]);
    }
    assert!(arrived > 0, "every path was refused: the legal ones too");
}

#[test]
fn s13_encoded_dots_on_epoll() {
    s13_encoded_dots(Engine::Epoll);
}

#[test]
fn s13_encoded_dots_on_io_uring() {
    s13_encoded_dots(Engine::IoUring);
}

/// Behind a stripped prefix the way out would be above the target's own path (R7).
#[test]
fn s13_r7_encoded_dots_behind_a_stripped_prefix() {
    on_every_engine(|engine| {
        let upstream = Upstream::start();
        let mut route = Route::new("/public", &format!("{}/base", upstream.addr));
        route.strip_prefix = true;
        let toron = Toron::start(&Settings::new(engine, vec![route]));
        let mut served = 0;
        for way in S13_WAYS {
            let path = format!("/public{}", way.replace("{}", "private"));
            upstream.begin(Script::default());
            let status = ask(&toron, &path, PATIENCE);
            assert!(
                matches!(status, Some(200 | 400 | 403 | 404)),
                "{path}: {status:?} is neither served nor refused"
            );
            for target in targets(&upstream.connections()) {
                served += 1;
                for read in [target.clone(), decoded(&target)] {
                    assert_eq!(resolves_under(&read), "/base", "{path} went as {target}");
                }
            }
        }
        assert!(served > 0, "every path was refused: the legal ones too");
    });
}

/// The test's own reading of paths.
#[test]
fn s13_paths_are_read_as_upstreams_read_them() {
    assert_eq!(decoded("/a/%2e%2E%2f%zz%"), "/a/../%zz%");
    assert_eq!(resolves_under("/public/../private/x"), "/private");
    assert_eq!(resolves_under("/public//./a/../b"), "/public");
    assert_eq!(resolves_under("/public/../../.."), "");
}
