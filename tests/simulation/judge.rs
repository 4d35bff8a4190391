//! Whether what came of a request is what may come of it.

use std::time::Duration;

use toron::http::answer::Answer;
use toron_reactor::{Time, Wheel};

use crate::ledger::Ledger;
use crate::message::Head;
use crate::origin::THERE_AND_BACK;
use crate::plan::{End, Fate, Framing, Intake, Request, Route};
use crate::setup;

/// All answers that the configuration can bring about.
const ANSWERS: [Answer; 21] = [
    Answer::BufferMemory,
    Answer::BadRequest,
    Answer::RequestTimeout,
    Answer::DeclaredTooLarge,
    Answer::BodyTooLarge,
    Answer::ExpectationFailed,
    Answer::HeadTooLarge,
    Answer::UnsupportedCoding,
    Answer::ConnectFailed,
    Answer::InvalidResponse,
    Answer::UpstreamClosed,
    Answer::LocalResources,
    Answer::HeaderTimeout,
    Answer::UpstreamIdle,
    Answer::VersionNotSupported,
    Answer::NotFound,
    Answer::MethodNotAllowed,
    Answer::RouteFull,
    Answer::TargetsFull,
    Answer::Healthy,
    Answer::Draining,
];
/// Network latency and the grain of the script, in a calm world.
const SLACK: Duration = Duration::from_millis(2);

/// A response that the client takes as complete.
#[derive(Debug)]
pub struct Response<'a> {
    pub head: &'a Head,
    /// Body bytes.
    pub read: usize,
    /// The body, if it is not a pattern.
    pub canned: &'a [u8],
    pub trailers: &'a [String],
}

/// The status code.
pub fn status(head: &Head) -> u16 {
    let rest = head.start.strip_prefix("HTTP/1.1 ");
    match rest.and_then(|rest| rest.get(..3)?.parse().ok()) {
        Some(status) => status,
        None => panic!("no status line: {head:?}"),
    }
}

/// A response came that the client takes as complete.
pub fn complete(now: Time, id: usize, response: &Response<'_>, ledger: &mut Ledger) {
    let head = response.head;
    match head.field("x-id") {
        Some("stray") => {
            // Whoever sends bytes that nobody asked for just when a request is on its way gets
            // them taken for its response; toron can only avoid what has arrived.
            let begun = ledger.entries[id].begun_at;
            let crossed = begun.is_none_or(|at| at < ledger.strayed_at + THERE_AND_BACK);
            assert!(
                ledger.strays && (crossed || !ledger.plan.calm),
                "stray bytes were taken for a response"
            );
            ledger.crossed = true;
        }
        Some(of) => {
            if of != id.to_string() {
                // After stray bytes every response on that connection is one too late.
                assert!(ledger.crossed, "the response to {of} for request {id}");
                return;
            }
            planned(id, response, ledger);
        }
        None if status(head) == 200 => fixed(id, response, ledger),
        None => canned(now, id, response, ledger),
    }
}

fn planned(id: usize, response: &Response<'_>, ledger: &mut Ledger) {
    ledger.tally.planned += 1;
    let request = &ledger.plan.requests[id];
    let reply = &request.reply;
    let entry = ledger.entries[id];
    assert_eq!(status(response.head), reply.status, "{:?}", response.head);
    let never_whole = matches!(
        reply.end,
        End::CutHead(..) | End::CutBody(..) | End::Stall | End::Garbage | End::Never
    );
    assert!(
        !never_whole && request.malformed.is_none(),
        "a whole response that was never sent: {request:?}"
    );
    let size = if request.bodiless() { 0 } else { reply.size };
    assert_eq!(response.read, size, "body of response {id}");
    assert!(
        entry.seen > 0 || reply.early.is_some(),
        "no upstream has seen request {id}"
    );
    assert!(
        entry.replied || request.bodiless(),
        "response {id} came before it was sent"
    );
    if request.method == "HEAD" && reply.framing == Framing::Length {
        let length = response.head.field("content-length").map(str::to_owned);
        assert_eq!(length, Some(reply.size.to_string()));
    }
    let has_trailer = reply.framing == Framing::Chunked(true);
    if has_trailer && !request.http10 && !request.bodiless() {
        assert_eq!(response.trailers, [request.trailer()]);
    } else {
        assert!(response.trailers.is_empty());
    }
}

/// The answer of the route `/fixed`.
fn fixed(id: usize, response: &Response<'_>, ledger: &mut Ledger) {
    ledger.tally.canned += 1;
    let request = &ledger.plan.requests[id];
    assert!(request.route == Route::Fixed && request.malformed.is_none());
    let head_only = request.method == "HEAD" && response.canned.is_empty();
    assert!(head_only || response.canned == b"fixed");
}

fn canned(now: Time, id: usize, response: &Response<'_>, ledger: &mut Ledger) {
    ledger.tally.canned += 1;
    let status = status(response.head);
    let request = &ledger.plan.requests[id];
    let bodiless = request.method == "HEAD" && request.malformed.is_none();
    let length = response.head.field("content-length").map(str::to_owned);
    let answer = ANSWERS.iter().find(|answer| {
        let body = answer.body().as_bytes();
        answer.status() == status
            && length == Some(body.len().to_string())
            && (bodiless && response.canned.is_empty() || body == response.canned)
    });
    let Some(answer) = answer else {
        panic!("an answer that is none of toron's: {response:?}")
    };
    assert_eq!(
        response.head.field("content-type"),
        Some("application/json")
    );
    if matches!(answer, Answer::RouteFull | Answer::TargetsFull) {
        return full(id, *answer, response, ledger);
    }
    not_early(now, id, *answer, ledger);
    let fate = request.fate();
    // A stale connection is noticed too late: only what can be sent again is.
    let once = !request.idempotent() || request.body_length() > 0;
    let stale = once && *answer == Answer::UpstreamClosed;
    // Others may hold the memory.
    let memory = *answer == Answer::BufferMemory;
    if ledger.is_strict(id) && !stale && !memory && fate != Fate::Open {
        assert_eq!(fate, Fate::Canned(*answer), "{request:?}");
        if ledger.plan.calm {
            not_late(now, id, *answer, ledger);
        }
    }
    blames(request, *answer, ledger);
}

