//! Where a transaction is: one state for each direction.

/// State of the direction client → upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// The body is being collected; the upstream is not dialled before.
    Collecting,
    /// Not connected yet; no further body byte may be read.
    Held,
    /// The head is being sent.
    Head,
    /// The body is moving.
    Moving,
    /// The upstream has the whole request.
    Done,
    /// What is left of the request is not passed on any more.
    Stopped,
    /// Raw bytes are moving.
    Tunnel,
}

/// State of the direction upstream → client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Download {
    /// No final head yet.
    Waiting,
    /// An interim response is being sent.
    Interim,
    /// The response is moving.
    Moving,
    /// The client has the whole response.
    Done,
    /// toron's own answer is being sent.
    Answering,
    /// Raw bytes are moving.
    Tunnel,
}
