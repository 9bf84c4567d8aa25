//! `weir serve` and `weir worker`: opens the stores, starts every part on its thread, tells when it serves, ends in order.
//!
//! Called by the command line. Parts: shards (the driver that was chosen, pinned), owner, ledger store, worker, order store,
//! log (mailbox threads), ops (the same driver); an instance whose orders are made elsewhere has no worker and no order
//! store. They end in stages, so that each finds the parts it needs alive: shards, worker, owner, rest.

mod error;
mod files;
mod hall;
mod instance;
mod planted;
mod probe;
mod redis;
mod resolver;
mod sources;
mod stores;

pub use error::ServeError;
pub use redis::books::{BooksError, compare as compare_redis};

use self::hall::{Hall, News, Stage, name_of};
use self::probe::Missing;
use self::resolver::Resolver;
use self::stores::{ForClerk, Stores};
use crate::config::{Footprint, LogTarget, Plan, RedisPlan};
use crate::deny::DenyBook;
use crate::log::LogWriter;
use crate::ops::limits::OPS_CONNS_MAX;
use crate::ops::{AuditLog, BooksAt, OpsConfig, OpsListener};
use crate::orders::store::OrderStore;
use crate::store::{DirLock, LedgerStore};
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use weir_core::ledger::owner::{Owner, OwnerConfig};
use weir_core::limit::deny::DenyList;
use weir_core::limit::lease::ShardId;
use weir_core::limits::REDIS_NODES_MAX;
use weir_core::mail::Addr;
use weir_core::order::worker::Worker;
use weir_core::redis::clerk::{Clerk, ClerkConfig};
use weir_core::redis::desk::DeskConfig;
use weir_io::driver::DriverConfig;
use weir_io::net::ListenSocket;
use weir_io::post::PostOffice;
use weir_io::tls::over::OverTls;
use weir_io::{affinity, clock, rlimit, signals};

/// How long the parts may take until `/readyz` is 200: recovery reads the whole journal.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// What an operator should know of a kernel, or of what stands in for one, without IORING_REGISTER_RESTRICTIONS.
const UNRESTRICTED_NOTE: &str = "this kernel cannot restrict io_uring to the operations in use: everything works, one line of \
                                 defence is missing (Linux 5.10 and later have it; a sandbox may hide it)";

/// The worker numbers its batches by its boot number, shifted left by 40: 24 bits fit.
const WORKER_BOOT_MASK: u64 = (1 << 24) - 1;

/// A running server.
pub struct Server {
    stages: Vec<Stage>,
    news: Receiver<News>,
    sender: Sender<News>,
    /// Where buyers come in.
    pub listen: SocketAddr,
    /// Where the operator comes in.
    pub ops: SocketAddr,
    /// What the operator should know although the server serves, one sentence each.
    pub notes: Vec<String>,
    /// The data directory's, where no ledger's store holds it.
    _lock: Option<DirLock>,
}

