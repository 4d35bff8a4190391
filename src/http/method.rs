//! Request methods (RFC 9110 section 9).

/// A method, as far as the proxy cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Patch,
    Connect,
    /// Any other token; nothing is assumed about it.
    Other,
}

impl Method {
    /// The method written as `name`; methods are case-sensitive.
    pub fn of(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// Idempotent by RFC 9110 section 9.2.2: may be sent again.
    pub fn is_idempotent(self) -> bool {
        matches!(
            self,
            Method::Get
                | Method::Head
                | Method::Put
                | Method::Delete
                | Method::Options
                | Method::Trace
        )
    }
}
