//! The raw banks of an MDF event, those of a compressed one included.
//!
//! ```text
//! bank     0 marker 0xCBCB u16 | 2 length u16, with this header, without padding | 4 type u8
//!          5 version u8 | 6 source id u16 | 8 body | padding up to a multiple of 4
//! zlib     0 'Z' 'L' 0x08 | 3 compressed size u24 | 6 raw size u24 | 9 zlib stream
//! ```
//!
//! ```
//! use forebay_rawdata::{Format, Generator, banks::BankView};
//! use forebay_types::RunId;
//!
//! let event = Generator::new(Format::Mdf, 1, RunId(7)).compressed(true).next_event();
//! let view = BankView::of(&event.bytes)?;
//! let odin = view.iter().find(|bank| bank.bank_type == 16).expect("an ODIN bank");
//! assert_eq!(&view.bytes()[odin.body()][..4], &7u32.to_le_bytes());
//! # Ok::<(), forebay_rawdata::Problem>(())
//! ```

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use flate2::read::ZlibDecoder;
use forebay_types::SourceId;

use crate::bytes::{u16_at, u24_at};
use crate::error::{NumberUnknown, Problem};
use crate::event::{Format, inspect_event};
use crate::mdf::Header;

pub(crate) const BANK_MARKER: u16 = 0xCBCB;
pub(crate) const BANK_HEADER_BYTES: usize = 8;
pub(crate) const ZLIB_MARKER: [u8; 3] = [b'Z', b'L', 0x08];
pub(crate) const ZLIB_HEADER_BYTES: usize = 9;

/// One raw bank. Ranges are of [`BankView::bytes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bank {
    /// What kind of data it holds; 16 is ODIN, the read-out supervisor's.
    pub bank_type: u8,
    /// Version of the layout of the body.
    pub version: u8,
    /// The read-out board among those of the type.
    pub source_id: u16,
    /// The bank with its header, without padding.
    pub range: Range<usize>,
}

impl Bank {
    /// The source of the fragment that this bank becomes: type << 16 | source id.
    pub fn source(&self) -> SourceId {
        SourceId(u32::from(self.bank_type) << 16 | u32::from(self.source_id))
    }

    /// The bank without its header.
    pub fn body(&self) -> Range<usize> {
        self.range.start + BANK_HEADER_BYTES..self.range.end
    }

    /// Where its padding ends; the last bank of a payload may lack some of it.
    pub(crate) fn padded_end(&self, payload_end: usize) -> usize {
        (self.range.start + self.range.len().next_multiple_of(4)).min(payload_end)
    }
}

/// The banks of one MDF event.
pub struct BankView<'a> {
    bytes: Cow<'a, [u8]>,
    start: usize,
}

impl<'a> BankView<'a> {
    /// Looks into a whole MDF event, after checking all of it. A compressed payload is inflated, to at
    /// most the raw size that it states (its field holds less than 16 MiB).
    ///
    /// # Errors
    /// A damaged event; [`Problem::EventNumber`] with [`NumberUnknown::Mep`] or
    /// [`NumberUnknown::Compression`] when its banks cannot be seen.
    pub fn of(event: &'a [u8]) -> Result<BankView<'a>, Problem> {
        inspect_event(Format::Mdf, event)?;
        let header = Header::parse(event)?;
        match payload(event, &header)? {
            Payload::Plain => Ok(BankView { bytes: Cow::Borrowed(event), start: header.header_bytes }),
            Payload::Inflated(payload) => Ok(BankView { bytes: Cow::Owned(payload), start: 0 }),
            Payload::Unseen(unknown) => Err(unknown.into()),
        }
    }

    /// What the ranges of the banks are ranges of: the event, or its inflated payload.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The banks, in the order of the event.
    pub fn iter(&self) -> impl Iterator<Item = Bank> + '_ {
        // `of` has walked all of them without an error.
        Banks::new(&self.bytes, self.start).map_while(Result::ok)
    }
}

