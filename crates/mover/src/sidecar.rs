//! The `.json` beside a file at its destination, and what is registered of it: the same bytes whenever it is made.

use forebay_types::{EventKey, StoreUuid, StreamName, StreamSources};
use serde::{Deserialize, Serialize};

use crate::about::{About, Checked};
use crate::custody::ConsignmentId;
use crate::events::{EventList, Events};
use crate::name::{Name, NameError};
use crate::recipe::{Form, Recipe};
use crate::sums::Sums;

/// What the name of a sidecar has behind that of its file.
const ENDING: &str = ".json";

/// The version of what stands in a sidecar.
const VERSION: u32 = 1;

/// A longer text is not read: it is no sidecar of a file that can be.
pub const SIDECAR_BYTES_MAX: u64 = 256 << 20;

/// The name of the sidecar of a file.
///
/// # Errors
/// A name that has no room for it.
pub fn name_of(file: &Name) -> Result<Name, NameError> {
    file.with_ending(ENDING)
}

/// The key under which a file is registered: one for each consignment of all journals.
pub fn key_of(token: u64, id: ConsignmentId) -> String {
    format!("{token:016x}-{id}")
}

/// What a sidecar says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sidecar {
    /// The version of what stands in it: 1.
    pub version: u32,
    /// The file's name, below its destination.
    pub name: Name,
    /// Its size as it is stored.
    pub bytes: u64,
    /// Its Adler-32, 8 hexadecimal digits.
    pub adler32: String,
    /// Its CRC32C, 8 hexadecimal digits.
    pub crc32c: String,
    /// `zstd` where it is compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Its size before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncompressed_bytes: Option<u64>,
    /// Its Adler-32 before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncompressed_adler32: Option<String>,
    /// `faser`, `mdf`, `besiii`; `parts` of events that could not be put together; `tar` of an archive, `file` of all else.
    pub format: String,
    /// The store that accepted events come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreUuid>,
    /// Their stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamName>,
    /// The run of its events, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// The luminosity block of accepted events, where their run has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// What of the events is in it, where that is less than all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<String>,
    /// How many events it has, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// Their numbers in the order of the file, as ranges of neighbours, both ends included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_ranges: Vec<[u64; 2]>,
    /// Those of them that lack fragments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete_ranges: Vec<[u64; 2]>,
    /// The files that it is made of.
    pub parts: Vec<SidecarPart>,
    /// Stands for the settings of its route that decide about its bytes, 16 hexadecimal digits.
    pub settings: String,
    /// The number of the journal, 16 hexadecimal digits.
    pub journal: String,
    /// The number of the consignment in it.
    pub consignment: u64,
}

/// A file that one is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SidecarPart {
    /// Its name at the source.
    pub name: Name,
    /// Its size.
    pub bytes: u64,
    /// Its Adler-32, 8 hexadecimal digits.
    pub adler32: String,
    /// Where it begins in the file.
    pub at: u64,
}

/// A text that is no sidecar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SidecarError {
    /// It is no JSON object with the keys of one.
    #[error("it is no sidecar: {0}")]
    Json(String),
    /// What one key says cannot be, or is not what another one says.
    #[error("it is a sidecar that cannot be right: expected {expected} in {key:?}, found {found}")]
    Key {
        /// The key.
        key: &'static str,
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
}

impl Sidecar {
    /// Reads one, and looks whether its keys fit together.
    ///
    /// # Errors
    /// A text that is none.
    pub fn parse(text: &[u8]) -> Result<Sidecar, SidecarError> {
        let sidecar: Sidecar = serde_json::from_slice(text).map_err(|error| SidecarError::Json(error.to_string()))?;
        let wrong =
            |key, expected, found: &dyn ToString| Err(SidecarError::Key { key, expected, found: found.to_string() });
        if sidecar.version != VERSION {
            return wrong("version", "1", &sidecar.version);
        }
        for (key, sum) in [("adler32", &sidecar.adler32), ("crc32c", &sidecar.crc32c)] {
            if sum_of(sum).is_none() {
                return wrong(key, "8 hexadecimal digits", sum);
            }
        }
        for (key, ranges) in
            [("event_ranges", &sidecar.event_ranges), ("incomplete_ranges", &sidecar.incomplete_ranges)]
        {
            let mut before = None;
            for &[first, last] in ranges {
                // Those of merged files may lie in any order.
                let is_behind = sidecar.stream.is_none() || before.is_none_or(|before| before < first);
                if last < first || !is_behind {
                    return wrong(key, "ascending ranges", &format!("[{first},{last}]"));
                }
                before = Some(last);
            }
        }
        let in_ranges = count(&sidecar.event_ranges);
        let agree = sidecar.event_ranges.is_empty() || sidecar.events.is_none() || in_ranges == sidecar.events;
        if in_ranges.is_none() || !agree {
            return wrong("events", "as many as its ranges have", &format!("{:?}", sidecar.events));
        }
        Ok(sidecar)
    }

