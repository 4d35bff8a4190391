//! Instructions that the real server takes for a request in user space, with the firewall on and off.
//!
//! ```text
//!   this process, 1 connection ──▶ valgrind --tool=callgrind toron serve, one reactor ──▶ toron upstream
//! ```
//!
//! Each figure is the difference of two runs that serve different numbers of requests, so that what
//! start and end take is not in it. In every run 10,000 addresses ask once before, through a trusted
//! proxy. Answers are 64 bytes from an upstream on kept connections. epoll: valgrind does not know
//! all of io_uring.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{kill_process, Pid, Signal};
use socket2::{Domain, Socket, Type};

use super::ADDRESSES;

/// With several the turns of the server, of which each takes a thousand instructions, are shared as
/// it happens: the same firewall came to +3.0% and, an hour later, to +3.5%.
const CONNECTIONS: usize = 1;
const FEW: u32 = 2_000;
const MANY: u32 = 12_000;
/// A trusted proxy, and a client that comes by itself.
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 10);
const DIRECT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// All rules are on, and never refuse anybody who asks here.
const ALL_RULES: &str = "
  enabled: true
  adaptive_rate_limit: true
  rate_limit_rps: 1000000
  rate_limit_burst: 1000000
  allow: [192.0.2.0/24]
  deny: [198.51.100.0/24]";

/// Prints the table.
pub fn print() {
    println!("instructions per request in user space, {ADDRESSES} addresses tracked");
    for (what, source) in [("own peer", DIRECT), ("behind a trusted proxy", PROXY)] {
        let off = per_request("\n  enabled: false", source);
        let on = per_request(ALL_RULES, source);
        let more = (on / off - 1.0) * 100.0;
        println!("{what:24} off {off:8.0}   all rules on {on:8.0}   {more:+.2}%");
    }
}

fn per_request(firewall: &str, source: Ipv4Addr) -> f64 {
    let [few, many] = [FEW, MANY].map(|requests| instructions(firewall, source, requests));
    (many - few) as f64 / f64::from(MANY - FEW)
}

/// Instructions of a whole run.
fn instructions(firewall: &str, source: Ipv4Addr, requests: u32) -> u64 {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("firewall-instructions");
    std::fs::create_dir_all(&dir).unwrap();
    let mut upstream = Command::new(env!("CARGO_BIN_EXE_toron"));
    upstream.args(["upstream", "--listen", "127.0.0.1:0"]);
    let upstream = Running::start(&mut upstream);
    let config = format!(
        "server: {{host: 127.0.0.1, port: 0, engine: epoll, worker_pool_size: 1}}\n\
         firewall:{firewall}\n  trusted_proxies: [127.0.0.10]\n\
         routes: [{{prefix: /, target: 'http://{}'}}]\n",
        upstream.addr
    );
    std::fs::write(dir.join("config.yaml"), config).unwrap();
    let mut toron = Command::new("valgrind");
    toron
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env!("CARGO_BIN_EXE_toron"))
        .args(["serve", "-c", "config.yaml"])
        .current_dir(&dir);
    let toron = Running::start(&mut toron);
    let address = |n: u32| Ipv4Addr::from_bits(0x0a00_0000 + n % ADDRESSES);
    ask(toron.addr, PROXY, ADDRESSES, &address);
    // Not in the order in which they came.
    ask(toron.addr, source, requests, &|n| {
        address(n.wrapping_mul(7919))
    });
    toron.collected()
}

/// Asks so many times, one request on each connection at a time; the client of the n-th is `of(n)`
/// for a server that believes it.
fn ask(target: SocketAddr, source: Ipv4Addr, requests: u32, of: &dyn Fn(u32) -> Ipv4Addr) {
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        socket.connect(&target.into()).unwrap();
        TcpStream::from(socket)
    };
    let mut connections: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect()).collect();
    let all: Vec<u32> = (0..requests).collect();
    for batch in all.chunks(CONNECTIONS) {
        for (n, connection) in batch.iter().zip(&mut connections) {
            let request = format!(
                "GET /bytes/64 HTTP/1.1\r\nHost: t.example\r\nUser-Agent: bench\r\nAccept: */*\r\n\
                 X-Forwarded-For: {}\r\n\r\n",
                of(*n)
            );
            connection.write_all(request.as_bytes()).unwrap();
        }
        for (_, connection) in batch.iter().zip(&mut connections) {
            read_answer(connection);
        }
    }
}

fn read_answer(connection: &mut TcpStream) {
    let (mut received, mut room) = (Vec::new(), [0; 4096]);
    loop {
        let n = connection.read(&mut room).unwrap();
        assert!(n > 0, "the connection has ended");
        received.extend_from_slice(&room[..n]);
        let head = received.windows(4).position(|w| w == b"\r\n\r\n");
        if head.is_some_and(|end| received.len() == end + 4 + 64) {
            break;
        }
    }
    assert!(
        received.starts_with(b"HTTP/1.1 200 "),
        "{}",
        received.escape_ascii()
    );
}

/// A child that has said where it listens.
struct Running {
    child: Child,
    addr: SocketAddr,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Running {
    fn start(command: &mut Command) -> Running {
        let command = command.env("RUST_LOG", "info").stdin(Stdio::null());
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start (valgrind must be installed)");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let addr = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            rest.split([' ', ',']).next()?.parse().ok()
        });
        let addr = addr.expect("it does not listen");
        Running { child, addr, lines }
    }

    fn end(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It may have ended.
        let _ = kill_process(pid.unwrap(), Signal::TERM);
    }

    /// Ends it; what callgrind has counted.
    fn collected(mut self) -> u64 {
        self.end();
        let collected = self.lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, number) = line.split_once("Collected : ")?;
            number.trim().parse().ok()
        });
        collected.expect("valgrind's figure")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        let _ = self.child.wait();
    }
}
