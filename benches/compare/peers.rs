//! The proxies that are compared, and the origin behind them.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// On which processors something runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Core {
    /// The loads' and the origin's.
    Load,
    /// The proxies'.
    Proxy,
    /// All.
    Any,
}

impl Core {
    /// A command that runs there.
    pub fn command(self, program: impl AsRef<Path>) -> Command {
        let program = program.as_ref();
        let alone = std::thread::available_parallelism().map_or(1, usize::from) == 1;
        let number = match self {
            Core::Any => return Command::new(program),
            Core::Proxy if !alone => "1",
            Core::Load | Core::Proxy => "0",
        };
        let mut command = Command::new("taskset");
        command.args(["-c", number]).arg(program);
        command
    }
}

/// Settings of a toron.
#[derive(Clone)]
pub struct Form {
    /// Reactors; the default is 128.
    pub reactors: Option<usize>,
    /// How chunked requests go on.
    pub chunked: &'static str,
    /// The firewall with all that a default has but the limits per address, or off.
    pub firewall: bool,
    /// An access log in JSON.
    pub log: bool,
    /// Other routes beside the one in use.
    pub routes: usize,
}

impl Default for Form {
    fn default() -> Self {
        Form {
            reactors: None,
            chunked: "normalize",
            firewall: true,
            log: false,
            routes: 0,
        }
    }
}

/// What is compared.
#[derive(Clone)]
pub enum Kind {
    /// toron on this engine.
    Toron(&'static str, Form),
    /// Debian's.
    Nginx,
    /// Debian's, with splicing where it thinks fit.
    Haproxy,
    /// The relay on this engine, in this mode.
    Relay(&'static str, &'static str),
    /// The origin itself.
    Origin,
}

/// A running proxy. Ends with it.
pub struct Peer {
    /// Its name in the tables.
    pub name: &'static str,
    /// Where it listens.
    pub addr: SocketAddr,
    /// This build's toron, for loads.
    pub toron: PathBuf,
    child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Peer {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // nginx's workers end with their master, when that is told rather than killed.
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        let deadline = Instant::now() + Duration::from_secs(3);
        while told.is_ok() && Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A URL on it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Starts one in front of `origin`, and waits until it answers.
    pub fn start(
        name: &'static str,
        kind: &Kind,
        core: Core,
        origin: SocketAddr,
    ) -> Result<Peer, String> {
        Peer::launch(name, kind, core, origin).map_err(|error| format!("{name}: {error}"))
    }

    fn launch(name: &'static str, kind: &Kind, core: Core, origin: SocketAddr) -> io::Result<Peer> {
        let dir = tempfile::tempdir()?;
        let (toron, relay) = programs()?;
        let addr = free_address()?;
        let mut command = match kind {
            Kind::Toron(engine, form) => {
                let file = dir.path().join("config.yaml");
                fs::write(&file, toron_file(engine, form, addr, origin, dir.path()))?;
                let mut command = core.command(&toron);
                command.arg("serve").arg("-c").arg(file);
                command
            }
            Kind::Nginx => {
                let file = dir.path().join("nginx.conf");
                fs::write(&file, nginx_file(core, addr, origin, dir.path()))?;
                let mut command = core.command("nginx");
                command.arg("-c").arg(file);
                command
            }
            Kind::Haproxy => {
                let file = dir.path().join("haproxy.cfg");
                fs::write(&file, haproxy_file(core, addr, origin))?;
                let mut command = core.command("haproxy");
                command.arg("-db").arg("-f").arg(file);
                command
            }
            Kind::Relay(engine, mode) => {
                let mut command = core.command(&relay);
                command.args(["--listen", &addr.to_string()]);
                command.args(["--upstream", &origin.to_string()]);
                command.args(["--engine", engine, "--mode", mode]);
                command
            }
            Kind::Origin => {
                let mut command = core.command(&toron);
                let listen = addr.to_string();
                command.args(["upstream", "--listen", &listen, "--reactors", "1"]);
                command
            }
        };
        let log = fs::File::create(dir.path().join("log"))?;
        command
            // The relay ends with its standard input.
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn()?;
        let mut peer = Peer {
            name,
            addr,
            toron,
            child,
            dir,
        };
        peer.wait_until_ready()?;
        Ok(peer)
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                return Err(io::Error::other(format!(
                    "ended ({status}): {}",
                    log.trim()
                )));
            }
            let asked = crate::client::connect(self.addr);
            if asked
                .and_then(|mut s| crate::client::get(&mut s, "/bytes/1"))
                .is_ok()
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::other("does not answer"))
    }
}

