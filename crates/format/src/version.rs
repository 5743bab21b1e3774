//! Which versions of the format there are, and which program wrote a store.

use std::fmt;

/// The newest format version that this program reads and writes. It counts for a store as a whole: it stands in the superblock, and no
/// structure on the store's drives has a higher one. A store keeps the version that it has.
pub const FORMAT_VERSION: u16 = 2;

/// Stores of this version, and of later ones, have files, and take no fragments of the run that is kept for them.
pub const FORMAT_VERSION_WITH_FILES: u16 = 2;

/// What checkpoints, flushes and tables of segments say of their version: that since which they are laid out as they are. Whoever lays one of them out
/// anew sees to it that stores of older versions get what they always got.
pub(crate) const LAYOUT_VERSION: u16 = 1;

/// The oldest format version that this program reads.
pub const FORMAT_VERSION_OLDEST: u16 = 1;

const _: () = assert!(FORMAT_VERSION_OLDEST >= 1 && FORMAT_VERSION_OLDEST <= FORMAT_VERSION);
const _: () = assert!(LAYOUT_VERSION <= FORMAT_VERSION_OLDEST, "no structure is newer than its store");

/// Whether this program reads a version.
pub(crate) fn is_read(version: u16) -> bool {
    (FORMAT_VERSION_OLDEST..=FORMAT_VERSION).contains(&version)
}

/// The version of a Forebay program. It is for people: nothing is decided by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramVersion {
    /// Of 1.2.3 the 1.
    pub major: u16,
    /// Of 1.2.3 the 2.
    pub minor: u16,
    /// Of 1.2.3 the 3.
    pub patch: u16,
}

impl ProgramVersion {
    /// This program.
    pub const OWN: ProgramVersion = ProgramVersion {
        major: number(env!("CARGO_PKG_VERSION_MAJOR")),
        minor: number(env!("CARGO_PKG_VERSION_MINOR")),
        patch: number(env!("CARGO_PKG_VERSION_PATCH")),
    };

    /// Whether anybody said it: all zeros say nothing.
    pub fn is_known(&self) -> bool {
        *self != ProgramVersion::default()
    }
}

impl fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

const fn number(digits: &str) -> u16 {
    match u16::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("a part of a version is a small number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_names_itself_as_its_package_does() {
        assert_eq!(ProgramVersion::OWN.to_string(), env!("CARGO_PKG_VERSION"));
        assert!(ProgramVersion::OWN.is_known() && !ProgramVersion::default().is_known());
    }
}
