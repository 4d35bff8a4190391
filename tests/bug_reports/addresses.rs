//! S8: X-Forwarded-For taken from the left. S16: a block that hits everybody behind one address.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::on_every_engine;
use crate::support::client::Client;
use crate::support::http::Response;
use crate::support::metrics::scrape;
use crate::support::setup::{Engine, Route, Settings};
use crate::support::toron::Toron;
use crate::support::upstream::{Connection, Upstream};
use crate::support::PATIENCE;

const PROXY: u8 = 10;

/// A toron with these limits behind a trusted proxy on 127.0.0.10, and its upstream. The test itself
/// asks from 127.0.0.1.
fn start(engine: Engine, limits: &[(&'static str, &str)]) -> (Toron, Upstream) {
    let upstream = Upstream::start();
    let mut settings = Settings::new(engine, vec![Route::new("/", &upstream.addr)]);
    let all = [
        ("allow", "[127.0.0.1]"),
        ("trusted_proxies", "[127.0.0.10]"),
    ];
    let all = all.iter().chain(limits);
    settings.firewall = all
        .map(|(key, value)| (*key, (*value).to_owned()))
        .collect();
    (Toron::start(&settings), upstream)
}

fn connect_from(source: u8, toron: &Toron) -> Client {
    Client::connect_from(IpAddr::from([127, 0, 0, source]), toron.addr).unwrap()
}

fn request(fields: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: t.example\r\n{fields}\r\n")
}

/// The answer to one more request on this connection, or what was said instead of reading it.
fn ask(client: &mut Client, fields: &str) -> Response {
    let before = client.complete_responses();
    client.send(request(fields).as_bytes(), PATIENCE);
    assert!(
        client.receive_responses(before + 1, PATIENCE),
        "{:?}",
        client.end
    );
    client.parsed().responses.swap_remove(before)
}

// S8: whoever writes into the header from outside writes on the left.

/// In four forms, with a bucket of two requests: a new fake address per request evades nothing, and
/// the victim that is named loses nothing.
#[test]
fn s8_f4_the_client_is_found_from_the_right() {
    const VICTIM: &str = "203.0.113.7";
    on_every_engine(|engine| {
        let limits = [("rate_limit_rps", "1"), ("rate_limit_burst", "2")];
        let (toron, upstream) = start(engine, &limits);
        type Form = (&'static str, u8, fn(&str) -> String);
        let forms: [Form; 4] = [
            ("fake, real", PROXY, |fake| {
                format!("X-Forwarded-For: {fake}, 198.51.100.1\r\n")
            }),
            ("two lines", PROXY, |fake| {
                format!("X-Forwarded-For: {fake}\r\nX-Forwarded-For: 198.51.100.2\r\n")
            }),
            // It is the proxy itself that is limited then.
            ("garbage in the last place", PROXY, |fake| {
                format!("X-Forwarded-For: {fake}, 198.51.100.3, garbage\r\n")
            }),
            ("an untrusted peer", 4, |fake| {
                format!("X-Forwarded-For: {fake}\r\n")
            }),
        ];
        for (what, source, fields) in forms {
            let mut client = connect_from(source, &toron);
            // All at once, so that no token is gained meanwhile.
            let fakes = [
                VICTIM,
                "203.0.113.1",
                "203.0.113.2",
                "203.0.113.3",
                VICTIM,
                VICTIM,
            ];
            let requests: String = fakes.map(|fake| request(&fields(fake))).concat();
            client.send(requests.as_bytes(), PATIENCE);
            assert!(client.receive_responses(fakes.len(), PATIENCE), "{what}");
            let answers = client.parsed().responses;
            let statuses: Vec<u16> = answers.iter().map(|r| r.status).collect();
            assert_eq!(statuses, [200, 200, 429, 429, 429, 429], "{what}");
        }
        // The victim has its two tokens still.
        let mut proxy = connect_from(PROXY, &toron);
        let fields = format!("X-Forwarded-For: {VICTIM}\r\n");
        assert_eq!(ask(&mut proxy, &fields).status, 200);
        assert_eq!(ask(&mut proxy, &fields).status, 200);
        // Upstreams see one line, with the peer last, and whom toron takes for the client.
        let connections = upstream.connections();
        let heads = connections.iter().flat_map(Connection::heads);
        let mut clients = Vec::new();
        for head in heads {
            let lines = head.all("x-forwarded-for");
            assert_eq!(lines.len(), 1, "{lines:?}");
            let client = head.first("x-real-ip").unwrap().to_owned();
            let peer = lines[0].rsplit(',').next().unwrap().trim();
            let proxied = client != "127.0.0.4";
            assert_eq!(peer, if proxied { "127.0.0.10" } else { "127.0.0.4" });
            assert!(proxied || lines[0] == "127.0.0.4", "believed: {lines:?}");
            clients.push(client);
        }
        clients.sort();
        let twice = [
            "127.0.0.10",
            "127.0.0.4",
            "198.51.100.1",
            "198.51.100.2",
            VICTIM,
        ];
        assert_eq!(clients, twice.map(|client| [client, client]).concat());
    });
}

// S16: one misbehaving machine, and the whole office is out.

/// The block ends when it was to end, though ordinary requests go on twice a second: that it is not
/// prolonged shows in what they are told.
#[test]
fn s16_f1_a_block_ends_though_ordinary_requests_go_on() {
    on_every_engine(|engine| {
        let limits = [
            ("rate_limit_rps", "10"),
            ("rate_limit_burst", "2"),
            ("auto_block_threshold", "3"),
            ("block_duration", "2s"),
        ];
        let (toron, _upstream) = start(engine, &limits);
        let mut abuser = connect_from(2, &toron);
        abuser.send(request("").repeat(30).as_bytes(), PATIENCE);
        assert!(abuser.receive_until_end(PATIENCE));
        assert_eq!(abuser.parsed().responses.last().unwrap().status, 403);
        let deadline = Instant::now() + PATIENCE;
        let mut left = 2;
        let (mut refused, mut served) = (0, 0);
        while served < 2 {
            assert!(
                Instant::now() < deadline,
                "{refused} refused, {served} served"
            );
            let response = ask(&mut connect_from(2, &toron), "");
            match response.status {
                200 => served += 1,
                403 => {
                    let told: u64 = response.head.first("retry-after").unwrap().parse().unwrap();
                    assert!(
                        served == 0 && told <= left,
                        "{told} s left, {left} s before"
                    );
                    left = told;
                    refused += 1;
                }
                status => panic!("{status}"),
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        assert!(refused > 0);
        let found = scrape(&toron);
        assert_eq!(
            found.count("toron_firewall_blocks_total", &[("kind", "rate")]),
            1
        );
        assert_eq!(found.count("toron_firewall_blocked_addresses", &[]), 0);
    });
}

/// Abuse under one X-Forwarded-For leaves the other clients of the proxy, and the proxy, at 200.
#[test]
fn s16_f4_a_trusted_proxy_is_not_blocked_for_one_of_its_clients() {
    on_every_engine(|engine| {
        let limits = [
            ("rate_limit_rps", "1"),
            ("rate_limit_burst", "3"),
            ("auto_block_threshold", "3"),
        ];
        let (toron, _upstream) = start(engine, &limits);
        let abuse = "X-Forwarded-For: 198.51.100.200\r\n";
        let mut abuser = connect_from(PROXY, &toron);
        let mut proxy = connect_from(PROXY, &toron);
        for n in 1..=60u8 {
            ask(&mut abuser, abuse);
            let fields = format!("X-Forwarded-For: 198.51.100.{n}\r\n");
            assert_eq!(ask(&mut proxy, &fields).status, 200);
        }
        assert_eq!(ask(&mut abuser, abuse).status, 403);
        // What the proxy asks for itself, on a new connection.
        assert_eq!(ask(&mut connect_from(PROXY, &toron), "").status, 200);
        let other = "X-Forwarded-For: 198.51.100.99\r\n";
        assert_eq!(ask(&mut connect_from(PROXY, &toron), other).status, 200);
    });
}
