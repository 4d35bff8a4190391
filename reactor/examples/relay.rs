//! An L4 relay: each client connection is paired with one to the upstream, and bytes are moved
//! both ways without a look at them. It is the floor that the kernel and this crate set for any
//! proxy built on it, and the instrument that `benches/relay.sh` measures with.
//!
//! ```text
//! relay --listen 127.0.0.1:8000 --upstream 127.0.0.1:9000
//!       [--engine auto|epoll|io_uring] [--mode copy|splice] [--reactors N] [--cores N]
//!       [--chunk BYTES]
//! ```
//!
//! Against C relays written straight to the system calls (same engine and mode, 64 KiB buffers,
//! relay on one core, load on the other, medians of the ratios of 7 or 9 neighbouring runs),
//! processor time is:
//!
//! | engine, mode | 16 connections | 64 connections | 1 GiB up | 1 GiB down |
//! | --- | --- | --- | --- | --- |
//! | epoll, copy | 0.97 to 1.08 | 1.01 to 1.04 | 0.83 | 0.77 |
//! | epoll, splice | 0.93 to 1.00 | 1.02 to 1.10 | 0.76 to 0.85 | 0.82 to 0.83 |
//! | epoll, splice, unprivileged user | 1.02 | 1.02 to 1.10 | 0.78 to 0.84 | 0.83 to 0.93 |
//! | io_uring, copy, against 2 buffers | 0.63 | | 0.69 | 0.71 |
//! | io_uring, copy, against 256 buffers | 0.98 to 1.02 | 0.97 to 1.04 | 0.78 to 0.83 | 0.71 to 0.84 |
//! | io_uring, copy, against 4 KiB buffers | 1.00 to 1.04 | 1.00 to 1.05 | 0.51 | 0.46 |
//! | io_uring, splice, against epoll, splice | 0.94 to 1.01 | 1.05 | 0.69 to 0.76 | 0.69 to 0.77 |
//!
//! Bulk copies are cheaper than the C relays' because a receive brings 48 KiB at most, which stays in
//! the cache until it is sent; with 64 KiB the io_uring row against 256 buffers was 1.10 to 1.20.
//!
//! 128 reactors against 2 (`--reactors`, both on both cores, medians of 11 to 21 pairs):
//!
//! | engine, copy | 1 connection | 16 | 64 | 1,000 |
//! | --- | --- | --- | --- | --- |
//! | epoll | 1.00 | 1.01 | 1.01 | 1.03 |
//! | io_uring | 1.01 | 1.00 | 1.03 | 0.99 |
//!
//! An unprivileged user whose 900 stalled transfers hold the whole quota for pipes (64 MiB): 1 GiB
//! more is copied instead, correctly, at 0.81 s up and 0.73 s down instead of 0.37 and 0.44.
//!
//! (`benches/relay.sh` repeats them. Splicing gains from larger pipes, see `pipes.rs`.)
//!
//! Back-pressure: a direction reads only while fewer than [`QUEUE`] buffers (or one pipe) wait to
//! be sent. One receive that goes on brings the pieces and is cancelled when they are too many: 1 GiB
//! up costs 0.7 s so, and 0.9 s when pieces are asked for one by one.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::Duration;

use toron_reactor::engine::Close;
use toron_reactor::{
    bind, Buf, Chosen, Context, Engine, EngineKind, EpollEngine, Event, Fd, Incoming, Key, Op,
    OpId, Outcome, Pipe, Pool, PoolConfig, Service, Shutdown, Slab, Token, UringEngine,
};

/// Rounds of splicing before others get their turn: at most 4 MiB.
const SPLICES_AT_ONCE: usize = 16;

/// Buffers that may wait while another is being sent. With two instead of one, 1 GiB takes 1.03 to
/// 1.08 of the processor time: the buffers in turn leave the cache.
const QUEUE: usize = 1;

/// Below this capacity (the user's page quota for pipes is used up) copying is cheaper.
const LEAST_PIPE: usize = 64 * 1024;

const CONNECT: u8 = 0;
const RECEIVE: u8 = 1;
const SEND: u8 = 2;
const READABLE: u8 = 3;
const WRITABLE: u8 = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Copy,
    Splice,
}

#[derive(Clone, Copy)]
struct Options {
    listen: SocketAddr,
    upstream: SocketAddr,
    engine: EngineKind,
    mode: Mode,
    reactors: usize,
    cores: Option<usize>,
    chunk: usize,
}

/// Bytes on their way from one socket to the other.
struct Direction {
    from: Fd,
    to: Fd,
    mode: Mode,
    /// A receive or a wait for one is in flight.
    reading: Option<OpId>,
    /// It is being cancelled.
    cancelling: bool,
    /// A send or a wait for one is in flight.
    writing: bool,
    /// Arrived and not being sent yet.
    queue: VecDeque<Buf>,
    pipe: Option<Pipe>,
    ended: bool,
    /// The end has been passed on.
    done: bool,
}

