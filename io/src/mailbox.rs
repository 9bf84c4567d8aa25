//! The driver of a part without sockets (owner, stores, worker, log): mail, ticks, posts; sleeps in between.
//!
//! The handler may block in an event (a store in fsync). Commands about conns have nothing to act on here: a connect
//! fails with `LocalLimit`, the others are ignored.

use crate::clock;
use crate::drain::DrainSwitch;
use crate::error::DriverError;
use crate::limits::{MAIL_PER_BOX_TURN_MAX, POST_RETRY_MS, POSTS_AT_STOP_MS_MAX};
use crate::post::{PostOffice, TakenBox};
use crate::stats::DriverStats;
use std::sync::Arc;
use std::time::Duration;
use weir_core::mail::Addr;
use weir_core::port::{ConnectError, ConnectToken, Effects, Event, Handler, Op};
use weir_core::time::{Mono, Now};

/// How one part's thread is set up.
#[derive(Clone, Copy, Debug)]
pub struct MailboxConfig {
    /// Whose mail it gets; it must have a box in the post office.
    pub addr: Addr,
    /// The core to run on; `None`: any.
    pub cpu: Option<usize>,
}

/// Runs `handler` on the calling thread until it stops; gives it back. Its last posts are offered for up to
/// [`POSTS_AT_STOP_MS_MAX`] ms; mail that arrives after the stop is not shown.
///
/// # Errors
/// [`DriverError`]: no box, or no such core.
pub fn run_mailbox(
    config: MailboxConfig,
    handler: Box<dyn Handler>,
    post: Arc<PostOffice>,
    drain: Arc<DrainSwitch>,
    stats: Arc<DriverStats>,
) -> Result<Box<dyn Handler>, DriverError> {
    let mailbox = post
        .take_box(config.addr)
        .map_err(|error| DriverError::from_take(config.addr, error))?;
    if let Some(cpu) = config.cpu {
        crate::affinity::pin_this_thread(cpu)?;
    }
    let mut driver = Driver {
        handler,
        fx: Effects::new(0),
        now: clock::read(),
        mailbox,
        post,
        drain,
        stats,
        drain_shown: false,
        tick_due: None,
        ops: Vec::new(),
        failed: Vec::new(),
        stop_by: None,
    };
    driver.handler.on_start(driver.now, &mut driver.fx);
    driver.end_of_turn();
    while !driver.is_done() {
        driver.sleep();
        driver.now = clock::read();
        driver.show_events();
        driver.handler.on_flush(driver.now, &mut driver.fx);
        driver.end_of_turn();
    }
    Ok(driver.handler)
}

struct Driver {
    handler: Box<dyn Handler>,
    fx: Effects,
    now: Now,
    mailbox: TakenBox,
    post: Arc<PostOffice>,
    drain: Arc<DrainSwitch>,
    stats: Arc<DriverStats>,
    drain_shown: bool,
    tick_due: Option<Mono>,
    ops: Vec<Op>,
    failed: Vec<ConnectToken>,
    /// Set by the handler's stop: until then the last posts are offered.
    stop_by: Option<Mono>,
}

impl Driver {
    fn is_done(&self) -> bool {
        self.stop_by
            .is_some_and(|until| self.fx.posts_waiting() == 0 || self.now.mono >= until)
    }

    fn show_events(&mut self) {
        if self.stop_by.is_some() {
            return; // stopped: only its posts are still on their way
        }
        if !self.drain_shown && self.drain.is_on() {
            self.drain_shown = true;
            self.handler.on_event(self.now, Event::Drain, &mut self.fx);
        }
        let mut count = 0;
        while count < MAIL_PER_BOX_TURN_MAX
            && let Some(mail) = self.mailbox.take()
        {
            self.handler
                .on_event(self.now, Event::Mail(mail), &mut self.fx);
            count += 1;
        }
        self.stats.mail_in.add(count as u64);
        for token in self.failed.drain(..) {
            let error = ConnectError::LocalLimit;
            self.handler.on_event(
                self.now,
                Event::ConnectFailed { token, error },
                &mut self.fx,
            );
        }
        if self.tick_due.is_some_and(|due| due <= self.now.mono) {
            self.handler.on_event(self.now, Event::Tick, &mut self.fx);
        }
    }

    fn end_of_turn(&mut self) {
        let (post, mut refused) = (&self.post, 0);
        self.fx
            .deliver_posts(|to, mail| post.deliver(to, mail).inspect_err(|_| refused += 1));
        self.stats.mail_refused.add(refused);
        self.fx.take_ops(&mut self.ops);
        for op in self.ops.drain(..) {
            match op {
                Op::Connect(connect) => self.failed.push(connect.token),
                Op::Stop => {
                    self.stop_by
                        .get_or_insert(self.now.mono.plus_ms(POSTS_AT_STOP_MS_MAX));
                }
                Op::Finish(_) | Op::Close(_) | Op::Receive(..) | Op::Accept(_) => {}
            }
        }
        self.tick_due = self.handler.next_deadline();
        self.stats.turns.add(1);
    }

    fn sleep(&mut self) {
        let has_work = !self.failed.is_empty() || (!self.drain_shown && self.drain.is_on());
        if has_work && self.stop_by.is_none() {
            return;
        }
        let retry = (self.fx.posts_waiting() > 0).then(|| self.now.mono.plus_ms(POST_RETRY_MS));
        let due = [self.tick_due.filter(|_| self.stop_by.is_none()), retry]
            .into_iter()
            .flatten()
            .min();
        let wait = due.map(|due| Duration::from_nanos(due.since(clock::read().mono)));
        if wait == Some(Duration::ZERO) {
            return;
        }
        // A stopped part sleeps although mail waits: nobody will read it.
        if self.mailbox.will_sleep() || self.stop_by.is_some() {
            self.stats.enters.add(1);
            self.mailbox.bell().wait(wait);
            self.mailbox.awake();
        }
    }
}
