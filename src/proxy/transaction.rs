//! One request and its response, as a value with one `step`.
//!
//! No descriptor, no clock, no allocation and no logging: the server tells what happened
//! ([`Input`]), the transaction says what to do ([`Order`]). The bytes themselves never come here,
//! only their number; what moves them is the server's business.
//!
//! Two coupled states tell where a transaction is. An early response is simply the download ahead
//! of the upload.
//!
//! ```text
//!  Upload     Collecting ─▶ Held, Stopped                    (client → upstream)
//!             Held ─▶ Head ─▶ Moving ─▶ Done
//!              ▲       │ └──────┼──────▶ Done                 the body came with the head
//!              │       ├────────┴──────▶ Stopped              nothing more will be passed on
//!              │       └────────── Done ▶ Tunnel ─▶ Done
//!              └─ Head, Done: sent again on another connection
//!
//!  Download   Waiting ⇄ Interim                              (upstream → client)
//!                │ └──▶ Moving ─▶ Done
//!                ├────▶ Tunnel ─▶ Done
//!                └────▶ Answering ─▶ Done                    (toron's own answer)
//! ```

use std::time::Duration;

use toron_reactor::Time;

pub use super::facts::{Facts, Limits, ResponseFacts};
pub use super::input::{possible, ConnectFailure, Input, Side};
pub use super::order::{ClientEnd, Ending, Order, Orders, DRAIN_MOST};
use super::pace::Pace;
use super::reading::Reading;
pub use super::state::{Download, Upload};
use super::window::{Shortfall, Window};
use super::writing::Writing;
use crate::http::Reason;

/// An upstream that says nothing for this long does not mind a 100 from toron (I11).
const CONTINUE_AFTER: Duration = Duration::from_secs(1);

/// A request and its response. See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    facts: Facts,
    limits: Limits,
    upload: Upload,
    download: Download,
    retries_left: u8,
    /// What to answer if no other target can be tried.
    failure: Reason,
    /// The target has an address that has not been dialled.
    other_address: bool,
    /// The connection in use served requests before.
    reused: bool,
    /// A stale connection was replaced once; the fresh one gets no second such chance.
    resent: bool,
    /// The whole body came with the head, so that it is kept.
    came_whole: bool,
    /// The upstream took no more while the head was being sent: all of the request is still kept,
    /// and its connection may turn out to have been stale.
    failed_in_head: bool,
    /// Every byte of the request has come from the client.
    source_done: bool,
    /// A 100 has been sent, or none is wanted.
    continued: bool,
    client_eof: bool,
    client_too_slow: bool,
    response: Option<ResponseFacts>,
    finished: bool,
    /// Why it does not end well: the first thing that went wrong.
    cause: Option<Reason>,
    /// How much of the limit named by the cause was used, in its unit: milliseconds, or bytes per
    /// second.
    observed: u64,
    /// Of the window that ended without its quota, where that is the cause.
    shortfall: Option<Shortfall>,
    connect_at: Option<Time>,
    continue_at: Option<Time>,
    response_header_at: Option<Time>,
    upstream_idle_at: Option<Time>,
    tunnel_idle_at: Option<Time>,
    header_deadline_at: Option<Time>,
    request_deadline_at: Option<Time>,
    reading: Reading,
    writing: Writing,
}

fn after(now: Time, length: Duration) -> Option<Time> {
    (!length.is_zero()).then(|| now + length)
}

