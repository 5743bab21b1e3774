//! The object under a temporary name that says which upload is meant.

use forebay_mover::Sums;
use serde::{Deserialize, Serialize};

/// An upload has no more parts.
pub(super) const PARTS_MAX: usize = 10_000;
/// Longer than a marker with all parts is.
pub(super) const MARKER_BYTES_MAX: u64 = 1 << 20;

/// An upload that waits for its completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Marker {
    /// What it will be, by its whole key.
    pub(super) key: String,
    /// The number that the server gave the upload.
    pub(super) upload: String,
    /// Once all parts are there.
    pub(super) sent: Option<Sent>,
}

/// All parts of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sent {
    /// As the server told them.
    pub(super) part_etags: Vec<String>,
    /// What the whole will have, where the server's ETags are MD5 sums.
    pub(super) etag: Option<String>,
    bytes: u64,
    adler32: u32,
    crc32c: u32,
}

impl Sent {
    pub(super) fn new(part_etags: Vec<String>, etag: Option<String>, sums: Sums) -> Sent {
        let Sums { bytes, adler32, crc32c } = sums;
        Sent { part_etags, etag, bytes, adler32, crc32c }
    }

    pub(super) fn sums(&self) -> Sums {
        Sums { bytes: self.bytes, adler32: self.adler32, crc32c: self.crc32c }
    }
}

impl Marker {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text and numbers")
    }

    /// Nothing when it is no marker.
    pub(super) fn parse(bytes: &[u8]) -> Option<Marker> {
        let marker: Marker = serde_json::from_slice(bytes).ok()?;
        let fits = |sent: &Sent| (1..=PARTS_MAX).contains(&sent.part_etags.len());
        marker.sent.as_ref().is_none_or(fits).then_some(marker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written_and_the_longest_fits() {
        let sums = Sums { bytes: u64::MAX, adler32: u32::MAX, crc32c: u32::MAX };
        let etag = "0123456789abcdef0123456789abcdef".to_owned();
        let sent = Sent::new(vec![format!("\"{etag}\""); PARTS_MAX], Some(format!("{etag}-10000")), sums);
        let marker = Marker { key: "ü".repeat(2000), upload: "x".repeat(1000), sent: Some(sent) };
        let bytes = marker.to_bytes();
        assert!((bytes.len() as u64) < MARKER_BYTES_MAX, "{}", bytes.len());
        assert_eq!(Marker::parse(&bytes), Some(marker));
        for bytes in [b"".as_slice(), b"{}", b"[]", b"{\"key\":\"a\",\"upload\":\"b\",\"sent\":{\"part_etags\":[],\"etag\":null,\"bytes\":0,\"adler32\":1,\"crc32c\":0}}"] {
            assert_eq!(Marker::parse(bytes), None);
        }
    }
}
