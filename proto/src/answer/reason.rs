//! The one table of reasons: every way a request can end, with its status, code, stage, label, action and messages.
//!
//! weir-core decides a `Reason`; the encoder, metrics and the admission log read its `Row`. To add a refusal, add one
//! row here (ARCHITECTURE.md walks through it). Invariants, tested below: labels unique, pairs from the two tables only,
//! messages need no JSON escaping. Messages of ticket refusals do not say which check failed first: the label does.

use super::code::{Code, Decision, NextAction, RequestState, Stage};

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// HTTP status.
    pub http_status: u16,
    /// The `code` member.
    pub code: Code,
    /// Where the request ended.
    pub stage: Stage,
    /// The `reason` label in metrics and logs: snake_case, unique.
    pub label: &'static str,
    /// True when the same request may be sent again (never faster than the answer says).
    pub retryable: bool,
    /// What the client does now.
    pub next_action: NextAction,
    /// The `status` member unless the shard knows a truer one (a replay names the order's state).
    pub state: RequestState,
    /// The message in Chinese.
    pub zh: &'static str,
    /// The message in English.
    pub en: &'static str,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = ($status:literal, $code:ident, $stage:ident, $label:literal, $retryable:literal,
        $next:ident, $state:ident, $zh:literal, $en:literal);)*) => {
        /// Every way a request can end. One row each in one table; see [`Reason::row`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// Every reason, in the order of the table (`ALL[r as usize] == r`).
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }

        static TABLE: &[Row] = &[$(Row {
            http_status: $status,
            code: Code::$code,
            stage: Stage::$stage,
            label: $label,
            retryable: $retryable,
            next_action: NextAction::$next,
            state: RequestState::$state,
            zh: $zh,
            en: $en,
        },)*];
    };
}

