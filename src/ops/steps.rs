//! An operator's steps on a SKU: read the body, ask the owner, answer the books; each with its lines in the audit log.
//!
//! Idempotent by request_id: the ledger remembers it (field bug R18). An unanswered step is *unknown*, never failed: the
//! client is told to send it again. A client that leaves does not end its step: the result is still written down.

use super::audit::{AuditLog, BooksLine, Step};
use super::limits::{ACTOR_BYTES_MAX, STEP_FORGOTTEN_MS, STEP_MS_MAX, STEPS_MAX};
use super::refusal::{Fault, Refusal};
use super::reply::Reply;
use super::route::Action;
use serde::Serialize;
use std::net::SocketAddr;
use weir_core::ask::{
    Answer, Ask, AskId, Books, Failure, LedgerAnswer, LedgerOp, Mode, Open, OpsRef, Outcome,
    Restock, SetMode,
};
use weir_core::limits::UNITS_MAX;
use weir_core::mail::{Addr, Mail, MendAsk, MendWish};
use weir_core::port::{ConnId, Effects};
use weir_core::sale::Sale;
use weir_core::time::{Mono, Now};
use weir_proto::http::response::Status;
use weir_proto::ids::SkuKey;
use weir_proto::json::{JsonError, Member, MemberFault, Object};
use weir_proto::limits::{REQUEST_ID_BYTES_MAX, REQUEST_ID_BYTES_MIN};
use weir_proto::submit::request_id;
use weir_proto::text::Text;

#[derive(Debug)]
struct Pending {
    id: AskId,
    /// `None` once the client was told "unknown", or left.
    conn: Option<ConnId>,
    step: Step,
    due: Mono,
    forgotten: Mono,
}

/// Steps that are out.
#[derive(Debug)]
pub(super) struct Steps {
    audit: AuditLog,
    pending: Vec<Pending>,
    next_id: u64,
    books: BooksAt,
}

/// Where the books are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BooksAt {
    /// In this process.
    Here,
    /// In Redis.
    Redis {
        /// The orders are made by this process.
        makes_orders: bool,
    },
}

#[derive(Serialize)]
struct Done {
    code: &'static str,
    activity_id: u64,
    sku_id: u64,
    action: &'static str,
    books: BooksLine,
}

impl Steps {
    /// `first_id`: above every id of an earlier run, so that a late answer of one is nobody's.
    pub(super) fn new(audit: AuditLog, first_id: u64, books: BooksAt) -> Self {
        Self {
            audit,
            books,
            pending: Vec::with_capacity(STEPS_MAX),
            next_id: first_id,
        }
    }

    /// The log that every act of an operator is written to.
    pub(super) fn audit(&mut self) -> &mut AuditLog {
        &mut self.audit
    }

    /// Writes the step down, then asks the owner; the answer comes by mail.
    pub(super) fn begin(
        &mut self,
        now: Now,
        sale: &Sale,
        step: Step,
        conn: ConnId,
        fx: &mut Effects,
    ) -> Result<(), Refusal> {
        let wanted = wanted(sale, self.books, &step)?;
        if self.pending.len() >= STEPS_MAX {
            return Err(Fault::Busy.into());
        }
        // Before the ask: no crash leaves a step without a line.
        if !self.audit.write(now.wall, &step, "ASKED", None) {
            return Err(Fault::AuditFailed.into());
        }
        let id = AskId(self.next_id);
        self.next_id += 1;
        let due = now.mono.plus_ms(STEP_MS_MAX);
        self.pending.push(Pending {
            id,
            conn: Some(conn),
            step,
            due,
            forgotten: now.mono.plus_ms(STEP_FORGOTTEN_MS),
        });
        let mail = match wanted {
            Wanted::Op(op) => Mail::Ask(Ask {
                from: Addr::Ops,
                id,
                deadline: due,
                op,
            }),
            Wanted::Mending(wish) => Mail::MendAsk(MendAsk {
                id,
                deadline: due,
                sku: step.sku,
                wish,
            }),
        };
        fx.post(Addr::Owner, mail);
        Ok(())
    }

