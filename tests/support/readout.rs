//! What toron says it has in use.

use std::time::Instant;

use super::client::Client;
use super::setup::Settings;
use super::toron::Toron;
use super::PATIENCE;

/// The key that the settings of a test must set for this.
pub const KEY: &str = "rig";

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
    status(toron)
}

/// What `/internal/api/status` says, read as far as `T` asks for.
pub fn status<T: serde::de::DeserializeOwned>(toron: &Toron) -> T {
    let mut client = Client::connect(toron.addr, PATIENCE).expect("connect for the read-out");
    let request = format!(
        "GET /internal/api/status HTTP/1.1\r\nHost: localhost\r\nX-Toron-Admin-Key: {KEY}\r\nConnection: close\r\n\r\n"
    );
    client.send(request.as_bytes(), PATIENCE);
    assert!(client.receive_responses(1, PATIENCE), "no read-out");
    let body = &client.parsed().responses[0].body;
    serde_json::from_slice(body)
        .unwrap_or_else(|e| panic!("read-out: {e}: {}", String::from_utf8_lossy(body)))
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
