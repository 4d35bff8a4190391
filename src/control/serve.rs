//! `toron serve`: starts everything, minds the signals, ends everything.

use std::io;
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use toron_reactor::{
    bind, Chosen, EngineKind, EpollEngine, NativeEngine, Pool, PoolConfig, UringEngine,
};

use super::config::{load, Inputs, Loaded};
use super::logs::{start_access_log, start_error_log, AccessWriter, ErrorLog, Reopeners};
use super::resolve::{Endpoints, Resolver};
use crate::args::ServeArgs;
use crate::http::answer::{Answer, Rendering};
use crate::policy::bulkhead::Bulkheads;
use crate::policy::settings::{Endpoint, EngineChoice, RouteKind, Settings};
use crate::policy::snapshot::Snapshot;
use crate::server::access_log::{self, AccessLog};
use crate::server::shared::Shared;
use crate::server::{Message, Server};

/// Connections that wait to be accepted, per listener (the kernel cuts it to
/// `net.core.somaxconn`, 4096 by default).
const BACKLOG: u32 = 4096;
/// How long the start waits for names to resolve; after that requests get a 502 until they do.
const FIRST_RESOLVE: Duration = Duration::from_secs(2);
/// Buffers that one reactor may have out, 76 KiB each (304 MiB in all, taken when needed). Idle connections and requests that wait for
/// their response hold none; a head of more than 4 KiB that is not whole yet, a client that does not take its response
/// and a copied body hold one each.
const BUFFERS: usize = 4096;

/// What routes keep over reloads.
#[derive(Default)]
struct Kept {
    endpoints: Endpoints,
    bulkheads: Bulkheads,
}

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
    loaded.snapshot.keep_counters(&mut kept.bulkheads);
    let error_log = match start_error_log(&loaded.snapshot.settings.logging) {
        Ok(error_log) => error_log,
        Err(error) => {
            eprintln!("toron: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = serve(&inputs, kept, loaded, &error_log);
    if let Err(error) = &outcome {
        log::error!("{error}");
    }
    error_log.flush();
    if outcome.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn serve(inputs: &Inputs, mut kept: Kept, loaded: Loaded, error_log: &ErrorLog) -> io::Result<()> {
    let settings = Arc::clone(&loaded.snapshot.settings);
    let reopeners = Reopeners::default();
    reopeners.add(error_log.reopener.clone());
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    match toron_reactor::sys::process::raise_descriptor_limit() {
        Ok(limit) => log::info!(
            "up to {limit} descriptors, so about {} connections",
            limit / 2
        ),
        Err(error) => log::warn!("cannot raise the limit of descriptors: {error}"),
    }
    // Before the threads, so that no signal is lost between.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    let (chosen, why) = engine_kind(settings.engine).choose()?;
    log::info!("engine {why}");
    let listeners = open_listeners(&settings)?;
    let names = names_in(&loaded.snapshot);
    let resolver = Resolver::start(names, settings.dns_refresh)?;
    if !resolver.wait_until_tried(FIRST_RESOLVE) {
        log::warn!("some upstream names are not resolved yet; serving nevertheless");
    }
    let (access_log, log_writer) = open_access_log(&settings, &reopeners)?;
    let name = match chosen {
        Chosen::IoUring => UringEngine::NAME,
        Chosen::Epoll => EpollEngine::NAME,
    };
    let snapshot = Arc::new(ArcSwap::from_pointee(loaded.snapshot));
    let cores = toron_reactor::sys::process::cores();
    let active = cores.min(settings.worker_pool_size);
    let shared = Shared::new(
        snapshot,
        settings.worker_pool_size,
        active,
        name,
        access_log,
    );
    shared
        .started
        .store(toron_reactor::sys::monotonic().0, Ordering::Relaxed);
    let pool = match chosen {
        Chosen::IoUring => start::<UringEngine>(&settings, &listeners, &shared)?,
        Chosen::Epoll => start::<EpollEngine>(&settings, &listeners, &shared)?,
    };
    for listener in &listeners {
        log::info!("listening on {}", listener.local_addr()?);
    }
    let process = Process {
        inputs,
        shared,
        pool,
        resolver,
        reopeners,
    };
    process.mind(signals, &mut kept);
    drop(listeners);
    if let Some(writer) = log_writer {
        writer.wait();
    }
    log::info!("ended");
    Ok(())
}

fn engine_kind(choice: EngineChoice) -> EngineKind {
    match choice {
        EngineChoice::Auto => EngineKind::Auto,
        EngineChoice::IoUring => EngineKind::IoUring,
        EngineChoice::Epoll => EngineKind::Epoll,
    }
}

fn open_listeners(settings: &Settings) -> io::Result<Vec<TcpListener>> {
    let open = |addr| {
        bind(addr, BACKLOG).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}"))
        })
    };
    settings.listen.iter().map(open).collect()
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

fn start<E: NativeEngine>(
    settings: &Settings,
    listeners: &[TcpListener],
    shared: &Arc<Shared>,
) -> io::Result<Pool<Message>> {
    let mut refusal = Vec::new();
    Answer::ConnectionLimit.write(&Rendering::CLOSE, &mut refusal);
    let mut config = PoolConfig {
        reactors: settings.worker_pool_size,
        refusal,
        ..PoolConfig::default()
    };
    config.engine.buffers = BUFFERS;
    let shared = Arc::clone(shared);
    let seed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| t.as_nanos() as u64)
        ^ (u64::from(std::process::id()) << 32);
    Pool::start::<E, _, _>(config, listeners, move |reactor| {
        Server::new(Arc::clone(&shared), reactor, seed)
    })
}

