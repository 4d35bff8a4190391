//! What a transaction wants done.

use crate::http::Reason;

/// More than this is not taken off a client for the sake of its connection (I11).
pub const DRAIN_MOST: u64 = 64 * 1024;

/// How the client connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEnd {
    /// The next request may come.
    Keep,
    /// Everything was sent and nothing is owed: close.
    Close,
    /// The response was sent before the client had sent its whole request: the next one may come
    /// behind what is owed, if that comes at once (I11).
    Drain {
        /// Bytes that still belong to this request; at most [`DRAIN_MOST`].
        owed: u64,
    },
    /// Everything was sent, but the client may still be sending: the common ending (I9).
    Linger,
    /// The client must be able to tell that the response is cut, or is gone anyway: close at once.
    Sever,
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// How the client connection goes on.
    pub client: ClientEnd,
    /// The upstream connection goes back to the idle pool; otherwise it is to be closed.
    pub keep_upstream: bool,
    /// Why it did not end well, if it did not.
    pub cause: Option<Reason>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read the body and keep it.
    Collect,
    /// Connect to the upstream.
    Connect {
        /// Not through an idle connection.
        fresh: bool,
        /// Another target than the last, if there is one.
        other_target: bool,
    },
    /// Send the request head and the body bytes that came with it; read the response meanwhile.
    SendHead,
    /// Move the rest of the body.
    Upload,
    /// Give up moving the body.
    StopUpload,
    /// Send a 100 of toron's own.
    SendContinue,
    /// Pass the interim response on, then go on reading heads.
    SendInterim,
    /// Leave the interim response out and go on reading heads.
    SkipInterim,
    /// Pass the response head and the body on.
    Download,
    /// Pass the 101 on, then bytes in both directions.
    Tunnel,
    /// Close the upstream connection; nothing of it is wanted any more.
    CloseUpstream,
    /// Send toron's own answer to this.
    Answer(Reason),
    /// The transaction is over.
    Finish(Ending),
}

/// Orders of one step, in the order in which to carry them out.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    list: [Option<Order>; Orders::MOST],
    len: usize,
}

impl Orders {
    /// No step gives more.
    pub const MOST: usize = 4;

    /// No orders.
    #[must_use]
    pub fn none() -> Self {
        Orders {
            list: [None; Orders::MOST],
            len: 0,
        }
    }

    pub(super) fn push(&mut self, order: Order) {
        debug_assert!(
            self.len < Orders::MOST,
            "outbox overflow: {:?} and {order:?}",
            self.list
        );
        if let Some(place) = self.list.get_mut(self.len) {
            *place = Some(order);
            self.len += 1;
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The orders.
    pub fn iter(&self) -> impl Iterator<Item = Order> + '_ {
        self.list.iter().flatten().copied()
    }
}
