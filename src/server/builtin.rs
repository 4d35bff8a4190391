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
        if path != b"/health" {
            return None;
        }
        let asks = matches!(request.facts.method, Method::Get | Method::Head);
        // A monitor must not stay green while the application behind is dead.
        let taken = !session.is_admin
            && matches!(
                lookup(snapshot, request, path),
                Lookup::Route(route) if route.prefix == "/health"
            );
        let answer = if self.core.is_draining() {
            Answer::Draining
        } else {
            Answer::Healthy
        };
        (asks && !taken).then_some(answer)
    }
}

/// The answer that a configuration spells out.
pub(crate) fn fixed_answer(fixed: &FixedResponse) -> FixedAnswer<'_> {
    FixedAnswer {
        status: fixed.status,
        fields: &fixed.headers,
        body: fixed.body.as_bytes(),
    }
}
