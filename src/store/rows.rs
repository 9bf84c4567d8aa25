//! Rows of the journal: checksums, appending, dropping what a snapshot made obsolete, reading it all back.

use super::Identity;
use super::error::{Damage, StoreError};
use super::limits::{
    DROPPED_BATCHES_PER_APPEND, DROPPED_PARTS_PER_APPEND, SNAPSHOT_PART_BYTES, SUM_BYTES,
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use std::path::Path;
use weir_core::journal::{Batch, Image};
use weir_core::limits::BATCH_BYTES_MAX;

/// Version of a row: how its checksum is made.
const ROW_VERSION: i64 = 1;

/// Separates the checksums of batches from those of snapshots.
#[derive(Clone, Copy)]
enum Kind {
    Batch = 1,
    Snapshot = 2,
}

/// What a checksum covers besides the bytes.
#[derive(Clone, Copy)]
struct Place {
    kind: Kind,
    seq: i64,
    part: i64,
    parts: i64,
    version: i64,
}

impl Place {
    fn batch(seq: i64, version: i64) -> Self {
        Self {
            kind: Kind::Batch,
            seq,
            part: 0,
            parts: 1,
            version,
        }
    }

    fn sum(self, bytes: &[u8]) -> [u8; SUM_BYTES] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[self.kind as u8]);
        for field in [self.seq, self.part, self.parts, self.version] {
            hasher.update(&field.to_le_bytes());
        }
        hasher.update(bytes);
        let mut sum = [0; SUM_BYTES];
        hasher.finalize_xof().fill(&mut sum);
        sum
    }
}

/// Sequence numbers as SQLite has them.
fn to_sql(seq: u64) -> i64 {
    i64::try_from(seq).expect("a ledger does not reach 2^63 batches")
}

/// What one append changed besides its own row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Appended {
    /// True while older rows are left to drop.
    pub(super) garbage_left: bool,
}

/// One transaction: the batch, its snapshot, and a bounded step of dropping rows below `snapshot_seq`.
pub(super) fn append(
    connection: &mut Connection,
    batch: &Batch,
    garbage_below: Option<u64>,
) -> rusqlite::Result<Appended> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let seq = to_sql(batch.seq);
    tx.prepare_cached("INSERT INTO batches(seq, version, bytes, sum) VALUES(?1, ?2, ?3, ?4)")?
        .execute(params![
            seq,
            ROW_VERSION,
            batch.bytes,
            Place::batch(seq, ROW_VERSION).sum(&batch.bytes)
        ])?;
    if let Some(snapshot) = &batch.snapshot {
        insert_snapshot(&tx, seq, snapshot)?;
    }
    let mut appended = Appended::default();
    if let Some(below) = garbage_below {
        appended.garbage_left = drop_garbage(&tx, to_sql(below))?;
    }
    tx.commit()?;
    Ok(appended)
}

fn insert_snapshot(tx: &Transaction<'_>, seq: i64, snapshot: &[u8]) -> rusqlite::Result<()> {
    let mut insert = tx.prepare_cached(
        "INSERT INTO snapshots(seq, part, parts, version, bytes, sum) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    // An empty snapshot is one empty part.
    let parts = snapshot.len().div_ceil(SNAPSHOT_PART_BYTES).max(1);
    for part in 0..parts {
        let start = part * SNAPSHOT_PART_BYTES;
        let end = snapshot.len().min(start + SNAPSHOT_PART_BYTES);
        let bytes = &snapshot[start..end];
        let place = Place {
            kind: Kind::Snapshot,
            seq,
            part: to_sql(part as u64),
            parts: to_sql(parts as u64),
            version: ROW_VERSION,
        };
        insert.execute(params![
            seq,
            place.part,
            place.parts,
            ROW_VERSION,
            bytes,
            place.sum(bytes)
        ])?;
    }
    Ok(())
}

/// Drops a few rows that the snapshot after `snapshot_seq` replaced; true when some may be left.
fn drop_garbage(tx: &Transaction<'_>, snapshot_seq: i64) -> rusqlite::Result<bool> {
    let batches = tx
        .prepare_cached(
            "DELETE FROM batches WHERE seq IN (SELECT seq FROM batches WHERE seq <= ?1 ORDER BY seq LIMIT ?2)",
        )?
        .execute(params![snapshot_seq, DROPPED_BATCHES_PER_APPEND])?;
    // From the last part down: a snapshot that lost a part is older than the newest, so nobody reads it.
    let parts = tx
        .prepare_cached(
            "DELETE FROM snapshots WHERE rowid IN
             (SELECT rowid FROM snapshots WHERE seq < ?1 ORDER BY seq, part DESC LIMIT ?2)",
        )?
        .execute(params![snapshot_seq, DROPPED_PARTS_PER_APPEND])?;
    Ok(batches > 0 || parts > 0)
}

/// Makes a new boot epoch durable and returns it.
pub(super) fn next_boot_epoch(connection: &mut Connection) -> rusqlite::Result<u64> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let epoch: i64 = tx.query_row(
        "UPDATE meta SET value = value + 1 WHERE key = 'boot_epoch' RETURNING value",
        [],
        |row| row.get(0),
    )?;
    tx.commit()?;
    Ok(epoch.unsigned_abs())
}

