//! What an operator does at the gates (A6, C4): deny and let in again, lift bans, look at hot keys.
//!
//! `GET /ops/v1/deny`, `POST /ops/v1/deny/add`, `POST /ops/v1/deny/remove`, `POST /ops/v1/bans/lift`, `GET /ops/v1/hot`.
//! A change is written to the audit log (users by their hash, devices by theirs), then to the deny-list's file, then sent
//! to every shard; the answer follows that mail, so what a shard reads later meets the new list. All are idempotent. What
//! `/hot` shows of a user, `b3:` and 16 digits, is what `deny/add` takes as `user_hash`.

use super::OpsListener;
use super::audit::Act;
use super::gather::Part;
use super::limits::{ACTOR_BYTES_MAX, DENY_TTL_S_MAX, HOT_SHOWN_MAX, SUBJECT_BYTES_MAX};
use super::refusal::{Fault, Refusal};
use super::reply::Reply;
use super::route::GateAct;
use crate::deny::{DenyError, DenyKind, ENTRIES_MAX, shown};
use crate::keys::encode_hex;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use weir_core::limit::deny::{DenySubject, UserHash, user_hash};
use weir_core::limits::HOT_WINDOW_MS;
use weir_core::mail::{Addr, BanLift, Mail};
use weir_core::port::Effects;
use weir_core::stats::HotName;
use weir_core::time::{Mono, Now, WallMs};
use weir_proto::answer::rfc3339_ms;
use weir_proto::http::response::Status;
use weir_proto::ids::UserId;
use weir_proto::json::{Member, MemberFault, Object};
use weir_proto::limits::ID_MAX;
use weir_proto::text::Text;

const ADD: &[&str] = &[
    "network",
    "user_id",
    "user_hash",
    "device_hash",
    "ttl_s",
    "actor",
];
const REMOVE: &[&str] = &["network", "user_id", "user_hash", "device_hash", "actor"];
const LIFT: &[&str] = &["network", "user_id", "user_hash", "all", "actor"];

/// What an operator wants. No `Debug`: it may hold a raw user id.
struct Wish {
    /// `None`: everybody, which only lifting knows.
    subject: Option<DenySubject>,
    ttl_s: Option<u64>,
    actor: Option<Text<ACTOR_BYTES_MAX>>,
}

#[derive(Serialize)]
struct Done {
    code: &'static str,
    action: &'static str,
    /// False: it was so already.
    changed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_at: Option<String>,
}

#[derive(Serialize)]
struct EntryLine {
    kind: &'static str,
    value: String,
    ends_at: Option<String>,
    from: &'static str,
}

#[derive(Serialize)]
struct DenyPage {
    entries: Vec<EntryLine>,
    entries_max: usize,
}

#[derive(Serialize)]
struct HotLine {
    #[serde(flatten)]
    name: BTreeMap<&'static str, serde_json::Value>,
    count: u64,
    /// The count exceeds the truth by this at most.
    error: u64,
}

#[derive(Serialize)]
struct HotDimension {
    dimension: &'static str,
    requests: u64,
    /// What is not shown came at most so often.
    absent_max: u64,
    keys: Vec<HotLine>,
}

#[derive(Serialize)]
struct HotShard {
    shard: String,
    hot: Vec<HotDimension>,
}

#[derive(Serialize)]
struct HotPage {
    window_ms: u64,
    all: Vec<HotDimension>,
    shards: Vec<HotShard>,
}

/// One dimension, of one shard or of several together.
#[derive(Default)]
struct Tally {
    seen: u64,
    absent_max: u64,
    /// Count and error.
    keys: BTreeMap<HotName, (u64, u64)>,
}

impl OpsListener {
    /// Who is denied.
    pub(super) fn deny_page(&self) -> Reply {
        let line = |entry: &crate::deny::DenyEntry| {
            let (kind, value) = shown(&entry.subject);
            EntryLine {
                kind: kind.as_str(),
                value,
                ends_at: entry.until.map(time_text),
                from: if entry.from_config {
                    "config"
                } else {
                    "operator"
                },
            }
        };
        let page = DenyPage {
            entries: self.deny.entries().iter().map(line).collect(),
            entries_max: ENTRIES_MAX,
        };
        Reply::json(Status::Ok, &page)
    }

