//! The whole table: every state that can be reached, every input that can come in it.

use std::collections::{HashMap, HashSet, VecDeque};

use super::*;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const T0: Time = Time(1_000_000_000_000);

pub(super) fn limits() -> Limits {
    Limits {
        connect_timeout: 10 * SECOND,
        read_timeout: 5 * SECOND,
        min_progress_bytes: 1024,
        min_body_rate: 0,
        body_timeout: Duration::ZERO,
        write_timeout: 5 * SECOND,
        response_header_timeout: 10 * SECOND,
        upstream_idle_timeout: 60 * SECOND,
        upgrade_idle_timeout: 60 * SECOND,
        header_deadline: Duration::ZERO,
        request_deadline: Duration::ZERO,
        deadline_covers_upgrades: false,
        half_close_aborts: false,
        retries: 1,
    }
}

pub(super) fn get() -> Facts {
    Facts {
        idempotent: true,
        outstanding: 0,
        collect: false,
        keep_alive: true,
        upgrade: false,
        expects_continue: false,
        takes_interim: true,
    }
}

pub(super) fn post(outstanding: u64) -> Facts {
    Facts {
        idempotent: false,
        outstanding,
        ..get()
    }
}

pub(super) fn plain() -> ResponseFacts {
    ResponseFacts {
        keep_alive: true,
        switches: false,
        event_stream: false,
        client_until_close: false,
    }
}

