//! The commands of streams: the outbox of orders and the last events of a SKU.

use super::commands::{Args, count, integer, unknown};
use super::keys::{EntryId, Keys};
use super::reply::Reply;

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

/// A command whose name begins with X.
///
/// # Errors
/// Its error reply.
pub(super) fn streams(
    keys: &mut Keys,
    now_ms: u64,
    name: &[u8],
    args: Args<'_>,
) -> Result<Reply, Reply> {
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
