//! `toron serve`: starts everything, minds the signals, ends everything.

use std::io;
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use signal_hook::iterator::Signals;
use toron_reactor::{bind, sys, EngineKind, Pool, PoolConfig};

use super::admin::Office;
use super::config::{load, Inputs, Loaded};
use super::logs::{start_access_log, start_error_log, AccessWriter, ErrorLog, Reopeners};
use super::machine::Machine;
use super::needs::must_haves;
use super::publish::{names_in, Kept, Publisher, FIRST_RESOLVE};
use super::reload::{Cause, Reloads};
use super::resolve::Resolver;
use super::signals::{self, Meaning};
use crate::args::ServeArgs;
use crate::policy::demand::{Demand, BACKLOG, BUFFERS};
use crate::policy::settings::{EngineChoice, Settings};
use crate::policy::snapshot::Snapshot;
use crate::server::access_log::{self, AccessLog};
use crate::server::shared::Shared;
use crate::server::{without_descriptor, Message, Server};

/// How long the start waits for the list of containers: until then their requests get a 404.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// Runs the server until it is told to end.
#[must_use]
pub fn run(args: &ServeArgs) -> ExitCode {
    let inputs = Inputs::from_environment(args.config.clone(), args.routes.clone());
    let mut kept = Kept::default();
    let mut loaded = match load(&inputs, &mut kept.endpoints) {
        Ok(loaded) => loaded,
        Err(rejected) => {
            for finding in rejected.faults.iter().chain(&rejected.warnings) {
                eprintln!("{finding}");
            }
            return ExitCode::FAILURE;
        }
    };
    loaded.snapshot.keep_counters(&mut kept.counters);
    let error_log = match start_error_log(&loaded.snapshot.settings.logging) {
        Ok(error_log) => error_log,
        Err(error) => {
            eprintln!("toron: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = serve(inputs, kept, loaded, &error_log);
    if let Err(error) = &outcome {
        log::error!("{error}");
        let shown = error_log.reopener.is_none() && log::log_enabled!(log::Level::Error);
        if !shown {
            // Whoever starts it looks at the terminal first.
            eprintln!("toron: {error}");
        }
    }
    error_log.flush();
    if outcome.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn serve(inputs: Inputs, kept: Kept, loaded: Loaded, error_log: &ErrorLog) -> io::Result<()> {
    let settings = Arc::clone(&loaded.snapshot.settings);
    let reopeners = Arc::new(Reopeners::default());
    reopeners.add(error_log.reopener.clone());
    tell_beforehand(&loaded);
    // Before the threads, so that no signal is lost between.
    let signals = signals::catch()?;
    let listeners = open_listeners(&settings)?;
    let names = names_in(&loaded.snapshot);
    let resolver = Resolver::start(names, settings.dns_refresh)?;
    if !resolver.wait_until_tried(FIRST_RESOLVE) {
        log::warn!("some upstream names are not resolved yet; serving nevertheless");
    }
    let (access_log, log_writer) = open_access_log(&settings, &reopeners)?;
    let shared = share(loaded.snapshot, &settings, access_log);
    let publisher = Publisher::new(
        inputs,
        Arc::clone(&shared.snapshot),
        loaded.inherited,
        kept,
        resolver,
        Arc::clone(&shared.discovery),
    );
    publisher.start_discovery(FIRST_LOOK)?;
    shared.started.store(sys::monotonic().0, Ordering::Relaxed);
    let pool = start(&settings, &listeners, &shared)?;
    publisher.count_in(Arc::clone(&shared.reloads));
    publisher.tell(pool.running());
    let (reloads, reloading) = Reloads::start(publisher, Arc::clone(&shared))?;
    let answering = office(&shared, &pool, &reloads).start()?;
    tell_listeners(&listeners, &shared)?;
    // The reactors have their own: when they stop accepting, nobody else may hold the addresses.
    drop(listeners);
    let process = Process {
        reloads,
        shared,
        pool,
        reopeners,
        error_log: error_log.clone(),
    };
    process.mind(signals);
    for thread in [answering, reloading] {
        if thread.join().is_err() {
            log::error!("a control thread had panicked");
        }
    }
    if let Some(writer) = log_writer {
        writer.wait();
    }
    log::info!("ended");
    Ok(())
}

/// What is known before anything is opened: the warnings of the configuration, and what the machine
/// has less of than the server may need.
fn tell_beforehand(loaded: &Loaded) {
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    match sys::process::raise_descriptor_limit() {
        Ok(limit) => log::info!(
            "up to {limit} descriptors, so about {} connections",
            limit / 2
        ),
        Err(error) => log::warn!("cannot raise the limit of descriptors: {error}"),
    }
    for need in must_haves(&Machine::here(), &Demand::of(&loaded.snapshot)) {
        if let Some(line) = need.shortfall() {
            log::warn!("{line} (see toron tune)");
        }
    }
}

/// What the reactors share.
fn share(snapshot: Snapshot, settings: &Settings, access_log: Option<AccessLog>) -> Arc<Shared> {
    let snapshot = Arc::new(ArcSwap::from_pointee(snapshot));
    let cores = sys::process::cores();
    let active = cores.min(settings.worker_pool_size);
    let shared = Shared::new(snapshot, settings.worker_pool_size, active, access_log);
    if settings.admin.listen.is_some() {
        let place = u32::try_from(settings.listen.len()).unwrap_or(u32::MAX);
        shared.admin_listener.get_or_init(|| place);
    }
    shared
}

fn tell_listeners(listeners: &[TcpListener], shared: &Shared) -> io::Result<()> {
    // Whoever waits for these lines may use the admin API.
    for (listener, place) in listeners.iter().zip(0..) {
        let what = match shared.admin_listener.get() {
            Some(&admin) if admin == place => "for the admin API ",
            _ => "",
        };
        log::info!("{what}listening on {}", listener.local_addr()?);
    }
    Ok(())
}

fn office(shared: &Arc<Shared>, pool: &Pool<Message>, reloads: &Reloads) -> Office {
    let reloads = reloads.clone();
    Office {
        shared: Arc::clone(shared),
        reactors: pool.running(),
        reload: Box::new(move |ticket| reloads.ask(Cause::Question(ticket))),
    }
}

fn engine_kind(choice: EngineChoice) -> EngineKind {
    match choice {
        EngineChoice::Auto => EngineKind::Auto,
        EngineChoice::IoUring => EngineKind::IoUring,
        EngineChoice::Epoll => EngineKind::Epoll,
    }
}

/// Those for traffic, then the one of the admin API if it has its own.
fn open_listeners(settings: &Settings) -> io::Result<Vec<TcpListener>> {
    let open = |addr| {
        bind(addr, BACKLOG).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}"))
        })
    };
    settings
        .listen
        .iter()
        .chain(&settings.admin.listen)
        .map(open)
        .collect()
}

type LogWriter = Option<AccessWriter>;

fn open_access_log(
    settings: &Settings,
    reopeners: &Reopeners,
) -> io::Result<(Option<AccessLog>, LogWriter)> {
    let Some(sink) = &settings.logging.access_log else {
        return Ok((None, None));
    };
    let (log, source) = access_log::channel();
    let writer = start_access_log(sink, source)?;
    reopeners.add(writer.reopener.clone());
    Ok((Some(log), Some(writer)))
}

fn start(
    settings: &Settings,
    listeners: &[TcpListener],
    shared: &Arc<Shared>,
) -> io::Result<Pool<Message>> {
    let mut config = PoolConfig {
        reactors: settings.worker_pool_size,
        refusal: without_descriptor(settings.explain_header),
        ..PoolConfig::default()
    };
    config.engine.buffers = BUFFERS;
    let seed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| t.as_nanos() as u64)
        ^ (u64::from(std::process::id()) << 32);
    let make = {
        let shared = Arc::clone(shared);
        move |reactor| Server::new(Arc::clone(&shared), reactor, seed)
    };
    let kind = engine_kind(settings.engine);
    let (pool, chosen, why) = Pool::start_on(kind, config, listeners, make)?;
    log::info!("engine {why}");
    // Set once: nobody else does.
    let _ = shared.engine.set(chosen.name());
    Ok(pool)
}

