//! What goes wrong, and how often.

use std::time::Duration;

use super::random::Random;

/// Probabilities (0 to 1) and sizes of what a simulation does to its engines. All chances are
/// drawn from the world's seed.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The time a segment needs, least and most.
    pub latency: (Duration, Duration),
    /// A segment (and all behind it) takes up to `stall_for` longer.
    pub stall: f64,
    /// See `stall`.
    pub stall_for: Duration,
    /// A send takes, or a receive or splice brings, only a part of what it could.
    pub short: f64,
    /// A segment carries only a part of what it could.
    pub short_segment: f64,
    /// A segment is replaced by a reset in both directions.
    pub reset: f64,
    /// A RST overtakes, and so destroys, the bytes in flight before it.
    pub reset_overtakes: f64,
    /// An operation is not looked at for up to `delay_for`, or its completion is reported that
    /// much after it happened, or a cancellation is heard of that much later.
    pub delay: f64,
    /// See `delay`.
    pub delay_for: Duration,
    /// An operation that can complete does so although it was cancelled.
    pub cancel_race: f64,
    /// An accept fails (`EMFILE`, `ENFILE`, `ENOMEM`, `ECONNABORTED`).
    pub accept_error: f64,
    /// A connect fails (`ECONNREFUSED`, `EHOSTUNREACH`, `ENETUNREACH`, `EADDRNOTAVAIL`).
    pub connect_error: f64,
    /// A SYN is lost, so that the connection stands a second or more later.
    pub syn_lost: f64,
    /// There is no socket (`EMFILE`).
    pub socket_error: f64,
    /// There is no pipe (`EMFILE`).
    pub pipe_error: f64,
    /// A new pipe is tiny (one or two pages).
    pub pipe_tiny: f64,
    /// The bytes of a segment lie in pieces smaller or larger than a page, each of which takes a
    /// slot of a pipe.
    pub fragments: f64,
    /// A splice says `WouldBlock` although it could move something.
    pub again: f64,
    /// A turn returns without an event, as after a wake-up.
    pub idle_turn: f64,
    /// The machine stands still for up to `pause_for` after a turn's waiting.
    pub pause: f64,
    /// See `pause`.
    pub pause_for: Duration,
    /// Bytes the send buffer of an endpoint holds, least and most.
    pub send_buffer: (usize, usize),
    /// Bytes the receive buffer of an endpoint holds, least and most.
    pub receive_buffer: (usize, usize),
}

const DELAY: Duration = Duration::from_micros(50);

impl Faults {
    /// A network and a kernel at their best: 50 µs latency, whole segments, nothing fails.
    #[must_use]
    pub fn none() -> Faults {
        Faults {
            latency: (DELAY, DELAY),
            stall: 0.0,
            stall_for: Duration::ZERO,
            short: 0.0,
            short_segment: 0.0,
            reset: 0.0,
            reset_overtakes: 0.0,
            delay: 0.0,
            delay_for: Duration::ZERO,
            cancel_race: 0.0,
            accept_error: 0.0,
            connect_error: 0.0,
            syn_lost: 0.0,
            socket_error: 0.0,
            pipe_error: 0.0,
            pipe_tiny: 0.0,
            fragments: 0.0,
            again: 0.0,
            idle_turn: 0.0,
            pause: 0.0,
            pause_for: Duration::ZERO,
            send_buffer: (256 * 1024, 256 * 1024),
            receive_buffer: (128 * 1024, 128 * 1024),
        }
    }

    /// A random mixture: each fault is absent in about half of all seeds, so that faults are seen
    /// alone as well as together.
    #[must_use]
    pub fn random(random: &mut Random) -> Faults {
        let mut p = |most: f64| {
            let level = random.below(8);
            most * [0.0, 0.0, 0.0, 0.0, 0.05, 0.2, 0.5, 1.0][level as usize]
        };
        let mut faults = Faults {
            stall: p(0.05),
            short: p(0.8),
            short_segment: p(0.5),
            reset: p(0.02),
            reset_overtakes: p(1.0),
            delay: p(0.5),
            cancel_race: p(1.0),
            accept_error: p(0.2),
            connect_error: p(0.2),
            syn_lost: p(0.3),
            socket_error: p(0.2),
            pipe_error: p(0.3),
            pipe_tiny: p(0.5),
            fragments: p(0.8),
            again: p(0.3),
            idle_turn: p(0.3),
            pause: p(0.05),
            ..Faults::none()
        };
        faults.latency.1 = DELAY + Duration::from_micros(1 << random.below(16));
        faults.stall_for = Duration::from_millis(1 << random.below(14));
        faults.delay_for = Duration::from_micros(1 << random.below(16));
        faults.pause_for = Duration::from_millis(1 << random.below(22));
        faults.send_buffer = buffer_sizes(random);
        faults.receive_buffer = buffer_sizes(random);
        faults
    }
}

fn buffer_sizes(random: &mut Random) -> (usize, usize) {
    let most = 1 << random.between(4, 17);
    (random.between(1, most) as usize, most as usize)
}
