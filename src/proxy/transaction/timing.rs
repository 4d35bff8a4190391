//! What time does to a transaction, rule by rule.

use super::tests::{get, limits, plain, post, tick, SECOND, T0};
use super::*;

/// A transaction at a moment of its life, and what it ordered last.
struct Life {
    transaction: Transaction,
    orders: Vec<Order>,
}

impl Life {
    fn new(facts: Facts, limits: Limits) -> Life {
        let (transaction, orders) = Transaction::begin(T0, facts, limits);
        let orders = orders.iter().collect();
        Life {
            transaction,
            orders,
        }
    }

    /// Connected, and the head is sent.
    fn sent(facts: Facts, limits: Limits) -> Life {
        let life = Life::new(facts, limits);
        life.at(0, Input::Connected { reused: false })
            .at(0, Input::HeadSent)
    }

    fn at(mut self, millis: u64, input: Input) -> Life {
        let now = T0 + Duration::from_millis(millis);
        self.orders = if input == Input::Tick {
            tick(&mut self.transaction, now)
        } else {
            self.transaction.step(now, input).iter().collect()
        };
        self
    }

    /// Nothing happens before `millis`; then this does.
    fn due(mut self, millis: u64, orders: &[Order]) -> Life {
        let due = T0 + Duration::from_millis(millis);
        // Looks at a client that takes nothing.
        while let Some(at) = self.transaction.deadline().filter(|at| *at < due) {
            assert_eq!(tick(&mut self.transaction, at), [], "{at:?}");
        }
        assert_eq!(
            self.transaction.deadline(),
            Some(due),
            "{:?}",
            self.transaction
        );
        let early = self.at(millis - 1, Input::Tick);
        assert_eq!(early.orders, []);
        let life = early.at(millis, Input::Tick);
        assert_eq!(life.orders, orders);
        life
    }

    fn no_deadline(&self) {
        assert_eq!(self.transaction.deadline(), None);
    }

    /// Bytes of the body come, and more are awaited.
    fn body(self, millis: u64, bytes: u64) -> Life {
        self.at(millis, Input::Received { bytes, last: false })
            .at(millis, Input::Passed)
            .at(millis, Input::UploadWaits(Side::Client))
    }
}

fn finish(client: ClientEnd) -> Order {
    Order::Finish(Ending {
        client,
        keep_upstream: false,
        cause: None,
    })
}

fn sever(cause: Reason) -> Order {
    Order::Finish(Ending {
        client: ClientEnd::Sever,
        keep_upstream: false,
        cause: Some(cause),
    })
}

/// The client has taken so much of what waits for it since the last look.
fn taken(bytes: u64) -> Input {
    Input::Acknowledged {
        by: Side::Client,
        bytes,
        left: 50_000,
    }
}

const AWAIT_CLIENT: Input = Input::UploadWaits(Side::Client);
const AWAIT_UPSTREAM: Input = Input::UploadWaits(Side::Upstream);

fn too_slow() -> [Order; 3] {
    cut_for(Reason::ReadTimeout)
}

fn cut_for(reason: Reason) -> [Order; 3] {
    [
        Order::CloseUpstream,
        Order::StopUpload,
        Order::Answer(reason),
    ]
}

#[test]
fn i18_the_next_window_begins_when_the_quota_of_the_last_is_reached() {
    Life::sent(post(1 << 20), limits())
        .at(0, AWAIT_CLIENT)
        .body(4_000, 1_023)
        .body(4_500, 1)
        .body(9_499, 1_023)
        .due(9_500, &too_slow());
}

#[test]
fn i19_a_pause_of_reading_extends_the_window_by_its_length() {
    Life::sent(post(1 << 20), limits())
        .at(0, AWAIT_CLIENT)
        .at(
            3_000,
            Input::Received {
                bytes: 10,
                last: false,
            },
        )
        .at(3_000, AWAIT_UPSTREAM)
        .at(50_000, Input::Passed)
        .at(50_000, AWAIT_CLIENT)
        .due(52_000, &too_slow());
}

