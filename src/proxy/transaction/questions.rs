//! What the server may ask of a transaction.

use super::{Download, Transaction, Upload, DRAIN_MOST};
use crate::http::Reason;
use crate::proxy::window::Shortfall;

impl Transaction {
    /// Where the upload is.
    #[must_use]
    pub fn upload(&self) -> Upload {
        self.upload
    }

    /// Where the download is.
    #[must_use]
    pub fn download(&self) -> Download {
        self.download
    }

    /// Whether every byte of the request has come from the client.
    #[must_use]
    pub fn request_is_whole(&self) -> bool {
        self.source_done
    }

    /// Whether the request may have to be sent again, so that its bytes must be kept.
    #[must_use]
    pub fn keeps_request(&self) -> bool {
        match self.upload {
            Upload::Collecting | Upload::Held | Upload::Head => true,
            Upload::Done | Upload::Stopped => {
                self.download == Download::Waiting && self.is_replayable() && self.may_resend()
            }
            Upload::Moving | Upload::Tunnel => false,
        }
    }

    /// Whether the client connection can go on after an answer of toron's own (I9).
    #[must_use]
    pub fn will_keep_client(&self) -> bool {
        self.source_done && self.may_keep_client()
    }

    /// Whether the client connection can go on after a response: little enough is owed (I11). Of a
    /// client that was not invited to send its body nobody knows whether it will: its next bytes
    /// may be a request.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        let little = self.continued && self.facts.outstanding <= DRAIN_MOST;
        (self.source_done || little) && self.may_keep_client()
    }

    fn may_keep_client(&self) -> bool {
        self.facts.keep_alive && !self.client_eof
    }

    /// Whether the end of what the client sends ends the exchange, should nothing of the request stand
    /// in front of it, or by the rule of the route (I39). Once the final response is on its way to a
    /// client whose body is not wanted any more, only a reset says that it has gone: it may just have
    /// stopped sending.
    #[must_use]
    pub fn minds_fin(&self) -> bool {
        match (self.upload, self.download) {
            (_, Download::Answering | Download::Done | Download::Tunnel) | (Upload::Tunnel, _) => {
                false
            }
            (Upload::Stopped, Download::Moving) => self.limits.half_close_aborts,
            (
                Upload::Collecting
                | Upload::Held
                | Upload::Head
                | Upload::Moving
                | Upload::Done
                | Upload::Stopped,
                Download::Waiting | Download::Interim | Download::Moving,
            ) => self.limits.half_close_aborts || !self.source_done,
        }
    }

    /// A FIN behind the whole request means that the client has gone, too (I39).
    #[must_use]
    pub fn half_close_aborts(&self) -> bool {
        self.limits.half_close_aborts
    }

    /// The client has been cut, or is about to be, because it did not keep up.
    #[must_use]
    pub fn client_was_too_slow(&self) -> bool {
        self.client_too_slow
    }

    /// Why it does not end well, as far as that is known.
    #[must_use]
    pub fn cause(&self) -> Option<Reason> {
        self.cause
    }

    /// How much of the limit was used that the cause of the end names, in its unit: milliseconds, or
    /// bytes per second.
    #[must_use]
    pub fn observed(&self) -> u64 {
        self.observed
    }

    /// What came in the window of the body that ended too soon, where [`Reason::ReadTimeout`] is the
    /// cause of the end.
    #[must_use]
    pub fn shortfall(&self) -> Option<Shortfall> {
        self.shortfall
    }

    /// Whether [`Order::Finish`](super::Order::Finish) has been given.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished
    }
}
