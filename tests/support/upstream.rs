//! A scriptable upstream. It reads requests with the strict parser, logs every connection and every
//! byte, and answers as the script of the moment says. Per connection one thread reads and one
//! plays the script, so that bytes and the end of a connection are noted in every phase.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::contains;
use super::http::{parse_request, End, Head, Progress, Request};

/// One step of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// Wait for these bytes behind the request.
    Receive(Vec<u8>),
    /// Say nothing more, and keep the connection open.
    Hang,
}

/// When a request is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    #[default]
    AfterRequest,
    AfterHead,
}

/// What happens to the connection after an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    #[default]
    Keep,
    Close,
    Reset,
    Hang,
    ShutdownWrite,
    /// Goes on reading for so long, then closes.
    CloseAfter(Duration),
}

/// How requests are answered from now on, whichever connection they come by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Answer i to request i; the last one to all further ones when `repeat_last`, else the default.
    pub answers: Vec<Vec<Step>>,
    pub repeat_last: bool,
    pub when: When,
    pub then: Then,
}

/// What one connection from the proxy was like.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    pub id: u64,
    pub received: Vec<u8>,
    pub sent: Vec<u8>,
    pub requests: Vec<Request>,
    /// The head of a request that is not complete.
    pub started: Option<Head>,
    /// What the strict parser refused.
    pub invalid: Option<String>,
    /// When and how the proxy ended it.
    pub ended: Option<(Instant, End)>,
    /// The script has closed it from this side; what the reader sees after that says nothing.
    pub closed_here: bool,
    parsed: usize,
    tunnel: bool,
}

impl Connection {
    /// Heads of all requests, the unfinished one included.
    pub fn heads(&self) -> impl Iterator<Item = &Head> {
        self.requests
            .iter()
            .map(|r| &r.head)
            .chain(self.started.as_ref())
    }

    /// Takes what has been received, and reads what can be read of it.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        self.advance();
    }

    fn advance(&mut self) {
        while !self.tunnel && self.invalid.is_none() {
            match parse_request(&self.received[self.parsed..]) {
                Ok(Progress::Complete(request, used)) => {
                    self.requests.push(request);
                    self.parsed += used;
                    self.started = None;
                }
                Ok(Progress::Started(head)) => {
                    self.started = Some(head);
                    return;
                }
                Ok(Progress::Nothing) => return,
                Err(e) => self.invalid = Some(e),
            }
        }
    }
}

#[derive(Default)]
struct State {
    connections: Vec<Connection>,
    script: Script,
    /// Requests whose answer has begun, over all connections since the script was set.
    answered: usize,
    sockets: Vec<(u64, TcpStream)>,
    next_id: u64,
    stopping: bool,
}

impl State {
    fn connection(&mut self, id: u64) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|c| c.id == id)
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("upstream state")
    }

    /// Waits until `ready` gives a value. `None` when the connection's record is gone, or `limit`.
    fn wait<T>(
        &self,
        id: u64,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut Connection, &Script) -> Option<T>,
    ) -> Option<T> {
        let deadline = limit.map(|l| Instant::now() + l);
        let mut guard = self.lock();
        loop {
            let script = guard.script.clone();
            let found = ready(guard.connection(id)?, &script);
            if found.is_some() {
                return found;
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            guard = match left {
                Some(left) if left.is_zero() => return None,
                Some(left) => {
                    self.changed
                        .wait_timeout(guard, left)
                        .expect("upstream state")
                        .0
                }
                None => self.changed.wait(guard).expect("upstream state"),
            };
        }
    }
}

