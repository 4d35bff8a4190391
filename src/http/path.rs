//! Paths (I6): one normal form, made once, which both matcher and upstream see.

use super::reason::Reason;

/// The normal form of `raw`: percent-encoded unreserved characters decoded
/// once, dot segments removed, everything else as sent. A path that is normal
/// already is returned as it is; otherwise the result is written to `scratch`,
/// which must be as long as `raw` (the normal form is never longer).
pub fn normalise<'a>(raw: &'a [u8], scratch: &'a mut [u8]) -> Result<&'a [u8], Reason> {
    if raw.first() != Some(&b'/') {
        return Err(Reason::PathNotRooted);
    }
    if is_plainly_normal(raw)? {
        return Ok(raw);
    }
    let len = rebuild(raw, scratch)?;
    scratch.get(..len).ok_or(Reason::PathTooLong)
}

/// Classes of bytes, for [`is_plainly_normal`].
const BAD: u8 = 1;
const ESCAPE: u8 = 2;
const DOT: u8 = 4;

const CLASS: [u8; 256] = {
    let mut table = [0; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = match b as u8 {
            b'#' | b'?' | b'\\' => BAD,
            b'%' => ESCAPE,
            b'.' => DOT,
            b if b.is_ascii_graphic() => 0,
            _ => BAD,
        };
        b += 1;
    }
    table
};

/// Whether nothing in `raw` can need work: no escape and no segment that begins
/// with a dot.
fn is_plainly_normal(raw: &[u8]) -> Result<bool, Reason> {
    let classes = raw.iter().fold(0, |all, &b| all | CLASS[usize::from(b)]);
    if classes & BAD != 0 {
        return Err(Reason::BadPathByte);
    }
    let dots = classes & DOT != 0 && raw.windows(2).any(|pair| pair == b"/.");
    Ok(classes & ESCAPE == 0 && !dots)
}

fn rebuild(raw: &[u8], out: &mut [u8]) -> Result<usize, Reason> {
    let mut len = 0;
    let mut segments = raw
        .get(1..)
        .unwrap_or_default()
        .split(|&b| b == b'/')
        .peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        let body = len + 1;
        let end = body + decode(segment, out.get_mut(body..).ok_or(Reason::PathTooLong)?)?;
        let decoded = out.get(body..end).unwrap_or_default();
        let keeps_slash = match decoded {
            b"." => last,
            b".." => {
                let kept = out.get(..len).unwrap_or_default();
                len = kept
                    .iter()
                    .rposition(|&b| b == b'/')
                    .ok_or(Reason::PathAboveRoot)?;
                last
            }
            _ => {
                refuse_hidden_dots(decoded)?;
                *out.get_mut(len).ok_or(Reason::PathTooLong)? = b'/';
                len = end;
                false
            }
        };
        if keeps_slash {
            *out.get_mut(len).ok_or(Reason::PathTooLong)? = b'/';
            len += 1;
        }
    }
    if len == 0 {
        *out.first_mut().ok_or(Reason::PathTooLong)? = b'/';
        len = 1;
    }
    Ok(len)
}

fn decode(segment: &[u8], out: &mut [u8]) -> Result<usize, Reason> {
    let mut rest = segment;
    let mut len = 0;
    while let [b, tail @ ..] = rest {
        let (piece, tail): (&[u8], _) = match (*b, tail) {
            (b'%', [high, low, tail @ ..]) => match escape(*high, *low)? {
                0 => return Err(Reason::EncodedNul),
                c if is_unreserved(c) => (&[c], tail),
                _ => (rest.get(..3).unwrap_or_default(), tail),
            },
            (b'%', _) => return Err(Reason::BadPathEscape),
            (_, tail) => (rest.get(..1).unwrap_or_default(), tail),
        };
        out.get_mut(len..len + piece.len())
            .ok_or(Reason::PathTooLong)?
            .copy_from_slice(piece);
        len += piece.len();
        rest = tail;
    }
    Ok(len)
}

fn escape(high: u8, low: u8) -> Result<u8, Reason> {
    let digit = |b: u8| char::from(b).to_digit(16).ok_or(Reason::BadPathEscape);
    u8::try_from(digit(high)? * 16 + digit(low)?).map_err(|_| Reason::BadPathEscape)
}

fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~')
}

/// An upstream that decodes `%2F` (or `%5C`, on a system where that is a
/// separator) must not find a dot segment that the matcher has not seen.
fn refuse_hidden_dots(segment: &[u8]) -> Result<(), Reason> {
    let mut rest = segment;
    let mut part_start = true;
    let mut separators = 0;
    let mut hidden = false;
    while !rest.is_empty() {
        if let Some(tail) = after_encoded_separator(rest) {
            separators += 1;
            part_start = true;
            rest = tail;
            continue;
        }
        let after_dots = match rest {
            [b'.', b'.', tail @ ..] | [b'.', tail @ ..] => Some(tail),
            _ => None,
        };
        if let (true, Some(tail)) = (part_start, after_dots) {
            hidden |= tail.is_empty() || after_encoded_separator(tail).is_some();
        }
        part_start = false;
        rest = rest.get(1..).unwrap_or_default();
    }
    if hidden && separators > 0 {
        return Err(Reason::EncodedDotSegment);
    }
    Ok(())
}

fn after_encoded_separator(s: &[u8]) -> Option<&[u8]> {
    match s {
        [b'%', b'2', b'F' | b'f', tail @ ..] | [b'%', b'5', b'C' | b'c', tail @ ..] => Some(tail),
        _ => None,
    }
}

/// The segments of a path for matching: repeated slashes count as one, and a
/// trailing slash adds no segment.
pub fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/').filter(|s| !s.is_empty())
}

/// What is left of the normal path `path` behind `prefix`, if `prefix` matches
/// whole segments of it: empty, or beginning with `/`. Slashes that end
/// `prefix` do not matter; `/` matches everything and takes nothing away. Inner
/// empty segments of the rest stay (I6, R1).
pub fn strip_prefix<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let mut rest = path;
    for wanted in segments(prefix) {
        let start = rest.iter().position(|&b| b != b'/')?;
        let tail = rest.get(start..)?.strip_prefix(wanted)?;
        if !matches!(tail.first(), None | Some(b'/')) {
            return None;
        }
        rest = tail;
    }
    Some(rest)
}

/// Appends the target's own path and `rest` (from [`strip_prefix`], or a whole
/// path): `/v1` and `/x` give `/v1/x`, `/v1` and nothing `/v1`, nothing at all
/// `/` (R7).
pub fn push_joined(out: &mut Vec<u8>, target_path: &[u8], rest: &[u8]) {
    if rest.is_empty() {
        out.extend_from_slice(if target_path.is_empty() {
            b"/"
        } else {
            target_path
        });
        return;
    }
    out.extend_from_slice(trim_trailing_slashes(target_path));
    out.extend_from_slice(rest);
}

pub(super) fn trim_trailing_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
    path.get(..end).unwrap_or_default()
}
