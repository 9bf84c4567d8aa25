//! Every key of the configuration file, in one place: name, kind, default, meaning, example.
//!
//! The reader checks by it, `weir config explain` prints it, `weir init` writes its starter file from it.
//! Values are TOML literals, read by the same code as the operator's.

use super::ceilings::*;
use super::value::Kind;
use crate::deny::DenyKind;
use weir_core::limits::BUCKET_WEIGHTS_MAX;
use weir_io::choice::Wanted;

/// How a key gets its value when the file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// The file must say.
    Required,
    /// Nothing is meant.
    Absent,
    /// This TOML literal.
    Is(&'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The section it stands in.
    pub section: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What holds without it.
    pub default: Default,
    /// A TOML literal that is valid.
    pub example: &'static str,
    /// What it means, in one or more sentences.
    pub doc: &'static str,
}

/// One section.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its name; a dot for a section within a section.
    pub name: &'static str,
    /// Written `[[name]]`, once or more.
    pub is_list: bool,
    /// What it is for.
    pub doc: &'static str,
}

/// All sections, in the order of the starter file.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "server",
        is_list: false,
        doc: "The public listener: where buyers' requests arrive.",
    },
    Section {
        name: "io",
        is_list: false,
        doc: "How the shards' connections are held.",
    },
    Section {
        name: "ledger",
        is_list: false,
        doc: "Who holds which unit: a journal on this machine, or Redis.",
    },
    Section {
        name: "redis",
        is_list: false,
        doc: "How Redis is reached when ledger.kind is \"redis\"; README says what its user must be allowed.",
    },
    Section {
        name: "limiter",
        is_list: false,
        doc: "How several instances on one stock in Redis share its budget (activity.sku.budget): each draws its tokens ahead of need from a bucket per SKU. Without `servers` the buckets are where the stock is.",
    },
    Section {
        name: "orders",
        is_list: false,
        doc: "Who makes the orders of what is sold.",
    },
    Section {
        name: "ops",
        is_list: false,
        doc: "The operator's listener: health, metrics, tickets for the shop's backend, opening and closing.",
    },
    Section {
        name: "limits",
        is_list: false,
        doc: "How fast is too fast, and how much may wait. A rate is over all shards; a limit split over N shards admits at most N x burst + rate x time.",
    },
    Section {
        name: "deny",
        is_list: false,
        doc: "Who is refused whatever they ask. More can be added while the server runs: POST /ops/v1/deny/add. A denied address gets nothing; a denied user or device cannot submit, but can still ask how an earlier request stands.",
    },
    Section {
        name: "log",
        is_list: false,
        doc: "The admission log: JSON lines, one per logged request. Never a ticket, device or user id.",
    },
    Section {
        name: "keys",
        is_list: false,
        doc: "Files with secrets: 32 random bytes in hexadecimal or base64, readable by their owner only. Make one with `weir keygen FILE`.",
    },
    Section {
        name: "activity",
        is_list: true,
        doc: "A sale. Repeat [[activity]] for more of them.",
    },
    Section {
        name: "activity.sku",
        is_list: true,
        doc: "What is sold in the activity above. Repeat [[activity.sku]] for more of them.",
    },
];

const fn key(
    section: &'static str,
    name: &'static str,
    kind: Kind,
    default: Default,
    example: &'static str,
    doc: &'static str,
) -> Key {
    Key {
        section,
        name,
        kind,
        default,
        example,
        doc,
    }
}

const CONN_TIMEOUT: Kind = Kind::Duration(CONN_TIMEOUT_MS_MIN, CONN_TIMEOUT_MS_MAX);
const READ_TIMEOUT: Kind = Kind::Duration(CONN_TIMEOUT_MS_MIN, READ_TIMEOUT_MS_MAX);
const POLICY: Kind = Kind::Choice(&[
    "gcra",
    "fixed-window",
    "sliding-log",
    "sliding-counter",
    "leaky-bucket",
]);
const SLOTS: Kind = Kind::Integer(SLOTS_MIN, SLOTS_MAX);
const INFLIGHT: Kind = Kind::IntegerOrAuto(1, INFLIGHT_MAX);
const ID: Kind = Kind::Integer(1, IDS_MAX);
const BUDGET: Kind = Kind::Duration(REQUEST_BUDGET_MS_MIN, REQUEST_BUDGET_MS_MAX);
const BAN: Kind = Kind::Duration(BAN_MS_MIN, BAN_MS_MAX);
const EVERY: Kind = Kind::Integer(0, SAMPLE_EVERY_MAX);

