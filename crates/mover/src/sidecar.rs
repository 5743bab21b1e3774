//! The `.json` beside a file at its destination, and what is registered of it: the same bytes whenever it is made.

use forebay_types::StreamSources;
use serde::Serialize;

use crate::about::{About, Checked};
use crate::custody::ConsignmentId;
use crate::events::{EventList, Events};
use crate::name::{Name, NameError};
use crate::recipe::{Form, Recipe};

/// What the name of a sidecar has behind that of its file.
const ENDING: &str = ".json";

/// The version of what stands in a sidecar.
const VERSION: u32 = 1;

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

#[derive(Serialize)]
struct Sidecar<'a> {
    version: u32,
    name: &'a Name,
    bytes: u64,
    adler32: String,
    crc32c: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uncompressed_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uncompressed_adler32: Option<String>,
    format: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sources: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    event_ranges: Vec<[u64; 2]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    incomplete_ranges: Vec<[u64; 2]>,
    parts: Vec<SidecarPart<'a>>,
    settings: String,
    journal: String,
    consignment: u64,
}

#[derive(Serialize)]
struct SidecarPart<'a> {
    name: &'a Name,
    bytes: u64,
    adler32: String,
    at: u64,
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
        name: &part.name,
        bytes: part.identity.bytes,
        adler32: hex(about.adler32),
        at: about.at,
    });
    let kind = if of.recipe.form == Form::Tar { "tar" } else { "file" };
    let sidecar = Sidecar {
        version: VERSION,
        name: of.name,
        bytes: sums.bytes,
        adler32: hex(sums.adler32),
        crc32c: hex(sums.crc32c),
        compression: about.uncompressed.map(|_| "zstd"),
        uncompressed_bytes: about.uncompressed.map(|of| of.bytes),
        uncompressed_adler32: about.uncompressed.map(|of| hex(of.adler32)),
        format: about.format.as_deref().unwrap_or(kind),
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

    use forebay_types::{EventId, EventKey, RunId};

    use super::*;
    use crate::about::{self, AboutPart, Events};
    use crate::custody::{Part, PartIdentity};
    use crate::sums::Sums;

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
        assert_eq!(key_of(5, ConsignmentId(17)), "0000000000000005-17");
        assert_eq!(name_of(&name).expect("a name").as_str(), "run7/a.raw.json");
        assert!(name_of(&"a".repeat(251).parse().expect("a name")).is_err());
    }
}
