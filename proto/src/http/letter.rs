//! Whole answers written ahead, one for each reason, language and connection: what most refused requests get differs in
//! date, request id and time only, and in a few lines and members that are put between.
//!
//! Used by a shard for every reply. The letters are cut from what the general writers make, so there is one text of each
//! answer; an answer that no letter fits goes to them.

use super::Connection;
use super::date::DateCache;
use super::response::{ContentType, LENGTH, LENGTH_DIGITS, Meta, Status, begin, put_extra_lines};
use crate::answer::{AnswerBody, Lang, Reason};
use crate::ids::RequestId;
use alloc::boxed::Box;
use alloc::vec::Vec;

const CONNECTIONS: [Connection; 3] = [Connection::Keep, Connection::KeepNamed, Connection::Close];
/// From the end of the extra lines to the request id.
const BODY_OPENS: &[u8] = b"Content-Length: 000\r\n\r\n{\"request_id\":";
const DATE_NAME: &[u8] = b"Date: ";
const TIME_NAME: &[u8] = b"\"server_time\":\"";

/// One answer in two pieces: up to the extra lines, and from the request id to `server_time`.
#[derive(Debug)]
struct Letter {
    head: Box<[u8]>,
    date_at: usize,
    rest: Box<[u8]>,
    time_at: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Letters {
    /// By reason, language and connection, in this order; `None` for a status without a body.
    letters: Box<[Option<Letter>]>,
}

impl Letters {
    /// Bytes of all letters at most; a test holds it.
    pub const BYTES_MAX: usize = 384 * 1024;

    /// Writes every letter.
    pub fn new() -> Self {
        let mut letters =
            Vec::with_capacity(Reason::ALL.len() * Lang::ALL.len() * CONNECTIONS.len());
        for &reason in Reason::ALL {
            for lang in Lang::ALL {
                letters.extend(CONNECTIONS.map(|connection| Letter::new(reason, lang, connection)));
            }
        }
        Self {
            letters: letters.into_boxed_slice(),
        }
    }

    /// Appends the whole answer to `out`.
    pub fn write(&self, out: &mut Vec<u8>, meta: &Meta<'_>, body: &AnswerBody<'_>) {
        let at = (body.reason as usize * Lang::ALL.len() + body.lang as usize) * CONNECTIONS.len()
            + meta.connection as usize;
        match &self.letters[at] {
            Some(letter) if Letter::fits(meta, body) => letter.write(out, meta, body),
            _ => {
                let open = begin(out, Status::of(body.reason), meta);
                body.encode(out);
                open.finish(out);
            }
        }
    }
}

impl Default for Letters {
    fn default() -> Self {
        Self::new()
    }
}

impl Letter {
    fn new(reason: Reason, lang: Lang, connection: Connection) -> Option<Self> {
        let status = Status::of(reason);
        if !status.has_body() {
            return None;
        }
        let date = DateCache::default();
        let request_id = RequestId::new(b"0").expect("a visible byte");
        let mut body = AnswerBody::new(reason, lang, date.server_time());
        body.request_id = Some(&request_id);
        let mut text = Vec::new();
        let open = begin(&mut text, status, &Meta::new(&date, connection));
        body.encode(&mut text);
        open.finish(&mut text);
        let find = |what: &[u8]| memchr::memmem::find(&text, what).expect("every answer has it");
        let head_end = find(b"Content-Length: ");
        let rest_at = find(b"{\"request_id\":\"0\"") + b"{\"request_id\":\"0\"".len();
        Some(Self {
            head: text[..head_end].into(),
            date_at: find(DATE_NAME) + DATE_NAME.len(),
            rest: text[rest_at..text.len() - 1].into(), // its `}` comes after the extensions
            time_at: find(TIME_NAME) + TIME_NAME.len() - rest_at,
        })
    }

    fn fits(meta: &Meta<'_>, body: &AnswerBody<'_>) -> bool {
        !meta.head_only && meta.content_type == ContentType::Json && body.is_as_its_row()
    }