impl Transaction {
    /// Begins with a request that has passed all checks.
    #[must_use]
    pub fn begin(now: Time, facts: Facts, limits: Limits) -> (Self, Orders) {
        let mut transaction = Transaction {
            facts,
            limits,
            upload: if facts.collect {
                Upload::Collecting
            } else {
                Upload::Held
            },
            download: Download::Waiting,
            retries_left: limits.retries,
            failure: Reason::ConnectFailed,
            other_address: false,
            reused: false,
            resent: false,
            came_whole: facts.outstanding == 0,
            failed_in_head: false,
            source_done: facts.outstanding == 0,
            continued: !facts.expects_continue || facts.outstanding == 0,
            client_eof: false,
            client_too_slow: false,
            response: None,
            finished: false,
            cause: None,
            observed: 0,
            shortfall: None,
            connect_at: None,
            continue_at: None,
            response_header_at: None,
            upstream_idle_at: None,
            tunnel_idle_at: None,
            header_deadline_at: after(now, limits.header_deadline),
            request_deadline_at: after(now, limits.request_deadline),
            reading: Reading::new(
                Window::new(limits.read_timeout, limits.min_progress_bytes),
                Pace::new(limits.min_body_rate, limits.body_timeout),
            ),
            writing: Writing::new(limits.write_timeout),
        };
        let mut out = Orders::none();
        if facts.collect {
            out.push(Order::Collect);
        } else {
            transaction.connect_again(now, false, false, &mut out);
        }
        (transaction, out)
    }

    /// Takes one input.
    #[must_use]
    pub fn step(&mut self, now: Time, input: Input) -> Orders {
        let mut out = Orders::none();
        if self.finished {
            return out;
        }
        debug_assert!(
            possible(self.upload, self.download, input),
            "{input:?} cannot come in {:?}/{:?}",
            self.upload,
            self.download
        );
        match input {
            Input::Connected { reused } => self.connected(now, reused, &mut out),
            Input::Dialling { more } => self.other_address = more,
            Input::ConnectFailed(why) => self.connect_failed(now, why, &mut out),
            Input::NoOtherTarget => self.answer(now, self.failure, &mut out),
            Input::HeadSent => self.head_sent(now, &mut out),
            Input::Received { bytes, last } => self.received(now, bytes, last),
            Input::Collected => self.collected(now, &mut out),
            Input::NoMemory => self.answer(now, Reason::BufferMemory, &mut out),
            Input::Passed => self.passed(now),
            Input::UploadWaits(side) => self.upload_waits(now, side, &mut out),
            Input::UploadDone => self.upload_done(now),
            Input::BadBody(why) => self.answer(now, why, &mut out),
            Input::ClientEof => self.client_eof(&mut out),
            Input::ClientGone => self.client_gone(&mut out),
            Input::UpstreamWriteFailed { untouched } => {
                self.upstream_write_failed(now, untouched, &mut out);
            }
            Input::UpstreamGone { response_begun } => {
                self.upstream_gone(now, response_begun, &mut out);
            }
            Input::InterimHead { is_continue } => self.interim_head(now, is_continue, &mut out),
            Input::FinalHead(response) => self.final_head(now, response, &mut out),
            Input::BadHead(why) => self.answer(now, why, &mut out),
            Input::InterimSent => self.interim_sent(),
            Input::Sent { bytes, pending } => self.sent(now, bytes, pending),
            Input::DownloadWaits(side) => self.download_waits(now, side),
            Input::DownloadDone { surplus } => self.download_done(surplus, &mut out),
            Input::BadResponseBody(why) => self.sever(why, &mut out),
            Input::AnswerSent => self.answer_sent(&mut out),
            Input::TunnelMoved => {
                self.tunnel_idle_at = after(now, self.limits.upgrade_idle_timeout);
            }
            Input::TunnelHalfClosed(side) => self.tunnel_half_closed(side, &mut out),
            Input::Acknowledged { by, bytes, left } => self.acknowledged(now, by, bytes, left),
            Input::Tick => self.tick(now, &mut out),
        }
        self.check();
        out
    }

    /// The client has been told that its connection ends with this request.
    pub fn forbid_keep_alive(&mut self) {
        self.facts.keep_alive = false;
    }

    // ---- in the order of a request's life ----

