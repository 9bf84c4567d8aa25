//! What reconcile needs to know of the ledger: books and reservations, read from its journal, or from Redis by
//! `serve::redis`.

use super::report::Kind;
use crate::store::{StoreError, read_image};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use weir_core::ask::{Books, ReservationState};
use weir_core::ledger::{Ledger, LedgerConfig, RecoverError, recover};
use weir_core::order::contract::OrderMessage;
use weir_core::sale::Sale;
use weir_proto::ids::{ReservationId, SkuKey};

/// The ledger's side of the comparison.
#[derive(Clone, Debug, Default)]
pub struct LedgerFacts {
    /// The books of each SKU ever put on sale.
    pub books: BTreeMap<SkuKey, Books>,
    /// Every reservation that is remembered: its order message and where it stands.
    pub reservations: BTreeMap<ReservationId, (OrderMessage, ReservationState)>,
    /// What only a ledger in Redis has.
    pub redis: Option<RedisSide>,
}

/// What a look at Redis tells beside books and reservations.
#[derive(Clone, Debug, Default)]
pub struct RedisSide {
    /// The SKUs that were looked at; orders of others are not compared.
    pub skus: BTreeSet<SkuKey>,
    /// Those that Redis does not have.
    pub absent: BTreeSet<SkuKey>,
    /// How far books and reservations of a SKU may be apart because it sold while it was read.
    pub slack: BTreeMap<SkuKey, Slack>,
    /// What contradicts itself inside Redis.
    pub odd: Vec<Odd>,
    /// The number of the order store that makes the orders of a SKU, where one has begun.
    pub makers: BTreeMap<SkuKey, u64>,
    /// Messages in the outbox streams.
    pub in_stream: u64,
    /// What an operator should know.
    pub notes: Vec<String>,
}

/// Units, at most; `u64::MAX`: nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slack {
    /// Of the units held.
    pub held: u64,
    /// Of the units sold.
    pub sold: u64,
}

impl Slack {
    /// Of a SKU that was looked at once while it sold.
    pub const UNKNOWN: Self = Self {
        held: u64::MAX,
        sold: u64::MAX,
    };
}

/// A contradiction inside Redis.
#[derive(Clone, Debug)]
pub struct Odd {
    /// Its kind.
    pub kind: Kind,
    /// The SKU.
    pub sku: SkuKey,
    /// The reservation, when it is about one.
    pub reservation: Option<ReservationId>,
    /// In words.
    pub what: String,
}

/// Why the ledger cannot be read.
#[derive(Debug)]
pub enum FactsError {
    /// Its file.
    Store(StoreError),
    /// What is in it.
    Recover(RecoverError),
}

impl fmt::Display for FactsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Recover(error) => write!(f, "the ledger's journal cannot be replayed: {error}"),
        }
    }
}

impl std::error::Error for FactsError {}

impl LedgerFacts {
    /// Reads the journal in `dir` without changing it; no server may run on it.
    ///
    /// # Errors
    /// See [`FactsError`].
    pub fn read(dir: &Path, sale: &Sale) -> Result<Self, FactsError> {
        let image = read_image(dir).map_err(FactsError::Store)?;
        // The seed keys the index tables in memory only; any number reads the same facts.
        let recovered =
            recover(LedgerConfig::of_sale(sale, 0), &image).map_err(FactsError::Recover)?;
        Ok(Self::of(&recovered.ledger))
    }

    /// Of a ledger as `weir_core::ledger::recover` gives it back from the journal.
    pub fn of(ledger: &Ledger) -> Self {
        Self {
            books: ledger
                .skus()
                .map(|state| (state.sku, state.books))
                .collect(),
            reservations: ledger
                .reservations()
                .map(|found| (found.message.reservation, (found.message, found.state)))
                .collect(),
            redis: None,
        }
    }
}
