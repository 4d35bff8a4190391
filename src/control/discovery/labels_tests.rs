//! Labels of one container.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::control::config::load_texts;
use crate::control::resolve::Endpoints;
use crate::policy::settings::{ChunkedMode, SetBy};

/// What routes inherit where nothing is written.
pub(crate) fn inherited() -> Inherited {
    let text = "routes: [{prefix: /a, status: 200}]";
    let loaded = load_texts(text, None, &mut Endpoints::default());
    loaded.unwrap().inherited
}

fn reading(labels: &[(&str, &str)]) -> Reading {
    let mut all = BTreeMap::from([(ENABLE.to_owned(), "true".to_owned())]);
    all.extend(
        labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
    );
    read(&all, "container a", &inherited())
}

fn asked(labels: &[(&str, &str)]) -> Asked {
    let reading = reading(labels);
    assert_eq!(reading.notes, Vec::<String>::new());
    reading.asked.unwrap()
}

/// The one note, and what is asked for nevertheless.
fn noted(labels: &[(&str, &str)]) -> (String, Asked) {
    let reading = reading(labels);
    assert_eq!(reading.notes.len(), 1, "{:?}", reading.notes);
    (reading.notes[0].clone(), reading.asked.unwrap())
}

const A: (&str, &str) = ("toron.prefix", "/a");

#[test]
fn enable_is_required_and_has_three_words() {
    for (text, on) in [
        ("true", true),
        ("TRUE", true),
        ("1", true),
        ("Yes", true),
        (" true ", true),
        ("false", false),
        ("", false),
        ("on", false),
        ("2", false),
    ] {
        let reading = reading(&[(ENABLE, text), A]);
        assert_eq!(reading.asked.is_ok(), on, "{text}");
    }
    assert!(read(&BTreeMap::new(), "container a", &inherited())
        .asked
        .is_err());
}

#[test]
fn the_prefix_gets_its_slash_and_normal_form() {
    for (text, prefix) in [
        ("/api", "/api"),
        ("api", "/api"),
        ("api/v1/", "/api/v1"),
        ("//a", "/a"),
        ("/internals", "/internals"),
    ] {
        let host = ("toron.host", "h.example");
        assert_eq!(asked(&[("toron.prefix", text), host]).prefix, prefix);
    }
    assert_eq!(asked(&[("toron.host", "H.Example")]).prefix, "/");
}

#[test]
fn what_would_take_all_traffic_or_internal_paths_is_refused() {
    for labels in [
        &[][..],
        &[("toron.prefix", "")],
        &[("toron.prefix", "/")],
        &[("toron.prefix", "///"), ("toron.method", "GET")],
        &[("toron.host", " ")],
    ] {
        let error = reading(labels).asked.unwrap_err();
        assert!(error.contains("all traffic"), "{labels:?}: {error}");
    }
    for prefix in ["/internal", "internal/api", "/internal/", "/%69nternal"] {
        let labels = [("toron.prefix", prefix), ("toron.host", "h.example")];
        let error = reading(&labels).asked.unwrap_err();
        assert!(error.contains("/internal"), "{error}");
    }
}

#[test]
fn methods_are_upper_case_sorted_and_each_once() {
    assert_eq!(asked(&[A]).methods, Vec::<String>::new());
    let several = asked(&[A, ("toron.method", "put, post,PUT,")]);
    assert_eq!(several.methods, ["POST", "PUT"]);
    let (note, asked) = noted(&[A, ("toron.method", "GET,P/T")]);
    assert!(
        note.contains("toron.method") && asked.methods.is_empty(),
        "{note}"
    );
}

#[test]
fn d11_a_bad_value_leaves_the_default_and_is_told() {
    let host = ("toron.host", "h.example");
    for (label, value) in [
        ("toron.port", "0"),
        ("toron.port", "http"),
        ("toron.port", "65536"),
        ("toron.weight", "0"),
        ("toron.weight", "1.5"),
        ("toron.health_check", "healthz"),
        ("toron.health_check", "/a b"),
        ("toron.health_check_interval", "5"),
        ("toron.health_check_interval", "-5s"),
        ("toron.strip_prefix", "maybe"),
        ("toron.max_body_bytes", "10m"),
        ("toron.max_concurrency", "many"),
        ("toron.read_timeout", "5 s"),
        ("toron.inbound_chunked_mode", "drop"),
        ("toron.address", "localhost"),
        ("toron.address", "0.0.0.0"),
    ] {
        let (note, got) = noted(&[A, host, (label, value)]);
        assert!(note.starts_with(label), "{label}={value}: {note}");
        assert_eq!(got, asked(&[A, host]), "{label}={value}");
    }
    let (note, got) = noted(&[A, ("toron.host", "https://h.example/")]);
    assert!(note.starts_with("toron.host"), "{note}");
    assert_eq!(got, asked(&[A]));
    let (note, got) = noted(&[host, ("toron.prefix", "/a/../b")]);
    assert!(note.starts_with("toron.prefix"), "{note}");
    assert_eq!(got, asked(&[host]));
}

#[test]
fn d11_a_label_that_nobody_knows_is_told() {
    let (note, _) = noted(&[A, ("toron.prot", "8080")]);
    assert!(
        note.contains("\"prot\"") && note.contains("did you mean \"port\"?"),
        "{note}"
    );
    // Other programs have labels too.
    asked(&[A, ("traefik.enable", "true"), ("torondo.port", "x")]);
}

