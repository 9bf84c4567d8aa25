//! The data commands that weir's scripts and clients use, as Redis 7 documents them (redis.io/commands). What is not
//! here is refused aloud: a script that begins to use a command gets it modelled first.

use super::groups;
use super::keys::{Keys, SortedMut};
use super::reply::Reply;
use super::streams::streams;

/// A message for the subscribers of a channel.
pub struct Published {
    /// The channel.
    pub channel: Vec<u8>,
    /// The text.
    pub text: Vec<u8>,
}

/// A field of a hash that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSet {
    /// The hash.
    pub key: Vec<u8>,
    /// The field.
    pub field: Vec<u8>,
    /// What it holds now.
    pub value: Vec<u8>,
}

/// What a command sees beside its arguments.
pub struct Scene<'a> {
    /// The keyspace.
    pub keys: &'a mut Keys,
    /// The server's clock: Unix time in microseconds.
    pub now_us: u64,
    /// What it published, in order.
    pub published: &'a mut Vec<Published>,
    /// Fields that HSET set, in order.
    pub writes: &'a mut Vec<FieldSet>,
}

pub(super) type Args<'a> = &'a [&'a [u8]];

/// True for commands that change the keyspace: none of them is carried out on a server that takes no writes.
pub fn is_write(name: &[u8]) -> bool {
    const WRITES: [&str; 17] = [
        "SET",
        "DEL",
        "INCRBY",
        "HSET",
        "HDEL",
        "HINCRBY",
        "HSETNX",
        "ZADD",
        "ZREM",
        "ZREMRANGEBYSCORE",
        "ZREMRANGEBYRANK",
        "XADD",
        "XDEL",
        "XTRIM",
        "PEXPIRE",
        "PEXPIREAT",
        "FLUSHALL",
    ];
    let name = &name.to_ascii_uppercase()[..];
    WRITES.iter().any(|write| write.as_bytes() == name) || groups::is_write(name)
}

/// Where a command's keys are: all of weir's have theirs first; DEL and EXISTS have only keys.
pub fn keys_of<'a>(name: &[u8], args: Args<'a>) -> Args<'a> {
    match name.to_ascii_uppercase().as_slice() {
        b"DEL" | b"EXISTS" => args,
        b"TIME" | b"PUBLISH" | b"PING" | b"FLUSHALL" => &[],
        name if groups::has(name) => groups::key_of(name, args),
        _ => &args[..args.len().min(1)],
    }
}

/// Carries out one command.
pub fn run(scene: &mut Scene<'_>, name: &[u8], args: Args<'_>) -> Reply {
    let name = name.to_ascii_uppercase();
    let now_ms = scene.now_us / 1000;
    let family = match name.first() {
        Some(b'H') => hashes(scene, now_ms, &name, args),
        Some(b'Z') => sorted_sets(scene.keys, now_ms, &name, args),
        Some(b'X') if groups::has(&name) => groups::run(scene.keys, now_ms, &name, args),
        Some(b'X') => streams(scene.keys, now_ms, &name, args),
        _ => plain(scene, now_ms, &name, args),
    };
    family.unwrap_or_else(|error| error)
}

pub(super) fn unknown(name: &[u8], args: Args<'_>) -> Reply {
    Reply::err(format_args!(
        "the model does not know '{}' with {} arguments",
        String::from_utf8_lossy(name),
        args.len()
    ))
}

pub(super) fn integer(text: &[u8]) -> Result<i64, Reply> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Reply::err("value is not an integer or out of range"))
}

fn wall_ms(text: &[u8]) -> Result<u64, Reply> {
    u64::try_from(integer(text)?).map_err(|_| Reply::err("invalid expire time"))
}

pub(super) fn count(number: usize) -> Reply {
    Reply::Integer(number as i64)
}

fn added(before: i64, by: &[u8]) -> Result<i64, Reply> {
    before
        .checked_add(integer(by)?)
        .ok_or_else(|| Reply::err("increment or decrement would overflow"))
}