/// Opens the stores, binds the sockets, starts every part and waits until all of them serve.
///
/// # Errors
/// [`ServeError`]: each says what, where and the remedy. Nothing runs then.
pub fn start(plan: &Plan) -> Result<Server, ServeError> {
    let files = rlimit::raise_open_files().map_err(ServeError::Limits)?;
    let chosen = plan
        .driver
        .choose(plan.direct)
        .map_err(|(kind, error)| ServeError::Driver(kind, error))?;
    let bounded = (plan.direct && !chosen.direct).then(|| plan.without_direct(files.soft));
    let plan = bounded.as_ref().map_or(plan, |(plan, _)| plan);
    // The stores first: they refuse another server's directory before any socket is bound.
    let Stores {
        ledger,
        orders,
        lock,
        here,
        mut notes,
    } = Stores::open(plan)?;
    notes.extend(chosen.note);
    notes.extend(bounded.iter().map(|(_, note)| note.clone()));
    let audit = AuditLog::open(&plan.ops.audit_log)?;
    let deny = DenyBook::open(&plan.deny.subjects, &plan.deny.file)?;
    let denied = Arc::new(deny.list(clock::read().wall));
    let at = |key| move |error| ServeError::Listen(key, error);
    let listeners = ListenSocket::bind_shared(plan.listen, usize::from(plan.shards_count))
        .map_err(at("server.listen"))?;
    let ops_listener = ListenSocket::bind(plan.ops.listen).map_err(at("ops.listen"))?;
    let (listen, ops) = (listeners[0].local_addr(), ops_listener.local_addr());

    let shards: Vec<Addr> = (0..plan.shards_count)
        .map(|shard| Addr::Shard(ShardId(shard)))
        .collect();
    let mut parts = vec![Addr::Owner, Addr::Ops];
    parts.extend(orders.iter().flat_map(|_| [Addr::Worker, Addr::OrderStore]));
    parts.push(match ledger {
        Some(_) => Addr::Store,
        None => Addr::Resolver,
    });
    parts.extend(&shards);
    parts.extend((plan.log != LogTarget::Off).then_some(Addr::Log));
    let post = Arc::new(PostOffice::new(parts).map_err(ServeError::Doorbell)?);
    let (sender, news) = channel();
    let hall = Hall {
        post,
        news: sender.clone(),
        stats: Arc::default(),
        shard_stats: shards.iter().map(|_| Arc::default()).collect(),
        kind: chosen.kind,
    };

    let (mut rest, mut owner, mut worker, mut front) =
        (hall.stage(), hall.stage(), hall.stage(), hall.stage());
    start_stores(&hall, &mut rest, ledger, orders)?;
    if let Some(log) = open_log(&plan.log)? {
        hall.mailbox(&mut rest, Addr::Log, Box::new(LogWriter::new(log)))?;
    }
    let seat = (here, listen.port());
    start_deciders(plan, &hall, seat, &mut owner, &mut worker)?;
    let ops_config = ops_config(plan, &hall, ops, (audit, deny), &shards)?;
    start_ops(&hall, &mut rest, ops_listener, ops_config)?;
    start_shards(plan, &hall, &mut front, listeners, &denied)?;
    let mut server = Server {
        stages: vec![front, worker, owner, rest],
        news,
        sender,
        listen,
        ops,
        notes,
        _lock: lock,
    };
    server.wait_until_ready(ready_within(plan))?;
    let all_stats = || hall.shard_stats.iter().chain([&hall.stats]);
    if all_stats().any(|stats| stats.rings_unrestricted.get() > 0) {
        server.notes.push(UNRESTRICTED_NOTE.to_owned());
    }
    Ok(server)
}

/// Books of a Redis that failed over are mended meanwhile.
fn ready_within(plan: &Plan) -> Duration {
    let freeze_ms = plan.redis.as_ref().map_or(0, |redis| redis.freeze_ms);
    READY_WITHIN + 2 * Duration::from_millis(freeze_ms)
}

/// What blocks on disks and names: the ledger's store, or what resolves names of Redis servers; and the orders' store.
fn start_stores(
    hall: &Hall,
    stage: &mut Stage,
    ledger: Option<LedgerStore>,
    orders: Option<OrderStore>,
) -> Result<(), ServeError> {
    match ledger {
        Some(ledger) => hall.mailbox(stage, Addr::Store, Box::new(ledger))?,
        None => hall.mailbox(stage, Addr::Resolver, Box::new(Resolver))?,
    }
    match orders {
        Some(orders) => hall.mailbox(stage, Addr::OrderStore, Box::new(orders)),
        None => Ok(()), // another process makes the orders
    }
}

fn seed() -> Result<u64, ServeError> {
    let random = crate::keys::random::<8>().map_err(ServeError::Entropy)?;
    Ok(u64::from_le_bytes(random))
}

/// The ledger's owner, or its clerk, and the orders' worker where orders are made here.
fn start_deciders(
    plan: &Plan,
    hall: &Hall,
    (here, port): (ForClerk, u16),
    owner: &mut Stage,
    worker: &mut Stage,
) -> Result<(), ServeError> {
    match &plan.redis {
        Some(redis) => start_clerk(plan, (redis, here, port), hall, owner)?,
        None => {
            let owner_config = OwnerConfig {
                sale: Arc::clone(&plan.sale),
                shards_count: plan.shards_count,
                seed: seed()?,
            };
            hall.mailbox(owner, Addr::Owner, Box::new(Owner::new(owner_config)))?;
        }
    }
    if !plan.shard.role.makes_orders() {
        return Ok(());
    }
    let boot = (seed()? & WORKER_BOOT_MASK) as u32;
    let orders = Worker::new(Arc::clone(&plan.sale), boot);
    hall.mailbox(worker, Addr::Worker, Box::new(orders))
}

