//! The pool of threads on real sockets: placement, lazy start, messages, drain, and running out of
//! descriptors.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::FromRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{channel, Sender};
use std::time::{Duration, Instant};

use toron_reactor::{
    bind, sys, Chosen, Close, Context, Engine, EngineConfig, EngineKind, EpollEngine, Event, Fd,
    Incoming, Key, NativeEngine, Op, Outcome, Pool, PoolConfig, Service, Slab, UringEngine,
};

/// Answers every piece with the number of its reactor and the piece.
struct Echo {
    index: usize,
    connections: Slab<Fd>,
    told: Sender<(usize, &'static str)>,
    draining: bool,
}

impl<E: Engine> Service<E> for Echo {
    type Message = &'static str;

    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        let token = self.connections.insert(incoming.fd);
        cx.engine.submit(
            Key { token, lane: 0 },
            Op::Recv {
                fd: incoming.fd,
                many: false,
            },
        );
    }

    fn event(&mut self, cx: &mut Context<'_, E>, event: Event) {
        let Some(fd) = self.connections.get(event.key.token).copied() else {
            return;
        };
        match event.outcome {
            Outcome::Received { mut buf, .. } => {
                let n = buf.len();
                assert!(buf.replace_front(0, format!("{}:", self.index).as_bytes()));
                assert!(buf.len() > n);
                cx.engine.submit(
                    event.key,
                    Op::Send {
                        fd,
                        buf,
                        more: false,
                    },
                );
            }
            Outcome::Sent { .. } => {
                cx.engine.submit(event.key, Op::Recv { fd, many: false });
            }
            _ => {
                self.connections.remove(event.key.token);
                cx.engine.close(fd, Close::Orderly);
                cx.connection_ended();
            }
        }
    }

