//! Every limit of the wire, in one place (style §3). Core's capacities are in weir-core's `limits`.

/// Longest request line, CRLF not counted; a longer one is 414. Room for every path of ours many times over.
pub const REQUEST_LINE_BYTES_MAX: usize = 4 * 1024;
/// Longest head (request line, header lines, blank line); a longer one is 431. Four times a full JWS ticket.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most header lines; more are 431.
pub const HEADER_LINES_MAX: usize = 64;
/// Longest decoded body; a longer one is 413. The one object of design §4 is under 400 bytes.
pub const BODY_BYTES_MAX: usize = 8 * 1024;
/// Longest request id (client's text).
pub const REQUEST_ID_BYTES_MAX: usize = 64;
/// Shortest request id: fewer characters cannot be unique among a million buyers.
pub const REQUEST_ID_BYTES_MIN: usize = 8;
/// Longest nonce of a JWS ticket.
pub const NONCE_BYTES_MAX: usize = 32;
/// Longest path id.
pub const PATH_ID_BYTES_MAX: usize = 16;
/// Longest key id: a UUID, as the example keys of RFC 7520 §3.5 are named.
pub const KEY_ID_BYTES_MAX: usize = 36;
/// Longest ticket; checked before anything else is looked at (seed 000 §8.1).
pub const TICKET_BYTES_MAX: usize = 4096;
/// Longest time a ticket may be valid: what leaks is soon worthless, and nonces need not be kept longer (design §12.12).
pub const TICKET_WINDOW_MS_MAX: u64 = 60 * 60 * 1000;
/// Most leeway for clocks that differ between minting and checking; NTP keeps them within milliseconds.
pub const TICKET_LEEWAY_MS_MAX: u64 = 5_000;
/// Longest JOSE header of a JWS ticket, decoded: alg, typ and the longest kid take 80 bytes.
pub const JOSE_HEADER_BYTES_MAX: usize = 256;
/// Longest claims object of a JWS ticket, decoded: ours take at most 512, the rest is room for white space.
pub const CLAIMS_BYTES_MAX: usize = 1024;
/// Shortest secret of a key: 256 bits (RFC 7518 §3.2).
pub const SECRET_BYTES_MIN: usize = 32;
/// Longest secret of a key: one block of SHA-256; a longer one would be hashed first and gain nothing.
pub const SECRET_BYTES_MAX: usize = 64;
/// Greatest numeric id: tickets and SQL hold it as a signed 64-bit integer (seed 000 §8.1).
pub const ID_MAX: u64 = i64::MAX as u64;
/// Most units of one submit on the wire; what a sale allows is policy.
pub const QUANTITY_MAX: u32 = 1000;
/// Longest payment id of the payment provider.
pub const PAYMENT_ID_BYTES_MAX: usize = 64;
/// How far a payment callback's time may be from ours, either way; the usual bound of payment providers.
pub const PAYMENT_SKEW_MS_MAX: u64 = 5 * 60 * 1000;
/// Longest `X-Weir-Signature` of a request: the longest key id, 20 digits of time, 64 of MAC and the letters between take
/// 129 bytes.
pub const SIGNATURE_BYTES_MAX: usize = 160;
/// Longest `X-Weir-Device` value.
pub const DEVICE_BYTES_MAX: usize = 128;
/// Longest `detail` of an answer before escaping: a member's name and what was expected fit many times.
pub const ANSWER_DETAIL_BYTES_MAX: usize = 200;
/// Longest PROXY protocol v1 line with its CR LF (its specification, §2.1).
pub const PROXY_V1_BYTES_MAX: usize = 107;
/// Longest PROXY protocol v2 header: addresses and a TLS client's extras fit; far below its field's 64 KiB.
pub const PROXY_V2_BYTES_MAX: usize = 4096;
/// Most parameters of one `Forwarded` element; RFC 7239 §5 defines four.
pub const FORWARDED_PAIRS_MAX: usize = 16;
/// Most trusted networks of one listener: each costs a comparison per request.
pub const TRUSTED_NETWORKS_MAX: usize = 64;
/// Longest chunked body as sent, from the first chunk-size line to the last chunk; more is 413. Twice the decoded
/// limit, so that honest chunks of 16 bytes and more fit and one-byte chunks (6 bytes each) do not pay off.
pub const CHUNKED_WIRE_BYTES_MAX: usize = 16 * 1024;
/// Most hexadecimal digits of a chunk size; more is 400. Sixteen digits are a `u64`: no sum can overflow unseen.
pub const CHUNK_SIZE_DIGITS_MAX: usize = 16;
/// Longest extension text of one chunk, from its first semicolon; more is 400. We know no extension: room for a foreign one.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 64;
/// Most extension bytes of one request; more is 400. Extensions must not pay for reading without a body (CVE-2024-22019).
pub const CHUNK_EXTENSION_BYTES_SUM_MAX: usize = 512;
/// Longest chunk-size line with its CRLF; follows from the two limits above.
pub const CHUNK_LINE_BYTES_MAX: usize = CHUNK_SIZE_DIGITS_MAX + CHUNK_EXTENSION_BYTES_MAX + 2;
/// Longest trailer section with its blank line; more is 431. Trailers are dropped: room for a checksum or two.
pub const TRAILER_BYTES_MAX: usize = 1024;
/// Most trailer lines; more are 431.
pub const TRAILER_LINES_MAX: usize = 16;
/// Most bytes of one request on the wire: what a connection must be able to hold in one piece for the parser.
/// The terms: a skipped CRLF, the head, a chunked body, its last size line, its trailers.
pub const REQUEST_BYTES_MAX: usize =
    2 + HEAD_BYTES_MAX + CHUNKED_WIRE_BYTES_MAX + CHUNK_LINE_BYTES_MAX + TRAILER_BYTES_MAX;
/// Most bytes of one Redis reply: what the input of a link to Redis must be able to hold in one piece. Four times the
/// largest reply that weir asks for (a page of outbox entries, or CLUSTER SHARDS of 256 nodes, some 64 to 256 KiB).
pub const RESP_REPLY_BYTES_MAX: usize = 1024 * 1024;
/// Longest line of a Redis reply: a simple string, an error, a number. Errors of Redis have a few hundred bytes; one made
/// by a script may quote what it was given.
pub const RESP_LINE_BYTES_MAX: usize = 4096;
/// Longest bulk string of a Redis reply. INFO with every section has some 20 KiB, everything else of ours far less; Redis
/// itself would let 512 MiB through.
pub const RESP_BULK_BYTES_MAX: usize = 64 * 1024;
/// Most elements of one Redis reply, counted at every depth. CLUSTER SHARDS has two numbers per range of slots, and each of
/// the 16,384 slots may be a range of its own; the nodes have the other half.
pub const RESP_ELEMENTS_MAX: usize = 64 * 1024;
/// Most aggregates of a Redis reply inside one another. CLUSTER SHARDS and XREADGROUP have four; the other four are room.
pub const RESP_DEPTH_MAX: usize = 8;
