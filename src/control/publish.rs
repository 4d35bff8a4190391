//! Snapshots are made and published here and nowhere else.
//!
//! Routes have several sources (R6): the files, and discovery of containers. Each replaces only its
//! own; whichever changes, all routes are compiled together into one snapshot that takes the place
//! of the one before in one step, and what routes keep over changes is handed on.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use toron_reactor::Running;

use super::config::finding::Finding;
use super::config::inherited::Inherited;
use super::config::{files, load, Inputs, Loaded, Rejected};
use super::discovered::Discovered;
use super::discovery::container::Container;
use super::discovery::watch::{Sink, Status};
use super::probe::Prober;
use super::resolve::{Endpoints, Resolver};
use crate::policy::discovery::DiscoveryView;
use crate::policy::router::compile;
use crate::policy::settings::{Endpoint, Route, Settings};
use crate::policy::snapshot::{Counters, SharedSnapshot, Snapshot};
use crate::server::metrics::reloads::Reloads;
use crate::server::Message;

/// How long a change waits for names to resolve; after that requests get a 502 until they do.
pub const FIRST_RESOLVE: Duration = Duration::from_secs(2);

/// What routes keep over changes.
#[derive(Debug, Default)]
pub struct Kept {
    /// Addresses of targets and the identity of their idle connections.
    pub endpoints: Endpoints,
    /// What is counted by route, and the state of targets.
    pub counters: Counters,
}

/// What a reload did.
#[derive(Debug)]
pub struct Applied {
    /// What the operator should know of the files.
    pub warnings: Vec<Finding>,
    /// Settings that have changed in the files and hold from the next start on only.
    pub needs_restart: Vec<&'static str>,
    /// Whether some upstream name had not been asked for when the change was published.
    pub unresolved: bool,
}

/// Publishes snapshots. Shared by all threads that have changes to make.
#[derive(Debug)]
pub struct Publisher {
    /// For the threads that this one starts.
    me: Weak<Publisher>,
    inputs: Inputs,
    /// Those that the process started with: some of them hold until it ends.
    started: Arc<Settings>,
    snapshot: SharedSnapshot,
    /// Where what was discovered is shown.
    view: Arc<ArcSwapOption<DiscoveryView>>,
    /// Those to be told; none before they have started.
    reactors: OnceLock<Running<Message>>,
    /// Where reloads are counted.
    reloads: OnceLock<Arc<Reloads>>,
    resolver: Resolver,
    prober: Prober,
    /// Held for a whole reload, waiting for names included, so that two never overtake each other.
    reloading: Mutex<()>,
    state: Mutex<State>,
}

/// The routes by source, and what they keep.
#[derive(Debug)]
struct State {
    settings: Arc<Settings>,
    inherited: Inherited,
    files: Vec<Arc<Route>>,
    /// `None` while discovery is off.
    discovered: Option<Discovered>,
    /// How often discovery was switched on.
    discoveries: u64,
    kept: Kept,
    /// Replaced, and perhaps still in use by requests that began with them.
    retired: Vec<Arc<Snapshot>>,
}

impl Publisher {
    /// For the configuration in `snapshot`, which was read from `inputs`, is already in force and has
    /// its routes inherit `inherited`.
    #[must_use]
    pub fn new(
        inputs: Inputs,
        snapshot: SharedSnapshot,
        inherited: Inherited,
        kept: Kept,
        resolver: Resolver,
        view: Arc<ArcSwapOption<DiscoveryView>>,
    ) -> Arc<Self> {
        let first = snapshot.load_full();
        let prober = Prober::default();
        prober.watch(&first);
        let state = State {
            settings: Arc::clone(&first.settings),
            inherited,
            files: first.table.routes().to_vec(),
            discovered: None,
            discoveries: 0,
            kept,
            retired: Vec::new(),
        };
        Arc::new_cyclic(|me| Publisher {
            me: Weak::clone(me),
            inputs: Inputs {
                reactors: Some(first.settings.worker_pool_size),
                ..inputs
            },
            started: Arc::clone(&first.settings),
            snapshot,
            view,
            reactors: OnceLock::new(),
            reloads: OnceLock::new(),
            resolver,
            prober,
            reloading: Mutex::new(()),
            state: Mutex::new(state),
        })
    }

