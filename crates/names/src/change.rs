//! What stands in journals and snapshots: frames of parts, each of which says how something is from then on.
//!
//! A frame is one change: all of its parts count, or none. They are absolute, so that a change may be met twice, or be in a snapshot already.

use forebay_types::{Attributes, FileNumber, NAME_BYTES_MAX, NodeKind, TARGET_BYTES_MAX, crc32c};

/// The longest frame, its head included.
pub const FRAME_BYTES_MAX: usize = 1 << 16;

/// The longest record that is kept for others, its key included.
pub const KEPT_BYTES_MAX: usize = FRAME_BYTES_MAX - 64;

/// Before the parts of a frame: how many bytes they are (u32), their CRC32C (u32).
const HEAD_BYTES: usize = 8;

/// What became so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What a number stands for, but for the entries of a directory.
    Node { number: FileNumber, kind: NodeKind, attributes: Attributes, device: u64, target: Box<[u8]> },
    /// Nothing stands for a number any more.
    NoNode { number: FileNumber },
    /// A name in a directory stands for a number.
    Entry { directory: FileNumber, name: Box<[u8]>, number: FileNumber },
    /// A name is not there any more.
    NoEntry { directory: FileNumber, name: Box<[u8]> },
    /// No number of a lane that is given later has an ordinal below this.
    Numbers { lane: u16, next: u64 },
    /// A snapshot begins: of which generation, for how many lanes.
    Begins { generation: u64, lanes: u16 },
    /// A snapshot is whole: it has so many nodes, entries, and records that are kept for others.
    Ends { nodes: u64, entries: u64, kept: u64 },
    /// A record that is kept for others: this is the value of that key.
    Kept { key: Box<[u8]>, value: Box<[u8]> },
}

/// Why a journal or a snapshot cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// It ends within a frame.
    #[error("it ends within a change: {found} of {needed} bytes are there")]
    Cut {
        /// Bytes that the frame has.
        needed: usize,
        /// Bytes that are there.
        found: usize,
    },
    /// A length that no frame has.
    #[error("a change cannot have {found} bytes")]
    Length {
        /// The length.
        found: u32,
    },
    /// The bytes are not those that were written.
    #[error("a change has the CRC32C {found:08x} and should have {expected:08x}")]
    Checksum {
        /// As it was written.
        expected: u32,
        /// As it is.
        found: u32,
    },
    /// A newer version wrote it.
    #[error("a change has a part of kind {tag}, which this version does not know: a newer one wrote it")]
    Newer {
        /// The kind.
        tag: u8,
    },
    /// What stands there means nothing.
    #[error("a change cannot be understood: {what} at its byte {at}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: usize,
    },
}

mod tag {
    pub(super) const NODE: u8 = 1;
    pub(super) const NO_NODE: u8 = 2;
    pub(super) const ENTRY: u8 = 3;
    pub(super) const NO_ENTRY: u8 = 4;
    pub(super) const NUMBERS: u8 = 5;
    pub(super) const BEGINS: u8 = 6;
    /// The end of a snapshot of names alone, as it was written before others kept something here.
    pub(super) const ENDS_OF_NAMES: u8 = 7;
    pub(super) const KEPT: u8 = 8;
    pub(super) const ENDS: u8 = 9;
}

/// Appends a frame of these parts.
pub(crate) fn encode_frame(parts: &[Part], into: &mut Vec<u8>) {
    let head = into.len();
    into.resize(head + HEAD_BYTES, 0);
    parts.iter().for_each(|part| encode_part(part, into));
    let body = &into[head + HEAD_BYTES..];
    let (bytes, crc) = (body.len() as u32, crc32c(body));
    into[head..head + 4].copy_from_slice(&bytes.to_le_bytes());
    into[head + 4..head + 8].copy_from_slice(&crc.to_le_bytes());
    assert!(into.len() - head <= FRAME_BYTES_MAX, "a change is small");
}

