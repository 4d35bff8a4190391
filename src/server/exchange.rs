//! A request under way: carries out what the transaction orders.

use std::rc::Rc;

use toron_reactor::{Close, Engine, Op, Outcome};

use super::body::Framing;
use super::builtin::fixed_answer;
use super::failure;
use super::lane::Lane;
use super::prepare::Rebuilt;
use super::session::{Phase, Session, Tag};
use super::state::{Download, Upload};
use super::Kit;
use crate::http::answer::{Answer, Rendering, CONTINUE};
use crate::http::{HeadScanner, Method, Reason};
use crate::proxy::transaction::{self, ClientEnd, Ending, Input, Order, Orders};

/// Requests up to this length are copied when they may have to be sent again; longer ones, which
/// are few, stay in their buffer.
const KEPT_MOST: usize = 4096;

impl<E: Engine> Kit<'_, '_, E> {
    /// Tells the transaction and carries out what it orders. `false` when the exchange is over:
    /// then the caller must not touch it any more.
    pub(crate) fn step(&mut self, session: &mut Session, input: Input) -> bool {
        let orders = self.ask(session, input);
        self.carry_out(session, &orders)
    }

    /// Tells the transaction.
    pub(crate) fn ask(&mut self, session: &mut Session, input: Input) -> Orders {
        let now = self.now();
        match session.exchange.as_mut() {
            Some(exchange) => exchange.transaction.step(now, input),
            None => Orders::none(),
        }
    }

    /// Carries out orders. `false` when the exchange is over.
    pub(crate) fn carry_out(&mut self, session: &mut Session, orders: &Orders) -> bool {
        for order in orders.iter() {
            if !matches!(session.phase, Phase::Exchange) {
                return false;
            }
            self.note_moment(session, order);
            match order {
                Order::Connect {
                    fresh,
                    other_target,
                } => {
                    self.connect(session, fresh, other_target);
                }
                Order::DialNext => self.dial_next(session),
                Order::Blame => self.blame(session),
                Order::Collect => self.collect_next(session),
                Order::SendHead => self.send_request(session),
                Order::Upload => self.upload_next(session),
                Order::StopUpload => self.stop_upload(session),
                Order::SendContinue => {
                    self.send_text(session, CONTINUE, Tag::Continue);
                }
                Order::CloseUpstream => self.close_upstream(session),
                Order::Answer(reason) => self.answer_for(session, reason),
                Order::Finish(ending) => self.finish(session, ending),
                // Given in response to a head only; `download.rs` has it at hand.
                Order::SendInterim | Order::SkipInterim | Order::Download | Order::Tunnel => {
                    debug_assert!(false, "{order:?} without a response head");
                }
            }
        }
        matches!(session.phase, Phase::Exchange)
    }

    /// When the request reaches an upstream, for the log.
    fn note_moment(&self, session: &mut Session, order: Order) {
        let now = Some(self.cx.now);
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let moments = &mut exchange.moments;
        match order {
            Order::Connect { .. } => {
                moments.dialled = moments.dialled.or(now);
                (moments.connecting, moments.connected) = (now, None);
            }
            Order::SendHead => moments.connected = now,
            _ => {}
        }
    }

    /// Goes on with what waited for a buffer.
    pub(crate) fn resume_exchange(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        let (upload, download) = (
            exchange.transaction.upload(),
            exchange.transaction.download(),
        );
        if upload == transaction::Upload::Head
            && exchange.request.is_none()
            && !exchange.upstream_busy
        {
            return self.send_request(session);
        }
        if upload == transaction::Upload::Tunnel && !exchange.upstream_busy {
            return self.tunnel_sent_to_upstream(session);
        }
        if upload == transaction::Upload::Moving {
            self.upload_next(session);
        }
        if matches!(session.phase, Phase::Exchange) && download == transaction::Download::Moving {
            self.download_next(session);
        }
    }

    /// Something on its way to the client has been taken whole.
    pub(crate) fn exchange_sent(&mut self, session: &mut Session, tag: Tag) {
        match tag {
            Tag::Continue => {}
            Tag::Interim => {
                let download = session.exchange.as_ref().map(|x| x.transaction.download());
                // The upstream may have failed meanwhile: then an answer follows.
                if download == Some(transaction::Download::Interim)
                    && self.step(session, Input::InterimSent)
                {
                    self.response_next(session);
                }
            }
            Tag::Response => self.download_next(session),
            Tag::Answer => {
                self.step(session, Input::AnswerSent);
            }
            Tag::Tunnel => self.tunnel_sent_to_client(session),
        }
    }

