//! Whoever goes away takes the other side along, in every phase (I39, I40), and what was cut is
//! never taken for whole (I31). Client and upstream are played step by step.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use support::backend::{Backend, Peer};
use support::client::Client;
use support::readout::{allow_readout, await_readout, readout, Readout};
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::{contains, find, show, PATIENCE};

/// Far more than all buffers between a client and an upstream hold.
const HUGE: usize = 200_000_000;
/// No byte has moved for so long: both ends are full.
const FULL: Duration = Duration::from_millis(300);

fn toron(engine: Engine, upstream: SocketAddr) -> Toron {
    let mut route = Route::new("/", &upstream);
    // Nothing here may be ended by a timeout instead.
    // A route that asks for so much gets the guardrail's cap (I16), a single slot here.
    route.extra.push(("max_concurrency", "-1".into()));
    for key in ["read_timeout", "write_timeout", "response_header_timeout"] {
        route.extra.push((key, "60s".into()));
    }
    route
        .extra
        .push(("inbound_chunked_mode", "passthrough".into()));
    let mut settings = Settings::new(engine, vec![route]);
    settings.max_body_bytes = Some(0);
    allow_readout(&mut settings);
    Toron::start(&settings)
}

fn on_every_engine(test: fn(Engine)) {
    for engine in Engine::ALL {
        test(engine);
    }
}

/// A client and the upstream's side of its request.
struct Pair {
    client: Client,
    peer: Peer,
}

/// Sends `request`, waits for its head upstream, and answers with `response`.
fn pair(toron: &Toron, backend: &Backend, request: &[u8], response: &[u8]) -> Pair {
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    client.send(request, PATIENCE);
    let mut peer = backend.accept();
    peer.receive_head();
    peer.send(response);
    Pair { client, peer }
}

impl Pair {
    /// Receives until the client has these bytes.
    fn client_has(mut self, bytes: &[u8]) -> Self {
        let came = self
            .client
            .receive_until(PATIENCE, |c| contains(&c.received, bytes));
        assert!(came, "{}", show(&self.client.received));
        self
    }

    /// Receives until the upstream has these bytes.
    fn peer_has(mut self, bytes: &[u8]) -> Self {
        let came = self.peer.receive_until(|got| contains(got, bytes));
        assert!(came, "{}", show(&self.peer.received));
        self
    }
}

const GET: &[u8] = b"GET /x HTTP/1.1\r\nHost: t.example\r\n\r\n";
const POST: &[u8] = b"POST /x HTTP/1.1\r\nHost: t.example\r\nContent-Length: 4\r\n\r\nbody";
const UPGRADE: &[u8] =
    b"GET /x HTTP/1.1\r\nHost: t.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
const BEGUN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\nbegun";
const BEGUN_CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n";
const EXPECTS: &[u8] =
    b"PUT /x HTTP/1.1\r\nHost: t.example\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n";

/// A part of a body of known length: it goes by splice.
fn spliced_upload() -> Vec<u8> {
    let mut request =
        format!("PUT /x HTTP/1.1\r\nHost: t.example\r\nContent-Length: {HUGE}\r\n\r\n")
            .into_bytes();
    request.resize(request.len() + 100_000, b'u');
    request.extend_from_slice(b"part");
    request
}

/// A part of a chunked body: it goes by copy.
fn copied_upload() -> Vec<u8> {
    b"PUT /x HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n"
        .to_vec()
}