/// A running server, as seen by the thread that minds the signals.
struct Process<'a> {
    inputs: &'a Inputs,
    shared: Arc<Shared>,
    pool: Pool<Message>,
    resolver: Resolver,
    reopeners: Reopeners,
}

impl Process<'_> {
    fn mind(self, mut signals: Signals, kept: &mut Kept) {
        let ending = signals.forever().find(|&signal| match signal {
            SIGHUP => {
                self.reload(kept);
                false
            }
            SIGUSR1 => {
                self.reopeners.reopen_all();
                false
            }
            _ => true,
        });
        let settings = Arc::clone(&self.shared.snapshot.load().settings);
        let name = ending
            .and_then(signal_hook::low_level::signal_name)
            .unwrap_or("signal");
        log::info!("{name}: draining");
        self.shared.draining.store(true, Ordering::Relaxed);
        self.pool.send_to_running(|_| Message::Changed);
        end_on_another(signals);
        std::thread::sleep(settings.drain_delay);
        for outcome in self.pool.stop(settings.shutdown_grace) {
            if let Err(error) = outcome {
                log::error!("a reactor ended by an error: {error}");
            }
        }
        self.resolver.stop();
    }

    /// Reads both files anew. A bad file changes nothing.
    fn reload(&self, kept: &mut Kept) {
        let mut loaded = match load(self.inputs, &mut kept.endpoints) {
            Ok(loaded) => loaded,
            Err(rejected) => {
                for finding in &rejected.faults {
                    log::error!("{finding}");
                }
                log::error!(
                    "reload: nothing was changed ({} faults)",
                    rejected.faults.len()
                );
                return;
            }
        };
        for warning in &loaded.warnings {
            log::warn!("{warning}");
        }
        let old = self.shared.snapshot.load_full();
        let (before, after) = (&old.settings, &loaded.snapshot.settings);
        let fixed = [
            (before.listen != after.listen, "listeners"),
            (
                before.worker_pool_size != after.worker_pool_size,
                "server.worker_pool_size",
            ),
            (before.engine != after.engine, "server.engine"),
            (before.logging != after.logging, "logging"),
        ];
        for (_, what) in fixed.iter().filter(|(changed, _)| *changed) {
            log::warn!("reload: a change of {what} needs a restart; the rest is applied");
        }
        let refresh = after.dns_refresh;
        self.resolver.watch(names_in(&loaded.snapshot), refresh);
        if !self.resolver.wait_until_tried(FIRST_RESOLVE) {
            log::warn!("reload: some upstream names are not resolved yet");
        }
        loaded.snapshot.keep_counters(&mut kept.bulkheads);
        self.shared.snapshot.store(Arc::new(loaded.snapshot));
        self.pool.send_to_running(|_| Message::Changed);
        log::info!("reload: done");
    }
}

/// The endpoints behind the routes of a configuration.
fn names_in(snapshot: &Snapshot) -> Vec<Arc<Endpoint>> {
    let mut names: Vec<Arc<Endpoint>> = Vec::new();
    for route in snapshot.table.routes() {
        if let RouteKind::Upstream(upstream) = &route.kind {
            let endpoints = upstream.targets.iter().map(|target| &target.endpoint);
            names.extend(endpoints.cloned());
        }
    }
    names.sort_by_key(|endpoint| endpoint.id);
    names.dedup_by_key(|endpoint| endpoint.id);
    names
}

/// A second signal to end is heeded at once.
fn end_on_another(mut signals: Signals) {
    let waiting = std::thread::Builder::new().name("second-signal".to_owned());
    let started = waiting.spawn(move || {
        if signals
            .forever()
            .any(|signal| matches!(signal, SIGTERM | SIGINT))
        {
            log::warn!("a second signal: ending at once");
            std::process::exit(1);
        }
    });
    if let Err(error) = started {
        log::warn!("a second signal will not be heeded: {error}");
    }
}