impl Direction {
    fn new(from: Fd, to: Fd, mode: Mode) -> Self {
        Direction {
            from,
            to,
            mode,
            reading: None,
            cancelling: false,
            writing: false,
            queue: VecDeque::new(),
            pipe: None,
            ended: false,
            done: false,
        }
    }
}

struct Pair {
    client: Fd,
    upstream: Fd,
    /// From the client, from the upstream.
    directions: [Direction; 2],
}

struct Relay {
    upstream: SocketAddr,
    mode: Mode,
    chunk: usize,
    pairs: Slab<Pair>,
    draining: bool,
}

fn key(token: Token, side: usize, purpose: u8) -> Key {
    Key {
        token,
        lane: purpose << 1 | side as u8,
    }
}

impl Relay {
    fn new(options: &Options) -> Self {
        Relay {
            upstream: options.upstream,
            mode: options.mode,
            chunk: options.chunk,
            pairs: Slab::new(),
            draining: false,
        }
    }

    fn finish<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token, how: Close) {
        let Some(pair) = self.pairs.remove(token) else {
            return;
        };
        cx.engine.close(pair.client, how);
        cx.engine.close(pair.upstream, how);
        for pipe in pair.directions.into_iter().filter_map(|d| d.pipe) {
            cx.engine.return_pipe(pipe);
        }
        cx.connection_ended();
    }

    /// Starts what a direction can do next.
    fn advance<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token, side: usize) {
        let Some(pair) = self.pairs.get_mut(token) else {
            return;
        };
        let direction = &mut pair.directions[side];
        let result = match direction.mode {
            Mode::Copy => {
                copy(cx.engine, direction, token, side);
                Ok(())
            }
            Mode::Splice => splice(cx.engine, direction, token, side, self.chunk),
        };
        if direction.ended && !direction.writing && direction.queue.is_empty() && !direction.done {
            let empty = direction.pipe.as_ref().is_none_or(|pipe| pipe.held() == 0);
            if empty {
                direction.done = true;
                cx.engine.shutdown(direction.to, Shutdown::Write);
            }
        }
        if result.is_err() {
            self.finish(cx, token, Close::Reset);
        } else if pair.directions.iter().all(|d| d.done) {
            self.finish(cx, token, Close::Orderly);
        }
    }
}

/// Sends what arrived and receives on, as long as there is room for it.
fn copy<E: Engine>(engine: &mut E, direction: &mut Direction, token: Token, side: usize) {
    if !direction.writing {
        if let Some(buf) = direction.queue.pop_front() {
            direction.writing = true;
            engine.submit(
                key(token, side, SEND),
                Op::Send {
                    fd: direction.to,
                    buf,
                    more: false,
                },
            );
        }
    }
    match direction.reading {
        None if !direction.ended && direction.queue.len() < QUEUE => {
            let op = Op::Recv {
                fd: direction.from,
                many: true,
            };
            direction.reading = Some(engine.submit(key(token, side, RECEIVE), op));
            direction.cancelling = false;
        }
        Some(op) if direction.queue.len() >= QUEUE && !direction.cancelling => {
            direction.cancelling = true;
            engine.cancel(op);
        }
        _ => {}
    }
}

/// Moves bytes through a pipe until one of the sockets makes it wait.
fn splice<E: Engine>(
    engine: &mut E,
    direction: &mut Direction,
    token: Token,
    side: usize,
    chunk: usize,
) -> io::Result<()> {
    if direction.reading.is_some() || direction.writing || direction.done {
        return Ok(());
    }
    let mut pipe = match direction.pipe.take() {
        Some(pipe) => pipe,
        None => match engine.pipe() {
            Ok(pipe) if pipe.capacity() >= LEAST_PIPE => pipe,
            refused => {
                if let Ok(pipe) = refused {
                    engine.return_pipe(pipe);
                }
                direction.mode = Mode::Copy;
                copy(engine, direction, token, side);
                return Ok(());
            }
        },
    };
    for _ in 0..SPLICES_AT_ONCE {
        while pipe.held() > 0 {
            match engine.splice_out(&mut pipe, direction.to, usize::MAX, false) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    direction.writing = true;
                    engine.submit(
                        key(token, side, WRITABLE),
                        Op::Writable { fd: direction.to },
                    );
                    direction.pipe = Some(pipe);
                    return Ok(());
                }
                Err(error) => {
                    direction.pipe = Some(pipe);
                    return Err(error);
                }
            }
        }
        match engine.splice_in(direction.from, &mut pipe, chunk) {
            Ok(0) => {
                direction.ended = true;
                engine.return_pipe(pipe);
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => {
                direction.pipe = Some(pipe);
                return Err(error);
            }
        }
    }
    if pipe.held() > 0 {
        direction.pipe = Some(pipe);
        direction.writing = true;
        engine.submit(
            key(token, side, WRITABLE),
            Op::Writable { fd: direction.to },
        );
        return Ok(());
    }
    engine.return_pipe(pipe);
    let op = Op::Readable { fd: direction.from };
    direction.reading = Some(engine.submit(key(token, side, READABLE), op));
    Ok(())
}

