//! Debian's nginx: origin of the transfer and load tests, the figure beside toron's, and the
//! stand-in that proves the rig.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::process::{OnDrop, Proc, Process};
use super::setup::Settings;
use super::{TempDir, PATIENCE};

/// A running nginx with a scratch directory of its own.
pub struct Nginx {
    pub addr: SocketAddr,
    pub process: Process,
    pub dir: TempDir,
}

/// A port that was free a moment ago. nginx cannot report the port it got for 0.
fn free_port() -> u16 {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind port 0");
    probe.local_addr().expect("address of port 0").port()
}

impl Nginx {
    /// Starts nginx with `workers` worker processes of `descriptors` each and the server block
    /// `server`, in which `DIR` stands for the scratch directory.
    pub fn start(workers: usize, descriptors: u32, http: &str, server: &str) -> Self {
        let mut failures = String::new();
        for _ in 0..5 {
            match Self::try_start(workers, descriptors, http, server) {
                Ok(nginx) => return nginx,
                Err(e) => failures.push_str(&e),
            }
        }
        panic!("nginx does not start (is nginx-light installed?):\n{failures}");
    }

    fn try_start(
        workers: usize,
        descriptors: u32,
        http: &str,
        server: &str,
    ) -> Result<Self, String> {
        let dir = TempDir::new("nginx");
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let processes = format!("worker_processes {workers}; worker_rlimit_nofile {descriptors};");
        let conf = configuration(dir.path(), addr, &processes, http, server);
        std::fs::write(dir.join("nginx.conf"), conf).expect("write nginx.conf");
        for sub in ["files", "put", "temp"] {
            std::fs::create_dir_all(dir.join(sub)).expect("create nginx directory");
        }
        let mut command = Command::new(binary());
        command
            .arg("-p")
            .arg(dir.path())
            .args(["-c", "nginx.conf", "-e", "stderr"]);
        let mut process = Process::spawn(command, "nginx", OnDrop::Terminate);
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect_timeout(&addr, Duration::from_secs(1)).is_err() {
            if !process.is_running() || Instant::now() > deadline {
                return Err(process.log_lines().join("\n"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Nginx { addr, process, dir })
    }

    /// An origin: `/files/NAME` from `DIR/files`, PUT to `/put/NAME` into `DIR/put`, and
    /// `/echo/…`, whose body and field X-Echo both name the URI.
    pub fn origin(workers: usize) -> Self {
        let server = "client_max_body_size 0;\n\
             location /files/ { root DIR; }\n\
             location /put/ { root DIR; dav_methods PUT; client_body_temp_path DIR/put/.temp; }\n\
             location /echo/ { add_header X-Echo $uri; return 200 \"$uri\\n\"; }\n";
        Self::start(workers, 8192, "", server)
    }

    /// Processor ticks of all its processes.
    pub fn cpu_ticks(&self) -> u64 {
        let master = Proc(self.process.pid());
        let workers = master
            .children()
            .into_iter()
            .map(|pid| Proc(pid).cpu_ticks())
            .sum::<u64>();
        master.cpu_ticks() + workers
    }
}

fn binary() -> &'static str {
    // Not on the PATH of an ordinary user.
    if Path::new("/usr/sbin/nginx").exists() {
        "/usr/sbin/nginx"
    } else {
        "nginx"
    }
}

fn configuration(
    dir: &Path,
    addr: SocketAddr,
    processes: &str,
    http: &str,
    server: &str,
) -> String {
    let root = std::fs::metadata(dir).is_ok_and(|m| m.uid() == 0);
    let user = if root { "user root;" } else { "" };
    format!(
        "{user} daemon off; pid nginx.pid; error_log stderr warn;\n\
         {processes}\n\
         events {{ worker_connections 4096; multi_accept on; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; sendfile on; tcp_nopush off;\n\
         client_body_temp_path temp/body; proxy_temp_path temp/proxy; fastcgi_temp_path temp/f;\n\
         uwsgi_temp_path temp/u; scgi_temp_path temp/s;\n\
         {http}\n\
         server {{ listen {addr} backlog=4096; server_name _;\n{server} }} }}\n"
    )
    .replace("DIR", &dir.display().to_string())
}

/// nginx in the place of toron: as near to `settings` as it comes.
pub fn stand_in(settings: &Settings) -> Nginx {
    let (mut http, mut server) = (String::new(), String::new());
    let timeout = settings
        .transport
        .iter()
        .find(|(key, _)| *key == "idle_conn_timeout");
    let idle = timeout.map_or(String::new(), |(_, v)| format!("keepalive_timeout {v};"));
    for (i, route) in settings.routes.iter().enumerate() {
        let target = &route.target;
        let _ = writeln!(
            http,
            "upstream u{i} {{ server {target}; keepalive 100; {idle} }}"
        );
        let prefix = &route.prefix;
        let path = if route.strip_prefix { "/" } else { "" };
        let pass = format!("proxy_pass http://u{i}{path};");
        if prefix == "/" {
            let _ = writeln!(server, "location / {{ proxy_pass http://u{i}; }}");
        } else {
            let _ = writeln!(server, "location = {prefix} {{ {pass} }}");
            let _ = writeln!(server, "location {prefix}/ {{ {pass} }}");
        }
    }
    let limit = settings.max_body_bytes.unwrap_or(0);
    let _ = writeln!(
        server,
        "client_max_body_size {limit}; proxy_http_version 1.1;"
    );
    server.push_str(
        "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $hop;\n\
         proxy_set_header Host $http_host;\n\
         proxy_set_header X-Forwarded-For $remote_addr; proxy_request_buffering off;\n\
         proxy_buffering off; large_client_header_buffers 1 8k; proxy_next_upstream_tries 2;\n",
    );
    http.push_str("map $http_upgrade $hop { default upgrade; '' ''; }\n");
    let workers = settings.worker_pool_size.min(2);
    Nginx::start(
        workers,
        settings.descriptor_limit.unwrap_or(8192),
        &http,
        &server,
    )
}
