//! RFC 3339 date-times to and from wall milliseconds, in integers.
//!
//! Called by [`super::value`] (opens_at, closes_at) and by the starter file. Leap seconds (`:60`) are refused: Unix time
//! has none.

use weir_core::time::WallMs;
use weir_proto::answer::civil_time;

/// Reads `2026-11-30T20:00:00+08:00`, `2026-11-30T12:00:00.250Z`; a space may stand for the `T` (RFC 3339 §5.6).
/// # Errors
/// What is allowed; years before 1970 are refused.
pub fn instant(text: &str) -> Result<WallMs, String> {
    parse(text).ok_or_else(|| {
        format!(
            "{text:?} is not an instant: write RFC 3339 with an offset, such as 2026-11-30T20:00:00+08:00 or 2026-11-30T12:00:00Z, or Unix milliseconds"
        )
    })
}

/// Writes an instant in UTC, with milliseconds when there are any.
pub fn instant_text(at: WallMs) -> String {
    let t = civil_time(at.0);
    let (year, month, day) = (t.year, t.month, t.day);
    let (hour, minute, second) = (t.hour, t.minute, t.second);
    let seconds = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    match t.milli {
        0 => format!("{seconds}Z"),
        milli => format!("{seconds}.{milli:03}Z"),
    }
}

fn parse(text: &str) -> Option<WallMs> {
    let bytes = text.as_bytes();
    let head = bytes.get(..19)?;
    let fixed = [
        (4, b"-".as_slice()),
        (7, b"-"),
        (10, b"Tt "),
        (13, b":"),
        (16, b":"),
    ];
    if fixed
        .iter()
        .any(|(at, allowed)| !allowed.contains(&head[*at]))
    {
        return None;
    }
    let number = |from: usize, to: usize| digits(&head[from..to]);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let in_range = year >= 1970
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !in_range {
        return None;
    }
    let (milli, zone) = fraction_ms(&bytes[19..])?;
    let offset_minutes = offset_minutes(zone)?;
    let seconds = (days_from_1970(year, month, day) * 24 + hour) * 3600 + minute * 60 + second;
    let at = i64::try_from(seconds).ok()? - offset_minutes * 60;
    Some(WallMs(u64::try_from(at).ok()?.checked_mul(1000)? + milli))
}

fn digits(bytes: &[u8]) -> Option<u64> {
    bytes.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + u64::from(byte - b'0'))
    })
}

/// The fraction's milliseconds (further digits are cut) and what follows it.
fn fraction_ms(rest: &[u8]) -> Option<(u64, &[u8])> {
    let Some(fraction) = rest.strip_prefix(b".") else {
        return Some((0, rest));
    };
    let count = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
    if !(1..=9).contains(&count) {
        return None;
    }
    let (fraction, zone) = fraction.split_at(count);
    let mut three = [b'0'; 3];
    let kept = count.min(3);
    three[..kept].copy_from_slice(&fraction[..kept]);
    Some((digits(&three)?, zone))
}

fn offset_minutes(zone: &[u8]) -> Option<i64> {
    match *zone {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (digits(&[h1, h2])?, digits(&[m1, m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let minutes = i64::try_from(hours * 60 + minutes).ok()?;
            Some(if sign == b'+' { minutes } else { -minutes })
        }
        _ => None,
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil).
fn days_from_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rfc3339() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T08:00:00+08:00", 0),
            ("1985-04-12T23:20:50.52Z", 482_196_050_520), // RFC 3339 §5.8
            ("1996-12-19T16:39:57-08:00", 851_042_397_000),
            ("2024-02-29 12:00:00.123456789z", 1_709_208_000_123),
            ("2026-11-30T20:00:00+08:00", 1_796_040_000_000),
        ] {
            assert_eq!(instant(text), Ok(WallMs(ms)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_instant() {
        for text in [
            "",
            "now",
            "2026-11-30",
            "2026-11-30T20:00:00",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "2026-11-30T20:60:00Z",
            "2026-12-31T23:59:60Z",
            "2026-11-30T20:00:00.Z",
            "2026-11-30T20:00:00+8:00",
            "2026-11-30T20:00:00+0800",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "2026-11-30T20:00:00Z ",
            "2026-11-30T20:00:00é",
        ] {
            assert!(instant(text).is_err(), "{text}");
        }
    }

    #[test]
    fn writes_what_it_reads() {
        for day in (0..40_000).step_by(13) {
            for ms in [0, 1, 86_399_999] {
                let at = WallMs(day * 86_400_000 + ms);
                assert_eq!(instant(&instant_text(at)), Ok(at));
            }
        }
    }
}
