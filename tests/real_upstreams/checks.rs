//! What holds with every upstream that can serve it, seen by a raw client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::support::client::Client;
use crate::support::http::Response;
use crate::support::toron::Toron;
use crate::support::{contains, PATIENCE};

pub fn connect(toron: &Toron) -> Client {
    Client::connect(toron.addr, PATIENCE).expect("connect")
}

/// The answer to one more request on a connection that is kept.
pub fn next(client: &mut Client, request: &str) -> Response {
    let (line, fields) = request.split_once("\r\n").unwrap_or((request, ""));
    let before = client.complete_responses();
    let text = format!("{line} HTTP/1.1\r\nHost: t.example\r\n{fields}\r\n");
    client.send(text.as_bytes(), PATIENCE);
    let came = client.receive_responses(before + 1, PATIENCE);
    assert!(came, "{request}: no answer, {:?}", client.end);
    client.parsed().responses.swap_remove(before)
}

/// The answer to a request on a connection of its own.
pub fn one(toron: &Toron, request: &str) -> Response {
    next(&mut connect(toron), request)
}

pub fn body(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

/// Many requests, on one connection and on many, use no more connections than there are reactors.
pub fn connections_are_kept(toron: &Toron, reactors: u32) {
    let mut kept = connect(toron);
    for _ in 0..20 {
        assert_eq!(body(&next(&mut kept, "GET /hello")), "hello");
        assert_eq!(body(&one(toron, "GET /app/hello")), "hello");
    }
    let used: u32 = body(&one(toron, "GET /connections"))
        .parse()
        .expect("a number");
    assert!((1..=reactors).contains(&used), "{used} connections");
}

/// Answers that have no body leave the connection fit for the next.
pub fn bodiless(toron: &Toron, unchanged: &str) {
    let mut client = connect(toron);
    let head = next(&mut client, "HEAD /hello");
    assert_eq!(
        (head.status, head.head.first("content-length")),
        (200, Some("5"))
    );
    assert_eq!(next(&mut client, "GET /empty").status, 204);
    let fields = format!("GET /unchanged\r\nIf-None-Match: {unchanged}\r\n");
    assert_eq!(next(&mut client, &fields).status, 304);
    assert_eq!(body(&next(&mut client, "GET /hello")), "hello");
    let pieces = next(&mut client, "GET /pieces");
    assert_eq!(pieces.head.first("transfer-encoding"), Some("chunked"));
    assert_eq!(
        body(&pieces),
        (0..5).map(|i| format!("piece {i}\n")).collect::<String>()
    );
    assert_eq!(body(&next(&mut client, "GET /hello")), "hello");
}

/// A body that is sent in chunks and comes back in chunks, both at once.
pub fn echo(addr: SocketAddr, path: &str) {
    let mut bytes = vec![0; 4 << 20];
    toron::origin::pattern::fill(0, &mut bytes);
    let stream = TcpStream::connect_timeout(&addr, PATIENCE).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    let received = std::thread::scope(|scope| {
        let (mut out, bytes) = (&stream, &bytes);
        scope.spawn(move || {
            out.write_all(head.as_bytes()).expect("send");
            for (n, piece) in bytes.chunks(10_007).enumerate() {
                let size = format!("{:x};n={n}\r\n", piece.len());
                let chunk = [size.as_bytes(), piece, b"\r\n"].concat();
                out.write_all(&chunk).expect("send");
            }
            out.write_all(b"0\r\n\r\n").expect("send");
        });
        let (mut received, mut from) = (Vec::new(), &stream);
        from.read_to_end(&mut received).expect("an answer");
        received
    });
    let end = Some(crate::support::http::End::Fin);
    let mut parsed = crate::support::http::parse_responses(&received, &["POST".to_owned()], end);
    assert!(
        parsed.error.is_none() && parsed.responses.len() == 1,
        "{:?}",
        parsed.error
    );
    let response = parsed.responses.remove(0);
    assert!(response.status == 200 && response.complete);
    assert!(response.body == bytes, "what came back differs");
}

/// Events come one by one: each is sent only when the one before has been seen.
pub fn events(toron: &Toron, path: &str, go: &str) {
    let mut client = connect(toron);
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: t.example\r\nAccept: text/event-stream\r\n\r\n");
    client.send(request.as_bytes(), PATIENCE);
    let head = client.receive_until(PATIENCE, |c| contains(&c.received, b"\r\n\r\n"));
    assert!(head, "the head waits for an event");
    for count in 0..3 {
        let event = format!("data: event {count}\n\n");
        assert!(
            !contains(&client.received, event.as_bytes()),
            "{event} was not asked for"
        );
        assert_eq!(one(toron, go).status, 200);
        let came = client.receive_until(PATIENCE, |c| contains(&c.received, event.as_bytes()));
        assert!(came, "{event} is held back");
    }
}