/// toron and the relay: built beside this program.
fn programs() -> io::Result<(PathBuf, PathBuf)> {
    let toron = PathBuf::from(env!("CARGO_BIN_EXE_toron"));
    let relay = toron.with_file_name("examples").join("relay");
    for (file, how) in [
        (&toron, "cargo build --release"),
        (
            &relay,
            "cargo build --release -p toron-reactor --example relay",
        ),
    ] {
        if !file.exists() {
            let text = format!("{} is not there: {how}", file.display());
            return Err(io::Error::other(text));
        }
    }
    Ok((toron, relay))
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn toron_file(
    engine: &str,
    form: &Form,
    addr: SocketAddr,
    origin: SocketAddr,
    dir: &Path,
) -> String {
    let reactors = form
        .reactors
        .map_or(String::new(), |n| format!(", worker_pool_size: {n}"));
    let firewall = match form.firewall {
        true => {
            "rate_limit_rps: 100000000, rate_limit_burst: 100000000, max_connections_per_ip: 0, \
             max_connections_total: 15000"
        }
        false => "enabled: false",
    };
    let log = match form.log {
        true => format!(
            "format: json, access_log: {}",
            dir.join("access.log").display()
        ),
        false => "access_log: off".to_owned(),
    };
    let more: String = (0..form.routes)
        .map(|n| format!("  - {{prefix: /service/{n}, target: \"http://{origin}\"}}\n"))
        .collect();
    format!(
        "server: {{host: 127.0.0.1, port: {}, engine: {engine}, max_body_bytes: 4GiB, \
         inbound_chunked_mode: {}{reactors}}}\n\
         logging: {{level: error, {log}}}\n\
         firewall: {{{firewall}}}\n\
         routes:\n  - {{target: \"http://{origin}\"}}\n{more}",
        addr.port(),
        form.chunked,
    )
}

fn nginx_file(core: Core, addr: SocketAddr, origin: SocketAddr, dir: &Path) -> String {
    let workers = workers(core);
    let dir = dir.display();
    format!(
        "daemon off; worker_processes {workers}; pid {dir}/nginx.pid; error_log {dir}/error.log;\n\
         worker_rlimit_nofile 20000;\n\
         events {{ worker_connections 18000; }}\n\
         http {{ access_log off; client_max_body_size 0; client_body_temp_path {dir}/body;\n\
         proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f; scgi_temp_path {dir}/s;\n\
         uwsgi_temp_path {dir}/u; keepalive_timeout 300;\n\
         upstream origin {{ server {origin}; keepalive 128; }}\n\
         server {{ listen {addr} backlog=4096; keepalive_requests 1000000000;\n\
         location / {{ proxy_pass http://origin; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; proxy_set_header Host $http_host;\n\
         proxy_set_header X-Forwarded-For $remote_addr;\n\
         proxy_request_buffering off; proxy_max_temp_file_size 0; }} }} }}\n"
    )
}

fn haproxy_file(core: Core, addr: SocketAddr, origin: SocketAddr) -> String {
    let threads = workers(core);
    format!(
        "global\n maxconn 5000\n nbthread {threads}\n\
         defaults\n mode http\n option splice-auto\n option forwardfor\n\
         timeout connect 10s\n timeout client 300s\n timeout server 60s\n http-reuse always\n\
         listen l\n bind {addr} backlog 4096\n server o {origin}\n"
    )
}

fn workers(core: Core) -> usize {
    match core {
        Core::Any => std::thread::available_parallelism().map_or(1, usize::from),
        Core::Load | Core::Proxy => 1,
    }
}

/// Bytes of memory of a process and its children that no file backs: what it has allocated.
pub fn memory(pid: u32, key: &str) -> u64 {
    let mut sum = 0;
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        let status = fs::File::open(format!("/proc/{pid}/status"));
        let lines = status
            .into_iter()
            .flat_map(|file| BufReader::new(file).lines());
        for line in lines.map_while(Result::ok) {
            if let Some(rest) = line.strip_prefix(key) {
                let digits: String = rest.chars().filter(char::is_ascii_digit).collect();
                sum += digits.parse::<u64>().unwrap_or(0) * 1024;
            }
        }
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        next.extend(
            children
                .split_whitespace()
                .filter_map(|n| n.parse::<u32>().ok()),
        );
    }
    sum
}