    /// From now on `reactors` are told of every change.
    pub fn tell(&self, reactors: Running<Message>) {
        // They may have begun with a snapshot that has been replaced since.
        let reactors = self.reactors.get_or_init(|| reactors);
        reactors.send(|_| Message::Changed);
    }

    /// The files that are read, the configuration first.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        files(&self.inputs)
    }

    /// From now on reloads are counted there, too.
    pub fn count_in(&self, reloads: Arc<Reloads>) {
        self.reloads.get_or_init(|| reloads);
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.snapshot.load().settings)
    }

    /// Reads both files anew and publishes what they say. A bad file changes nothing.
    pub fn reload(&self) -> Result<Applied, Rejected> {
        let outcome = self.try_reload();
        if let Some(reloads) = self.reloads.get() {
            match &outcome {
                Ok(_) => reloads.count_applied(),
                Err(_) => reloads.count_rejected(),
            }
        }
        outcome
    }

    fn try_reload(&self) -> Result<Applied, Rejected> {
        let _one_at_a_time = lock(&self.reloading);
        let Loaded {
            snapshot,
            warnings,
            inherited,
            ..
        } = load(&self.inputs, &mut lock(&self.state).kept.endpoints)?;
        let settings = Arc::clone(&snapshot.settings);
        let needs_restart = needs_restart(&self.started, &settings);
        let names = names_in(&snapshot);
        self.resolver.watch(names, settings.dns_refresh);
        // Without the state locked: discovery goes on meanwhile.
        let resolved = self.resolver.wait_until_tried(FIRST_RESOLVE);
        let mut state = lock(&self.state);
        state.settings = settings;
        state.inherited = inherited;
        state.files = snapshot.table.routes().to_vec();
        if let Err(error) = self.set_discovery(&mut state) {
            log::error!("reload: discovery cannot be started: {error}");
        }
        state.work_out();
        self.publish(&mut state);
        self.show(&mut state);
        Ok(Applied {
            warnings,
            needs_restart,
            unresolved: !resolved,
        })
    }

    /// Begins to look for containers if the configuration has it so, and waits until that was done
    /// once, but not longer than `limit`. Fails if a thread cannot be made.
    pub fn start_discovery(&self, limit: Duration) -> io::Result<()> {
        let mut state = lock(&self.state);
        self.set_discovery(&mut state)?;
        let first = state.discovered.as_ref().map(|d| d.watcher().first_look());
        self.show(&mut state);
        drop(state);
        if let Some(first) = first {
            // Late is no fault: routes come when they come.
            let _ = first.recv_timeout(limit);
        }
        Ok(())
    }

    /// Switches discovery on or off, as the settings say, or has it go on with others.
    fn set_discovery(&self, state: &mut State) -> io::Result<()> {
        match (&state.settings.discovery, &mut state.discovered) {
            (None, discovered) => *discovered = None,
            (Some(settings), Some(discovered)) => discovered.set(settings),
            (Some(settings), discovered) => {
                state.discoveries += 1;
                let number = state.discoveries;
                let sink = Box::new(ToPublisher {
                    publisher: Weak::clone(&self.me),
                    number,
                });
                *discovered = Some(Discovered::start(number, settings.clone(), sink)?);
            }
        }
        Ok(())
    }

    /// Takes news of the discovery with this number.
    fn news(&self, number: u64, status: &Status, list: Option<&[Container]>) -> Vec<String> {
        let mut state = lock(&self.state);
        let Some(discovered) = state.discovered.as_mut().filter(|d| d.number == number) else {
            return Vec::new();
        };
        if discovered.take(status, list) && state.work_out() {
            self.publish(&mut state);
        }
        self.show(&mut state);
        let discovered = state.discovered.as_ref();
        let unfinished = discovered.map_or(Vec::new(), Discovered::unfinished);
        drop(state);
        self.free_retired();
        unfinished
    }

    fn publish(&self, state: &mut State) {
        let mut routes: Vec<Route> = state.files.iter().map(|r| Route::clone(r)).collect();
        if let Some(discovered) = &state.discovered {
            routes.extend_from_slice(discovered.routes());
        }
        let made = compile(routes);
        if let Some(discovered) = &mut state.discovered {
            discovered.set_shadowed(&made.shadowed);
        }
        let mut snapshot = Snapshot::new(Arc::clone(&state.settings), made.table);
        snapshot.keep_counters(&mut state.kept.counters);
        self.prober.watch(&snapshot);
        state.retired.push(self.snapshot.swap(Arc::new(snapshot)));
        if let Some(reactors) = self.reactors.get() {
            reactors.send(|_| Message::Changed);
        }
    }

    fn show(&self, state: &mut State) {
        let view = state.discovered.as_mut().map(Discovered::show);
        self.view.store(view.map(Arc::new));
    }
}

