//! Records that are kept for others.

use forebay_types::memory::allocated_bytes;

use super::Names;
use crate::change::{KEPT_BYTES_MAX, Part};

/// Memory of the places of a record in the map, never less than it is.
const PLACE_BYTES: usize = 64;

impl Names {
    /// Keeps a record: from now on this is the value of that key. It counts when the journals are durable up to the position that is given.
    ///
    /// # Panics
    /// When both together have more than [`KEPT_BYTES_MAX`] bytes.
    pub fn keep(&mut self, key: &[u8], value: &[u8]) -> u64 {
        assert!(key.len() + value.len() <= KEPT_BYTES_MAX, "a record is small");
        let part = Part::Kept { key: key.into(), value: value.into() };
        self.enter_kept(key.into(), value.into());
        self.change(&[part], &[])
    }

    pub(crate) fn enter_kept(&mut self, key: Box<[u8]>, value: Box<[u8]>) {
        let bytes = |key: usize, value: &[u8]| PLACE_BYTES + allocated_bytes(key) + allocated_bytes(value.len());
        let key_bytes = key.len();
        self.kept_bytes += bytes(key_bytes, &value);
        if let Some(before) = self.kept.insert(key, value) {
            self.kept_bytes -= bytes(key_bytes, &before);
        }
    }

    /// All records that are kept, with their keys.
    pub fn kept(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.kept.iter().map(|(key, value)| (&**key, &**value))
    }
}
