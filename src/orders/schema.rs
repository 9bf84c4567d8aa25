//! The schema of `orders.sqlite`, its version, and how the file is opened.
//!
//! Numbers of 64 bits are stored as SQLite's signed integers (all of ours fit by their ranges). The unique key over
//! `live` (1 or NULL) is how "one live order per user and SKU" is said portably (design §12.6).

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fmt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The version that this program writes.
pub const SCHEMA_VERSION: i64 = 2;

const SCHEMA: &str = "
CREATE TABLE orders (
  reservation_id   INTEGER PRIMARY KEY,
  activity_id      INTEGER NOT NULL,
  sku_id           INTEGER NOT NULL,
  user_id          INTEGER NOT NULL,
  quantity         INTEGER NOT NULL,
  request_id       TEXT    NOT NULL,
  unit_price_minor INTEGER NOT NULL,
  currency         TEXT    NOT NULL,
  message_version  INTEGER NOT NULL,
  state            TEXT    NOT NULL,
  version          INTEGER NOT NULL,
  acked_version    INTEGER NOT NULL DEFAULT 0,
  live             INTEGER CHECK (live = 1),
  reserved_ms      INTEGER NOT NULL,
  due_ms           INTEGER NOT NULL,
  created_ms       INTEGER NOT NULL,
  updated_ms       INTEGER NOT NULL,
  UNIQUE (activity_id, sku_id, user_id, live)
);
CREATE INDEX orders_due ON orders (due_ms, reservation_id) WHERE state = 'CREATED';
CREATE INDEX orders_unacked ON orders (reservation_id) WHERE acked_version < version;
CREATE TABLE order_history (
  reservation_id INTEGER NOT NULL,
  version        INTEGER NOT NULL,
  from_state     TEXT    NOT NULL,
  to_state       TEXT    NOT NULL,
  why            TEXT    NOT NULL,
  at_ms          INTEGER NOT NULL,
  PRIMARY KEY (reservation_id, version)
) WITHOUT ROWID;
CREATE TABLE stock (
  activity_id INTEGER NOT NULL,
  sku_id      INTEGER NOT NULL,
  total       INTEGER NOT NULL,
  taken       INTEGER NOT NULL DEFAULT 0 CHECK (taken >= 0),
  PRIMARY KEY (activity_id, sku_id)
) WITHOUT ROWID;
CREATE TABLE payments (
  payment_id     TEXT PRIMARY KEY,
  reservation_id INTEGER NOT NULL,
  amount_minor   INTEGER NOT NULL,
  currency       TEXT    NOT NULL,
  result         TEXT    NOT NULL,
  paid_ms        INTEGER NOT NULL,
  recorded_ms    INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX payments_of ON payments (reservation_id);
CREATE TABLE refunds (
  payment_id     TEXT PRIMARY KEY,
  reservation_id INTEGER NOT NULL,
  amount_minor   INTEGER NOT NULL,
  currency       TEXT    NOT NULL,
  why            TEXT    NOT NULL,
  state          TEXT    NOT NULL CHECK (state IN ('DUE', 'VOID')),
  updated_ms     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX refunds_of ON refunds (reservation_id);
CREATE TABLE dead_letters (
  reservation_id INTEGER PRIMARY KEY,
  why            TEXT    NOT NULL,
  attempts       INTEGER NOT NULL,
  at_ms          INTEGER NOT NULL
);
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('last_at_ms', 0);
";

/// What version 2 adds: restocks by the operator's names, so that a ledger that lost one gets it again, once.
const VERSION_2: &str = "
CREATE TABLE restocks (
  number      INTEGER PRIMARY KEY,
  activity_id INTEGER NOT NULL,
  sku_id      INTEGER NOT NULL,
  request_id  TEXT    NOT NULL,
  units       INTEGER NOT NULL,
  at_ms       INTEGER NOT NULL,
  UNIQUE (activity_id, sku_id, request_id)
);
";

/// Why `orders.sqlite` cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// SQLite refused.
    Sqlite(PathBuf, rusqlite::Error),
    /// The file could not be made.
    File(PathBuf, std::io::Error),
    /// Written by a newer weir: its version.
    Newer(PathBuf, i64),
    /// Not an SQLite file, or one with tables that are not ours.
    Foreign(PathBuf),
    /// SQLite found its own structures broken.
    Damaged(PathBuf, rusqlite::Error),
    /// No space left.
    DiskFull(PathBuf),
    /// There is no file to read.
    Missing(PathBuf),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path, error) => write!(
                f,
                "order store {}: SQLite says: {error}. Check that the directory is writable, the disk has space and no \
                 other program holds the file",
                path.display()
            ),
            Self::File(path, error) => {
                write!(
                    f,
                    "order store {}: cannot be opened or made: {error}. Make the directory and the file writable for the user that runs weir, or choose another directory",
                    path.display()
                )
            }
            Self::Newer(path, version) => write!(
                f,
                "order store {}: schema version {version} was written by a newer weir; this one knows versions up to \
                 {SCHEMA_VERSION}. Run the newer weir that wrote it",
                path.display()
            ),
            Self::Foreign(path) => write!(
                f,
                "{} is not an order store that weir wrote. Move it away, or choose another directory",
                path.display()
            ),
            Self::Damaged(path, error) => write!(
                f,
                "order store {} is damaged: {error}. Copy the whole directory first, then restore orders.sqlite from a \
                 backup; `weir reconcile` makes missing orders again from the ledger",
                path.display()
            ),
            Self::Missing(path) => write!(
                f,
                "there is no order store at {}. Check the directory; `weir serve` makes an order store at its first start",
                path.display()
            ),
            Self::DiskFull(path) => write!(
                f,
                "no space left to write {}. Free some space, then start again; what was acknowledged is safe",
                path.display()
            ),
        }
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    /// Sorts a failure of SQLite on `path`.
    pub fn of_sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::Foreign(path),
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged(path, error),
            Some(ErrorCode::DiskFull) => Self::DiskFull(path),
            _ => Self::Sqlite(path, error),
        }
    }
}