#[test]
fn options_have_the_defaults_of_routes_and_their_guardrail() {
    let plain = asked(&[A]).options;
    assert!(plain.strip_prefix && plain.rewrite_redirects && plain.rewrite_cookie_path);
    assert_eq!(plain.health_check, None);
    assert_eq!(plain.health_check_interval, Duration::from_secs(5));
    assert_eq!(plain.limits.max_body_bytes, 4 << 20);
    assert_eq!(plain.limits.max_concurrency, None);

    let options = asked(&[
        A,
        ("toron.strip_prefix", "0"),
        ("toron.rewrite_redirects", "OFF"),
        ("toron.rewrite_cookie_path", "no"),
        ("toron.health_check", "/healthz?x=1"),
        ("toron.health_check_interval", "0"),
        ("toron.max_body_bytes", "8MiB"),
        ("toron.read_timeout", "0"),
        ("toron.write_timeout", "7s"),
        ("toron.response_header_timeout", "20s"),
        ("toron.request_deadline", "30s"),
        ("toron.stream_request_body", "1"),
        ("toron.inbound_chunked_mode", "passthrough"),
    ])
    .options;
    assert!(!options.strip_prefix && !options.rewrite_redirects && !options.rewrite_cookie_path);
    assert_eq!(options.health_check.as_deref(), Some("/healthz?x=1"));
    assert_eq!(options.health_check_interval, Duration::ZERO);
    let limits = &options.limits;
    assert_eq!(limits.max_body_bytes, 8 << 20);
    // I16: more than the defaults without a cap of its own.
    assert_eq!(limits.max_concurrency, Some(32));
    assert_eq!(options.limit_sources.max_concurrency, SetBy::Guardrail);
    assert_eq!(limits.read_timeout, plain.limits.read_timeout);
    assert_eq!(limits.write_timeout, Duration::from_secs(7));
    assert_eq!(limits.request_deadline, Some(Duration::from_secs(30)));
    assert_eq!(limits.stream_request_body, Some(true));
    assert_eq!(limits.chunked_mode, ChunkedMode::Passthrough);
    let own = asked(&[
        A,
        ("toron.max_body_bytes", "8MiB"),
        ("toron.max_concurrency", "5"),
    ]);
    assert_eq!(own.options.limits.max_concurrency, Some(5));

    let (_, got) = noted(&[
        A,
        ("toron.stream_request_body", "false"),
        ("toron.inbound_chunked_mode", "passthrough"),
    ]);
    assert_eq!(got.options.limits.stream_request_body, None);
}

#[test]
fn differences_are_named() {
    let one = asked(&[A]).options;
    let other = asked(&[
        A,
        ("toron.write_timeout", "7s"),
        ("toron.strip_prefix", "no"),
    ])
    .options;
    assert_eq!(one.differences(&other), ["strip_prefix", "write_timeout"]);
    assert!(one.differences(&one.clone()).is_empty());
}

#[test]
fn a_constraint_that_cannot_be_read_is_counted() {
    let reading = reading(&[
        A,
        ("toron.headers", "{\"X-Version\":"),
        ("toron.header.b c", "d"),
    ]);
    assert_eq!(reading.ignored_constraints, 2);
    assert_eq!(reading.asked.unwrap().headers, []);
    assert!(reading
        .notes
        .iter()
        .all(|n| n.contains("takes requests without")));
}

#[test]
fn remarks_are_short_whatever_labels_hold() {
    let long = "ä".repeat(10_000);
    let reading = reading(&[A, ("toron.port", &long), ("toron.headers", &long)]);
    assert_eq!(reading.notes.len(), 2);
    assert!(reading.notes.iter().all(|n| n.len() < 310));
}

/// Labels as they might be, and as nobody would write them.
fn any_label() -> impl Strategy<Value = (String, String)> {
    let names = prop_oneof![
        Just("toron.host".to_owned()),
        Just("toron.prefix".to_owned()),
        Just("toron.port".to_owned()),
        Just("toron.method".to_owned()),
        Just("toron.headers".to_owned()),
        Just("toron.weight".to_owned()),
        Just("toron.address".to_owned()),
        Just("toron.read_timeout".to_owned()),
        Just("toron.max_body_bytes".to_owned()),
        Just("toron.header_deadline_response".to_owned()),
        any::<String>().prop_map(|s| format!("toron.header.{s}")),
        any::<String>().prop_map(|s| format!("toron.{s}")),
        any::<String>(),
    ];
    let values = prop_oneof![
        any::<String>(),
        "[a-z./:*{}=,\"\\[\\]0-9 -]{0,40}",
        Just("GET,POST".to_owned()),
        Just("/a".to_owned()),
        Just("10s".to_owned()),
    ];
    (names, values)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_labels_are_read(labels in prop::collection::btree_map(any::<String>(), any::<String>(), 0..8),
                           likely in prop::collection::vec(any_label(), 0..12)) {
        let inherited = inherited();
        let mut all: BTreeMap<String, String> = labels;
        all.extend(likely);
        all.insert(ENABLE.to_owned(), "true".to_owned());
        let reading = read(&all, "container a", &inherited);
        if let Ok(asked) = &reading.asked {
            prop_assert!(asked.prefix.starts_with('/'));
            prop_assert!(asked.host != HostPattern::Any || asked.prefix != "/");
            prop_assert!(asked.prefix != "/internal" && !asked.prefix.starts_with("/internal/"));
            prop_assert!(asked.methods.windows(2).all(|w| w[0] < w[1]));
            let names: Vec<_> = asked.headers.iter().map(|(n, _)| n.to_ascii_lowercase()).collect();
            prop_assert!(names.windows(2).all(|w| w[0] < w[1]), "{:?}", names);
        }
        prop_assert_eq!(read(&all, "container a", &inherited), reading);
    }
}
