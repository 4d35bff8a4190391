//! What toron says it has in use.

use std::time::Instant;

use super::client::Client;
use super::setup::Settings;
use super::toron::Toron;
use super::PATIENCE;

const KEY: &str = "rig";

/// The read-out. It counts the connection and the buffer of the one that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Readout {
    pub sessions: u64,
    pub exchanges: u64,
    pub upstream_connections: u64,
    pub buffers: u64,
    pub pipes: u64,
}

/// Lets `settings` answer [`readout`].
pub fn allow_readout(settings: &mut Settings) {
    settings.admin_key = Some(KEY.to_owned());
}

pub fn readout(toron: &Toron) -> Readout {
    let mut client = Client::connect(toron.addr, PATIENCE).expect("connect for the read-out");
    let request = format!(
        "GET /internal/api/status HTTP/1.1\r\nHost: localhost\r\nX-Toron-Admin-Key: {KEY}\r\nConnection: close\r\n\r\n"
    );
    client.send(request.as_bytes(), PATIENCE);
    client.receive_responses(1, PATIENCE);
    let parsed = client.parsed();
    let response = parsed.responses.first().expect("the read-out");
    serde_json::from_slice(&response.body).expect("the read-out as JSON")
}

/// Waits until the read-out satisfies `done`.
///
/// # Panics
/// When it does not.
pub fn await_readout(toron: &Toron, what: &str, done: impl Fn(&Readout) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = readout(toron);
        if done(&now) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {now:?}");
        std::thread::yield_now();
    }
}
