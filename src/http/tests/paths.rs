use super::*;
use path::{normalise, push_joined, segments, strip_prefix};

fn normal(raw: &str) -> Result<String, Reason> {
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
        ("", Reason::PathNotRooted),
        ("a", Reason::PathNotRooted),
        ("/..", Reason::PathAboveRoot),
        ("/a/../../b", Reason::PathAboveRoot),
        ("/%2e%2e/", Reason::PathAboveRoot),
        ("/./../x", Reason::PathAboveRoot),
        ("/a#b", Reason::BadPathByte),
        ("/a\\b", Reason::BadPathByte),
        ("/a b", Reason::BadPathByte),
        ("/é", Reason::BadPathByte),
        ("/a%00", Reason::EncodedNul),
        ("/a%", Reason::BadPathEscape),
        ("/a%4", Reason::BadPathEscape),
        ("/a%zz", Reason::BadPathEscape),
        ("/a%+1", Reason::BadPathEscape),
        ("/app/..%2fadmin", Reason::EncodedDotSegment),
        ("/app/x%2F..", Reason::EncodedDotSegment),
        ("/app/x%2f.%2fy", Reason::EncodedDotSegment),
        ("/app/%2e%2e%2fadmin", Reason::EncodedDotSegment),
        ("/app/..%5cadmin", Reason::EncodedDotSegment),
        ("/app/%2f..", Reason::EncodedDotSegment),
    ] {
        assert_eq!(normal(raw), Err(fault), "{raw}");
        assert_eq!(Answer::to(fault), Some(Answer::BadRequest), "{raw}");
    }
    let mut small = [0; 2];
    assert_eq!(normalise(b"/a/./b", &mut small), Err(Reason::PathTooLong));
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
