//! The whole table: every state that can be reached, every input that can come in it.

use std::collections::{HashMap, HashSet, VecDeque};

use super::super::*;
use super::{acknowledged, get, limits, post, tick, SECOND, T0};

fn every_input() -> Vec<Input> {
    let mut all = vec![
        Input::Connected { reused: false },
        Input::Connected { reused: true },
        Input::ConnectFailed(ConnectFailure::Failed),
        Input::ConnectFailed(ConnectFailure::NoAddress),
        Input::ConnectFailed(ConnectFailure::NoResources),
        Input::HeadSent,
        Input::Received {
            bytes: 10,
            last: false,
        },
        Input::Received {
            bytes: 90,
            last: true,
        },
        Input::Collected,
        Input::NoMemory,
        Input::Passed,
        Input::UploadWaits(Side::Client),
        Input::UploadWaits(Side::Upstream),
        Input::UploadDone,
        Input::BadBody(Reason::ChunkSize),
        Input::ClientEof,
        Input::ClientGone,
        Input::UpstreamWriteFailed { untouched: false },
        Input::UpstreamWriteFailed { untouched: true },
        Input::UpstreamGone {
            response_begun: false,
        },
        Input::UpstreamGone {
            response_begun: true,
        },
        Input::InterimHead { is_continue: false },
        Input::InterimHead { is_continue: true },
        Input::BadHead(Reason::ResponseHead),
        Input::InterimSent,
        Input::Sent {
            bytes: 10,
            pending: 5,
        },
        Input::DownloadWaits(Side::Client),
        Input::DownloadWaits(Side::Upstream),
        Input::DownloadDone { surplus: false },
        Input::DownloadDone { surplus: true },
        Input::BadResponseBody(Reason::ResponseBody),
        Input::AnswerSent,
        Input::TunnelMoved,
        Input::TunnelHalfClosed(Side::Client),
        Input::TunnelHalfClosed(Side::Upstream),
        acknowledged(Side::Client),
        acknowledged(Side::Upstream),
        Input::Tick,
    ];
    for (keep_alive, switches, event_stream, client_until_close) in [
        (true, false, false, false),
        (false, false, false, true),
        (true, true, false, false),
        (true, false, true, false),
    ] {
        let facts = ResponseFacts {
            keep_alive,
            switches,
            event_stream,
            client_until_close,
        };
        all.push(Input::FinalHead(facts));
    }
    all
}

/// What makes two transactions behave alike, times reduced to "set or not".
fn shape(t: &Transaction) -> String {
    format!(
        "{:?} {:?} {} {} {} {} {} {} {} {:?} {:?} {:?} {:?}",
        t.upload,
        t.download,
        t.finished,
        t.retries_left,
        t.reused,
        t.resent,
        t.source_done,
        t.continued,
        t.client_eof,
        t.response,
        (t.facts, t.client_too_slow),
        t.limits,
        [
            t.connect_at,
            t.continue_at,
            t.response_header_at,
            t.upstream_idle_at,
            t.tunnel_idle_at,
            t.header_deadline_at,
            t.request_deadline_at,
            t.reading.deadline(),
            t.writing.deadline(),
        ]
        .map(|at| at.is_some()),
    )
}

fn starts() -> Vec<Transaction> {
    let deadlines = Limits {
        header_deadline: 3 * SECOND,
        request_deadline: 8 * SECOND,
        ..limits()
    };
    [
        (get(), limits()),
        (get(), deadlines),
        (
            Facts {
                keep_alive: false,
                takes_interim: false,
                ..get()
            },
            limits(),
        ),
        (
            Facts {
                upgrade: true,
                ..get()
            },
            limits(),
        ),
        (
            Facts {
                upgrade: true,
                ..get()
            },
            Limits {
                request_deadline: 8 * SECOND,
                deadline_covers_upgrades: true,
                half_close_aborts: true,
                ..limits()
            },
        ),
        (post(100), limits()),
        (
            post(100),
            Limits {
                min_body_rate: 10,
                body_timeout: 30 * SECOND,
                half_close_aborts: true,
                ..limits()
            },
        ),
        (post(u64::MAX), deadlines),
        (
            Facts {
                idempotent: true,
                ..post(100)
            },
            limits(),
        ),
        (
            Facts {
                expects_continue: true,
                ..post(100)
            },
            limits(),
        ),
        (
            Facts {
                collect: true,
                idempotent: true,
                ..post(100)
            },
            deadlines,
        ),
        (
            Facts {
                collect: true,
                expects_continue: true,
                ..post(u64::MAX)
            },
            limits(),
        ),
    ]
    .into_iter()
    .map(|(facts, limits)| Transaction::begin(T0, facts, limits).0)
    .collect()
}

