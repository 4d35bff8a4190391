//! The rig: everything that tests the real binary from outside.
//!
//! ```text
//!   client.rs ──▶ toron.rs (the binary, own config, port 0) ──▶ upstream.rs  (scripted, logs every byte)
//!        │                        │                        └──▶ nginx.rs     (Debian's, as origin)
//!        └── http.rs, strict parsers of both sides
//!   case.rs (the case bank) ─▶ play.rs (runs one case) ─▶ verdict.rs (judges what was seen)
//! ```
//!
//! All sockets are blocking and every wait has a limit. Nothing here is async.
//!
//! `TORON_TEST_PROXY=nginx` puts Debian's nginx in the place of toron. It is how the rig itself is
//! proven: a case that nginx is known to pass must pass, whatever toron does.

// Each test file is a crate of its own and uses a part of the rig.
#![allow(dead_code, unused_macros)]

/// Two tests of each function, one for each engine.
macro_rules! on_both_engines {
    ($($name:ident: $epoll:ident, $io_uring:ident;)*) => {$(
        #[test]
        fn $epoll() {
            $name(crate::support::setup::Engine::Epoll);
        }

        #[test]
        fn $io_uring() {
            $name(crate::support::setup::Engine::IoUring);
        }
    )*};
}

pub mod backend;
pub mod bank;
pub mod bulkheads;
pub mod case;
pub mod client;
pub mod http;
pub mod metrics;
pub mod nginx;
pub mod play;
pub mod process;
pub mod readout;
pub mod setup;
pub mod toron;
pub mod upstream;
pub mod verdict;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bound of every wait for something that should come at once. It is not a measure of speed:
/// a machine under load must not fail a test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A directory of its own under cargo's scratch directory, removed when dropped unless a test fails.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(what: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{what}-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("create scratch directory");
        TempDir(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept for inspection: {}", self.0.display());
        } else if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {e}", self.0.display());
        }
    }
}

/// A listener on a free loopback port, with a backlog for hundreds that connect at once: past it the
/// kernel answers with SYN cookies and later resets what it has promised (std's is 128).
pub fn listen() -> TcpListener {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).expect("bind port 0");
    socket.listen(4096).expect("listen");
    socket.into()
}

/// Whether the long forms are asked for (`make soak`).
pub fn soak() -> bool {
    std::env::var_os("TORON_SOAK").is_some_and(|v| v == "1")
}

/// Raises this process's soft descriptor limit to the hard one and returns it.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("raise the descriptor limit");
    limit.maximum.unwrap_or(u64::MAX)
}

/// Bytes of a latin-1 string, as the case bank writes them.
pub fn from_latin1(text: &str) -> Vec<u8> {
    text.chars()
        .map(|c| u8::try_from(u32::from(c)).expect("case bank strings are latin-1"))
        .collect()
}

/// A latin-1 string of any bytes.
pub fn to_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

/// Whether `needle` occurs in `hay`.
pub fn contains(hay: &[u8], needle: &[u8]) -> bool {
    find(hay, needle).is_some()
}

/// Where `needle` first occurs in `hay`.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    hay.windows(needle.len()).position(|w| w == needle)
}

/// Bytes for a person to read: escapes, line breaks kept, the middle of long runs left out.
pub fn show(bytes: &[u8]) -> String {
    const EDGE: usize = 1200;
    let text = |part: &[u8]| {
        part.escape_ascii()
            .to_string()
            .replace("\\r\\n", "\\r\\n\n      ")
    };
    if bytes.len() <= 2 * EDGE {
        return text(bytes);
    }
    format!(
        "{}\n      … {} bytes left out …\n      {}",
        text(&bytes[..EDGE]),
        bytes.len() - 2 * EDGE,
        text(&bytes[bytes.len() - EDGE..])
    )
}
