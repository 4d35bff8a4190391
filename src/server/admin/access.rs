//! Who may use the built-in endpoints.

use std::net::IpAddr;

use crate::http::answer::Answer;
use crate::http::RequestHead;
use crate::policy::settings::Settings;

/// Fields by which a proxy says that it passes a request on for somebody else.
const FORWARDED: [&str; 6] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Whether `client`, which asks on a connection from `peer`, is in `admin.subnets`. Nobody must be
/// able to hide behind a proxy's address, so a forwarding field is let pass only where a trusted
/// proxy says who the client is.
pub(crate) fn check_subnet(
    settings: &Settings,
    request: &RequestHead<'_, '_>,
    peer: IpAddr,
    client: IpAddr,
) -> Result<(), Answer> {
    let relayed = FORWARDED.iter().any(|name| request.field(name).is_some());
    let said = settings.trusted_proxies.contains(peer)
        && request.field(&settings.client_ip_header).is_some();
    if settings.admin.admits(client) && (said || !relayed) {
        Ok(())
    } else {
        Err(Answer::AdminSubnet)
    }
}

/// Whether `client` may use `/internal/`: there is a key, the client is in `admin.subnets`, and its
/// request carries the key.
pub(crate) fn check(
    settings: &Settings,
    request: &RequestHead<'_, '_>,
    peer: IpAddr,
    client: IpAddr,
) -> Result<(), Answer> {
    let Some(key) = &settings.admin.key else {
        return Err(Answer::NotFound);
    };
    check_subnet(settings, request, peer, client)?;
    let given = request.field("x-toron-admin-key").or_else(|| {
        request
            .field("authorization")
            .and_then(|value| value.strip_prefix(b"Bearer "))
    });
    match given {
        Some(given) if same(given, key.as_bytes()) => Ok(()),
        _ => Err(Answer::Unauthorized),
    }
}

/// Comparison whose time depends on the length given only.
fn same(given: &[u8], key: &[u8]) -> bool {
    let mut difference = given.len() ^ key.len();
    for (i, byte) in given.iter().enumerate() {
        difference |= usize::from(byte ^ key.get(i % key.len().max(1)).copied().unwrap_or(0));
    }
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_whole() {
        assert!(same(b"secret", b"secret"));
        for wrong in [&b"secre"[..], b"secrets", b"Secret", b"", b"secretsecret"] {
            assert!(!same(wrong, b"secret"));
        }
        assert!(!same(b"x", b""));
    }
}
