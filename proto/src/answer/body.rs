//! The JSON body of an answer, written straight into the connection's outbox.
//!
//! Called once per answer. Members exactly as seed 000 §8.5 and in its order, always present, null when unknown; then
//! extension members, only when they apply. Invariants: no allocation beyond `out`'s growth; every string that did not
//! come from our own tables is escaped (RFC 8259 §7).

use super::code::{Code, NextAction, RequestState};
use super::lang::Lang;
use super::reason::Reason;
use crate::ids::{RequestId, ReservationId};
use crate::json::plain_bytes;
use crate::limits::ANSWER_DETAIL_BYTES_MAX;
use alloc::vec::Vec;

/// Everything that one answer says. Start with [`AnswerBody::new`], which fills in what the reason's row knows.
#[derive(Clone, Copy, Debug)]
pub struct AnswerBody<'a> {
    /// Gives code and message.
    pub reason: Reason,
    /// The language of the message.
    pub lang: Lang,
    /// The client's request id, when one was read.
    pub request_id: Option<&'a RequestId>,
    /// The reservation, when one exists.
    pub reservation_id: Option<ReservationId>,
    /// The `status` member; a replay names the present or first state here.
    pub state: RequestState,
    /// The `retryable` member.
    pub retryable: bool,
    /// The `next_action` member.
    pub next_action: NextAction,
    /// When to ask for the status, in milliseconds from now.
    pub next_poll_after_ms: Option<u64>,
    /// `original_code`: the code of the first answer (REQUEST_REPLAYED).
    pub original: Option<Code>,
    /// `retry_after_ms`: exact; the header rounds it up.
    pub retry_after_ms: Option<u64>,
    /// `opens_in_ms`: until `opens_at`, coarse.
    pub opens_in_ms: Option<u64>,
    /// `detail`: which argument was wrong and how, in English; cut at `ANSWER_DETAIL_BYTES_MAX`.
    pub detail: Option<&'a str>,
    /// The turn's wall clock in RFC 3339 ([`super::rfc3339_ms`]).
    pub server_time: &'a [u8; 24],
}

impl<'a> AnswerBody<'a> {
    /// An answer with what the row of `reason` says and nothing else known.
    pub fn new(reason: Reason, lang: Lang, server_time: &'a [u8; 24]) -> Self {
        let row = reason.row();
        Self {
            reason,
            lang,
            request_id: None,
            reservation_id: None,
            state: row.state,
            retryable: row.retryable,
            next_action: row.next_action,
            next_poll_after_ms: None,
            original: None,
            retry_after_ms: None,
            opens_in_ms: None,
            detail: None,
            server_time,
        }
    }

    /// Appends the JSON object to `out` (about 350 bytes; under 4 KiB at its longest).
    pub fn encode(&self, out: &mut Vec<u8>) {
        let row = self.reason.row();
        out.extend_from_slice(b"{\"request_id\":");
        self.put_request_id(out);
        match self.reservation_id {
            Some(id) => put_reservation(out, id),
            None => out.extend_from_slice(b",\"reservation_id\":null"),
        }
        out.extend_from_slice(b",\"status\":\"");
        out.extend_from_slice(self.state.as_str().as_bytes());
        out.extend_from_slice(b"\",\"code\":\"");
        out.extend_from_slice(row.code.as_str().as_bytes());
        out.extend_from_slice(b"\",\"message\":\"");
        // The table's messages need no escaping; a test of the table holds that.
        out.extend_from_slice(match self.lang {
            Lang::Zh => row.zh.as_bytes(),
            Lang::En => row.en.as_bytes(),
        });
        out.extend_from_slice(match self.retryable {
            true => b"\",\"retryable\":true,\"next_action\":\"".as_slice(),
            false => b"\",\"retryable\":false,\"next_action\":\"".as_slice(),
        });
        out.extend_from_slice(self.next_action.as_str().as_bytes());
        match self.next_poll_after_ms {
            Some(ms) => {
                out.extend_from_slice(b"\",\"next_poll_after_ms\":");
                put_u64(out, ms);
            }
            None => out.extend_from_slice(b"\",\"next_poll_after_ms\":null"),
        }
        out.extend_from_slice(b",\"server_time\":\"");
        out.extend_from_slice(self.server_time);
        out.push(b'"');
        self.put_extensions(out);
        out.push(b'}');
    }

    /// True when the members before `server_time` are those of the reason's row and nothing else.
    pub(crate) fn is_as_its_row(&self) -> bool {
        let row = self.reason.row();
        self.reservation_id.is_none()
            && self.next_poll_after_ms.is_none()
            && self.state == row.state
            && self.retryable == row.retryable
            && self.next_action == row.next_action
    }

    /// The value of `request_id`.
    pub(crate) fn put_request_id(&self, out: &mut Vec<u8>) {
        match self.request_id {
            Some(request_id) => {
                out.push(b'"');
                put_text(out, request_id);
                out.push(b'"');
            }
            None => out.extend_from_slice(b"null"),
        }
    }

