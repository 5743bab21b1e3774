//! Little-endian fields in and out of tables.

use forebay_types::{EventId, EventKey, FragmentId, RunId, SourceId, StreamName};

use crate::error::FrameError;

/// Reads the fields of a table in order; bytes after the last known field are an extension and skipped.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    pub(crate) message: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], message: &'static str) -> Self {
        Reader { bytes, message }
    }

    /// Whether nothing is left, as where a peer does not know of the next field.
    pub(crate) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], FrameError> {
        match self.bytes.split_at_checked(bytes) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None => Err(FrameError::Truncated { message: self.message, wanted: bytes, left: self.bytes.len() }),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, FrameError> {
        self.array().map(i64::from_le_bytes)
    }

    /// An event: run, reserved, event.
    pub(crate) fn key(&mut self) -> Result<EventKey, FrameError> {
        let run = self.u32()?;
        self.u32()?;
        Ok(EventKey::new(run, self.u64()?))
    }

    /// A fragment: run, source, event.
    pub(crate) fn id(&mut self) -> Result<FragmentId, FrameError> {
        let (run, source, event) = (self.u32()?, self.u32()?, self.u64()?);
        Ok(FragmentId { run: RunId(run), event: EventId(event), source: SourceId(source) })
    }

    /// A count of `what`, at most `max`. Nothing is reserved for it before its entries are there.
    pub(crate) fn count(&mut self, what: &'static str, max: usize) -> Result<usize, FrameError> {
        let count = self.u32()?;
        let in_range = usize::try_from(count).ok().filter(|count| *count <= max);
        in_range.ok_or(FrameError::TooMany { message: self.message, what, count: u64::from(count), max })
    }

    /// The bytes of `count` entries of `entry_bytes` each.
    pub(crate) fn entries(&mut self, count: usize, entry_bytes: usize) -> Result<&'a [u8], FrameError> {
        self.take(count.saturating_mul(entry_bytes))
    }

    /// `count` entries of `entry_bytes` each, decoded.
    pub(crate) fn list<T>(
        &mut self,
        count: usize,
        entry_bytes: usize,
        mut decode: impl FnMut(&mut Reader<'a>) -> Result<T, FrameError>,
    ) -> Result<Vec<T>, FrameError> {
        let bytes = self.entries(count, entry_bytes)?;
        let message = self.message;
        let mut list = Vec::with_capacity(count); // their bytes are there
        for entry in bytes.chunks_exact(entry_bytes) {
            list.push(decode(&mut Reader::new(entry, message))?);
        }
        Ok(list)
    }

    pub(crate) fn text(&mut self, what: &'static str, bytes: usize, max: usize) -> Result<&'a str, FrameError> {
        if bytes > max {
            return Err(FrameError::TooMany { message: self.message, what, count: bytes as u64, max });
        }
        let message = self.message;
        std::str::from_utf8(self.take(bytes)?).map_err(|_| FrameError::BadText { message, what })
    }

    pub(crate) fn stream(&mut self, bytes: usize) -> Result<StreamName, FrameError> {
        let message = self.message;
        let text = self.text("name of a stream", bytes, forebay_types::limits::STREAM_NAME_BYTES_MAX)?;
        text.parse().map_err(|_| FrameError::BadText { message, what: "name of a stream" })
    }

    pub(crate) fn bad<T>(&self, what: &'static str, value: impl Into<u64>) -> Result<T, FrameError> {
        Err(FrameError::BadValue { message: self.message, what, value: value.into() })
    }

    pub(crate) fn coded<T>(&self, what: &'static str, code: u8, value: Option<T>) -> Result<T, FrameError> {
        value.map_or_else(|| self.bad(what, code), Ok)
    }
}

pub(crate) fn no_payload(message: &'static str, payload: &[u8]) -> Result<(), FrameError> {
    match payload.len() {
        0 => Ok(()),
        found => Err(FrameError::PayloadLength { message, expected: 0, found }),
    }
}

/// Appends little-endian fields.
pub(crate) trait Write {
    fn put_u8(&mut self, value: u8);
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);

    fn put_i64(&mut self, value: i64) {
        self.put_u64(value.cast_unsigned());
    }

    fn put_key(&mut self, key: EventKey) {
        self.put_u32(key.run.0);
        self.put_u32(0);
        self.put_u64(key.event.0);
    }

    fn put_id(&mut self, id: FragmentId) {
        self.put_u32(id.run.0);
        self.put_u32(id.source.0);
        self.put_u64(id.event.0);
    }

    /// A count of our own making, which the limits keep small.
    fn put_count(&mut self, count: usize) {
        self.put_u32(u32::try_from(count).expect("counts of own messages are within the limits"));
    }
}

impl Write for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
}

/// The longest start of `text` of at most `max` bytes that ends between characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
