//! toron with discovery on, and servers that say who they are.

// Each test file is a crate of its own and uses a part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::client::Client;
use crate::support::http::Response;
use crate::support::process::{OnDrop, Proc, Process};
use crate::support::setup::Engine;
use crate::support::toron::listening_on;
use crate::support::{listen, TempDir, PATIENCE};

const KEY: &str = "rig";

/// Names the test that runs in namespaces of its own.
pub const INSIDE: &str = "TORON_TEST_INSIDE";

/// A directory of the test's own: in namespaces its PID does not tell it from others.
pub fn scratch(what: &str) -> TempDir {
    match std::env::var(INSIDE) {
        // A colon would end a path among the options of an overlay.
        Ok(test) => TempDir::new(&format!("{what}-{}", test.replace(':', "_"))),
        Err(_) => TempDir::new(what),
    }
}

/// A server whose every answer is its name, as it was when the connection began.
pub struct Named {
    pub addr: SocketAddr,
    name: Arc<Mutex<String>>,
    stopping: Arc<AtomicBool>,
}

impl Named {
    pub fn start(name: &str) -> Self {
        Self::on(listen(), name)
    }

    pub fn on(listener: TcpListener, name: &str) -> Self {
        let addr = listener.local_addr().expect("address");
        let stopping = Arc::new(AtomicBool::new(false));
        let name = Arc::new(Mutex::new(name.to_owned()));
        let (stops, named) = (Arc::clone(&stopping), Arc::clone(&name));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stops.load(Ordering::SeqCst) {
                    return;
                }
                let name = named.lock().expect("name").clone();
                std::thread::spawn(move || say(&stream, &name));
            }
        });
        Named {
            addr,
            name,
            stopping,
        }
    }

    /// Two, at this port of 127.0.0.2 and 127.0.0.3: networks of one machine.
    pub fn pair(names: [&str; 2]) -> [Self; 2] {
        for _ in 0..100 {
            let first = TcpListener::bind("127.0.0.2:0").expect("bind port 0");
            let port = first.local_addr().expect("address").port();
            // Somebody else may have the same port there.
            if let Ok(second) = TcpListener::bind(("127.0.0.3", port)) {
                return [Self::on(first, names[0]), Self::on(second, names[1])];
            }
        }
        panic!("no port is free on both addresses");
    }

    /// Who answers on connections that begin from now on.
    pub fn rename(&self, name: &str) {
        name.clone_into(&mut self.name.lock().expect("name"));
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.addr);
    }
}

fn say(stream: &TcpStream, name: &str) {
    let mut out = stream;
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if !line.is_empty() {
            continue;
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}",
            name.len()
        );
        if out.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A toron under test.
pub struct Toron {
    pub addr: SocketAddr,
    pub process: Process,
    dir: TempDir,
}

/// config.yaml with `discovery` as given and `routes` behind it.
fn config(engine: Engine, discovery: &str, routes: &str) -> String {
    let engine = engine.name();
    format!(
        "server: {{host: 127.0.0.1, port: 0, engine: {engine}, worker_pool_size: 2}}\n\
         firewall: {{enabled: false}}\n\
         admin: {{key: {KEY}}}\n\
         discovery: {discovery}\n{routes}\n"
    )
}

impl Toron {
    /// Starts it on one socket.
    pub fn start(engine: Engine, socket: &Path, more: &str, routes: &str) -> Self {
        let discovery = format!("{{socket_path: {}{more}}}", socket.display());
        Self::with(engine, &discovery, routes)
    }

    pub fn with(engine: Engine, discovery: &str, routes: &str) -> Self {
        let dir = scratch("discovery");
        let path = dir.join("config.yaml");
        std::fs::write(&path, config(engine, discovery, routes)).expect("write config.yaml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
        command.arg("serve").arg("-c").arg(&path);
        command.current_dir(dir.path()).env("RUST_LOG", "info");
        let process = Process::spawn(command, "toron", OnDrop::Kill);
        let addr = process.wait_line(PATIENCE, listening_on);
        Toron { addr, process, dir }
    }

    /// Writes the file anew and has it read.
    pub fn reload(&self, engine: Engine, discovery: &str, routes: &str) {
        let path = self.dir.join("config.yaml");
        std::fs::write(path, config(engine, discovery, routes)).expect("write config.yaml");
        let response = self.ask("POST /internal/api/reload", "");
        assert_eq!(response.status, 200, "{response:?}");
    }

    /// The response to a request without a body.
    pub fn ask(&self, method_and_path: &str, fields: &str) -> Response {
        let host = if fields.to_ascii_lowercase().contains("host:") {
            ""
        } else {
            "Host: localhost\r\n"
        };
        let request = format!(
            "{method_and_path} HTTP/1.1\r\n{host}{fields}X-Toron-Admin-Key: {KEY}\r\n\
             Connection: close\r\n\r\n"
        );
        let mut client = Client::connect(self.addr, PATIENCE).expect("connect");
        client.send(request.as_bytes(), PATIENCE);
        assert!(
            client.receive_responses(1, PATIENCE),
            "{method_and_path}: no response"
        );
        client.parsed().responses.remove(0)
    }

    /// Status and body of a GET.
    pub fn get(&self, path: &str, fields: &str) -> (u16, String) {
        let response = self.ask(&format!("GET {path}"), fields);
        let body = String::from_utf8_lossy(&response.body).into_owned();
        (response.status, body)
    }

    pub fn api(&self, name: &str) -> Value {
        let (status, body) = self.get(&format!("/internal/api/{name}"), "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    pub fn discovery(&self) -> Value {
        self.api("discovery")
    }

    /// Waits until the state of discovery satisfies `done`, and gives it.
    pub fn await_discovery(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        await_that(what, || {
            let state = self.discovery();
            if done(&state) {
                Ok(state)
            } else {
                Err(state.to_string())
            }
        })
    }

    /// Waits until a GET has this body.
    pub fn await_body(&self, path: &str, fields: &str, body: &str) {
        await_that(path, || {
            let got = self.get(path, fields);
            if got == (200, body.to_owned()) {
                Ok(())
            } else {
                Err(format!("{got:?}"))
            }
        });
    }

    /// Waits until a GET has this status.
    pub fn await_status(&self, path: &str, fields: &str, status: u16) {
        await_that(path, || match self.get(path, fields) {
            (got, _) if got == status => Ok(()),
            got => Err(format!("{got:?}")),
        });
    }

    pub fn proc(&self) -> Proc {
        Proc(self.process.pid())
    }
}

/// Tries until it is so.
pub fn await_that<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(seen) => {
                let seen: String = seen.chars().take(3000).collect();
                assert!(Instant::now() < deadline, "{what}: {seen}");
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The container with this name.
pub fn container<'v>(state: &'v Value, name: &str) -> &'v Value {
    let all = state["containers"].as_array().expect("containers");
    let found = all.iter().find(|c| c["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {state}"))
}

/// A place for a socket: its path must be short.
pub fn socket_dir() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("scratch directory");
    let path = dir.path().join("engine.sock");
    (dir, path)
}
