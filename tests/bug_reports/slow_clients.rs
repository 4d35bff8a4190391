//! S17: Slowloris and RUDY against timers that every byte resets.

use std::time::{Duration, Instant};

use crate::support::client::Client;
use crate::support::setup::{Engine, Route, Settings};
use crate::support::toron::Toron;
use crate::support::upstream::Upstream;
use crate::support::{raise_descriptor_limit, show, PATIENCE};
use crate::{ask, connect, on_every_engine, pattern, post, post_chunked};

const TIMEOUT: &str = "{\"error\":\"408 Request Timeout\"}";

fn toron(engine: Engine, upstream: &Upstream) -> Toron {
    let mut settings = Settings::new(engine, vec![Route::new("/", &upstream.addr)]);
    settings.server.push(("read_timeout", "1s".into()));
    // It is the windows that are tested, not the rates of the firewall.
    for (key, value) in [
        ("enabled", "false"),
        ("min_body_rate", "0"),
        ("body_timeout", "0"),
    ] {
        settings.firewall.push((key, value.into()));
    }
    Toron::start(&settings)
}

/// Sends `drip` each `pause` until the proxy ends the connection; bounded.
fn drip(client: &mut Client, drip: &[u8], pause: Duration) {
    let deadline = Instant::now() + PATIENCE;
    while client.end.is_none() && Instant::now() < deadline {
        client.send(drip, PATIENCE);
        let until = Instant::now() + pause;
        while client.end.is_none() && Instant::now() < until {
            client.receive(usize::MAX, until);
        }
    }
}

fn is_timed_out(client: &Client, what: &str) {
    assert!(client.end.is_some(), "{what}: still there");
    let parsed = client.parsed();
    let got: Vec<_> = parsed
        .responses
        .iter()
        .map(|r| (r.status, String::from_utf8_lossy(&r.body).into_owned()))
        .collect();
    assert_eq!(
        got,
        [(408, TIMEOUT.to_owned())],
        "{what}: {}",
        show(&client.received)
    );
}

/// Byte by byte they would last for hours.
#[test]
fn s17_i3_i18_a_drip_is_ended() {
    on_every_engine(|engine| {
        let upstream = Upstream::start();
        let toron = toron(engine, &upstream);
        let millis = Duration::from_millis;
        for (what, head, piece, pause) in [
            (
                "head lines of 8 bytes",
                b"GET / HTTP/1.1\r\n".to_vec(),
                &b"X-a: b\r\n"[..],
                300,
            ),
            ("a body byte now and then", post("/", 60_000), b"b", 200),
            ("a streamed body's", post("/", 200_000), b"b", 200),
            ("chunks of one byte", post_chunked("/"), b"1\r\nb\r\n", 200),
        ] {
            let mut client = connect(&toron);
            client.send(&head, PATIENCE);
            drip(&mut client, piece, millis(pause));
            is_timed_out(&client, what);
        }
        let over = upstream.wait_for(PATIENCE, |all| all.iter().all(|c| c.ended.is_some()));
        assert!(over, "an upstream waits for a body whose client is gone");
        assert!(upstream.connections().iter().all(|c| c.requests.is_empty()));
    });
}

/// The opposite error: bytes are summed over the window, and the last window has no minimum.
#[test]
fn s17_i18_an_honest_slow_sender_is_served() {
    on_every_engine(|engine| {
        let upstream = Upstream::start();
        let toron = toron(engine, &upstream);
        // 600 bytes each 250 ms; the last piece is shorter than any minimum.
        let body = pattern(600 * 8 + 17);
        for chunked in [false, true] {
            let mut client = connect(&toron);
            let head = match chunked {
                true => post_chunked("/honest"),
                false => post("/honest", body.len()),
            };
            client.send(&head, PATIENCE);
            for piece in body.chunks(600) {
                if chunked {
                    client.send(format!("{:x}\r\n", piece.len()).as_bytes(), PATIENCE);
                }
                client.send(piece, PATIENCE);
                if chunked {
                    client.send(b"\r\n", PATIENCE);
                }
                client.receive(usize::MAX, Instant::now() + Duration::from_millis(250));
            }
            if chunked {
                client.send(b"0\r\n\r\n", PATIENCE);
            }
            assert!(client.receive_responses(1, PATIENCE), "{:?}", client.end);
            let response = client.parsed().responses.remove(0);
            assert_eq!(response.status, 200, "{}", show(&client.received));
        }
        let bodies: Vec<Vec<u8>> = upstream
            .connections()
            .into_iter()
            .flat_map(|c| c.requests)
            .map(|r| r.body)
            .collect();
        assert!(bodies == [body.clone(), body], "other bodies");
    });
}

const S17_DRIPPERS: usize = 500;

/// 500 at once, and an ordinary client beside them.
#[test]
fn s17_i18_five_hundred_drippers_hurt_nobody() {
    raise_descriptor_limit();
    on_every_engine(|engine| {
        let upstream = Upstream::start();
        let toron = toron(engine, &upstream);
        let mut drippers: Vec<Client> = (0..S17_DRIPPERS)
            .map(|_| {
                let mut client = connect(&toron);
                client.send(&post("/slow", 60_000), PATIENCE);
                client
            })
            .collect();
        let deadline = Instant::now() + PATIENCE;
        let mut served = 0;
        while drippers.iter().any(|c| c.end.is_none()) {
            assert!(Instant::now() < deadline, "drippers are still there");
            for client in drippers.iter_mut().filter(|c| c.end.is_none()) {
                client.send(b"d", PATIENCE);
                client.receive(usize::MAX, Instant::now());
            }
            let status = ask(&toron, "/beside", PATIENCE);
            assert_eq!(status, Some(200), "after {served} requests");
            served += 1;
        }
        for (i, client) in drippers.iter().enumerate() {
            is_timed_out(client, &format!("dripper {i}"));
        }
    });
}
