//! What signals mean.

use std::io;

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXFSZ,
};
use signal_hook::iterator::Signals;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// End: `SIGTERM`, `SIGINT`, and `SIGQUIT` as with nginx.
    End,
    /// Read the files again: `SIGHUP`.
    Reload,
    /// Open the logs again: `SIGUSR1`.
    Reopen,
    /// Nothing. Left alone, the signal would end the process on the spot.
    Nothing,
}

/// Every signal that is caught. Those that report a fault of the program, and those of a terminal's
/// job control, keep their usual effect.
const CAUGHT: [i32; 11] = [
    SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGXFSZ,
];

/// From now on signals are caught.
pub fn catch() -> io::Result<Signals> {
    Signals::new(CAUGHT)
}

/// What `signal` asks for.
#[must_use]
pub fn meaning(signal: i32) -> Meaning {
    match signal {
        SIGTERM | SIGINT | SIGQUIT => Meaning::End,
        SIGHUP => Meaning::Reload,
        SIGUSR1 => Meaning::Reopen,
        _ => Meaning::Nothing,
    }
}

/// `SIGTERM`, …
#[must_use]
pub fn name(signal: i32) -> &'static str {
    signal_hook::low_level::signal_name(signal).unwrap_or("a signal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_kill_is_caught_and_has_a_name() {
        for signal in CAUGHT {
            assert!(name(signal).starts_with("SIG"), "{signal}");
        }
        let ends = CAUGHT.iter().filter(|&&s| meaning(s) == Meaning::End);
        assert_eq!(ends.count(), 3);
        assert_eq!(meaning(SIGUSR2), Meaning::Nothing);
    }
}
