//! Runs one case of the bank against a running proxy and collects what was seen.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::case::{Arrangement, Case, FollowUp, SendStep};
use super::client::Client;
use super::toron::Toron;
use super::upstream::{Connection, Script, Step, Then, Upstream, When};
use super::verdict::{self, ClientSaw};
use super::{contains, from_latin1, show};

/// How long nothing may come before "nothing more comes" is believed. It bounds what is looked for
/// (a late second answer), not how fast the proxy has to be.
const SILENCE: Duration = Duration::from_millis(100);

/// The authority by which the bank's clients know the proxy: their Host field.
const PUBLIC: &str = "t.example";

/// One line of the bank and the place where it is played.
pub struct Stage<'a> {
    pub toron: &'a Toron,
    pub upstream: &'a Upstream,
}

/// Plays the case. The error holds everything that a person needs to see what went wrong.
pub fn run(line: &str, stage: &Stage) -> Result<(), String> {
    let public = stage.toron.addr;
    let case = Case::parse(line, &stage.upstream.addr.to_string(), PUBLIC)?;
    let mut faults = Vec::new();
    // A request that the note asks to be held lives as long as its client.
    let _held =
        arrange(&case, stage, public).map_err(|e| format!("{}: arranging: {e}", case.id))?;
    stage.upstream.set_script(case.script()?);
    for _ in 0..case.setup.repeat_case.unwrap_or(0) {
        let mut client = connect(public, &case)?;
        steps(&case, &mut client, &mut Vec::new());
        client.receive_responses(case.expect.responses(), case.limit());
    }
    let mut client = connect(public, &case)?;
    let (saw, first_part) = play_client(&case, &mut client, stage, &mut faults);
    faults.extend(verdict::client(&case.expect, &saw));
    if !case.then.is_empty() {
        await_end(&case, stage, &first_part);
    }
    let mut followed = Vec::new();
    for follow in &case.then {
        follow_up(&case, follow, stage, &mut faults, &mut followed);
    }
    faults.extend(judge_upstream(&case, stage, &first_part));
    if case.expect.connection_closed_after == Some(false) && !saw.closed {
        probe(
            &case,
            &mut client,
            stage,
            saw.parsed.responses.len(),
            &mut faults,
        );
    }
    // RST ends whatever is under way, so that the next case does not meet a late retry of this one.
    followed
        .iter_mut()
        .chain([&mut client])
        .for_each(Client::reset);
    if faults.is_empty() {
        return Ok(());
    }
    Err(report(
        &case,
        &faults,
        &client,
        &stage.upstream.connections(),
        &followed,
    ))
}

fn connect(addr: SocketAddr, case: &Case) -> Result<Client, String> {
    Client::connect(addr, case.limit()).map_err(|e| format!("{}: connect: {e}", case.id))
}

/// The client's part: its steps, the responses, the end of the connection.
fn play_client(
    case: &Case,
    client: &mut Client,
    stage: &Stage,
    faults: &mut Vec<String>,
) -> (ClientSaw, Vec<u64>) {
    // What was arranged beforehand is not of the case.
    let before = bytes_of(&stage.upstream.connections());
    steps(case, client, faults);
    client.receive_responses(case.expect.responses(), case.limit());
    if case.expect.connection_closed_after == Some(true) {
        client.receive_until_end(case.limit());
    } else {
        client.receive_until_quiet(SILENCE);
    }
    if !case.expect.forwarded {
        // What must never come is given the time of one more silence to come.
        let leaked = |connections: &[Connection]| bytes_of(connections) > before;
        if stage.upstream.wait_for(SILENCE, leaked) {
            faults.push("bytes of the request reached the upstream".into());
        }
    }
    let first_part = stage.upstream.connections().iter().map(|c| c.id).collect();
    (observe(client), first_part)
}

/// Where the end of a request must show at the upstream, what follows begins behind it: the client's
/// reset and its next connection may be served by different reactors.
fn await_end(case: &Case, stage: &Stage, first_part: &[u64]) {
    if let Some(ms) = case.expect.upstream_sees.upstream_conn_closed_within_ms {
        let ended =
            |c: &Connection| c.ended.is_some() || c.closed_here || !first_part.contains(&c.id);
        stage
            .upstream
            .wait_for(Duration::from_millis(ms), |c| c.iter().all(ended));
    }
}

fn bytes_of(connections: &[Connection]) -> usize {
    connections.iter().map(|c| c.received.len()).sum()
}

