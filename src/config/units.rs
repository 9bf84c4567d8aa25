//! Words of the configuration file as exact values: durations, rates, prices. Integers only, nothing rounded.
//!
//! Called by [`super::value`] and by command line arguments. Errors say what is allowed.

use super::ceilings::RATE_PER_SECOND_MAX;
use weir_core::limit::gcra::Rate;
use weir_core::order::contract::Money;
use weir_core::time::{NS_PER_MS, NS_PER_S};
use weir_proto::limits::ID_MAX;

const MINUTE_MS: u64 = 60 * 1000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Reads a duration such as `500ms`, `5s`, `15m`, `24h`, `7d` in milliseconds.
/// # Errors
/// What is allowed.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a duration: write a whole number and a unit, such as 500ms, 5s, 15m, 24h or 7d"
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => MINUTE_MS,
        "h" => HOUR_MS,
        "d" => DAY_MS,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit_ms).ok_or_else(wrong)
}

/// Writes milliseconds as [`duration_ms`] reads them, in the largest unit that divides them.
pub fn duration_text(ms: u64) -> String {
    let units = [(DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m"), (1000, "s")];
    let whole = units
        .iter()
        .find(|(unit_ms, _)| ms > 0 && ms.is_multiple_of(*unit_ms));
    match whole {
        Some((unit_ms, unit)) => format!("{}{unit}", ms / unit_ms),
        None => format!("{ms}ms"),
    }
}

/// Reads a rate such as `300000/s`, `0.5/s`, `10/m`, `100/h` as an exact rational.
/// # Errors
/// What is allowed: above 0 and at most [`RATE_PER_SECOND_MAX`] per second, at most 9 decimals.
pub fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || {
        format!(
            "{text:?} is not a rate: write a number and a unit of time, such as 300000/s, 0.5/s, 10/m or 100/h"
        )
    };
    let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
    let unit_ns = match unit {
        "ms" => NS_PER_MS,
        "s" => NS_PER_S,
        "m" => 60 * NS_PER_S,
        "h" => 3600 * NS_PER_S,
        "d" => 86_400 * NS_PER_S,
        _ => return Err(wrong()),
    };
    let number = Decimal::read(number, 9).ok_or_else(wrong)?;
    let per_ns = unit_ns.checked_mul(number.scale()).ok_or_else(|| {
        format!("{text:?} has too many decimals for its unit; use a shorter unit")
    })?;
    if number.digits == 0 {
        return Err(format!(
            "{text:?} would let nothing pass, ever; use a rate above 0 (to stop a SKU set its mode to CLOSED)"
        ));
    }
    let per_second = u128::from(number.digits) * u128::from(NS_PER_S);
    if per_second > u128::from(RATE_PER_SECOND_MAX) * u128::from(per_ns) {
        return Err(format!(
            "{text:?} is above the hard ceiling of {RATE_PER_SECOND_MAX}/s"
        ));
    }
    Ok(Rate {
        tokens: number.digits,
        per_ns,
    })
}

/// Reads a price such as `19.90 CNY` or `1200 JPY` in the currency's minor units (ISO 4217), exactly.
/// # Errors
/// What is allowed.
pub fn price(text: &str) -> Result<Money, String> {
    let wrong = || {
        format!(
            "{text:?} is not a price: write an amount, a space and an ISO 4217 code, such as \"19.90 CNY\""
        )
    };
    let (amount, code) = text.split_once(' ').ok_or_else(wrong)?;
    let currency: [u8; 3] = code.as_bytes().try_into().map_err(|_| wrong())?;
    if !currency.iter().all(u8::is_ascii_uppercase) {
        return Err(wrong());
    }
    let decimals = decimals_of(currency);
    let amount = Decimal::read(amount, 18).ok_or_else(wrong)?;
    if amount.decimals > decimals {
        return Err(format!(
            "{text:?} has {} decimals and {code} has {decimals}",
            amount.decimals
        ));
    }
    amount
        .digits
        .checked_mul(10_u64.pow(decimals - amount.decimals))
        .filter(|&minor| minor <= ID_MAX)
        .map(|minor| Money { minor, currency })
        .ok_or_else(|| format!("{text:?} is above 2^63-1 minor units"))
}

/// Decimals of a currency: ISO 4217 list one (2024); two unless listed here.
fn decimals_of(currency: [u8; 3]) -> u32 {
    match &currency {
        b"BIF" | b"CLP" | b"DJF" | b"GNF" | b"ISK" | b"JPY" | b"KMF" | b"KRW" | b"PYG" | b"RWF"
        | b"UGX" | b"UYI" | b"VND" | b"VUV" | b"XAF" | b"XOF" | b"XPF" => 0,
        b"BHD" | b"IQD" | b"JOD" | b"KWD" | b"LYD" | b"OMR" | b"TND" => 3,
        b"CLF" | b"UYW" => 4,
        _ => 2,
    }
}

/// `digits` / 10^`decimals`.
struct Decimal {
    digits: u64,
    decimals: u32,
}

impl Decimal {
    /// Digits with at most one point between them; `None` for anything else and for what does not fit.
    fn read(text: &str, decimals_max: usize) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !plain(whole) || !plain(fraction) || fraction.len() > decimals_max {
            return None;
        }
        let fraction = if text.contains('.') { fraction } else { "" };
        Some(Self {
            digits: format!("{whole}{fraction}").parse().ok()?,
            decimals: fraction.len() as u32,
        })
    }

    fn scale(&self) -> u64 {
        10_u64.pow(self.decimals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: Rate, b: Rate) -> bool {
        u128::from(a.tokens) * u128::from(b.per_ns) == u128::from(b.tokens) * u128::from(a.per_ns)
    }

    #[test]
    fn rates_are_exact_rationals() {
        let per = |tokens, per_ns| Rate { tokens, per_ns };
        assert!(same(rate("300000/s").unwrap(), Rate::per_second(300_000)));
        assert!(same(rate("0.5/s").unwrap(), per(1, 2 * NS_PER_S)));
        assert!(same(rate("10/m").unwrap(), per(1, 6 * NS_PER_S)));
        assert!(same(rate("0.1/ms").unwrap(), Rate::per_second(100)));
        assert!(same(
            rate("3000000/s").unwrap(),
            Rate::per_second(3_000_000)
        ));
        for bad in [
            "",
            "/s",
            "5",
            "5/",
            "5/w",
            "-1/s",
            "+1/s",
            "1e3/s",
            ".5/s",
            "5./s",
            "1.2.3/s",
            "0/s",
            "0.0/s",
            "3000001/s",
            "3001/ms",
            "99999999999999999999/s",
            " 5/s",
            "5 /s",
            "NaN/s",
            "0.0000000001/s",
            "0.000000001/d",
        ] {
            assert!(rate(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn prices_are_exact_minor_units() {
        let money = |minor, currency: &[u8; 3]| Money {
            minor,
            currency: *currency,
        };
        assert_eq!(price("19.90 CNY"), Ok(money(1990, b"CNY")));
        assert_eq!(price("19.9 CNY"), Ok(money(1990, b"CNY")));
        assert_eq!(price("0 CNY"), Ok(money(0, b"CNY")));
        assert_eq!(price("1200 JPY"), Ok(money(1200, b"JPY")));
        assert_eq!(price("1.234 KWD"), Ok(money(1234, b"KWD")));
        for bad in [
            "",
            "19.90",
            "CNY 19.90",
            "19.90CNY",
            "19.90 cny",
            "19.90  CNY",
            "19.901 CNY",
            "1.5 JPY",
            "-1 CNY",
            "1,000 CNY",
            "99999999999999999 CNY9",
            "99999999999999999999 CNY",
            "92233720368547758.08 CNY",
            "1.0 EURO",
        ] {
            assert!(price(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn durations_read_as_written() {
        for (text, ms) in [
            ("0ms", 0),
            ("500ms", 500),
            ("5s", 5000),
            ("15m", 900_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
            assert_eq!(duration_ms(&duration_text(ms)), Ok(ms));
        }
        assert_eq!(duration_text(1500), "1500ms");
        for bad in [
            "",
            "5",
            "s",
            "1.5s",
            "-1s",
            "5 s",
            "5w",
            "99999999999999999d",
            "18446744073709551616ms",
        ] {
            assert!(duration_ms(bad).is_err(), "{bad:?}");
        }
    }
}
