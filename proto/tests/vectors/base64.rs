//! The bytes of a vector that its file holds in base64.

/// RFC 4648 §4; the padding is not looked at.
pub fn decode_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("byte {other} is not base64"),
    };
    let mut out = Vec::new();
    let (mut bits, mut bits_count) = (0_u32, 0);
    for byte in text.bytes().filter(|&b| b != b'=') {
        bits = (bits << 6) | u32::from(digit(byte));
        bits_count += 6;
        if bits_count >= 8 {
            bits_count -= 8;
            out.push((bits >> bits_count) as u8);
        }
    }
    out
}
