//! Connections that are to be encrypted, as the core sees them: whom to expect there, and why there is none.
//!
//! The core encrypts nothing. It asks for such a connection by `port::Effects::connect_tls`; what stands between it and
//! its driver (weir-io's `tls::over::OverTls`) makes it, verifies who is there and hands on plain bytes.

pub use crate::redis::endpoint::Host;
use core::fmt;

/// Which of the part's settings of TLS: its authorities, and who we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsId(pub u8);

/// Whom an encrypted connection must lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPeer {
    /// By which settings.
    pub settings: TlsId,
    /// What the server's certificate must be made out to: a name or an address (RFC 9525 §6; RFC 2818 §3.1).
    pub host: Host,
}

/// Why there is no encrypted connection. `Display` has the remedy, with keys of the section that names the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// What answers speaks another protocol.
    NotTls,
    /// The connection ended before the handshake did, without a word.
    Ended,
    /// No whole handshake within its time.
    Silent,
    /// None of our authorities stands behind the certificate.
    UnknownIssuer,
    /// The certificate is another host's.
    WrongName,
    /// The configured host can stand in no certificate.
    NoName,
    /// The certificate is of the past.
    Expired,
    /// The certificate is of the future.
    NotYetValid,
    /// The certificate cannot be used for another reason.
    BadCertificate,
    /// No version or cipher in common.
    Incompatible,
    /// The server wants to know who we are.
    WantsCertificate,
    /// The server did not take our certificate.
    CertificateRefused,
    /// The server ended the handshake with this alert (RFC 8446 §6).
    Refused(u8),
    /// Records that are no TLS of this connection: changed, cut or out of order.
    Broken,
}

impl TlsFault {
    /// A short word for it, as metrics name it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotTls | Self::Ended | Self::Silent => "tls_no_handshake",
            Self::UnknownIssuer => "tls_unknown_issuer",
            Self::WrongName | Self::NoName => "tls_wrong_name",
            Self::Expired | Self::NotYetValid => "tls_not_valid_now",
            Self::BadCertificate => "tls_bad_certificate",
            Self::Incompatible => "tls_incompatible",
            Self::WantsCertificate | Self::CertificateRefused | Self::Refused(_) => "tls_refused",
            Self::Broken => "tls_broken",
        }
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTls => {
                "does not speak TLS on this port: set tls = false, or name its TLS port (tls-port of Redis)"
            }
            Self::Ended => {
                "closed the connection during the TLS handshake: is this its TLS port (tls-port of Redis; without one set tls = false)?"
            }
            Self::Silent => {
                "did not end the TLS handshake within connect_timeout: is this its TLS port (tls-port of Redis; without one set tls = false), and is it not overloaded?"
            }
            Self::UnknownIssuer => {
                "its certificate is signed by none of our authorities: name the file of its authority with tls_ca, or give it another certificate"
            }
            Self::WrongName => {
                "its certificate is made out to another host: name the server in servers as its certificate does (subjectAltName; of a cluster as its nodes announce themselves), or give it another certificate"
            }
            Self::NoName => {
                "this name can stand in no certificate: name the server in servers as its certificate does (subjectAltName)"
            }
            Self::Expired => {
                "its certificate has expired: renew it, or set this machine's clock right"
            }
            Self::NotYetValid => {
                "its certificate is not yet valid: set this machine's clock right, or give it another certificate"
            }
            Self::BadCertificate => {
                "its certificate cannot be used: give it one for servers, signed by an authority (a certificate that is its own authority is refused), with subjectAltName"
            }
            Self::Incompatible => {
                "has no version of TLS (1.2, 1.3) or no cipher in common with weir: mend tls-protocols and tls-ciphers of Redis"
            }
            Self::WantsCertificate => {
                "wants a certificate of weir: name its files with tls_cert and tls_key, or set tls-auth-clients of Redis to no or optional"
            }
            Self::CertificateRefused => {
                "did not take the certificate of weir: the file of tls_cert must be valid now and signed by an authority of tls-ca-cert-file of Redis"
            }
            Self::Refused(alert) => {
                return write!(
                    f,
                    "ended the TLS handshake with alert {alert}: its log says why (it may want tls_cert and tls_key)"
                );
            }
            Self::Broken => "sent records of TLS that are damaged or in the wrong order",
        })
    }
}

impl core::error::Error for TlsFault {}
