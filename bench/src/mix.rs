//! What is sent in which proportion: the mix, as its file says it.
//!
//! The root package reads the TOML into [`Mix`]; this checks it. Example:
//! `weights = { submit = 90, bad_mac = 5, status = 5 }` and optionally `get = "/healthz"`, `ticket = "jws"`.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $field:ident,)*) => {
        /// A kind of request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $variant,)* }

        impl Kind {
            /// Every kind (`ALL[x as usize] == x`).
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name in mix files and reports.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($field),)* }
            }
        }

        /// How often each kind is sent, relative to the others; 0: never.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Weights { $($(#[$doc])* pub $field: u32,)* }

        impl Weights {
            /// The weight of a kind.
            pub const fn of(&self, kind: Kind) -> u32 {
                match kind { $(Kind::$variant => self.$field,)* }
            }
        }
    };
}

kinds! {
    /// A plain GET of `get`.
    Get = get,
    /// A submit of a new user with a fresh ticket: a probe of a sold-out sale.
    Submit = submit,
    /// A submit whose ticket's MAC is wrong.
    BadMac = bad_mac,
    /// A submit to a path that is not the activity's.
    BadPath = bad_path,
    /// Bytes that are no request; the server closes after its answer.
    Malformed = malformed,
    /// A status query for an earlier submit of this run, with its ticket.
    Status = status,
}

/// The form of tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TicketForm {
    /// Keyed BLAKE3, fixed width.
    #[default]
    Compact,
    /// JWS with HS256.
    Jws,
}

/// A mix file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// How often each kind is sent.
    pub weights: Weights,
    /// The path of the plain GET; default: the path of `--url`.
    #[serde(default)]
    pub get: Option<String>,
    /// The form of tickets.
    #[serde(default)]
    pub ticket: TicketForm,
}

impl Mix {
    /// Plain GETs only.
    pub fn get_only() -> Self {
        Self {
            weights: Weights {
                get: 1,
                ..Weights::default()
            },
            get: None,
            ticket: TicketForm::Compact,
        }
    }

    /// True when some kind needs tickets.
    pub fn needs_tickets(&self) -> bool {
        [Kind::Submit, Kind::BadMac, Kind::BadPath, Kind::Status]
            .iter()
            .any(|&kind| self.weights.of(kind) > 0)
    }

    /// Checks weights and path.
    ///
    /// # Errors
    /// What is wrong and how to mend it.
    pub fn check(&self) -> Result<(), MixError> {
        if Kind::ALL.iter().all(|&kind| self.weights.of(kind) == 0) {
            return Err(MixError::NoWeight);
        }
        match &self.get {
            Some(path) if !is_path(path) => Err(MixError::Path),
            _ => Ok(()),
        }
    }

    /// The share of a kind among all requests, in millionths.
    pub fn share_ppm(&self, kind: Kind) -> u64 {
        let sum: u64 = Kind::ALL
            .iter()
            .map(|&kind| u64::from(self.weights.of(kind)))
            .sum();
        u64::from(self.weights.of(kind)) * 1_000_000 / sum.max(1)
    }

    /// The kind that `number`, uniform over u64, falls on.
    pub(crate) fn pick(&self, rng: &mut weir_core::rng::Rng) -> Kind {
        let sum: u64 = Kind::ALL
            .iter()
            .map(|&kind| u64::from(self.weights.of(kind)))
            .sum();
        let mut at = rng.below(sum);
        for &kind in Kind::ALL {
            let weight = u64::from(self.weights.of(kind));
            if at < weight {
                return kind;
            }
            at -= weight;
        }
        Kind::Get
    }
}

/// A path that can stand in a request line: origin form, visible ASCII, at most 2,048 bytes.
pub(crate) fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.len() <= 2_048 && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What is wrong with a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixError {
    /// Nothing would be sent.
    NoWeight,
    /// `get` is no path.
    Path,
}

impl fmt::Display for MixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoWeight => {
                "weights: every weight is 0; give at least one of get, submit, bad_mac, bad_path, malformed, \
                 status a weight of 1 or more"
            }
            Self::Path => "get: must start with `/` and hold at most 2,048 visible ASCII characters",
        })
    }
}

impl std::error::Error for MixError {}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::rng::Rng;

    #[test]
    fn kinds_come_as_often_as_their_weights_say() {
        let mut mix = Mix::get_only();
        mix.weights = Weights {
            submit: 90,
            bad_mac: 9,
            status: 1,
            ..Weights::default()
        };
        let (mut rng, mut counts) = (Rng::new(3), [0_u32; 6]);
        for _ in 0..100_000 {
            counts[mix.pick(&mut rng) as usize] += 1;
        }
        for &kind in Kind::ALL {
            let wanted = mix.share_ppm(kind) as i64 / 10;
            let found = i64::from(counts[kind as usize]);
            assert!(
                (found - wanted).abs() < 400,
                "{kind:?}: {found} for {wanted}"
            );
        }
        assert!(mix.needs_tickets() && !Mix::get_only().needs_tickets());
    }

    #[test]
    fn what_would_send_nothing_or_no_path_is_refused() {
        let mut mix = Mix::get_only();
        assert_eq!(mix.check(), Ok(()));
        mix.get = Some("/a b".into());
        assert_eq!(mix.check(), Err(MixError::Path));
        mix.weights.get = 0;
        assert_eq!(mix.check(), Err(MixError::NoWeight));
    }
}
