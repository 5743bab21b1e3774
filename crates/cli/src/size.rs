//! Sizes as people write them: `1GiB`, `512MiB`, `10GB`, `4096`.

use std::time::{SystemTime, UNIX_EPOCH};

/// The units that are understood, in small letters.
const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Reads a size in bytes.
///
/// # Errors
/// What is wrong with the text, for a person.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let bytes = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    bytes.ok_or_else(|| {
        "expected a whole number of bytes, with or without a unit: 4096, 64KiB, 512MiB, 1GiB (powers of 1024), \
         10GB (powers of 1000)"
            .to_owned()
    })
}

/// A checksum as it is written everywhere: eight digits.
pub fn hex(checksum: u32) -> String {
    format!("{checksum:08x}")
}

/// A size for a person: three digits and a binary unit.
pub fn human_bytes(bytes: u64) -> String {
    const NAMES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut name = 0;
    while value >= 999.5 && name + 1 < NAMES.len() {
        value /= 1024.0;
        name += 1;
    }
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {}", NAMES[name])
}

/// So many of something: `1 segment`, `14 segments`, `2 flushes`.
pub fn counted(count: u64, one: &str) -> String {
    let more = match count {
        1 => "",
        _ if one.ends_with("sh") => "es",
        _ => "s",
    };
    format!("{} {one}{more}", human_count(count))
}

/// A moment, given in milliseconds since 1970, for a person: `2026-11-22 13:14:09.123 UTC`.
pub fn date_time(unix_ms: u64) -> String {
    let moment = i64::try_from(unix_ms / 1000).ok().and_then(|s| time::OffsetDateTime::from_unix_timestamp(s).ok());
    let Some(moment) = moment else { return format!("{unix_ms} ms after 1970") };
    let (date, (hour, minute, second)) = (moment.date(), moment.to_hms());
    format!("{date} {hour:02}:{minute:02}:{second:02}.{:03} UTC", unix_ms % 1000)
}

/// When a server that has run for so many seconds was started, for a person: to the second.
pub fn started(uptime_s: f64) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let moment = date_time((now_s - uptime_s).max(0.0).round() as u64 * 1000);
    moment.replace(".000 ", " ")
}

/// A count for a person: `1,234,567`.
pub fn human_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_to_the_millisecond() {
        assert_eq!(date_time(1_000_000_000_007), "2001-09-09 01:46:40.007 UTC");
        assert_eq!(date_time(u64::MAX), "18446744073709551615 ms after 1970");
    }

    #[test]
    fn sizes_are_read_in_both_kinds_of_units() {
        let sizes = [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65_536),
            ("512 mib", 512 << 20),
            ("1GiB", 1 << 30),
            ("10GB", 10_000_000_000),
            ("2TiB", 2 << 40),
            ("7B", 7),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "GiB", "-1", "1.5GiB", "1X", "1G", "99999999999TiB", "18446744073709551616"] {
            assert!(parse_bytes(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn people_read_three_digits() {
        let sizes = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1_048_575, "1.00 MiB"),
            (64 << 20, "64.0 MiB"),
            (512 << 20, "512 MiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in sizes {
            assert_eq!(human_bytes(bytes), text);
        }
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(human_count),
            ["0".to_owned(), "999".to_owned(), "1,000".to_owned(), "1,234,567".to_owned()]
        );
    }
}
