//! `toron explain`: what it says is what happens, offline and by the admin API of a toron that runs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::process::{Command, Output};

use serde_json::{json, Value};
use support::client::Client;
use support::http::Head;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::upstream::Upstream;
use support::{TempDir, PATIENCE};

const ROUTES: &str = "  - {prefix: /api, host: example.com, target: 'http://UP/v1', max_concurrency: 5}
  - {prefix: /api, host: example.com, headers: {X-Version: canary}, target: 'http://UP/canary', preserve_host: false}
  - {prefix: /api/users, method: [POST, PUT], target: 'http://UP', max_body_bytes: 1000, read_timeout: 1m}
  - {prefix: /Api, target: 'http://UP/case'}
  - {prefix: /ap, status: 204}
  - {prefix: /keep, strip_prefix: false, target: 'http://UP', inbound_chunked_mode: reject}
  - {prefix: /fixed, status: 403, body: no, headers: {X-Why: because}}
";

struct Place {
    toron: Toron,
    upstream: Upstream,
}

fn start(engine: Engine) -> Place {
    let upstream = Upstream::start();
    let mut settings = Settings::new(engine, vec![Route::new("/only", &upstream.addr)]);
    settings.admin_key = Some("k".into());
    settings.firewall = vec![
        ("rate_limit_rps", "0".into()),
        ("deny", "[192.0.2.66]".into()),
        ("trusted_proxies", "[192.0.2.1]".into()),
    ];
    settings.further_routes = ROUTES.replace("UP", &upstream.addr.to_string());
    let toron = Toron::start(&settings);
    Place { toron, upstream }
}

