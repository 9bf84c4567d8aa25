//! The admission log's writer (requirement M2): records come by mail, JSON lines go to a file or to standard output.
//!
//! Run by the mailbox driver as `Addr::Log`, on its own thread: the only part that may block on that output. Its box is
//! bounded; shards never wait for it. Fields are seed 000 §12.2's; `user_id_hash` is `b3:` and the first 8 bytes of a
//! keyed BLAKE3 hash (a plain SHA-256 of a number is undone by counting), `reason` is the label of the metrics, `code`
//! the answer's. There is no `trace_id`: no tracing header is read yet, and an invented one would join nothing.
//! A write error loses lines, is counted and stops nothing.

use serde::Serialize;
use std::fmt;
use std::fmt::Write as _;
use std::io::Write;
use weir_core::mail::{Addr, Mail};
use weir_core::port::{Effects, Event, Handler};
use weir_core::record::AdmissionRecord;
use weir_core::stats::{Label, Sample, Stats};
use weir_core::time::{Mono, Now};
use weir_proto::answer::rfc3339_ms;

/// Lines are written when they are so many bytes: one write for about 150 lines.
pub const FLUSH_BYTES: usize = 64 * 1024;
/// Lines are written after so long, so that a person who follows the log sees them.
pub const FLUSH_MS: u64 = 100;

/// See the module.
pub struct LogWriter {
    out: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    buffered_lines: u64,
    flush_at: Option<Mono>,
    draining: bool,
    stopped: bool,
    /// Lines that were written.
    lines: u64,
    write_errors: u64,
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter")
            .field("buffered_bytes", &self.buffer.len())
            .field("lines", &self.lines)
            .field("write_errors", &self.write_errors)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    time: &'a str,
    request_id: Option<&'a str>,
    activity_id: Option<u64>,
    sku_id: Option<u64>,
    user_id_hash: Option<&'a str>,
    ticket_key_id: Option<&'a str>,
    activity_version: Option<u64>,
    admission_stage: &'static str,
    decision: &'static str,
    reason: &'static str,
    code: &'static str,
    retry_after_ms: Option<u64>,
    latency_ms: f64,
}

impl LogWriter {
    /// A writer to `out`, which it alone writes to.
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self {
            out,
            buffer: Vec::with_capacity(FLUSH_BYTES + 1024),
            buffered_lines: 0,
            flush_at: None,
            draining: false,
            stopped: false,
            lines: 0,
            write_errors: 0,
        }
    }

    fn take(&mut self, now: Now, record: &AdmissionRecord) {
        put_line(record, &mut self.buffer);
        self.buffered_lines += 1;
        self.flush_at.get_or_insert(now.mono.plus_ms(FLUSH_MS));
        if self.buffer.len() >= FLUSH_BYTES {
            self.write_out();
        }
    }

    fn write_out(&mut self) {
        self.flush_at = None;
        if self.buffer.is_empty() {
            return;
        }
        match self
            .out
            .write_all(&self.buffer)
            .and_then(|()| self.out.flush())
        {
            Ok(()) => self.lines += self.buffered_lines,
            Err(_) => self.write_errors += 1,
        }
        self.buffer.clear();
        self.buffered_lines = 0;
    }

    fn stats(&self) -> Stats {
        let sample = |name, value| Sample {
            name,
            label: Label::None,
            value,
        };
        Stats {
            from: Addr::Log,
            samples: vec![
                sample("weir_log_lines_total", self.lines),
                sample("weir_log_write_errors_total", self.write_errors),
            ],
            hot: Vec::new(),
        }
    }
}

/// Appends one record as one line.
fn put_line(record: &AdmissionRecord, out: &mut Vec<u8>) {
    let row = record.reason.row();
    let time = rfc3339_ms(record.at.0);
    let user_id_hash = record.user_hash.map(|hash| {
        let mut text = String::with_capacity(19);
        text.push_str("b3:");
        for byte in hash {
            let _ = write!(text, "{byte:02x}");
        }
        text
    });
    let line = Line {
        event: "seckill_admission",
        time: std::str::from_utf8(&time).expect("digits and letters"),
        request_id: Some(record.request_id.as_str()).filter(|id| !id.is_empty()),
        activity_id: record.sku.map(|key| key.activity.0),
        sku_id: record.sku.map(|key| key.sku.0),
        user_id_hash: user_id_hash.as_deref(),
        ticket_key_id: Some(record.key_id.as_str()).filter(|kid| !kid.is_empty()),
        activity_version: Some(record.activity_version).filter(|&version| version > 0),
        admission_stage: row.stage.label(),
        decision: record.reason.decision().as_str(),
        reason: row.label,
        code: row.code.as_str(),
        retry_after_ms: record.retry_after_ms,
        latency_ms: record.latency_us as f64 / 1000.0,
    };
    serde_json::to_writer(&mut *out, &line).expect("a vector takes every byte");
    out.push(b'\n');
}

impl Handler for LogWriter {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(Mail::Record(record)) => self.take(now, &record),
            Event::Mail(Mail::StatsAsk) => fx.post(Addr::Ops, Mail::Stats(Box::new(self.stats()))),
            Event::Tick if self.flush_at.is_some_and(|at| at <= now.mono) => self.write_out(),
            Event::Drain => self.draining = true,
            _ => {}
        }
    }

    fn on_flush(&mut self, _: Now, fx: &mut Effects) {
        if self.draining {
            self.write_out();
            if !self.stopped {
                self.stopped = true;
                fx.stop();
            }
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.flush_at
    }
}
