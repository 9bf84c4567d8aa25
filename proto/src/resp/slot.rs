//! Which hash slot of a Redis Cluster a key lies in.

/// Slots of a cluster (redis.io/docs/reference/cluster-spec, "Key distribution model").
pub const SLOTS_COUNT: u16 = 16_384;

/// CRC-16/XMODEM of each byte (the specification, appendix A: polynomial 1021, nothing reflected, starts at 0).
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// CRC-16/XMODEM of `bytes`.
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

/// The slot of `key`, below [`SLOTS_COUNT`]: of what stands between the first `{` and the first `}` behind it if that is
/// not empty, else of the whole key (the specification, "Hash tags").
pub fn key_slot(key: &[u8]) -> u16 {
    crc16(hashed(key)) % SLOTS_COUNT
}

fn hashed(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else {
        return key;
    };
    let behind = &key[open + 1..];
    match memchr::memchr(b'}', behind) {
        None | Some(0) => key,
        Some(end) => &behind[..end],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_specifications() {
        assert_eq!(crc16(b"123456789"), 0x31c3); // appendix A
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn the_first_tag_that_is_not_empty_decides() {
        assert_eq!(key_slot(b"{user1000}.following"), key_slot(b"user1000"));
        assert_eq!(key_slot(b"foo{{bar}}zap"), key_slot(b"{bar"));
        assert_eq!(key_slot(b"foo{bar}{zap}"), key_slot(b"bar"));
        for whole in ["foo{}{bar}", "foo{bar", "foo}bar{", "{}", "{", ""] {
            assert_eq!(
                key_slot(whole.as_bytes()),
                crc16(whole.as_bytes()) % SLOTS_COUNT
            );
        }
    }
}
