//! The order store: each batch of the worker is one SQLite transaction.
//!
//! A handler on mail only, on a thread of its own: it may block on the disk. An answer leaves after the commit.
//! A failed write, sync or commit has an unknown result and is never tried again: the store refuses everything until
//! the program is restarted and reads what is there (field bugs R43, R55). A statement that fails alone is undone
//! alone, so that one poisoned command does not stop the others.

use super::schema::{self, OpenError};
use super::step::Step;
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params_from_iter};
use std::path::Path;
use weir_core::mail::{Addr, Mail};
use weir_core::order::contract::{OrderBatch, OrderDone, OrderFault, OrderResult};
use weir_core::port::{Effects, Event, Handler};
use weir_core::redis::step::Maker;
use weir_core::time::{Mono, Now};
use weir_proto::ids::{ReservationId, SkuKey, UserId};

/// After the order to stop, the store ends once its box stayed empty for so long: the worker may have batches to come.
const DRAIN_QUIET_MS: u64 = 1_000;

/// Commands after which the WAL is moved into the database: each dirties a few pages of 4 KiB, so about 16 MiB of WAL.
const CHECKPOINT_AFTER: usize = 2_048;

/// The SQL home of orders.
#[derive(Debug)]
pub struct OrderStore {
    connection: Connection,
    fault: Option<OrderFault>,
    /// The newest committed batch's results, for a batch that is sent again because its answer was lost.
    last: Option<OrderDone>,
    /// Set by the order to stop; moved on by mail.
    stop_at: Option<Mono>,
    /// Commands committed since the last checkpoint.
    unchecked: usize,
    /// Batches that were run again with a savepoint per command.
    pub reruns: u64,
}

/// See [`OrderStore::last_order`].
#[derive(Debug)]
pub struct LastOrder {
    /// Its reservation.
    pub reservation: ReservationId,
    /// Whose.
    pub user: UserId,
    /// The client's key.
    pub request_id: String,
    /// It is CREATED or PAID.
    pub is_live: bool,
}

/// Why a run of a batch ended without a commit.
enum Trouble {
    /// The store as a whole.
    Store(OrderFault),
    /// One statement; the transaction was rolled back.
    Statement,
}

