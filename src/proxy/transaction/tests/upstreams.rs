//! Upstreams: connecting, what they answer, how they fail, and when a request is sent again.

use super::super::*;
use super::{acknowledged, get, limits, plain, post, run, T0};

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
                keep_upstream: true,
                cause: None,
            }),
        ]
    );
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
    assert_eq!(orders.last(), Some(&Order::Answer(Reason::UpstreamClosed)));
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
            Order::Connect {
                fresh: false,
                other_target: true
            },
            Order::CloseUpstream,
            Order::Answer(Reason::ConnectTimeout),
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
            Order::CloseUpstream,
            Order::Answer(Reason::ResponseHeaderTimeout)
        ]
    );
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
        cause: None,
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
        cause: Some(Reason::ResponseTruncated),
    };
    assert_eq!(orders.last(), Some(&Order::Finish(ending)));
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
        [
            Order::CloseUpstream,
            Order::Answer(Reason::UpstreamIdleTimeout)
        ]
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
    assert_eq!(orders.last(), Some(&Order::Answer(Reason::UpstreamClosed)));
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
    let _ = t.step(T0 + idle, acknowledged(Side::Upstream));
    assert_eq!(t.step(T0 + idle, Input::Tick).iter().count(), 0);
    assert_eq!(t.deadline(), Some(T0 + idle + idle));
    // The client's taking says nothing of the upstream.
    let _ = t.step(T0 + idle + idle, acknowledged(Side::Client));
    let orders: Vec<Order> = t.step(T0 + idle + idle, Input::Tick).iter().collect();
    assert_eq!(
        orders.last(),
        Some(&Order::Answer(Reason::UpstreamIdleTimeout))
    );
}
