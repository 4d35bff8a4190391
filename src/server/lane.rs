//! What an operation's event is about.

use toron_reactor::{Key, Token};

/// The lane of a [`Key`]. `Client*`, `Buffer` and `Deadline` carry a session's token, `Upstream*`
/// an upstream connection's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Lane {
    /// Bytes or end of stream from the client.
    ClientRecv = 0,
    /// Bytes taken by the client.
    ClientSend,
    /// The client's socket can be read (bodies by splice, discarding).
    ClientReadable,
    /// The client's socket can be written (bodies by splice).
    ClientWritable,
    /// The client's connection is broken.
    ClientHangup,
    /// The client has finished sending, perhaps behind bytes that are unread.
    ClientReadHangup,
    /// A buffer that was waited for.
    Buffer,
    /// The session's deadline.
    Deadline,
    /// A dialled connection stands, or not.
    UpstreamConnect,
    /// Bytes or end of stream from the upstream.
    UpstreamRecv,
    /// Bytes taken by the upstream.
    UpstreamSend,
    /// The upstream's socket can be read.
    UpstreamReadable,
    /// The upstream's socket can be written.
    UpstreamWritable,
    /// Idle upstream connections are to be looked through.
    IdleSweep,
}

impl Lane {
    const ALL: [Lane; 14] = [
        Lane::ClientRecv,
        Lane::ClientSend,
        Lane::ClientReadable,
        Lane::ClientWritable,
        Lane::ClientHangup,
        Lane::ClientReadHangup,
        Lane::Buffer,
        Lane::Deadline,
        Lane::UpstreamConnect,
        Lane::UpstreamRecv,
        Lane::UpstreamSend,
        Lane::UpstreamReadable,
        Lane::UpstreamWritable,
        Lane::IdleSweep,
    ];

    /// The key of this lane for an entry.
    #[must_use]
    pub fn key(self, token: Token) -> Key {
        Key {
            token,
            lane: self as u8,
        }
    }

    /// The lane of a key made by [`Lane::key`].
    #[must_use]
    pub fn of(key: Key) -> Option<Lane> {
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
        assert_eq!(Lane::of(Key { token, lane: 14 }), None);
    }
}