fn plain(scene: &mut Scene<'_>, now_ms: u64, name: &[u8], args: Args<'_>) -> Result<Reply, Reply> {
    let keys = &mut *scene.keys;
    Ok(match (name, args) {
        (b"PING", []) => Reply::Status("PONG".to_string()),
        (b"TIME", []) => Reply::Array(vec![
            Reply::bulk((scene.now_us / 1_000_000).to_string()),
            Reply::bulk((scene.now_us % 1_000_000).to_string()),
        ]),
        (b"PUBLISH", [channel, text]) => {
            scene.published.push(Published {
                channel: channel.to_vec(),
                text: text.to_vec(),
            });
            Reply::Integer(0) // a cluster counts only the subscribers of one node: nobody relies on it
        }
        (b"FLUSHALL", []) => {
            *keys = Keys::default();
            Reply::ok()
        }
        (b"EXISTS", names) => count(names.iter().filter(|key| keys.has(now_ms, key)).count()),
        (b"DEL", names) => count(names.iter().filter(|key| keys.remove(now_ms, key)).count()),
        (b"TYPE", [key]) => Reply::Status(keys.type_word(now_ms, key).to_string()),
        (b"GET", [key]) => keys
            .text(now_ms, key)?
            .map_or(Reply::Null, |text| Reply::Bulk(text.clone())),
        (b"SET", [key, text, options @ ..]) => return set(keys, now_ms, key, text, options),
        (b"INCRBY", [key, by]) => {
            let text = keys.text_or_new(now_ms, key)?;
            let before = if text.is_empty() { 0 } else { integer(text)? };
            let after = added(before, by)?;
            *text = after.to_string().into_bytes();
            Reply::Integer(after)
        }
        (b"PEXPIRE", [key, ms]) => {
            let at_ms = now_ms + wall_ms(ms)?;
            Reply::Integer(keys.end_at(now_ms, key, at_ms).into())
        }
        (b"PEXPIREAT", [key, at_ms]) => {
            let at_ms = wall_ms(at_ms)?;
            Reply::Integer(keys.end_at(now_ms, key, at_ms).into())
        }
        (b"PTTL", [key]) => Reply::Integer(match keys.left_ms(now_ms, key) {
            None => -2,
            Some(None) => -1,
            Some(Some(ms)) => ms as i64,
        }),
        _ => return Err(unknown(name, args)),
    })
}

/// SET with the options PX, PXAT and NX.
fn set(
    keys: &mut Keys,
    now_ms: u64,
    key: &[u8],
    text: &[u8],
    mut options: Args<'_>,
) -> Result<Reply, Reply> {
    let (mut ends_at_ms, mut only_new) = (None, false);
    while let Some((option, rest)) = options.split_first() {
        options = rest;
        let mut value = || {
            let (value, rest) = options
                .split_first()
                .ok_or_else(|| Reply::err("syntax error"))?;
            options = rest;
            wall_ms(value)
        };
        match option.to_ascii_uppercase().as_slice() {
            b"PX" => ends_at_ms = Some(now_ms + value()?),
            b"PXAT" => ends_at_ms = Some(value()?),
            b"NX" => only_new = true,
            _ => return Err(Reply::err("syntax error")),
        }
    }
    if only_new && keys.has(now_ms, key) {
        return Ok(Reply::Null);
    }
    keys.put_text(key, text);
    if let Some(at_ms) = ends_at_ms {
        keys.end_at(now_ms, key, at_ms);
    }
    Ok(Reply::ok())
}

