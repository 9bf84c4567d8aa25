//! What is wrong with a Redis that is to hold a ledger: what, where, remedy.

use crate::private_redis::link::LinkError;
use std::fmt;
use std::io;
use weir_core::redis::slots::SlotsReject;
use weir_core::tls::TlsFault;
use weir_io::tls::stream;
use weir_proto::ids::SkuKey;

/// What is wrong with a server. `Display` never shows a password.
#[derive(Debug)]
pub struct RedisError {
    /// Of the configuration: where its keys are.
    pub(super) section: &'static str,
    pub(super) server: String,
    pub(super) why: Why,
}

/// See [`RedisError`].
#[derive(Debug)]
pub(super) enum Why {
    NoAddress,
    Connect(io::Error),
    Io(io::Error),
    /// It hung up on a connection that is not encrypted.
    HungUp(io::Error),
    NoRedis,
    Tls(TlsFault),
    SpeaksTls,
    WrongPassword,
    NeedsPassword,
    NoPassword,
    Replica(String),
    Loading,
    LuaHoles(String),
    NoCluster,
    IsCluster,
    Uncovered(Vec<String>),
    NoTlsPorts,
    Slots(SlotsReject),
    Foreign {
        key: String,
        is: String,
        wants: &'static str,
    },
    Moving(u16),
    Embedded,
    NotTheirs(SkuKey),
    Garbled(String),
    Refused {
        command: &'static str,
        word: String,
    },
}

/// Why a connection that was made came to nothing.
pub(super) fn of_link(error: LinkError, is_encrypted: bool) -> Why {
    use io::ErrorKind::{ConnectionReset, UnexpectedEof};
    match error {
        LinkError::Io(error) => of_io(error, |error| match error.kind() {
            ConnectionReset | UnexpectedEof if !is_encrypted => Why::HungUp(error),
            _ => Why::Io(error),
        }),
        LinkError::SpeaksTls => Why::SpeaksTls,
        LinkError::NoRedis => Why::NoRedis,
    }
}

/// A fault of TLS, or what `why` makes of the connection's.
pub(super) fn of_io(error: io::Error, why: impl FnOnce(io::Error) -> Why) -> Why {
    stream::told(&error).map_or_else(|| why(error), Why::Tls)
}

impl RedisError {
    /// What kept weir from talking to it.
    fn write_of_link(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let section = self.section;
        match &self.why {
            Why::NoAddress => write!(
                f,
                "its name has no address; check {section}.servers and the resolver of this machine"
            ),
            Why::Connect(error) => write!(
                f,
                "no connection ({error}); start the server, or mend {section}.servers"
            ),
            Why::Io(error) => write!(
                f,
                "it was connected and did not answer ({error}); is it a Redis, and is it not overloaded?"
            ),
            Why::HungUp(error) => write!(
                f,
                "it closed the connection ({error}); if this is its TLS port (tls-port of Redis), set {section}.tls = true"
            ),
            Why::NoRedis => {
                write!(
                    f,
                    "what answers there does not speak Redis' protocol; mend {section}.servers"
                )
            }
            Why::Tls(fault) => write!(f, "{fault} (keys of [{section}])"),
            Why::SpeaksTls => write!(f, "it speaks TLS; set {section}.tls = true"),
            Why::WrongPassword => write!(
                f,
                "it did not take the user and password; check {section}.user and the file of {section}.password_file"
            ),
            Why::NoPassword => write!(
                f,
                "it has no password set; remove {section}.password_file, or set one there"
            ),
            Why::NeedsPassword => write!(
                f,
                "it wants a password; name its file in {section}.password_file"
            ),
            other => unreachable!("{other:?} is told elsewhere"),
        }
    }
}

impl RedisError {
    /// True when the server cannot be asked at present, which may pass.
    pub const fn is_away(&self) -> bool {
        matches!(
            self.why,
            Why::NoAddress
                | Why::Connect(_)
                | Why::Io(_)
                | Why::HungUp(_)
                | Why::Tls(TlsFault::Ended | TlsFault::Silent)
                | Why::Loading
                | Why::Moving(_)
        )
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let section = self.section;
        write!(f, "Redis at {}: ", self.server)?;
        match &self.why {
            Why::Replica(master) => write!(
                f,
                "it is a replica and takes no writes; name its master ({master}) in {section}.servers"
            ),
            Why::Loading => {
                f.write_str("it is still loading its data; start weir when it has ended")
            }
            Why::LuaHoles(version) => write!(
                f,
                "version {version} has known holes in its Lua engine (CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819). Upgrade to 6.2.20, 7.2.11, 7.4.6, 8.0.4, 8.2.2 or later; if your distribution has mended this version, set {section}.accept_lua_holes = true"
            ),
            Why::NoCluster => write!(
                f,
                "it is no node of a cluster; set {section}.cluster = false, or name a node of the cluster"
            ),
            Why::IsCluster => write!(
                f,
                "it is a node of a cluster; set {section}.cluster = true"
            ),
            Why::Uncovered(ranges) => write!(
                f,
                "nobody serves slots {} of the cluster; `redis-cli --cluster check` and `fix` mend it",
                ranges.join(", ")
            ),
            Why::NoTlsPorts => f.write_str(
                "its nodes tell no ports of TLS: set tls-cluster yes on each of them",
            ),
            Why::Slots(reject) => write!(
                f,
                "its map of slots cannot be used: {reject}"
            ),
            Why::Foreign { key, is, wants } => write!(
                f,
                "key {key} is a {is}, and weir keeps a {wants} there: another application uses this database. Choose another one with {section}.database, or remove the key"
            ),
            Why::Moving(slot) => write!(
                f,
                "slot {slot} of the cluster moves between its nodes, or nobody serves it, and that did not end; `redis-cli --cluster check` shows it"
            ),
            Why::NotTheirs(sku) => write!(
                f,
                "the last order here of activity {}, SKU {} is not among its reservations: it is another sale's. Mend redis.servers or redis.database, or choose another server.data_dir",
                sku.activity, sku.sku
            ),
            Why::Embedded => f.write_str(
                "the orders here were made with an embedded ledger; choose another server.data_dir for a sale on Redis",
            ),
            Why::Garbled(key) => write!(
                f,
                "what key {key} holds was not written by weir; is another application using this database?"
            ),
            Why::Refused { command, word } => write!(
                f,
                "{command} was refused with {word}; README lists what weir's user must be allowed"
            ),
            Why::NoAddress
            | Why::Connect(_)
            | Why::Io(_)
            | Why::HungUp(_)
            | Why::NoRedis
            | Why::Tls(_)
            | Why::SpeaksTls
            | Why::WrongPassword
            | Why::NoPassword
            | Why::NeedsPassword => self.write_of_link(f),
        }
    }
}

impl std::error::Error for RedisError {}
