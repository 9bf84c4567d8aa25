//! The admission pipeline of design §4, stages 2 to 10: one readable function over the stages, cheapest first.
//!
//! Called by the shard at the turn's end for each staged submit. Every refusal is one [`Reason`]; a refusal charges only
//! the limits before it. User, device and budget are charged all or nothing. No stage waits.

use super::Shard;
use super::asks::{Kind, Pending, ReplyTo, Wait};
use super::known::Known;
use super::limits::Told;
use super::reply::Reply;
use super::skus::SkuIndex;
use super::staged::{Span, SubmitCall};
use crate::ask::{Ask, LedgerOp, Mode, Reserve};
use crate::limit::dimension::Dim;
use crate::limit::gcra::Verdict;
use crate::limit::inflight::SlotsFull;
use crate::mail::{Addr, Mail};
use crate::planted::{self, Planted};
use crate::port::Effects;
use crate::time::{Now, WallMs};
use core::net::IpAddr;
use weir_proto::addr::IpKey;
use weir_proto::answer::{Code, Reason, RequestState};
use weir_proto::http::Method;
use weir_proto::http::quota::Quota;
use weir_proto::ids::UserId;
use weir_proto::signature::{Signed, verify_request};
use weir_proto::ticket::{Claims, DeviceClaim, Expect, TicketReject, authenticate_with_kid};

/// A degraded SKU spends so many budget tokens for one admission: half its rate (requirement J1).
const DEGRADED_COST: u32 = 2;
/// A nonce outlives its ticket's expiry by this: the longest leeway and the longest way of a request (B6).
const NONCE_MARGIN_MS: u64 = 60_000;
/// `opens_in_ms` is rounded up to this, so that it cannot be used to calibrate a clock (field bug Q30).
const OPENS_IN_STEP_MS: u64 = 1_000;

/// A refusal on its way out of the pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    reason: Reason,
    retry_after_ms: Option<u64>,
    quota: Option<Quota>,
    opens_in_ms: Option<u64>,
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            retry_after_ms: None,
            quota: None,
            opens_in_ms: None,
        }
    }
}

impl Refusal {
    /// With the limit that refused, for the headers.
    pub fn with_quota(self, quota: Option<Quota>) -> Self {
        Self { quota, ..self }
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// How long to wait; 0 when nothing is said of it.
    pub fn wait_ms(&self) -> u64 {
        self.retry_after_ms.unwrap_or(0)
    }

    /// With a wait until the same may be tried again.
    pub fn after(reason: Reason, retry_after_ms: u64) -> Self {
        Self {
            retry_after_ms: Some(retry_after_ms),
            ..reason.into()
        }
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        let Refusal {
            reason,
            retry_after_ms,
            quota,
            opens_in_ms,
        } = refusal;
        Self {
            retry_after_ms,
            quota,
            opens_in_ms,
            ..Self::new(reason)
        }
    }
}

impl Shard {
    /// Decides one submit and gives its reply, unless the ledger was asked: then the answer comes by mail.
    pub(super) fn admit(
        &mut self,
        now: Now,
        reply_to: ReplyTo,
        call: &SubmitCall,
        fx: &mut Effects,
    ) {
        let reply = match self.stages(now, &reply_to, call, fx) {
            Ok(None) => return,
            Ok(Some(reply)) => reply,
            Err(refusal) => Reply {
                request_id: call.name.request_id,
                ..refusal.into()
            },
        };
        self.reply(now, &reply_to, &reply, Some(&call.name), fx);
    }