fn hashes(scene: &mut Scene<'_>, now_ms: u64, name: &[u8], args: Args<'_>) -> Result<Reply, Reply> {
    let Some((key, args)) = args.split_first() else {
        return Err(unknown(name, args));
    };
    let keys = &mut *scene.keys;
    let bulk = |value: Option<&Vec<u8>>| value.map_or(Reply::Null, |v| Reply::Bulk(v.clone()));
    Ok(match (name, args) {
        (b"HGET", [field]) => bulk(keys.hash(now_ms, key)?.and_then(|hash| hash.get(*field))),
        (b"HMGET", fields @ [_, ..]) => {
            let hash = keys.hash(now_ms, key)?;
            let value = |field: &&[u8]| bulk(hash.as_ref().and_then(|hash| hash.get(*field)));
            Reply::Array(fields.iter().map(value).collect())
        }
        (b"HGETALL", []) => {
            let pairs = keys
                .hash(now_ms, key)?
                .into_iter()
                .flat_map(|hash| hash.iter());
            let pairs = pairs.map(|(f, v)| (Reply::bulk(f.clone()), Reply::bulk(v.clone())));
            Reply::Map(pairs.collect())
        }
        (b"HLEN", []) => count(keys.hash(now_ms, key)?.map_or(0, |hash| hash.len())),
        (b"HEXISTS", [field]) => {
            let has = keys
                .hash(now_ms, key)?
                .is_some_and(|hash| hash.contains_key(*field));
            Reply::Integer(has.into())
        }
        (b"HSET", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
            let hash = keys.hash_or_new(now_ms, key)?;
            let new = pairs
                .chunks_exact(2)
                .filter(|pair| hash.insert(pair[0].to_vec(), pair[1].to_vec()).is_none());
            let new = new.count();
            scene
                .writes
                .extend(pairs.chunks_exact(2).map(|pair| FieldSet {
                    key: key.to_vec(),
                    field: pair[0].to_vec(),
                    value: pair[1].to_vec(),
                }));
            count(new)
        }
        (b"HSETNX", [field, value]) => {
            let hash = keys.hash_or_new(now_ms, key)?;
            let is_new = !hash.contains_key(*field);
            if is_new {
                hash.insert(field.to_vec(), value.to_vec());
            }
            Reply::Integer(is_new.into())
        }
        (b"HINCRBY", [field, by]) => {
            let hash = keys.hash_or_new(now_ms, key)?;
            let before = hash.get(*field).map_or(Ok(0), |text| integer(text))?;
            let after = added(before, by)?;
            hash.insert(field.to_vec(), after.to_string().into_bytes());
            Reply::Integer(after)
        }
        (b"HDEL", fields @ [_, ..]) => {
            let hash = keys.hash_or_new(now_ms, key)?;
            let gone = fields
                .iter()
                .filter(|field| hash.remove(**field).is_some())
                .count();
            keys.drop_empty(key);
            count(gone)
        }
        (b"HSCAN", [cursor, options @ ..]) => return hscan(keys, now_ms, key, cursor, options),
        _ => return Err(unknown(name, args)),
    })
}

/// HSCAN key cursor [COUNT n]: the model's cursor is a place in the order of fields.
fn hscan(
    keys: &mut Keys,
    now_ms: u64,
    key: &[u8],
    cursor: &[u8],
    options: Args<'_>,
) -> Result<Reply, Reply> {
    let wanted = match options {
        [] => 10,
        [word, wanted] if word.eq_ignore_ascii_case(b"COUNT") => integer(wanted)?,
        _ => return Err(unknown(b"HSCAN", options)),
    };
    let from = usize::try_from(integer(cursor)?).map_err(|_| Reply::err("invalid cursor"))?;
    let (mut items, mut next) = (Vec::new(), 0);
    if let Some(hash) = keys.hash(now_ms, key)? {
        let wanted = usize::try_from(wanted.max(1)).unwrap_or(1);
        let page = hash.iter().skip(from).take(wanted);
        items.extend(page.flat_map(|(f, v)| [Reply::bulk(f.clone()), Reply::bulk(v.clone())]));
        let end = from + wanted;
        next = if end < hash.len() { end } else { 0 };
    }
    Ok(Reply::Array(vec![
        Reply::bulk(next.to_string()),
        Reply::Array(items),
    ]))
}

/// A bound of a range by score: `-inf`, `+inf`, `5`, `(5`; as the smallest or largest score within.
fn bound(text: &[u8], is_low: bool) -> Result<i64, Reply> {
    match text {
        b"-inf" => Ok(i64::MIN),
        b"+inf" | b"inf" => Ok(i64::MAX),
        [b'(', rest @ ..] => Ok(integer(rest)? + if is_low { 1 } else { -1 }),
        _ => integer(text),
    }
}

/// The places that `start..=stop` names in a list of `len`, negative ones from its end.
fn places(start: &[u8], stop: &[u8], len: usize) -> Result<std::ops::Range<usize>, Reply> {
    let place = |text: &[u8]| -> Result<i64, Reply> {
        let at = integer(text)?;
        Ok(if at < 0 { at + len as i64 } else { at })
    };
    let start = place(start)?.max(0) as usize;
    let stop = (place(stop)? + 1).clamp(0, len as i64) as usize;
    Ok(start.min(stop)..stop)
}

