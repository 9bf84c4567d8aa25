//! Scanning and reading replies allocates nothing, nor does writing commands once the output has grown.

use weir_proto::resp::{CommandWriter, Scan, Scanner, Value, command, key_slot, read};

#[path = "../../tests/support/counting.rs"]
mod counting;

/// Adds up what is in a value, so that all of it is read.
fn sum(value: Value<'_>) -> usize {
    match value {
        Value::Simple(text) | Value::Bulk(text) | Value::BigNumber(text) => text.len(),
        Value::Verbatim { format, text } => format.len() + text.len(),
        Value::Error(error) => error.cause().len() + error.text.len(),
        Value::Integer(number) => usize::try_from(number).unwrap_or(1),
        Value::Double(double) => usize::from(double > 0.0),
        Value::Boolean(is_true) => usize::from(is_true),
        Value::Null => 1,
        Value::Array(items) | Value::Map(items) | Value::Set(items) | Value::Push(items) => {
            items.map(sum).sum()
        }
    }
}

/// Reads all of `input` in pieces of seven bytes and writes a command for each reply; returns how many there were.
fn serve(input: &[u8], out: &mut Vec<u8>) -> usize {
    let mut scanner = Scanner::new();
    let (mut start, mut served) = (0, 0);
    for end in (7..input.len()).step_by(7).chain([input.len()]) {
        loop {
            match scanner.scan(&input[start..end]) {
                Scan::Done { bytes } => {
                    let total = sum(read(&input[start..start + bytes]));
                    start += bytes;
                    served += 1;
                    command(out, &[b"EVALSHA", b"{a1:s2}", b"x"]);
                    let mut writer = CommandWriter::begin(out, 2);
                    writer.part(b"ECHO");
                    writer.part_u64(total as u64 + u64::from(key_slot(b"{a1:s2}:u3")));
                    writer.finish();
                }
                Scan::NeedMore => break,
                Scan::Reject(reject) => panic!("{reject}"),
            }
        }
    }
    served
}

#[test]
fn replies_and_commands_allocate_nothing() {
    let one = "*4\r\n:1\r\n:999000\r\n:0\r\n:1782388800000\r\n-ERR Error running script: -OOM command not allowed\r\n\
        %2\r\n+a\r\n*2\r\n$1\r\nx\r\n_\r\n$-1\r\n~1\r\n#t\r\n|1\r\n+ttl\r\n,1.5\r\n=7\r\ntxt:abc\r\n>1\r\n+invalidate\r\n(12345678901234567890\r\n";
    let input = one.repeat(50).into_bytes();
    let mut out = Vec::new();
    assert_eq!(serve(&input, &mut out), 300);
    let warmed = out.capacity();
    out.clear();
    let before = counting::allocations();
    assert!(before > 0, "the counter counts");
    let served = serve(&input, &mut out);
    let after = counting::allocations();
    assert_eq!((served, after - before, out.capacity()), (300, 0, warmed));
}
