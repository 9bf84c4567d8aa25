//! The deny-list of this server: what the configuration names, and what operators add while it runs (A6).
//!
//! Opened by `serve`, then owned by the operator's listener, which sends [`DenyBook::list`] to every shard after each
//! change. What operators add is kept in a file of its own, rewritten whole and synced before a change takes effect, so
//! it survives a restart; what the configuration names can be taken out while the server runs, and is back with the next
//! start. Bounded: [`ENTRIES_MAX`]. Users and devices appear in no message; the file is readable by its owner only.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_core::limit::deny::{DenyList, DenySubject};
use weir_core::time::WallMs;
use weir_proto::addr::Cidr;
use weir_proto::ids::UserId;
use weir_proto::limits::ID_MAX;
use weir_proto::ticket::DeviceClaim;

/// Entries of the configuration and of operators together: a change rewrites and syncs under a megabyte, and a shard's
/// lookup stays within a few cache lines. Whole networks count as one.
pub const ENTRIES_MAX: usize = 10_000;
/// Longest file: its entries take 64 bytes each at most, and room for comments.
const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// What kind of subject a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyKind {
    /// A network or an address.
    Network,
    /// A user's id, or `b3:` and the 16 hexadecimal digits that stand for the user in logs.
    User,
    /// A device's hash as its tickets carry it: `b3:` and 22 characters.
    Device,
}

impl DenyKind {
    const ALL: [Self; 3] = [Self::Network, Self::User, Self::Device];

    /// Its word in the file and on the operator's pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::User => "user",
            Self::Device => "device",
        }
    }

    /// Reads a subject.
    /// # Errors
    /// What is allowed; names a network, never a user or device.
    pub fn read(self, text: &str) -> Result<DenySubject, String> {
        match self {
            Self::Network => Cidr::parse(text)
                .map(DenySubject::Network)
                .map_err(|error| format!("{text:?}: {error}")),
            Self::User => read_user(text).ok_or_else(|| {
                "a user is an id of digits, or b3: and 16 hexadecimal digits as logs show it"
                    .to_owned()
            }),
            Self::Device => match DeviceClaim::from_text(text.as_bytes()) {
                DeviceClaim::Hash(hash) => Ok(DenySubject::Device(hash)),
                DeviceClaim::Unbound | DeviceClaim::Foreign => Err(
                    "a device is the device_hash of its tickets: b3: and 22 characters".to_owned(),
                ),
            },
        }
    }
}

fn read_user(text: &str) -> Option<DenySubject> {
    if let Some(hex) = text.strip_prefix("b3:") {
        let bytes = crate::keys::decode_hex(hex.as_bytes())?;
        return bytes.try_into().ok().map(DenySubject::UserHash);
    }
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let id: u64 = text.parse().ok().filter(|_| plain)?;
    (1..=ID_MAX)
        .contains(&id)
        .then_some(DenySubject::User(UserId(id)))
}

/// Kind and text of a subject, as [`DenyKind::read`] takes it.
pub fn shown(subject: &DenySubject) -> (DenyKind, String) {
    match subject {
        DenySubject::Network(network) => (DenyKind::Network, network.to_string()),
        DenySubject::User(user) => (DenyKind::User, user.0.to_string()),
        DenySubject::UserHash(hash) => (
            DenyKind::User,
            format!("b3:{}", crate::keys::encode_hex(hash)),
        ),
        DenySubject::Device(hash) => {
            let text = DeviceClaim::text(hash);
            (
                DenyKind::Device,
                String::from_utf8_lossy(&text).into_owned(),
            )
        }
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenyEntry {
    /// Who.
    pub subject: DenySubject,
    /// Until when; `None`: until it is taken out.
    pub until: Option<WallMs>,
    /// Named by the configuration, not by an operator.
    pub from_config: bool,
}

/// Why a list cannot be opened or changed.
#[derive(Debug)]
pub enum DenyError {
    /// The file cannot be read or written; nothing was changed.
    Io(PathBuf, io::Error),
    /// A line of the file says nothing that is known.
    Line(PathBuf, usize, String),
    /// [`ENTRIES_MAX`] is reached.
    Full,
}

impl fmt::Display for DenyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(
                f,
                "deny-list {}: {error}; its directory must exist and be writable (deny.file)",
                path.display()
            ),
            Self::Line(path, line, what) => write!(
                f,
                "deny-list {} line {line}: {what}; correct the line or take it out",
                path.display()
            ),
            Self::Full => write!(
                f,
                "the deny-list holds {ENTRIES_MAX} entries: take some out, or deny a whole network"
            ),
        }
    }
}

impl std::error::Error for DenyError {}

/// See the module.
#[derive(Debug)]
pub struct DenyBook {
    file: PathBuf,
    entries: Vec<DenyEntry>,
}