/// The upstream itself, on an address of its own.
pub struct Upstream {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Upstream {
    pub fn start() -> Self {
        let listener = super::listen();
        let addr = listener.local_addr().expect("upstream address");
        let shared = Arc::new(Shared::default());
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&listener, &shared))
        };
        Upstream {
            addr,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// Ends all connections, forgets what they were like and sets a script.
    pub fn begin(&self, script: Script) {
        let mut state = self.shared.lock();
        state.connections.clear();
        for (_, socket) in state.sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        state.script = script;
        state.answered = 0;
        self.shared.changed.notify_all();
    }

    /// Another script from here on; connections and log go on.
    pub fn set_script(&self, script: Script) {
        let mut state = self.shared.lock();
        state.script = script;
        state.answered = 0;
        self.shared.changed.notify_all();
    }

    /// The log so far, in order of acceptance.
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.lock().connections.clone()
    }

    /// Waits until so many answers have begun since the script was set: another one does not
    /// concern these requests any more.
    pub fn wait_for_answers(&self, limit: Duration, count: usize) -> bool {
        self.wait_for_state(limit, |state| state.answered >= count)
    }

    /// Waits until the log satisfies `done`.
    pub fn wait_for(&self, limit: Duration, done: impl Fn(&[Connection]) -> bool) -> bool {
        self.wait_for_state(limit, |state| done(&state.connections))
    }

    fn wait_for_state(&self, limit: Duration, done: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut guard = self.shared.lock();
        loop {
            if done(&guard) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            guard = self
                .shared
                .changed
                .wait_timeout(guard, left)
                .expect("upstream state")
                .0;
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.begin(Script::default());
        // Wakes the accept call.
        let _ = TcpStream::connect_timeout(&self.addr, Duration::from_secs(1));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let mut state = shared.lock();
        if state.stopping {
            return;
        }
        let Ok(stream) = stream else { continue };
        let _ = stream.set_nodelay(true);
        let _ = stream.set_write_timeout(Some(super::PATIENCE));
        let (Ok(reading), Ok(kept)) = (stream.try_clone(), stream.try_clone()) else {
            continue;
        };
        state.next_id += 1;
        let id = state.next_id;
        state.connections.push(Connection {
            id,
            ..Connection::default()
        });
        state.sockets.push((id, kept));
        drop(state);
        let (for_reader, for_player) = (Arc::clone(shared), Arc::clone(shared));
        std::thread::spawn(move || read_all(reading, id, &for_reader));
        std::thread::spawn(move || play(stream, id, &for_player));
    }
}

fn read_all(mut stream: TcpStream, id: u64, shared: &Shared) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let got = match stream.read(&mut buffer) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            got => got,
        };
        let mut state = shared.lock();
        let Some(connection) = state.connection(id) else {
            return;
        };
        match got {
            Ok(n) if n > 0 => {
                connection.feed(&buffer[..n]);
            }
            _ if connection.closed_here => return,
            Ok(_) => connection.ended = Some((Instant::now(), End::Fin)),
            Err(_) => connection.ended = Some((Instant::now(), End::Reset)),
        }
        let over = connection.ended.is_some();
        drop(state);
        shared.changed.notify_all();
        if over {
            return;
        }
    }
}

/// What the player found to do next.
enum Next {
    Answer(Box<Head>),
    Refuse,
    Over,
}

