//! The small grammar that everything else is made of: tokens, lists, numbers.

/// The versions that toron speaks. A later minor version is refused (505), so
/// no third value exists behind the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no chunked coding, no interim responses, closes by default.
    Http10,
    /// HTTP/1.1.
    Http11,
}

const TCHAR: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// ALPHA, DIGIT and `symbols`, to be asked by byte.
pub(super) const fn alphanumeric_and(symbols: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut i = 0;
    while i < symbols.len() {
        table[symbols[i] as usize] = true;
        i += 1;
    }
    let mut b = 0;
    while b < 128 {
        if (b as u8).is_ascii_alphanumeric() {
            table[b] = true;
        }
        b += 1;
    }
    table
}

/// Whether `b` may stand in a token (`tchar`, RFC 9110 section 5.6.2).
#[inline]
pub fn is_tchar(b: u8) -> bool {
    TCHAR[usize::from(b)]
}

/// Whether `s` is a token: one or more `tchar`.
pub fn is_token(s: &[u8]) -> bool {
    !s.is_empty() && s.iter().all(|&b| is_tchar(b))
}

/// How many leading bytes of `s` are `tchar`.
#[inline]
pub fn token_run(s: &[u8]) -> usize {
    s.iter().position(|&b| !is_tchar(b)).unwrap_or(s.len())
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Marks (in the high bits) bytes of `x` below `n`, for `n` up to 128. Exact
/// for the lowest marked byte, which is all that "is there any" needs.
#[inline]
fn below(x: u64, n: u8) -> u64 {
    x.wrapping_sub(LOW * u64::from(n)) & !x & HIGH
}

#[inline]
fn equal(x: u64, n: u8) -> u64 {
    below(x ^ (LOW * u64::from(n)), 1)
}

#[inline]
fn run(s: &[u8], word_stops: impl Fn(u64) -> bool, byte_stops: impl Fn(u8) -> bool) -> usize {
    let mut at = 0;
    for word in s.chunks_exact(8) {
        let mut w = [0; 8];
        w.copy_from_slice(word);
        if word_stops(u64::from_le_bytes(w)) {
            break;
        }
        at += 8;
    }
    let tail = s.get(at..).unwrap_or_default();
    at + tail
        .iter()
        .position(|&b| byte_stops(b))
        .unwrap_or(tail.len())
}

/// How many leading bytes are visible ASCII (`0x21..=0x7e`), eight at a time.
#[inline]
pub fn visible_run(s: &[u8]) -> usize {
    run(
        s,
        |w| (below(w, 0x21) | equal(w, 0x7f) | (w & HIGH)) != 0,
        |b| !b.is_ascii_graphic(),
    )
}

/// How many leading bytes may stand in a field value without a closer look:
/// space, visible ASCII and obs-text (HTAB is allowed too, but stops the run).
#[inline]
pub fn text_run(s: &[u8]) -> usize {
    run(
        s,
        |w| (below(w, 0x20) | equal(w, 0x7f)) != 0,
        |b| b < 0x20 || b == 0x7f,
    )
}

/// Whether `b` is among the bytes of `s`, eight at a time.
#[inline]
pub fn has_byte(s: &[u8], b: u8) -> bool {
    let word = |w: [u8; 8]| equal(u64::from_le_bytes(w), b);
    match s.last_chunk::<8>() {
        Some(&last) => {
            let whole = s.chunks_exact(8).fold(0, |found, w| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(w);
                found | word(bytes)
            });
            // The last word may overlap the one before.
            whole | word(last) != 0
        }
        None => s.contains(&b),
    }
}

/// `s` without optional white space (SP, HTAB) at both ends.
pub fn trim_ows(s: &[u8]) -> &[u8] {
    let blank = |b: &u8| *b == b' ' || *b == b'\t';
    let start = s.iter().position(|b| !blank(b)).unwrap_or(s.len());
    let end = s.iter().rposition(|b| !blank(b)).map_or(start, |i| i + 1);
    s.get(start..end).unwrap_or_default()
}

/// The elements of a comma-separated list, trimmed, empty ones left out
/// (RFC 9110 section 5.6.1). Quoted strings are not understood: none of the
/// lists that toron reads has them.
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&b| b == b',')
        .map(trim_ows)
        .filter(|e| !e.is_empty())
}

/// A number of digits only that fits 64 bits; anything else is `None`.
pub fn decimal(s: &[u8]) -> Option<u64> {
    match s.len() {
        0 => None,
        // 19 digits cannot overflow.
        1..=19 => {
            let (n, worst) = s.iter().fold((0u64, 0u8), |(n, worst), &b| {
                let digit = b.wrapping_sub(b'0');
                (
                    n.wrapping_mul(10).wrapping_add(u64::from(digit)),
                    worst.max(digit),
                )
            });
            (worst <= 9).then_some(n)
        }
        _ => s.iter().try_fold(0u64, |n, &b| {
            if !b.is_ascii_digit() {
                return None;
            }
            n.checked_mul(10)?.checked_add(u64::from(b - b'0'))
        }),
    }
}

/// Appends `n` in decimal.
pub fn push_decimal(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0u8; 20];
    let mut used = 0;
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + u8::try_from(n % 10).unwrap_or(0);
        used += 1;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(20 - used..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn runs_agree_with_the_plain_definition_at_every_offset() {
        for b in 0..=255u8 {
            for at in 0..20 {
                let mut s = [b'a'; 20];
                s[at] = b;
                let visible = if b.is_ascii_graphic() { 20 } else { at };
                assert_eq!(visible_run(&s), visible, "{b:#x} at {at}");
                let text = if b >= 0x20 && b != 0x7f { 20 } else { at };
                assert_eq!(text_run(&s), text, "{b:#x} at {at}");
            }
        }
    }

    #[test]
    fn a_byte_is_found_at_every_offset_of_every_length() {
        for len in 0..20 {
            for b in [0, b'_', 0x7f, 0x80, 0xff] {
                let mut s = vec![b ^ 1; len];
                assert!(!has_byte(&s, b), "{b:#x} in {len}");
                for at in 0..len {
                    s[at] = b;
                    assert!(has_byte(&s, b), "{b:#x} at {at} of {len}");
                    s[at] = b ^ 0x80;
                }
            }
        }
    }

    #[test]
    fn lists_and_numbers() {
        let items: Vec<_> = list(b" a ,\tb,, c").collect();
        assert_eq!(items, [b"a", b"b", b"c"]);
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!(decimal(b""), None);
        assert_eq!(decimal(b"+5"), None);
        assert_eq!(
            decimal(b"9999999999999999999"),
            Some(9_999_999_999_999_999_999)
        );
        assert_eq!(decimal(b"00000000000000000000007"), Some(7));
        for b in (0..=255).filter(|b: &u8| !b.is_ascii_digit()) {
            assert_eq!(decimal(&[b'1', b]), None, "{b:#x}");
            assert_eq!(decimal(&[b; 20]), None, "{b:#x}");
        }
        for n in [0, 7, 10, 65536, u64::MAX] {
            let mut out = Vec::new();
            push_decimal(&mut out, n);
            assert_eq!(out, n.to_string().as_bytes());
        }
        assert_eq!(trim_ows(b" \t "), b"");
    }
}
