//! The scripts of `lua/`: their texts, and the names by which Redis runs what it has loaded.
//!
//! Called by [`super::step`] and by links that load them (SCRIPT LOAD) before their first step. The texts are part of the
//! program: two programs of one version run the same scripts. Codes are those of `lua/README.md`.

use crate::ask::LedgerOp;
use sha1::{Digest, Sha1};

/// One script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Script {
    /// Holds units for a user.
    Reserve,
    /// What became of a request.
    Lookup,
    /// The order row exists.
    Confirm,
    /// The order is paid.
    Settle,
    /// Gives units back.
    Release,
    /// A payment came after the release.
    PaidLate,
    /// Puts a SKU on sale.
    Open,
    /// Ends a sale.
    Close,
    /// Sets the admission mode.
    SetMode,
    /// Adds units.
    Restock,
    /// Makes what gathered while sold out sellable.
    Reopen,
    /// Lets no new reservation in.
    Freeze,
    /// Ends a freeze, with a larger epoch.
    Thaw,
    /// Lets no new reservation in after a failover.
    Fence,
    /// The books are right here from now on; ends a fence.
    Rehome,
    /// Puts in what a failover may have lost.
    Offer,
    /// Puts in a stock that a failover lost.
    Restore,
    /// A write that says nothing new, for WAIT behind it.
    Mark,
    /// State and a page of the winners.
    Snapshot,
    /// A page of the reservations without an order.
    Outbox,
    /// Messages of the outbox stream, for the maker of orders.
    Take,
    /// Makes the bucket of a budget, or changes its rate.
    LeasePolicy,
    /// A batch of admission tokens.
    LeaseDraw,
    /// Unused tokens come back.
    LeaseReturn,
    /// A token bucket of one key.
    Bucket,
    /// A sliding window of one key.
    WindowLog,
}

/// Hexadecimal digits of a SHA-1.
pub const SHA1_HEX_BYTES: usize = 40;

impl Script {
    /// Every script.
    pub const ALL: [Self; 26] = [
        Self::Reserve,
        Self::Lookup,
        Self::Confirm,
        Self::Settle,
        Self::Release,
        Self::PaidLate,
        Self::Open,
        Self::Close,
        Self::SetMode,
        Self::Restock,
        Self::Reopen,
        Self::Freeze,
        Self::Thaw,
        Self::Fence,
        Self::Rehome,
        Self::Offer,
        Self::Restore,
        Self::Mark,
        Self::Snapshot,
        Self::Outbox,
        Self::Take,
        Self::LeasePolicy,
        Self::LeaseDraw,
        Self::LeaseReturn,
        Self::Bucket,
        Self::WindowLog,
    ];

    /// The script of a step.
    pub const fn of(op: &LedgerOp) -> Self {
        match op {
            LedgerOp::Reserve(_) => Self::Reserve,
            LedgerOp::Lookup(_) => Self::Lookup,
            LedgerOp::Confirm(_) => Self::Confirm,
            LedgerOp::Settle(_) => Self::Settle,
            LedgerOp::Release(_) => Self::Release,
            LedgerOp::PaidLate(_) => Self::PaidLate,
            LedgerOp::Open(_) => Self::Open,
            LedgerOp::Close(_) => Self::Close,
            LedgerOp::SetMode(_) => Self::SetMode,
            LedgerOp::Restock(_) => Self::Restock,
        }
    }