#[test]
fn i19_the_first_window_begins_with_the_first_read() {
    let life = Life::new(post(100), limits()).at(8_000, Input::Connected { reused: false });
    life.at(9_000, Input::HeadSent)
        .at(9_000, AWAIT_CLIENT)
        .due(14_000, &too_slow());
}

#[test]
fn i20_the_average_is_judged_after_two_seconds() {
    let rate = Limits {
        min_body_rate: 1_000,
        ..limits()
    };
    // 5,999 bytes are worth six seconds less a millisecond, though each window is met.
    Life::sent(post(1 << 20), rate)
        .at(0, AWAIT_CLIENT)
        .body(1_000, 2_000)
        .body(1_900, 3_999)
        .due(5_999, &cut_for(Reason::MinBodyRate));
    Life::sent(post(1 << 20), rate)
        .at(0, AWAIT_CLIENT)
        .due(2_000, &cut_for(Reason::MinBodyRate));
}

#[test]
fn i20_the_stricter_of_rate_and_window_severs_and_both_answer_408() {
    let slow = Limits {
        min_body_rate: 100,
        read_timeout: SECOND,
        ..limits()
    };
    Life::sent(post(1 << 20), slow)
        .at(0, AWAIT_CLIENT)
        .due(1_000, &too_slow())
        .at(1_000, Input::AnswerSent);
    let drip = Limits {
        read_timeout: Duration::ZERO,
        ..slow
    };
    Life::sent(post(1 << 20), drip)
        .at(0, AWAIT_CLIENT)
        .due(2_000, &cut_for(Reason::MinBodyRate));
}

#[test]
fn i21_the_total_severs_a_steady_body() {
    let total = Limits {
        body_timeout: 3 * SECOND,
        ..limits()
    };
    let mut life = Life::sent(post(1 << 30), total).at(0, AWAIT_CLIENT);
    for tenth in 1..30 {
        life = life.body(tenth * 100, 1 << 20);
    }
    life.due(3_000, &cut_for(Reason::BodyTimeout));
}

#[test]
fn i21_the_total_stands_still_while_toron_does_not_read() {
    let total = Limits {
        body_timeout: 3 * SECOND,
        ..limits()
    };
    Life::sent(post(1 << 30), total)
        .at(0, AWAIT_CLIENT)
        .at(
            1_000,
            Input::Received {
                bytes: 4_096,
                last: false,
            },
        )
        .at(1_000, AWAIT_UPSTREAM)
        .at(11_000, Input::Passed)
        .at(11_000, AWAIT_CLIENT)
        .due(13_000, &cut_for(Reason::BodyTimeout));
}

#[test]
fn i18_i29_a_zero_is_off() {
    let off = Limits {
        read_timeout: Duration::ZERO,
        write_timeout: Duration::ZERO,
        ..limits()
    };
    Life::sent(post(1 << 20), off)
        .at(0, AWAIT_CLIENT)
        .no_deadline();
    Life::sent(get(), off)
        .at(0, Input::FinalHead(plain()))
        .at(0, Input::DownloadWaits(Side::Client))
        .no_deadline();
}

#[test]
fn i18_after_the_response_has_begun_a_slow_client_is_severed() {
    Life::sent(post(1 << 20), limits())
        .at(0, AWAIT_CLIENT)
        .at(1_000, Input::FinalHead(plain()))
        .due(5_000, &[Order::StopUpload, sever(Reason::ReadTimeout)]);
}

