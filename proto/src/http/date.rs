//! The Date of answers: IMF-fixdate by integer arithmetic, written once a second (RFC 9110 §5.6.7, §6.6.1); and their
//! `server_time`, written once a turn.
//!
//! A shard keeps one `DateCache` and moves it with the turn's wall time.

use crate::answer::{civil_time, rfc3339_ms};

/// The current time as text; starts at the epoch.
#[derive(Clone, Copy, Debug)]
pub struct DateCache {
    wall_ms: u64,
    second: u64,
    text: [u8; 29],
    server_time: [u8; 24],
}

const DAYS: &[u8; 21] = b"SunMonTueWedThuFriSat";
const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";

impl Default for DateCache {
    fn default() -> Self {
        Self {
            wall_ms: 0,
            second: 0,
            text: *b"Thu, 01 Jan 1970 00:00:00 GMT",
            server_time: rfc3339_ms(0),
        }
    }
}

impl DateCache {
    /// Moves to `wall_ms`, milliseconds since the epoch; writes only what changed. Years end at 9999.
    pub fn update(&mut self, wall_ms: u64) {
        if wall_ms == self.wall_ms {
            return;
        }
        self.wall_ms = wall_ms;
        self.server_time = rfc3339_ms(wall_ms);
        let second = wall_ms / 1000;
        if second == self.second {
            return;
        }
        let time = civil_time(wall_ms);
        if second / 86_400 != self.second / 86_400 {
            self.text[..3].copy_from_slice(three_letters(DAYS, time.weekday));
            self.two_digits(5, time.day);
            self.text[8..11].copy_from_slice(three_letters(MONTHS, time.month - 1));
            self.two_digits(12, (time.year / 100) as u8);
            self.two_digits(14, (time.year % 100) as u8);
        }
        self.two_digits(17, time.hour);
        self.two_digits(20, time.minute);
        self.two_digits(23, time.second);
        self.second = second;
    }

    /// The 29 bytes, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn text(&self) -> &[u8; 29] {
        &self.text
    }

    /// The 24 bytes of the same instant in RFC 3339, such as `1994-11-06T08:49:37.000Z`.
    pub fn server_time(&self) -> &[u8; 24] {
        &self.server_time
    }

    /// `value` below 100.
    fn two_digits(&mut self, at: usize, value: u8) {
        self.text[at] = b'0' + value / 10;
        self.text[at + 1] = b'0' + value % 10;
    }
}

fn three_letters(names: &[u8], index: u8) -> &[u8] {
    let at = usize::from(index) * 3;
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
            (253_402_300_799, b"Fri, 31 Dec 9999 23:59:59 GMT"),
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
            assert_eq!(*date.server_time(), rfc3339_ms(second * 1000));
        }
    }
}