/// The route had no slot (I13), or its targets no room (R19): whether there should have been some,
/// the scene's own count tells.
fn full(id: usize, answer: Answer, response: &Response<'_>, ledger: &mut Ledger) {
    let request = &ledger.plan.requests[id];
    match answer {
        Answer::TargetsFull => assert_eq!(request.route, Route::Pool),
        _ => assert!(matches!(request.route, Route::One | Route::Up)),
    }
    assert!(request.malformed.is_none());
    assert_eq!(response.head.field("retry-after"), Some("5"));
    assert_eq!(ledger.entries[id].begun, 0, "refused and forwarded");
    ledger.tally.full += 1;
    ledger.refused = true;
}

/// Whose fault an answer says it is.
fn blames(request: &Request, answer: Answer, ledger: &Ledger) {
    let fate = request.fate();
    let faults = &ledger.plan.faults;
    match answer {
        Answer::BadRequest
        | Answer::DeclaredTooLarge
        | Answer::HeadTooLarge
        | Answer::UnsupportedCoding
        | Answer::VersionNotSupported => {
            assert_eq!(fate, Fate::Canned(answer), "{request:?}");
        }
        Answer::BodyTooLarge => assert_eq!(request.route, Route::Limited),
        Answer::BufferMemory => assert_ne!(request.intake(), Intake::Streamed, "{request:?}"),
        Answer::LocalResources => assert!(faults.socket_error + faults.connect_error > 0.0),
        Answer::InvalidResponse => assert!(
            matches!(
                request.reply.end,
                End::Garbage | End::CutHead(..) | End::CutBody(_, true)
            ) || !request.reply.interims.is_empty()
                || request.reply.drip.is_some()
                || ledger.strays
                || faults.reset > 0.0,
            "{request:?}"
        ),
        Answer::RequestTimeout
        | Answer::ConnectFailed
        | Answer::UpstreamClosed
        | Answer::HeaderTimeout
        | Answer::UpstreamIdle => {}
        _ => panic!("{answer:?} to {request:?}"),
    }
}

fn not_early(now: Time, id: usize, answer: Answer, ledger: &Ledger) {
    let entry = ledger.entries[id];
    let request = &ledger.plan.requests[id];
    let faults = &ledger.plan.faults;
    let connects = faults.connect_error == 0.0 && faults.socket_error == 0.0;
    let (since, limit) = match answer {
        Answer::RequestTimeout => {
            let body = setup::READ.min(setup::RATE_GRACE);
            (entry.first_sent, setup::HEADER.min(body))
        }
        Answer::HeaderTimeout => (entry.last_sent, setup::RESPONSE_HEADER),
        Answer::UpstreamIdle => (entry.first_sent, setup::UPSTREAM_IDLE),
        Answer::ConnectFailed if ledger.plan.silent && connects && request.route == Route::Dead => {
            (entry.first_sent, setup::CONNECT)
        }
        _ => return,
    };
    let Some(since) = since else {
        panic!("{answer:?} to request {id}, which was not sent so far")
    };
    let waited = now.since(since);
    assert!(
        waited >= limit,
        "{answer:?} after {waited:?}, not {limit:?}"
    );
}

fn not_late(now: Time, id: usize, answer: Answer, ledger: &Ledger) {
    let entry = ledger.entries[id];
    let request = &ledger.plan.requests[id];
    let alone = ledger
        .plan
        .clients
        .iter()
        .any(|c| !c.pipelined && c.requests.contains(&id));
    let (since, limit) = match answer {
        Answer::HeaderTimeout if entry.seen == 1 && alone => {
            (entry.seen_at, setup::RESPONSE_HEADER)
        }
        Answer::ConnectFailed if ledger.plan.silent && request.route == Route::Dead && alone => {
            (entry.first_sent, setup::CONNECT)
        }
        _ => return,
    };
    let waited = since.map(|since| now.since(since));
    assert!(
        waited.is_some_and(|waited| waited <= limit + Wheel::GRAIN + SLACK),
        "{answer:?} after {waited:?}, not {limit:?}"
    );
}

/// The client can tell that the response is cut.
pub fn cut(id: usize, ledger: &Ledger) {
    if ledger.is_strict(id) {
        let fate = ledger.plan.requests[id].fate();
        assert!(
            matches!(fate, Fate::Cut | Fate::Open) || ledger.may_be_torn(id),
            "cut: {:?}",
            ledger.plan.requests[id]
        );
    }
}

/// The connection ended without a response.
pub fn unanswered(id: usize, half_closed: bool, ledger: &Ledger) {
    // A FIN inside a request is an abort.
    let left = half_closed && ledger.entries[id].last_sent.is_none();
    if ledger.is_strict(id) && !left {
        let fate = ledger.plan.requests[id].fate();
        // What had come of it may not have been sent yet.
        let cut = fate == Fate::Cut && !ledger.plan.calm || ledger.may_be_torn(id);
        assert!(
            matches!(fate, Fate::Open) || cut,
            "no response: {:?}",
            ledger.plan.requests[id]
        );
    }
}