#[test]
fn i25_while_waiting_only_the_response_header_timeout_runs() {
    let short = Limits {
        read_timeout: SECOND,
        write_timeout: SECOND,
        upstream_idle_timeout: 2 * SECOND,
        min_body_rate: 100,
        body_timeout: SECOND,
        response_header_timeout: 60 * SECOND,
        ..limits()
    };
    let timeout = [
        Order::Blame,
        Order::CloseUpstream,
        Order::Answer(Reason::ResponseHeaderTimeout),
    ];
    Life::sent(get(), short).due(60_000, &timeout);
    Life::sent(post(10), short)
        .at(0, AWAIT_CLIENT)
        .at(
            500,
            Input::Received {
                bytes: 10,
                last: true,
            },
        )
        .at(500, AWAIT_UPSTREAM)
        .at(600, Input::Passed)
        .at(600, Input::UploadDone)
        .due(60_600, &timeout);
    // The answer then has the time of a write.
    Life::sent(get(), short)
        .due(60_000, &timeout)
        .due(61_000, &[sever(Reason::ResponseHeaderTimeout)]);
}

#[test]
fn i26_an_upstream_that_takes_no_byte_of_the_body_is_given_up() {
    Life::sent(post(1 << 20), limits())
        .at(0, AWAIT_CLIENT)
        .at(
            0,
            Input::Received {
                bytes: 4_096,
                last: false,
            },
        )
        .at(0, AWAIT_UPSTREAM)
        .at(30_000, Input::Passed)
        .due(
            90_000,
            &[
                Order::CloseUpstream,
                Order::StopUpload,
                Order::Answer(Reason::UpstreamIdleTimeout),
            ],
        );
}

#[test]
fn i26_after_the_head_a_silent_upstream_costs_the_client_its_connection() {
    Life::sent(get(), limits())
        .at(1_000, Input::FinalHead(plain()))
        .at(1_000, Input::DownloadWaits(Side::Client))
        .at(2_000, Input::DownloadWaits(Side::Upstream))
        .due(62_000, &[sever(Reason::UpstreamIdleTimeout)]);
}

fn event_stream() -> Input {
    Input::FinalHead(ResponseFacts {
        event_stream: true,
        ..plain()
    })
}

#[test]
fn i26_an_event_stream_may_be_silent() {
    Life::sent(get(), limits())
        .at(1_000, event_stream())
        .at(2_000, Input::DownloadWaits(Side::Upstream))
        .no_deadline();
    // Also behind a body that the upstream took its time for.
    Life::sent(post(100), limits())
        .at(0, AWAIT_CLIENT)
        .at(
            0,
            Input::Received {
                bytes: 100,
                last: true,
            },
        )
        .at(0, AWAIT_UPSTREAM)
        .at(1_000, event_stream())
        .at(1_000, Input::DownloadWaits(Side::Upstream))
        .at(2_000, Input::Passed)
        .at(2_000, AWAIT_UPSTREAM)
        .at(3_000, Input::Passed)
        .at(3_000, Input::UploadDone)
        .no_deadline();
}

#[test]
fn i26_does_not_outlive_the_upload() {
    let patient = Limits {
        response_header_timeout: 90 * SECOND,
        ..limits()
    };
    // The upstream reads no more, but may still be about to answer (I30).
    Life::sent(post(1 << 20), patient)
        .at(0, AWAIT_CLIENT)
        .at(
            0,
            Input::Received {
                bytes: 4_096,
                last: false,
            },
        )
        .at(0, AWAIT_UPSTREAM)
        .at(1_000, Input::UpstreamWriteFailed { untouched: false })
        .due(
            91_000,
            &[
                Order::Blame,
                Order::CloseUpstream,
                Order::Answer(Reason::ResponseHeaderTimeout),
            ],
        );
}

#[test]
fn i29_the_client_must_take_a_quota_in_each_window() {
    let sent = |bytes| Input::Sent {
        bytes,
        pending: 50_000,
    };
    Life::sent(get(), limits())
        .at(0, Input::FinalHead(plain()))
        .at(0, Input::DownloadWaits(Side::Client))
        .at(4_000, sent(1_024))
        .at(6_000, sent(1_023))
        .due(9_000, &[sever(Reason::WriteTimeout)]);
    // What is pending is less: it is enough to take that.
    Life::sent(get(), limits())
        .at(0, Input::FinalHead(plain()))
        .at(0, Input::DownloadWaits(Side::Client))
        .at(
            4_000,
            Input::Sent {
                bytes: 10,
                pending: 0,
            },
        )
        .due(9_000, &[sever(Reason::WriteTimeout)]);
}

