//! The words of an answer: stages, codes, states, next actions, and the two tables of allowed (status, code) pairs.
//!
//! Used by the reason table and by everyone who reads or counts answers. Invariant: the texts are wire format and
//! metric labels; changing one is a breaking change.

macro_rules! words {
    ($(#[$enum_doc:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// Every value, in the order of declaration (`ALL[x as usize] == x`).
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The exact text on the wire, in metrics and in logs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The value whose text is exactly `text`; `None` when there is none.
            pub fn from_text(text: &[u8]) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str().as_bytes() == text)
            }
        }
    };
}

words! {
    /// Where a request ended (design §4); the `stage` label of metrics and the log's `admission_stage`.
    Stage {
        /// The bytes: syntax, limits, deadlines, the JSON body.
        Http = "http",
        /// Method, path, path id, SKU.
        Route = "route",
        /// This instance as a whole: its rate, the mode word, the schedule, draining.
        Instance = "instance",
        /// The client's address or prefix.
        Ip = "ip",
        /// The request's signature, where the operator asks for one.
        Signature = "signature",
        /// The ticket and its bindings.
        Ticket = "ticket",
        /// Answers already known for this request id.
        Known = "known",
        /// The local sold-out mark.
        SoldOut = "sold_out",
        /// The limit per user.
        User = "user",
        /// The limit per device.
        Device = "device",
        /// The leased budget of the SKU.
        Budget = "budget",
        /// The slots of requests that wait for the ledger.
        Inflight = "inflight",
        /// The one ask to the ledger.
        Ledger = "ledger",
        /// The status query.
        Status = "status",
        /// The payment callback.
        Payment = "payment",
        /// The end of the pipeline: admitted.
        Answer = "answer",
    }
}

impl Stage {
    /// The label in metrics and logs; the same as `as_str`.
    pub const fn label(self) -> &'static str {
        self.as_str()
    }
}

words! {
    /// The `code` member: what happened, for programs.
    Code {
        /// Reserved; the order follows.
        SeckillQueued = "SECKILL_QUEUED",
        /// No unit left.
        SeckillSoldOut = "SECKILL_SOLD_OUT",
        /// Same request again; `original_code` holds the first result.
        RequestReplayed = "REQUEST_REPLAYED",
        /// The request itself is wrong.
        InvalidArgument = "INVALID_ARGUMENT",
        /// One request id, two different bodies.
        RequestIdConflict = "REQUEST_ID_CONFLICT",
        /// No credential, or a signature of a request or a payment that does not verify.
        Unauthenticated = "UNAUTHENTICATED",
        /// The ticket's signature or a binding is wrong.
        TokenInvalid = "TOKEN_INVALID",
        /// The ticket is too old.
        TokenExpired = "TOKEN_EXPIRED",
        /// The ticket was used by another request.
        ReplayRejected = "REPLAY_REJECTED",
        /// The user holds or bought a unit.
        AlreadyPurchased = "ALREADY_PURCHASED",
        /// The caller is too fast.
        RateLimited = "RATE_LIMITED",
        /// We are too busy.
        SystemOverloaded = "SYSTEM_OVERLOADED",
        /// A part that decides is missing.
        DependencyUnavailable = "DEPENDENCY_UNAVAILABLE",
        /// Extension: the result is unknown for now; ask for the status.
        SeckillPending = "SECKILL_PENDING",
        /// Extension: an operator denies the address, user or device.
        AccessDenied = "ACCESS_DENIED",
        /// Extension: refused for a while for ignoring 429.
        TemporarilyBanned = "TEMPORARILY_BANNED",
        /// Extension: before `opens_at` or after `closes_at`.
        NotOpen = "NOT_OPEN",
        /// Extension, status only: this request id was not accepted and never will be (design §12.5).
        NotAccepted = "NOT_ACCEPTED",
        /// Extension, status only: `status` names the order's state.
        SeckillStatus = "SECKILL_STATUS",
        /// Extension: the payment is booked.
        PaymentAccepted = "PAYMENT_ACCEPTED",
        /// Extension: this payment id was booked before; nothing changed.
        PaymentRepeated = "PAYMENT_REPEATED",
        /// Extension: the payment is noted for refund, the order could not take it.
        PaymentRefundDue = "PAYMENT_REFUND_DUE",
        /// Extension: no such path, SKU or order.
        NotFound = "NOT_FOUND",
        /// Extension: see `Allow`.
        MethodNotAllowed = "METHOD_NOT_ALLOWED",
        /// Extension: the request did not arrive in time.
        RequestTimeout = "REQUEST_TIMEOUT",
        /// Extension: body above the limit.
        BodyTooLarge = "BODY_TOO_LARGE",
        /// Extension: request line above the limit.
        TargetTooLong = "TARGET_TOO_LONG",
        /// Extension: an expectation other than `100-continue`.
        ExpectationFailed = "EXPECTATION_FAILED",
        /// Extension: head above the limit.
        HeadTooLarge = "HEAD_TOO_LARGE",
        /// Extension: unknown method or transfer coding.
        NotImplemented = "NOT_IMPLEMENTED",
        /// Extension: not HTTP/1.0 or HTTP/1.1.
        VersionNotSupported = "VERSION_NOT_SUPPORTED",
    }
}