/// The ledger's clerk, where Redis holds the ledger: it has sockets.
fn start_clerk(
    plan: &Plan,
    (redis, here, port): (&RedisPlan, ForClerk, u16),
    hall: &Hall,
    owner: &mut Stage,
) -> Result<(), ServeError> {
    let now = clock::read();
    // Replicas name their masters, and are no help to a clerk: it begins with both.
    let mut nodes = redis.desk.servers.clone();
    let masters = here.masters.into_iter();
    nodes.extend(masters.filter(|node| !redis.desk.servers.contains(node)));
    nodes.truncate(REDIS_NODES_MAX);
    let config = ClerkConfig {
        sale: Arc::clone(&plan.sale),
        plans: redis.steps.clone(),
        never_open: here.never_open,
        freeze_ms: redis.freeze_ms,
        maker: here.maker,
        shards_count: plan.shards_count,
        boot: now.wall.0,
        seed: seed()?,
        desk: DeskConfig {
            servers: nodes,
            seed: seed()?,
            ..redis.desk.clone()
        },
        leases: instance::leases(&redis.leases, port)?,
    };
    let driver = DriverConfig {
        conns_max: 2 * REDIS_NODES_MAX as u32, // of the stock, and of the buckets
        ring_entries: 256,
        recv_buffers: 256,
        ..DriverConfig::new(Addr::Owner)
    };
    let clerk = Clerk::new(now, config);
    let clients = redis.tls_clients();
    if clients.is_empty() {
        return hall.sockets(owner, driver, Box::new(clerk));
    }
    let conns_max = driver.conns_max as usize;
    hall.sockets(
        owner,
        driver,
        Box::new(OverTls::new(clerk, clients, conns_max)),
    )
}

fn start_ops(
    hall: &Hall,
    stage: &mut Stage,
    listener: ListenSocket,
    config: OpsConfig,
) -> Result<(), ServeError> {
    let driver = DriverConfig {
        listen: Some(listener),
        conns_max: OPS_CONNS_MAX as u32,
        ring_entries: 128,
        recv_buffers: 64,
        ..DriverConfig::new(Addr::Ops)
    };
    hall.sockets(stage, driver, Box::new(OpsListener::new(config)?))
}

/// One driver, one listener and one core for each shard.
fn start_shards(
    plan: &Plan,
    hall: &Hall,
    stage: &mut Stage,
    listeners: Vec<ListenSocket>,
    denied: &Arc<DenyList>,
) -> Result<(), ServeError> {
    let cpus = affinity::allowed_cpus().map_err(ServeError::Cpus)?;
    for (index, listener) in (0_u16..).zip(listeners) {
        let shard = ShardId(index);
        let mut config = plan.shard_config(shard, seed()?, seed()?);
        config.deny = Arc::clone(denied);
        let driver = DriverConfig {
            listen: Some(listener),
            conns_max: config.conns_max as u32,
            direct: plan.direct,
            cpu: Some(cpus[usize::from(index) % cpus.len()]),
            ..DriverConfig::new(Addr::Shard(shard))
        };
        hall.sockets(
            stage,
            driver,
            Box::new(planted::shard(clock::read(), config)),
        )?;
    }
    Ok(())
}

