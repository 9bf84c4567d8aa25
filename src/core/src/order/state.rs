//! The states of an order and the only way between them: one table (requirement G6, design §8).
//!
//! Used by the SQL store and its model for every transition; nobody writes a state that this table did not give.
//! RESERVED and QUEUED are the ledger's and the worker's; a row exists from CREATED or FAILED on.

/// Where an order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OrderState {
    /// The ledger holds units; the message is on its way.
    Reserved,
    /// The worker took the message.
    Queued,
    /// The row exists, unpaid.
    Created,
    /// Paid; a unit is sold.
    Paid,
    /// Not paid in time, or the ledger holds nothing for it.
    Closed,
    /// No order could be made.
    Failed,
    /// Paid without holding a unit: a refund is due unless a unit is sold again.
    PaidLate,
}

/// What can happen to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OrderEvent {
    /// The worker took the message.
    Take,
    /// The row was made.
    Insert,
    /// The row could not be made.
    Refuse,
    /// A payment of the right amount came.
    Pay,
    /// The time to pay is over, or the ledger holds nothing for it.
    Close,
    /// The ledger sold a unit to a late payment.
    Resell,
    /// The ledger holds no unit for a paid order.
    LoseUnit,
}

/// The event is not possible in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The state, unchanged.
    pub state: OrderState,
    /// The event.
    pub event: OrderEvent,
}

/// What the ledger must be asked to do about an order in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LedgerStep {
    /// The order row exists.
    Confirm,
    /// The units are sold.
    Settle,
    /// The units come back: CLOSED.
    ReleaseClosed,
    /// The units come back: FAILED.
    ReleaseFailed,
    /// A payment came after the release.
    PaidLate,
}

impl OrderState {
    /// Every state, in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Reserved,
        Self::Queued,
        Self::Created,
        Self::Paid,
        Self::Closed,
        Self::Failed,
        Self::PaidLate,
    ];

    /// The name in rows and reports.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Reserved => "RESERVED",
            Self::Queued => "QUEUED",
            Self::Created => "CREATED",
            Self::Paid => "PAID",
            Self::Closed => "CLOSED",
            Self::Failed => "FAILED",
            Self::PaidLate => "PAID_LATE",
        }
    }

    /// The state of that name.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.text() == text)
    }

    /// True when the order counts as the user's one order of the SKU and holds SQL stock.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Created | Self::Paid)
    }

    /// The step that the ledger must acknowledge once an order is in this state; `None` before a row exists.
    pub const fn ledger_step(self) -> Option<LedgerStep> {
        match self {
            Self::Reserved | Self::Queued => None,
            Self::Created => Some(LedgerStep::Confirm),
            Self::Paid => Some(LedgerStep::Settle),
            Self::Closed => Some(LedgerStep::ReleaseClosed),
            Self::Failed => Some(LedgerStep::ReleaseFailed),
            Self::PaidLate => Some(LedgerStep::PaidLate),
        }
    }

    /// The state after `event`.
    ///
    /// # Errors
    /// [`Refusal`] for everything that the table does not list.
    pub const fn after(self, event: OrderEvent) -> Result<Self, Refusal> {
        use OrderEvent as E;
        use OrderState as S;
        match (self, event) {
            (S::Reserved, E::Take) => Ok(S::Queued),
            (S::Queued, E::Insert) => Ok(S::Created),
            (S::Queued, E::Refuse) => Ok(S::Failed),
            (S::Created, E::Pay) => Ok(S::Paid),
            (S::Created, E::Close) => Ok(S::Closed),
            (S::Closed | S::Failed, E::Pay) => Ok(S::PaidLate),
            (S::PaidLate, E::Resell) => Ok(S::Paid),
            (S::Paid, E::LoseUnit) => Ok(S::PaidLate),
            (state, event) => Err(Refusal { state, event }),
        }
    }
}

impl OrderEvent {
    /// Every event.
    pub const ALL: [Self; 7] = [
        Self::Take,
        Self::Insert,
        Self::Refuse,
        Self::Pay,
        Self::Close,
        Self::Resell,
        Self::LoseUnit,
    ];

    /// The word in the history's `why`.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Insert => "insert",
            Self::Refuse => "refuse",
            Self::Pay => "pay",
            Self::Close => "close",
            Self::Resell => "resell",
            Self::LoseUnit => "lose_unit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OrderEvent as E;
    use OrderState as S;

    #[test]
    fn the_table_is_exactly_this() {
        let allowed = [
            (S::Reserved, E::Take, S::Queued),
            (S::Queued, E::Insert, S::Created),
            (S::Queued, E::Refuse, S::Failed),
            (S::Created, E::Pay, S::Paid),
            (S::Created, E::Close, S::Closed),
            (S::Closed, E::Pay, S::PaidLate),
            (S::Failed, E::Pay, S::PaidLate),
            (S::PaidLate, E::Resell, S::Paid),
            (S::Paid, E::LoseUnit, S::PaidLate),
        ];
        for state in S::ALL {
            for event in E::ALL {
                let listed = allowed
                    .iter()
                    .find(|(s, e, _)| (*s, *e) == (state, event))
                    .map(|(_, _, to)| *to)
                    .ok_or(Refusal { state, event });
                assert_eq!(state.after(event), listed, "{state:?} × {event:?}");
            }
        }
    }

    #[test]
    fn a_dead_order_comes_alive_only_by_a_unit_of_the_ledger() {
        for state in S::ALL.into_iter().filter(|state| !state.is_live()) {
            for event in E::ALL {
                if let Ok(next) = state.after(event)
                    && next.is_live()
                {
                    assert!(matches!(event, E::Insert | E::Resell));
                }
            }
        }
    }

    #[test]
    fn names_read_back() {
        for state in S::ALL {
            assert_eq!(S::from_text(state.text()), Some(state));
        }
        assert_eq!(S::from_text("paid"), None);
    }
}
