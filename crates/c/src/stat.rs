//! What is known of files, directories and links.

use forebay_client::files::{FileError, FileInfo, FileStatus, Files, Node};

/// What is known of something that has a name.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct forebay_stat {
    /// Its number, which nothing else in this store ever gets.
    pub number: u64,
    /// How long it is, bytes; of a link, its target.
    pub length: u64,
    /// When its content changed last, nanoseconds since 1970.
    pub written_unix_ns: i64,
    /// When its name, mode or owner changed last, nanoseconds since 1970.
    pub changed_unix_ns: i64,
    /// When it was read last, as far as somebody said so, nanoseconds since 1970.
    pub accessed_unix_ns: i64,
    /// One of `FOREBAY_KIND_...`.
    pub kind: i32,
    /// Permissions, 12 bits.
    pub mode: u32,
    /// The number of its user.
    pub owner: u32,
    /// The number of its group.
    pub group: u32,
    /// How many names it has.
    pub links: u32,
    /// With `has_sums`: the CRC32C of all of it.
    pub crc32c: u32,
    /// With `has_sums`: the adler32 of all of it.
    pub adler32: u32,
    /// Whether `length` is known: that of a file whose drives do not answer is not.
    pub has_length: bool,
    /// Whether it is a file that never changes again.
    pub is_sealed: bool,
    /// Whether somebody has it open for writing.
    pub is_written: bool,
    /// Whether its sums are known: a file has some from a moment after it was sealed.
    pub has_sums: bool,
}

pub(crate) fn stat_of(status: &FileStatus) -> forebay_stat {
    let length = status.length();
    let mut stat = forebay_stat {
        number: status.node.number.0,
        length: length.unwrap_or(0),
        has_length: length.is_some(),
        written_unix_ns: status.written_unix_ns(),
        is_sealed: status.is_sealed(),
        ..of_node(&status.node)
    };
    if let Some(info) = &status.info {
        stat.is_written = info.is_written;
        (stat.crc32c, stat.adler32) = info.sums.unwrap_or_default();
        stat.has_sums = info.sums.is_some();
    }
    stat
}

fn of_node(node: &Node) -> forebay_stat {
    let attributes = &node.view.attributes;
    forebay_stat {
        kind: i32::from(node.view.kind.code()),
        changed_unix_ns: attributes.changed_unix_ns,
        accessed_unix_ns: attributes.accessed_unix_ns,
        mode: u32::from(attributes.mode),
        owner: attributes.owner,
        group: attributes.group,
        links: node.view.links,
        ..forebay_stat::default()
    }
}

/// What is known now of a file that is open, whatever became of its name; `opened`: what was kept of it when it was opened. Errors name it by `path`.
pub(crate) fn status_of(files: &Files, path: &str, opened: &Node) -> Result<FileStatus, FileError> {
    let node = match files.lookup_in(Some(opened.number), b"") {
        // It has lost its name; those who have it open still have it.
        Err(FileError::NotFound { .. }) => opened.clone(),
        found => found.map_err(|error| named(path, error))?,
    };
    let info: Option<FileInfo> = files.infos(&[node.number]).map_err(|error| named(path, error))?.pop();
    Ok(FileStatus { node, info })
}

/// What was asked by number is told by the path that it was opened with.
fn named(path: &str, error: FileError) -> FileError {
    match error {
        FileError::Client { error, .. } => FileError::Client { path: path.to_owned(), error },
        other => other,
    }
}
