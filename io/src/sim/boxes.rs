//! Mail between parts: in order between two, bounded per receiver, lost with a crash.
//!
//! Called by turns (what a part posts) and by the agenda (what arrives in a box).

use super::World;
use super::faults::{MailFate, Route};
use super::part::{Seat, Status};
use super::queue::What;
use weir_core::mail::{Addr, Mail};

/// A mail on its way.
pub(super) struct Posted {
    pub to: u32,
    pub life: u32,
    pub mail: Mail,
}

impl World {
    /// Sends one mail on its way; gives it back when the receiver's box is full.
    #[expect(
        clippy::result_large_err,
        reason = "a refused mail goes back as it came"
    )]
    pub(super) fn post(&mut self, from: u32, to: Addr, mail: Mail, at_ns: u64) -> Result<(), Mail> {
        let sender = self.parts[from as usize].seat;
        let seat = Seat { addr: to, ..sender };
        let receiver = self.index.get(&seat).copied();
        let Some((to_index, life)) = receiver.and_then(|index| {
            let part = &self.parts[index as usize];
            (part.status == Status::Running).then_some((index, part.life))
        }) else {
            self.lost_mail += 1;
            return Ok(());
        };
        if self.parts[to_index as usize].mail_count >= self.config.mailbox_max {
            if matches!(mail, Mail::Record(_)) {
                self.lost_mail += 1; // the admission log drops rather than waits
                return Ok(());
            }
            return Err(mail);
        }
        let route = Route {
            from: sender,
            to: seat,
        };
        let fate = self
            .faults
            .mail(self.now(), route, &mail, &mut self.fault_rng);
        let latency_ns = self.config.mail_ns.draw(&mut self.rng);
        let posted = Posted {
            to: to_index,
            life,
            mail,
        };
        match fate {
            MailFate::Deliver { delay_ns } => {
                let arrives_ns = self.mail_arrival(from, to_index, at_ns + latency_ns + delay_ns);
                self.put_in_transit(posted, arrives_ns);
            }
            MailFate::Lose => self.lost_mail += 1,
            MailFate::Duplicate { again_ns } => {
                let copy = Posted {
                    mail: posted.mail.clone(),
                    ..posted
                };
                let arrives_ns = self.mail_arrival(from, to_index, at_ns + latency_ns);
                self.put_in_transit(posted, arrives_ns);
                self.put_in_transit(copy, arrives_ns + again_ns);
            }
        }
        Ok(())
    }

    /// Not before the mail posted earlier between the same two.
    fn mail_arrival(&mut self, from: u32, to: u32, earliest_ns: u64) -> u64 {
        let last_mail = &mut self.parts[from as usize].last_mail;
        match last_mail.iter_mut().find(|(receiver, _)| *receiver == to) {
            Some((_, last_ns)) => {
                *last_ns = earliest_ns.max(*last_ns);
                *last_ns
            }
            None => {
                last_mail.push((to, earliest_ns));
                earliest_ns
            }
        }
    }

    fn put_in_transit(&mut self, posted: Posted, arrives_ns: u64) {
        self.parts[posted.to as usize].mail_count += 1;
        let slot = match self.mails_free.pop() {
            Some(slot) => {
                self.mails[slot as usize] = Some(posted);
                slot
            }
            None => {
                self.mails.push(Some(posted));
                (self.mails.len() - 1) as u32
            }
        };
        self.queue.push(arrives_ns, What::Mail { slot });
    }

    /// A mail reaches its box, unless its receiver vanished since.
    pub(super) fn mail_arrives(&mut self, slot: u32) {
        let Some(posted) = &self.mails[slot as usize] else {
            return;
        };
        let (to, life) = (posted.to, posted.life);
        let receiver = &mut self.parts[to as usize];
        if receiver.status == Status::Running && receiver.life == life {
            receiver.inbox.push_back(slot);
            self.wake(to);
        } else {
            self.mails[slot as usize] = None;
            self.mails_free.push(slot);
            self.lost_mail += 1;
        }
    }
}

/// What of a mail's content goes into the hash besides its kind.
pub(super) fn mail_size(mail: &Mail) -> u64 {
    match mail {
        Mail::Append(batch) => batch.seq << 20 ^ batch.bytes.len() as u64,
        Mail::Appended(result) => result.seq << 1 | u64::from(result.result.is_ok()),
        Mail::Reserved(messages) => messages.len() as u64,
        Mail::Orders(batch) => batch.commands.len() as u64,
        _ => 0,
    }
}
