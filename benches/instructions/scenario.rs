//! What is counted: a name, what it stands for, and how it is made ready.

use super::{heads, parts, request};

/// One operation, ready to be run again and again.
pub type Run = Box<dyn FnMut()>;

/// One line of the table.
pub struct Scenario {
    /// Its name, for the command line and the baseline.
    pub name: &'static str,
    /// What one operation is.
    pub what: &'static str,
    /// Makes it ready, runs it and checks what came of it.
    pub prepare: fn() -> Run,
}

/// All of them.
pub const ALL: [Scenario; 19] = [
    Scenario {
        name: "request",
        what: "GET, parsed, routed, forwarded and answered: default configuration, no log",
        prepare: request::get,
    },
    Scenario {
        name: "request-bare",
        what: "the same without a firewall",
        prepare: request::get_bare,
    },
    Scenario {
        name: "request-full",
        what: "the same with 1,001 routes, JSON log, adaptive firewall",
        prepare: request::get_full,
    },
    Scenario {
        name: "request-post",
        what: "POST of 7 bytes, chunked answer",
        prepare: request::post,
    },
    Scenario {
        name: "transaction",
        what: "its state machine alone",
        prepare: parts::transaction,
    },
    Scenario {
        name: "request-head",
        what: "scan and parse, as wrk sends it (50 bytes)",
        prepare: heads::request_head,
    },
    Scenario {
        name: "request-head-browser",
        what: "scan and parse, as a browser sends it (513 bytes)",
        prepare: heads::browser_head,
    },
    Scenario {
        name: "forward",
        what: "write the browser's head for the upstream",
        prepare: heads::forward,
    },
    Scenario {
        name: "response-head",
        what: "scan and parse, 3 fields (115 bytes)",
        prepare: heads::response_head,
    },
    Scenario {
        name: "response-head-page",
        what: "scan and parse, as nginx sends it (363 bytes)",
        prepare: heads::page_head,
    },
    Scenario {
        name: "relay",
        what: "write that head for the client",
        prepare: heads::relay,
    },
    Scenario {
        name: "route",
        what: "look-up among 1,000 routes by prefix",
        prepare: parts::route,
    },
    Scenario {
        name: "firewall",
        what: "request of a connection's own peer",
        prepare: parts::firewall_peer,
    },
    Scenario {
        name: "firewall-proxied",
        what: "request of an address behind a proxy, 10,000 known",
        prepare: parts::firewall_proxied,
    },
    Scenario {
        name: "wheel",
        what: "a deadline that moves on",
        prepare: parts::wheel_moves,
    },
    Scenario {
        name: "wheel-fires",
        what: "a deadline armed, met and fired",
        prepare: parts::wheel_fires,
    },
    Scenario {
        name: "chunks",
        what: "decode a body of 16 chunks of 1 KiB",
        prepare: heads::chunks,
    },
    Scenario {
        name: "log-text",
        what: "a line of the access log as text",
        prepare: parts::log_text,
    },
    Scenario {
        name: "log-json",
        what: "a line of the access log as JSON",
        prepare: parts::log_json,
    },
];
