//! The simulator as a lab.

use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

use toron_reactor::sim::{Faults, Remote, RemoteListener, Route, SimEngine, World};
use toron_reactor::Fd;

use crate::lab::{Door, Lab, Peer};

pub struct Simulated(World);

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

impl Simulated {
    pub fn kind() -> Simulated {
        Simulated(World::new(1, Faults::none()))
    }

    pub fn unkind(seed: u64) -> Simulated {
        let faults = Faults {
            short: 0.3,
            short_segment: 0.3,
            delay: 0.3,
            delay_for: Duration::from_millis(1),
            cancel_race: 0.5,
            latency: (Duration::from_micros(10), Duration::from_millis(1)),
            ..Faults::none()
        };
        Simulated(World::new(seed, faults))
    }
}

impl Lab for Simulated {
    type Engine = SimEngine;
    type Peer = Remote;
    type Door = RemoteListener;
    const TOLD_AT_ONCE_MOST: usize = usize::MAX;

    fn engine(&self, buffers: usize) -> SimEngine {
        self.0.engine(buffers)
    }

    fn more_than_fits(&self) -> usize {
        1 << 20
    }

    fn listen(&self) -> (Fd, SocketAddr) {
        let fd = self.0.listen(loopback(), 128).unwrap();
        let addr = toron_reactor::Engine::local_addr(&self.0.engine(0), fd).unwrap();
        (fd, addr)
    }

    fn dial(&self, to: SocketAddr) -> Remote {
        self.0.connect(loopback(), to)
    }

    fn door(&self) -> RemoteListener {
        self.0.remote_listen(loopback(), 128).unwrap()
    }

    fn refusing(&self) -> SocketAddr {
        "127.0.0.9:9".parse().unwrap()
    }

    fn silent(&self) -> (SocketAddr, Box<dyn Any>) {
        let addr = "127.0.0.8:8".parse().unwrap();
        self.0.set_route(addr, Route::Silent);
        (addr, Box::new(()))
    }
}

impl Door for RemoteListener {
    type Peer = Remote;
    fn addr(&self) -> SocketAddr {
        RemoteListener::addr(self)
    }
    fn accept(&self) -> Option<Remote> {
        RemoteListener::accept(self)
    }
}

impl Peer for Remote {
    fn local_addr(&self) -> SocketAddr {
        Remote::local_addr(self)
    }
    fn send(&self, bytes: &[u8]) -> usize {
        Remote::send(self, bytes)
    }
    fn recv(&self, max: usize) -> Vec<u8> {
        Remote::recv(self, max)
    }
    fn at_end(&self) -> bool {
        Remote::at_end(self)
    }
    fn is_reset(&self) -> bool {
        Remote::is_broken(self)
    }
    fn shutdown_write(&self) {
        Remote::shutdown_write(self);
    }
    fn reset(self) {
        Remote::reset(self);
    }
    fn close(self) {
        Remote::close(self);
    }
}
