//! The kernel engines on real sockets: what the scripted conformance suite, which must also run on
//! the simulator, cannot ask.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod connecting;
mod ending;
mod receiving;
mod rig;
mod turning;

macro_rules! on_both_engines {
    ($($module:ident: $($test:ident),+;)+) => {
        mod epoll {
            $($(#[test] fn $test() { crate::$module::$test::<toron_reactor::EpollEngine>(); })+)+
        }
        mod uring {
            $($(#[test] fn $test() {
                if crate::uring_is_available() {
                    crate::$module::$test::<toron_reactor::UringEngine>();
                }
            })+)+
        }
    };
}

on_both_engines! {
    connecting: dialled_and_accepted, a_refused_connection, a_reset_fails_the_receive,
        a_reset_that_came_before_the_receive;
    receiving: an_empty_pool_makes_receives_wait,
        a_waiting_receive_without_buffer_can_be_cancelled, many_receives_keep_their_order,
        many_receives_without_buffers_can_be_cancelled, received_behind_what_is_there,
        all_that_came_is_received;
    ending: close_ends_what_is_in_flight, polls_of_a_half_closed_connection,
        a_hangup_of_both_sides, a_dropped_engine_closes_its_sockets, a_flood_of_operations;
    turning: spliced_through_a_pipe, a_turn_waits_until_its_time, a_wake_ends_a_turn,
        every_completion_ends_a_turn;
}

/// Whether this kernel lets the process have a ring. Says so when not: a green run must not look
/// as if io_uring had been tested.
fn uring_is_available() -> bool {
    match toron_reactor::EngineKind::IoUring.choose() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}
