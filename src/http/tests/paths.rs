use super::*;
use path::{normalise, push_joined, segments, strip_prefix, PathFault};

fn normal(raw: &str) -> Result<String, PathFault> {
    let mut scratch = vec![0; raw.len()];
    normalise(raw.as_bytes(), &mut scratch).map(|p| String::from_utf8(p.to_vec()).unwrap())
}

#[test]
fn i6_normal_form() {
    for (raw, want) in [
        ("/", "/"),
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b/"),
        ("/a//b", "/a//b"),
        ("//", "//"),
        ("//evil.example/x", "//evil.example/x"),
        ("/.", "/"),
        ("/./", "/"),
        ("/a/.", "/a/"),
        ("/a/./b", "/a/b"),
        ("/a/..", "/"),
        ("/a/../", "/"),
        ("/a/../b", "/b"),
        ("/app/../admin", "/admin"),
        ("/a/b/..", "/a/"),
        ("/a//../b", "/a/b"),
        ("/%61%2D%2e%5f%7E", "/a-._~"),
        ("/a/%2e%2E/b", "/b"),
        ("/a/%2e", "/a/"),
        ("/.a/..b/c./...", "/.a/..b/c./..."),
        ("/%252e%252e/x", "/%252e%252e/x"),
        ("/a%2fb", "/a%2fb"),
        ("/a%2Fb%2f", "/a%2Fb%2f"),
        ("/a.%2f.b", "/a.%2f.b"),
        ("/x%0d%0aY:%20z", "/x%0d%0aY:%20z"),
        ("/%c3%a9", "/%c3%a9"),
        ("/a%5cb", "/a%5cb"),
    ] {
        assert_eq!(normal(raw).as_deref(), Ok(want), "{raw}");
    }
}

#[test]
fn i6_refused_paths() {
    for (raw, fault) in [
        ("", PathFault::NotRooted),
        ("a", PathFault::NotRooted),
        ("/..", PathFault::ClimbsAboveRoot),
        ("/a/../../b", PathFault::ClimbsAboveRoot),
        ("/%2e%2e/", PathFault::ClimbsAboveRoot),
        ("/./../x", PathFault::ClimbsAboveRoot),
        ("/a#b", PathFault::BadByte),
        ("/a\\b", PathFault::BadByte),
        ("/a b", PathFault::BadByte),
        ("/é", PathFault::BadByte),
        ("/a%00", PathFault::EncodedNul),
        ("/a%", PathFault::BadEscape),
        ("/a%4", PathFault::BadEscape),
        ("/a%zz", PathFault::BadEscape),
        ("/a%+1", PathFault::BadEscape),
        ("/app/..%2fadmin", PathFault::EncodedDotSegment),
        ("/app/x%2F..", PathFault::EncodedDotSegment),
        ("/app/x%2f.%2fy", PathFault::EncodedDotSegment),
        ("/app/%2e%2e%2fadmin", PathFault::EncodedDotSegment),
        ("/app/..%5cadmin", PathFault::EncodedDotSegment),
        ("/app/%2f..", PathFault::EncodedDotSegment),
    ] {
        assert_eq!(normal(raw), Err(fault), "{raw}");
        assert!(!fault.reason().is_empty());
    }
    let mut small = [0; 2];
    assert_eq!(normalise(b"/a/./b", &mut small), Err(PathFault::NoRoom));
}

#[test]
fn i6_a_normal_path_is_borrowed() {
    let raw = b"/api/v1/items";
    let mut none = [];
    assert_eq!(normalise(raw, &mut none).unwrap().as_ptr(), raw.as_ptr());
}

#[test]
fn r1_prefixes_match_whole_segments() {
    for (path, prefix, rest) in [
        ("/api", "/api", Some("")),
        ("/api/", "/api", Some("/")),
        ("/api/x", "/api", Some("/x")),
        ("/apix", "/api", None),
        ("/apple/x", "/app", None),
        ("/API", "/api", None),
        ("/ap", "/api", None),
        ("/x", "/", Some("/x")),
        ("/", "/", Some("/")),
        ("/x", "", Some("/x")),
        ("/api/x", "/api/", Some("/x")),
        ("/api", "/api/", Some("")),
        ("//api//x", "/api", Some("//x")),
        ("/a//b/c", "/a/b", Some("/c")),
        ("/app//evil.example/x", "/app", Some("//evil.example/x")),
        ("/a%2fb", "/a", None),
    ] {
        let seen = strip_prefix(path.as_bytes(), prefix.as_bytes());
        assert_eq!(seen, rest.map(str::as_bytes), "{path} {prefix}");
    }
    assert_eq!(segments(b"//a///b/").collect::<Vec<_>>(), [b"a", b"b"]);
}

#[test]
fn r7_joining() {
    for (target, rest, want) in [
        ("/v1", "/x", "/v1/x"),
        ("/v1", "", "/v1"),
        ("", "", "/"),
        ("/", "", "/"),
        ("/", "/x", "/x"),
        ("", "/x", "/x"),
        ("/v1/", "/x", "/v1/x"),
        ("/v1/", "", "/v1/"),
        ("/v1", "/", "/v1/"),
        ("", "//evil.example/x", "//evil.example/x"),
    ] {
        let mut out = Vec::new();
        push_joined(&mut out, target.as_bytes(), rest.as_bytes());
        assert_eq!(out, want.as_bytes(), "{target} {rest}");
    }
}
