//! The response, from the upstream to the client: interim heads, the head, the body.

use toron_reactor::{Buf, Engine, Op, Outcome};

use super::body::{self, Chunked, Framing, Portion, Source};
use super::lane::Lane;
use super::session::{Phase, Session, Tag};
use super::splice::{self, Round, SPLICE_ROUNDS};
use super::state::{Download, Exchange, Mark};
use super::Kit;
use crate::http::reply::Promised;
use crate::http::response::{self, MAX_RESPONSE_HEAD};
use crate::http::{
    self, field_slots, write_response_head, Asked, HeadScanner, Reason, Reply, ResponseBody,
    ResponseHead, Rewrite, Scan, Version, MOST_FIELDS,
};
use crate::policy::settings::RouteKind;
use crate::proxy::transaction::{self, Input, Order, ResponseFacts, Side};

impl<E: Engine> Kit<'_, '_, E> {
    /// Something came from the upstream.
    pub(crate) fn upstream_received(&mut self, session: &mut Session, outcome: Outcome) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let download = exchange.transaction.download();
        match outcome {
            Outcome::Received { buf, .. } => match download {
                transaction::Download::Waiting | transaction::Download::Interim => {
                    exchange.response = Some(buf);
                    self.response_next(session);
                }
                transaction::Download::Moving => self.download_received(session, buf),
                transaction::Download::Tunnel => self.tunnel_from_upstream(session, buf),
                transaction::Download::Answering | transaction::Download::Done => {}
            },
            Outcome::Cancelled { .. } => {}
            Outcome::Eof { .. } if download == transaction::Download::Tunnel => {
                self.tunnel_upstream_eof(session);
            }
            Outcome::Eof { .. }
                if download == transaction::Download::Moving
                    && matches!(exchange.download.source, Source::UntilClose) =>
            {
                exchange.download.complete = true;
                exchange.download.owes_last_chunk = exchange.download.framing == Framing::Chunked;
                self.download_next(session);
            }
            _ if download == transaction::Download::Tunnel => self.upstream_gone(session),
            outcome => {
                let begun = exchange.interim_seen
                    || match &outcome {
                        Outcome::Eof { buf } | Outcome::Failed { buf, .. } => buf.is_some(),
                        _ => false,
                    };
                self.step(
                    session,
                    Input::UpstreamGone {
                        response_begun: begun,
                    },
                );
            }
        }
    }

    /// Looks at what has come of a response head.
    pub(crate) fn response_next(&mut self, session: &mut Session) {
        loop {
            let Some(exchange) = session.exchange.as_mut() else {
                return;
            };
            if exchange.transaction.download() != transaction::Download::Waiting {
                return;
            }
            let Some(mut buf) = exchange.response.take() else {
                return self.upstream_receive(session);
            };
            // Interim heads may have been taken off the front.
            buf.compact();
            match exchange.scanner.find(&buf, MAX_RESPONSE_HEAD) {
                Scan::Complete { skip: 0, len } => {
                    if !self.response_head(session, buf, len) {
                        return;
                    }
                }
                Scan::Incomplete if buf.len() < MAX_RESPONSE_HEAD && buf.receivable() > 0 => {
                    return self.response_more(session, buf);
                }
                Scan::Bad(fault) => {
                    drop(buf);
                    self.invalid_response(session, fault);
                    return;
                }
                Scan::Incomplete | Scan::Complete { .. } => {
                    drop(buf);
                    self.invalid_response(session, Reason::ResponseHeadTooLarge);
                    return;
                }
            }
        }
    }

    fn invalid_response(&mut self, session: &mut Session, fault: Reason) {
        self.tell_failure(session, &format_args!("invalid response: {fault}"));
        self.step(session, Input::BadHead(fault.in_response()));
    }

    fn response_more(&mut self, session: &mut Session, buf: Buf) {
        let Some(token) = session.exchange.as_ref().and_then(|x| x.upstream) else {
            return;
        };
        let Some(connection) = self.core.upstreams.get_mut(token) else {
            return;
        };
        let op = Op::RecvInto {
            fd: connection.fd,
            buf,
        };
        connection.recv = Some(self.cx.engine.submit(Lane::UpstreamRecv.key(token), op));
    }

    /// A whole head is there. `true` to go on with the next one, behind an interim response.
    fn response_head(&mut self, session: &mut Session, mut buf: Buf, len: usize) -> bool {
        let (facts, promised) = match self.read_head(session, &buf, len) {
            Ok(written) => written,
            Err(fault) => {
                drop(buf);
                self.invalid_response(session, fault);
                return false;
            }
        };
        if facts.is_interim() {
            return self.interim_head(session, buf, len, facts.status == 100);
        }
        let Some(exchange) = session.exchange.as_mut() else {
            return false;
        };
        let portion = if facts.is_switch() {
            Portion::plain(0, false)
        } else {
            let bodies = (facts.body, promised.body);
            let Some(portion) = first_portion(exchange, bodies, &mut buf, len) else {
                // Nothing of the response has gone out yet: it can still be answered for.
                exchange.download = Download::default();
                drop(buf);
                self.invalid_response(session, Reason::ResponseBody);
                return false;
            };
            portion
        };
        exchange.status = facts.status;
        exchange.moments.answered = Some(self.cx.now);
        let response = ResponseFacts {
            keep_alive: facts.keep_alive,
            switches: facts.is_switch(),
            event_stream: facts.event_stream,
            client_until_close: promised.body == ResponseBody::UntilClose,
        };
        if !promised.keep_alive && !facts.is_switch() {
            exchange.transaction.forbid_keep_alive();
        }
        exchange.download.keep_alive_timeout = facts.keep_alive_timeout;
        let orders = self.ask(session, Input::FinalHead(response));
        match orders.iter().next() {
            Some(Order::Download) => {
                self.answered(session, facts.status);
                self.begin_body(session, buf, len, portion);
            }
            Some(Order::Tunnel) => {
                self.answered(session, facts.status);
                self.begin_tunnel(session, buf, len);
            }
            _ => {
                drop(buf);
                self.carry_out(session, &orders);
            }
        }
        false
    }

    /// Writes what becomes of the head, the first `len` bytes of `buf`, to the scratch buffer.
    fn read_head(
        &mut self,
        session: &Session,
        buf: &Buf,
        len: usize,
    ) -> Result<(http::ResponseFacts, Promised), Reason> {
        let Some(exchange) = session.exchange.as_ref() else {
            return Err(Reason::ResponseHead);
        };
        let head = buf.get(..len).unwrap_or_default();
        let mut slots = field_slots::<MOST_FIELDS>();
        let head = response::parse(head, Asked::by(&exchange.facts), &mut slots)?;
        if head.facts.is_switch() && !head.switches_within(&exchange.protocols) {
            return Err(Reason::UnaskedUpgrade);
        }
        let keep_alive = exchange.transaction.may_go_on() && !self.core.is_draining();
        self.core.scratch.clear();
        let promised = write_head(exchange, &head, keep_alive, &mut self.core.scratch);
        Ok((head.facts, promised))
    }

    /// Passes an interim response on, or leaves it out. It is written in the scratch buffer.
    fn interim_head(
        &mut self,
        session: &mut Session,
        mut buf: Buf,
        len: usize,
        is_continue: bool,
    ) -> bool {
        buf.consume(len);
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.scanner = HeadScanner::response();
            exchange.interim_seen = true;
            exchange.response = (!buf.is_empty()).then_some(buf);
        }
        let orders = self.ask(session, Input::InterimHead { is_continue });
        if orders.iter().next() == Some(Order::SendInterim) {
            let text = std::mem::take(&mut self.core.scratch);
            self.send_text(session, &text, Tag::Interim);
            self.core.scratch = text;
            return false;
        }
        true
    }

    /// Puts the new head, in the scratch buffer, in the place of the old one and sends it with
    /// the body bytes behind it.
    fn begin_body(&mut self, session: &mut Session, mut buf: Buf, len: usize, portion: Portion) {
        self.release_request(session);
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let download = &mut exchange.download;
        body::push_opening(download.framing, portion, &mut self.core.scratch);
        if !close_portion(download, portion, &mut buf) {
            self.step(session, Input::BadResponseBody(Reason::ResponseBody));
            return;
        }
        if !buf.replace_front(len, &self.core.scratch) {
            // Fields that were rewritten outgrew the room in front of them.
            buf.consume(len);
            return self.send_head_apart(session, buf);
        }
        self.download_send(session, buf);
    }

    /// Sends the head in the scratch buffer in a buffer of its own, and then `body`.
    fn send_head_apart(&mut self, session: &mut Session, body: Buf) {
        let head = self.take_buffer(session).and_then(|mut head| {
            (head.extend(&self.core.scratch) == self.core.scratch.len()).then_some(head)
        });
        let Some(head) = head else {
            log::debug!("no room for a response head that grew by rewriting");
            self.step(session, Input::BadResponseBody(Reason::ResponseBody));
            return;
        };
        self.download_send(session, head);
        if !body.is_empty() && session.phase == Phase::Exchange {
            self.send(session, body, Tag::Response);
        }
    }

    /// Body bytes have come by copy.
    fn download_received(&mut self, session: &mut Session, mut buf: Buf) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        let Some(portion) = take_portion(&mut exchange.download, &mut buf, 0) else {
            self.step(session, Input::BadResponseBody(Reason::ResponseBody));
            return;
        };
        exchange.download.mark = Mark::Away;
        let scratch = &mut self.core.scratch;
        scratch.clear();
        body::push_opening(exchange.download.framing, portion, scratch);
        let fits =
            buf.replace_front(0, scratch) && close_portion(&exchange.download, portion, &mut buf);
        debug_assert!(fits, "a receive leaves room for its framing");
        if !fits {
            self.step(session, Input::BadResponseBody(Reason::ResponseBody));
        } else if buf.is_empty() {
            self.download_next(session);
        } else {
            self.download_send(session, buf);
        }
    }

    fn download_send(&mut self, session: &mut Session, buf: Buf) {
        self.send(session, buf, Tag::Response);
        self.step(session, Input::DownloadWaits(Side::Client));
    }

    /// Does what the download needs next.
    pub(crate) fn download_next(&mut self, session: &mut Session) {
        let Some(exchange) = session.exchange.as_mut() else {
            return;
        };
        if session.output.is_busy()
            || exchange.transaction.download() != transaction::Download::Moving
        {
            return;
        }
        let download = &mut exchange.download;
        if download.owes_last_chunk {
            let Some(mut buf) = self.take_buffer(session) else {
                return;
            };
            buf.extend(http::chunk::LAST_CHUNK);
            if let Some(exchange) = session.exchange.as_mut() {
                exchange.download.owes_last_chunk = false;
            }
            return self.download_send(session, buf);
        }
        if download.complete && download.pipe.is_none() {
            let surplus = download.surplus;
            self.step(session, Input::DownloadDone { surplus });
            return;
        }
        let is_copied = download.copies || download.mark == Mark::Passing;
        if splice::is_due(&download.source, download.pipe.is_some(), is_copied) {
            return self.download_splice(session);
        }
        self.upstream_receive(session);
        self.step(session, Input::DownloadWaits(Side::Upstream));
    }

    fn download_splice(&mut self, session: &mut Session) {
        for _ in 0..SPLICE_ROUNDS {
            if !self.download_splice_round(session) {
                return;
            }
        }
        self.download_await_client(session);
    }

    /// Moves one pipe's worth. `false` when there is nothing to do at present.
    fn download_splice_round(&mut self, session: &mut Session) -> bool {
        let Some(exchange) = session.exchange.as_mut() else {
            return false;
        };
        let Some(from) = self.core.upstream_fd(exchange) else {
            return false;
        };
        let Download { pipe, source, .. } = &mut exchange.download;
        match splice::round(self.cx.engine, (from, session.fd), pipe, source) {
            Round::Taken(_) => {
                exchange.download.mark = Mark::Away;
                return true;
            }
            Round::Passed { bytes, left } => {
                let pending = left + source.outstanding();
                exchange.bytes_out += bytes;
                return self.step(session, Input::Sent { bytes, pending });
            }
            Round::Done => {
                exchange.download.complete = true;
                self.download_next(session);
            }
            Round::NoPipe => {
                exchange.download.copies = true;
                self.download_next(session);
            }
            Round::SourceDry if exchange.download.mark.dry() => self.download_next(session),
            Round::SourceDry => self.download_await_upstream(session),
            Round::SinkFull => self.download_await_client(session),
            Round::SourceEnded | Round::SourceFailed => {
                let response_begun = true;
                self.step(session, Input::UpstreamGone { response_begun });
            }
            Round::SinkFailed => {
                self.step(session, Input::ClientGone);
            }
        }
        false
    }

    fn download_await_upstream(&mut self, session: &mut Session) {
        let Some(token) = session.exchange.as_ref().and_then(|x| x.upstream) else {
            return;
        };
        if let Some(connection) = self.core.upstreams.get_mut(token) {
            if !connection.polls_readable {
                connection.polls_readable = true;
                let op = Op::Readable { fd: connection.fd };
                self.cx.engine.submit(Lane::UpstreamReadable.key(token), op);
            }
        }
        self.step(session, Input::DownloadWaits(Side::Upstream));
    }

    fn download_await_client(&mut self, session: &mut Session) {
        self.poll_client_writable(session);
        self.step(session, Input::DownloadWaits(Side::Client));
    }

    pub(super) fn poll_client_writable(&mut self, session: &mut Session) {
        if !session.polls_writable {
            session.polls_writable = true;
            self.submit(
                session,
                Lane::ClientWritable,
                Op::Writable { fd: session.fd },
            );
        }
    }

    /// The client's socket can be written: the download by splice goes on.
    pub(crate) fn client_writable(&mut self, session: &mut Session, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Cancelled { .. }) {
            self.download_next(session);
            self.tunnel_splice_down(session);
        }
    }

    /// The upstream's socket can be read: the download by splice goes on.
    pub(crate) fn upstream_readable(&mut self, session: &mut Session, outcome: &Outcome) {
        if let Some(token) = session.exchange.as_ref().and_then(|x| x.upstream) {
            if let Some(connection) = self.core.upstreams.get_mut(token) {
                connection.polls_readable = false;
            }
        }
        if !matches!(outcome, Outcome::Cancelled { .. }) {
            if let Some(exchange) = session.exchange.as_mut() {
                exchange.download.mark.readable();
            }
            self.download_next(session);
        }
    }
}