#[test]
fn i29_what_the_client_acknowledges_counts_while_the_kernel_takes_nothing() {
    Life::sent(get(), limits())
        .at(0, Input::FinalHead(plain()))
        .at(0, Input::DownloadWaits(Side::Client))
        .at(625, taken(1 << 20))
        .at(4_000, taken(1_023))
        .at(4_500, taken(1))
        .at(9_000, taken(1_023))
        .due(9_500, &[sever(Reason::WriteTimeout)]);
}

#[test]
fn i32_the_header_deadline_counts_from_the_request_and_ends_with_the_final_head() {
    let limits = Limits {
        header_deadline: 3 * SECOND,
        ..limits()
    };
    let late = Order::Answer(Reason::HeaderDeadline);
    // While dialling.
    Life::new(get(), limits).due(3_000, &[Order::CloseUpstream, late]);
    // An interim response does not disarm it.
    Life::sent(get(), limits)
        .at(1_000, Input::InterimHead { is_continue: false })
        .at(1_000, Input::InterimSent)
        .due(3_000, &[Order::CloseUpstream, late]);
    // While the body comes.
    Life::sent(post(1 << 20), limits)
        .at(0, AWAIT_CLIENT)
        .body(2_000, 2_048)
        .due(3_000, &[Order::CloseUpstream, Order::StopUpload, late]);
    // The final head does, and so does a 101.
    let over = Life::sent(get(), limits).at(2_999, Input::FinalHead(plain()));
    assert_eq!(over.transaction.deadline(), None);
    let tunnel = Life::sent(upgrade(), limits).at(2_999, switch());
    assert_eq!(
        tunnel.transaction.deadline(),
        Some(T0 + Duration::from_millis(62_999))
    );
}

fn upgrade() -> Facts {
    Facts {
        upgrade: true,
        ..get()
    }
}

fn switch() -> Input {
    Input::FinalHead(ResponseFacts {
        switches: true,
        ..plain()
    })
}

fn request_deadline() -> Limits {
    Limits {
        request_deadline: 8 * SECOND,
        ..limits()
    }
}

#[test]
fn i33_the_request_deadline_covers_everything_up_to_the_last_byte() {
    let limits = request_deadline();
    let late = Order::Answer(Reason::RequestDeadline);
    Life::new(get(), limits).due(8_000, &[Order::CloseUpstream, late]);
    Life::sent(get(), limits).due(8_000, &[Order::CloseUpstream, late]);
    // Headers, and then nothing, or bytes without an end.
    Life::sent(get(), limits)
        .at(10, Input::FinalHead(plain()))
        .at(10, Input::DownloadWaits(Side::Upstream))
        .due(8_000, &[sever(Reason::RequestDeadline)]);
    Life::sent(get(), limits)
        .at(10, event_stream())
        .at(7_999, Input::DownloadWaits(Side::Client))
        .due(8_000, &[sever(Reason::RequestDeadline)]);
}

#[test]
fn i33_after_a_101_the_deadline_is_over_unless_it_covers_upgrades() {
    let uncovered = Life::sent(upgrade(), request_deadline()).at(10, switch());
    assert_eq!(
        uncovered.transaction.deadline(),
        Some(T0 + Duration::from_millis(60_010))
    );
    let covered = Limits {
        deadline_covers_upgrades: true,
        ..request_deadline()
    };
    Life::sent(upgrade(), covered)
        .at(10, switch())
        .at(7_000, Input::TunnelMoved)
        .due(8_000, &[sever(Reason::RequestDeadline)]);
    for half in [Side::Client, Side::Upstream] {
        Life::sent(upgrade(), covered)
            .at(10, switch())
            .at(7_000, Input::TunnelHalfClosed(half))
            .due(8_000, &[sever(Reason::RequestDeadline)]);
    }
}