    /// Of a body that is longer than what is collected the rest is streamed.
    fn collected(&mut self, now: Time, out: &mut Orders) {
        self.came_whole = self.source_done;
        self.reading.pause(now);
        self.connect_again(now, false, false, out);
    }

    fn head_sent(&mut self, now: Time, out: &mut Orders) {
        if self.source_done {
            self.upload_done(now);
            return;
        }
        self.upload = Upload::Moving;
        self.upstream_idle_at = None;
        if !self.continued {
            self.continue_at = Some(now + CONTINUE_AFTER);
        }
        out.push(Order::Upload);
    }

    fn received(&mut self, now: Time, bytes: u64, last: bool) {
        // A client that sends its body does not wait for a 100 any more.
        self.continued = true;
        self.continue_at = None;
        self.source_done |= last;
        let outstanding = match self.facts.outstanding {
            u64::MAX if !last => u64::MAX,
            u64::MAX => 0,
            known => known.saturating_sub(bytes),
        };
        self.facts.outstanding = outstanding;
        self.reading.progress(now, bytes, outstanding);
        if self.source_done {
            self.reading.stop();
        }
    }

    fn passed(&mut self, now: Time) {
        if self.upstream_idle_at.is_some() {
            self.upstream_idle_at = after(now, self.limits.upstream_idle_timeout);
        }
    }

    fn upload_waits(&mut self, now: Time, side: Side, out: &mut Orders) {
        match side {
            Side::Client => {
                // Nobody but toron can invite a body that is collected (I11).
                if self.upload == Upload::Collecting && !self.continued {
                    return self.send_continue(now, out);
                }
                if self.continued {
                    self.reading.run(now);
                }
                self.upstream_owes_no_taking();
            }
            Side::Upstream => {
                self.reading.pause(now);
                if !self.is_event_stream() {
                    self.upstream_idle_at = after(now, self.limits.upstream_idle_timeout);
                }
            }
        }
    }

    /// The upstream has nothing to take: from now on only the silence of its response counts
    /// (I26).
    fn upstream_owes_no_taking(&mut self) {
        if self.download != Download::Moving || self.is_event_stream() {
            self.upstream_idle_at = None;
        }
    }

    fn is_event_stream(&self) -> bool {
        self.response.is_some_and(|response| response.event_stream)
    }

    fn upload_done(&mut self, now: Time) {
        self.upload = Upload::Done;
        self.source_done = true;
        self.continued = true;
        self.continue_at = None;
        self.reading.stop();
        self.upstream_owes_no_taking();
        if self.response.is_none() {
            self.await_response(now);
        }
    }

    fn await_response(&mut self, now: Time) {
        if self.response_header_at.is_none() {
            self.response_header_at = after(now, self.limits.response_header_timeout);
        }
    }

    /// A FIN inside a request is an abort; one behind it is not, unless the route says so (I39).
    /// A tunnel passes it on.
    fn client_eof(&mut self, out: &mut Orders) {
        self.client_eof = true;
        let tunnels = self.upload == Upload::Tunnel || self.download == Download::Tunnel;
        if !tunnels && !self.source_done {
            self.client_gone(out);
        } else if !tunnels && self.limits.half_close_aborts {
            self.sever(Reason::ClientHalfClosed, out);
        }
    }

    fn client_gone(&mut self, out: &mut Orders) {
        let reason = match (self.upload, self.download) {
            (Upload::Tunnel, _) | (_, Download::Tunnel) => Reason::ClientLeftTunnel,
            (_, Download::Moving | Download::Answering | Download::Done) => {
                Reason::ClientLeftResponse
            }
            (_, Download::Waiting | Download::Interim) if self.source_done => {
                Reason::ClientLeftWaiting
            }
            (_, Download::Waiting | Download::Interim) => Reason::ClientLeftBody,
        };
        self.sever(reason, out);
    }

