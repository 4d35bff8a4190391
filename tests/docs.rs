//! Holds the documents to the code: every key of the configuration is documented once, with the default
//! that the code has; every reason stands in docs/operations.md; examples can be used as they stand; links
//! lead somewhere.
//!
//! The reasons follow from src/http/reason.rs: `TORON_UPDATE_DOCS=1 cargo test --test docs` writes them
//! anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "docs/files.rs"]
mod files;
#[path = "docs/metrics.rs"]
mod metrics;
#[path = "docs/readme.rs"]
mod readme;
#[path = "docs/reasons.rs"]
mod reasons;
#[path = "docs/table.rs"]
mod table;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use toron::control::config::{known_keys, load_texts, Loaded};
use toron::control::resolve::Endpoints;
use toron::policy::settings::{ProcessSources, Settings};

use table::{documented, quoted};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

/// Whether what follows from the code is to be written anew.
fn updates() -> bool {
    std::env::var_os("TORON_UPDATE_DOCS").is_some_and(|v| v == "1")
}

#[test]
fn every_key_is_documented_once_and_no_other() {
    let known = known_keys();
    let holds_others = |key: &String| {
        let inside = format!("{key}.");
        known.iter().any(|other| other.starts_with(&inside))
    };
    let mut expected: BTreeSet<String> =
        known.iter().filter(|k| !holds_others(k)).cloned().collect();
    assert!(expected.remove("routes"), "{known:?}");
    let rows = documented();
    let found: BTreeSet<String> = rows.iter().map(|row| row.key.clone()).collect();
    let missing: Vec<_> = expected.difference(&found).collect();
    let unknown: Vec<_> = found.difference(&expected).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/configuration.md lacks {missing:?} and has {unknown:?}, which the parser does not know"
    );
    assert_eq!(found.len(), rows.len(), "a key has two rows");
    let text = read("docs/configuration.md");
    for section in known
        .iter()
        .filter(|key| !key.contains('.') || *key == "routes")
    {
        let heading = format!("\n## {section}\n");
        assert!(text.contains(&heading), "there is no heading for {section}");
    }
}

#[test]
fn older_names_have_the_key_that_is_documented() {
    let rows = documented();
    for row in rows.iter().filter(|row| row.is_older) {
        let key = format!("firewall.{}", quoted(&row.default).unwrap());
        assert!(rows.iter().any(|r| r.key == key), "{key}");
        let name = row.key.strip_prefix("firewall.").unwrap();
        let value = if name.ends_with("List") || name.ends_with("Proxies") {
            "[]"
        } else {
            "1"
        };
        let value = if name == "maxHeaderBytes" {
            "500"
        } else {
            value
        };
        let value = if name == "adaptiveRateLimit" {
            "on"
        } else {
            value
        };
        // Both at once is a fault that calls the one the older name of the other.
        let new = quoted(&row.default).unwrap();
        let both = format!("firewall: {{{name}: {value}, {new}: {value}}}");
        let faults = load_texts(
            &both,
            Some(&routes("target: http://a")),
            &mut Endpoints::default(),
        )
        .expect_err(&both)
        .faults;
        let said = format!("firewall.{name} is the older name of {new} (allowed: one of them)");
        assert!(faults.iter().any(|f| f.message == said), "{faults:?}");
    }
}

/// A routes.yaml of one route with these keys, in flow style.
fn routes(keys: &str) -> String {
    format!("routes:\n  - {{{keys}}}\n")
}

/// A configuration with `value` under `key`, or the same without it.
fn with(key: &str, value: Option<&str>) -> (String, String) {
    let upstream = "target: http://a";
    let (section, name) = key.rsplit_once('.').unwrap();
    let pair = value
        .map(|value| format!("{name}: {value}"))
        .unwrap_or_default();
    let none = value.is_none();
    let config = match section {
        "routes[]" | "targets[]" | "header_deadline_response" => String::new(),
        "discovery" => "discovery: {}".to_owned(),
        _ if none => String::new(),
        _ => section
            .rsplit('.')
            .fold(pair.clone(), |inner, part| format!("{part}: {{{inner}}}")),
    };
    let config = match section {
        "discovery" if !none => format!("discovery: {{{pair}}}"),
        _ => config,
    };
    let own = match (section, name) {
        ("targets[]", "url") => format!("targets: [{{{pair}}}]"),
        ("targets[]", _) => format!("targets: [{{url: http://a, {pair}}}]"),
        ("header_deadline_response", _) => {
            format!("{upstream}, header_deadline_response: {{{pair}}}")
        }
        ("routes[]", "status") => format!("body: x, {pair}"),
        ("routes[]", "body") => format!("status: 200, {pair}"),
        ("routes[]", "target" | "targets") => pair,
        ("routes[]", "type") if value == Some("respond") => format!("status: 200, {pair}"),
        ("routes[]", _) => format!("{upstream}, {pair}"),
        _ => upstream.to_owned(),
    };
    (config, routes(own.trim_end_matches(", ")))
}

