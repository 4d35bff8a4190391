//! Why a request is refused, and with which answer.

use super::answer::Answer;
use super::chunk::ChunkFault;
use super::path::PathFault;

/// A head that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFault {
    /// What the client is told.
    pub answer: Answer,
    /// What exactly was wrong, for log and refusals.
    pub reason: &'static str,
}

impl RequestFault {
    /// 400 with a reason code.
    pub fn bad(reason: &'static str) -> Self {
        Self {
            answer: Answer::BadRequest,
            reason,
        }
    }
}

impl From<PathFault> for RequestFault {
    fn from(fault: PathFault) -> Self {
        Self::bad(fault.reason())
    }
}

impl From<ChunkFault> for RequestFault {
    fn from(fault: ChunkFault) -> Self {
        let answer = match fault {
            ChunkFault::Bad(_) => Answer::BadRequest,
            ChunkFault::TrailersTooLarge => Answer::HeadTooLarge,
        };
        Self {
            answer,
            reason: fault.reason(),
        }
    }
}
