//! Answers about files and names: each comes in one frame, and says nothing that was not asked for.

use bytes::Bytes;
use forebay_protocol::{FileRead, FileReadReply, FileReply, FileStatReply, Frame, Kind, ListReply, Message, NodeReply};
use forebay_types::limits::FILE_BYTES_MAX;
use forebay_types::{FileOutcome, NAME_BYTES_MAX, NameOutcome, ReadOutcome};

use super::{Answer, Damage, Part, SessionError, broken};

/// What was asked.
pub(super) enum Wanted {
    /// A change of a file other than a write.
    Changed,
    Written {
        start: Option<u64>,
        bytes: u32,
    },
    Bytes(FileRead),
    Infos {
        count: usize,
    },
    /// What a name stands for.
    Found,
    /// A change of a name.
    Renamed,
    Names {
        after: Vec<u8>,
        max: u32,
    },
}

/// Whether an entry of a directory may have this name.
fn is_name(name: &[u8]) -> bool {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    fits && name != b"." && name != b".." && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

impl Wanted {
    pub(super) fn take(
        &self,
        frame: &Frame<'_>,
        damaged: &mut Option<Damage>,
        shared: Option<&Bytes>,
    ) -> Result<Answer, SessionError> {
        let Frame { table, payload, .. } = *frame;
        match (self, frame.kind()) {
            (Wanted::Changed, Some(Kind::FileReply)) => Ok(Answer::File(FileReply::decode(table, payload)?)),
            (Wanted::Written { start, bytes }, Some(Kind::FileReply)) => {
                written(*start, *bytes, FileReply::decode(table, payload)?)
            }
            (Wanted::Bytes(read), Some(Kind::FileReadReply)) => {
                let (reply, bytes) = FileReadReply::decode(table, payload)?;
                if bytes.len() > read.bytes as usize {
                    return broken(format!("{} bytes of a file were read, and {} asked for", bytes.len(), read.bytes));
                }
                if reply.outcome == ReadOutcome::Found {
                    *damaged = Damage::of(Part::File { file: read.file, start: read.start }, reply.crc, bytes);
                }
                let bytes = shared.map_or_else(|| Bytes::copy_from_slice(bytes), |shared| shared.slice_ref(bytes));
                Ok(Answer::FileBytes(reply.outcome, bytes))
            }
            (Wanted::Infos { count }, Some(Kind::FileStatReply)) => {
                infos(*count, FileStatReply::decode(table, payload)?)
            }
            (Wanted::Found, Some(Kind::NodeReply)) => {
                let reply = NodeReply::decode(table, payload)?;
                let is_found = reply.outcome == NameOutcome::Done;
                if is_found != reply.node.is_some() {
                    return broken(format!("a name was looked up and {}, {} a node", reply.outcome, with(!is_found)));
                }
                Ok(Answer::Node(reply))
            }
            (Wanted::Renamed, Some(Kind::NodeReply)) => {
                let reply = NodeReply::decode(table, payload)?;
                if reply.outcome != NameOutcome::Done && reply.node.is_some() {
                    return broken(format!("a name was not changed ({}), {} a node", reply.outcome, with(true)));
                }
                Ok(Answer::Node(reply))
            }
            (Wanted::Names { after, max }, Some(Kind::ListReply)) => {
                names(after, *max, ListReply::decode(table, payload)?)
            }
            _ => broken(format!("frame {:#06x} answers something else than was asked", frame.header.kind)),
        }
    }
}

fn with(is_there: bool) -> &'static str {
    if is_there { "with" } else { "without" }
}

fn written(start: Option<u64>, bytes: u32, reply: FileReply) -> Result<Answer, SessionError> {
    let end = reply.start.checked_add(u64::from(bytes)).filter(|end| *end <= FILE_BYTES_MAX);
    let is_there = end.is_some() && start.is_none_or(|start| start == reply.start);
    if reply.outcome == FileOutcome::Done && !is_there {
        return broken(format!("{bytes} bytes for {start:?} were written at byte {} of a file", reply.start));
    }
    Ok(Answer::File(reply))
}

fn infos(count: usize, reply: FileStatReply) -> Result<Answer, SessionError> {
    if reply.files.len() != count {
        return broken(format!("{count} files were asked for, and {} are known", reply.files.len()));
    }
    match reply.files.iter().find(|file| file.length > FILE_BYTES_MAX) {
        Some(file) => broken(format!("a file has {} bytes, more than any", file.length)),
        None => Ok(Answer::FileInfos(reply.files)),
    }
}

fn names(after: &[u8], max: u32, reply: ListReply) -> Result<Answer, SessionError> {
    let ListReply { outcome, more, entries } = &reply;
    if entries.len() > max as usize {
        return broken(format!("{} names were listed, and {max} asked for", entries.len()));
    }
    if (*outcome != NameOutcome::Done && !entries.is_empty()) || (*more && entries.is_empty()) {
        return broken(format!("{} names were listed of a directory ({outcome}), more to come: {more}", entries.len()));
    }
    if let Some(entry) = entries.iter().find(|entry| !is_name(&entry.name)) {
        return broken(format!("\"{}\" was listed, which is no name", entry.name.escape_ascii()));
    }
    let ascending = entries.windows(2).all(|pair| pair[0].name < pair[1].name);
    let behind = entries.first().is_none_or(|first| first.name[..] > *after);
    if !ascending || !behind { broken("names were listed out of order".to_owned()) } else { Ok(Answer::Names(reply)) }
}