fn toron(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    let command = command.arg("explain").args(arguments);
    command.env_remove("TORON_ADMIN_KEY").output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn running(place: &Place, arguments: &[&str]) -> Value {
    let admin = format!("http://{}", place.toron.addr);
    let mut all = vec!["--running", "--json", "--key", "k", "--admin", &admin];
    all.extend(arguments);
    let output = toron(&all);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_str(&said(&output)).unwrap()
}

/// Method, target in the first line and fields of the requests that are both explained and sent.
const REQUESTS: &[(&str, &str, &[&str])] = &[
    (
        "GET",
        "http://example.com/api/a%2Fb/%7ec?x=%2F",
        &["Cookie: a=b; c"],
    ),
    (
        "GET",
        "http://example.com:8080/api",
        &["X-Version: canary", "X-Forwarded-For: 1.2.3.4"],
    ),
    (
        "GET",
        "http://example.com/api/./x",
        &["Connection: X-A, close", "X-A: 1", "TE: trailers"],
    ),
    ("GET", "http://other/api/x", &[]),
    ("PUT", "http://other/api/users", &["Content-Length: 0"]),
    ("PUT", "http://other/api/users", &["Content-Length: 1001"]),
    ("GET", "http://other/api/users", &[]),
    (
        "PATCH",
        "http://other/api/users",
        &["Content-Length: 99999999"],
    ),
    ("GET", "http://other/Api/x", &["x_under: 1"]),
    ("GET", "http://other/apix", &[]),
    ("HEAD", "http://other/ap/", &[]),
    (
        "POST",
        "http://other/keep/x",
        &["Transfer-Encoding: chunked"],
    ),
    (
        "POST",
        "http://other/keep/x",
        &["Expect: a reward", "Content-Length: 3"],
    ),
    (
        "GET",
        "http://other/keep//x/",
        &["Upgrade: websocket", "Connection: upgrade"],
    ),
    ("GET", "http://other/fixed", &[]),
    ("GET", "http://other/health", &[]),
    ("POST", "http://other/health", &["Content-Length: 0"]),
    ("GET", "http://other/internal/api/status", &[]),
    (
        "GET",
        "http://other/internal/api/status",
        &["X-Toron-Admin-Key: k", "Via: 1.1 x"],
    ),
    ("GET", "http://other/metrics", &[]),
    ("GET", "http://other/metrics", &["Via: 1.1 x"]),
    ("PUT", "http://other/metrics", &["Content-Length: 0"]),
    ("OPTIONS", "*", &["Host: a"]),
    ("GET", "*", &["Host: a"]),
    ("GET", "/fixed", &[]),
    ("GET", "/fixed", &["Host: a", "Host: b"]),
    (
        "GET",
        "/fixed",
        &["Host: a", "Content-Length: 1", "Transfer-Encoding: chunked"],
    ),
    (
        "GET",
        "/fixed",
        &["Host: a", "Transfer-Encoding: gzip, chunked"],
    ),
    ("GET", "http://user@other/fixed", &[]),
    ("GET", "http://other/x/../../y", &[]),
    ("GET", "http://other/x#y", &[]),
    ("GET", "http://other/%00", &[]),
    ("CONNECT", "http://other/", &[]),
    ("G(T", "http://other/", &[]),
];

/// The head as a client would send it, which is what `toron explain` is to think of.
fn head(method: &str, url: &str, fields: &[&str]) -> String {
    let mut lines = String::new();
    let target = match url.strip_prefix("http://") {
        None => url.to_owned(),
        Some(rest) => {
            let end = rest.find('/').unwrap();
            lines = format!("Host: {}\r\n", &rest[..end]);
            rest[end..].to_owned()
        }
    };
    for field in fields {
        lines.push_str(&format!("{field}\r\n"));
    }
    format!("{method} {target} HTTP/1.1\r\n{lines}\r\n")
}

/// All that reached the upstream, each with a line of its own.
fn heads(place: &Place) -> Vec<Head> {
    let all = place.upstream.connections();
    all.iter().flat_map(|c| c.heads().cloned()).collect()
}

/// What is explained is sent, and answered or passed on as it was explained.
#[test]
fn what_is_explained_is_what_happens() {
    for engine in Engine::ALL {
        let place = start(engine);
        for (method, url, fields) in REQUESTS {
            let mut arguments = vec![*method, *url];
            for field in *fields {
                arguments.extend(["-H", *field]);
            }
            let told = running(&place, &arguments);
            let before = heads(&place).len();
            let mut client = Client::connect(place.toron.addr, PATIENCE).unwrap();
            let request = head(method, url, fields);
            client.send(request.as_bytes(), PATIENCE);
            assert!(
                client.receive_responses(1, PATIENCE),
                "{request}: no answer"
            );
            let response = client.parsed().responses.remove(0);
            let context = format!("{request}{told:#}");
            let heads = heads(&place);
            if told["outcome"] == "forwarded" {
                assert_eq!(heads.len(), before + 1, "{context}");
                let line = told["upstream"]["request_line"].as_str().unwrap();
                let seen = heads.iter().find(|head| head.start_line == line);
                let seen = seen.unwrap_or_else(|| panic!("{context} not among {heads:?}"));
                let seen: Vec<(String, String)> = seen.fields.clone();
                let expected: Vec<(String, String)> =
                    serde_json::from_value(told["upstream"]["headers"].clone()).unwrap();
                let without_id = |fields: Vec<(String, String)>| -> Vec<(String, String)> {
                    fields
                        .into_iter()
                        .filter(|(name, _)| name != "X-Request-Id")
                        .collect()
                };
                assert_eq!(without_id(seen), without_id(expected), "{context}");
            } else {
                assert_eq!(heads.len(), before, "{context} went upstream");
                assert_eq!(told["status"], response.status, "{context}");
                let body = String::from_utf8(response.body).unwrap();
                let is_the_same_always = !(told["outcome"] == "built_in" && told["body"].is_null());
                if *method != "HEAD" && is_the_same_always {
                    assert_eq!(told["body"].as_str().unwrap_or_default(), body, "{context}");
                }
                let allow = told["allow"].as_str();
                if allow.is_some() {
                    assert_eq!(response.head.first("allow"), allow, "{context}");
                }
            }
        }
    }
}

fn files(dir: &TempDir) -> String {
    let path = dir.join("config.yaml");
    let text = format!(
        "server: {{read_timeout: 7s, port: 0}}\nadmin: {{key: k}}\n\
         firewall: {{deny: [192.0.2.66], trusted_proxies: [192.0.2.1]}}\nroutes:\n{}",
        ROUTES.replace("UP", "127.0.0.1:9000")
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The admin API is not there for anybody, whatever keeps them away from it elsewhere.
#[test]
fn the_admin_api_on_a_listener_of_its_own_is_not_on_that_of_the_traffic() {
    let dir = TempDir::new("explain-listen");
    let config = files(&dir);
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("{key: k}", "{key: k, listen: '127.0.0.1:9901'}");
    std::fs::write(&config, text).unwrap();
    for url in ["http://a/internal/api/status", "http://a/metrics"] {
        let output = toron(&["-c", &config, "--json", "GET", url]);
        let told: Value = serde_json::from_str(&said(&output)).unwrap();
        assert_eq!(
            (&told["reason"], &told["status"]),
            (&json!("no_route"), &json!(404)),
            "{url}"
        );
    }
}

#[test]
fn each_route_that_came_near_is_told_with_its_reason() {
    let dir = TempDir::new("explain");
    let config = files(&dir);
    let request = [
        "GET",
        "http://example.com/api/users/7?q",
        "-H",
        "X-Version: beta",
    ];
    let mut arguments = vec!["-c", &config, "--json"];
    arguments.extend(request);
    let told: Value = serde_json::from_str(&said(&toron(&arguments))).unwrap();
    assert_eq!(told["route"]["route"], "example.com/api");
    assert_eq!(told["route"]["place"], format!("{config}:5"));
    assert_eq!(
        told["upstream"]["request_line"],
        "GET /v1/users/7?q HTTP/1.1"
    );
    let limit = |name: &str| {
        let all = told["limits"].as_array().unwrap();
        let found = all.iter().find(|limit| limit["name"] == name).unwrap();
        ["value", "set_by", "place"].map(|key| found[key].clone())
    };
    let at = |line: u32| json!(format!("{config}:{line}"));
    let expected = [json!("7s"), json!("server"), at(1)];
    assert_eq!(limit("read_timeout"), expected);
    assert_eq!(limit("max_concurrency"), [json!(5), json!("route"), at(5)]);
    let expected = [json!("5s"), json!("default"), Value::Null];
    assert_eq!(limit("write_timeout"), expected);
    let others: Vec<(String, String)> = told["considered"]
        .as_array()
        .unwrap()
        .iter()
        .map(|other| {
            (
                other["route"].as_str().unwrap().to_owned(),
                other["why"][0].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let expected = [
        ("/api/users [POST,PUT]", "GET is not POST or PUT"),
        (
            "example.com/api {X-Version=canary}",
            "the header X-Version is beta (asked for: canary)",
        ),
        ("/Api", "/Api differs from the path in upper and lower case"),
        ("/ap", "/ap ends in the middle of a segment of the path"),
    ];
    assert_eq!(others, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    assert_eq!(told["further"], 2);

    // For people, in a terminal of 100 columns, however long the request is.
    let long = format!("Cookie: {}", "crumb".repeat(100));
    arguments.retain(|argument| *argument != "--json");
    arguments.extend(["-H", &long]);
    let text = said(&toron(&arguments));
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for part in [
        "passed on\n  route example.com/api at ",
        "GET /v1/users/7?q HTTP/1.1\n",
        "    GET is not POST or PUT\n",
        "  and 2 more that are further off\n",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn a_route_that_would_do_as_well_is_told_why_it_comes_later() {
    let dir = TempDir::new("explain");
    let config = files(&dir);
    let told = |arguments: &[&str]| -> Value {
        let mut all = vec!["-c", config.as_str(), "--json"];
        all.extend(arguments);
        serde_json::from_str(&said(&toron(&all))).unwrap()
    };
    let canary = told(&["http://example.com/api", "-H", "X-Version: canary"]);
    assert_eq!(
        canary["route"]["route"],
        "example.com/api {X-Version=canary}"
    );
    let second = &canary["considered"][0];
    assert_eq!(
        (&second["route"], &second["matches"]),
        (&json!("example.com/api"), &json!(true))
    );
    assert_eq!(
        second["why"][0],
        "matches as well, but the other asks for more headers"
    );
    let denied = told(&["http://example.com/api", "--from", "192.0.2.66"]);
    assert_eq!(
        (&denied["status"], &denied["reason"]),
        (&json!(403), &json!("denied"))
    );
    let fields = ["-H", "X-Forwarded-For: 192.0.2.66"];
    let behind = told(&[
        "http://example.com/api",
        "--from",
        "192.0.2.1",
        fields[0],
        fields[1],
    ]);
    assert_eq!(
        (&behind["status"], &behind["request"]["client"]),
        (&json!(403), &json!("192.0.2.66"))
    );
}

#[test]
fn mistakes_are_told() {
    let dir = TempDir::new("explain");
    let config = files(&dir);
    let broken = dir.join("broken.yaml");
    std::fs::write(&broken, "routes: [{prefix: x, target: 'http://a'}]").unwrap();
    let broken = broken.to_str().unwrap();
    for (arguments, status, said) in [
        (
            &["-c", broken, "http://a/"][..],
            1,
            "broken.yaml:1:19: routes[].prefix: \"x\" does not begin with a slash",
        ),
        (
            &["-c", &config, "a/b"],
            1,
            "toron: \"a/b\" is not a URL that can be asked for",
        ),
        (
            &["-c", &config, "http://a/", "-H", "x"],
            1,
            "toron: \"x\" is not a header",
        ),
        (
            &["-c", &config, "http://a/", "--running"],
            1,
            "toron: the files leave the port of toron open",
        ),
        (
            &[
                "-c",
                broken,
                "http://a/",
                "--running",
                "--admin",
                "http://127.0.0.1:1",
            ],
            1,
            "toron: the admin API needs a key",
        ),
        (
            &["http://a/", "--admin", "x"],
            2,
            "--admin and --key belong to --running",
        ),
    ] {
        let output = toron(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(errors.contains(said), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_toron_that_runs_tells_what_holds_at_this_moment() {
    for engine in Engine::ALL {
        let place = start(engine);
        let mut told = running(&place, &["http://example.com/api"]);
        let notes = told["notes"].take();
        assert_eq!(notes, json!(["slots of the route in use: 0 of 5"]));
        let block = "POST /internal/api/firewall/block?address=192.0.2.7&duration=5m HTTP/1.1\r\nHost: t\r\nX-Toron-Admin-Key: k\r\nContent-Length: 0\r\n\r\n";
        let mut client = Client::connect(place.toron.addr, PATIENCE).unwrap();
        client.send(block.as_bytes(), PATIENCE);
        assert!(client.receive_responses(1, PATIENCE));
        let told = running(&place, &["http://example.com/api", "--from", "192.0.2.7"]);
        let note = told["notes"][0].as_str().unwrap();
        assert!(
            note.starts_with("192.0.2.7/32 is blocked for another "),
            "{note}"
        );
        let outcome = |told: &Value| {
            (
                told["outcome"].clone(),
                told["status"].clone(),
                told["reason"].clone(),
            )
        };
        assert_eq!(
            outcome(&told),
            (json!("refused"), json!(403), json!("blocked"))
        );

        let admin = format!("http://{}", place.toron.addr);
        let wrong = toron(&["http://a/", "--running", "--admin", &admin, "--key", "no"]);
        let errors = String::from_utf8(wrong.stderr).unwrap();
        assert_eq!(wrong.status.code(), Some(1));
        assert!(errors.contains("does not know this admin key"), "{errors}");
    }
}

#[test]
fn a_route_whose_targets_are_all_out_is_refused_by_a_toron_that_runs() {
    for engine in Engine::ALL {
        // Bound, so that nobody else gets the port, and never listened on.
        let nobody =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
        nobody.bind(&any.into()).unwrap();
        let addr = nobody.local_addr().unwrap().as_socket().unwrap();
        let mut settings = Settings::new(engine, vec![Route::new("/only", &addr.to_string())]);
        settings.admin_key = Some("k".into());
        settings.further_routes = format!(
            "  - {{prefix: /dead, target: 'http://{addr}', health_check_path: /, \
             health_check_interval: 100ms, consecutive_failures: 1}}\n"
        );
        let toron = Toron::start(&settings);
        let is_out =
            |line: &str| line.contains("route /dead: target") && line.contains(" is out, ");
        toron
            .process()
            .wait_line(PATIENCE, |line| is_out(line).then_some(()));
        let upstream = Upstream::start();
        let place = Place { toron, upstream };
        let told = running(&place, &["http://example.com/dead"]);
        assert_eq!(told["outcome"], "refused", "{told}");
        assert_eq!(
            (&told["status"], &told["reason"]),
            (&json!(503), &json!("targets_unhealthy"))
        );
        let notes = told["notes"].as_array().unwrap();
        assert!(
            notes
                .iter()
                .any(|n| n.as_str().unwrap().contains(": out after ")),
            "{told}"
        );
    }
}
