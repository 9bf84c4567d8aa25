//! The post office: carries mail between parts, each on its own thread, without locks.
//!
//! Built once at start; a box is a bounded queue and a doorbell; [`crate::asleep`] keeps wake-ups from being lost. Full is
//! an answer: the mail comes back. One thread at most empties a box.

use crate::asleep::Asleep;
use crate::limits::MAILBOX_MAX;
use crate::stats::Counter;
use crate::sys::eventfd::EventFd;
use crossbeam_queue::ArrayQueue;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_core::mail::{Addr, Mail};

/// One part's box.
pub(crate) struct Mailbox {
    queue: ArrayQueue<Mail>,
    bell: EventFd,
    asleep: Asleep,
    taken: AtomicBool,
}

impl Mailbox {
    fn new() -> io::Result<Self> {
        Ok(Self {
            queue: ArrayQueue::new(MAILBOX_MAX),
            bell: EventFd::new()?,
            asleep: Asleep::new(),
            taken: AtomicBool::new(false),
        })
    }

    fn put(&self, mail: Mail) -> Result<(), Mail> {
        self.queue.push(mail)?;
        if self.asleep.must_ring() {
            self.bell.ring();
        }
        Ok(())
    }

    /// The next mail.
    pub(crate) fn take(&self) -> Option<Mail> {
        self.queue.pop()
    }

    /// Says that the receiver will sleep. False: there is mail, it must not.
    pub(crate) fn will_sleep(&self) -> bool {
        self.asleep.will_sleep(|| self.queue.is_empty())
    }

    /// Says that the receiver is awake.
    pub(crate) fn awake(&self) {
        self.asleep.awake();
    }

    /// The doorbell.
    pub(crate) fn bell(&self) -> &EventFd {
        &self.bell
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("waiting", &self.queue.len())
            .finish_non_exhaustive()
    }
}

/// Why a box could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeError {
    /// There is none for this part.
    Unknown,
    /// Another thread has it.
    Taken,
}

/// All boxes of a process.
#[derive(Debug)]
pub struct PostOffice {
    /// Sorted by address: a dozen at most, found by halving.
    boxes: Vec<(Addr, Arc<Mailbox>)>,
    /// Mail to parts that do not exist in this process (for example a log that is switched off).
    pub dropped: Counter,
    /// Lines of the admission log that found its box full: they are lost, so that no request waits for a disk (M2).
    pub records_dropped: Counter,
}

impl PostOffice {
    /// A box for each of `parts`; naming one twice is the same as once.
    ///
    /// # Errors
    /// No descriptor left for a doorbell.
    pub fn new(parts: impl IntoIterator<Item = Addr>) -> io::Result<Self> {
        let mut parts: Vec<Addr> = parts.into_iter().collect();
        parts.sort_unstable();
        parts.dedup();
        let boxes = parts
            .into_iter()
            .map(|addr| Ok((addr, Arc::new(Mailbox::new()?))))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            boxes,
            dropped: Counter::default(),
            records_dropped: Counter::default(),
        })
    }

    /// Bytes of one box: allocated at start, whatever its use.
    pub fn box_bytes() -> usize {
        // crossbeam's slot: the value and a stamp.
        MAILBOX_MAX * (size_of::<Mail>() + size_of::<usize>())
    }

    fn find(&self, addr: Addr) -> Option<&Arc<Mailbox>> {
        let at = self
            .boxes
            .binary_search_by_key(&addr, |(owner, _)| *owner)
            .ok()?;
        Some(&self.boxes[at].1)
    }

    /// Puts `mail` into the box of `to` and wakes it when it sleeps; from any thread. Mail to a part without a box is
    /// dropped and counted.
    ///
    /// # Errors
    /// The mail comes back when the box is full, but for a record of the admission log: that is dropped and counted.
    pub fn deliver(&self, to: Addr, mail: Mail) -> Result<(), Mail> {
        match self.find(to) {
            Some(mailbox) => match mailbox.put(mail) {
                Err(Mail::Record(_)) => {
                    self.records_dropped.add(1);
                    Ok(())
                }
                other => other,
            },
            None => {
                self.dropped.add(1);
                Ok(())
            }
        }
    }

    /// Mail waiting in the box of `addr`; 0 when it has none.
    pub fn waiting(&self, addr: Addr) -> usize {
        self.find(addr).map_or(0, |mailbox| mailbox.queue.len())
    }

    /// Gives the box of `addr` to the one thread that will empty it.
    pub(crate) fn take_box(&self, addr: Addr) -> Result<TakenBox, TakeError> {
        let mailbox = self.find(addr).ok_or(TakeError::Unknown)?;
        if mailbox.taken.swap(true, Ordering::AcqRel) {
            return Err(TakeError::Taken);
        }
        Ok(TakenBox(Arc::clone(mailbox)))
    }

    /// Gives the box of `addr` to an ordinary thread, which reads it by blocking: for tests and tools without a driver.
    ///
    /// # Errors
    /// [`TakeError`]: no such box, or another thread has it.
    pub fn take_outside(&self, addr: Addr) -> Result<Outside, TakeError> {
        self.take_box(addr).map(|mailbox| Outside { mailbox })
    }

    /// Wakes every part.
    pub(crate) fn ring_all(&self) {
        for (_, mailbox) in &self.boxes {
            mailbox.bell.ring();
        }
    }
}

/// A box in the hands of the one thread that empties it. Given back when dropped.
#[derive(Debug)]
pub(crate) struct TakenBox(Arc<Mailbox>);

impl Deref for TakenBox {
    type Target = Mailbox;

    fn deref(&self) -> &Mailbox {
        &self.0
    }
}

impl Drop for TakenBox {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

/// The box of an ordinary thread. Given back when dropped.
#[derive(Debug)]
pub struct Outside {
    mailbox: TakenBox,
}

impl Outside {
    /// The next mail, if there is one.
    pub fn try_recv(&self) -> Option<Mail> {
        self.mailbox.take()
    }

    /// The next mail; waits for it for at most `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Mail> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(mail) = self.mailbox.take() {
                return Some(mail);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            if self.mailbox.will_sleep() {
                self.mailbox.bell().wait(Some(left));
                self.mailbox.awake();
            }
        }
    }
}
