//! Clients that send a body (I18 to I21).

use std::time::Duration;

use super::{answered, answered_and_closed, post, MILLIS, OK, SECOND, TIMEOUT};
use crate::stage::{on_time, Peer, Stage};

/// Neither rate nor total time.
const FREE: &str = "firewall: {min_body_rate: 0, body_timeout: 0}";

/// A client whose body of `length` is awaited, and its upstream.
fn uploading(stage: &mut Stage, length: usize) -> (Peer, Peer) {
    let mut client = stage.client();
    let upstream = stage.request(&mut client, &post(length));
    (client, upstream)
}

/// Drips a byte every 100 ms until the client is told, and says after how many.
fn drip(stage: &mut Stage, client: &mut Peer, bytes: usize) -> usize {
    let body = vec![b'x'; bytes];
    for sent in 0..1_000 {
        let told = stage.look(MILLIS(100), |_| (!client.text().is_empty()).then_some(()));
        if told.is_some() {
            return sent;
        }
        client.send(&body);
    }
    panic!("nobody minds");
}

#[test]
fn i18_a_drip_ends_with_its_window() {
    let mut stage = Stage::streaming(FREE, "read_timeout: 1s");
    let (mut client, mut upstream) = uploading(&mut stage, 10_000);
    let since = stage.now();
    // 100 bytes in 100 ms are 900 in the window when it ends.
    drip(&mut stage, &mut client, 100);
    let (at, end) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
    on_time(since, SECOND, at);
    on_time(since, SECOND, end);
    let gone = stage.until(SECOND, || upstream.has_ended());
    on_time(since, SECOND, gone);
    assert_eq!(stage.counts().exchanges, 0);
}

#[test]
fn i18_a_window_begins_when_the_last_has_its_bytes() {
    let mut stage = Stage::streaming(FREE, "read_timeout: 1s");
    let (mut client, _upstream) = uploading(&mut stage, 10_000);
    for _ in 0..3 {
        stage.pass(MILLIS(900));
        client.send(&[b'x'; 1024]);
    }
    let since = stage.now();
    stage.pass(MILLIS(500));
    client.send(&[b'x'; 1023]);
    let (at, _) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
    on_time(since, SECOND, at);
}

#[test]
fn i18_what_is_outstanding_is_enough_and_of_chunks_it_is_not_known() {
    let mut stage = Stage::streaming(FREE, "read_timeout: 1s");
    let (mut client, mut upstream) = uploading(&mut stage, 20);
    stage.pass(MILLIS(900));
    client.send(&[b'x'; 20]);
    stage.until(SECOND, || upstream.has(&[b'x'; 20]));
    upstream.send(OK);
    stage.until(SECOND, || client.has(b"OK"));

    let mut client = stage.client();
    let head = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    stage.until(SECOND, || client.remote.is_open());
    client.send(head.as_bytes());
    let since = stage.now();
    stage.pass(MILLIS(500));
    client.send(b"14\r\nxxxxxxxxxxxxxxxxxxxx\r\n");
    let (at, _) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
    on_time(since, SECOND, at);
}

#[test]
fn i18_min_progress_bytes_changes_the_quota() {
    let mut stage = Stage::streaming(FREE, "read_timeout: 1s; min_progress_bytes: 10");
    let (mut client, _upstream) = uploading(&mut stage, 10_000);
    for _ in 0..5 {
        stage.pass(MILLIS(900));
        client.send(&[b'x'; 10]);
    }
    let since = stage.now();
    client.send(&[b'x'; 9]);
    let (at, _) = answered_and_closed(&mut stage, 2 * SECOND, &mut client, 408, TIMEOUT);
    on_time(since, SECOND, at);
}

#[test]
fn i19_min_progress_bytes_of_zero_leaves_the_pause_rule() {
    let mut stage = Stage::streaming(FREE, "read_timeout: 1s; min_progress_bytes: 0");
    let (mut client, _upstream) = uploading(&mut stage, 10_000);
    for _ in 0..20 {
        stage.pass(MILLIS(990));
        client.send(b"x");
    }
    let since = stage.now();
    let (at, _) = answered_and_closed(&mut stage, 2 * SECOND, &mut client, 408, TIMEOUT);
    on_time(since, SECOND, at);
}

