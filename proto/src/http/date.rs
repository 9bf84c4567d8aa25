//! The Date of answers: IMF-fixdate by integer arithmetic, written once a second (RFC 9110 §5.6.7, §6.6.1).
//!
//! A shard keeps one `DateCache` and updates it once per turn with the turn's wall time.

/// The current date as text; starts at the epoch.
#[derive(Clone, Copy, Debug)]
pub struct DateCache {
    second: u64,
    text: [u8; 29],
}

/// 9999-12-31T23:59:59Z: the last second with a year of four digits.
const SECOND_MAX: u64 = 253_402_300_799;
const DAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed"; // the epoch was a Thursday
const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";

impl Default for DateCache {
    fn default() -> Self {
        Self {
            second: 0,
            text: *b"Thu, 01 Jan 1970 00:00:00 GMT",
        }
    }
}

impl DateCache {
    /// Moves to `wall_ms`, milliseconds since the epoch; writes only when the second changed. Years end at 9999.
    pub fn update(&mut self, wall_ms: u64) {
        let second = (wall_ms / 1000).min(SECOND_MAX);
        if second == self.second {
            return;
        }
        let day = second / 86_400;
        if day != self.second / 86_400 {
            self.write_day(day);
        }
        let in_day = second % 86_400;
        self.two_digits(17, in_day / 3600);
        self.two_digits(20, in_day / 60 % 60);
        self.two_digits(23, in_day % 60);
        self.second = second;
    }

    /// The 29 bytes, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn text(&self) -> &[u8; 29] {
        &self.text
    }

    /// Days to year, month and day in the Gregorian calendar, with years that start in March so that the leap day is last
    /// (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
    fn write_day(&mut self, day: u64) {
        let from_march_0000 = day + 719_468;
        let era = from_march_0000 / 146_097;
        let day_of_era = from_march_0000 % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = (month_from_march + 2) % 12; // 0 is January
        let year = era * 400 + year_of_era + u64::from(month < 2);

        self.text[..3].copy_from_slice(three_letters(DAYS, day % 7));
        self.two_digits(5, day_of_month);
        self.text[8..11].copy_from_slice(three_letters(MONTHS, month));
        self.two_digits(12, year / 100);
        self.two_digits(14, year % 100);
    }

    /// `value` below 100.
    fn two_digits(&mut self, at: usize, value: u64) {
        self.text[at] = b'0' + (value / 10) as u8;
        self.text[at + 1] = b'0' + (value % 10) as u8;
    }
}

fn three_letters(names: &[u8], index: u64) -> &[u8] {
    let at = index as usize * 3; // below 12 by the callers' remainders
    &names[at..at + 3]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> [u8; 29] {
        let mut date = DateCache::default();
        date.update(second * 1000 + 999);
        *date.text()
    }

    /// Texts by `date -u -d @N "+%a, %d %b %Y %H:%M:%S GMT"` of GNU coreutils.
    #[test]
    fn known_dates() {
        for (second, text) in [
            (0, b"Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, b"Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, b"Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, b"Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_800, b"Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_735_689_599, b"Tue, 31 Dec 2024 23:59:59 GMT"),
            (4_107_542_400, b"Mon, 01 Mar 2100 00:00:00 GMT"),
            (SECOND_MAX, b"Fri, 31 Dec 9999 23:59:59 GMT"),
            (u64::MAX / 1000 - 1, b"Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(at(second), *text);
        }
    }

    #[test]
    fn updating_step_by_step_equals_writing_afresh_also_backwards() {
        let mut date = DateCache::default();
        for second in (0..2_000_000_000)
            .step_by(86_399 * 7)
            .chain([5, 86_400 * 400, 3])
        {
            date.update(second * 1000);
            assert_eq!(*date.text(), at(second), "{second}");
        }
    }
}