words! {
    /// The `next_action` member: what a well-behaved client does now (seed 000 §7.4 and §8.5).
    NextAction {
        /// Ask for the status after `next_poll_after_ms`; do not submit again.
        Poll = "POLL",
        /// Stop: asking again cannot change the answer.
        Stop = "STOP",
        /// Ask once for the status of this request id, or look at the existing order.
        Query = "QUERY",
        /// Submit again after `retry_after_ms`, not earlier, with the same request id.
        RetryAfter = "RETRY_AFTER",
        /// Submit again a limited number of times, backing off with full jitter, with the same request id.
        RetrySameRequest = "RETRY_SAME_REQUEST",
        /// Get a new ticket (queue again), or stop if the sale's rules do not allow it.
        Requeue = "REQUEUE",
        /// Correct the request; the same bytes will be refused again.
        FixRequest = "FIX_REQUEST",
        /// Stop and tell the developers: the client uses request ids wrongly.
        Alert = "ALERT",
        /// Prove who you are, then submit again.
        Reauthenticate = "REAUTHENTICATE",
        /// Pay the order before its time runs out.
        Pay = "PAY",
    }
}

words! {
    /// The `status` member: the state of the request or its order as the client may know it.
    RequestState {
        /// A unit is held, the order is being made (what 202 says).
        Queued = "QUEUED",
        /// A unit is held, the order message is not yet taken.
        Reserved = "RESERVED",
        /// The order exists and waits for payment.
        Created = "CREATED",
        /// The order is paid.
        Paid = "PAID",
        /// The order was closed unpaid, the unit released.
        Closed = "CLOSED",
        /// The order could not be made, the unit released.
        Failed = "FAILED",
        /// Paid after closing; the money is refunded.
        PaidLate = "PAID_LATE",
        /// No unit left.
        SoldOut = "SOLD_OUT",
        /// Refused; `code` says why.
        Rejected = "REJECTED",
        /// Not known yet; ask for the status.
        Pending = "PENDING",
        /// Never accepted, and never will be.
        NotAccepted = "NOT_ACCEPTED",
    }
}

impl RequestState {
    /// True when no later event of ours changes what the client sees, a payment aside (design §12.7).
    pub const fn is_terminal(self) -> bool {
        !matches!(
            self,
            Self::Queued | Self::Reserved | Self::Created | Self::Pending
        )
    }
}

words! {
    /// The `decision` label of metrics and of the admission log.
    Decision {
        /// A unit is reserved.
        Admit = "ADMIT",
        /// The first result again.
        Replay = "REPLAY",
        /// The result is unknown.
        Unknown = "UNKNOWN",
        /// A question or a callback was answered.
        Inform = "INFORM",
        /// Refused.
        Reject = "REJECT",
    }
}

/// Seed 000 §8.5's table, row by row: HTTP status and code.
pub const SEED_PAIRS: &[(u16, Code)] = &[
    (202, Code::SeckillQueued),
    (200, Code::SeckillSoldOut),
    (200, Code::RequestReplayed),
    (400, Code::InvalidArgument),
    (400, Code::RequestIdConflict),
    (401, Code::Unauthenticated),
    (403, Code::TokenInvalid),
    (403, Code::TokenExpired),
    (403, Code::ReplayRejected),
    (409, Code::AlreadyPurchased),
    (429, Code::RateLimited),
    (503, Code::SystemOverloaded),
    (503, Code::DependencyUnavailable),
];

/// The one extension table (design §12.11): what seed 000 §8.5 does not name.
///
/// NOT_ACCEPTED is 200: the question was answered, and an answer that ends a request must not look like a wrong URL.
/// A payment for refund is 200 too: the provider delivered it correctly and must not deliver it again.
pub const EXTENSION_PAIRS: &[(u16, Code)] = &[
    (202, Code::SeckillPending),
    (403, Code::NotOpen),
    (403, Code::AccessDenied),
    (403, Code::TemporarilyBanned),
    (200, Code::NotAccepted),
    (200, Code::SeckillStatus),
    (200, Code::PaymentAccepted),
    (200, Code::PaymentRepeated),
    (200, Code::PaymentRefundDue),
    (404, Code::NotFound),
    (405, Code::MethodNotAllowed),
    (408, Code::RequestTimeout),
    (413, Code::BodyTooLarge),
    (414, Code::TargetTooLong),
    (417, Code::ExpectationFailed),
    (431, Code::HeadTooLarge),
    (501, Code::NotImplemented),
    (505, Code::VersionNotSupported),
];
