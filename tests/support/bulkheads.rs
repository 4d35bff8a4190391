//! What toron says about the slots of its routes.

use std::time::Instant;

use serde::Deserialize;

use super::client::Client;
use super::toron::Toron;
use super::PATIENCE;

/// The key that the settings of a test must set for this.
pub const ADMIN_KEY: &str = "rig";

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
    let mut client = Client::connect(toron.addr, PATIENCE).expect("connect for the read-out");
    let request = format!(
        "GET /internal/api/status HTTP/1.1\r\nHost: t\r\nX-Toron-Admin-Key: {ADMIN_KEY}\r\nConnection: close\r\n\r\n"
    );
    client.send(request.as_bytes(), PATIENCE);
    assert!(client.receive_responses(1, PATIENCE), "no read-out");
    let body = &client.parsed().responses[0].body;
    let status: Status = serde_json::from_slice(body)
        .unwrap_or_else(|e| panic!("read-out: {e}: {}", String::from_utf8_lossy(body)));
    status.routes
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
