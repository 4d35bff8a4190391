//! The relay of the simulation, with the same accountant, on the kernel's engines: what the
//! simulator shows about it must be true here as well.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;
use support::audit::Audited;
use support::relay::{Mode, Order, Relay};
use toron_reactor::{
    mailbox, Engine, EngineConfig, EpollEngine, Fd, NativeEngine, Reactor, Stats, UringEngine,
};

const CLIENTS: usize = 24;

fn pattern(n: usize, salt: usize) -> Vec<u8> {
    (0..n)
        .map(|i| (i * 31 + salt * 7 + (i >> 8)) as u8)
        .collect()
}

/// Reads everything, and sends it back with every byte inverted; until `stop` is set when a
/// connection comes.
fn upstream(listener: TcpListener, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut echoes = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            if stop.load(Ordering::Acquire) {
                break;
            }
            echoes.push(std::thread::spawn(move || {
                let mut chunk = vec![0; 10_000];
                // A reset is one of the ways in which clients leave.
                while let Ok(n @ 1..) = stream.read(&mut chunk) {
                    chunk[..n].iter_mut().for_each(|b| *b = !*b);
                    if stream.write_all(&chunk[..n]).is_err() {
                        return;
                    }
                }
            }));
        }
        for echo in echoes {
            echo.join().unwrap();
        }
    })
}

/// Sends a pattern and checks what comes back; every third breaks off with a reset.
fn client(relay: SocketAddr, number: usize) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let sent = pattern(1 << (number % 22), number);
        let mut stream = TcpStream::connect(relay).unwrap();
        if number % 3 == 2 {
            let _ = stream.write_all(&sent[..sent.len() / 2]);
            SockRef::from(&stream)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
            return;
        }
        let mut writer = stream.try_clone().unwrap();
        let bytes = sent.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        writing.join().unwrap();
        got.iter_mut().for_each(|b| *b = !*b);
        assert!(
            got == sent,
            "client {number} got {} bytes for {}",
            got.len(),
            sent.len()
        );
    })
}

fn relays<E: NativeEngine>(modes: [Mode; 2]) {
    let up = TcpListener::bind("127.0.0.1:0").unwrap();
    let down = TcpListener::bind("127.0.0.1:0").unwrap();
    down.set_nonblocking(true).unwrap();
    let addr = down.local_addr().unwrap();
    // Few buffers, so that the pool runs empty.
    let config = EngineConfig {
        buffers: 3,
        ..EngineConfig::default()
    };
    let engine = Audited::new(E::open(&config).expect("the engine must be available"));
    let up_addr = up.local_addr().unwrap();
    let relay = Relay::new(up_addr, modes);
    let (orders, mailbox) = mailbox();
    let mut reactor = Reactor::new(engine, relay, mailbox);
    reactor.listen(Fd(down.into_raw_fd())).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let echo = upstream(up, Arc::clone(&stop));
    let clients: Vec<JoinHandle<()>> = (0..CLIENTS).map(|n| client(addr, n)).collect();
    let mut turn = 0;
    while !echo.is_finished() {
        if !stop.load(Ordering::Acquire) && clients.iter().all(JoinHandle::is_finished) {
            stop.store(true, Ordering::Release);
            drop(TcpStream::connect(up_addr).unwrap());
        }
        turn += 1;
        if turn % 5 == 0 {
            orders.send(Order::Nudge(turn % CLIENTS)).unwrap();
        }
        let until = reactor.engine().now() + Duration::from_millis(5);
        reactor.step(Some(until)).unwrap();
    }
    for client in clients {
        client.join().unwrap();
    }
    echo.join().unwrap();
    reactor.drain(Duration::from_secs(5));
    while !reactor.step(None).unwrap() {}
    let stats = reactor.engine().stats();
    let zero = Stats {
        turns: stats.turns,
        system_calls: stats.system_calls,
        ..Stats::default()
    };
    assert_eq!(stats, zero, "something is left: {:?}", reactor.service());
    assert_eq!(reactor.stats().connections, 0);
    let counts = reactor.service().counts;
    assert_eq!(counts.timed_out, 0);
    // Whether a nudge meets a relay is a matter of time here; the simulation counts them.
    // A connection that was reset before it was accepted may not have been seen at all.
    assert!(counts.completed + counts.failed <= CLIENTS, "{counts:?}");
    assert!(counts.completed >= CLIENTS - CLIENTS / 3, "{counts:?}");
}

macro_rules! relays {
    ($($engine:ident: $type:ty;)+) => {
        $(
            mod $engine {
                use super::*;

                #[test]
                fn by_copy() {
                    relays::<$type>([Mode::Copy, Mode::Copy]);
                }

                #[test]
                fn by_splice() {
                    relays::<$type>([Mode::Splice, Mode::Splice]);
                }

                #[test]
                fn by_gathering_and_splice() {
                    relays::<$type>([Mode::Gather, Mode::Splice]);
                }
            }
        )+
    };
}

relays! {
    epoll: EpollEngine;
    io_uring: UringEngine;
}
