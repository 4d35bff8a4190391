//! What can happen to a transaction, and when.

use super::facts::ResponseFacts;
use super::state::{Download, Upload};
use crate::http::Reason;

/// Why there is no connection to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFailure {
    /// Refused, unreachable, reset.
    Failed,
    /// The target's name has no address.
    NoAddress,
    /// No descriptor or no local port is left.
    NoResources,
}

/// Whom a direction waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The upstream.
    Upstream,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The connection that was ordered stands.
    Connected {
        /// It served requests before.
        reused: bool,
    },
    /// The connection that was ordered does not come about.
    ConnectFailed(ConnectFailure),
    /// The head, and the body bytes that came with it, have been taken by the upstream.
    HeadSent,
    /// Body bytes have come from the client (decoded).
    Received {
        /// How many.
        bytes: u64,
        /// None is outstanding.
        last: bool,
    },
    /// Collecting the body has come to its end.
    Collected,
    /// There is no memory for more of the body.
    NoMemory,
    /// Body bytes have been taken by the upstream.
    Passed,
    /// The upload has nothing to do until this side moves.
    UploadWaits(Side),
    /// The whole body has been taken by the upstream.
    UploadDone,
    /// The body, or what stands behind it, is refused: it is malformed, its trailers are too large,
    /// or it is larger than the route allows (chunked; a declared length is checked earlier).
    BadBody(Reason),
    /// The client has finished sending.
    ClientEof,
    /// The client's connection is broken.
    ClientGone,
    /// The upstream takes no more bytes. It may have answered nevertheless.
    UpstreamWriteFailed {
        /// Not a byte of the request was written to this connection.
        untouched: bool,
    },
    /// The upstream has ended the connection before its response was complete.
    UpstreamGone {
        /// Some byte of a response had come on this connection for this request.
        response_begun: bool,
    },
    /// An interim response (1xx but 101) has come.
    InterimHead {
        /// It is a 100.
        is_continue: bool,
    },
    /// The final response head, or a 101, has come.
    FinalHead(ResponseFacts),
    /// What came is no valid response head, or the head of the request cannot be sent on.
    BadHead(Reason),
    /// The interim response has been taken by the client.
    InterimSent,
    /// Bytes of the response have been taken by the client.
    Sent {
        /// How many.
        bytes: u64,
        /// How many are at hand for it.
        pending: u64,
    },
    /// The download has nothing to do until this side moves.
    DownloadWaits(Side),
    /// The last byte of the response has been taken by the client.
    DownloadDone {
        /// Bytes that nobody asked for came behind the response.
        surplus: bool,
    },
    /// What came as response body is malformed, or cannot be passed on.
    BadResponseBody(Reason),
    /// The answer that was ordered has been taken by the client.
    AnswerSent,
    /// Bytes moved through the tunnel.
    TunnelMoved,
    /// This side has finished sending, and the other has got everything.
    TunnelHalfClosed(Side),
    /// While nothing more can be sent to this side, it acknowledges bytes sent earlier.
    Acknowledged {
        /// Who.
        by: Side,
        /// How many since this was last told, or since the kernel took the last bytes.
        bytes: u64,
        /// How many it has not acknowledged yet.
        left: u64,
    },
    /// A deadline may have passed.
    Tick,
}

/// Whether an input can come in a state at all. The server holds to it (debug builds check), the
/// table test covers every combination that can.
#[must_use]
pub fn possible(upload: Upload, download: Download, input: Input) -> bool {
    use Download as D;
    use Upload as U;
    let talking = matches!(upload, U::Head | U::Moving | U::Done | U::Stopped);
    match input {
        Input::Connected { .. } | Input::ConnectFailed(_) => {
            upload == U::Held && download == D::Waiting
        }
        Input::HeadSent => {
            upload == U::Head && matches!(download, D::Waiting | D::Interim | D::Moving)
        }
        Input::Passed => {
            matches!(upload, U::Head | U::Moving)
                && matches!(download, D::Waiting | D::Interim | D::Moving)
        }
        Input::Received { .. } | Input::UploadWaits(Side::Client) | Input::BadBody(_) => {
            match upload {
                U::Collecting => download == D::Waiting,
                U::Moving => matches!(download, D::Waiting | D::Interim | D::Moving),
                U::Held | U::Head | U::Done | U::Stopped | U::Tunnel => false,
            }
        }
        Input::UploadWaits(Side::Upstream) | Input::UploadDone => {
            upload == U::Moving && matches!(download, D::Waiting | D::Interim | D::Moving)
        }
        Input::Collected | Input::NoMemory => upload == U::Collecting && download == D::Waiting,
        Input::UpstreamWriteFailed { .. } => {
            matches!(upload, U::Head | U::Moving)
                && matches!(download, D::Waiting | D::Interim | D::Moving)
        }
        Input::UpstreamGone { .. } => match download {
            D::Waiting | D::Interim | D::Moving => talking,
            D::Tunnel => matches!(upload, U::Tunnel | U::Done),
            D::Done => upload == U::Tunnel,
            D::Answering => false,
        },
        Input::InterimHead { .. } | Input::FinalHead(_) | Input::BadHead(_) => {
            download == D::Waiting && talking
        }
        // A deadline may have passed meanwhile.
        Input::InterimSent => match download {
            D::Interim => talking,
            D::Answering => true,
            D::Waiting | D::Moving | D::Done | D::Tunnel => false,
        },
        Input::Sent { .. } => match download {
            D::Moving | D::Interim => talking,
            D::Answering => true,
            D::Waiting | D::Done | D::Tunnel => false,
        },
        Input::DownloadWaits(_) | Input::DownloadDone { .. } | Input::BadResponseBody(_) => {
            download == D::Moving && talking
        }
        Input::AnswerSent => download == D::Answering,
        Input::TunnelMoved => upload == U::Tunnel || download == D::Tunnel,
        Input::TunnelHalfClosed(Side::Client) => upload == U::Tunnel,
        Input::TunnelHalfClosed(Side::Upstream) => download == D::Tunnel,
        Input::ClientEof | Input::ClientGone | Input::Acknowledged { .. } | Input::Tick => true,
    }
}
