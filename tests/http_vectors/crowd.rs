//! Many rows at once, each on a connection of its own, each in its own pieces.
//!
//! A piece is sent when the server has read the one before: between two pieces a request on another connection goes out
//! and comes back, and a shard's driver shows bytes in the order of their arrival. So pieces arrive as pieces without a
//! pause by the clock, and every wave is as fast as the machine.

use super::answers::answers;
use super::heard::{heard, same};
use super::http_rows::{End, Heard, Outcome, judge};
use super::jobs::Job;
use super::line::Line;
use std::time::{Duration, Instant};
use weir_proto::http::Method;

/// Connections of one wave: well below the shard's `conns_max` and the descriptors of this process.
const WAVE: usize = 2_000;
/// Pieces of one row up to here wait for the server, each; later ones go out as fast as the socket takes them.
const PACED_PIECES: usize = 256;
/// A wave whose delivery took longer is void: the server's deadlines could have judged the machine.
const VOID_AFTER: Duration = Duration::from_secs(4);

/// What a run found.
#[derive(Default)]
pub struct Findings {
    pub judged: u64,
    /// One line each.
    pub differences: Vec<String>,
}

/// A server to send to.
pub struct Crowd {
    port: u16,
    control: Line,
}

struct Sending<'a> {
    job: &'a Job<'a>,
    line: Line,
    next: usize,
}

impl Sending<'_> {
    fn send_next(&mut self) {
        let piece = self.job.piece(self.next);
        self.next += 1;
        if !piece.is_empty() && !self.line.send(piece) {
            self.next = self.job.cuts.len(); // the server has closed; what it said is judged
        }
    }

    fn has_more(&self) -> bool {
        self.next < self.job.cuts.len() && self.line.end.is_none()
    }
}

/// Final answers in `bytes` so far.
fn finals(model: &Outcome, bytes: &[u8]) -> usize {
    let is_head = |at: usize| {
        let request = model.requests.get(at);
        request.is_some_and(|seen| seen.method == Method::Head)
    };
    answers(bytes, is_head).map_or(usize::MAX, |(found, _)| {
        found.iter().filter(|answer| answer.is_final()).count()
    })
}

impl Crowd {
    pub fn of(port: u16) -> Self {
        Self {
            port,
            control: Line::to(port, 0),
        }
    }

    /// When this returns, the server has read what was sent before, and its answers have left.
    fn pass(&mut self) {
        // Twice: the first answer may leave in the same turn as the last of theirs, and before it.
        for _ in 0..2 {
            self.control.got.clear();
            let sent = self
                .control
                .send(b"GET /pass HTTP/1.1\r\nHost: weir.test\r\n\r\n");
            let whole = |bytes: &[u8]| matches!(answers(bytes, |_| false), Ok((found, 0)) if found.len() == 1);
            assert!(
                sent && self.control.read_until(whole) && self.control.end.is_none(),
                "the server answers others"
            );
        }
    }

    /// Sends every job and judges what comes back.
    pub fn run(&mut self, jobs: &[Job<'_>]) -> Findings {
        let mut findings = Findings::default();
        for wave in jobs.chunks(WAVE) {
            let mut heard = self.wave(wave);
            for _ in 0..5 {
                if heard.is_some() {
                    break;
                }
                heard = self.wave(wave);
            }
            let all = heard.expect("one of six waves was delivered in time: is the machine busy?");
            for (job, heard) in wave.iter().zip(all) {
                findings.judged += 1;
                let row = job.row;
                let verdict = heard
                    .and_then(|heard| judge(row, &heard).and_then(|()| same(&row.model, &heard)));
                if let Err(fault) = verdict {
                    let cuts = &job.cuts[..job.cuts.len().min(8)];
                    let difference = format!("{} in pieces to {cuts:?}: {fault}", row.id);
                    findings.differences.push(difference);
                }
            }
        }
        findings
    }

    /// One wave; `None` when it is void.
    fn wave(&mut self, jobs: &[Job<'_>]) -> Option<Vec<Result<Heard, String>>> {
        let mut lines: Vec<Sending<'_>> = Vec::with_capacity(jobs.len());
        for (number, job) in jobs.iter().enumerate() {
            let line = Line::to(self.port, number);
            lines.push(Sending { job, line, next: 0 });
        }
        self.pass(); // all are accepted
        let began = Instant::now();
        for piece in 0.. {
            let mut any = false;
            for sending in lines.iter_mut().filter(|sending| sending.has_more()) {
                sending.send_next();
                any |= sending.has_more();
            }
            if piece < PACED_PIECES {
                self.pass();
            } else if piece % PACED_PIECES == 0 {
                lines.iter_mut().for_each(|sending| sending.line.read_now());
            }
            if !any {
                break;
            }
        }
        self.pass();
        if began.elapsed() > VOID_AFTER {
            return None;
        }
        for sending in &mut lines {
            sending.read_expected();
        }
        self.pass(); // whatever else was said is here
        Some(lines.into_iter().map(Sending::ended).collect())
    }
}

impl Sending<'_> {
    /// Waits for as much as the parser's reading of the row promises.
    fn read_expected(&mut self) {
        let model = &self.job.row.model;
        let wanted = model.statuses().len();
        let closes = model.closes();
        // In vain when the server differs: the judge will see what is missing.
        self.line
            .read_until(|bytes| !closes && finals(model, bytes) >= wanted);
    }

    /// Everything that comes when the client ends its side, too.
    fn ended(mut self) -> Result<Heard, String> {
        let model = &self.job.row.model;
        self.line.read_now();
        let closed = self.line.end.is_some();
        if model.end == End::Idle && !closed {
            self.line.end_sending();
            if !self.line.read_to_end() {
                return Err("never closes after the client's end".to_owned());
            }
        }
        if self.line.was_reset() {
            return Err("reset".to_owned());
        }
        heard(model, &self.line.got, closed)
    }
}
