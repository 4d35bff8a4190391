//! Judges what was seen in a case. Pure: every check is a function of `Expect` and what was seen, so
//! that the judge can be tried as well (tests/rig.rs).

use std::time::Duration;

use super::case::{ClientSees, Expect, UpstreamSees};
use super::http::{Head, Received, Request, Response};
use super::upstream::Connection;
use super::{contains, from_latin1, show, to_latin1};

/// What the client of a case has seen.
#[derive(Clone, Debug, Default)]
pub struct ClientSaw {
    pub received: Vec<u8>,
    pub parsed: Received,
    /// The proxy has closed the connection.
    pub closed: bool,
    /// This side has closed or reset it.
    pub closed_here: bool,
    pub head_after: Option<Duration>,
    pub first_body_byte_after: Option<Duration>,
}

/// A list of what is wrong.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn check(&mut self, good: bool, fault: impl FnOnce() -> String) {
        if !good {
            self.0.push(fault());
        }
    }
}

/// Checks statuses, framing and everything of `client_sees`.
pub fn client(expect: &Expect, saw: &ClientSaw) -> Vec<String> {
    let mut faults = Faults::default();
    if let Some(error) = &saw.parsed.error {
        faults
            .0
            .push(format!("client received what is no HTTP response: {error}"));
    }
    if saw.closed && !saw.parsed.unfinished.is_empty() {
        let part = show(&saw.parsed.unfinished);
        faults
            .0
            .push(format!("connection closed inside a response head: {part}"));
    }
    statuses(expect, saw, &mut faults);
    match expect.connection_closed_after {
        Some(true) => faults.check(saw.closed, || "connection not closed by the proxy".into()),
        Some(false) => faults.check(!saw.closed, || "connection closed by the proxy".into()),
        None => {}
    }
    client_sees(&expect.client_sees, saw, &mut faults);
    faults.0
}

fn statuses(expect: &Expect, saw: &ClientSaw, faults: &mut Faults) {
    let seen: Vec<u16> = saw.parsed.responses.iter().map(|r| r.status).collect();
    let one = vec![expect.status.clone()];
    let sequence = expect.status_seq.as_ref().unwrap_or(&one);
    for (i, allowed) in sequence.iter().enumerate() {
        let outcome = seen.get(i).copied();
        // Nothing received and still open is no outcome at all.
        if outcome.is_none() && !saw.closed && !saw.closed_here {
            faults.0.push(format!("response {} did not come", i + 1));
            return;
        }
        if !allowed.iter().any(|a| a.allows(outcome)) {
            let was = outcome.map_or("close-without-response".into(), |s| s.to_string());
            faults
                .0
                .push(format!("response {}: {was}, allowed {allowed:?}", i + 1));
        }
        if outcome.is_none() {
            break;
        }
    }
    if let Some(count) = expect.response_count {
        faults.check(seen.len() == count, || {
            format!("{} responses, not {count}", seen.len())
        });
    }
}

fn client_sees(sees: &ClientSees, saw: &ClientSaw, faults: &mut Faults) {
    for text in &sees.never_bytes {
        let found = contains(&saw.received, &from_latin1(text));
        faults.check(!found, || format!("client received {text:?}"));
    }
    let heads = |r: &Response| {
        r.interim
            .iter()
            .chain([&r.head])
            .cloned()
            .collect::<Vec<Head>>()
    };
    let all_heads: Vec<Head> = saw.parsed.responses.iter().flat_map(heads).collect();
    for text in &sees.header_section_never {
        let found = all_heads
            .iter()
            .any(|h| contains(&h.raw, &from_latin1(text)));
        faults.check(!found, || format!("a response head holds {text:?}"));
    }
    interim(sees, saw, faults);
    if let Some(bodies) = &sees.bodies {
        let seen: Vec<String> = saw
            .parsed
            .responses
            .iter()
            .map(|r| to_latin1(&r.body))
            .collect();
        faults.check(&seen == bodies, || {
            format!("bodies {seen:?}, not {bodies:?}")
        });
    }
    if let Some(first) = saw.parsed.responses.first() {
        first_response(sees, first, saw, faults);
    }
    for name in &sees.final_headers_absent {
        for response in &saw.parsed.responses {
            let found = response.head.first(name).is_some();
            faults.check(!found, || format!("final response has {name}"));
        }
    }
    within("response head", sees.head_within_ms, saw.head_after, faults);
    within(
        "first body byte",
        sees.first_body_byte_within_ms,
        saw.first_body_byte_after,
        faults,
    );
}

