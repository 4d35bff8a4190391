//! Promise 8 of the seam: a broken connection never looks like a finished one.

use std::io;
use std::num::NonZeroI32;

use crate::engine::Outcome;
use crate::planted::{self, Bug};

/// The error with which a connection broke, kept from when somebody was first told.
///
/// The kernel keeps the error of a connection (`sk_err`) until one call has returned it; after that
/// `recv(2)` returns 0, as after a FIN. With a send and a receive in flight it is a matter of luck
/// which of them is told, and a relay that passed the 0 on would make a cut stream look whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Broken(Option<NonZeroI32>);

impl Broken {
    /// Takes note of a failure. `EPIPE` is none: it follows a FIN that was received properly, or
    /// the own shutdown. Nor are errors of the caller (`EBADF`, `EINVAL`).
    fn note(&mut self, errno: i32) {
        let lost = matches!(
            errno,
            libc::ECONNRESET
                | libc::ETIMEDOUT
                | libc::ECONNABORTED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENETDOWN
        );
        if lost && !planted::active(Bug::ResetTakenForEnd) {
            self.0 = self.0.or(NonZeroI32::new(errno));
        }
    }

    fn errno(self) -> Option<i32> {
        self.0.map(NonZeroI32::get)
    }

    /// The outcome of an operation as it is to be reported.
    pub(crate) fn outcome(&mut self, outcome: Outcome) -> Outcome {
        match (outcome, self.errno()) {
            (Outcome::Eof { buf }, Some(errno)) => Outcome::Failed { errno, buf },
            (Outcome::Failed { errno, buf }, _) => {
                self.note(errno);
                Outcome::Failed { errno, buf }
            }
            (other, _) => other,
        }
    }

    /// The result of a direct read as it is to be returned.
    pub(crate) fn read(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        match (result, self.errno()) {
            (Ok(0), Some(errno)) => Err(io::Error::from_raw_os_error(errno)),
            (result, _) => self.write(result),
        }
    }

    /// The result of a direct write as it is to be returned.
    pub(crate) fn write(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        if let Some(errno) = result.as_ref().err().and_then(io::Error::raw_os_error) {
            self.note(errno);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(errno: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn an_end_after_an_error_is_that_error() {
        let mut broken = Broken::default();
        assert!(matches!(
            broken.outcome(Outcome::Eof { buf: None }),
            Outcome::Eof { .. }
        ));
        assert!(broken.write(error(libc::EPIPE)).is_err());
        assert!(broken.write(error(libc::EAGAIN)).is_err());
        assert!(broken.read(Ok(0)).is_ok());
        assert!(broken.write(error(libc::ECONNRESET)).is_err());
        let errno = broken.read(Ok(0)).map_err(|e| e.raw_os_error());
        assert_eq!(errno, Err(Some(libc::ECONNRESET)));
        let outcome = broken.outcome(Outcome::Eof { buf: None });
        assert!(matches!(
            outcome,
            Outcome::Failed {
                errno: libc::ECONNRESET,
                ..
            }
        ));
        assert!(broken.read(Ok(5)).is_ok());
    }
}