impl DenyBook {
    /// The entries of the configuration, and those that operators added in earlier runs.
    /// # Errors
    /// `Io` when the file exists and cannot be read, `Line` when it is damaged, `Full`.
    pub fn open(config: &[DenySubject], file: &Path) -> Result<Self, DenyError> {
        let mut book = Self {
            file: file.to_owned(),
            entries: Vec::new(),
        };
        for &subject in config {
            book.put(DenyEntry {
                subject,
                until: None,
                from_config: true,
            })?;
        }
        let io_error = |error| DenyError::Io(file.to_owned(), error);
        let text = match fs::metadata(file) {
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                return Err(io_error(io::Error::other(
                    "it is longer than any list of ours",
                )));
            }
            Ok(_) => fs::read_to_string(file).map_err(io_error)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(io_error(error)),
        };
        for (line, text) in (1..).zip(text.lines()) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let entry =
                read_line(text).map_err(|what| DenyError::Line(file.to_owned(), line, what))?;
            book.put(entry)?;
        }
        Ok(book)
    }

    /// Who is denied at `now`.
    pub fn list(&self, now: WallMs) -> DenyList {
        let live = |entry: &&DenyEntry| entry.until.is_none_or(|until| until > now);
        DenyList::build(self.entries.iter().filter(live).map(|entry| entry.subject))
    }

    /// Every entry, in the order in which they came.
    pub fn entries(&self) -> &[DenyEntry] {
        &self.entries
    }

    /// Adds `subject`, or gives it another end. False: it was so already.
    /// # Errors
    /// `Full`, or `Io`; nothing was changed then.
    pub fn add(
        &mut self,
        now: WallMs,
        subject: DenySubject,
        until: Option<WallMs>,
    ) -> Result<bool, DenyError> {
        let entry = DenyEntry {
            subject,
            until,
            from_config: false,
        };
        self.change(now, |book| book.put(entry))
    }

    /// Takes `subject` out. False: it was not listed by itself (a larger network may still hold it).
    /// # Errors
    /// `Io`; nothing was changed then.
    pub fn remove(&mut self, now: WallMs, subject: DenySubject) -> Result<bool, DenyError> {
        self.change(now, |book| {
            let before = book.entries.len();
            book.entries.retain(|entry| entry.subject != subject);
            Ok(book.entries.len() < before)
        })
    }

    /// Forgets what has ended. True when something had. Its lines leave the file with the next change.
    pub fn expire(&mut self, now: WallMs) -> bool {
        let before = self.entries.len();
        self.entries
            .retain(|entry| entry.until.is_none_or(|until| until > now));
        self.entries.len() < before
    }

    /// When the next entry ends.
    pub fn next_end(&self) -> Option<WallMs> {
        self.entries.iter().filter_map(|entry| entry.until).min()
    }

    fn change(
        &mut self,
        now: WallMs,
        act: impl FnOnce(&mut Self) -> Result<bool, DenyError>,
    ) -> Result<bool, DenyError> {
        let before = self.entries.clone();
        self.expire(now);
        let done = act(self).and_then(|changed| {
            if changed {
                self.save()?;
            }
            Ok(changed)
        });
        if done.is_err() {
            self.entries = before;
        }
        done
    }

    fn put(&mut self, entry: DenyEntry) -> Result<bool, DenyError> {
        let known = self
            .entries
            .iter_mut()
            .find(|known| known.subject == entry.subject);
        if let Some(known) = known {
            // What the configuration denies for ever an operator does not shorten by adding it again.
            if known.from_config || known.until == entry.until {
                return Ok(false);
            }
            *known = entry;
            return Ok(true);
        }
        if self.entries.len() >= ENTRIES_MAX {
            return Err(DenyError::Full);
        }
        self.entries.push(entry);
        Ok(true)
    }

    /// Writes the file whole beside the old one, syncs it, and puts it in the old one's place.
    fn save(&self) -> Result<(), DenyError> {
        let mut text = String::from(
            "# Written by weir: who was denied through the operator's listener. KIND VALUE [END in Unix milliseconds]\n",
        );
        for entry in self.entries.iter().filter(|entry| !entry.from_config) {
            let (kind, value) = shown(&entry.subject);
            text.push_str(kind.as_str());
            text.push(' ');
            text.push_str(&value);
            if let Some(until) = entry.until {
                text.push_str(&format!(" {}", until.0));
            }
            text.push('\n');
        }
        let mut fresh = self.file.clone().into_os_string();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        let write = || {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, &self.file)?;
            match self.file.parent().filter(|dir| !dir.as_os_str().is_empty()) {
                Some(dir) => File::open(dir)?.sync_all(), // the new name is durable only with its directory
                None => Ok(()),
            }
        };
        write().map_err(|error| DenyError::Io(self.file.clone(), error))
    }
}

