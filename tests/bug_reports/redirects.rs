//! S12: redirects and cookies under a stripped prefix.

use crate::support::setup::{Engine, Route, Settings};
use crate::support::toron::Toron;
use crate::support::upstream::{Script, Step, Upstream};
use crate::support::PATIENCE;
use crate::{connect, get, on_every_engine};

/// What an upstream says that believes to be at `/`, and what the client must see, behind `/app`. `UP`
/// is the upstream's authority.
const S12_LOCATIONS: &[(&str, &str)] = &[
    ("/login", "/app/login"),
    ("/", "/app/"),
    ("/login?next=/x#y", "/app/login?next=/x#y"),
    ("/a//b/%2e", "/app/a//b/%2e"),
    ("http://UP/bar/", "http://t.example/app/bar/"),
    ("http://UP", "http://t.example/app/"),
    ("http://UP?code=1", "http://t.example/app/?code=1"),
    ("HTTP://UP/x", "http://t.example/app/x"),
    (
        "https://login.example/auth?next=/x",
        "https://login.example/auth?next=/x",
    ),
    ("http://UP.evil.example/x", "http://UP.evil.example/x"),
    ("http://UP@evil.example/x", "http://UP@evil.example/x"),
    ("//cdn.example/x", "//cdn.example/x"),
    ("next", "next"),
    ("../up", "../up"),
    ("?q=/x", "?q=/x"),
];

const S12_COOKIES: &[(&str, &str)] = &[
    ("sid=1; Path=/; HttpOnly", "sid=1; Path=/app; HttpOnly"),
    ("sid=2; path=/x;Secure", "sid=2; path=/app/x;Secure"),
    ("v=path=/evil; Path=/", "v=path=/evil; Path=/app"),
    ("path=/x; Secure", "path=/x; Secure"),
    ("plain=1; Secure", "plain=1; Secure"),
    ("__Host-a=1; Path=/; Secure", "__Host-a=1; Path=/; Secure"),
    (
        "d=1; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Path=/d",
        "d=1; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Path=/app/d",
    ),
];

/// An answer with this Location and all cookies, each on a line of its own.
fn answer(location: &str) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\n");
    for (sent, _) in S12_COOKIES {
        head.push_str(&format!("Set-Cookie: {sent}\r\n"));
    }
    // Neither of these is a redirect or a cookie.
    head.push_str("Link: </style.css>; rel=preload\r\nX-Path: /x\r\nContent-Length: 0\r\n\r\n");
    head.into_bytes()
}

/// What a client gets of `path`: Location, cookies.
fn seen(toron: &Toron, path: &str) -> (String, Vec<String>) {
    let mut client = connect(toron);
    client.send(&get(path), PATIENCE);
    assert!(client.receive_responses(1, PATIENCE), "{path}: no answer");
    let response = client.parsed().responses.remove(0);
    let head = &response.head;
    assert_eq!(head.first("link"), Some("</style.css>; rel=preload"));
    assert_eq!(head.first("x-path"), Some("/x"));
    let cookies = head.all("set-cookie").into_iter().map(str::to_owned);
    (
        head.first("location").unwrap().to_owned(),
        cookies.collect(),
    )
}

fn s12_redirects_and_cookies(engine: Engine) {
    let upstream = Upstream::start();
    let authority = upstream.addr.to_string();
    let stripped = |prefix: &str, extra: &[(&'static str, &str)]| {
        let mut route = Route::new(prefix, &upstream.addr);
        route.strip_prefix = true;
        route.extra = extra.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        route
    };
    let plain = [("rewrite_redirects", "off"), ("rewrite_cookie_path", "off")];
    let routes = vec![
        stripped("/app", &[]),
        stripped("/as-is", &plain),
        Route::new("/whole", &upstream.addr),
    ];
    let toron = Toron::start(&Settings::new(engine, routes));
    let cookies =
        |pick: fn(&(&str, &str)) -> String| S12_COOKIES.iter().map(pick).collect::<Vec<_>>();
    for (sent, wanted) in S12_LOCATIONS {
        let [sent, wanted] = [sent, wanted].map(|text| text.replace("UP", &authority));
        upstream.begin(Script {
            answers: vec![vec![Step::Send(answer(&sent))]],
            repeat_last: true,
            ..Script::default()
        });
        assert_eq!(
            seen(&toron, "/app/x"),
            (wanted, cookies(|c| c.1.to_owned())),
            "{sent}"
        );
        // Nothing is mapped back where nothing was stripped, or where it is not wanted.
        for path in ["/whole/x", "/as-is/x"] {
            let left = (sent.clone(), cookies(|c| c.0.to_owned()));
            assert_eq!(seen(&toron, path), left, "{sent} at {path}");
        }
    }
}

#[test]
fn s12_r8_r9_r10_redirects_and_cookies_under_a_stripped_prefix() {
    on_every_engine(s12_redirects_and_cookies);
}