#[test]
fn i39_a_route_may_take_a_fin_for_the_clients_end() {
    let aborts = Limits {
        half_close_aborts: true,
        ..limits()
    };
    for limits in [limits(), aborts] {
        let moments = [
            Life::new(get(), limits),
            Life::sent(get(), limits),
            Life::sent(get(), limits).at(1, Input::InterimHead { is_continue: false }),
            Life::sent(get(), limits).at(1, Input::FinalHead(plain())),
        ];
        for life in moments {
            let life = life.at(2, Input::ClientEof);
            let expected: &[Order] = match limits.half_close_aborts {
                true => &[sever(Reason::ClientHalfClosed)],
                false => &[],
            };
            assert_eq!(life.orders, expected);
        }
    }
    let tunnel = Life::sent(upgrade(), aborts)
        .at(1, switch())
        .at(2, Input::TunnelHalfClosed(Side::Client))
        .at(2, Input::ClientEof);
    assert_eq!(tunnel.orders, [], "a tunnel passes the half-close on");
}

/// The end of a response that came while `owed` bytes of the body were.
fn ends_owing(facts: Facts, limits: Limits) -> Order {
    let life = Life::sent(facts, limits)
        .at(0, AWAIT_CLIENT)
        .at(1, Input::FinalHead(plain()))
        .at(1, Input::DownloadWaits(Side::Client))
        .at(2, Input::DownloadDone { surplus: false });
    life.orders[life.orders.len() - 1]
}

#[test]
fn i11_little_that_is_owed_is_drained_and_more_is_not() {
    let drains = |owed| finish(ClientEnd::Drain { owed });
    assert_eq!(ends_owing(post(1), limits()), drains(1));
    assert_eq!(ends_owing(post(65_536), limits()), drains(65_536));
    let lingers = finish(ClientEnd::Linger);
    assert_eq!(ends_owing(post(65_537), limits()), lingers);
    // How much is left of a chunked body is not known.
    assert_eq!(ends_owing(post(u64::MAX), limits()), lingers);
    let closing = Facts {
        keep_alive: false,
        ..post(10)
    };
    assert_eq!(ends_owing(closing, limits()), lingers);
    // Whether a client sends its body that was not invited to is not known.
    let expects = Facts {
        expects_continue: true,
        ..post(10)
    };
    assert_eq!(ends_owing(expects, limits()), lingers);
    let invited = Life::sent(expects, limits())
        .at(0, AWAIT_CLIENT)
        .at(1, Input::InterimHead { is_continue: true })
        .at(1, Input::InterimSent)
        .at(2, Input::FinalHead(plain()))
        .at(2, Input::DownloadDone { surplus: false });
    assert_eq!(invited.orders[invited.orders.len() - 1], drains(10));
}

#[test]
fn i11_what_has_come_meanwhile_is_not_owed() {
    let life = Life::sent(post(70_000), limits())
        .at(0, AWAIT_CLIENT)
        .at(
            0,
            Input::Received {
                bytes: 10_000,
                last: false,
            },
        )
        .at(1, Input::UpstreamWriteFailed { untouched: false });
    assert!(life.transaction.may_go_on());
    assert!(!life.transaction.will_keep_client());
    let life = life
        .at(1, Input::FinalHead(plain()))
        .at(2, Input::DownloadDone { surplus: false });
    assert_eq!(life.orders, [finish(ClientEnd::Drain { owed: 60_000 })]);
}

#[test]
fn i9_an_answer_of_torons_own_does_not_drain() {
    let life = Life::sent(post(10), limits())
        .at(0, AWAIT_CLIENT)
        .at(
            1,
            Input::UpstreamGone {
                response_begun: false,
            },
        )
        .at(2, Input::AnswerSent);
    let lingers = Order::Finish(Ending {
        client: ClientEnd::Linger,
        keep_upstream: false,
        cause: Some(Reason::UpstreamClosed),
    });
    assert_eq!(life.orders, [lingers]);
}

