//! What a key may hold: its kind, how a TOML value of that kind is read and checked, how that is said in words.
//!
//! Called by [`super::document`]. Ranges come from the table of keys; texts are read by [`super::units`] and
//! [`super::instant`].

use super::ceilings::{
    BURST_MAX, NAME_BYTES_MAX, ORIGIN_BYTES_MAX, ORIGINS_MAX, RATE_PER_SECOND_MAX,
    REDIS_SERVERS_MAX,
};
use super::{instant, units};
use crate::deny::{DenyKind, ENTRIES_MAX};
use std::net::SocketAddr;
use toml::de::DeValue;
use weir_core::limit::deny::DenySubject;
use weir_core::limit::gcra::Rate;
use weir_core::order::contract::Money;
use weir_core::redis::endpoint::Endpoint;
use weir_core::time::WallMs;
use weir_proto::addr::Cidr;
use weir_proto::ids::PathId;
use weir_proto::limits::TRUSTED_NETWORKS_MAX;
use weir_proto::ticket::{LIVE_KEYS_MAX, key_id, path_id};

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in this range.
    Integer(u64, u64),
    /// A whole number in this range, or `"auto"`.
    IntegerOrAuto(u64, u64),
    /// A duration in this range of milliseconds.
    Duration(u64, u64),
    /// Tokens per time.
    Rate,
    /// Tokens a bucket holds.
    Burst,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Bool,
    /// An address and port.
    Address,
    /// A path; relative ones start at the configuration file's directory.
    File,
    /// `-`, `off` or a path.
    LogTarget,
    /// Networks in CIDR notation.
    Networks,
    /// Who is denied.
    Denied(DenyKind),
    /// Origins of pages.
    Origins,
    /// Servers as `host:port`.
    Endpoints,
    /// A name of a user of another program.
    Name,
    /// One or two key files.
    KeyFiles,
    /// A point in time.
    Instant,
    /// An amount and a currency.
    Price,
    /// The dynamic path of a sale.
    PathId,
    /// 32 bytes in hexadecimal. Never echoed.
    Hex32,
}

/// A key file with the id of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// The key id: given as `kid=path`, else the file name without its ending.
    pub kid: String,
    /// As written.
    pub path: String,
}

/// A checked value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of `Integer`, `IntegerOrAuto`, `Duration` (milliseconds) and `Burst`.
    Number(u64),
    /// Of `IntegerOrAuto`.
    Auto,
    /// Of `Rate`.
    Rate(Rate),
    /// Of `Choice`, `File`, `LogTarget`, `Name`.
    Text(String),
    /// Of `Bool`.
    Bool(bool),
    /// Of `Address`.
    Address(SocketAddr),
    /// Of `Networks`.
    Networks(Vec<Cidr>),
    /// Of `Denied`.
    Denied(Vec<DenySubject>),
    /// Of `Origins`.
    Origins(Vec<Vec<u8>>),
    /// Of `Endpoints`.
    Endpoints(Vec<Endpoint>),
    /// Of `KeyFiles`.
    KeyFiles(Vec<KeyFile>),
    /// Of `Instant`.
    Instant(WallMs),
    /// Of `Price`.
    Price(Money),
    /// Of `PathId`.
    PathId(PathId),
    /// Of `Hex32`.
    Hex32([u8; 32]),
}

