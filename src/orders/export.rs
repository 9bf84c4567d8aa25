//! `weir export orders --csv`: every order as one line, for the shop's own books.
//!
//! RFC 4180: fields with a comma, a quote or a line end are quoted, lines end with CRLF. Rows are streamed, so a file
//! of any size needs no memory. The user ids are the operator's own data; the file is readable by its owner only.

use super::schema::{self, OpenError};
use rusqlite::types::ValueRef;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_proto::ids::ReservationId;

const HEADER: &str = "reservation_id,activity_id,sku_id,user_id,quantity,request_id,unit_price_minor,currency,state,\
                      version,reserved_ms,created_ms,updated_ms,due_ms,payment_id";

// One statement reads one consistent state, also while the server writes (WAL).
const ROWS: &str = "SELECT reservation_id, activity_id, sku_id, user_id, quantity, request_id, unit_price_minor, \
                    currency, state, version, reserved_ms, created_ms, updated_ms, due_ms, \
                    (SELECT payment_id FROM payments WHERE payments.reservation_id = orders.reservation_id \
                     AND result IN ('paid', 'late')) FROM orders ORDER BY reservation_id";

/// Why an export did not finish.
#[derive(Debug)]
pub enum ExportError {
    /// The order store cannot be opened.
    Open(OpenError),
    /// Reading failed.
    Sqlite(rusqlite::Error),
    /// Writing failed; the path when it is a file.
    Write(Option<PathBuf>, io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Sqlite(error) => write!(f, "export: reading the orders failed: {error}"),
            Self::Write(Some(path), error) if error.kind() == io::ErrorKind::AlreadyExists => {
                write!(
                    f,
                    "export: {} exists and is not overwritten. Name another file, or move this one away.",
                    path.display()
                )
            }
            Self::Write(Some(path), error) => {
                write!(f, "export: {} cannot be written: {error}", path.display())
            }
            Self::Write(None, error) => write!(f, "export: writing failed: {error}"),
        }
    }
}

impl std::error::Error for ExportError {}

/// Writes the orders of `orders` (an `orders.sqlite`) to the new file `csv`, mode 0600; gives the number of orders.
///
/// # Errors
/// See [`ExportError`]; an existing file is never overwritten.
pub fn export_to_file(orders: &Path, csv: &Path) -> Result<u64, ExportError> {
    let write = |error| ExportError::Write(Some(csv.to_owned()), error);
    let connection = schema::open_to_read(orders).map_err(ExportError::Open)?;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(csv)
        .map_err(write)?;
    let mut out = BufWriter::new(file);
    let count = write_rows(&connection, &mut out)?;
    let file = out
        .into_inner()
        .map_err(|error| write(error.into_error()))?;
    file.sync_all().map_err(write)?;
    Ok(count)
}

/// Writes the orders of `orders` to `out`; gives the number of orders.
///
/// # Errors
/// See [`ExportError`].
pub fn export_to(orders: &Path, out: &mut impl Write) -> Result<u64, ExportError> {
    let connection = schema::open_to_read(orders).map_err(ExportError::Open)?;
    write_rows(&connection, out)
}

fn write_rows(connection: &rusqlite::Connection, out: &mut impl Write) -> Result<u64, ExportError> {
    let write = |error| ExportError::Write(None, error);
    let mut statement = connection.prepare(ROWS).map_err(ExportError::Sqlite)?;
    let columns = statement.column_count();
    let mut rows = statement.query([]).map_err(ExportError::Sqlite)?;
    let mut line = String::with_capacity(256);
    line.push_str(HEADER);
    let mut count = 0;
    loop {
        line.push_str("\r\n");
        out.write_all(line.as_bytes()).map_err(write)?;
        let Some(row) = rows.next().map_err(ExportError::Sqlite)? else {
            out.flush().map_err(write)?;
            return Ok(count);
        };
        count += 1;
        line.clear();
        for column in 0..columns {
            if column > 0 {
                line.push(',');
            }
            match row.get_ref(column).map_err(ExportError::Sqlite)? {
                ValueRef::Integer(id) if column == 0 => {
                    line.push_str(&ReservationId(id.cast_unsigned()).to_string());
                }
                ValueRef::Integer(number) => line.push_str(&number.to_string()),
                ValueRef::Text(text) => push_field(&mut line, &String::from_utf8_lossy(text)),
                ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => {}
            }
        }
    }
}

/// Appends one text field, quoted where RFC 4180 §2 asks for it. A text that a spreadsheet would run as a formula gets
/// an apostrophe first: request ids are chosen by buyers.
fn push_field(line: &mut String, text: &str) {
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    let is_quoted = text.contains(['"', ',', '\r', '\n']);
    if is_quoted {
        line.push('"');
    }
    if is_formula {
        line.push('\'');
    }
    for letter in text.chars() {
        if letter == '"' {
            line.push('"');
        }
        line.push(letter);
    }
    if is_quoted {
        line.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::push_field;

    #[test]
    fn fields_read_back_and_run_nothing() {
        for (text, field) in [
            ("plain-1", "plain-1"),
            ("a,b", "\"a,b\""),
            ("say\"x\"", "\"say\"\"x\"\"\""),
            ("=cmd|x", "'=cmd|x"),
            ("@a,b", "\"'@a,b\""),
            ("", ""),
        ] {
            let mut line = String::new();
            push_field(&mut line, text);
            assert_eq!(line, field);
        }
    }
}