    fn deadline(&mut self, _cx: &mut Context<'_, E>, _key: Key) {}

    fn message(&mut self, _cx: &mut Context<'_, E>, message: &'static str) {
        self.told.send((self.index, message)).unwrap();
    }

    fn drain(&mut self, _cx: &mut Context<'_, E>, _grace: Duration) {
        self.draining = true;
    }

    fn is_finished(&self) -> bool {
        self.draining && self.connections.is_empty()
    }
}

struct Server {
    pool: Pool<&'static str>,
    addr: SocketAddr,
    told: std::sync::mpsc::Receiver<(usize, &'static str)>,
}

fn serve<E: NativeEngine>(config: PoolConfig) -> Server {
    let (listener, addr) = listening();
    let (tell, told) = channel();
    let pool = Pool::start::<E, Echo, _>(config, &[listener], echoes(tell)).unwrap();
    Server { pool, addr, told }
}

fn listening() -> (TcpListener, SocketAddr) {
    let listener = bind(&"127.0.0.1:0".parse().unwrap(), 128).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Makes the services of a pool.
fn echoes(
    tell: Sender<(usize, &'static str)>,
) -> impl Fn(usize) -> Echo + Clone + Send + Sync + 'static {
    move |index| Echo {
        index,
        connections: Slab::new(),
        told: tell.clone(),
        draining: false,
    }
}

fn dial(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// Which reactor answers.
fn ask(stream: &mut TcpStream) -> usize {
    stream.write_all(b"x").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b":x") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    String::from_utf8_lossy(&answer[..answer.len() - 2])
        .parse()
        .unwrap()
}

/// Waits until `holds`, for at most 20 s.
fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::yield_now();
    }
}

fn connections_fill_the_cores_first<E: NativeEngine>() {
    let config = PoolConfig {
        reactors: 5,
        cores: Some(2),
        high_water: 4,
        ..Default::default()
    };
    let server = serve::<E>(config);
    let mut clients: Vec<_> = (0..8).map(|_| dial(server.addr)).collect();
    let mut served = [0; 5];
    for client in &mut clients {
        served[ask(client)] += 1;
    }
    assert_eq!(served[2..], [0, 0, 0], "{served:?}");
    assert_eq!(served[0] + served[1], 8);
    let running: Vec<_> = server.pool.stats().iter().map(|s| s.running).collect();
    assert_eq!(running, [true, true, false, false, false]);

    clients.extend((0..8).map(|_| dial(server.addr)));
    for client in &mut clients[8..] {
        ask(client);
    }
    assert!(server.pool.placement().active() > 2);
    assert_eq!(
        server
            .pool
            .stats()
            .iter()
            .map(|s| s.connections)
            .sum::<usize>(),
        16
    );

    drop(clients);
    await_that("everything is given back", || {
        server.pool.stats().iter().all(|s| {
            s.connections == 0 && s.engine.buffers == 0 && s.engine.pipes == 0 && s.timers == 0
        })
    });
    assert_eq!(
        (0..5)
            .map(|i| server.pool.placement().load(i))
            .sum::<usize>(),
        0
    );
    assert!(server
        .pool
        .stop(Duration::from_secs(5))
        .iter()
        .all(Result::is_ok));
}

fn messages_reach_whom_they_are_meant_for<E: NativeEngine>() {
    let config = PoolConfig {
        reactors: 4,
        cores: Some(1),
        ..Default::default()
    };
    let server = serve::<E>(config);
    server.pool.send_to_running(|_| "all");
    assert_eq!(
        server.told.recv_timeout(Duration::from_secs(20)),
        Ok((0, "all"))
    );
    server.pool.address(3).unwrap().send("one").unwrap();
    assert_eq!(
        server.told.recv_timeout(Duration::from_secs(20)),
        Ok((3, "one"))
    );
    server.pool.send_to_running(|_| "all");
    let mut who: Vec<_> = (0..2)
        .map(|_| server.told.recv_timeout(Duration::from_secs(20)).unwrap().0)
        .collect();
    who.sort_unstable();
    assert_eq!(who, [0, 3]);
    assert!(server
        .pool
        .stop(Duration::from_secs(5))
        .iter()
        .all(Result::is_ok));
}

fn a_drain_takes_what_is_queued_and_waits_for_what_is_open<E: NativeEngine>() {
    let config = PoolConfig {
        reactors: 3,
        cores: Some(2),
        ..Default::default()
    };
    let server = serve::<E>(config);
    let mut early = dial(server.addr);
    ask(&mut early);
    let mut queued: Vec<_> = (0..50).map(|_| dial(server.addr)).collect();
    let pool = server.pool;
    let stopping = std::thread::spawn(move || pool.stop(Duration::from_secs(20)));
    for client in &mut queued {
        ask(client);
    }
    await_that("nobody listens", || {
        TcpStream::connect(server.addr).is_err()
    });
    ask(&mut early);
    assert!(!stopping.is_finished());
    drop((early, queued));
    assert!(stopping.join().unwrap().iter().all(Result::is_ok));
}

fn grace_is_not_endless<E: NativeEngine>() {
    let server = serve::<E>(PoolConfig {
        reactors: 1,
        ..Default::default()
    });
    let mut client = dial(server.addr);
    ask(&mut client);
    assert!(server.pool.stop(Duration::ZERO).iter().all(Result::is_ok));
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
}

/// Runs in a child process with few descriptors.
fn without_descriptors<E: NativeEngine>() {
    let config = PoolConfig {
        reactors: 1,
        refusal: b"503".to_vec(),
        ..PoolConfig::default()
    };
    let server = serve::<E>(config);
    let mut first = dial(server.addr);
    ask(&mut first);
    let turns = |server: &Server| server.pool.stats()[0].engine.turns;
    let before = turns(&server);
    // The clients' descriptors are had before the last one is used up.
    let clients: Vec<_> = (0..10)
        .map(|_| sys::socket::tcp(&server.addr).unwrap())
        .collect();
    let mut plugs = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        plugs.push(file);
        assert!(plugs.len() < 1000, "the limit is not low");
    }
    let mut clients: Vec<_> = clients
        .into_iter()
        .map(|fd| {
            let begun = sys::socket::connect(fd, &server.addr);
            assert!(
                begun.is_ok() || begun.is_err_and(|e| e.raw_os_error() == Some(libc::EINPROGRESS))
            );
            // SAFETY: the descriptor is a socket that nobody else owns.
            let stream = unsafe { TcpStream::from_raw_fd(fd.0) };
            stream.set_nonblocking(false).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            stream
        })
        .collect();
    for client in &mut clients {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"503");
    }
    ask(&mut first);
    // The pauses took at least 100 ms, in which a spinning reactor takes ten thousands of turns.
    let taken = turns(&server) - before;
    assert!(taken < 1000, "{taken} turns: the reactor spins");
    drop((plugs, clients));
    let mut late = dial(server.addr);
    ask(&mut late);
    drop((first, late));
    assert!(server
        .pool
        .stop(Duration::from_secs(5))
        .iter()
        .all(Result::is_ok));
}

/// Runs one of the ignored tests in a child process, behind `prefix` in a shell.
fn in_child(test: &str, prefix: &str) {
    run_in_child(&std::env::current_exe().unwrap(), test, prefix);
}