reasons! {
    // Admitted, repeated, unknown.
    /// A unit is reserved for the user; the order follows.
    Queued = (202, SeckillQueued, Answer, "queued", false, Poll, Queued,
        "请求已进入异步处理", "Your request is in; the order is being made.");
    /// The same request again (same id, same body): its first result, named by `original_code` and `status`.
    Replayed = (200, RequestReplayed, Known, "replayed", false, Query, Queued,
        "相同请求，返回首次处理结果", "This request was answered before; this is its first result.");
    /// The ledger did not answer in time; the result is unknown and will be known to the status query.
    Pending = (202, SeckillPending, Ledger, "pending", false, Query, Pending,
        "结果尚未确定，请使用原请求编号查询", "The result is not known yet; ask for the status with the same request id.");
    /// A status query closed the door for this request id (design §12.5); `original_code` is NOT_ACCEPTED.
    Tombstoned = (200, RequestReplayed, Ledger, "tombstoned", false, Stop, NotAccepted,
        "该请求未被受理，请停止使用该请求编号", "This request id was answered NOT_ACCEPTED before; it stays so.");

    // Sold out.
    /// The local mark says that the SKU is sold out.
    SoldOutLocal = (200, SeckillSoldOut, SoldOut, "sold_out_local", false, Stop, SoldOut,
        "库存已售罄", "Sold out.");
    /// The ledger says that the SKU is sold out.
    SoldOutLedger = (200, SeckillSoldOut, Ledger, "sold_out_ledger", false, Stop, SoldOut,
        "库存已售罄", "Sold out.");

    // The body of a submit.
    /// The body is not the one JSON object of design §4; `detail` names the member.
    InvalidBody = (400, InvalidArgument, Http, "invalid_body", false, FixRequest, Rejected,
        "请求参数不合法", "The request body is not valid.");
    /// The quantity is zero, or above what any request may ask for.
    InvalidQuantity = (400, InvalidArgument, Http, "invalid_quantity", false, FixRequest, Rejected,
        "购买数量不合法", "The quantity is not allowed.");
    /// Content-Type is not application/json.
    BadContentType = (400, InvalidArgument, Http, "bad_content_type", false, FixRequest, Rejected,
        "请求体必须为 application/json", "The body must be application/json.");
    /// The request id (body or path) is missing, too short, too long or holds a byte that is not visible ASCII.
    InvalidRequestId = (400, InvalidArgument, Http, "invalid_request_id", false, FixRequest, Rejected,
        "请求编号不合法", "The request id is missing or not valid.");
    /// Idempotency-Key and request_id are both given and differ.
    IdempotencyMismatch = (400, InvalidArgument, Http, "idempotency_mismatch", false, FixRequest, Rejected,
        "Idempotency-Key 与 request_id 不一致", "Idempotency-Key and request_id differ.");
    /// The request id was used with another body.
    RequestIdConflict = (400, RequestIdConflict, Ledger, "request_id_conflict", false, Alert, Rejected,
        "同一请求编号对应不同业务内容", "This request id was used for something else.");
    /// The ledger refuses the quantity: fewer units are free, or the SKU's limit per request is lower.
    QuantityRefused = (400, InvalidArgument, Ledger, "quantity_refused", false, FixRequest, Rejected,
        "购买数量超过限制或剩余库存", "The quantity is above the limit or above what is left.");

    // The request's signature, where the operator asks for one (B8).
    /// No `X-Weir-Signature` header.
    SignatureMissing = (401, Unauthenticated, Signature, "signature_missing", false, Reauthenticate, Rejected,
        "缺少请求签名", "A signature is required: send it as X-Weir-Signature.");
    /// Not of the form `k=<key id>,t=<unix ms>,v1=<64 hex digits>`.
    SignatureShape = (401, Unauthenticated, Signature, "signature_shape", false, Reauthenticate, Rejected,
        "请求签名格式错误", "X-Weir-Signature must be k=KEY,t=MILLISECONDS,v1=64 lower-case hex digits.");
    /// The key id names no live key.
    SignatureKey = (401, Unauthenticated, Signature, "signature_key", false, Reauthenticate, Rejected,
        "请求签名无效", "The signature of the request is not valid.");
    /// The signature's time is too far from our clock, either way.
    SignatureStale = (401, Unauthenticated, Signature, "signature_stale", false, Reauthenticate, Rejected,
        "请求签名时间超出允许范围，请校准时间后重新签名", "The time of the signature is too far from the clock of this server; sign again.");
    /// The MAC does not fit method, target, time and body.
    SignatureWrong = (401, Unauthenticated, Signature, "signature_wrong", false, Reauthenticate, Rejected,
        "请求签名无效", "The signature of the request is not valid.");

    // The ticket.
    /// No `Authorization: Bearer` header.
    TicketMissing = (401, Unauthenticated, Ticket, "ticket_missing", false, Reauthenticate, Rejected,
        "缺少资格票，请重新认证", "A ticket is required: send it as Authorization: Bearer.");
    /// Too long, not one of the two forms, or not strict base64url.
    TicketShape = (403, TokenInvalid, Ticket, "ticket_shape", false, Stop, Rejected,
        "资格票无效", "The ticket is not valid.");
    /// The key id names no live key, or the algorithm is not ours.
    TicketKey = (403, TokenInvalid, Ticket, "ticket_key", false, Stop, Rejected,
        "资格票无效", "The ticket is not valid.");
    /// The MAC does not verify.
    TicketSignature = (403, TokenInvalid, Ticket, "ticket_signature", false, Stop, Rejected,
        "资格票无效", "The ticket is not valid.");
    /// The MAC verifies but a claim is missing, of a wrong type or out of range.
    TicketClaims = (403, TokenInvalid, Ticket, "ticket_claims", false, Stop, Rejected,
        "资格票无效", "The ticket is not valid.");
    /// The ticket's not-before lies ahead (beyond the leeway).
    TicketNotYet = (403, TokenInvalid, Ticket, "ticket_not_yet", false, Stop, Rejected,
        "资格票尚未生效", "The ticket is not valid yet.");
    /// The ticket's expiry has passed (beyond the leeway).
    TicketExpired = (403, TokenExpired, Ticket, "ticket_expired", false, Requeue, Rejected,
        "资格票已过期，请重新排队", "The ticket has expired; queue again if the sale allows it.");
    /// The ticket is for another activity, SKU, user, version or path.
    TicketBinding = (403, TokenInvalid, Ticket, "ticket_binding", false, Stop, Rejected,
        "资格票与请求不匹配", "The ticket is not for this request.");
    /// The ticket belongs to another device.
    TicketDevice = (403, TokenInvalid, Ticket, "ticket_device", false, Stop, Rejected,
        "资格票与设备不匹配", "The ticket belongs to another device.");
    /// The ticket's nonce was consumed by another request id.
    ReplayRejected = (403, ReplayRejected, Ledger, "replay_rejected", false, Stop, Rejected,
        "资格票已被其他请求使用", "This ticket was used by another request.");
    /// The user holds or bought a unit by another request.
    AlreadyPurchased = (409, AlreadyPurchased, Ledger, "already_purchased", false, Query, Rejected,
        "您已有有效订单或预占", "You already hold or bought this item; look at your order.");

    // The caller's own excess (429).
    /// The address or prefix opens connections faster than it may.
    LimitedConnects = (429, RateLimited, Ip, "limited_connects", true, RetryAfter, Rejected,
        "新建连接过于频繁，请稍后重试", "Too many new connections from your network; wait as long as Retry-After says.");
    /// The address or prefix has as many connections open as it may.
    LimitedConns = (429, RateLimited, Ip, "limited_conns", true, RetryAfter, Rejected,
        "连接数过多，请关闭部分连接后重试", "Too many open connections from your network; close some, then try again.");
    /// The address or prefix is above its limit.
    LimitedIp = (429, RateLimited, Ip, "limited_ip", true, RetryAfter, Rejected,
        "请求过于频繁，请稍后重试", "Too many requests from your network; wait as long as Retry-After says.");
    /// The user is above the limit.
    LimitedUser = (429, RateLimited, User, "limited_user", true, RetryAfter, Rejected,
        "请求过于频繁，请稍后重试", "Too many requests; wait as long as Retry-After says.");
    /// The device is above the limit.
    LimitedDevice = (429, RateLimited, Device, "limited_device", true, RetryAfter, Rejected,
        "请求过于频繁，请稍后重试", "Too many requests from this device; wait as long as Retry-After says.");
    /// As many submits of the user wait for the ledger as one may have waiting.
    InflightUser = (429, RateLimited, Inflight, "inflight_user", true, RetryAfter, Rejected,
        "您有过多请求正在处理，请稍后重试", "Too many of your requests are being worked on; wait as long as Retry-After says.");
    /// Too many status queries.
    LimitedStatus = (429, RateLimited, Status, "limited_status", true, RetryAfter, Rejected,
        "查询过于频繁，请稍后重试", "Too many status queries; wait as long as Retry-After says.");
    /// The request costs more than the limit can ever hold: waiting does not help.
    CostAboveCapacity = (400, InvalidArgument, User, "cost_above_capacity", false, FixRequest, Rejected,
        "单次请求超过限额上限", "The request is larger than the limit can ever allow.");

    // Refused by name, or for a while for what the caller did.
    /// An operator denies the address.
    DeniedAddress = (403, AccessDenied, Ip, "denied_address", false, Stop, Rejected,
        "您的网络已被禁止访问", "Your network is not admitted here.");
    /// An operator denies the user.
    DeniedUser = (403, AccessDenied, User, "denied_user", false, Stop, Rejected,
        "您的账号不能参加本次活动", "You are not admitted to this sale.");
    /// An operator denies the device.
    DeniedDevice = (403, AccessDenied, Device, "denied_device", false, Stop, Rejected,
        "您的设备不能参加本次活动", "This device is not admitted to this sale.");
    /// The address kept sending before its wait was over, and is refused for a while.
    BannedAddress = (403, TemporarilyBanned, Ip, "banned_address", true, RetryAfter, Rejected,
        "您的网络多次无视等待要求，已被暂时禁止", "Your network kept ignoring Retry-After; it is refused for as long as Retry-After says.");
    /// The user kept sending before the wait was over, and is refused for a while.
    BannedUser = (403, TemporarilyBanned, User, "banned_user", true, RetryAfter, Rejected,
        "您多次无视等待要求，已被暂时禁止", "You kept ignoring Retry-After; you are refused for as long as Retry-After says.");

    // We are too busy (503).
    /// This instance is above its own rate.
    InstanceRate = (503, SystemOverloaded, Instance, "instance_rate", true, RetryAfter, Rejected,
        "系统繁忙，请稍后重试", "The system is busy; try again later.");
    /// The mode word is QUEUE_ONLY: no submit enters.
    ModeQueueOnly = (503, SystemOverloaded, Instance, "mode_queue_only", true, RetryAfter, Rejected,
        "系统繁忙，暂停受理，请稍后重试", "Submits are paused; try again later.");
    /// The mode word is CLOSED.
    ModeClosed = (503, SystemOverloaded, Instance, "mode_closed", false, Stop, Rejected,
        "抢购已暂停", "The sale has been stopped.");
    /// The lease of this SKU is empty or expired.
    BudgetEmpty = (503, SystemOverloaded, Budget, "budget_empty", true, RetryAfter, Rejected,
        "系统繁忙，请稍后重试", "The system is busy; try again later.");
    /// Every in-flight slot of this instance is taken.
    InflightInstance = (503, SystemOverloaded, Inflight, "inflight_instance", true, RetryAfter, Rejected,
        "系统繁忙，请稍后重试", "The system is busy; try again later.");
    /// Every in-flight slot of this SKU is taken.
    InflightSku = (503, SystemOverloaded, Inflight, "inflight_sku", true, RetryAfter, Rejected,
        "系统繁忙，请稍后重试", "The system is busy; try again later.");
    /// The ledger's table of nonces is full.
    NonceTableFull = (503, SystemOverloaded, Ledger, "nonce_table_full", true, RetryAfter, Rejected,
        "系统繁忙，请稍后重试", "The system is busy; try again later.");
    /// Another table of fixed size is full.
    TableFull = (503, SystemOverloaded, Ledger, "table_full", true, RetryAfter, Rejected,
        "系统繁忙，请稍后重试", "The system is busy; try again later.");
    /// The mail box to the ledger's owner is full: nothing was asked.
    MailFull = (503, SystemOverloaded, Ledger, "mail_full", true, RetryAfter, Rejected,
        "系统繁忙，请稍后重试", "The system is busy; try again later.");
    /// The request's time was spent before the ledger was asked, or the ledger refused an ask past its deadline.
    DeadlineSpent = (503, SystemOverloaded, Ledger, "deadline_spent", true, RetryAfter, Rejected,
        "系统繁忙，请稍后重试", "The system is busy; try again later.");
    /// This instance is shutting down.
    Draining = (503, SystemOverloaded, Instance, "draining", true, RetrySameRequest, Rejected,
        "服务正在重启，请稍后重试", "This server is restarting; try again with the same request id.");
    /// The ledger is not reachable or has refused to work: nothing was asked.
    LedgerUnavailable = (503, DependencyUnavailable, Ledger, "ledger_unavailable", true, RetrySameRequest, Rejected,
        "服务暂不可用，请使用原请求编号有限重试或查询", "A part of the system is not available; retry or query with the same request id.");
    /// The store is poisoned by a failed commit until restart (design §12.3).
    StorePoisoned = (503, DependencyUnavailable, Ledger, "store_poisoned", true, RetrySameRequest, Rejected,
        "服务暂不可用，请使用原请求编号有限重试或查询", "A part of the system is not available; retry or query with the same request id.");

    // The schedule.
    /// Before `opens_at`; `opens_in_ms` says how long.
    NotOpenYet = (403, NotOpen, Instance, "not_open_yet", true, RetryAfter, Rejected,
        "活动尚未开始", "The sale has not started.");
    /// After `closes_at`, or closed by the operator.
    NotOpenClosed = (403, NotOpen, Instance, "not_open_closed", false, Stop, Rejected,
        "活动已结束", "The sale has ended.");

    // Status.
    /// The request id was never accepted; a tombstone keeps it so (design §12.5).
    NotAccepted = (200, NotAccepted, Status, "not_accepted", false, Stop, NotAccepted,
        "该请求未被受理", "This request was not accepted and will not be.");
    /// A unit is held, the order message waits.
    StatusReserved = (200, SeckillStatus, Status, "status_reserved", false, Poll, Reserved,
        "已预占库存，订单处理中", "A unit is held for you; the order is being made.");
    /// A unit is held, the order is being made.
    StatusQueued = (200, SeckillStatus, Status, "status_queued", false, Poll, Queued,
        "订单处理中", "The order is being made.");
    /// The order exists and waits for payment.
    StatusCreated = (200, SeckillStatus, Status, "status_created", false, Pay, Created,
        "订单已创建，请尽快支付", "The order exists; please pay it.");
    /// The order is paid.
    StatusPaid = (200, SeckillStatus, Status, "status_paid", false, Stop, Paid,
        "订单已支付", "The order is paid.");
    /// The order was closed unpaid.
    StatusClosed = (200, SeckillStatus, Status, "status_closed", false, Stop, Closed,
        "订单已关闭", "The order was closed because it was not paid in time.");
    /// The order could not be made; `detail` says why.
    StatusFailed = (200, SeckillStatus, Status, "status_failed", false, Stop, Failed,
        "订单创建失败，库存已释放", "The order could not be made; the unit was released.");
    /// Paid after closing.
    StatusPaidLate = (200, SeckillStatus, Status, "status_paid_late", false, Stop, PaidLate,
        "支付晚于订单关闭，款项将退回", "The payment came after the order was closed; it will be refunded.");
    /// The result is still unknown.
    StatusPending = (202, SeckillPending, Status, "status_pending", false, Poll, Pending,
        "结果尚未确定，请稍后查询", "The result is not known yet; ask again later.");
    /// The status query found every slot reserved for status taken, or its mail box full.
    StatusBusy = (503, SystemOverloaded, Status, "status_busy", true, RetryAfter, Pending,
        "查询繁忙，请稍后重试", "Status queries are busy; ask again later.");
    /// The part that knows the status did not answer.
    StatusUnavailable = (503, DependencyUnavailable, Status, "status_unavailable", true, RetrySameRequest, Pending,
        "暂时无法查询，请稍后重试", "The status cannot be read now; ask again later.");

    // The payment callback.
    /// The payment is booked, the order is paid.
    PaymentAccepted = (200, PaymentAccepted, Payment, "payment_accepted", false, Stop, Paid,
        "支付已入账", "The payment is booked.");
    /// This payment id was booked before with the same content.
    PaymentRepeated = (200, PaymentRepeated, Payment, "payment_repeated", false, Stop, Paid,
        "该支付通知已处理", "This payment was booked before.");
    /// The order was closed before the payment came: noted for refund.
    PaymentLate = (200, PaymentRefundDue, Payment, "payment_late", false, Stop, PaidLate,
        "订单已关闭，款项将退回", "The order was closed; the payment is noted for refund.");
    /// The order was paid already by another payment id: noted for refund.
    PaymentSurplus = (200, PaymentRefundDue, Payment, "payment_surplus", false, Stop, Paid,
        "订单已支付，重复款项将退回", "The order was paid already; this payment is noted for refund.");
    /// The callback's body is not the one JSON object; `detail` names the member.
    PaymentInvalid = (400, InvalidArgument, Payment, "payment_invalid", false, FixRequest, Rejected,
        "支付通知参数不合法", "The payment callback is not valid.");
    /// Amount or currency differ from the order's.
    PaymentAmount = (400, InvalidArgument, Payment, "payment_amount", false, Alert, Rejected,
        "支付金额与订单不符", "The amount or currency differs from the order's.");
    /// The payment id was used with another content.
    PaymentConflict = (400, RequestIdConflict, Payment, "payment_conflict", false, Alert, Rejected,
        "同一支付编号对应不同业务内容", "This payment id was used for something else.");
    /// The callback's HMAC is missing or does not verify, or its time is out of the window.
    PaymentSignature = (401, Unauthenticated, Payment, "payment_signature", false, Reauthenticate, Rejected,
        "支付通知签名无效", "The signature of the payment callback is missing or wrong.");
    /// No order with this reservation id (or none yet).
    PaymentUnknown = (404, NotFound, Payment, "payment_unknown", true, RetrySameRequest, Rejected,
        "订单不存在", "There is no such order.");
    /// As many payments as this shard lets wait are waiting; nothing was booked, the provider delivers again.
    PaymentBusy = (503, SystemOverloaded, Payment, "payment_busy", true, RetryAfter, Pending,
        "支付通知繁忙，请稍后重试", "Payments are busy; deliver it again later.");
    /// The worker did not answer in time or cannot work; the provider delivers again.
    PaymentUnavailable = (503, DependencyUnavailable, Payment, "payment_unavailable", true, RetrySameRequest, Pending,
        "支付通知暂时无法处理，请重试", "The payment cannot be booked now; deliver it again.");

    // The route.
    /// No such path.
    UnknownPath = (404, NotFound, Route, "unknown_path", false, Stop, Rejected,
        "路径不存在", "There is nothing at this path.");
    /// The path id is not the one of a live activity version.
    WrongPathId = (404, NotFound, Route, "wrong_path_id", false, Stop, Rejected,
        "路径不存在", "There is nothing at this path.");
    /// No such activity or SKU.
    UnknownSku = (404, NotFound, Route, "unknown_sku", false, Stop, Rejected,
        "活动或商品不存在", "There is no such activity or item.");
    /// The path does not take this method (TRACE never; RFC 9110 §15.5.6).
    MethodNotAllowed = (405, MethodNotAllowed, Route, "method_not_allowed", false, FixRequest, Rejected,
        "不支持该请求方法", "This method is not allowed here; see Allow.");

    // The bytes. Each closes the connection.
    /// Any breach of RFC 9112's grammar that has no row of its own.
    HttpSyntax = (400, InvalidArgument, Http, "http_syntax", false, FixRequest, Rejected,
        "HTTP 请求格式错误", "The request is not well-formed HTTP/1.1.");
    /// Request line or target is malformed (RFC 9112 §3).
    HttpTarget = (400, InvalidArgument, Http, "http_target", false, FixRequest, Rejected,
        "HTTP 请求行错误", "The request line is not valid.");
    /// A header line is malformed: name, space before the colon, obs-fold, bare CR or LF (RFC 9112 §5).
    HttpHeader = (400, InvalidArgument, Http, "http_header", false, FixRequest, Rejected,
        "HTTP 请求头错误", "A header line is not valid.");
    /// Not exactly one valid Host, or an absolute target with another authority (RFC 9112 §3.2).
    HttpHost = (400, InvalidArgument, Http, "http_host", false, FixRequest, Rejected,
        "Host 请求头错误", "Exactly one valid Host is required.");
    /// Content-Length is malformed, repeated with other values or combined with Transfer-Encoding (RFC 9112 §6.3).
    HttpLength = (400, InvalidArgument, Http, "http_length", false, FixRequest, Rejected,
        "Content-Length 错误", "Content-Length is not valid.");
    /// Transfer-Encoding is not exactly `chunked`, or not allowed here (RFC 9112 §6.1).
    HttpTransferEncoding = (400, InvalidArgument, Http, "http_transfer_encoding", false, FixRequest, Rejected,
        "Transfer-Encoding 错误", "Transfer-Encoding is not valid.");
    /// A chunk, its extension or a trailer is malformed or too long (RFC 9112 §7.1).
    HttpChunk = (400, InvalidArgument, Http, "http_chunk", false, FixRequest, Rejected,
        "分块编码错误", "The chunked body is not valid.");
    /// The PROXY protocol header is missing, malformed, or comes from a peer that is not trusted.
    ProxyHeader = (400, InvalidArgument, Http, "proxy_header", false, FixRequest, Rejected,
        "PROXY 协议头错误", "A valid PROXY protocol header is required.");
    /// The head did not arrive in time.
    HttpHeadTimeout = (408, RequestTimeout, Http, "http_head_timeout", true, RetrySameRequest, Rejected,
        "请求接收超时", "The request did not arrive in time.");
    /// The body did not arrive in time.
    HttpBodyTimeout = (408, RequestTimeout, Http, "http_body_timeout", true, RetrySameRequest, Rejected,
        "请求接收超时", "The request did not arrive in time.");
    /// Body above its limit.
    HttpBodyTooLarge = (413, BodyTooLarge, Http, "http_body_too_large", false, FixRequest, Rejected,
        "请求体过大", "The body is too large.");
    /// Request line above its limit.
    HttpTargetTooLong = (414, TargetTooLong, Http, "http_target_too_long", false, FixRequest, Rejected,
        "请求行过长", "The request line is too long.");
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
    HttpExpectation = (417, ExpectationFailed, Http, "http_expectation", false, FixRequest, Rejected,
        "不支持该 Expect", "Only the expectation 100-continue is supported.");
    /// Head above its limit of bytes or lines.
    HttpHeadTooLarge = (431, HeadTooLarge, Http, "http_head_too_large", false, FixRequest, Rejected,
        "请求头过大", "The head is too large.");
    /// A method that no resource here knows (RFC 9110 §15.6.2).
    HttpMethodUnknown = (501, NotImplemented, Http, "http_method_unknown", false, FixRequest, Rejected,
        "未知的请求方法", "This method is not known here.");
    /// A transfer coding other than chunked (RFC 9112 §6.1).
    HttpCodingUnknown = (501, NotImplemented, Http, "http_coding_unknown", false, FixRequest, Rejected,
        "不支持该传输编码", "Only the transfer coding chunked is supported.");
    /// Neither HTTP/1.1 nor HTTP/1.0 (RFC 9110 §15.6.6).
    HttpVersion = (505, VersionNotSupported, Http, "http_version", false, FixRequest, Rejected,
        "不支持该 HTTP 版本", "Only HTTP/1.1 and HTTP/1.0 are supported.");
}

