//! The thread that keeps the list of containers up to date (D3).
//!
//! The stream of events is opened first and the list read then, so that nothing falls between. An
//! event has the list read again a moment later, and so do the poll and a container that has no
//! address yet. Whatever fails is tried again with growing waits; what was found last stays.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{bounded, unbounded, Receiver, RecvTimeoutError, Sender};

use super::api::{self, Engine, EVENTS};
use super::backoff::Backoff;
use super::connection::{hang_up, Connection};
use super::container::Container;
use super::events;
use super::look::Looker;
use super::socket::{candidates_here, find, Candidate, Identity};
use crate::policy::discovery::DiscoverySettings;

/// From an event to the list: a `docker compose up` makes many at once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Limit on calls other than the list.
const CALL: Duration = Duration::from_secs(5);
/// Limits on the list; between them it may take as long as the poll interval.
const LIST: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
/// While there is no stream: how often to see whether the socket was made anew. One stat(2) each, so
/// that an engine that is back is found at once although the waits have grown long.
const SOCKET_CHECK: Duration = Duration::from_millis(250);
/// A container that has just started and has no address is looked at again so often, …
const AGAIN: Duration = Duration::from_millis(250);
/// … for so long (D5).
const JUST_STARTED: Duration = Duration::from_secs(2);

/// How it stands with the engine.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Who answered last.
    pub engine: Option<Engine>,
    /// The socket in use.
    pub socket: Option<PathBuf>,
    /// Whether the stream of events is open.
    pub connected: bool,
    /// Whether the last look failed.
    pub stale: bool,
    /// What is wrong.
    pub problem: Option<String>,
    /// When the containers were last seen.
    pub last_sync: Option<SystemTime>,
    /// Connections to the socket, failed ones included.
    pub connects: u64,
    /// Lists that were read.
    pub lists: u64,
    /// Looks that failed.
    pub failed_lists: u64,
}

/// Takes what is found.
pub trait Sink: Send + 'static {
    /// There is news: of the status, and a list if one was read. Returns the ids of containers that
    /// run and have no address yet.
    fn news(&self, status: &Status, list: Option<&[Container]>) -> Vec<String>;
}

/// What reaches the thread.
enum Message {
    /// The stream with this number told of something that counts.
    Event(u64),
    /// The stream with this number has ended.
    Ended(u64, String),
    /// Other settings.
    Settings(DiscoverySettings),
    /// The end.
    Stop,
}

/// The running thread. Dropping it ends the thread, which is not waited for: it may be in the middle
/// of a call.
#[derive(Debug)]
pub struct Watcher {
    sender: Sender<Message>,
    looked: Receiver<()>,
}

impl Watcher {
    /// Starts watching.
    pub fn start(settings: DiscoverySettings, sink: Box<dyn Sink>) -> io::Result<Self> {
        let (sender, inbox) = unbounded();
        let (first, looked) = bounded(1);
        let watch = Watch {
            backoff: Backoff::new(settings.poll_interval),
            settings,
            sink,
            inbox,
            sender: sender.clone(),
            first: Some(first),
            looker: Looker::default(),
            status: Status::default(),
            stream: None,
            streams: 0,
            seen: None,
            last: Vec::new(),
            events: 0,
            fresh: HashMap::new(),
            due: Instant::now(),
            said: None,
        };
        thread::Builder::new()
            .name("discovery".to_owned())
            .spawn(move || watch.run())?;
        Ok(Watcher { sender, looked })
    }

    /// Receives once, when the first look is over, whatever came of it.
    #[must_use]
    pub fn first_look(&self) -> Receiver<()> {
        self.looked.clone()
    }

    /// Goes on with other settings.
    pub fn set(&self, settings: DiscoverySettings) {
        // The thread lives as long as this.
        let _ = self.sender.send(Message::Settings(settings));
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.sender.send(Message::Stop);
    }
}

/// An open stream of events.
struct Stream {
    number: u64,
    handle: UnixStream,
    since: Instant,
}