fn run_in_child(exe: &Path, test: &str, prefix: &str) {
    let script = format!("{prefix} \"$0\" --exact --ignored {test}");
    let output = Command::new("sh")
        .arg("-c")
        .arg(script)
        .arg(exe)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

macro_rules! on_both_engines {
    ($($test:ident,)*) => {
        mod epoll {
            use super::EpollEngine;
            $(#[test] fn $test() { super::$test::<EpollEngine>(); })*
            #[test]
            #[ignore = "run by out_of_descriptors, in a child process"]
            fn child() { super::without_descriptors::<EpollEngine>(); }
            #[test]
            fn out_of_descriptors() { super::in_child("epoll::child", "ulimit -n 60 && exec"); }
        }
        mod uring {
            use super::{EngineKind, UringEngine};
            fn available() -> bool {
                EngineKind::IoUring.choose().map_err(|e| eprintln!("skipped: {e}")).is_ok()
            }
            $(#[test] fn $test() { if available() { super::$test::<UringEngine>(); } })*
            #[test]
            #[ignore = "run by out_of_descriptors, in a child process"]
            fn child() { super::without_descriptors::<UringEngine>(); }
            #[test]
            fn out_of_descriptors() {
                if available() { super::in_child("uring::child", "ulimit -n 60 && exec"); }
            }
        }
    };
}

on_both_engines! {
    connections_fill_the_cores_first,
    messages_reach_whom_they_are_meant_for,
    a_drain_takes_what_is_queued_and_waits_for_what_is_open,
    grace_is_not_endless,
}

/// Kilobytes of locked memory that hold the ring of one reactor (140 on Linux 6.18), not of two.
const ONE_RING: u32 = 220;

/// Whether two rings can be had here within [`ONE_RING`]: then this kernel does not charge them to
/// that limit, and there is nothing to fall back from.
fn rings_are_not_charged() -> bool {
    let rings = [(); 2].map(|()| UringEngine::open(&EngineConfig::default()));
    let all = rings.iter().all(Result::is_ok);
    if all {
        eprintln!("not run: this kernel does not charge rings to RLIMIT_MEMLOCK");
    }
    all
}

fn echo_on(kind: EngineKind, config: PoolConfig) -> std::io::Result<(Server, Chosen, String)> {
    let (listener, addr) = listening();
    let (tell, told) = channel();
    let (pool, chosen, why) = Pool::start_on(kind, config, &[listener], echoes(tell))?;
    Ok((Server { pool, addr, told }, chosen, why))
}

fn two_that_accept() -> PoolConfig {
    PoolConfig {
        reactors: 2,
        cores: Some(2),
        ..PoolConfig::default()
    }
}

#[test]
#[ignore = "run by locked_memory_for_one_ring, in a child process"]
fn auto_takes_epoll_when_not_all_get_their_ring() {
    let (server, chosen, why) = echo_on(EngineKind::Auto, two_that_accept()).unwrap();
    if chosen == Chosen::IoUring && rings_are_not_charged() {
        return;
    }
    assert_eq!(chosen, Chosen::Epoll, "{why}");
    assert!(
        why.starts_with("epoll: ") && why.contains("ENOMEM"),
        "{why}"
    );
    let mut clients: Vec<_> = (0..4).map(|_| dial(server.addr)).collect();
    assert!(clients.iter_mut().all(|client| ask(client) < 2));
    drop(clients);
    assert!(server
        .pool
        .stop(Duration::from_secs(5))
        .iter()
        .all(Result::is_ok));
}

#[test]
#[ignore = "run by locked_memory_for_one_ring, in a child process"]
fn io_uring_that_is_demanded_does_not_start_when_not_all_get_their_ring() {
    match echo_on(EngineKind::IoUring, two_that_accept()) {
        Ok(_) => assert!(rings_are_not_charged()),
        Err(error) => assert!(error.to_string().contains("ENOMEM"), "{error}"),
    }
}

/// One that is woken and gets no ring leaves its connections to those that have one.
#[test]
#[ignore = "run by locked_memory_for_one_ring, in a child process"]
fn connections_meant_for_one_without_a_ring_are_served() {
    let config = PoolConfig {
        reactors: 4,
        cores: Some(1),
        high_water: 2,
        ..PoolConfig::default()
    };
    let (server, chosen, why) = echo_on(EngineKind::Auto, config).unwrap();
    assert_eq!(
        chosen,
        Chosen::IoUring,
        "one ring is enough to begin: {why}"
    );
    let mut clients: Vec<_> = (0..12).map(|_| dial(server.addr)).collect();
    let by: Vec<usize> = clients.iter_mut().map(ask).collect();
    if by.iter().any(|reactor| *reactor > 0) && rings_are_not_charged() {
        return;
    }
    assert_eq!(by, [0; 12]);
    drop(clients);
    await_that("everything is given back", || {
        server.pool.stats()[0].connections == 0 && server.pool.placement().load(0) == 0
    });
    assert!(server
        .pool
        .stop(Duration::from_secs(5))
        .iter()
        .all(Result::is_ok));
}

/// Root is exempt from the limit, and the rings of all processes of a user count together: each child
/// is a user of its own, so that nobody disturbs it. Such a user must be able to read the program.
#[test]
fn locked_memory_for_one_ring() {
    // SAFETY: it takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("not run: only root can become another user");
    }
    let dir = std::env::temp_dir().join(format!("toron-rings-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let exe = dir.join("pool");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    for path in [&dir, &exe] {
        let readable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, readable).unwrap();
    }
    let tests = [
        "auto_takes_epoll_when_not_all_get_their_ring",
        "io_uring_that_is_demanded_does_not_start_when_not_all_get_their_ring",
        "connections_meant_for_one_without_a_ring_are_served",
    ];
    for (user, test) in (1_000_000 + 3 * std::process::id()..).zip(tests) {
        let limited = format!(
            "cd / && ulimit -l {ONE_RING} && exec setpriv --reuid={user} --regid={user} --clear-groups"
        );
        run_in_child(&exe, test, &limited);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
