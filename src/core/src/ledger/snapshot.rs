//! Snapshots: the whole ledger as canonical bytes. Equal ledgers have equal bytes, however they came to be.
//!
//! Layout: version byte, clock; SKUs sorted by key, each with its operators' requests; reservations by number;
//! tombstones of both generations in the order they came. Written by the owner when one is due, read at recovery.

use super::codec::{
    mode_code, put_money, put_sku, put_step, put_text, put_u32, put_u64, state_code,
};
use super::error::{JournalError, Wrong};
use super::reader::Reader;
use super::sku::{OpsDone, Sku};
use super::tables::{Record, RequestName, SkuIndex};
use super::{Ledger, LedgerConfig};
use crate::ask::Books;
use crate::limits::{OPS_REMEMBERED_MAX, UNITS_MAX};
use crate::time::WallMs;
use alloc::vec;
use alloc::vec::Vec;
use weir_proto::ids::{ReservationId, UserId};

/// Version of the snapshot's format, its first byte.
pub const SNAPSHOT_VERSION: u8 = 1;

impl Ledger {
    /// Appends the snapshot to `out`.
    pub fn snapshot_into(&self, out: &mut Vec<u8>) {
        out.push(SNAPSHOT_VERSION);
        put_u64(out, self.clock.0);
        // Rows name SKUs by rank in the sorted list: the order of opening differs after a restore.
        let mut ranks = vec![0 as SkuIndex; self.skus.len()];
        put_u32(out, self.by_key.len() as u32);
        for (rank, &(_, index)) in self.by_key.iter().enumerate() {
            ranks[usize::from(index)] = rank as SkuIndex;
            put_sku_state(out, &self.skus[usize::from(index)]);
        }
        put_u64(out, self.records.rows().len() as u64);
        for record in self.records.rows() {
            put_name(out, &record.name, &ranks);
            put_text(out, &record.nonce);
            put_u64(out, record.nonce_until.0);
            put_u32(out, record.quantity);
            put_money(out, record.unit_price);
            out.push(state_code(record.state));
            put_u64(out, record.granted_at.0);
            put_u64(out, record.moved_at.0);
        }
        for generation in self.tombstones.generations() {
            put_u32(out, generation.len() as u32);
            for name in generation {
                put_name(out, name, &ranks);
            }
        }
    }

    /// The ledger that wrote `snapshot`, with tables of `config`.
    /// # Errors
    /// Offset and cause.
    pub fn restore(config: LedgerConfig, snapshot: &[u8]) -> Result<Self, JournalError> {
        let mut ledger = Self::new(config);
        let mut reader = Reader::new(snapshot);
        let version = reader.u8()?;
        if version != SNAPSHOT_VERSION {
            return Err(reader.wrong(Wrong::Version(version)));
        }
        ledger.clock = WallMs(reader.u64()?);
        for _ in 0..reader.u32()? {
            let sku = ledger.read_sku(&mut reader)?;
            let impossible = |what| reader.wrong(Wrong::Impossible(what));
            if ledger
                .by_key
                .last()
                .is_some_and(|&(last, _)| last >= sku.key)
            {
                return Err(impossible("SKUs are sorted"));
            }
            ledger.insert_sku(sku).map_err(impossible)?;
        }
        for number in 1..=reader.u64()? {
            let record = ledger.read_record(&mut reader, ReservationId(number))?;
            ledger.records.push(record);
        }
        for _ in 0..reader.u32()? {
            let name = ledger.read_name(&mut reader)?;
            ledger.tombstones.insert(name);
        }
        ledger.tombstones.turn(); // what was read first is the old generation
        for _ in 0..reader.u32()? {
            let name = ledger.read_name(&mut reader)?;
            ledger.tombstones.insert(name);
        }
        if !reader.rest().is_empty() {
            return Err(reader.wrong(Wrong::LeftOver));
        }
        ledger
            .check()
            .map_err(|fault| reader.wrong(Wrong::Impossible(fault.what)))?;
        Ok(ledger)
    }

