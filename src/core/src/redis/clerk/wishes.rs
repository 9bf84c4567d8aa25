//! What operators want of books in Redis: freeze, thaw, rebuild. Each is tried until it is done or its time is up.

use super::Clerk;
use crate::ask::{Answer, Failure, LedgerAnswer, Outcome};
use crate::limits::CLERK_WISHES_MAX;
use crate::mail::{Addr, Mail, MendAsk, MendWish};
use crate::port::Effects;
use crate::redis::desk::Pull;
use crate::time::Now;
use weir_proto::ids::SkuKey;

/// One wish, and whether it is on its way.
#[derive(Debug)]
pub(super) struct Wished {
    ask: MendAsk,
    is_out: bool,
}

impl Clerk {
    pub(super) fn take_wish(&mut self, ask: MendAsk, fx: &mut Effects) {
        let is_full = self.wishes.len() >= CLERK_WISHES_MAX;
        let failure = match self.find(ask.sku) {
            None => Failure::UnknownSku,
            Some(_) if is_full => Failure::Busy,
            Some(desked) => {
                if ask.wish == MendWish::Rebuild {
                    desked.mending.begin_anew();
                }
                return self.wishes.push(Wished { ask, is_out: false });
            }
        };
        answer(&ask, Outcome::Failed(failure), fx);
    }

    /// Sends what is not on its way, answers what is done, and gives up what took too long.
    pub(super) fn see_to_wishes(&mut self, now: Now, fx: &mut Effects) {
        let mut at = 0;
        while let Some(wished) = self.wishes.get_mut(at) {
            let ask = wished.ask;
            let pull = match ask.wish {
                MendWish::Freeze => Some(Pull::Freeze),
                MendWish::Thaw => Some(Pull::Thaw),
                MendWish::Rebuild => None,
            };
            if let Some(pull) = pull.filter(|_| !wished.is_out) {
                wished.is_out = self.desk.pull(now, ask.sku, pull, fx);
            }
            let is_rebuilt = pull.is_none()
                && self
                    .find(ask.sku)
                    .is_some_and(|desked| desked.mending.is_settled());
            if is_rebuilt {
                self.answer_wish(at, true, fx);
            } else if ask.deadline <= now.mono {
                self.answer_wish(at, false, fx);
            } else {
                at += 1;
            }
        }
    }

    /// A freeze or a thaw came back; lost, it is tried again.
    pub(super) fn wish_stepped(
        &mut self,
        sku: SkuKey,
        pull: Pull,
        is_done: bool,
        fx: &mut Effects,
    ) {
        let wish = match pull {
            Pull::Freeze => MendWish::Freeze,
            Pull::Thaw => MendWish::Thaw,
            _ => return,
        };
        let mut wishes = self.wishes.iter();
        let is_it = |wished: &Wished| wished.ask.sku == sku && wished.ask.wish == wish;
        let Some(at) = wishes.position(|wished| wished.is_out && is_it(wished)) else {
            return;
        };
        match is_done {
            true => self.answer_wish(at, true, fx),
            false => self.wishes[at].is_out = false,
        }
    }

    fn answer_wish(&mut self, at: usize, is_done: bool, fx: &mut Effects) {
        let ask = self.wishes.swap_remove(at).ask;
        let state = self.find(ask.sku).and_then(|desked| desked.state);
        let outcome = match (is_done, state) {
            (true, Some(state)) => Outcome::Done(LedgerAnswer::OpsDone(state.books)),
            (true, None) => Outcome::Done(LedgerAnswer::NotOpen),
            (false, _) => Outcome::Unknown,
        };
        answer(&ask, outcome, fx);
    }
}

fn answer(ask: &MendAsk, outcome: Outcome, fx: &mut Effects) {
    let answer = Answer {
        id: ask.id,
        outcome,
    };
    fx.post(Addr::Ops, Mail::Answer(answer));
}
