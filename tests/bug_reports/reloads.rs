//! S7: a configuration change drops unrelated long-lived connections.

use crate::ask;
use crate::pattern;
use crate::support::backend::{Backend, Peer};
use crate::support::client::Client;
use crate::support::setup::{Engine, Route, Settings};
use crate::support::toron::Toron;
use crate::support::{contains, PATIENCE};
use crate::{connect, on_every_engine};

const S7_CHANGES: usize = 100;
/// Of the download, between two changes.
const S7_PIECE: usize = 16 * 1024;

/// A WebSocket and a download that are under way.
struct Streams {
    socket: (Client, Peer),
    download: (Client, Peer),
    body: Vec<u8>,
    sent: usize,
    head: usize,
}

impl Streams {
    fn open(toron: &Toron, backend: &Backend, prefix: &str) -> Self {
        let mut socket = connect(toron);
        let upgrade = format!(
            "GET {prefix}/ws HTTP/1.1\r\nHost: t.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        );
        socket.send(upgrade.as_bytes(), PATIENCE);
        let mut behind = backend.accept();
        behind.receive_head();
        behind.received.clear();
        let switched =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        behind.send(switched.as_bytes());
        let open = socket.receive_until(PATIENCE, |c| contains(&c.received, b"\r\n\r\n"));
        assert!(open, "no tunnel");
        let mut download = connect(toron);
        let get = format!("GET {prefix}/file HTTP/1.1\r\nHost: t.example\r\n\r\n");
        download.send(get.as_bytes(), PATIENCE);
        let mut from = backend.accept();
        from.receive_head();
        let body = pattern(S7_PIECE * S7_CHANGES);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        from.send(head.as_bytes());
        let begun = download.receive_until(PATIENCE, |c| contains(&c.received, b"\r\n\r\n"));
        assert!(begun, "no download");
        Streams {
            head: download.received.len(),
            socket: (socket, behind),
            download: (download, from),
            body,
            sent: 0,
        }
    }

    /// A word there and back, and one piece more.
    fn go_on(&mut self, count: usize) {
        let (client, peer) = &mut self.socket;
        let (word, echo) = (format!("count {count};"), format!("heard {count};"));
        client.send(word.as_bytes(), PATIENCE);
        let heard = peer.receive_until(|bytes| contains(bytes, word.as_bytes()));
        assert!(heard, "the WebSocket was cut at {count}");
        peer.send(echo.as_bytes());
        let back = client.receive_until(PATIENCE, |c| contains(&c.received, echo.as_bytes()));
        assert!(back, "the WebSocket was cut at {count}: {:?}", client.end);
        let (client, peer) = &mut self.download;
        peer.send(&self.body[self.sent..self.sent + S7_PIECE]);
        self.sent += S7_PIECE;
        let wanted = self.head + self.sent;
        let came = client.receive_until(PATIENCE, |c| c.received.len() >= wanted);
        assert!(came, "the download was cut at {count}: {:?}", client.end);
    }

    /// All of it has arrived.
    fn whole(&self) {
        let (client, _) = &self.download;
        let responses = client.parsed().responses;
        assert!(responses[0].complete && responses[0].body == self.body);
    }
}

/// The routes after `n` changes: /b comes, is changed and goes, and /gone is there for the first half.
fn settings(engine: Engine, backend: &Backend, n: usize) -> Settings {
    let mut routes = vec![Route::new("/a", &backend.addr)];
    if n < S7_CHANGES / 2 {
        routes.push(Route::new("/gone", &backend.addr));
    }
    let mut settings = Settings::new(engine, routes);
    let status = 201 + n % 3;
    settings.further_routes = match n % 3 {
        0 => String::new(),
        _ => format!("  - {{prefix: /b, status: {status}, body: \"{n}\"}}\n"),
    };
    settings
}

fn s7_unrelated_changes(engine: Engine) {
    let backend = Backend::start();
    let toron = Toron::start(&settings(engine, &backend, 0));
    let mut kept = Streams::open(&toron, &backend, "/a");
    let mut left = Streams::open(&toron, &backend, "/gone");
    let mut early = None;
    for n in 1..=S7_CHANGES {
        toron.reload(&settings(engine, &backend, n));
        // It holds at once for what comes now.
        let now = ask(&toron, "/b", PATIENCE);
        let wanted = if n % 3 == 0 { 404 } else { 201 + n % 3 };
        assert_eq!(now.map(usize::from), Some(wanted), "change {n}");
        kept.go_on(n);
        left.go_on(n);
        if n == S7_CHANGES / 2 {
            assert_eq!(ask(&toron, "/gone/ws", PATIENCE), Some(404));
            early = Some((toron.proc().resident_kib(), toron.proc().descriptors()));
        }
    }
    kept.whole();
    left.whole();
    let (memory, descriptors) = early.unwrap();
    let now = (toron.proc().resident_kib(), toron.proc().descriptors());
    assert!(now.0 < memory + 2048, "{memory} KiB became {} KiB", now.0);
    assert!(
        now.1 <= descriptors,
        "{descriptors} descriptors became {}",
        now.1
    );
}

#[test]
fn s7_r6_unrelated_changes_drop_nothing() {
    on_every_engine(s7_unrelated_changes);
}
