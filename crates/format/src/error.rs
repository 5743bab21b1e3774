//! What can be wrong with bytes from a drive.

use crate::version::{FORMAT_VERSION, FORMAT_VERSION_OLDEST, ProgramVersion};

/// Why bytes from a drive are not what they should be. Nothing was changed by finding out; what it
/// means for the data depends on the place, and the caller that knows the place adds it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes do not start as they should: never written, overwritten by something else, or not ours.
    #[error(
        "no {what} here: it would start with {expected:02x?} and this starts with {found:02x?}; the place was never \
         written or belongs to something else"
    )]
    Magic {
        /// What was looked for.
        what: &'static str,
        /// The bytes that it starts with.
        expected: [u8; 8],
        /// The bytes that are there.
        found: [u8; 8],
    },
    /// Written in a version of the format that this program does not read.
    #[error(
        "{what} has format version {found}{} and this program, Forebay {}, reads versions {FORMAT_VERSION_OLDEST} to \
         {FORMAT_VERSION}: nothing is wrong with the data, start the version of the program that wrote it",
        by(program),
        ProgramVersion::OWN
    )]
    Version {
        /// What was read.
        what: &'static str,
        /// The version that is there.
        found: u16,
        /// The program that wrote it; all zeros when that is not known.
        program: ProgramVersion,
    },
    /// A flag that must be understood and is not.
    #[error(
        "{what} has flags {found:#x} and this program understands {known:#x}: nothing is wrong with the data, start \
         the version of the program that wrote it"
    )]
    UnknownFlags {
        /// What was read.
        what: &'static str,
        /// The flags that are there.
        found: u32,
        /// The flags that this program understands.
        known: u32,
    },
    /// A section that must be understood and is not.
    #[error(
        "the checkpoint has a section of kind {kind} that this program does not know and must not skip: nothing is \
         wrong with the data, start the version of the program that wrote it"
    )]
    UnknownSection {
        /// Its kind.
        kind: u16,
    },
    /// A kind of record that this program does not know.
    #[error(
        "a record of kind {found} that this program does not know: nothing is wrong with the data, start the version \
         of the program that wrote it"
    )]
    UnknownRecordKind {
        /// The kind.
        found: u8,
    },
    /// The checksum does not fit the bytes: a torn write or rot.
    #[error(
        "{what} is damaged: its CRC32C should be {expected:08x} and is {found:08x}; another copy or the parity must \
         stand in for it"
    )]
    Crc {
        /// What is damaged.
        what: &'static str,
        /// The CRC that is stored.
        expected: u32,
        /// The CRC of the bytes that are there.
        found: u32,
    },
    /// The digest of a flush does not fit its fields.
    #[error(
        "the flush header's digest should be {expected:032x} and its fields give {found:032x}; its shard cannot be \
         combined with others and parity must stand in for it"
    )]
    Digest {
        /// The digest that is stored.
        expected: u128,
        /// The digest of the fields that are there.
        found: u128,
    },
    /// A number beyond what this format allows.
    #[error("{what} is {found} and the limit is {limit}; the bytes are not what a writer of this format makes")]
    Limit {
        /// What is too large.
        what: &'static str,
        /// The number that is there.
        found: u64,
        /// The largest (or only) number that is allowed.
        limit: u64,
    },
    /// Fewer bytes than the header speaks of.
    #[error("{what} needs {needed} bytes and {available} are there; the rest was never written or not read")]
    Truncated {
        /// What is cut.
        what: &'static str,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are there.
        available: u64,
    },
    /// Two things that must agree do not, under a CRC that is right: a fault of the writer.
    #[error(
        "{what} contradicts itself: {rule} (numbers {found} and {expected}); its CRC is right, so a program wrote it \
         so: keep the drive as it is and report this"
    )]
    Inconsistent {
        /// What contradicts itself.
        what: &'static str,
        /// The rule that is broken.
        rule: &'static str,
        /// The number that breaks the rule.
        found: u64,
        /// The number that it is held against.
        expected: u64,
    },
}

fn by(program: &ProgramVersion) -> String {
    if program.is_known() { format!(", written by Forebay {program},") } else { String::new() }
}

/// `Ok` when `holds`, else [`FormatError::Inconsistent`] with the rule and the two numbers.
pub(crate) fn ensure(
    holds: bool,
    what: &'static str,
    rule: &'static str,
    found: impl Into<u64>,
    expected: impl Into<u64>,
) -> Result<(), FormatError> {
    if holds {
        Ok(())
    } else {
        Err(FormatError::Inconsistent { what, rule, found: found.into(), expected: expected.into() })
    }
}

/// `Ok` when `found` is at most `limit`, else [`FormatError::Limit`].
pub(crate) fn within(what: &'static str, found: u64, limit: u64) -> Result<(), FormatError> {
    if found <= limit { Ok(()) } else { Err(FormatError::Limit { what, found, limit }) }
}
