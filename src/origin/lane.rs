//! What an operation's event is about.

use toron_reactor::{Key, Token};

/// The lane of a [`Key`]; the token is a session's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Lane {
    /// Bytes or end of stream from the client.
    Recv = 0,
    /// Bytes taken by the client.
    Send,
    /// The connection is broken.
    Hangup,
    /// A buffer that was waited for.
    Buffer,
    /// The session's deadline.
    Deadline,
}

impl Lane {
    const ALL: [Lane; 5] = [
        Lane::Recv,
        Lane::Send,
        Lane::Hangup,
        Lane::Buffer,
        Lane::Deadline,
    ];

    /// The key of this lane for a session.
    pub(super) fn key(self, token: Token) -> Key {
        Key {
            token,
            lane: self as u8,
        }
    }

    /// The lane of a key made by [`Lane::key`].
    pub(super) fn of(key: Key) -> Option<Lane> {
        Lane::ALL.get(usize::from(key.lane)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_comes_back_from_its_key() {
        let token = Token {
            index: 1,
            generation: 2,
        };
        for lane in Lane::ALL {
            assert_eq!(Lane::of(lane.key(token)), Some(lane));
        }
        assert_eq!(Lane::of(Key { token, lane: 5 }), None);
    }
}