    /// Something came from the client while a request is under way, or its head is awaited.
    pub(crate) fn client_received(&mut self, session: &mut Session, outcome: Outcome) {
        match session.phase {
            Phase::Idle | Phase::Head => self.head_received(session, outcome),
            Phase::Exchange => self.exchange_received(session, outcome),
            Phase::Taking => self.visit_received(session, outcome),
            // A receive that was cancelled in vain.
            Phase::Asking => match outcome {
                Outcome::Received { buf, .. } => session.ahead = Some(buf),
                Outcome::Eof { .. } => session.eof = true,
                Outcome::Cancelled { .. } => {}
                _ => self.visit_abandoned(session),
            },
            Phase::Answering { .. } => match outcome {
                Outcome::Received { buf, .. } => session.ahead = Some(buf),
                Outcome::Eof { .. } => session.eof = true,
                // The receive of a head that took too long.
                Outcome::Cancelled { .. } => {}
                _ => self.close(session, Close::Orderly),
            },
            Phase::Skipping { .. } => self.skip_received(session, outcome),
            Phase::Lingering { .. } => match outcome {
                Outcome::Received { n, .. } => {
                    if self.count_discarded(session, n) {
                        self.discard(session);
                    } else {
                        self.close(session, Close::Orderly);
                    }
                }
                Outcome::Cancelled { .. } => self.discard(session),
                _ => self.close(session, Close::Orderly),
            },
            Phase::Gone => {}
        }
    }

    fn exchange_received(&mut self, session: &mut Session, outcome: Outcome) {
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        let upload = exchange.transaction.upload();
        let whole = exchange.transaction.request_is_whole();
        match outcome {
            Outcome::Received { buf, .. } if upload == transaction::Upload::Tunnel => {
                self.tunnel_from_client(session, buf);
            }
            Outcome::Received { buf, .. } if upload == transaction::Upload::Moving && !whole => {
                self.upload_received(session, buf);
            }
            Outcome::Received { buf, .. } if upload == transaction::Upload::Collecting => {
                self.collect_received(session, buf);
            }
            Outcome::Received { buf, .. } => {
                session.ahead = Some(buf);
                if whole {
                    session.shelve_leftover();
                }
                self.watch_unread(session);
            }
            Outcome::Eof { .. } => {
                session.eof = true;
                if upload == transaction::Upload::Tunnel {
                    self.tunnel_client_eof(session);
                } else if self.step(session, Input::ClientEof) {
                    self.watch_unread(session);
                }
            }
            // It may have been what would have told of the end.
            Outcome::Cancelled { .. } => self.watch_unread(session),
            _ => self.client_gone(session),
        }
    }

    // ---- the request on its way ----

    /// Sends the head and the body bytes that came with it, and awaits the response.
    fn send_request(&mut self, session: &mut Session) {
        let exchange = session.exchange.as_ref();
        if exchange.is_some_and(|exchange| exchange.request.is_none()) {
            match self.rebuild_request(session) {
                Rebuilt::Written => {}
                Rebuilt::Waits => return,
                Rebuilt::DoesNotFit => {
                    self.step(session, Input::BadHead(Reason::ForwardedHeadTooLarge));
                    return;
                }
            }
        }
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let (Some(upstream), Some(buf)) = (exchange.upstream, exchange.request.take()) else {
            return;
        };
        exchange.upstream_busy = true;
        exchange.scanner = HeadScanner::response();
        let Some(connection) = self.core.upstreams.get(upstream) else {
            return;
        };
        let op = Op::Send {
            fd: connection.fd,
            buf,
            more: false,
        };
        self.cx.engine.submit(Lane::UpstreamSend.key(upstream), op);
        self.upstream_receive(session);
        self.watch_client(session);
    }

