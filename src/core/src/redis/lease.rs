//! Admission budgets shared by instances: a shard's draw as a frame for Redis, the reply as its grant (D3, J6).
//!
//! Called by links of the limiter's Redis, which may be another one than the ledger's (D5). The bucket in Redis deducts
//! first, so what is lost on the way admits fewer; one that is missing is not open. A draw may be sent again with its
//! number: it gets the same tokens. Keys and arguments are those of `lua/lease_*.lua`.

use super::reply::ShapeFault;
use super::script::Script;
use crate::limit::gcra::Rate;
use crate::limit::lease::{LeaseDraw, LeaseGrant, LeaseReturn, ShardId};
use crate::limits::{
    BUCKET_BURST_MAX, BUCKET_BURST_MS, BUCKET_RATE_MILLI_MAX, BUCKET_TTL_MS, BUCKET_WEIGHTS_MAX,
    LEASE_TOKENS_MAX,
};
use crate::time::NS_PER_S;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_proto::ids::SkuKey;
use weir_proto::resp::{CommandWriter, Items, Value};

/// R_admit of a SKU as the control plane hands it out; the same on every instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePolicy {
    /// Older ones are refused.
    pub version: u64,
    /// Tokens per time, over all instances; whole thousandths of a token per second count. At most [`BUCKET_RATE_MILLI_MAX`].
    pub rate: Rate,
    /// Sum of the weights of all shards that draw, 1..=[`BUCKET_WEIGHTS_MAX`].
    pub weights: u32,
}

/// What setting a policy came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySet {
    /// It holds now.
    Applied,
    /// It held before.
    Kept,
    /// A newer one holds: this instance must load it.
    Older,
}

/// What setting a policy came to, and what holds since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyTold {
    /// Whether it is ours.
    pub set: PolicySet,
    /// What holds; its rate is in whole thousandths of a token per second.
    pub holds: LeasePolicy,
}

/// One step at a bucket. Each may be taken again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetStep {
    /// Makes it, changes its rate, or keeps it alive.
    Policy(LeasePolicy),
    /// Takes a batch of tokens.
    Draw(LeaseDraw),
    /// Gives tokens back.
    Return(LeaseReturn),
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetTold {
    /// Of a policy.
    Policy(PolicyTold),
    /// Of a draw.
    Draw(Drawn),
    /// Of a return: so many tokens were taken.
    Return(u32),
}

impl BudgetStep {
    /// Its script.
    pub const fn script(&self) -> Script {
        match self {
            Self::Policy(_) => Script::LeasePolicy,
            Self::Draw(_) => Script::LeaseDraw,
            Self::Return(_) => Script::LeaseReturn,
        }
    }

    /// Reads its reply.
    /// # Errors
    /// What of the reply is not one to this step.
    pub fn told(&self, reply: &Value<'_>) -> Result<BudgetTold, ShapeFault> {
        match self {
            Self::Policy(_) => policy_set(reply).map(BudgetTold::Policy),
            Self::Draw(draw) => drawn(draw, reply).map(BudgetTold::Draw),
            Self::Return(_) => credited(reply).map(BudgetTold::Return),
        }
    }
}

/// What a draw came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// 0..=wanted tokens.
    Granted(LeaseGrant),
    /// A newer draw of this shard, or a newer run of it, was answered before: nothing.
    Stale,
    /// There is no bucket: somebody has to set the policy first. Nothing is admitted.
    NotOpen,
    /// More instances than a bucket remembers.
    Full,
}

/// The frames of one SKU's budget for one instance.
#[derive(Debug)]
pub struct LeaseSteps {
    sku: SkuKey,
    instance: String,
    bucket: String,
    lines: String,
    policy_sha1: [u8; 40],
    draw_sha1: [u8; 40],
    return_sha1: [u8; 40],
}

impl LeaseSteps {
    /// `instance`: the same over restarts and no other's, 1..=64 visible ASCII bytes.
    pub fn new(sku: SkuKey, instance: &str) -> Self {
        let tag = format!("{{a{}:s{}}}", sku.activity.0, sku.sku.0);
        Self {
            sku,
            instance: String::from(instance),
            bucket: format!("{tag}:lease"),
            lines: format!("{tag}:lines"),
            policy_sha1: Script::LeasePolicy.sha1(),
            draw_sha1: Script::LeaseDraw.sha1(),
            return_sha1: Script::LeaseReturn.sha1(),
        }
    }

