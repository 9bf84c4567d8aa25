//! From the errors of tickets, submits and callbacks to the one table of reasons (`HttpReject` names its row itself).
//!
//! Called by weir-core where a parser refuses. Each `match` is complete, so a new error cannot be forgotten here. The
//! errors' own texts go into the answer's `detail` by way of [`DetailText`]; they hold no value of the request.

use super::reason::Reason;
use crate::json::{JsonError, MemberFault};
use crate::limits::ANSWER_DETAIL_BYTES_MAX;
use crate::payment::PaymentReject;
use crate::signature::SignatureReject;
use crate::submit::SubmitError;
use crate::ticket::TicketReject;
use core::fmt;

impl From<TicketReject> for Reason {
    fn from(reject: TicketReject) -> Self {
        match reject {
            TicketReject::Missing => Self::TicketMissing,
            TicketReject::Size
            | TicketReject::Shape
            | TicketReject::Base64
            | TicketReject::Header => Self::TicketShape,
            TicketReject::Alg | TicketReject::Kid => Self::TicketKey,
            TicketReject::Signature => Self::TicketSignature,
            TicketReject::Claims => Self::TicketClaims,
            TicketReject::NotYet => Self::TicketNotYet,
            TicketReject::Expired => Self::TicketExpired,
            TicketReject::Binding(_) => Self::TicketBinding,
            TicketReject::Device => Self::TicketDevice,
        }
    }
}

impl From<&SubmitError> for Reason {
    fn from(error: &SubmitError) -> Self {
        match error {
            SubmitError::Json(JsonError::Member { name, fault })
                if name.as_str() == "quantity"
                    && matches!(fault, MemberFault::OutOfRange { .. }) =>
            {
                Self::InvalidQuantity
            }
            SubmitError::Json(_) => Self::InvalidBody,
            SubmitError::NoRequestId | SubmitError::IdempotencyKey => Self::InvalidRequestId,
            SubmitError::RequestIdsDiffer => Self::IdempotencyMismatch,
        }
    }
}

impl From<SignatureReject> for Reason {
    fn from(reject: SignatureReject) -> Self {
        match reject {
            SignatureReject::Missing => Self::SignatureMissing,
            SignatureReject::Shape => Self::SignatureShape,
            SignatureReject::Key => Self::SignatureKey,
            SignatureReject::Stale => Self::SignatureStale,
            SignatureReject::Mac => Self::SignatureWrong,
        }
    }
}

impl From<&PaymentReject> for Reason {
    fn from(reject: &PaymentReject) -> Self {
        match reject {
            PaymentReject::Missing
            | PaymentReject::Shape
            | PaymentReject::Signature
            | PaymentReject::Stale => Self::PaymentSignature,
            PaymentReject::Body(_) => Self::PaymentInvalid,
        }
    }
}

/// An error's text kept inline for [`super::AnswerBody::detail`]: no allocation, cut between characters when too long.
#[derive(Clone, Copy)]
pub struct DetailText {
    bytes: [u8; ANSWER_DETAIL_BYTES_MAX],
    len: usize,
}

impl DetailText {
    /// The first `ANSWER_DETAIL_BYTES_MAX` bytes of what `error` displays.
    pub fn of(error: &impl fmt::Display) -> Self {
        use fmt::Write as _;
        let mut text = Self {
            bytes: [0; ANSWER_DETAIL_BYTES_MAX],
            len: 0,
        };
        // An error means that the text was cut, which is what we want.
        let _ = write!(text, "{error}");
        text
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len])
            .expect("DetailText is cut between characters only")
    }
}

impl fmt::Write for DetailText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = ANSWER_DETAIL_BYTES_MAX - self.len;
        let kept = text.floor_char_boundary(room);
        self.bytes[self.len..self.len + kept].copy_from_slice(&text.as_bytes()[..kept]);
        self.len += kept;
        if kept == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

impl fmt::Debug for DetailText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::Submit;

    #[test]
    fn details_are_the_errors_texts_and_are_cut_between_characters() {
        let error = Submit::parse(b"{}", None).unwrap_err();
        assert_eq!(Reason::from(&error), Reason::InvalidBody);
        assert_eq!(DetailText::of(&error).as_str(), alloc::format!("{error}"));
        let long = "票".repeat(ANSWER_DETAIL_BYTES_MAX);
        let cut = DetailText::of(&long);
        assert!(long.starts_with(cut.as_str()) && cut.as_str().len() > ANSWER_DETAIL_BYTES_MAX - 3);
    }
}
