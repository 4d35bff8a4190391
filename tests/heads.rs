//! Limits of request heads (I1, I2), from outside.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use support::client::Client;
use support::http::Response;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::Upstream;
use support::PATIENCE;

/// A GET of exactly `length` bytes, with `fields` fields and a target of `target` bytes.
fn get(length: usize, fields: usize, target: usize) -> Vec<u8> {
    let mut head = format!(
        "GET /{} HTTP/1.1\r\nHost: t.example\r\n",
        "t".repeat(target - 1)
    );
    for i in 2..fields {
        head.push_str(&format!("X-{i}: y\r\n"));
    }
    head.push_str("X-Fill: ");
    let fill = length - head.len() - 4;
    head.push_str(&"f".repeat(fill));
    head.push_str("\r\n\r\n");
    assert_eq!(head.len(), length);
    head.into_bytes()
}

fn ask(toron: &Toron, request: &[u8]) -> (Response, bool) {
    let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
    client.send(request, PATIENCE);
    assert!(client.receive_responses(1, PATIENCE));
    let response = client.parsed().responses.remove(0);
    let closes = response.head.all("connection").contains(&"close");
    if closes {
        assert!(
            client.receive_until_end(PATIENCE),
            "announced, and not closed"
        );
    }
    (response, closes)
}

/// The request line and the fields share one limit, and there is a number of fields at most.
#[test]
fn i1_i2_a_head_up_to_the_limits_passes_and_beyond_them_is_431() {
    for engine in Engine::ALL {
        let upstream = Upstream::start();
        let toron = Toron::start(&Settings::new(
            engine,
            vec![Route::new("/", &upstream.addr)],
        ));
        for (length, fields, target) in [(8192, 3, 1), (8192, 3, 7000), (4000, 100, 10)] {
            let (response, closes) = ask(&toron, &get(length, fields, target));
            let case = (length, fields, target);
            assert_eq!((response.status, closes), (200, false), "{case:?}");
        }
        let passed = upstream
            .connections()
            .iter()
            .flat_map(|c| &c.requests)
            .count();
        assert_eq!(passed, 3);
        for (length, fields, target) in [
            (8193, 3, 1),
            (8193, 3, 7000),
            (4000, 101, 10),
            (60_000, 3, 1),
        ] {
            let (response, closes) = ask(&toron, &get(length, fields, target));
            let case = (length, fields, target);
            assert_eq!((response.status, closes), (431, true), "{case:?}");
            let error = b"{\"error\":\"431 Request Header Fields Too Large\"}";
            assert_eq!(response.body, error, "{case:?}");
        }
        let reached = upstream
            .connections()
            .iter()
            .flat_map(|c| &c.requests)
            .count();
        assert_eq!(reached, passed, "a refused head reached the upstream");
    }
}