fn play(mut stream: TcpStream, id: u64, shared: &Shared) {
    let mut done = 0;
    loop {
        let next = shared.wait(id, None, |c, script| {
            if let Some(request) = c.requests.get(done) {
                return Some(Next::Answer(Box::new(request.head.clone())));
            }
            if c.invalid.is_some() {
                return Some(Next::Refuse);
            }
            match &c.started {
                Some(head) if script.when == When::AfterHead && c.requests.len() == done => {
                    Some(Next::Answer(Box::new(head.clone())))
                }
                _ => c.ended.is_some().then_some(Next::Over),
            }
        });
        let head = match next {
            Some(Next::Answer(head)) => head,
            Some(Next::Refuse) => {
                write(
                    &mut stream,
                    id,
                    shared,
                    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
                break;
            }
            Some(Next::Over) | None => break,
        };
        let (steps, then) = take_answer(shared, &head);
        done += 1;
        if !perform(&mut stream, id, shared, &steps) || !after(&stream, id, shared, then) {
            break;
        }
    }
    release(&stream, id, shared);
}

fn take_answer(shared: &Shared, head: &Head) -> (Vec<Step>, Then) {
    let mut state = shared.lock();
    let index = state.answered;
    state.answered += 1;
    shared.changed.notify_all();
    let script = &state.script;
    let scripted = match script.answers.get(index) {
        None if script.repeat_last => script.answers.last(),
        found => found,
    };
    match scripted {
        Some(steps) => (steps.clone(), script.then),
        None => default_answer(head),
    }
}

/// `200`, `OK`; the target comes back in a field so that a mixed-up answer shows.
fn default_answer(head: &Head) -> (Vec<Step>, Then) {
    let close = head
        .all("connection")
        .iter()
        .any(|v| v.eq_ignore_ascii_case("close"));
    let body = if head.method() == "HEAD" { "" } else { "OK" };
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Echo-Target: {}\r\n{}\r\n{body}",
        head.target(),
        if close { "Connection: close\r\n" } else { "" },
    );
    let then = if close { Then::Close } else { Then::Keep };
    (vec![Step::Send(answer.into_bytes())], then)
}

fn write(stream: &mut TcpStream, id: u64, shared: &Shared, bytes: &[u8]) -> bool {
    for piece in bytes.chunks(64 * 1024) {
        if stream.write_all(piece).is_err() {
            return false;
        }
        let mut state = shared.lock();
        let Some(connection) = state.connection(id) else {
            return false;
        };
        connection.sent.extend_from_slice(piece);
    }
    true
}

fn perform(stream: &mut TcpStream, id: u64, shared: &Shared, steps: &[Step]) -> bool {
    for step in steps {
        let going_on = match step {
            Step::Send(bytes) => {
                if bytes.starts_with(b"HTTP/1.1 101") {
                    if let Some(connection) = shared.lock().connection(id) {
                        connection.tunnel = true;
                    }
                }
                write(stream, id, shared, bytes)
            }
            Step::Pause(time) => {
                // Ends early when the record is gone: the case is over.
                shared.wait(id, Some(*time), |_, _| None::<()>);
                shared.lock().connection(id).is_some()
            }
            Step::Receive(bytes) => shared
                .wait(id, Some(super::PATIENCE), |c, _| {
                    let found = contains(&c.received[c.parsed..], bytes);
                    (found || c.ended.is_some()).then_some(found)
                })
                .unwrap_or(false),
            Step::Hang => {
                wait_end(id, shared, None);
                false
            }
        };
        if !going_on {
            return false;
        }
    }
    true
}

fn wait_end(id: u64, shared: &Shared, limit: Option<Duration>) {
    shared.wait(id, limit, |c, _| c.ended.is_some().then_some(()));
}

/// Carries out what follows an answer. False when the connection is over.
fn after(stream: &TcpStream, id: u64, shared: &Shared, then: Then) -> bool {
    match then {
        Then::Keep => return true,
        Then::Close => {}
        Then::CloseAfter(time) => wait_end(id, shared, Some(time)),
        Then::Hang => wait_end(id, shared, None),
        Then::ShutdownWrite => {
            let _ = stream.shutdown(Shutdown::Write);
            wait_end(id, shared, None);
        }
        Then::Reset => {
            // Only the read side is shut, which sends nothing: the last close then sends RST.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
            let mut state = shared.lock();
            state.sockets.retain(|(i, _)| *i != id);
            if let Some(connection) = state.connection(id) {
                connection.closed_here = true;
            }
            drop(state);
            let _ = stream.shutdown(Shutdown::Read);
        }
    }
    false
}

/// Drops the kept handle and ends the reader, so that the descriptor is closed.
fn release(stream: &TcpStream, id: u64, shared: &Shared) {
    let mut state = shared.lock();
    let before = state.sockets.len();
    state.sockets.retain(|(i, _)| *i != id);
    let was_reset = state.sockets.len() == before;
    if let Some(connection) = state.connection(id) {
        connection.closed_here = true;
    }
    drop(state);
    if !was_reset {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