/// The ledger's number and whether orders go with it.
pub(super) fn identity(connection: &Connection) -> rusqlite::Result<Identity> {
    let value = |key| {
        connection
            .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| {
                row.get(0)
            })
            .optional()
    };
    // A file that was made before ledgers had numbers gets one; 0 would be everybody's.
    let id = match value("ledger_id")? {
        Some(id) => id,
        None => connection.query_row(
            "INSERT INTO meta VALUES ('ledger_id', random() | 1) RETURNING value",
            [],
            |row| row.get(0),
        )?,
    };
    let has_orders = value("has_orders")?.is_some();
    Ok(Identity { id, has_orders })
}

/// Makes durable that an order store belongs to this ledger.
pub(super) fn note_orders(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "INSERT INTO meta VALUES ('has_orders', 1) ON CONFLICT DO NOTHING";
    connection.execute(sql, []).map(drop)
}

/// The boot epoch of the last opening.
pub(super) fn boot_epoch(connection: &Connection) -> rusqlite::Result<u64> {
    let epoch: i64 = connection.query_row(
        "SELECT value FROM meta WHERE key = 'boot_epoch'",
        [],
        |row| row.get(0),
    )?;
    Ok(epoch.unsigned_abs())
}

/// Reads and checks the newest snapshot and every batch after it. `boot_epoch` is left 0.
pub(super) fn read(connection: &Connection, path: &Path) -> Result<Image, StoreError> {
    let snapshot = read_snapshot(connection, path)?;
    let after = snapshot.as_ref().map_or(0, |(seq, _)| *seq);
    let batches = read_batches(connection, path, after)?;
    Ok(Image {
        snapshot,
        batches,
        boot_epoch: 0,
    })
}

fn read_snapshot(
    connection: &Connection,
    path: &Path,
) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
    let sqlite = |error: rusqlite::Error| StoreError::of_sqlite(path, &error);
    let newest: Option<i64> = connection
        .query_row("SELECT max(seq) FROM snapshots", [], |row| row.get(0))
        .map_err(sqlite)?;
    let Some(seq) = newest else {
        return Ok(None);
    };
    let damaged = |part: i64| StoreError::Corrupt {
        path: path.to_path_buf(),
        damage: Damage::Snapshot {
            seq: seq.unsigned_abs(),
            part: part.unsigned_abs(),
        },
    };
    let mut select = connection
        .prepare(
            "SELECT part, parts, version, bytes, sum FROM snapshots WHERE seq = ?1 ORDER BY part",
        )
        .map_err(sqlite)?;
    let mut rows = select.query([seq]).map_err(sqlite)?;
    let mut bytes = Vec::new();
    let mut expected = 0;
    let mut parts = 1;
    while let Some(row) = rows.next().map_err(sqlite)? {
        let place = Place {
            kind: Kind::Snapshot,
            seq,
            part: row.get(0).map_err(sqlite)?,
            parts: row.get(1).map_err(sqlite)?,
            version: row.get(2).map_err(sqlite)?,
        };
        let part = blob(row, 3).map_err(sqlite)?;
        if place.part != expected || blob(row, 4).map_err(sqlite)? != place.sum(part) {
            return Err(damaged(expected));
        }
        bytes.extend_from_slice(part);
        parts = place.parts;
        expected += 1;
    }
    if expected != parts {
        return Err(damaged(expected));
    }
    Ok(Some((seq.unsigned_abs(), bytes)))
}

fn read_batches(
    connection: &Connection,
    path: &Path,
    after: u64,
) -> Result<Vec<Batch>, StoreError> {
    let sqlite = |error: rusqlite::Error| StoreError::of_sqlite(path, &error);
    let corrupt = |damage: Damage| StoreError::Corrupt {
        path: path.to_path_buf(),
        damage,
    };
    let mut select = connection
        .prepare("SELECT seq, version, bytes, sum FROM batches WHERE seq > ?1 ORDER BY seq")
        .map_err(sqlite)?;
    let mut rows = select.query([to_sql(after)]).map_err(sqlite)?;
    let mut batches = Vec::new();
    let mut expected = after + 1;
    while let Some(row) = rows.next().map_err(sqlite)? {
        let seq: i64 = row.get(0).map_err(sqlite)?;
        if seq != to_sql(expected) {
            return Err(corrupt(Damage::Hole {
                seq: expected,
                found: seq.unsigned_abs(),
            }));
        }
        let version: i64 = row.get(1).map_err(sqlite)?;
        let bytes = blob(row, 2).map_err(sqlite)?;
        let whole = (1..=BATCH_BYTES_MAX).contains(&bytes.len())
            && blob(row, 3).map_err(sqlite)? == Place::batch(seq, version).sum(bytes);
        if version != ROW_VERSION || !whole {
            return Err(corrupt(Damage::Batch { seq: expected }));
        }
        batches.push(Batch {
            seq: expected,
            bytes: bytes.to_vec(),
            snapshot: None,
        });
        expected += 1;
    }
    Ok(batches)
}

fn blob<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<&'a [u8]> {
    Ok(row.get_ref(column)?.as_blob()?)
}