    #[inline(always)] // called once, and its results are large
    fn stages(
        &mut self,
        now: Now,
        reply_to: &ReplyTo,
        call: &SubmitCall,
        fx: &mut Effects,
    ) -> Result<Option<Reply>, Refusal> {
        let user = call.name.user;
        let index = self.route(call)?;
        self.note_sku(now, index);
        self.gate_address(now, call.client)?;
        self.instance(now, index)?;
        self.source(now, call.client)?;
        self.signature(now, call)?;
        let claims = self.ticket(now, call, index)?;
        self.note_user(now, claims.user);
        self.gate_buyer(now, &claims)?;
        if let Some(reply) = self.known_answer(call) {
            return Ok(Some(reply));
        }
        if self.skus.state(index).refuses_sold_out(now.mono, user) {
            self.counters.soldout_hits += 1;
            return Err(Reason::SoldOutLocal.into());
        }
        let user = claims.user;
        let told = self
            .user_device_budget(now, index, &claims)
            .map_err(|refusal| self.gates.user_told(now, user, refusal))?;
        self.ask(ReplyTo { told, ..*reply_to }, index, call, &claims, fx)
            .map_err(|refusal| self.gates.user_told(now, user, refusal))?;
        Ok(None)
    }

    fn route(&self, call: &SubmitCall) -> Result<SkuIndex, Refusal> {
        let activity = &self.skus.sale().activities[usize::from(call.activity_at)];
        if activity.id != call.name.sku.activity {
            return Err(Reason::WrongPathId.into());
        }
        Ok(self
            .skus
            .find(call.activity_at, call.name.sku.sku)
            .ok_or(Reason::UnknownSku)?)
    }

    /// Stage 2: the instance's own rate, the schedule, the mode.
    fn instance(&mut self, now: Now, index: SkuIndex) -> Result<(), Refusal> {
        if self.draining {
            return Err(self.busy(Reason::Draining));
        }
        let passes = self.instance.take(now.mono, 1).is_allow();
        if !passes && !planted::is(Planted::InstanceRateIgnored) {
            return Err(self.busy(Reason::InstanceRate));
        }
        let (activity, _) = self.skus.spec(index);
        if now.wall < activity.opens_at && !planted::is(Planted::ScheduleIgnored) {
            let left_ms = activity
                .opens_at
                .since(now.wall)
                .next_multiple_of(OPENS_IN_STEP_MS);
            return Err(Refusal {
                opens_in_ms: Some(left_ms),
                retry_after_ms: Some(left_ms),
                ..Reason::NotOpenYet.into()
            });
        }
        let Some(view) = &self.skus.state(index).view else {
            return Err(self.busy(Reason::LedgerUnavailable));
        };
        let is_shut = !view.open && !planted::is(Planted::ClosedIgnored);
        if now.wall >= activity.closes_at || is_shut {
            return Err(Reason::NotOpenClosed.into());
        }
        if view.poisoned {
            return Err(self.busy(Reason::StorePoisoned));
        }
        match view.mode {
            Mode::Normal | Mode::Degraded => Ok(()),
            _ if planted::is(Planted::ModeIgnored) => Ok(()),
            Mode::QueueOnly => Err(self.busy(Reason::ModeQueueOnly)),
            Mode::Closed => Err(Reason::ModeClosed.into()),
        }
    }

    /// Stage 3: the client's address; soft, the loosest of the keyed limits.
    pub(super) fn source(&mut self, now: Now, client: IpAddr) -> Result<(), Refusal> {
        let name = IpKey::new(client).to_words();
        let Err(judged) = self.limits.of(Dim::Ip).pass(now.mono, &name) else {
            return Ok(());
        };
        self.limits
            .check(Dim::Ip, &judged)
            .map_err(|refusal| self.gates.address_told(now, client, refusal))
    }

    /// Before stage 4, where the operator asks for it: the signature of the caller's program (B8).
    fn signature(&self, now: Now, call: &SubmitCall) -> Result<(), Refusal> {
        let (Some(ours), Some(spans)) = (&self.config.signature, call.signed) else {
            return Ok(());
        };
        let signed = Signed {
            method: Method::Post.as_str().as_bytes(), // a submit is nothing else
            target: self.staged.bytes(spans.target),
            body: self.staged.bytes(spans.body),
        };
        let header = spans.signature.map(|span| self.staged.bytes(span));
        verify_request(signed, header, &ours.keys, now.wall.0, ours.skew_ms)
            .map_err(|reject| Reason::from(reject).into())
    }

