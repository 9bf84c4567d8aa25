//! Every row of `http1-vectors.jsonl` against a shard on simulated sockets, where pieces arrive exactly as cut and
//! deadlines are met to the millisecond: in one piece, byte by byte, cut in two at every place, in seeded pieces, and cut
//! by the network as a seed decides (A1).
//!
//! The shard is the program's own, with echo planted; the driver and the network are the simulator's. The judge is the
//! parser test's own.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

#[path = "support/answers.rs"]
mod answers;
#[path = "http_vectors/heard.rs"]
mod heard;
#[path = "../proto/tests/vectors/http_rows.rs"]
mod http_rows;
#[path = "http_vectors/jobs.rs"]
mod jobs;
#[path = "support/say.rs"]
mod say;
#[path = "../src/core/tests/shard_kit/mod.rs"]
mod shard_kit;

use heard::{heard, same};
use http_rows::{EXTRA, End, judge, judge_overdue, rows};
use jobs::{Job, bytewise, splits, whole};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use weir_core::ask::Mode;
use weir_core::limit::lease::ShardId;
use weir_core::mail::{Addr, Mail};
use weir_core::port::{CloseCause, ConnId, Connect, ConnectToken, Effects, Event, Handler};
use weir_core::shard::Shard;
use weir_core::shard::conns::Timeouts;
use weir_core::time::{Mono, NS_PER_MS, NS_PER_S, Now};
use weir_core::view::{SkuView, WinnersFilter};
use weir_io::sim::{Config, Listen, World};

const SHARD: Addr = Addr::Shard(ShardId(0));
const CLIENTS: Addr = Addr::Client(0);
const SERVED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
/// Rows of one world.
const WAVE: usize = 512;
/// Between two pieces: above the longest way through the simulated network and a turn behind it.
const GAP_NS: u64 = 5 * NS_PER_MS;
/// What must be said has been said so long after the last piece, and what must be quiet has been.
const QUIET_NS: u64 = 500 * NS_PER_MS;
/// Longer than the longest row takes byte by byte.
const DEADLINE_MS: u64 = 1_000_000;
/// `must_close`: within a second.
const CLOSE_NS: u64 = NS_PER_S;

/// Shows the shard its SKU, so that it accepts; stands where the ledger's owner stands.
struct Views;

impl Handler for Views {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}

    fn on_event(&mut self, _: Now, event: Event<'_>, fx: &mut Effects) {
        if let Event::Mail(Mail::ViewsAsk(_)) = event {
            let view = SkuView {
                sku: shard_kit::SKU,
                boot: 1,
                version: 1,
                stock_epoch: 0,
                sold_out: false,
                open: true,
                mode: Mode::Normal,
                poisoned: false,
                winners: Arc::new(WinnersFilter::default()),
            };
            fx.post(SHARD, Mail::View(view));
        }
    }

    fn on_flush(&mut self, _: Now, _: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// One row's connection.
#[derive(Default)]
struct Line {
    pieces: Vec<Vec<u8>>,
    next: usize,
    conn: Option<ConnId>,
    /// The client ends its side when it has heard enough.
    ends: bool,
    got: Vec<u8>,
    heard_ns: u64,
    /// When the server's end came.
    ended_ns: Option<u64>,
    /// What was heard when the last piece had long arrived: that much of `got`, and whether the server had closed.
    calm: Option<(usize, bool)>,
    closed: Option<CloseCause>,
}

/// All rows of a world: piece after piece, all lines in step.
struct Clients {
    lines: Vec<Line>,
    /// The line of each slot.
    of_slot: Vec<usize>,
    next_piece_ns: u64,
    calm_ns: Option<u64>,
}

impl Clients {
    fn new(jobs: &[Job<'_>]) -> Self {
        let line = |job: &Job<'_>| Line {
            pieces: (0..job.cuts.len())
                .map(|piece| job.piece(piece).to_vec())
                .collect(),
            ends: job.row.model.end == End::Idle,
            ..Line::default()
        };
        Self {
            lines: jobs.iter().map(line).collect(),
            of_slot: vec![0; jobs.len()],
            next_piece_ns: 100 * NS_PER_MS,
            calm_ns: None,
        }
    }

    fn send_pieces(&mut self, now: Now, fx: &mut Effects) {
        let mut any = false;
        for line in &mut self.lines {
            let conn = line
                .conn
                .expect("connected before the first piece is due, and not forgotten");
            if line.next < line.pieces.len() && line.ended_ns.is_none() {
                fx.outbox(conn).extend_from_slice(&line.pieces[line.next]);
                line.next += 1;
                any = true;
            }
        }
        self.next_piece_ns = now.mono.0 + GAP_NS;
        if !any {
            self.next_piece_ns = u64::MAX;
            self.calm_ns = Some(now.mono.0 + QUIET_NS);
        }
    }

    fn look(&mut self, fx: &mut Effects) {
        self.calm_ns = None;
        for line in &mut self.lines {
            line.calm = Some((line.got.len(), line.ended_ns.is_some()));
            if let (true, None, Some(conn)) = (line.ends, line.ended_ns, line.conn) {
                fx.finish(conn);
            }
        }
    }
}

impl Handler for Clients {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        for index in 0..self.lines.len() {
            fx.connect(Connect {
                token: ConnectToken(index as u64),
                to: SERVED,
                from: None,
                deadline: now.mono.plus_ms(60_000),
            });
        }
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Connected { conn, token } => {
                self.of_slot[conn.slot as usize] = token.0 as usize;
                self.lines[token.0 as usize].conn = Some(conn);
            }
            Event::ConnectFailed { error, .. } => panic!("a client could not connect: {error:?}"),
            Event::Received { conn, mut input } => {
                let line = &mut self.lines[self.of_slot[conn.slot as usize]];
                let bytes = input.bytes();
                line.got.extend_from_slice(bytes);
                if !bytes.is_empty() {
                    line.heard_ns = now.mono.0;
                }
                input.consume(bytes.len());
                if input.ended() {
                    line.ended_ns.get_or_insert(now.mono.0);
                    fx.finish(conn);
                }
            }
            Event::Closed { conn, cause } => {
                self.lines[self.of_slot[conn.slot as usize]].closed = Some(cause);
            }
            Event::Tick => {
                if now.mono.0 >= self.next_piece_ns {
                    self.send_pieces(now, fx);
                }
                if self.calm_ns.is_some_and(|at| now.mono.0 >= at) {
                    self.look(fx);
                }
            }
            Event::Accepted { .. } | Event::Sent { .. } | Event::Mail(_) | Event::Drain => {}
        }
    }

    fn on_flush(&mut self, _: Now, _: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        let due = self.next_piece_ns.min(self.calm_ns.unwrap_or(u64::MAX));
        (due != u64::MAX).then_some(Mono(due))
    }
}

