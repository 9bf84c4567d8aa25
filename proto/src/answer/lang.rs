//! Which of the two languages an answer speaks.
//!
//! Called with the value of `Accept-Language`. Decision: no header = Chinese (the sale's home, seed 000's texts);
//! a header that names neither language = English (a stranger reads it more likely).

/// The language of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lang {
    /// Chinese, any script or region; the default.
    #[default]
    Zh,
    /// English, any region.
    En,
}

impl Lang {
    /// Both languages.
    pub const ALL: [Self; 2] = [Self::Zh, Self::En];

    /// The language tag for `Content-Language`: `zh-CN` or `en`.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Zh => "zh-CN",
            Self::En => "en",
        }
    }

    /// Chooses by an `Accept-Language` value (RFC 9110 §12.5.4): the higher weight wins, the earlier at equal weights.
    ///
    /// An empty value counts as no header: Chinese. A malformed element is skipped; weight 0 means "not this one";
    /// `*` gives its weight to a language that is not named.
    pub fn from_accept_language(value: &[u8]) -> Self {
        match Self::named_first(value) {
            Some(lang) => lang,
            None => Self::weighed(value),
        }
    }

    fn weighed(value: &[u8]) -> Self {
        if value.trim_ascii().is_empty() {
            return Self::Zh;
        }
        let mut zh: Option<u16> = None;
        let mut en: Option<u16> = None;
        let mut any: Option<u16> = None;
        let mut zh_first = false;
        for element in value.split(|&b| b == b',') {
            let mut parts = element.split(|&b| b == b';');
            let range = parts.next().unwrap_or_default().trim_ascii();
            let Some(weight) = weight_of(parts.next(), parts.next().is_some()) else {
                continue;
            };
            // Nothing outweighs the first that has full weight.
            if names(range, b"zh") {
                if weight == WEIGHT_MAX {
                    return Self::Zh;
                }
                zh_first |= en.is_none();
                zh = zh.max(Some(weight));
            } else if names(range, b"en") {
                if weight == WEIGHT_MAX {
                    return Self::En;
                }
                en = en.max(Some(weight));
            } else if range == b"*" {
                any = any.max(Some(weight));
            }
        }
        let zh_weight = zh.or(any).unwrap_or(0);
        let en_weight = en.or(any).unwrap_or(0);
        let tie = zh_weight > 0 && (zh_first || zh.is_none() && en.is_none());
        if zh_weight > en_weight || zh_weight == en_weight && tie {
            Self::Zh
        } else {
            Self::En
        }
    }
}

impl Lang {
    /// The language that `value` names first and at full weight, as nearly every browser does: nothing outweighs it.
    /// `None` says nothing.
    #[inline]
    fn named_first(value: &[u8]) -> Option<Self> {
        let (primary, rest) = value.split_first_chunk::<2>()?;
        let lang = match [primary[0] | 0x20, primary[1] | 0x20] {
            [b'z', b'h'] => Self::Zh,
            [b'e', b'n'] => Self::En,
            _ => return None,
        };
        let end = rest.iter().position(|byte| matches!(byte, b',' | b';'));
        let is_this = matches!(rest.first(), None | Some(b',' | b'-'));
        let is_over = end.is_none_or(|end| rest[end] == b',');
        (is_this && is_over).then_some(lang)
    }
}

/// True when `range` is `primary` or begins with `primary-`, whatever the case (RFC 4647 §3.3.1).
fn names(range: &[u8], primary: &[u8; 2]) -> bool {
    range.len() >= 2
        && range[..2].eq_ignore_ascii_case(primary)
        && (range.len() == 2 || range[2] == b'-')
}

/// Full weight, in thousandths.
const WEIGHT_MAX: u16 = 1_000;

/// A weight in thousandths, full when absent; `None` when malformed (RFC 9110 §12.4.2: at most three decimals, at most 1).
fn weight_of(parameter: Option<&[u8]>, more_parameters: bool) -> Option<u16> {
    let Some(parameter) = parameter else {
        return Some(WEIGHT_MAX);
    };
    let parameter = parameter.trim_ascii();
    if more_parameters || parameter.len() < 3 || parameter[0] | 0x20 != b'q' || parameter[1] != b'='
    {
        return None;
    }
    let digits = &parameter[2..];
    let mut weight = match digits[0] {
        b'0' => 0,
        b'1' => WEIGHT_MAX,
        _ => return None,
    };
    if digits.len() > 1 && (digits[1] != b'.' || digits.len() > 5) {
        return None;
    }
    for (index, digit) in digits.iter().skip(2).enumerate() {
        if !digit.is_ascii_digit() {
            return None;
        }
        weight += u16::from(digit - b'0') * [100, 10, 1][index];
    }
    (weight <= WEIGHT_MAX).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::Lang;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_named_first_outweighs_the_rest(
            value in "([zZeE][hHnN]|fr|\\*)(-[A-Za-z]{0,4}|[ -~])?([,;] ?(zh|en|q=0\\.5|q=1|\\*)){0,3}",
        ) {
            let value = value.as_bytes();
            if let Some(lang) = Lang::named_first(value) {
                prop_assert_eq!(lang, Lang::weighed(value));
            }
        }
    }

    #[test]
    fn chooses_by_weight_then_by_order() {
        for (value, expected) in [
            ("", Lang::Zh),
            ("zh", Lang::Zh),
            ("zh-CN,zh;q=0.9,en;q=0.8", Lang::Zh),
            ("ZH-hant-tw", Lang::Zh),
            ("en", Lang::En),
            ("en-US,en;q=0.9", Lang::En),
            ("en-US,en;q=0.9,zh-CN;q=0.8", Lang::En),
            ("en;q=0.5, zh;q=0.7", Lang::Zh),
            ("en;q=0.123, zh;q=0.124", Lang::Zh),
            ("en, zh", Lang::En),
            ("zh;q=0.5, en, zh-CN", Lang::En), // the first of full weight
            ("zh, en", Lang::Zh),
            ("zh;q=0, en;q=0.1", Lang::En),
            ("zh;q=0", Lang::En),
            ("en;q=0, *", Lang::Zh),
            ("en;q=0.5, *;q=0.6", Lang::Zh),
            ("*", Lang::Zh),
            ("*;q=0", Lang::En),
            ("fr, de;q=0.5", Lang::En),
            ("zhx", Lang::En),
            ("zh;q=2, en;q=0.1", Lang::En),
            ("zh;q=1.001, en;q=0.1", Lang::En),
            ("zh;q=, en;q=0.1", Lang::En),
            ("zh;v=1;q=1, en;q=0.1", Lang::En),
            (",,;;=,zh", Lang::Zh),
        ] {
            assert_eq!(
                Lang::from_accept_language(value.as_bytes()),
                expected,
                "{value}"
            );
        }
    }
}
