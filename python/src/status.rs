//! What is known of files and names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use forebay_client::files::{FileInfo, FileStatus, ListedName, Node, length_of};
use forebay_types::{NodeKind, ReadOutcome};
use pyo3::prelude::*;

use crate::errors::kebab;

/// What is known of something that has a name.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct Status {
    /// The path, or in a listing the name alone.
    pub name: OsString,
    /// The same for ever, whatever it is called.
    pub number: u64,
    /// `file`, `directory`, `link`, `pipe`, `socket`, `character-device` or `block-device`.
    pub kind: String,
    /// Bytes; None when that cannot be said now.
    pub length: Option<u64>,
    /// Of a file: whether nothing of it changes any more.
    pub sealed: bool,
    /// Of a file: whether somebody has it open for writing.
    pub is_written: bool,
    /// Of a sealed file, once it is known.
    pub crc32c: Option<u32>,
    /// The same.
    pub adler32: Option<u32>,
    /// Of a file: `found`, or why its bytes cannot be read.
    pub outcome: Option<String>,
    /// When its content changed last, nanoseconds since 1970.
    pub written_unix_ns: Option<i64>,
    /// When its attributes or names changed last, nanoseconds since 1970.
    pub changed_unix_ns: Option<i64>,
    /// Permissions, 12 bits.
    pub mode: Option<u16>,
    /// The number of its user.
    pub owner: Option<u32>,
    /// The number of its group.
    pub group: Option<u32>,
    /// Its names.
    pub links: Option<u32>,
    /// Of a link, its target.
    pub target: Option<OsString>,
}

impl Status {
    pub fn of(path: &[u8], status: &FileStatus) -> Status {
        let written = Some(status.written_unix_ns());
        let node = &status.node;
        let made = Status::made(path, node.number.0, node.view.kind, status.info.as_ref(), Some(node));
        Status { length: status.length(), written_unix_ns: written, ..made }
    }

    pub fn listed(entry: &ListedName) -> Status {
        Status::made(&entry.name, entry.number.0, entry.kind, entry.info.as_ref(), entry.node.as_ref())
    }

    fn made(name: &[u8], number: u64, kind: NodeKind, info: Option<&FileInfo>, node: Option<&Node>) -> Status {
        let known = info.filter(|info| info.outcome == ReadOutcome::Found);
        let sums = info.and_then(|info| info.sums);
        let attributes = node.map(|node| &node.view.attributes);
        let target = node.filter(|_| kind == NodeKind::Link).map(|node| OsString::from_vec(node.view.target.clone()));
        Status {
            name: OsString::from_vec(name.to_vec()),
            number,
            kind: kebab(kind),
            length: info.and_then(length_of),
            sealed: info.is_some_and(|info| info.sealed),
            is_written: info.is_some_and(|info| info.is_written),
            crc32c: sums.map(|sums| sums.0),
            adler32: sums.map(|sums| sums.1),
            outcome: info.map(|info| kebab(info.outcome)),
            written_unix_ns: known.map(|info| info.written_unix_ns).or(attributes.map(|kept| kept.written_unix_ns)),
            changed_unix_ns: attributes.map(|kept| kept.changed_unix_ns),
            mode: attributes.map(|kept| kept.mode),
            owner: attributes.map(|kept| kept.owner),
            group: attributes.map(|kept| kept.group),
            links: node.map(|node| node.view.links),
            target,
        }
    }
}

#[pymethods]
impl Status {
    fn __repr__(&self) -> String {
        let length = self.length.map_or_else(|| "length not known".to_owned(), |length| format!("{length} bytes"));
        let sealed = if self.sealed { ", sealed" } else { "" };
        format!("Status({:?}: {}, {length}{sealed})", self.name.display(), self.kind)
    }
}
