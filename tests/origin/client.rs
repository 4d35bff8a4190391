//! A plain HTTP/1.1 client: sends what it is told, and reads responses.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A response as it came.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// Status line and fields.
    pub head: String,
    pub body: Vec<u8>,
    /// Trailer lines.
    pub trailers: String,
}

impl Response {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

pub struct Client {
    pub stream: TcpStream,
    pending: Vec<u8>,
}

impl Client {
    pub fn to(addr: SocketAddr) -> Client {
        let stream = TcpStream::connect(addr).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream,
            pending: Vec::new(),
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a GET and reads the answer.
    pub fn get(&mut self, target: &str) -> Response {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.response()
    }

    /// The next response to anything but HEAD.
    pub fn response(&mut self) -> Response {
        let head = self.head();
        let mut response = Response {
            status: head[9..12].parse().unwrap(),
            head,
            body: Vec::new(),
            trailers: String::new(),
        };
        let bare = matches!(response.status, 100..=199 | 204 | 304);
        if bare {
            return response;
        }
        if let Some(n) = response.field("content-length") {
            response.body = self.bytes(n.parse().unwrap());
        } else if response.field("transfer-encoding") == Some("chunked") {
            self.chunks(&mut response);
        } else {
            response.body = self.rest();
        }
        response
    }

    /// The next head, without its empty line.
    pub fn head(&mut self) -> String {
        let end = loop {
            if let Some(at) = self.pending.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.more(), "no whole head: {:?}", self.pending);
        };
        let head = self.pending.drain(..end).collect();
        String::from_utf8(head).unwrap().trim_end().to_owned()
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        while self.pending.len() < n {
            assert!(self.more(), "{} bytes of {n}", self.pending.len());
        }
        self.pending.drain(..n).collect()
    }

    pub fn line(&mut self) -> String {
        let end = loop {
            if let Some(at) = self.pending.windows(2).position(|w| w == b"\r\n") {
                break at + 2;
            }
            assert!(self.more(), "no whole line: {:?}", self.pending);
        };
        let line = self.pending.drain(..end).collect();
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// Everything until the end of the connection, which must be orderly.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.pending)
    }

    /// Nothing comes for a while. (Can only fail to notice a fault, never see one that is none.)
    pub fn assert_silence(&mut self) {
        assert_eq!(self.pending, b"");
        let timeout = |ms| Some(Duration::from_millis(ms));
        self.stream.set_read_timeout(timeout(60)).unwrap();
        let error = self.stream.read(&mut [0]).unwrap_err();
        assert!(matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut
        ));
        self.stream.set_read_timeout(timeout(20_000)).unwrap();
    }

    fn chunks(&mut self, response: &mut Response) {
        loop {
            let size = usize::from_str_radix(&self.line(), 16).unwrap();
            if size == 0 {
                break;
            }
            response.body.extend(self.bytes(size));
            assert_eq!(self.bytes(2), b"\r\n");
        }
        loop {
            let line = self.line();
            if line.is_empty() {
                return;
            }
            response.trailers += &line;
            response.trailers.push('\n');
        }
    }

    fn more(&mut self) -> bool {
        let mut block = vec![0; 256 * 1024];
        let n = self.stream.read(&mut block).unwrap();
        self.pending.extend(&block[..n]);
        n > 0
    }
}
