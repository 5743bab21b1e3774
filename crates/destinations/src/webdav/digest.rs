//! What a server says of the checksums of a file.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;

/// Checksums are asked for by both of these: the older is what the servers of the field know.
pub(super) const WANTED: [(&str, &str); 2] =
    [("want-digest", "adler32,crc32c"), ("want-repr-digest", "adler=5, crc32c=5")];

/// The checksums that a server told, of those that are known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digests {
    pub(super) adler32: Option<u32>,
    pub(super) crc32c: Option<u32>,
}

/// What `Digest` (RFC 3230) and `Repr-Digest` (RFC 9530) say. What cannot be read is as not told, and so is what is told in two ways that differ.
pub(super) fn digests(headers: &HeaderMap) -> Digests {
    let (mut adler32, mut crc32c) = (Told::Nothing, Told::Nothing);
    for header in ["digest", "repr-digest"] {
        let lines = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
        for (name, value) in lines.flat_map(|line| line.split(',')).filter_map(|one| one.trim().split_once('=')) {
            let Some(value) = checksum(value) else { continue };
            match name.to_ascii_lowercase().as_str() {
                "adler32" | "adler" => adler32 = adler32.and(value),
                "crc32c" => crc32c = crc32c.and(value),
                _ => {}
            }
        }
    }
    Digests { adler32: adler32.one(), crc32c: crc32c.one() }
}

#[derive(Clone, Copy)]
enum Told {
    Nothing,
    One(u32),
    Differing,
}

impl Told {
    fn and(self, value: u32) -> Told {
        match self {
            Told::Nothing => Told::One(value),
            Told::One(before) if before == value => self,
            _ => Told::Differing,
        }
    }

    fn one(self) -> Option<u32> {
        match self {
            Told::One(value) => Some(value),
            _ => None,
        }
    }
}

/// Four bytes: as hexadecimal digits, as base64, or as base64 between colons.
fn checksum(text: &str) -> Option<u32> {
    let in_colons = text.strip_prefix(':').and_then(|text| text.strip_suffix(':'));
    let text = in_colons.unwrap_or(text);
    if text.ends_with("==") {
        let bytes: [u8; 4] = BASE64_STANDARD.decode(text).ok()?.try_into().ok()?;
        return Some(u32::from_be_bytes(bytes));
    }
    let is_hex =
        in_colons.is_none() && (1..=8).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn of(lines: &[(&'static str, &'static str)]) -> (Option<u32>, Option<u32>) {
        let lines = lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value);
        }
        let told = digests(&headers);
        (told.adler32, told.crc32c)
    }

    #[test]
    fn checksums_are_read_as_servers_write_them() {
        let adler32 = Some(0xc84a_7d2a);
        assert_eq!(of(&[("digest", "adler32=c84a7d2a")]), (adler32, None));
        assert_eq!(of(&[("digest", "ADLER32=C84A7D2A, crc32c=1")]), (adler32, Some(1)));
        assert_eq!(of(&[("digest", "adler32=yEp9Kg==")]), (adler32, None));
        assert_eq!(of(&[("repr-digest", "adler=:yEp9Kg==:, crc32c=:AAAAAQ==:")]), (adler32, Some(1)));
        assert_eq!(of(&[("digest", "adler32=c84a7d2a"), ("repr-digest", "adler=:yEp9Kg==:")]), (adler32, None));
    }

    #[test]
    fn what_is_no_checksum_or_is_told_differently_is_as_not_told() {
        let all = [
            "",
            "adler32",
            "adler32=",
            "adler32=xyz",
            "adler32=c84a7d2a0",
            "adler32=+84a7d2a",
            "adler32=yEp9KgA=",
            "adler32= c84a7d2a",
        ];
        for text in all.into_iter().chain([
            "md5=yEp9Kg==",
            "adler32==",
            "adler32=:c84a7d2a:",
            "adler32=1,adler32=2",
            "adler32=1,adler32=2,adler32=1",
        ]) {
            assert_eq!(of(&[("digest", text)]), (None, None), "{text:?}");
        }
        assert_eq!(of(&[("digest", "adler32=1"), ("digest", "adler32=2,crc32c=3")]), (None, Some(3)));
    }
}