    /// Whose budget it is.
    pub const fn sku(&self) -> SkuKey {
        self.sku
    }

    /// Appends the frame of a step. [`BudgetStep::told`] reads its reply.
    pub fn push(&self, step: &BudgetStep, out: &mut Vec<u8>) {
        match step {
            BudgetStep::Policy(policy) => self.push_policy(policy, out),
            BudgetStep::Draw(draw) => self.push_draw(draw, out),
            BudgetStep::Return(back) => self.push_return(back, out),
        }
    }

    /// Appends the frame that makes the bucket, empty, or changes its rate. Sent again it keeps the bucket alive.
    /// [`policy_set`] reads its reply.
    pub fn push_policy(&self, policy: &LeasePolicy, out: &mut Vec<u8>) {
        let rate_milli = rate_milli(policy.rate);
        let burst = rate_milli * BUCKET_BURST_MS / 1_000_000; // thousandths times ms
        let burst = burst.clamp(1, BUCKET_BURST_MAX);
        let mut writer = CommandWriter::begin(out, 3 + 1 + 5);
        writer.part(b"EVALSHA");
        writer.part(&self.policy_sha1);
        writer.part(b"1");
        writer.part(self.bucket.as_bytes());
        writer.part_u64(policy.version);
        writer.part_u64(rate_milli);
        writer.part_u64(burst);
        writer.part_u64(u64::from(policy.weights.clamp(1, BUCKET_WEIGHTS_MAX)));
        writer.part_u64(BUCKET_TTL_MS);
        writer.finish();
    }

    /// Appends the frame of a shard's draw. [`drawn`] reads its reply.
    pub fn push_draw(&self, draw: &LeaseDraw, out: &mut Vec<u8>) {
        debug_assert_eq!(draw.sku, self.sku, "a draw goes to its own SKU");
        let mut writer = self.begin(&self.draw_sha1, draw.shard, 6, out);
        writer.part_u64(draw.shard_boot);
        writer.part_u64(draw.seq);
        writer.part_u64(u64::from(draw.want.min(LEASE_TOKENS_MAX)));
        writer.part_u64(u64::from(draw.weight.clamp(1, 1000)));
        writer.part_u64(BUCKET_TTL_MS);
        writer.finish();
    }

    /// Appends the frame that gives tokens back. [`credited`] reads its reply.
    pub fn push_return(&self, back: &LeaseReturn, out: &mut Vec<u8>) {
        debug_assert_eq!(back.sku, self.sku, "tokens go back to their own SKU");
        let mut writer = self.begin(&self.return_sha1, back.shard, 5, out);
        writer.part_u64(back.shard_boot);
        writer.part_u64(back.seq);
        writer.part_u64(u64::from(back.tokens.min(LEASE_TOKENS_MAX)));
        writer.part_u64(back.owner_boot);
        writer.finish();
    }

    fn begin<'a>(
        &self,
        sha1: &[u8],
        shard: ShardId,
        arguments_count: usize,
        out: &'a mut Vec<u8>,
    ) -> CommandWriter<'a> {
        let mut writer = CommandWriter::begin(out, 3 + 2 + arguments_count);
        writer.part(b"EVALSHA");
        writer.part(sha1);
        writer.part(b"2");
        writer.part(self.bucket.as_bytes());
        writer.part(self.lines.as_bytes());
        writer.part(format!("{}/{}", self.instance, shard.0).as_bytes());
        writer
    }
}

/// Thousandths of a token per second, rounded down; at most what the bucket counts exactly.
pub fn rate_milli(rate: Rate) -> u64 {
    rate.milli_per_s().min(BUCKET_RATE_MILLI_MAX)
}

