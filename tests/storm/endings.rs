//! The ways in which a request of the storm ends. Each plays one request and tells the status that
//! came of it; 0 is none.

use crate::origin::BIG;
use crate::support::client::Client;
use crate::support::PATIENCE;

/// Of the route: less than a large chunked body, more than [`BIG`].
pub const CEILING: usize = 512 * 1024;

/// xorshift64: reproducible from its seed, and random enough to choose where to stop.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// Less than `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A way in which a request ends.
pub struct Ending {
    pub name: &'static str,
    /// What is to come of it.
    pub allowed: &'static [u16],
    /// Waits for a limit in time.
    pub slow: bool,
    pub play: fn(&mut Client, &mut Random) -> u16,
}

/// By the client in eleven ways, by toron's own limits in four, by the upstream in eleven, and two
/// that are served.
pub const ENDINGS: &[Ending] = &[
    ending("served", &[200], |c, _| ask(c, "GET", "ok")),
    ending("served behind a half-close", &[200], half_close),
    ending("client: FIN in the head", &[0], |c, r| in_head(c, r, false)),
    ending("client: reset in the head", &[0], |c, r| {
        in_head(c, r, true)
    }),
    ending("client: FIN in the body", &[0], |c, r| in_body(c, r, false)),
    ending("client: reset in the body", &[0], |c, r| {
        in_body(c, r, true)
    }),
    ending("client: FIN while it is collected", &[0], |c, r| {
        in_chunks(c, r, false)
    }),
    ending("client: reset while it is collected", &[0], |c, r| {
        in_chunks(c, r, true)
    }),
    ending("client: reset while waiting", &[0], reset_while_waiting),
    ending("client: reset in the response", &[0], |c, r| {
        in_response(c, r, true)
    }),
    ending("client: closed on the response", &[0], |c, r| {
        in_response(c, r, false)
    }),
    ending("client: tunnel closed", &[101], |c, _| {
        tunnel(c, "ws", false)
    }),
    ending("client: tunnel reset", &[101], |c, _| tunnel(c, "ws", true)),
    slow("limit: client too slow", &[408], too_slow),
    ending("limit: malformed chunk", &[400], malformed_chunk),
    ending("limit: body too large", &[413], too_large),
    slow("limit: no response", &[504], |c, _| ask(c, "GET", "never")),
    ending("upstream: refused", &[502], refused),
    ending("upstream: FIN before the response", &[502], |c, _| {
        ask(c, "POST", "close")
    }),
    ending("upstream: FIN, sent again", &[502], |c, _| {
        ask(c, "GET", "close")
    }),
    ending("upstream: reset before the response", &[502], |c, _| {
        ask(c, "POST", "reset")
    }),
    ending("upstream: invalid head", &[502], |c, _| {
        ask(c, "GET", "garbage")
    }),
    ending("upstream: FIN in the response", &[200], |c, _| {
        torn(c, "cut")
    }),
    ending("upstream: reset in the response", &[0, 200], |c, _| {
        torn(c, "cut-reset")
    }),
    slow("upstream: stalls in the response", &[200], |c, _| {
        torn(c, "stall")
    }),
    ending("upstream: answers before the body", &[422], early),
    ending("upstream: tunnel closed", &[101], |c, _| {
        tunnel(c, "ws-close", false)
    }),
    ending("upstream: tunnel reset", &[0, 101], |c, _| {
        tunnel(c, "ws-reset", false)
    }),
];

const fn ending(
    name: &'static str,
    allowed: &'static [u16],
    play: fn(&mut Client, &mut Random) -> u16,
) -> Ending {
    Ending {
        name,
        allowed,
        slow: false,
        play,
    }
}

const fn slow(
    name: &'static str,
    allowed: &'static [u16],
    play: fn(&mut Client, &mut Random) -> u16,
) -> Ending {
    Ending {
        slow: true,
        ..ending(name, allowed, play)
    }
}

fn send(client: &mut Client, text: &str) {
    client.send(text.as_bytes(), PATIENCE);
}

/// The status of the first response as far as it has come; 0 is none.
fn status(client: &Client) -> u16 {
    client.parsed().responses.first().map_or(0, |r| r.status)
}

/// The status of the first response, waited for until it is whole or the connection ends.
fn answer(client: &mut Client) -> u16 {
    client.receive_responses(1, PATIENCE);
    status(client)
}

