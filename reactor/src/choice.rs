//! Which kernel engine is used.

use std::io;
use std::net::TcpListener;

use crate::epoll::EpollEngine;
use crate::native::{EngineConfig, NativeEngine};
use crate::pool::{Pool, PoolConfig};
use crate::service::Service;
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

impl Chosen {
    /// As in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Chosen::IoUring => UringEngine::NAME,
            Chosen::Epoll => EpollEngine::NAME,
        }
    }
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

impl<M: Send + 'static> Pool<M> {
    /// [`Pool::start`] on the engine that is wanted. Says which one runs and why, for the log.
    ///
    /// With [`EngineKind::Auto`] io_uring gives way to epoll when not every reactor that accepts gets
    /// its ring: locked memory may be enough for one and not for all. (One that is woken later and
    /// gets none leaves its connections to those.) No ring is opened for a try: the kernel takes
    /// its time to count its memory as free again, which the reactors' own rings would then miss.
    pub fn start_on<S, F>(
        kind: EngineKind,
        config: PoolConfig,
        listeners: &[TcpListener],
        make: F,
    ) -> io::Result<(Self, Chosen, String)>
    where
        S: Service<UringEngine, Message = M> + Service<EpollEngine, Message = M>,
        F: Fn(usize) -> S + Clone + Send + Sync + 'static,
    {
        let why = if kind == EngineKind::Epoll {
            "epoll: as configured".to_owned()
        } else {
            let started = Self::start::<UringEngine, S, F>(config.clone(), listeners, make.clone());
            match started {
                Ok(pool) => {
                    let why = match kind {
                        EngineKind::IoUring => "io_uring: as configured",
                        _ => "io_uring: the kernel offers all that is needed",
                    };
                    return Ok((pool, Chosen::IoUring, why.to_owned()));
                }
                Err(error) => {
                    let why = why_no_ring(&error);
                    if kind == EngineKind::IoUring {
                        return Err(io::Error::new(error.kind(), why));
                    }
                    format!("epoll: {why}")
                }
            }
        };
        let pool = Self::start::<EpollEngine, S, F>(config, listeners, make)?;
        Ok((pool, Chosen::Epoll, why))
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
        Some(libc::ENOMEM) => {
            "no memory for a ring for each reactor that accepts (ENOMEM: RLIMIT_MEMLOCK?)".to_owned()
        }
        _ => format!("io_uring cannot be set up ({error})"),
    }
}
