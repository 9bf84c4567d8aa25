//! The known name nearest to a mistyped one.
//!
//! Used for unknown configuration keys, sections and `weir config explain`.

/// Fewest insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`
/// (optimal string alignment). Both are short: names of keys.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut cost = vec![0; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            cost[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = cost[(i - 1) * width + j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let removed = cost[(i - 1) * width + j] + 1;
                let added = cost[i * width + j - 1] + 1;
                let best = replaced.min(removed).min(added);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped {
                    best.min(cost[(i - 2) * width + j - 2] + 1)
                } else {
                    best
                }
            };
        }
    }
    cost[a.len() * width + b.len()]
}

/// The candidate with the smallest distance to `name`, the first of equals; `None` without candidates.
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // An operator's typo is short; a text of megabytes would cost its square.
    let name: String = name.chars().take(64).collect();
    candidates
        .into_iter()
        .min_by_key(|candidate| distance(&name, candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_cost_one() {
        for typo in ["lisen", "listten", "lisben", "litsen"] {
            assert_eq!(distance(typo, "listen"), 1, "{typo}");
        }
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }

    #[test]
    fn the_nearest_wins() {
        let keys = ["listen", "shards", "conns_max"];
        assert_eq!(nearest("con_max", keys), Some("conns_max"));
        assert_eq!(nearest("shard", keys), Some("shards"));
        assert_eq!(nearest("x", []), None);
    }
}