impl Kind {
    /// What is allowed, to follow "must be".
    pub fn allowed(&self) -> String {
        match self {
            Self::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Self::IntegerOrAuto(min, max) => {
                format!("\"auto\" or a whole number from {min} to {max}")
            }
            Self::Duration(min_ms, max_ms) => format!(
                "a duration from {} to {}: a whole number and its unit (ms, s, m, h or d)",
                units::duration_text(*min_ms),
                units::duration_text(*max_ms)
            ),
            Self::Rate => format!(
                "a rate above 0 and at most {RATE_PER_SECOND_MAX}/s, such as \"300000/s\", \"0.5/s\" or \"10/m\""
            ),
            Self::Burst => format!("a whole number from 1 to {BURST_MAX}"),
            Self::Choice(words) => format!("one of {}", quoted(words)),
            Self::Bool => "true or false".to_owned(),
            Self::Address => "an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"".to_owned(),
            Self::File => {
                "a path; a relative one starts at the directory of this file".to_owned()
            }
            Self::LogTarget => "\"-\" (standard output), \"off\", or a path".to_owned(),
            Self::Networks => format!(
                "a list of at most {TRUSTED_NETWORKS_MAX} networks, such as [\"10.0.0.0/8\", \"2001:db8::/32\"]"
            ),
            Self::Denied(kind) => format!(
                "a list of at most {ENTRIES_MAX} {}",
                match kind {
                    DenyKind::Network => "networks, such as [\"203.0.113.0/24\", \"2001:db8::/32\"]",
                    DenyKind::User => "users as texts: ids, or b3: and 16 hexadecimal digits",
                    DenyKind::Device => "device hashes as tickets carry them: b3: and 22 characters",
                }
            ),
            Self::Origins => format!(
                "a list of at most {ORIGINS_MAX} origins without a path, such as [\"https://shop.example\"]"
            ),
            Self::Endpoints => format!(
                "a list of 1 to {REDIS_SERVERS_MAX} servers, such as [\"127.0.0.1:6379\"] or [\"redis-1.internal:6379\"]"
            ),
            Self::Name => format!("a name of 1 to {NAME_BYTES_MAX} visible ASCII characters"),
            Self::KeyFiles => format!(
                "a list of 1 to {LIVE_KEYS_MAX} key files, such as [\"keys/ticket-1.key\"] (the key id is the file's name without its ending, A-Z a-z 0-9 _ -) or [\"id=path\"]"
            ),
            Self::Instant => {
                "a time in RFC 3339 with an offset, such as 2026-11-30T20:00:00+08:00, or Unix milliseconds".to_owned()
            }
            Self::Price => "an amount and an ISO 4217 code, such as \"19.90 CNY\"".to_owned(),
            Self::PathId => {
                "1 to 16 characters of A-Z a-z 0-9 _ - (at most 8 for compact tickets)".to_owned()
            }
            Self::Hex32 => "64 hexadecimal digits (32 bytes)".to_owned(),
        }
    }

    /// Reads a value of this kind.
    /// # Errors
    /// One phrase that says what is wrong and what is allowed.
    pub fn read(&self, raw: &DeValue<'_>) -> Result<Value, String> {
        let wrong = || format!("must be {}, not {}", self.allowed(), shown(raw));
        let text = || raw.as_str().ok_or_else(wrong);
        match *self {
            Self::Integer(min, max) => number(raw, min, max).map(Value::Number).ok_or_else(wrong),
            Self::Burst => number(raw, 1, BURST_MAX)
                .map(Value::Number)
                .ok_or_else(wrong),
            Self::IntegerOrAuto(min, max) => match raw.as_str() {
                Some("auto") => Ok(Value::Auto),
                _ => number(raw, min, max).map(Value::Number).ok_or_else(wrong),
            },
            Self::Duration(min_ms, max_ms) => units::duration_ms(text()?)
                .ok()
                .filter(|ms| (min_ms..=max_ms).contains(ms))
                .map(Value::Number)
                .ok_or_else(wrong),
            Self::Rate => units::rate(text()?).map(Value::Rate),
            Self::Choice(words) => word(text()?, words).ok_or_else(wrong),
            Self::Bool => raw.as_bool().map(Value::Bool).ok_or_else(wrong),
            Self::Address => text()?.parse().map(Value::Address).map_err(|_| wrong()),
            Self::File | Self::LogTarget => Some(text()?)
                .filter(|text| !text.is_empty() && !text.contains('\0'))
                .map(|text| Value::Text(text.to_owned()))
                .ok_or_else(wrong),
            Self::Networks => networks(&texts(raw).ok_or_else(wrong)?),
            Self::Denied(kind) => denied(kind, &texts(raw).ok_or_else(wrong)?),
            Self::Origins => origins(&texts(raw).ok_or_else(wrong)?),
            Self::Endpoints => endpoints(&texts(raw).ok_or_else(wrong)?),
            Self::Name => Some(text()?)
                .filter(|text| (1..=NAME_BYTES_MAX).contains(&text.len()))
                .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
                .map(|text| Value::Text(text.to_owned()))
                .ok_or_else(wrong),
            Self::KeyFiles => key_files(&texts(raw).ok_or_else(wrong)?).ok_or_else(wrong),
            Self::Instant => instant_of(raw).ok_or_else(wrong)?.map(Value::Instant),
            Self::Price => units::price(text()?).map(Value::Price),
            Self::PathId => path_id(text()?.as_bytes())
                .map(Value::PathId)
                .ok_or_else(wrong),
            Self::Hex32 => raw
                .as_str()
                .and_then(|text| crate::keys::decode_hex(text.as_bytes()))
                .and_then(|bytes| bytes.try_into().ok())
                .map(Value::Hex32)
                .ok_or_else(|| format!("must be {}; the value is not shown", self.allowed())),
        }
    }
}