/// Reduces what stands behind `skip` bytes to what goes on to the client. `None` if it is malformed.
fn take_portion(download: &mut Download, buf: &mut Buf, skip: usize) -> Option<Portion> {
    let mut rest = Vec::new();
    let portion = download
        .source
        .take(buf, skip, download.framing, &mut rest)
        .ok()?;
    download.complete = portion.last;
    download.surplus |= !rest.is_empty();
    Some(portion)
}

/// The same for what came with the head, `skip` bytes long, of a response whose body comes as the first
/// of `bodies` and goes on as the second.
fn first_portion(
    exchange: &mut Exchange,
    (from, to): (ResponseBody, ResponseBody),
    buf: &mut Buf,
    skip: usize,
) -> Option<Portion> {
    let download = &mut exchange.download;
    download.source = match from {
        ResponseBody::None => Source::None,
        ResponseBody::Length(n) => Source::Length(n),
        ResponseBody::Chunked => Source::Chunked(Chunked::default()),
        ResponseBody::UntilClose => Source::UntilClose,
    };
    download.framing = match to {
        ResponseBody::None | ResponseBody::Length(_) => Framing::Plain,
        ResponseBody::Chunked if from == ResponseBody::Chunked => Framing::Passed,
        ResponseBody::Chunked => Framing::Chunked,
        ResponseBody::UntilClose => Framing::UntilClose,
    };
    take_portion(download, buf, skip)
}

