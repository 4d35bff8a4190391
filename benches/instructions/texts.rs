//! The messages that the scenarios are about.

/// What wrk, health checks and most programs send.
pub const GET: &[u8] = b"GET /bytes/1024 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

/// What a browser sends.
pub const BROWSER: &[u8] = b"GET /api/items?id=7 HTTP/1.1\r\nHost: t.example\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://t.example/api/\r\nCookie: session=0123456789abcdef; theme=dark\r\n\
    Connection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\nPriority: u=0, i\r\n\r\n";

/// A short form.
pub const POST: &[u8] = b"POST /form HTTP/1.1\r\nHost: t.example\r\nUser-Agent: test\r\n\
    Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 7\r\n\r\na=b&c=d";

/// An answer with a known length; 1 KiB follows in truth, here a word does.
pub const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: application/octet-stream\r\nContent-Length: 5\r\n\r\nhello";

/// What nginx puts in front of a page.
pub const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/html; charset=utf-8\r\n\
    Content-Length: 15842\r\nLast-Modified: Sat, 05 Nov 1994 10:00:00 GMT\r\n\
    Connection: keep-alive\r\nETag: \"5d8c72a5-3de2\"\r\nCache-Control: max-age=300\r\n\
    Vary: Accept-Encoding\r\nSet-Cookie: session=0123456789abcdef; Path=/; HttpOnly\r\n\
    Accept-Ranges: bytes\r\n\r\n";

/// An answer of unknown length, whole.
pub const CHUNKED_RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
