//! An engine on real sockets, and what the tests ask of it.

use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::time::Duration;

use toron_reactor::{
    Engine, EngineConfig, Event, Fd, Key, NativeEngine, Op, OpId, Outcome, Time, Token,
};

/// Turns an engine may take to do what a test waits for.
pub const TURNS: usize = 2000;

pub struct Rig<E> {
    pub engine: E,
    pub events: Vec<Event>,
}

pub fn key(lane: u8) -> Key {
    Key {
        token: Token {
            index: 7,
            generation: 3,
        },
        lane,
    }
}

pub fn in_millis<E: Engine>(engine: &E, millis: u64) -> Time {
    engine.now() + Duration::from_millis(millis)
}

impl<E: NativeEngine> Rig<E> {
    pub fn new(buffers: usize) -> Self {
        let config = EngineConfig {
            buffers,
            ..EngineConfig::default()
        };
        Rig {
            engine: E::open(&config).unwrap(),
            events: Vec::new(),
        }
    }

    /// A connection: the engine's end and the test's end.
    pub fn pair(&mut self) -> (Fd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let (ours, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let fd = Fd(ours.into_raw_fd());
        self.engine.adopt(fd).unwrap();
        (fd, peer)
    }

    /// The next event of an operation.
    pub fn await_event(&mut self, op: OpId) -> Event {
        for _ in 0..TURNS {
            if let Some(at) = self.events.iter().position(|e| e.op == op) {
                return self.events.remove(at);
            }
            let until = in_millis(&self.engine, 50);
            self.engine.turn(Some(until), &mut self.events).unwrap();
        }
        panic!("no event of {op:?}");
    }

    pub fn wait(&mut self, op: OpId) -> Outcome {
        let event = self.await_event(op);
        assert!(!event.more, "{event:?} is not final");
        event.outcome
    }

    /// Turns until the engine has had the time to do what it could do; nothing must come of `op`.
    pub fn expect_silence(&mut self, op: OpId) {
        for _ in 0..5 {
            let until = in_millis(&self.engine, 2);
            self.engine.turn(Some(until), &mut self.events).unwrap();
        }
        assert!(!self.events.iter().any(|e| e.op == op), "{:?}", self.events);
    }

    pub fn recv(&mut self, fd: Fd) -> OpId {
        self.engine.submit(key(0), Op::Recv { fd, many: false })
    }

    pub fn send(&mut self, fd: Fd, bytes: &[u8]) -> OpId {
        let mut buf = self.engine.buffers().take().unwrap();
        assert_eq!(buf.extend(bytes), bytes.len());
        self.engine.submit(
            key(1),
            Op::Send {
                fd,
                buf,
                more: false,
            },
        )
    }

    /// Fills the connection until nothing more goes in, and returns the waiting send.
    pub fn clog(&mut self, fd: Fd) -> OpId {
        for _ in 0..TURNS {
            let op = self.send(fd, &[9; 65536]);
            for _ in 0..20 {
                let until = in_millis(&self.engine, 1);
                self.engine.turn(Some(until), &mut self.events).unwrap();
                if self.events.iter().any(|e| e.op == op) {
                    break;
                }
            }
            if !self.events.iter().any(|e| e.op == op) {
                return op;
            }
            self.events.clear();
        }
        panic!("the connection takes everything");
    }

    pub fn assert_empty(&mut self) {
        self.events.clear();
        for _ in 0..3 {
            let until = in_millis(&self.engine, 1);
            self.engine.turn(Some(until), &mut self.events).unwrap();
        }
        assert!(self.events.is_empty(), "{:?}", self.events);
        let stats = self.engine.stats();
        assert_eq!(
            (stats.operations, stats.sockets, stats.buffers, stats.pipes),
            (0, 0, 0, 0),
            "{stats:?}"
        );
    }
}

pub fn received(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Received { buf, n } => {
            assert_eq!(buf.len(), n);
            buf.to_vec()
        }
        other => panic!("{other:?}"),
    }
}