/// A running server, as seen by the thread that minds the signals.
struct Process {
    reloads: Reloads,
    shared: Arc<Shared>,
    pool: Pool<Message>,
    reopeners: Arc<Reopeners>,
    error_log: ErrorLog,
}

impl Process {
    fn mind(self, mut signals: Signals) {
        let ending = signals.forever().find(|&signal| {
            match signals::meaning(signal) {
                Meaning::End => return true,
                Meaning::Reload => self.reloads.ask(Cause::Signal),
                Meaning::Reopen => self.reopeners.reopen_all(),
                Meaning::Nothing => ignore(signal),
            }
            false
        });
        let settings = Arc::clone(&self.shared.snapshot.load().settings);
        let name = ending.map_or("a signal", signals::name);
        log::info!(
            "{name}: draining (up to {} for requests in flight; a second {name} ends at once)",
            humantime::format_duration(settings.shutdown_grace)
        );
        self.shared.draining.store(true, Ordering::Relaxed);
        self.pool.send_to_running(|_| Message::Changed);
        let draining = Draining {
            shared: Arc::downgrade(&self.shared),
            reopeners: Arc::clone(&self.reopeners),
            error_log: self.error_log.clone(),
        };
        draining.mind(signals);
        std::thread::sleep(settings.drain_delay);
        for outcome in self.pool.stop(settings.shutdown_grace) {
            if let Err(error) = outcome {
                log::error!("a reactor ended by an error: {error}");
            }
        }
        tell_cut(&self.shared, settings.shutdown_grace);
        self.shared.desk.close();
        self.reloads.end();
    }
}

