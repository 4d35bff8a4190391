//! Peers that are slow but not idle: the kernel's send buffer is full for much longer than any
//! deadline, and yet they take bytes all the time (I26, I29, R14).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};
use support::client::Client;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::PATIENCE;

/// Much more than the buffers between two sockets hold.
const LARGE: usize = 24 << 20;
/// The deadline in force.
const DEADLINE: &str = "1s";
/// How long a slow peer is slow: many times the deadline.
const SLOW_FOR: Duration = Duration::from_secs(5);
/// A small receive buffer, so that what is read is acknowledged soon.
const RECEIVE_BUFFER: usize = 8 * 1024;

/// A connection that receives little at a time.
fn connect(addr: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
    socket.connect(&addr.into()).unwrap();
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads about 100 KB a second for [`SLOW_FOR`]; the number of bytes.
fn read_slowly(mut from: &TcpStream) -> usize {
    let (start, mut total, mut room) = (Instant::now(), 0, [0; 2048]);
    while start.elapsed() < SLOW_FOR {
        match from.read(&mut room) {
            Ok(0) => break,
            Ok(n) => total += n,
            Err(error) => panic!("after {total} bytes: {error}"),
        }
        // The pace is what is tested.
        thread::sleep(Duration::from_millis(20));
    }
    total
}

/// Reads what is left; the number of bytes.
fn read_rest(mut from: &TcpStream) -> usize {
    let (mut total, mut room) = (0, vec![0; 64 * 1024]);
    loop {
        match from.read(&mut room) {
            Ok(0) => return total,
            Ok(n) => total += n,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("after {total} bytes: {error}"),
        }
    }
}

/// An upstream of one connection.
fn upstream(serve: impl FnOnce(TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener)
        .set_recv_buffer_size(RECEIVE_BUFFER)
        .unwrap();
    let addr = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(4 * PATIENCE)).unwrap();
        serve(stream);
    });
    (addr, thread)
}

fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "no whole head");
        head.push(byte[0]);
    }
}

/// An upstream that answers with `head` and [`LARGE`] bytes behind it. Toron may close it.
fn flood(head: &'static str) -> (SocketAddr, JoinHandle<()>) {
    upstream(move |mut stream| {
        read_head(&mut stream);
        stream.write_all(head.as_bytes()).unwrap();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..LARGE / piece.len() {
            if stream.write_all(&piece).is_err() {
                return;
            }
        }
        read_rest(&stream);
    })
}

const BY_LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 25165824\r\nConnection: close\r\n\r\n";
const BY_CLOSE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
const TUNNEL: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";

