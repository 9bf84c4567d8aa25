//! Consumer groups of streams (redis.io/commands: XGROUP, XREADGROUP, XAUTOCLAIM, XACK), as far as `take.lua` uses them.

use super::commands::Args;
use super::keys::{EntryId, Group, Keys};
use super::reply::Reply;
use super::streams::entry;

/// True for the commands that are modelled here; in capitals.
pub fn has(name: &[u8]) -> bool {
    matches!(
        name,
        b"XINFO" | b"XGROUP" | b"XREADGROUP" | b"XAUTOCLAIM" | b"XACK"
    )
}

/// True for those of them that change the keyspace.
pub fn is_write(name: &[u8]) -> bool {
    has(name) && name != b"XINFO"
}

/// Where the key of such a command stands.
pub fn key_of<'a>(name: &[u8], args: Args<'a>) -> Args<'a> {
    let at = match name {
        b"XINFO" | b"XGROUP" => 1,
        b"XREADGROUP" => args
            .iter()
            .position(|word| *word == b"STREAMS")
            .map_or(0, |at| at + 1),
        _ => 0,
    };
    args.get(at..=at).unwrap_or_default()
}

/// Carries out one of them.
///
/// # Errors
/// Its error reply.
pub fn run(keys: &mut Keys, now_ms: u64, name: &[u8], args: Args<'_>) -> Result<Reply, Reply> {
    match (name, args) {
        (b"XINFO", [b"GROUPS", key]) => {
            let (_, groups) = keys.groups(now_ms, key)?;
            let names = groups.keys().cloned();
            let shown =
                names.map(|name| Reply::Array(vec![Reply::bulk("name"), Reply::Bulk(name)]));
            Ok(Reply::Array(shown.collect()))
        }
        (b"XGROUP", [b"CREATE", key, group, start]) => {
            let last = id(start)?;
            let (_, groups) = keys.groups(now_ms, key)?;
            if groups.contains_key(*group) {
                return Err(Reply::err("BUSYGROUP Consumer Group name already exists"));
            }
            let made = Group {
                last,
                ..Group::default()
            };
            groups.insert(group.to_vec(), made);
            Ok(Reply::ok())
        }
        (
            b"XREADGROUP",
            [
                b"GROUP",
                group,
                consumer,
                b"COUNT",
                most,
                b"STREAMS",
                key,
                b">",
            ],
        ) => {
            let most = number(most)? as usize;
            read_new(keys, now_ms, (key, group, consumer), most)
        }
        (b"XAUTOCLAIM", [key, group, consumer, idle_ms, start, b"COUNT", most]) => {
            let claim = Claim {
                idle_ms: number(idle_ms)?,
                start: id(start)?,
                most: number(most)? as usize,
            };
            autoclaim(keys, now_ms, (key, group, consumer), &claim)
        }
        (b"XACK", [key, group, ids @ ..]) if !ids.is_empty() => {
            let (_, groups) = keys.groups(now_ms, key)?;
            let mut acked = 0;
            for text in ids {
                let id = id(text)?;
                let group = groups.get_mut(*group);
                acked += i64::from(group.is_some_and(|group| group.pending.remove(&id).is_some()));
            }
            Ok(Reply::Integer(acked))
        }
        _ => Err(Reply::err(format_args!(
            "the model does not know '{}' with {} such arguments",
            String::from_utf8_lossy(name),
            args.len()
        ))),
    }
}

/// Key, group and consumer.
type Reader<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn read_new(
    keys: &mut Keys,
    now_ms: u64,
    (key, group, consumer): Reader<'_>,
    most: usize,
) -> Result<Reply, Reply> {
    let (entries, groups) = keys.groups(now_ms, key)?;
    let group = groups.get_mut(group).ok_or_else(no_group)?;
    let behind = (group.last.0, group.last.1 + 1)..;
    let mut found = Vec::new();
    for (id, fields) in entries.range(behind).take(most) {
        group.last = *id;
        group.pending.insert(*id, (consumer.to_vec(), now_ms));
        found.push(entry(*id, fields));
    }
    if found.is_empty() {
        return Ok(Reply::Null);
    }
    let stream = vec![Reply::Bulk(key.to_vec()), Reply::Array(found)];
    Ok(Reply::Array(vec![Reply::Array(stream)]))
}

/// What XAUTOCLAIM looks for.
struct Claim {
    idle_ms: u64,
    start: EntryId,
    most: usize,
}

fn autoclaim(
    keys: &mut Keys,
    now_ms: u64,
    (key, group, consumer): Reader<'_>,
    claim: &Claim,
) -> Result<Reply, Reply> {
    let (entries, groups) = keys.groups(now_ms, key)?;
    let group = groups.get_mut(group).ok_or_else(no_group)?;
    let pending = group.pending.range(claim.start..);
    let idle: Vec<EntryId> = pending
        .filter(|(_, (_, since))| since + claim.idle_ms <= now_ms)
        .map(|(id, _)| *id)
        .take(claim.most)
        .collect();
    let behind = idle.last().filter(|_| idle.len() == claim.most);
    let next = behind.and_then(|last| group.pending.range((last.0, last.1 + 1)..).next());
    let next = next.map_or((0, 0), |(id, _)| *id);
    let (mut claimed, mut gone) = (Vec::new(), Vec::new());
    for id in idle {
        match entries.get(&id) {
            Some(fields) => {
                group.pending.insert(id, (consumer.to_vec(), now_ms));
                claimed.push(entry(id, fields));
            }
            None => {
                group.pending.remove(&id);
                gone.push(Reply::bulk(format!("{}-{}", id.0, id.1)));
            }
        }
    }
    let next = Reply::bulk(format!("{}-{}", next.0, next.1));
    let parts = vec![next, Reply::Array(claimed), Reply::Array(gone)];
    Ok(Reply::Array(parts))
}

fn no_group() -> Reply {
    Reply::err("NOGROUP No such consumer group")
}

fn number(text: &[u8]) -> Result<u64, Reply> {
    let text = std::str::from_utf8(text).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| Reply::err("value is not an integer or out of range"))
}

/// `5-0`, or `5` for it.
fn id(text: &[u8]) -> Result<EntryId, Reply> {
    let mut parts = text.split(|&byte| byte == b'-');
    let ms = number(parts.next().unwrap_or_default())?;
    Ok((ms, parts.next().map_or(Ok(0), number)?))
}
