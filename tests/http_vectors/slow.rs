//! Rows that are about time: their own deliveries with pauses, and bytes that stop in the middle.

use super::answers::answers;
use super::crowd::Findings;
use super::heard::{heard, same};
use super::http_rows::{End, Heard, Row, judge, judge_overdue};
use super::line::Line;
use std::thread;
use std::time::{Duration, Instant};
use weir_core::rng::Rng;

/// A delivery above this is slower than every deadline that the configuration allows.
const SLOW_MS: u64 = 20_000;

fn told(row: &Row, what: &str, verdict: Result<(), String>) -> Option<String> {
    verdict
        .err()
        .map(|fault| format!("{} {what}: {fault}", row.id))
}

fn gather(results: Vec<Option<String>>) -> Findings {
    Findings {
        judged: results.len() as u64,
        differences: results.into_iter().flatten().collect(),
    }
}

/// Every row that has a delivery of its own, each on a thread of its own, for it pauses. `patient`: a server whose
/// deadlines are longer than any of them; `hasty`: one whose deadlines are short, for those that take too long for any.
pub fn deliveries(rows: &[Row], patient: u16, hasty: u16) -> Findings {
    let mut seeds: Vec<(u64, Rng)> = Vec::new();
    let mut draw = |seed: u64, below: usize| {
        let known = seeds.iter().position(|(known, _)| *known == seed);
        let at = known.unwrap_or_else(|| {
            seeds.push((seed, Rng::new(seed)));
            seeds.len() - 1
        });
        seeds[at].1.below(below as u64) as usize
    };
    let mut results = Vec::new();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for row in rows {
            let Some(delivery) = row.delivery(&mut draw) else {
                continue;
            };
            threads.push(scope.spawn(move || {
                let is_slow = delivery.gap_ms * delivery.cuts.len() as u64 > SLOW_MS;
                let mut line = Line::to(if is_slow { hasty } else { patient }, row.raw.len());
                let mut start = 0;
                for &cut in &delivery.cuts {
                    if start > 0 {
                        line.read_for(Duration::from_millis(delivery.gap_ms));
                    }
                    if line.end.is_some() || !line.send(&row.raw[start..cut]) {
                        break;
                    }
                    start = cut;
                }
                if delivery.shutdown_write {
                    line.end_sending();
                }
                told(
                    row,
                    "as it is delivered",
                    delivered(row, line, is_slow, delivery.shutdown_write),
                )
            }));
        }
        for thread in threads {
            results.push(thread.join().unwrap());
        }
    });
    gather(results)
}

fn delivered(row: &Row, mut line: Line, is_slow: bool, ended: bool) -> Result<(), String> {
    let model = &row.model;
    if is_slow {
        let heard = to_the_end(row, &mut line)?;
        judge_overdue(row, &heard)?;
        return if heard.statuses == [408] {
            Ok(())
        } else {
            Err(format!("{:?}, not 408 alone", heard.statuses))
        };
    }
    if ended {
        let heard = to_the_end(row, &mut line)?;
        return if row.is("incomplete") {
            judge_overdue(row, &heard)
        } else {
            judge(row, &heard)
        };
    }
    let wanted = model.statuses().len();
    line.read_until(|bytes| {
        let found = answers(bytes, |_| false);
        !model.closes() && found.is_ok_and(|(found, _)| found.len() >= wanted)
    });
    let closed = line.end.is_some();
    line.end_sending();
    line.read_to_end();
    let heard = heard(model, &line.got, closed)?;
    judge(row, &heard)?;
    same(model, &heard)
}

fn to_the_end(row: &Row, line: &mut Line) -> Result<Heard, String> {
    if !line.read_to_end() {
        return Err("never closed".to_owned());
    }
    if line.was_reset() {
        return Err("reset".to_owned());
    }
    heard(&row.model, &line.got, true)
}

/// Every row in one piece to a server with short deadlines, and then silence: what is incomplete stays quiet as long as
/// the row says, then its deadline refuses or closes it; what is answered is closed when it has been idle.
pub fn deadlines(rows: &[Row], hasty: u16) -> Findings {
    let mut results = Vec::new();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            let mut line = Line::to(hasty, number);
            line.send(&row.raw);
            let sent = Instant::now();
            threads.push(scope.spawn(move || {
                let verdict = quiet(row, &mut line, sent).and_then(|()| overdue(row, &mut line));
                told(row, "left alone", verdict)
            }));
        }
        for thread in threads {
            results.push(thread.join().unwrap());
        }
    });
    gather(results)
}

/// Nothing is heard for `quiet_ms`.
fn quiet(row: &Row, line: &mut Line, sent: Instant) -> Result<(), String> {
    let Some(quiet_ms) = row.number("quiet_ms") else {
        return Ok(());
    };
    let until = sent + Duration::from_millis(quiet_ms);
    line.read_for(until.saturating_duration_since(Instant::now()));
    // What came later than that is the deadline's: only this machine was slow to look.
    let too_early = (!line.got.is_empty() || line.end.is_some()) && Instant::now() < until;
    if too_early {
        Err("not quiet".to_owned())
    } else {
        Ok(())
    }
}

fn overdue(row: &Row, line: &mut Line) -> Result<(), String> {
    let heard = to_the_end(row, line)?;
    judge_overdue(row, &heard)?;
    let mut wanted = row.model.statuses();
    if row.model.end == End::Waiting {
        wanted.push(408);
    }
    if heard.statuses == wanted {
        Ok(())
    } else {
        Err(format!("{:?}, not {wanted:?}", heard.statuses))
    }
}