    /// What the bytes of the file come to.
    pub fn sums(&self) -> Sums {
        let sum = |text| sum_of(text).expect("it was looked at");
        Sums { bytes: self.bytes, adler32: sum(&self.adler32), crc32c: sum(&self.crc32c) }
    }

    /// Its events in the order of the file, where they are said.
    pub fn keys(&self) -> impl Iterator<Item = EventKey> + '_ {
        let of_run = |run| move |event| EventKey::new(run, event);
        let ranges = self.run.map(|run| self.event_ranges.iter().flat_map(|[a, b]| *a..=*b).map(of_run(run)));
        ranges.into_iter().flatten()
    }

    /// How many events stand before this one in the file, if it is there.
    pub fn place_of(&self, key: EventKey) -> Option<u64> {
        let mut before = 0;
        for &[first, last] in self.event_ranges.iter().filter(|_| self.run == Some(key.run.0)) {
            if (first..=last).contains(&key.event.0) {
                return Some(before + (key.event.0 - first));
            }
            before += last - first + 1;
        }
        None
    }

    /// Whether fragments of this event of it are missing.
    pub fn is_incomplete(&self, key: EventKey) -> bool {
        self.incomplete_ranges.iter().any(|[first, last]| (first..=last).contains(&&key.event.0))
    }
}

/// How many events ranges have; nothing where that is more than there are numbers.
fn count(ranges: &[[u64; 2]]) -> Option<u64> {
    ranges.iter().try_fold(0u64, |sum, [first, last]| sum.checked_add((last - first).checked_add(1)?))
}

fn sum_of(text: &str) -> Option<u32> {
    let is_hex = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

/// What a sidecar is made of.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The journal's own number.
    pub token: u64,
    /// The number of the consignment in it.
    pub id: ConsignmentId,
    /// The file's name at its destinations.
    pub name: &'a Name,
    /// What it is made of, and how.
    pub recipe: &'a Recipe,
    /// What its check found.
    pub checked: &'a Checked,
    /// Stands for the settings of its route that decide about its bytes.
    pub settings: u64,
}

/// The text of a sidecar, one line.
pub fn text(of: &Subject) -> String {
    let (sums, about) = (&of.checked.sums, &of.checked.about);
    let events = Told::of(of.recipe, about);
    let parts = of.recipe.parts().iter().zip(&about.parts).map(|(part, about)| SidecarPart {
        name: part.name.clone(),
        bytes: part.identity.bytes,
        adler32: hex(about.adler32),
        at: about.at,
    });
    let kind = if of.recipe.form == Form::Tar { "tar" } else { "file" };
    let sidecar = Sidecar {
        version: VERSION,
        name: of.name.clone(),
        bytes: sums.bytes,
        adler32: hex(sums.adler32),
        crc32c: hex(sums.crc32c),
        compression: about.uncompressed.map(|_| "zstd".to_owned()),
        uncompressed_bytes: about.uncompressed.map(|of| of.bytes),
        uncompressed_adler32: about.uncompressed.map(|of| hex(of.adler32)),
        format: about.format.clone().unwrap_or_else(|| kind.to_owned()),
        store: of.recipe.events().map(|events| events.store),
        stream: of.recipe.events().map(|events| events.stream.clone()),
        run: events.run,
        block: of.recipe.events().and_then(|events| events.block),
        sources: of.recipe.events().and_then(sources_of),
        events: events.count,
        event_ranges: events.ranges,
        incomplete_ranges: events.incomplete,
        parts: parts.collect(),
        settings: format!("{:016x}", of.settings),
        journal: format!("{:016x}", of.token),
        consignment: of.id.0,
    };
    let mut text = serde_json::to_string(&sidecar).expect("text and numbers");
    text.push('\n');
    text
}

/// What of the events is in the file, where that is less than all.
fn sources_of(events: &Events) -> Option<String> {
    (events.making.sources != StreamSources::All).then(|| events.making.sources.to_string())
}

/// What is told of the events of a file.
#[derive(Default)]
struct Told {
    run: Option<u32>,
    count: Option<u64>,
    ranges: Vec<[u64; 2]>,
    /// Those that lack fragments.
    incomplete: Vec<[u64; 2]>,
}

impl Told {
    fn of(recipe: &Recipe, about: &About) -> Told {
        let ranges = |list: &EventList| list.ranges_from(0).map(|(first, last)| [first, last]).collect();
        match (recipe.events(), &about.events) {
            (Some(events), _) => Told {
                run: Some(events.run.0),
                count: Some(events.list.len()),
                ranges: ranges(&events.list),
                incomplete: ranges(&events.incomplete),
            },
            (None, Some(events)) => Told {
                run: events.run.map(|run| run.0),
                count: Some(events.count),
                ranges: events.ranges.iter().map(|range| range.map(|id| id.0)).collect(),
                incomplete: Vec::new(),
            },
            (None, None) => Told::default(),
        }
    }
}