impl<E: Engine> Service<E> for Relay {
    type Message = ();

    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        let upstream = match cx.engine.socket(&self.upstream) {
            Ok(fd) => fd,
            Err(error) => {
                log::warn!("no socket for the upstream: {error}");
                cx.engine.close(incoming.fd, Close::Reset);
                return cx.connection_ended();
            }
        };
        let client = incoming.fd;
        let directions = [
            Direction::new(client, upstream, self.mode),
            Direction::new(upstream, client, self.mode),
        ];
        let token = self.pairs.insert(Pair {
            client,
            upstream,
            directions,
        });
        let op = Op::Connect {
            fd: upstream,
            addr: self.upstream,
        };
        cx.engine.submit(key(token, 0, CONNECT), op);
    }

    fn event(&mut self, cx: &mut Context<'_, E>, event: Event) {
        let token = event.key.token;
        let side = usize::from(event.key.lane & 1);
        let Some(pair) = self.pairs.get_mut(token) else {
            return;
        };
        let direction = &mut pair.directions[side];
        match event.outcome {
            Outcome::Connected => {
                self.advance(cx, token, 0);
                return self.advance(cx, token, 1);
            }
            Outcome::Received { buf, .. } => {
                direction.queue.push_back(buf);
                if !event.more {
                    direction.reading = None;
                }
            }
            Outcome::Eof { .. } => {
                direction.reading = None;
                direction.ended = true;
            }
            Outcome::Cancelled { .. } if direction.reading == Some(event.op) => {
                direction.reading = None;
            }
            Outcome::Sent { buf, .. } if buf.is_empty() => direction.writing = false,
            Outcome::Sent { buf, .. } => {
                let op = Op::Send {
                    fd: direction.to,
                    buf,
                    more: false,
                };
                cx.engine.submit(event.key, op);
                return;
            }
            Outcome::Ready if event.key.lane >> 1 == WRITABLE => direction.writing = false,
            Outcome::Ready => direction.reading = None,
            Outcome::Failed { .. } | Outcome::Cancelled { .. } => {
                return self.finish(cx, token, Close::Reset);
            }
            Outcome::Accepted { .. } | Outcome::Buffer(_) => return,
        }
        self.advance(cx, token, side);
    }

    fn deadline(&mut self, _cx: &mut Context<'_, E>, _key: Key) {}

    fn message(&mut self, _cx: &mut Context<'_, E>, (): ()) {}

    fn drain(&mut self, _cx: &mut Context<'_, E>, _grace: Duration) {
        self.draining = true;
    }

    fn is_finished(&self) -> bool {
        self.draining && self.pairs.is_empty()
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, Box<dyn Error>> {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut options = Options {
        listen: local,
        upstream: local,
        engine: EngineKind::Auto,
        mode: Mode::Copy,
        reactors: 1,
        cores: None,
        chunk: 1 << 20,
    };
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        match (name.as_str(), value.as_str()) {
            ("--listen", _) => options.listen = value.parse()?,
            ("--upstream", _) => options.upstream = value.parse()?,
            ("--engine", "auto") => options.engine = EngineKind::Auto,
            ("--engine", "epoll") => options.engine = EngineKind::Epoll,
            ("--engine", "io_uring") => options.engine = EngineKind::IoUring,
            ("--mode", "copy") => options.mode = Mode::Copy,
            ("--mode", "splice") => options.mode = Mode::Splice,
            ("--reactors", _) => options.reactors = value.parse()?,
            ("--cores", _) => options.cores = Some(value.parse()?),
            ("--chunk", _) => options.chunk = value.parse()?,
            _ => return Err(format!("{name} {value}: not understood").into()),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = parse(std::env::args().skip(1))?;
    toron_reactor::sys::process::raise_descriptor_limit()?;
    let (chosen, why) = options.engine.choose()?;
    let listener = bind(&options.listen, 4096)?;
    let config = PoolConfig {
        reactors: options.reactors,
        cores: options.cores,
        ..PoolConfig::default()
    };
    println!("{} {why}", listener.local_addr()?);
    let listeners = [listener];
    let make = move |_| Relay::new(&options);
    let pool = match chosen {
        Chosen::IoUring => Pool::start::<UringEngine, Relay, _>(config, &listeners, make)?,
        Chosen::Epoll => Pool::start::<EpollEngine, Relay, _>(config, &listeners, make)?,
    };
    drop(listeners);
    // Runs until its standard input ends.
    io::stdin().read_to_end(&mut Vec::new())?;
    for stats in pool.stats().iter().filter(|s| s.running) {
        println!("{stats:?}");
    }
    for outcome in pool.stop(Duration::from_secs(1)) {
        outcome?;
    }
    Ok(())
}