    /// Stage 4: the ticket (B4's order).
    fn ticket(&mut self, now: Now, call: &SubmitCall, index: SkuIndex) -> Result<Claims, Refusal> {
        let claims = self.authentic(call.ticket)?;
        let expect = self.expectation(now, index, call.name.user, call.device);
        let checked = claims.check(&expect);
        if !planted::is(Planted::TicketUnchecked) {
            self.verified(checked)?;
        }
        self.counters.ticket_ok += 1;
        Ok(claims)
    }

    /// What a ticket for this SKU and user must say; nothing here comes from the ticket itself.
    pub(super) fn expectation(
        &self,
        now: Now,
        index: SkuIndex,
        user: UserId,
        device: Option<Span>,
    ) -> Expect<'_> {
        let (activity, sku) = self.skus.spec(index);
        Expect {
            activity: activity.id,
            sku: sku.id,
            user,
            activity_version: activity.version,
            path_id: activity.path_id,
            device: device.map(|span| self.staged.bytes(span)),
            device_salt: &activity.device_salt,
            wall_ms: now.wall.0,
            leeway_ms: self.config.leeway_ms,
        }
    }

    /// The claims of a ticket that a live key of ours made.
    #[inline(always)] // so that they are written once
    pub(super) fn authentic(&mut self, ticket: Span) -> Result<Claims, Refusal> {
        match authenticate_with_kid(self.staged.bytes(ticket), &self.config.keys) {
            Ok((claims, kid)) => {
                self.verified_kid = *kid;
                Ok(claims)
            }
            Err(reject) => self.verified(Err(reject)),
        }
    }

    pub(super) fn verified<T>(&mut self, result: Result<T, TicketReject>) -> Result<T, Refusal> {
        result.map_err(|reject| {
            self.counters.ticket_refused += 1;
            Refusal::from(Reason::from(reject))
        })
    }

    /// Stage 5: what this shard knows of the request already.
    fn known_answer(&mut self, call: &SubmitCall) -> Option<Reply> {
        let (name, quantity) = (&call.name, call.quantity);
        let known = self.known.get(name)?;
        let (Known::InFlight { quantity: first }
        | Known::Granted {
            quantity: first, ..
        }) = known;
        let reply = match known {
            _ if first != quantity && !planted::is(Planted::BodyNotCompared) => {
                Reply::new(Reason::RequestIdConflict)
            }
            Known::InFlight { .. } => self.pending(Reply::new(Reason::Pending)),
            Known::Granted { reservation, .. } => self.pending(Reply {
                reservation: Some(reservation),
                state: Some(RequestState::Queued),
                original: Some(Code::SeckillQueued),
                ..Reply::new(Reason::Replayed)
            }),
        };
        Some(Reply {
            request_id: name.request_id,
            ..reply
        })
    }

    /// Stages 7 and 8, all or nothing: no limit is charged when one of them refuses.
    fn user_device_budget(
        &mut self,
        now: Now,
        index: SkuIndex,
        claims: &Claims,
    ) -> Result<Told, Refusal> {
        // A winner's retry after sold-out goes to the ledger and gets its first answer; it takes no stock, so no budget.
        let takes_stock = !self.skus.state(index).is_marked(now.mono);
        let key = self.skus.state(index).key;
        let name = [key.activity.0, key.sku.0, claims.user.0];
        let user = self.limits.of(Dim::User).probe(now.mono, &name);
        let checked = self.limits.check(Dim::User, &user);
        let ignored = planted::is(Planted::UserLimitIgnored) && checked.is_err();
        if !ignored {
            checked?;
        }
        let device = match &claims.device {
            DeviceClaim::Hash(hash) => {
                let hash = u128::from_le_bytes(*hash);
                let (upper, lower) = ((hash >> 64) as u64, hash as u64);
                let name = [key.activity.0, key.sku.0, upper, lower];
                Some(self.limits.of(Dim::Device).probe(now.mono, &name))
            }
            DeviceClaim::Unbound | DeviceClaim::Foreign => None, // a foreign text was refused with the ticket
        };
        if let Some(device) = &device {
            self.limits.check(Dim::Device, device)?;
        }
        if takes_stock {
            let cost = if self.skus.state(index).mode() == Mode::Degraded {
                DEGRADED_COST
            } else {
                1
            };
            let has_token = self.skus.state_mut(index).budget.take(now.mono, cost);
            if !has_token && !planted::is(Planted::BudgetIgnored) {
                return Err(self.busy(Reason::BudgetEmpty));
            }
            self.skus.state_mut(index).prepaid += 1;
        }
        if !ignored && !planted::is(Planted::UserNotCharged) {
            self.limits.of(Dim::User).charge(&user);
        }
        if let Some(device) = device.filter(|_| !planted::is(Planted::DeviceNotCharged)) {
            self.limits.of(Dim::Device).charge(&device);
        }
        Ok(self.limits.told(Dim::User, &user))
    }

