//! The names of stream files, and what else the recorder keeps in a stream's directory.

use std::fmt;
use std::str::FromStr;

use forebay_mover::events::EventKind;
use forebay_rawdata::Container;
use forebay_types::RunId;

/// The journal of a stream's directory.
pub const JOURNAL_NAME: &str = ".forebay-record.journal";

/// The name of a stream file: `run<8 digits>_<6 digits>.<extension>`. The second number counts the files
/// of the run in the stream, whatever their kind; it is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// The run of all its events.
    pub run: RunId,
    /// Which file of the run and stream.
    pub sequence: u32,
    /// What it holds.
    pub kind: EventKind,
}

impl FileName {
    /// What the file holds besides its events.
    pub fn container(&self) -> Container {
        self.kind.container(self.run, self.sequence)
    }

    /// The name while the file is written, before it is complete.
    pub fn part(&self) -> String {
        format!(".{self}.part")
    }

    /// The name of the file that describes it.
    pub fn sidecar(&self) -> String {
        format!("{self}.json")
    }

    /// The name of the sidecar while it is written.
    pub fn sidecar_part(&self) -> String {
        format!(".{self}.json.part")
    }

    /// The name under which a file is kept whose bytes did not come back as they were written.
    pub fn bad(&self) -> String {
        format!("{self}.bad")
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run{:08}_{:06}.{}", self.run.0, self.sequence, self.kind.extension())
    }
}

/// Text that is no name of a stream file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the name of a stream file, run<number>_<number>.raw, .mdf, .besiii or .parts")]
pub struct NotAFileName {
    /// The text.
    pub text: String,
}

impl FromStr for FileName {
    type Err = NotAFileName;

    fn from_str(text: &str) -> Result<Self, NotAFileName> {
        parse(text).ok_or_else(|| NotAFileName { text: text.chars().take(80).collect() })
    }
}

fn parse(text: &str) -> Option<FileName> {
    let (stem, extension) = text.strip_prefix("run")?.split_once('.')?;
    let kind = EventKind::ALL.into_iter().find(|kind| kind.extension() == extension)?;
    let (run, sequence) = stem.split_once('_')?;
    let name = FileName { run: RunId(run.parse().ok()?), sequence: sequence.parse().ok()?, kind };
    // One name for one file: no sign, no other number of zeros.
    (name.to_string() == text).then_some(name)
}

/// What an entry of a stream's directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// A file under its final name.
    Data(FileName),
    /// A sidecar under its final name.
    Sidecar(FileName),
    /// A file that was being written.
    Part(FileName),
    /// A sidecar that was being written.
    SidecarPart(FileName),
    /// A file that did not come back as it was written.
    Bad(FileName),
    /// Nothing of the recorder's.
    Foreign,
}

impl Entry {
    /// What `name` is.
    pub fn classify(name: &str) -> Entry {
        if let Some(hidden) = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".part")) {
            return match hidden.strip_suffix(".json") {
                Some(data) => data.parse().map_or(Entry::Foreign, Entry::SidecarPart),
                None => hidden.parse().map_or(Entry::Foreign, Entry::Part),
            };
        }
        if let Some(data) = name.strip_suffix(".json") {
            return data.parse().map_or(Entry::Foreign, Entry::Sidecar);
        }
        if let Some(data) = name.strip_suffix(".bad") {
            return data.parse().map_or(Entry::Foreign, Entry::Bad);
        }
        name.parse().map_or(Entry::Foreign, Entry::Data)
    }

    /// The file that it belongs to.
    pub const fn file(self) -> Option<FileName> {
        match self {
            Entry::Data(file)
            | Entry::Sidecar(file)
            | Entry::Part(file)
            | Entry::SidecarPart(file)
            | Entry::Bad(file) => Some(file),
            Entry::Foreign => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_have_the_promised_shape() {
        let file = FileName { run: RunId(1920), sequence: 3, kind: EventKind::Faser };
        assert_eq!(file.to_string(), "run00001920_000003.raw");
        let largest = FileName { run: RunId(u32::MAX), sequence: u32::MAX, kind: EventKind::Parts };
        for file in
            [file, largest, FileName { kind: EventKind::Mdf, ..file }, FileName { kind: EventKind::Besiii, ..file }]
        {
            assert_eq!(file.to_string().parse(), Ok(file));
            assert_eq!(Entry::classify(&file.to_string()), Entry::Data(file));
            assert_eq!(Entry::classify(&file.part()), Entry::Part(file));
            assert_eq!(Entry::classify(&file.sidecar()), Entry::Sidecar(file));
            assert_eq!(Entry::classify(&file.sidecar_part()), Entry::SidecarPart(file));
            assert_eq!(Entry::classify(&file.bad()), Entry::Bad(file));
        }
    }

    #[test]
    fn other_names_are_foreign() {
        let names = [
            "",
            "run1_1.raw",
            "run00000001_000001.txt",
            "run+0000001_000001.raw",
            "run00000001_000001.raw.json.json",
            ".run00000001_000001.raw",
            "run000000001_000001.raw",
            JOURNAL_NAME,
        ];
        for name in names {
            assert_eq!(Entry::classify(name), Entry::Foreign, "{name}");
        }
    }
}
