//! Parsing and answering allocate nothing once the output has grown. One test: the counter is the process's.

use weir_proto::http::date::DateCache;
use weir_proto::http::response::{self, Meta, Status};
use weir_proto::http::{Field, Parsed, RequestParser, cors};
use weir_proto::limits::BODY_BYTES_MAX;

#[path = "../../tests/support/counting.rs"]
mod counting;

/// The shop whose page calls.
const SHOP: &[u8] = b"https://shop.test";

/// Serves all of `input`, answering each request by an echo of its body; returns how many it served.
fn serve(
    input: &[u8],
    out: &mut Vec<u8>,
    scratch: &mut [u8; BODY_BYTES_MAX],
    date: &mut DateCache,
) -> usize {
    let mut parser = RequestParser::default();
    let (mut start, mut served) = (0, 0);
    for end in [input.len() / 3, input.len()] {
        loop {
            match parser.parse(&input[start..end]) {
                Parsed::Done { request, consumed } => {
                    date.update(served as u64 * 700);
                    let meta = Meta {
                        retry_after_s: Some(3),
                        cors_origin: cors::allowed_origin(&[SHOP], &request).map(|_| SHOP),
                        ..Meta::new(date, request.connection())
                    };
                    let open = response::begin(out, Status::Accepted, &meta);
                    out.extend_from_slice(request.body.in_one(scratch));
                    out.extend_from_slice(request.field(Field::Host).unwrap_or_default());
                    for source in request.x_forwarded_for() {
                        out.extend_from_slice(source);
                    }
                    open.finish(out);
                    start += consumed;
                    served += 1;
                }
                Parsed::NeedMore => break,
                Parsed::Continue => out.extend_from_slice(response::CONTINUE),
                Parsed::Reject(reject) => panic!("{reject:?}"),
            }
        }
    }
    served
}

#[test]
fn a_request_and_its_answer_allocate_nothing() {
    let one = "POST /v1/seckill/p HTTP/1.1\r\nHost: weir.test\r\nAuthorization: Bearer abc.def.ghi\r\nOrigin: https://shop.test\r\n\
        X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2\r\nContent-Length: 5\r\n\r\nhello\
        POST /v1/seckill/p HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: x\r\n\r\n";
    let input = one.repeat(50).into_bytes();
    let mut out = Vec::new();
    let mut scratch = [0; BODY_BYTES_MAX];
    let mut date = DateCache::default();
    assert_eq!(serve(&input, &mut out, &mut scratch, &mut date), 100);
    let warmed = out.capacity();
    out.clear();
    let before = counting::allocations();
    assert!(before > 0, "the counter counts");
    let served = serve(&input, &mut out, &mut scratch, &mut date);
    let after = counting::allocations();
    assert_eq!((served, after - before, out.capacity()), (100, 0, warmed));
}
