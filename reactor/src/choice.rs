//! Which kernel engine is used.

use std::io;

use crate::epoll::EpollEngine;
use crate::native::{EngineConfig, NativeEngine};
use crate::uring::UringEngine;

/// Which engine is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineKind {
    /// io_uring when the kernel allows it, else epoll.
    #[default]
    Auto,
    /// io_uring or nothing.
    IoUring,
    /// epoll.
    Epoll,
}

/// Which engine is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chosen {
    /// [`UringEngine`].
    IoUring,
    /// [`EpollEngine`].
    Epoll,
}

impl EngineKind {
    /// Chooses by opening an engine for a try, and says what was chosen and why, for the log. An
    /// error when io_uring was demanded and cannot be had, or neither engine can.
    pub fn choose(self) -> io::Result<(Chosen, String)> {
        let config = EngineConfig {
            buffers: 1,
            ..EngineConfig::default()
        };
        if self == EngineKind::Epoll {
            EpollEngine::open(&config)?;
            return Ok((Chosen::Epoll, "epoll: as configured".to_owned()));
        }
        let why = match UringEngine::open(&config) {
            Ok(_) if self == EngineKind::Auto => "io_uring: the kernel offers all that is needed",
            Ok(_) => "io_uring: as configured",
            Err(error) => {
                let why = why_no_ring(&error);
                if self == EngineKind::IoUring {
                    return Err(io::Error::new(error.kind(), why));
                }
                EpollEngine::open(&config)?;
                return Ok((Chosen::Epoll, format!("epoll: {why}")));
            }
        };
        Ok((Chosen::IoUring, why.to_owned()))
    }
}

/// Why a ring could not be set up, in words.
fn why_no_ring(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            "io_uring_setup is not permitted here (EPERM: seccomp filter or kernel.io_uring_disabled)"
                .to_owned()
        }
        Some(libc::EACCES) => "io_uring_setup is not permitted here (EACCES)".to_owned(),
        Some(libc::ENOSYS) => "this kernel has no io_uring (ENOSYS)".to_owned(),
        Some(libc::EINVAL) => "this kernel's io_uring lacks SINGLE_ISSUER, DEFER_TASKRUN or \
                               buffer rings (EINVAL; Linux 6.1 has them)"
            .to_owned(),
        Some(libc::ENOMEM) => "no memory for a ring (ENOMEM: RLIMIT_MEMLOCK?)".to_owned(),
        _ => format!("io_uring cannot be set up ({error})"),
    }
}