impl OrderStore {
    /// Opens or makes the file.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            connection: schema::open(path)?,
            fault: None,
            last: None,
            stop_at: None,
            unchecked: 0,
            reruns: 0,
        })
    }

    /// The number of the ledger that this store belongs to; `None`: of none yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn ledger_id(&self) -> Result<Option<i64>, OpenError> {
        let sql = "SELECT value FROM meta WHERE key = 'ledger_id'";
        let id = self.connection.query_row(sql, [], |row| row.get(0));
        id.optional().map_err(|error| self.failed(error))
    }

    /// True when an order was ever made here.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn has_rows(&self) -> Result<bool, OpenError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM orders)";
        let found = self.connection.query_row(sql, [], |row| row.get(0));
        found.map_err(|error| self.failed(error))
    }

    /// Who makes orders in this file from now on: its number, made once, and a run that is larger than any before.
    ///
    /// A copy of the file has the same number; chance keeps its runs and ours apart.
    /// # Errors
    /// The file cannot be read or written, or the system gives no random bytes.
    pub fn begin_run(&self) -> Result<Maker, OpenError> {
        let path = self.connection.path().unwrap_or_default().to_owned();
        let random = || {
            let bytes = crate::keys::random::<8>();
            bytes
                .map(u64::from_le_bytes)
                .map_err(|error| OpenError::File(path.clone().into(), error))
        };
        let one = |sql: &str, values: &[i64]| {
            let done = self
                .connection
                .query_row(sql, params_from_iter(values), |row| row.get(0));
            done.map_err(|error| self.failed(error))
        };
        let fresh = (random()? >> 2) as i64; // 62 bits fit
        let store: i64 = one(
            "INSERT INTO meta VALUES ('store_id', ?1) ON CONFLICT (key) DO UPDATE SET value = value RETURNING value",
            &[fresh],
        )?;
        let count: i64 = one(
            "INSERT INTO meta VALUES ('runs', 1) ON CONFLICT (key) DO UPDATE SET value = value + 1 RETURNING value",
            &[],
        )?;
        let chance = random()? >> 32;
        Ok(Maker {
            store: store.cast_unsigned(),
            run: (count.cast_unsigned() << 32) | chance, // a process does not start 2^31 times
        })
    }

    /// Makes durable that this store belongs to the ledger of that number.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn belong_to(&self, ledger_id: i64) -> Result<(), OpenError> {
        let sql = "INSERT OR REPLACE INTO meta VALUES ('ledger_id', ?1)";
        let done = self.connection.execute(sql, [ledger_id]);
        done.map(drop).map_err(|error| self.failed(error))
    }

    /// The live order of this SKU with the highest reservation, or one that has ended; `None`: it has none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn last_order(&self, sku: SkuKey) -> Result<Option<LastOrder>, OpenError> {
        let sql = "SELECT reservation_id, user_id, request_id, live FROM orders WHERE activity_id = ?1 AND sku_id = ?2 \
                   ORDER BY live IS NULL, reservation_id DESC LIMIT 1";
        let key = [sku.activity.0 as i64, sku.sku.0 as i64]; // ids are below 2^63
        let found = self.connection.query_row(sql, key, |row| {
            Ok(LastOrder {
                reservation: ReservationId(row.get::<_, i64>(0)? as u64),
                user: UserId(row.get::<_, i64>(1)? as u64),
                request_id: row.get(2)?,
                is_live: row.get::<_, Option<u8>>(3)?.is_some(),
            })
        });
        found.optional().map_err(|error| self.failed(error))
    }

    /// True when units were added to a SKU.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn was_restocked(&self, sku: SkuKey) -> Result<bool, OpenError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM restocks WHERE activity_id = ?1 AND sku_id = ?2)";
        let key = [sku.activity.0 as i64, sku.sku.0 as i64]; // ids are below 2^63
        let found = self.connection.query_row(sql, key, |row| row.get(0));
        found.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: rusqlite::Error) -> OpenError {
        let path = self.connection.path().unwrap_or_default();
        OpenError::of_sqlite(Path::new(path), error)
    }

    /// Why nothing more is accepted until a restart; `None` while the store works.
    pub fn fault(&self) -> Option<OrderFault> {
        self.fault
    }

    /// Runs one batch as one transaction; blocks until it is synced.
    pub fn execute(&mut self, batch: &OrderBatch) -> OrderDone {
        let seq = batch.seq;
        if let Some(last) = self.last.as_ref().filter(|last| last.seq == seq) {
            return last.clone();
        }
        let results = match self.fault {
            Some(fault) => Err(fault),
            None => self.run(batch),
        };
        let done = OrderDone { seq, results };
        match &done.results {
            Ok(_) => {
                self.last = Some(done.clone());
                self.unchecked += batch.commands.len();
            }
            Err(OrderFault::Busy) => {}
            Err(fault) => self.fault = Some(*fault),
        }
        done
    }

    /// From here on commits sync nothing: a planted fault (design §12.16), for crash tests. Not in optimised builds.
    ///
    /// # Errors
    /// When SQLite refuses.
    #[cfg(any(debug_assertions, weir_planted))]
    #[doc(hidden)]
    pub fn plant_synchronous_off(&self) -> rusqlite::Result<()> {
        self.connection.pragma_update(None, "synchronous", "OFF")
    }

    /// Lets the file grow by no page more, as a full disk would.
    #[doc(hidden)]
    pub fn limit_pages_for_tests(&mut self) {
        let limited = self.connection.pragma_update(None, "max_page_count", 1_i64);
        debug_assert!(
            limited.is_ok(),
            "SQLite clamps the limit to the file's size"
        );
    }

    /// Moves the WAL's pages into the database, so that the WAL starts again at its head. A failure is final: a second
    /// sync would not tell what the first one lost (field bug R55). A reader in the way only puts it off.
    fn checkpoint(&mut self, mode: &str) {
        self.unchecked = 0;
        if self.fault.is_some() {
            return;
        }
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        let done = self.connection.query_row(&sql, [], |_| Ok(()));
        if let Err(Trouble::Store(fault @ (OrderFault::DiskFull | OrderFault::Io))) =
            done.map_err(trouble)
        {
            self.fault = Some(fault);
        }
    }

    fn run(&mut self, batch: &OrderBatch) -> Result<Vec<OrderResult>, OrderFault> {
        let outcome = match self.transact(batch, false) {
            Err(Trouble::Statement) => {
                // Rare and slow: which command is it? The others are done.
                self.reruns += 1;
                self.transact(batch, true)
            }
            outcome => outcome,
        };
        outcome.map_err(|trouble| match trouble {
            Trouble::Store(fault) => fault,
            Trouble::Statement => OrderFault::Io,
        })
    }

    fn transact(
        &mut self,
        batch: &OrderBatch,
        savepoints: bool,
    ) -> Result<Vec<OrderResult>, Trouble> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(trouble)?;
        let step = Step {
            connection: &transaction,
            at: batch.at,
        };
        let mut results = Vec::with_capacity(batch.commands.len());
        for command in &batch.commands {
            if !savepoints {
                results.push(step.run(command).map_err(trouble)?);
                continue;
            }
            transaction
                .execute_batch("SAVEPOINT command")
                .map_err(trouble)?;
            let result = match step.run(command).map_err(trouble) {
                Ok(result) => result,
                Err(Trouble::Statement) => {
                    transaction
                        .execute_batch("ROLLBACK TO command")
                        .map_err(trouble)?;
                    OrderResult::Broken
                }
                Err(trouble) => return Err(trouble),
            };
            transaction
                .execute_batch("RELEASE command")
                .map_err(trouble)?;
            results.push(result);
        }
        step.note_time().map_err(trouble)?;
        transaction.commit().map_err(|error| {
            // A busy commit is known not to have happened; of any other failure nothing is known.
            match trouble(error) {
                Trouble::Statement => Trouble::Store(OrderFault::Io),
                trouble => trouble,
            }
        })?;
        Ok(results)
    }
}

