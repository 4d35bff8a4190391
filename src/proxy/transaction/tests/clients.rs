//! Clients that are slow, that leave, and that wait for a 100.

use super::super::*;
use super::{get, limits, plain, post, run, SECOND, T0};

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
    assert_eq!(orders.last(), Some(&Order::Answer(Reason::ReadTimeout)));
    let orders: Vec<Order> = t.step(T0 + 5 * SECOND, Input::AnswerSent).iter().collect();
    let ending = Ending {
        client: ClientEnd::Sever,
        keep_upstream: false,
        cause: Some(Reason::ReadTimeout),
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
fn i39_a_fin_matters_while_the_body_is_to_come_or_by_the_rule_of_the_route() {
    let sent = [
        (0, Input::Connected { reused: false }),
        (0, Input::HeadSent),
    ];
    let with = |facts: Facts, more: &[(u64, Input)]| {
        let steps = [sent.as_slice(), more].concat();
        run(facts, &steps).0.minds_fin()
    };
    assert!(run(post(5), &[]).0.minds_fin(), "while dialling");
    assert!(with(post(5), &[]));
    assert!(!with(get(), &[]));
    let head = (1, Input::FinalHead(plain()));
    assert!(with(post(5), &[head]), "the rest of the body is wanted");
    // The upstream takes no more: the client is owed whatever response there is, but while there is
    // none, one that gives up its body has gone.
    let stopped = (1, Input::UpstreamWriteFailed { untouched: false });
    assert!(with(post(5), &[stopped]));
    assert!(!with(post(5), &[stopped, head]));
    let aborts = Limits {
        half_close_aborts: true,
        ..limits()
    };
    assert!(Transaction::begin(T0, get(), aborts).0.minds_fin());
}