/// Plays one wave to its end; a line for each row that differs.
fn play(jobs: &[Job<'_>], seed: u64, split_per_mille: u64) -> Vec<String> {
    let config = Config {
        split_per_mille,
        ..Config::default()
    };
    let mut world = World::new(seed, config);
    let mut shard = Shard::new(
        world.now(),
        weir_core::shard::config::ShardConfig {
            conns_max: jobs.len(),
            timeouts: Timeouts {
                head_ms: DEADLINE_MS,
                body_ms: DEADLINE_MS,
                idle_ms: DEADLINE_MS,
                write_ms: 10_000,
                linger_ms: DEADLINE_MS,
            },
            ..shard_kit::config()
        },
    );
    shard.plant_echo();
    world.add_part(SHARD, Box::new(shard), Listen::On(SERVED), jobs.len());
    world.add_part(Addr::Owner, Box::new(Views), Listen::No, 0);
    world.add_part(
        CLIENTS,
        Box::new(Clients::new(jobs)),
        Listen::No,
        jobs.len(),
    );
    let all_closed = |world: &World| {
        let clients: &Clients = world.part(CLIENTS).unwrap();
        world.conns_count(SHARD) == 0
            && clients
                .lines
                .iter()
                .all(|line| line.closed.is_some() && line.calm.is_some())
    };
    // Pieces first, then the deadlines of what is incomplete.
    let ended = world.run_until(3 * DEADLINE_MS * NS_PER_MS, all_closed);
    assert!(ended, "every connection ends");
    let clients: &Clients = world.part(CLIENTS).unwrap();
    let verdicts = jobs.iter().zip(&clients.lines).map(|(job, line)| {
        let fault = verdict(job, line).err()?;
        let cuts = &job.cuts[..job.cuts.len().min(8)];
        Some(format!("{} in pieces to {cuts:?}: {fault}", job.row.id))
    });
    verdicts.flatten().collect()
}

fn verdict(job: &Job<'_>, line: &Line) -> Result<(), String> {
    let (row, model) = (job.row, &job.row.model);
    let (calm_bytes, calm_closed) = line.calm.unwrap();
    if line.closed != Some(CloseCause::Local) {
        return Err(format!("{:?}", line.closed));
    }
    let calm = heard(model, &line.got[..calm_bytes], calm_closed)?;
    judge(row, &calm)?;
    same(model, &calm)?;
    let took_ns = line.ended_ns.unwrap_or(u64::MAX) - line.heard_ns;
    if calm_closed && took_ns > CLOSE_NS {
        return Err(format!("closed {took_ns} ns after its answer"));
    }
    if model.end != End::Waiting {
        return if line.got.len() == calm_bytes {
            Ok(())
        } else {
            Err(format!("{EXTRA}, later"))
        };
    }
    let overdue = heard(model, &line.got, true)?;
    judge_overdue(row, &overdue)?;
    let mut wanted = model.statuses();
    wanted.push(408);
    if overdue.statuses == wanted {
        Ok(())
    } else {
        Err(format!("{:?}, not {wanted:?}", overdue.statuses))
    }
}

#[test]
fn every_row_has_its_answer_on_simulated_sockets() {
    let rows = rows();
    let modes = [
        ("whole", whole(&rows), 0),
        ("bytewise", bytewise(&rows), 0),
        ("splits", splits(&rows), 0),
        ("cut by the network", whole(&rows), 900),
    ];
    let (mut differences, mut text) = (Vec::new(), format!("{} rows × sim:", rows.len()));
    for (name, jobs, split_per_mille) in &modes {
        for (seed, wave) in (0..).zip(jobs.chunks(WAVE)) {
            differences.extend(play(wave, seed, *split_per_mille));
        }
        text.push_str(&format!(" {name} {},", jobs.len()));
    }
    let extra = differences.iter().filter(|text| text.contains(EXTRA));
    let extra = extra.count();
    text.push_str(&format!(
        " differences {}, {EXTRA} {extra}",
        differences.len()
    ));
    say::say(&text);
    let first: Vec<&String> = differences.iter().take(20).collect();
    assert!(differences.is_empty(), "{first:#?}");
}
