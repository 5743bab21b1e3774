//! Files whose names were lost.

use forebay_types::{Attributes, FileNumber, NewNode, NodeKind};

use super::Names;
use crate::NamesError;
use crate::change::Part;
use crate::node::{Content, Node};

/// Where files are whose names were lost.
const LOST_AND_FOUND: &[u8] = b"lost+found";

impl Names {
    /// Gives a file a name whose names were lost: its number, in a directory `lost+found` of the root, which is made if need be. Nothing happens when it has one.
    ///
    /// # Errors
    /// As [`Names::make`].
    pub fn adopt(&mut self, number: FileNumber, now_unix_ns: i64) -> Result<(), NamesError> {
        if self.nodes.get(number).is_some_and(|node| node.names > 0) {
            return Ok(());
        }
        let directory = match self.lookup(self.root, LOST_AND_FOUND) {
            Ok(found) => found.found.0,
            Err(_) => {
                let new = NewNode {
                    kind: NodeKind::Directory,
                    mode: 0o755,
                    owner: 0,
                    group: 0,
                    device: 0,
                    target: Vec::new(),
                };
                self.make(self.root, LOST_AND_FOUND, &new, now_unix_ns)?.number
            }
        };
        let name = number.0.to_string();
        if self.directory(directory, name.as_bytes())?.entries.get(name.as_bytes()).is_some() {
            return Err(NamesError::Exists);
        }
        let attributes = Attributes {
            mode: 0o600,
            changed_unix_ns: now_unix_ns,
            written_unix_ns: now_unix_ns,
            accessed_unix_ns: now_unix_ns,
            ..Attributes::default()
        };
        self.numbers.was_given(number);
        let node = self.nodes.get_or_insert_with(number, || Node { attributes, names: 0, content: Content::File });
        node.names = 1;
        self.enter(directory, name.as_bytes(), number, now_unix_ns);
        let entry = Part::Entry { directory, name: name.into_bytes().into(), number };
        let parts = [self.part_of(number), entry, self.part_of(directory)];
        self.change(&parts, &[directory, number]);
        Ok(())
    }
}