    /// The owner's answer: the reply for the client, when one still waits.
    pub(super) fn answered(&mut self, now: Now, answer: &Answer) -> Option<(ConnId, Reply)> {
        let at = self
            .pending
            .iter()
            .position(|pending| pending.id == answer.id)?;
        let pending = self.pending.swap_remove(at);
        let result = result(answer.outcome);
        let (word, books) = match &result {
            Ok(books) => ("DONE", Some(*books)),
            Err(refusal) => (refusal.code(), None),
        };
        // Done is done, and its first line is on disk: the client hears it even if this line fails; the next step does not.
        self.audit.write(now.wall, &pending.step, word, books);
        let reply = match result {
            Ok(books) => done(&pending.step, books),
            Err(refusal) => refusal.reply(),
        };
        Some((pending.conn?, reply))
    }

    /// A client left: its step goes on.
    pub(super) fn forget(&mut self, conn: ConnId) {
        for pending in &mut self.pending {
            if pending.conn == Some(conn) {
                pending.conn = None;
            }
        }
    }

    /// Tells those that waited too long that their result is unknown.
    pub(super) fn expire(&mut self, now: Now) -> Vec<(ConnId, Reply)> {
        let mut told = Vec::new();
        for pending in &mut self.pending {
            if pending.due > now.mono {
                continue;
            }
            if let Some(conn) = pending.conn.take() {
                let refusal = Refusal::from(Fault::Unknown);
                self.audit
                    .write(now.wall, &pending.step, refusal.code(), None);
                told.push((conn, refusal.reply()));
            }
        }
        self.pending.retain(|pending| pending.forgotten > now.mono);
        told
    }

    pub(super) fn next_deadline(&self) -> Option<Mono> {
        let next = |pending: &Pending| match pending.conn {
            Some(_) => pending.due,
            None => pending.forgotten,
        };
        self.pending.iter().map(next).min()
    }
}

fn done(step: &Step, books: Books) -> Reply {
    let body = Done {
        code: "OK",
        activity_id: step.sku.activity.0,
        sku_id: step.sku.sku.0,
        action: step.action.as_str(),
        books: books.into(),
    };
    Reply::json(Status::Ok, &body)
}

fn result(outcome: Outcome) -> Result<Books, Refusal> {
    let fault = match outcome {
        Outcome::Done(LedgerAnswer::OpsDone(books)) => return Ok(books),
        Outcome::Done(LedgerAnswer::RequestIdConflict) => Fault::RequestIdConflict,
        Outcome::Done(LedgerAnswer::NotOpen) => Fault::NotOpen,
        Outcome::Done(LedgerAnswer::QuantityRefused) => Fault::Quantity,
        Outcome::Done(LedgerAnswer::TableFull) => Fault::StepsFull,
        // No other answer belongs to a step; should one come, nobody knows what was done.
        Outcome::Done(_) | Outcome::Unknown => Fault::Unknown,
        Outcome::Failed(Failure::Late | Failure::Busy | Failure::Unavailable | Failure::Frozen) => {
            Fault::Busy
        }
        Outcome::Failed(Failure::Recovering) => Fault::Recovering,
        Outcome::Failed(Failure::Poisoned) => Fault::Poisoned,
        Outcome::Failed(Failure::UnknownSku) => Fault::UnknownSku,
    };
    Err(fault.into())
}

/// What a step asks the owner for.
enum Wanted {
    Op(LedgerOp),
    Mending(MendWish),
}

fn wanted(sale: &Sale, books: BooksAt, step: &Step) -> Result<Wanted, Refusal> {
    let wish = match step.action {
        Action::Freeze => MendWish::Freeze,
        Action::Thaw => MendWish::Thaw,
        Action::Rebuild => MendWish::Rebuild,
        _ => return ledger_op(sale, step).map(Wanted::Op),
    };
    sale.sku(step.sku).ok_or(Fault::UnknownSku)?;
    match (books, wish) {
        (BooksAt::Here, _) => Err(Fault::NotInRedis.into()),
        (
            BooksAt::Redis {
                makes_orders: false,
            },
            MendWish::Rebuild,
        ) => Err(Fault::OrdersElsewhere.into()),
        (BooksAt::Redis { .. }, wish) => Ok(Wanted::Mending(wish)),
    }
}

