//! Volumes: long transfers counted to the byte, and many at once in little memory (I35, I38).
//! `TORON_SOAK=1` (make soak) runs 5 GiB each way, past 2^31 and 2^32, and 64 uploads of 256 MiB.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use support::backend::{Backend, Peer};
use support::readout::{allow_readout, await_readout};
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::{find, soak, TempDir, PATIENCE};
use toron::origin::{pattern, Upstream as Origin, UpstreamArgs};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const BLOCK: usize = 256 * 1024;
/// Bound of one wait in a transfer that keeps moving.
const STALLED: Duration = Duration::from_secs(60);

/// One test at a time: each of them is measured, or loads the whole machine.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings(engine: Engine, upstream: SocketAddr) -> Settings {
    let mut route = Route::new("/", &upstream);
    route
        .extra
        .push(("inbound_chunked_mode", "passthrough".into()));
    // The uploads below are slow on purpose, the machine perhaps as well.
    // A route that asks for so much gets the guardrail's cap (I16), a single slot here.
    route.extra.push(("max_concurrency", "-1".into()));
    for key in ["read_timeout", "write_timeout", "response_header_timeout"] {
        route.extra.push((key, "60s".into()));
    }
    let mut settings = Settings::new(engine, vec![route]);
    settings.max_body_bytes = Some(0);
    allow_readout(&mut settings);
    settings
}

// One long transfer each way.

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(STALLED)).unwrap();
    stream.set_write_timeout(Some(STALLED)).unwrap();
    stream
}

/// Uploads `bytes` of the pattern and returns what the origin says that it has read.
fn upload(addr: SocketAddr, bytes: u64) -> String {
    let mut stream = connect(addr);
    let head = format!(
        "PUT /discard HTTP/1.1\r\nHost: t.example\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(BLOCK as u64) as usize;
        pattern::fill(at, &mut block[..n]);
        stream.write_all(&block[..n]).unwrap();
        at += n as u64;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer
}

/// Downloads `bytes` of the pattern and compares every one.
/// Returns how many came with the head.
fn download(addr: SocketAddr, bytes: u64) -> u64 {
    let mut stream = connect(addr);
    let head =
        format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: t.example\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let (mut block, mut expected) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut filled = 0;
    let body = loop {
        filled += stream.read(&mut block[filled..]).unwrap();
        if let Some(end) = find(&block[..filled], b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8_lossy(&block[..body]).into_owned();
    let length = format!("content-length: {bytes}\r\n");
    assert!(head.to_ascii_lowercase().contains(&length), "{head}");
    block.copy_within(body..filled, 0);
    filled -= body;
    let mut at = 0;
    while filled > 0 {
        pattern::fill(at, &mut expected[..filled]);
        assert!(block[..filled] == expected[..filled], "behind byte {at}");
        at += filled as u64;
        filled = stream.read(&mut block).unwrap();
    }
    assert_eq!(at, bytes, "the download's length");
    bytes + body as u64
}

fn crc_of_the_pattern(bytes: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(BLOCK as u64) as usize;
        pattern::fill(at, &mut block[..n]);
        hasher.update(&block[..n]);
        at += n as u64;
    }
    hasher.finalize()
}

/// Every byte arrives, in its place, and the counters of the access log are exact.
#[test]
fn i35_long_transfers_are_exact() {
    let _alone = alone();
    let bytes = if soak() { 5 * GIB } else { 96 * MIB };
    let origin = Origin::start(&UpstreamArgs {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        ..UpstreamArgs::default()
    })
    .unwrap();
    let crc = crc_of_the_pattern(bytes);
    for engine in Engine::ALL {
        let dir = TempDir::new("volume");
        let log = dir.join("access.log");
        let settings = settings(engine, origin.addresses()[0]);
        let config = format!(
            "{}logging:\n  access_log: {}\n",
            settings.config_yaml(),
            log.display()
        );
        let toron = Toron::start_files(&config, &settings.routes_yaml(), None);
        let start = Instant::now();
        let read = upload(toron.addr, bytes);
        let up = start.elapsed();
        let downloaded = download(toron.addr, bytes);
        println!(
            "{}: {} MiB up in {up:.1?}, down in {:.1?}",
            engine.name(),
            bytes / MIB,
            start.elapsed() - up
        );
        for exact in [bytes.to_string(), format!("{crc:08x}")] {
            assert!(read.contains(&exact), "no {exact} in {read}");
        }
        let lines = await_lines(&log, 2);
        assert!(lines[0].contains(&format!(" in={bytes} ")), "{}", lines[0]);
        assert!(
            lines[1].contains(&format!(" out={downloaded} ")),
            "{}",
            lines[1]
        );
    }
}

/// Waits until the access log has so many lines.
fn await_lines(log: &std::path::Path, count: usize) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(log).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count {
            return lines;
        }
        assert!(Instant::now() < deadline, "{} lines", lines.len());
        thread::sleep(Duration::from_millis(20));
    }
}

// Many uploads at once into upstreams that read slowly.

