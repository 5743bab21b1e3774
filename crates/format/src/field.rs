//! Fixed layouts as data: each field has a name, an offset and a type, and the code reads and writes
//! through them alone, so that `docs/format.md` can be compared with what the code does.

use std::marker::PhantomData;

use crate::FormatError;
use crate::error::ensure;
use crate::version::{self, ProgramVersion};
use forebay_types::{DriveUuid, StoreUuid, crc32c};

/// A value of fixed width that can lie on a drive, little-endian.
pub(crate) trait Stored: Copy {
    /// Its width.
    const BYTES: usize;
    /// Its type as `docs/format.md` names it.
    const TYPE: &'static str;
    /// Writes it over `bytes`, which has its width.
    fn store(self, bytes: &mut [u8]);
    /// Reads it from `bytes`, which has its width.
    fn load(bytes: &[u8]) -> Self;
}

macro_rules! stored_number {
    ($($number:ident),+) => { $(
        impl Stored for $number {
            const BYTES: usize = size_of::<$number>();
            const TYPE: &'static str = stringify!($number);
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
            fn load(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$number>()];
                array.copy_from_slice(bytes);
                $number::from_le_bytes(array)
            }
        }
    )+ };
}

stored_number!(u8, u16, u32, u64, u128);

impl<const N: usize> Stored for [u8; N] {
    const BYTES: usize = N;
    const TYPE: &'static str = "bytes";
    fn store(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self);
    }
    fn load(bytes: &[u8]) -> Self {
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        array
    }
}

macro_rules! stored_uuid {
    ($($uuid:ident),+) => { $(
        impl Stored for $uuid {
            const BYTES: usize = 16;
            const TYPE: &'static str = "uuid";
            fn store(self, bytes: &mut [u8]) {
                self.to_bytes().store(bytes);
            }
            fn load(bytes: &[u8]) -> Self {
                $uuid::from_bytes(Stored::load(bytes))
            }
        }
    )+ };
}

stored_uuid!(StoreUuid, DriveUuid);

/// Where a value of type `T` lies in its structure.
pub(crate) struct Field<T> {
    offset: usize,
    value: PhantomData<T>,
}

impl<T: Stored> Field<T> {
    pub(crate) const fn at(offset: usize) -> Self {
        Field { offset, value: PhantomData }
    }

    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn put(&self, structure: &mut [u8], value: T) {
        value.store(&mut structure[self.offset..self.offset + T::BYTES]);
    }

    /// The field of `structure`, which the caller has found to be long enough.
    pub(crate) fn get(&self, structure: &[u8]) -> T {
        T::load(&structure[self.offset..self.offset + T::BYTES])
    }
}

/// A field as `docs/format.md` draws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) name: &'static str,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) kind: &'static str,
}