/// Sends `length` bytes at 2 MiB/s, the upstream taking them as they come. With a pause of 1.2 s in
/// the middle, says when it began.
fn steady(
    stage: &mut Stage,
    client: &mut Peer,
    upstream: &mut Peer,
    length: usize,
    pauses: bool,
) -> toron_reactor::Time {
    const PIECE: usize = 64 * 1024;
    let piece = [b'x'; PIECE];
    let mut taken = 0;
    for n in 0..length / PIECE {
        client.send(&piece);
        if pauses && n == length / PIECE / 2 {
            return stage.now();
        }
        // 2 MiB/s.
        stage.pass(Duration::from_micros(31_250));
        taken += upstream.take(usize::MAX);
        upstream.received.clear();
        assert!(!client.has_ended(), "severed after {taken} bytes");
    }
    stage.now()
}

#[test]
fn i19_a_steady_upload_lasts_and_one_that_pauses_is_severed_at_once() {
    let mib = if std::env::var_os("TORON_SOAK").is_some_and(|v| v == "1") {
        200
    } else {
        12
    };
    let length = mib << 20;
    let route = "read_timeout: 1s; max_body_bytes: 300MiB";
    let mut stage = Stage::new("", route);
    let (mut client, mut upstream) = uploading(&mut stage, length);
    let begin = stage.now();
    steady(&mut stage, &mut client, &mut upstream, length, false);
    assert!(stage.now().since(begin) > Duration::from_secs(mib as u64 / 2 - 1));
    stage.pass(SECOND);
    upstream.send(OK);
    answered(&mut stage, SECOND, &mut client, 200, "OK");

    let mut stage = Stage::new("", route);
    let (mut client, mut upstream) = uploading(&mut stage, length);
    let since = steady(&mut stage, &mut client, &mut upstream, length, true);
    let (at, _) = answered_and_closed(
        &mut stage,
        Duration::from_millis(1_200),
        &mut client,
        408,
        TIMEOUT,
    );
    on_time(since, SECOND, at);
}

#[test]
fn i19_the_clients_clock_stands_still_under_back_pressure() {
    let config = "proxy: {transport: {upstream_idle_timeout: 60s}}";
    let mut stage = Stage::new(config, "read_timeout: 1s; max_body_bytes: 64MiB");
    let length = 4 << 20;
    let (mut client, mut upstream) = uploading(&mut stage, length);
    let body = vec![b'x'; length];
    let mut sent = 0;
    // Nobody takes it: the buffers on the way fill, then time passes.
    for _ in 0..40 {
        sent += client.remote.send(&body[sent..]);
        stage.pass(SECOND);
    }
    assert!(sent < length && !client.has_ended());
    // The upstream takes again. A client that then pauses has what is left of its window.
    upstream.received.clear();
    for _ in 0..1_000 {
        sent += client.remote.send(&body[sent..]);
        stage.pass(MILLIS(1));
        upstream.take(usize::MAX);
    }
    assert_eq!(sent, length);
    upstream.send(OK);
    answered(&mut stage, SECOND, &mut client, 200, "OK");
}

#[test]
fn i20_an_average_below_the_rate_is_severed_after_the_grace() {
    let config = "server: {read_timeout: 5s, min_progress_bytes: 0}\nfirewall: {min_body_rate: 100, body_timeout: 0}";
    let mut stage = Stage::new(config, "");
    let (mut client, mut upstream) = uploading(&mut stage, 100_000);
    let since = stage.now();
    // 50 B/s.
    drip(&mut stage, &mut client, 5);
    let (at, _) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
    on_time(since, 2 * SECOND, at);
    stage.until(SECOND, || upstream.has_ended());

    // 110 B/s for a while, then 50 B/s: the average counts.
    let (mut client, _upstream) = uploading(&mut stage, 100_000);
    let since = stage.now();
    for _ in 0..30 {
        client.send(&[b'x'; 11]);
        stage.pass(MILLIS(100));
    }
    drip(&mut stage, &mut client, 5);
    let (at, _) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
    // 330 bytes in 3 s, then 5 in each 100 ms: with the 355 of 3.5 s the average falls below the
    // rate at 3.55 s.
    on_time(since, MILLIS(3_550), at);
}