/// Reads what setting a policy came to.
/// # Errors
/// What of the reply is not that.
pub fn policy_set(reply: &Value<'_>) -> Result<PolicyTold, ShapeFault> {
    let ([code, _boot, _now, rate, weights], version) = with_last::<5>(reply)?;
    let set = match code {
        0 => PolicySet::Older,
        1 => PolicySet::Applied,
        2 => PolicySet::Kept,
        other => return Err(ShapeFault::Code(other)),
    };
    let rate = u64::try_from(rate).ok();
    let rate = rate.filter(|&milli| milli <= BUCKET_RATE_MILLI_MAX);
    let weights = u32::try_from(weights).ok();
    let weights = weights.filter(|weights| (1..=BUCKET_WEIGHTS_MAX).contains(weights));
    let version = version.text().and_then(|text| {
        let text = core::str::from_utf8(text).ok()?;
        text.parse().ok()
    });
    Ok(PolicyTold {
        set,
        holds: LeasePolicy {
            version: version.ok_or(ShapeFault::Field)?,
            rate: Rate {
                tokens: rate.ok_or(ShapeFault::Field)?,
                per_ns: 1000 * NS_PER_S,
            },
            weights: weights.ok_or(ShapeFault::Field)?,
        },
    })
}

/// Reads the reply to `draw`.
/// # Errors
/// What of the reply is not one to this draw.
pub fn drawn(draw: &LeaseDraw, reply: &Value<'_>) -> Result<Drawn, ShapeFault> {
    let [code, tokens, seq, boot, ttl_ms, retry_ms, _] = integers::<7>(reply)?;
    if u64::try_from(seq) != Ok(draw.seq) {
        return Err(ShapeFault::Field); // the answer to another draw
    }
    let natural = |value: i64| u64::try_from(value).map_err(|_| ShapeFault::Field);
    match code {
        0 => Ok(Drawn::Stale),
        -1 => Ok(Drawn::NotOpen),
        -2 => Ok(Drawn::Full),
        1 | 2 => {
            let tokens = u32::try_from(tokens).ok();
            let tokens = tokens.filter(|&tokens| tokens <= LEASE_TOKENS_MAX);
            Ok(Drawn::Granted(LeaseGrant {
                sku: draw.sku,
                owner_boot: natural(boot)?,
                shard_boot: draw.shard_boot,
                seq: draw.seq,
                tokens: tokens.ok_or(ShapeFault::Field)?,
                ttl_ms: natural(ttl_ms)?,
                retry_ms: natural(retry_ms)?,
            }))
        }
        other => Err(ShapeFault::Code(other)),
    }
}

/// Reads how many tokens of a return were taken; 0 when they were void.
/// # Errors
/// What of the reply is not that.
pub fn credited(reply: &Value<'_>) -> Result<u32, ShapeFault> {
    match integers::<3>(reply)? {
        [1, tokens, _] => u32::try_from(tokens).map_err(|_| ShapeFault::Field),
        [0 | -1, 0, _] => Ok(0),
        [other, ..] => Err(ShapeFault::Code(other)),
    }
}

fn integers<const N: usize>(reply: &Value<'_>) -> Result<[i64; N], ShapeFault> {
    let mut items = items(reply, N)?;
    leading(&mut items)
}

/// `N` integers and one thing of any kind.
fn with_last<'a, const N: usize>(reply: &Value<'a>) -> Result<([i64; N], Value<'a>), ShapeFault> {
    let mut items = items(reply, N + 1)?;
    let first = leading(&mut items)?;
    Ok((first, items.next().ok_or(ShapeFault::Length)?))
}

fn items<'a>(reply: &Value<'a>, count: usize) -> Result<Items<'a>, ShapeFault> {
    match reply {
        Value::Array(items) if items.len() == count => Ok(items.clone()),
        Value::Error(_) => Err(ShapeFault::Error),
        _ => Err(ShapeFault::Length),
    }
}

