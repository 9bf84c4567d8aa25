//! A connection to a real Redis for tests of scripts: frames out, replies in, in order; and all that a server holds.
#![allow(dead_code, clippy::unwrap_used)] // each test binary uses what it needs; a test that meets one has failed

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use weir_core::redis::script::Script;
use weir_proto::resp::{Scan, Scanner, Value, command, read};

/// A script whose clock is its last two arguments, the `count`th and the next: seconds and microseconds.
pub fn with_clock(source: &str, count: usize) -> String {
    let clock = format!("{{ARGV[{count}], ARGV[{}]}}", count + 1);
    let told = source
        .replace("redis.call(\"TIME\")", &clock)
        .replace("redis.call('TIME')", &clock);
    assert_ne!(told, source, "it asks for the time");
    told
}

/// Milliseconds as TIME tells them.
pub fn clock(ms: u64) -> [String; 2] {
    clock_us(ms * 1000)
}

/// Microseconds as TIME tells them.
pub fn clock_us(us: u64) -> [String; 2] {
    [(us / 1_000_000).to_string(), (us % 1_000_000).to_string()]
}

/// One connection.
pub struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
    from: usize,
    /// Frames not sent yet.
    pub out: Vec<u8>,
}

/// A reply that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Text(String),
    Error(String),
    Integer(i64),
    List(Vec<Reply>),
    Null,
}

impl Reply {
    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Error(error) => Self::Error(String::from_utf8_lossy(error.text).into_owned()),
            Value::Integer(integer) => Self::Integer(integer),
            Value::Array(items) | Value::Map(items) => Self::List(items.map(Self::of).collect()),
            Value::Null => Self::Null,
            other => Self::Text(String::from_utf8_lossy(other.text().unwrap()).into_owned()),
        }
    }

    /// The integers of a list that may end with a text (a version is a text in Lua: it may be above 2^53; a record).
    pub fn integers(&self) -> Vec<i64> {
        let Self::List(items) = self else {
            panic!("no list: {self:?}");
        };
        let numbers = match items.split_last() {
            Some((Self::Text(_), numbers)) => numbers,
            _ => items,
        };
        let integer = |item: &Self| match item {
            Self::Integer(integer) => *integer,
            other => panic!("no integer: {other:?} in {self:?}"),
        };
        numbers.iter().map(integer).collect()
    }

    /// A list of texts.
    pub fn texts(&self) -> Vec<String> {
        let Self::List(items) = self else {
            panic!("no list: {self:?}");
        };
        items.iter().map(|item| item.text().to_owned()).collect()
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }
}

impl Wire {
    /// A connection whose server has loaded every script.
    pub fn new(stream: TcpStream) -> Self {
        let mut wire = Self::over(stream);
        wire.load();
        wire
    }

    /// The same as a user of the server.
    pub fn as_user(stream: TcpStream, user: &str, password: &str) -> Self {
        let mut wire = Self::over(stream);
        assert_eq!(wire.ask(&["AUTH", user, password]).text(), "OK");
        wire.load();
        wire
    }

    fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            from: 0,
            out: Vec::new(),
        }
    }

    fn load(&mut self) {
        for script in Script::ALL {
            let loaded = self.ask(&["SCRIPT", "LOAD", script.source()]);
            assert_eq!(loaded.text().as_bytes(), script.sha1(), "{script:?}");
        }
    }

    /// Speaks RESP3 from here on.
    pub fn speak_resp3(&mut self) {
        command(&mut self.out, &[b"HELLO", b"3"]);
        self.send();
        let is_greeting = self.next(|value| matches!(value, Value::Map(_)));
        assert!(is_greeting);
    }

    /// Sends what `out` holds.
    pub fn send(&mut self) {
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }

    /// The next reply, as `told` reads it.
    pub fn next<T>(&mut self, told: impl FnOnce(&Value<'_>) -> T) -> T {
        let range = self.whole();
        told(&read(&self.input[range]))
    }

    fn whole(&mut self) -> Range<usize> {
        let mut scanner = Scanner::new();
        loop {
            match scanner.scan(&self.input[self.from..]) {
                Scan::Done { bytes } => {
                    let range = self.from..self.from + bytes;
                    self.from = range.end;
                    return range;
                }
                Scan::NeedMore => {
                    // What was read before goes only here, where nobody borrows it.
                    self.input.drain(..self.from);
                    self.from = 0;
                    let mut more = [0; 64 * 1024];
                    let count = self.stream.read(&mut more).unwrap();
                    assert!(count > 0, "Redis closed the connection");
                    self.input.extend_from_slice(&more[..count]);
                }
                Scan::Reject(reject) => panic!("Redis sent what is no reply: {reject:?}"),
            }
        }
    }

    /// One command and its reply.
    pub fn ask(&mut self, parts: &[&str]) -> Reply {
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
        command(&mut self.out, &parts);
        self.send();
        self.next(|value| Reply::of(value.clone()))
    }

    /// One frame and its reply.
    pub fn run(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Reply {
        write(&mut self.out);
        self.send();
        self.next(|value| Reply::of(value.clone()))
    }

    /// One run of a script of ours.
    pub fn script(&mut self, script: Script, keys: &[&str], arguments: &[&str]) -> Reply {
        let sha1 = script.sha1();
        let mut parts = vec!["EVALSHA", std::str::from_utf8(&sha1).unwrap()];
        let keys_count = keys.len().to_string();
        parts.push(&keys_count);
        parts.extend_from_slice(keys);
        parts.extend_from_slice(arguments);
        self.ask(&parts)
    }

    /// One run of a script by its text.
    pub fn text(&mut self, source: &str, keys: &[&str], arguments: &[&str]) -> Reply {
        let keys_count = keys.len().to_string();
        let mut parts = vec!["EVAL", source, &keys_count];
        parts.extend_from_slice(keys);
        parts.extend_from_slice(arguments);
        self.ask(&parts)
    }

    /// Everything that the server holds: of each key what is in it and when it expires.
    pub fn everything(&mut self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for key in self.ask(&["KEYS", "*"]).texts() {
            let kind = self.ask(&["TYPE", &key]);
            let content = match kind.text() {
                "hash" => format!("{:?}", self.hash(&key)), // sorted: Redis' order is its own affair
                "zset" => format!("{:?}", self.ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"])),
                "stream" => format!("{:?}", self.ask(&["XRANGE", &key, "-", "+"])),
                "string" => format!("{:?}", self.ask(&["GET", &key])),
                other => panic!("{key} is a {other}"),
            };
            let expires = self.ask(&["PEXPIRETIME", &key]);
            found.insert(key, format!("{expires:?} {content}"));
        }
        found
    }

    /// A hash as a map.
    pub fn hash(&mut self, key: &str) -> BTreeMap<String, String> {
        let texts = self.ask(&["HGETALL", key]).texts();
        let pairs = texts.chunks_exact(2);
        pairs
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect()
    }
}
