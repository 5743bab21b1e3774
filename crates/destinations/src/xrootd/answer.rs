//! What a server tells of a file, taken apart. It is believed as little as any other's bytes.

use forebay_mover::Told;

use super::trouble::Trouble;

/// XRootD's flags of what has a path.
const IS_DIRECTORY: u32 = 2;
const IS_OTHER: u32 = 4;
const IS_OFFLINE: u32 = 8;
const IS_PENDING: u32 = 64;
const HAS_BACKUP: u32 = 128;

/// Size and kind of what has a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// The size in bytes.
    pub(super) bytes: u64,
    /// Whether it is a file, and no directory, pipe or device.
    pub(super) is_file: bool,
    /// Whether it must come from tape before it can be read.
    pub(super) is_offline: bool,
    /// Whether it was not closed yet, and goes if it is not.
    pub(super) is_pending: bool,
    /// Whether it is on tape, or wherever else the server keeps a copy for good.
    pub(super) has_backup: bool,
}

impl Stat {
    /// From the size and the flags.
    pub(super) fn new(bytes: u64, flags: u32) -> Stat {
        let has = |flag| flags & flag != 0;
        Stat {
            bytes,
            is_file: !has(IS_DIRECTORY | IS_OTHER),
            is_offline: has(IS_OFFLINE),
            is_pending: has(IS_PENDING),
            has_backup: has(HAS_BACKUP),
        }
    }

    /// From what `xrdfs stat` writes: one line `Size:` and one `Flags:`.
    pub(super) fn parse(text: &str) -> Result<Stat, Trouble> {
        let one = |name: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(name)).map(str::trim);
            values.next().filter(|_| values.next().is_none())
        };
        let stat = || {
            let bytes = one("Size:")?.parse().ok()?;
            let flags = one("Flags:")?.split(' ').next()?.parse().ok()?;
            Some(Stat::new(bytes, flags))
        };
        stat().ok_or_else(|| Trouble::senseless("size and flags", text))
    }
}

/// A checksum that the mover has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checksum {
    /// Adler-32.
    Adler32(u32),
    /// CRC32C.
    Crc32c(u32),
}

impl Checksum {
    /// From `adler32 0a1b2c3d`; none where it is of another kind.
    pub(super) fn parse(text: &str) -> Result<Option<Checksum>, Trouble> {
        let senseless = || Trouble::senseless("a checksum", text);
        let words: Vec<&str> = text.trim_end_matches('\0').split_ascii_whitespace().collect();
        let [algorithm, sum] = words[..] else { return Err(senseless()) };
        let of: fn(u32) -> Checksum = match algorithm {
            "adler32" => Checksum::Adler32,
            "crc32c" => Checksum::Crc32c,
            _ => return Ok(None),
        };
        // Some servers leave zeros at the beginning out.
        if sum.len() > 8 || !sum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(senseless());
        }
        u32::from_str_radix(sum, 16).map(|sum| Some(of(sum))).map_err(|_| senseless())
    }

    /// With the size of the file.
    pub(super) fn of(self, bytes: u64) -> Told {
        match self {
            Checksum::Adler32(sum) => Told { bytes, adler32: Some(sum), crc32c: None },
            Checksum::Crc32c(sum) => Told { bytes, adler32: None, crc32c: Some(sum) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "Path:   /a\nId:     13\nSize:   1000000\nMTime:  2026-01-01 00:00:00\nFlags:  48 (IsReadable|IsWritable)\nMode:   0644\n";

    #[test]
    fn what_stat_tells_is_taken_apart() {
        let stat = Stat::parse(STAT).expect("size and flags");
        assert_eq!((stat.bytes, stat.is_file, stat.is_offline, stat.is_pending), (1_000_000, true, false, false));
        let with = |flags: &str| Stat::parse(&STAT.replace("48 (IsReadable|IsWritable)", flags)).expect("flags");
        assert!(!with("51 (XBitSet|IsDir)").is_file && !with("52").is_file);
        assert!(with("112 (POSCPending)").is_pending && with("8 (Offline)").is_offline);
        let taped = with("152 (Offline|IsReadable|BackUpExists)");
        assert!(taped.has_backup && taped.is_offline && !stat.has_backup);
        for text in [
            String::new(),
            STAT.replace("Size:", "Bytes:"),
            STAT.replace("1000000", "-1"),
            STAT.replace("1000000", "99999999999999999999"),
            STAT.replace("48", "x48"),
            format!("{STAT}Size:   3\n"),
        ] {
            assert!(Stat::parse(&text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn checksums_are_taken_apart() {
        let parse = |text| Checksum::parse(text).expect("sense");
        assert_eq!(parse("adler32 024d0127\n"), Some(Checksum::Adler32(0x024d_0127)));
        assert_eq!(parse("adler32 24D0127\0"), Some(Checksum::Adler32(0x024d_0127)));
        assert_eq!(parse("crc32c 364b3fb7"), Some(Checksum::Crc32c(0x364b_3fb7)));
        assert_eq!(parse("md5 900150983cd24fb0d6963f7d28e17f72"), None);
        for text in
            ["", "adler32", "adler32 ", "adler32 +1", "adler32 0x1", "adler32 024d01270", "adler32 1 2", "adler32 ü"]
        {
            assert!(Checksum::parse(text).is_err(), "{text:?}");
        }
    }
}
