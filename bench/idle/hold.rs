//! One process's share of the connections: opened, asked once each, held until standard input ends.
//!
//! Started by `main`, which reads [`HELD`] from its standard output. Ends by itself when not all are answered in time.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use weir_bench::client::{
    Client, ClientConfig, ClientCounts, Done, Job, LaneId, Outcome, Place, Progress, Workload,
};
use weir_core::mail::Addr;
use weir_core::time::{Mono, Now};
use weir_io::choice::{self, Wanted};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;

/// What is printed once every connection has had its answer.
pub const HELD: &str = "held\n";
/// Addresses that the connections come from: no limit per source is met by chance, and ports suffice.
const SOURCES: u32 = 256;
/// To open a connection, or to answer, while thousands of others come: milliseconds.
const PATIENCE_MS: u64 = 10_000;

/// What the holder tells.
enum News {
    /// Every connection had its one request; so many were answered, and the last failure.
    Asked(u32, Option<String>),
    /// The engine has ended.
    Ended(ClientCounts),
}

/// Asks once on each lane.
struct Once {
    request: Vec<u8>,
    connections: u32,
    given: u32,
    answered: u32,
    ended: u32,
    failure: Option<String>,
    over: bool,
    news: Sender<News>,
}

impl Workload for Once {
    fn start(&mut self, _now: Now) {}

    fn next(&mut self, now: Now) -> Option<Job> {
        if self.given == self.connections {
            return None;
        }
        let lane = LaneId(self.given);
        self.given += 1;
        Some(Job {
            place: Place::On(lane),
            ..Job::new(lane.0.into(), now.mono)
        })
    }

    fn write(&mut self, _now: Now, _job: &Job, _lane: LaneId, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
    }

    fn done(&mut self, _now: Now, done: &Done<'_>) {
        self.ended += 1;
        match done.outcome {
            Outcome::Answer(_) => self.answered += 1,
            Outcome::Left => {}
            Outcome::Failed(failure) => self.failure = Some(failure.as_str().to_owned()),
        }
        if self.ended == self.connections {
            // Nobody listens when the time is over.
            let _ = self
                .news
                .send(News::Asked(self.answered, self.failure.take()));
        }
    }

    fn next_due(&self) -> Option<Mono> {
        (self.given < self.connections).then_some(Mono(0))
    }

    fn progress(&self) -> Progress {
        match self.over {
            true => Progress::Aborted,
            false => Progress::Running,
        }
    }

    fn drain(&mut self) {
        self.over = true;
    }

    fn ended(&mut self, _now: Now, counts: &ClientCounts) {
        let _ = self.news.send(News::Ended(*counts));
    }
}

/// `TARGET PATH CONNECTIONS SECONDS`, as `main` gives them.
pub fn run(words: &[String]) -> Result<(), String> {
    let [target, path, connections, seconds] = words else {
        return Err("hold: started by hand? weir-idle starts it".to_owned());
    };
    let wrong = |word: &str| format!("hold: {word}: not understood");
    let target: SocketAddr = target.parse().map_err(|_| wrong(target))?;
    let connections: u32 = connections.parse().map_err(|_| wrong(connections))?;
    let seconds: u64 = seconds.parse().map_err(|_| wrong(seconds))?;
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    weir_io::rlimit::raise_open_files().map_err(|error| failed(&error))?;
    let (news, told) = channel();
    let mut engine = ClientConfig::new(target, connections);
    engine.sources = ClientConfig::loopback_sources(SOURCES);
    engine.connect_ms = PATIENCE_MS;
    engine.answer_ms = PATIENCE_MS;
    let once = Once {
        request: format!("GET {path} HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes(),
        connections,
        given: 0,
        answered: 0,
        ended: 0,
        failure: None,
        over: false,
        news,
    };
    let client = Client::new(engine, Box::new(once)).map_err(|error| failed(&error))?;
    let post = Arc::new(PostOffice::new([Addr::Ops]).map_err(|error| failed(&error))?);
    let drain = Arc::new(DrainSwitch::new(post.clone()));
    let kind = Wanted::Auto
        .choose(false)
        .map_err(|(_, e)| failed(&e))?
        .kind;
    let mut driver = DriverConfig::new(Addr::Ops);
    driver.conns_max = connections;
    let switch = drain.clone();
    let thread = std::thread::Builder::new()
        .name("weir-idle".into())
        .spawn(move || {
            let stats = Arc::new(DriverStats::default());
            choice::run(kind, driver, Box::new(client), post, switch, stats).map(drop)
        })
        .map_err(|error| failed(&error))?;
    let asked = match told.recv_timeout(Duration::from_secs(seconds)) {
        Ok(News::Asked(answered, failure)) if answered < connections => Err(format!(
            "{answered} of {connections} were answered; the last failure: {}",
            failure.as_deref().unwrap_or("none told")
        )),
        Ok(News::Asked(..)) => wait_for_end(),
        Ok(News::Ended(_)) => Err("the client ended before its requests".to_owned()),
        Err(_) => Err(format!(
            "{connections} connections were not opened and answered within {seconds} s: has the server room for them all?"
        )),
    };
    drain.throw();
    let ended = thread.join();
    asked?;
    match ended {
        Ok(result) => result.map_err(|error| failed(&error))?,
        Err(_) => return Err("the client's thread has panicked: see above".to_owned()),
    }
    match told.recv() {
        Ok(News::Ended(counts)) if lost(&counts) == 0 => Ok(()),
        Ok(News::Ended(counts)) => Err(format!(
            "{} of {connections} connections were ended by the server, which must let idle ones be",
            lost(&counts)
        )),
        _ => Err("the client's thread ended without its counts".to_owned()),
    }
}

/// Says that all are held, and waits until `main` lets go.
fn wait_for_end() -> Result<(), String> {
    let mut out = std::io::stdout();
    out.write_all(HELD.as_bytes())
        .and_then(|()| out.flush())
        .and_then(|()| std::io::stdin().read_to_end(&mut Vec::new()))
        .map(drop)
        .map_err(|error| error.to_string())
}

fn lost(counts: &ClientCounts) -> u64 {
    counts.closed_with_answer + counts.closed_idle + counts.broken
}