fn observe(client: &Client) -> ClientSaw {
    let parsed = client.parsed();
    let body_at = parsed.responses.first().map(|r| r.body_at);
    ClientSaw {
        received: client.received.clone(),
        closed: client.end.is_some(),
        closed_here: client.closed_here(),
        head_after: body_at.and_then(|at| client.arrived_after(at)),
        first_body_byte_after: body_at.and_then(|at| client.arrived_after(at + 1)),
        parsed,
    }
}

fn steps(case: &Case, client: &mut Client, faults: &mut Vec<String>) {
    // Where the search for literal bytes goes on, and final responses waited for so far.
    let (mut read_to, mut waited) = (0, 0);
    for step in case.steps() {
        if client.end.is_some() && step.bytes.is_some() {
            return;
        }
        send(&step, client, case.limit());
        let limit = step.timeout_ms.map_or(case.limit(), Duration::from_millis);
        if let Some(awaited) = &step.wait_for {
            if !wait_for(awaited, client, limit, &mut read_to, &mut waited) {
                faults.push(format!("waited in vain for {awaited:?}"));
                return;
            }
        }
        if let Some(n) = step.recv {
            let deadline = Instant::now() + limit;
            let goal = client.received.len() + n;
            while client.received.len() < goal {
                if !client.receive(goal - client.received.len(), deadline) {
                    faults.push(format!(
                        "{} of {goal} bytes received",
                        client.received.len()
                    ));
                    return;
                }
            }
        }
        if step.shutdown_write {
            client.shutdown_write();
        }
        if step.bytes.is_none() {
            std::thread::sleep(Duration::from_millis(step.pause_ms.unwrap_or(0)));
        }
        if step.reset {
            client.reset();
        }
        if step.close {
            client.close();
        }
    }
}

/// A step's bytes: repeats in one write, or one write and one pause each.
fn send(step: &SendStep, client: &mut Client, limit: Duration) {
    let Some(text) = &step.bytes else { return };
    let (bytes, repeat) = (from_latin1(text), step.repeat.unwrap_or(1));
    let Some(pause) = step.pause_ms.map(Duration::from_millis) else {
        return client.send(&bytes.repeat(repeat), limit);
    };
    for _ in 0..repeat {
        client.send(&bytes, limit);
        // The pause is spent listening: a proxy that has had enough is noticed.
        let until = Instant::now() + pause;
        while Instant::now() < until && client.end.is_none() {
            client.receive(usize::MAX, until);
        }
        if client.end.is_some() || client.send_error.is_some() {
            return;
        }
    }
}

fn wait_for(
    awaited: &str,
    client: &mut Client,
    limit: Duration,
    read_to: &mut usize,
    waited: &mut usize,
) -> bool {
    match awaited {
        "response" => {
            *waited += 1;
            // Without a response the verdict on the status says what is wrong.
            client.receive_responses(*waited, limit);
            true
        }
        "100" => client.receive_until(limit, |c| {
            let parsed = c.parsed();
            let mut heads = parsed
                .interim
                .iter()
                .chain(parsed.responses.iter().flat_map(|r| &r.interim));
            heads.any(|h| h.start_line.split(' ').nth(1) == Some("100"))
        }),
        literal => {
            let bytes = from_latin1(literal);
            let from = *read_to;
            let came = client.receive_until(limit, |c| contains(&c.received[from..], &bytes));
            *read_to = client.received.len();
            came
        }
    }
}

/// Waits for the upstream's part to come true: what must be there may take its time, what must not
/// be there is looked for in everything that has come.
fn judge_upstream(case: &Case, stage: &Stage, first_part: &[u64]) -> Vec<String> {
    let sees = &case.expect.upstream_sees;
    let judge = |connections: &[Connection]| verdict::upstream(sees, connections, first_part);
    let limit = sees
        .upstream_conn_closed_within_ms
        .map_or(case.limit(), Duration::from_millis);
    stage
        .upstream
        .wait_for(limit, |connections| judge(connections).is_empty());
    judge(&stage.upstream.connections())
}

/// A request on a new connection, the upstream back to its default: it must get its own answer.
fn follow_up(
    case: &Case,
    follow: &FollowUp,
    stage: &Stage,
    faults: &mut Vec<String>,
    followed: &mut Vec<Client>,
) {
    stage.upstream.set_script(Script::default());
    std::thread::sleep(Duration::from_millis(follow.after_ms));
    let mut client = match connect(stage.toron.addr, case) {
        Ok(client) => client,
        Err(e) => return faults.push(e),
    };
    client.send(&from_latin1(&follow.send), case.limit());
    client.receive_responses(1, case.limit());
    let parsed = client.parsed();
    let status = parsed.responses.first().map(|r| r.status);
    if !follow.status.iter().any(|o| o.allows(status)) {
        faults.push(format!(
            "follow-up: {status:?}, allowed {:?}",
            follow.status
        ));
    }
    if let Some(response) = parsed.responses.first().filter(|r| r.status / 100 == 2) {
        let target = follow.send.split(' ').nth(1);
        let own = response.head.first("x-echo-target") == target && response.body == b"OK";
        if !own || !response.complete || parsed.responses.len() > 1 {
            faults.push(format!(
                "follow-up got another's answer: {:?}",
                show(&client.received)
            ));
        }
    }
    followed.push(client);
}