fn leading<const N: usize>(items: &mut Items<'_>) -> Result<[i64; N], ShapeFault> {
    let mut found = [0; N];
    for slot in &mut found {
        let Some(Value::Integer(integer)) = items.next() else {
            return Err(ShapeFault::Field);
        };
        *slot = integer;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_proto::ids::{ActivityId, SkuId};
    use weir_proto::resp::read;

    const SKU: SkuKey = SkuKey {
        activity: ActivityId(1),
        sku: SkuId(2),
    };
    const DRAW: LeaseDraw = LeaseDraw {
        shard: ShardId(3),
        sku: SKU,
        shard_boot: u64::MAX,
        seq: 9,
        want: u32::MAX,
        weight: 0,
    };

    fn told(bytes: &[u8]) -> Result<Drawn, ShapeFault> {
        drawn(&DRAW, &read(bytes))
    }

    #[test]
    fn a_rate_is_rounded_down_to_thousandths_and_held_to_what_is_counted_exactly() {
        let per = |tokens, per_ns| rate_milli(Rate { tokens, per_ns });
        assert_eq!(per(1, NS_PER_S), 1000);
        assert_eq!(per(30, 60 * NS_PER_S), 500);
        assert_eq!(per(1, 3 * NS_PER_S), 333);
        assert_eq!(per(0, 1), 0);
        assert_eq!(per(u64::MAX, 1), BUCKET_RATE_MILLI_MAX);
    }

    #[test]
    fn a_draw_gets_its_own_answer_or_none() {
        let grant = LeaseGrant {
            sku: SKU,
            owner_boot: 77,
            shard_boot: u64::MAX,
            seq: 9,
            tokens: 5,
            ttl_ms: 2000,
            retry_ms: 10,
        };
        for code in [1, 2] {
            let reply = format!("*7\r\n:{code}\r\n:5\r\n:9\r\n:77\r\n:2000\r\n:10\r\n:1\r\n");
            assert_eq!(told(reply.as_bytes()), Ok(Drawn::Granted(grant)));
        }
        for (code, wanted) in [(0, Drawn::Stale), (-1, Drawn::NotOpen), (-2, Drawn::Full)] {
            let reply = format!("*7\r\n:{code}\r\n:0\r\n:9\r\n:0\r\n:0\r\n:0\r\n:1\r\n");
            assert_eq!(told(reply.as_bytes()), Ok(wanted));
        }
        for bad in [
            "*7\r\n:1\r\n:5\r\n:8\r\n:77\r\n:2000\r\n:10\r\n:1\r\n", // of another draw
            "*7\r\n:1\r\n:65537\r\n:9\r\n:77\r\n:2000\r\n:10\r\n:1\r\n",
            "*7\r\n:1\r\n:-1\r\n:9\r\n:77\r\n:2000\r\n:10\r\n:1\r\n",
            "*7\r\n:3\r\n:5\r\n:9\r\n:77\r\n:2000\r\n:10\r\n:1\r\n",
            "*3\r\n:1\r\n:5\r\n:9\r\n",
            "*7\r\n:1\r\n$1\r\n5\r\n:9\r\n:77\r\n:2000\r\n:10\r\n:1\r\n",
            "-NOSCRIPT No matching script\r\n",
        ] {
            assert!(told(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert_eq!(credited(&read(b"*3\r\n:1\r\n:4\r\n:9\r\n")), Ok(4));
        assert_eq!(credited(&read(b"*3\r\n:0\r\n:0\r\n:9\r\n")), Ok(0));
        assert!(credited(&read(b"*3\r\n:0\r\n:4\r\n:9\r\n")).is_err());
    }

    #[test]
    fn a_policy_that_is_refused_is_told_which_one_holds() {
        let told = policy_set(&read(
            b"*6\r\n:0\r\n:1\r\n:9\r\n:2500\r\n:3\r\n$20\r\n18446744073709551615\r\n",
        ));
        let told = told.expect("well formed");
        assert_eq!(told.set, PolicySet::Older);
        let LeasePolicy {
            version,
            rate,
            weights,
        } = told.holds;
        assert_eq!((version, rate_milli(rate), weights), (u64::MAX, 2500, 3));
        for bad in [
            "*6\r\n:3\r\n:1\r\n:9\r\n:1\r\n:1\r\n$1\r\n1\r\n",
            "*6\r\n:1\r\n:1\r\n:9\r\n:-1\r\n:1\r\n$1\r\n1\r\n",
            "*6\r\n:1\r\n:1\r\n:9\r\n:1\r\n:0\r\n$1\r\n1\r\n",
            "*6\r\n:1\r\n:1\r\n:9\r\n:1\r\n:1\r\n$1\r\nx\r\n",
            "*3\r\n:1\r\n:1\r\n:9\r\n",
        ] {
            assert!(policy_set(&read(bad.as_bytes())).is_err(), "{bad:?}");
        }
    }
}
