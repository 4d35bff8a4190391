//! The upstreams: nginx, Node's http, Python's http.server and uvicorn, each with the same pages as far
//! as it can serve them, and a directory of files.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::nginx::Nginx;
use crate::support::process::{OnDrop, Process};
use crate::support::{TempDir, PATIENCE};

/// Bytes of `/files/big`.
pub const BIG: usize = 4 << 20;

enum Running {
    /// And where it keeps its files.
    Program(Process, #[allow(dead_code)] TempDir),
    Nginx(Nginx),
}

/// A running upstream.
pub struct Origin {
    pub addr: SocketAddr,
    /// Where `/files/` is, and where a PUT to `/store/` goes.
    pub files: PathBuf,
    pub name: &'static str,
    running: Running,
}

impl Origin {
    /// What it said.
    pub fn log(&self) -> Vec<String> {
        match &self.running {
            Running::Program(process, _) => process.log_lines(),
            Running::Nginx(nginx) => nginx.process.log_lines(),
        }
    }

    /// The bytes that `/files/big` has.
    pub fn big(&self) -> Vec<u8> {
        std::fs::read(self.files.join("big")).expect("the large file")
    }
}

/// A script of this directory.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/real_upstreams")
        .join(name)
}

/// A large file in which each 4 KiB differ.
fn put_files(dir: &Path) {
    let mut bytes = vec![0; BIG];
    toron::origin::pattern::fill(0, &mut bytes);
    std::fs::write(dir.join("big"), bytes).expect("write the large file");
}

fn program(name: &'static str, interpreter: &Path, file: &str, arguments: &[&str]) -> Origin {
    let dir = TempDir::new(name);
    put_files(dir.path());
    std::fs::create_dir(dir.join("folder")).expect("a directory");
    let mut command = Command::new(interpreter);
    command.arg(script(file)).arg(dir.path()).args(arguments);
    // Python writes no byte code beside the scripts.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let process = Process::spawn(command, name, OnDrop::Kill);
    let addr = process.wait_line(PATIENCE, |line| {
        let at = line.find("127.0.0.1:")?;
        line[at..].split_whitespace().next()?.parse().ok()
    });
    Origin {
        addr,
        files: dir.path().to_owned(),
        name,
        running: Running::Program(process, dir),
    }
}

/// Node's http module.
pub fn node() -> Origin {
    program("node", Path::new("node"), "server.js", &[])
}

/// Python's http.server with a handler that speaks HTTP/1.1.
pub fn python() -> Origin {
    program("python", Path::new("/usr/bin/python3"), "server.py", &[])
}

/// What `python3 -m http.server` is.
pub fn plain_python() -> Origin {
    let python = Path::new("/usr/bin/python3");
    program("plain-python", python, "server.py", &["plain"])
}

/// uvicorn, which closes a connection that it has not used for so many seconds.
pub fn uvicorn(keep_alive: &str) -> Origin {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let python = target
        .expect("the target directory")
        .join("test-tools/uvicorn/bin/python");
    assert!(
        python.exists(),
        "uvicorn is not there: make tools installs it"
    );
    program("uvicorn", &python, "app.py", &[keep_alive])
}

/// nginx. `/node/` is what `node` serves, through it.
pub fn nginx(node: &Origin) -> Origin {
    let server = format!(
        "client_max_body_size 0; default_type text/plain;\n\
         location = /hello {{ return 200 hello; }}\n\
         location = /few {{ keepalive_requests 3; return 200 $connection_requests; }}\n\
         location = /connections {{ return 200 $connection; }}\n\
         location = /pieces {{ root DIR/files; ssi on; ssi_types *; }}\n\
         location = /empty {{ return 204; }}\n\
         location = /unchanged {{ alias DIR/files/pieces; etag on; }}\n\
         location /files/ {{ root DIR; }}\n\
         location /folder/ {{ root DIR/files; autoindex on; }}\n\
         location /relative/ {{ absolute_redirect off; root DIR/files; }}\n\
         location /store/ {{ alias DIR/files/; dav_methods PUT; client_body_temp_path DIR/temp/dav; }}\n\
         location = /small {{ client_max_body_size 1k; proxy_pass http://{node}; }}\n\
         location = /login {{ add_header Set-Cookie \"session=1; Path=/; HttpOnly\"; return 302 /home; }}\n\
         location = /home {{ if ($cookie_session = 1) {{ return 200 welcome; }} return 403; }}\n\
         location = /gone {{ return 444; }}\n\
         location /node/ {{ proxy_pass http://{node}/; proxy_http_version 1.1; proxy_buffering off;\n\
         proxy_set_header Host $http_host; proxy_set_header Upgrade $http_upgrade;\n\
         proxy_set_header Connection $http_connection; }}\n",
        node = node.addr
    );
    let nginx = Nginx::start(1, 1024, "", &server);
    let files = nginx.dir.join("files");
    put_files(&files);
    std::fs::create_dir_all(files.join("folder/inner")).expect("a directory");
    std::fs::create_dir_all(files.join("relative/inner")).expect("a directory");
    let pieces: String = (0..5).map(|i| format!("piece {i}\n")).collect();
    std::fs::write(files.join("pieces"), pieces).expect("write a page");
    Origin {
        addr: nginx.addr,
        files,
        name: "nginx",
        running: Running::Nginx(nginx),
    }
}