/// Where a request is when its client goes.
type Phase = (&'static str, fn(&Toron, &Backend) -> Pair);

/// Phases in which a FIN is the end as well as a RST: the request is not whole.
const UNFINISHED: [Phase; 3] = [
    ("upload by splice", |toron, backend| {
        pair(toron, backend, &spliced_upload(), b"").peer_has(b"part")
    }),
    ("upload by copy", |toron, backend| {
        pair(toron, backend, &copied_upload(), b"").peer_has(b"part")
    }),
    ("waiting for a 100", |toron, backend| {
        pair(toron, backend, EXPECTS, b"")
    }),
];

/// Phases behind a whole request, or in which a FIN cannot be seen.
const RESET_ONLY: [Phase; 8] = [
    ("waiting for a response to GET", |toron, backend| {
        pair(toron, backend, GET, b"")
    }),
    ("waiting for a response to POST", |toron, backend| {
        pair(toron, backend, POST, b"").peer_has(b"body")
    }),
    ("behind an interim response", |toron, backend| {
        let hints = b"HTTP/1.1 103 Early Hints\r\n\r\n";
        pair(toron, backend, GET, hints).client_has(hints)
    }),
    ("download by splice", |toron, backend| {
        pair(toron, backend, GET, BEGUN).client_has(b"begun")
    }),
    ("download by copy", |toron, backend| {
        pair(toron, backend, GET, BEGUN_CHUNKED).client_has(b"begun")
    }),
    (
        "download that the client does not take",
        |toron, backend| {
            let mut pair = pair(toron, backend, GET, BEGUN);
            pair.peer.send_until_full(HUGE, FULL);
            pair
        },
    ),
    (
        "upload that the upstream does not take",
        |toron, backend| {
            let mut pair = pair(toron, backend, &spliced_upload(), b"");
            pair.client.send_until_full(HUGE, FULL);
            pair
        },
    ),
    ("a tunnel", |toron, backend| {
        let mut pair = pair(toron, backend, UPGRADE, SWITCH).client_has(SWITCH_SEEN);
        pair.client.send(b"ping", PATIENCE);
        pair.peer_has(b"ping")
    }),
];

const SWITCH_SEEN: &[u8] = b"HTTP/1.1 101 ";

/// The upstream's connection ends although it neither reads nor writes, and nothing is left.
fn everything_ends(toron: &Toron, mut peer: Peer, what: &str) {
    await_readout(toron, what, |r| {
        (r.exchanges, r.upstream_connections, r.pipes) == (0, 0, 0)
    });
    assert!(peer.wait_end().is_some(), "{what}: the upstream is kept");
}

#[test]
fn i39_a_reset_of_the_client_ends_the_upstream_in_every_phase() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = toron(engine, backend.addr);
        for (what, reach) in UNFINISHED.iter().chain(&RESET_ONLY) {
            let mut pair = reach(&toron, &backend);
            pair.client.reset();
            everything_ends(&toron, pair.peer, what);
        }
    });
}

#[test]
fn i39_a_fin_inside_a_request_ends_the_upstream() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = toron(engine, backend.addr);
        for (what, reach) in &UNFINISHED {
            let mut pair = reach(&toron, &backend);
            pair.client.shutdown_write();
            everything_ends(&toron, pair.peer, what);
            assert!(pair.client.receive_until_end(PATIENCE), "{what}");
            assert_eq!(show(&pair.client.received), "", "{what}");
        }
    });
}

/// Sent to an upstream that takes nothing, until toron holds some of it and reads no more.
const PIECE: usize = 16 * 1024;

/// Sends pieces of an upload until toron cannot pass them on; says how many.
fn send_until_held_up(toron: &Toron, client: &mut Client, piece: &[u8]) -> usize {
    for sent in 1..5_000 {
        client.send(piece, PATIENCE);
        // At rest it holds a pipe, or a buffer besides that of the read-out, only if it must.
        let holds = |r: Readout| r.pipes > 0 || r.buffers > 1;
        if (0..10).all(|_| holds(readout(toron))) {
            return sent;
        }
    }
    panic!("the upstream takes everything");
}

fn chunk() -> Vec<u8> {
    let mut chunk = b"4000\r\n".to_vec();
    chunk.resize(chunk.len() + PIECE, b'u');
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// An upload of this length.
fn put(length: usize) -> Vec<u8> {
    format!("PUT /x HTTP/1.1\r\nHost: t.example\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

/// A FIN behind bytes that toron does not read, because the upstream takes none, and does not come
/// to take any: what has come is too little to be the whole body.
#[test]
fn i39_a_fin_inside_a_body_that_is_held_up_ends_the_upstream() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = toron(engine, backend.addr);
        for (what, begin, piece) in [
            ("by splice", put(HUGE), vec![b'u'; PIECE]),
            ("by copy", copied_upload(), chunk()),
        ] {
            let mut pair = pair(&toron, &backend, &begin, b"");
            send_until_held_up(&toron, &mut pair.client, &piece);
            pair.client.shutdown_write();
            everything_ends(&toron, pair.peer, what);
            assert!(pair.client.receive_until_end(PATIENCE), "{what}");
            assert_eq!(show(&pair.client.received), "", "{what}");
        }
    });
}