/// Walks the banks of a payload that reaches from `at` to the end; ends after an error. Fewer bytes than
/// a bank's header after the last bank are no bank and no error.
pub(crate) struct Banks<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Banks<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Banks { bytes, at }
    }

    fn bank(&self) -> Result<Bank, Problem> {
        let (at, place) = (self.at, self.at as u64);
        let left = self.bytes.len() - at;
        let marker = u16_at(self.bytes, at);
        if marker != BANK_MARKER {
            let expected = BANK_MARKER.into();
            return Err(Problem::Marker { what: "bank", at: place, expected, found: marker.into() });
        }
        let length = usize::from(u16_at(self.bytes, at + 2));
        if length < BANK_HEADER_BYTES {
            let expected = BANK_HEADER_BYTES as u64;
            return Err(Problem::Short { what: "bank", at: place, expected, found: length as u64 });
        }
        if length > left {
            return Err(Problem::Overrun { what: "bank", at: place, expected: length as u64, found: left as u64 });
        }
        Ok(Bank {
            bank_type: self.bytes[at + 4],
            version: self.bytes[at + 5],
            source_id: u16_at(self.bytes, at + 6),
            range: at..at + length,
        })
    }
}

impl Iterator for Banks<'_> {
    type Item = Result<Bank, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.len() - self.at < BANK_HEADER_BYTES {
            return None;
        }
        let bank = self.bank();
        self.at = match &bank {
            Ok(bank) => bank.padded_end(self.bytes.len()),
            Err(_) => self.bytes.len(),
        };
        Some(bank)
    }
}

/// Where the banks of an event are.
pub(crate) enum Payload {
    /// In the event, after its header.
    Plain,
    /// Here, inflated.
    Inflated(Vec<u8>),
    /// Nowhere to be seen.
    Unseen(NumberUnknown),
}

pub(crate) fn payload(event: &[u8], header: &Header) -> Result<Payload, Problem> {
    if header.mep {
        return Ok(Payload::Unseen(NumberUnknown::Mep));
    }
    if !header.compressed {
        return Ok(Payload::Plain);
    }
    let at = header.header_bytes;
    let payload = &event[at..];
    if payload.len() < ZLIB_HEADER_BYTES {
        return Err(Problem::Short {
            what: "compressed payload",
            at: at as u64,
            expected: ZLIB_HEADER_BYTES as u64,
            found: payload.len() as u64,
        });
    }
    let marker = [payload[0], payload[1], payload[2]];
    if marker != ZLIB_MARKER {
        return Ok(Payload::Unseen(NumberUnknown::Compression { found: marker }));
    }
    let compressed_bytes = u24_at(payload, 3) as usize;
    let left = payload.len() - ZLIB_HEADER_BYTES;
    if compressed_bytes > left {
        return Err(Problem::Overrun {
            what: "compressed payload",
            at: at as u64,
            expected: compressed_bytes as u64,
            found: left as u64,
        });
    }
    let stream = &payload[ZLIB_HEADER_BYTES..ZLIB_HEADER_BYTES + compressed_bytes];
    inflate(stream, u24_at(payload, 6)).map(Payload::Inflated)
}

/// Inflates a zlib stream that must give exactly `raw_bytes`. One byte more is asked for, so that the
/// stream's own checksum is reached and a stream that holds more is seen without inflating it.
fn inflate(stream: &[u8], raw_bytes: u32) -> Result<Vec<u8>, Problem> {
    // A u24 and a growing buffer: a few bytes of file cannot make this allocate 16 MiB at once.
    let expected = u64::from(raw_bytes);
    let mut raw = Vec::new();
    let outcome = ZlibDecoder::new(stream).take(expected + 1).read_to_end(&mut raw);
    let found = raw.len() as u64;
    match outcome {
        Err(_) => Err(Problem::Inflate { expected, found, detail: "the zlib stream is damaged" }),
        Ok(_) if found > expected => Err(Problem::Inflate { expected, found, detail: "the zlib stream goes on" }),
        Ok(_) if found < expected => Err(Problem::Inflate { expected, found, detail: "the zlib stream ends" }),
        Ok(_) => Ok(raw),
    }
}
