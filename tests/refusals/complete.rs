//! Every reason that there is, is provoked: here, with the answer and the limit that it must name, or
//! where it is said.

use std::collections::BTreeSet;
use std::path::Path;

use toron::http::{Party, Reason};

use super::cases::{of_heads, of_routes};
use super::malformed;

/// Reasons that tests of their own provoke in this file's siblings.
const BY_OWN_TESTS: &[Reason] = &[
    Reason::ForwardedHeadTooLarge,
    Reason::AdminDisabled,
    Reason::AdminRequest,
    Reason::RouteFull,
    Reason::LocalResources,
    Reason::OutOfDescriptors,
    Reason::TargetsFull,
    Reason::TargetsUnhealthy,
    Reason::Denied,
    Reason::Blocked,
    Reason::AutoBlocked,
    Reason::RateLimit,
    Reason::ConnectionLimit,
    Reason::AddressConnectionLimit,
    Reason::BlockedByHand,
    Reason::UpstreamLeftTunnel,
    Reason::Shutdown,
];

/// Where others are provoked, since they need a state that belongs there.
const ELSEWHERE: &[(Reason, &str)] = &[
    (Reason::PathNotRooted, "src/http/tests/paths.rs"),
    (Reason::PathTooLong, "src/http/tests/paths.rs"),
    (
        Reason::ProxyHeaderMissing,
        "src/http/tests/proxy_headers.rs",
    ),
    (Reason::ProxyLineTooLong, "src/http/tests/proxy_headers.rs"),
    (
        Reason::ProxyLineMalformed,
        "src/http/tests/proxy_headers.rs",
    ),
    (
        Reason::ProxyVersionOrCommand,
        "src/http/tests/proxy_headers.rs",
    ),
    (
        Reason::ProxyHeaderTooLong,
        "src/http/tests/proxy_headers.rs",
    ),
    (Reason::ProxyAddresses, "src/http/tests/proxy_headers.rs"),
    (Reason::MinBodyRate, "tests/drills.rs"),
    (Reason::BodyTimeout, "tests/deadlines.rs"),
    (Reason::WriteTimeout, "tests/deadlines.rs"),
    (Reason::UpgradeIdleTimeout, "tests/slow_peers.rs"),
    (Reason::UpstreamIdleTimeout, "tests/deadlines.rs"),
    (
        Reason::ConnectTimeout,
        "src/proxy/transaction/tests/upstreams.rs",
    ),
    (
        Reason::ResponseTruncated,
        "src/proxy/transaction/tests/upstreams.rs",
    ),
];

/// A second line of defence: whatever would lead there is refused under another name before.
const UNREACHED: &[Reason] = &[Reason::BadHead];

fn of_tables() -> BTreeSet<&'static str> {
    let malformed = [malformed::lines(), malformed::fields(), malformed::chunks()];
    let others = [of_heads(), of_routes(), malformed::of_upstreams()];
    let all = malformed.into_iter().chain(others).flatten();
    all.map(|case| case.reason).collect()
}

/// Whoever adds a reason adds a case. What clients do to themselves is no refusal.
#[test]
fn every_reason_has_a_case() {
    let tables = of_tables();
    for reason in Reason::ALL {
        let elsewhere = ELSEWHERE.iter().filter(|(its, _)| *its == reason).count();
        let places = usize::from(tables.contains(reason.code()))
            + usize::from(BY_OWN_TESTS.contains(&reason))
            + elsewhere
            + usize::from(UNREACHED.contains(&reason))
            + usize::from(reason.ended_by() == Party::Client);
        assert_eq!(places, 1, "{reason}: cases in so many places");
    }
}

/// The files that are said to provoke a reason name it.
#[test]
fn cases_elsewhere_are_there() {
    let own = [
        "tests/refusals.rs",
        "tests/refusals/firewall.rs",
        "tests/refusals/own.rs",
    ];
    let own = own.map(read).concat();
    for reason in BY_OWN_TESTS {
        assert!(names(&own, *reason), "{reason}");
    }
    for (reason, file) in ELSEWHERE {
        assert!(names(&read(file), *reason), "{reason}: {file}");
    }
}

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn names(text: &str, reason: Reason) -> bool {
    text.contains(&format!("\"{reason}\"")) || text.contains(&format!("Reason::{reason:?}"))
}
