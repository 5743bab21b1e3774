//! How something that has a name is told.

use forebay_client::files::{FileInfo, FileStatus, ListedName, Node, escape, length_of};
use forebay_types::{FileNumber, NodeKind, ReadOutcome};
use serde_json::{Value, json};

use crate::size::{date_time, hex, human_bytes, human_count};

/// Something that has a name, as far as it was asked about.
pub struct Entry {
    /// Its path.
    pub path: Vec<u8>,
    /// Its number.
    pub number: FileNumber,
    /// What it is.
    pub kind: NodeKind,
    /// Of a file, what its lane knows.
    pub info: Option<FileInfo>,
    /// What is kept beside its name.
    pub node: Option<Node>,
}

impl Entry {
    /// What was listed under this path.
    pub fn listed(path: Vec<u8>, ListedName { number, kind, info, node, .. }: ListedName) -> Entry {
        Entry { path, number, kind, info, node }
    }

    /// What is known of this path.
    pub fn known(path: &[u8], FileStatus { node, info }: FileStatus) -> Entry {
        Entry { path: path.to_vec(), number: node.number, kind: node.view.kind, info, node: Some(node) }
    }

    /// How long it is, if that was asked and can be said.
    pub fn length(&self) -> Option<u64> {
        match (self.kind, &self.node) {
            (NodeKind::File, _) => self.info.as_ref().and_then(length_of),
            (NodeKind::Link, Some(node)) => Some(node.view.target.len() as u64),
            _ => None,
        }
    }

    /// When its content changed last, nanoseconds since 1970.
    fn written_unix_ns(&self) -> Option<i64> {
        let (node, info) = (self.node.clone()?, self.info);
        Some(FileStatus { node, info }.written_unix_ns())
    }

    /// For scripts: what was asked.
    pub fn object(&self) -> Value {
        let mut object = json!({ "path": escape(&self.path), "kind": kind_word(self.kind), "number": self.number.0 });
        if let Some(info) = &self.info {
            object["state"] = state(info).into();
            object["crc32c"] = info.sums.map(|(crc, _)| hex(crc)).into();
            object["adler32"] = info.sums.map(|(_, adler32)| hex(adler32)).into();
        }
        if matches!(self.kind, NodeKind::File | NodeKind::Link) && (self.info.is_some() || self.node.is_some()) {
            object["bytes"] = self.length().into();
        }
        if let Some(Node { view, .. }) = &self.node {
            object["mode"] = format!("{:04o}", view.attributes.mode).into();
            object["owner"] = view.attributes.owner.into();
            object["group"] = view.attributes.group.into();
            object["links"] = view.links.into();
            object["written_unix_ns"] = self.written_unix_ns().into();
            object["changed_unix_ns"] = view.attributes.changed_unix_ns.into();
            object["accessed_unix_ns"] = view.attributes.accessed_unix_ns.into();
            if self.kind == NodeKind::Link {
                object["target"] = escape(&view.target).into();
            }
            if matches!(self.kind, NodeKind::CharacterDevice | NodeKind::BlockDevice) {
                object["device"] = view.device.into();
            }
        }
        object
    }

    /// The line of a short list.
    pub fn short(&self, name: &[u8]) -> String {
        let slash = if self.kind == NodeKind::Directory && !name.ends_with(b"/") { "/" } else { "" };
        format!("{}{slash}", escape(name))
    }

    /// The line of a long list.
    pub fn long(&self, name: &[u8]) -> String {
        let Some(node) = &self.node else { return self.short(name) };
        let attributes = &node.view.attributes;
        let bytes = match (self.kind, self.length()) {
            (NodeKind::File, None) => "?".to_owned(),
            (_, length) => human_count(length.unwrap_or(0)),
        };
        let target = match self.kind {
            NodeKind::Link => format!(" -> {}", escape(&node.view.target)),
            _ => String::new(),
        };
        format!(
            "{} {:>3} {:>5} {:>5} {bytes:>15} {} {:<13} {}{target}",
            mode_words(self.kind, attributes.mode),
            node.view.links,
            attributes.owner,
            attributes.group,
            moment(self.written_unix_ns().unwrap_or(0)),
            self.info.as_ref().map_or("-", state),
            self.short(name),
        )
    }