fn read_line(text: &str) -> Result<DenyEntry, String> {
    let mut words = text.split(' ');
    let kind = words.next().unwrap_or_default();
    let kind = DenyKind::ALL
        .into_iter()
        .find(|known| known.as_str() == kind)
        .ok_or("must begin with network, user or device")?;
    let subject = kind.read(words.next().unwrap_or_default())?;
    let until = words
        .next()
        .map(|text| text.parse().map(WallMs))
        .transpose()
        .map_err(|_| "the end must be Unix milliseconds")?;
    if words.next().is_some() {
        return Err("has more than a kind, a value and an end".to_owned());
    }
    Ok(DenyEntry {
        subject,
        until,
        from_config: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallMs = WallMs(1_800_000_000_000);

    fn network(text: &str) -> DenySubject {
        DenyKind::Network.read(text).unwrap()
    }

    fn fresh_file(name: &str) -> PathBuf {
        let name = format!("weir-deny-{}-{name}.txt", std::process::id());
        let file = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&file);
        file
    }

    #[test]
    fn every_kind_reads_what_it_shows_and_messages_hold_no_id() {
        let device = shown(&DenySubject::Device([7; 16])).1;
        for (kind, text) in [
            (DenyKind::Network, "203.0.113.0/24"),
            (DenyKind::Network, "2001:db8::/32"),
            (DenyKind::User, "42"),
            (DenyKind::User, "b3:00112233445566ff"),
            (DenyKind::Device, device.as_str()),
        ] {
            let subject = kind.read(text).unwrap();
            assert_eq!(shown(&subject), (kind, text.to_owned()));
        }
        for text in [
            "0",
            "042",
            "-7",
            "b3:0011",
            "9223372036854775808",
            "alice",
            "",
        ] {
            let message = DenyKind::User.read(text).unwrap_err();
            assert!(text.is_empty() || !message.contains(text), "{message}");
        }
        for text in ["", "none", "b3:short", "raw-device-id"] {
            assert!(DenyKind::Device.read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_operators_add_survives_a_restart_and_what_ends_is_forgotten() {
        let file = fresh_file("restart");
        let config = [network("10.0.0.0/8"), network("10.0.0.0/8")];
        let mut book = DenyBook::open(&config, &file).unwrap();
        assert_eq!(book.entries().len(), 1);
        let user = DenyKind::User.read("42").unwrap();
        let until = Some(NOW.plus_ms(1_000));
        assert!(book.add(NOW, user, None).unwrap());
        assert!(!book.add(NOW, user, None).unwrap(), "twice is once");
        assert!(book.add(NOW, network("192.0.2.0/24"), until).unwrap());
        assert!(
            !book.add(NOW, config[0], until).unwrap(),
            "the configuration's word stands"
        );

        let mut again = DenyBook::open(&config, &file).unwrap();
        assert_eq!(again.entries(), book.entries());
        let list = again.list(NOW);
        assert!(list.denies_address("192.0.2.9".parse().unwrap()));
        assert!(list.denies_user(UserId(42), &[0; 32]));
        assert_eq!(again.next_end(), until);
        assert!(!again.expire(NOW) && again.expire(NOW.plus_ms(1_000)));
        assert!(
            !again
                .list(NOW.plus_ms(1_000))
                .denies_address("192.0.2.9".parse().unwrap())
        );
        // The configuration's entry goes, and is back with the next start.
        assert!(again.remove(NOW, config[0]).unwrap() && again.remove(NOW, user).unwrap());
        assert!(!again.remove(NOW, user).unwrap());
        assert!(again.list(NOW).is_empty());
        assert_eq!(DenyBook::open(&config, &file).unwrap().entries().len(), 1);
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_full_book_and_a_file_that_cannot_be_written_change_nothing() {
        let file = fresh_file("full");
        let many: Vec<_> = (1..=ENTRIES_MAX as u64)
            .map(|user| DenySubject::User(UserId(user)))
            .collect();
        let mut book = DenyBook::open(&many, &file).unwrap();
        let one_more = DenySubject::User(UserId(u64::MAX / 2));
        assert!(matches!(
            book.add(NOW, one_more, None),
            Err(DenyError::Full)
        ));
        assert_eq!(book.entries().len(), ENTRIES_MAX);
        let mut nowhere = DenyBook::open(&[], Path::new("/proc/weir/deny.txt")).unwrap();
        assert!(matches!(
            nowhere.add(NOW, one_more, None),
            Err(DenyError::Io(..))
        ));
        assert!(nowhere.entries().is_empty());
    }

    #[test]
    fn a_damaged_line_is_named() {
        let file = fresh_file("damaged");
        fs::write(&file, "# fine\n\nnetwork 10.0.0.0/8\nuser 42 soon\n").unwrap();
        let error = DenyBook::open(&[], &file).unwrap_err().to_string();
        assert!(
            error.contains("line 4") && !error.contains("42 "),
            "{error}"
        );
        fs::remove_file(file).unwrap();
    }
}