/// Opens the order store for writing; makes it (mode 0600: it holds user ids) when it does not exist.
///
/// # Errors
/// See [`OpenError`]; nothing is changed in a file that is refused.
pub fn open(path: &Path) -> Result<Connection, OpenError> {
    let sqlite = |error| OpenError::of_sqlite(path, error);
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| OpenError::File(path.to_owned(), error))?;
    let mut connection = Connection::open(path).map_err(sqlite)?;
    check_version(&connection, path)?;
    // A close after a failed sync must not sync again (field bug R55); a healthy close checkpoints by itself.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(sqlite)?;
    // WAL: readers (export, sqlite3) do not stop the worker. FULL: a commit that was answered survives power loss.
    // Our own checkpoints: SQLite's automatic ones swallow the error of a failed sync.
    connection
        .execute_batch(
            "PRAGMA busy_timeout = 2000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
             PRAGMA wal_autocheckpoint = 0;",
        )
        .map_err(sqlite)?;
    connection.set_prepared_statement_cache_capacity(64);
    let transaction = connection.transaction().map_err(sqlite)?;
    let version = version_of(&transaction).map_err(sqlite)?;
    if version == 0 {
        transaction.execute_batch(SCHEMA).map_err(sqlite)?;
    }
    if version < SCHEMA_VERSION {
        transaction.execute_batch(VERSION_2).map_err(sqlite)?;
        transaction
            .pragma_update(None, "user_version", SCHEMA_VERSION)
            .map_err(sqlite)?;
    }
    transaction.commit().map_err(sqlite)?;
    Ok(connection)
}

/// Opens the order store for reading only: for export and reconcile.
///
/// # Errors
/// See [`OpenError`].
pub fn open_to_read(path: &Path) -> Result<Connection, OpenError> {
    if !path.exists() {
        return Err(OpenError::Missing(path.to_owned()));
    }
    let sqlite = |error| OpenError::of_sqlite(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    check_version(&connection, path)?;
    if version_of(&connection).map_err(sqlite)? == 0 {
        return Err(OpenError::Foreign(path.to_owned()));
    }
    Ok(connection)
}

fn version_of(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn check_version(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |error| OpenError::of_sqlite(path, error);
    let version = version_of(connection).map_err(sqlite)?;
    if version > SCHEMA_VERSION {
        return Err(OpenError::Newer(path.to_owned(), version));
    }
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
        .map_err(sqlite)?;
    if version == 0 && tables > 0 {
        return Err(OpenError::Foreign(path.to_owned()));
    }
    Ok(())
}
