//! A container engine as a script: it speaks as much of the Docker API as toron asks for, and fails
//! in every way that a test needs.

// Each test file is a crate of its own and uses a part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{json, Value};

/// How a call for the list goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lists {
    /// As it should.
    Well,
    /// Status 500.
    Error,
    /// Status 200 and no JSON.
    Garbage,
    /// A list cut in the middle, its length right.
    HalfJson,
    /// The connection ends in the middle.
    Cut,
    /// A byte every 50 ms, for ever.
    Slow,
    /// What a server of gRPC begins with.
    Grpc,
}

/// A container.
#[derive(Clone, Debug)]
pub struct Fake {
    pub id: String,
    pub entry: Value,
    /// The answer when it is asked for by itself.
    pub inspected: Value,
    /// `NetworkSettings` of both as text, for the order of its keys: [`Value`] sorts them.
    pub networks: Option<String>,
}

/// An object as text, with `NetworkSettings` in the place of its own.
fn text(object: &Value, networks: Option<&String>) -> String {
    let (Some(networks), Some(object)) = (networks, object.as_object()) else {
        return object.to_string();
    };
    let mut rest = object.clone();
    rest.remove("NetworkSettings");
    let rest = Value::from(rest).to_string();
    let comma = if rest == "{}" { "" } else { "," };
    format!("{{\"NetworkSettings\":{networks}{comma}{}", &rest[1..])
}

impl Fake {
    /// A running container as Docker lists it, in the machine's network.
    pub fn docker(name: &str, port: u16, labels: &[(&str, &str)]) -> Self {
        let id = format!("id-{name}");
        let mut all = serde_json::Map::new();
        all.insert("toron.enable".to_owned(), "true".into());
        all.insert("toron.port".to_owned(), port.to_string().into());
        for (label, value) in labels {
            all.insert((*label).to_owned(), (*value).into());
        }
        let entry = json!({
            "Id": id, "Names": [format!("/{name}")], "State": "running",
            "Status": "Up 2 minutes", "Labels": all, "Ports": [],
            "HostConfig": {"NetworkMode": "host"},
            "NetworkSettings": {"Networks": {"host": {"IPAddress": "", "GlobalIPv6Address": ""}}},
        });
        Fake {
            id,
            entry,
            inspected: Value::Null,
            networks: None,
        }
    }

    /// The same with one key of its entry replaced.
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.entry[key] = value;
        self
    }
}

struct State {
    containers: Vec<Fake>,
    lists: Lists,
    /// Events are not told, though the stream is open.
    mute: bool,
    /// What a stream of events begins with.
    greeting: Vec<u8>,
    streams: Vec<UnixStream>,
    /// The containers from the end of the next list on, told by an event at once.
    after_list: Option<Vec<Fake>>,
    streams_opened: usize,
    lists_read: usize,
    inspections: usize,
    connects: usize,
    stopping: bool,
}

impl State {
    fn send(&mut self, bytes: &[u8]) {
        if self.mute {
            return;
        }
        let chunk = chunk(bytes);
        // Those that are gone are of no interest.
        self.streams.retain_mut(|s| s.write_all(&chunk).is_ok());
    }
}

fn event(kind: &str, action: &str) -> String {
    let event = json!({
        "Type": kind, "Action": action, "status": action,
        "Actor": {"ID": "x", "Attributes": {"toron.enable": "true"}}, "time": 1,
    });
    format!("{event}\n")
}

/// The running engine. Dropping it ends it and removes its socket.
pub struct FakeEngine {
    pub socket: PathBuf,
    state: Arc<Mutex<State>>,
    acceptor: Option<JoinHandle<()>>,
}