/// A short picture of a value for a message.
fn shown(raw: &DeValue<'_>) -> String {
    match raw {
        DeValue::String(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(at) => at.to_string(),
        DeValue::Array(_) => "this list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    quoted.join(", ")
}

fn number(raw: &DeValue<'_>, min: u64, max: u64) -> Option<u64> {
    let integer = raw.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix())
        .ok()
        .filter(|number| (min..=max).contains(number))
}

fn word(text: &str, words: &[&str]) -> Option<Value> {
    words.contains(&text).then(|| Value::Text(text.to_owned()))
}

fn texts<'v>(raw: &'v DeValue<'_>) -> Option<Vec<&'v str>> {
    raw.as_array()?
        .iter()
        .map(|item| item.get_ref().as_str())
        .collect()
}

fn networks(texts: &[&str]) -> Result<Value, String> {
    if texts.len() > TRUSTED_NETWORKS_MAX {
        return Err(format!("holds more than {TRUSTED_NETWORKS_MAX} networks"));
    }
    let read = |text: &&str| Cidr::parse(text).map_err(|error| format!("{text:?}: {error}"));
    texts
        .iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map(Value::Networks)
}

fn denied(kind: DenyKind, texts: &[&str]) -> Result<Value, String> {
    if texts.len() > ENTRIES_MAX {
        return Err(format!("holds more than {ENTRIES_MAX} entries"));
    }
    let read = |(at, text): (usize, &&str)| {
        let subject = kind.read(text);
        subject.map_err(|what| format!("entry {}: {what}", at + 1))
    };
    let subjects = texts.iter().enumerate().map(read);
    subjects.collect::<Result<_, _>>().map(Value::Denied)
}

fn origins(texts: &[&str]) -> Result<Value, String> {
    if texts.len() > ORIGINS_MAX {
        return Err(format!("holds more than {ORIGINS_MAX} origins"));
    }
    for text in texts {
        // An origin as browsers send it (RFC 6454 §6.2): scheme, host in lower case, port unless it is the default.
        let host = ["https://", "http://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme));
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-:[]".contains(&b);
        let ok = host.is_some_and(|host| !host.is_empty() && host.bytes().all(plain));
        if !ok || text.len() > ORIGIN_BYTES_MAX {
            return Err(format!(
                "{text:?} is not an origin as browsers send it: write scheme and host in lower case, no path and no slash at the end, such as \"https://shop.example\""
            ));
        }
    }
    Ok(Value::Origins(
        texts.iter().map(|text| text.as_bytes().to_vec()).collect(),
    ))
}

fn endpoints(texts: &[&str]) -> Result<Value, String> {
    if !(1..=REDIS_SERVERS_MAX).contains(&texts.len()) {
        return Err(format!("must name 1 to {REDIS_SERVERS_MAX} servers"));
    }
    let read = |text: &&str| {
        let endpoint = Endpoint::read(text.as_bytes());
        endpoint.ok_or_else(|| {
            format!("{text:?} is no server; write host:port, such as \"127.0.0.1:6379\"")
        })
    };
    let endpoints: Vec<Endpoint> = texts.iter().map(read).collect::<Result<_, _>>()?;
    for (at, endpoint) in endpoints.iter().enumerate() {
        if endpoints[..at].contains(endpoint) {
            return Err(format!("names {endpoint} twice"));
        }
    }
    Ok(Value::Endpoints(endpoints))
}

fn key_files(texts: &[&str]) -> Option<Value> {
    if !(1..=LIVE_KEYS_MAX).contains(&texts.len()) {
        return None;
    }
    let read = |text: &&str| {
        let (kid, path) = match text.split_once('=') {
            Some((kid, path)) => (kid, path),
            None => (std::path::Path::new(text).file_stem()?.to_str()?, *text),
        };
        key_id(kid.as_bytes())?;
        (!path.is_empty() && !path.contains('\0')).then(|| KeyFile {
            kid: kid.to_owned(),
            path: path.to_owned(),
        })
    };
    texts
        .iter()
        .map(read)
        .collect::<Option<_>>()
        .map(Value::KeyFiles)
}

/// `None` when the value is of another type.
fn instant_of(raw: &DeValue<'_>) -> Option<Result<WallMs, String>> {
    match raw {
        DeValue::Datetime(at) => Some(instant::instant(&at.to_string())),
        DeValue::String(text) => Some(instant::instant(text)),
        // 9999-12-31T23:59:59.999Z is the last instant that RFC 3339 can write.
        _ => number(raw, 0, 253_402_300_799_999).map(|ms| Ok(WallMs(ms))),
    }
}
