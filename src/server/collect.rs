//! A request body that is read whole, or for a beginning, before the upstream is dialled (I37).
//!
//! ```text
//!  judge ─▶ prepare ─▶ Order::Collect ─▶ collect_next ⇄ collect_received
//!                                              ▼ Input::Collected
//!                       target chosen ─▶ Order::Connect ─▶ head written, sent with the body
//! ```
//!
//! Nothing but bytes that have come takes memory, and all of it is charged to
//! `server.buffer_memory`.

use toron_reactor::{Buf, Engine};

use super::body::{Framing, Source};
use super::collected::Collected;
use super::session::Session;
use super::upload::take_portion;
use super::Kit;
use crate::http::RequestBody;
use crate::proxy::transaction::{Input, Side};

/// Pieces of memory of that size that a reactor keeps.
const ROOMS_KEPT: usize = 2;

impl<E: Engine> Kit<'_, '_, E> {
    /// Memory for a body of unknown length.
    pub(crate) fn room(&mut self) -> Vec<u8> {
        self.core.rooms.pop().unwrap_or_default()
    }

    /// Lets go of what was collected.
    pub(crate) fn release_collected(&mut self, session: &mut Session) {
        let collected = session.exchange.as_mut().and_then(|x| x.collected.take());
        if let Some(room) = collected.and_then(Collected::into_room) {
            if self.core.rooms.len() < ROOMS_KEPT {
                self.core.rooms.push(room);
            }
        }
    }

    /// Takes what has come of the body, then waits for more.
    pub(crate) fn collect_next(&mut self, session: &mut Session) {
        if let Some(mut input) = session.input.take() {
            input.consume(std::mem::take(&mut session.request_len));
            if !input.is_empty() {
                return self.collect_received(session, input);
            }
        }
        self.receive(session);
        self.step(session, Input::UploadWaits(Side::Client));
    }

    /// Body bytes have come.
    pub(crate) fn collect_received(&mut self, session: &mut Session, mut buf: Buf) {
        let portion = match take_portion(session, &mut buf, Framing::Plain) {
            Ok(portion) => portion,
            Err(reason) => {
                self.step(session, Input::BadBody(reason));
                return;
            }
        };
        let input = Input::Received {
            bytes: portion.bytes as u64,
            last: portion.last,
        };
        if !self.step(session, input) {
            return;
        }
        let memory = &self.core.shared.memory;
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let limit = exchange.snapshot.settings.buffer_memory;
        let Some(collected) = exchange.collected.as_mut() else {
            return;
        };
        if !collected.keep(&buf, memory, limit) {
            exchange.observed = memory.used().saturating_add(buf.len() as u64);
            self.step(session, Input::NoMemory);
            return;
        }
        drop(buf);
        if portion.last || collected.is_enough() {
            self.collected(session, portion.last);
        } else {
            self.collect_next(session);
        }
    }

    /// The body is whole, or enough of it is here.
    fn collected(&mut self, session: &mut Session, whole: bool) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        if let Some(collected) = exchange.collected.as_mut() {
            collected.close(whole, exchange.facts.body == RequestBody::Chunked);
        }
        if whole {
            exchange.upload.source = Source::None;
        }
        self.step(session, Input::Collected);
    }
}