/// A connection that must be kept is proven by one more request on it.
fn probe(case: &Case, client: &mut Client, stage: &Stage, before: usize, faults: &mut Vec<String>) {
    stage.upstream.set_script(Script::default());
    client.send(
        b"GET /probe HTTP/1.1\r\nHost: t.example\r\n\r\n",
        case.limit(),
    );
    if !client.receive_responses(before + 1, case.limit()) {
        faults.push("the kept connection does not answer a further request".into());
    }
}

/// Arranges what the setup's note says. A held request lives as long as the returned client.
fn arrange(case: &Case, stage: &Stage, public: SocketAddr) -> Result<Option<Client>, String> {
    stage.upstream.begin(Script::default());
    match case.setup.arrangement()? {
        Arrangement::Nothing => Ok(None),
        Arrangement::HoldRequest(path) => hold(case, stage, public, path).map(Some),
        Arrangement::ProvokeBlock => provoke_block(case, public).map(|()| None),
        Arrangement::ChurnConnections => churn(case, public).map(|()| None),
    }
}

fn hold(case: &Case, stage: &Stage, public: SocketAddr, path: &str) -> Result<Client, String> {
    stage.upstream.set_script(Script {
        answers: vec![vec![Step::Hang]],
        repeat_last: false,
        when: When::AfterRequest,
        then: Then::Hang,
    });
    let mut client = connect(public, case)?;
    client.send(
        format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n").as_bytes(),
        case.limit(),
    );
    stage
        .upstream
        .wait_for_answers(case.limit(), 1)
        .then_some(client)
        .ok_or("the held request did not reach the upstream".into())
}

fn ask(case: &Case, public: SocketAddr) -> Result<Option<u16>, String> {
    let mut client = connect(public, case)?;
    client.send(
        b"GET /abuse HTTP/1.1\r\nHost: t.example\r\n\r\n",
        case.limit(),
    );
    client.receive_responses(1, case.limit());
    Ok(client.parsed().responses.first().map(|r| r.status))
}

fn provoke_block(case: &Case, public: SocketAddr) -> Result<(), String> {
    let mut tries = 0;
    while ask(case, public)? != Some(403) {
        tries += 1;
        if tries > 200 {
            return Err("200 requests did not provoke a 403".into());
        }
    }
    let blocked = Instant::now();
    while blocked.elapsed() < Duration::from_millis(2500) {
        std::thread::sleep(Duration::from_millis(500));
        ask(case, public)?;
    }
    Ok(())
}

fn churn(case: &Case, public: SocketAddr) -> Result<(), String> {
    for i in 0..20 {
        let mut client = connect(public, case)?;
        match i % 4 {
            0 => client.close(),
            1 => client.reset(),
            2 => {
                client.send(b"BAD\r\n\r\n", case.limit());
                client.receive_until_end(case.limit());
            }
            _ => {
                client.shutdown_write();
                client.receive_until_end(case.limit());
            }
        }
    }
    Ok(())
}

fn report(
    case: &Case,
    faults: &[String],
    client: &Client,
    connections: &[Connection],
    followed: &[Client],
) -> String {
    let mut text = format!("{} ({})\n    why: {}\n", case.id, case.kind, case.why);
    for fault in faults {
        let _ = writeln!(text, "    FAULT: {fault}");
    }
    let mut log = |title: &str, bytes: &[u8]| {
        if !bytes.is_empty() {
            let _ = writeln!(text, "    {title}:\n      {}", show(bytes));
        }
    };
    log("client sent", &client.sent);
    log("client received", &client.received);
    for c in connections {
        log(
            &format!("upstream connection {} received", c.id),
            &c.received,
        );
        log(&format!("upstream connection {} sent", c.id), &c.sent);
    }
    for client in followed {
        log("follow-up received", &client.received);
    }
    let end = (client.end, client.send_error);
    let _ = writeln!(
        text,
        "    client connection's end and first write error: {end:?}"
    );
    if connections.is_empty() {
        text.push_str("    the upstream saw no connection\n");
    }
    for c in connections {
        let _ = writeln!(
            text,
            "    upstream connection {}: ended by the proxy: {:?}",
            c.id, c.ended
        );
    }
    text
}
