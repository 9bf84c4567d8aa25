//! The conformance stories: what the seam promises a handler, told once and held against every driver.
//!
//! A story starts a handler through [`Harness`], plays its clients, and checks what both sides saw. Waiting is always
//! for a condition; the bound on it only ends a story that fails. After each story `subject::check` looks for what no
//! story may break (`Closed` once and last, ids never used twice, ticks never early, a flush after every event).

pub mod accepting;
pub mod closing;
pub mod connecting;
pub mod on_sim;
pub mod on_sockets;
pub mod receiving;
pub mod rings;
pub mod sending;
pub mod subject;
pub mod turning;

use std::net::SocketAddr;
use std::sync::Arc;
use subject::{Act, Seen};
use weir_io::stats::DriverStats;

/// A client's socket, by the harness's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sock(pub usize);

/// How a stream ended for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Fin,
    Reset,
}

/// Addresses for a handler that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The harness listens there: see [`Harness::accept`].
    Listens,
    /// Nobody listens there.
    Refuses,
    /// Nobody ever answers there.
    Silent,
}

/// A driver with a handler under test, and clients to play.
pub trait Harness {
    /// Starts the handler with a listener and so many slots. Once per story, first.
    fn serve(&mut self, act: Act, conns_max: u32) -> Arc<Seen>;
    /// What the handler has been told; as `serve` gave it.
    fn seen(&self) -> Arc<Seen>;
    /// The driver's counters; all zero where there is no kernel.
    fn stats(&self) -> Arc<DriverStats>;
    /// Posts a small mail to the handler, from another part.
    fn mail(&mut self, number: u16);
    /// Posts `each` numbered mails from each of `senders` parts at once: sender `s` posts `s * each..(s + 1) * each`.
    fn mail_from_many(&mut self, senders: u16, each: u16);
    /// Asks the handler to drain, as SIGTERM does.
    fn drain(&mut self);
    /// Waits for `done`; panics, naming `what`, when it does not come.
    fn until(&mut self, what: &str, done: &mut dyn FnMut() -> bool);
    /// Tells the handler to close everything and stop, whatever its act does.
    fn stop(&mut self);
    /// Waits for the handler's driver to end, because its handler stopped.
    fn join(&mut self);

    /// Connects to the handler; the kernel's handshake is done, an accept may be pending.
    fn dial(&mut self) -> Sock;
    /// An address for the handler to connect to.
    fn target(&mut self, target: Target) -> SocketAddr;
    /// The next connection that the handler made to [`Target::Listens`].
    fn accept(&mut self) -> Sock;
    /// Sends all of it; waits until the kernel took it.
    fn send(&mut self, sock: Sock, bytes: &[u8]);
    /// Sends what goes without waiting; says how much.
    fn try_send(&mut self, sock: Sock, bytes: &[u8]) -> usize;
    /// Reads exactly so many bytes.
    fn read(&mut self, sock: Sock, bytes: usize) -> Vec<u8>;
    /// Reads to the end, and says how it ended.
    fn read_to_end(&mut self, sock: Sock) -> (Vec<u8>, End);
    /// Ends the sending side.
    fn half_close(&mut self, sock: Sock);
    /// Resets the connection.
    fn reset(&mut self, sock: Sock);
    /// Closes the connection as a program does that exits in good order.
    fn close(&mut self, sock: Sock);
}

/// One story.
pub struct Story {
    pub name: &'static str,
    pub tell: fn(&mut dyn Harness),
    pub scope: Scope,
}

/// Which drivers a story is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    Every,
    /// Those with sockets of a kernel; it plays in a process of its own, where few descriptors may be open.
    FewDescriptors,
    /// Those with direct descriptors; in such a process, too.
    DirectAlone,
    /// uring alone, at its smallest: it names parts that only io_uring has.
    UringTiny,
    /// uring alone, with a short completion queue.
    UringShortQueue,
}

impl Story {
    /// Plays it to its end and looks for what no story may break.
    pub fn play(&self, h: &mut dyn Harness) {
        (self.tell)(h);
        h.stop();
        h.join();
        subject::check(&h.seen().all());
    }
}