    /// What the upstream has already sent is still relayed (I30).
    fn upstream_write_failed(&mut self, now: Time, untouched: bool, out: &mut Orders) {
        if untouched
            && self.upload == Upload::Head
            && self.download == Download::Waiting
            && self.reused
            && !self.resent
        {
            self.resent = true;
            out.push(Order::CloseUpstream);
            return self.connect_again(now, true, false, out);
        }
        self.failed_in_head = self.upload == Upload::Head;
        self.stop_upload(out);
        if self.response.is_none() && self.download != Download::Answering {
            self.await_response(now);
        }
    }

    fn stop_upload(&mut self, out: &mut Orders) {
        match self.upload {
            Upload::Moving | Upload::Collecting => out.push(Order::StopUpload),
            Upload::Held | Upload::Head | Upload::Done | Upload::Stopped | Upload::Tunnel => {}
        }
        if self.upload != Upload::Done {
            self.upload = Upload::Stopped;
        }
        self.reading.stop();
        self.upstream_owes_no_taking();
        self.continue_at = None;
    }

    fn upstream_gone(&mut self, now: Time, response_begun: bool, out: &mut Orders) {
        match self.download {
            Download::Waiting | Download::Interim => {
                out.push(Order::CloseUpstream);
                let waiting = self.download == Download::Waiting;
                let again = !response_begun && waiting && self.is_replayable();
                if again && self.reused && !self.resent {
                    self.resent = true;
                    return self.connect_again(now, true, false, out);
                }
                // A connection that served requests before may have been closed for being idle,
                // which says nothing about the target.
                if !self.reused || response_begun {
                    out.push(Order::Blame);
                }
                if again && self.connect_elsewhere(now, Reason::UpstreamClosed, out) {
                    return;
                }
                self.answer_without_close(now, Reason::UpstreamClosed, out);
            }
            Download::Moving => self.sever(Reason::ResponseTruncated, out),
            Download::Tunnel => self.sever(Reason::UpstreamLeftTunnel, out),
            // The other half of a tunnel, when the upstream takes no more.
            Download::Done if self.upload == Upload::Tunnel => {
                self.sever(Reason::UpstreamLeftTunnel, out);
            }
            Download::Answering | Download::Done => {}
        }
    }

    fn interim_head(&mut self, now: Time, is_continue: bool, out: &mut Orders) {
        let wanted = if is_continue {
            !std::mem::replace(&mut self.continued, true)
        } else {
            true
        };
        if is_continue {
            self.continue_at = None;
        }
        // The body is invited: from now on the client has to send it (I19).
        if wanted && is_continue && self.upload == Upload::Moving {
            self.reading.run(now);
        }
        if wanted && self.facts.takes_interim {
            self.download = Download::Interim;
            self.writing.run(now);
            out.push(Order::SendInterim);
        } else {
            out.push(Order::SkipInterim);
        }
    }

    fn interim_sent(&mut self) {
        if self.download == Download::Interim {
            self.download = Download::Waiting;
            self.writing.stop();
        }
    }

    fn final_head(&mut self, now: Time, response: ResponseFacts, out: &mut Orders) {
        // That the head was sent may be told after what it brought.
        let is_sent = self.source_done && matches!(self.upload, Upload::Head | Upload::Done);
        if response.switches && !(self.facts.upgrade && is_sent) {
            return self.answer(now, Reason::UnaskedUpgrade, out);
        }
        self.response = Some(response);
        self.response_header_at = None;
        self.header_deadline_at = None;
        self.continue_at = None;
        self.upstream_idle_at = None;
        if response.switches {
            self.upload = Upload::Tunnel;
            self.download = Download::Tunnel;
            if !self.limits.deadline_covers_upgrades {
                self.request_deadline_at = None;
            }
            self.tunnel_idle_at = after(now, self.limits.upgrade_idle_timeout);
            out.push(Order::Tunnel);
        } else {
            self.download = Download::Moving;
            out.push(Order::Download);
        }
    }

    fn sent(&mut self, now: Time, bytes: u64, pending: u64) {
        self.writing.progress(now, bytes, pending);
    }