/// What stands before the FIN is all of the body: it is passed on when the upstream takes it.
#[test]
fn i39_a_whole_body_that_is_held_up_arrives_though_its_client_has_finished() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = toron(engine, backend.addr);
        let mut pair = pair(&toron, &backend, &copied_upload(), b"");
        let pieces = send_until_held_up(&toron, &mut pair.client, &chunk());
        pair.client.send(b"0\r\n\r\n", PATIENCE);
        arrives(&toron, pair, |body| body.ends_with(b"\r\n0\r\n\r\n"));
        // About as much is held up again.
        let body = vec![b'u'; pieces * PIECE];
        let mut pair = self::pair(&toron, &backend, &put(body.len()), b"");
        pair.client.send(&body, PATIENCE);
        arrives(&toron, pair, |received| {
            find(received, b"\r\n\r\n").is_some_and(|head| received.len() - head - 4 == body.len())
        });
    });
}

/// The client has sent everything and finishes; the upstream gets it all nevertheless.
fn arrives(toron: &Toron, mut pair: Pair, is_whole: impl Fn(&[u8]) -> bool) {
    pair.client.shutdown_write();
    // For as long as it takes to be noticed.
    for _ in 0..10 {
        assert_eq!(readout(toron).exchanges, 1, "it was cut");
    }
    assert!(pair.peer.receive_until(is_whole), "cut on its way");
    pair.peer
        .send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK");
    assert!(pair.client.receive_until_end(PATIENCE));
    assert!(pair.client.received.ends_with(b"OK"));
}

#[test]
fn i39_a_client_that_goes_during_the_dial_is_noticed() {
    on_every_engine(|engine| {
        // A listener whose backlog is full: connecting to it waits.
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        full.listen(0).unwrap();
        let addr = full.local_addr().unwrap().as_socket().unwrap();
        let filling: Vec<Socket> = (0..4).map(|_| dial_without_waiting(addr)).collect();
        let toron = toron(engine, addr);
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        client.send(GET, PATIENCE);
        await_readout(&toron, "the request", |r| r.exchanges == 1);
        client.reset();
        await_readout(&toron, "during the dial", |r| r.exchanges == 0);
        for begun in [put(100_000), copied_upload()] {
            let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
            client.send(&begun, PATIENCE);
            await_readout(&toron, "the request", |r| r.exchanges == 1);
            client.shutdown_write();
            await_readout(&toron, "a FIN during the dial", |r| r.exchanges == 0);
            assert!(client.receive_until_end(PATIENCE));
            assert_eq!(show(&client.received), "");
        }
        drop(filling);
    });
}

fn dial_without_waiting(addr: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    // In progress, or refused for want of room: both fill it.
    let _ = socket.connect(&addr.into());
    socket
}

/// How an upstream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Fin,
    Reset,
}

/// Ends the upstream's side; a peer that sent FIN is kept, so that no reset follows.
fn leave(peer: Peer, way: Way) -> Option<Peer> {
    match way {
        Way::Fin => {
            peer.shutdown_write();
            Some(peer)
        }
        Way::Reset => {
            peer.reset();
            None
        }
    }
}

const CLOSED: &str = "{\"error\":\"502 Bad Gateway: Upstream closed the connection\"}";

/// Before a response has begun the client is told.
#[test]
fn i28_i40_an_upstream_that_goes_before_its_response_is_502() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = toron(engine, backend.addr);
        let before_response = UNFINISHED.iter().chain(&RESET_ONLY[..3]);
        for (what, reach) in before_response {
            for way in [Way::Fin, Way::Reset] {
                let mut pair = reach(&toron, &backend);
                let kept = leave(pair.peer, way);
                let answered = pair.client.receive_responses(1, PATIENCE);
                assert!(answered, "{what}, {way:?}: {:?}", pair.client.end);
                let response = pair.client.parsed().responses.remove(0);
                let got = (response.status, String::from_utf8_lossy(&response.body));
                assert_eq!(got, (502, CLOSED.into()), "{what}, {way:?}");
                if let Some(peer) = kept {
                    drop(pair.client);
                    everything_ends(&toron, peer, what);
                }
            }
        }
    });
}