/// Everything that the server reads of a configuration, as text; or the faults.
fn effective(key: &str, value: Option<&str>) -> Result<String, String> {
    let (config, routes) = with(key, value);
    match load_texts(&config, Some(&routes), &mut Endpoints::default()) {
        Ok(Loaded { snapshot, .. }) => {
            // Not where they stand.
            let settings = Settings {
                sources: ProcessSources::default(),
                ..(*snapshot.settings).clone()
            };
            let route = &snapshot.table.routes()[0];
            Ok(format!(
                "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                settings,
                route.host,
                route.prefix,
                route.methods,
                route.headers,
                route.kind,
                route.limits
            ))
        }
        Err(rejected) => Err(format!("{config}\n{routes}\n{:?}", rejected.faults)),
    }
}

#[test]
fn defaults_are_those_of_the_code() {
    let mut compared = 0;
    for row in documented().iter().filter(|row| !row.is_older) {
        let Some(default) = quoted(&row.default) else {
            continue;
        };
        let (written, absent) = (
            effective(&row.key, Some(default)),
            effective(&row.key, None),
        );
        assert!(written.is_ok(), "{}: {written:?}", row.key);
        assert_eq!(
            written, absent,
            "{default} is not the default of {}",
            row.key
        );
        compared += 1;
    }
    assert!(compared > 60, "only {compared} defaults were compared");
    // The comparison tells a wrong default from a right one.
    for (key, wrong) in [("server.read_timeout", "6s"), ("routes[].retries", "2")] {
        assert_ne!(effective(key, Some(wrong)), effective(key, None));
    }
}

#[test]
fn what_is_inherited_comes_from_where_the_document_says() {
    let mut compared = 0;
    for row in documented() {
        let Some(source) = row.default.strip_prefix("inherits ").and_then(quoted) else {
            continue;
        };
        // Only this limit must follow it, so that a wrong source is noticed.
        let name = row.key.trim_start_matches("routes[].");
        let field = format!(" {}: ", name.trim_start_matches("inbound_"));
        let limit = |written: Option<&str>| {
            let (config, _) = with(source, written);
            let routes = routes("target: http://a");
            let loaded = load_texts(&config, Some(&routes), &mut Endpoints::default()).ok()?;
            let limits = format!("{:?}", loaded.snapshot.table.routes()[0].limits);
            let value = limits
                .split(&field)
                .nth(1)
                .and_then(|rest| rest.split(", ").next());
            Some(value.expect("the limit is shown under its name").to_owned())
        };
        let changed = ["7s", "777", "reject"]
            .iter()
            .find_map(|value| limit(Some(value)));
        assert!(changed.is_some(), "{source} takes none of the values tried");
        assert_ne!(changed, limit(None), "{} does not follow {source}", row.key);
        if row.allowed.contains("`0` inherits") {
            assert_eq!(
                effective(&row.key, Some("0")),
                effective(&row.key, None),
                "{}",
                row.key
            );
        }
        compared += 1;
    }
    assert!(compared >= 10, "only {compared} keys inherit");
}