fn ask(client: &mut Client, method: &str, path: &str) -> u16 {
    let length = if method == "POST" {
        "Content-Length: 0\r\n"
    } else {
        ""
    };
    send(
        client,
        &format!("{method} /s/{path} HTTP/1.1\r\nHost: t\r\n{length}\r\n"),
    );
    answer(client)
}

fn half_close(client: &mut Client, _: &mut Random) -> u16 {
    send(client, "GET /s/ok HTTP/1.1\r\nHost: t\r\n\r\n");
    client.shutdown_write();
    answer(client)
}

fn leave(client: &mut Client, by_reset: bool) -> u16 {
    if by_reset {
        client.reset();
    } else {
        client.close();
    }
    0
}

fn in_head(client: &mut Client, random: &mut Random, by_reset: bool) -> u16 {
    let head = "GET /s/ok HTTP/1.1\r\nHost: t\r\n\r\n";
    let stop = random.below(head.len() as u64) as usize;
    send(client, &head[..stop]);
    leave(client, by_reset)
}

fn in_body(client: &mut Client, random: &mut Random, by_reset: bool) -> u16 {
    send(
        client,
        &format!("POST /s/ok HTTP/1.1\r\nHost: t\r\nContent-Length: {BIG}\r\n\r\n"),
    );
    let stop = random.below(BIG as u64) as usize;
    client.send(&vec![b'u'; stop], PATIENCE);
    leave(client, by_reset)
}

/// A short chunked body is collected before the upstream is dialled.
fn in_chunks(client: &mut Client, random: &mut Random, by_reset: bool) -> u16 {
    send(
        client,
        "POST /s/ok HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n",
    );
    let some = random.below(0x1000) as usize;
    client.send(&vec![b'u'; some], PATIENCE);
    leave(client, by_reset)
}

fn reset_while_waiting(client: &mut Client, random: &mut Random) -> u16 {
    send(client, "GET /s/never HTTP/1.1\r\nHost: t\r\n\r\n");
    // Before, while, or after it is dialled.
    for _ in 0..random.below(200) {
        std::thread::yield_now();
    }
    leave(client, true)
}

fn in_response(client: &mut Client, random: &mut Random, by_reset: bool) -> u16 {
    send(client, "GET /s/big HTTP/1.1\r\nHost: t\r\n\r\n");
    let stop = 1 + random.below(BIG as u64) as usize;
    client.receive_until(PATIENCE, |c| {
        c.received.len() >= stop || c.received.starts_with(b"HTTP/1.1 503")
    });
    if status(client) == 503 {
        return 503;
    }
    leave(client, by_reset)
}

/// A tunnel that has carried bytes both ways, if there is one; ended by whoever ends it first.
fn tunnel(client: &mut Client, path: &str, by_reset: bool) -> u16 {
    send(
        client,
        &format!(
            "GET /s/{path} HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello"
        ),
    );
    let status = answer(client);
    if status == 101 && path != "ws" {
        client.receive_until_end(PATIENCE);
    }
    leave(client, by_reset);
    status
}

/// Sends a part of its body and then nothing.
fn too_slow(client: &mut Client, random: &mut Random) -> u16 {
    send(
        client,
        "POST /s/ok HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n",
    );
    let some = random.below(70_000) as usize;
    client.send(&vec![b'u'; some], PATIENCE);
    answer(client)
}

fn malformed_chunk(client: &mut Client, _: &mut Random) -> u16 {
    send(
        client,
        "POST /s/ok HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nno size\r\n",
    );
    answer(client)
}

fn too_large(client: &mut Client, _: &mut Random) -> u16 {
    send(
        client,
        "POST /s/ok HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let piece = [&b"10000\r\n"[..], &[b'c'; 0x10000], b"\r\n"].concat();
    for _ in 0..=CEILING / 0x10000 {
        client.send(&piece, PATIENCE);
    }
    answer(client)
}

fn refused(client: &mut Client, _: &mut Random) -> u16 {
    send(client, "GET /dead HTTP/1.1\r\nHost: t\r\n\r\n");
    answer(client)
}

/// A response that is cut: the client must be able to tell.
fn torn(client: &mut Client, path: &str) -> u16 {
    let status = ask(client, "GET", path);
    let whole = client.complete_responses() > 0;
    assert!(
        status != 200 || !whole,
        "a response that was never sent whole"
    );
    status
}

fn early(client: &mut Client, _: &mut Random) -> u16 {
    send(
        client,
        &format!("POST /s/early HTTP/1.1\r\nHost: t\r\nContent-Length: {BIG}\r\n\r\nsome of it"),
    );
    answer(client)
}
