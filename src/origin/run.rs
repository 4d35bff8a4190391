//! Starting and ending the test origin.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use toron_reactor::sys::process;
use toron_reactor::{bind, EngineConfig, EngineKind, Pool, PoolConfig};

use super::Origin;

/// Responses under way get this long when the origin is told to end.
const GRACE: Duration = Duration::from_secs(1);
/// Connections that may wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: u32 = 4096;
/// Buffers per reactor (76 KiB each, made when needed). A client that does not read keeps one, so
/// there must be more of them than a test has such clients.
const BUFFERS: usize = 4096;

/// What `toron upstream` is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamArgs {
    /// Where to listen. Port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Which engine to run on.
    pub engine: EngineKind,
    /// Reactors (threads), at least 1.
    pub reactors: usize,
}

impl Default for UpstreamArgs {
    /// 127.0.0.1:9000, the best engine there is, a reactor for each core that the process may use.
    fn default() -> Self {
        UpstreamArgs {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 9000))],
            engine: EngineKind::Auto,
            reactors: process::cores(),
        }
    }
}

/// A running test origin.
#[derive(Debug)]
pub struct Upstream {
    pool: Pool<std::convert::Infallible>,
    addresses: Vec<SocketAddr>,
    engine: String,
}

impl Upstream {
    /// Binds, and starts serving. Fails if an address cannot be bound or the engine cannot be had.
    pub fn start(args: &UpstreamArgs) -> io::Result<Upstream> {
        let mut listeners = Vec::with_capacity(args.listen.len());
        let mut addresses = Vec::with_capacity(args.listen.len());
        for addr in &args.listen {
            let told = |error: io::Error| io::Error::new(error.kind(), format!("{addr}: {error}"));
            let listener = bind(addr, BACKLOG).map_err(told)?;
            addresses.push(listener.local_addr()?);
            listeners.push(listener);
        }
        let config = PoolConfig {
            reactors: args.reactors,
            engine: EngineConfig {
                buffers: BUFFERS,
                ..EngineConfig::default()
            },
            ..PoolConfig::default()
        };
        let (pool, _, engine) = Pool::start_on(args.engine, config, &listeners, |_| Origin::new())?;
        Ok(Upstream {
            pool,
            addresses,
            engine,
        })
    }

    /// The addresses listened on, in the order of [`UpstreamArgs::listen`].
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The reactors, for their figures.
    #[must_use]
    pub fn pool(&self) -> &Pool<std::convert::Infallible> {
        &self.pool
    }

    /// Stops accepting, gives responses under way `grace`, and ends. The first failure of a
    /// reactor is returned.
    pub fn stop(self, grace: Duration) -> io::Result<()> {
        self.pool.stop(grace).into_iter().collect()
    }
}

/// `toron upstream`: serves until SIGINT or SIGTERM. Writes `listening on ADDR` to standard error
/// for each listener, once connections are accepted.
pub fn run(args: &UpstreamArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("toron upstream: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &UpstreamArgs) -> io::Result<()> {
    // Before anything is announced: a signal that comes early must not be lost.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    if let Err(error) = process::raise_descriptor_limit() {
        log::warn!("cannot raise the limit of descriptors: {error}");
    }
    let upstream = Upstream::start(args)?;
    log::info!("{}", upstream.engine);
    for addr in upstream.addresses() {
        eprintln!("listening on {addr}");
    }
    signals.forever().next();
    upstream.stop(GRACE)
}