fn encode_part(part: &Part, into: &mut Vec<u8>) {
    let bytes = |into: &mut Vec<u8>, bytes: &[u8]| {
        into.extend((bytes.len() as u16).to_le_bytes());
        into.extend(bytes);
    };
    match part {
        Part::Node { number, kind, attributes, device, target } => {
            into.extend([tag::NODE, kind.code()]);
            into.extend(attributes.mode.to_le_bytes());
            into.extend(attributes.owner.to_le_bytes());
            into.extend(attributes.group.to_le_bytes());
            into.extend(number.0.to_le_bytes());
            into.extend(attributes.changed_unix_ns.to_le_bytes());
            into.extend(attributes.written_unix_ns.to_le_bytes());
            into.extend(attributes.accessed_unix_ns.to_le_bytes());
            into.extend(device.to_le_bytes());
            bytes(into, target);
        }
        Part::NoNode { number } => {
            into.push(tag::NO_NODE);
            into.extend(number.0.to_le_bytes());
        }
        Part::Entry { directory, name, number } => {
            into.push(tag::ENTRY);
            into.extend(directory.0.to_le_bytes());
            into.extend(number.0.to_le_bytes());
            bytes(into, name);
        }
        Part::NoEntry { directory, name } => {
            into.push(tag::NO_ENTRY);
            into.extend(directory.0.to_le_bytes());
            bytes(into, name);
        }
        Part::Numbers { lane, next } => {
            into.push(tag::NUMBERS);
            into.extend(lane.to_le_bytes());
            into.extend(next.to_le_bytes());
        }
        Part::Begins { generation, lanes } => {
            into.push(tag::BEGINS);
            into.extend(generation.to_le_bytes());
            into.extend(lanes.to_le_bytes());
        }
        Part::Ends { nodes, entries, kept } => {
            into.push(tag::ENDS);
            into.extend(nodes.to_le_bytes());
            into.extend(entries.to_le_bytes());
            into.extend(kept.to_le_bytes());
        }
        Part::Kept { key, value } => {
            into.push(tag::KEPT);
            bytes(into, key);
            bytes(into, value);
        }
    }
}

/// The next frame: its parts, and where the one after it begins.
pub(crate) fn decode_frame(bytes: &[u8]) -> Result<(Vec<Part>, usize), JournalError> {
    let cut = |needed| JournalError::Cut { needed, found: bytes.len() };
    let head = bytes.first_chunk::<HEAD_BYTES>().ok_or(cut(HEAD_BYTES))?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let expected = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if length as usize > FRAME_BYTES_MAX - HEAD_BYTES {
        return Err(JournalError::Length { found: length });
    }
    let end = HEAD_BYTES + length as usize;
    let body = bytes.get(HEAD_BYTES..end).ok_or(cut(end))?;
    let found = crc32c(body);
    if found != expected {
        return Err(JournalError::Checksum { expected, found });
    }
    let mut fields = Fields { bytes: body, at: 0 };
    let mut parts = Vec::new();
    while fields.at < body.len() {
        parts.push(decode_part(&mut fields)?);
    }
    Ok((parts, end))
}

struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn malformed<T>(&self, what: &'static str) -> Result<T, JournalError> {
        Err(JournalError::Malformed { what, at: self.at })
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], JournalError> {
        match self.bytes.get(self.at..).and_then(|rest| rest.get(..count)) {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => self.malformed("a field that is not all there"),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], JournalError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u16(&mut self) -> Result<u16, JournalError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, JournalError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, JournalError> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, JournalError> {
        self.array().map(i64::from_le_bytes)
    }

    fn number(&mut self) -> Result<FileNumber, JournalError> {
        match self.u64()? {
            u64::MAX => self.malformed("a number that nothing has"),
            number => Ok(FileNumber(number)),
        }
    }

    fn bytes(&mut self, most: usize) -> Result<Box<[u8]>, JournalError> {
        let count = usize::from(self.u16()?);
        if count > most {
            return self.malformed("a name, a target or a record that is too long");
        }
        Ok(self.take(count)?.into())
    }

    fn name(&mut self) -> Result<Box<[u8]>, JournalError> {
        let name = self.bytes(NAME_BYTES_MAX)?;
        match crate::node::check_name(&name) {
            Ok(()) => Ok(name),
            Err(_) => self.malformed("a name that nothing can have"),
        }
    }
}

