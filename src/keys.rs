//! Secrets in files: read with suspicion, made once, never shown.
//!
//! Called by [`crate::config`] and by `weir keygen` and `weir init`. A key file holds 32..=64 bytes as hexadecimal or base64
//! text and is readable by its owner only. Invariants: no secret in `Debug`, in an error or on a command line; an
//! existing file is never overwritten; content that cannot be read is never echoed (field bug R67).

use crate::config::ceilings::KEY_FILE_BYTES_MAX;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_proto::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};
use weir_proto::ticket::base64url;

/// The longest file of a private key: RSA of 16,384 bits has 12 KiB as text.
const PEM_BYTES_MAX: u64 = 16 << 10;
/// Bytes of a key that we make.
pub const NEW_KEY_BYTES: usize = 32;
/// Mode of key files that we make: read by the owner, written by nobody.
pub const KEY_FILE_MODE: u32 = 0o400;
/// Shortest bearer token of the operator's listener: 128 bits in hexadecimal.
const TOKEN_BYTES_MIN: usize = 32;
/// Longest bearer token: it must fit in a request's head many times.
const TOKEN_BYTES_MAX: usize = 256;

/// Bytes that nothing shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The bytes, for making a key of them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// The bearer token of the operator's listener, kept as a hash.
#[derive(Clone)]
pub struct OpsToken(blake3::Hash);

impl OpsToken {
    /// The token of that text.
    pub fn new(text: &[u8]) -> Self {
        Self(blake3::hash(text))
    }

    /// True when `presented` is the token; the time does not depend on where they differ.
    pub fn matches(&self, presented: &[u8]) -> bool {
        self.0 == blake3::hash(presented) // blake3's comparison takes constant time
    }
}

impl fmt::Debug for OpsToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpsToken(hidden)")
    }
}

/// Why a key file is of no use. `Display` names the file and the remedy, never the content.
#[derive(Debug)]
pub struct KeyFileError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Missing,
    Exists,
    NotAFile,
    Mode(u32),
    TooLong(u64),
    NoPrivateKey,
    NotText,
    NotASecret,
    NotRandom,
    NotAToken,
    NotAPassword,
    Io(io::ErrorKind),
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Missing => write!(
                f,
                "key file {path} does not exist; make one with `weir keygen {path}`"
            ),
            Why::Exists => write!(
                f,
                "{path} exists already and is left as it is; choose another name"
            ),
            Why::NotAFile => write!(f, "key file {path} is not an ordinary file"),
            Why::Mode(mode) => write!(
                f,
                "key file {path} has mode {mode:04o}: others than its owner may read or change it; run `chmod 400 {path}`, and make a new key if strangers use this machine"
            ),
            Why::TooLong(bytes_max) => write!(
                f,
                "key file {path} has more than {bytes_max} bytes; it is no key of ours"
            ),
            Why::NotText => write!(
                f,
                "key file {path} is not text (its content is not shown); it must hold hexadecimal or base64 digits"
            ),
            Why::NotASecret => write!(
                f,
                "key file {path} must hold {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes as hexadecimal or base64 text (its content is not shown); make one with `weir keygen`"
            ),
            Why::NotRandom => write!(
                f,
                "key file {path} holds one byte over and over: that is no secret; make one with `weir keygen`"
            ),
            Why::NotAToken => write!(
                f,
                "token file {path} must hold {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} visible ASCII characters (its content is not shown); `weir keygen` makes one"
            ),
            Why::NotAPassword => write!(
                f,
                "password file {path} must hold one line of visible ASCII characters (its content is not shown)"
            ),
            Why::NoPrivateKey => write!(
                f,
                "key file {path} does not exist; name the private key (PEM) of the certificate"
            ),
            Why::Io(kind) => write!(f, "{path}: {kind}"),
        }
    }
}

impl std::error::Error for KeyFileError {}

/// Reads the secret of a key file.
/// # Errors
/// Missing, not an ordinary file, open to others, wrong content; see [`KeyFileError`].
pub fn read_secret(path: &Path) -> Result<Secret, KeyFileError> {
    let fail = |why| KeyFileError {
        path: path.to_owned(),
        why,
    };
    let text = read_guarded(path, KEY_FILE_BYTES_MAX)?;
    let secret = decode_secret(&text).ok_or_else(|| fail(Why::NotASecret))?;
    if secret.iter().all(|&byte| byte == secret[0]) {
        return Err(fail(Why::NotRandom));
    }
    Ok(Secret(secret))
}

/// Reads a password file: one line of visible ASCII.
/// # Errors
/// As [`read_secret`].
pub fn read_password(path: &Path) -> Result<String, KeyFileError> {
    let text = read_guarded(path, KEY_FILE_BYTES_MAX)?;
    let is_password = !text.is_empty() && text.iter().all(u8::is_ascii_graphic);
    let text = String::from_utf8(text).ok().filter(|_| is_password);
    text.ok_or_else(|| KeyFileError {
        path: path.to_owned(),
        why: Why::NotAPassword,
    })
}

/// Reads the text of a file with a private key in PEM form; what is in it, its user sees.
/// # Errors
/// As [`read_secret`].
pub fn read_private_key(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    read_guarded(path, PEM_BYTES_MAX).map_err(|error| match error.why {
        Why::Missing => KeyFileError {
            why: Why::NoPrivateKey,
            ..error
        },
        _ => error,
    })
}

