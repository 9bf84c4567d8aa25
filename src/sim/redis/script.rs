//! The scripts' engine: the shipped Lua in Lua 5.1, over the model's keys, with Redis's conversions and rules.
//!
//! redis.io, "Scripting with Lua" and "Lua API reference": conversions of types, errors of `redis.call`, what the
//! sandbox has. Stricter than the real one in one thing: a key that was not declared in KEYS is an error on a single
//! server, too, because in a cluster it is one.

use super::commands::{self, FieldSet, Published, Scene};
use super::keys::Keys;
use super::mutants;
use super::reply::Reply;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

/// A whole number that a Lua number holds exactly.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// The scripts that one server has loaded.
#[derive(Default)]
pub struct Engine {
    loaded: BTreeSet<String>,
}

/// What one run may do.
#[derive(Clone, Copy, Debug)]
pub struct Permit {
    /// The server's clock in microseconds of Unix time.
    pub now_us: u64,
    /// Why the first write is refused, if it is (a replica, no memory, too few replicas).
    pub refuses_writes: Option<&'static str>,
}

/// What a script leaves beside its reply.
pub struct Trail<'a> {
    /// Messages for subscribers.
    pub published: &'a mut Vec<Published>,
    /// Fields of hashes that were set.
    pub writes: &'a mut Vec<FieldSet>,
}

/// The Lua of a thread: the servers of all its worlds run their scripts in it, and each text is compiled once. Nothing of
/// a run is left behind: scripts have locals only, and KEYS and ARGV are new each time.
struct Machine {
    lua: Lua,
    compiled: BTreeMap<(String, Option<usize>), Function>,
    host: Arc<Mutex<Host>>,
}

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::new(Machine::new().expect("Lua starts"));
}

impl Machine {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let host = Arc::new(Mutex::new(Host::default()));
        let redis = lua.create_table()?;
        let of_call = Arc::clone(&host);
        let call = lua.create_function(move |lua, args: MultiValue| {
            let reply = lock(&of_call).call(args)?;
            match reply {
                Reply::Error(text) => Err(mlua::Error::RuntimeError(text)),
                reply => to_lua(lua, &reply),
            }
        })?;
        let of_pcall = Arc::clone(&host);
        let pcall = lua.create_function(move |lua, args: MultiValue| {
            let reply = lock(&of_pcall).call(args)?;
            to_lua(lua, &reply)
        })?;
        redis.set("call", call)?;
        redis.set("pcall", pcall)?;
        for (name, field) in [("error_reply", "err"), ("status_reply", "ok")] {
            let reply = lua.create_function(move |lua, text: mlua::LuaString| {
                let table = lua.create_table()?;
                table.set(field, text)?;
                Ok(table)
            })?;
            redis.set(name, reply)?;
        }
        lua.globals().set("redis", redis)?;
        Ok(Self {
            lua,
            compiled: BTreeMap::new(),
            host,
        })
    }

    fn compile(&mut self, sha1: &str, source: &[u8]) -> Result<(), Reply> {
        let name = (sha1.to_owned(), mutants::live(sha1));
        if self.compiled.contains_key(&name) {
            return Ok(());
        }
        let text = mutants::text(name.1, source);
        let chunk = self.lua.load(&*text).set_name("@user_script");
        let function = chunk
            .into_function()
            .map_err(|error| Reply::err(format_args!("Error compiling script: {error}")))?;
        self.compiled.insert(name, function);
        Ok(())
    }

    fn run(&self, function: &Function, keys: &[&[u8]], args: &[&[u8]]) -> Reply {
        let run = || {
            let globals = self.lua.globals();
            let keys = strings(&self.lua, keys)?;
            globals.set("KEYS", self.lua.create_sequence_from(keys)?)?;
            let args = strings(&self.lua, args)?;
            globals.set("ARGV", self.lua.create_sequence_from(args)?)?;
            from_lua(&function.call::<Value>(())?)
        };
        run().unwrap_or_else(|error| script_error(&error))
    }
}

fn lock(host: &Mutex<Host>) -> std::sync::MutexGuard<'_, Host> {
    host.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// SCRIPT FLUSH.
    pub fn flush(&mut self) {
        self.loaded.clear();
    }

    /// SCRIPT LOAD.
    ///
    /// # Errors
    /// The reply of a script that does not compile.
    pub fn load(&mut self, sha1: String, source: &[u8]) -> Result<(), Reply> {
        MACHINE.with_borrow_mut(|machine| machine.compile(&sha1, source))?;
        self.loaded.insert(sha1);
        Ok(())
    }

    /// EVALSHA of a script that is loaded.
    pub fn run(
        &self,
        sha1: &str,
        keys: &mut Keys,
        trail: Trail<'_>,
        declared: &[&[u8]],
        args: &[&[u8]],
        permit: Permit,
    ) -> Reply {
        let no_script =
            || Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_string());
        if !self.loaded.contains(sha1) {
            return no_script();
        }
        MACHINE.with_borrow(|machine| {
            let name = (sha1.to_owned(), mutants::live(sha1));
            let Some(function) = machine.compiled.get(&name) else {
                return no_script(); // loaded in a thread that this server was moved from
            };
            *lock(&machine.host) = Host {
                keys: mem::take(keys),
                published: mem::take(trail.published),
                writes: mem::take(trail.writes),
                now_us: permit.now_us,
                declared: declared.iter().map(|key| key.to_vec()).collect(),
                refuses_writes: permit.refuses_writes,
                has_written: false,
            };
            let reply = machine.run(function, declared, args);
            let host = mem::take(&mut *lock(&machine.host));
            *keys = host.keys;
            *trail.published = host.published;
            *trail.writes = host.writes;
            reply
        })
    }
}