impl Drop for OrderStore {
    /// A healthy store leaves one file: whoever copies or restores it need not think of a WAL beside it.
    fn drop(&mut self) {
        self.checkpoint("TRUNCATE");
    }
}

fn trouble(error: rusqlite::Error) -> Trouble {
    let rusqlite::Error::SqliteFailure(failure, _) = &error else {
        return Trouble::Statement;
    };
    match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Trouble::Store(OrderFault::Busy),
        ErrorCode::DiskFull => Trouble::Store(OrderFault::DiskFull),
        ErrorCode::SystemIoFailure
        | ErrorCode::DatabaseCorrupt
        | ErrorCode::NotADatabase
        | ErrorCode::ReadOnly
        | ErrorCode::CannotOpen
        | ErrorCode::PermissionDenied
        | ErrorCode::OutOfMemory
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::NoLargeFileSupport => Trouble::Store(OrderFault::Io),
        _ => Trouble::Statement,
    }
}

impl Handler for OrderStore {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(Mail::Orders(batch)) => {
                let done = self.execute(&batch);
                fx.post(Addr::Worker, Mail::OrdersDone(Box::new(done)));
                if self.stop_at.is_some() {
                    self.stop_at = Some(now.mono.plus_ms(DRAIN_QUIET_MS));
                }
            }
            Event::Drain => self.stop_at = Some(now.mono.plus_ms(DRAIN_QUIET_MS)),
            Event::Tick => {
                // In a turn of its own: the answers of the last batch have left.
                if self.unchecked >= CHECKPOINT_AFTER {
                    self.checkpoint("PASSIVE");
                }
                if self.stop_at.is_some_and(|at| at <= now.mono) {
                    fx.stop();
                }
            }
            _ => {}
        }
    }

    fn on_flush(&mut self, _now: Now, _fx: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        if self.unchecked >= CHECKPOINT_AFTER {
            return Some(Mono(0));
        }
        self.stop_at
    }
}
