//! The fields that a proxy treats specially, and the storage for parsed fields.

use std::mem::MaybeUninit;

use super::syntax::list;

/// Storage for one parsed field.
pub type FieldSlot<'b> = MaybeUninit<httparse::Header<'b>>;

/// Fields that toron takes of one head at most, whatever the configuration says: room for so many
/// is set apart on the stack.
pub const MOST_FIELDS: usize = 256;

/// Room for `N` fields on the stack, not initialised (it costs nothing).
pub fn field_slots<'b, const N: usize>() -> [FieldSlot<'b>; N] {
    [const { MaybeUninit::uninit() }; N]
}

/// A field name that means something to toron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Name {
    Connection,
    ContentLength,
    ContentType,
    Expect,
    Forwarded,
    Host,
    Http2Settings,
    KeepAlive,
    Location,
    ProxyAuthenticate,
    ProxyAuthorization,
    ProxyConnection,
    SetCookie,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    Via,
    XAccelBuffering,
    XForwardedFor,
    XForwardedHost,
    XForwardedPrefix,
    XForwardedProto,
    XRealIp,
    XRequestId,
    XToronAdminKey,
    Other,
}

const NAMES: [(&str, Name); 26] = [
    ("connection", Name::Connection),
    ("content-length", Name::ContentLength),
    ("content-type", Name::ContentType),
    ("expect", Name::Expect),
    ("forwarded", Name::Forwarded),
    ("host", Name::Host),
    ("http2-settings", Name::Http2Settings),
    ("keep-alive", Name::KeepAlive),
    ("location", Name::Location),
    ("proxy-authenticate", Name::ProxyAuthenticate),
    ("proxy-authorization", Name::ProxyAuthorization),
    ("proxy-connection", Name::ProxyConnection),
    ("set-cookie", Name::SetCookie),
    ("te", Name::Te),
    ("trailer", Name::Trailer),
    ("transfer-encoding", Name::TransferEncoding),
    ("upgrade", Name::Upgrade),
    ("via", Name::Via),
    ("x-accel-buffering", Name::XAccelBuffering),
    ("x-forwarded-for", Name::XForwardedFor),
    ("x-forwarded-host", Name::XForwardedHost),
    ("x-forwarded-prefix", Name::XForwardedPrefix),
    ("x-forwarded-proto", Name::XForwardedProto),
    ("x-real-ip", Name::XRealIp),
    ("x-request-id", Name::XRequestId),
    ("x-toron-admin-key", Name::XToronAdminKey),
];

/// A known name where [`Name::of`] looks for it: its text in three words, and in three more the bit in
/// which the cases of a letter differ, where a letter stands.
#[derive(Clone, Copy)]
struct Known {
    text: [u64; 3],
    case: [u64; 3],
    len: usize,
    name: Name,
}

/// Bytes of three words: no name is longer.
const LONGEST: usize = 24;
const PLACES: usize = 64;

/// Where a name stands. The factors were found by trial: no two names meet.
const fn place(len: usize, first: u8, last: u8) -> usize {
    (len + 2 * (first | 0x20) as usize + 20 * (last | 0x20) as usize) % PLACES
}

static KNOWN: [Known; PLACES] = {
    let mut table = [Known {
        text: [0; 3],
        case: [0; 3],
        len: 0,
        name: Name::Other,
    }; PLACES];
    let mut i = 0;
    while i < NAMES.len() {
        let text = NAMES[i].0.as_bytes();
        let entry = &mut table[place(text.len(), text[0], text[text.len() - 1])];
        assert!(entry.len == 0, "two names meet: find other factors");
        assert!(text.len() <= LONGEST);
        entry.name = NAMES[i].1;
        entry.len = text.len();
        let mut at = 0;
        while at < text.len() {
            let shift = at % 8 * 8;
            entry.text[at / 8] |= (text[at] as u64) << shift;
            if text[at].is_ascii_lowercase() {
                entry.case[at / 8] |= 0x20 << shift;
            }
            at += 1;
        }
        i += 1;
    }
    table
};

impl Name {
    /// Which field `name` is, in any case of letters.
    #[inline]
    pub fn of(name: &str) -> Name {
        let bytes = name.as_bytes();
        let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else {
            return Name::Other;
        };
        let known = &KNOWN[place(bytes.len(), first, last)];
        if known.len != bytes.len() {
            return Name::Other;
        }
        let differing = words(bytes).into_iter().zip(known.case).zip(known.text);
        let differing = differing.fold(0, |all, ((word, case), text)| all | ((word | case) ^ text));
        if differing == 0 {
            known.name
        } else {
            Name::Other
        }
    }

    /// Whether the field belongs to one connection and is removed in both
    /// directions (R11; `Te` and `Upgrade` are put back where they may pass).
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Name::Connection
                | Name::KeepAlive
                | Name::ProxyConnection
                | Name::ProxyAuthenticate
                | Name::ProxyAuthorization
                | Name::Te
                | Name::TransferEncoding
                | Name::Upgrade
        )
    }

    /// Whether toron writes the field of a request itself (R12), so that what
    /// a client says about it is at most an input.
    pub fn is_set_by_toron(self) -> bool {
        matches!(
            self,
            Name::XForwardedFor
                | Name::XForwardedHost
                | Name::XForwardedPrefix
                | Name::XForwardedProto
                | Name::XRealIp
                | Name::XRequestId
        )
    }
}

