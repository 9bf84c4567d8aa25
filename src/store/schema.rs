//! Opening `ledger.sqlite`: pragmas, schema, version.

use super::error::StoreError;
use super::limits::{CACHE_KIB, PAGE_BYTES, WAL_BYTES_KEPT};
use super::{Synchronous, wal};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// "weiL": tells our ledger from any other SQLite file (also for `file(1)`).
pub(super) const APPLICATION_ID: i64 = 0x7765_694C;
/// Version of tables and checksums; grows when an older program could misread them.
pub(super) const SCHEMA_VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE batches(
    seq INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    sum BLOB NOT NULL
) STRICT;
CREATE TABLE snapshots(
    seq INTEGER NOT NULL,
    part INTEGER NOT NULL,
    parts INTEGER NOT NULL,
    version INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    sum BLOB NOT NULL,
    UNIQUE(seq, part)
) STRICT;
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('boot_epoch', 0);
";

/// Opens for writing; makes the schema in an empty file; refuses what is not ours or newer.
pub(super) fn open(path: &Path, synchronous: Synchronous) -> Result<Connection, StoreError> {
    wal::check(path)?;
    let sqlite = |error: rusqlite::Error| StoreError::of_sqlite(path, &error);
    // Made here and not by SQLite, which would let others read it: it holds user ids. The WAL takes over its mode.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| StoreError::of_io(path, &error))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(Duration::ZERO).map_err(sqlite)?;
    // Before the first access: the WAL index then lives in our heap, so no shared memory file exists.
    set(&connection, "locking_mode", "EXCLUSIVE").map_err(sqlite)?;
    set(&connection, "mmap_size", 0).map_err(sqlite)?;
    // A close after a failed sync must not sync again (R55); a healthy close checkpoints by itself.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(sqlite)?;
    let fresh = verify(&connection, path)?;
    if fresh {
        set(&connection, "page_size", PAGE_BYTES).map_err(sqlite)?;
    }
    set(&connection, "journal_mode", "WAL").map_err(sqlite)?;
    let level = match synchronous {
        Synchronous::Full => "FULL",
        #[cfg(any(debug_assertions, weir_planted))]
        Synchronous::Off => "OFF",
    };
    set(&connection, "synchronous", level).map_err(sqlite)?;
    // Our own checkpoints: SQLite's automatic ones swallow the error of a failed sync.
    set(&connection, "wal_autocheckpoint", 0).map_err(sqlite)?;
    set(&connection, "journal_size_limit", WAL_BYTES_KEPT).map_err(sqlite)?;
    set(
        &connection,
        "cache_size",
        -i64::try_from(CACHE_KIB).unwrap_or(i64::MAX),
    )
    .map_err(sqlite)?;
    set(&connection, "temp_store", "MEMORY").map_err(sqlite)?;
    set(&connection, "trusted_schema", "OFF").map_err(sqlite)?;
    if fresh {
        make_tables(&mut connection).map_err(sqlite)?;
        sync_directory(path)?;
    }
    Ok(connection)
}

/// Opens for reading only; nothing is changed.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, StoreError> {
    if !path.exists() {
        return Err(StoreError::Missing {
            path: path.to_path_buf(),
        });
    }
    wal::check(path)?;
    let sqlite = |error: rusqlite::Error| StoreError::of_sqlite(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(Duration::ZERO).map_err(sqlite)?;
    if verify(&connection, path)? {
        // A file in which the first start was cut off before its schema was committed.
        return Err(StoreError::Missing {
            path: path.to_path_buf(),
        });
    }
    Ok(connection)
}

/// True when the file is empty; an error when it is not ours or of a newer version.
fn verify(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let sqlite = |error: rusqlite::Error| StoreError::of_sqlite(path, &error);
    let application: i64 = get(connection, "application_id").map_err(sqlite)?;
    let version: i64 = get(connection, "user_version").map_err(sqlite)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(sqlite)?;
    let ours = application == APPLICATION_ID;
    match (ours, version) {
        (true, SCHEMA_VERSION) => Ok(false),
        (true, found) if found > SCHEMA_VERSION => Err(StoreError::Newer {
            path: path.to_path_buf(),
            found,
            known: SCHEMA_VERSION,
        }),
        (false, 0) if application == 0 && tables == 0 => Ok(true),
        _ => Err(StoreError::NotALedger {
            path: path.to_path_buf(),
        }),
    }
}

/// All in one transaction: after a crash the file is empty or whole.
fn make_tables(connection: &mut Connection) -> rusqlite::Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(TABLES)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    tx.commit()
}

/// Makes the names of new files durable; SQLite does it for the WAL, not for the database (R56).
fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let Some(dir) = path.parent() else {
        return Ok(());
    };
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| StoreError::of_io(dir, &error))
}

fn set(connection: &Connection, name: &str, value: impl rusqlite::ToSql) -> rusqlite::Result<()> {
    // Some pragmas answer with a row, some with none.
    connection
        .pragma_update_and_check(None, name, value, |_| Ok(()))
        .or_else(|error| match error {
            rusqlite::Error::QueryReturnedNoRows => Ok(()),
            other => Err(other),
        })
}

fn get(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}
