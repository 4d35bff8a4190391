//! 1 GiB up and 1 GiB down through toron, between curl and nginx: every byte arrives, and toron's
//! peak memory does not move (I35).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;

use support::nginx::Nginx;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::TempDir;

const MIB: usize = 1024 * 1024;
const FULL: usize = 1024;
const WARM_UP: usize = 16;
/// Allowed growth of the peak, in KiB.
const GROWTH: u64 = 1024;

/// A file without two equal pages: each 4 KiB begins with its own number.
fn make_file(path: &Path, mib: usize) {
    let mut block: Vec<u8> = (0..MIB)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    let mut out = BufWriter::with_capacity(MIB, File::create(path).unwrap());
    for i in 0..mib {
        for (j, page) in block.chunks_mut(4096).enumerate() {
            page[..8].copy_from_slice(&((i * 256 + j) as u64).to_le_bytes());
        }
        out.write_all(&block).unwrap();
    }
    out.flush().unwrap();
}

fn sha256(path: &Path) -> String {
    let out = Command::new("sha256sum")
        .arg(path)
        .output()
        .expect("run sha256sum");
    assert!(out.status.success(), "sha256sum {}", path.display());
    String::from_utf8(out.stdout)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned()
}

fn curl(args: &[&str], url: &str) -> Child {
    let mut command = Command::new("curl");
    command
        .args(["-sS", "--fail", "--max-time", "300"])
        .args(args)
        .arg(url);
    command.spawn().expect("start curl")
}

fn upload(from: &Path, addr: SocketAddr, name: &str) -> Child {
    curl(
        &["-T", from.to_str().unwrap()],
        &format!("http://{addr}/put/{name}"),
    )
}

fn download(to: &Path, addr: SocketAddr, name: &str) -> Child {
    curl(
        &["-o", to.to_str().unwrap()],
        &format!("http://{addr}/files/{name}"),
    )
}

fn finish(what: &str, mut child: Child) {
    assert!(
        child.wait().expect("wait for curl").success(),
        "curl: {what}"
    );
}

/// Small transfers in parallel, so that whatever is made once has been made.
fn warm_up(addr: SocketAddr, small: &Path, scratch: &TempDir) {
    for _ in 0..2 {
        let ups = (0..4).map(|i| upload(small, addr, &format!("warm{i}")));
        let downs = (0..4).map(|i| download(&scratch.join(&format!("warm{i}")), addr, "small"));
        let running: Vec<Child> = ups.chain(downs).collect();
        running
            .into_iter()
            .for_each(|child| finish("warm-up", child));
    }
}

#[test]
fn a_gibibyte_each_way_keeps_its_hash_and_the_peak_memory() {
    let origin = Nginx::origin(1);
    let scratch = TempDir::new("transfer");
    let (small, full) = (
        origin.dir.join("files/small"),
        origin.dir.join("files/full"),
    );
    make_file(&small, WARM_UP);
    make_file(&full, FULL);
    let hash = sha256(&full);
    for engine in Engine::ALL {
        let mut settings = Settings::new(engine, vec![Route::new("/", &origin.addr)]);
        settings.max_body_bytes = Some(0);
        let toron = Toron::start(&settings);
        warm_up(toron.addr, &small, &scratch);
        let before = toron.proc().peak_kib();

        let start = Instant::now();
        finish("upload", upload(&full, toron.addr, "full"));
        let up = start.elapsed();
        let start = Instant::now();
        let to = scratch.join("full");
        finish("download", download(&to, toron.addr, "full"));
        let down = start.elapsed();

        // The kernel adds its counters up now and then: read again, a peak may be some pages lower.
        let growth = toron.proc().peak_kib().saturating_sub(before);
        println!(
            "{}: {FULL} MiB up in {up:.1?}, down in {down:.1?}; peak {before} KiB, grown by {growth} KiB",
            engine.name()
        );
        let uploaded = origin.dir.join("put/full");
        assert_eq!(sha256(&uploaded), hash, "{}: upload", engine.name());
        assert_eq!(sha256(&to), hash, "{}: download", engine.name());
        std::fs::remove_file(uploaded).unwrap();
        std::fs::remove_file(to).unwrap();
        assert!(
            growth < GROWTH,
            "{}: peak memory grew by {growth} KiB",
            engine.name()
        );
    }
}