fn within(what: &str, limit: Option<u64>, seen: Option<Duration>, faults: &mut Faults) {
    let Some(limit) = limit.map(Duration::from_millis) else {
        return;
    };
    let good = seen.is_some_and(|t| t <= limit);
    faults.check(good, || format!("{what} after {seen:?}, limit {limit:?}"));
}

fn interim(sees: &ClientSees, saw: &ClientSaw, faults: &mut Faults) {
    let heads = saw
        .parsed
        .responses
        .iter()
        .flat_map(|r| &r.interim)
        .chain(&saw.parsed.interim);
    let code = |h: &Head| h.start_line.split(' ').nth(1).and_then(|c| c.parse().ok());
    let seen: Vec<u16> = heads.filter_map(code).collect();
    for code in &sees.interim {
        faults.check(seen.contains(code), || {
            format!("interim {code} did not come, but {seen:?}")
        });
    }
    if let Some(allowed) = &sees.interim_allowed {
        let good = seen.iter().all(|c| allowed.contains(c));
        faults.check(good, || format!("interim {seen:?}, allowed {allowed:?}"));
    }
    faults.check(!sees.no_interim || seen.is_empty(), || {
        format!("interim {seen:?}")
    });
}

fn first_response(sees: &ClientSees, first: &Response, saw: &ClientSaw, faults: &mut Faults) {
    let head = &first.head;
    if let Some(body) = &sees.body {
        let seen = &first.body;
        faults.check(*seen == from_latin1(body), || {
            format!("body {:?}, not {body:?}", show(seen))
        });
    }
    match sees.complete {
        Some(true) => faults.check(first.complete, || "response is not complete".into()),
        // A 5xx is the proxy's own word that there was no whole answer: nothing is cut then.
        Some(false) if first.status < 500 => {
            faults.check(!first.complete, || {
                "the cut cannot be seen by the client".into()
            });
        }
        Some(false) | None => {}
    }
    for (name, value) in sees
        .headers_present
        .iter()
        .chain(&sees.first_headers_present)
    {
        let good = head.all(name).contains(&value.as_str());
        faults.check(good, || {
            format!("{name}: {:?}, not {value:?}", head.all(name))
        });
    }
    for name in sees.headers_absent.iter().chain(&sees.first_headers_absent) {
        faults.check(head.first(name).is_none(), || {
            format!("response has {name}")
        });
    }
    for (name, allowed) in &sees.header_value_in {
        let seen = head.all(name);
        let good = matches!(seen[..], [one] if allowed.iter().any(|a| a == one));
        faults.check(good, || format!("{name}: {seen:?}, allowed {allowed:?}"));
    }
    if let Some(lines) = &sees.set_cookie_lines {
        let seen = head.all("set-cookie");
        let pairs = seen.len() == lines.len()
            && seen
                .iter()
                .zip(lines)
                .all(|(s, allowed)| allowed.iter().any(|a| a == s));
        faults.check(pairs, || format!("Set-Cookie {seen:?}, allowed {lines:?}"));
    }
    if let Some((one, other)) = &sees.not_both {
        let both = head.first(one).is_some() && head.first(other).is_some();
        faults.check(!both, || format!("both {one} and {other}"));
    }
    if sees.keepalive_announced_or_closed {
        let said = head
            .all("connection")
            .iter()
            .any(|v| v.eq_ignore_ascii_case("keep-alive"));
        faults.check(said || saw.closed, || {
            "neither keep-alive announced nor closed".into()
        });
    }
}

/// Checks everything of `upstream_sees`, and that nothing malformed ever went upstream.
/// `client_end` is when the client's last step was done, as time before now.
pub fn upstream(
    sees: &UpstreamSees,
    connections: &[Connection],
    first_part: &[u64],
) -> Vec<String> {
    let mut faults = Faults::default();
    for connection in connections {
        if let Some(error) = &connection.invalid {
            faults
                .0
                .push(format!("upstream received a malformed request: {error}"));
        }
        for text in &sees.never_bytes {
            let found = contains(&connection.received, &from_latin1(text));
            faults.check(!found, || format!("upstream received {text:?}"));
        }
        for text in &sees.header_section_never {
            let found = connection
                .heads()
                .any(|h| contains(&h.raw, &from_latin1(text)));
            faults.check(!found, || format!("a head sent upstream holds {text:?}"));
        }
        for target in &sees.targets_never {
            let found = connection.heads().any(|h| h.target() == target);
            faults.check(!found, || {
                format!("upstream received a request for {target:?}")
            });
        }
        if sees.upstream_conn_closed_within_ms.is_some() && first_part.contains(&connection.id) {
            let over = connection.ended.is_some() || connection.closed_here;
            faults.check(over, || {
                "upstream connection of the aborted request not closed".into()
            });
        }
    }
    let requests: Vec<&Request> = connections.iter().flat_map(|c| &c.requests).collect();
    sequences(sees, &requests, &mut faults);
    for request in &requests {
        each_request(sees, request, &mut faults);
    }
    faults.0
}