    fn read_sku(&self, reader: &mut Reader<'_>) -> Result<Sku, JournalError> {
        let key = reader.sku()?;
        let mut sku = Sku::new(key, self.plan(key));
        sku.open = reader.flag()?;
        sku.mode = reader.mode()?;
        sku.quantity_max = reader.u32()?;
        sku.once_per_activity = reader.flag()?;
        sku.books = Books {
            total: read_units(reader)?,
            free: read_units(reader)?,
            held: read_units(reader)?,
            sold: read_units(reader)?,
            quarantined: read_units(reader)?,
        };
        sku.epoch = reader.u64()?;
        sku.sold_out = reader.flag()?;
        sku.reservations = reader.u32()?;
        sku.restocked = read_units(reader)?;
        let ops_count = reader.u32()? as usize;
        if ops_count > OPS_REMEMBERED_MAX {
            return Err(reader.wrong(Wrong::Value(
                "count of operators' requests",
                ops_count as u64,
            )));
        }
        for _ in 0..ops_count {
            let done = OpsDone {
                request_id: reader.text()?,
                step: reader.step()?,
                at: WallMs(reader.u64()?),
            };
            sku.remember_ops(done);
        }
        Ok(sku)
    }

    fn read_name(&self, reader: &mut Reader<'_>) -> Result<RequestName, JournalError> {
        let sku = reader.u16()?;
        if usize::from(sku) >= self.skus.len() {
            return Err(reader.wrong(Wrong::Value("SKU rank", u64::from(sku))));
        }
        Ok(RequestName {
            sku,
            user: UserId(reader.u64()?),
            request_id: reader.text()?,
        })
    }

    fn read_record(
        &self,
        reader: &mut Reader<'_>,
        id: ReservationId,
    ) -> Result<Record, JournalError> {
        let record = Record {
            id,
            name: self.read_name(reader)?,
            nonce: reader.text()?,
            nonce_until: WallMs(reader.u64()?),
            quantity: reader.u32()?,
            unit_price: reader.money()?,
            state: reader.state()?,
            granted_at: WallMs(reader.u64()?),
            moved_at: WallMs(reader.u64()?),
        };
        let known = self.records.request(&record.name).is_some()
            || self.records.nonce(record.name.sku, &record.nonce).is_some();
        if known {
            return Err(reader.wrong(Wrong::Impossible("request or nonce was granted before")));
        }
        Ok(record)
    }
}

fn read_units(reader: &mut Reader<'_>) -> Result<u64, JournalError> {
    match reader.u64()? {
        units if units <= UNITS_MAX => Ok(units),
        units => Err(reader.wrong(Wrong::Value("units", units))),
    }
}

fn put_name(out: &mut Vec<u8>, name: &RequestName, ranks: &[SkuIndex]) {
    out.extend_from_slice(&ranks[usize::from(name.sku)].to_le_bytes());
    put_u64(out, name.user.0);
    put_text(out, &name.request_id);
}

fn put_sku_state(out: &mut Vec<u8>, sku: &Sku) {
    put_sku(out, sku.key);
    out.push(u8::from(sku.open));
    out.push(mode_code(sku.mode));
    put_u32(out, sku.quantity_max);
    out.push(u8::from(sku.once_per_activity));
    let books = &sku.books;
    for units in [
        books.total,
        books.free,
        books.held,
        books.sold,
        books.quarantined,
    ] {
        put_u64(out, units);
    }
    put_u64(out, sku.epoch);
    out.push(u8::from(sku.sold_out));
    put_u32(out, sku.reservations);
    put_u64(out, sku.restocked);
    put_u32(out, sku.ops.len() as u32);
    for done in &sku.ops {
        put_text(out, &done.request_id);
        put_step(out, done.step);
        put_u64(out, done.at.0);
    }
}
