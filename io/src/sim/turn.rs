//! One turn of one part, in the order every driver keeps: mail, news of conns, Tick, `on_flush`, then the effects.
//!
//! Called by the world when the agenda says so. The handler and its effects are taken out of the part while it runs.

use super::boxes::{Posted, mail_size};
use super::link::{Announce, EndState};
use super::part::{News, SimPart, Status};
use super::queue::EndRef;
use super::{StepInfo, World};
use std::cell::Cell;
use std::hash::Hash;
use std::mem;
use weir_core::port::{CloseCause, ConnId, Effects, Event, Input, Op};
use weir_core::time::Now;

/// A part whose box was full is asked again after this: the pace of a busy receiver's turns.
const POST_AGAIN_NS: u64 = 20_000;

/// A turn in progress.
struct Turn {
    part: u32,
    now: Now,
    handler: Box<dyn SimPart>,
    fx: Effects,
    events: u32,
}

impl World {
    /// Runs one turn of `part`. Its effects leave when it ends, a drawn time later.
    pub(super) fn turn(&mut self, part: u32) -> Option<StepInfo> {
        let now = self.now();
        let ends_ns = self.now_ns + self.config.turn_ns.draw(&mut self.rng).max(1);
        let owner = &mut self.parts[part as usize];
        let mut turn = Turn {
            part,
            now,
            handler: owner.handler.take()?,
            fx: mem::take(&mut owner.fx),
            events: 0,
        };
        owner.busy_until_ns = ends_ns;
        owner.woken = false;
        self.hash.word(self.now_ns);
        self.hash.word(u64::from(part));
        if !mem::replace(&mut owner.started, true) {
            self.note(part, 1, 0, "start", "");
            turn.handler.on_start(now, &mut turn.fx);
        }
        self.tell_mail(&mut turn);
        self.tell_news(&mut turn);
        self.tell_accepted(&mut turn);
        if self.parts[part as usize].deadline_ns <= self.now_ns {
            self.tell(&mut turn, 2, 0, Event::Tick);
        }
        turn.handler.on_flush(now, &mut turn.fx);
        let mut ops = mem::take(&mut self.parts[part as usize].ops_spare);
        turn.fx.take_ops(&mut ops);
        self.send_dirty(&mut turn, &ops, ends_ns);
        for op in ops.drain(..) {
            self.do_op(part, op, ends_ns);
        }
        self.parts[part as usize].ops_spare = ops;
        self.deliver_posts(&mut turn, ends_ns);
        Some(self.end_turn(turn, ends_ns))
    }

    fn end_turn(&mut self, turn: Turn, ends_ns: u64) -> StepInfo {
        let deadline_ns = turn.handler.next_deadline().map_or(u64::MAX, |mono| mono.0);
        let posts_waiting = turn.fx.posts_waiting();
        let owner = &mut self.parts[turn.part as usize];
        owner.handler = Some(turn.handler);
        owner.fx = turn.fx;
        owner.deadline_ns = deadline_ns;
        let info = StepInfo {
            at: turn.now,
            machine: owner.seat.machine,
            part: owner.seat.addr,
            events: turn.events,
        };
        if owner.stopping && owner.conns_count() == 0 && posts_waiting == 0 {
            owner.status = Status::Stopped;
            owner.stamp = owner.stamp.wrapping_add(1);
            self.unlisten(turn.part);
            return info;
        }
        if posts_waiting > 0 {
            self.wake_at(turn.part, ends_ns + POST_AGAIN_NS);
        }
        if deadline_ns != u64::MAX {
            self.wake_at(turn.part, deadline_ns);
        }
        info
    }

    /// Hands one event to the handler.
    fn tell(&mut self, turn: &mut Turn, kind: u64, detail: u64, event: Event<'_>) {
        turn.events += 1;
        if self.trace.is_some() {
            let text = format!("{event:?}");
            self.note(turn.part, kind, detail, "", &text);
        } else {
            self.note(turn.part, kind, detail, "", "");
        }
        turn.handler.on_event(turn.now, event, &mut turn.fx);
    }

