//! The key files of the section `[keys]`: read, held apart, made into keys.
//!
//! Called by [`super::build`]. Every file is read before one is missed, so that all problems come together. Invariant: one
//! secret has one purpose.

use super::document::Section;
use super::value::KeyFile;
use crate::keys::{self, Secret};
use std::path::Path;
use std::sync::Arc;
use weir_core::shard::config::RequestSignatures;
use weir_proto::payment::PaymentKey;
use weir_proto::signature::{SignatureKey, SignatureKeys};
use weir_proto::ticket::{KeyError, KeyRing, TicketKey};

/// What the files hold.
pub struct Secrets {
    /// The secret that signs tickets; other secrets are derived from it.
    pub first: Secret,
    /// Tickets.
    pub ring: Arc<KeyRing>,
    /// Payment callbacks.
    pub payment: Option<PaymentKey>,
    /// Signed requests.
    pub request: Option<RequestSignatures>,
}

/// `None` when one cannot be read or used; each such file is reported. `skew_ms`: the window of signed requests.
pub fn read(section: &Section<'_, '_>, dir: &Path, skew_ms: u64) -> Option<Secrets> {
    let ticket_files = section.key_files("ticket");
    let request_files = section.optional_key_files("request");
    let payment_path = section.optional_text("payment");
    if section.is_wrong() {
        return None;
    }
    let read = |name: &str, path: &str| {
        let secret = keys::read_secret(&dir.join(path));
        secret
            .map_err(|error| section.wrong(name, error.to_string()))
            .ok()
    };
    let read_all = |name: &str, files: &[KeyFile]| -> Vec<Option<Secret>> {
        files.iter().map(|file| read(name, &file.path)).collect()
    };
    let ticket = read_all("ticket", &ticket_files);
    let request = read_all("request", &request_files);
    let payment = payment_path.map(|path| read("payment", &path));
    let ticket: Vec<Secret> = ticket.into_iter().collect::<Option<_>>()?;
    let request: Vec<Secret> = request.into_iter().collect::<Option<_>>()?;
    let payment = payment.map_or(Some(None), |secret| secret.map(Some))?;
    if payment
        .as_ref()
        .is_some_and(|payment| ticket.contains(payment))
    {
        section.wrong("payment", of_its_own("a ticket key"));
    }
    if request.iter().any(|secret| ticket.contains(secret)) {
        section.wrong("request", of_its_own("a ticket key"));
    }
    if request
        .iter()
        .any(|secret| payment.as_ref() == Some(secret))
    {
        section.wrong("request", of_its_own("the payment key"));
    }
    let ring = keys_of(
        "ticket",
        section,
        &ticket_files,
        &ticket,
        TicketKey::new,
        KeyRing::new,
    )?;
    let request = match request.is_empty() {
        true => None,
        false => Some(keys_of(
            "request",
            section,
            &request_files,
            &request,
            SignatureKey::new,
            SignatureKeys::new,
        )?),
    };
    Some(Secrets {
        first: ticket
            .first()
            .expect("the table wants one at least")
            .clone(),
        ring: Arc::new(ring),
        payment: payment.map(|secret| {
            PaymentKey::new(secret.expose()).expect("a key file holds a secret of the right length")
        }),
        request: request.map(|keys| RequestSignatures {
            keys: Arc::new(keys),
            skew_ms,
        }),
    })
}

fn of_its_own(other: &str) -> String {
    format!("is the same secret as {other}; make one of its own with `weir keygen`")
}

/// One or two files as keys, then as the set of live ones.
fn keys_of<K, S>(
    name: &str,
    section: &Section<'_, '_>,
    files: &[KeyFile],
    secrets: &[Secret],
    key: impl Fn(&[u8], &[u8]) -> Result<K, KeyError>,
    set: impl FnOnce(K, Option<K>) -> Result<S, KeyError>,
) -> Option<S> {
    let wrong = |error: KeyError| section.wrong(name, error.to_string());
    let made = files
        .iter()
        .zip(secrets)
        .map(|(file, secret)| key(file.kid.as_bytes(), secret.expose()));
    let keys: Result<Vec<K>, KeyError> = made.collect();
    let mut keys = keys.map_err(wrong).ok()?.into_iter();
    let first = keys.next()?;
    set(first, keys.next()).map_err(wrong).ok()
}