fn sequences(sees: &UpstreamSees, requests: &[&Request], faults: &mut Faults) {
    let count = requests.len();
    if let Some(n) = sees.complete_requests {
        faults.check(count == n, || {
            format!("{count} complete requests upstream, not {n}")
        });
    }
    if let Some(max) = sees.complete_requests_max {
        faults.check(count <= max, || {
            format!("{count} complete requests upstream, at most {max}")
        });
    }
    let targets: Vec<&str> = requests.iter().map(|r| r.head.target()).collect();
    if let Some(list) = &sees.targets {
        faults.check(targets == *list, || {
            format!("targets {targets:?}, not {list:?}")
        });
    }
    if let Some(list) = &sees.targets_subset_of {
        let good = targets.iter().all(|t| list.iter().any(|l| l == t));
        faults.check(good, || format!("targets {targets:?}, allowed {list:?}"));
    }
    if let Some(list) = &sees.targets_prefix_of {
        let good = is_prefix(&targets, list);
        faults.check(good, || {
            format!("targets {targets:?} are no beginning of {list:?}")
        });
    }
    let bodies: Vec<String> = requests.iter().map(|r| to_latin1(&r.body)).collect();
    let seen: Vec<&str> = bodies.iter().map(String::as_str).collect();
    if let Some(list) = &sees.bodies {
        // With `complete_requests_max` requests may be missing, but not be different.
        let good = match sees.complete_requests_max {
            Some(_) => is_prefix(&seen, list),
            None => seen == *list,
        };
        faults.check(good, || format!("bodies {seen:?}, not {list:?}"));
    }
    if let Some(list) = &sees.bodies_if_seen {
        faults.check(is_prefix(&seen, list), || {
            format!("bodies {seen:?}, not {list:?}")
        });
    }
}

fn is_prefix(seen: &[&str], list: &[String]) -> bool {
    seen.len() <= list.len() && seen.iter().zip(list).all(|(s, l)| s == l)
}

fn each_request(sees: &UpstreamSees, request: &Request, faults: &mut Faults) {
    let head = &request.head;
    let target = head.target();
    if let Some(list) = &sees.target_in {
        let good = list.iter().any(|t| t == target);
        faults.check(good, || format!("target {target:?}, allowed {list:?}"));
    }
    if let Some(host) = &sees.host {
        let seen = head.all("host");
        faults.check(seen == [host], || format!("Host {seen:?}, not {host:?}"));
    }
    for host in &sees.host_never {
        faults.check(!head.all("host").contains(&host.as_str()), || {
            format!("Host {host:?}")
        });
    }
    if let Some(method) = &sees.method {
        faults.check(head.method() == method, || {
            format!("method {:?}", head.method())
        });
    }
    if let Some(body) = &sees.body {
        let good = request.body == from_latin1(body);
        faults.check(good, || {
            format!("upstream body {:?}, not {body:?}", show(&request.body))
        });
    }
    if let Some(len) = sees.body_len {
        let seen = request.body.len();
        faults.check(seen == len, || {
            format!("upstream body of {seen} bytes, not {len}")
        });
    }
    for (name, value) in &sees.headers_present {
        let seen = head.all(name);
        let good = seen.contains(&value.as_str());
        faults.check(good, || format!("upstream {name}: {seen:?}, not {value:?}"));
    }
    for name in &sees.headers_absent {
        faults.check(head.first(name).is_none(), || {
            format!("upstream sees {name}")
        });
    }
    for (name, count) in &sees.header_count {
        let seen = head.all(name).len();
        faults.check(seen == *count, || {
            format!("{seen} lines of {name}, not {count}")
        });
    }
    for (name, text) in &sees.header_not_contains {
        let found = head.all(name).iter().any(|v| v.contains(text.as_str()));
        faults.check(!found, || format!("upstream {name} contains {text:?}"));
    }
    if let Some(address) = &sees.xff_last {
        let lines = head.all("x-forwarded-for").join(",");
        let last = lines.rsplit(',').next().unwrap_or("").trim();
        faults.check(last == address, || {
            format!("X-Forwarded-For ends in {last:?}")
        });
    }
}