fn hex(sum: u32) -> String {
    format!("{sum:08x}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_types::{EventId, RunId};

    use super::*;
    use crate::about::{self, AboutPart, Events};
    use crate::custody::{Part, PartIdentity};

    #[test]
    fn a_sidecar_says_what_is_known_and_no_more() {
        let mut events = Events::default();
        (5..8).for_each(|event| events.note(EventKey { run: RunId(7), event: EventId(event) }));
        let identity = PartIdentity { bytes: 9, modified_ns: 1, inode: 2 };
        let part = Part { name: "run7/ü.raw".parse().expect("a name"), identity, changed_ns: 3 };
        let recipe = Recipe::of_files(Form::Concatenated, vec![part.clone(), part], None);
        let name = "run7/a.raw".parse().expect("a name");
        let parts = vec![AboutPart { at: 0, adler32: 1 }, AboutPart { at: 9, adler32: 2 }];
        let about = about::About { format: Some("faser".to_owned()), events: Some(events), parts, uncompressed: None };
        let checked = Checked { sums: Sums { bytes: 18, adler32: 0xAB, crc32c: u32::MAX }, about: Arc::new(about) };
        let of =
            Subject { token: 5, id: ConsignmentId(17), name: &name, recipe: &recipe, checked: &checked, settings: 6 };
        let expected = concat!(
            r#"{"version":1,"name":"run7/a.raw","bytes":18,"adler32":"000000ab","crc32c":"ffffffff","format":"faser","run":7,"events":3,"event_ranges":[[5,7]],"#,
            r#""parts":[{"name":"run7/ü.raw","bytes":9,"adler32":"00000001","at":0},{"name":"run7/ü.raw","bytes":9,"adler32":"00000002","at":9}],"#,
            r#""settings":"0000000000000006","journal":"0000000000000005","consignment":17}"#,
            "\n"
        );
        assert_eq!(text(&of), expected);
        let read = Sidecar::parse(expected.as_bytes()).expect("a sidecar");
        assert_eq!(
            (serde_json::to_string(&read).expect("text") + "\n", read.sums()),
            (expected.to_owned(), checked.sums)
        );
        let key = |run, event| EventKey::new(run, event);
        assert!(read.keys().eq([key(7, 5), key(7, 6), key(7, 7)]));
        assert_eq!(
            [key(7, 5), key(7, 7), key(7, 8), key(8, 5)].map(|key| read.place_of(key)),
            [Some(0), Some(2), None, None]
        );
        assert_eq!(key_of(5, ConsignmentId(17)), "0000000000000005-17");
        assert_eq!(name_of(&name).expect("a name").as_str(), "run7/a.raw.json");
        assert!(name_of(&"a".repeat(251).parse().expect("a name")).is_err());
    }

    #[test]
    fn a_text_that_contradicts_itself_is_refused_with_the_key_that_does() {
        let right = concat!(
            r#"{"version":1,"name":"physics/a.parts","bytes":18,"adler32":"000000ab","crc32c":"ffffffff","format":"parts","#,
            r#""store":"00000000-0000-0000-0000-000000000007","stream":"physics","run":7,"events":4,"event_ranges":[[3,5],[9,9]],"#,
            r#""incomplete_ranges":[[4,4]],"parts":[],"settings":"0000000000000006","journal":"0000000000000005","consignment":17}"#
        );
        let read = Sidecar::parse(right.as_bytes()).expect("a sidecar");
        let key = |event| EventKey::new(7, event);
        assert_eq!([3, 4, 5].map(|event| read.is_incomplete(key(event))), [false, true, false]);
        for (from, to, key) in [
            ("\"version\":1", "\"version\":2", "\"version\""),
            ("000000ab", "+00000ab", "\"adler32\""),
            ("ffffffff", "fffffff", "\"crc32c\""),
            ("[9,9]", "[5,9]", "\"event_ranges\""),
            ("[9,9]", "[9,8]", "\"event_ranges\""),
            ("[[4,4]]", "[[4,3]]", "\"incomplete_ranges\""),
            ("\"events\":4", "\"events\":5", "\"events\""),
            ("[[3,5],[9,9]]", "[[0,18446744073709551615]]", "\"events\""),
            ("\"physics\"", "\"../x\"", "no sidecar"),
        ] {
            let wrong = Sidecar::parse(right.replace(from, to).as_bytes()).expect_err("it is wrong").to_string();
            assert!(wrong.contains(key), "{from} -> {to}: {wrong}");
        }
    }
}
