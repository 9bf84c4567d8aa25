//! What the ledger remembers: reservations, found by number, request, user and nonce; and tombstones.
//!
//! Called by the ledger only. Rows lie in vectors sized at start; the index tables hold row numbers under keyed hashes,
//! so nothing allocates while serving and nobody can aim at a bucket. Invariants: reservation `n` is row `n - 1`; a
//! request and a nonce have at most one row; a user's entry names the live reservation, or else the newest.

use crate::ask::{Held, ReservationState};
use crate::order::contract::Money;
use crate::time::WallMs;
use alloc::vec::Vec;
use core::hash::Hasher;
use hashbrown::HashTable;
use siphasher::sip::SipHasher13;
use weir_proto::ids::{Nonce, RequestId, ReservationId, UserId};

/// Index of a SKU in the ledger's vector; means nothing outside one process.
pub(super) type SkuIndex = u16;

/// A request by its full name (design §12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestName {
    pub sku: SkuIndex,
    pub user: UserId,
    pub request_id: RequestId,
}

/// One reservation, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub id: ReservationId,
    pub name: RequestName,
    pub nonce: Nonce,
    pub nonce_until: WallMs,
    pub quantity: u32,
    pub unit_price: Money,
    pub state: ReservationState,
    /// When it was granted.
    pub granted_at: WallMs,
    /// When it came into `state`.
    pub moved_at: WallMs,
}

impl Record {
    pub fn held(&self) -> Held {
        Held {
            reservation: self.id,
            state: self.state,
            quantity: self.quantity,
        }
    }
}

/// Keyed hashes of the index tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashKey(pub u64, pub u64);

impl HashKey {
    fn of(self, kind: u8, sku: SkuIndex, user: u64, text: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        hasher.write_u64(u64::from(kind) << 16 | u64::from(sku));
        hasher.write_u64(user);
        hasher.write(text);
        hasher.finish()
    }

    fn request(self, name: &RequestName) -> u64 {
        self.of(1, name.sku, name.user.0, name.request_id.as_bytes())
    }

    fn user(self, sku: SkuIndex, user: UserId) -> u64 {
        self.of(2, sku, user.0, &[])
    }

    fn nonce(self, sku: SkuIndex, nonce: &Nonce) -> u64 {
        self.of(3, sku, 0, nonce.as_bytes())
    }
}

/// All reservations.
#[derive(Debug)]
pub(super) struct Records {
    rows: Vec<Record>,
    by_request: HashTable<u32>,
    by_user: HashTable<u32>,
    by_nonce: HashTable<u32>,
    key: HashKey,
}

impl Records {
    pub fn with_capacity(records_max: usize, key: HashKey) -> Self {
        Self {
            rows: Vec::with_capacity(records_max),
            by_request: HashTable::with_capacity(records_max),
            by_user: HashTable::with_capacity(records_max),
            by_nonce: HashTable::with_capacity(records_max),
            key,
        }
    }

    /// Makes room for `more` reservations.
    pub fn reserve(&mut self, more: usize) {
        self.rows.reserve(more);
        let (rows, key) = (&self.rows, self.key);
        self.by_request
            .reserve(more, |&row| key.request(&rows[row as usize].name));
        self.by_nonce.reserve(more, |&row| {
            key.nonce(rows[row as usize].name.sku, &rows[row as usize].nonce)
        });
        self.by_user.reserve(more, |&row| {
            key.user(rows[row as usize].name.sku, rows[row as usize].name.user)
        });
    }

    pub fn rows(&self) -> &[Record] {
        &self.rows
    }

    pub fn next_id(&self) -> ReservationId {
        ReservationId(self.rows.len() as u64 + 1)
    }

    fn row_of(id: ReservationId) -> Option<usize> {
        usize::try_from(id.0.checked_sub(1)?).ok()
    }

    pub fn get(&self, id: ReservationId) -> Option<&Record> {
        self.rows.get(Self::row_of(id)?)
    }

    pub fn request(&self, name: &RequestName) -> Option<&Record> {
        let row = self.by_request.find(self.key.request(name), |&row| {
            self.rows[row as usize].name == *name
        })?;
        Some(&self.rows[*row as usize])
    }

    /// The user's live reservation, or else the newest one.
    pub fn user(&self, sku: SkuIndex, user: UserId) -> Option<&Record> {
        let row = self.by_user.find(self.key.user(sku, user), |&row| {
            let name = &self.rows[row as usize].name;
            name.sku == sku && name.user == user
        })?;
        Some(&self.rows[*row as usize])
    }

