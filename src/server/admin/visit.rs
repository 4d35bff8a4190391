//! A request to the admin API while its body comes and while it waits for its answer.

use std::time::Duration;

use toron_reactor::Time;

use super::desk::Question;
use crate::http::{Reason, Version};
use crate::policy::settings::Settings;
use crate::proxy::pace::Pace;
use crate::proxy::reading::Reading;
use crate::proxy::window::Window;
use crate::server::body::Source;
use crate::server::describe::Description;

/// What such a request holds.
#[derive(Debug)]
pub struct Visit {
    /// What is asked; its body grows.
    pub question: Question,
    /// The body that is still to come.
    pub source: Source,
    /// The deadlines of the body (I18, I20, I21).
    reading: Reading,
    /// The client's version.
    pub version: Version,
    /// No body is wanted: HEAD.
    pub head_only: bool,
    /// The client would go on with its connection.
    pub keep_alive: bool,
    /// What was asked for, for the logs.
    pub asked: Description,
    /// How long the head took to come.
    pub header_took: Duration,
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
            reading: Reading::new(
                Window::new(settings.read_timeout, settings.min_progress_bytes),
                Pace::new(settings.min_body_rate, settings.body_timeout),
            ),
            version: terms.version,
            head_only: terms.head_only,
            keep_alive: terms.keep_alive,
            asked: Description::default(),
            header_took: Duration::ZERO,
        }
    }

    /// More of the body is awaited.
    pub fn run(&mut self, now: Time) {
        self.reading.run(now);
    }

    /// So many bytes of it have come.
    pub fn progress(&mut self, now: Time, bytes: usize) {
        let outstanding = self.source.outstanding();
        self.reading.progress(now, bytes as u64, outstanding);
    }

    /// Which rule the client has broken by now, with what was observed.
    #[must_use]
    pub fn overdue(&self, now: Time) -> Option<(Reason, u64)> {
        self.reading.overdue(now)
    }

    /// When the client is too slow with it.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.reading.deadline()
    }
}