/// All keys, in the order of the starter file.
pub const KEYS: &[Key] = &[
    key(
        "server",
        "listen",
        Kind::Address,
        Default::Is("\"127.0.0.1:8080\""),
        "\"0.0.0.0:8080\"",
        "Address of the public listener. Port 0 takes a free one and prints it.",
    ),
    key(
        "server",
        "shards",
        Kind::IntegerOrAuto(1, SHARDS_MAX),
        Default::Is("\"auto\""),
        "2",
        "Threads that serve requests, each with a core of its own. \"auto\" leaves one core to the ledger, the stores and the system.",
    ),
    key(
        "server",
        "driver",
        Kind::Choice(&Wanted::NAMES),
        Default::Is("\"auto\""),
        "\"epoll\"",
        "How bytes move. \"auto\" takes uring and, where the kernel or a seccomp filter refuses it, says so and takes epoll; any other runs or ends `weir serve` with exit code 78. uring needs Linux 6.1 or later with io_uring allowed; epoll runs everywhere, with the same results; monoio is its io_uring twin; glommio needs a build with the cargo feature of that name.",
    ),
    key(
        "server",
        "conns_max",
        Kind::Integer(CONNS_MIN, CONNS_MAX),
        Default::Is("4096"),
        "16384",
        "Connections of one shard; at the cap accepting pauses. Each takes memory, printed by `weir config check`, and a file descriptor (but see io.direct).",
    ),
    key(
        "server",
        "conns_per_source_max",
        Kind::IntegerOrAuto(1, CONNS_MAX),
        Default::Is("\"auto\""),
        "512",
        "Connections of one shard that one IPv4 address or IPv6 /64 may have open; one more is answered 429 and closed. Over N shards an address holds at most N times as many. Trusted proxies are not limited. \"auto\" is a quarter of conns_max, 256 at least: many buyers share an address behind a carrier's NAT.",
    ),
    key(
        "server",
        "client_address",
        Kind::Choice(&["peer", "x-forwarded-for", "forwarded", "proxy-protocol"]),
        Default::Is("\"peer\""),
        "\"x-forwarded-for\"",
        "Where the client's address comes from. All but peer are believed from trusted networks only, and need at least one.",
    ),
    key(
        "server",
        "trusted",
        Kind::Networks,
        Default::Is("[]"),
        "[\"10.0.0.0/8\"]",
        "Networks of your own proxies, whose word about the client's address counts. Nothing else may lie in them.",
    ),
    key(
        "server",
        "origins",
        Kind::Origins,
        Default::Is("[]"),
        "[\"https://shop.example\"]",
        "Shop pages whose scripts may call this server (CORS).",
    ),
    key(
        "server",
        "head_timeout",
        READ_TIMEOUT,
        Default::Is("\"5s\""),
        "\"9s\"",
        "From the first byte of a request to the end of its head, however it trickles.",
    ),
    key(
        "server",
        "body_timeout",
        READ_TIMEOUT,
        Default::Is("\"5s\""),
        "\"9s\"",
        "From the end of the head to the end of the body.",
    ),
    key(
        "server",
        "idle_timeout",
        CONN_TIMEOUT,
        Default::Is("\"60s\""),
        "\"30s\"",
        "A connection without a request is closed after this.",
    ),
    key(
        "server",
        "write_timeout",
        CONN_TIMEOUT,
        Default::Is("\"10s\""),
        "\"5s\"",
        "A client that takes nothing of its replies for so long is dropped.",
    ),
    key(
        "server",
        "linger_timeout",
        CONN_TIMEOUT,
        Default::Is("\"2s\""),
        "\"1s\"",
        "After a refusal, how long what the client still sends is read and dropped, so that the reply is not lost to a reset.",
    ),
    key(
        "server",
        "drain_timeout",
        Kind::Duration(0, DRAIN_MS_MAX),
        Default::Is("\"10s\""),
        "\"30s\"",
        "From SIGTERM until connections are closed whatever they do. A second signal ends at once.",
    ),
    key(
        "server",
        "data_dir",
        Kind::File,
        Default::Is("\"data\""),
        "\"/var/lib/weir\"",
        "Directory of ledger.sqlite and orders.sqlite. One server per directory, held by a lock. Use a local disk.",
    ),
    key(
        "io",
        "direct",
        Kind::Bool,
        Default::Is("false"),
        "true",
        "Whether connections are direct descriptors: places in a table of the shard's ring instead of descriptors of the process. Then the limit of open files bounds the connections of one shard, not of all. Needs the driver uring and Linux 6.13; elsewhere weir says so, runs without, and takes as many connections as the limit of open files allows. Ending our side of a connection costs more then: the kernel does it on a thread of its own.",
    ),
    key(
        "ledger",
        "kind",
        Kind::Choice(&["embedded", "redis"]),
        Default::Is("\"embedded\""),
        "\"redis\"",
        "\"embedded\": this process holds the stock and keeps it in data_dir. \"redis\": Redis holds it; only orders are in data_dir. Several instances may sell it then: see orders.made_by.",
    ),
    key(
        "redis",
        "servers",
        Kind::Endpoints,
        Default::Is("[\"127.0.0.1:6379\"]"),
        "[\"redis-1.internal:6379\"]",
        "The server, or with cluster = true nodes to begin with. A name is resolved again at each new connection.",
    ),
    key(
        "redis",
        "cluster",
        Kind::Bool,
        Default::Is("false"),
        "true",
        "The servers are nodes of one Redis Cluster.",
    ),
    key(
        "redis",
        "user",
        Kind::Name,
        Default::Absent,
        "\"weir\"",
        "The ACL user; without it the default user.",
    ),
    key(
        "redis",
        "password_file",
        Kind::File,
        Default::Absent,
        "\"keys/redis.password\"",
        "File with the password, readable by its owner only.",
    ),
    key(
        "redis",
        "database",
        Kind::Integer(0, 15),
        Default::Is("0"),
        "3",
        "The database; a cluster has only 0.",
    ),
    key(
        "redis",
        "connect_timeout",
        Kind::Duration(50, 60_000),
        Default::Is("\"1s\""),
        "\"500ms\"",
        "A connection, and then its greeting, may take so long.",
    ),
    key(
        "redis",
        "reply_timeout",
        Kind::Duration(50, 60_000),
        Default::Is("\"1s\""),
        "\"500ms\"",
        "A reply may take so long; then its connection is closed, and what was under way on it is unknown and looked up. Longer than limits.request_budget, so that one late reply does not cost a connection.",
    ),
    key(
        "redis",
        "wait_replicas",
        Kind::Integer(0, 10),
        Default::Is("0"),
        "1",
        "So many replicas must have what a buyer is told before he is told (WAIT); fewer in time make the answer unknown, and it is looked up. With 1 or more, and min-replicas-to-write of Redis at 1 or more, a failover loses nothing that was acknowledged. 0 trusts the master alone: what it loses is offered again by the instances that remember it.",
    ),
    key(
        "redis",
        "freeze",
        Kind::Duration(200, 600_000),
        Default::Is("\"25s\""),
        "\"10s\"",
        "After a failover or a restart of Redis a SKU sells nothing for so long while its books are mended. Longer than an old master may take writes: min-replicas-max-lag (10 s unless set) plus cluster-node-timeout (15 s unless set) of Redis.",
    ),
    key(
        "redis",
        "accept_lua_holes",
        Kind::Bool,
        Default::Is("false"),
        "true",
        "Start although the server's version has known holes in its Lua engine (distributions mend them without a new number: then set this).",
    ),
    key(
        "limiter",
        "servers",
        Kind::Endpoints,
        Default::Absent,
        "[\"limiter-1.internal:6379\"]",
        "Another Redis for the buckets, so that neither the stock nor the limits slow the other down; the same for every instance. The other keys of its connection are as in [redis], and mean nothing without this one.",
    ),
    key(
        "limiter",
        "cluster",
        Kind::Bool,
        Default::Is("false"),
        "true",
        "The servers are nodes of one Redis Cluster.",
    ),
    key(
        "limiter",
        "user",
        Kind::Name,
        Default::Absent,
        "\"weir\"",
        "The ACL user; without it the default user.",
    ),
    key(
        "limiter",
        "password_file",
        Kind::File,
        Default::Absent,
        "\"keys/limiter.password\"",
        "File with the password, readable by its owner only.",
    ),
    key(
        "limiter",
        "database",
        Kind::Integer(0, 15),
        Default::Is("0"),
        "3",
        "The database; a cluster has only 0.",
    ),
    key(
        "limiter",
        "connect_timeout",
        Kind::Duration(50, 60_000),
        Default::Is("\"1s\""),
        "\"500ms\"",
        "A connection, and then its greeting, may take so long.",
    ),
    key(
        "limiter",
        "reply_timeout",
        Kind::Duration(50, 60_000),
        Default::Is("\"1s\""),
        "\"500ms\"",
        "A reply may take so long; then its connection is closed, and a draw that was under way is counted as unknown and sent again with its number.",
    ),
    key(
        "limiter",
        "accept_lua_holes",
        Kind::Bool,
        Default::Is("false"),
        "true",
        "As redis.accept_lua_holes.",
    ),
    key(
        "limiter",
        "instance",
        Kind::Name,
        Default::Absent,
        "\"shop-a-1\"",
        "The name under which this instance draws: the same after a restart, and no other's. Without it: the host's name and the port of server.listen. Name it where host names come and go: a bucket remembers 1,024 names.",
    ),
    key(
        "limiter",
        "budget_version",
        Kind::Integer(1, BUDGET_VERSION_MAX),
        Default::Is("1"),
        "2",
        "The version of activity.sku.budget and limiter.weights: raise it when you change one of them. A bucket takes no older one, and the same one changes nothing; an instance with an older one follows what holds.",
    ),
    key(
        "limiter",
        "weight",
        Kind::Integer(1, 1000),
        Default::Is("1"),
        "2",
        "This instance's share of the demand. One draw takes at most weight/weights of what the bucket has, so a busy instance leaves some to the others; a bucket of the whole rate bounds the sum whatever the weights are.",
    ),
    key(
        "limiter",
        "weights",
        Kind::Integer(1, BUCKET_WEIGHTS_MAX as u64),
        Default::Is("1"),
        "3",
        "The sum of the weights of all instances, the same for every one. 1 with several instances: who comes first takes what is there.",
    ),
    key(
        "orders",
        "made_by",
        Kind::Choice(&["here", "worker"]),
        Default::Is("\"here\""),
        "\"worker\"",
        "\"here\": this process makes them, in data_dir. \"worker\": it sells only, and one `weir worker` beside any number of such instances makes the orders of all and takes the payments; needs ledger.kind = \"redis\". One data_dir makes the orders of a stock.",
    ),
    key(
        "ops",
        "listen",
        Kind::Address,
        Default::Is("\"127.0.0.1:9090\""),
        "\"127.0.0.1:9090\"",
        "Address of the operator's listener. Any address but loopback needs token_file.",
    ),
    key(
        "ops",
        "token_file",
        Kind::File,
        Default::Absent,
        "\"keys/ops.token\"",
        "File with the bearer token that every request to the operator's listener must carry (health checks excepted). `weir keygen` makes one.",
    ),
    key(
        "ops",
        "audit_log",
        Kind::File,
        Default::Is("\"data/audit.jsonl\""),
        "\"/var/log/weir/audit.jsonl\"",
        "Every change made through the operator's listener, as JSON lines.",
    ),
    key(
        "limits",
        "instance_rate",
        Kind::Rate,
        Default::Is("\"300000/s\""),
        "\"50000/s\"",
        "Submits of all buyers together; more are answered 503.",
    ),
    key(
        "limits",
        "instance_burst",
        Kind::Burst,
        Default::Is("30000"),
        "5000",
        "Submits that may come at once, per shard.",
    ),
    key(
        "limits",
        "connect_rate",
        Kind::Rate,
        Default::Is("\"5000/s\""),
        "\"200/s\"",
        "New connections from one IPv4 address or IPv6 /64; more are answered 429 and closed, before anything is read of them. Trusted proxies are not limited.",
    ),
    key(
        "limits",
        "connect_burst",
        Kind::Burst,
        Default::Is("5000"),
        "200",
        "Connections that one address may open at once, per shard.",
    ),
    key(
        "limits",
        "connect_policy",
        POLICY,
        Default::Is("\"gcra\""),
        "\"sliding-counter\"",
        "How an address's rate and burst of new connections are enforced; words as for ip_policy.",
    ),
    key(
        "limits",
        "connect_slots",
        SLOTS,
        Default::Is("65536"),
        "16384",
        "Addresses remembered for new connections per shard, 16 bytes each.",
    ),
    key(
        "limits",
        "ip_rate",
        Kind::Rate,
        Default::Is("\"100/s\""),
        "\"20/s\"",
        "Submits from one IPv4 address or IPv6 /64. Many buyers share an address behind a carrier's NAT: keep it soft.",
    ),
    key(
        "limits",
        "ip_burst",
        Kind::Burst,
        Default::Is("200"),
        "40",
        "Submits that one address may send at once, per shard.",
    ),
    key(
        "limits",
        "ip_policy",
        POLICY,
        Default::Is("\"gcra\""),
        "\"sliding-counter\"",
        "How an address's rate and burst are enforced: gcra (smooth), fixed-window (a burst per window of burst / rate; two may meet at an edge), sliding-log (exactly a burst in any such window; bursts up to 64, 8 bytes more per slot and token), sliding-counter (the same estimated, for any burst), leaky-bucket (as gcra; answers also tell when to come next).",
    ),
    key(
        "limits",
        "ip_shadow_policy",
        POLICY,
        Default::Absent,
        "\"sliding-log\"",
        "A policy that only watches: it sees the same calls, refuses nobody, and metrics say where it would have (weir_limiter_shadow_*). Any of the three ip_shadow keys switches it on, with a table as large as the live one; what is not said is as in the live limit.",
    ),
    key(
        "limits",
        "ip_shadow_rate",
        Kind::Rate,
        Default::Absent,
        "\"1/s\"",
        "Rate of the policy that only watches.",
    ),
    key(
        "limits",
        "ip_shadow_burst",
        Kind::Burst,
        Default::Absent,
        "2",
        "Burst of the policy that only watches, per shard.",
    ),
    key(
        "limits",
        "ip_slots",
        SLOTS,
        Default::Is("262144"),
        "65536",
        "Addresses remembered per shard, 16 bytes each. Twice those that are busy at one time is a good size.",
    ),
    key(
        "limits",
        "user_rate",
        Kind::Rate,
        Default::Is("\"2/s\""),
        "\"0.5/s\"",
        "Submits of one user to one SKU.",
    ),
    key(
        "limits",
        "user_burst",
        Kind::Burst,
        Default::Is("3"),
        "1",
        "Submits that one user may send at once, per shard.",
    ),
    key(
        "limits",
        "user_policy",
        POLICY,
        Default::Is("\"gcra\""),
        "\"sliding-counter\"",
        "How a user's rate and burst are enforced; words as for ip_policy.",
    ),
    key(
        "limits",
        "user_shadow_policy",
        POLICY,
        Default::Absent,
        "\"sliding-log\"",
        "As ip_shadow_policy, for users.",
    ),
    key(
        "limits",
        "user_shadow_rate",
        Kind::Rate,
        Default::Absent,
        "\"1/s\"",
        "Rate of the policy that only watches.",
    ),
    key(
        "limits",
        "user_shadow_burst",
        Kind::Burst,
        Default::Absent,
        "2",
        "Burst of the policy that only watches, per shard.",
    ),
    key(
        "limits",
        "user_slots",
        SLOTS,
        Default::Is("524288"),
        "65536",
        "Users remembered per shard, 16 bytes each.",
    ),
    key(
        "limits",
        "device_rate",
        Kind::Rate,
        Default::Is("\"2/s\""),
        "\"0.5/s\"",
        "Submits of one device to one SKU.",
    ),
    key(
        "limits",
        "device_burst",
        Kind::Burst,
        Default::Is("4"),
        "1",
        "Submits that one device may send at once, per shard.",
    ),
    key(
        "limits",
        "device_policy",
        POLICY,
        Default::Is("\"gcra\""),
        "\"sliding-counter\"",
        "How a device's rate and burst are enforced; words as for ip_policy.",
    ),
    key(
        "limits",
        "device_shadow_policy",
        POLICY,
        Default::Absent,
        "\"sliding-log\"",
        "As ip_shadow_policy, for devices.",
    ),
    key(
        "limits",
        "device_shadow_rate",
        Kind::Rate,
        Default::Absent,
        "\"1/s\"",
        "Rate of the policy that only watches.",
    ),
    key(
        "limits",
        "device_shadow_burst",
        Kind::Burst,
        Default::Absent,
        "2",
        "Burst of the policy that only watches, per shard.",
    ),
    key(
        "limits",
        "device_slots",
        SLOTS,
        Default::Is("524288"),
        "65536",
        "Devices remembered per shard, 16 bytes each.",
    ),
    key(
        "limits",
        "status_rate",
        Kind::Rate,
        Default::Is("\"2/s\""),
        "\"1/s\"",
        "Status queries of one user. They have limits and slots of their own, so they work when submits are closed.",
    ),
    key(
        "limits",
        "status_burst",
        Kind::Burst,
        Default::Is("10"),
        "5",
        "Status queries that one user may send at once, per shard.",
    ),
    key(
        "limits",
        "status_policy",
        POLICY,
        Default::Is("\"gcra\""),
        "\"sliding-counter\"",
        "How the rate and burst of status queries are enforced; words as for ip_policy.",
    ),
    key(
        "limits",
        "status_shadow_policy",
        POLICY,
        Default::Absent,
        "\"sliding-log\"",
        "As ip_shadow_policy, for status queries.",
    ),
    key(
        "limits",
        "status_shadow_rate",
        Kind::Rate,
        Default::Absent,
        "\"1/s\"",
        "Rate of the policy that only watches.",
    ),
    key(
        "limits",
        "status_shadow_burst",
        Kind::Burst,
        Default::Absent,
        "2",
        "Burst of the policy that only watches, per shard.",
    ),
    key(
        "limits",
        "status_slots",
        SLOTS,
        Default::Is("131072"),
        "65536",
        "Users remembered for status queries per shard, 16 bytes each.",
    ),
    key(
        "limits",
        "overflow_rate",
        Kind::Rate,
        Default::Is("\"1000/s\""),
        "\"100/s\"",
        "What all newcomers of a full table share, in each table.",
    ),
    key(
        "limits",
        "overflow_burst",
        Kind::Burst,
        Default::Is("1000"),
        "100",
        "What newcomers of a full table may send at once, per shard.",
    ),
    key(
        "limits",
        "rate_limit_headers",
        Kind::Bool,
        Default::Is("true"),
        "false",
        "Whether answers on which a keyed limit decided say so in RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-11). Some 60 bytes per answer; each shard tells its own part of the rate.",
    ),
    key(
        "limits",
        "inflight_max",
        INFLIGHT,
        Default::Is("\"auto\""),
        "2048",
        "Submits of one shard that may wait for the ledger; more are answered 503. \"auto\" shares half of the ledger's mailbox among the shards, 4096 at most.",
    ),
    key(
        "limits",
        "sku_inflight_max",
        INFLIGHT,
        Default::Is("\"auto\""),
        "1024",
        "Submits of one SKU and shard that may wait for the ledger, so that a hot SKU leaves room for the others. \"auto\" is half of inflight_max, or all of it with one SKU.",
    ),
    key(
        "limits",
        "sku_inflight_min",
        Kind::IntegerOrAuto(0, INFLIGHT_MAX),
        Default::Is("\"auto\""),
        "64",
        "Of inflight_max, slots that nobody but each SKU itself may take, however hot the others are. \"auto\" shares a quarter of inflight_max among the SKUs.",
    ),
    key(
        "limits",
        "user_inflight_max",
        Kind::Integer(1, INFLIGHT_MAX),
        Default::Is("8"),
        "2",
        "Submits of one user and shard, over all SKUs, that may wait for the ledger, so that a hot user leaves room for the others; more are answered 429.",
    ),
    key(
        "limits",
        "status_inflight_max",
        INFLIGHT,
        Default::Is("\"auto\""),
        "256",
        "Status queries of one shard that may wait for the ledger. \"auto\" is a quarter of inflight_max.",
    ),
    key(
        "limits",
        "payments_inflight_max",
        INFLIGHT,
        Default::Is("\"auto\""),
        "64",
        "Payment callbacks of one shard that may wait for the order store. \"auto\" is a sixteenth of inflight_max.",
    ),
    key(
        "limits",
        "request_budget",
        BUDGET,
        Default::Is("\"100ms\""),
        "\"250ms\"",
        "A submit's or status query's whole time. What is not known by then is answered 202 SECKILL_PENDING, never given back.",
    ),
    key(
        "limits",
        "payment_budget",
        Kind::Duration(REQUEST_BUDGET_MS_MIN, PAYMENT_BUDGET_MS_MAX),
        Default::Is("\"5s\""),
        "\"2s\"",
        "A payment callback's whole time.",
    ),
    key(
        "limits",
        "clock_leeway",
        Kind::Duration(0, LEEWAY_MS_MAX),
        Default::Is("\"2s\""),
        "\"1s\"",
        "Allowed difference between this clock and that of whoever mints tickets.",
    ),
    key(
        "limits",
        "signature_skew",
        Kind::Duration(1_000, SIGNATURE_SKEW_MS_MAX),
        Default::Is("\"30s\""),
        "\"10s\"",
        "How far the time of a signed request may be from this clock, either way. Used when keys.request is set.",
    ),
    key(
        "limits",
        "known_requests_max",
        Kind::Integer(64, KNOWN_MAX),
        Default::Is("65536"),
        "16384",
        "Answers remembered per shard so that a retry need not ask the ledger. Only a cache.",
    ),
    key(
        "limits",
        "ban_strikes",
        Kind::Integer(0, STRIKES_MAX),
        Default::Is("20"),
        "10",
        "How often a user may come back before the wait of a 429 is over (once a quarter of a second counts at most, what was on its way does not) until the user's submits are refused for a while; 0 bans nobody. Counted per shard.",
    ),
    key(
        "limits",
        "ban_window",
        BAN,
        Default::Is("\"30s\""),
        "\"1m\"",
        "Within so long must they happen to count together.",
    ),
    key(
        "limits",
        "ban_first",
        BAN,
        Default::Is("\"10s\""),
        "\"5s\"",
        "The first ban; each further one is twice as long.",
    ),
    key(
        "limits",
        "ban_max",
        BAN,
        Default::Is("\"10m\""),
        "\"1h\"",
        "The longest ban.",
    ),
    key(
        "limits",
        "ban_forget",
        BAN,
        Default::Is("\"10m\""),
        "\"1h\"",
        "For each such time without a ban one doubling is forgotten.",
    ),
    key(
        "limits",
        "ip_ban_strikes",
        Kind::Integer(0, STRIKES_MAX),
        Default::Is("0"),
        "200",
        "The same for an address, status queries included; 0, the default, bans none: behind a carrier's NAT many buyers who each wait look like one who does not. Use it where an address is one client.",
    ),
    key(
        "limits",
        "ip_ban_max",
        BAN,
        Default::Is("\"1m\""),
        "\"30s\"",
        "The longest ban of an address.",
    ),
    key(
        "limits",
        "ban_slots",
        SLOTS,
        Default::Is("16384"),
        "4096",
        "Clients above their limit that each shard watches, 96 bytes each.",
    ),
    key(
        "deny",
        "networks",
        Kind::Denied(DenyKind::Network),
        Default::Is("[]"),
        "[\"203.0.113.0/24\", \"2001:db8::/32\"]",
        "Addresses and networks that are refused.",
    ),
    key(
        "deny",
        "users",
        Kind::Denied(DenyKind::User),
        Default::Is("[]"),
        "[\"42\", \"b3:00112233445566ff\"]",
        "Users that are refused: by id, or by the b3: hash that the admission log and /ops/v1/hot show (it holds as long as the first ticket key).",
    ),
    key(
        "deny",
        "devices",
        Kind::Denied(DenyKind::Device),
        Default::Is("[]"),
        "[\"b3:AAECAwQFBgcICQoLDA0ODw\"]",
        "Devices that are refused, by the device_hash of their tickets. It differs from activity to activity.",
    ),
    key(
        "deny",
        "file",
        Kind::File,
        Default::Is("\"data/deny.txt\""),
        "\"/var/lib/weir/deny.txt\"",
        "Where weir keeps what was added while it ran, so that it survives a restart. Written by weir.",
    ),
    key(
        "log",
        "path",
        Kind::LogTarget,
        Default::Is("\"-\""),
        "\"data/admission.jsonl\"",
        "Where the admission log goes.",
    ),
    key(
        "log",
        "admitted_every",
        EVERY,
        Default::Is("10"),
        "1",
        "One of so many admissions is logged; 0 logs none.",
    ),
    key(
        "log",
        "refused_every",
        EVERY,
        Default::Is("1000"),
        "100",
        "One of so many refusals is logged; 0 logs none.",
    ),
    key(
        "log",
        "failed_every",
        EVERY,
        Default::Is("10"),
        "1",
        "One of so many answers 5xx is logged; 0 logs none. Unknown results are all logged, as far as the log's queue holds.",
    ),
    key(
        "keys",
        "ticket",
        Kind::KeyFiles,
        Default::Required,
        "[\"keys/ticket-1.key\"]",
        "Keys of tickets. The first signs and checks; a second one only checks, while one follows the other. The key id is the file's name without its ending, or what stands before \"=\".",
    ),
    key(
        "keys",
        "payment",
        Kind::File,
        Default::Absent,
        "\"keys/payment.key\"",
        "Key that signs payment callbacks. Without it they are refused.",
    ),
    key(
        "keys",
        "request",
        Kind::KeyFiles,
        Default::Absent,
        "[\"keys/request-1.key\"]",
        "Keys of signed requests: with them every submit needs the header X-Weir-Signature (deploy/sign_request.py makes it). A second key verifies too, while one follows the other. Without this key no signature is asked for.",
    ),
    key(
        "activity",
        "id",
        ID,
        Default::Required,
        "1",
        "The sale's number, unique in this file.",
    ),
    key(
        "activity",
        "version",
        ID,
        Default::Is("1"),
        "2",
        "Tickets of another version are refused: raise it together with path_id to void all tickets.",
    ),
    key(
        "activity",
        "path_id",
        Kind::PathId,
        Default::Required,
        "\"k3Jx0aQz\"",
        "The part of the submit path that nobody can guess before the sale: /v1/seckill/{path_id}. Unique in this file.",
    ),
    key(
        "activity",
        "opens_at",
        Kind::Instant,
        Default::Required,
        "2026-11-30T20:00:00+08:00",
        "Submits before are answered NOT_OPEN.",
    ),
    key(
        "activity",
        "closes_at",
        Kind::Instant,
        Default::Required,
        "2026-11-30T22:00:00+08:00",
        "Submits from here on are answered NOT_OPEN.",
    ),
    key(
        "activity",
        "retention",
        Kind::Duration(0, RETENTION_MS_MAX),
        Default::Is("\"24h\""),
        "\"7d\"",
        "For how long after closes_at a buyer's ticket still answers status queries.",
    ),
    key(
        "activity",
        "device_salt",
        Kind::Hex32,
        Default::Absent,
        "\"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"",
        "Mixed into device hashes; whoever mints tickets needs the same. Without it, it is derived from the first ticket key: set it before you change that key.",
    ),
    key(
        "activity.sku",
        "id",
        ID,
        Default::Required,
        "1",
        "The SKU's number, unique in its activity.",
    ),
    key(
        "activity.sku",
        "stock",
        Kind::Integer(0, STOCK_MAX),
        Default::Required,
        "100",
        "Units put on sale when the data directory is new. Later changes go through the operator's listener (restock).",
    ),
    key(
        "activity.sku",
        "price",
        Kind::Price,
        Default::Required,
        "\"19.90 CNY\"",
        "Price of one unit. Payments must match it exactly.",
    ),
    key(
        "activity.sku",
        "quantity_max",
        Kind::Integer(1, UNITS_PER_REQUEST_MAX),
        Default::Is("1"),
        "2",
        "Most units of one request.",
    ),
    key(
        "activity.sku",
        "once_per_activity",
        Kind::Bool,
        Default::Is("false"),
        "true",
        "When true, a user whose order was closed may not try again.",
    ),
    key(
        "activity.sku",
        "unpaid_timeout",
        Kind::Duration(UNPAID_TIMEOUT_MS_MIN, UNPAID_TIMEOUT_MS_MAX),
        Default::Is("\"15m\""),
        "\"30m\"",
        "An order unpaid for so long is closed and its units go back on sale.",
    ),
    key(
        "activity.sku",
        "budget",
        Kind::Rate,
        Default::Is("\"40000/s\""),
        "\"5000/s\"",
        "How many submits may ask the ledger, over all shards, and over all instances of a stock in Redis: what the disk can take. More are answered 503.",
    ),
    key(
        "activity.sku",
        "sold_out_ttl",
        Kind::Duration(SOLD_OUT_TTL_MS_MIN, SOLD_OUT_TTL_MS_MAX),
        Default::Is("\"5s\""),
        "\"2s\"",
        "How long a shard believes in \"sold out\" without hearing it again.",
    ),
];

