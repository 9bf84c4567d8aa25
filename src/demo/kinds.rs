//! The kinds of buyers: who they are, what they must be answered, who comes when.
//!
//! Used by the crowd and the report. Which kind a buyer is depends on its number and the seed alone.

use weir_core::rng::Rng;
use weir_proto::answer::Code;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = ($text:literal, [$($code:ident),*]),)*) => {
        /// A kind of buyer or of payer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// Every kind (`ALL[kind as usize] == kind`).
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in reports.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What its buyers may be answered in the end, waits aside.
            pub const fn expected(self) -> &'static [Code] {
                match self { $(Self::$name => &[$(Code::$code),*],)* }
            }
        }
    };
}

kinds! {
    /// One press of the button.
    Honest = ("honest", [SeckillQueued, SeckillSoldOut]),
    /// Comes when it is known to be sold out.
    Late = ("late", [SeckillSoldOut]),
    /// Presses twice at once: the same request on two connections.
    DoubleClick = ("double_click", [SeckillQueued, RequestReplayed, SeckillPending, SeckillSoldOut]),
    /// Sends the same request again on another connection, and once more when the sale is over.
    OtherConnection = ("other_connection", [RequestReplayed, SeckillSoldOut]),
    /// Sends the same request id with another quantity.
    OtherBody = ("other_body", [RequestIdConflict, SeckillSoldOut, InvalidArgument]),
    /// Holds a unit and asks for another.
    SecondRequest = ("second_request", [AlreadyPurchased]),
    /// Uses a ticket again for another request.
    Replaying = ("replaying", [ReplayRejected]),
    /// Presses until it is limited, waits exactly as long as it was told, and presses again.
    OverLimit = ("over_limit", [RateLimited, AlreadyPurchased]),
    /// A ticket signed with another key.
    Forged = ("forged", [TokenInvalid]),
    /// A ticket of yesterday.
    Expired = ("expired", [TokenExpired]),
    /// No ticket.
    NoTicket = ("no_ticket", [Unauthenticated]),
    /// A path that somebody guessed.
    WrongPath = ("wrong_path", [NotFound]),
    /// Bytes that are no request, or a body that is no submit.
    Malformed = ("malformed", [InvalidArgument]),
    /// Lost, and comes back with a new ticket when units are on sale again.
    Returning = ("returning", [SeckillQueued, SeckillSoldOut]),
    /// Pays its order.
    Pays = ("pays", [PaymentAccepted]),
    /// Its payment is reported twice.
    PaysTwice = ("pays_twice", [PaymentAccepted, PaymentRepeated]),
    /// Pays a wrong amount first.
    PaysWrong = ("pays_wrong_amount", [InvalidArgument, PaymentAccepted]),
    /// Pays when its order is closed already.
    PaysLate = ("pays_late", [PaymentRefundDue]),
    /// Never pays: its order is closed and its unit goes back on sale.
    PaysNever = ("pays_never", []),
}

impl Kind {
    /// Those that prove their point only after they won; until then they are honest.
    pub const fn needs_win(self) -> bool {
        matches!(
            self,
            Self::SecondRequest | Self::Replaying | Self::OverLimit
        )
    }

    /// Those whose first request must be refused with `expected`.
    pub const fn is_refused(self) -> bool {
        matches!(
            self,
            Self::Forged | Self::Expired | Self::NoTicket | Self::WrongPath | Self::Malformed
        )
    }

    /// The kind of buyer number `number` of those who come in order. `early`: the first so many are sure to find units.
    pub fn of(number: u64, early: u64, seed: u64) -> Self {
        if number < early {
            return match number % 16 {
                1 => Self::DoubleClick,
                2 => Self::OtherConnection,
                3 => Self::OtherBody,
                4 => Self::SecondRequest,
                5 => Self::Replaying,
                6 => Self::OverLimit,
                7 => Self::Forged,
                8 => Self::Expired,
                9 => Self::NoTicket,
                10 => Self::WrongPath,
                11 => Self::Malformed,
                _ => Self::Honest,
            };
        }
        match Rng::new(seed ^ number.wrapping_mul(0xA24B_AED4_963E_E407)).below(1_000) {
            0..10 => Self::DoubleClick,
            10..20 => Self::OtherConnection,
            20..25 => Self::OtherBody,
            25..35 => Self::Forged,
            35..40 => Self::Expired,
            40..45 => Self::NoTicket,
            45..50 => Self::WrongPath,
            50..55 => Self::Malformed,
            _ => Self::Honest,
        }
    }

    /// How the winner pays whose turn is number `win`. `early`: its order will be closed while the demo still waits.
    pub const fn payer(win: u64, early: bool) -> Self {
        if early && win % 25 == 3 {
            return Self::PaysNever;
        }
        if early && win % 100 == 7 {
            return Self::PaysLate;
        }
        if win % 20 == 11 {
            return Self::PaysTwice;
        }
        if win % 200 == 13 {
            return Self::PaysWrong;
        }
        Self::Pays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_buyer_comes_early_and_every_payer_is_among_the_first_winners() {
        let early: Vec<Kind> = (0..50).map(|number| Kind::of(number, 50, 1)).collect();
        let payers: Vec<Kind> = (0..20).map(|win| Kind::payer(win, true)).collect();
        for &kind in Kind::ALL {
            let is_of_a_phase = matches!(kind, Kind::Late | Kind::Returning);
            assert!(
                is_of_a_phase || early.contains(&kind) || payers.contains(&kind),
                "{kind:?}"
            );
            assert_eq!(Kind::ALL[kind as usize], kind);
        }
        assert_eq!(Kind::payer(3, false), Kind::Pays);
    }

    #[test]
    fn the_crowd_after_that_is_mostly_honest_and_depends_on_the_seed() {
        let crowd = |seed| (100..10_100).map(move |number| Kind::of(number, 50, seed));
        let honest = crowd(1).filter(|&kind| kind == Kind::Honest).count();
        assert!((9_000..9_800).contains(&honest), "{honest}");
        assert!(crowd(1).eq(crowd(1)) && !crowd(1).eq(crowd(2)));
        assert!(crowd(1).all(|kind| !kind.needs_win()));
    }
}
