//! The loop: one turn after another, each in the order of design §3.

use super::Driver;
use super::backend::{Backend, Completion, Wait};
use crate::clock;
use crate::error::DriverError;
use crate::limits::{
    COMPLETIONS_PER_TURN_MAX, MAIL_PER_RING_TURN_MAX, POST_RETRY_MS, POSTS_AT_STOP_MS_MAX,
};
use std::time::Duration;
use weir_core::port::{CloseCause, ConnId, ConnectError, ConnectToken, Event, Op};
use weir_core::time::Mono;

/// What is to be done later in this turn or early in the next; reused, so nothing is allocated per request.
pub struct Lists<S> {
    /// Completions of this turn.
    pub completions: Vec<Completion<S>>,
    /// The kernel had more than one turn takes.
    pub more_completions: bool,
    /// Commands of this turn.
    pub ops: Vec<Op>,
    /// Conns whose last operation has ended.
    pub closed: Vec<ConnId>,
    /// Conns whose kept bytes or end are to be shown.
    pub shows: Vec<ConnId>,
    /// Conns that need a receive armed.
    pub arms: Vec<ConnId>,
    /// Conns whose send ended and that have more to send.
    pub resumed: Vec<ConnId>,
    /// Connects that failed.
    pub failed: Vec<(ConnectToken, ConnectError)>,
}

/// Bytes of the lists that grow with the table.
pub fn lists_memory_needed(conns_max: usize) -> usize {
    4 * conns_max * size_of::<ConnId>()
}

impl<S> Lists<S> {
    /// Empty, with room for every conn once.
    pub fn new(conns_max: usize) -> Self {
        Self {
            completions: Vec::with_capacity(COMPLETIONS_PER_TURN_MAX),
            more_completions: false,
            ops: Vec::with_capacity(64),
            closed: Vec::with_capacity(conns_max),
            shows: Vec::with_capacity(conns_max),
            arms: Vec::with_capacity(conns_max),
            resumed: Vec::with_capacity(conns_max),
            failed: Vec::new(),
        }
    }
}

/// How far the loop is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Working.
    Running,
    /// The handler said stop: ends when every conn is closed and the last mail is out, which is tried until then.
    Stopping(Mono),
    /// Everything is done.
    Leaving,
}

impl<B: Backend> Driver<B> {
    /// What comes before the first sleep.
    pub(crate) fn start(&mut self) -> Result<(), DriverError> {
        self.backend.bell()?;
        self.handler.on_start(self.now, &mut self.fx);
        self.end_of_turn()
    }