    /// All that is known, line by line.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![escape(&self.path)];
        let mut tell = |what: &str, value: String| lines.push(format!("  {what:<10}{value}"));
        tell("kind", kind_word(self.kind).to_owned());
        tell("number", self.number.0.to_string());
        if let Some(info) = &self.info {
            tell("bytes", self.length().map_or("not known now".to_owned(), bytes_words));
            tell("state", state_words(info).to_owned());
            if info.sealed {
                let sum = |sum: Option<u32>| sum.map_or("being computed: ask again in a moment".to_owned(), hex);
                tell("adler32", sum(info.sums.map(|sums| sums.1)));
                tell("crc32c", sum(info.sums.map(|sums| sums.0)));
            }
        }
        let Some(Node { view, .. }) = &self.node else { return lines };
        if self.kind == NodeKind::Link {
            tell("leads to", escape(&view.target));
        }
        if matches!(self.kind, NodeKind::CharacterDevice | NodeKind::BlockDevice) {
            tell("device", view.device.to_string());
        }
        let attributes = &view.attributes;
        tell("mode", format!("{:04o} {}", attributes.mode, mode_words(self.kind, attributes.mode)));
        tell("owner", format!("user {}, group {}", attributes.owner, attributes.group));
        tell("links", view.links.to_string());
        tell("written", moment(self.written_unix_ns().unwrap_or(0)));
        tell("changed", moment(attributes.changed_unix_ns));
        tell("read", moment(attributes.accessed_unix_ns));
        lines
    }
}

fn bytes_words(bytes: u64) -> String {
    format!("{} ({})", human_count(bytes), human_bytes(bytes))
}

fn moment(unix_ns: i64) -> String {
    date_time(u64::try_from(unix_ns).unwrap_or(0) / 1_000_000)
}

/// The word for a kind.
pub fn kind_word(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Link => "link",
        NodeKind::Pipe => "pipe",
        NodeKind::Socket => "socket",
        NodeKind::CharacterDevice => "character-device",
        NodeKind::BlockDevice => "block-device",
    }
}

/// The word for how a file is.
fn state(info: &FileInfo) -> &'static str {
    match info.outcome {
        ReadOutcome::Deleted => "removed",
        ReadOutcome::Unavailable => "out-of-reach",
        ReadOutcome::Lost => "lost",
        ReadOutcome::Found | ReadOutcome::NotFound if info.sealed => "sealed",
        ReadOutcome::Found | ReadOutcome::NotFound if info.is_written => "being-written",
        ReadOutcome::Found | ReadOutcome::NotFound => "not-sealed",
    }
}

fn state_words(info: &FileInfo) -> &'static str {
    match state(info) {
        "sealed" => "sealed: it never changes again",
        "being-written" => "being written",
        "not-sealed" => "not sealed, and nobody has it open for writing",
        "out-of-reach" => "out of reach: too few of its drives answer (`forebay status`)",
        "lost" => "lost, or what it was is not known any more (`forebay lost`)",
        _ => "removed",
    }
}

/// The mode as `ls` shows it.
fn mode_words(kind: NodeKind, mode: u16) -> String {
    let first = match kind {
        NodeKind::File => '-',
        NodeKind::Directory => 'd',
        NodeKind::Link => 'l',
        NodeKind::Pipe => 'p',
        NodeKind::Socket => 's',
        NodeKind::CharacterDevice => 'c',
        NodeKind::BlockDevice => 'b',
    };
    let mut words = String::from(first);
    for (place, special) in [(6, 's'), (3, 's'), (0, 't')] {
        let bits = mode >> place;
        words.push(if bits & 4 != 0 { 'r' } else { '-' });
        words.push(if bits & 2 != 0 { 'w' } else { '-' });
        words.push(match (bits & 1 != 0, mode >> (9 + place / 3) & 1 != 0) {
            (false, false) => '-',
            (true, false) => 'x',
            (true, true) => special,
            (false, true) => special.to_ascii_uppercase(),
        });
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_shown_as_everywhere() {
        assert_eq!(mode_words(NodeKind::File, 0o644), "-rw-r--r--");
        assert_eq!(mode_words(NodeKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_words(NodeKind::File, 0o6750), "-rwsr-s---");
        assert_eq!(mode_words(NodeKind::Link, 0o4600), "lrwS------");
    }
}