fn sorted_sets(keys: &mut Keys, now_ms: u64, name: &[u8], args: Args<'_>) -> Result<Reply, Reply> {
    let Some((key, args)) = args.split_first() else {
        return Err(unknown(name, args));
    };
    keys.sorted(now_ms, key, |mut set| {
        Ok(match (name, args) {
            (b"ZADD", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                let mut new = 0;
                for pair in pairs.chunks_exact(2) {
                    new += usize::from(set.put(pair[1], integer(pair[0])?));
                }
                count(new)
            }
            (b"ZREM", members @ [_, ..]) => count(members.iter().filter(|m| set.remove(m)).count()),
            (b"ZCARD", []) => count(set.in_order().len()),
            (b"ZSCORE", [member]) => set
                .score(member)
                .map_or(Reply::Null, |score| Reply::bulk(score.to_string())),
            (b"ZCOUNT", [low, high]) => {
                let within = bound(low, true)?..=bound(high, false)?;
                count(
                    set.in_order()
                        .filter(|(score, _)| within.contains(score))
                        .count(),
                )
            }
            (b"ZRANGE" | b"ZRANGEBYSCORE", _) => return ranged(&set, name, args),
            (b"ZREMRANGEBYSCORE", [low, high]) => {
                let within = bound(low, true)?..=bound(high, false)?;
                let gone = all(&set)
                    .into_iter()
                    .filter(|(score, _)| within.contains(score));
                count(gone.filter(|(_, member)| set.remove(member)).count())
            }
            (b"ZREMRANGEBYRANK", [start, stop]) => {
                let mut found = all(&set);
                let range = places(start, stop, found.len())?;
                count(
                    found
                        .drain(range)
                        .filter(|(_, member)| set.remove(member))
                        .count(),
                )
            }
            _ => return Err(unknown(name, args)),
        })
    })?
}

/// Members of a sorted set with their scores, in order.
fn all(set: &SortedMut<'_>) -> Vec<(i64, Vec<u8>)> {
    set.in_order().cloned().collect()
}

/// ZRANGE and ZRANGEBYSCORE.
fn ranged(set: &SortedMut<'_>, name: &[u8], args: Args<'_>) -> Result<Reply, Reply> {
    let listed = |found: Vec<(i64, Vec<u8>)>, with_scores: bool| {
        let items = found.into_iter().flat_map(|(score, member)| {
            let score = with_scores.then(|| Reply::bulk(score.to_string()));
            std::iter::once(Reply::Bulk(member)).chain(score)
        });
        Reply::Array(items.collect())
    };
    Ok(match (name, args) {
        (b"ZRANGE", [start, stop, options @ ..]) => {
            let mut found = all(set);
            let range = places(start, stop, found.len())?;
            let found = found.drain(range).collect();
            listed(found, is_word(options, b"WITHSCORES", name, args)?)
        }
        (b"ZRANGEBYSCORE", [low, high, options @ ..]) => {
            let within = bound(low, true)?..=bound(high, false)?;
            let (limit, options) = match options {
                [rest @ .., word, skip, take] if word.eq_ignore_ascii_case(b"LIMIT") => {
                    ((integer(skip)?, integer(take)?), rest)
                }
                _ => ((0, i64::MAX), options),
            };
            let found = all(set)
                .into_iter()
                .filter(|(score, _)| within.contains(score));
            let page = found
                .skip(limit.0.max(0) as usize)
                .take(limit.1.max(0) as usize);
            listed(page.collect(), is_word(options, b"WITHSCORES", name, args)?)
        }
        _ => return Err(unknown(name, args)),
    })
}

/// True for exactly that word, false for nothing.
fn is_word(options: Args<'_>, word: &[u8], name: &[u8], args: Args<'_>) -> Result<bool, Reply> {
    match options {
        [] => Ok(false),
        [option] if option.eq_ignore_ascii_case(word) => Ok(true),
        _ => Err(unknown(name, args)),
    }
}