/// What is allowed for each of them, in KiB.
const PER_UPLOAD: u64 = 72;
/// What comes on top by copy on io_uring, in KiB, for both reactors together: the buffers lent to the
/// kernel (16 each) come to be others than those that were lent before the uploads.
const LENT_ANEW: u64 = 2 * 16 * 56;

#[derive(Clone, Copy)]
struct Form {
    uploads: usize,
    bytes: u64,
    chunked: bool,
}

/// Writes a body of the letter u, which is in no framing, and awaits the answer.
fn slow_upload(addr: SocketAddr, form: Form) {
    let mut stream = connect(addr);
    let framing = match form.chunked {
        true => "Transfer-Encoding: chunked".to_owned(),
        false => format!("Content-Length: {}", form.bytes),
    };
    let head =
        format!("PUT /x HTTP/1.1\r\nHost: t.example\r\nConnection: close\r\n{framing}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let body = vec![b'u'; form.bytes.min(64 * KIB) as usize];
    for _ in 0..form.bytes / body.len() as u64 {
        if form.chunked {
            write!(stream, "{:x}\r\n", body.len()).unwrap();
        }
        stream.write_all(&body).unwrap();
        if form.chunked {
            stream.write_all(b"\r\n").unwrap();
        }
    }
    if form.chunked {
        stream.write_all(b"0\r\n\r\n").unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// Reads a body slowly, and answers when every u has come.
fn slow_reader(mut peer: Peer, form: Form) {
    peer.receive_head();
    let head = find(&peer.received, b"\r\n\r\n").unwrap() + 4;
    let us = |bytes: &[u8]| bytes.iter().filter(|&&b| b == b'u').count() as u64;
    let mut seen = us(&peer.received[head..]);
    let mut tail = peer.received.split_off(head);
    let mut room = vec![0; 64 * KIB as usize];
    while seen < form.bytes || (form.chunked && !tail.ends_with(b"0\r\n\r\n")) {
        let n = peer.stream.read(&mut room).expect("read the upload");
        assert!(n > 0, "ended after {seen} bytes");
        seen += us(&room[..n]);
        tail.drain(..tail.len().saturating_sub(8));
        tail.extend_from_slice(&room[n.saturating_sub(8)..n]);
        // The slowness that is tested: the uploads are always ahead.
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(seen, form.bytes);
    peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert!(peer.wait_end().is_some());
}

fn all_at_once(toron: &Toron, backend: &Backend, form: Form) {
    thread::scope(|scope| {
        let small = || thread::Builder::new().stack_size(256 * 1024);
        for _ in 0..form.uploads {
            let addr = toron.addr;
            small()
                .spawn_scoped(scope, move || slow_upload(addr, form))
                .unwrap();
        }
        for _ in 0..form.uploads {
            let peer = backend.accept();
            small()
                .spawn_scoped(scope, move || slow_reader(peer, form))
                .unwrap();
        }
    });
}

fn uploads_cost_little(engine: Engine, chunked: bool) {
    let _alone = alone();
    let (uploads, bytes) = if soak() {
        (64, 256 * MIB)
    } else {
        (64, 8 * MIB)
    };
    let form = Form {
        uploads,
        bytes,
        chunked,
    };
    let backend = Backend::start();
    let toron = Toron::start(&settings(engine, backend.addr));
    // What is made once is not the uploads': the code's own pages, and what each of the two reactors
    // keeps for the next connection (buffers lent to the kernel, the free ones used last).
    let few = Form {
        uploads: 4,
        bytes: 16 * MIB,
        chunked,
    };
    all_at_once(&toron, &backend, few);
    await_readout(&toron, "idle", |r| r.exchanges == 0);
    toron.proc().reset_peak();
    let idle = toron.proc().peak_kib();
    all_at_once(&toron, &backend, form);
    let growth = toron.proc().peak_kib().saturating_sub(idle);
    let how = if chunked { "copy" } else { "splice" };
    println!(
        "{}, {how}: {growth} KiB above {idle} KiB for {uploads} uploads of {} MiB",
        engine.name(),
        bytes / MIB
    );
    let lent_anew = match (engine, chunked) {
        (Engine::IoUring, true) => LENT_ANEW,
        _ => 0,
    };
    let allowed = uploads as u64 * PER_UPLOAD + lent_anew;
    assert!(growth < allowed, "{growth} KiB, {allowed} are allowed");
    await_readout(&toron, "afterwards", |r| {
        (r.exchanges, r.upstream_connections, r.pipes) == (0, 0, 0)
    });
}

#[test]
fn i35_i38_uploads_by_splice_cost_little_on_epoll() {
    uploads_cost_little(Engine::Epoll, false);
}

#[test]
fn i35_i38_uploads_by_splice_cost_little_on_io_uring() {
    uploads_cost_little(Engine::IoUring, false);
}

#[test]
fn i35_uploads_by_copy_cost_little_on_epoll() {
    uploads_cost_little(Engine::Epoll, true);
}

#[test]
fn i35_uploads_by_copy_cost_little_on_io_uring() {
    uploads_cost_little(Engine::IoUring, true);
}