/// What must hold of any single step, from any state.
fn check_step(before: &Transaction, input: Input, after: &Transaction, orders: &Orders) {
    let list: Vec<Order> = orders.iter().collect();
    let context = || format!("{before:?}\n--{input:?}-->\n{after:?}\n{list:?}");
    let finishes = list
        .iter()
        .filter(|o| matches!(o, Order::Finish(_)))
        .count();
    assert!(finishes <= 1, "{}", context());
    if let Some(at) = list.iter().position(|o| matches!(o, Order::Finish(_))) {
        assert_eq!(at, list.len() - 1, "nothing after the end: {}", context());
    }
    assert_eq!(after.finished, finishes == 1, "{}", context());
    let answers = list
        .iter()
        .filter(|o| matches!(o, Order::Answer(_)))
        .count();
    if before.download == Download::Answering || before.response.is_some() {
        assert_eq!(answers, 0, "one response only: {}", context());
    }
    if list.iter().any(|o| matches!(o, Order::Connect { .. })) {
        assert!(
            before.response.is_none(),
            "no retry after a response: {}",
            context()
        );
        if !matches!(before.upload, Upload::Held | Upload::Collecting) {
            let untouched = matches!(input, Input::UpstreamWriteFailed { untouched: true });
            assert!(
                before.facts.idempotent || untouched,
                "a request that may have been executed is not repeated: {}",
                context()
            );
            assert!(
                before.came_whole
                    || before.upload == Upload::Head
                    || before.failed_in_head
                    || untouched,
                "a body that was streamed is gone: {}",
                context()
            );
        }
    }
    for order in &list {
        if let Order::Finish(Ending {
            client,
            keep_upstream,
            cause,
        }) = order
        {
            let well = after.response.is_some() && *client != ClientEnd::Sever;
            assert_eq!(cause.is_none(), well, "{}", context());
            if *keep_upstream {
                assert!(
                    after.upload == Upload::Done,
                    "unconsumed request: {}",
                    context()
                );
                assert!(
                    after.download == Download::Done && answers == 0,
                    "{}",
                    context()
                );
            }
            if let ClientEnd::Drain { owed } = client {
                assert!(
                    !after.source_done && *owed <= DRAIN_MOST && *owed == after.facts.outstanding,
                    "{}",
                    context()
                );
                assert!(after.response.is_some() && !keep_upstream, "{}", context());
                assert!(!after.client_eof && after.facts.keep_alive, "{}", context());
            }
            if *client == ClientEnd::Keep {
                assert!(
                    after.source_done,
                    "owed bytes would be a request: {}",
                    context()
                );
                assert!(!after.client_eof && after.facts.keep_alive, "{}", context());
            }
        }
    }
    if !after.finished {
        let exempt = after.response.is_some_and(|r| r.event_stream);
        assert!(
            after.deadline().is_some() || exempt || waits_on_server(after),
            "{}",
            context()
        );
    }
}

/// A deadline that has come does something, or the timer would fire at every turn.
fn check_deadlines_are_carried_out(mut t: Transaction) {
    let before = t;
    let Some(at) = t.deadline() else { return };
    // Several may have come at the same time.
    for _ in 0..Orders::MOST {
        tick(&mut t, at);
        if t.deadline().is_none_or(|next| next > at) {
            return;
        }
    }
    panic!("{before:?} stays behind its deadline: {t:?}");
}

