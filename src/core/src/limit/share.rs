//! Who gets how much of something scarce: weighted max-min fairness, one claimant's part at a time.
//!
//! Called by the lease book. Nobody gets more than it wants while another goes short, and what a small claimant leaves
//! goes to the large ones by weight (B45). When all are content, what is idle is handed out by weight, too. Rounded down,
//! so that the parts never sum to more than there is. Allocates nothing: it walks the claimants a few times.

/// One claimant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Tokens it wants.
    pub want: u32,
    /// Its share of demand against the others, 1 or more.
    pub weight: u32,
}

/// The part of `mine` when `capacity` is shared among `claims`, of which it is one.
pub fn part<'a>(
    capacity: u64,
    mine: Claim,
    claims: impl Iterator<Item = &'a Claim> + Clone,
) -> u64 {
    let weights = |claim: &Claim| u64::from(claim.weight);
    let all: u64 = claims.clone().map(weights).sum();
    // `left` tokens for claimants of `weight` together: a level that only rises, so who is content stays content.
    let (mut left, mut weight) = (capacity, all);
    loop {
        let (mut left_now, mut weight_now) = (capacity, 0);
        for claim in claims.clone() {
            if content(claim, left, weight) {
                left_now = left_now.saturating_sub(u64::from(claim.want));
            } else {
                weight_now += weights(claim);
            }
        }
        if weight_now == 0 {
            return u64::from(mine.want) + scaled(left_now, mine.weight, all);
        }
        if weight_now == weight {
            break;
        }
        (left, weight) = (left_now, weight_now);
    }
    if content(&mine, left, weight) {
        u64::from(mine.want)
    } else {
        scaled(left, mine.weight, weight)
    }
}

/// True when the level is as high as the claimant's wish.
fn content(claim: &Claim, left: u64, weight: u64) -> bool {
    u128::from(claim.want) * u128::from(weight) <= u128::from(claim.weight) * u128::from(left)
}

fn scaled(tokens: u64, weight: u32, of: u64) -> u64 {
    let part = u128::from(tokens) * u128::from(weight) / u128::from(of.max(1));
    u64::try_from(part).expect("a part of a u64")
}
