//! What is said to those who write what other programs understand.

use super::known_keys;
use super::tests::{faults, route};

#[test]
fn what_to_write_instead_is_said() {
    for (config, expected) in [
        (
            "server: {via: \"Yes\"}",
            "c:1:15: server.via: \"Yes\" in quotes is a text, not on or off (allowed: yes, without quotes)",
        ),
        (
            "server: {max_body_bytes: 10m}",
            "c:1:26: server.max_body_bytes: \"10m\" is not a size (allowed: bytes, or a size such as \
             64KB, 4MiB; did you mean \"10MiB\"?)",
        ),
        (
            "server: {idle_timeout: 1.5s}",
            "c:1:24: server.idle_timeout: \"1.5s\" is not a duration (allowed: a duration such as \
             250ms, 5s, 1m30s, 0; did you mean \"1s500ms\"?)",
        ),
        (
            "server: {listen_port: 80}",
            "c:1:10: unknown key \"listen_port\" in server (allowed: idle_timeout, listen, \
             min_progress_bytes, port, …: 21 keys, see docs/configuration.md#server; did you \
             mean \"port\"?)",
        ),
    ] {
        assert_eq!(faults(config), [expected], "{config}");
    }
}

#[test]
fn fields_of_responses_as_conditions_are_a_warning() {
    let (made, warnings) = route(
        "",
        "target: http://a; headers: {Set-Cookie: a, X-Tier: beta}",
    );
    assert_eq!(made.headers.len(), 2);
    assert_eq!(
        warnings,
        [
            "r:3:14: headers on a route with a target are a condition: only requests that carry \
             Set-Cookie: a match; toron sets no fields of an upstream's responses (match_headers says \
             the same without this warning)"
        ]
    );
    for keys in [
        "target: http://a; match_headers: {Set-Cookie: a}",
        "status: 200; headers: {Set-Cookie: a}",
    ] {
        assert_eq!(route("", keys).1, [""; 0], "{keys}");
    }
}

#[test]
fn every_section_has_known_keys() {
    let known = known_keys();
    for key in [
        "routes",
        "server.port",
        "proxy.transport.connect_timeout",
        "firewall.header_timeout",
        "discovery.engine",
        "admin.key",
        "logging.level",
        "routes[].prefix",
        "targets[].weight",
        "header_deadline_response.body",
    ] {
        assert!(known.contains(key), "{key}: {known:?}");
    }
}
