//! Bodies that are collected before the upstream is dialled.

use super::super::*;
use super::{post, run, SECOND, T0};

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
            Order::Answer(Reason::ReadTimeout)
        ]
    );
}

#[test]
fn i39_a_client_that_ends_inside_a_collected_body_is_gone() {
    let (_, orders) = run(collected(5_000), &[(0, Input::ClientEof)]);
    let severed = Order::Finish(Ending {
        client: ClientEnd::Sever,
        keep_upstream: false,
        cause: Some(Reason::ClientLeftBody),
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
    assert_eq!(orders.last(), Some(&Order::Answer(Reason::BufferMemory)));
}
