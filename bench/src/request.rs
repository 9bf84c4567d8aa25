//! Writes whole HTTP/1.1 requests into a connection's outbox.
//!
//! For workloads. Every text given here is already in its grammar (ids, tokens, a checked path): nothing is escaped.

use weir_proto::submit::Submit;

/// Where submits go, and how they are addressed.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// The Host header.
    pub host: &'a str,
    /// The path's last part.
    pub path_id: &'a str,
}

/// The credentials of a submit or a status query.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The ticket.
    pub ticket: &'a [u8],
    /// The raw device id for `X-Weir-Device`, when the ticket binds one.
    pub device: Option<&'a [u8]>,
}

/// `method path` without a body; `headers`: whole lines with their CRLF, or empty.
pub fn put_plain(out: &mut Vec<u8>, method: &str, path: &str, host: &str, headers: &str) {
    for part in [
        method,
        " ",
        path,
        " HTTP/1.1\r\nHost: ",
        host,
        "\r\n",
        headers,
        "\r\n",
    ] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// `POST /v1/seckill/{path_id}` with the one object of design §4.
pub fn put_submit(
    out: &mut Vec<u8>,
    route: Route<'_>,
    credentials: Credentials<'_>,
    submit: &Submit,
) {
    for part in [
        "POST /v1/seckill/",
        route.path_id,
        " HTTP/1.1\r\nHost: ",
        route.host,
        "\r\n",
    ] {
        out.extend_from_slice(part.as_bytes());
    }
    put_credentials(out, credentials);
    out.extend_from_slice(b"Content-Type: application/json\r\nContent-Length: 000\r\n\r\n");
    let body_at = out.len();
    let length_at = body_at - LENGTH_DIGITS - b"\r\n\r\n".len();
    put_submit_body(out, submit);
    let mut length = out.len() - body_at;
    debug_assert!(
        length < 1_000,
        "ids of 20 digits and a request id of 64 bytes take 230"
    );
    for digit in out[length_at..length_at + LENGTH_DIGITS].iter_mut().rev() {
        *digit = b'0' + (length % 10) as u8;
        length /= 10;
    }
}

const LENGTH_DIGITS: usize = 3;

/// The JSON object of a submit.
pub fn put_submit_body(out: &mut Vec<u8>, submit: &Submit) {
    out.extend_from_slice(b"{\"request_id\":\"");
    out.extend_from_slice(submit.request_id.as_bytes());
    out.push(b'"');
    for (name, value) in [
        (",\"activity_id\":", submit.activity.0),
        (",\"sku_id\":", submit.sku.0),
        (",\"user_id\":", submit.user.0),
        (",\"quantity\":", submit.quantity.into()),
    ] {
        out.extend_from_slice(name.as_bytes());
        put_u64(out, value);
    }
    if submit.attempt > 0 {
        out.extend_from_slice(b",\"attempt\":");
        put_u64(out, submit.attempt.into());
    }
    out.push(b'}');
}

/// `GET /v1/activities/{a}/skus/{s}/requests/{request_id}`: what became of the submit.
pub fn put_status(out: &mut Vec<u8>, host: &str, credentials: Credentials<'_>, submit: &Submit) {
    out.extend_from_slice(b"GET /v1/activities/");
    put_u64(out, submit.activity.0);
    out.extend_from_slice(b"/skus/");
    put_u64(out, submit.sku.0);
    out.extend_from_slice(b"/requests/");
    out.extend_from_slice(submit.request_id.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(host.as_bytes());
    out.extend_from_slice(b"\r\n");
    put_credentials(out, credentials);
    out.extend_from_slice(b"\r\n");
}

fn put_credentials(out: &mut Vec<u8>, credentials: Credentials<'_>) {
    out.extend_from_slice(b"Authorization: Bearer ");
    out.extend_from_slice(credentials.ticket);
    out.extend_from_slice(b"\r\n");
    if let Some(device) = credentials.device {
        out.extend_from_slice(b"X-Weir-Device: ");
        out.extend_from_slice(device);
        out.extend_from_slice(b"\r\n");
    }
}

/// Decimal digits.
pub fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20]; // 2^64-1 has 20 digits
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_proto::http::{Parsed, RequestParser};
    use weir_proto::ids::{ActivityId, SkuId, UserId};
    use weir_proto::limits::BODY_BYTES_MAX;

    fn submit() -> Submit {
        Submit {
            request_id: weir_proto::submit::request_id(b"req-0000-0001").unwrap(),
            activity: ActivityId(9001),
            sku: SkuId(u64::MAX >> 1),
            user: UserId(1),
            quantity: 1,
            attempt: 2,
        }
    }

    #[test]
    fn the_servers_own_parser_reads_a_submit_back() {
        let mut out = Vec::new();
        let route = Route {
            host: "127.0.0.1:8080",
            path_id: "p9f3a1",
        };
        let credentials = Credentials {
            ticket: b"w1.k.abc",
            device: Some(b"phone"),
        };
        put_submit(&mut out, route, credentials, &submit());
        let mut parser = RequestParser::default();
        let Parsed::Done { request, consumed } = parser.parse(&out) else {
            panic!("{:?}", String::from_utf8_lossy(&out));
        };
        assert_eq!(consumed, out.len());
        let mut scratch = [0; BODY_BYTES_MAX];
        let body = request.body.in_one(&mut scratch);
        assert_eq!(Submit::parse(body, None), Ok(submit()));
    }

    #[test]
    fn a_status_query_and_a_plain_request_are_whole() {
        let mut out = Vec::new();
        let credentials = Credentials {
            ticket: b"t",
            device: None,
        };
        put_status(&mut out, "h:1", credentials, &submit());
        put_plain(&mut out, "HEAD", "/healthz", "h:1", "A: b\r\n");
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            format!(
                "GET /v1/activities/9001/skus/{}/requests/req-0000-0001 HTTP/1.1\r\nHost: h:1\r\n\
                 Authorization: Bearer t\r\n\r\nHEAD /healthz HTTP/1.1\r\nHost: h:1\r\nA: b\r\n\r\n",
                u64::MAX >> 1
            )
        );
    }
}
