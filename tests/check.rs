//! `toron check`, run as an operator runs it.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of its own that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("toron-check-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (file, text) in files {
            std::fs::write(path.join(file), text).unwrap();
        }
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn toron(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command
        .args(arguments)
        .current_dir(folder)
        .env_remove("TORON_ADMIN_KEY")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn three_faults_are_three_places_with_suggestions() {
    let config = "server:\n  port: 8080\n  read_timeout: 5\n";
    let routes = "\
routes:
  - prefix: /api
    target: http://127.0.0.1:9000
    algorithm: round_robbin
  - prefix: /upload
    target: 127.0.0.1:9000
";
    let folder = Folder::new("three", &[("config.yaml", config), ("routes.yaml", routes)]);
    let expected = "\
config.yaml:3:17: server.read_timeout: \"5\" has no unit (allowed: a duration such as 250ms, 5s, 1m30s, 0; did you mean \"5s\"?)
routes.yaml:4:16: routes[].algorithm: unknown value \"round_robbin\" (allowed: round_robin, least_conn, random_two, ip_hash; did you mean \"round_robin\"?)
routes.yaml:6:13: target \"127.0.0.1:9000\" has no scheme (allowed: http://host[:port][/path]; did you mean \"http://127.0.0.1:9000\"?)
";
    for arguments in [
        &["check"][..],
        &["-t"],
        &["check", "-c", "config.yaml", "-r", "routes.yaml"],
    ] {
        let output = toron(&folder.0, arguments);
        assert_eq!(text(&output.stderr), expected);
        assert_eq!(text(&output.stdout), "");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_good_configuration_is_shown_as_it_holds() {
    let config =
        "server:\n  listen: [\"127.0.0.1:8080\", \"[::1]:8081\"]\n  max_body_bytes: 1MiB\n";
    let routes = "\
routes:
  - prefix: /
    status: 404
  - host: example.com
    prefix: /upload
    method: post
    targets: [http://10.0.0.1:9000, {url: http://10.0.0.2:9000/v1, weight: 3}]
    max_body_bytes: 200MiB
    read_timeout: 1m30s
";
    let folder = Folder::new("good", &[("config.yaml", config), ("routes.yaml", routes)]);
    let output = toron(&folder.0, &["check"]);
    assert_eq!(
        text(&output.stderr),
        "routes.yaml:4:5: warning: upgraded connections hold their slot until they end: the cap of the \
         guardrail can be filled by tunnels (set max_concurrency)\n"
    );
    assert_eq!(
        text(&output.stdout),
        "\
listen           127.0.0.1:8080, [::1]:8081
engine           auto
reactors         128
request head     8KiB and 100 fields within 5s (the stricter of server and firewall)
idle clients     closed after 30s
upstreams        connect 10s, 100 idle connections per target for 30s, names anew every 30s
trusted proxies  none
firewall         on, 100 requests/s (burst 200) from an address, blocked for 5m after 10 violations,
                 50 connections from an address, 10000 connections in all
admin            no key: everything below /internal/ is 404
logs             access off, errors to standard error, level info
shutdown         drain delay 0s, grace 30s

ROUTE                      TARGET        CEILING         CAP
example.com/upload [POST]  2 targets     200MiB (route)  32 (guardrail)
  targets http://10.0.0.1:9000, http://10.0.0.2:9000/v1 (weight 3)
  strip_prefix on: /upload/x goes to http://10.0.0.1:9000/x
  round_robin, retries 1, preserve_host on, rewrite_redirects on, rewrite_cookie_path on
  read 1m30s (route), write 5s (default), body off (route), body rate 100B/s (default),
  response header 10s (default), upstream idle 1m (default), upgrade idle 1m (default),
  chunked normalize (default)
/                          responds 404  1MiB (server)   none (default)
  answers with no body
  read 5s (default), write 5s (default)

config.yaml, routes.yaml: good, with 1 warning
"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn conditions_and_settings_of_the_process_are_shown() {
    let config = "\
server: {engine: epoll, idle_timeout: 0, via: on, shutdown_grace: 10s}
proxy: {transport: {max_idle_per_target: 0}}
firewall: {trusted_proxies: [10.0.0.0/8, 192.0.2.1]}
admin: {key: secret}
logging: {access_log: a.log, error_log: e.log, level: warn}
";
    let routes = "\
routes:
  - prefix: /api
    headers: {X-Tier: beta, X-Kind: a b}
    target: http://10.0.0.1:9000/v1
    strip_prefix: off
    retries: 3
    request_deadline: 10s
";
    let folder = Folder::new("shown", &[("config.yaml", config), ("routes.yaml", routes)]);
    let output = toron(&folder.0, &["check", "--strict"]);
    assert_eq!(text(&output.stderr), "");
    let shown = text(&output.stdout);
    for line in [
        "engine           epoll",
        "idle clients     stay connected",
        "upstreams        connect 10s, no idle connections, names anew every 30s",
        "trusted proxies  10.0.0.0/8, 192.0.2.1/32",
        "admin            /internal/ with the key from 127.0.0.1/32, ::1/128",
        "logs             access to a.log, errors to e.log, level warn",
        "shutdown         drain delay 0s, grace 10s",
        "via              on",
        "  only requests with X-Kind: a b and X-Tier: beta",
        "  strip_prefix off: /api/x goes to http://10.0.0.1:9000/v1/api/x",
        "  round_robin, retries 3, preserve_host on",
        "config.yaml, routes.yaml: good",
    ] {
        assert!(shown.lines().any(|l| l == line), "{line}:\n{shown}");
    }
    assert!(shown.contains("request deadline 10s (route)"), "{shown}");
}

#[test]
fn the_last_line_counts_warnings_and_strict_refuses_them() {
    let config = "server:\n  watch: on\n  max_body_bytes: 0\n";
    let routes = "routes:\n  - target: http://127.0.0.1:9000\n    algorithm: ip_hash\n";
    let folder = Folder::new(
        "strict",
        &[("config.yaml", config), ("routes.yaml", routes)],
    );
    for (arguments, verdict, status) in [
        (&["check"][..], "good, with 1 warning", 0),
        (
            &["check", "--strict"],
            "refused by --strict, with 1 warning",
            1,
        ),
    ] {
        let output = toron(&folder.0, arguments);
        let last = text(&output.stdout).lines().last().unwrap();
        assert_eq!(last, format!("config.yaml, routes.yaml: {verdict}"));
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(text(&output.stderr).lines().count(), 1);
    }
}

#[test]
fn recipes_for_uploads_reports_and_streams_load_as_they_are() {
    let config = "\
server:
  host: \"0.0.0.0\"
  port: 8080
  worker_pool_size: 128
  read_timeout: 5s
  write_timeout: 5s
  max_body_bytes: 4194304             # 4 MB global ceiling
  inbound_chunked_mode: \"normalize\"
discovery:
  enabled: true
  engine: \"auto\"
  socket_path: \"auto\"
  poll_interval: 10s
  default_weight: 1
";
    let routes = "\
routes:
  - type: \"upstream\"
    prefix: \"/legacy/upload\"
    target: \"http://storage-backend:9000\"
    max_body_bytes: 209715200          # 200 MB route ceiling
    max_concurrency: 16
    read_timeout: 10s
    stream_request_body: true
  - type: \"upstream\"
    prefix: \"/api\"
    target: \"http://api-service:8080\"
  - type: \"upstream\"
    prefix: \"/legacy/reports\"
    target: \"http://analytics-backend:8080\"
    max_concurrency: 8
    response_header_timeout: 60s
    write_timeout: 30s
  - type: \"upstream\"
    prefix: \"/legacy/stream-upload\"
    target: \"http://ingest-node:9002\"
    inbound_chunked_mode: \"passthrough\"
    max_body_bytes: 524288000
    read_timeout: 15s
    stream_request_body: true
";
    let folder = Folder::new(
        "recipes",
        &[("toron.yaml", config), ("routes.yaml", routes)],
    );
    let output = toron(&folder.0, &["check"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows: Vec<Vec<&str>> = text(&output.stdout)
        .lines()
        .filter(|line| line.starts_with('/'))
        .map(|line| {
            line.split("  ")
                .filter(|cell| !cell.is_empty())
                .map(str::trim)
                .collect()
        })
        .collect();
    let keys: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(
        keys,
        [
            "/legacy/stream-upload",
            "/legacy/reports",
            "/legacy/upload",
            "/api"
        ]
    );
    let ceilings: Vec<&str> = rows.iter().map(|row| row[2]).collect();
    assert_eq!(
        ceilings,
        [
            "500MiB (route)",
            "4MiB (server)",
            "200MiB (route)",
            "4MiB (server)"
        ]
    );
    let caps: Vec<&str> = rows
        .iter()
        .map(|row| row[3].split([' ', ',']).next().unwrap())
        .collect();
    assert_eq!(caps, ["32", "8", "16", "none"]);
}

#[test]
fn missing_files_are_said() {
    let folder = Folder::new("missing", &[("config.yaml", "server: {}\n")]);
    let output = toron(&folder.0, &["check", "-r", "nowhere.yaml"]);
    assert_eq!(
        text(&output.stderr),
        "nowhere.yaml: cannot be read: No such file or directory (os error 2)\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let output = toron(&folder.0, &["check"]);
    assert_eq!(
        text(&output.stderr),
        "config.yaml: there are no routes: neither routes: here nor routes.yaml beside this file (name \
         one with --routes)\n"
    );
}

#[test]
fn the_demo_s_files_are_good() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = toron(here, &["check", "-c", "configs/config.yaml"]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stdout).contains("/small"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn a_bad_command_line_is_2() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = toron(here, &["chekc"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("toron: unknown command \"chekc\""));
    let output = toron(here, &["--version"]);
    assert!(text(&output.stdout).starts_with(concat!("toron ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn the_ready_profiles_of_the_firewall_are_good() {
    let profiles = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/firewall");
    let mut seen = 0;
    for entry in std::fs::read_dir(profiles).unwrap() {
        let path = entry.unwrap().path();
        let profile = std::fs::read_to_string(&path).unwrap();
        let routes = "routes: [{target: 'http://127.0.0.1:9000'}]\n";
        let folder = Folder::new(
            "profile",
            &[("config.yaml", &profile), ("routes.yaml", routes)],
        );
        let output = toron(&folder.0, &["check"]);
        assert!(
            output.status.success(),
            "{path:?}: {}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stderr), "", "{path:?}");
        seen += 1;
    }
    assert_eq!(seen, 3);
}

#[test]
fn a_log_that_cannot_be_written_is_a_fault_with_its_place() {
    let config = "\
logging:
  error_log: nowhere/error.log
  access_log: .
routes:
  - prefix: /
    status: 404
";
    let folder = Folder::new("logs", &[("config.yaml", config)]);
    let expected = "\
config.yaml:2:14: logging.error_log: \"nowhere/error.log\" is in a folder that does not exist (allowed: a file, there or not, in a folder that exists)
config.yaml:3:15: logging.access_log: \".\" is a folder (allowed: a file, there or not, in a folder that exists)
";
    let output = toron(&folder.0, &["check"]);
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_word_where_a_log_file_is_named_is_a_fault() {
    let config = "\
logging:
  error_log: stderr
  access_log: syslog
routes:
  - prefix: /
    status: 404
";
    let folder = Folder::new("log_words", &[("config.yaml", config)]);
    let expected = "\
config.yaml:2:14: logging.error_log: \"stderr\" is no path (allowed: a path; without one it is standard error)
config.yaml:3:15: logging.access_log: \"syslog\" is no path (allowed: a path, stdout, off)
";
    let output = toron(&folder.0, &["check"]);
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_the_firewall_does_is_shown_and_trust_in_everybody_is_warned_of() {
    let routes = "routes:\n  - prefix: /\n    status: 404\n";
    let config = format!(
        "firewall: {{trusted_proxies: [\"::/0\"], mode: observe, rate_limit_rps: 0, deny: [192.0.2.0/24]}}\n{routes}"
    );
    let folder = Folder::new("firewall", &[("config.yaml", &config)]);
    let output = toron(&folder.0, &["check"]);
    let shown = text(&output.stdout).replace('\n', " ");
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "firewall observes, refuses only beyond the cap in all, any rate, blocked for 5m after 10 violations, ",
        "50 connections from an address, 10000 connections in all, denied 192.0.2.0/24",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    let warned = text(&output.stderr);
    let warning = "config.yaml:1:29: warning: firewall.trusted_proxies: ::/0 is every address: ";
    assert!(warned.starts_with(warning), "{warned}");
}

#[test]
fn a_misspelt_key_of_a_fixed_answer_is_recognised() {
    let routes = "routes:\n  - {prefix: /n, staus: 204}\n  - {prefix: /m, boddy: x}\n";
    let folder = Folder::new("answers", &[("config.yaml", routes)]);
    let output = toron(&folder.0, &["check"]);
    let faults = text(&output.stderr);
    for meant in ["did you mean \"status\"?", "did you mean \"body\"?"] {
        assert!(faults.contains(meant), "{faults}");
    }
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn prefixes_written_as_patterns_are_told_apart() {
    let routes = "\
routes:
  - {prefix: '= /x', status: 200}
  - {prefix: '~ ^/y', status: 200}
  - {prefix: api, status: 200}
";
    let folder = Folder::new("patterns", &[("config.yaml", routes)]);
    let output = toron(&folder.0, &["check"]);
    let expected = "\
config.yaml:2:14: routes[].prefix: \"= /x\" does not begin with a slash; it is a plain prefix, without operators
config.yaml:3:14: routes[].prefix: \"~ ^/y\" does not begin with a slash; it is a plain prefix, without operators
config.yaml:4:14: routes[].prefix: \"api\" does not begin with a slash (did you mean \"/api\"?)
";
    let faults = text(&output.stderr);
    let faults: Vec<&str> = faults
        .lines()
        .filter(|line| line.contains("slash"))
        .collect();
    assert_eq!(faults.join("\n"), expected.trim_end());

    let star = "routes:\n  - {prefix: /x/*, status: 200}\n";
    let folder = Folder::new("star", &[("config.yaml", star)]);
    let output = toron(&folder.0, &["check"]);
    let warned = text(&output.stderr);
    assert!(
        warned.contains("warning: the * in the prefix stands for itself"),
        "{warned}"
    );
    assert_eq!(output.status.code(), Some(0));
}
