//! The `.json` beside a file: what the file holds, for whoever takes it on.

use forebay_mover::events::EventKind;
use forebay_types::{EventId, EventKey, RunId, StoreUuid, StreamName};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::names::FileName;

/// The largest sidecar that is read, in bytes.
pub const SIDECAR_BYTES_MAX: u64 = 256 << 20;

/// What a sidecar says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sidecar {
    /// The name of the file that it describes.
    pub file: String,
    /// The size of the file in bytes.
    pub size: u64,
    /// The Adler-32 of the file, 8 hexadecimal digits.
    pub adler32: String,
    /// The XXH3 (128 bits) of the file, 32 hexadecimal digits.
    pub xxh3_128: String,
    /// `faser`, `mdf`, or `parts` for events that could not be put together.
    pub format: String,
    /// The store that the events came from.
    pub store: StoreUuid,
    /// The stream.
    pub stream: StreamName,
    /// The run of all events.
    pub run: RunId,
    /// How many events the file holds.
    pub events: u64,
    /// The number of its first event, the smallest.
    pub first_event: EventId,
    /// The number of its last event, the largest.
    pub last_event: EventId,
    /// The events in the order of the file, as ranges of neighbouring numbers, both ends included.
    pub event_ranges: Vec<[u64; 2]>,
    /// How many of the events lack fragments.
    pub incomplete: u64,
    /// The numbers of these events, ascending.
    pub incomplete_events: Vec<u64>,
}

/// A sidecar whose fields do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SidecarError {
    /// It is no JSON object with the fields of a sidecar.
    #[error("not a sidecar: {message}")]
    Json {
        /// What the parser found.
        message: String,
    },
    /// A field that contradicts another, or that is no value of its kind.
    #[error("expected {expected} in the field {field:?}, found {found:?}")]
    Field {
        /// The field.
        field: &'static str,
        /// What belongs there.
        expected: String,
        /// What is there.
        found: String,
    },
}

impl Sidecar {
    /// Reads a sidecar and checks that its fields fit together.
    ///
    /// # Errors
    /// Text that is no sidecar, or one that contradicts itself.
    pub fn parse(text: &[u8]) -> Result<Sidecar, SidecarError> {
        let sidecar: Sidecar =
            serde_json::from_slice(text).map_err(|error| SidecarError::Json { message: error.to_string() })?;
        sidecar.check()?;
        Ok(sidecar)
    }

    /// The sidecar as it is written.
    pub fn to_json(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).expect("a sidecar has no keys that are not strings");
        text.push(b'\n');
        text
    }

    /// Checks that the fields fit together.
    ///
    /// # Errors
    /// The first field that does not fit.
    pub fn check(&self) -> Result<(), SidecarError> {
        let field = |field, expected: String, found: String| Err(SidecarError::Field { field, expected, found });
        let Ok(name) = self.file.parse::<FileName>() else {
            return field("file", "the name of a stream file".into(), self.file.clone());
        };
        if name.run != self.run {
            return field("run", name.run.to_string(), self.run.to_string());
        }
        if EventKind::from_name(&self.format) != Some(name.kind) {
            return field("format", name.kind.name().into(), self.format.clone());
        }
        if parse_hex(&self.adler32, 8).is_none() {
            return field("adler32", "8 hexadecimal digits".into(), self.adler32.clone());
        }
        if parse_hex(&self.xxh3_128, 32).is_none() {
            return field("xxh3_128", "32 hexadecimal digits".into(), self.xxh3_128.clone());
        }
        self.check_events()
    }

    fn check_events(&self) -> Result<(), SidecarError> {
        let field = |field, expected: String, found: String| Err(SidecarError::Field { field, expected, found });
        let mut events: u64 = 0;
        let mut before: Option<u64> = None;
        for &[first, last] in &self.event_ranges {
            if last < first || before.is_some_and(|before| first <= before) {
                let expected = "ascending ranges that do not touch each other".to_owned();
                return field("event_ranges", expected, format!("[{first}, {last}]"));
            }
            before = Some(last);
            events = events.saturating_add((last - first).saturating_add(1));
        }
        if events != self.events || events == 0 {
            return field("events", format!("{events}, as event_ranges give"), self.events.to_string());
        }
        let (first, last) = (self.event_ranges[0][0], self.event_ranges[self.event_ranges.len() - 1][1]);
        if self.first_event.0 != first {
            return field("first_event", first.to_string(), self.first_event.to_string());
        }
        if self.last_event.0 != last {
            return field("last_event", last.to_string(), self.last_event.to_string());
        }
        if self.incomplete != self.incomplete_events.len() as u64 {
            return field("incomplete", self.incomplete_events.len().to_string(), self.incomplete.to_string());
        }
        Ok(())
    }

    /// The name of the file that it describes.
    ///
    /// # Panics
    /// When the sidecar was not checked.
    pub fn file_name(&self) -> FileName {
        self.file.parse().expect("a sidecar is checked when it is read")
    }

    /// What the bytes of the file must give.
    ///
    /// # Panics
    /// When the sidecar was not checked.
    pub fn digest(&self) -> Digest {
        let hex = |text: &str, digits| parse_hex(text, digits).expect("a sidecar is checked when it is read");
        Digest { bytes: self.size, adler32: hex(&self.adler32, 8) as u32, xxh3_128: hex(&self.xxh3_128, 32) }
    }

    /// Its events in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = EventKey> + '_ {
        let run = self.run.0;
        self.event_ranges.iter().flat_map(move |&[first, last]| (first..=last).map(move |e| EventKey::new(run, e)))
    }
}

fn parse_hex(text: &str, digits: usize) -> Option<u128> {
    let plain = text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sidecar() -> Sidecar {
        Sidecar {
            file: "run00000007_000001.raw".into(),
            size: 1234,
            adler32: "00c0ffee".into(),
            xxh3_128: format!("{:032x}", 5),
            format: "faser".into(),
            store: StoreUuid::default(),
            stream: "physics".parse().expect("a name"),
            run: RunId(7),
            events: 4,
            first_event: EventId(3),
            last_event: EventId(9),
            event_ranges: vec![[3, 5], [9, 9]],
            incomplete: 1,
            incomplete_events: vec![4],
        }
    }

    #[test]
    fn sidecars_read_back_and_name_their_events() {
        let sidecar = sidecar();
        assert_eq!(Sidecar::parse(&sidecar.to_json()), Ok(sidecar.clone()));
        let events: Vec<u64> = sidecar.keys().map(|key| key.event.0).collect();
        assert_eq!(events, [3, 4, 5, 9]);
        assert_eq!(sidecar.digest(), Digest { bytes: 1234, adler32: 0x00C0_FFEE, xxh3_128: 5 });
    }

    #[test]
    fn contradictions_are_found() {
        let breaks: [fn(&mut Sidecar); 9] = [
            |s| s.file = "../run00000007_000001.raw".into(),
            |s| s.run = RunId(8),
            |s| s.format = "mdf".into(),
            |s| s.adler32 = "c0ffee".into(),
            |s| s.event_ranges = vec![[0, u64::MAX]],
            |s| s.event_ranges = vec![[5, 3]],
            |s| s.event_ranges.clear(),
            |s| s.last_event = EventId(5),
            |s| s.incomplete = 0,
        ];
        for (number, damage) in breaks.iter().enumerate() {
            let mut sidecar = sidecar();
            damage(&mut sidecar);
            assert!(Sidecar::parse(&sidecar.to_json()).is_err(), "break {number}");
        }
        assert!(Sidecar::parse(b"{").is_err());
    }
}
