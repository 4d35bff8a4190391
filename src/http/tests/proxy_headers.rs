//! F4: the PROXY protocol.

use super::super::proxy_protocol::{parse, ProxyHeader, MOST_BYTES};
use super::Random;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn block(command: u8, family: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend([command, family]);
    bytes.extend((content.len() as u16).to_be_bytes());
    bytes.extend(content);
    bytes
}

const FOUR: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 0, 80];

fn six() -> Vec<u8> {
    let mut content = vec![0x20, 1, 0x0d, 0xb8];
    content.extend([0; 11]);
    content.push(7);
    content.extend([0; 16]);
    content.extend([0x12, 0x67, 0, 80]);
    content
}

fn with_tlvs(content: &[u8], tlvs: &[u8]) -> Vec<u8> {
    [content, tlvs].concat()
}

/// What is said of a header with more behind it: length and source, or the reason.
fn read(bytes: &[u8]) -> Result<(usize, Option<String>), &'static str> {
    match parse(bytes) {
        ProxyHeader::Complete { len, source } => Ok((len, source.map(|s| s.to_string()))),
        ProxyHeader::Invalid(reason) => Err(reason.code()),
        ProxyHeader::Incomplete => Err("incomplete"),
    }
}

fn good() -> Vec<(Vec<u8>, Option<&'static str>)> {
    let longest = "PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n";
    let six_to_six = "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                      ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    assert_eq!(six_to_six.len(), 104);
    vec![
        (
            b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n".to_vec(),
            Some("192.0.2.1:4711"),
        ),
        (
            b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n".to_vec(),
            Some("255.255.255.255:65535"),
        ),
        (
            b"PROXY TCP6 2001:db8::7 ::1 0 0\r\n".to_vec(),
            Some("[2001:db8::7]:0"),
        ),
        (
            six_to_six.into(),
            Some("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"),
        ),
        (b"PROXY UNKNOWN\r\n".to_vec(), None),
        (longest.into(), None),
        (block(0x21, 0x11, &FOUR), Some("192.0.2.1:4711")),
        (block(0x21, 0x21, &six()), Some("[2001:db8::7]:4711")),
        (
            block(0x21, 0x11, &with_tlvs(&FOUR, b"\x01\0\x02h2\x04\0\0")),
            Some("192.0.2.1:4711"),
        ),
        (block(0x21, 0x31, &[0; 216]), None),
        (block(0x21, 0x00, b"anything"), None),
        (block(0x20, 0x00, b""), None),
        // LOCAL: whatever follows is skipped.
        (block(0x20, 0x11, &FOUR), None),
        (block(0x20, 0x11, b"x"), None),
        (block(0x20, 0xff, &[0; 100]), None),
        (block(0x20, 0x00, &[0; MOST_BYTES - 16]), None),
    ]
}

#[test]
fn f4_proxy_headers_of_both_versions() {
    for (header, source) in good() {
        let shown = header.escape_ascii().to_string();
        let expected = Ok((header.len(), source.map(str::to_owned)));
        assert_eq!(read(&header), expected, "{shown}");
        // What follows is not part of it, and every shorter piece is incomplete.
        let mut more = header.clone();
        more.extend_from_slice(b"GET / HTTP/1.1\r\n");
        assert_eq!(read(&more), expected, "{shown}");
        for len in 0..header.len() {
            assert_eq!(read(&header[..len]), Err("incomplete"), "{len} of {shown}");
        }
    }
}

#[test]
fn f4_proxy_lines_that_are_none() {
    let lines: &[&[u8]] = &[
        b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 4711\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80 \r\n",
        b"PROXY TCP4  192.0.2.1 10.0.0.1 4711 80\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 65536\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 04711 80\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 +1 80\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1  80\r\n",
        b"PROXY TCP4 192.0.2.01 10.0.0.1 1 80\r\n",
        b"PROXY TCP4 2001:db8::1 ::1 1 80\r\n",
        b"PROXY TCP6 192.0.2.1 10.0.0.1 1 80\r\n",
        b"PROXY TCP6 fe80::1%lo ::1 1 80\r\n",
        b"PROXY TCP4 192.0.2.1 host 1 80\r\n",
        b"PROXY UDP4 192.0.2.1 10.0.0.1 1 80\r\n",
        b"PROXY tcp4 192.0.2.1 10.0.0.1 1 80\r\n",
        b"PROXY \r\n",
        b"PROXY UNKNOWN \0\r\n",
        b"PROXY UNKNOWN x\r\r\n",
    ];
    for line in lines {
        let shown = line.escape_ascii().to_string();
        assert_eq!(read(line), Err("proxy_line_malformed"), "{shown}");
    }
    for start in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"proxy TCP4",
        b"PROXZ",
        b"P\r\n",
        b"\r\n\r\n\0\r\nQUIX",
        b"\n",
    ] {
        assert_eq!(read(start), Err("proxy_header_missing"));
    }
    let mut long = b"PROXY UNKNOWN ".to_vec();
    long.resize(106, b'x');
    assert_eq!(read(&long), Err("incomplete"));
    long.push(b'x');
    assert_eq!(read(&long), Err("proxy_line_too_long"));
}

#[test]
fn f4_proxy_blocks_that_are_none() {
    for command in (0..=255).filter(|c| ![0x20, 0x21].contains(c)) {
        let bytes = block(command, 0x11, &FOUR);
        assert_eq!(read(&bytes), Err("proxy_version_or_command"));
        assert_eq!(read(&bytes[..13]), Err("proxy_version_or_command"));
    }
    for family in (0..=255).filter(|f| ![0x00, 0x11, 0x21, 0x31].contains(f)) {
        let bytes = block(0x21, family, &[0; 300]);
        assert_eq!(read(&bytes), Err("proxy_addresses"), "{family:#x}");
    }
    let faults: [(u8, Vec<u8>); 8] = [
        (0x11, vec![]),
        (0x11, FOUR[..11].to_vec()),
        (0x21, six()[..35].to_vec()),
        (0x31, vec![0; 215]),
        (0x11, with_tlvs(&FOUR, b"\x01")),
        (0x11, with_tlvs(&FOUR, b"\x01\0")),
        (0x11, with_tlvs(&FOUR, b"\x01\0\x03h2")),
        (0x11, with_tlvs(&FOUR, b"\x01\0\x02h2\x02")),
    ];
    for (family, content) in faults {
        assert_eq!(read(&block(0x21, family, &content)), Err("proxy_addresses"));
    }
    let long = block(0x20, 0x00, &[0; MOST_BYTES - 15]);
    assert_eq!(read(&long), Err("proxy_header_too_long"));
}

/// However the bytes are cut: a piece never says something else than the whole.
#[test]
fn f4_a_beginning_never_contradicts_the_whole() {
    let good = good();
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut bytes = random.pick(&good).0.clone();
        bytes.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len().min(140));
            bytes[at] = *random.pick(b"\0\r\n PROXY0129:.f\x21\x11\xff");
        }
        let whole = parse(&bytes);
        for len in 0..bytes.len().min(160) {
            let part = parse(&bytes[..len]);
            assert!(
                part == ProxyHeader::Incomplete || part == whole,
                "seed {seed}, {len} bytes: {part:?}, then {whole:?}"
            );
        }
    }
}
