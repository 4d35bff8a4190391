//! Waiting for the upstream (I23 to I26).

use toron_reactor::sim::Route;

use super::{answered, answered_and_closed, post, GET, MILLIS, OK, SECOND};
use crate::stage::{on_time, Stage};

const HEADER: &str = r#"{"error":"504 Gateway Timeout: Upstream response header timeout expired"}"#;
const IDLE: &str = r#"{"error":"504 Gateway Timeout: Upstream idle timeout expired"}"#;
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbo";

#[test]
fn i23_a_dial_has_its_time() {
    let config = "proxy: {transport: {connect_timeout: 2s}}";
    let mut stage = Stage::new(config, "");
    stage
        .world
        .set_route("127.0.1.1:81".parse().unwrap(), Route::Silent);
    let mut client = stage.client();
    stage.until(SECOND, || client.remote.is_open());
    let since = stage.now();
    client.send(GET.as_bytes());
    let body = r#"{"error":"502 Bad Gateway: Upstream connection failed"}"#;
    let at = answered(&mut stage, 3 * SECOND, &mut client, 502, body);
    on_time(since, 2 * SECOND, at);
}

#[test]
fn i24_the_wait_for_the_head_begins_when_the_request_is_sent_whole() {
    let mut stage = Stage::streaming("", "response_header_timeout: 1s");
    let mut client = stage.client();
    let mut upstream = stage.request(&mut client, &post(10_000));
    // The upload itself takes far longer.
    for _ in 0..5 {
        stage.pass(SECOND);
        client.send(&[b'x'; 2_000]);
    }
    let since = stage.now();
    let at = answered(&mut stage, 2 * SECOND, &mut client, 504, HEADER);
    on_time(since, SECOND, at);
    let gone = stage.until(SECOND, || upstream.has_ended());
    on_time(since, SECOND, gone);
    // The client connection goes on: its request was whole.
    client.received.clear();
    let next = stage.request(&mut client, GET);
    next.send(OK);
    answered(&mut stage, SECOND, &mut client, 200, "OK");
}

#[test]
fn i24_interim_responses_do_not_extend_it() {
    let mut stage = Stage::new("", "response_header_timeout: 1s");
    let mut client = stage.client();
    let upstream = stage.request(&mut client, GET);
    let since = stage.now();
    stage.pass(MILLIS(800));
    upstream.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    let at = stage.until(SECOND, || client.has(b" 504 "));
    on_time(since, SECOND, at);
}

#[test]
fn i25_nothing_else_ends_the_client_while_it_waits() {
    let config = "server: {read_timeout: 1s, write_timeout: 1s, idle_timeout: 1s}\n\
                  proxy: {transport: {upstream_idle_timeout: 1s}}\n\
                  firewall: {body_timeout: 1s}";
    let mut stage = Stage::new(config, "response_header_timeout: 60s");
    let mut client = stage.client();
    let upstream = stage.request(&mut client, &(post(2) + "ok"));
    stage.pass(59 * SECOND);
    upstream.send(OK);
    answered(&mut stage, SECOND, &mut client, 200, "OK");
}

#[test]
fn i26_an_upstream_that_takes_nothing_of_a_body_gets_no_more_time() {
    for chunked in [false, true] {
        let route = "upstream_idle_timeout: 3s; max_body_bytes: 64MiB";
        let mut stage = Stage::streaming("", route);
        let mut client = stage.client();
        let head = match chunked {
            true => "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            false => post(4 << 20),
        };
        let _upstream = stage.request(&mut client, &head);
        let mut body = vec![b'x'; 4 << 20];
        if chunked {
            body.splice(0..0, b"400000\r\n".iter().copied());
        }
        let mut sent = 0;
        let mut last = stage.now();
        for _ in 0..50 {
            let n = client.remote.send(&body[sent..]);
            sent += n;
            stage.pass(MILLIS(1));
            if n > 0 {
                last = stage.now();
            }
        }
        let at = answered(&mut stage, 4 * SECOND, &mut client, 504, IDLE);
        // The upstream's kernel took its last byte before the client's could send its last.
        let waited = at.since(last);
        assert!(
            waited > MILLIS(2_900) && waited < MILLIS(3_010),
            "{waited:?}"
        );
    }
}

#[test]
fn i26_an_upstream_that_stalls_in_its_response_costs_the_client_its_connection() {
    let mut stage = Stage::new("", "upstream_idle_timeout: 3s");
    let mut client = stage.client();
    let mut upstream = stage.request(&mut client, GET);
    upstream.send(HEAD);
    stage.until(SECOND, || client.has(b"bo"));
    stage.pass(2 * SECOND);
    let since = stage.now();
    upstream.send(b"d");
    let end = stage.until(4 * SECOND, || client.has_ended());
    on_time(since, 3 * SECOND, end);
    let gone = stage.until(SECOND, || upstream.has_ended());
    on_time(since, 3 * SECOND, gone);
    assert!(client.text().ends_with("bod"));
    assert_eq!(stage.counts().exchanges, 0);
}

#[test]
fn i26_zero_is_off_and_event_streams_are_exempt() {
    let stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
    for (idle, head) in [("3s", stream.as_slice()), ("0", HEAD)] {
        let config = format!("proxy: {{transport: {{upstream_idle_timeout: {idle}}}}}");
        let mut stage = Stage::new(&config, "");
        let mut client = stage.client();
        let mut upstream = stage.request(&mut client, GET);
        upstream.send(head);
        stage.pass(3_600 * SECOND);
        upstream.send(b"dy!");
        stage.until(SECOND, || client.has(b"dy!"));
        assert!(!upstream.has_ended());
    }
}

#[test]
fn i26_an_event_stream_behind_an_upload_is_exempt_too() {
    let mut stage = Stage::new("", "upstream_idle_timeout: 3s; max_body_bytes: 64MiB");
    let mut client = stage.client();
    let length = 2 << 20;
    let mut upstream = stage.request(&mut client, &post(length));
    let body = vec![b'x'; length];
    let mut sent = 0;
    // The upstream answers while it does not take the body yet.
    for _ in 0..50 {
        sent += client.remote.send(&body[sent..]);
        stage.pass(MILLIS(1));
    }
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
    stage.until(SECOND, || client.has(b"data: 1\n\n"));
    for _ in 0..1_000 {
        sent += client.remote.send(&body[sent..]);
        stage.pass(MILLIS(1));
        upstream.take(usize::MAX);
    }
    assert_eq!(sent, length);
    stage.pass(3_600 * SECOND);
    upstream.send(b"data: 2\n\n");
    stage.until(SECOND, || client.has(b"data: 2\n\n"));
}

#[test]
fn i24_an_answer_with_a_body_still_owed_lingers() {
    let mut stage = Stage::streaming("", "upstream_idle_timeout: 3s; header_deadline: 1s");
    let mut client = stage.client();
    let _upstream = stage.request(&mut client, &post(10));
    let since = stage.now();
    let body = r#"{"error":"504 Gateway Timeout: Request timed out"}"#;
    let (at, end) = answered_and_closed(&mut stage, 2 * SECOND, &mut client, 504, body);
    on_time(since, SECOND, at);
    on_time(since, SECOND, end);
    assert!(client.text().contains("Connection: close"));
    // It may go on sending, and is not reset.
    client.send(b"0123456789");
    stage.pass(MILLIS(10));
    assert!(!client.remote.is_broken());
}