fn decode_part(fields: &mut Fields<'_>) -> Result<Part, JournalError> {
    let [tag] = fields.array()?;
    Ok(match tag {
        tag::NODE => {
            let [kind] = fields.array()?;
            let Some(kind) = NodeKind::from_code(kind) else {
                return fields.malformed("a kind that is not known");
            };
            let (mode, owner, group) = (fields.u16()?, fields.u32()?, fields.u32()?);
            let number = fields.number()?;
            let (changed_unix_ns, written_unix_ns, accessed_unix_ns) = (fields.i64()?, fields.i64()?, fields.i64()?);
            let attributes = Attributes { mode, owner, group, changed_unix_ns, written_unix_ns, accessed_unix_ns };
            let device = fields.u64()?;
            Part::Node { number, kind, attributes, device, target: fields.bytes(TARGET_BYTES_MAX)? }
        }
        tag::NO_NODE => Part::NoNode { number: fields.number()? },
        tag::ENTRY => {
            let (directory, number) = (fields.number()?, fields.number()?);
            Part::Entry { directory, name: fields.name()?, number }
        }
        tag::NO_ENTRY => Part::NoEntry { directory: fields.number()?, name: fields.name()? },
        tag::NUMBERS => Part::Numbers { lane: fields.u16()?, next: fields.u64()? },
        tag::BEGINS => Part::Begins { generation: fields.u64()?, lanes: fields.u16()? },
        tag::ENDS => Part::Ends { nodes: fields.u64()?, entries: fields.u64()?, kept: fields.u64()? },
        tag::ENDS_OF_NAMES => Part::Ends { nodes: fields.u64()?, entries: fields.u64()?, kept: 0 },
        tag::KEPT => {
            let key = fields.bytes(KEPT_BYTES_MAX)?;
            Part::Kept { value: fields.bytes(KEPT_BYTES_MAX - key.len())?, key }
        }
        tag => return Err(JournalError::Newer { tag }),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part() -> impl Strategy<Value = Part> {
        let number = || (0..u64::MAX).prop_map(FileNumber);
        let name = "[a-z.]{3,30}".prop_map(|name| name.into_bytes().into_boxed_slice());
        let attributes = any::<(u16, u32, u32, i64, i64, i64)>().prop_map(|(mode, owner, group, c, w, a)| Attributes {
            mode,
            owner,
            group,
            changed_unix_ns: c,
            written_unix_ns: w,
            accessed_unix_ns: a,
        });
        let node = (number(), prop::sample::select(NodeKind::ALL.to_vec()), attributes, any::<u64>(), name.clone());
        prop_oneof![
            node.prop_map(|(number, kind, attributes, device, target)| Part::Node {
                number,
                kind,
                attributes,
                device,
                target
            }),
            number().prop_map(|number| Part::NoNode { number }),
            (number(), name.clone(), number()).prop_map(|(directory, name, number)| Part::Entry {
                directory,
                name,
                number
            }),
            (number(), name).prop_map(|(directory, name)| Part::NoEntry { directory, name }),
            any::<(u16, u64)>().prop_map(|(lane, next)| Part::Numbers { lane, next }),
            any::<(u64, u16)>().prop_map(|(generation, lanes)| Part::Begins { generation, lanes }),
            any::<(u64, u64, u64)>().prop_map(|(nodes, entries, kept)| Part::Ends { nodes, entries, kept }),
            (prop::collection::vec(any::<u8>(), 0..80), prop::collection::vec(any::<u8>(), 0..900))
                .prop_map(|(key, value)| Part::Kept { key: key.into(), value: value.into() }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(parts in prop::collection::vec(part(), 0..20), behind in prop::collection::vec(any::<u8>(), 0..9)) {
            let mut bytes = Vec::new();
            encode_frame(&parts, &mut bytes);
            let end = bytes.len();
            bytes.extend(behind);
            prop_assert_eq!(decode_frame(&bytes), Ok((parts, end)));
            for cut in 0..end {
                let is_cut = matches!(decode_frame(&bytes[..cut]), Err(JournalError::Cut { .. }));
                prop_assert!(is_cut, "cut at {} of {}", cut, end);
            }
        }

        #[test]
        fn any_bytes_give_parts_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..200usize) {
            drop(decode_frame(&bytes));
            // With a right sum, too.
            let mut frame = vec![0; HEAD_BYTES];
            frame.extend(&bytes);
            frame[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            frame[4..8].copy_from_slice(&crc32c(&bytes).to_le_bytes());
            if let Err(JournalError::Cut { .. } | JournalError::Checksum { .. }) = decode_frame(&frame) {
                prop_assert!(false, "it is whole");
            }
            if !bytes.is_empty() {
                frame[HEAD_BYTES + at % bytes.len()] ^= 1;
                let is_found = matches!(decode_frame(&frame), Err(JournalError::Checksum { .. }));
                prop_assert!(is_found);
            }
        }
    }
}
