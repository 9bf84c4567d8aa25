//! The network between parts: connects, segments, windows, half-closes and resets, as TCP shows them to a driver.
//!
//! Called by turns (what a part did) and by the agenda (what arrives). Invariants: bytes of one direction arrive in
//! order and unchanged; what is on the wire or kept stays within the window; an end is told `Closed` once, last.

use super::faults::{Dial, DialFate, Route, SegmentFate};
use super::link::{Announce, Dialer, EndState};
use super::part::{Listen, News, Status};
use super::queue::{EndRef, What};
use super::{EPHEMERAL_PORT_MIN, World};
use crate::limits::REPLY_BACKLOG_BYTES_MAX;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use weir_core::port::{CloseCause, Connect, ConnectError};

/// A SYN that found a full backlog is sent again after this (Linux's first retransmission).
const SYN_AGAIN_NS: u64 = 1_000_000_000;
/// The end of a link whose part connected it.
const DIALER: usize = 0;

impl World {
    /// A part's connect leaves at `at_ns`.
    pub(super) fn dial(&mut self, part: u32, connect: Connect, at_ns: u64) {
        let from = self.source_of(connect.from);
        let links = &mut self.links;
        let mut dialed = None;
        self.parts[part as usize].take_slot(|conn| {
            let end = links.open(Dialer {
                part,
                conn,
                token: connect.token,
                to: connect.to,
                from,
            });
            dialed = Some(end);
            end
        });
        let Some(end) = dialed else {
            self.tell_connect_failed(part, connect, ConnectError::LocalLimit);
            return;
        };
        let dial = Dial {
            from: self.parts[part as usize].seat,
            to: connect.to,
        };
        let arrives_ns = at_ns + self.config.net_ns.draw(&mut self.rng);
        match self.faults.dial(self.now(), dial, &mut self.fault_rng) {
            DialFate::Pass => self.queue.push(arrives_ns, What::Syn(end)),
            DialFate::Refuse => self.queue.push(arrives_ns, What::Refused(end)),
            DialFate::Drop => {}
        }
        let deadline_ns = connect.deadline.0.max(at_ns);
        if deadline_ns != u64::MAX {
            self.queue.push(deadline_ns, What::ConnectDeadline(end));
        }
    }

    fn tell_connect_failed(&mut self, part: u32, connect: Connect, error: ConnectError) {
        self.parts[part as usize].news.push(News::ConnectFailed {
            token: connect.token,
            error,
        });
        self.wake(part);
    }

