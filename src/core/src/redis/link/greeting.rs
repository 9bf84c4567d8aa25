//! The greeting of a link: who we are, who the server is. A link is used only after every part of it was answered.
//!
//! HELLO 3 with AUTH and SETNAME first (Redis 6 and later); a server without HELLO is greeted in RESP2. Then SELECT,
//! INFO server and INFO replication, which name the run, the replication and the role; PING last, because a server that
//! still loads its data answers all of these but that one.

use super::fault::{ErrorWord, LinkFault};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use weir_proto::resp::{self, CommandWriter, ErrorReply, Value};
use weir_proto::text::Text;

/// User and password of a link; `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    /// The ACL user; `None`: the default user.
    pub user: Option<String>,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Auth(hidden)")
    }
}

/// A run id or a replication id: 40 hexadecimal digits (Redis, `INFO`).
pub type IdText = Text<40>;

/// A server's name for itself in the books that it has: its replication id, `:`, its run id.
pub type HomeId = Text<81>;

/// Who answers on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ServerFacts {
    /// Major, minor, patch.
    pub version: (u16, u16, u16),
    /// Changes with every start of the server.
    pub run_id: IdText,
    /// Changes when the server begins a history of its own: at a promotion, or when it starts without its data.
    pub replication_id: IdText,
    /// It was a replica, or began with another's data, before its history (`master_replid2` is not zero).
    pub was_promoted: bool,
    /// It takes writes.
    pub is_master: bool,
    /// Replicas that were connected.
    pub replicas: u32,
    /// It is a node of a cluster.
    pub is_cluster: bool,
    /// It speaks RESP3, so events can come on the same connection.
    pub is_resp3: bool,
}

/// One part of the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Hello,
    Auth,
    SetName,
    Select,
    InfoServer,
    InfoReplication,
    /// Behind SUBSCRIBE, whose confirmations are pushes: a refusal of it takes the place of this one's answer, so that no
    /// ask ever hears it.
    Ping,
}

/// The words of a greeting.
#[derive(Clone, Debug)]
pub struct Words {
    /// Shown by `CLIENT LIST`; no spaces.
    pub client_name: String,
    /// Who we are.
    pub auth: Option<Auth>,
    /// The database, 0..=15; a cluster has only 0.
    pub database: u16,
    /// Channels to listen to, where RESP3 is spoken.
    pub channels: Vec<String>,
}

impl Words {
    /// The first thing said.
    pub(super) fn hello(&self, out: &mut Vec<u8>) {
        let name = self.client_name.as_bytes();
        match &self.auth {
            Some(auth) => {
                let user = auth.user.as_deref().unwrap_or("default").as_bytes();
                let password = auth.password.as_bytes();
                let parts = [
                    &b"HELLO"[..],
                    b"3",
                    b"AUTH",
                    user,
                    password,
                    b"SETNAME",
                    name,
                ];
                resp::command(out, &parts);
            }
            None => resp::command(out, &[b"HELLO", b"3", b"SETNAME", name]),
        }
    }

    /// What follows the answer to HELLO; `has_hello`: it was understood. `said` hears each part in order.
    pub(super) fn rest(&self, has_hello: bool, out: &mut Vec<u8>, mut said: impl FnMut(Part)) {
        if !has_hello {
            if let Some(auth) = &self.auth {
                let password = auth.password.as_bytes();
                match &auth.user {
                    Some(user) => resp::command(out, &[b"AUTH", user.as_bytes(), password]),
                    None => resp::command(out, &[b"AUTH", password]),
                }
                said(Part::Auth);
            }
            resp::command(out, &[b"CLIENT", b"SETNAME", self.client_name.as_bytes()]);
            said(Part::SetName);
        }
        if self.database != 0 {
            let mut select = CommandWriter::begin(out, 2);
            select.part(b"SELECT");
            select.part_u64(u64::from(self.database));
            select.finish();
            said(Part::Select);
        }
        resp::command(out, &[b"INFO", b"server"]);
        said(Part::InfoServer);
        resp::command(out, &[b"INFO", b"replication"]);
        said(Part::InfoReplication);
        if has_hello && !self.channels.is_empty() {
            let channels = self.channels.iter().map(|channel| channel.as_bytes());
            let parts: Vec<&[u8]> = core::iter::once(&b"SUBSCRIBE"[..])
                .chain(channels)
                .collect();
            resp::command(out, &parts);
        }
        resp::command(out, &[b"PING"]);
        said(Part::Ping);
    }
}

