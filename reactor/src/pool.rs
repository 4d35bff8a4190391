//! The pool of reactors: one thread each, fixed at start.
//!
//! A thread without connections blocks on its mailbox and costs its stack; engine, wheel, buffers
//! and service are made when it is first needed. Who is needed is decided by
//! [`placement`](crate::placement).

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{unbounded, Receiver, Sender};

use crate::acceptor::LogGate;
use crate::engine::Fd;
use crate::mailbox::{mailbox, Address, Mail, Mailbox};
use crate::native::{EngineConfig, NativeEngine};
use crate::placement::{Placement, HIGH_WATER};
use crate::reactor::{Reactor, Seat};
use crate::service::{Incoming, Service};
use crate::stats::ReactorStats;
use crate::sys;

/// How long [`Pool::stats`] waits for a reactor to answer.
const STATS_WAIT: Duration = Duration::from_secs(1);

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Reactors (threads), at least 1.
    pub reactors: usize,
    /// Cores to be kept busy; `None`: as many as the process may use ([`sys::process::cores`]).
    pub cores: Option<usize>,
    /// Connections on each active reactor beyond which one more is woken.
    pub high_water: usize,
    /// What each reactor's engine is opened with.
    pub engine: EngineConfig,
    /// Sent to those who are refused because descriptors have run out.
    pub refusal: Vec<u8>,
}

impl Default for PoolConfig {
    /// 128 reactors on all cores allowed.
    fn default() -> Self {
        PoolConfig {
            reactors: 128,
            cores: None,
            high_water: HIGH_WATER,
            engine: EngineConfig::default(),
            refusal: Vec::new(),
        }
    }
}

/// A bound, listening, non-blocking socket with `SO_REUSEADDR`. `backlog` is cut to
/// `net.core.somaxconn` by the kernel.
pub fn bind(addr: &SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let fd = sys::socket::listen(addr, backlog)?;
    // SAFETY: `fd` is a listening socket that nobody else owns.
    Ok(unsafe { TcpListener::from_raw_fd(fd.0) })
}

