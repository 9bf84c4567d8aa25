//! What an operator is told when a request is not served: status, code and message in one table, as on the public side.
//!
//! Codes are the public ones (`weir_proto::answer`), so that one client reads both. Messages repeat no byte of a request;
//! a `detail` names the member at fault.

use super::reply::Reply;
use serde::Serialize;
use weir_proto::answer::Code;
use weir_proto::http::HttpReject;
use weir_proto::http::response::Status;
use weir_proto::json::JsonError;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $code:ident, $message:literal;)*) => {
        /// Every way a request of an operator can end without being served.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Fault { $($(#[$doc])* $name,)* }

        impl Fault {
            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            const fn row(self) -> (Status, Code, &'static str) {
                match self { $(Self::$name => (Status::$status, Code::$code, $message),)* }
            }
        }
    };
}

faults! {
    /// A web page asks.
    Origin = BadRequest, InvalidArgument,
        "Requests of web pages (with an Origin header) are not served here; use curl or a program.";
    /// The Host is a name that could be anybody's.
    ForeignHost = BadRequest, InvalidArgument,
        "The Host must be localhost, a loopback address or the address that this listener is bound to.";
    /// No token or a wrong one.
    TokenNeeded = Unauthorized, Unauthenticated,
        "The operator's token is required: send it as Authorization: Bearer.";
    /// Nothing here.
    UnknownPath = NotFound, NotFound,
        "There is nothing at this path; see GET /healthz, /readyz, /metrics and POST /ops/v1/...";
    /// Not with this method.
    Method = MethodNotAllowed, MethodNotAllowed, "This method is not allowed here; see Allow.";
    /// The configuration has no such SKU, or the ledger has not.
    UnknownSku = NotFound, NotFound, "There is no such activity or SKU in this sale.";
    /// Not JSON by its type. Also keeps out what a form in a web page could send.
    ContentType = BadRequest, InvalidArgument, "The body must be sent as Content-Type: application/json.";
    /// `detail` names the member.
    Body = BadRequest, InvalidArgument, "The request body is not valid.";
    /// The ticket cannot be minted as asked; `detail` says why.
    Ticket = BadRequest, InvalidArgument, "The ticket cannot be made.";
    /// The same id with another step.
    RequestIdConflict = BadRequest, RequestIdConflict,
        "This request_id was used for another step of this SKU; use a new one.";
    /// Never opened.
    NotOpen = Forbidden, NotOpen, "The SKU was never opened, so this step is not possible; open it first.";
    /// Freeze, thaw and rebuild are for a ledger that can be lost by others.
    NotInRedis = BadRequest, InvalidArgument,
        "The ledger is embedded here: nothing of it is frozen or rebuilt. Use POST .../mode with QUEUE_ONLY, or `weir reconcile`.";
    /// Rebuild where there are no orders.
    OrdersElsewhere = BadRequest, InvalidArgument,
        "The orders are made by another process: send this to the ops listener of `weir worker`.";
    /// Too many units.
    Quantity = BadRequest, InvalidArgument, "So many units cannot be put on sale.";
    /// The ledger remembers as many steps of this SKU as it can.
    StepsFull = ServiceUnavailable, SystemOverloaded,
        "The ledger remembers as many steps of this SKU as it can; nothing was done. Try again tomorrow.";
    /// Too many steps wait, or the ledger's batch is full.
    Busy = ServiceUnavailable, SystemOverloaded,
        "The ledger is busy; nothing was done. Try again with the same request_id.";
    /// The ledger still reads its journal.
    Recovering = ServiceUnavailable, DependencyUnavailable,
        "The ledger is still recovering; nothing was done. Try again with the same request_id.";
    /// The store failed.
    Poisoned = ServiceUnavailable, DependencyUnavailable,
        "The ledger's store failed earlier; nothing is done until a restart. See /readyz and the disk.";
    /// Nobody knows.
    Unknown = Accepted, SeckillPending,
        "The result is not known yet. Send the same request with the same request_id again: it is done once only.";
    /// The owner gave no counters in time.
    OwnerSilent = ServiceUnavailable, DependencyUnavailable, "The ledger's owner did not answer in time.";
    /// No step without a line.
    AuditFailed = ServiceUnavailable, DependencyUnavailable,
        "The audit log cannot be written, so no step is taken until a restart. See the disk.";
    /// A rate and burst that the limit cannot enforce.
    Policy = BadRequest, InvalidArgument, "This limit cannot enforce that rate and burst; nothing was changed.";
    /// The version is not above the one that holds.
    OlderBudget = BadRequest, InvalidArgument,
        "A budget of a newer version holds; nothing was changed. Look at weir_budget_policy_version and send a larger one.";
    /// No subject, or several.
    OneSubject = BadRequest, InvalidArgument,
        "Name exactly one subject: network, user_id, user_hash, device_hash (deny), or all (lifting bans).";
    /// The deny-list is full.
    DenyFull = ServiceUnavailable, SystemOverloaded, "The deny-list is full; nothing was changed.";
    /// The deny-list's file failed.
    DenyFile = ServiceUnavailable, DependencyUnavailable,
        "The deny-list's file cannot be written; nothing was changed. See the disk.";
    /// The head was too slow.
    TooSlow = RequestTimeout, RequestTimeout, "The request did not arrive in time.";
}

/// A request that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: Status,
    code: Code,
    message: &'static str,
    detail: Option<String>,
    allow: Option<&'static str>,
}

#[derive(Serialize)]
struct Body<'a> {
    code: &'static str,
    message: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        let (status, code, message) = fault.row();
        Self {
            status,
            code,
            message,
            detail: None,
            allow: None,
        }
    }
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::from(Fault::Body).with_detail(&error)
    }
}

impl From<HttpReject> for Refusal {
    fn from(reject: HttpReject) -> Self {
        let row = reject.reason().row();
        Self {
            status: reject.status(),
            code: row.code,
            message: row.en,
            detail: Some(reject.detail().to_owned()),
            allow: (reject.status() == Status::MethodNotAllowed).then_some("GET, HEAD, POST"),
        }
    }
}

impl Refusal {
    /// `detail` holds no value of the request.
    pub(super) fn with_detail(mut self, detail: &impl std::fmt::Display) -> Self {
        self.detail = Some(detail.to_string());
        self
    }

    pub(super) fn method(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Fault::Method.into()
        }
    }

    /// The word for the audit log.
    pub(super) fn code(&self) -> &'static str {
        self.code.as_str()
    }

    pub(super) fn reply(&self) -> Reply {
        let body = Body {
            code: self.code.as_str(),
            message: self.message,
            detail: self.detail.as_deref(),
        };
        Reply {
            allow: self.allow,
            ..Reply::json(self.status, &body)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_proto::answer::{EXTENSION_PAIRS, SEED_PAIRS};

    #[test]
    fn pairs_of_status_and_code_are_those_of_the_public_side() {
        for fault in Fault::ALL {
            let (status, code, message) = fault.row();
            let pair = (status.code(), code);
            assert!(
                SEED_PAIRS.contains(&pair) || EXTENSION_PAIRS.contains(&pair),
                "{fault:?}: {pair:?}"
            );
            assert!(message.is_ascii() && message.ends_with('.'), "{message}");
        }
    }
}
