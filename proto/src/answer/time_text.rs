//! Wall milliseconds to calendar fields and RFC 3339 text, in integers only.
//!
//! Called by the body encoder, by logs and exports. UTC only; no leap seconds (Unix time has none).

/// Calendar fields of an instant in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilTime {
    /// 1970..=9999.
    pub year: u16,
    /// 1..=12.
    pub month: u8,
    /// 1..=31.
    pub day: u8,
    /// 0..=23.
    pub hour: u8,
    /// 0..=59.
    pub minute: u8,
    /// 0..=59.
    pub second: u8,
    /// 0..=999.
    pub milli: u16,
    /// 0 = Sunday ..= 6 = Saturday.
    pub weekday: u8,
}

/// 9999-12-31T23:59:59.999Z: RFC 3339 §1 has four digits for the year.
const LAST_WALL_MS: u64 = 253_402_300_799_999;

/// The calendar fields of `wall_ms` (milliseconds since 1970-01-01T00:00:00Z); later than the year 9999 reads as its end.
pub fn civil_time(wall_ms: u64) -> CivilTime {
    let wall_ms = wall_ms.min(LAST_WALL_MS);
    // At most 2,932,896 days and 86,399,999 ms: both fit in 32 bits, where division is cheaper.
    let days = (wall_ms / 86_400_000) as u32;
    let ms_of_day = (wall_ms % 86_400_000) as u32;
    // Days to year, month, day with years that begin in March, so that the leap day is the last of its year
    // (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let second_of_day = ms_of_day / 1_000;
    CivilTime {
        year: (era * 400 + year_of_era + u32::from(month <= 2)) as u16,
        month: month as u8,
        day: (day_of_year - (153 * march_month + 2) / 5 + 1) as u8,
        hour: (second_of_day / 3_600) as u8,
        minute: (second_of_day / 60 % 60) as u8,
        second: (second_of_day % 60) as u8,
        milli: (ms_of_day % 1_000) as u16,
        weekday: ((days + 4) % 7) as u8, // 1970-01-01 was a Thursday
    }
}

/// `wall_ms` as RFC 3339 with milliseconds and `Z`: `2026-06-25T12:00:00.123Z`, always 24 bytes of ASCII.
pub fn rfc3339_ms(wall_ms: u64) -> [u8; 24] {
    let time = civil_time(wall_ms);
    let mut out = *b"0000-00-00T00:00:00.000Z";
    put_digits(&mut out[0..4], time.year);
    put_digits(&mut out[5..7], u16::from(time.month));
    put_digits(&mut out[8..10], u16::from(time.day));
    put_digits(&mut out[11..13], u16::from(time.hour));
    put_digits(&mut out[14..16], u16::from(time.minute));
    put_digits(&mut out[17..19], u16::from(time.second));
    put_digits(&mut out[20..23], time.milli);
    out
}

/// Fills `out` with the last `out.len()` decimal digits of `value`.
fn put_digits(out: &mut [u8], mut value: u16) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::{LAST_WALL_MS, civil_time, rfc3339_ms};

    fn text(wall_ms: u64) -> alloc::string::String {
        alloc::string::String::from_utf8(rfc3339_ms(wall_ms).to_vec()).unwrap()
    }

    #[test]
    fn known_instants() {
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(1_782_388_800_123), "2026-06-25T12:00:00.123Z"); // the seed's example
        assert_eq!(text(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(text(4_107_542_400_000), "2100-03-01T00:00:00.000Z"); // 2100 is no leap year
        assert_eq!(text(LAST_WALL_MS), "9999-12-31T23:59:59.999Z");
        assert_eq!(text(u64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(civil_time(784_111_777_000).weekday, 0); // Sun, 06 Nov 1994 (RFC 9110 §5.6.7)
    }

    #[test]
    fn every_day_to_9999_follows_the_day_before() {
        let mut before = civil_time(0);
        for days in 1..=(LAST_WALL_MS / 86_400_000) {
            let today = civil_time(days * 86_400_000);
            let (y, m) = (before.year, before.month);
            let leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
            let month_days = match m {
                2 => 28 + u8::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let expected = if before.day < month_days {
                (y, m, before.day + 1)
            } else if m < 12 {
                (y, m + 1, 1)
            } else {
                (y + 1, 1, 1)
            };
            assert_eq!((today.year, today.month, today.day), expected);
            assert_eq!(today.weekday, (before.weekday + 1) % 7);
            before = today;
        }
    }
}