    fn download_waits(&mut self, now: Time, side: Side) {
        match side {
            Side::Client => {
                self.writing.run(now);
                self.upstream_idle_at = None;
            }
            Side::Upstream => {
                self.writing.stop();
                if !self.is_event_stream() && self.download == Download::Moving {
                    self.upstream_idle_at = after(now, self.limits.upstream_idle_timeout);
                }
            }
        }
    }

    fn download_done(&mut self, surplus: bool, out: &mut Orders) {
        self.download = Download::Done;
        if self.upload != Upload::Done {
            self.stop_upload(out);
        }
        self.finish(surplus, out);
    }

    fn answer_sent(&mut self, out: &mut Orders) {
        self.download = Download::Done;
        self.finish(true, out);
    }

    fn tunnel_half_closed(&mut self, side: Side, out: &mut Orders) {
        match side {
            Side::Client => self.upload = Upload::Done,
            Side::Upstream => self.download = Download::Done,
        }
        if self.upload == Upload::Done && self.download == Download::Done {
            self.end(ClientEnd::Close, false, out);
        }
    }

    // ---- endings ----

    /// Ends the exchange with the upstream and answers in its place. After the response has begun
    /// there is nothing left to answer: the client is severed.
    fn answer(&mut self, now: Time, reason: Reason, out: &mut Orders) {
        match self.download {
            Download::Waiting | Download::Interim => {
                out.push(Order::CloseUpstream);
                self.answer_without_close(now, reason, out);
            }
            Download::Moving | Download::Tunnel => self.sever(reason, out),
            // The other half of a tunnel.
            Download::Done if self.upload == Upload::Tunnel => self.sever(reason, out),
            Download::Answering | Download::Done => {}
        }
    }

    fn answer_without_close(&mut self, now: Time, reason: Reason, out: &mut Orders) {
        self.stop_upload(out);
        self.connect_at = None;
        self.response_header_at = None;
        self.upstream_idle_at = None;
        self.header_deadline_at = None;
        self.request_deadline_at = None;
        // A client that was too slow is not waited for (I9, I18).
        debug_assert_eq!(
            self.client_too_slow,
            matches!(
                reason,
                Reason::ReadTimeout | Reason::MinBodyRate | Reason::BodyTimeout
            )
        );
        self.cause.get_or_insert(reason);
        self.download = Download::Answering;
        self.writing.run(now);
        out.push(Order::Answer(reason));
    }

    /// The client is to see a cut, or is gone.
    fn sever(&mut self, reason: Reason, out: &mut Orders) {
        self.cause.get_or_insert(reason);
        self.stop_upload(out);
        self.end(ClientEnd::Sever, false, out);
    }

    /// The one place that decides about the reuse of either connection.
    fn finish(&mut self, surplus: bool, out: &mut Orders) {
        let until_close = self.response.is_some_and(|r| r.client_until_close);
        let client = if self.client_too_slow {
            ClientEnd::Sever
        } else if !self.source_done {
            if self.response.is_some() && self.may_go_on() && !until_close {
                ClientEnd::Drain {
                    owed: self.facts.outstanding,
                }
            } else {
                ClientEnd::Linger
            }
        } else if self.facts.keep_alive && !self.client_eof && !until_close {
            ClientEnd::Keep
        } else {
            ClientEnd::Close
        };
        let keep_upstream = !surplus
            && self.upload == Upload::Done
            && self.response.is_some_and(|r| r.keep_alive && !r.switches);
        self.end(client, keep_upstream, out);
    }

    fn end(&mut self, client: ClientEnd, keep_upstream: bool, out: &mut Orders) {
        self.finished = true;
        out.push(Order::Finish(Ending {
            client,
            keep_upstream,
            cause: self.cause,
        }));
    }
}

mod connecting;
mod deadlines;
mod questions;
mod slow;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