/// An upload that the upstream does not take, until it resets: toron's write fails.
#[test]
fn i40_an_upstream_that_goes_while_the_client_is_held_back_is_502() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = toron(engine, backend.addr);
        let (_, reach) = RESET_ONLY[6];
        let mut pair = reach(&toron, &backend);
        pair.peer.reset();
        assert!(pair.client.receive_responses(1, PATIENCE));
        assert_eq!(pair.client.parsed().responses[0].status, 502);
        // What the client still owes is thrown away within bounds; then the connection ends.
        pair.client.send_until_full(HUGE, PATIENCE);
        assert!(pair.client.receive_until_end(PATIENCE));
    });
}

/// Beginnings of responses that are cut, and whether a FIN is an end that was promised.
const CUT: [(&str, &[u8]); 9] = [
    (
        "Content-Length, behind the head",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
    ),
    (
        "Content-Length, one byte short",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n12345678",
    ),
    ("Content-Length, by splice", BEGUN),
    (
        "chunks, behind the head",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    (
        "in a chunk size",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n1",
    ),
    (
        "in a chunk",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\npar",
    ),
    (
        "behind a chunk's data",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole",
    ),
    ("between chunks", BEGUN_CHUNKED),
    (
        "in the trailers",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n0\r\nX-Sum: 1\r\n",
    ),
];

fn is_visibly_cut(mut client: Client, what: &str) {
    assert!(client.receive_until_end(PATIENCE), "{what}: not closed");
    let parsed = client.parsed();
    assert_eq!(parsed.error, None, "{what}");
    let response = parsed.responses.first();
    let complete = response.is_some_and(|r| r.complete);
    assert!(!complete, "{what}: cut, and yet {}", show(&client.received));
    assert!(
        parsed.responses.len() <= 1,
        "{what}: {}",
        show(&client.received)
    );
}

#[test]
fn i31_i40_a_cut_response_looks_cut() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = toron(engine, backend.addr);
        for version in ["1.1", "1.0"] {
            let get = format!("GET /x HTTP/{version}\r\nHost: t.example\r\n\r\n");
            for (what, begun) in CUT {
                for way in [Way::Fin, Way::Reset] {
                    let what = format!("{what}, HTTP/{version}, {way:?}");
                    let mut pair = pair(&toron, &backend, get.as_bytes(), begun);
                    // So that it is the response that is cut, not its beginning.
                    let head = pair
                        .client
                        .receive_until(PATIENCE, |c| contains(&c.received, b"\r\n\r\n"));
                    assert!(head, "{what}: no head");
                    let kept = leave(pair.peer, way);
                    is_visibly_cut(pair.client, &what);
                    if let Some(peer) = kept {
                        everything_ends(&toron, peer, &what);
                    }
                }
            }
            // Without any framing a FIN is the end, and a reset is not.
            let what = format!("until close, HTTP/{version}");
            let begun = b"HTTP/1.1 200 OK\r\n\r\nbegun";
            let cut = pair(&toron, &backend, get.as_bytes(), begun).client_has(b"begun");
            cut.peer.reset();
            is_visibly_cut(cut.client, &what);
            let mut whole = pair(&toron, &backend, get.as_bytes(), begun).client_has(b"begun");
            whole.peer.shutdown_write();
            let done = |c: &Client| c.complete_responses() == 1 || c.end.is_some();
            assert!(whole.client.receive_until(PATIENCE, done), "{what}: no end");
            let response = whole.client.parsed().responses.remove(0);
            assert!(response.complete && response.body == b"begun", "{what}");
        }
    });
}

/// A tunnel whose upstream resets ends for the client too.
#[test]
fn i40_an_upstream_that_leaves_a_tunnel_ends_it() {
    on_every_engine(|engine| {
        let backend = Backend::start();
        let toron = toron(engine, backend.addr);
        let (what, reach) = RESET_ONLY[7];
        let mut pair = reach(&toron, &backend);
        pair.peer.reset();
        assert!(pair.client.receive_until_end(PATIENCE), "{what}");
        await_readout(&toron, what, |r| r.exchanges == 0);
    });
}
