//! Paths: which resource a request names, and which methods it has. Cheap: no allocation, nothing decoded.
//!
//! Used by [`super::intake`]. A percent sign in a path names nothing here: our ids need no escaping.

use weir_proto::http::Method;
use weir_proto::ids::{ActivityId, RequestId, SkuId};
use weir_proto::submit::request_id;

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// Submit; the path id as sent.
    Submit(&'a [u8]),
    /// Status of one request.
    Status {
        /// The activity.
        activity: ActivityId,
        /// The SKU.
        sku: SkuId,
        /// The client's key.
        request_id: RequestId,
    },
    /// A status path whose request id is malformed.
    BadRequestId,
    /// Payment callback.
    Payment,
    /// The whole server (OPTIONS only).
    Server,
    /// Nothing.
    Unknown,
}

impl<'a> Route<'a> {
    /// Reads a path.
    pub fn of(path: &'a [u8]) -> Self {
        if let Some(path_id) = path.strip_prefix(b"/v1/seckill/") {
            return if path_id.is_empty() || path_id.contains(&b'/') {
                Self::Unknown
            } else {
                Self::Submit(path_id)
            };
        }
        if let Some(rest) = path.strip_prefix(b"/v1/activities/") {
            return Self::status(rest).unwrap_or(Self::Unknown);
        }
        match path {
            b"/v1/payments/callback" => Self::Payment,
            b"*" => Self::Server,
            _ => Self::Unknown,
        }
    }

    fn status(rest: &'a [u8]) -> Option<Self> {
        let mut parts = rest.split(|&byte| byte == b'/');
        let activity = ActivityId(id(parts.next()?)?);
        if parts.next()? != b"skus" {
            return None;
        }
        let sku = SkuId(id(parts.next()?)?);
        if parts.next()? != b"requests" {
            return None;
        }
        let request = parts.next()?;
        if parts.next().is_some() {
            return None;
        }
        Some(match request_id(request) {
            Some(request_id) => Self::Status {
                activity,
                sku,
                request_id,
            },
            None => Self::BadRequestId,
        })
    }

    /// The methods that the resource has, for `Allow`; `None` when there is no resource.
    pub fn allow(&self) -> Option<&'static str> {
        match self {
            Self::Submit(_) | Self::Payment => Some("POST, OPTIONS"),
            Self::Status { .. } | Self::BadRequestId => Some("GET, HEAD, OPTIONS"),
            Self::Server => Some("GET, HEAD, POST, OPTIONS"),
            Self::Unknown => None,
        }
    }

    /// True when the resource has `method`, OPTIONS apart.
    pub fn takes(&self, method: Method) -> bool {
        match self {
            Self::Submit(_) | Self::Payment => method == Method::Post,
            Self::Status { .. } | Self::BadRequestId => {
                matches!(method, Method::Get | Method::Head)
            }
            Self::Server | Self::Unknown => false,
        }
    }
}

/// Digits only (field bug R02), 1..=2^63-1.
fn id(digits: &[u8]) -> Option<u64> {
    if digits.is_empty()
        || digits.len() > 19
        || digits[0] == b'0'
        || !digits.iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    let value = digits
        .iter()
        .fold(0_u64, |value, digit| value * 10 + u64::from(digit - b'0')); // 19 digits fit
    (value <= i64::MAX as u64).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_strictly() {
        assert_eq!(Route::of(b"/v1/seckill/p_1"), Route::Submit(b"p_1"));
        assert_eq!(Route::of(b"/v1/seckill/"), Route::Unknown);
        assert_eq!(Route::of(b"/v1/seckill/p/1"), Route::Unknown);
        assert_eq!(Route::of(b"/v1/payments/callback"), Route::Payment);
        let status = Route::of(b"/v1/activities/10001/skus/90001/requests/req-00000001");
        let Route::Status {
            activity,
            sku,
            request_id,
        } = status
        else {
            panic!("{status:?}")
        };
        assert_eq!(
            (activity.0, sku.0, request_id.as_str()),
            (10001, 90001, "req-00000001")
        );
        assert_eq!(
            Route::of(b"/v1/activities/1/skus/2/requests/short"),
            Route::BadRequestId
        );
        for path in [
            &b"/v1/activities/0/skus/2/requests/req-00000001"[..],
            b"/v1/activities/+1/skus/2/requests/req-00000001",
            b"/v1/activities/01/skus/2/requests/req-00000001",
            b"/v1/activities/9223372036854775808/skus/2/requests/req-00000001",
            b"/v1/activities/1/skus/2/requests/req-00000001/x",
            b"/v1/activities/1/skus/2/requests",
            b"/",
        ] {
            assert_eq!(
                Route::of(path),
                Route::Unknown,
                "{}",
                core::str::from_utf8(path).unwrap()
            );
        }
    }
}
