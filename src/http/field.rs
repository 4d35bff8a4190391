//! The fields that a proxy treats specially, and the storage for parsed fields.

use std::mem::MaybeUninit;

use super::syntax::list;

/// Storage for one parsed field.
pub type FieldSlot<'b> = MaybeUninit<httparse::Header<'b>>;

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

/// A known name where [`Name::of`] looks for it.
#[derive(Clone, Copy)]
struct Known {
    name: Name,
    len: usize,
    text: [u8; LONGEST],
    /// The bit in which the cases of a letter differ, where a letter stands.
    case: [u8; LONGEST],
}

/// Room for the longest name; a multiple of 8, so that names are compared by words.
const LONGEST: usize = 24;
const PLACES: usize = 64;

/// Where a name stands. The factors were found by trial: no two names meet.
const fn place(len: usize, first: u8, last: u8) -> usize {
    (len + 2 * (first | 0x20) as usize + 20 * (last | 0x20) as usize) % PLACES
}

static KNOWN: [Known; PLACES] = {
    let mut table = [Known {
        name: Name::Other,
        len: 0,
        text: [0; LONGEST],
        case: [0; LONGEST],
    }; PLACES];
    let mut i = 0;
    while i < NAMES.len() {
        let text = NAMES[i].0.as_bytes();
        let entry = &mut table[place(text.len(), text[0], text[text.len() - 1])];
        assert!(entry.len == 0, "two names meet: find other factors");
        entry.name = NAMES[i].1;
        entry.len = text.len();
        let mut at = 0;
        while at < text.len() {
            entry.text[at] = text[at];
            entry.case[at] = if text[at].is_ascii_lowercase() {
                0x20
            } else {
                0
            };
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
        let mut room = [0; LONGEST];
        match room.get_mut(..known.len) {
            Some(place) if known.len == bytes.len() => place.copy_from_slice(bytes),
            _ => return Name::Other,
        }
        let cased = room.iter().zip(&known.case).zip(&known.text);
        // No early exit, so that the compiler takes words.
        let differs = cased.fold(0, |differs, ((b, case), text)| {
            differs | ((b | case) ^ text)
        });
        if differs == 0 {
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