    fn tell_mail(&mut self, turn: &mut Turn) {
        let owner = &mut self.parts[turn.part as usize];
        let mut inbox = mem::take(&mut owner.inbox);
        owner.mail_count -= inbox.len();
        for slot in inbox.drain(..) {
            let posted = self.mails[slot as usize].take();
            self.mails_free.push(slot);
            if let Some(Posted { mail, .. }) = posted {
                mem::discriminant(&mail).hash(&mut self.hash);
                self.hash.word(mail_size(&mail));
                self.tell(turn, 3, 0, Event::Mail(mail));
            }
        }
        self.parts[turn.part as usize].inbox = inbox;
    }

    fn tell_news(&mut self, turn: &mut Turn) {
        let owner = &mut self.parts[turn.part as usize];
        let spare = mem::take(&mut owner.news_spare);
        let mut news = mem::replace(&mut owner.news, spare);
        for item in news.drain(..) {
            match item {
                News::Conn(end) => self.tell_conn(turn, end),
                News::ConnectFailed { token, error } => {
                    self.tell(turn, 4, token.0, Event::ConnectFailed { token, error });
                }
                News::Drain => self.tell(turn, 5, 0, Event::Drain),
            }
        }
        self.parts[turn.part as usize].news_spare = news;
    }

    /// Tells all that is new about one conn, in the order it can have happened.
    fn tell_conn(&mut self, turn: &mut Turn, end: EndRef) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let own = &mut link.ends[end.side as usize];
        own.in_news = false;
        let (conn, state) = (own.conn, own.state);
        let announce = own.announce.take();
        let sent = mem::take(&mut own.sent) && state == EndState::Open;
        turn.fx.sent(conn, mem::take(&mut own.taken_bytes));
        match announce {
            Some(Announce::Accepted(peer)) => {
                turn.fx.open_conn(conn);
                self.tell(turn, 6, conn_word(conn), Event::Accepted { conn, peer });
            }
            Some(Announce::Connected(token)) => {
                turn.fx.open_conn(conn);
                self.tell(turn, 7, conn_word(conn), Event::Connected { conn, token });
            }
            None => {}
        }
        if sent {
            self.tell(turn, 8, conn_word(conn), Event::Sent { conn });
        }
        if state != EndState::Closed(CloseCause::Local) {
            self.tell_received(turn, end, conn);
        }
        if let EndState::Closed(cause) = state {
            turn.fx.forget_conn(conn);
            self.tell(turn, 9, conn_word(conn), Event::Closed { conn, cause });
            self.parts[turn.part as usize].free_slot(conn);
            if let Some(link) = self.links.get_mut(end) {
                link.ends[end.side as usize].state = EndState::Gone;
            }
            self.links.free_if_over(end);
        }
    }

    fn tell_received(&mut self, turn: &mut Turn, end: EndRef, conn: ConnId) {
        let from = end.peer();
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let own = &mut link.ends[end.side as usize];
        if !own.receive_on || !mem::take(&mut own.fresh) {
            return;
        }
        let pipe = &mut link.pipes[from.side as usize];
        let ended = pipe.fin_arrived;
        pipe.fin_shown |= ended;
        let consumed = Cell::new(0);
        // Lent to the handler: the links may not be touched meanwhile, and the handler cannot reach them.
        let kept = mem::take(&mut pipe.kept);
        let detail = kept.len() as u64 * 2 + u64::from(ended);
        let input = Input::new(kept.bytes(), ended, &consumed);
        self.tell(turn, 10, detail, Event::Received { conn, input });
        if let Some(link) = self.links.get_mut(end) {
            let pipe = &mut link.pipes[from.side as usize];
            pipe.kept = kept;
            pipe.kept.consume(consumed.get());
            if !pipe.unsent.is_empty() {
                self.pump(from, self.now_ns);
            }
            if ended {
                self.close_if_both_ended(end, self.now_ns);
            }
        }
    }

    /// Accepts from the backlog while accepting is on and a slot is free.
    fn tell_accepted(&mut self, turn: &mut Turn) {
        loop {
            let owner = &mut self.parts[turn.part as usize];
            if !owner.accept_on || owner.stopping || owner.free.is_empty() {
                return;
            }
            let Some(end) = owner.backlog.pop_front() else {
                return;
            };
            let Some(conn) = owner.take_slot(|_| end) else {
                return;
            };
            let Some(link) = self.links.get_mut(end) else {
                owner.free_slot(conn);
                continue;
            };
            let peer = link.from;
            let pipe = &link.pipes[end.peer().side as usize];
            let own = &mut link.ends[end.side as usize];
            own.fresh = !pipe.kept.is_empty() || pipe.fin_arrived;
            self.hash.bytes(pipe.kept.bytes());
            own.state = EndState::Open;
            own.conn = conn;
            own.announce = Some(Announce::Accepted(peer));
            self.tell_conn(turn, end);
        }
    }

    /// One write per conn with fresh bytes. A close in the same turn may overtake it (on uring it does): then they stay
    /// unsent and are lost; only a finish flushes.
    fn send_dirty(&mut self, turn: &mut Turn, ops: &[Op], ends_ns: u64) {
        while let Some(conn) = turn.fx.next_dirty() {
            let mut bytes = mem::take(&mut self.scratch);
            turn.fx.take_pending(conn, &mut bytes);
            let end = self.parts[turn.part as usize].end_of(conn);
            let link = end.and_then(|end| Some((end, self.links.get_mut(end)?)));
            match link {
                Some((end, link)) if link.ends[end.side as usize].state == EndState::Open => {
                    let pipe = &mut link.pipes[end.side as usize];
                    if pipe.finish {
                        turn.fx.sent(conn, bytes.len()); // after a FIN nothing can be sent
                    } else {
                        pipe.unsent.push(&bytes);
                        let closes = |op: &Op| matches!(op, Op::Close(closed) if *closed == conn);
                        if !ops.iter().any(closes) || self.rng.chance(1, 2) {
                            self.pump(end, ends_ns);
                        }
                    }
                }
                _ => turn.fx.sent(conn, bytes.len()),
            }
            bytes.clear();
            self.scratch = bytes;
        }
    }

    fn do_op(&mut self, part: u32, op: Op, ends_ns: u64) {
        let owner = &mut self.parts[part as usize];
        match op {
            Op::Connect(connect) => self.dial(part, connect, ends_ns),
            Op::Finish(conn) => {
                if let Some(end) = owner.end_of(conn)
                    && let Some(link) = self.links.get_mut(end)
                {
                    link.pipes[end.side as usize].finish = true;
                    self.pump(end, ends_ns);
                }
            }
            Op::Close(conn) => {
                if let Some(end) = owner.end_of(conn) {
                    self.close_end(end, ends_ns);
                }
            }
            Op::Receive(conn, on) => {
                if let Some(end) = owner.end_of(conn) {
                    self.set_receive(end, on, ends_ns);
                }
            }
            Op::Accept(on) => {
                owner.accept_on = on;
                if on && !owner.backlog.is_empty() {
                    self.wake(part);
                }
            }
            Op::Stop => {
                owner.stopping = true;
            }
        }
    }

    fn set_receive(&mut self, end: EndRef, on: bool, ends_ns: u64) {
        let Some(link) = self.links.get_mut(end) else {
            return;
        };
        let own = &mut link.ends[end.side as usize];
        own.receive_on = on;
        if !on || own.state != EndState::Open {
            return;
        }
        let pipe = &link.pipes[end.peer().side as usize];
        if !pipe.kept.is_empty() || (pipe.fin_arrived && !pipe.fin_shown) {
            own.fresh = true;
            self.add_news(end);
        }
        self.pump(end.peer(), ends_ns);
    }

    #[expect(
        clippy::result_large_err,
        reason = "a refused mail goes back as it came"
    )]
    fn deliver_posts(&mut self, turn: &mut Turn, ends_ns: u64) {
        if turn.fx.posts_waiting() > 0 {
            turn.fx
                .deliver_posts(|to, mail| self.post(turn.part, to, mail, ends_ns));
        }
    }
}

fn conn_word(conn: ConnId) -> u64 {
    u64::from(conn.slot) << 32 | u64::from(conn.generation)
}