fn ops_config(
    plan: &Plan,
    hall: &Hall,
    listen: SocketAddr,
    (audit, deny): (AuditLog, DenyBook),
    shards: &[Addr],
) -> Result<OpsConfig, ServeError> {
    let mut parts = vec![Addr::Owner];
    parts.extend(plan.shard.role.makes_orders().then_some(Addr::Worker));
    parts.extend(plan.redis.is_none().then_some(Addr::Store));
    parts.extend(shards);
    parts.extend((plan.log != LogTarget::Off).then_some(Addr::Log));
    let random = |error| ServeError::Entropy(error);
    Ok(OpsConfig {
        listen,
        token: plan.ops.token.clone(),
        sale: Arc::clone(&plan.sale),
        keys: Arc::clone(&plan.shard.keys),
        entropy: crate::ops::entropy::Entropy::new(crate::keys::random().map_err(random)?),
        parts,
        books: match plan.redis {
            Some(_) => BooksAt::Redis {
                makes_orders: plan.shard.role.makes_orders(),
            },
            None => BooksAt::Here,
        },
        sources: sources::sources(hall.kind, &hall.stats, &hall.shard_stats, &hall.post),
        audit,
        rules: [
            &plan.shard.ip,
            &plan.shard.user,
            &plan.shard.device,
            &plan.shard.status,
        ]
        .map(|limit| limit.rule),
        deny,
        user_hash_key: plan.shard.user_hash_key,
        boot: u64::from(u32::from_le_bytes(crate::keys::random().map_err(random)?)),
    })
}

fn open_log(target: &LogTarget) -> Result<Option<Box<dyn Write + Send>>, ServeError> {
    Ok(match target {
        LogTarget::Off => None,
        LogTarget::Stdout => Some(Box::new(std::io::stdout())),
        LogTarget::File(path) => {
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(path);
            Some(Box::new(
                file.map_err(|error| ServeError::Log(path.clone(), error))?,
            ))
        }
    })
}

impl Server {
    fn wait_until_ready(&self, within: Duration) -> Result<(), ServeError> {
        let until = Instant::now() + within;
        let mut missing = String::from("no answer");
        while Instant::now() < until {
            if let Ok(News::Ended((addr, result))) = self.news.try_recv() {
                return Err(ServeError::Part(name_of(addr), result.err()));
            }
            match probe::readyz(self.ops) {
                Ok(()) => return Ok(()),
                Err(Missing {
                    text,
                    is_final: true,
                }) => return Err(ServeError::NotReady(text)),
                Err(Missing { text, .. }) => missing = text,
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(ServeError::NotYet(format!(
            "nothing changed within {} s: {missing}",
            within.as_secs()
        )))
    }

    /// Waits for SIGTERM or SIGINT, then ends in order; a second signal ends the process at once.
    ///
    /// # Errors
    /// `Part` when a part ended by itself: the process must not go on without it.
    pub fn run_until_signal(self) -> Result<(), ServeError> {
        let sender = self.sender.clone();
        std::thread::Builder::new()
            .name("weir-signals".to_owned())
            .spawn(move || {
                signals::wait();
                let _ = sender.send(News::Signal);
                signals::wait();
                // Standard error may be closed; the exit code still says it.
                let _ = writeln!(
                    std::io::stderr(),
                    "weir: second signal: ended at once; clients in flight see their connections break, what was acknowledged is on the disk"
                );
                std::process::exit(1);
            })
            .map_err(ServeError::Thread)?;
        match self.news.recv() {
            Ok(News::Signal) => self.stop(),
            Ok(News::Ended((addr, result))) => Err(ServeError::Part(name_of(addr), result.err())),
            Err(_) => unreachable!("this server holds a sender itself"),
        }
    }

    /// Ends in order: shards answer what they owe, the worker hands over, the owner commits, then the rest.
    ///
    /// # Errors
    /// `Part` when a part failed while it ended.
    pub fn stop(self) -> Result<(), ServeError> {
        for stage in self.stages {
            stage.drain.throw();
            for thread in stage.threads {
                // A panic aborts the process before it could be seen here.
                let _ = thread.join();
            }
        }
        while let Ok(news) = self.news.try_recv() {
            if let News::Ended((addr, Err(error))) = news {
                return Err(ServeError::Part(name_of(addr), Some(error)));
            }
        }
        Ok(())
    }
}

/// The lines that `serve` prints before it starts: what it will take of the machine.
pub fn footprint_text(plan: &Plan) -> String {
    let footprint = Footprint::of(plan);
    let mib = |bytes: u64| bytes.div_ceil(1024 * 1024);
    format!(
        "{} shard(s) of at most {} MiB each, {} MiB shared; up to {} connections{}",
        footprint.shards_count,
        mib(footprint.shard_bytes),
        mib(footprint.shared_bytes),
        u64::from(plan.shards_count) * plan.shard.conns_max as u64,
        match plan.direct {
            true => " as direct descriptors",
            false => "",
        },
    )
}
