//! Upgraded connections.

use super::super::*;
use super::{acknowledged, get, limits, plain, run, SECOND, T0};

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
    assert_eq!(orders.last(), Some(&Order::Answer(Reason::UnaskedUpgrade)));
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
        let _ = t.step(T0 + idle, acknowledged(by));
        assert_eq!(t.step(T0 + idle, Input::Tick).iter().count(), 0);
        assert_eq!(t.deadline(), Some(T0 + idle + idle));
    }
}
