//! The data commands that weir's scripts and clients use, as Redis 7 documents them (redis.io/commands). What is not
//! here is refused aloud: a script that begins to use a command gets it modelled first.

use super::keys::{EntryId, Keys, SortedMut};
use super::reply::Reply;

/// A message for the subscribers of a channel.
pub struct Published {
    /// The channel.
    pub channel: Vec<u8>,
    /// The text.
    pub text: Vec<u8>,
}

/// What a command sees beside its arguments.
pub struct Scene<'a> {
    /// The keyspace.
    pub keys: &'a mut Keys,
    /// The server's clock: Unix time in microseconds.
    pub now_us: u64,
    /// What it published, in order.
    pub published: &'a mut Vec<Published>,
}

type Args<'a> = &'a [&'a [u8]];

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
    WRITES
        .iter()
        .any(|write| write.as_bytes().eq_ignore_ascii_case(name))
}

/// Where a command's keys are: all of weir's have theirs first; DEL and EXISTS have only keys.
pub fn keys_of<'a>(name: &[u8], args: Args<'a>) -> Args<'a> {
    match name.to_ascii_uppercase().as_slice() {
        b"DEL" | b"EXISTS" => args,
        b"TIME" | b"PUBLISH" | b"PING" | b"FLUSHALL" => &[],
        _ => &args[..args.len().min(1)],
    }
}

/// Carries out one command.
pub fn run(scene: &mut Scene<'_>, name: &[u8], args: Args<'_>) -> Reply {
    let name = name.to_ascii_uppercase();
    let now_ms = scene.now_us / 1000;
    let family = match name.first() {
        Some(b'H') => hashes(scene.keys, now_ms, &name, args),
        Some(b'Z') => sorted_sets(scene.keys, now_ms, &name, args),
        Some(b'X') => streams(scene.keys, now_ms, &name, args),
        _ => plain(scene, now_ms, &name, args),
    };
    family.unwrap_or_else(|error| error)
}

fn unknown(name: &[u8], args: Args<'_>) -> Reply {
    Reply::err(format_args!(
        "the model does not know '{}' with {} arguments",
        String::from_utf8_lossy(name),
        args.len()
    ))
}

fn integer(text: &[u8]) -> Result<i64, Reply> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Reply::err("value is not an integer or out of range"))
}

fn wall_ms(text: &[u8]) -> Result<u64, Reply> {
    u64::try_from(integer(text)?).map_err(|_| Reply::err("invalid expire time"))
}

fn count(number: usize) -> Reply {
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

fn hashes(keys: &mut Keys, now_ms: u64, name: &[u8], args: Args<'_>) -> Result<Reply, Reply> {
    let Some((key, args)) = args.split_first() else {
        return Err(unknown(name, args));
    };
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
            count(new.count())
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

fn entry_id(text: &[u8], is_low: bool) -> Result<EntryId, Reply> {
    let invalid = || Reply::err("Invalid stream ID specified as stream command argument");
    match text {
        b"-" => return Ok((0, 0)),
        b"+" => return Ok((u64::MAX, u64::MAX)),
        _ => {}
    }
    let text = std::str::from_utf8(text).map_err(|_| invalid())?;
    let (is_after, text) = text
        .strip_prefix('(')
        .map_or((false, text), |rest| (true, rest));
    let (ms, number) = text
        .split_once('-')
        .map_or((text, None), |(ms, n)| (ms, Some(n)));
    let ms = ms.parse().map_err(|_| invalid())?;
    let number = match number {
        Some(number) => number.parse().map_err(|_| invalid())?,
        None if is_low => 0,
        None => u64::MAX,
    };
    Ok(if is_after {
        (ms, number + 1)
    } else {
        (ms, number)
    })
}

/// An entry as XRANGE shows it.
pub fn entry(id: EntryId, fields: &[Vec<u8>]) -> Reply {
    let fields = fields.iter().cloned().map(Reply::Bulk).collect();
    Reply::Array(vec![
        Reply::bulk(format!("{}-{}", id.0, id.1)),
        Reply::Array(fields),
    ])
}

fn streams(keys: &mut Keys, now_ms: u64, name: &[u8], args: Args<'_>) -> Result<Reply, Reply> {
    let Some((key, args)) = args.split_first() else {
        return Err(unknown(name, args));
    };
    Ok(match (name, args) {
        (b"XADD", [options @ .., _]) if !options.is_empty() => {
            return xadd(keys, now_ms, key, args);
        }
        (b"XLEN", []) => count(keys.stream(now_ms, key)?.0.len()),
        (b"XRANGE", [low, high, options @ ..]) => {
            let take = match options {
                [] => i64::MAX,
                [word, take] if word.eq_ignore_ascii_case(b"COUNT") => integer(take)?,
                _ => return Err(unknown(name, args)),
            };
            let range = entry_id(low, true)?..=entry_id(high, false)?;
            let (entries, _) = keys.stream(now_ms, key)?;
            let found = entries.range(range).take(take.max(0) as usize);
            Reply::Array(found.map(|(id, fields)| entry(*id, fields)).collect())
        }
        (b"XDEL", ids @ [_, ..]) => {
            let (entries, _) = keys.stream(now_ms, key)?;
            let mut gone = 0;
            for id in ids {
                gone += usize::from(entries.remove(&entry_id(id, true)?).is_some());
            }
            count(gone)
        }
        _ => return Err(unknown(name, args)),
    })
}

/// XADD key [MAXLEN ~|= n] * field value ...
fn xadd(keys: &mut Keys, now_ms: u64, key: &[u8], args: Args<'_>) -> Result<Reply, Reply> {
    let (most, args) = match args {
        [word, about, most, rest @ ..]
            if word.eq_ignore_ascii_case(b"MAXLEN") && matches!(*about, b"~" | b"=") =>
        {
            (Some(integer(most)?.max(0) as usize), rest)
        }
        _ => (None, args),
    };
    let [b"*", fields @ ..] = args else {
        return Err(unknown(b"XADD", args));
    };
    if fields.is_empty() || fields.len() % 2 != 0 {
        return Err(Reply::err("wrong number of arguments for 'xadd' command"));
    }
    let (entries, last) = keys.stream(now_ms, key)?;
    let id = (now_ms, 0).max((last.0, last.1 + 1));
    *last = id;
    entries.insert(id, fields.iter().map(|field| field.to_vec()).collect());
    while most.is_some_and(|most| entries.len() > most) {
        entries.pop_first();
    }
    Ok(Reply::bulk(format!("{}-{}", id.0, id.1)))
}
