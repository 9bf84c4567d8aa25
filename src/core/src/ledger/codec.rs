//! Journal entries: what the ledger did, self-contained, and their bytes.
//!
//! A batch is one version byte, then entries: u16 length of what follows, u8 kind, fields in order. Integers are
//! little-endian and fixed-width; a text is a u8 length and its bytes. Reading is strict: unknown kinds, values out of
//! range, short or left-over bytes are errors that name the offset. Written by the ledger, kept by the store.

use super::error::{JournalError, Wrong};
use super::reader::Reader;
use super::sku::OpsStep;
use crate::ask::{Mode, ReservationState};
use crate::order::contract::Money;
use crate::time::WallMs;
use alloc::vec::Vec;
use weir_proto::ids::{Nonce, RequestId, ReservationId, SkuKey, UserId};
use weir_proto::text::Text;

/// Version of the entries' format, the first byte of each batch.
pub const JOURNAL_VERSION: u8 = 1;

/// One thing that the ledger did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Units are held.
    Granted(Granted),
    /// A reservation came into another state; the books follow from both states.
    Moved {
        /// Which.
        reservation: ReservationId,
        /// The state now.
        to: ReservationState,
        /// When.
        at: WallMs,
    },
    /// The door is closed for a request never seen.
    Tombstoned {
        /// Of which SKU.
        sku: SkuKey,
        /// Whose request.
        user: UserId,
        /// Which request.
        request_id: RequestId,
        /// When.
        at: WallMs,
    },
    /// The old generation of tombstones is forgotten; the young one is old now.
    TombstonesTurned {
        /// When.
        at: WallMs,
    },
    /// An operator's step.
    Ops {
        /// Of which SKU.
        sku: SkuKey,
        /// The operator's key.
        request_id: RequestId,
        /// What.
        step: OpsStep,
        /// When.
        at: WallMs,
    },
    /// Units that gathered while sold out are sellable; the epoch grew.
    Reopened {
        /// Which SKU.
        sku: SkuKey,
        /// When.
        at: WallMs,
    },
}

/// A grant, with all that its order will need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// What.
    pub sku: SkuKey,
    /// For whom.
    pub user: UserId,
    /// By which request.
    pub request_id: RequestId,
    /// The ticket's nonce.
    pub nonce: Nonce,
    /// The nonce is a live credential until then.
    pub nonce_until: WallMs,
    /// Units.
    pub quantity: u32,
    /// Price of one unit.
    pub unit_price: Money,
    /// Its number: the one after the last.
    pub reservation: ReservationId,
    /// When.
    pub at: WallMs,
}

/// A batch in the making: the version byte and whole entries. Never allocates below its first capacity.
#[derive(Debug)]
pub struct Journal {
    bytes: Vec<u8>,
    entries: u32,
}

impl Journal {
    /// Uses `buffer` (emptied, its capacity kept).
    pub fn new(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.push(JOURNAL_VERSION);
        Self {
            bytes: buffer,
            entries: 0,
        }
    }

    /// Appends one entry.
    pub fn push(&mut self, entry: &Entry) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        encode(entry, &mut self.bytes);
        let len = u16::try_from(self.bytes.len() - start - 2)
            .expect("an entry is at most ENTRY_BYTES_MAX bytes");
        self.bytes[start..start + 2].copy_from_slice(&len.to_le_bytes());
        self.entries += 1;
    }

    /// Entries so far.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Version byte and entries so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The finished batch.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads the entries of one batch in order.
#[derive(Debug)]
pub struct Entries<'a> {
    reader: Reader<'a>,
}

impl<'a> Entries<'a> {
    /// Checks the version byte.
    /// # Errors
    /// [`Wrong::Version`] for another format, [`Wrong::Short`] for no byte at all.
    pub fn of(batch: &'a [u8]) -> Result<Self, JournalError> {
        let mut reader = Reader::new(batch);
        let version = reader.u8()?;
        if version != JOURNAL_VERSION {
            return Err(reader.wrong(Wrong::Version(version)));
        }
        Ok(Self { reader })
    }

    /// Where the next entry starts.
    pub fn offset(&self) -> usize {
        self.reader.offset()
    }

    /// The next entry; `None` after the last.
    /// # Errors
    /// The offset and what is wrong there.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, JournalError> {
        if self.reader.rest().is_empty() {
            return Ok(None);
        }
        let len = usize::from(self.reader.u16()?);
        let base = self.reader.offset();
        let mut one = Reader::new(self.reader.take(len)?);
        let entry = decode(&mut one).map_err(|error| error.shifted(base))?;
        if !one.rest().is_empty() {
            return Err(one.wrong(Wrong::LeftOver).shifted(base));
        }
        Ok(Some(entry))
    }
}

const KIND_GRANTED: u8 = 1;
const KIND_MOVED: u8 = 2;
const KIND_TOMBSTONED: u8 = 3;
const KIND_TOMBSTONES_TURNED: u8 = 4;
const KIND_OPS: u8 = 5;
const KIND_REOPENED: u8 = 6;

