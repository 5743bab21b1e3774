//! How bytes go from a client to a server on the same machine: in parts, of which some come through the socket and some lie in memory that the client shares.
//! `docs/protocol.md`, "On one machine", draws them.

/// Bytes of what stands before each part.
pub const PART_HEADER_BYTES: usize = 16;

/// The name of the abstract socket of a server that listens at this port, which has this number in [`crate::HelloReply::local`]. Who is connected to another port, as of a
/// proxy, does not find it.
pub fn local_socket_name(port: u16, number: u64) -> String {
    format!("forebay-{port}-{number:016x}")
}

/// What comes next from a client on the same machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// So many bytes follow.
    Bytes(u32),
    /// So many bytes of the connection lie in the shared memory, from this place on; none of them follow.
    Memory {
        /// Where they begin.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// A descriptor of the shared memory comes with this header.
    Descriptor,
}

/// What no part begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it sent a part of kind {kind} with {bytes} bytes from {offset}, which means nothing to this version")]
pub struct BadPart {
    /// The number of its kind.
    pub kind: u32,
    /// How many bytes it is said to have.
    pub bytes: u32,
    /// Where they are said to begin.
    pub offset: u64,
}

const BYTES: u32 = 1;
const MEMORY: u32 = 2;
const DESCRIPTOR: u32 = 3;

impl Part {
    /// What stands before the part.
    pub fn encode(self) -> [u8; PART_HEADER_BYTES] {
        let (kind, bytes, offset) = match self {
            Part::Bytes(bytes) => (BYTES, bytes, 0),
            Part::Memory { offset, bytes } => (MEMORY, bytes, offset),
            Part::Descriptor => (DESCRIPTOR, 0, 0),
        };
        let mut header = [0; PART_HEADER_BYTES];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[4..8].copy_from_slice(&bytes.to_le_bytes());
        header[8..].copy_from_slice(&offset.to_le_bytes());
        header
    }

    /// What a header says. A part of bytes has some, and the end of memory is a number.
    ///
    /// # Errors
    /// When it says nothing that this version knows: what follows cannot be told apart then.
    pub fn decode(header: &[u8; PART_HEADER_BYTES]) -> Result<Part, BadPart> {
        let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (kind, bytes) = (u32_at(0), u32_at(4));
        let offset = u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32;
        match (kind, bytes, offset) {
            (BYTES, 1.., 0) => Ok(Part::Bytes(bytes)),
            (MEMORY, 1.., _) if offset.checked_add(u64::from(bytes)).is_some() => Ok(Part::Memory { offset, bytes }),
            (DESCRIPTOR, 0, 0) => Ok(Part::Descriptor),
            _ => Err(BadPart { kind, bytes, offset }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_understood_is_encoded_so(header: [u8; PART_HEADER_BYTES], kind in 0u32..5, bytes in 0u32..3, low: bool) {
            let mut header = header;
            header[..4].copy_from_slice(&kind.to_le_bytes());
            if low {
                header[4..8].copy_from_slice(&bytes.to_le_bytes());
                header[8..].fill(0);
            }
            if let Ok(part) = Part::decode(&header) {
                prop_assert_eq!(part.encode(), header);
            }
        }
    }

    #[test]
    fn the_bytes_are_these() {
        let part = Part::Memory { offset: 0x0102_0304_0506_0708, bytes: 0x0A0B_0C0D };
        let bytes = [2, 0, 0, 0, 0x0D, 0x0C, 0x0B, 0x0A, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!((part.encode(), Part::decode(&bytes)), (bytes, Ok(part)));
        assert_eq!(Part::Bytes(258).encode(), [1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Part::Descriptor.encode(), [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(local_socket_name(7420, 0xAB), "forebay-7420-00000000000000ab");
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let refused = |kind: u32, bytes: u32, offset: u64| {
            let mut header = [0; PART_HEADER_BYTES];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[4..8].copy_from_slice(&bytes.to_le_bytes());
            header[8..].copy_from_slice(&offset.to_le_bytes());
            Part::decode(&header) == Err(BadPart { kind, bytes, offset })
        };
        assert!(refused(0, 1, 0) && refused(4, 1, 0), "kinds that are none");
        assert!(refused(BYTES, 0, 0) && refused(MEMORY, 0, 7), "parts without bytes");
        assert!(refused(MEMORY, 2, u64::MAX - 1), "memory has an end");
        assert!(refused(BYTES, 1, 1) && refused(DESCRIPTOR, 1, 0) && refused(DESCRIPTOR, 0, 1), "what must be 0");
    }
}