fn every_input() -> Vec<Input> {
    let mut all = vec![
        Input::Connected { reused: false },
        Input::Connected { reused: true },
        Input::ConnectFailed(ConnectFailure::Failed),
        Input::ConnectFailed(ConnectFailure::NoAddress),
        Input::ConnectFailed(ConnectFailure::NoResources),
        Input::ConnectFailed(ConnectFailure::TargetsFull),
        Input::ConnectFailed(ConnectFailure::TargetsUnhealthy),
        Input::Dialling { more: false },
        Input::Dialling { more: true },
        Input::NoOtherTarget,
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
        Input::BadBody,
        Input::TrailersTooLarge,
        Input::BodyTooLarge,
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
        Input::BadHead,
        Input::InterimSent,
        Input::Sent {
            bytes: 10,
            pending: 5,
        },
        Input::Taken {
            bytes: 10,
            queued: 5,
        },
        Input::DownloadWaits(Side::Client),
        Input::DownloadWaits(Side::Upstream),
        Input::DownloadDone { surplus: false },
        Input::DownloadDone { surplus: true },
        Input::BadResponseBody,
        Input::AnswerSent,
        Input::TunnelMoved,
        Input::TunnelHalfClosed(Side::Client),
        Input::TunnelHalfClosed(Side::Upstream),
        Input::Acknowledged(Side::Client),
        Input::Acknowledged(Side::Upstream),
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
        "{:?} {:?} {} {} {:?} {} {} {} {} {} {:?} {:?} {:?} {:?}",
        t.upload,
        t.download,
        t.finished,
        t.retries_left,
        (t.failure, t.other_address),
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
    check_blame(before, input, &list);
    for order in &list {
        if let Order::Finish(Ending {
            client,
            keep_upstream,
        }) = order
        {
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

/// A target is blamed for what it did, once, and for nothing that toron or the client did (R20).
fn check_blame(before: &Transaction, input: Input, list: &[Order]) {
    let context = || format!("{before:?}\n--{input:?}-->\n{list:?}");
    let blames = list.iter().filter(|o| **o == Order::Blame).count();
    assert!(blames <= 1, "{}", context());
    let its_own = if let Input::UpstreamGone { response_begun } = input {
        // A stale connection is replaced once, or costs a request that cannot be repeated.
        !before.reused || response_begun
    } else if input == Input::Tick {
        list.iter().any(|order| {
            let timeouts = [Verdict::ConnectFailed, Verdict::ResponseHeaderTimeout];
            let elsewhere = matches!(order, Order::Connect { .. });
            elsewhere || timeouts.iter().any(|v| *order == Order::Answer(*v))
        })
    } else {
        input == Input::ConnectFailed(ConnectFailure::Failed) && !before.other_address
    };
    let waits = matches!(before.download, Download::Waiting | Download::Interim);
    assert_eq!(blames == 1, its_own && waits, "{}", context());
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

/// A tick, with a client that takes nothing.
pub(super) fn tick(t: &mut Transaction, now: Time) -> Vec<Order> {
    let orders = t.step(now, Input::Tick);
    let looks = orders
        .iter()
        .any(|order| matches!(order, Order::Look { .. }));
    let nothing = Input::Taken {
        bytes: 0,
        queued: 50_000,
    };
    let orders = if looks { t.step(now, nothing) } else { orders };
    orders.iter().collect()
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

fn run(facts: Facts, steps: &[(u64, Input)]) -> (Transaction, Vec<Order>) {
    let (mut t, orders) = Transaction::begin(T0, facts, limits());
    let mut all: Vec<Order> = orders.iter().collect();
    for &(millis, input) in steps {
        all.extend(t.step(T0 + Duration::from_millis(millis), input).iter());
    }
    (t, all)
}

#[test]
fn a_plain_request_keeps_both_connections() {
    let (_, orders) = run(
        get(),
        &[
            (0, Input::Connected { reused: false }),
            (0, Input::HeadSent),
            (5, Input::FinalHead(plain())),
            (5, Input::DownloadWaits(Side::Client)),
            (
                6,
                Input::Sent {
                    bytes: 100,
                    pending: 0,
                },
            ),
            (6, Input::DownloadDone { surplus: false }),
        ],
    );
    assert_eq!(
        orders,
        [
            Order::Connect {
                fresh: false,
                other_target: false
            },
            Order::SendHead,
            Order::Download,
            Order::Finish(Ending {
                client: ClientEnd::Keep,
                keep_upstream: true
            }),
        ]
    );
}

fn collected(outstanding: u64) -> Facts {
    Facts {
        collect: true,
        expects_continue: true,
        ..post(outstanding)
    }
}

const CONNECT: Order = Order::Connect {
    fresh: false,
    other_target: false,
};

#[test]
fn i37_a_collected_body_is_whole_before_the_upstream_is_dialled() {
    let (t, orders) = run(
        collected(100),
        &[
            (0, Input::UploadWaits(Side::Client)),
            (
                4_000,
                Input::Received {
                    bytes: 100,
                    last: true,
                },
            ),
            (4_000, Input::Collected),
            (4_001, Input::Connected { reused: false }),
            (4_002, Input::HeadSent),
        ],
    );
    assert_eq!(
        orders,
        [
            Order::Collect,
            Order::SendContinue,
            CONNECT,
            Order::SendHead
        ]
    );
    assert_eq!(t.upload(), Upload::Done);
    assert_eq!(
        t.deadline(),
        Some(T0 + Duration::from_millis(14_002)),
        "I24 counts from the whole request sent"
    );
}

#[test]
fn i37_the_rest_of_a_longer_body_is_streamed_and_the_client_is_not_hurried_meanwhile() {
    let received = Input::Received {
        bytes: 65_536,
        last: false,
    };
    let (mut t, orders) = run(
        Facts {
            idempotent: true,
            ..collected(u64::MAX)
        },
        &[
            (0, Input::UploadWaits(Side::Client)),
            (1_000, received),
            (1_000, Input::Collected),
            (9_000, Input::Connected { reused: true }),
            (9_000, Input::HeadSent),
        ],
    );
    assert_eq!(orders.last(), Some(&Order::Upload));
    assert_eq!(t.upload(), Upload::Moving);
    assert!(!t.keeps_request(), "what was collected is on its way");
    let now = T0 + 9 * SECOND;
    assert!(t.step(now, Input::UploadWaits(Side::Client)).is_empty());
    assert_eq!(
        t.deadline(),
        Some(now + 5 * SECOND),
        "I19: the window stood still while the upstream was dialled"
    );
}

#[test]
fn i18_a_body_that_is_collected_has_its_windows() {
    let (mut t, _) = run(collected(5_000), &[(0, Input::UploadWaits(Side::Client))]);
    assert_eq!(t.deadline(), Some(T0 + 5 * SECOND));
    let orders = t.step(T0 + 5 * SECOND, Input::Tick);
    let orders: Vec<Order> = orders.iter().collect();
    assert_eq!(
        orders,
        [
            Order::CloseUpstream,
            Order::StopUpload,
            Order::Answer(Verdict::ClientTooSlow)
        ]
    );
}

#[test]
fn i39_a_client_that_ends_inside_a_collected_body_is_gone() {
    let (_, orders) = run(collected(5_000), &[(0, Input::ClientEof)]);
    let severed = Order::Finish(Ending {
        client: ClientEnd::Sever,
        keep_upstream: false,
    });
    assert_eq!(orders, [Order::Collect, Order::StopUpload, severed]);
}

#[test]
fn i37_a_collected_body_can_be_sent_again() {
    let facts = Facts {
        idempotent: true,
        ..collected(100)
    };
    let all = Input::Received {
        bytes: 100,
        last: true,
    };
    let (t, orders) = run(
        facts,
        &[
            (0, all),
            (0, Input::Collected),
            (0, Input::Connected { reused: true }),
            (0, Input::HeadSent),
            (
                1,
                Input::UpstreamGone {
                    response_begun: false,
                },
            ),
        ],
    );
    let again = Order::Connect {
        fresh: true,
        other_target: false,
    };
    assert_eq!(orders.last(), Some(&again));
    assert!(t.keeps_request());
}

#[test]
fn i37_without_memory_the_answer_is_a_503() {
    let (_, orders) = run(collected(u64::MAX), &[(0, Input::NoMemory)]);
    assert_eq!(orders.last(), Some(&Order::Answer(Verdict::BufferMemory)));
}

#[test]
fn i28_a_stale_connection_costs_an_idempotent_request_nothing() {
    let (t, orders) = run(
        get(),
        &[
            (0, Input::Connected { reused: true }),
            (0, Input::HeadSent),
            (
                1,
                Input::UpstreamGone {
                    response_begun: false,
                },
            ),
        ],
    );
    assert_eq!(
        orders.last(),
        Some(&Order::Connect {
            fresh: true,
            other_target: false
        })
    );
    assert_eq!(
        t.retries_left, 1,
        "this resend does not count against retries"
    );
}

#[test]
fn i28_a_post_that_may_have_been_executed_is_never_repeated() {
    let (_, orders) = run(
        post(0),
        &[
            (0, Input::Connected { reused: true }),
            (0, Input::HeadSent),
            (
                1,
                Input::UpstreamGone {
                    response_begun: false,
                },
            ),
        ],
    );
    assert_eq!(orders.last(), Some(&Order::Answer(Verdict::UpstreamClosed)));
}

#[test]
fn i28_a_post_of_which_no_byte_was_written_is_sent_again() {
    let (_, orders) = run(
        post(0),
        &[
            (0, Input::Connected { reused: true }),
            (0, Input::UpstreamWriteFailed { untouched: true }),
        ],
    );
    assert_eq!(
        orders.last(),
        Some(&Order::Connect {
            fresh: true,
            other_target: false
        })
    );
}

#[test]
fn i23_the_next_target_is_tried_then_502() {
    let (_, orders) = run(get(), &[(10_000, Input::Tick), (20_000, Input::Tick)]);
    assert_eq!(
        orders,
        [
            Order::Connect {
                fresh: false,
                other_target: false
            },
            Order::CloseUpstream,
            Order::Blame,
            Order::Connect {
                fresh: false,
                other_target: true
            },
            Order::CloseUpstream,
            Order::Blame,
            Order::Answer(Verdict::ConnectFailed),
        ]
    );
}

#[test]
fn i24_the_wait_for_the_response_begins_when_the_request_is_sent() {
    let (mut t, _) = run(
        post(100),
        &[
            (0, Input::Connected { reused: false }),
            (0, Input::HeadSent),
            (0, Input::UploadWaits(Side::Client)),
            (
                4_000,
                Input::Received {
                    bytes: 100,
                    last: true,
                },
            ),
            (4_000, Input::UploadDone),
        ],
    );
    assert_eq!(t.deadline(), Some(T0 + Duration::from_secs(14)));
    assert_eq!(
        t.step(T0 + Duration::from_millis(13_999), Input::Tick)
            .iter()
            .count(),
        0
    );
    let orders: Vec<Order> = t
        .step(T0 + Duration::from_secs(14), Input::Tick)
        .iter()
        .collect();
    assert_eq!(
        orders,
        [
            Order::Blame,
            Order::CloseUpstream,
            Order::Answer(Verdict::ResponseHeaderTimeout)
        ]
    );
}

#[test]
fn i18_a_slow_client_gets_a_408_and_is_closed_at_once() {
    let (mut t, orders) = run(
        post(10_000),
        &[
            (0, Input::Connected { reused: false }),
            (0, Input::HeadSent),
            (0, Input::UploadWaits(Side::Client)),
            (
                4_900,
                Input::Received {
                    bytes: 1,
                    last: false,
                },
            ),
            (5_000, Input::Tick),
        ],
    );
    assert_eq!(orders.last(), Some(&Order::Answer(Verdict::ClientTooSlow)));
    let orders: Vec<Order> = t.step(T0 + 5 * SECOND, Input::AnswerSent).iter().collect();
    let ending = Ending {
        client: ClientEnd::Sever,
        keep_upstream: false,
    };
    assert_eq!(orders, [Order::Finish(ending)]);
}

#[test]
fn i19_back_pressure_is_not_the_clients_fault() {
    let (t, _) = run(
        post(u64::MAX),
        &[
            (0, Input::Connected { reused: false }),
            (0, Input::HeadSent),
            (0, Input::UploadWaits(Side::Client)),
            (
                1_000,
                Input::Received {
                    bytes: 10,
                    last: false,
                },
            ),
            (1_000, Input::UploadWaits(Side::Upstream)),
        ],
    );
    // Only the upstream's own idle time runs.
    assert_eq!(t.deadline(), Some(T0 + 61 * SECOND));
}

#[test]
fn i30_an_early_response_is_relayed_and_neither_connection_reused() {
    let (_, orders) = run(
        post(5_000_000),
        &[
            (0, Input::Connected { reused: false }),
            (0, Input::HeadSent),
            (0, Input::UploadWaits(Side::Client)),
            (1, Input::UpstreamWriteFailed { untouched: false }),
            (2, Input::FinalHead(plain())),
            (3, Input::DownloadDone { surplus: false }),
        ],
    );
    let ending = Ending {
        client: ClientEnd::Linger,
        keep_upstream: false,
    };
    assert_eq!(
        orders[2..],
        [
            Order::Upload,
            Order::StopUpload,
            Order::Download,
            Order::Finish(ending)
        ]
    );
}

#[test]
fn i31_a_cut_response_severs_the_client() {
    let (_, orders) = run(
        get(),
        &[
            (0, Input::Connected { reused: true }),
            (0, Input::HeadSent),
            (1, Input::FinalHead(plain())),
            (
                2,
                Input::UpstreamGone {
                    response_begun: true,
                },
            ),
        ],
    );
    let ending = Ending {
        client: ClientEnd::Sever,
        keep_upstream: false,
    };
    assert_eq!(orders.last(), Some(&Order::Finish(ending)));
}

#[test]
fn i39_a_fin_inside_the_request_aborts_one_behind_it_does_not() {
    let until_sent = [
        (0, Input::Connected { reused: false }),
        (0, Input::HeadSent),
    ];
    let (t, _) = run(
        get(),
        &[until_sent.as_slice(), &[(1, Input::ClientEof)]].concat(),
    );
    assert!(!t.finished);
    let (t, _) = run(
        post(5),
        &[until_sent.as_slice(), &[(1, Input::ClientEof)]].concat(),
    );
    assert!(t.finished);
}

#[test]
fn i11_one_hundred_only_and_after_a_second_of_silence() {
    let facts = Facts {
        expects_continue: true,
        ..post(100)
    };
    let (mut t, _) = run(
        facts,
        &[
            (0, Input::Connected { reused: false }),
            (0, Input::HeadSent),
        ],
    );
    assert_eq!(t.deadline(), Some(T0 + SECOND));
    let orders: Vec<Order> = t.step(T0 + SECOND, Input::Tick).iter().collect();
    assert_eq!(orders, [Order::SendContinue]);
    let late = t.step(T0 + 2 * SECOND, Input::InterimHead { is_continue: true });
    assert_eq!(late.iter().collect::<Vec<_>>(), [Order::SkipInterim]);
}

#[test]
fn r14_an_unasked_101_is_a_502_and_a_tunnel_ends_by_idling() {
    let switch = Input::FinalHead(ResponseFacts {
        switches: true,
        ..plain()
    });
    let sent = [
        (0, Input::Connected { reused: false }),
        (0, Input::HeadSent),
        (1, switch),
    ];
    let (_, orders) = run(get(), &sent);
    assert_eq!(
        orders.last(),
        Some(&Order::Answer(Verdict::InvalidResponse))
    );
    let (mut t, orders) = run(
        Facts {
            upgrade: true,
            ..get()
        },
        &sent,
    );
    assert_eq!(orders.last(), Some(&Order::Tunnel));
    assert_eq!(
        t.step(T0 + 30 * SECOND, Input::TunnelMoved).iter().count(),
        0
    );
    assert_eq!(t.deadline(), Some(T0 + 90 * SECOND));
    assert!(t
        .step(T0 + 90 * SECOND, Input::Tick)
        .iter()
        .any(|o| matches!(o, Order::Finish(_))));
}

#[test]
fn i26_an_upstream_that_takes_no_byte_of_the_head_is_given_up() {
    let (mut t, _) = run(get(), &[(0, Input::Connected { reused: false })]);
    assert_eq!(t.deadline(), Some(T0 + limits().upstream_idle_timeout));
    let _ = t.step(T0 + Duration::from_secs(30), Input::Passed);
    let later = T0 + Duration::from_secs(90);
    assert_eq!(t.deadline(), Some(later));
    let orders: Vec<Order> = t.step(later, Input::Tick).iter().collect();
    assert_eq!(
        orders,
        [Order::CloseUpstream, Order::Answer(Verdict::UpstreamIdle)]
    );
}

#[test]
fn i28_a_body_that_was_streamed_is_not_sent_again() {
    let (_, orders) = run(
        Facts {
            outstanding: 100,
            ..get()
        },
        &[
            (0, Input::Connected { reused: true }),
            (0, Input::HeadSent),
            (
                0,
                Input::Received {
                    bytes: 100,
                    last: true,
                },
            ),
            (0, Input::UploadDone),
            (
                1,
                Input::UpstreamGone {
                    response_begun: false,
                },
            ),
        ],
    );
    assert_eq!(orders.last(), Some(&Order::Answer(Verdict::UpstreamClosed)));
}

#[test]
fn i19_a_100_of_the_upstream_starts_the_clients_clock() {
    let facts = Facts {
        expects_continue: true,
        ..post(100)
    };
    let (t, _) = run(
        facts,
        &[
            (0, Input::Connected { reused: false }),
            (0, Input::HeadSent),
            (0, Input::UploadWaits(Side::Client)),
            (0, Input::InterimHead { is_continue: true }),
            (0, Input::InterimSent),
        ],
    );
    assert_eq!(t.deadline(), Some(T0 + limits().read_timeout));
}

#[test]
fn r14_a_101_may_be_told_before_the_end_of_the_send() {
    let facts = Facts {
        upgrade: true,
        ..get()
    };
    let switch = ResponseFacts {
        switches: true,
        ..plain()
    };
    let steps = [
        (0, Input::Connected { reused: false }),
        (0, Input::FinalHead(switch)),
    ];
    let (_, orders) = run(facts, &steps);
    assert_eq!(orders.last(), Some(&Order::Tunnel));
}

#[test]
fn r14_a_half_closed_tunnel_ends_when_the_upstream_takes_no_more() {
    let facts = Facts {
        upgrade: true,
        ..get()
    };
    let switch = ResponseFacts {
        switches: true,
        ..plain()
    };
    let gone = Input::UpstreamGone {
        response_begun: true,
    };
    let steps = [
        (0, Input::Connected { reused: false }),
        (0, Input::HeadSent),
        (0, Input::FinalHead(switch)),
        (0, Input::TunnelHalfClosed(Side::Upstream)),
        (0, gone),
    ];
    let (t, _) = run(facts, &steps);
    assert!(t.is_finished());
}

#[test]
fn i26_a_byte_that_the_upstream_acknowledges_is_not_silence() {
    let (mut t, _) = run(
        post(100_000_000),
        &[
            (0, Input::Connected { reused: false }),
            (0, Input::HeadSent),
            (0, Input::UploadWaits(Side::Upstream)),
        ],
    );
    let idle = limits().upstream_idle_timeout;
    assert_eq!(t.deadline(), Some(T0 + idle));
    let _ = t.step(T0 + idle, Input::Acknowledged(Side::Upstream));
    assert_eq!(t.step(T0 + idle, Input::Tick).iter().count(), 0);
    assert_eq!(t.deadline(), Some(T0 + idle + idle));
    // The client's taking says nothing of the upstream.
    let _ = t.step(T0 + idle + idle, Input::Acknowledged(Side::Client));
    let orders: Vec<Order> = t.step(T0 + idle + idle, Input::Tick).iter().collect();
    assert_eq!(orders.last(), Some(&Order::Answer(Verdict::UpstreamIdle)));
}

#[test]
fn r14_a_tunnel_whose_bytes_are_being_taken_is_not_idle() {
    let facts = Facts {
        upgrade: true,
        ..get()
    };
    let switch = ResponseFacts {
        switches: true,
        ..plain()
    };
    let steps = [
        (0, Input::Connected { reused: false }),
        (0, Input::HeadSent),
        (0, Input::FinalHead(switch)),
    ];
    for by in [Side::Client, Side::Upstream] {
        let (mut t, _) = run(facts, &steps);
        let idle = limits().upgrade_idle_timeout;
        assert_eq!(t.deadline(), Some(T0 + idle));
        let _ = t.step(T0 + idle, Input::Acknowledged(by));
        assert_eq!(t.step(T0 + idle, Input::Tick).iter().count(), 0);
        assert_eq!(t.deadline(), Some(T0 + idle + idle));
    }
}