impl State {
    /// Works out what was discovered anew. `true` if it is other routes than before.
    fn work_out(&mut self) -> bool {
        let Some(discovered) = &mut self.discovered else {
            return false;
        };
        let methods = self.files.iter().flat_map(|route| &route.methods);
        let endpoints = &mut self.kept.endpoints;
        // By the container's id: an address that another one had before is another endpoint (D5).
        discovered.work_out(
            &self.inherited,
            methods.cloned().collect(),
            &mut |at, id| endpoints.get_identified(&at.ip().to_string(), at.port(), id),
        )
    }
}

/// Hands news to the publisher, as long as there is one.
#[derive(Debug)]
struct ToPublisher {
    publisher: Weak<Publisher>,
    number: u64,
}

impl Sink for ToPublisher {
    fn news(&self, status: &Status, list: Option<&[Container]>) -> Vec<String> {
        let publisher = self.publisher.upgrade();
        publisher.map_or(Vec::new(), |p| p.news(self.number, status, list))
    }
}

impl Publisher {
    /// Frees the snapshots that nobody uses any more. Tables of many routes take milliseconds to
    /// free, which must not happen on the reactor that happens to be the last to let go. Returns how
    /// many are still in use.
    pub fn free_retired(&self) -> usize {
        let mut state = lock(&self.state);
        let (kept, free) = std::mem::take(&mut state.retired)
            .into_iter()
            .partition(|snapshot| Arc::strong_count(snapshot) > 1);
        state.retired = kept;
        let left = state.retired.len();
        drop(state);
        drop::<Vec<Arc<Snapshot>>>(free);
        left
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn needs_restart(before: &Settings, after: &Settings) -> Vec<&'static str> {
    let fixed = [
        (before.listen != after.listen, "listeners"),
        (
            before.worker_pool_size != after.worker_pool_size,
            "server.worker_pool_size",
        ),
        (before.engine != after.engine, "server.engine"),
        (before.logging != after.logging, "logging"),
        (before.admin.listen != after.admin.listen, "admin.listen"),
    ];
    let changed = fixed.iter().filter(|(changed, _)| *changed);
    changed.map(|&(_, what)| what).collect()
}

/// The endpoints behind the routes of a configuration.
#[must_use]
pub fn names_in(snapshot: &Snapshot) -> Vec<Arc<Endpoint>> {
    let mut names: Vec<Arc<Endpoint>> = Vec::new();
    for route in snapshot.table.routes() {
        let endpoints = route.targets().iter().map(|target| &target.endpoint);
        names.extend(endpoints.cloned());
    }
    names.sort_by_key(|endpoint| endpoint.id);
    names.dedup_by_key(|endpoint| endpoint.id);
    names
}