fn toron(engine: Engine, upstream: SocketAddr) -> Toron {
    let mut settings = Settings::new(engine, vec![Route::new("/", &upstream)]);
    let deadline = || DEADLINE.to_owned();
    settings.max_body_bytes = Some(0);
    settings.server.push(("write_timeout", deadline()));
    settings.server.push(("upgrade_idle_timeout", deadline()));
    settings
        .transport
        .push(("upstream_idle_timeout", deadline()));
    settings.admin_key = Some("k".into());
    Toron::start(&settings)
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: t.example\r\nConnection: close\r\n\r\n";
const UPGRADE: &[u8] =
    b"GET / HTTP/1.1\r\nHost: t.example\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";

/// Waits until the one who asks is the only client.
fn wait_until_alone(toron: &Toron) {
    let deadline = Instant::now() + PATIENCE;
    let request = b"GET /internal/api/status HTTP/1.1\r\nHost: t\r\nX-Toron-Admin-Key: k\r\n\r\n";
    loop {
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        client.send(request, PATIENCE);
        assert!(client.receive_responses(1, PATIENCE));
        let body = client.parsed().responses.remove(0).body;
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
        if status["exchanges"].as_u64() == Some(0) {
            return;
        }
        assert!(Instant::now() < deadline, "the slow client is not severed");
        thread::yield_now();
    }
}

fn a_steady_reader_survives(engine: Engine) {
    // By splice, and by copy as chunks.
    for head in [BY_LENGTH, BY_CLOSE] {
        let (addr, origin) = flood(head);
        let toron = toron(engine, addr);
        let mut client = connect(toron.addr);
        client.write_all(GET).unwrap();
        let slowly = read_slowly(&client);
        assert!(slowly < LARGE / 8, "{slowly} bytes is not slow");
        let total = slowly + read_rest_of(&client, LARGE - slowly);
        assert!(total >= LARGE, "cut after {total} bytes");
        drop((client, toron));
        origin.join().unwrap();
    }
}

/// Reads at least `n` bytes more, or to the end.
fn read_rest_of(mut from: &TcpStream, n: usize) -> usize {
    let (mut total, mut room) = (0, vec![0; 64 * 1024]);
    while total < n {
        match from.read(&mut room) {
            Ok(0) => break,
            Ok(n) => total += n,
            Err(error) => panic!("after {total} bytes: {error}"),
        }
    }
    total
}

#[test]
fn i29_a_steady_reader_survives_on_epoll() {
    a_steady_reader_survives(Engine::Epoll);
}

#[test]
fn i29_a_steady_reader_survives_on_io_uring() {
    a_steady_reader_survives(Engine::IoUring);
}

fn one_that_stops_is_severed(engine: Engine, request: &[u8], head: &'static str) {
    let (addr, origin) = flood(head);
    let toron = toron(engine, addr);
    let mut client = connect(toron.addr);
    client.write_all(request).unwrap();
    // Before the connection is taken toron is alone as well.
    client.peek(&mut [0]).unwrap();
    wait_until_alone(&toron);
    assert!(read_rest(&client) < LARGE, "nothing was cut");
    origin.join().unwrap();
}

#[test]
fn i29_one_that_stops_is_severed_on_epoll() {
    one_that_stops_is_severed(Engine::Epoll, GET, BY_LENGTH);
    one_that_stops_is_severed(Engine::Epoll, GET, BY_CLOSE);
}

#[test]
fn i29_one_that_stops_is_severed_on_io_uring() {
    one_that_stops_is_severed(Engine::IoUring, GET, BY_LENGTH);
    one_that_stops_is_severed(Engine::IoUring, GET, BY_CLOSE);
}

/// Fewer than 1,024 bytes in each second.
fn one_that_drips_is_severed(engine: Engine) {
    let (addr, origin) = flood(BY_LENGTH);
    let toron = toron(engine, addr);
    let mut client = connect(toron.addr);
    client.write_all(GET).unwrap();
    let dripping = client.try_clone().unwrap();
    let drip = thread::spawn(move || {
        let mut dripping = &dripping;
        // Bounded: much longer than it takes to be severed.
        for _ in 0..60 {
            if dripping.read(&mut [0; 50]).is_err() {
                return;
            }
            // The pace is what is tested.
            thread::sleep(Duration::from_millis(100));
        }
    });
    let begun = Instant::now() + PATIENCE;
    while client.peek(&mut [0]).is_err() && Instant::now() < begun {}
    wait_until_alone(&toron);
    drip.join().unwrap();
    assert!(read_rest(&client) < LARGE, "nothing was cut");
    origin.join().unwrap();
}

#[test]
fn i29_one_that_drips_is_severed_on_epoll() {
    one_that_drips_is_severed(Engine::Epoll);
}

#[test]
fn i29_one_that_drips_is_severed_on_io_uring() {
    one_that_drips_is_severed(Engine::IoUring);
}

/// The upstream takes a body slowly, or stops taking it.
fn upload(engine: Engine, stops: bool) {
    let (tell, answered) = mpsc::channel();
    let (addr, origin) = upstream(move |mut stream| {
        read_head(&mut stream);
        if stops {
            // Until the client has its answer.
            let _ = answered.recv();
            return;
        }
        let slowly = read_slowly(&stream);
        assert_eq!(slowly + read_rest_of(&stream, LARGE - slowly), LARGE);
        stream
            .write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            .unwrap();
    });
    let toron = toron(engine, addr);
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    let head = format!("PUT / HTTP/1.1\r\nHost: t.example\r\nContent-Length: {LARGE}\r\n\r\n");
    client.send(head.as_bytes(), PATIENCE);
    // What is sent in vain must not be more than lingering takes (I9).
    let sent = if stops { LARGE / 2 } else { LARGE };
    client.send(&vec![b'x'; sent], PATIENCE);
    assert!(client.receive_responses(1, PATIENCE), "no response");
    // One that was not told to stop has ended by itself.
    let _ = tell.send(());
    let status = client.parsed().responses[0].status;
    assert_eq!(status, if stops { 504 } else { 204 });
    origin.join().unwrap();
}

#[test]
fn i26_an_upstream_that_takes_a_body_slowly_is_waited_for_on_epoll() {
    upload(Engine::Epoll, false);
    upload(Engine::Epoll, true);
}

#[test]
fn i26_an_upstream_that_takes_a_body_slowly_is_waited_for_on_io_uring() {
    upload(Engine::IoUring, false);
    upload(Engine::IoUring, true);
}

#[test]
fn r14_a_tunnel_that_is_read_slowly_stays_and_one_that_stops_ends() {
    for engine in Engine::ALL {
        let (addr, _origin) = flood(TUNNEL);
        let toron = toron(engine, addr);
        let mut client = connect(toron.addr);
        client.write_all(UPGRADE).unwrap();
        let slowly = read_slowly(&client);
        assert!(slowly < LARGE / 8, "{slowly} bytes is not slow");
        let rest = read_rest_of(&client, LARGE - slowly);
        assert!(slowly + rest >= LARGE, "cut after {} bytes", slowly + rest);
        drop((client, toron));
        one_that_stops_is_severed(engine, UPGRADE, TUNNEL);
    }
}

/// An answer of toron's own is held to the same window.
#[test]
fn i29_a_long_fixed_answer_may_be_read_slowly() {
    // More than the buffers hold, and no more: the file is read by a debug build.
    const BODY: usize = 7 << 19;
    for engine in Engine::ALL {
        let dir = support::TempDir::new("slow");
        let config = dir.join("config.yaml");
        let body = "y".repeat(BODY);
        let text = format!(
            "server: {{host: 127.0.0.1, port: 0, engine: {}, write_timeout: {DEADLINE}}}\n\
             firewall: {{enabled: false}}\n\
             routes: [{{prefix: /, status: 200, body: {body}}}]\n",
            engine.name()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toron"));
        command.arg("serve").arg("-c").arg(&config);
        let process =
            support::process::Process::spawn(command, "toron", support::process::OnDrop::Kill);
        let addr = process.wait_line(PATIENCE, support::toron::listening_on);
        let mut client = connect(addr);
        client.write_all(GET).unwrap();
        let total = read_slowly(&client) + read_rest(&client);
        assert!(total > BODY, "cut after {total} bytes");

        let mut stopped = connect(addr);
        stopped.write_all(GET).unwrap();
        let deadline = Instant::now() + PATIENCE;
        // Its writes are refused once toron has closed.
        while stopped.write_all(b" ").is_ok() {
            assert!(Instant::now() < deadline, "one that stops is not severed");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(read_rest(&stopped) < BODY, "nothing was cut");
    }
}