    /// Stages 9 and 10: a slot, then the one ask.
    fn ask(
        &mut self,
        reply_to: ReplyTo,
        index: SkuIndex,
        call: &SubmitCall,
        claims: &Claims,
        fx: &mut Effects,
    ) -> Result<(), Refusal> {
        if fx.posts_waiting() > crate::limits::POSTS_WAITING_MAX {
            return Err(self.busy(Reason::MailFull));
        }
        let sku_slot = self.skus.state(index).slot;
        let slot = match self.slots.acquire_submit(sku_slot, claims.user) {
            Ok(slot) => slot,
            Err(SlotsFull::User) => {
                let wait_ms = self.config.request_budget_ms;
                return Err(Refusal::after(Reason::InflightUser, wait_ms));
            }
            Err(SlotsFull::Sku) => return Err(self.busy(Reason::InflightSku)),
            Err(SlotsFull::Instance) => return Err(self.busy(Reason::InflightInstance)),
        };
        let (name, quantity) = (call.name, call.quantity);
        let due = reply_to.arrived.plus_ms(self.config.request_budget_ms);
        let pending = Pending {
            reply_to: Some(reply_to),
            kind: Kind::Submit,
            request: name,
            quantity,
            owner_boot: self.skus.owner_boot(),
            due,
            slot: Some(slot),
            kid: self.verified_kid,
        };
        let id = self
            .asks
            .insert(pending, Wait::Request)
            .expect("there are as many places as in-flight slots");
        self.known.put(&name, Known::InFlight { quantity });
        let nonce_until = WallMs(claims.expires_at_ms).plus_ms(NONCE_MARGIN_MS);
        let reserve = Reserve {
            sku: name.sku,
            user: name.user,
            request_id: name.request_id,
            nonce: claims.nonce(),
            nonce_until,
            quantity,
        };
        fx.post(
            Addr::Owner,
            Mail::Ask(Ask {
                from: self.addr(),
                id,
                deadline: due,
                op: LedgerOp::Reserve(reserve),
            }),
        );
        self.counters.asks += 1;
        Ok(())
    }

    /// A 503 that may be tried again: with a jittered wait (C6).
    pub(super) fn busy(&mut self, reason: Reason) -> Refusal {
        Refusal {
            retry_after_ms: Some(1_000 + self.rng.below(1_000)),
            ..reason.into()
        }
    }

    /// The same as a reply.
    pub(super) fn busy_reply(&mut self, reason: Reason) -> Reply {
        self.busy(reason).into()
    }

    /// An unknown result: ask for it.
    pub(super) fn pending(&mut self, reply: Reply) -> Reply {
        Reply {
            next_poll_after_ms: Some(self.poll_ms()),
            ..reply
        }
    }

    /// When to poll: half a second, jittered, so that a million polls are a flat line.
    pub(super) fn poll_ms(&mut self) -> u64 {
        400 + self.rng.below(400)
    }
}

/// A limit's word as a refusal; 429 with the exact wait.
pub(super) fn limited(verdict: Verdict, reason: Reason) -> Result<(), Refusal> {
    match verdict {
        Verdict::Allow { .. } => Ok(()),
        Verdict::Wait { .. } => Err(Refusal {
            retry_after_ms: verdict.retry_after_ms(),
            ..reason.into()
        }),
        Verdict::Never => Err(Reason::CostAboveCapacity.into()),
    }
}