/// Reads a token file: one line of text.
/// # Errors
/// As [`read_secret`].
pub fn read_token(path: &Path) -> Result<OpsToken, KeyFileError> {
    read_token_text(path).map(|text| OpsToken::new(text.as_bytes()))
}

/// As [`read_token`], for whoever presents it: the text itself.
/// # Errors
/// As [`read_secret`].
pub fn read_token_text(path: &Path) -> Result<String, KeyFileError> {
    let text = read_guarded(path, KEY_FILE_BYTES_MAX)?;
    let is_token = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&text.len())
        && text.iter().all(u8::is_ascii_graphic);
    if !is_token {
        return Err(KeyFileError {
            path: path.to_owned(),
            why: Why::NotAToken,
        });
    }
    Ok(text.iter().map(|&byte| char::from(byte)).collect()) // visible ASCII
}

/// The file's text without white space at its ends, after the checks of type, mode and length.
fn read_guarded(path: &Path, bytes_max: u64) -> Result<Vec<u8>, KeyFileError> {
    let fail = |why| KeyFileError {
        path: path.to_owned(),
        why,
    };
    let of_io = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => fail(Why::Missing),
        kind => fail(Why::Io(kind)),
    };
    // Looked at before it is opened: opening a pipe would wait for its writer.
    if !path.metadata().map_err(of_io)?.is_file() {
        return Err(fail(Why::NotAFile));
    }
    let file = std::fs::File::open(path).map_err(of_io)?;
    // And again on what was opened, so that a file swapped in between gains nothing.
    let metadata = file.metadata().map_err(of_io)?;
    if !metadata.is_file() {
        return Err(fail(Why::NotAFile));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(fail(Why::Mode(mode)));
    }
    let mut bytes = Vec::new();
    let mut limited = file.take(bytes_max + 1);
    limited.read_to_end(&mut bytes).map_err(of_io)?;
    if bytes.len() as u64 > bytes_max {
        return Err(fail(Why::TooLong(bytes_max)));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| fail(Why::NotText))?;
    Ok(text.trim().as_bytes().to_vec())
}

/// Hexadecimal first: 64 digits would also read as 48 bytes of base64, which nobody means.
fn decode_secret(text: &[u8]) -> Option<Vec<u8>> {
    let bytes = decode_hex(text).or_else(|| decode_base64(text))?;
    (SECRET_BYTES_MIN..=SECRET_BYTES_MAX)
        .contains(&bytes.len())
        .then_some(bytes)
}

/// Reads hexadecimal digits of either case; `None` for anything else.
pub fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok();
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks_exact(2).map(pair).collect()
}

/// Writes lower-case hexadecimal digits.
pub fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Both alphabets of RFC 4648, with or without padding.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    if padding > 0 && (padding > 2 || !text.len().is_multiple_of(4)) {
        return None;
    }
    let to_url = |byte: &u8| match byte {
        b'+' => b'-',
        b'/' => b'_',
        other => *other,
    };
    let text: Vec<u8> = text[..text.len() - padding].iter().map(to_url).collect();
    let mut bytes = vec![0; base64url::decoded_len(text.len())?];
    base64url::decode(&text, &mut bytes)?;
    Some(bytes)
}

/// Fills `N` bytes from the system's entropy.
/// # Errors
/// `Io` when the system has none to give.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(bytes)
}

/// Makes a key file of 32 random bytes in hexadecimal, mode 0400. The directory must exist.
/// # Errors
/// `Exists` (never overwrites) or the system's.
pub fn create(path: &Path) -> Result<(), KeyFileError> {
    let fail = |error: io::Error| KeyFileError {
        path: path.to_owned(),
        why: match error.kind() {
            io::ErrorKind::AlreadyExists => Why::Exists,
            kind => Why::Io(kind),
        },
    };
    let text = encode_hex(&random::<NEW_KEY_BYTES>().map_err(fail)?);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(KEY_FILE_MODE)
        .open(path)
        .map_err(fail)?;
    let written = writeln!(file, "{text}").and_then(|()| file.sync_all());
    written.map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_a_secret_are_read() {
        let bytes: Vec<u8> = (0..32_u8)
            .map(|i| i.wrapping_mul(37).wrapping_add(200))
            .collect();
        let mut url = Vec::new();
        base64url::append(&bytes, &mut url);
        let standard: Vec<u8> = url
            .iter()
            .map(|b| match b {
                b'-' => b'+',
                b'_' => b'/',
                b => *b,
            })
            .chain([b'='])
            .collect();
        let hex = encode_hex(&bytes);
        for text in [
            hex.as_bytes(),
            hex.to_uppercase().as_bytes(),
            &url,
            &standard,
        ] {
            assert_eq!(decode_secret(text).as_deref(), Some(&bytes[..]));
        }
        for text in [
            &hex.as_bytes()[..62],
            &hex.as_bytes()[1..],
            b"",
            b"====",
            &url[1..],
        ] {
            assert_eq!(decode_secret(text), None);
        }
    }

    #[test]
    fn nothing_shows_a_secret() {
        let secret = Secret(b"canary".to_vec());
        assert_eq!(format!("{secret:?}"), "Secret(hidden)");
        let token = OpsToken::new(b"canary");
        assert_eq!(format!("{token:?}"), "OpsToken(hidden)");
        assert!(token.matches(b"canary") && !token.matches(b"canarz"));
    }
}