/// Says what the grace of a shutdown was too short for.
fn tell_cut(shared: &Shared, grace: Duration) {
    let requests = shared.cut_requests.load(Ordering::Relaxed);
    let connections = shared.cut_connections.load(Ordering::Relaxed);
    if requests + connections > 0 {
        log::warn!(
            "server.shutdown_grace ({}) was over: cut {requests} requests in flight, and \
             {connections} connections without one",
            humantime::format_duration(grace)
        );
    }
}

fn ignore(signal: i32) {
    log::warn!("{}: ignored, it has no meaning here", signals::name(signal));
}

/// What the thread that minds the signals has while the reactors end.
struct Draining {
    /// Not held: the access log ends with it.
    shared: Weak<Shared>,
    reopeners: Arc<Reopeners>,
    error_log: ErrorLog,
}

impl Draining {
    /// Minds the signals on a thread of its own, until the process ends.
    fn mind(self, mut signals: Signals) {
        let waiting = std::thread::Builder::new().name("signals".to_owned());
        let started = waiting.spawn(move || {
            for signal in signals.forever() {
                match signals::meaning(signal) {
                    Meaning::End => self.end_at_once(signal),
                    Meaning::Reload => log::warn!("SIGHUP: not reloading, toron is ending"),
                    Meaning::Reopen => self.reopeners.reopen_all(),
                    Meaning::Nothing => ignore(signal),
                }
            }
        });
        if let Err(error) = started {
            log::warn!("further signals will not be heeded: {error}");
        }
    }

    fn end_at_once(&self, signal: i32) {
        let left = self.shared.upgrade().map(|shared| shared.total());
        let left = left.unwrap_or_default();
        log::warn!(
            "{} while draining: ending at once. Cut requests in flight: {}, client connections: {}",
            signals::name(signal),
            left.exchanges,
            left.sessions
        );
        self.error_log.flush();
        std::process::exit(1);
    }
}
