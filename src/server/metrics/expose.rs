//! `GET /metrics` on a client connection.

use toron_reactor::Engine;

use super::cursor::Cursor;
use super::text::Format;
use crate::http::answer::write_piecewise_head;
use crate::http::{Method, Reason, Version};
use crate::proxy::transaction::ClientEnd;
use crate::server::admin::access::check_subnet;
use crate::server::builtin::{is_taken, only_reads, METRICS};
use crate::server::judge::{Arrival, Verdict};
use crate::server::session::{Session, Tag};
use crate::server::Kit;

impl<E: Engine> Kit<'_, '_, E> {
    /// Whether this is a request for the metrics, and the client may see them: by its address alone,
    /// as scrapers have no key. A route whose prefix is exactly `/metrics` takes the path.
    pub(in crate::server) fn asks_for_metrics(
        &self,
        session: &Session,
        arrival: &Arrival<'_, '_, '_>,
    ) -> Option<Result<(), Reason>> {
        let (snapshot, request) = (&self.core.snapshot, &arrival.request);
        if arrival.path != METRICS {
            return None;
        }
        let taken = !session.is_admin && is_taken(snapshot, request, arrival.path);
        if !taken && !self.core.serves_admin(session) {
            return Some(Err(Reason::NoRoute));
        }
        let (peer, client) = (session.peer, session.client.address);
        (!taken).then(|| check_subnet(&snapshot.settings, request, peer, client))
    }

    /// Answers with the metrics: the head is in the scratch buffer, what is behind it follows piece by
    /// piece.
    pub(in crate::server) fn expose(
        &mut self,
        session: &mut Session,
        arrival: &Arrival<'_, '_, '_>,
    ) -> Verdict {
        let facts = &arrival.request.facts;
        if !only_reads(&arrival.request) {
            return arrival.refuse_method("GET, HEAD");
        }
        let format = Format::accepted(arrival.request.field("accept"));
        let date = self.core.date(self.cx.now);
        let rendering = arrival.rendering(self.core.is_draining(), &date);
        let head = &mut self.core.scratch;
        head.clear();
        let keep_alive = write_piecewise_head(format.media_type(), &rendering, head);
        if facts.method == Method::Get {
            let chunked = facts.version != Version::Http10;
            let cursor = Cursor::new(arrival.snapshot, format, chunked);
            session.own().exposition = Some(Box::new(cursor));
        }
        Verdict::Written {
            whole: arrival.nothing_owed(),
            keep_alive,
            told: self.written(200, None),
            permit: None,
        }
    }

    /// An answer outside a transaction, or a piece of one, has been taken by the client.
    pub(in crate::server) fn answer_taken(&mut self, session: &mut Session, then: ClientEnd) {
        let exposition = session.own.as_mut().map(|own| &mut own.exposition);
        let Some(cursor) = exposition.and_then(Option::as_mut) else {
            return self.end_client(session, then);
        };
        // Of this reactor what it holds now; of the others what they held after their last turn.
        self.core.publish(self.cx.engine.stats());
        let mut piece = std::mem::take(&mut self.core.scratch);
        piece.clear();
        if !cursor.write(&self.core.shared, self.cx.now, &mut piece) {
            session.own().exposition = None;
        }
        self.send_text(session, &piece, Tag::Answer);
        self.core.scratch = piece;
    }
}
