//! Idle connections and request heads (I3).

use super::{answered_and_closed, GET, MILLIS, OK, SECOND, TIMEOUT};
use crate::stage::{on_time, Stage};

const CONFIG: &str = "server: {read_timeout: 3s, idle_timeout: 8s}";

#[test]
fn i3_a_connection_that_never_sends_is_closed_without_a_word() {
    let mut stage = Stage::new(CONFIG, "");
    let mut client = stage.client();
    let since = stage.until(SECOND, || client.remote.is_open());
    let end = stage.until(4 * SECOND, || client.has_ended());
    on_time(since, 3 * SECOND, end);
    assert_eq!(client.text(), "");
}

#[test]
fn i3_a_head_has_one_deadline_however_it_is_spread() {
    let mut stage = Stage::new(CONFIG, "");
    let mut client = stage.client();
    stage.until(SECOND, || client.remote.is_open());
    stage.pass(2 * SECOND);
    let since = stage.now();
    for byte in GET.bytes().take(14) {
        client.send(&[byte]);
        stage.pass(MILLIS(200));
    }
    let (at, end) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
    on_time(since, 3 * SECOND, at);
    on_time(since, 3 * SECOND, end);
    stage.nobody_waits();
}

#[test]
fn i3_the_stricter_of_server_and_firewall_holds_and_a_zero_does_not() {
    for (config, limit) in [
        (
            "server: {read_timeout: 3s}\nfirewall: {header_timeout: 1s}",
            SECOND,
        ),
        (
            "server: {read_timeout: 0}\nfirewall: {header_timeout: 2s}",
            2 * SECOND,
        ),
        (
            "server: {read_timeout: 2s}\nfirewall: {header_timeout: 0}",
            2 * SECOND,
        ),
    ] {
        let mut stage = Stage::new(config, "");
        let mut client = stage.client();
        stage.until(SECOND, || client.remote.is_open());
        let since = stage.now();
        client.send(b"GET ");
        let (at, _) = answered_and_closed(&mut stage, 4 * SECOND, &mut client, 408, TIMEOUT);
        on_time(since, limit, at);
    }
}

#[test]
fn i3_both_zero_is_no_deadline() {
    let config = "server: {read_timeout: 0}\nfirewall: {header_timeout: 0}";
    let mut stage = Stage::new(config, "");
    let mut client = stage.client();
    stage.until(SECOND, || client.remote.is_open());
    client.send(b"GET ");
    stage.pass(3_600 * SECOND);
    assert!(!client.has_ended());
    client.send(&GET.as_bytes()[4..]);
    stage.upstream(SECOND);
}

#[test]
fn i3_after_a_response_the_connection_may_idle_and_is_closed_without_a_word() {
    let mut stage = Stage::new(CONFIG, "");
    let mut client = stage.client();
    let upstream = stage.request(&mut client, GET);
    upstream.send(OK);
    stage.until(SECOND, || client.has(b"OK"));
    // A first byte after almost the whole idle time begins a head with a deadline of its own.
    stage.pass(MILLIS(7_900));
    let head = stage.now();
    client.send(b"G");
    client.received.clear();
    let (at, _) = answered_and_closed(&mut stage, 4 * SECOND, &mut client, 408, TIMEOUT);
    on_time(head, 3 * SECOND, at);

    let mut stage = Stage::new(CONFIG, "");
    let mut client = stage.client();
    let upstream = stage.request(&mut client, GET);
    upstream.send(OK);
    let since = stage.until(SECOND, || client.has(b"OK"));
    let end = stage.until(9 * SECOND, || client.has_ended());
    on_time(since, 8 * SECOND, end);
    assert!(client.text().ends_with("\r\n\r\nOK"));
}

#[test]
fn i3_a_head_that_waits_for_a_buffer_of_torons_is_not_slow() {
    let mut stage = Stage::new(CONFIG, "");
    let mut client = stage.client();
    stage.until(SECOND, || client.remote.is_open());
    stage.pass(SECOND);
    // The head takes the one buffer that is left, and the request for the upstream finds none.
    let mut taken = stage.all_buffers();
    taken.pop();
    client.send(GET.as_bytes());
    stage.pass(10 * SECOND);
    assert_eq!(client.text(), "");
    assert!(!client.has_ended());
    stage.nobody_waits();
    drop(taken);
    let upstream = stage.upstream(SECOND);
    upstream.send(OK);
    stage.until(SECOND, || client.has(b"OK"));
}