/// What a part's answer means.
pub(super) enum Heard {
    /// Go on.
    Fine,
    /// The server does not know HELLO: an old one, or it was renamed.
    NoHello,
}

impl ServerFacts {
    /// Takes the answer to one part.
    ///
    /// # Errors
    /// Why the link must not be used.
    pub(super) fn hear(&mut self, part: Part, value: &Value<'_>) -> Result<Heard, LinkFault> {
        if let Value::Error(error) = value {
            return match part {
                Part::Hello if error.code == b"ERR" || error.code == b"NOPROTO" => {
                    Ok(Heard::NoHello)
                }
                _ => Err(refused(error)),
            };
        }
        match (part, value) {
            (Part::Hello, Value::Map(_)) => {
                self.is_resp3 = true;
                Ok(Heard::Fine)
            }
            (Part::Auth | Part::SetName | Part::Select, Value::Simple(b"OK"))
            | (Part::Ping, Value::Simple(b"PONG")) => Ok(Heard::Fine),
            (
                Part::InfoServer | Part::InfoReplication,
                Value::Bulk(text) | Value::Verbatim { text, .. },
            ) => {
                self.info(text);
                self.judge(part)
            }
            _ => Err(LinkFault::WrongShape),
        }
    }

    /// The server's name for itself, which books that were made here carry.
    pub fn home(&self) -> HomeId {
        let mut text = [b':'; 81];
        let replication = self.replication_id.as_bytes();
        let run = self.run_id.as_bytes();
        let whole = replication.len() + 1 + run.len();
        text[..replication.len()].copy_from_slice(replication);
        text[replication.len() + 1..whole].copy_from_slice(run);
        Text::new(&text[..whole]).unwrap_or_default()
    }

    /// One line of INFO: `name:value`.
    fn info_line(&mut self, line: &[u8]) {
        let Some(at) = line.iter().position(|&byte| byte == b':') else {
            return;
        };
        let (name, value) = (&line[..at], &line[at + 1..]);
        match name {
            b"redis_version" => self.version = version(value),
            b"redis_mode" => self.is_cluster = value == b"cluster",
            b"run_id" => self.run_id = Text::new(value).unwrap_or_default(),
            b"master_replid" => self.replication_id = Text::new(value).unwrap_or_default(),
            b"master_replid2" => self.was_promoted = value.iter().any(|&digit| digit != b'0'),
            b"role" => self.is_master = value == b"master",
            b"connected_slaves" => self.replicas = number(value).unwrap_or(0),
            _ => {}
        }
    }

    /// What an answer to INFO tells; `None`: it is none.
    pub fn of_info(value: &Value<'_>) -> Option<Self> {
        let (Value::Bulk(text) | Value::Verbatim { text, .. }) = value else {
            return None;
        };
        let mut facts = Self::default();
        facts.info(text);
        (!facts.replication_id.as_bytes().is_empty()).then_some(facts)
    }

    fn info(&mut self, text: &[u8]) {
        text.split(|&byte| byte == b'\n')
            .for_each(|line| self.info_line(line.trim_ascii_end()));
    }

    fn judge(&self, part: Part) -> Result<Heard, LinkFault> {
        let is_named = match part {
            Part::InfoServer => !self.run_id.as_bytes().is_empty(),
            _ => !self.replication_id.as_bytes().is_empty(),
        };
        if !is_named {
            return Err(LinkFault::WrongShape);
        }
        if part == Part::InfoReplication && !self.is_master {
            return Err(LinkFault::IsReplica);
        }
        Ok(Heard::Fine)
    }
}

/// An error to a command of the greeting.
fn refused(error: &ErrorReply<'_>) -> LinkFault {
    match error.code {
        b"WRONGPASS" | b"NOAUTH" => LinkFault::NotAuthenticated,
        b"NOPERM" => LinkFault::NotPermitted,
        b"LOADING" => LinkFault::Loading,
        // `AUTH` without a password set, and servers before 6.
        b"ERR" if error.text.windows(8).any(|word| word == b"password") => {
            LinkFault::NotAuthenticated
        }
        code => LinkFault::Refused(ErrorWord::new(code).unwrap_or_default()),
    }
}

fn number<N: TryFrom<u64>>(digits: &[u8]) -> Option<N> {
    let text = core::str::from_utf8(digits).ok()?;
    N::try_from(text.parse::<u64>().ok()?).ok()
}

fn version(text: &[u8]) -> (u16, u16, u16) {
    let mut parts = text
        .split(|&byte| byte == b'.')
        .map(|part| number(part).unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}
