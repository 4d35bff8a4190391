//! A request to the admin API while its body comes and while it waits for its answer.

use toron_reactor::Time;

use super::desk::Question;
use crate::http::Version;
use crate::policy::settings::Settings;
use crate::proxy::pace::Pace;
use crate::proxy::window::Window;
use crate::server::body::Source;

/// What such a request holds.
#[derive(Debug)]
pub struct Visit {
    /// What is asked; its body grows.
    pub question: Question,
    /// The body that is still to come.
    pub source: Source,
    /// The sliding deadline of the body (I18).
    window: Window,
    /// Its average rate and total time (I20, I21).
    pace: Pace,
    /// The client's version.
    pub version: Version,
    /// No body is wanted: HEAD.
    pub head_only: bool,
    /// The client would go on with its connection.
    pub keep_alive: bool,
    /// Method, host and path for the access log, if there is one.
    pub described: Vec<u8>,
}

/// What of a request the answer depends on.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// As in [`Visit`].
    pub version: Version,
    /// As in [`Visit`].
    pub head_only: bool,
    /// As in [`Visit`].
    pub keep_alive: bool,
}

impl Visit {
    /// A request whose body is `source`, none of which has come.
    #[must_use]
    pub fn new(question: Question, source: Source, settings: &Settings, terms: Terms) -> Self {
        Visit {
            question,
            source,
            window: Window::new(settings.read_timeout, settings.min_progress_bytes),
            pace: Pace::new(settings.min_body_rate, settings.body_timeout),
            version: terms.version,
            head_only: terms.head_only,
            keep_alive: terms.keep_alive,
            described: Vec::new(),
        }
    }

    /// More of the body is awaited.
    pub fn run(&mut self, now: Time) {
        self.window.run(now);
        self.pace.run(now);
    }

    /// So many bytes of it have come.
    pub fn progress(&mut self, now: Time, bytes: usize) {
        let bytes = bytes as u64;
        self.window.progress(now, bytes, self.source.outstanding());
        self.pace.progress(bytes);
    }

    /// When the client is too slow with it.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let deadlines = [self.window.deadline(), self.pace.deadline()];
        deadlines.into_iter().flatten().min()
    }
}
