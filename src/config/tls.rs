//! The keys `tls*` of `[redis]` and `[limiter]`: files read and made into what connections trust and show.
//!
//! Called by [`super::redis`].

use super::document::Section;
use crate::keys;
use std::fs;
use std::path::{Path, PathBuf};
use weir_io::tls::{TlsClient, TlsFiles, TlsReject};

/// Where distributions keep the authorities that they trust, in one file: Debian, Ubuntu, Arch, Gentoo; Fedora and Red
/// Hat; openSUSE; Alpine. (ca-certificates, p11-kit and each distribution's `update-ca-*` write them.)
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// A system's authorities are a quarter of a megabyte.
const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;

/// Files of a section, as the configuration names them.
struct Paths {
    ca: Option<PathBuf>,
    /// The certificate and its key.
    identity: Option<(PathBuf, PathBuf)>,
}

/// `None`: connections are plain, or something is wrong and reported.
pub fn client(section: &Section<'_, '_>, dir: &Path) -> Option<TlsClient> {
    let paths = paths(section, dir)?;
    let read = |name: &str, path: &Path| {
        let wrong = |why| section.wrong(name, format!("{}: {why}", path.display()));
        certificates(path).map_err(wrong).ok()
    };
    let authorities = match &paths.ca {
        Some(path) => read("tls_ca", path),
        None => system(section),
    };
    let identity = match &paths.identity {
        None => None,
        Some((cert, key)) => {
            let (cert, key) = (read("tls_cert", cert), read_key(section, key));
            Some((cert?, key?))
        }
    };
    let files = TlsFiles {
        authorities: authorities.as_deref()?,
        identity: identity.as_ref().map(|(cert, key)| (&cert[..], &key[..])),
    };
    let wrong = |reject| {
        let (name, message) = told(reject, &paths);
        section.wrong(name, message);
    };
    TlsClient::new(files).map_err(wrong).ok()
}

/// `None`: TLS is off, or keys contradict one another, which is reported.
fn paths(section: &Section<'_, '_>, dir: &Path) -> Option<Paths> {
    let is_on = section.flag("tls");
    let [ca, cert, key] = ["tls_ca", "tls_cert", "tls_key"].map(|name| {
        let path = section.optional_text(name);
        if path.is_some() && !is_on {
            section.wrong(name, "needs tls = true, too");
        }
        path.map(|path| dir.join(path))
    });
    if cert.is_some() && key.is_none() {
        section.wrong("tls_cert", "needs tls_key, too");
    }
    if key.is_some() && cert.is_none() {
        section.wrong("tls_key", "needs tls_cert, too");
    }
    let identity = cert.zip(key);
    (is_on && !section.is_wrong()).then_some(Paths { ca, identity })
}

/// The key that is wrong, and why.
fn told(reject: TlsReject, paths: &Paths) -> (&'static str, String) {
    let shown =
        |path: Option<&PathBuf>| path.map_or(String::new(), |path| path.display().to_string());
    let identity = paths.identity.as_ref();
    let cert = shown(identity.map(|(cert, _)| cert));
    let key = shown(identity.map(|(_, key)| key));
    match reject {
        TlsReject::Authorities => {
            let file = match &paths.ca {
                Some(path) => path.display().to_string(),
                None => "the system's file of authorities".to_owned(),
            };
            (
                "tls_ca",
                format!("{file}: holds no certificate (PEM, BEGIN CERTIFICATE) that can be used"),
            )
        }
        TlsReject::Certificate => (
            "tls_cert",
            format!(
                "{cert}: must hold certificates only (PEM, BEGIN CERTIFICATE), and one at least"
            ),
        ),
        TlsReject::Key => (
            "tls_key",
            format!(
                "{key}: holds no private key (PEM, BEGIN PRIVATE KEY, BEGIN EC PRIVATE KEY or BEGIN RSA PRIVATE KEY) without a password"
            ),
        ),
        TlsReject::Pair => (
            "tls_key",
            format!(
                "{key}: is not the key of the certificate in {cert}, or of a kind that is not supported (ECDSA P-256 and P-384, Ed25519, RSA of 2048 bits or more are)"
            ),
        ),
    }
}

fn read_key(section: &Section<'_, '_>, path: &Path) -> Option<Vec<u8>> {
    let wrong = |error: keys::KeyFileError| section.wrong("tls_key", error.to_string());
    keys::read_private_key(path).map_err(wrong).ok()
}

/// The text of a file of certificates.
fn certificates(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| format!("cannot be read ({error})");
    // Looked at before it is opened: opening a pipe would wait for its writer.
    let metadata = fs::metadata(path).map_err(said)?;
    if !metadata.is_file() || metadata.len() > CERTIFICATES_BYTES_MAX {
        return Err(format!(
            "is no file of certificates; must be one of at most {CERTIFICATES_BYTES_MAX} bytes"
        ));
    }
    fs::read(path).map_err(said)
}

fn system(section: &Section<'_, '_>) -> Option<Vec<u8>> {
    let found = SYSTEM_FILES
        .iter()
        .find_map(|path| certificates(Path::new(path)).ok());
    if found.is_none() {
        section.wrong(
            "tls",
            format!(
                "this system has no file of authorities ({}); install ca-certificates, or name the file of the server's authority with tls_ca",
                SYSTEM_FILES.join(", ")
            ),
        );
    }
    found
}