/// The next move is the server's own, at once: no deadline is needed for it.
fn waits_on_server(t: &Transaction) -> bool {
    match (t.upload, t.download) {
        // The upload is told whom it waits for at once.
        (Upload::Moving | Upload::Collecting, _) => true,
        // The download is told whom it waits for at once.
        (_, Download::Moving | Download::Interim) => true,
        (Upload::Held | Upload::Head | Upload::Done | Upload::Stopped | Upload::Tunnel, _) => false,
    }
}

#[test]
fn every_reachable_state_takes_every_possible_input() {
    let mut seen: HashSet<String> = HashSet::new();
    let mut queue: VecDeque<Transaction> = starts().into();
    let mut met: HashMap<(String, String), HashSet<String>> = HashMap::new();
    let inputs = every_input();
    while let Some(state) = queue.pop_front() {
        if state.finished || !seen.insert(shape(&state)) {
            continue;
        }
        assert!(seen.len() < 2_000_000, "the table does not end");
        check_deadlines_are_carried_out(state);
        for &input in &inputs {
            if !possible(state.upload, state.download, input) {
                continue;
            }
            // A tick is tried both early and when the first deadline has come.
            let times = match (input, state.deadline()) {
                (Input::Tick, Some(at)) => vec![T0, at],
                _ => vec![T0],
            };
            for now in times {
                let mut after = state;
                let orders = after.step(now, input);
                check_step(&state, input, &after, &orders);
                let pair = (
                    format!("{:?}", state.upload),
                    format!("{:?}", state.download),
                );
                met.entry(pair).or_default().insert(format!("{input:?}"));
                queue.push_back(after);
            }
        }
    }
    every_possible_combination_was_met(&met, &inputs);
}

fn every_possible_combination_was_met(
    met: &HashMap<(String, String), HashSet<String>>,
    inputs: &[Input],
) {
    use Download as D;
    use Upload as U;
    let uploads = [
        U::Collecting,
        U::Held,
        U::Head,
        U::Moving,
        U::Done,
        U::Stopped,
        U::Tunnel,
    ];
    let downloads = [
        D::Waiting,
        D::Interim,
        D::Moving,
        D::Done,
        D::Answering,
        D::Tunnel,
    ];
    for upload in uploads {
        for download in downloads {
            let pair = (format!("{upload:?}"), format!("{download:?}"));
            assert_eq!(
                met.contains_key(&pair),
                REACHABLE.contains(&(upload, download)),
                "{pair:?} is (not) reachable"
            );
            let Some(inputs_met) = met.get(&pair) else {
                continue;
            };
            for &input in inputs {
                if possible(upload, download, input) {
                    assert!(
                        inputs_met.contains(&format!("{input:?}")),
                        "{pair:?} {input:?}"
                    );
                }
            }
        }
    }
}

/// The pairs of states that an unfinished transaction can be in.
const REACHABLE: [(Upload, Download); 19] = [
    (Upload::Collecting, Download::Waiting),
    (Upload::Held, Download::Waiting),
    (Upload::Head, Download::Waiting),
    (Upload::Head, Download::Interim),
    (Upload::Head, Download::Moving),
    (Upload::Moving, Download::Waiting),
    (Upload::Moving, Download::Interim),
    (Upload::Moving, Download::Moving),
    (Upload::Done, Download::Waiting),
    (Upload::Done, Download::Interim),
    (Upload::Done, Download::Moving),
    (Upload::Done, Download::Answering),
    (Upload::Done, Download::Tunnel),
    (Upload::Stopped, Download::Waiting),
    (Upload::Stopped, Download::Interim),
    (Upload::Stopped, Download::Moving),
    (Upload::Stopped, Download::Answering),
    (Upload::Tunnel, Download::Tunnel),
    (Upload::Tunnel, Download::Done),
];
