//! What toron says about the slots of its routes.

use std::time::Instant;

use serde::Deserialize;

use super::readout::status;
use super::toron::Toron;
use super::PATIENCE;

/// The key that the settings of a test must set for this.
pub const ADMIN_KEY: &str = super::readout::KEY;

/// A route that has a cap, or requests in flight.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Slots {
    pub route: String,
    pub in_flight: u32,
    pub cap: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Status {
    routes: Vec<Slots>,
}

/// The routes of the read-out.
pub fn read_out(toron: &Toron) -> Vec<Slots> {
    status::<Status>(toron).routes
}

/// Requests of a route in flight; 0 if it is not in the read-out.
pub fn in_flight(toron: &Toron, route: &str) -> u32 {
    let slots = read_out(toron);
    let found = slots.iter().find(|slots| slots.route == route);
    found.map_or(0, |slots| slots.in_flight)
}

/// Waits until so many requests of a route are in flight.
pub fn await_in_flight(toron: &Toron, route: &str, awaited: u32) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = in_flight(toron, route);
        if now == awaited {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{now} requests of {route} in flight, not {awaited}"
        );
        std::thread::yield_now();
    }
}
