//! What toron answers by itself on the traffic listener.

use toron_reactor::Engine;

use super::lookup::lookup;
use super::session::Session;
use super::Kit;
use crate::http::answer::{Answer, FixedAnswer};
use crate::http::{Method, RequestHead};
use crate::policy::router::Lookup;
use crate::policy::settings::FixedResponse;
use crate::policy::snapshot::Snapshot;

impl<E: Engine> Kit<'_, '_, E> {
    /// The answer to a monitor, which costs no token and is limited by nothing.
    pub(crate) fn probe(
        &self,
        session: &Session,
        snapshot: &Snapshot,
        request: &RequestHead<'_, '_>,
        path: &[u8],
    ) -> Option<Answer> {
        if path != HEALTH {
            return None;
        }
        // A monitor must not stay green while the application behind is dead.
        let taken = !session.is_admin && is_taken(snapshot, request, path);
        let answer = if self.core.is_draining() {
            Answer::Draining
        } else {
            Answer::Healthy
        };
        (only_reads(request) && !taken).then_some(answer)
    }
}

/// Where monitors ask.
pub(super) const HEALTH: &[u8] = b"/health";
/// Where scrapers ask.
pub(super) const METRICS: &[u8] = b"/metrics";

/// Whether the path is one of the admin API's.
pub(super) fn is_internal(path: &[u8]) -> bool {
    path.strip_prefix(b"/internal")
        .is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
}

/// Whether a route whose prefix is exactly this path takes it from toron.
pub(super) fn is_taken(snapshot: &Snapshot, request: &RequestHead<'_, '_>, path: &[u8]) -> bool {
    matches!(
        lookup(snapshot, request, path),
        Lookup::Route(route) if route.prefix.as_bytes() == path
    )
}

/// The methods of monitors and scrapers.
pub(super) fn only_reads(request: &RequestHead<'_, '_>) -> bool {
    matches!(request.facts.method, Method::Get | Method::Head)
}

/// The answer that a configuration spells out.
pub(crate) fn fixed_answer(fixed: &FixedResponse) -> FixedAnswer<'_> {
    FixedAnswer {
        status: fixed.status,
        fields: &fixed.headers,
        body: fixed.body.as_bytes(),
    }
}