/// Declares a fixed layout: a module with a [`Field`] for each field, `BYTES`, and `DRAWN` for the test
/// that compares `docs/format.md`. That the fields leave no gap and do not overlap is asserted at
/// compile time; bytes kept for later are fields named ROOM.
macro_rules! layout {
    ($(#[$doc:meta])* $module:ident, $bytes:literal { $($name:ident: $kind:ty = $offset:literal;)+ }) => {
        $(#[$doc])*
        pub(crate) mod $module {
            #[allow(unused_imports, reason = "each layout uses some of them")]
            use forebay_types::{DriveUuid, StoreUuid};
            use crate::field::{Drawn, Field, Stored};

            /// Bytes of the whole.
            pub(crate) const BYTES: usize = $bytes;
            $(
                #[allow(dead_code, reason = "room for later is declared, not used")]
                pub(crate) const $name: Field<$kind> = Field::at($offset);
            )+
            /// Every field in order.
            pub(crate) const DRAWN: &[Drawn] = &[$(Drawn {
                name: stringify!($name),
                offset: $offset,
                bytes: <$kind as Stored>::BYTES,
                kind: <$kind as Stored>::TYPE,
            }),+];

            const _: () = {
                let mut end = 0;
                let mut index = 0;
                while index < DRAWN.len() {
                    assert!(DRAWN[index].offset == end, "a gap or an overlap");
                    end += DRAWN[index].bytes;
                    index += 1;
                }
                assert!(end == BYTES, "the fields do not fill the whole");
            };
        }
    };
}
pub(crate) use layout;

/// As `layout!`, behind what every header starts with.
macro_rules! prefixed_layout {
    ($(#[$doc:meta])* $module:ident, $bytes:literal { $($fields:tt)* }) => {
        crate::field::layout!($(#[$doc])* $module, $bytes {
            MAGIC: [u8; 8] = 0;
            VERSION: u16 = 8;
            ROOM: [u8; 2] = 10;
            FLAGS: u32 = 12;
            HEADER_CRC: u32 = 16;
            HEADER_BYTES: u32 = 20;
            $($fields)*
        });
    };
}
pub(crate) use prefixed_layout;

/// As `prefixed_layout!`, for a header that fills a block of its own: behind the prefix it says whose it is.
macro_rules! header_layout {
    ($(#[$doc:meta])* $module:ident, $bytes:literal { $($fields:tt)+ }) => {
        crate::field::prefixed_layout!($(#[$doc])* $module, $bytes {
            STORE: StoreUuid = 24;
            DRIVE: DriveUuid = 40;
            $($fields)+
        });
    };
}
pub(crate) use header_layout;

prefixed_layout!(
    /// What every header starts with.
    prefix, 24 {}
);

/// The half of a header's flags that a reader must understand; it may ignore the others.
pub(crate) const FLAGS_REQUIRED: u32 = 0xFFFF;

/// What a header is called and how it starts.
pub(crate) struct Kind {
    pub(crate) what: &'static str,
    pub(crate) magic: [u8; 8],
    pub(crate) flags_known: u32,
}

impl Kind {
    /// Writes the prefix of a header that fills `block`, and its CRC. The last step of encoding.
    pub(crate) fn seal(&self, block: &mut [u8], version: u16, flags: u32) {
        prefix::MAGIC.put(block, self.magic);
        prefix::VERSION.put(block, version);
        prefix::FLAGS.put(block, flags);
        prefix::HEADER_BYTES.put(block, u32::try_from(block.len()).expect("headers are smaller than 4 GiB"));
        prefix::HEADER_CRC.put(block, 0);
        let crc = crc32c(block);
        prefix::HEADER_CRC.put(block, crc);
    }

    /// Checks magic and version, and that the header's length is one that `allowed` allows. The CRC is
    /// not looked at: enough to know how much to read, no more.
    pub(crate) fn header_bytes(&self, bytes: &[u8], most: usize) -> Result<usize, FormatError> {
        let what = self.what;
        if bytes.len() < prefix::BYTES {
            return Err(FormatError::Truncated { what, needed: prefix::BYTES as u64, available: bytes.len() as u64 });
        }
        let found = prefix::MAGIC.get(bytes);
        if found != self.magic {
            return Err(FormatError::Magic { what, expected: self.magic, found });
        }
        let found = prefix::VERSION.get(bytes);
        if !version::is_read(found) {
            return Err(FormatError::Version { what, found, program: ProgramVersion::default() });
        }
        let header_bytes = prefix::HEADER_BYTES.get(bytes);
        let found = u64::from(header_bytes);
        if found == 0 || found > most as u64 || !found.is_multiple_of(forebay_types::limits::BLOCK_BYTES as u64) {
            return Err(FormatError::Limit { what: "length of a header", found, limit: most as u64 });
        }
        Ok(header_bytes as usize)
    }

    /// Checks magic, version, length, CRC and flags; gives the header's bytes and its flags.
    pub(crate) fn open<'a>(&self, bytes: &'a [u8], most: usize) -> Result<(&'a [u8], u32), FormatError> {
        let what = self.what;
        let header_bytes = self.header_bytes(bytes, most)?;
        let header = bytes.get(..header_bytes).ok_or(FormatError::Truncated {
            what,
            needed: header_bytes as u64,
            available: bytes.len() as u64,
        })?;
        let expected = prefix::HEADER_CRC.get(header);
        let found = crc_without_field(header);
        if expected != found {
            return Err(FormatError::Crc { what, expected, found });
        }
        let flags = prefix::FLAGS.get(header);
        if flags & FLAGS_REQUIRED & !self.flags_known != 0 {
            return Err(FormatError::UnknownFlags { what, found: flags, known: self.flags_known });
        }
        Ok((header, flags))
    }
}

/// The CRC of a header whose CRC field counts as zero.
fn crc_without_field(header: &[u8]) -> u32 {
    let offset = prefix::HEADER_CRC.offset();
    let mut crc = forebay_types::Crc32c::default();
    crc.update(&header[..offset]);
    crc.update(&[0; 4]);
    crc.update(&header[offset + 4..]);
    crc.finish()
}

/// `Ok` when a flag byte or word of an entry holds nothing that must be understood and is not.
pub(crate) fn only_known(what: &'static str, found: u32, known: u32) -> Result<(), FormatError> {
    if found & !known == 0 { Ok(()) } else { Err(FormatError::UnknownFlags { what, found, known }) }
}

/// Widths that every structure with shards checks: at least one data shard and at most as many
/// together as the format allows, and a unit of whole blocks.
pub(crate) fn check_width(
    what: &'static str,
    data_shards: u8,
    parity_shards: u8,
    unit_bytes: u32,
) -> Result<(), FormatError> {
    use forebay_types::limits::{BLOCK_BYTES, SHARDS_MAX};
    ensure(data_shards >= 1, what, "there is at least one data shard", data_shards, 1u8)?;
    let shards = usize::from(data_shards) + usize::from(parity_shards);
    crate::error::within("number of shards", shards as u64, SHARDS_MAX as u64)?;
    ensure(
        unit_bytes > 0 && (unit_bytes as usize).is_multiple_of(BLOCK_BYTES),
        what,
        "a unit is whole blocks",
        unit_bytes,
        BLOCK_BYTES as u32,
    )
}
