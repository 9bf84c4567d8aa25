//! Requests read in this turn, in arrival order, waiting for the decision at the turn's end (design §3).
//!
//! Filled by [`super::intake`], emptied by the shard's `on_flush`. Tickets, device ids and what is signed lie in one buffer that every
//! turn uses again. Invariant: capacities are asked for before a request is staged.

use super::asks::{ReplyTo, RequestName};
use super::limits::Told;
use super::reply::{Manner, Reply};
use crate::limits::{STAGED_BYTES_MAX, STAGED_MAX};
use crate::port::ConnId;
use crate::time::Mono;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::Range;
use weir_proto::ids::{ActivityId, RequestId, SkuId};
use weir_proto::limits::{
    BODY_BYTES_MAX, DEVICE_BYTES_MAX, REQUEST_LINE_BYTES_MAX, SIGNATURE_BYTES_MAX, TICKET_BYTES_MAX,
};
use weir_proto::payment::PaymentCallback;

/// Most bytes that one request keeps; each text one more than its limit, so that too long stays too long.
const CALL_BYTES_MAX: usize = TICKET_BYTES_MAX
    + DEVICE_BYTES_MAX
    + SIGNATURE_BYTES_MAX
    + 3
    + REQUEST_LINE_BYTES_MAX
    + BODY_BYTES_MAX;

/// A place in [`Staged`]'s buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    start: u32,
    end: u32,
}

/// A submit as read.
#[derive(Clone, Copy, Debug)]
pub struct SubmitCall {
    /// Index of the activity whose path was asked.
    pub activity_at: u16,
    /// The client.
    pub client: IpAddr,
    /// The request's full name, as its body says; the ticket decides.
    pub name: RequestName,
    /// Units asked for.
    pub quantity: u32,
    /// The ticket; empty when none was sent.
    pub ticket: Span,
    /// The device header.
    pub device: Option<Span>,
    /// What the signature is about; `None` when none is asked for.
    pub signed: Option<SignedSpans>,
}

/// A signature and what it covers.
#[derive(Clone, Copy, Debug)]
pub struct SignedSpans {
    /// `X-Weir-Signature`; `None` when none was sent.
    pub signature: Option<Span>,
    /// Path and query.
    pub target: Span,
    /// Decoded.
    pub body: Span,
}

/// A status query as read.
#[derive(Clone, Copy, Debug)]
pub struct StatusCall {
    /// From the path.
    pub activity: ActivityId,
    /// From the path.
    pub sku: SkuId,
    /// From the path.
    pub request_id: RequestId,
    /// The client.
    pub client: IpAddr,
    /// The ticket; empty when none was sent.
    pub ticket: Span,
    /// The device header.
    pub device: Option<Span>,
}

/// What a request wants.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// `POST /v1/seckill/{path_id}`.
    Submit(SubmitCall),
    /// `GET /v1/activities/{a}/skus/{s}/requests/{request_id}`.
    Status(StatusCall),
    /// `POST /v1/payments/callback`, signature verified.
    Payment(PaymentCallback),
    /// Decided while reading: the place of its reply among [`Staged::take`]'s.
    Answered(u32),
}

/// One staged request.
#[derive(Clone, Copy, Debug)]
pub struct StagedCall {
    /// The connection that its reply goes to.
    pub conn: ConnId,
    /// Its number there.
    pub seq: u32,
    /// How to answer.
    pub manner: Manner,
    /// When its bytes arrived.
    pub arrived: Mono,
    /// What it wants.
    pub call: Call,
}

impl StagedCall {
    /// Where its reply goes; no limit has said anything yet.
    pub fn reply_to(&self) -> ReplyTo {
        ReplyTo {
            conn: self.conn,
            seq: self.seq,
            manner: self.manner,
            arrived: self.arrived,
            told: Told::default(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Staged {
    calls: Vec<StagedCall>,
    /// Apart from the calls: they are large, and most requests have none yet.
    answers: Vec<Reply>,
    bytes: Vec<u8>,
}

impl Staged {
    /// Room for one turn.
    pub fn new() -> Self {
        Self {
            calls: Vec::with_capacity(STAGED_MAX),
            answers: Vec::with_capacity(STAGED_MAX),
            bytes: Vec::with_capacity(STAGED_BYTES_MAX),
        }
    }

    /// True when one more request of any size fits.
    pub fn has_room(&self) -> bool {
        self.calls.len() < STAGED_MAX && self.bytes.len() + CALL_BYTES_MAX < STAGED_BYTES_MAX
    }

    /// Keeps a ticket or device until the turn's end; one byte more than the limit at most, so that too long stays too long.
    pub fn keep(&mut self, bytes: &[u8], bytes_max: usize) -> Span {
        let start = self.bytes.len() as u32;
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(bytes_max + 1)]);
        Span {
            start,
            end: self.bytes.len() as u32,
        }
    }

    /// Keeps all of what the parser has held to its limits, part after part.
    pub fn keep_whole(&mut self, parts: &[&[u8]]) -> Span {
        let start = self.bytes.len() as u32;
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        Span {
            start,
            end: self.bytes.len() as u32,
        }
    }

    /// Keeps the reply of a request that was decided while it was read.
    pub fn keep_answer(&mut self, reply: Reply) -> Call {
        self.answers.push(reply);
        Call::Answered(self.answers.len() as u32 - 1) // fewer than STAGED_MAX
    }

    /// Adds a request.
    pub fn push(&mut self, call: StagedCall) {
        self.calls.push(call);
    }

    /// The bytes of a span.
    pub fn bytes(&self, span: Span) -> &[u8] {
        let range: Range<usize> = span.start as usize..span.end as usize;
        &self.bytes[range]
    }

    /// The turn's requests and the replies of those that were answered, to be decided while [`Self::bytes`] still holds
    /// what they keep; they come back with [`Self::clear`].
    pub fn take(&mut self) -> (Vec<StagedCall>, Vec<Reply>) {
        (
            core::mem::take(&mut self.calls),
            core::mem::take(&mut self.answers),
        )
    }

    /// Forgets the turn's requests; keeps their room.
    pub fn clear(&mut self, calls: Vec<StagedCall>, answers: Vec<Reply>) {
        (self.calls, self.answers) = (calls, answers);
        self.calls.clear();
        self.answers.clear();
        self.bytes.clear();
    }
}

impl Default for Staged {
    fn default() -> Self {
        Self::new()
    }
}
