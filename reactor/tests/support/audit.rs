//! An engine that keeps the books of another: every operation answered exactly once, every buffer
//! given back.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use toron_reactor::{
    Acknowledged, Buf, BufferPool, Close, Engine, Event, Fd, Key, Op, OpId, Outcome, Pipe,
    Shutdown, Stats, Time, Token, Wake,
};

#[derive(Debug)]
pub struct Audited<E> {
    engine: E,
    open: BTreeMap<Token, Entry>,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    /// May report several events.
    many: bool,
    /// A buffer was given along.
    buffer: bool,
}

impl<E: Engine> Audited<E> {
    pub fn new(engine: E) -> Self {
        Audited {
            engine,
            open: BTreeMap::new(),
        }
    }

    fn check(&mut self, event: &Event) {
        let Some(entry) = self.open.get(&event.op.token()) else {
            panic!("audit: an event after the final one: {event:?}")
        };
        assert_eq!(entry.key, event.key, "audit: the key changed");
        assert!(
            entry.many || !event.more,
            "audit: more events of a single operation: {event:?}"
        );
        if event.more {
            return;
        }
        let returned = match &event.outcome {
            Outcome::Received { .. } | Outcome::Sent { .. } => true,
            Outcome::Eof { buf } | Outcome::Failed { buf, .. } | Outcome::Cancelled { buf } => {
                buf.is_some()
            }
            _ => false,
        };
        assert!(
            returned || !entry.buffer,
            "audit: a buffer did not come back: {event:?}"
        );
        self.open.remove(&event.op.token());
    }
}

impl<E: Engine> Engine for Audited<E> {
    fn now(&self) -> Time {
        self.engine.now()
    }

    fn clock(&self) -> Time {
        self.engine.clock()
    }

    fn submit(&mut self, key: Key, op: Op) -> OpId {
        let many = matches!(op, Op::Accept { .. } | Op::Recv { many: true, .. });
        let buffer = matches!(op, Op::RecvInto { .. } | Op::Send { .. });
        let id = self.engine.submit(key, op);
        let before = self.open.insert(id.token(), Entry { key, many, buffer });
        assert!(before.is_none(), "audit: {id:?} names two operations");
        id
    }

    fn cancel(&mut self, op: OpId) {
        self.engine.cancel(op);
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let before = events.len();
        self.engine.turn(until, events)?;
        for event in &events[before..] {
            self.check(event);
        }
        let operations = self.engine.stats().operations;
        assert_eq!(operations, self.open.len(), "audit: operations in flight");
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.engine.waker()
    }

    fn buffers(&self) -> &BufferPool {
        self.engine.buffers()
    }

    fn socket(&mut self, addr: &SocketAddr) -> io::Result<Fd> {
        self.engine.socket(addr)
    }

    fn adopt(&mut self, fd: Fd) -> io::Result<()> {
        self.engine.adopt(fd)
    }

    fn release(&mut self, fd: Fd) {
        self.engine.release(fd);
    }

    fn shutdown(&mut self, fd: Fd, how: Shutdown) {
        self.engine.shutdown(fd, how);
    }

    fn close(&mut self, fd: Fd, how: Close) {
        self.engine.close(fd, how);
    }

    fn pipe(&mut self) -> io::Result<Pipe> {
        self.engine.pipe()
    }

    fn return_pipe(&mut self, pipe: Pipe) {
        self.engine.return_pipe(pipe);
    }

    fn splice_in(&mut self, from: Fd, pipe: &mut Pipe, max: usize) -> io::Result<usize> {
        self.engine.splice_in(from, pipe, max)
    }

    fn splice_out(&mut self, pipe: &mut Pipe, to: Fd, max: usize, more: bool) -> io::Result<usize> {
        self.engine.splice_out(pipe, to, max, more)
    }

    fn discard(&mut self, fd: Fd, max: usize) -> io::Result<usize> {
        self.engine.discard(fd, max)
    }

    fn unread(&mut self, fd: Fd) -> io::Result<usize> {
        self.engine.unread(fd)
    }

    fn send_room(&mut self, fd: Fd) -> usize {
        self.engine.send_room(fd)
    }

    fn peek(&mut self, fd: Fd, buf: &mut Buf) -> io::Result<usize> {
        self.engine.peek(fd, buf)
    }

    fn is_idle(&mut self, fd: Fd) -> bool {
        self.engine.is_idle(fd)
    }

    fn acknowledged(&mut self, fd: Fd) -> Option<Acknowledged> {
        self.engine.acknowledged(fd)
    }

    fn is_pending(&self, op: OpId) -> bool {
        self.engine.is_pending(op)
    }

    fn local_addr(&self, fd: Fd) -> io::Result<SocketAddr> {
        self.engine.local_addr(fd)
    }

    fn refuse_one(&mut self, listener: Fd, answer: &[u8]) -> Option<SocketAddr> {
        self.engine.refuse_one(listener, answer)
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }
}
