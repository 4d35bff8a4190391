//! A client for bodies, run as a process of its own: blocking, one thread a connection.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

const PIECE: usize = 64 * 1024;
const CHUNK: usize = 16 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);

/// `transfer up|chunked|down ADDRESS BYTES PARALLEL`
pub fn main(words: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = words.collect();
    let [how, addr, bytes, parallel] = &words[..] else {
        eprintln!("transfer up|chunked|down ADDRESS BYTES PARALLEL");
        return ExitCode::FAILURE;
    };
    let (Ok(bytes), Ok(parallel)) = (bytes.parse::<u64>(), parallel.parse::<usize>()) else {
        eprintln!("transfer: BYTES and PARALLEL are numbers");
        return ExitCode::FAILURE;
    };
    let one = || -> io::Result<()> {
        let mut stream = connect(addr)?;
        match how.as_str() {
            "up" => upload(&mut stream, bytes, false),
            "chunked" => upload(&mut stream, bytes, true),
            _ => download(&mut stream, bytes),
        }
    };
    let failed = std::thread::scope(|scope| {
        let all: Vec<_> = (0..parallel).map(|_| scope.spawn(one)).collect();
        let ends = all.into_iter().map(|thread| match thread.join() {
            Ok(end) => end,
            Err(_) => Err(io::Error::other("panicked")),
        });
        let errors = ends.filter_map(Result::err);
        errors
            .inspect(|error| eprintln!("transfer: {error}"))
            .count()
    });
    if failed == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("transfer: {failed} of {parallel} failed");
    ExitCode::FAILURE
}

/// A connection on which nothing takes longer than ten seconds.
pub fn connect(addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn upload(stream: &mut TcpStream, bytes: u64, chunked: bool) -> io::Result<()> {
    let framing = match chunked {
        true => "Transfer-Encoding: chunked".to_owned(),
        false => format!("Content-Length: {bytes}"),
    };
    stream
        .write_all(format!("POST /discard HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n").as_bytes())?;
    let piece = if chunked { frames() } else { vec![b'x'; PIECE] };
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        // Whole pieces only, when chunked: sizes are multiples of it.
        stream.write_all(if chunked { &piece } else { &piece[..part] })?;
        left -= part as u64;
    }
    if chunked {
        stream.write_all(b"0\r\n\r\n")?;
    }
    read_answer(stream).map(drop)
}

/// 64 KiB in chunks.
fn frames() -> Vec<u8> {
    let mut frames = Vec::new();
    for _ in 0..PIECE / CHUNK {
        frames.extend_from_slice(format!("{CHUNK:x}\r\n").as_bytes());
        frames.resize(frames.len() + CHUNK, b'x');
        frames.extend_from_slice(b"\r\n");
    }
    frames
}

fn download(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    stream.write_all(format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes())?;
    let length = read_answer(stream)?;
    match length == bytes {
        true => Ok(()),
        false => Err(io::Error::other("another length")),
    }
}

/// One request on a connection that goes on.
pub fn get(stream: &mut TcpStream, path: &str) -> io::Result<()> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes())?;
    read_answer(stream).map(drop)
}

/// Reads a 200 with a length to its end; returns the length.
fn read_answer(stream: &mut TcpStream) -> io::Result<u64> {
    let mut buffer = vec![0; 256 * 1024];
    let mut filled = 0;
    let head = loop {
        let n = stream.read(&mut buffer[filled..])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += n;
        if let Some(end) = buffer[..filled].windows(4).position(|w| w == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
    if !text.starts_with("http/1.1 200") {
        let line = text.lines().next().unwrap_or_default().to_owned();
        return Err(io::Error::other(line));
    }
    let length = text.lines().find_map(|l| l.strip_prefix("content-length:"));
    let length: u64 = length.and_then(|n| n.trim().parse().ok()).unwrap_or(0);
    let mut left = length.saturating_sub((filled - head) as u64);
    while left > 0 {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => left = left.saturating_sub(n as u64),
        }
    }
    Ok(length)
}
