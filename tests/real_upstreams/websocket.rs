//! A client of WebSocket (RFC 6455).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use base64::Engine as _;
use sha1::{Digest as _, Sha1};

use crate::support::PATIENCE;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

struct Socket(TcpStream);

impl Socket {
    fn open(addr: SocketAddr, path: &str, host: &str) -> Self {
        let mut stream = TcpStream::connect_timeout(&addr, PATIENCE).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\n\
             Upgrade: websocket\r\nOrigin: http://{host}\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {key}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("send");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let whole = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
        let accept = base64::engine::general_purpose::STANDARD.encode(Sha1::digest(whole));
        let lower = head.to_ascii_lowercase();
        let wanted = format!("\r\nsec-websocket-accept: {accept}\r\n").to_ascii_lowercase();
        assert!(lower.contains(&wanted), "{head}");
        Socket(stream)
    }

    /// A masked frame (section 5.2), in pieces of `cut` bytes.
    fn send(&mut self, opcode: u8, payload: &[u8], cut: usize) {
        let mask = [0x11, 0x22, 0x33, 0x44];
        let mut frame = vec![0x80 | opcode];
        match payload.len() {
            n @ 0..=125 => frame.push(0x80 | n as u8),
            n @ 126..=0xffff => {
                frame.push(0x80 | 126);
                frame.extend((n as u16).to_be_bytes());
            }
            n => {
                frame.push(0x80 | 127);
                frame.extend((n as u64).to_be_bytes());
            }
        }
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m));
        for piece in frame.chunks(cut) {
            self.0.write_all(piece).expect("send a frame");
        }
    }

    fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).expect("a frame");
        bytes
    }

    /// The opcode and payload of the next frame, which must be whole and not masked.
    fn receive(&mut self) -> (u8, Vec<u8>) {
        let head = self.read(2);
        assert_eq!((head[0] & 0xf0, head[1] & 0x80), (0x80, 0), "{head:?}");
        let length = match head[1] {
            126 => usize::from(u16::from_be_bytes(self.read(2).try_into().expect("two"))),
            127 => {
                let bytes = self.read(8).try_into().expect("eight");
                usize::try_from(u64::from_be_bytes(bytes)).expect("a length")
            }
            n => usize::from(n),
        };
        (head[0] & 0x0f, self.read(length))
    }
}

/// A conversation: the greeting, messages of all sizes there and back, a ping, and the end as the
/// protocol has it.
pub fn converse(addr: SocketAddr, path: &str) {
    let host = "chat.example:8443";
    let mut socket = Socket::open(addr, path, host);
    let greeting = format!("welcome to {host}").into_bytes();
    assert_eq!(socket.receive(), (TEXT, greeting));
    for (length, cut) in [
        (5, 1),
        (125, 64),
        (126, 200),
        (60_000, 1000),
        (200_000, 1 << 20),
    ] {
        let mut payload = vec![0; length];
        toron::origin::pattern::fill(length as u64, &mut payload);
        socket.send(BINARY, &payload, cut);
        let (opcode, back) = socket.receive();
        assert!(opcode == BINARY && back == payload, "{length} bytes");
    }
    socket.send(PING, b"are you there", 100);
    assert_eq!(socket.receive(), (PONG, b"are you there".to_vec()));
    // Several at once, in one segment.
    for n in 0..20 {
        socket.send(TEXT, format!("message {n}").as_bytes(), 100);
    }
    for n in 0..20 {
        assert_eq!(
            socket.receive(),
            (TEXT, format!("message {n}").into_bytes())
        );
    }
    socket.send(CLOSE, &1000u16.to_be_bytes(), 100);
    let (opcode, code) = socket.receive();
    assert_eq!((opcode, &code[..2]), (CLOSE, &1000u16.to_be_bytes()[..]));
    // The server ends the connection (section 7.1.1).
    let left = socket.0.read(&mut [0; 16]).expect("the end, not a reset");
    assert_eq!(left, 0);
}
