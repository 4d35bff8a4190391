//! HTTP/1.1 on the wire (RFC 9110, RFC 9112) as pure functions over bytes: no
//! descriptor, no clock, and no allocation once the caller's buffers are warm.
//!
//! ```text
//!  client bytes ─▶ scan ─▶ request ─▶ path ─▶ (route, target) ─▶ forward ─▶ upstream bytes
//!                            │                                      │
//!                            ├── framing: how long is the body ─────┤
//!                            │   chunk: the chunked coding          │
//!                            ▼                                      ▼
//!                          answer ◀── refusals          response ◀─ scan ◀─ upstream bytes
//! ```
//!
//! | file             | subject                                                     |
//! | ---------------- | ----------------------------------------------------------- |
//! | `syntax`         | tokens, lists, versions, decimal numbers                    |
//! | `field`          | the fields that a proxy treats specially                    |
//! | `write`          | the lines that written heads are made of                    |
//! | `scan`           | finds the end of a head in a growing buffer, strictly, once |
//! | `host`           | the authority of a request                                  |
//! | `framing`        | the one place that decides how long a body is               |
//! | `method`         | request methods                                             |
//! | `request`        | a request head                                              |
//! | `request_line`   | its first line, the forms of a target                       |
//! | `reason`         | why anything is refused or cut off: the codes               |
//! | `response`       | an upstream's response head                                 |
//! | `path`           | normal form, prefixes, joining                              |
//! | `chunk`          | the chunked coding, both ways                               |
//! | `forward`        | the request head that the upstream sees                     |
//! | `reply`          | the response head that the client sees                      |
//! | `rewrite`        | `Location` and cookie paths behind a stripped prefix        |
//! | `client_address` | the addresses that proxies write into heads                 |
//! | `proxy_protocol` | the address that a proxy writes in front of the first head  |
//! | `answer`         | every answer that toron gives itself                        |

pub mod answer;
pub mod chunk;
pub mod client_address;
pub mod field;
pub mod forward;
pub mod framing;
pub mod host;
pub mod method;
pub mod path;
pub mod proxy_protocol;
pub mod reason;
pub mod reply;
pub mod request;
mod request_line;
pub mod response;
pub mod rewrite;
pub mod scan;
pub mod syntax;
pub(crate) mod write;

pub use answer::{Answer, Rendering};
pub use field::{field_slots, FieldSlot, MOST_FIELDS};
pub use forward::{write_request_head, Forward, UpstreamFraming};
pub use framing::{RequestBody, ResponseBody};
pub use method::Method;
pub use reason::{Party, Reason};
pub use reply::{write_response_head, Reply};
pub use request::{Expect, HeadLimits, RequestFacts, RequestHead, UpgradeAsked};
pub use request_line::Target;
pub use response::{Asked, ResponseFacts, ResponseHead};
pub use rewrite::Rewrite;
pub use scan::{HeadScanner, Scan};
pub use syntax::Version;

#[cfg(test)]
mod tests;
