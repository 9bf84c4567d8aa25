//! Reading of /proc and /sys below a directory that tests, or a copy of another machine's files, can stand in for.
//!
//! Everything may be missing: a file that cannot be read is `None`, never an error. Nothing is written.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

/// Most bytes read of one file: `/proc/interrupts` of a machine with hundreds of cores has some of them.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most cores that a list such as `0-3` may name: more than Linux supports (CONFIG_NR_CPUS_RANGE_END of x86-64 is 8192).
const CPUS_MAX: usize = 8192;

/// Where /proc and /sys are.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// This machine's are at `/`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// The text of `path` (without a leading `/`), its ends trimmed; its first MiB when it is longer.
    pub fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.0.join(path)).ok()?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The whole number in `path`.
    pub fn number(&self, path: &str) -> Option<i128> {
        self.text(path)?.parse().ok()
    }

    /// The whole numbers in `path`, between white space.
    pub fn numbers(&self, path: &str) -> Option<Vec<i128>> {
        let text = self.text(path)?;
        text.split_whitespace()
            .map(|word| word.parse().ok())
            .collect()
    }

    /// The cores that a list such as `0-3,8` in `path` names; an empty file names none.
    pub fn cpus(&self, path: &str) -> Option<Vec<usize>> {
        cpu_list(&self.text(path)?)
    }

    /// The cores that a list already read names.
    pub fn cpus_of(&self, list: Option<&str>) -> Option<Vec<usize>> {
        cpu_list(list?)
    }

    /// The names in the directory `path`, sorted.
    pub fn names(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.0.join(path)).ok()?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        Some(names)
    }

    /// Whether there is something at `path`.
    pub fn exists(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }

    /// The last part of the path that the symbolic link `path` names.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.0.join(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// What follows `key` in the first line of `path` that starts with it, trimmed.
    pub fn after(&self, path: &str, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(rest.trim().to_owned())
    }
}

/// `0-3,8` as numbers; `None` when it is no such list or names more cores than there can be.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPUS_MAX || cpus.len() > CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read_and_what_is_none_is_refused() {
        assert_eq!(cpu_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list(""), Some(vec![]));
        for wrong in ["a", "1-", "0-4294967295", "-1", "0x3"] {
            assert_eq!(cpu_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_missing_is_none() {
        let root = Root::new("/nowhere/at/all");
        assert_eq!(root.text("proc/cpuinfo"), None);
        assert_eq!(root.names("proc"), None);
        assert_eq!(root.link_name("proc/self"), None);
        assert!(!root.exists("proc"));
    }
}