impl Reason {
    /// The reason's row; a lookup by index.
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The `decision` label: what kind of end this was.
    pub fn decision(self) -> Decision {
        let row = self.row();
        match (row.code, row.http_status) {
            (Code::SeckillQueued, _) => Decision::Admit,
            (Code::RequestReplayed, _) => Decision::Replay,
            (Code::SeckillPending, _) => Decision::Unknown,
            (Code::SeckillSoldOut, _) => Decision::Reject,
            (_, 200) => Decision::Inform,
            _ => Decision::Reject,
        }
    }

    /// The row of a status answer for an order in `state`, or for a state that only status knows.
    ///
    /// `SoldOut` and `Rejected` are not remembered (design §12.1), so the status of such a request is NOT_ACCEPTED.
    pub const fn for_status(state: RequestState) -> Self {
        match state {
            RequestState::Reserved => Self::StatusReserved,
            RequestState::Queued => Self::StatusQueued,
            RequestState::Created => Self::StatusCreated,
            RequestState::Paid => Self::StatusPaid,
            RequestState::Closed => Self::StatusClosed,
            RequestState::Failed => Self::StatusFailed,
            RequestState::PaidLate => Self::StatusPaidLate,
            RequestState::Pending => Self::StatusPending,
            RequestState::SoldOut | RequestState::Rejected | RequestState::NotAccepted => {
                Self::NotAccepted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{EXTENSION_PAIRS, SEED_PAIRS};
    use alloc::collections::BTreeSet;

    #[test]
    fn all_lists_every_row_once_in_table_order() {
        assert_eq!(Reason::ALL.len(), TABLE.len());
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            assert_eq!(reason.row().label, TABLE[index].label);
        }
    }

    #[test]
    fn labels_are_unique_snake_case() {
        let labels: BTreeSet<_> = Reason::ALL.iter().map(|r| r.row().label).collect();
        assert_eq!(labels.len(), Reason::ALL.len());
        for label in labels {
            assert!(
                label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{label}"
            );
        }
    }

    #[test]
    fn pairs_come_from_the_two_tables_and_use_all_of_them() {
        let allowed: BTreeSet<_> = SEED_PAIRS.iter().chain(EXTENSION_PAIRS).copied().collect();
        assert_eq!(allowed.len(), SEED_PAIRS.len() + EXTENSION_PAIRS.len());
        assert_eq!(SEED_PAIRS.len(), 13); // seed 000 §8.5 has thirteen rows
        let used: BTreeSet<_> = Reason::ALL
            .iter()
            .map(|r| (r.row().http_status, r.row().code))
            .collect();
        assert_eq!(used, allowed);
        let codes: BTreeSet<_> = allowed.iter().map(|pair| pair.1).collect();
        assert_eq!(codes.len(), Code::ALL.len());
    }

    #[test]
    fn messages_need_no_escaping_and_exist_in_both_languages() {
        for reason in Reason::ALL {
            let row = reason.row();
            for message in [row.zh, row.en] {
                assert!(!message.is_empty());
                assert!(
                    !message.contains(['"', '\\']) && !message.chars().any(char::is_control),
                    "{message}"
                );
            }
            assert!(!row.zh.is_ascii(), "{:?} has no Chinese message", reason);
            assert!(row.en.is_ascii(), "{:?}", reason);
        }
    }

    #[test]
    fn what_may_be_retried_says_so_consistently() {
        for reason in Reason::ALL {
            let row = reason.row();
            let retries = matches!(
                row.next_action,
                NextAction::RetryAfter | NextAction::RetrySameRequest
            );
            assert_eq!(row.retryable, retries, "{reason:?}");
            if row.http_status == 429 {
                assert!(row.retryable, "{reason:?}: the excess passes by waiting");
            }
            if row.http_status < 300 {
                assert!(
                    !row.retryable,
                    "{reason:?}: an answer is not to be repeated"
                );
            }
        }
    }

    #[test]
    fn a_status_answer_names_the_state_it_was_asked_for() {
        for state in RequestState::ALL.iter().copied() {
            let row = Reason::for_status(state).row();
            if matches!(state, RequestState::SoldOut | RequestState::Rejected) {
                assert_eq!(row.state, RequestState::NotAccepted);
            } else {
                assert_eq!(row.state, state);
            }
        }
    }

    #[test]
    fn decisions_tell_admitted_from_refused() {
        assert_eq!(Reason::Queued.decision(), Decision::Admit);
        assert_eq!(Reason::Replayed.decision(), Decision::Replay);
        assert_eq!(Reason::Pending.decision(), Decision::Unknown);
        assert_eq!(Reason::SoldOutLocal.decision(), Decision::Reject);
        assert_eq!(Reason::StatusPaid.decision(), Decision::Inform);
        assert_eq!(Reason::LimitedUser.decision(), Decision::Reject);
    }
}