/// The running reactors. Dropping the handle leaves them running; end them with [`Pool::stop`].
#[derive(Debug)]
pub struct Pool<M> {
    addresses: Arc<[Address<M>]>,
    running: Arc<[AtomicBool]>,
    placement: Arc<Placement>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// What the threads share.
struct Shared<M, F> {
    config: PoolConfig,
    refusal: Arc<[u8]>,
    log: LogGate,
    addresses: Arc<[Address<M>]>,
    running: Arc<[AtomicBool]>,
    placement: Arc<Placement>,
    make: F,
}

/// By what a reactor that accepts from the start and the one who starts it wait for each other.
struct Report {
    /// Whether its engine could be opened.
    opened: Sender<io::Result<()>>,
    /// Something comes when all could; it ends without that when one could not.
    may_go: Receiver<()>,
}

/// Waits until so many reactors have told that they are open; the error of the first that is not.
fn all_opened(opened: &Receiver<io::Result<()>>, reactors: usize) -> io::Result<()> {
    (0..reactors).try_for_each(|_| {
        let died = || io::Error::other("a reactor died while it started");
        opened.recv().unwrap_or_else(|_| Err(died()))
    })
}

impl<M: Send + 'static> Pool<M> {
    /// Starts the threads, and accepts on `listeners` (which the pool duplicates: drop them after the
    /// start, or their addresses stay taken when the pool stops; their order gives
    /// [`Incoming::listener`]). `make` is called with the reactor's number, on its thread,
    /// when the reactor is first needed. Fails if a thread cannot be started or an engine of the
    /// reactors that accept cannot be opened.
    pub fn start<E, S, F>(
        config: PoolConfig,
        listeners: &[TcpListener],
        make: F,
    ) -> io::Result<Self>
    where
        E: NativeEngine,
        S: Service<E, Message = M>,
        F: Fn(usize) -> S + Send + Sync + 'static,
    {
        let reactors = config.reactors.max(1);
        let cores = config.cores.unwrap_or_else(sys::process::cores);
        let placement = Arc::new(Placement::new(reactors, cores, config.high_water));
        let (addresses, mailboxes): (Vec<_>, Vec<_>) = (0..reactors).map(|_| mailbox()).unzip();
        let shared = Arc::new(Shared {
            refusal: Arc::from(&config.refusal[..]),
            config,
            log: LogGate::default(),
            addresses: Arc::from(addresses),
            running: (0..reactors).map(|_| AtomicBool::new(false)).collect(),
            placement: Arc::clone(&placement),
            make,
        });
        let mut pool = Pool {
            addresses: Arc::clone(&shared.addresses),
            running: Arc::clone(&shared.running),
            placement,
            threads: Vec::with_capacity(reactors),
        };
        let (report, opened) = unbounded();
        let (go, may_go) = unbounded::<()>();
        let accepting = pool.placement.accepting();
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let listeners = if index < accepting {
                duplicate(listeners)?
            } else {
                Vec::new()
            };
            let report = (index < accepting).then(|| Report {
                opened: report.clone(),
                may_go: may_go.clone(),
            });
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new()
                .name(format!("reactor-{index}"))
                .spawn(move || run::<E, S, F>(&shared, index, mailbox, &listeners, report))?;
            pool.threads.push(thread);
        }
        drop(report);
        if let Err(error) = all_opened(&opened, accepting) {
            drop(go);
            pool.stop(Duration::ZERO);
            return Err(error);
        }
        for _ in 0..accepting {
            // One that does not take it has ended, which the placement knows.
            let _ = go.send(());
        }
        Ok(pool)
    }

    /// How many reactors there are, running or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Never the case.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Connections per reactor and who is active.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// A handle to send messages to one reactor, which starts if it does not run.
    #[must_use]
    pub fn address(&self, reactor: usize) -> Option<&Address<M>> {
        self.addresses.get(reactor)
    }

    /// Sends a message to every reactor that runs. One that starts later does not get it: its
    /// service is made after it counts as running, and must begin with the present state.
    pub fn send_to_running(&self, message: impl FnMut(usize) -> M) {
        self.running().send(message);
    }

    /// A handle to send messages to every reactor that runs, for threads that may outlive the pool.
    #[must_use]
    pub fn running(&self) -> Running<M> {
        Running {
            addresses: Arc::clone(&self.addresses),
            running: Arc::clone(&self.running),
        }
    }

    /// What each reactor holds. One that does not answer within a second counts as not running.
    #[must_use]
    pub fn stats(&self) -> Vec<ReactorStats> {
        let mut answers = Vec::new();
        for (index, address) in self.addresses.iter().enumerate() {
            let runs = self
                .running
                .get(index)
                .is_some_and(|r| r.load(Ordering::SeqCst));
            let (sender, receiver) = unbounded();
            let asked = runs && address.post(Mail::Stats(sender)).is_ok();
            answers.push(asked.then_some(receiver));
        }
        let answer = |receiver: Receiver<ReactorStats>| receiver.recv_timeout(STATS_WAIT).ok();
        answers
            .into_iter()
            .map(|r| r.and_then(answer).unwrap_or_default())
            .collect()
    }

    /// Has every reactor stop accepting, finish what is in flight within `grace` and end, and
    /// waits for the threads. Returns how each ended.
    pub fn stop(self, grace: Duration) -> Vec<io::Result<()>> {
        self.placement.stop();
        for address in self.addresses.iter() {
            // A reactor that has ended needs no telling.
            let _ = address.post(Mail::Drain(grace));
        }
        let join = |thread: JoinHandle<io::Result<()>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a reactor panicked")))
        };
        self.threads.into_iter().map(join).collect()
    }
}

/// Sends to the reactors of a pool. Cloning gives another handle to the same pool.
#[derive(Debug)]
pub struct Running<M> {
    addresses: Arc<[Address<M>]>,
    running: Arc<[AtomicBool]>,
}

impl<M> Clone for Running<M> {
    fn clone(&self) -> Self {
        Running {
            addresses: Arc::clone(&self.addresses),
            running: Arc::clone(&self.running),
        }
    }
}

impl<M> Running<M> {
    /// Sends a message to reactor number `index`. Gives it back if there is none, or it has ended.
    pub fn send_to(&self, index: usize, message: M) -> Result<(), M> {
        match self.addresses.get(index) {
            Some(address) => address.send(message),
            None => Err(message),
        }
    }

    /// Sends a message, made for its number, to every reactor that runs; as
    /// [`Pool::send_to_running`].
    pub fn send(&self, mut message: impl FnMut(usize) -> M) {
        for (index, address) in self.addresses.iter().enumerate() {
            if self
                .running
                .get(index)
                .is_some_and(|r| r.load(Ordering::SeqCst))
            {
                // A reactor that has ended needs no message.
                let _ = address.send(message(index));
            }
        }
    }
}

/// Keeps others from giving connections to a reactor whose thread has ended, also by a panic.
struct Gone {
    index: usize,
    placement: Arc<Placement>,
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.placement.gone(self.index);
    }
}