    /// The members that only some answers have.
    pub(crate) fn put_extensions(&self, out: &mut Vec<u8>) {
        if let Some(code) = self.original {
            out.extend_from_slice(b",\"original_code\":\"");
            out.extend_from_slice(code.as_str().as_bytes());
            out.push(b'"');
        }
        for (piece, value) in [
            (b",\"retry_after_ms\":".as_slice(), self.retry_after_ms),
            (b",\"opens_in_ms\":".as_slice(), self.opens_in_ms),
        ] {
            if let Some(ms) = value {
                out.extend_from_slice(piece);
                put_u64(out, ms);
            }
        }
        if let Some(detail) = self.detail {
            let cut = detail.floor_char_boundary(ANSWER_DETAIL_BYTES_MAX);
            out.extend_from_slice(b",\"detail\":\"");
            put_escaped(out, &detail[..cut]);
            out.push(b'"');
        }
    }
}

/// The `Retry-After` header in whole seconds for a wait of `retry_after_ms`: rounded up, at least 1 (RFC 9110 §10.2.3).
///
/// Rounded up, so that a client that knows only the header never comes too early.
pub const fn retry_after_header_s(retry_after_ms: u64) -> u64 {
    match retry_after_ms.div_ceil(1_000) {
        0 => 1,
        seconds => seconds,
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The same text as `ReservationId`'s `Display`, without its formatting machinery.
fn put_reservation(out: &mut Vec<u8>, id: ReservationId) {
    let mut piece = *b",\"reservation_id\":\"rsv_0000000000000000\"";
    let digits_end = piece.len() - 1;
    for (index, nibble) in piece[digits_end - 16..digits_end].iter_mut().enumerate() {
        *nibble = HEX[(id.0 >> (60 - 4 * index) & 0xf) as usize];
    }
    out.extend_from_slice(&piece);
}

fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20]; // 2^64-1 has 20 digits
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends `id` as the inside of a JSON string: nearly always it has nothing to escape.
fn put_text(out: &mut Vec<u8>, id: &RequestId) {
    if id.all(|byte| (byte != 0) & (byte != b'"') & (byte != b'\\')) {
        out.extend_from_slice(id.as_bytes());
    } else {
        put_escaped(out, id.as_str());
    }
}

/// Appends `text` as the inside of a JSON string (RFC 8259 §7).
fn put_escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_bytes(rest));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = special.split_first() else {
            return;
        };
        rest = after;
        if byte >= 0x20 {
            out.extend_from_slice(&[b'\\', byte]);
        } else {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{read_code, read_state, read_text_member, read_u64_member, rfc3339_ms};
    use alloc::string::{String, ToString};
    use alloc::vec;
    use proptest::prelude::*;

    const TIME: &[u8; 24] = b"2026-06-25T12:00:00.123Z";
    const SEED_MEMBERS: [&str; 9] = [
        "request_id",
        "reservation_id",
        "status",
        "code",
        "message",
        "retryable",
        "next_action",
        "next_poll_after_ms",
        "server_time",
    ];

    fn json(body: &AnswerBody<'_>) -> (Vec<u8>, serde_json::Value) {
        let mut out = Vec::new();
        body.encode(&mut out);
        let value = serde_json::from_slice(&out).unwrap();
        (out, value)
    }

    #[test]
    fn the_seeds_example_byte_for_byte() {
        let request_id = RequestId::new(b"req_01J0000").unwrap();
        let time = rfc3339_ms(1_782_388_800_123);
        let mut body = AnswerBody::new(Reason::Queued, Lang::Zh, &time);
        body.request_id = Some(&request_id);
        body.reservation_id = Some(ReservationId(0x1f));
        body.next_poll_after_ms = Some(500);
        let mut out = Vec::new();
        body.encode(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"request_id\":\"req_01J0000\",\"reservation_id\":\"rsv_000000000000001f\",\"status\":\"QUEUED\",\
             \"code\":\"SECKILL_QUEUED\",\"message\":\"请求已进入异步处理\",\"retryable\":false,\"next_action\":\"POLL\",\
             \"next_poll_after_ms\":500,\"server_time\":\"2026-06-25T12:00:00.123Z\"}"
        );
    }

    #[test]
    fn every_reason_in_both_languages_is_json_with_the_seeds_members_in_order() {
        for reason in Reason::ALL.iter().copied() {
            for lang in Lang::ALL {
                let (bytes, value) = json(&AnswerBody::new(reason, lang, TIME));
                let row = reason.row();
                let text = core::str::from_utf8(&bytes).unwrap();
                let mut at = 0;
                for name in SEED_MEMBERS {
                    let found = text.find(&alloc::format!("\"{name}\":")).unwrap();
                    assert!(found >= at, "{name} of {reason:?} is out of order");
                    at = found;
                }
                assert_eq!(value.as_object().unwrap().len(), SEED_MEMBERS.len());
                assert_eq!(value["code"], row.code.as_str());
                assert_eq!(value["status"], row.state.as_str());
                assert_eq!(value["retryable"], row.retryable);
                assert_eq!(value["next_action"], row.next_action.as_str());
                assert!(value["request_id"].is_null() && value["reservation_id"].is_null());
                assert_eq!(read_code(&bytes), Some(row.code));
                assert_eq!(read_state(&bytes), Some(row.state));
            }
        }
    }

    #[test]
    fn extension_members_come_only_when_they_apply() {
        let mut body = AnswerBody::new(Reason::Replayed, Lang::En, TIME);
        body.original = Some(Code::SeckillQueued);
        body.state = RequestState::Paid;
        body.retry_after_ms = Some(0);
        body.opens_in_ms = Some(u64::MAX);
        body.detail = Some("quantity \"x\"\n");
        let (bytes, value) = json(&body);
        assert_eq!(value["original_code"], "SECKILL_QUEUED");
        assert_eq!(value["status"], "PAID");
        assert_eq!(value["retry_after_ms"], 0);
        assert_eq!(value["opens_in_ms"], u64::MAX);
        assert_eq!(value["detail"], "quantity \"x\"\n");
        assert_eq!(read_code(&bytes), Some(Code::RequestReplayed));
        assert_eq!(read_u64_member(&bytes, "opens_in_ms"), Some(u64::MAX));
        assert_eq!(read_u64_member(&bytes, "next_poll_after_ms"), None);
        assert_eq!(
            read_text_member(&bytes, "original_code"),
            Some(b"SECKILL_QUEUED".as_slice())
        );
    }

    #[test]
    fn a_long_detail_is_cut_between_characters() {
        let long = "票".repeat(ANSWER_DETAIL_BYTES_MAX);
        let mut body = AnswerBody::new(Reason::InvalidBody, Lang::En, TIME);
        body.detail = Some(&long);
        let (_, value) = json(&body);
        let detail = value["detail"].as_str().unwrap();
        assert!(
            detail.len() <= ANSWER_DETAIL_BYTES_MAX && detail.len() > ANSWER_DETAIL_BYTES_MAX - 3
        );
        assert!(long.starts_with(detail));
    }

    #[test]
    fn the_header_is_never_earlier_than_the_body() {
        for (ms, seconds) in [
            (0, 1),
            (1, 1),
            (999, 1),
            (1_000, 1),
            (1_001, 2),
            (60_000, 60),
        ] {
            assert_eq!(retry_after_header_s(ms), seconds, "{ms} ms");
        }
        assert_eq!(retry_after_header_s(u64::MAX), u64::MAX / 1_000 + 1);
    }

    #[test]
    fn the_reservation_reads_as_its_display() {
        for id in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            let mut body = AnswerBody::new(Reason::Queued, Lang::En, TIME);
            body.reservation_id = Some(ReservationId(id));
            assert_eq!(
                json(&body).1["reservation_id"],
                ReservationId(id).to_string()
            );
        }
    }

    proptest! {
        #[test]
        fn any_request_id_and_detail_come_back_as_they_were(
            id in "[!-~]{1,64}", detail in any::<String>(), wall_ms in any::<u64>(), ms in any::<u64>(),
        ) {
            let request_id = RequestId::new(id.as_bytes()).unwrap();
            let time = rfc3339_ms(wall_ms);
            let mut body = AnswerBody::new(Reason::LimitedUser, Lang::Zh, &time);
            body.request_id = Some(&request_id);
            body.retry_after_ms = Some(ms);
            body.detail = Some(&detail);
            let (bytes, value) = json(&body);
            prop_assert_eq!(value["request_id"].as_str().unwrap(), id.as_str());
            prop_assert!(detail.starts_with(value["detail"].as_str().unwrap()));
            prop_assert_eq!(value["retry_after_ms"].as_u64(), Some(ms));
            // What a buyer puts into a string must not be read as a member.
            prop_assert_eq!(read_code(&bytes), Some(Code::RateLimited));
            prop_assert_eq!(read_u64_member(&bytes, "retry_after_ms"), Some(ms));
        }
    }

    #[test]
    fn members_inside_a_string_are_not_members() {
        let request_id =
            RequestId::new(b"\",\"code\":\"SECKILL_QUEUED\",\"retry_after_ms\":7,\"").unwrap();
        let mut body = AnswerBody::new(Reason::LimitedUser, Lang::En, TIME);
        body.request_id = Some(&request_id);
        body.retry_after_ms = Some(42);
        let mut out = vec![];
        body.encode(&mut out);
        assert_eq!(read_code(&out), Some(Code::RateLimited));
        assert_eq!(read_u64_member(&out, "retry_after_ms"), Some(42));
    }
}
