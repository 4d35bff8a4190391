//! What the firewall refuses: connections before they are read, and requests.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use super::cases::get;
use super::support::client::Client;
use super::support::http::Response;
use super::support::toron::Toron;
use super::support::PATIENCE;
use super::{both, line_of, refusals, until_served};

const GUARDED: &str = "\
server:
  host: 127.0.0.1
  port: 0
  engine: ENGINE
  worker_pool_size: 2
  explain_header: on
firewall:
  rate_limit_rps: 1
  rate_limit_burst: 2
  auto_block_threshold: 2
  block_duration: 100s
  max_connections_per_ip: 3
  max_connections_total: 8
  allow: [127.0.0.1]
  deny: [127.0.0.9]
admin:
  key: k
";

pub fn connect_from(source: u8, to: SocketAddr) -> Client {
    Client::connect_from(IpAddr::from([127, 0, 0, source]), to).unwrap()
}

/// The refusal that `client` gets, and what the newest entry of its address says.
fn refused(addr: SocketAddr, client: &mut Client, source: u8) -> (u16, String, Value) {
    assert!(client.receive_responses(1, PATIENCE), "no answer");
    let response = client.parsed().responses.pop().unwrap();
    let body = String::from_utf8_lossy(&response.body).into_owned();
    let from = format!("127.0.0.{source}");
    client.close();
    let list = refusals(addr);
    let entry = list
        .into_iter()
        .find(|entry| entry["client"] == from.as_str());
    let entry = entry.expect("an entry");
    let explained = response.head.first("X-Toron-Reason");
    assert_eq!(explained, entry["reason"].as_str());
    assert_eq!(entry["status"], response.status);
    assert_eq!(entry["ended_by"], "firewall");
    (response.status, body, entry)
}

pub fn assert_limit(entry: &Value, config: &str, (setting, value): (&str, Option<u64>), on: &str) {
    let limit = &entry["limit"];
    assert_eq!(limit["setting"], setting, "{entry}");
    assert_eq!(limit["value"].as_u64(), value, "{entry}");
    let at = format!("config.yaml:{}", line_of(config, on));
    assert!(
        limit["set_at"].as_str().unwrap().ends_with(&at),
        "{at}: {entry}"
    );
    assert_eq!(limit["set_by"], "firewall");
}

#[test]
fn what_the_firewall_refuses_is_named() {
    const BLOCKED: &str = r#"{"error":"403 Forbidden: Address is blocked"}"#;
    both(|engine| {
        let config = GUARDED.replace("ENGINE", engine.name());
        let routes = "routes:\n  - {prefix: /, status: 200, body: fine}\n";
        let toron = Toron::start_files(&config, routes, None);
        let addr = toron.addr;
        // Denied before a byte is read.
        let got = refused(addr, &mut connect_from(9, addr), 9);
        assert_eq!((got.0, got.1.as_str()), (403, BLOCKED));
        assert_eq!(got.2["reason"], "denied");
        assert_limit(&got.2, &config, ("deny", None), "deny:");
        // Two requests are let in, the third is one too many, the fourth blocks the address. All in
        // one write, so that no token is gained meanwhile.
        let mut client = connect_from(4, addr);
        client.send(get("/").repeat(4).as_bytes(), PATIENCE);
        assert!(client.receive_responses(4, PATIENCE));
        let statuses: Vec<u16> = client.parsed().responses.iter().map(|r| r.status).collect();
        assert_eq!(statuses, [200, 200, 429, 403]);
        let limited = r#"{"error":"429 Too Many Requests: Rate limit exceeded"}"#;
        let bodies: Vec<Response> = client.parsed().responses;
        assert_eq!(String::from_utf8_lossy(&bodies[2].body), limited);
        assert_eq!(String::from_utf8_lossy(&bodies[3].body), BLOCKED);
        let list = refusals(addr);
        let (last, before) = (&list[0], &list[1]);
        assert_eq!(
            (&before["reason"], &before["path"]),
            (&"rate_limit".into(), &"/".into())
        );
        let observed = before["observed"].as_u64();
        assert!(observed.is_some_and(|n| (1..=3).contains(&n)), "{before}");
        assert_limit(
            before,
            &config,
            ("rate_limit_rps", Some(1)),
            "rate_limit_rps: 1",
        );
        assert_eq!(last["reason"], "auto_blocked");
        let threshold = ("auto_block_threshold", Some(2));
        assert_limit(last, &config, threshold, "auto_block_threshold: 2");
        assert_eq!(
            (&last["observed"], &last["status"]),
            (&2.into(), &403.into())
        );
        client.close();
        let got = refused(addr, &mut connect_from(4, addr), 4);
        assert_eq!(
            (got.1.as_str(), &got.2["reason"]),
            (BLOCKED, &"blocked".into())
        );
        assert_limit(
            &got.2,
            &config,
            ("block_duration", Some(100)),
            "block_duration: 100s",
        );
        // One connection too many of an address, then of all.
        let mut open: Vec<Client> = (0..3).map(|_| served(3, addr)).collect();
        let got = refused(addr, &mut connect_from(3, addr), 3);
        let text = r#"{"error":"503 Service Unavailable: Per-address connection limit reached"}"#;
        assert_eq!((got.0, got.1.as_str()), (503, text));
        assert_eq!(got.2["reason"], "address_connection_limit");
        let per_ip = ("max_connections_per_ip", Some(3));
        assert_limit(&got.2, &config, per_ip, "max_connections_per_ip: 3");
        assert_eq!(got.2["observed"], 4);
        while open.len() < 8 {
            open.push(served(20 + u8::try_from(open.len()).unwrap(), addr));
        }
        let mut client = connect_from(50, addr);
        assert!(client.receive_responses(1, PATIENCE));
        open.clear();
        let got = refused(addr, &mut client, 50);
        let text = r#"{"error":"503 Service Unavailable: Connection limit reached"}"#;
        assert_eq!((got.0, got.1.as_str()), (503, text));
        assert_eq!(got.2["reason"], "connection_limit");
        let total = ("max_connections_total", Some(8));
        assert_limit(&got.2, &config, total, "max_connections_total: 8");
        assert_eq!(got.2["observed"], 9);
    });
}

/// A connection that has been answered, so that it is surely counted.
fn served(source: u8, addr: SocketAddr) -> Client {
    let connected = || {
        let mut client = connect_from(source, addr);
        client.send(get("/health").as_bytes(), PATIENCE);
        client
    };
    until_served(connected).0
}