    /// Carries out one act at the gates.
    pub(super) fn gate_act(
        &mut self,
        now: Now,
        act: GateAct,
        peer: SocketAddr,
        body: &[u8],
        fx: &mut Effects,
    ) -> Result<Reply, Refusal> {
        let wish = read(act, body)?;
        let line = |result| Act {
            action: act.as_str(),
            subject: wish.subject.map(|subject| self.audited(&subject)),
            ttl_s: wish.ttl_s,
            peer,
            actor: wish.actor,
            result,
        };
        let (asked, done, failed) = (line("ASKED"), line("DONE"), line("FAILED"));
        if !self.steps.audit().write_act(now.wall, &asked) {
            return Err(Fault::AuditFailed.into());
        }
        let ends = wish.ttl_s.map(|ttl_s| now.wall.plus_ms(ttl_s * 1000));
        let result = match (act, wish.subject) {
            (GateAct::DenyAdd, Some(subject)) => self.deny.add(now.wall, subject, ends),
            (GateAct::DenyRemove, Some(subject)) => self.deny.remove(now.wall, subject),
            (_, subject) => {
                let lift = lift_of(subject).ok_or(Fault::Body)?;
                self.to_shards(&Mail::BanLift(lift), fx);
                Ok(true)
            }
        };
        let changed = match result {
            Ok(changed) => changed,
            Err(error) => {
                self.steps.audit().write_act(now.wall, &failed);
                return Err(refusal_of(&error));
            }
        };
        let is_list = act != GateAct::BansLift;
        if is_list && changed {
            self.send_deny(now, fx);
        }
        // Done is done, and its first line is on disk: the operator hears it even if this line fails.
        self.steps.audit().write_act(now.wall, &done);
        let body = Done {
            code: "OK",
            action: act.as_str(),
            changed,
            entries: is_list.then(|| self.deny.entries().len()),
            ends_at: ends.map(time_text),
        };
        Ok(Reply::json(Status::Ok, &body))
    }

    /// Lets entries go whose time is over.
    pub(super) fn expire_deny(&mut self, now: Now, fx: &mut Effects) {
        if self.deny_due.is_some_and(|due| due <= now.mono) {
            if self.deny.expire(now.wall) {
                self.send_deny(now, fx);
            }
            self.set_deny_due(now);
        }
    }

    /// When the next entry ends, by the clock that cannot be set; looked at once a minute at least, for walls can.
    pub(super) fn set_deny_due(&mut self, now: Now) {
        const LOOK_MS: u64 = 60_000;
        self.deny_due = self
            .deny
            .next_end()
            .map(|end| now.mono.plus_ms(end.since(now.wall).clamp(1, LOOK_MS)));
    }

    pub(super) fn deny_deadline(&self) -> Option<Mono> {
        self.deny_due
    }

    fn send_deny(&mut self, now: Now, fx: &mut Effects) {
        self.set_deny_due(now);
        let list = Arc::new(self.deny.list(now.wall));
        self.to_shards(&Mail::Deny(list), fx);
    }

    fn to_shards(&self, mail: &Mail, fx: &mut Effects) {
        for part in self.gather.parts() {
            if matches!(part.addr, Addr::Shard(_)) {
                fx.post(part.addr, mail.clone());
            }
        }
    }

    /// A subject as the audit log may hold it.
    fn audited(&self, subject: &DenySubject) -> String {
        let (kind, value) = match subject {
            DenySubject::User(user) => {
                let hash = user_hash(&self.user_hash_key, *user);
                (DenyKind::User, hash_text(&hash))
            }
            other => shown(other),
        };
        format!("{} {value}", kind.as_str())
    }

    /// The hot keys of every shard, and of all together.
    pub(super) fn hot_page(&self) -> Reply {
        let mut shards = Vec::new();
        let mut all: Vec<(&'static str, Vec<Tally>)> = ["ip", "user", "sku"]
            .map(|dimension| (dimension, Vec::new()))
            .into();
        for part in self.gather.parts() {
            let (Addr::Shard(shard), Some(stats)) = (part.addr, &part.stats) else {
                continue;
            };
            let mut hot = Vec::new();
            for (dimension, tallies) in &mut all {
                let tally = tally_of(part, dimension);
                hot.push(dimension_of(dimension, &tally));
                tallies.push(tally);
            }
            let _ = stats;
            shards.push(HotShard {
                shard: format!("shard-{}", shard.0),
                hot,
            });
        }
        let all = all
            .iter()
            .map(|(dimension, tallies)| dimension_of(dimension, &merged(tallies)))
            .collect();
        let page = HotPage {
            window_ms: HOT_WINDOW_MS,
            all,
            shards,
        };
        Reply::json(Status::Ok, &page)
    }
}

fn tally_of(part: &Part, dimension: &str) -> Tally {
    let tables = part.stats.iter().flat_map(|stats| &stats.hot);
    let mut tally = Tally::default();
    for table in tables.filter(|table| table.dimension == dimension) {
        tally.seen = table.seen;
        tally.absent_max = table.absent_max;
        let keys = table.keys.iter();
        tally.keys = keys.map(|hot| (hot.name, (hot.count, hot.error))).collect();
    }
    tally
}

/// A key that one shard does not show may have come to it as often as that shard's smallest: that much is added to its
/// count and to its error, so both guarantees of the tables hold for the sum.
fn merged(tallies: &[Tally]) -> Tally {
    let names: BTreeSet<HotName> = tallies
        .iter()
        .flat_map(|tally| tally.keys.keys().copied())
        .collect();
    let of_all = |name: HotName| {
        let parts = tallies.iter().map(|tally| {
            let absent = (tally.absent_max, tally.absent_max);
            tally.keys.get(&name).copied().unwrap_or(absent)
        });
        parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    };
    Tally {
        seen: tallies.iter().map(|tally| tally.seen).sum(),
        absent_max: tallies.iter().map(|tally| tally.absent_max).sum(),
        keys: names.iter().map(|&name| (name, of_all(name))).collect(),
    }
}

fn dimension_of(dimension: &'static str, tally: &Tally) -> HotDimension {
    let mut keys: Vec<_> = tally.keys.iter().collect();
    keys.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let cut = keys.get(HOT_SHOWN_MAX).map_or(0, |(_, (count, _))| *count);
    keys.truncate(HOT_SHOWN_MAX);
    let line = |(name, (count, error)): (&HotName, &(u64, u64))| HotLine {
        name: name_of(name),
        count: *count,
        error: *error,
    };
    HotDimension {
        dimension,
        requests: tally.seen,
        absent_max: tally.absent_max.max(cut),
        keys: keys.into_iter().map(line).collect(),
    }
}

fn name_of(name: &HotName) -> BTreeMap<&'static str, serde_json::Value> {
    match name {
        HotName::Ip(key) => BTreeMap::from([("network", key.to_string().into())]),
        HotName::User(hash) => BTreeMap::from([("user_hash", hash_text(hash).into())]),
        HotName::Sku(key) => BTreeMap::from([
            ("activity_id", key.activity.0.into()),
            ("sku_id", key.sku.0.into()),
        ]),
    }
}