struct Watch {
    settings: DiscoverySettings,
    sink: Box<dyn Sink>,
    inbox: Receiver<Message>,
    sender: Sender<Message>,
    /// Told after the first look.
    first: Option<Sender<()>>,
    looker: Looker,
    status: Status,
    stream: Option<Stream>,
    /// Streams so far.
    streams: u64,
    /// The socket that was there at the last attempt.
    seen: Option<Identity>,
    last: Vec<Container>,
    /// Events since the last list.
    events: u64,
    /// Containers without an address, and since when.
    fresh: HashMap<String, Instant>,
    /// When to look again.
    due: Instant,
    backoff: Backoff,
    /// The problem that the log knows of.
    said: Option<String>,
}

impl Watch {
    fn run(mut self) {
        loop {
            if self.due <= Instant::now() {
                self.attempt();
                if let Some(first) = self.first.take() {
                    let _ = first.send(());
                }
            }
            let check = Instant::now() + SOCKET_CHECK;
            let until = match self.stream {
                Some(_) => self.due,
                None => self.due.min(check),
            };
            match self.inbox.recv_deadline(until) {
                Ok(Message::Event(number)) if self.is_current(number) => {
                    self.events += 1;
                    self.due = self.due.min(Instant::now() + DEBOUNCE);
                }
                Ok(Message::Ended(number, reason)) if self.is_current(number) => self.lost(reason),
                Ok(Message::Event(_) | Message::Ended(..)) => {}
                Ok(Message::Settings(settings)) => self.set(settings),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => self.check_socket(),
            }
        }
        self.hang_up();
    }

    fn is_current(&self, number: u64) -> bool {
        self.stream.as_ref().is_some_and(|s| s.number == number)
    }

    fn hang_up(&mut self) {
        if let Some(stream) = self.stream.take() {
            hang_up(&stream.handle);
        }
        self.status.connected = false;
    }

    fn set(&mut self, settings: DiscoverySettings) {
        let same_place =
            settings.engine == self.settings.engine && settings.socket == self.settings.socket;
        self.backoff = Backoff::new(settings.poll_interval);
        self.settings = settings;
        if !same_place {
            self.hang_up();
            self.looker = Looker::default();
            self.status.engine = None;
        }
        self.due = Instant::now();
    }

    /// The stream has ended: the engine was restarted, or ends it now and then.
    fn lost(&mut self, reason: String) {
        let lived = self.stream.as_ref().map(|s| s.since.elapsed());
        self.hang_up();
        // One that ends as soon as it is open is no reason to hurry.
        if lived.is_some_and(|lived| lived >= self.settings.poll_interval.min(CALL)) {
            self.backoff.reset();
        }
        log::debug!("discovery: the stream of events has ended: {reason}");
        self.due = self.due.min(Instant::now() + self.backoff.wait());
        self.status.problem = Some(reason);
        self.sink.news(&self.status, None);
    }

    /// Without a stream: a socket that was made anew is worth an attempt at once.
    fn check_socket(&mut self) {
        if self.stream.is_some() || self.due <= Instant::now() {
            return;
        }
        let found = find(&candidates_here(&self.settings)).map(|(_, identity)| identity);
        if found.is_some() && found != self.seen {
            self.backoff.reset();
            self.due = Instant::now();
        }
    }