    /// The address a connect comes from; a port of its own when it names none.
    fn source_of(&mut self, from: Option<SocketAddr>) -> SocketAddr {
        let mut source = from.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0));
        if source.port() == 0 {
            source.set_port(self.next_port);
            self.next_port = self.next_port.checked_add(1).unwrap_or(EPHEMERAL_PORT_MIN);
        }
        source
    }

    /// Carries out what the agenda names, other than turns and mail.
    pub(super) fn network(&mut self, what: What) {
        match what {
            What::Turn { .. } | What::Mail { .. } => unreachable!("taken up by the world"),
            What::Syn(end) => self.syn(end),
            What::SynAck(end) => self.syn_ack(end),
            What::Refused(end) => self.dial_failed(end, ConnectError::Refused),
            What::ConnectDeadline(end) => self.dial_failed(end, ConnectError::TimedOut),
            What::Arrive { to, bytes } => self.arrive(to, bytes as usize),
            What::Fin(end) => self.fin(end),
            What::Reset(end) => self.reset_arrives(end),
        }
    }

    fn syn(&mut self, end: EndRef) {
        let Some(link) = self.links.get(end) else {
            return;
        };
        if link.ends[0].state != EndState::Dialing {
            return;
        }
        let answer_ns = self.now_ns + self.config.net_ns.draw(&mut self.rng);
        let listeners = self.listeners.get(&link.to).map_or(&[][..], Vec::as_slice);
        if listeners.is_empty() {
            self.queue.push(answer_ns, What::Refused(end));
            return;
        }
        let part = match listeners {
            [only] => *only,
            several => several[self.rng.below(several.len() as u64) as usize],
        };
        let listener = &mut self.parts[part as usize];
        if listener.backlog.len() >= self.config.backlog_max {
            let again_ns = self.now_ns + SYN_AGAIN_NS;
            self.queue.push(again_ns, What::Syn(end));
            return;
        }
        listener.backlog.push_back(end.peer());
        let can_accept = listener.accept_on && !listener.free.is_empty();
        if let Some(link) = self.links.get_mut(end) {
            link.ends[1].part = part;
            link.ends[1].state = EndState::Backlog;
            link.pipes[1].last_arrival_ns = answer_ns;
        }
        self.queue.push(answer_ns, What::SynAck(end));
        if can_accept {
            self.wake(part);
        }
    }

    fn syn_ack(&mut self, end: EndRef) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let token = link.token;
        let dialer = &mut link.ends[0];
        if dialer.state != EndState::Dialing {
            return;
        }
        dialer.state = EndState::Open;
        dialer.announce = Some(Announce::Connected(token));
        self.add_news(end);
    }

    /// The connecting end gives up, when it is still waiting.
    fn dial_failed(&mut self, end: EndRef, error: ConnectError) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let token = link.token;
        let dialer = &mut link.ends[0];
        if dialer.state != EndState::Dialing {
            return;
        }
        dialer.state = EndState::Gone;
        let (part, conn) = (dialer.part, dialer.conn);
        let owner = &mut self.parts[part as usize];
        owner.free_slot(conn);
        owner.news.push(News::ConnectFailed { token, error });
        self.wake(part);
        self.send_reset(end.peer(), self.now_ns);
        self.links.free_if_over(end);
    }

    /// Puts what `end` has unsent on the wire, as far as the window of its peer has room.
    pub(super) fn pump(&mut self, end: EndRef, at_ns: u64) {
        loop {
            let (window, mut input_max) = (self.config.window_bytes, self.config.input_bytes_max);
            let Some(link) = self.links.get_mut(end) else {
                return;
            };
            let (side, other) = (end.side as usize, end.peer().side as usize);
            if other == DIALER {
                input_max = input_max.max(REPLY_BACKLOG_BYTES_MAX);
            }
            if link.ends[side].state != EndState::Open {
                return;
            }
            if link.broken {
                link.pipes[side].unsent.clear();
                return;
            }
            let pipe = &link.pipes[side];
            // A driver that receives drains the window into its own input buffer, up to that buffer's size.
            let kept_bytes = pipe.kept.len();
            let held_bytes = if link.ends[other].receive_on {
                kept_bytes.saturating_sub(input_max)
            } else {
                kept_bytes
            };
            let room = window.saturating_sub(pipe.wire.len() + held_bytes);
            let most = room.min(pipe.unsent.len());
            if most == 0 {
                break;
            }
            let route = Route {
                from: self.parts[link.ends[side].part as usize].seat,
                to: self.parts[link.ends[other].part as usize].seat,
            };
            let mut bytes = most;
            if self.rng.chance(self.config.split_per_mille, 1000) {
                bytes = 1 + self.rng.below(most as u64) as usize;
            }
            let fate = self
                .faults
                .segment(self.now(), route, bytes, &mut self.fault_rng);
            match fate {
                SegmentFate::Pass { delay_ns } => self.send_segment(end, bytes, at_ns + delay_ns),
                SegmentFate::Reset => {
                    self.break_link(end, at_ns);
                    return;
                }
            }
        }
        self.send_fin_if_due(end, at_ns);
    }

    fn send_segment(&mut self, end: EndRef, bytes: usize, at_ns: u64) {
        let latency_ns = self.config.net_ns.draw(&mut self.rng);
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let pipe = &mut link.pipes[end.side as usize];
        pipe.unsent.move_to(&mut pipe.wire, bytes);
        pipe.last_arrival_ns = pipe.last_arrival_ns.max(at_ns + latency_ns);
        let what = What::Arrive {
            to: end.peer(),
            bytes: bytes as u32,
        };
        self.queue.push(pipe.last_arrival_ns, what);
        let all_sent = pipe.unsent.is_empty();
        let sender = &mut link.ends[end.side as usize];
        sender.taken_bytes += bytes;
        if all_sent && sender.state == EndState::Open {
            sender.sent = true;
            self.add_news(end);
        }
    }

    fn send_fin_if_due(&mut self, end: EndRef, at_ns: u64) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let pipe = &mut link.pipes[end.side as usize];
        if pipe.finish && !pipe.fin_left && pipe.unsent.is_empty() {
            pipe.fin_left = true;
            let latency_ns = self.config.net_ns.draw(&mut self.rng);
            pipe.last_arrival_ns = pipe.last_arrival_ns.max(at_ns + latency_ns);
            self.queue.push(pipe.last_arrival_ns, What::Fin(end.peer()));
            self.close_if_both_ended(end, at_ns);
        }
    }

    /// After both ends nothing can follow: the driver closes (see `Op::Finish`).
    pub(super) fn close_if_both_ended(&mut self, end: EndRef, at_ns: u64) {
        if let Some(link) = self.links.get(end)
            && link.pipes[end.side as usize].fin_left
            && link.pipes[end.peer().side as usize].fin_shown
        {
            self.close_end(end, at_ns);
        }
    }

    fn arrive(&mut self, end: EndRef, bytes: usize) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let pipe = &mut link.pipes[end.peer().side as usize];
        let bytes = bytes.min(pipe.wire.len()); // a reset may have emptied the wire
        let receiver = &mut link.ends[end.side as usize];
        match receiver.state {
            EndState::Gone | EndState::Closed(_) => {
                // RFC 9293 §3.10.7.1: data for a closed connection is answered with a reset.
                pipe.wire.consume(bytes);
                self.send_reset(end.peer(), self.now_ns);
            }
            EndState::Dialing | EndState::Backlog => pipe.wire.move_to(&mut pipe.kept, bytes),
            EndState::Open => {
                self.hash.bytes(&pipe.wire.bytes()[..bytes]);
                pipe.wire.move_to(&mut pipe.kept, bytes);
                if bytes > 0 {
                    self.show(end);
                }
            }
        }
    }

    fn fin(&mut self, end: EndRef) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        link.pipes[end.peer().side as usize].fin_arrived = true;
        if link.ends[end.side as usize].state == EndState::Open {
            self.show(end);
        }
    }

    /// The part of `end` has something to read.
    fn show(&mut self, end: EndRef) {
        if let Some(link) = self.links.get_mut(end) {
            let receiver = &mut link.ends[end.side as usize];
            receiver.fresh = true;
            if receiver.receive_on {
                self.add_news(end);
            }
        }
    }

    fn reset_arrives(&mut self, end: EndRef) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let keeps_unread = self.rng.chance(1, 2);
        link.pipes[end.side as usize].unsent.clear();
        let victim = &mut link.ends[end.side as usize];
        match victim.state {
            EndState::Gone | EndState::Closed(_) => {}
            EndState::Dialing => self.dial_failed(end, ConnectError::Refused),
            EndState::Backlog => {
                victim.state = EndState::Gone;
                let listener = victim.part as usize;
                self.parts[listener].backlog.retain(|&waits| waits != end);
                self.links.free_if_over(end);
            }
            EndState::Open => {
                victim.state = EndState::Closed(CloseCause::Reset);
                // Linux may or may not hand out what it had queued before a reset: both must be survived.
                victim.fresh &= keeps_unread;
                self.add_news(end);
            }
        }
    }

    /// A reset is on its way to `end`, behind what was sent before it.
    pub(super) fn send_reset(&mut self, end: EndRef, at_ns: u64) {
        let latency_ns = self.config.net_ns.draw(&mut self.rng);
        let loses_wire = self.rng.chance(1, 2);
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let pipe = &mut link.pipes[end.peer().side as usize];
        if loses_wire {
            pipe.wire.clear();
        }
        pipe.last_arrival_ns = pipe.last_arrival_ns.max(at_ns + latency_ns);
        self.queue.push(pipe.last_arrival_ns, What::Reset(end));
    }

    /// The network resets both ends; what was on the way is lost.
    pub(super) fn break_link(&mut self, end: EndRef, at_ns: u64) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        link.broken = true;
        for pipe in &mut link.pipes {
            pipe.wire.clear();
            pipe.unsent.clear();
        }
        self.hash.word(7);
        self.send_reset(end, at_ns);
        self.send_reset(end.peer(), at_ns);
    }

    /// The part of `end` closes: what is unsent is lost, the peer sees a FIN, or a reset when something was unread.
    pub(super) fn close_end(&mut self, end: EndRef, at_ns: u64) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let side = end.side as usize;
        if link.ends[side].state != EndState::Open {
            return;
        }
        link.ends[side].state = EndState::Closed(CloseCause::Local);
        // What the handler saw, the kernel had handed out; what it did not see may still be in the socket.
        let unseen = link.ends[side].fresh && !link.pipes[end.peer().side as usize].kept.is_empty();
        let unread = unseen && self.rng.chance(1, 2);
        let pipe = &mut link.pipes[side];
        pipe.unsent.clear();
        pipe.finish = true;
        self.add_news(end);
        if unread {
            // RFC 2525 §2.17: closing with data unread resets.
            self.send_reset(end.peer(), at_ns);
        } else {
            self.send_fin_if_due(end, at_ns);
        }
    }

    /// Lets the end behind `end` go because its part crashed.
    pub(super) fn abandon(&mut self, end: EndRef) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        link.ends[end.side as usize].state = EndState::Gone;
        self.send_reset(end.peer(), self.now_ns);
        self.links.free_if_over(end);
    }

    /// Puts `end` among the news of its part, once, and wakes the part.
    pub(super) fn add_news(&mut self, end: EndRef) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let owner = &mut link.ends[end.side as usize];
        if !owner.in_news {
            owner.in_news = true;
            let part = owner.part;
            self.parts[part as usize].news.push(News::Conn(end));
            self.wake(part);
        }
    }

    /// Stops listening: what waits in the backlog is reset, later connects are refused unless others listen there.
    pub(super) fn unlisten(&mut self, part: u32) {
        let owner = &mut self.parts[part as usize];
        let waiting = std::mem::take(&mut owner.backlog);
        if let Listen::On(address) = owner.listen
            && let Some(listeners) = self.listeners.get_mut(&address)
        {
            listeners.retain(|&listener| listener != part);
        }
        for end in waiting {
            self.abandon(end);
        }
    }

    /// Begins to listen, if the part does.
    pub(super) fn listen(&mut self, part: u32) {
        let owner = &self.parts[part as usize];
        debug_assert_eq!(owner.status, Status::Running);
        if let Listen::On(address) = owner.listen {
            self.listeners.entry(address).or_default().push(part);
        }
    }
}
