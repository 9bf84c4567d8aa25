//! Why an owner sells nothing any more, in words for the operator.

use crate::journal::StoreFault;
use crate::ledger::RecoverError;
use crate::limit::gcra::PolicyError;
use core::fmt;
use weir_proto::ids::SkuKey;

/// Why the owner sells nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerFault {
    /// What the store has is not the image of a ledger.
    Image(RecoverError),
    /// A batch is not durable.
    Store(StoreFault),
    /// The budget of a SKU cannot be enforced exactly; the configuration check refuses this before.
    Budget(SkuKey, PolicyError),
}

impl fmt::Display for OwnerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(error) => error.fmt(f),
            Self::Store(StoreFault::DiskFull) => f.write_str(
                "ledger store: no space left on the disk; grants are stopped: free space, then restart",
            ),
            Self::Store(StoreFault::Io) => f.write_str(
                "ledger store: a write or sync failed; grants are stopped and nothing is retried: check the disk, then restart",
            ),
            Self::Store(StoreFault::OutOfOrder) => {
                f.write_str("ledger store: a batch came out of order; this is a bug of weir: restart, and report it")
            }
            Self::Budget(sku, error) => {
                write!(f, "budget of activity {}, SKU {}: {error}", sku.activity, sku.sku)
            }
        }
    }
}