    /// Looks at the containers, and opens the stream first if there is none.
    fn attempt(&mut self) {
        let had_stream = self.stream.is_some();
        let events = std::mem::take(&mut self.events);
        match self.look() {
            Ok(list) => {
                // No event tells of an address that comes late.
                let told = |c: &&Container| !self.fresh.contains_key(&c.id);
                let same = list.iter().filter(told).eq(self.last.iter().filter(told));
                let unheard = had_stream && events == 0 && self.events == 0 && !same;
                self.found(list);
                if unheard && self.status.lists > 1 {
                    self.deaf();
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    fn found(&mut self, list: Vec<Container>) {
        self.status.lists += 1;
        self.status.stale = false;
        self.status.last_sync = Some(SystemTime::now());
        let unfinished = self.sink.news(&self.status, Some(&list));
        self.last = list;
        let now = Instant::now();
        self.fresh.retain(|id, _| unfinished.contains(id));
        for id in unfinished {
            self.fresh.entry(id).or_insert(now);
        }
        self.due = now + self.settings.poll_interval;
        if self
            .fresh
            .values()
            .any(|&since| now.duration_since(since) < JUST_STARTED)
        {
            self.due = self.due.min(now + AGAIN);
        }
        if self.stream.is_none() {
            // Lists work and events do not.
            self.due = self.due.min(now + self.backoff.wait());
        }
        self.say();
    }

    fn failed(&mut self, error: &io::Error) {
        self.status.failed_lists += 1;
        self.status.stale = true;
        self.status.problem = Some(error.to_string());
        self.due = Instant::now() + self.backoff.wait();
        self.sink.news(&self.status, None);
        self.say();
    }

    /// The poll found what the stream should have told: it is open and dead.
    fn deaf(&mut self) {
        log::warn!("discovery: the stream of events misses changes; opening it anew");
        self.hang_up();
        self.due = Instant::now();
    }

    /// What the log does not know yet.
    fn say(&mut self) {
        if self.said == self.status.problem && (self.said.is_some() || self.status.lists != 1) {
            return;
        }
        match &self.status.problem {
            Some(problem) if self.status.stale => {
                let kept = if self.status.lists > 0 {
                    "; the routes stay as they are"
                } else {
                    ""
                };
                log::warn!("discovery: {problem}{kept}");
            }
            Some(problem) => log::warn!("discovery: {problem}; polling goes on"),
            None => {
                let (name, version) = match &self.status.engine {
                    Some(engine) => (engine.name, engine.version.as_str()),
                    None => ("engine", ""),
                };
                let socket = self.status.socket.clone().unwrap_or_default();
                log::info!("discovery: {name} {version} at {}", socket.display());
            }
        }
        self.said.clone_from(&self.status.problem);
    }

    fn look(&mut self) -> io::Result<Vec<Container>> {
        let candidates = candidates_here(&self.settings);
        let found = find(&candidates);
        self.seen = found.as_ref().map(|(_, identity)| identity.clone());
        let Some((candidate, _)) = found else {
            self.hang_up();
            let places: Vec<String> = candidates
                .iter()
                .map(|c| c.path.display().to_string())
                .collect();
            // Looked for again every poll, and whenever a socket appears.
            let text = format!("no socket at {}", places.join(", "));
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        let candidate = candidate.clone();
        self.status.socket = Some(candidate.path.clone());
        let in_place = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("{}: {error}", candidate.path.display()),
            )
        };
        self.look_at(&candidate).map_err(in_place)
    }

    fn look_at(&mut self, candidate: &Candidate) -> io::Result<Vec<Container>> {
        let mut without_events = None;
        let mut is_new = self.status.engine.is_none();
        if self.stream.is_none() {
            let connection = self.open(&candidate.path)?;
            match self.subscribe(connection) {
                Ok(()) => is_new = true,
                Err(error) => without_events = Some(format!("no events: {error}")),
            }
        }
        let mut connection = self.open(&candidate.path)?;
        if is_new {
            let engine = api::ping(&mut connection, Instant::now() + CALL)?;
            self.status.engine = Some(engine);
        }
        let limit = self.settings.poll_interval.clamp(LIST.0, LIST.1);
        let deadline = Instant::now() + limit;
        let list = self
            .looker
            .look(&mut connection, candidate.rootless, deadline)?;
        self.status.problem = without_events;
        Ok(list)
    }

    fn open(&mut self, path: &Path) -> io::Result<Connection> {
        self.status.connects += 1;
        Connection::open(path, Instant::now() + CALL)
    }

    fn subscribe(&mut self, connection: Connection) -> io::Result<()> {
        let body = connection.subscribe(EVENTS, Instant::now() + CALL)?;
        let handle = body.handle()?;
        self.streams += 1;
        let number = self.streams;
        let sender = self.sender.clone();
        let read = move || {
            // Whoever no longer listens needs no telling.
            let outcome = events::read(body, || {
                let _ = sender.send(Message::Event(number));
            });
            let reason = match outcome {
                Ok(()) => "it was closed".to_owned(),
                Err(error) => error.to_string(),
            };
            let _ = sender.send(Message::Ended(number, reason));
        };
        thread::Builder::new()
            .name("events".to_owned())
            .spawn(read)?;
        self.stream = Some(Stream {
            number,
            handle,
            since: Instant::now(),
        });
        self.status.connected = true;
        Ok(())
    }
}
