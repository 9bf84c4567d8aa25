//! The ledger without its store: a reserve that is granted, one that is refused, one that is repeated.
//!
//! One atomic step each, as the owner takes it: decide, write the entry into the batch, change the tables.

use crate::pieces::WINNERS;
use crate::shard_kit::{SKU, sale};
use crate::{Scenario, Work};
use std::hint::black_box;
use weir_core::ask::{LedgerAnswer, LedgerOp, Open, OpsRef, Reserve};
use weir_core::ledger::codec::Journal;
use weir_core::ledger::{Ledger, LedgerConfig};
use weir_core::sale::Sale;
use weir_core::time::WallMs;
use weir_proto::ids::{Nonce, RequestId, UserId};
use weir_proto::text::Text;

/// Units of the sale.
const STOCK: u64 = 100_000;
/// Grants between two fresh ledgers.
const CHUNK: u64 = STOCK / 2;
/// Room for the entries of all grants.
const JOURNAL_BYTES: usize = STOCK as usize * 256;

pub fn scenarios() -> [Scenario; 3] {
    [
        Scenario::new("ledger-reserve-granted", 1, || {
            Box::new(Granted(Books::new(STOCK)))
        })
        .in_chunks_of(CHUNK),
        Scenario::new("ledger-reserve-sold-out", 2, || {
            let mut books = Books::new(WINNERS);
            for user in 1..=WINNERS {
                books.reserve(user);
            }
            Box::new(Again(books, WINNERS + 1))
        }),
        Scenario::new("ledger-reserve-repeated", 3, || {
            let mut books = Books::new(STOCK);
            books.reserve(1);
            Box::new(Again(books, 1))
        }),
    ]
}

struct Books {
    ledger: Ledger,
    journal: Journal,
    next_user: u64,
}

impl Books {
    fn new(stock: u64) -> Self {
        let mut books = Self {
            ledger: Ledger::new(LedgerConfig::of_sale(&sized(stock), 1)),
            journal: Journal::new(Vec::with_capacity(JOURNAL_BYTES)),
            next_user: 0,
        };
        books.open(stock);
        books
    }

    fn open(&mut self, stock: u64) {
        let target = OpsRef {
            sku: SKU,
            request_id: text::<{ weir_proto::limits::REQUEST_ID_BYTES_MAX }>(0),
        };
        let open = Open {
            target,
            stock,
            quantity_max: 1,
            once_per_activity: false,
        };
        self.ledger
            .apply(WallMs(1), &LedgerOp::Open(open), &mut self.journal);
    }

    fn reserve(&mut self, user: u64) -> u64 {
        let request_id: RequestId = text(user);
        let nonce: Nonce = text(user);
        let op = LedgerOp::Reserve(Reserve {
            sku: SKU,
            user: UserId(user),
            request_id,
            nonce,
            nonce_until: WallMs(1),
            quantity: 1,
        });
        match self
            .ledger
            .apply(WallMs(1), black_box(&op), &mut self.journal)
        {
            LedgerAnswer::Granted(_) => 1,
            LedgerAnswer::SoldOut { .. } => 2,
            LedgerAnswer::Repeated(_) => 3,
            _ => 0,
        }
    }
}

fn sized(stock: u64) -> Sale {
    let mut sale = sale();
    sale.activities[0].skus[0].first_stock = stock;
    sale
}

/// A name of 16 bytes that ends in `number`.
fn text<const N: usize>(number: u64) -> Text<N> {
    let mut bytes = *b"request-00000000";
    let mut rest = number;
    for digit in bytes[8..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    Text::new(&bytes).expect("visible ASCII")
}

struct Granted(Books);

impl Work for Granted {
    fn once(&mut self) -> u64 {
        self.0.next_user += 1;
        self.0.reserve(self.0.next_user)
    }

    fn refill(&mut self) {
        self.0 = Books::new(STOCK);
    }
}

/// The same user asks again and again.
struct Again(Books, u64);

impl Work for Again {
    fn once(&mut self) -> u64 {
        self.0.reserve(self.1)
    }
}