    /// A bit of its own, for sets of scripts.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Its file's name in `lua/`, without the ending.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Lookup => "lookup",
            Self::Confirm => "confirm",
            Self::Settle => "settle",
            Self::Release => "release",
            Self::PaidLate => "paid_late",
            Self::Open => "open",
            Self::Close => "close",
            Self::SetMode => "set_mode",
            Self::Restock => "restock",
            Self::Reopen => "reopen",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Fence => "fence",
            Self::Rehome => "rehome",
            Self::Offer => "offer",
            Self::Restore => "restore",
            Self::Mark => "mark",
            Self::Snapshot => "snapshot",
            Self::Outbox => "outbox",
            Self::Take => "take",
            Self::LeasePolicy => "lease_policy",
            Self::LeaseDraw => "lease_draw",
            Self::LeaseReturn => "lease_return",
            Self::Bucket => "bucket",
            Self::WindowLog => "window_log",
        }
    }

    /// Its text, as it is loaded.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Reserve => include_str!("../../../../lua/reserve.lua"),
            Self::Lookup => include_str!("../../../../lua/lookup.lua"),
            Self::Confirm => include_str!("../../../../lua/confirm.lua"),
            Self::Settle => include_str!("../../../../lua/settle.lua"),
            Self::Release => include_str!("../../../../lua/release.lua"),
            Self::PaidLate => include_str!("../../../../lua/paid_late.lua"),
            Self::Open => include_str!("../../../../lua/open.lua"),
            Self::Close => include_str!("../../../../lua/close.lua"),
            Self::SetMode => include_str!("../../../../lua/set_mode.lua"),
            Self::Restock => include_str!("../../../../lua/restock.lua"),
            Self::Reopen => include_str!("../../../../lua/reopen.lua"),
            Self::Freeze => include_str!("../../../../lua/freeze.lua"),
            Self::Thaw => include_str!("../../../../lua/thaw.lua"),
            Self::Fence => include_str!("../../../../lua/fence.lua"),
            Self::Rehome => include_str!("../../../../lua/rehome.lua"),
            Self::Offer => include_str!("../../../../lua/offer.lua"),
            Self::Restore => include_str!("../../../../lua/restore.lua"),
            Self::Mark => include_str!("../../../../lua/mark.lua"),
            Self::Snapshot => include_str!("../../../../lua/snapshot.lua"),
            Self::Outbox => include_str!("../../../../lua/outbox.lua"),
            Self::Take => include_str!("../../../../lua/take.lua"),
            Self::LeasePolicy => include_str!("../../../../lua/lease_policy.lua"),
            Self::LeaseDraw => include_str!("../../../../lua/lease_draw.lua"),
            Self::LeaseReturn => include_str!("../../../../lua/lease_return.lua"),
            Self::Bucket => include_str!("../../../../lua/bucket.lua"),
            Self::WindowLog => include_str!("../../../../lua/window_log.lua"),
        }
    }

    /// The name that EVALSHA takes: SHA-1 of the text in lower-case hexadecimal digits. Hashes the text: ask once.
    pub fn sha1(self) -> [u8; SHA1_HEX_BYTES] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let hash = Sha1::digest(self.source());
        let mut hex = [0; SHA1_HEX_BYTES];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(hash) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        hex
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;
    use alloc::format;

    #[test]
    fn capacities_in_scripts_are_those_of_limits() {
        let reserve = format!(
            "RESERVATIONS_PER_UNIT, RESERVATIONS_MAX = {}, {} ",
            limits::RESERVATIONS_PER_UNIT,
            limits::RESERVATIONS_MAX
        );
        assert!(Script::Reserve.source().contains(&reserve));
        let remembered = format!(
            "OPS_REMEMBERED_MAX, OPS_REMEMBERED_MS = {}, {} ",
            limits::OPS_REMEMBERED_MAX,
            limits::OPS_REMEMBERED_MS
        );
        for script in [
            Script::Open,
            Script::Close,
            Script::SetMode,
            Script::Restock,
        ] {
            assert!(script.source().contains(&remembered), "{script:?}");
        }
        let units = format!("UNITS_MAX = {} ", limits::UNITS_MAX);
        assert!(Script::Open.source().contains(&units));
        assert!(Script::Restock.source().contains(&units));
        assert!(Script::Restore.source().contains(&units));
        let mended = format!("RESTOCKS_MAX = {} ", limits::RESTOCKS_MENDED_MAX);
        assert!(Script::Restore.source().contains(&mended));
        let page = format!("REQUESTS_OF_PAGE = {} ", limits::RESTOCKS_PAGE);
        assert!(Script::Outbox.source().contains(&page));
        let lease = format!(
            "LEASE_TTL_MS, RETRY_MS, TOKENS_MIN, LINES_MAX = {}, {}, {}, 1024 ",
            limits::POOL_TTL_MS,
            limits::LEASE_RETRY_MS,
            limits::LEASE_TOKENS_MIN
        );
        assert!(Script::LeaseDraw.source().contains(&lease));
        let climb = format!(
            "UNITS_PER_TOKEN, STEP_US, STEPS = {}, {}, {} ",
            limits::BUDGET_RAMP_STEPS * 1_000_000_000, // steps, thousandths of a token, us
            limits::BUDGET_RAMP_MS * 1000 / limits::BUDGET_RAMP_STEPS,
            limits::BUDGET_RAMP_STEPS
        );
        for script in [Script::LeasePolicy, Script::LeaseDraw, Script::LeaseReturn] {
            assert!(script.source().contains(&climb), "{script:?}");
        }
    }

    #[test]
    fn names_are_those_of_files() {
        for script in Script::ALL {
            let what = script.source().lines().next();
            assert!(
                what.is_some_and(|line| line.starts_with("-- What: ")),
                "{script:?}"
            );
        }
    }
}
