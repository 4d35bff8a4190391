//! The keep-alive path allocates nothing: the real server on a real engine, with a client and an
//! upstream on other threads, once everything is warm.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use toron::control::config::load_texts;
use toron::control::resolve::Endpoints;
use toron::server::access_log::{self, LogSource};
use toron::server::shared::Shared;
use toron::server::Server;
use toron_reactor::{
    bind, mailbox, EngineConfig, EpollEngine, Fd, NativeEngine, Reactor, UringEngine,
};

const WARM_UP: usize = 300;
const MEASURED: usize = 1000;
/// How often it is looked whether the client has given up.
const SOON: Duration = Duration::from_millis(100);

/// Answers what every request gets, on kept connections. `heads` end with an empty line.
fn upstream(answer: &'static [u8], body: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        let mut room = [0; 4096];
        loop {
            let n = stream.read(&mut room).unwrap_or(0);
            if n == 0 {
                return;
            }
            bytes.extend_from_slice(&room[..n]);
            let head = bytes
                .windows(4)
                .position(|w| w == b"\r\n\r\n")
                .map(|at| at + 4);
            if head.is_some_and(|head| bytes.len() >= head + body) {
                bytes.clear();
                stream.write_all(answer).unwrap();
            }
        }
    });
    addr
}

/// Sends `request` again and again, each time reading `answered` bytes at least and up to the end
/// of what the server sends for it. Counts the exchanges.
fn client(
    addr: SocketAddr,
    request: &'static [u8],
    end: &'static [u8],
    done: Arc<AtomicUsize>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut room = [0; 8192];
        for _ in 0..WARM_UP + MEASURED + 1 {
            stream.write_all(request).unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(end) {
                let n = stream.read(&mut room).unwrap();
                assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(&seen));
                seen.extend_from_slice(&room[..n]);
            }
            assert!(seen.starts_with(b"HTTP/1.1 200 OK\r\n"));
            done.fetch_add(1, Ordering::SeqCst);
        }
    })
}

struct Case {
    request: &'static [u8],
    answer: &'static [u8],
    /// Body bytes of the request.
    body: usize,
    /// What the client's answer ends with.
    end: &'static [u8],
    log: bool,
    /// Further settings of the route.
    route: &'static str,
    /// Further settings of the process.
    config: &'static str,
}

/// The writer's part, between turns: what a writer that keeps up does.
fn give_back(source: &LogSource) {
    while let Ok(mut batch) = source.batches.try_recv() {
        batch.clear();
        let _ = source.empty.try_send(batch);
    }
}

fn allocations<E: NativeEngine>(case: &Case) -> u64 {
    let upstream = upstream(case.answer, case.body);
    let routes = format!("routes:\n  - target: http://{upstream}\n{}", case.route);
    // The firewall keeps an account, and lets everything in.
    let config = "server: {host: 127.0.0.1}\nfirewall: {rate_limit_rps: 1000000, \
                  rate_limit_burst: 1000000, adaptive_rate_limit: true, allow: [192.0.2.1]}\n";
    let config = config.to_owned() + case.config;
    let loaded = load_texts(&config, Some(&routes), &mut Endpoints::default()).unwrap();
    let snapshot = Arc::new(ArcSwap::from_pointee(loaded.snapshot));
    let (log, source) = access_log::channel();
    let shared = Shared::new(snapshot, 1, 1, case.log.then_some(log));
    let engine = E::open(&EngineConfig::default()).unwrap();
    let (_address, mailbox) = mailbox();
    let mut reactor = Reactor::new(engine, Server::new(shared, 0, 7), mailbox);
    let listener = bind(&"127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let addr = listener.local_addr().unwrap();
    reactor.listen(Fd(listener.into_raw_fd())).unwrap();

    let done = Arc::new(AtomicUsize::new(0));
    let client = client(addr, case.request, case.end, Arc::clone(&done));
    let mut serve_until = |count: usize| {
        while done.load(Ordering::SeqCst) < count && !client.is_finished() {
            let soon = toron_reactor::sys::monotonic() + SOON;
            reactor.step(Some(soon)).unwrap();
            give_back(&source);
        }
    };
    serve_until(WARM_UP);
    let counted = allocation_counter::measure(|| serve_until(WARM_UP + MEASURED));
    // The last request lets the loop above end; the client is not left without its answer.
    serve_until(WARM_UP + MEASURED + 1);
    client.join().unwrap();
    counted.count_total
}

const GET: Case = Case {
    request: b"GET /a/b?c=d HTTP/1.1\r\nHost: t.example\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n",
    answer: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\n\r\nhello",
    body: 0,
    end: b"hello",
    log: false,
    route: "",
    config: "",
};

const POST: Case = Case {
    request: b"POST /p HTTP/1.1\r\nHost: t.example\r\nContent-Length: 4\r\n\r\nbody",
    answer: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    body: 4,
    end: b"0\r\n\r\n",
    log: false,
    route: "",
    config: "",
};

const CHUNKED: Case = Case {
    request: b"PUT /p HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n\
        2\r\nbo\r\n2;x=y\r\ndy\r\n0\r\n\r\n",
    ..POST
};

const PASSED_THROUGH: Case = Case {
    // One canonical chunk.
    body: b"4\r\nbody\r\n0\r\n\r\n".len(),
    route: "    inbound_chunked_mode: passthrough\n",
    ..CHUNKED
};

/// An answer of toron's own, with `Date` and a line in the log.
const EDGE: Case = Case {
    request: b"GET /health HTTP/1.1\r\nHost: t.example\r\n\r\n",
    end: b"{\"status\":\"ok\"}",
    log: true,
    ..GET
};

fn nothing_is_allocated<E: NativeEngine>() {
    let logged = Case { log: true, ..GET };
    let in_json = Case {
        config: "logging: {format: json}\n",
        ..logged
    };
    let logged = Case { log: true, ..GET };
    for case in [GET, POST, CHUNKED, PASSED_THROUGH, logged, in_json, EDGE] {
        let counted = allocations::<E>(&case);
        let request = String::from_utf8_lossy(case.request);
        assert_eq!(
            counted, 0,
            "in {MEASURED} requests (log {}): {request}",
            case.log
        );
    }
}

#[test]
fn the_keep_alive_path_allocates_nothing_on_epoll() {
    nothing_is_allocated::<EpollEngine>();
}

#[test]
fn the_keep_alive_path_allocates_nothing_on_io_uring() {
    nothing_is_allocated::<UringEngine>();
}
