//! TLS of connections that we open: whom we trust, who we are, and what a handshake that failed means.
//!
//! By rustls, with the cryptography of ring: TLS 1.2 and 1.3, the server's certificate verified against our authorities
//! and against the host that was asked for (a DNS name or an address). [`over`] encrypts for a handler on any driver,
//! [`stream`] for whoever may block. Not here: files (the caller has read them), listening.

pub mod over;
mod session;
pub mod stream;

use rustls::client::Resumption;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore};
use std::fmt;
use std::sync::Arc;
use weir_core::tls::{Host, TlsFault};

/// What a client trusts and shows, as the PEM text of files (RFC 7468).
#[derive(Clone, Copy)]
pub struct TlsFiles<'a> {
    /// Certificates of authorities; those that cannot be used are passed over as long as one can.
    pub authorities: &'a [u8],
    /// Our certificate with those between it and its authority, and its private key.
    pub identity: Option<(&'a [u8], &'a [u8])>,
}

/// What is wrong with [`TlsFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsReject {
    /// No certificate among the authorities that could be used.
    Authorities,
    /// No certificate of ours.
    Certificate,
    /// No private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    Key,
    /// The key is not that of the certificate, or of a kind that is not supported.
    Pair,
}

/// Settings of one kind of connection; cheap to clone. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct TlsClient(Arc<ClientConfig>);

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClient(hidden)")
    }
}

impl TlsClient {
    /// # Errors
    /// See [`TlsReject`].
    pub fn new(files: TlsFiles<'_>) -> Result<Self, TlsReject> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let readable = CertificateDer::pem_slice_iter(files.authorities).map_while(Result::ok);
        roots.add_parsable_certificates(readable);
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|_| TlsReject::Authorities)?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has ciphers of both versions")
            .with_webpki_verifier(verifier);
        let config = match files.identity {
            None => config.with_no_client_auth(),
            Some((certificates, key)) => {
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(certificates).collect();
                let chain = chain.ok().filter(|chain| !chain.is_empty());
                let chain = chain.ok_or(TlsReject::Certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsReject::Key)?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|_| TlsReject::Pair)?
            }
        };
        // Every connection looks at the certificate anew.
        let mut config = config;
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// A connection to be, which has its first words ready.
    ///
    /// # Errors
    /// `NoName`: `host` can stand in no certificate.
    fn begin(&self, host: &Host) -> Result<ClientConnection, TlsFault> {
        let name = match host {
            Host::Ip(ip) => ServerName::IpAddress((*ip).into()),
            Host::Name(name) => {
                ServerName::try_from(name.to_string()).map_err(|_| TlsFault::NoName)?
            }
        };
        ClientConnection::new(Arc::clone(&self.0), name).map_err(|_| TlsFault::Broken)
    }
}

/// The first byte of a record is its type, 20 to 24 (RFC 8446 §5.1; 24: RFC 6520): what begins otherwise is no TLS.
fn is_tls(first: u8) -> bool {
    (20..=24).contains(&first)
}

/// What an error of rustls means to an operator.
fn fault_of(error: &rustls::Error) -> TlsFault {
    use rustls::Error as E;
    match error {
        E::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                TlsFault::UnknownIssuer
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                TlsFault::WrongName
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                TlsFault::Expired
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                TlsFault::NotYetValid
            }
            _ => TlsFault::BadCertificate,
        },
        E::NoCertificatesPresented => TlsFault::BadCertificate,
        E::PeerIncompatible(_) => TlsFault::Incompatible,
        E::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
                TlsFault::WantsCertificate
            }
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied => TlsFault::CertificateRefused,
            AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity => {
                TlsFault::Incompatible
            }
            other => TlsFault::Refused(u8::from(*other)),
        },
        _ => TlsFault::Broken,
    }
}
