//! One scripted suite for every engine: each promise of `toron_reactor::engine` on io_uring, on
//! epoll and on the simulator, and what only a kernel has on the first two. An engine that cannot be
//! opened fails its tests; none is skipped.
//!
//! Run one engine with `cargo test -p toron-reactor --test conformance simulator`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod accepting;
mod acknowledging;
mod closing;
mod lab;
mod native;
mod pipes;
mod polling;
mod receiving;
mod rig;
mod sending;
mod simulated;
mod turning;
mod urgent;

macro_rules! kernel_suite {
    ($($module:ident: $($case:ident),+;)+) => {
        mod epoll {
            $($(
                #[test]
                fn $case() {
                    crate::$module::$case(crate::native::Native::<toron_reactor::EpollEngine>::new());
                }
            )+)+
        }

        mod io_uring {
            $($(
                #[test]
                fn $case() {
                    crate::$module::$case(crate::native::Native::<toron_reactor::UringEngine>::new());
                }
            )+)+
        }
    };
}

macro_rules! suite {
    ($($module:ident: $($case:ident),+;)+) => {
        mod simulator {
            $($(
                #[test]
                fn $case() {
                    crate::$module::$case(crate::simulated::Simulated::kind());
                }
            )+)+

            /// The same under completions that are delayed and reordered, and cancellations that
            /// lose their race.
            mod unkind {
                $($(
                    #[test]
                    fn $case() {
                        for seed in 0..100 {
                            crate::$module::$case(crate::simulated::Simulated::unkind(seed));
                        }
                    }
                )+)+
            }
        }

        kernel_suite! { $($module: $($case),+;)+ }
    };
}

suite! {
    accepting: accepts_until_cancelled, a_cancelled_accept_loses_no_connection, a_crowd_is_told_in_pieces,
        closing_a_listener_ends_its_accept, connects_both_ways, a_refused_connect_fails,
        a_connect_in_flight_can_be_cancelled, a_connect_in_flight_can_be_closed,
        a_connection_reset_in_the_queue_does_no_harm;
    receiving: receives_what_is_there, receives_many_until_end_of_stream,
        an_empty_pool_makes_a_receive_wait, an_empty_pool_makes_a_receive_of_many_wait,
        a_buffer_can_be_waited_for, receives_behind_what_a_buffer_holds,
        a_buffer_comes_back_at_end_of_stream, a_buffer_comes_back_on_reset_and_cancel,
        a_reset_told_to_a_sender_is_no_end_for_the_reader, a_fin_stays_behind_unread_bytes, bytes_before_a_reset_can_be_read,
        a_reset_after_fin_does_not_disturb_the_reader;
    sending: sends_and_says_how_much, an_empty_buffer_is_sent_at_once,
        a_send_waits_for_the_peer_to_read, a_send_to_a_reset_peer_fails,
        a_send_to_a_closed_peer_fails_at_last, half_closed_by_us_the_peer_can_go_on,
        half_closed_by_the_peer_we_can_go_on, after_shutdown_of_both_nothing_is_sent,
        bytes_held_back_with_more_arrive_in_the_end, closing_delivers_what_was_sent;
    polling: readable_on_bytes_end_and_reset, writable_when_there_is_room,
        no_hangup_on_half_close, hangup_on_reset, hangup_when_closed_both_ways,
        a_fin_is_noticed_behind_unread_bytes,
        the_end_of_sending_is_noticed_by_reset_but_not_by_our_fin,
        peeking_leaves_bytes_unread,
        idle_says_whether_a_connection_can_be_used, discards_bytes;
    acknowledging: acknowledgements_are_told_while_a_send_waits,
        acknowledgements_are_told_while_a_splice_waits,
        acknowledgements_are_told_while_room_is_awaited;
    pipes: moves_bytes_and_sees_the_end, a_full_pipe_says_would_block_with_bytes_held,
        small_pieces_fill_a_pipe, the_room_told_is_there, a_dirty_pipe_is_not_used_again, splice_reports_resets;
    closing: closing_with_operations_in_flight, closing_with_unread_bytes_resets,
        a_reset_drops_what_was_not_sent, cancelling_what_has_ended_is_harmless,
        a_cancelled_receive_loses_no_bytes, a_cancelled_send_says_what_it_sent,
        another_engine_can_adopt_a_socket;
    turning: a_turn_ends_at_its_time_and_not_before, a_turn_without_time_does_not_wait,
        a_wake_up_ends_a_turn, events_of_one_direction_keep_their_order;
}

/// What the simulator does not have.
mod kernel_only {
    kernel_suite! {
        urgent: receives_end_at_the_mark_and_go_on, splices_stop_at_the_mark_which_a_receive_passes;
    }
}
