//! What runs on a reactor: the seam upwards.

use std::net::SocketAddr;

use crate::engine::{Engine, Event, Fd, Key};
use crate::time::Time;
use crate::wheel::Wheel;

/// A connection that this reactor is to serve.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// The connected socket, owned by this reactor's engine.
    pub fd: Fd,
    /// The other end.
    pub peer: SocketAddr,
    /// Which listener took it (index in the list given at start).
    pub listener: u32,
}

/// What a service may use while it handles something.
pub struct Context<'a, E> {
    /// This reactor's engine.
    pub engine: &'a mut E,
    /// This reactor's deadlines. [`Service::deadline`] is called with the timer's key.
    pub wheel: &'a mut Wheel,
    /// The time of this turn.
    pub now: Time,
    /// Set by the reactor; see [`Context::connection_ended`].
    pub(crate) ended: &'a mut usize,
}

impl<E: Engine> Context<'_, E> {
    /// Tells the placement that a connection given to [`Service::incoming`] has been closed. Call
    /// once for each.
    pub fn connection_ended(&mut self) {
        *self.ended += 1;
    }
}

/// The work of one reactor. Every method must return quickly: nothing else runs on this reactor
/// meanwhile.
pub trait Service<E: Engine> {
    /// Messages from other threads.
    type Message: Send + 'static;

    /// A new connection.
    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming);

    /// A connection from `peer` was refused with the canned answer, because there is no descriptor for
    /// it.
    fn refused(&mut self, _cx: &mut Context<'_, E>, _peer: SocketAddr) {}

    /// An operation submitted by this service has reported.
    fn event(&mut self, cx: &mut Context<'_, E>, event: Event);

    /// A deadline has come.
    fn deadline(&mut self, cx: &mut Context<'_, E>, key: Key);

    /// A message has come.
    fn message(&mut self, cx: &mut Context<'_, E>, message: Self::Message);

    /// A moment at which [`Service::moment`] is to be called, for what needs finer time than
    /// [`Wheel::GRAIN`]. Asked before every turn.
    fn next_moment(&self) -> Option<Time> {
        None
    }

    /// The time of [`Service::next_moment`] has come.
    fn moment(&mut self, _cx: &mut Context<'_, E>) {}

    /// Called once at the end of every turn that handled something.
    fn turn_ended(&mut self, _cx: &mut Context<'_, E>) {}

    /// The listeners have been closed: finish what is in flight within `grace`, then report
    /// [`Service::is_finished`].
    fn drain(&mut self, cx: &mut Context<'_, E>, grace: std::time::Duration);

    /// Whether nothing is left to do, so that the reactor may end.
    fn is_finished(&self) -> bool;
}