#[test]
fn i20_a_route_may_have_a_rate_of_its_own_and_the_stricter_rule_severs() {
    let config = "firewall: {min_body_rate: 100, body_timeout: 0}";
    let mut stage = Stage::new(config, "min_body_rate: 100000; read_timeout: 10s");
    let (mut client, _upstream) = uploading(&mut stage, 1_000_000);
    let since = stage.now();
    drip(&mut stage, &mut client, 2_000);
    let (at, _) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
    on_time(since, 2 * SECOND, at);

    let mut stage = Stage::new(config, "min_body_rate: 0; read_timeout: 3s");
    let (mut client, _upstream) = uploading(&mut stage, 1_000_000);
    let since = stage.now();
    drip(&mut stage, &mut client, 1);
    let (at, _) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
    on_time(since, 3 * SECOND, at);
}

#[test]
fn i20_its_clock_stands_still_under_back_pressure() {
    let config = "firewall: {min_body_rate: 1000000, body_timeout: 4s}";
    let mut stage = Stage::new(config, "");
    let (mut client, mut upstream) = uploading(&mut stage, 2 << 20);
    let body = vec![b'x'; 2 << 20];
    let mut sent = 0;
    for _ in 0..30 {
        sent += client.remote.send(&body[sent..]);
        stage.pass(SECOND);
    }
    assert!(sent < body.len() && !client.has_ended());
    for _ in 0..1_000 {
        sent += client.remote.send(&body[sent..]);
        stage.pass(MILLIS(1));
        upstream.take(usize::MAX);
    }
    assert_eq!(sent, body.len());
    upstream.send(OK);
    answered(&mut stage, SECOND, &mut client, 200, "OK");
}

#[test]
fn i21_the_total_holds_where_a_route_lives_by_the_defaults() {
    let config = "firewall: {body_timeout: 3s}";
    let mut stage = Stage::new(config, "");
    let (mut client, _upstream) = uploading(&mut stage, 4_000_000);
    let since = stage.now();
    drip(&mut stage, &mut client, 2_000);
    let (at, _) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
    on_time(since, 3 * SECOND, at);
}

#[test]
fn i21_it_does_not_where_a_route_has_limits_of_its_own_unless_it_says_so() {
    let config = "firewall: {body_timeout: 3s}";
    for own in [
        "read_timeout: 5s",
        "max_body_bytes: 5MiB",
        "stream_request_body: true",
    ] {
        let mut stage = Stage::new(config, own);
        let (mut client, mut upstream) = uploading(&mut stage, 200_000);
        for _ in 0..100 {
            client.send(&[b'x'; 2_000]);
            stage.pass(MILLIS(100));
        }
        assert!(!client.has_ended(), "{own}");
        upstream.take(usize::MAX);
        upstream.send(OK);
        answered(&mut stage, SECOND, &mut client, 200, "OK");

        let mut stage = Stage::new(config, &format!("{own}; body_timeout: 4s"));
        let (mut client, _upstream) = uploading(&mut stage, 200_000);
        let since = stage.now();
        drip(&mut stage, &mut client, 2_000);
        let (at, _) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
        on_time(since, 4 * SECOND, at);
    }
}

#[test]
fn i18_read_timeout_of_zero_at_server_level_is_off() {
    let config = "server: {read_timeout: 0}\nfirewall: {min_body_rate: 0, body_timeout: 0}";
    let mut stage = Stage::streaming(config, "");
    let (mut client, mut upstream) = uploading(&mut stage, 10);
    stage.pass(100_000 * SECOND);
    client.send(&[b'x'; 10]);
    stage.until(SECOND, || upstream.has(&[b'x'; 10]));
    upstream.send(OK);
    answered(&mut stage, SECOND, &mut client, 200, "OK");
}

#[test]
fn i18_the_rules_hold_while_a_body_is_collected_and_nobody_is_dialled() {
    let rate = "firewall: {min_body_rate: 100, body_timeout: 0}";
    let total = "firewall: {min_body_rate: 0, body_timeout: 3s}";
    for (config, route, bytes, limit) in [
        (FREE, "read_timeout: 1s", 100, 1),
        (rate, "", 5, 2),
        (total, "", 200, 3),
    ] {
        let mut stage = Stage::new(config, route);
        let mut client = stage.client();
        stage.until(SECOND, || client.remote.is_open());
        let since = stage.now();
        client.send(post(60_000).as_bytes());
        drip(&mut stage, &mut client, bytes);
        let (at, _) = answered_and_closed(&mut stage, SECOND, &mut client, 408, TIMEOUT);
        on_time(since, limit * SECOND, at);
        stage.nobody_waits();
        assert_eq!(stage.counts().sessions, 0);
    }
}
