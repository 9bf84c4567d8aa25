//! Commands as Redis takes them: an array of bulk strings, in both versions of the protocol.

use alloc::vec::Vec;

/// Digits of `u64::MAX`.
pub const DECIMAL_BYTES_MAX: usize = 20;

/// Appends one command: its name and its arguments.
pub fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let mut writer = CommandWriter::begin(out, parts.len());
    for part in parts {
        writer.part(part);
    }
    writer.finish();
}

/// One command, written part by part behind what `out` holds. Allocates only when `out` has no room.
#[derive(Debug)]
#[must_use = "a command without all of its parts makes the server wait for the rest"]
pub struct CommandWriter<'a> {
    out: &'a mut Vec<u8>,
    left: usize,
}

impl<'a> CommandWriter<'a> {
    /// Begins a command of `parts_count` parts, its name included.
    pub fn begin(out: &'a mut Vec<u8>, parts_count: usize) -> Self {
        header(out, b'*', parts_count);
        Self {
            out,
            left: parts_count,
        }
    }

    /// Goes on with a command whose beginning is at the end of `out` already (a template), `left` parts before its end.
    pub fn resume(out: &'a mut Vec<u8>, left: usize) -> Self {
        Self { out, left }
    }

    /// The next part: any bytes.
    ///
    /// # Panics
    /// When all of the parts have been written.
    pub fn part(&mut self, bytes: &[u8]) {
        self.begin_part(bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// The next part, which is these pieces one behind the other.
    ///
    /// # Panics
    /// As [`part`](Self::part).
    pub fn part_of<const N: usize>(&mut self, pieces: [&[u8]; N]) {
        self.begin_part(pieces.iter().map(|piece| piece.len()).sum());
        for piece in pieces {
            self.out.extend_from_slice(piece);
        }
        self.out.extend_from_slice(b"\r\n");
    }

    fn begin_part(&mut self, bytes: usize) {
        self.left = self
            .left
            .checked_sub(1)
            .expect("no more parts than the command was begun with");
        header(self.out, b'$', bytes);
    }

    /// The next part: `number` in decimal.
    ///
    /// # Panics
    /// As [`part`](Self::part).
    pub fn part_u64(&mut self, number: u64) {
        let mut digits = [0; DECIMAL_BYTES_MAX];
        self.part(decimal(number, &mut digits));
    }

    /// Ends the command.
    ///
    /// # Panics
    /// When a part is missing.
    pub fn finish(self) {
        assert_eq!(
            self.left, 0,
            "a command has as many parts as it was begun with"
        );
    }
}

/// Appends one line, which is put together before: most have five bytes.
fn header(out: &mut Vec<u8>, kind: u8, count: usize) {
    let mut line = [b'\n'; 1 + DECIMAL_BYTES_MAX + 2];
    let mut start = line.len() - 2;
    line[start] = b'\r';
    let mut rest = count;
    loop {
        start -= 1;
        line[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    start -= 1;
    line[start] = kind;
    out.extend_from_slice(&line[start..]);
}

/// `number` in decimal, in the end of `digits`.
pub fn decimal(mut number: u64, digits: &mut [u8; DECIMAL_BYTES_MAX]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = b"before".to_vec();
        command(&mut out, &[b"SET", b"a\r\nb", b""]);
        assert_eq!(out, b"before*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n");
        out.clear();
        let mut writer = CommandWriter::begin(&mut out, 3);
        writer.part(b"X");
        writer.part_u64(0);
        writer.part_u64(u64::MAX);
        writer.finish();
        assert_eq!(
            out,
            b"*3\r\n$1\r\nX\r\n$1\r\n0\r\n$20\r\n18446744073709551615\r\n"
        );
        out.clear();
        let mut writer = CommandWriter::begin(&mut out, 2);
        writer.part_of([b"a", b"", b"b:", b"c"]);
        writer.part_of([]);
        writer.finish();
        assert_eq!(out, b"*2\r\n$4\r\nab:c\r\n$0\r\n\r\n");
    }

    #[test]
    fn a_template_is_gone_on_with() {
        let mut out = b"*2\r\n$3\r\nGET\r\n".to_vec();
        let mut writer = CommandWriter::resume(&mut out, 1);
        writer.part(b"a");
        writer.finish();
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
    }

    #[test]
    #[should_panic(expected = "as many parts")]
    fn a_missing_part_is_our_bug() {
        let mut out = Vec::new();
        let mut writer = CommandWriter::begin(&mut out, 2);
        writer.part(b"GET");
        writer.finish();
    }

    #[test]
    #[should_panic(expected = "no more parts")]
    fn a_part_too_many_is_our_bug() {
        let mut out = Vec::new();
        let mut writer = CommandWriter::begin(&mut out, 0);
        writer.part(b"GET");
    }
}
