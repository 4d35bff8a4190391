//! Where a setting was set, for people who ask why: `toron check`, the list of refusals. Never looked
//! at where a request goes well.

use std::fmt;
use std::sync::Arc;

/// Where a route, or one of its limits, was written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The file as named on the command line, or found.
    pub file: Arc<str>,
    /// Line, from 1; 0 where `file` names the whole place (a container).
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// Which setting a limit came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetBy {
    /// The route's own key.
    Route,
    /// `server.…`.
    Server,
    /// `proxy.transport.…`.
    Transport,
    /// `firewall.…`.
    Firewall,
    /// `admin.…`.
    Admin,
    /// A variable of the environment.
    Environment,
    /// Nothing written anywhere.
    Default,
    /// The guardrail of I16.
    Guardrail,
    /// No setting: it is part of toron.
    BuiltIn,
}

impl SetBy {
    /// The word that `toron check` prints.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            SetBy::Route => "route",
            SetBy::Server => "server",
            SetBy::Transport => "transport",
            SetBy::Firewall => "firewall",
            SetBy::Admin => "admin",
            SetBy::Environment => "environment",
            SetBy::Default => "default",
            SetBy::Guardrail => "guardrail",
            SetBy::BuiltIn => "built in",
        }
    }
}

/// Which setting a value came from, and where that stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Which one it is.
    pub by: SetBy,
    /// Where it stands, if it stands in a file.
    pub at: Option<Place>,
}

impl Origin {
    /// Nothing is written.
    pub const DEFAULT: Origin = Origin {
        by: SetBy::Default,
        at: None,
    };

    /// Not a setting.
    pub const BUILT_IN: Origin = Origin {
        by: SetBy::BuiltIn,
        at: None,
    };

    /// The word that `toron check` prints.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.by.as_str()
    }
}

impl Default for Origin {
    fn default() -> Self {
        Origin::DEFAULT
    }
}

impl PartialEq<SetBy> for Origin {
    fn eq(&self, by: &SetBy) -> bool {
        self.by == *by
    }
}

/// `file:line`, or the word for what stands in no file.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(place) => place.fmt(f),
            None => f.write_str(self.as_str()),
        }
    }
}

/// Where the limits of a route came from, field by field.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LimitSources {
    /// Of `max_body_bytes`.
    pub max_body_bytes: Origin,
    /// Of `max_concurrency`.
    pub max_concurrency: Origin,
    /// Of `read_timeout`.
    pub read_timeout: Origin,
    /// Of `write_timeout`.
    pub write_timeout: Origin,
    /// Of `min_progress_bytes`.
    pub min_progress_bytes: Origin,
    /// Of `min_body_rate`.
    pub min_body_rate: Origin,
    /// Of `body_timeout`.
    pub body_timeout: Origin,
    /// Of `response_header_timeout`.
    pub response_header_timeout: Origin,
    /// Of `upstream_idle_timeout`.
    pub upstream_idle_timeout: Origin,
    /// Of `upgrade_idle_timeout`.
    pub upgrade_idle_timeout: Origin,
    /// Of `header_deadline`.
    pub header_deadline: Origin,
    /// Of `chunked_mode`.
    pub chunked_mode: Origin,
    /// Of `request_deadline`.
    pub request_deadline: Origin,
    /// Of `target_max_concurrency`.
    pub target_max_concurrency: Origin,
}

/// Where the limits of the process came from, field by field.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessSources {
    /// Of `max_header_bytes`: the stricter of two settings.
    pub max_header_bytes: Origin,
    /// Of `max_header_count`.
    pub max_header_count: Origin,
    /// Of `header_timeout`: the stricter of two settings.
    pub header_timeout: Origin,
    /// Of `read_timeout`.
    pub read_timeout: Origin,
    /// Of `write_timeout`.
    pub write_timeout: Origin,
    /// Of `max_body_bytes`.
    pub max_body_bytes: Origin,
    /// Of `min_body_rate`.
    pub min_body_rate: Origin,
    /// Of `body_timeout`.
    pub body_timeout: Origin,
    /// Of `shutdown_grace`.
    pub shutdown_grace: Origin,
    /// Of `buffer_memory`.
    pub buffer_memory: Origin,
    /// Of `connect_timeout`.
    pub connect_timeout: Origin,
    /// Of `subnets`.
    pub admin_subnets: Origin,
    /// Of `key`.
    pub admin_key: Origin,
    /// Of `deny`.
    pub deny: Origin,
    /// Of `block_duration`.
    pub block_duration: Origin,
    /// Of `auto_block_threshold`.
    pub auto_block_threshold: Origin,
    /// Of `rate_limit_rps`.
    pub rate_limit_rps: Origin,
    /// Of `max_connections_total`.
    pub max_connections_total: Origin,
    /// Of `max_connections_per_ip`.
    pub max_connections_per_ip: Origin,
}
