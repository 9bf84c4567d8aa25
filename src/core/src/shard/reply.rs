//! One reply as a value: small enough to wait its turn, complete enough to be written at any time.
//!
//! Made by the stages, kept by [`super::replies`] while an earlier request of the same conn waits, written by
//! [`Reply::write`] into the outbox. Invariant: writing allocates nothing beyond the outbox's growth.

use super::limits::Told;
use alloc::vec::Vec;
use core::fmt;
use weir_proto::answer::{AnswerBody, Code, Lang, Reason, RequestState, retry_after_header_s};
use weir_proto::http::Connection;
use weir_proto::http::cors::write_preflight;
use weir_proto::http::date::DateCache;
use weir_proto::http::letter::Letters;
use weir_proto::http::quota::Quota;
use weir_proto::http::response::Meta;
use weir_proto::ids::{RequestId, ReservationId};

/// What a request says about how it wants to be answered.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// What becomes of the connection.
    pub connection: Connection,
    /// HEAD: no body.
    pub head_only: bool,
    /// Language of the message.
    pub lang: Lang,
    /// Index of the shop's origin in the configuration, for CORS.
    pub origin: Option<u8>,
}

/// A short English text for the `detail` member, kept inline.
#[derive(Clone, Copy)]
pub struct Detail {
    len: u8,
    bytes: [u8; Self::BYTES_MAX],
}

impl Detail {
    /// Longest detail; what is longer is cut at a character.
    const BYTES_MAX: usize = 120;
    /// No text.
    pub const EMPTY: Self = Self {
        len: 0,
        bytes: [0; Self::BYTES_MAX],
    };

    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("cut at a character")
    }
}

impl fmt::Write for Detail {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let at = usize::from(self.len);
        let cut = text.floor_char_boundary(Self::BYTES_MAX - at);
        self.bytes[at..at + cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.len += cut as u8;
        Ok(())
    }
}

impl fmt::Debug for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Everything one reply says.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// The row of the table.
    pub reason: Reason,
    /// Echoed; empty when none was read.
    pub request_id: RequestId,
    /// The reservation, when there is one.
    pub reservation: Option<ReservationId>,
    /// Where it stands, when that is truer than the row's word.
    pub state: Option<RequestState>,
    /// Code of the first answer, for a replay.
    pub original: Option<Code>,
    /// When to ask for the status.
    pub next_poll_after_ms: Option<u64>,
    /// Exact wait of a 429, jittered wait of a 503.
    pub retry_after_ms: Option<u64>,
    /// The limit that decided, for the headers.
    pub quota: Option<Quota>,
    /// Until the sale opens, coarse.
    pub opens_in_ms: Option<u64>,
    /// What argument was wrong.
    pub detail: Detail,
    /// For a 405.
    pub allow: Option<&'static str>,
    /// Not an answer of ours but the preflight's empty 204.
    pub preflight: bool,
}

impl Reply {
    /// A reply that says what its row says.
    pub fn new(reason: Reason) -> Self {
        Self {
            reason,
            request_id: RequestId::EMPTY,
            reservation: None,
            state: None,
            original: None,
            next_poll_after_ms: None,
            retry_after_ms: None,
            quota: None,
            opens_in_ms: None,
            detail: Detail::EMPTY,
            allow: None,
            preflight: false,
        }
    }

    /// The empty 204 that tells a shop's page what it may ask.
    pub fn preflight() -> Self {
        Self {
            preflight: true,
            ..Self::new(Reason::Queued)
        }
    }

    /// With what the limits say to an admitted caller: its quota, and not to come before its turn.
    #[must_use]
    pub fn told(&self, told: &Told) -> Self {
        let later = |ms: u64| ms.max(told.pace_ms);
        Self {
            quota: self.quota.or(told.quota),
            next_poll_after_ms: self.next_poll_after_ms.map(later),
            ..*self
        }
    }

    /// Appends the whole response to `out`.
    pub fn write(&self, manner: &Manner, stationery: &Stationery<'_>, out: &mut Vec<u8>) {
        let row = self.reason.row();
        let meta = Meta {
            head_only: manner.head_only,
            retry_after_s: self
                .retry_after_ms
                .map(|ms| u32::try_from(retry_after_header_s(ms)).unwrap_or(u32::MAX)),
            allow: self.allow,
            quota: self.quota,
            cors_origin: manner
                .origin
                .map(|index| stationery.origins[usize::from(index)].as_slice()),
            ..Meta::new(stationery.date, manner.connection)
        };
        if self.preflight {
            write_preflight(out, &meta);
            return;
        }
        let mut body = AnswerBody::new(self.reason, manner.lang, stationery.date.server_time());
        body.request_id = (!self.request_id.is_empty()).then_some(&self.request_id);
        body.reservation_id = self.reservation;
        body.state = self.state.unwrap_or(row.state);
        body.original = self.original;
        body.next_poll_after_ms = self.next_poll_after_ms;
        body.retry_after_ms = self.retry_after_ms;
        body.opens_in_ms = self.opens_in_ms;
        let detail = self.detail.as_str();
        body.detail = (!detail.is_empty()).then_some(detail);
        stationery.letters.write(out, &meta, &body);
    }
}

/// What every reply of a turn shares.
#[derive(Clone, Copy, Debug)]
pub struct Stationery<'a> {
    /// The turn's time.
    pub date: &'a DateCache,
    /// Answers written ahead.
    pub letters: &'a Letters,
    /// Configured origins.
    pub origins: &'a [Vec<u8>],
}
