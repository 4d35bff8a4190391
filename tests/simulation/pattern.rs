//! Bytes that tell where they belong: each follows from whose body it is in and its position, so a
//! byte that is lost, doubled or in the wrong message is noticed.

/// Whose bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// A request body, or what a client sends through a tunnel.
    Client,
    /// A response body, or what an upstream sends through a tunnel.
    Upstream,
}

/// The byte at `position` of the body that belongs to request `id`.
pub fn byte(whose: Whose, id: usize, position: usize) -> u8 {
    let salt = (id as u32).wrapping_mul(0x9e37_79b1) ^ (0x5bd1_e995 * (1 + whose as u32));
    let mixed = (position as u32 ^ salt).wrapping_mul(0x85eb_ca6b);
    (mixed >> 23) as u8
}

/// A whole body.
pub fn bytes(whose: Whose, id: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| byte(whose, id, at)).collect()
}

/// Panics at the first byte that does not belong at its place.
pub fn check(whose: Whose, id: usize, from: usize, bytes: &[u8]) {
    for (at, found) in (from..).zip(bytes) {
        assert!(
            *found == byte(whose, id, at),
            "byte {at} of {whose:?}'s body {id} is another's: {found:#x}"
        );
    }
}