    /// Waits for bytes from the upstream, if nothing waits for them already.
    pub(crate) fn upstream_receive(&mut self, session: &Session) {
        let Some(upstream) = session.exchange.as_ref().and_then(|x| x.upstream) else {
            return;
        };
        let Some(connection) = self.core.upstreams.get_mut(upstream) else {
            return;
        };
        if connection.recv.is_none() {
            let op = Op::Recv {
                fd: connection.fd,
                many: false,
            };
            let id = self.cx.engine.submit(Lane::UpstreamRecv.key(upstream), op);
            connection.recv = Some(id);
        }
    }

    /// The upstream took bytes, or does not.
    pub(crate) fn upstream_sent(&mut self, session: &mut Session, outcome: Outcome) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let Some(upstream) = exchange.upstream else {
            return;
        };
        let Outcome::Sent { mut buf, n } = outcome else {
            exchange.upstream_busy = false;
            let untouched = !exchange.upstream_touched;
            return self.upstream_write_failed(session, untouched);
        };
        exchange.upstream_touched |= n > 0;
        let upload = exchange.transaction.upload();
        let more = upload == transaction::Upload::Head
            && buf.is_empty()
            && exchange
                .collected
                .as_mut()
                .is_some_and(|collected| collected.fill(&mut buf));
        if more || !buf.is_empty() {
            let Some(connection) = self.core.upstreams.get(upstream) else {
                return;
            };
            let op = Op::Send {
                fd: connection.fd,
                buf,
                more: false,
            };
            self.cx.engine.submit(Lane::UpstreamSend.key(upstream), op);
            if matches!(
                upload,
                transaction::Upload::Head | transaction::Upload::Moving
            ) {
                self.step(session, Input::Passed);
            }
            return;
        }
        drop(buf);
        exchange.upstream_busy = false;
        match upload {
            transaction::Upload::Head => {
                if self.step(session, Input::HeadSent) {
                    self.shelve_request(session);
                }
            }
            transaction::Upload::Moving => {
                if self.step(session, Input::Passed) {
                    self.upload_next(session);
                }
            }
            transaction::Upload::Tunnel => self.tunnel_sent_to_upstream(session),
            transaction::Upload::Collecting
            | transaction::Upload::Held
            | transaction::Upload::Done
            | transaction::Upload::Stopped => {}
        }
    }

    /// The upstream's socket takes no more.
    pub(crate) fn upstream_write_failed(&mut self, session: &mut Session, untouched: bool) {
        let Some(exchange) = session.exchange.as_ref() else {
            return;
        };
        match exchange.transaction.upload() {
            transaction::Upload::Head | transaction::Upload::Moving => {
                self.step(session, Input::UpstreamWriteFailed { untouched });
            }
            transaction::Upload::Tunnel => self.tunnel_upstream_broke(session),
            transaction::Upload::Collecting
            | transaction::Upload::Held
            | transaction::Upload::Done
            | transaction::Upload::Stopped => {}
        }
    }

    /// Gives the request's buffer back after it was sent.
    fn shelve_request(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        if !exchange.transaction.keeps_request() {
            return self.release_request(session);
        }
        let Some(input) = session.input.as_mut() else {
            return;
        };
        if session.request_len <= KEPT_MOST {
            let request = input.get(..session.request_len).unwrap_or_default();
            exchange.kept.extend_from_slice(request);
            input.consume(std::mem::take(&mut session.request_len));
            session.shelve_leftover();
        }
    }

    /// The request cannot have to be sent again: its bytes are given back.
    pub(crate) fn release_request(&mut self, session: &mut Session) {
        let keeps = session
            .exchange
            .as_ref()
            .is_none_or(|x| x.transaction.keeps_request());
        if keeps {
            return;
        }
        self.release_collected(session);
        let Some(input) = session.input.as_mut() else {
            return;
        };
        input.consume(std::mem::take(&mut session.request_len));
        let is_whole = session
            .exchange
            .as_ref()
            .is_some_and(|x| x.transaction.request_is_whole());
        if is_whole {
            session.shelve_leftover();
        } else if input.is_empty() {
            session.input = None;
        }
    }

    // ---- the end ----

    /// Closes the upstream connection of the exchange.
    pub(crate) fn close_upstream(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let how = if exchange.upload.broken {
            Close::Reset
        } else {
            Close::Orderly
        };
        exchange.upstream_busy = false;
        exchange.upstream_touched = false;
        exchange.interim_seen = false;
        exchange.response = None;
        exchange.upload.give_back(self.cx.engine);
        exchange.download.give_back(self.cx.engine);
        if let Some(token) = exchange.upstream.take() {
            if let Some(connection) = self.core.upstreams.remove(token) {
                self.cx.engine.close(connection.fd, how);
            }
        }
    }

    fn answer_for(&mut self, session: &mut Session, reason: Reason) {
        let answer = Answer::to(reason).unwrap_or(Answer::UpstreamClosed);
        // Before the upstream was tried, it is not to blame.
        let tried = session
            .exchange
            .as_ref()
            .is_some_and(|x| x.address.is_some());
        if let Some(what) = failure::of(reason).filter(|_| tried) {
            self.tell_failure(session, &what);
        }
        let draining = self.core.is_draining();
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        // The upstream is done with; a client that does not take the answer must not hold the slot.
        exchange.permit = None;
        exchange.lease = None;
        let keep = exchange.transaction.will_keep_client() && !draining;
        if !keep {
            exchange.transaction.forbid_keep_alive();
        }
        let fixed = match reason {
            Reason::HeaderDeadline => exchange
                .route()
                .and_then(|r| r.limits.header_deadline_response.clone()),
            _ => None,
        };
        exchange.status = fixed.as_ref().map_or(answer.status(), |fixed| fixed.status);
        let explains = exchange.snapshot.settings.explain_header;
        let rendering = Rendering {
            client: exchange.facts.version,
            head_only: exchange.facts.method == Method::Head,
            keep_alive: keep,
            allow: "",
            date: &self.core.date(self.cx.now),
            explain: explains.then_some(reason),
        };
        let mut text = std::mem::take(&mut self.core.scratch);
        text.clear();
        match fixed {
            Some(fixed) => fixed_answer(&fixed).write(&rendering, &mut text),
            None => answer.write(&rendering, &mut text),
        };
        self.note_cause(session, reason);
        self.send_text(session, &text, Tag::Answer);
        self.core.scratch = text;
    }

    fn finish(&mut self, session: &mut Session, ending: Ending) {
        if let Some(cause) = ending.cause {
            self.note_cause(session, cause);
        }
        if ending.client == ClientEnd::Sever {
            return self.cut(session);
        }
        self.end_exchange(session, ending.keep_upstream);
        session.served = session.served.saturating_add(1);
        self.end_client(session, ending.client);
    }

    /// Closes the client connection in the middle of whatever is under way, so that the client can
    /// tell: where the FIN is the end of the response, or an end of its own in a tunnel, a cut must look
    /// different (I31).
    pub(crate) fn cut(&mut self, session: &mut Session) {
        let is_told_by_reset = session.exchange.as_ref().is_some_and(|exchange| {
            exchange.download.framing() == Framing::UntilClose || exchange.download.broken
        });
        let how = if is_told_by_reset {
            Close::Reset
        } else {
            Close::Orderly
        };
        self.close(session, how);
    }

    /// Takes the exchange off the session: logs it, gives back what it holds.
    pub(crate) fn end_exchange(&mut self, session: &mut Session, keep_upstream: bool) {
        // First: whoever sees the upstream connection end finds the slot free.
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.permit = None;
            exchange.lease = None;
        }
        if keep_upstream {
            self.park_upstream(session);
        }
        self.close_upstream(session);
        self.release_collected(session);
        let Some(mut exchange) = session.exchange.take() else {
            return;
        };
        debug_assert!(
            exchange.cause.is_some()
                || (exchange.transaction.is_finished() && exchange.transaction.cause().is_none()),
            "an end without its reason: {:?}",
            exchange.transaction
        );
        self.log_request(session, &exchange);
        self.core.count_exchange(&exchange, self.cx.now);
        if exchange.transaction.client_was_too_slow() {
            self.note_slowness(session);
        }
        self.core.exchanges -= 1;
        self.core.requests += 1;
        // One that began before a reload must not keep the old configuration.
        let is_current = Rc::ptr_eq(&exchange.snapshot, &self.core.snapshot);
        if is_current && self.core.retired.len() < super::RETIRED_MOST {
            exchange.request = None;
            exchange.response = None;
            exchange.upload = Upload::default();
            exchange.download = Download::default();
            self.core.retired.push(exchange);
        }
    }
}
