use proptest::prelude::*;

use super::super::super::cidr::CidrSet;
use super::*;

fn proxies() -> CidrSet {
    let texts = ["10.0.0.0/8", "127.0.0.1", "2001:db8:a::/48"];
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn resolve(peer: &str, name: &str, lines: &[&[u8]]) -> String {
    let proxies = proxies();
    let peer = Client::peer(ip(peer), &proxies);
    let client = peer.behind(&proxies, name, lines.iter().copied());
    assert_eq!(client.is_proxy, proxies.contains(client.address));
    client.address.to_string()
}

#[test]
fn f4_the_client_is_the_first_untrusted_hop_from_the_right() {
    let cases: &[(&str, &[&[u8]], &str)] = &[
        // An untrusted peer is not believed.
        ("192.0.2.1", &[b"198.51.100.7"], "192.0.2.1"),
        ("192.0.2.1", &[b"10.0.0.1"], "192.0.2.1"),
        // A trusted one is.
        ("10.0.0.1", &[], "10.0.0.1"),
        ("10.0.0.1", &[b""], "10.0.0.1"),
        ("10.0.0.1", &[b"198.51.100.7"], "198.51.100.7"),
        ("::ffff:10.0.0.1", &[b"198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", &[b"1.1.1.1, 198.51.100.7"], "198.51.100.7"),
        (
            "10.0.0.1",
            &[b"198.51.100.7, 10.0.0.2,10.9.9.9"],
            "198.51.100.7",
        ),
        // All lines, joined in order.
        (
            "10.0.0.1",
            &[b"1.1.1.1", b"198.51.100.7", b"10.0.0.2"],
            "198.51.100.7",
        ),
        ("10.0.0.1", &[b"198.51.100.7", b"1.1.1.1"], "1.1.1.1"),
        // All trusted: the leftmost.
        (
            "10.0.0.1",
            &[b"10.0.0.9, 10.0.0.3", b"10.0.0.2"],
            "10.0.0.9",
        ),
        // Garbage stops the walk; nothing left of it counts.
        ("10.0.0.1", &[b"203.0.113.1, bogus"], "10.0.0.1"),
        ("10.0.0.1", &[b"203.0.113.1, bogus, 10.0.0.5"], "10.0.0.5"),
        (
            "10.0.0.1",
            &[b"203.0.113.1, bogus, 10.0.0.5, 10.0.0.6"],
            "10.0.0.5",
        ),
        ("10.0.0.1", &[b"bogus, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", &[b"198.51.100.7", b"unknown"], "10.0.0.1"),
        ("10.0.0.1", &[b"198.51.100.7", b"1.2.3.4.5"], "10.0.0.1"),
        ("10.0.0.1", &[b"198.51.100.7", b"01.2.3.4"], "10.0.0.1"),
        ("10.0.0.1", &[b"\xff\xfe"], "10.0.0.1"),
        // Empty elements are none.
        ("10.0.0.1", &[b"198.51.100.7, ,\t", b","], "198.51.100.7"),
        // Ports and IPv6 in every spelling.
        ("10.0.0.1", &[b"198.51.100.7:4711"], "198.51.100.7"),
        ("10.0.0.1", &[b"2001:db8::7"], "2001:db8::7"),
        ("10.0.0.1", &[b"[2001:db8::7]"], "2001:db8::7"),
        ("10.0.0.1", &[b"[2001:db8::7]:4711"], "2001:db8::7"),
        (
            "10.0.0.1",
            &[b"2001:db8::7, [2001:db8:a::1]:80"],
            "2001:db8::7",
        ),
        ("10.0.0.1", &[b"::ffff:198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", &[b"1.1.1.1, ::ffff:10.0.0.2"], "1.1.1.1"),
        ("2001:db8:a::1", &[b"2001:db8:b::1"], "2001:db8:b::1"),
        ("10.0.0.1", &[b"[2001:db8::7]:99999"], "10.0.0.1"),
        ("10.0.0.1", &[b"fe80::1%eth0"], "10.0.0.1"),
    ];
    for (peer, lines, expected) in cases {
        for name in ["X-Forwarded-For", "x-forwarded-for", "X-Other"] {
            assert_eq!(&resolve(peer, name, lines), expected, "{peer} {lines:?}");
        }
    }
}

#[test]
fn f4_a_single_valued_header_is_taken_as_it_is() {
    assert_eq!(
        resolve("10.0.0.1", "X-Real-IP", &[b"198.51.100.7"]),
        "198.51.100.7"
    );
    assert_eq!(resolve("10.0.0.1", "X-Real-IP", &[b"10.0.0.9"]), "10.0.0.9");
    assert_eq!(
        resolve("192.0.2.1", "X-Real-IP", &[b"198.51.100.7"]),
        "192.0.2.1"
    );
}

#[test]
fn f4_forwarded_is_read_by_rfc_7239() {
    let cases: &[(&[&[u8]], &str)] = &[
        (&[b"for=198.51.100.7"], "198.51.100.7"),
        (
            &[b"For=198.51.100.7;proto=https;by=10.0.0.1"],
            "198.51.100.7",
        ),
        (&[b"proto=https; FOR=\"198.51.100.7:80\""], "198.51.100.7"),
        (&[b"for=\"[2001:db8::7]:4711\""], "2001:db8::7"),
        (
            &[b"for=\"[2001:db8::7]:_port\", for=10.0.0.2"],
            "2001:db8::7",
        ),
        (
            &[b"for=1.1.1.1, for=198.51.100.7, for=10.0.0.3"],
            "198.51.100.7",
        ),
        (&[b"for=1.1.1.1", b"for=198.51.100.7"], "198.51.100.7"),
        // A comma or quote in front does not hide what the proxy appended.
        (
            &[b"for=\"a, b\";x=\"\\\"\", for=198.51.100.7"],
            "198.51.100.7",
        ),
        (&[b"for=\"open, for=198.51.100.7"], "198.51.100.7"),
        (&[b"x=\"\\\", for=198.51.100.7"], "198.51.100.7"),
        (
            &[b"for=1.1.1.1, host=\"a,b\\\",c\";for=198.51.100.7"],
            "198.51.100.7",
        ),
        // Not an address: the walk ends.
        (&[b"for=1.1.1.1, for=unknown"], "10.0.0.1"),
        (&[b"for=1.1.1.1, for=_hidden, for=10.0.0.4"], "10.0.0.4"),
        (&[b"for=1.1.1.1, proto=http"], "10.0.0.1"),
        (&[b"for=1.1.1.1;for=2.2.2.2"], "10.0.0.1"),
        (&[b"for=[2001:db8::7]"], "10.0.0.1"),
        (&[b"for=2001:db8::7"], "10.0.0.1"),
        (&[b"for"], "10.0.0.1"),
        (&[b"for="], "10.0.0.1"),
        (&[b"for=\"198.51.100.7"], "10.0.0.1"),
        (&[b"for=\"198.51.100.7\"x"], "10.0.0.1"),
        (&[b"for =198.51.100.7"], "10.0.0.1"),
        (&[b"for=198.51.100.7 9"], "10.0.0.1"),
        (&[b"=;for=198.51.100.7"], "10.0.0.1"),
        (&[b";;for=198.51.100.7;"], "198.51.100.7"),
        (&[b"198.51.100.7"], "10.0.0.1"),
    ];
    for (lines, expected) in cases {
        let text: Vec<_> = lines.iter().map(|l| l.escape_ascii().to_string()).collect();
        assert_eq!(
            &resolve("10.0.0.1", "Forwarded", lines),
            expected,
            "{text:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// S8: whatever a client writes in front, on its own line or on the one that the proxies append
    /// to, it stays the client.
    #[test]
    fn f4_nothing_that_a_client_writes_changes_who_it_is(
        written in prop::collection::vec(prop::collection::vec(prop::sample::select(
            b"0123456789.:,;=\"\\ []_forunkw\xff".to_vec()), 0..40), 0..4),
        last in prop::option::of(r#"[0-9a-f.:," \\]{0,20}"#),
        hops in 0u8..3,
        forwarded in any::<bool>(),
    ) {
        let (name, prefix) = if forwarded { ("Forwarded", "for=") } else { ("X-Forwarded-For", "") };
        let mut appended = last.unwrap_or_default().into_bytes();
        if !appended.is_empty() {
            appended.extend_from_slice(b", ");
        }
        appended.extend_from_slice(format!("{prefix}198.51.100.7").as_bytes());
        for hop in 0..hops {
            appended.extend_from_slice(format!(", {prefix}10.0.0.{hop}").as_bytes());
        }
        let mut lines: Vec<&[u8]> = written.iter().map(Vec::as_slice).collect();
        lines.push(&appended);
        prop_assert_eq!(resolve("10.0.0.1", name, &lines), "198.51.100.7");
        prop_assert_eq!(resolve("192.0.2.1", name, &lines), "192.0.2.1");
    }
}