    pub fn nonce(&self, sku: SkuIndex, nonce: &Nonce) -> Option<&Record> {
        let row = self.by_nonce.find(self.key.nonce(sku, nonce), |&row| {
            let record = &self.rows[row as usize];
            record.name.sku == sku && record.nonce == *nonce
        })?;
        Some(&self.rows[*row as usize])
    }

    /// Adds a reservation; its id is [`Self::next_id`], its request and nonce are new.
    pub fn push(&mut self, record: Record) {
        debug_assert_eq!(
            record.id,
            self.next_id(),
            "reservations are numbered densely"
        );
        let row = u32::try_from(self.rows.len()).expect("RESERVATIONS_MAX keeps rows below 2^32");
        self.rows.push(record);
        let (rows, key) = (&self.rows, self.key);
        self.by_request
            .insert_unique(key.request(&record.name), row, |&row| {
                key.request(&rows[row as usize].name)
            });
        self.by_nonce
            .insert_unique(key.nonce(record.name.sku, &record.nonce), row, |&row| {
                let record = &rows[row as usize];
                key.nonce(record.name.sku, &record.nonce)
            });
        self.bind_user(row);
    }

    /// Moves a reservation to `state`; one that comes to life again becomes its user's.
    pub fn set_state(&mut self, id: ReservationId, state: ReservationState, at: WallMs) {
        let index = Self::row_of(id).expect("the caller found this reservation");
        let record = &mut self.rows[index];
        record.state = state;
        record.moved_at = at;
        if state.is_live() {
            self.bind_user(index as u32);
        }
    }

    fn bind_user(&mut self, row: u32) {
        let (rows, key) = (&self.rows, self.key);
        let name = rows[row as usize].name;
        let hash = key.user(name.sku, name.user);
        let bound = self.by_user.find_mut(hash, |&other| {
            let other = &rows[other as usize].name;
            other.sku == name.sku && other.user == name.user
        });
        match bound {
            Some(bound) => {
                // A live one stays; restoring pushes rows in order of their numbers, so else the newest wins.
                if rows[row as usize].state.is_live() || !rows[*bound as usize].state.is_live() {
                    *bound = row;
                }
            }
            None => {
                self.by_user.insert_unique(hash, row, |&row| {
                    let name = &rows[row as usize].name;
                    key.user(name.sku, name.user)
                });
            }
        }
    }
}

/// Requests that a status query closed the door for, in two generations: each lives for one to two turns.
#[derive(Debug)]
pub(super) struct Tombstones {
    old: Generation,
    young: Generation,
    key: HashKey,
    generation_max: usize,
}

#[derive(Debug)]
struct Generation {
    rows: Vec<RequestName>,
    index: HashTable<u32>,
}

impl Generation {
    fn contains(&self, hash: u64, name: &RequestName) -> bool {
        let found = self
            .index
            .find(hash, |&row| self.rows[row as usize] == *name);
        found.is_some()
    }
}

impl Tombstones {
    pub fn new(generation_max: usize, key: HashKey) -> Self {
        let empty = || Generation {
            rows: Vec::with_capacity(generation_max),
            index: HashTable::with_capacity(generation_max),
        };
        Self {
            old: empty(),
            young: empty(),
            key,
            generation_max,
        }
    }

    pub fn has_room(&self) -> bool {
        self.young.rows.len() < self.generation_max
    }

    pub fn contains(&self, name: &RequestName) -> bool {
        let hash = self.key.request(name);
        self.young.contains(hash, name) || self.old.contains(hash, name)
    }

    /// True when it will live for at least one whole turn.
    pub fn is_young(&self, name: &RequestName) -> bool {
        self.young.contains(self.key.request(name), name)
    }

    pub fn insert(&mut self, name: RequestName) {
        let row = self.young.rows.len() as u32;
        self.young.rows.push(name);
        let (rows, key) = (&self.young.rows, self.key);
        self.young
            .index
            .insert_unique(key.request(&name), row, |&row| {
                key.request(&rows[row as usize])
            });
    }

    /// Forgets the old generation; the young one becomes old.
    pub fn turn(&mut self) {
        core::mem::swap(&mut self.old, &mut self.young);
        self.young.rows.clear();
        self.young.index.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.old.rows.is_empty() && self.young.rows.is_empty()
    }

    /// Old and young, each in the order they came.
    pub fn generations(&self) -> [&[RequestName]; 2] {
        [&self.old.rows, &self.young.rows]
    }
}