fn duplicate(listeners: &[TcpListener]) -> io::Result<Vec<Fd>> {
    listeners
        .iter()
        .map(|listener| {
            let fd = Fd(listener.as_raw_fd());
            sys::socket::set_nonblocking(fd)?;
            sys::socket::duplicate(fd)
        })
        .collect()
}

fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(
        || io::Error::new(error.kind(), error.to_string()),
        io::Error::from_raw_os_error,
    )
}

/// What a thread of the pool does from its beginning to its end.
fn run<E, S, F>(
    shared: &Shared<S::Message, F>,
    index: usize,
    mailbox: Mailbox<S::Message>,
    listeners: &[Fd],
    report: Option<Report>,
) -> io::Result<()>
where
    E: NativeEngine,
    S: Service<E>,
    F: Fn(usize) -> S,
{
    sys::process::sharpen_timers();
    let _gone = Gone {
        index,
        placement: Arc::clone(&shared.placement),
    };
    let Some(Report { opened, may_go }) = report else {
        return run_when_needed::<E, S, F>(shared, index, mailbox);
    };
    let reactor = open::<E, S, F>(shared, index, mailbox, listeners);
    let reactor = reactor.map_err(|(error, _)| error);
    let outcome = reactor.as_ref().map(|_| ()).map_err(copy);
    // The starter waits for this.
    let _ = opened.send(outcome);
    let mut reactor = reactor?;
    // Nothing is accepted before it is certain that it will be served.
    match may_go.recv() {
        Ok(()) => reactor.run(),
        Err(_) => Ok(()),
    }
}

/// Makes a reactor on its thread. Gives the mailbox back if that fails.
#[allow(clippy::type_complexity)]
fn open<E, S, F>(
    shared: &Shared<S::Message, F>,
    index: usize,
    mailbox: Mailbox<S::Message>,
    listeners: &[Fd],
) -> Result<Reactor<E, S>, (io::Error, Mailbox<S::Message>)>
where
    E: NativeEngine,
    S: Service<E>,
    F: Fn(usize) -> S,
{
    let engine = match E::open(&shared.config.engine) {
        Ok(engine) => engine,
        Err(error) => {
            listeners.iter().for_each(|fd| sys::close(*fd));
            return Err((error, mailbox));
        }
    };
    if let Some(running) = shared.running.get(index) {
        running.store(true, Ordering::SeqCst);
    }
    let service = (shared.make)(index);
    let seat = Seat {
        index,
        placement: Arc::clone(&shared.placement),
        others: Arc::clone(&shared.addresses),
    };
    let refusal = Arc::clone(&shared.refusal);
    let mut reactor = Reactor::seated(
        engine,
        service,
        mailbox,
        refusal,
        shared.log.clone(),
        Some(seat),
    );
    for fd in listeners {
        if let Err(error) = reactor.listen(*fd) {
            log::error!("cannot listen on reactor {index}: {error}");
        }
    }
    Ok(reactor)
}

/// Gives a connection that was meant for reactor `from` to one of those that accept.
fn give_back<M, F>(shared: &Shared<M, F>, from: usize, incoming: Incoming) {
    let fd = incoming.fd;
    let to = from % shared.placement.accepting();
    shared.placement.count(to);
    let given = shared
        .addresses
        .get(to)
        .map(|address| address.post(Mail::Connection(incoming)));
    if !matches!(given, Some(Ok(()))) {
        // It has ended: so does the pool.
        sys::close(fd);
    }
}

/// Blocks until there is a reason to open an engine.
fn run_when_needed<E, S, F>(
    shared: &Shared<S::Message, F>,
    index: usize,
    mut mailbox: Mailbox<S::Message>,
) -> io::Result<()>
where
    E: NativeEngine,
    S: Service<E>,
    F: Fn(usize) -> S,
{
    loop {
        let mail = match mailbox.wait() {
            None | Some(Mail::Drain(_)) => return Ok(()),
            Some(Mail::Stats(answer)) => {
                // Whoever asked may have given up waiting.
                let _ = answer.send(ReactorStats::default());
                continue;
            }
            Some(mail @ (Mail::Message(_) | Mail::Connection(_))) => mail,
        };
        match open::<E, S, F>(shared, index, mailbox, &[]) {
            Ok(mut reactor) => {
                reactor.handle_mail(mail);
                return reactor.run();
            }
            Err((error, returned)) => {
                log::error!(
                    "cannot open an engine for reactor {index}: {error}; \
                     the connections meant for it go to those that run"
                );
                mailbox = returned;
                shared.placement.gone(index);
                if let Mail::Connection(incoming) = mail {
                    give_back(shared, index, incoming);
                }
            }
        }
    }
}