fn encode(entry: &Entry, out: &mut Vec<u8>) {
    match entry {
        Entry::Granted(granted) => {
            out.push(KIND_GRANTED);
            put_sku(out, granted.sku);
            put_u64(out, granted.user.0);
            put_text(out, &granted.request_id);
            put_text(out, &granted.nonce);
            put_u64(out, granted.nonce_until.0);
            put_u32(out, granted.quantity);
            put_money(out, granted.unit_price);
            put_u64(out, granted.reservation.0);
            put_u64(out, granted.at.0);
        }
        Entry::Moved {
            reservation,
            to,
            at,
        } => {
            out.push(KIND_MOVED);
            put_u64(out, reservation.0);
            out.push(state_code(*to));
            put_u64(out, at.0);
        }
        Entry::Tombstoned {
            sku,
            user,
            request_id,
            at,
        } => {
            out.push(KIND_TOMBSTONED);
            put_sku(out, *sku);
            put_u64(out, user.0);
            put_text(out, request_id);
            put_u64(out, at.0);
        }
        Entry::TombstonesTurned { at } => {
            out.push(KIND_TOMBSTONES_TURNED);
            put_u64(out, at.0);
        }
        Entry::Ops {
            sku,
            request_id,
            step,
            at,
        } => {
            out.push(KIND_OPS);
            put_sku(out, *sku);
            put_text(out, request_id);
            put_step(out, *step);
            put_u64(out, at.0);
        }
        Entry::Reopened { sku, at } => {
            out.push(KIND_REOPENED);
            put_sku(out, *sku);
            put_u64(out, at.0);
        }
    }
}

fn decode(reader: &mut Reader<'_>) -> Result<Entry, JournalError> {
    Ok(match reader.u8()? {
        KIND_GRANTED => Entry::Granted(Granted {
            sku: reader.sku()?,
            user: UserId(reader.u64()?),
            request_id: reader.text()?,
            nonce: reader.text()?,
            nonce_until: WallMs(reader.u64()?),
            quantity: reader.u32()?,
            unit_price: reader.money()?,
            reservation: ReservationId(reader.u64()?),
            at: WallMs(reader.u64()?),
        }),
        KIND_MOVED => Entry::Moved {
            reservation: ReservationId(reader.u64()?),
            to: reader.state()?,
            at: WallMs(reader.u64()?),
        },
        KIND_TOMBSTONED => Entry::Tombstoned {
            sku: reader.sku()?,
            user: UserId(reader.u64()?),
            request_id: reader.text()?,
            at: WallMs(reader.u64()?),
        },
        KIND_TOMBSTONES_TURNED => Entry::TombstonesTurned {
            at: WallMs(reader.u64()?),
        },
        KIND_OPS => Entry::Ops {
            sku: reader.sku()?,
            request_id: reader.text()?,
            step: reader.step()?,
            at: WallMs(reader.u64()?),
        },
        KIND_REOPENED => Entry::Reopened {
            sku: reader.sku()?,
            at: WallMs(reader.u64()?),
        },
        kind => return Err(reader.wrong(Wrong::Value("entry kind", u64::from(kind)))),
    })
}

pub(super) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_sku(out: &mut Vec<u8>, sku: SkuKey) {
    put_u64(out, sku.activity.0);
    put_u64(out, sku.sku.0);
}

pub(super) fn put_text<const N: usize>(out: &mut Vec<u8>, text: &Text<N>) {
    let bytes = text.as_bytes();
    out.push(bytes.len() as u8); // Text is at most 255 bytes
    out.extend_from_slice(bytes);
}

pub(super) fn put_money(out: &mut Vec<u8>, money: Money) {
    put_u64(out, money.minor);
    out.extend_from_slice(&money.currency);
}

pub(super) fn put_step(out: &mut Vec<u8>, step: OpsStep) {
    match step {
        OpsStep::Open {
            stock,
            quantity_max,
            once_per_activity,
        } => {
            out.push(1);
            put_u64(out, stock);
            put_u32(out, quantity_max);
            out.push(u8::from(once_per_activity));
        }
        OpsStep::Close => out.push(2),
        OpsStep::SetMode(mode) => out.extend_from_slice(&[3, mode_code(mode)]),
        OpsStep::Restock(units) => {
            out.push(4);
            put_u64(out, units);
        }
    }
}

pub(super) const fn mode_code(mode: Mode) -> u8 {
    match mode {
        Mode::Normal => 1,
        Mode::Degraded => 2,
        Mode::QueueOnly => 3,
        Mode::Closed => 4,
    }
}

pub(super) const fn state_code(state: ReservationState) -> u8 {
    match state {
        ReservationState::Reserved => 1,
        ReservationState::Confirmed => 2,
        ReservationState::Settled => 3,
        ReservationState::Closed => 4,
        ReservationState::Failed => 5,
        ReservationState::PaidLate => 6,
    }
}
