//! Tests of which targets are tried, and which are blamed (R19 to R21).

use std::time::Duration;

use toron_reactor::Time;

use super::tests::limits;
use super::*;

const T0: Time = Time(5_000_000_000);

const REFUSED: Input = Input::ConnectFailed(ConnectFailure::Failed);
const GONE: Input = Input::UpstreamGone {
    response_begun: false,
};
const FIRST: Order = connect(false, false);
const AGAIN: Order = connect(true, false);
const ELSEWHERE: Order = connect(false, true);

const fn connect(fresh: bool, other_target: bool) -> Order {
    Order::Connect {
        fresh,
        other_target,
    }
}

fn facts(idempotent: bool) -> Facts {
    Facts {
        idempotent,
        outstanding: 0,
        collect: false,
        keep_alive: true,
        upgrade: false,
        expects_continue: false,
        takes_interim: true,
    }
}

/// What is ordered by these inputs, ten seconds apart.
fn orders(idempotent: bool, retries: u8, inputs: &[Input]) -> Vec<Order> {
    let limits = Limits {
        retries,
        ..limits()
    };
    let (mut t, begin) = Transaction::begin(T0, facts(idempotent), limits);
    let mut all: Vec<Order> = begin.iter().collect();
    for (n, &input) in inputs.iter().enumerate() {
        let now = T0 + Duration::from_secs(10) * (n as u32 + 1);
        assert!(possible(t.upload(), t.download(), input), "{input:?}");
        all.extend(t.step(now, input).iter());
    }
    all
}

fn sent(reused: bool) -> [Input; 2] {
    [Input::Connected { reused }, Input::HeadSent]
}

fn answer(verdict: Verdict) -> [Order; 2] {
    [Order::CloseUpstream, Order::Answer(verdict)]
}

#[test]
fn r21_a_connect_failure_is_retried_for_every_method_as_often_as_allowed() {
    for idempotent in [true, false] {
        let mut expected = vec![FIRST, Order::Blame, ELSEWHERE, Order::Blame, ELSEWHERE];
        expected.push(Order::Blame);
        expected.extend(answer(Verdict::ConnectFailed));
        let given = orders(idempotent, 2, &[REFUSED, REFUSED, REFUSED]);
        assert_eq!(given, expected, "idempotent: {idempotent}");
    }
    let given = orders(true, 0, &[REFUSED]);
    let mut expected = vec![FIRST, Order::Blame];
    expected.extend(answer(Verdict::ConnectFailed));
    assert_eq!(given, expected);
}

#[test]
fn r21_a_loss_before_any_response_byte_is_retried_for_idempotent_requests_only() {
    let inputs = [sent(false).as_slice(), &[GONE]].concat();
    let lost = [FIRST, Order::SendHead, Order::CloseUpstream, Order::Blame];
    let given = orders(true, 1, &inputs);
    assert_eq!(given, [lost.as_slice(), &[ELSEWHERE]].concat());
    let given = orders(false, 1, &inputs);
    let refused = Order::Answer(Verdict::UpstreamClosed);
    assert_eq!(given, [lost.as_slice(), &[refused]].concat());
    let begun = Input::UpstreamGone {
        response_begun: true,
    };
    let given = orders(true, 1, &[sent(false).as_slice(), &[begun]].concat());
    assert_eq!(given, [lost.as_slice(), &[refused]].concat());
}

#[test]
fn r21_a_stale_connection_is_replaced_without_blame_and_then_another_target_is_tried() {
    let inputs = [
        sent(true).as_slice(),
        &[GONE],
        &sent(false),
        &[GONE, REFUSED],
    ]
    .concat();
    let expected = [
        FIRST,
        Order::SendHead,
        Order::CloseUpstream,
        AGAIN,
        Order::SendHead,
        Order::CloseUpstream,
        Order::Blame,
        ELSEWHERE,
        Order::Blame,
        Order::CloseUpstream,
        Order::Answer(Verdict::ConnectFailed),
    ];
    assert_eq!(orders(true, 1, &inputs), expected);
}

#[test]
fn r21_without_another_target_the_answer_is_that_of_the_failure() {
    let given = orders(true, 1, &[REFUSED, Input::NoOtherTarget]);
    let mut expected = vec![FIRST, Order::Blame, ELSEWHERE];
    expected.extend(answer(Verdict::ConnectFailed));
    assert_eq!(given, expected);
    let inputs = [sent(false).as_slice(), &[GONE, Input::NoOtherTarget]].concat();
    let given = orders(true, 1, &inputs);
    assert_eq!(given.last(), Some(&Order::Answer(Verdict::UpstreamClosed)));
}

#[test]
fn r21_what_this_machine_lacks_is_no_fault_of_the_target_and_no_retry() {
    for (failure, verdict) in [
        (ConnectFailure::NoResources, Verdict::NoResources),
        (ConnectFailure::NoAddress, Verdict::NoAddress),
    ] {
        let failed = Input::ConnectFailed(failure);
        let given = orders(false, 0, &[failed, failed, Input::NoOtherTarget]);
        let mut expected = vec![FIRST, ELSEWHERE, ELSEWHERE];
        expected.extend(answer(verdict));
        assert_eq!(given, expected);
    }
}

#[test]
fn r19_r20_no_target_to_begin_with() {
    for (failure, verdict) in [
        (ConnectFailure::TargetsFull, Verdict::TargetsFull),
        (ConnectFailure::TargetsUnhealthy, Verdict::TargetsUnhealthy),
    ] {
        let given = orders(true, 1, &[Input::ConnectFailed(failure)]);
        assert_eq!(given, [[FIRST].as_slice(), &answer(verdict)].concat());
    }
}

#[test]
fn r16_each_address_of_a_target_is_dialled_before_the_target_is_blamed() {
    let more = |more| Input::Dialling { more };
    let inputs = [
        more(true),
        REFUSED,
        more(true),
        Input::Tick,
        more(false),
        REFUSED,
    ];
    let expected = [
        FIRST,
        Order::DialNext,
        // Its time to connect is over.
        Order::CloseUpstream,
        Order::DialNext,
        Order::Blame,
        Order::CloseUpstream,
        Order::Answer(Verdict::ConnectFailed),
    ];
    assert_eq!(orders(true, 0, &inputs), expected);
}

#[test]
fn r20_only_what_the_target_did_is_held_against_it() {
    let waits = sent(false);
    let late = [waits.as_slice(), &[Input::Tick]].concat();
    let given = orders(true, 1, &late);
    let mut expected = vec![FIRST, Order::SendHead, Order::Blame];
    expected.extend(answer(Verdict::ResponseHeaderTimeout));
    assert_eq!(given, expected);
    for input in [Input::ClientGone, Input::BadHead] {
        let given = orders(true, 1, &[waits.as_slice(), &[input]].concat());
        assert!(!given.contains(&Order::Blame), "{input:?}: {given:?}");
    }
    let deadlines = Limits {
        request_deadline: Duration::from_secs(3),
        ..limits()
    };
    let (mut t, _) = Transaction::begin(T0, facts(true), deadlines);
    for input in waits {
        let _ = t.step(T0, input);
    }
    let given = t.step(T0 + Duration::from_secs(3), Input::Tick);
    let given: Vec<Order> = given.iter().collect();
    assert_eq!(given, answer(Verdict::RequestDeadline));
}
