//! A simulated operation in flight, and what has happened to it but is not reported yet.

use crate::buffer::Buf;
use crate::engine::{Fd, Key, OpId, Outcome};
use crate::time::Time;

/// What keeps its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Lane {
    Read(i32),
    Write(i32),
    Hangup(i32),
    Buffer(u64),
}

#[derive(Debug)]
pub(super) struct Operation {
    pub key: Key,
    pub fd: Option<Fd>,
    pub lane: Lane,
    pub kind: Kind,
    /// Order of submission.
    pub sequence: u64,
    /// Not looked at before.
    pub from: Time,
    /// When a cancellation takes effect.
    pub cancelled: Option<Time>,
    /// The final event is held.
    pub ended: bool,
}

#[derive(Debug)]
pub(super) enum Kind {
    Accept,
    Connect,
    Recv {
        many: bool,
    },
    RecvInto(Option<Buf>),
    Send {
        buf: Option<Buf>,
        more: bool,
        parked: bool,
    },
    Readable,
    Writable,
    Hangup,
    ReadHangup,
    Buffer,
}

#[derive(Debug)]
pub(super) struct Held {
    pub op: OpId,
    pub key: Key,
    pub ready: Time,
    pub more: bool,
    pub outcome: Outcome,
}

impl Kind {
    pub(super) fn reads(&self) -> bool {
        matches!(self, Kind::Recv { .. } | Kind::RecvInto(_))
    }

    pub(super) fn writes(&self) -> bool {
        matches!(self, Kind::Send { .. } | Kind::Connect)
    }

    pub(super) fn polls(&self) -> bool {
        matches!(
            self,
            Kind::Readable | Kind::Writable | Kind::Hangup | Kind::ReadHangup
        )
    }

    pub(super) fn take_buf(&mut self) -> Option<Buf> {
        match self {
            Kind::RecvInto(buf) | Kind::Send { buf, .. } => buf.take(),
            _ => None,
        }
    }
}