/// Appends what closes a portion of the response body.
fn close_portion(download: &Download, portion: Portion, buf: &mut Buf) -> bool {
    match &download.source {
        Source::Chunked(chunked) if portion.last => {
            let mut trailers = Vec::new();
            http::chunk::push_response_trailers(&chunked.trailers, &mut trailers);
            body::push_closing(download.framing, portion, &trailers, buf)
        }
        Source::None | Source::Length(_) | Source::Chunked(_) | Source::UntilClose => {
            body::push_closing(download.framing, portion, b"", buf)
        }
    }
}

fn write_head(
    exchange: &Exchange,
    head: &ResponseHead<'_, '_>,
    keep_alive: bool,
    out: &mut Vec<u8>,
) -> Promised {
    let snapshot = &exchange.snapshot;
    let route = snapshot.table.routes().get(exchange.route);
    let rewrite = route.and_then(|route| match &route.kind {
        RouteKind::Upstream(upstream) if upstream.strip_prefix && route.prefix != "/" => {
            let target = upstream.targets.get(exchange.target)?;
            Some(Rewrite {
                prefix: route.prefix.as_bytes(),
                target_path: target.path.as_bytes(),
                target_authority: target.authority.as_bytes(),
                client_scheme: b"http",
                client_host: &exchange.host,
                redirects: upstream.rewrite_redirects,
                cookie_path: upstream.rewrite_cookie_path,
            })
        }
        RouteKind::Upstream(_) | RouteKind::Respond(_) => None,
    });
    let reply = Reply {
        client: exchange.facts.version,
        keep_alive,
        rewrite,
        via: snapshot.settings.via,
    };
    debug_assert!(reply.client == Version::Http11 || reply.client == Version::Http10);
    write_response_head(head, &reply, out)
}
