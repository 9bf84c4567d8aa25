//! How the tasks of one thread hand things to each other: no locks, nothing shared with another thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The one task that waits here.
#[derive(Default)]
struct Sleeper(Cell<Option<Waker>>);

impl Sleeper {
    fn wake(&self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }

    fn wait<T>(&self, cx: &Context<'_>) -> Poll<T> {
        self.0.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// Work for one task, one piece at a time.
pub struct Gate<T> {
    item: Cell<Option<T>>,
    closed: Cell<bool>,
    sleeper: Sleeper,
}

impl<T> Default for Gate<T> {
    fn default() -> Self {
        Self {
            item: Cell::new(None),
            closed: Cell::new(false),
            sleeper: Sleeper::default(),
        }
    }
}

impl<T> Gate<T> {
    /// Hands `item` over; the task has taken the one before.
    pub fn put(&self, item: T) {
        self.item.set(Some(item));
        self.sleeper.wake();
    }

    /// The next piece; `None` when the gate is closed.
    pub async fn take(&self) -> Option<T> {
        poll_fn(|cx| {
            if self.closed.get() {
                Poll::Ready(None)
            } else if let Some(item) = self.item.take() {
                Poll::Ready(Some(item))
            } else {
                self.sleeper.wait(cx)
            }
        })
        .await
    }

    /// Ends the task.
    pub fn close(&self) {
        self.closed.set(true);
        self.sleeper.wake();
    }
}

/// Whether a task shall go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// It shall.
    On,
    /// It shall wait.
    Off,
    /// It shall end.
    Closed,
}

/// The switch of one task; off at first.
pub struct Switch {
    position: Cell<Position>,
    sleeper: Sleeper,
}

impl Default for Switch {
    fn default() -> Self {
        Self {
            position: Cell::new(Position::Off),
            sleeper: Sleeper::default(),
        }
    }
}

impl Switch {
    /// Turns it; closed is for ever.
    pub fn turn(&self, to: Position) {
        if self.position.get() != Position::Closed {
            self.position.set(to);
            self.sleeper.wake();
        }
    }

    /// Where it stands.
    pub fn position(&self) -> Position {
        self.position.get()
    }

    /// Waits until it stands so that `wanted` holds.
    pub async fn until(&self, wanted: impl Fn(Position) -> bool) -> Position {
        poll_fn(|cx| {
            if wanted(self.position.get()) {
                Poll::Ready(self.position.get())
            } else {
                self.sleeper.wait(cx)
            }
        })
        .await
    }
}

/// What tasks have done, for the one that runs the turns.
pub struct Done<T> {
    items: RefCell<VecDeque<T>>,
    rung: Cell<bool>,
    /// Tasks that have not ended.
    live_count: Cell<usize>,
    sleeper: Sleeper,
}

impl<T> Default for Done<T> {
    fn default() -> Self {
        Self {
            items: RefCell::default(),
            rung: Cell::new(false),
            live_count: Cell::new(0),
            sleeper: Sleeper::default(),
        }
    }
}

impl<T> Done<T> {
    /// One more is done. Bounded by what is asked for: one receive and one send per conn, an accept at a time.
    pub fn push(&self, item: T) {
        self.items.borrow_mut().push_back(item);
        self.sleeper.wake();
    }

    /// The oldest.
    pub fn pop(&self) -> Option<T> {
        self.items.borrow_mut().pop_front()
    }

    /// True when nothing is left.
    pub fn is_empty(&self) -> bool {
        self.items.borrow().is_empty()
    }

    /// Ends a wait although nothing is done.
    pub fn ring(&self) {
        self.rung.set(true);
        self.sleeper.wake();
    }

    /// Waits until something is done, or rung.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            if self.rung.take() || !self.is_empty() {
                Poll::Ready(())
            } else {
                self.sleeper.wait(cx)
            }
        })
        .await;
    }

    /// Wraps a task so that [`Self::all_ended`] waits for it.
    pub async fn count(&self, task: impl Future<Output = ()>) {
        self.live_count.set(self.live_count.get() + 1);
        task.await;
        self.live_count.set(self.live_count.get() - 1);
        self.ring();
    }

    /// Waits until every counted task has ended.
    pub async fn all_ended(&self) {
        while self.live_count.get() > 0 {
            self.wait().await;
            self.items.borrow_mut().clear(); // what comes now comes too late
        }
    }
}

/// What `work` came to; `None` when `limit` was ready first, and `work` is dropped.
pub async fn within<T>(work: impl Future<Output = T>, limit: impl Future) -> Option<T> {
    let (mut work, mut limit) = (pin!(work), pin!(limit));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(out) => Poll::Ready(Some(out)),
        Poll::Pending => limit.as_mut().poll(cx).map(|_| None),
    })
    .await
}