impl FakeEngine {
    /// Listens on `socket`.
    pub fn start(socket: &Path, containers: Vec<Fake>) -> Self {
        let listener = UnixListener::bind(socket).expect("bind the engine's socket");
        let state = Arc::new(Mutex::new(State {
            containers,
            lists: Lists::Well,
            mute: false,
            greeting: Vec::new(),
            streams: Vec::new(),
            after_list: None,
            streams_opened: 0,
            lists_read: 0,
            inspections: 0,
            connects: 0,
            stopping: false,
        }));
        let shared = Arc::clone(&state);
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut state = shared.lock().expect("state");
                if state.stopping {
                    return;
                }
                state.connects += 1;
                drop(state);
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        FakeEngine {
            socket: socket.to_owned(),
            state,
            acceptor: Some(acceptor),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("state")
    }

    /// Replaces the containers and tells of it by one event.
    pub fn set(&self, containers: Vec<Fake>) {
        self.state().containers = containers;
        self.tell("container", "start");
    }

    /// Replaces the containers without a word.
    pub fn set_silently(&self, containers: Vec<Fake>) {
        self.state().containers = containers;
    }

    pub fn lists(&self, how: Lists) {
        self.state().lists = how;
    }

    pub fn mute(&self, mute: bool) {
        self.state().mute = mute;
    }

    /// Streams that are opened from now on begin with these bytes.
    pub fn greeting(&self, bytes: &[u8]) {
        self.state().greeting = bytes.to_vec();
    }

    /// Once the next list is made, and before it is sent, the containers are these, and one event
    /// tells of it: to whoever listens by then.
    pub fn set_behind_next_list(&self, containers: Vec<Fake>) {
        self.state().after_list = Some(containers);
    }

    /// Tells of an event.
    pub fn tell(&self, kind: &str, action: &str) {
        self.send(event(kind, action).as_bytes());
    }

    /// Sends bytes on all streams of events.
    pub fn send(&self, bytes: &[u8]) {
        self.state().send(bytes);
    }

    /// Ends all streams of events.
    pub fn end_streams(&self) {
        for stream in self.state().streams.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    pub fn streams_opened(&self) -> usize {
        self.state().streams_opened
    }

    pub fn lists_read(&self) -> usize {
        self.state().lists_read
    }

    pub fn inspections(&self) -> usize {
        self.state().inspections
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.state().stopping = true;
        self.end_streams();
        // Wakes the acceptor.
        let _ = UnixStream::connect(&self.socket);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// Answers requests until one ends the connection.
fn serve(stream: &UnixStream, shared: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    let mut out = stream;
    while let Some(target) = request(&mut reader) {
        let path = target.split('?').next().unwrap_or_default().to_owned();
        let goes_on = match path.as_str() {
            "/_ping" => answer(out, "Server: Docker/24.0.7 (linux)\r\n", b"OK").is_ok(),
            "/events" => {
                subscribe(stream, shared);
                return;
            }
            "/containers/json" => list(out, shared),
            path => {
                let mut state = shared.lock().expect("state");
                state.inspections += 1;
                let id = path
                    .strip_prefix("/containers/")
                    .and_then(|rest| rest.strip_suffix("/json"));
                let found = state.containers.iter().find(|c| Some(c.id.as_str()) == id);
                let inspected = found.map(|c| text(&c.inspected, c.networks.as_ref()));
                drop(state);
                match inspected {
                    Some(text) => answer(out, "", text.as_bytes()).is_ok(),
                    None => out
                        .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                        .is_ok(),
                }
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// The target of the next request.
fn request(reader: &mut BufReader<&UnixStream>) -> Option<String> {
    let mut first = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            return first.split(' ').nth(1).map(str::to_owned);
        }
        if first.is_empty() {
            first = line;
        }
    }
}

fn answer(mut out: &UnixStream, fields: &str, body: &[u8]) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\n{fields}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    out.write_all(&[head.as_bytes(), body].concat())
}

/// In chunks, as both engines send it. `false` ends the connection.
fn list(mut out: &UnixStream, shared: &Mutex<State>) -> bool {
    let mut state = shared.lock().expect("state");
    state.lists_read += 1;
    let how = state.lists;
    let entry = |c: &Fake| text(&c.entry, c.networks.as_ref());
    let entries: Vec<String> = state.containers.iter().map(entry).collect();
    if let Some(containers) = state.after_list.take() {
        state.containers = containers;
        state.send(event("container", "start").as_bytes());
    }
    drop(state);
    let text = format!("[{}]", entries.join(","));
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    match how {
        Lists::Well => {
            let mut bytes = head.to_vec();
            for part in text.as_bytes().chunks(1000) {
                bytes.extend(chunk(part));
            }
            bytes.extend(b"0\r\n\r\n");
            out.write_all(&bytes).is_ok()
        }
        Lists::Error => {
            let error = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}";
            out.write_all(error).is_ok()
        }
        Lists::Garbage => answer(out, "", b"\x00\xff<html>").is_ok(),
        Lists::HalfJson => answer(out, "", &text.as_bytes()[..text.len() / 2]).is_ok(),
        Lists::Cut => {
            let half = chunk(&text.as_bytes()[..text.len() / 2]);
            let _ = out.write_all(&[head, half.as_slice()].concat());
            false
        }
        Lists::Slow => {
            let _ = out.write_all(head);
            // Until nobody listens any more.
            while out.write_all(b"1\r\n[\r\n").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
            false
        }
        Lists::Grpc => {
            let _ = out.write_all(b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0");
            false
        }
    }
}

fn subscribe(mut out: &UnixStream, shared: &Mutex<State>) {
    let mut state = shared.lock().expect("state");
    state.streams_opened += 1;
    let grpc = state.lists == Lists::Grpc;
    let head: &[u8] = if grpc {
        b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0"
    } else {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    };
    let _ = out.write_all(head);
    if !state.greeting.is_empty() {
        let greeting = chunk(&state.greeting);
        let _ = out.write_all(&greeting);
    }
    if !grpc {
        if let Ok(stream) = out.try_clone() {
            state.streams.push(stream);
        }
    }
}