fn ledger_op(sale: &Sale, step: &Step) -> Result<LedgerOp, Refusal> {
    let (_, sku) = sale.sku(step.sku).ok_or(Fault::UnknownSku)?;
    let target = OpsRef {
        sku: step.sku,
        request_id: step.request_id,
    };
    Ok(match (step.action, step.mode, step.units) {
        (Action::Open, ..) => LedgerOp::Open(Open {
            target,
            stock: sku.first_stock,
            quantity_max: sku.quantity_max,
            once_per_activity: sku.once_per_activity,
        }),
        (Action::Close, ..) => LedgerOp::Close(target),
        (Action::Mode, Some(mode), _) => LedgerOp::SetMode(SetMode { target, mode }),
        (Action::Restock, _, Some(units)) => LedgerOp::Restock(Restock { target, units }),
        (Action::Mode, None, _) => return Err(JsonError::missing("mode").into()),
        (Action::Freeze | Action::Thaw | Action::Rebuild, ..) => {
            return Err(Fault::NotInRedis.into());
        }
        (Action::Restock, _, None) => return Err(JsonError::missing("units").into()),
    })
}

/// Reads the name of the operator.
pub(super) fn actor(member: &Member<'_>) -> Result<Text<ACTOR_BYTES_MAX>, JsonError> {
    let text = member.text()?.visible::<ACTOR_BYTES_MAX>();
    let fault = MemberFault::Form("a name of 1 to 64 visible ASCII characters without blanks");
    text.filter(|text| !text.is_empty())
        .ok_or_else(|| member.fault(fault))
}

/// Reads the body of a step. Only the members that the action knows are allowed.
pub(super) fn read(
    action: Action,
    sku: SkuKey,
    peer: SocketAddr,
    body: &[u8],
) -> Result<Step, JsonError> {
    let names: &[&str] = match action {
        Action::Open | Action::Close | Action::Freeze | Action::Thaw | Action::Rebuild => {
            &["request_id", "actor"]
        }
        Action::Mode => &["request_id", "actor", "mode"],
        Action::Restock => &["request_id", "actor", "units"],
    };
    let mut object = Object::open(body, names)?;
    let (mut id, mut actor, mut mode, mut units) = (None, None, None, None);
    while let Some(member) = object.next_member()? {
        match member.name {
            "request_id" => {
                let text = member.text()?.visible::<REQUEST_ID_BYTES_MAX>();
                let fault = MemberFault::Form(
                    "8 to 64 bytes of A-Z, a-z, 0-9, dot, underscore, colon and hyphen",
                );
                let read = text.and_then(|text| request_id(text.as_bytes()));
                id = Some(read.ok_or_else(|| member.fault(fault))?);
                const { assert!(REQUEST_ID_BYTES_MIN == 8 && REQUEST_ID_BYTES_MAX == 64) };
            }
            "actor" => {
                actor = Some(self::actor(&member)?);
            }
            "mode" => {
                let text = member.text()?;
                let known = [Mode::Normal, Mode::Degraded, Mode::QueueOnly, Mode::Closed];
                let read = known
                    .into_iter()
                    .find(|&mode| text.is(super::page::mode_text(mode)));
                let fault = MemberFault::Form("NORMAL, DEGRADED, QUEUE_ONLY or CLOSED");
                mode = Some(read.ok_or_else(|| member.fault(fault))?);
            }
            _ => units = Some(member.integer(1..=UNITS_MAX)?),
        }
    }
    Ok(Step {
        action,
        sku,
        request_id: id.ok_or_else(|| JsonError::missing("request_id"))?,
        mode,
        units,
        peer,
        actor,
    })
}