fn hash_text(hash: &UserHash) -> String {
    format!("b3:{}", encode_hex(hash))
}

fn time_text(at: WallMs) -> String {
    String::from_utf8_lossy(&rfc3339_ms(at.0)).into_owned()
}

fn lift_of(subject: Option<DenySubject>) -> Option<BanLift> {
    match subject {
        None => Some(BanLift::All),
        Some(DenySubject::Network(network)) => Some(BanLift::Network(network)),
        Some(DenySubject::User(user)) => Some(BanLift::User(user)),
        Some(DenySubject::UserHash(hash)) => Some(BanLift::UserHash(hash)),
        Some(DenySubject::Device(_)) => None,
    }
}

fn refusal_of(error: &DenyError) -> Refusal {
    match error {
        DenyError::Full => Refusal::from(Fault::DenyFull).with_detail(error),
        DenyError::Io(..) | DenyError::Line(..) => {
            Refusal::from(Fault::DenyFile).with_detail(error)
        }
    }
}

/// Reads the body of an act: exactly one subject.
fn read(act: GateAct, body: &[u8]) -> Result<Wish, Refusal> {
    let mut object = Object::open(
        body,
        match act {
            GateAct::DenyAdd => ADD,
            GateAct::DenyRemove => REMOVE,
            GateAct::BansLift => LIFT,
        },
    )?;
    let mut subjects = Vec::new();
    let (mut ttl_s, mut actor) = (None, None);
    while let Some(member) = object.next_member()? {
        match member.name {
            "network" => subjects.push(Some(subject(&member, DenyKind::Network)?)),
            "user_hash" => subjects.push(Some(subject(&member, DenyKind::User)?)),
            "device_hash" => subjects.push(Some(subject(&member, DenyKind::Device)?)),
            "user_id" => {
                let user = UserId(member.integer(1..=ID_MAX)?);
                subjects.push(Some(DenySubject::User(user)));
            }
            "all" => {
                if !member.bool()? {
                    return Err(member.fault(MemberFault::Form("true")).into());
                }
                subjects.push(None);
            }
            "ttl_s" => ttl_s = Some(member.integer(1..=DENY_TTL_S_MAX)?),
            _ => actor = Some(super::steps::actor(&member)?),
        }
    }
    match subjects[..] {
        [subject] => Ok(Wish {
            subject,
            ttl_s,
            actor,
        }),
        _ => Err(Fault::OneSubject.into()),
    }
}

fn subject(member: &Member<'_>, kind: DenyKind) -> Result<DenySubject, Refusal> {
    let form = MemberFault::Form(match kind {
        DenyKind::Network => "an address or a network such as 203.0.113.0/24 or 2001:db8::/32",
        DenyKind::User => {
            "b3: and 16 hexadecimal digits, as the admission log and /ops/v1/hot show it"
        }
        DenyKind::Device => "the device_hash of the device's tickets: b3: and 22 characters",
    });
    let text = member.text()?.visible::<SUBJECT_BYTES_MAX>();
    let read = text
        .as_ref()
        .filter(|text| kind != DenyKind::User || text.as_str().starts_with("b3:"))
        .and_then(|text| kind.read(text.as_str()).ok());
    Ok(read.ok_or_else(|| member.fault(form))?)
}
