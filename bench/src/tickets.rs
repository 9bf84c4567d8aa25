//! Tickets for the bench, minted ahead of the run so that signing does not disturb it.
//!
//! Ticket `n` is user `first_user + n`'s, with a nonce of its own. Those beyond the store are minted when they are
//! needed, and counted. Used by the load only; keys and tickets never reach a log.

use crate::limits::TICKET_STORE_BYTES_MAX;
use crate::mix::TicketForm;
use weir_core::rng::Rng;
use weir_proto::ids::{ActivityId, PathId, SkuId, UserId};
use weir_proto::limits::ID_MAX;
use weir_proto::ticket::{
    Claims, DeviceClaim, MintError, NonceClaim, TicketKey, mint_compact, mint_jws,
};

/// What tickets are made of.
#[derive(Clone, Debug)]
pub struct TicketMint {
    /// The signing key.
    pub key: TicketKey,
    /// Their form.
    pub form: TicketForm,
    /// The sale.
    pub activity: ActivityId,
    /// The SKU.
    pub sku: SkuId,
    /// The activity's version.
    pub activity_version: u64,
    /// The activity's path.
    pub path_id: PathId,
    /// First wall millisecond of validity.
    pub not_before_ms: u64,
    /// First wall millisecond after it, at most an hour later.
    pub expires_at_ms: u64,
    /// The user of ticket 0; 1 or more. No two runs against one sale should share users.
    pub first_user: u64,
    /// Makes nonces; another one for each run.
    pub nonce_seed: u64,
}

impl TicketMint {
    /// The user of ticket `n`.
    pub fn user(&self, n: u64) -> UserId {
        UserId(1 + (self.first_user.wrapping_add(n).wrapping_sub(1)) % ID_MAX)
    }

    /// Appends ticket `n`.
    ///
    /// # Errors
    /// The sale's description does not fit a ticket.
    pub fn mint(&self, n: u64, out: &mut Vec<u8>) -> Result<(), MintError> {
        let mut rng = Rng::new(self.nonce_seed ^ n.wrapping_mul(0xA24B_AED4_963E_E407));
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
        nonce[8..].copy_from_slice(&rng.next_u64().to_be_bytes());
        let claims = Claims {
            activity: self.activity,
            sku: self.sku,
            user: self.user(n),
            activity_version: self.activity_version,
            path_id: self.path_id,
            nonce: NonceClaim::Raw(nonce),
            device: DeviceClaim::Unbound,
            not_before_ms: self.not_before_ms,
            expires_at_ms: self.expires_at_ms,
        };
        match self.form {
            TicketForm::Compact => mint_compact(&claims, &self.key, out),
            TicketForm::Jws => mint_jws(&claims, &self.key, out),
        }
    }
}

/// The store of tickets.
pub(crate) struct Tickets {
    mint: TicketMint,
    bytes: Vec<u8>,
    /// Where each ticket ends.
    ends: Vec<u32>,
    scratch: Vec<u8>,
    minted_late: u64,
}

impl Tickets {
    /// Mints the first `wanted` tickets, as far as the store takes them.
    ///
    /// # Errors
    /// The sale's description does not fit a ticket.
    pub(crate) fn mint(mint: TicketMint, wanted: u64) -> Result<Self, MintError> {
        let mut tickets = Self {
            mint,
            bytes: Vec::new(),
            ends: Vec::new(),
            scratch: Vec::new(),
            minted_late: 0,
        };
        for n in 0..wanted.max(1) {
            tickets.mint.mint(n, &mut tickets.bytes)?;
            tickets.ends.push(tickets.bytes.len() as u32);
            if tickets.bytes.len() >= TICKET_STORE_BYTES_MAX {
                break;
            }
        }
        Ok(tickets)
    }

    /// Ticket `n`.
    pub(crate) fn get(&mut self, n: u64) -> &[u8] {
        let index = n as usize;
        if index < self.ends.len() {
            let start = match index {
                0 => 0,
                _ => self.ends[index - 1] as usize,
            };
            return &self.bytes[start..self.ends[index] as usize];
        }
        self.minted_late += 1;
        self.scratch.clear();
        self.mint
            .mint(n, &mut self.scratch)
            .expect("ticket 0 fitted, and only user and nonce differ");
        &self.scratch
    }

    pub(crate) fn about(&self) -> &TicketMint {
        &self.mint
    }

    /// Tickets in the store.
    #[cfg(test)]
    pub(crate) fn stored(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Tickets that were minted while the run went on.
    pub(crate) fn minted_late(&self) -> u64 {
        self.minted_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_proto::ticket::{KeyRing, authenticate, path_id};

    #[test]
    fn stored_and_late_tickets_are_valid_and_each_its_own() {
        for form in [TicketForm::Compact, TicketForm::Jws] {
            let key = TicketKey::new(b"k1", &[7; 32]).unwrap();
            let ring = KeyRing::new(key.clone(), None).unwrap();
            let mint = TicketMint {
                key,
                form,
                activity: ActivityId(9001),
                sku: SkuId(1),
                activity_version: 3,
                path_id: path_id(b"p9f3a1").unwrap(),
                not_before_ms: 1_000,
                expires_at_ms: 2_000,
                first_user: 500,
                nonce_seed: 9,
            };
            let mut tickets = Tickets::mint(mint, 3).unwrap();
            let claims: Vec<Claims> = [0, 1, 2, 3]
                .map(|n| authenticate(tickets.get(n), &ring).unwrap())
                .into();
            for (n, claims) in claims.iter().enumerate() {
                assert_eq!(claims.user, UserId(500 + n as u64));
                assert_eq!(claims.path_id.as_bytes(), b"p9f3a1");
            }
            assert_ne!(claims[2].nonce, claims[3].nonce);
            assert_eq!((tickets.stored(), tickets.minted_late()), (3, 1));
        }
    }
}