/// The options of all `Connection` fields, in order.
pub fn connection_options<'f, 'b: 'f>(
    fields: &'f [httparse::Header<'b>],
) -> impl Iterator<Item = &'b [u8]> + 'f {
    fields
        .iter()
        .filter(|f| f.name.eq_ignore_ascii_case("connection"))
        .flat_map(|f| list(f.value))
}

/// Whether a `Connection` field names `name`: it goes no further than this hop.
pub(super) fn is_nominated(fields: &[httparse::Header<'_>], name: &str) -> bool {
    connection_options(fields).any(|o| o.eq_ignore_ascii_case(name.as_bytes()))
}

/// Up to 24 bytes as words, the first byte lowest, zeros behind the last. Read in overlapping pieces of
/// fixed sizes: with a copy of unknown length nginx's response head took 4,863 instructions, so 4,544.
#[inline]
fn words(bytes: &[u8]) -> [u64; 3] {
    if let (Some(front), Some(back)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (front, back) = (u64::from_le_bytes(*front), u64::from_le_bytes(*back));
        return match bytes.get(8..).and_then(<[u8]>::first_chunk) {
            None => [front, tail(back, bytes.len() - 8), 0],
            Some(middle) => {
                let third = tail(back, bytes.len() - 16);
                [front, u64::from_le_bytes(*middle), third]
            }
        };
    }
    let half = |half: &[u8; 4]| u64::from(u32::from_le_bytes(*half));
    if let (Some(front), Some(back)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return [half(front) | half(back) << ((bytes.len() - 4) * 8), 0, 0];
    }
    let byte = |word, &byte: &u8| word << 8 | u64::from(byte);
    [bytes.iter().rev().fold(0, byte), 0, 0]
}

/// The last `len` bytes of a word, at most 8, moved to the front.
#[inline]
fn tail(word: u64, len: usize) -> u64 {
    match len {
        0 => 0,
        len => word >> ((8 - len) * 8),
    }
}

/// The fields that a proxy passes on as they came, whatever holds otherwise: a bit for each of the
/// first 64. The others are looked at again when the head is written anew.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plain(u64);

impl Plain {
    /// Field number `at` is one.
    #[inline]
    pub(super) fn add(&mut self, at: usize) {
        if at < 64 {
            self.0 |= 1 << at;
        }
    }

    /// Whether field number `at` is one.
    #[inline]
    pub(super) fn holds(self, at: usize) -> bool {
        at < 64 && self.0 >> at & 1 == 1
    }
}

/// The bytes between the colon and the line end of `field`, white space
/// included, which the parser has cut off. `head` must be what was parsed.
pub(super) fn untrimmed<'b>(head: &'b [u8], field: &httparse::Header<'b>) -> &'b [u8] {
    let name_at = (field.name.as_ptr() as usize).wrapping_sub(head.as_ptr() as usize);
    let colon = name_at.saturating_add(field.name.len());
    let rest = head.get(colon.saturating_add(1)..).unwrap_or_default();
    let end = rest
        .iter()
        .position(|&b| b == b'\r' || b == b'\n')
        .unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_each_byte_once() {
        for len in 0..=24 {
            let bytes: Vec<u8> = (1..=len).collect();
            let words = words(&bytes).map(u64::to_le_bytes).concat();
            let zeros = vec![0; 24 - bytes.len()];
            assert_eq!(words, [bytes, zeros].concat(), "{len}");
        }
    }

    /// Bytes that differ from a letter, a digit or a hyphen in the bit of its case only.
    #[test]
    fn a_name_that_is_almost_known_is_not() {
        for (text, _) in NAMES {
            for at in 0..text.len() {
                let mut other = text.as_bytes().to_vec();
                for bit in [0x01, 0x10, 0x20, 0x40] {
                    other[at] = text.as_bytes()[at] ^ bit;
                    let other = String::from_utf8_lossy(&other);
                    let same = other.eq_ignore_ascii_case(text);
                    let known = NAMES.iter().any(|(n, _)| n.eq_ignore_ascii_case(&other));
                    assert_eq!(Name::of(&other) != Name::Other, same || known, "{other:?}");
                }
            }
        }
    }

    #[test]
    fn every_known_name_is_found_in_any_case() {
        for (text, name) in NAMES {
            assert_eq!(Name::of(text), name);
            assert_eq!(Name::of(&text.to_ascii_uppercase()), name);
            assert_eq!(
                Name::of(&text.replace('-', "_")) == name,
                !text.contains('-')
            );
        }
        assert_eq!(Name::of(""), Name::Other);
        assert_eq!(Name::of("x-very-long-name-that-nobody-knows"), Name::Other);
    }
}
