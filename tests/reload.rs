//! Reloads of the real binary, on both engines: by signal, by the admin API and by a changed file;
//! what holds afterwards, what is refused, and that nobody in flight notices.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{json, Value};
use support::client::Client;
use support::process::{OnDrop, Proc, Process};
use support::setup::{both, Engine};
use support::toron::listening_on;
use support::{soak, TempDir, PATIENCE};

/// A toron with files that the test rewrites.
struct Place {
    dir: TempDir,
    config: PathBuf,
    toron: Process,
    addr: SocketAddr,
}

fn config(engine: Engine, server: &str, routes: &str) -> String {
    format!(
        "server: {{host: 127.0.0.1, port: 0, engine: {}, {server}}}\n\
         firewall: {{enabled: false}}\nadmin: {{key: k}}\nroutes:\n{routes}",
        engine.name()
    )
}

fn start(engine: Engine, server: &str, routes: &str) -> Place {
    let dir = TempDir::new("reload");
    let path = dir.join("config.yaml");
    std::fs::write(&path, config(engine, server, routes)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command
        .arg("serve")
        .arg("-c")
        .arg(&path)
        .env("RUST_LOG", "info");
    let toron = Process::spawn(command, "toron", OnDrop::Kill);
    let addr = toron.wait_line(PATIENCE, listening_on);
    Place {
        dir,
        config: path,
        toron,
        addr,
    }
}

/// One request on a connection of its own: status and body.
fn ask(addr: SocketAddr, request: &str) -> (u16, String) {
    let mut client = Client::connect(addr, PATIENCE).unwrap();
    let text = format!(
        "{request} HTTP/1.1\r\nHost: t\r\nX-Toron-Admin-Key: k\r\nContent-Length: 0\r\n\r\n"
    );
    client.send(text.as_bytes(), PATIENCE);
    assert!(
        client.receive_responses(1, PATIENCE),
        "{request}: no answer"
    );
    let response = client.parsed().responses.remove(0);
    (response.status, String::from_utf8(response.body).unwrap())
}

impl Place {
    fn write(&self, text: &str) {
        std::fs::write(&self.config, text).unwrap();
    }

    fn reload(&self) -> (u16, Value) {
        let (status, body) = ask(self.addr, "POST /internal/api/reload");
        (status, serde_json::from_str(&body).unwrap())
    }

    fn route(&self, path: &str) -> Value {
        let (_, body) = ask(self.addr, "GET /internal/api/routes");
        let routes: Value = serde_json::from_str(&body).unwrap();
        let all = routes.as_array().unwrap();
        all.iter()
            .find(|r| r["prefix"] == path)
            .cloned()
            .unwrap_or_default()
    }

    /// Waits until `path` is answered by this status.
    fn await_status(&self, path: &str, status: u16) {
        let deadline = Instant::now() + PATIENCE;
        while ask(self.addr, &format!("GET {path}")).0 != status {
            assert!(Instant::now() < deadline, "{path} is never {status}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

const FIRST: &str = "  - {prefix: /a, status: 201}\n";

#[test]
fn the_outcome_is_told_whole() {
    both(|engine| {
        let place = start(engine, "worker_pool_size: 8", FIRST);
        place.write(&config(
            engine,
            "worker_pool_size: 8",
            "  - {prefix: /b, status: 202}\n",
        ));
        let (status, told) = place.reload();
        assert_eq!(
            (status, &told["outcome"], &told["needs_restart"]),
            (200, &json!("applied"), &json!([]))
        );
        assert_eq!(ask(place.addr, "GET /a").0, 404);
        assert_eq!(ask(place.addr, "GET /b").0, 202);

        // Every fault with its place; nothing is changed.
        let file = place.config.to_str().unwrap();
        place.write(&config(
            engine,
            "worker_pool_size: 8, via: maybe",
            "  - {prefix: x, status: 200}\n  - {prefix: /c, target: 'http://a', retires: 1}\n",
        ));
        let (status, told) = place.reload();
        assert_eq!((status, &told["outcome"]), (422, &json!("rejected")));
        let faults: Vec<(&str, &str)> = told["faults"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fault| {
                (
                    fault["place"].as_str().unwrap(),
                    fault["message"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(faults.len(), 3, "{told}");
        for ((place, message), (at, said)) in faults.iter().zip([
            (":1:", "server.via: \"maybe\" is not on or off"),
            (":5:", "routes[].prefix: \"x\" does not begin with a slash"),
            (":6:", "unknown key \"retires\" in a route"),
        ]) {
            assert!(place.starts_with(&format!("{file}{at}")), "{place}");
            assert!(message.starts_with(said), "{message}");
        }
        assert_eq!(
            told["error"],
            "422 Unprocessable Content: nothing was changed (3 faults in the files)"
        );
        assert_eq!(ask(place.addr, "GET /b").0, 202);

        std::fs::remove_file(&place.config).unwrap();
        let (status, told) = place.reload();
        assert_eq!(
            (status, told["faults"].as_array().unwrap().len()),
            (422, 1),
            "{told}"
        );
        assert_eq!(ask(place.addr, "GET /b").0, 202);

        place.write(&config(
            engine,
            "worker_pool_size: 8",
            "  - {prefix: /health, status: 200}\n",
        ));
        let (status, told) = place.reload();
        assert_eq!(status, 200);
        assert_eq!(
            told["warnings"][0]["message"],
            "this route wins over the built-in /health"
        );
    });
}

/// What is fixed at the start is said each time, and what follows from it follows the start.
#[test]
fn i16_what_needs_a_restart_stays_as_it_is_until_then() {
    both(|engine| {
        let elevated = "  - {prefix: /big, target: 'http://127.0.0.1:9', max_body_bytes: 5MiB}\n";
        let place = start(engine, "worker_pool_size: 8", elevated);
        assert_eq!(place.route("/big")["cap"], 2);
        let text = config(
            engine,
            "worker_pool_size: 128, listen: ['127.0.0.1:0', '127.0.0.1:0']",
            elevated,
        );
        place.write(&text.replace("host: 127.0.0.1, ", ""));
        for _ in 0..2 {
            let (status, told) = place.reload();
            assert_eq!(status, 200, "{told}");
            assert_eq!(
                told["needs_restart"],
                json!(["listeners", "server.worker_pool_size"])
            );
            assert_eq!(place.route("/big")["cap"], 2);
        }
        place.write(&config(engine, "worker_pool_size: 8", elevated));
        assert_eq!(place.reload().1["needs_restart"], json!([]));
    });
}

/// `server.watch`: files that are replaced, and a bad one in between.
#[test]
fn a_changed_file_is_a_reload_if_that_is_wanted() {
    both(|engine| {
        let place = start(engine, "worker_pool_size: 2, watch: on", FIRST);
        let fresh = place.dir.join("fresh");
        let replace = |text: &str| {
            std::fs::write(&fresh, text).unwrap();
            std::fs::rename(&fresh, &place.config).unwrap();
        };
        replace(&config(
            engine,
            "worker_pool_size: 2, watch: on",
            "  - {prefix: /b, status: 202}\n",
        ));
        place.await_status("/b", 202);
        replace("routes: [");
        place.toron.wait_line(PATIENCE, |line| {
            line.contains("reload: nothing was changed").then_some(())
        });
        assert_eq!(ask(place.addr, "GET /b").0, 202);
        // A file that comes into being counts as well.
        std::fs::write(
            place.dir.join("routes.yaml"),
            "routes: [{prefix: /c, status: 203}]",
        )
        .unwrap();
        replace(&config(
            engine,
            "worker_pool_size: 2, watch: off",
            "  - {prefix: /d, status: 204}\n",
        ));
        place.await_status("/d", 204);
        place.await_status("/c", 203);
        // It is switched off now, and on again by a signal.
        replace(&config(
            engine,
            "worker_pool_size: 2, watch: on",
            "  - {prefix: /e, status: 205}\n",
        ));
        place.toron.signal(Signal::HUP);
        place.await_status("/e", 205);
        replace(&config(
            engine,
            "worker_pool_size: 2, watch: on",
            "  - {prefix: /f, status: 206}\n",
        ));
        place.await_status("/f", 206);
    });
}

/// The test origin.
fn origin() -> (Process, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command
        .args(["upstream", "--listen", "127.0.0.1:0"])
        .env("RUST_LOG", "info");
    let origin = Process::spawn(command, "the origin", OnDrop::Kill);
    let addr = origin.wait_line(PATIENCE, listening_on);
    (origin, addr)
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&addr, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A WebSocket whose messages come back.
struct Socket(TcpStream);

impl Socket {
    fn open(addr: SocketAddr) -> Self {
        let mut stream = connect(addr);
        let request = "GET /o/ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let head = read_head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        Socket(stream)
    }

    fn echo(&mut self, text: &str) {
        let length = u8::try_from(text.len()).unwrap();
        // A text frame with a mask of zeros (RFC 6455 section 5.2), and its answer without one.
        let mut frame = vec![0x81, 0x80 | length, 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        self.0.write_all(&frame).expect("the WebSocket was cut");
        let mut answer = vec![0; 2 + text.len()];
        self.0
            .read_exact(&mut answer)
            .expect("the WebSocket was cut");
        assert_eq!(answer[..2], [0x81, length]);
        assert_eq!(&answer[2..], text.as_bytes());
    }
}

/// Requests one behind the other on one connection, until told to stop; how many there were.
fn traffic(
    addr: SocketAddr,
    stop: &Arc<AtomicBool>,
    slowest: &Arc<AtomicU64>,
) -> thread::JoinHandle<u64> {
    let (stop, slowest) = (Arc::clone(stop), Arc::clone(slowest));
    thread::spawn(move || {
        let mut stream = connect(addr);
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            let asked = Instant::now();
            stream
                .write_all(b"GET /o/bytes/100 HTTP/1.1\r\nHost: t\r\n\r\n")
                .expect("a connection was cut");
            let head = read_head(&mut stream);
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            let mut body = [0; 100];
            stream.read_exact(&mut body).expect("a body was cut");
            let took = u64::try_from(asked.elapsed().as_micros()).unwrap();
            slowest.fetch_max(took, Ordering::Relaxed);
            count += 1;
        }
        count
    })
}

/// A download that is read bit by bit until told to hurry, and is not over before; its bytes are
/// compared as they come, and counted.
fn download(addr: SocketAddr, bytes: usize, stop: &Arc<AtomicBool>) -> thread::JoinHandle<usize> {
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut stream = connect(addr);
        let request =
            format!("GET /o/bytes/{bytes} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        read_head(&mut stream);
        let (mut have, mut room) = (0, vec![0; 16 * 1024]);
        let mut wanted = room.clone();
        loop {
            let n = stream.read(&mut room).expect("the download was cut");
            if n == 0 {
                return have;
            }
            toron::origin::pattern::fill(have as u64, &mut wanted[..n]);
            assert!(room[..n] == wanted[..n], "it differs behind {have} bytes");
            have += n;
            let slow = || !stop.load(Ordering::Relaxed);
            if slow() {
                thread::sleep(Duration::from_millis(10));
            }
            while slow() && bytes - have < 1 << 20 {
                thread::sleep(Duration::from_millis(10));
            }
        }
    })
}

fn settled(proc: &Proc) -> (u64, usize) {
    (proc.resident_kib(), proc.descriptors())
}

/// Reloads, every other by signal, while a WebSocket echoes, a download runs and requests come one
/// behind the other: none of them notices, and toron does not grow.
fn under_load(engine: Engine, reloads: usize) {
    let (_origin, origin) = origin();
    let routes = |n: usize| {
        format!(
            "  - {{prefix: /o, target: 'http://{origin}', max_concurrency: 100}}\n  - {{prefix: /r{n}, status: 204}}\n"
        )
    };
    let place = start(engine, "worker_pool_size: 2", &routes(0));
    let (stop, slowest) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let mut socket = Socket::open(place.addr);
    let size = 64 << 20;
    let slow = download(place.addr, size, &stop);
    let clients: Vec<_> = (0..4)
        .map(|_| traffic(place.addr, &stop, &slowest))
        .collect();
    let proc = Proc(place.toron.pid());
    let mut early = None;
    for n in 1..=reloads {
        place.write(&config(engine, "worker_pool_size: 2", &routes(n)));
        if n % 2 == 0 {
            place.toron.signal(Signal::HUP);
        } else {
            assert_eq!(place.reload().0, 200);
        }
        place.await_status(&format!("/r{n}"), 204);
        socket.echo(&format!("after reload {n}"));
        // The WebSocket and the download have not let go of their slots.
        let in_flight = place.route("/o")["in_flight"].as_u64().unwrap();
        assert!(
            (2..=6).contains(&in_flight),
            "{in_flight} in flight after reload {n}"
        );
        if n == reloads / 4 {
            early = Some(settled(&proc));
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert_eq!(slow.join().unwrap(), size);
    for client in clients {
        let count = client.join().unwrap();
        assert!(count > reloads as u64, "only {count} requests");
    }
    socket.echo("goodbye");
    let (memory, descriptors) = early.unwrap();
    let (memory_now, descriptors_now) = settled(&proc);
    assert!(
        descriptors_now <= descriptors + 4,
        "{descriptors} descriptors became {descriptors_now}"
    );
    assert!(
        memory_now < memory + 4096,
        "{memory} KiB became {memory_now} KiB"
    );
    eprintln!(
        "{engine:?}: {reloads} reloads, slowest request {} us, {memory} to {memory_now} KiB",
        slowest.load(Ordering::Relaxed)
    );
}

#[test]
fn reloads_under_load_are_not_noticed_on_epoll() {
    under_load(Engine::Epoll, if soak() { 1000 } else { 50 });
}

#[test]
fn reloads_under_load_are_not_noticed_on_io_uring() {
    under_load(Engine::IoUring, if soak() { 1000 } else { 50 });
}

/// A table of 10,000 routes is replaced under load: no request fails. How much longer the slowest took
/// than the slowest of as much time without a reload is measured, and judged in a soak only.
fn large_tables(engine: Engine) {
    let (_origin, origin) = origin();
    let routes = |n: usize| {
        let mut text = format!(
            "  - {{prefix: /o, target: 'http://{origin}'}}\n  - {{prefix: /r{n}, status: 204}}\n"
        );
        for i in 0..10_000 {
            text.push_str(&format!(
                "  - {{prefix: /app/{i}, target: 'http://127.0.0.1:{}/v{n}'}}\n",
                10_000 + i % 100
            ));
        }
        text
    };
    let place = start(engine, "worker_pool_size: 2", &routes(0));
    let (stop, slowest) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let clients: Vec<_> = (0..2)
        .map(|_| traffic(place.addr, &stop, &slowest))
        .collect();
    let reloads = if soak() { 20 } else { 2 };
    let (mut quiet, mut during) = (0, 0);
    for n in 1..=reloads {
        place.write(&config(engine, "worker_pool_size: 2", &routes(n)));
        slowest.store(0, Ordering::Relaxed);
        let began = Instant::now();
        assert_eq!(place.reload().0, 200);
        place.await_status(&format!("/r{n}"), 204);
        let took = began.elapsed();
        if soak() {
            // What the old table leaves to do belongs to it.
            thread::sleep(took);
            during = during.max(slowest.swap(0, Ordering::Relaxed));
            thread::sleep(2 * took);
        }
        quiet = quiet.max(slowest.load(Ordering::Relaxed));
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().unwrap() > 0);
    }
    if soak() {
        eprintln!(
            "{engine:?}: {reloads} reloads of 10,000 routes, slowest request {during} us, {quiet} us without"
        );
    }
    let step = during.saturating_sub(quiet);
    assert!(!soak() || step < 20_000, "a step of {step} us");
}

#[test]
fn large_tables_are_replaced_without_an_error_on_epoll() {
    large_tables(Engine::Epoll);
}

#[test]
fn large_tables_are_replaced_without_an_error_on_io_uring() {
    large_tables(Engine::IoUring);
}