    fn write(&self, out: &mut Vec<u8>, meta: &Meta<'_>, body: &AnswerBody<'_>) {
        let head_at = out.len();
        out.extend_from_slice(&self.head);
        put(out, head_at + self.date_at, meta.date.text());
        put_extra_lines(out, meta);
        let body_at = out.len() + LENGTH.len();
        out.extend_from_slice(BODY_OPENS);
        body.put_request_id(out);
        let rest_at = out.len();
        out.extend_from_slice(&self.rest);
        put(out, rest_at + self.time_at, body.server_time);
        body.put_extensions(out);
        out.push(b'}');
        let body_bytes = out.len() - body_at;
        // A body has at least the letter's hundreds of bytes, and less than 1,000: a request id and a detail are bounded, and
        // neither holds a control byte, which would take six.
        debug_assert!((100..1_000).contains(&body_bytes));
        let digits = [body_bytes / 100, body_bytes / 10 % 10, body_bytes % 10];
        put(
            out,
            body_at - b"\r\n\r\n".len() - LENGTH_DIGITS,
            &digits.map(|digit| b'0' + digit as u8),
        );
    }
}

fn put<const N: usize>(out: &mut [u8], at: usize, text: &[u8; N]) {
    out[at..at + N].copy_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Code, RequestState};
    use crate::http::quota::Quota;
    use crate::ids::ReservationId;
    use crate::limits::ANSWER_DETAIL_BYTES_MAX;

    /// What the general writers make of the same.
    fn written(meta: &Meta<'_>, body: &AnswerBody<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let open = begin(&mut out, Status::of(body.reason), meta);
        body.encode(&mut out);
        open.finish(&mut out);
        out
    }

    #[test]
    fn every_letter_is_what_the_general_writers_make() {
        let letters = Letters::new();
        let mut date = DateCache::default();
        date.update(1_782_388_800_123);
        let ids =
            [&b"12345678"[..], &[b'z'; 64], b"\"quoted\\"].map(|id| RequestId::new(id).unwrap());
        let detail = "d\"".repeat(ANSWER_DETAIL_BYTES_MAX / 2);
        let quota = Quota {
            name: "user",
            quota: 3,
            window_s: 2,
            remaining: 0,
            grows_s: 7,
        };
        let mut count = 0;
        for &reason in Reason::ALL {
            for lang in Lang::ALL {
                for connection in CONNECTIONS {
                    for variant in 0..64_u32 {
                        let on = |bit: u32| variant & (1 << bit) != 0;
                        let mut meta = Meta::new(&date, connection);
                        meta.retry_after_s = on(0).then_some(17);
                        meta.quota = on(1).then_some(quota);
                        meta.allow = on(2).then_some("POST, OPTIONS");
                        meta.cors_origin = on(2).then_some(b"https://shop.example");
                        meta.head_only = variant == 63;
                        let mut body = AnswerBody::new(reason, lang, date.server_time());
                        body.request_id = ids.get(variant as usize % 4);
                        body.retry_after_ms = on(0).then_some(16_001);
                        body.opens_in_ms = on(3).then_some(u64::MAX);
                        body.original = on(3).then_some(Code::SeckillQueued);
                        body.detail = on(4).then_some(&detail);
                        body.reservation_id = (variant == 5).then_some(ReservationId(9));
                        body.next_poll_after_ms = (variant == 6).then_some(500);
                        if variant == 7 {
                            body.state = RequestState::Paid;
                        }
                        let mut out = b"before".to_vec();
                        letters.write(&mut out, &meta, &body);
                        assert_eq!(out[6..], written(&meta, &body), "{reason:?} {variant}");
                        count += u32::from(Letter::fits(&meta, &body));
                    }
                }
            }
        }
        assert!(count as usize > 58 * letters.letters.len());
        let texts = letters.letters.iter().flatten();
        let bytes: usize = texts
            .map(|letter| letter.head.len() + letter.rest.len())
            .sum();
        let bytes = bytes + size_of_val(&*letters.letters);
        assert!(
            (Letters::BYTES_MAX / 2..Letters::BYTES_MAX).contains(&bytes),
            "{bytes}"
        );
    }
}