fn strings(lua: &Lua, texts: &[&[u8]]) -> mlua::Result<Vec<mlua::LuaString>> {
    texts.iter().map(|text| lua.create_string(text)).collect()
}

/// The innermost cause is the reply: an error of a command keeps its own first word.
fn script_error(error: &mlua::Error) -> Reply {
    let mut error = error;
    while let mlua::Error::CallbackError { cause, .. } = error {
        error = cause;
    }
    match error {
        mlua::Error::RuntimeError(text) if text.split(' ').next().is_some_and(is_code) => {
            let line = text.lines().next().unwrap_or_default();
            Reply::Error(format!("{line} script: @user_script"))
        }
        other => {
            let text = other.to_string();
            Reply::err(text.lines().next().unwrap_or_default())
        }
    }
}

fn is_code(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// What the run in hand works on.
#[derive(Default)]
struct Host {
    keys: Keys,
    published: Vec<Published>,
    writes: Vec<FieldSet>,
    now_us: u64,
    declared: Vec<Vec<u8>>,
    refuses_writes: Option<&'static str>,
    has_written: bool,
}

impl Host {
    fn call(&mut self, args: MultiValue) -> mlua::Result<Reply> {
        let words: Vec<Vec<u8>> = args.iter().map(word).collect::<mlua::Result<_>>()?;
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let Some((name, args)) = words.split_first() else {
            return Ok(Reply::err(
                "Please specify at least one argument for this redis.call() call",
            ));
        };
        let undeclared = commands::keys_of(name, args)
            .iter()
            .find(|key| !self.declared.iter().any(|declared| declared == *key));
        if let Some(key) = undeclared {
            let key = String::from_utf8_lossy(key);
            return Ok(Reply::err(format_args!(
                "the script uses the undeclared key {key}"
            )));
        }
        if commands::is_write(name) {
            // Redis 7, src/script.c: only the first write of a script is refused; then it has begun.
            if let Some(why) = self.refuses_writes.filter(|_| !self.has_written) {
                return Ok(Reply::Error(why.to_string()));
            }
            self.has_written = true;
        }
        let mut scene = Scene {
            keys: &mut self.keys,
            now_us: self.now_us,
            published: &mut self.published,
            writes: &mut self.writes,
        };
        Ok(commands::run(&mut scene, name, args))
    }
}

/// An argument of `redis.call`: strings as they are, numbers as Lua writes them.
fn word(value: &Value) -> mlua::Result<Vec<u8>> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        // Redis 7 writes a whole number in full and others with 17 digits; weir's scripts pass whole ones only.
        Value::Number(number) if number.fract() == 0.0 && number.abs() <= WHOLE_MAX => {
            Ok((*number as i64).to_string().into_bytes())
        }
        _ => Err(mlua::Error::RuntimeError(
            "ERR Lua redis lib command arguments must be strings or whole numbers".to_string(),
        )),
    }
}

fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let named = |field: &str, text: &str| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        table.set(field, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Status(text) => named("ok", text),
        Reply::Error(text) => named("err", text),
        Reply::Integer(number) => Ok(Value::Number(*number as f64)),
        Reply::Bulk(bytes) => Ok(Value::String(lua.create_string(bytes)?)),
        Reply::Null => Ok(Value::Boolean(false)),
        Reply::Array(items) | Reply::Push(items) => list(lua, items.iter()),
        // A script sees RESP2 unless it asks for more.
        Reply::Map(pairs) => list(lua, pairs.iter().flat_map(|(key, value)| [key, value])),
    }
}

fn list<'r>(lua: &Lua, items: impl Iterator<Item = &'r Reply>) -> mlua::Result<Value> {
    let items = items.map(|item| to_lua(lua, item));
    let table = lua.create_sequence_from(items.collect::<mlua::Result<Vec<_>>>()?)?;
    Ok(Value::Table(table))
}

fn from_lua(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::bulk(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Integer(*number),
        Value::Number(number) => Reply::Integer(*number as i64),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => return from_table(table),
        _ => Reply::Null,
    })
}

fn from_table(table: &Table) -> mlua::Result<Reply> {
    if let Some(error) = table.raw_get::<Option<String>>("err")? {
        return Ok(Reply::Error(error));
    }
    if let Some(status) = table.raw_get::<Option<String>>("ok")? {
        return Ok(Reply::Status(status));
    }
    let mut items = Vec::new();
    loop {
        match table.raw_get::<Value>(items.len() + 1)? {
            Value::Nil => return Ok(Reply::Array(items)), // the first hole ends it, as in Redis
            item => items.push(from_lua(&item)?),
        }
    }
}