    /// True when the handler has stopped, every conn is closed and its last mail is out.
    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Leaving
    }

    /// One turn, after the sleep that [`Self::may_sleep`] allowed.
    pub(crate) fn turn(&mut self) -> Result<(), DriverError> {
        self.woke_up();
        self.take_completions();
        // After them: nothing of this turn happened later than its time. A buyer who waited exactly as long as a 429
        // said would else be judged by an earlier time when the kernel interrupts us between the two.
        self.now = clock::read();
        self.show_drain();
        self.show_mail();
        self.show_completions()?;
        self.show_local()?;
        self.show_tick();
        self.handler.on_flush(self.now, &mut self.fx);
        self.end_of_turn()
    }

    /// Carries out what the handler asked for. Posts first: another thread can work on them while we write.
    fn end_of_turn(&mut self) -> Result<(), DriverError> {
        self.deliver_posts();
        self.write_dirty()?;
        self.carry_out_ops()?;
        self.arm_receives()?;
        self.arm_accept()?;
        self.tick_due = self.handler.next_deadline();
        self.shared.stats.turns.add(1);
        if let Phase::Stopping(until) = self.phase
            && self.conns.all_free()
            && self.lists.failed.is_empty()
            && (self.fx.posts_waiting() == 0 || self.now.mono >= until)
        {
            self.phase = Phase::Leaving;
        }
        Ok(())
    }

    fn show_drain(&mut self) {
        if !self.drain_shown && self.shared.drain.is_on() {
            self.drain_shown = true;
            self.handler.on_event(self.now, Event::Drain, &mut self.fx);
        }
    }

    fn show_mail(&mut self) {
        let mut count = 0;
        while count < MAIL_PER_RING_TURN_MAX
            && let Some(mail) = self.mailbox.take()
        {
            self.handler
                .on_event(self.now, Event::Mail(mail), &mut self.fx);
            count += 1;
        }
        self.shared.stats.mail_in.add(count as u64);
    }

    fn take_completions(&mut self) {
        self.lists.more_completions = self.backend.completions(&mut self.lists.completions);
        self.shared
            .stats
            .cqe
            .add(self.lists.completions.len() as u64);
    }

    fn show_completions(&mut self) -> Result<(), DriverError> {
        let mut completions = std::mem::take(&mut self.lists.completions);
        for completion in completions.drain(..) {
            match completion {
                Completion::Recv {
                    conn,
                    bytes,
                    buffer,
                    more,
                } => self.recv_completed(conn, bytes, buffer, more)?,
                Completion::Send { conn, bytes } => self.send_completed(conn, bytes)?,
                Completion::Accept { socket, more } => self.accept_completed(socket, more)?,
                Completion::Connect { conn, result } => self.connect_completed(conn, result)?,
                Completion::Ended(conn) => self.operation_ended(conn),
                Completion::Bell => self.backend.bell()?,
            }
        }
        self.lists.completions = completions;
        Ok(())
    }

    /// Events that come from us and not from the kernel.
    fn show_local(&mut self) -> Result<(), DriverError> {
        while let Some((token, error)) = self.lists.failed.pop() {
            let event = Event::ConnectFailed { token, error };
            self.handler.on_event(self.now, event, &mut self.fx);
        }
        // In the order in which the handler switched them on: it may have let the one that waited longest go first.
        let mut shows = std::mem::take(&mut self.lists.shows);
        for conn in shows.drain(..) {
            self.show_kept(conn)?;
        }
        self.lists.shows = shows;
        while let Some(conn) = self.lists.closed.pop() {
            self.show_closed(conn);
        }
        self.open_parked()
    }

    fn show_tick(&mut self) {
        if self.tick_due.is_some_and(|due| due <= self.now.mono) {
            self.handler.on_event(self.now, Event::Tick, &mut self.fx);
        }
    }

    fn deliver_posts(&mut self) {
        let (post, mut refused) = (&self.shared.post, 0);
        self.fx
            .deliver_posts(|to, mail| post.deliver(to, mail).inspect_err(|_| refused += 1));
        self.shared.stats.mail_refused.add(refused);
    }

    fn carry_out_ops(&mut self) -> Result<(), DriverError> {
        let mut ops = std::mem::take(&mut self.lists.ops);
        self.fx.take_ops(&mut ops);
        for op in ops.drain(..) {
            match op {
                Op::Connect(connect) => self.connect(&connect)?,
                Op::Finish(conn) => self.finish(conn),
                Op::Close(conn) => self.close(conn, CloseCause::Local),
                Op::Receive(conn, on) => self.switch_receive(conn, on),
                Op::Accept(on) => self.switch_accept(on)?,
                Op::Stop => {
                    if self.phase == Phase::Running {
                        self.phase = Phase::Stopping(self.now.mono.plus_ms(POSTS_AT_STOP_MS_MAX));
                    }
                    self.switch_accept(false)?;
                    self.drop_parked();
                }
            }
        }
        self.lists.ops = ops;
        Ok(())
    }

    /// How long the thread may sleep now, and counts what goes to the kernel with it.
    pub(crate) fn may_sleep(&mut self) -> Wait {
        self.shared.stats.sqe.add(self.backend.take_pushed());
        self.shared.stats.enters.add(1);
        if !self.has_work() && self.mailbox.will_sleep() {
            self.longest_wait()
        } else {
            Wait::No
        }
    }

    /// After the sleep.
    fn woke_up(&mut self) {
        self.mailbox.awake();
        let overflowed = self.backend.overflowed();
        self.shared.stats.cq_overflow.add(u64::from(overflowed));
    }

    /// True when the next turn has something to do, whatever the kernel brings.
    fn has_work(&self) -> bool {
        self.lists.more_completions
            || !self.lists.closed.is_empty()
            || !self.lists.shows.is_empty()
            || !self.lists.failed.is_empty()
            || self.can_open_parked()
            || (!self.drain_shown && self.shared.drain.is_on())
    }

    fn longest_wait(&self) -> Wait {
        let retry_posts =
            (self.fx.posts_waiting() > 0).then(|| self.now.mono.plus_ms(POST_RETRY_MS));
        let due = [self.tick_due, self.accept_retry_due(), retry_posts]
            .into_iter()
            .flatten()
            .min();
        match due {
            None => Wait::ForEver,
            // The clock is read again: the turn took time, and the kernel counts from now.
            Some(due) => match due.since(clock::read().mono) {
                0 => Wait::No,
                ns => Wait::AtMost(Duration::from_nanos(ns)),
            },
        }
    }
}
