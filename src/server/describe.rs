//! What a request asked for, in the few bytes that logs keep of it.

use crate::http::RequestHead;

/// Most bytes kept of a method.
pub const METHOD_MOST: usize = 16;
/// Most bytes kept of a host.
pub const HOST_MOST: usize = 128;
/// Most bytes kept of a path.
pub const PATH_MOST: usize = 256;

/// Method, host and path, each cut at its bound. Empty for a request that could not be understood.
#[derive(Clone, Debug, Default)]
pub struct Description {
    bytes: Vec<u8>,
    method: usize,
    host: usize,
}

impl Description {
    /// Takes down what `request` asked for; `path` is its normalised path. Memory is used again.
    pub fn take(&mut self, request: &RequestHead<'_, '_>, path: &[u8]) {
        let host = request.host.map_or(&b""[..], |host| host.as_bytes());
        self.bytes.clear();
        self.method = self.add(request.method, METHOD_MOST);
        self.host = self.add(host, HOST_MOST);
        self.add(path, PATH_MOST);
    }

    fn add(&mut self, part: &[u8], most: usize) -> usize {
        self.bytes
            .extend_from_slice(part.get(..most).unwrap_or(part));
        self.bytes.len()
    }

    /// Nothing is known.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.method, self.host) = (0, 0);
    }

    /// The same as `other` from now on.
    pub fn copy(&mut self, other: &Description) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&other.bytes);
        (self.method, self.host) = (other.method, other.host);
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &[u8] {
        self.bytes.get(..self.method).unwrap_or_default()
    }

    /// The host that was asked for; empty if none was named.
    #[must_use]
    pub fn host(&self) -> &[u8] {
        self.bytes.get(self.method..self.host).unwrap_or_default()
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.bytes.get(self.host..).unwrap_or_default()
    }
}