/// The key of that section and name.
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter()
        .find(|key| key.section == section && key.name == name)
}

/// The keys of a section, in the table's order.
pub fn keys_of(section: &str) -> impl Iterator<Item = &'static Key> + '_ {
    KEYS.iter().filter(move |key| key.section == section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeValue;

    #[test]
    fn every_key_is_documented_unique_and_its_literals_are_valid() {
        for (i, key) in KEYS.iter().enumerate() {
            let name = format!("{}.{}", key.section, key.name);
            assert!(
                SECTIONS.iter().any(|section| section.name == key.section),
                "{name}"
            );
            assert!(
                key.doc.ends_with('.') && key.doc.len() > 15,
                "{name}: {}",
                key.doc
            );
            let same = |other: &Key| other.section == key.section && other.name == key.name;
            assert_eq!(
                KEYS.iter().position(same),
                Some(i),
                "{name} is listed twice"
            );
            let default = match key.default {
                Default::Is(literal) => Some(literal),
                _ => None,
            };
            for literal in [Some(key.example), default].into_iter().flatten() {
                let raw = DeValue::parse(literal).unwrap();
                assert!(key.kind.read(raw.get_ref()).is_ok(), "{name} = {literal}");
            }
            assert!(!key.kind.allowed().is_empty());
        }
    }
}