/// What an operator reads about a request that was cut, by where it was.
#[test]
fn i39_whoever_leaves_is_named_with_what_was_under_way() {
    let gone = Input::UpstreamGone {
        response_begun: true,
    };
    let cut = |life: Life, input: Input| {
        let life = life.at(5, input);
        match life.orders.last() {
            Some(Order::Finish(ending)) => (ending.client, ending.cause),
            other => unreachable!("{other:?}"),
        }
    };
    let tunnel = || Life::sent(upgrade(), limits()).at(1, switch());
    let begun = || Life::sent(get(), limits()).at(1, Input::FinalHead(plain()));
    for (life, input, reason) in [
        (
            Life::new(post(10), limits()),
            Input::ClientGone,
            Reason::ClientLeftBody,
        ),
        (
            Life::sent(post(10), limits()),
            Input::ClientEof,
            Reason::ClientLeftBody,
        ),
        (
            Life::sent(get(), limits()),
            Input::ClientGone,
            Reason::ClientLeftWaiting,
        ),
        (begun(), Input::ClientGone, Reason::ClientLeftResponse),
        (begun(), gone, Reason::ResponseTruncated),
        (
            begun(),
            Input::BadResponseBody(Reason::ResponseBody),
            Reason::ResponseBody,
        ),
        (tunnel(), Input::ClientGone, Reason::ClientLeftTunnel),
        (tunnel(), gone, Reason::UpstreamLeftTunnel),
    ] {
        let ended = cut(life, input);
        assert_eq!(ended, (ClientEnd::Sever, Some(reason)));
    }
    tunnel().due(60_001, &[sever(Reason::UpgradeIdleTimeout)]);
}

/// How much of a limit was used: in milliseconds, or bytes per second.
#[test]
fn what_was_observed_is_told() {
    let late = |life: Life, millis: u64| {
        let life = life.at(millis, Input::Tick);
        life.transaction.observed()
    };
    assert_eq!(late(Life::new(get(), limits()), 10_250), 10_250);
    assert_eq!(late(Life::sent(get(), limits()), 10_500), 10_500);
    let body = Life::sent(post(1 << 20), limits()).at(1_000, AWAIT_CLIENT);
    assert_eq!(late(body, 6_000), 5_000);
    let rate = Limits {
        min_body_rate: 1_000,
        ..limits()
    };
    let body = Life::sent(post(1 << 20), rate).at(0, AWAIT_CLIENT);
    assert_eq!(late(body.body(1_000, 1_500), 2_000), 750);
}

/// A window that ends without its quota tells how much of it there was; no other deadline does.
#[test]
fn i18_what_came_in_the_window_is_told() {
    let short = |life: Life, millis: u64| {
        let life = life.at(millis, Input::Tick);
        let told = life.transaction.shortfall();
        told.map(|short| (short.moved, short.needed))
    };
    let begun = |outstanding| Life::sent(post(outstanding), limits()).at(0, AWAIT_CLIENT);
    let drip = begun(1 << 20).body(1_000, 1_024).body(2_000, 1_000);
    assert_eq!(short(drip, 6_000), Some((1_000, 1_024)));
    assert_eq!(short(begun(1 << 20), 5_000), Some((0, 1_024)));
    assert_eq!(short(begun(100).body(1_000, 10), 5_000), Some((10, 100)));
    assert_eq!(
        short(begun(u64::MAX).body(1_000, 10), 5_000),
        Some((10, 1_024))
    );
    let total = Limits {
        body_timeout: SECOND,
        ..limits()
    };
    let late = Life::sent(post(1 << 20), total).at(0, AWAIT_CLIENT);
    assert_eq!(short(late, 1_000), None);
    assert_eq!(short(Life::new(get(), limits()), 10_000), None);
}
