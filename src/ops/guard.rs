//! Who may speak to the operator's listener: no web page, no rebound name, and off loopback only the token's holder.
//!
//! Checked before any route but by [`super`] alone. A page in an operator's browser can reach loopback: it sends an
//! Origin, or (DNS rebinding) its own name as Host; both are refused, whatever the token (requirement K3).

use super::refusal::{Fault, Refusal};
use crate::keys::OpsToken;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use weir_proto::http::{Field, Request};

/// This address can be reached by others, and there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenNeeded(pub SocketAddr);

impl fmt::Display for TokenNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the operator's listener on {} can be reached from other machines; configure a token file, or listen on 127.0.0.1",
            self.0
        )
    }
}

impl std::error::Error for TokenNeeded {}

/// The checks of one listener.
#[derive(Debug)]
pub(super) struct Guard {
    listen: SocketAddr,
    token: Option<OpsToken>,
}

impl Guard {
    pub(super) fn new(listen: SocketAddr, token: Option<OpsToken>) -> Result<Self, TokenNeeded> {
        if token.is_none() && !listen.ip().to_canonical().is_loopback() {
            return Err(TokenNeeded(listen));
        }
        Ok(Self { listen, token })
    }

    /// Refuses what a web page could have sent.
    pub(super) fn check_source(&self, request: &Request<'_>) -> Result<(), Refusal> {
        if request.field(Field::Origin).is_some() {
            return Err(Fault::Origin.into());
        }
        let host = request.field(Field::Host).unwrap_or_default();
        if self.knows_host(host) {
            Ok(())
        } else {
            Err(Fault::ForeignHost.into())
        }
    }

    /// Refuses who does not hold the token, where one is configured.
    pub(super) fn check_token(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let guess = request.field(Field::Authorization).and_then(bearer);
        if guess.is_some_and(|guess| token.matches(guess)) {
            Ok(())
        } else {
            Err(Fault::TokenNeeded.into())
        }
    }

    /// A name that is rebound is a name: addresses and `localhost` cannot be. The port does not matter: it may be forwarded.
    fn knows_host(&self, host: &[u8]) -> bool {
        let Ok(host) = std::str::from_utf8(host) else {
            return false;
        };
        let name = without_port(host);
        if name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        let Ok(ip) = name.parse::<IpAddr>().map(|ip| ip.to_canonical()) else {
            return false;
        };
        let listen = self.listen.ip().to_canonical();
        ip.is_loopback() || ip == listen || listen.is_unspecified()
    }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`; the parser has checked the grammar (RFC 9110 §7.2).
fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    host.split(':').next().unwrap_or_default()
}

/// RFC 6750 §2.1; the scheme without regard to case (RFC 9110 §11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(listen: &str) -> Guard {
        let token = OpsToken::new(b"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk");
        Guard::new(listen.parse().unwrap(), Some(token)).unwrap()
    }

    #[test]
    fn a_token_is_needed_wherever_others_can_reach() {
        for (listen, needed) in [
            ("127.0.0.1:9", false),
            ("127.9.9.9:9", false),
            ("[::1]:9", false),
            ("[::ffff:127.0.0.1]:9", false),
            ("0.0.0.0:9", true),
            ("[::]:9", true),
            ("10.0.0.1:9", true),
        ] {
            let listen = listen.parse().unwrap();
            assert_eq!(Guard::new(listen, None).is_err(), needed, "{listen}");
        }
    }

    #[test]
    fn only_addresses_and_localhost_are_hosts() {
        let local = guard("127.0.0.1:9090");
        for host in [
            "127.0.0.1",
            "127.0.0.1:1",
            "localhost:8080",
            "LOCALHOST",
            "[::1]:9090",
        ] {
            assert!(local.knows_host(host.as_bytes()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:9090",
            "10.0.0.1",
            "",
            "127.0.0.1.nip.io",
        ] {
            assert!(!local.knows_host(host.as_bytes()), "{host}");
        }
        assert!(guard("10.0.0.1:9").knows_host(b"10.0.0.1:9"));
        assert!(!guard("10.0.0.1:9").knows_host(b"10.0.0.2:9"));
        assert!(guard("0.0.0.0:9").knows_host(b"10.0.0.2:9"));
        assert!(!guard("0.0.0.0:9").knows_host(b"evil.example"));
    }
}
