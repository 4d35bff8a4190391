//! A transaction by itself: what these tests share, and by subject the tests.

mod clients;
mod collected;
mod table;
mod tunnels;
mod upstreams;

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

/// A tick, with a client that takes nothing.
pub(super) fn tick(t: &mut Transaction, now: Time) -> Vec<Order> {
    let nothing = Input::Acknowledged {
        by: Side::Client,
        bytes: 0,
        left: 50_000,
    };
    let told = t.step(now, nothing);
    assert!(told.is_empty(), "a tick decides");
    let orders = t.step(now, Input::Tick);
    orders.iter().collect()
}

pub(super) fn run(facts: Facts, steps: &[(u64, Input)]) -> (Transaction, Vec<Order>) {
    let (mut t, orders) = Transaction::begin(T0, facts, limits());
    let mut all: Vec<Order> = orders.iter().collect();
    for &(millis, input) in steps {
        all.extend(t.step(T0 + Duration::from_millis(millis), input).iter());
    }
    (t, all)
}

/// A side takes some of what waits for it.
pub(super) fn acknowledged(by: Side) -> Input {
    Input::Acknowledged {
        by,
        bytes: 10,
        left: 50_000,
    }
}
