//! Where a Redis listens, and where a redirection points to.

use super::slots::SlotsReject;
use crate::limits::HOST_NAME_BYTES_MAX;
use alloc::boxed::Box;
use core::fmt;
use core::net::IpAddr;
use core::str;
use weir_proto::resp::{ErrorReply, SLOTS_COUNT};

/// An address, or a name to resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// Version 4 or 6.
    Ip(IpAddr),
    /// Letters, digits, `-`, `.` and `_`; 1..=`HOST_NAME_BYTES_MAX` of them.
    Name(Box<str>),
}

impl Host {
    /// Reads an address, version 6 with or without brackets, or a host name.
    ///
    /// # Errors
    /// `HostUnknown` for `?`, `Host` for anything else that is neither.
    pub fn parse(text: &[u8]) -> Result<Self, SlotsReject> {
        if text == b"?" {
            return Err(SlotsReject::HostUnknown);
        }
        let text = str::from_utf8(text).map_err(|_| SlotsReject::Host)?;
        let inside = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let address = match inside {
            Some(inside) => inside.parse().map(IpAddr::V6).ok(),
            None => text.parse().ok(),
        };
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name =
            (1..=HOST_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_letter);
        match address {
            Some(address) => Ok(Self::Ip(address)),
            None if is_name => Ok(Self::Name(text.into())),
            None => Err(SlotsReject::Host),
        }
    }
}

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Never empty.
    pub host: Host,
    /// 1..=65535.
    pub port: u16,
}

/// `10.0.0.1:6379`, `[::1]:6379`, `redis-1.test:6379`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            Host::Ip(address) => write!(f, "{address}:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl Endpoint {
    /// Reads `127.0.0.1:6379`, `[::1]:6379` or `redis-1.test:6379`; `None` for anything else.
    pub fn read(text: &[u8]) -> Option<Self> {
        let colon = text.iter().rposition(|&byte| byte == b':')?;
        let port = plain(&text[colon + 1..]).filter(|&port| port > 0)?;
        // Without brackets a version 6 address would hide where the port begins.
        let host = Host::parse(&text[..colon]).ok()?;
        let is_bare_v6 = matches!(host, Host::Ip(IpAddr::V6(_))) && text[0] != b'[';
        (!is_bare_v6).then_some(Self { host, port })
    }
}

/// How long a redirection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectKind {
    /// The slot lies there from now on: the map is to be changed.
    Moved,
    /// This one command goes there, behind `ASKING`; the map stays as it is.
    Ask,
}

/// Where a command is to be sent instead (redis.io/docs/reference/cluster-spec, "MOVED redirection", "ASK redirection").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// For good or for once.
    pub kind: RedirectKind,
    /// The slot of the command's key.
    pub slot: u16,
    /// Who serves it.
    pub endpoint: Endpoint,
}

impl Redirect {
    /// Reads `MOVED 3999 127.0.0.1:6381` or `ASK 3999 127.0.0.1:6381`; `None`: an error that is no redirection.
    ///
    /// `asked`: the node that replied; an empty host means the same one. The port stands behind the last colon, since
    /// Redis writes version 6 addresses without brackets.
    ///
    /// # Errors
    /// A redirection without a slot, a host or a port that can be used: the map is to be asked for anew.
    pub fn parse(error: &ErrorReply<'_>, asked: &Endpoint) -> Result<Option<Self>, SlotsReject> {
        let kind = match error.code {
            b"MOVED" => RedirectKind::Moved,
            b"ASK" => RedirectKind::Ask,
            _ => return Ok(None),
        };
        let mut words = error.text.split(|&byte| byte == b' ').skip(1);
        let (Some(slot), Some(target), None) = (words.next(), words.next(), words.next()) else {
            return Err(SlotsReject::Shape);
        };
        let slot = plain(slot).filter(|&slot| slot < SLOTS_COUNT);
        let slot = slot.ok_or(SlotsReject::Slot)?;
        let colon = target.iter().rposition(|&byte| byte == b':');
        let (host, port) = target.split_at(colon.ok_or(SlotsReject::Shape)?);
        let port = plain(&port[1..]).filter(|&port| port > 0);
        let endpoint = Endpoint {
            host: match host {
                b"" => asked.host.clone(),
                host => Host::parse(host)?,
            },
            port: port.ok_or(SlotsReject::Port)?,
        };
        Ok(Some(Self {
            kind,
            slot,
            endpoint,
        }))
    }
}

/// A number in plain digits, without a sign or leading zeros.
fn plain(digits: &[u8]) -> Option<u16> {
    let is_canonical = digits == b"0"
        || digits
            .first()
            .is_some_and(|first| (b'1'..=b'9').contains(first));
    let text = str::from_utf8(digits).ok().filter(|_| is_canonical)?;
    text.parse().ok()
}