/// The table of what `0` means on a route: whether it is the same as nothing, key by key.
#[test]
fn zero_on_a_route_is_what_the_document_says() {
    // Of whatever can be inherited, something that is neither the default nor off.
    let config = "\
        server: {max_body_bytes: 777, read_timeout: 7s, write_timeout: 7s, upgrade_idle_timeout: 7s, \
        header_deadline: 7s, min_progress_bytes: 777}\n\
        proxy: {transport: {response_header_timeout: 7s, upstream_idle_timeout: 7s}}\n\
        firewall: {body_timeout: 7s, min_body_rate: 777}\n";
    let route = |own: &str| {
        let probed = "target: http://a, health_check_path: /";
        let routes = routes(&format!("{probed}{own}"));
        let loaded = load_texts(config, Some(&routes), &mut Endpoints::default());
        let loaded = loaded.unwrap_or_else(|r| panic!("{own}: {:?}", r.faults));
        let route = &loaded.snapshot.table.routes()[0];
        format!("{:?} {:?}", route.limits, route.kind)
    };
    let text = read("docs/configuration.md");
    let table = text
        .split("| on a route, `0` for |")
        .nth(1)
        .and_then(|rest| rest.split("\n\n").next())
        .expect("the table is there");
    let mut told = BTreeSet::new();
    for line in table.lines().skip(2) {
        let cells = table::cells(line).unwrap();
        for key in cells[0].split(", ").map(|key| quoted(key).unwrap()) {
            let zero = route(&format!(", {key}: 0"));
            let is_nothing = cells[1].starts_with("as if it were not written");
            assert_eq!(zero == route(""), is_nothing, "{key}");
            told.insert(key.to_owned());
        }
    }
    // Every key of a route that takes a zero has its word there.
    let own = documented().into_iter().filter_map(|row| {
        let key = row.key.strip_prefix("routes[].")?.to_owned();
        let kind = row.allowed.split([',', ' ']).next()?;
        let number = kind == "duration" || kind == "size";
        (number || row.allowed.contains("0 ")).then_some(key)
    });
    let takes_zero = own.filter(|key| {
        let routes = routes(&format!("target: http://a, {key}: 0"));
        load_texts("", Some(&routes), &mut Endpoints::default()).is_ok()
    });
    let missing: Vec<String> = takes_zero.filter(|key| !told.contains(key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn listed_values_are_accepted() {
    let mut tried = 0;
    for row in documented().iter().filter(|row| !row.is_older) {
        let values: Option<Vec<&str>> = row.allowed.split(", ").map(quoted).collect();
        for value in values.unwrap_or_default() {
            // Forms with a part in brackets are patterns, not values.
            if value.contains('[') || row.key.ends_with("host") {
                continue;
            }
            let made = effective(&row.key, Some(value));
            assert!(made.is_ok(), "{}: {value}: {made:?}", row.key);
            tried += 1;
        }
    }
    assert!(tried > 25, "only {tried} values were tried");
}

/// Compares `file` with how it should be, or writes it if that was asked for.
fn hold(file: &str, expected: &str) {
    let text = read(file);
    if text == expected {
        return;
    }
    if updates() {
        std::fs::write(root().join(file), expected).unwrap();
        return;
    }
    let both = text.lines().zip(expected.lines());
    let different: Vec<_> = both.filter(|(is, should)| is != should).collect();
    panic!(
        "{file} is not as the code has it; \
         TORON_UPDATE_DOCS=1 cargo test --test docs writes them anew: {different:#?}"
    );
}

/// The blocks of a document that are fenced as `yaml`.
fn yaml_blocks(text: &str) -> Vec<&str> {
    let blocks = text.split("```yaml\n").skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

#[test]
fn examples_in_the_document_are_good() {
    let text = read("docs/configuration.md");
    let blocks = yaml_blocks(&text);
    assert!(blocks.len() >= 5);
    for block in blocks {
        let made = load_texts(block, None, &mut Endpoints::default());
        assert!(
            made.is_ok(),
            "{block}\n{:?}",
            made.map(|_| ()).map_err(|r| r.faults)
        );
    }
}

fn toron(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    let command = command.args(arguments).current_dir(root());
    command.env_remove("TORON_ADMIN_KEY").output().unwrap()
}

/// Without even a warning, and readable in a terminal of 100 columns.
#[test]
fn example_files_are_good_and_shown_in_100_columns() {
    for config in ["configs/example/config.yaml", "configs/config.yaml"] {
        let output = toron(&["check", "--strict", "-c", config]);
        let shown = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), errors.as_str()),
            (Some(0), ""),
            "{config}"
        );
        assert!(shown.ends_with(": good\n"), "{shown}");
        for line in shown.lines() {
            assert!(line.chars().count() <= 100, "{config}: {line}");
        }
    }
}