macro_rules! stories {
    ($($scope:ident $module:ident: $($name:ident),+;)+) => {
        /// All of them.
        pub const STORIES: &[Story] = &[
            $($(Story {
                name: stringify!($name),
                tell: $module::$name,
                scope: Scope::$scope,
            },)+)+
        ];
    };
}

stories! {
    Every closing: half_close_still_gets_its_reply, reset_before_any_byte, reset_in_mid_head, reset_in_mid_reply,
        finish_flushes_before_the_fin, finish_then_the_peers_end_closes, close_drops_what_is_unsent,
        a_refusal_survives_a_peer_that_keeps_sending, closed_once_and_last_when_both_sides_close,
        conn_ids_are_never_used_twice, outbox_after_closed_goes_nowhere, reset_while_the_reply_is_owed,
        reset_after_our_fin, reset_with_receiving_off_is_told_at_the_latest_when_it_is_on, many_conns_closed_in_one_turn,
        a_close_at_the_accept_shows_nothing_more, an_end_without_bytes_is_shown_once_and_answered;
    Every sending: a_big_reply_to_a_slow_reader_arrives_whole, one_write_per_turn, a_finished_conn_sends_nothing_more,
        each_slow_reader_of_many_gets_its_own_huge_reply, what_is_added_while_a_send_is_under_way_follows_it,
        each_emptied_outbox_is_told_once;
    Every receiving: bytes_keep_their_order_at_random_sizes, what_is_left_is_shown_again_contiguous,
        receive_off_shows_nothing_and_on_shows_what_was_kept, backpressure_bounds_what_the_driver_keeps,
        bytes_sent_before_the_accept_are_shown_after_it, those_switched_on_first_are_shown_first,
        receiving_switched_at_random_keeps_every_byte,
        one_byte_at_a_time_is_one_stream, streams_of_many_conns_never_mix;
    Every accepting: accept_pauses_and_resumes, at_the_cap_clients_wait_for_a_slot, many_conns_at_once,
        accepting_switched_often_in_a_turn_ends_as_last_said,
        clients_who_leave_before_the_accept_harm_nobody, connect_and_reset_churn_leaves_every_slot_usable;
    Every connecting: a_connect_succeeds_and_talks, a_connect_is_refused, a_connect_times_out,
        a_connect_without_a_slot_names_the_local_limit, many_connects_of_one_turn_are_each_answered_once,
        a_long_reply_is_shown_whole_to_the_one_who_connected,
        a_peer_that_resets_in_mid_write_closes_the_connected_side, a_stop_waits_for_the_connect_under_way;
    Every turning: ten_thousand_deadlines_fire_in_order_and_never_early, mail_of_many_parts_keeps_each_ones_order,
        drain_while_busy_finishes_every_reply, stop_waits_for_the_last_conn,
        a_flood_of_mail_and_due_deadlines_starve_no_client, a_deadline_that_moves_is_kept_where_it_is,
        a_stop_while_clients_keep_sending_ends;
    FewDescriptors accepting: without_descriptors_accepting_pauses_and_comes_back;
    DirectAlone accepting: without_descriptors_direct_clients_are_served_to_their_end;
    UringTiny rings: more_conns_with_data_than_buffers_are_all_served, conns_that_end_in_mid_receive_give_their_buffers_back,
        short_sends_leave_no_gap_and_change_no_order, a_receive_stopped_at_the_bound_loses_nothing_and_goes_on;
    UringShortQueue rings: thousands_of_conns_on_a_short_completion_queue_are_all_served;
}

/// Bytes of a seeded text that no shift of itself resembles.
pub fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = weir_core::rng::Rng::new(seed);
    let mut text = Vec::with_capacity(bytes + 8);
    while text.len() < bytes {
        text.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    text.truncate(bytes);
    text
}

/// Lets the driver make a turn that begins after this call, so that what has reached it was shown.
pub fn nudge(h: &mut dyn Harness, seen: &Seen) {
    let before = seen.nudges();
    h.mail(subject::NUDGE);
    h.until("the nudge is seen", &mut || seen.nudges() > before);
}
