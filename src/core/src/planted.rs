//! Faults put in on purpose, to prove that the checkers find them (design §12.16).
//!
//! A fault is chosen at run time, for one thread and thus for one simulated world, in builds with `--cfg weir_planted`;
//! these must have debug assertions. In every other build [`is`] is the constant `false`: no code of a fault is in the
//! program. `tests/planted_seeds.txt` names the seed that finds each.

#[cfg(all(weir_planted, not(debug_assertions)))]
compile_error!(
    "weir_planted is for test builds: build with debug assertions, or drop --cfg weir_planted"
);

#[cfg(weir_planted)]
extern crate std;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Which fault is live.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Planted {
            /// None.
            #[default]
            None,
            $($(#[$doc])* $name,)*
        }

        impl Planted {
            /// Every fault; `None` is none.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in the list of seeds.
            pub const fn name(self) -> &'static str {
                match self {
                    Self::None => "None",
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

faults! {
    // Answers and commits.
    /// The owner answers when a batch is sealed, before its commit.
    AnswerBeforeCommit;
    /// A failed commit is taken for done (field bug R55).
    FailedCommitTaken;
    /// Orders are sent when a batch is sealed, before its commit.
    OutboxBeforeCommit;
    /// An order message is sent once and never again (Q9, R17).
    OutboxForgets;
    /// A restart loses the newest batch.
    RecoveryDropsLast;
    /// Stored times may run back.
    ClockRunsBack;
    // What the ledger decides.
    /// A second release of the same reservation gives its units back again.
    ReleaseTwice;
    /// A repeated request id is not known (R12).
    RequestIdForgotten;
    /// The body of a repeated request is not compared.
    BodyNotCompared;
    /// A nonce may be used again.
    NonceForgotten;
    /// A user may hold twice (R15, Q3).
    UserForgotten;
    /// A closed order frees its user although the sale is once per activity.
    OnceForgotten;
    /// A tombstone is not looked at.
    TombstoneIgnored;
    /// A status query says "no" without a tombstone.
    TombstoneNotWritten;
    /// Any quantity is granted.
    QuantityUnchecked;
    /// The last unit is sold once too often (R16, Q6).
    SoldOneTooMany;
    /// The mode is not looked at by the ledger and its shards.
    ModeIgnored;
    /// A closed SKU is sold.
    ClosedIgnored;
    /// Units are sold before the sale opens (Q7).
    ScheduleIgnored;
    /// A repeated restock adds its units again (R18).
    RestockTwice;
    /// Every start puts the first stock on sale again (R8, R11).
    StockSetAtStart;
    /// A late payment buys although its user holds another unit.
    LateSaleTwice;
    /// A reopening does not move the epoch.
    EpochStays;
    // Orders.
    /// A payment is answered before its transaction.
    PaidBeforeCommit;
    /// The ledger is told of an order before its transaction.
    ConfirmBeforeCommit;
    /// A paid order is not settled.
    SettleForgotten;
    /// A closed order's units are not released (R14).
    ReleaseForgotten;
    /// A late payment sells without asking the ledger.
    ResellUnasked;
    /// The worker's stored time may run back.
    WorkerClockRunsBack;
    // Shards.
    /// Claims of a ticket are not compared with the request.
    TicketUnchecked;
    /// Any path is taken for the sale's (R4).
    PathUnchecked;
    /// The user limit's answer is not looked at (R6).
    UserLimitIgnored;
    /// An admitted request is not charged to its user.
    UserNotCharged;
    /// An admitted request is not charged to its device.
    DeviceNotCharged;
    /// The instance limit's answer is not looked at (R6).
    InstanceRateIgnored;
    /// Every bucket lets one cell too many pass (B01).
    OneCellTooMany;
    /// The budget's answer is not looked at (R6).
    BudgetIgnored;
    /// A slot whose answer is unknown is not given back (B24).
    SlotLeaks;
    /// A view older than the one that is known is applied (epoch compare).
    OldViewApplied;
    /// SOLD_OUT of an older epoch closes the present one (R7, Q34).
    OldSoldOutApplied;
    /// The winners' filter is not looked at: a winner's repeat is told SOLD_OUT.
    WinnersForgotten;
    // Leases.
    /// Tokens are granted and not deducted (B43).
    LeaseNotDeducted;
    /// A grant that comes twice counts twice (B44).
    LeaseGrantTwice;
    /// A return that comes twice is credited twice (B11).
    LeaseReturnTwice;
    /// Returned tokens are kept, too.
    LeaseReturnKeeps;
    // Redis: what is sent and heard.
    /// An ask whose answer was lost is sent again (R24, R25).
    ResentOnTimeout;
    /// An ask whose answer was lost is called not done.
    UnknownCalledFailed;
    /// A reply is given to the ask behind the one that it answers.
    ReplyToOther;
    /// A script that is not loaded is a refusal, and is not loaded.
    NoScriptRefused;
    /// A Redis that has not got the books is asked for grants.
    HomeUnchecked;
    // Redis: the scripts.
    /// A second release gives the units back again.
    ScriptReleasesTwice;
    /// A tombstone is not looked at.
    ScriptForgetsTombstone;
    /// A tombstone lives for a millisecond.
    ScriptTombstoneShort;
    /// A repeated request id is not known.
    ScriptForgetsRequest;
    /// A nonce may be used again.
    ScriptForgetsNonce;
    /// A user may hold twice.
    ScriptForgetsUser;
    /// The last unit is sold once too often.
    ScriptSellsOneTooMany;
    /// A pause or an end of the sale is not looked at.
    ScriptIgnoresMode;
    /// A repeated restock adds its units again.
    ScriptRestocksTwice;
    /// A reopening does not move the epoch.
    ScriptEpochStays;
    /// A late payment buys although its user holds another unit.
    ScriptLateSaleTwice;
    /// A late payment that was lost is not put in again.
    ScriptOfferForgetsLateSale;
    /// Stored times may run back with the server's clock.
    ScriptClockRunsBack;
    /// Tokens are granted and not deducted.
    ScriptLeaseNotDeducted;
    /// A new bucket begins full.
    ScriptBucketFull;
}

impl Planted {
    /// True for a fault that only a ledger in Redis can have.
    pub const fn is_remote(self) -> bool {
        self as usize >= Self::ResentOnTimeout as usize
    }
}

#[cfg(weir_planted)]
std::thread_local! {
    static LIVE: core::cell::Cell<Planted> = const { core::cell::Cell::new(Planted::None) };
}

/// Makes `fault` the live one of this thread.
#[cfg(weir_planted)]
pub fn set(fault: Planted) {
    LIVE.set(fault);
}

/// True when this fault is live.
#[cfg(weir_planted)]
pub fn is(fault: Planted) -> bool {
    LIVE.get() == fault
}

/// True when this fault is live: never, in a build without faults.
#[cfg(not(weir_planted))]
#[inline(always)]
pub const fn is(fault: Planted) -> bool {
    let _ = fault;
    false
}

/// Runs `judge` without the live fault: a checker that uses the core's own code must not share its faults.
#[cfg(weir_planted)]
pub fn without<T>(judge: impl FnOnce() -> T) -> T {
    let live = LIVE.replace(Planted::None);
    let judged = judge();
    LIVE.set(live);
    judged
}

/// Runs `judge`; in a build with faults, without them.
#[cfg(not(weir_planted))]
pub fn without<T>(judge: impl FnOnce() -> T) -> T {
    judge()
}
