//! Who watches the watchman: each bug of `toron_reactor::planted` is planted in turn, and the
//! simulation must complain within ten thousand seeds. Without any, it must not.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::panic::{catch_unwind, AssertUnwindSafe};

use support::scenario::run;
use toron_reactor::planted::{plant, Bug};

const SEEDS: u64 = 10_000;

/// The first seed that fails with `bug` planted, and how.
fn first_failure(bug: Bug) -> Option<(u64, String)> {
    let found = (0..SEEDS).find_map(|seed| {
        // Anew for each run: the switch is the thread's.
        plant(Some(bug));
        let result = catch_unwind(AssertUnwindSafe(|| run(seed)));
        plant(None);
        let panic = result.err()?;
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_default();
        Some((seed, text.lines().next().unwrap_or_default().to_owned()))
    });
    found
}

fn must_be_caught(bug: Bug) {
    match first_failure(bug) {
        Some((seed, how)) => println!("{bug:?}: caught at seed {seed}: {how}"),
        None => panic!("{bug:?} is not caught within {SEEDS} seeds"),
    }
}

macro_rules! bugs {
    ($($name:ident: $bug:ident;)+) => {
        $(
            #[test]
            fn $name() {
                must_be_caught(Bug::$bug);
            }
        )+

        #[test]
        fn every_bug_is_planted_here() {
            let planted = [$(Bug::$bug),+];
            for bug in Bug::ALL {
                assert!(planted.contains(bug), "{bug:?} is planted by no test");
            }
        }
    };
}

bugs! {
    dirty_pipe_pooled: DirtyPipePooled;
    stale_generation: StaleGeneration;
    buffer_released_twice: BufferReleasedTwice;
    cancel_lost: CancelLost;
    earlier_deadline_ignored: EarlierDeadlineIgnored;
    deadline_early: DeadlineEarly;
    event_after_final: EventAfterFinal;
    wake_up_lost: WakeUpLost;
    partial_send_taken_as_whole: PartialSendTakenAsWhole;
    buffer_kept_on_cancel: BufferKeptOnCancel;
    fin_behind_bytes_lost: FinBehindBytesLost;
    connection_ended_twice: ConnectionEndedTwice;
    accept_after_cancel_leaked: AcceptAfterCancelLeaked;
    reset_taken_for_end: ResetTakenForEnd;
}

#[test]
fn without_a_bug_nothing_is_caught() {
    plant(None);
    for seed in 0..500 {
        run(seed);
    }
}
