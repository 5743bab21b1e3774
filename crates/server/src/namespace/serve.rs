//! What clients ask of names.

use forebay_engine::{Planted, planted};
use forebay_names::{Names, NamesError, Rename};
use forebay_protocol::limits::NAMES_MAX;
use forebay_protocol::{
    ChangeName, ErrorReply, ListReply, NameChange, NameEntry, NameList, NameLookup, Node, NodeReply, RunList,
    StreamList,
};
use forebay_runs::{Asked, Refusal};
use forebay_types::{FileNumber, NameOutcome, NodeKind};

use super::recent::Answered;
use super::{Loaded, Namespace, State};

/// A request for names.
#[derive(Clone, Debug)]
pub(crate) enum NameRequest {
    Lookup(NameLookup),
    List(NameList),
    Change(ChangeName),
    /// Something that is to be done with a run or a stream.
    Books(Box<Asked>),
    Runs(RunList),
    Streams(StreamList),
}

/// An answer to one.
#[derive(Clone, Debug)]
pub(crate) enum NameAnswer {
    Node(NodeReply),
    List(ListReply),
    Json(String),
    Error(ErrorReply),
}

/// An answer, and up to where the journals must be durable before it is told.
type Answer = (NameAnswer, u64);

impl Namespace {
    /// Answers a request, which has this number; `None`: later, by [`Namespace::take_answers`]. Only when [`Namespace::serves`].
    ///
    /// # Panics
    /// When there are no names.
    pub(crate) fn answer(&mut self, key: u64, request: &NameRequest, now_unix_ns: i64) -> Option<Answer> {
        let (read_only, index_bytes_max) = (self.read_only, self.index_bytes_max);
        let State::Loaded(loaded) = &mut self.state else { panic!("names are asked when they are there") };
        Some(match request {
            NameRequest::Lookup(lookup) => loaded.lookup(lookup),
            NameRequest::List(list) => loaded.list(list),
            NameRequest::Change(change) => {
                let refusal = if read_only {
                    Some(NameOutcome::ReadOnly)
                } else if !makes_more(&change.what) {
                    None
                } else if loaded.writer.is_full() {
                    Some(NameOutcome::NoSpace)
                } else {
                    (loaded.memory_bytes() > index_bytes_max).then_some(NameOutcome::IndexFull)
                };
                loaded.change(change, refusal, now_unix_ns)
            }
            NameRequest::Runs(list) => loaded.books.list_runs(list),
            NameRequest::Streams(list) => loaded.books.list_streams(list),
            NameRequest::Books(asked) => {
                let index_is_full = loaded.memory_bytes() > index_bytes_max;
                let full = index_is_full.then_some(Refusal::IndexFull);
                let full = if loaded.writer.is_full() { Some(Refusal::NoSpace) } else { full };
                loaded.books.ask(key, (**asked).clone(), full, now_unix_ns, &mut loaded.names);
                return None;
            }
        })
    }
}

/// Whether a change takes room for longer than it takes to remove what it made.
fn makes_more(change: &NameChange) -> bool {
    matches!(change, NameChange::Make { .. } | NameChange::Link { .. })
}

/// What is refused changes nothing, and waits for nothing.
fn failed(outcome: NameOutcome) -> Answer {
    (NameAnswer::Node(NodeReply { outcome, node: None }), 0)
}

fn node_of(names: &Names, number: FileNumber) -> Option<(Node, u64)> {
    let found = names.node(number).ok()?;
    let parent = names.parent(number).unwrap_or_default();
    Some((Node { number, parent, view: found.found }, found.stable_at))
}

impl Loaded {
    fn lookup(&self, lookup: &NameLookup) -> Answer {
        let directory = lookup.directory.unwrap_or(self.names.root());
        let found = if lookup.name.is_empty() {
            self.names.node(directory).map(|found| (directory, found.stable_at))
        } else {
            self.names.lookup(directory, &lookup.name).map(|found| (found.found.0, found.stable_at))
        };
        match found {
            Ok((number, stable_at)) => {
                let node = node_of(&self.names, number).map(|(node, _)| node);
                (NameAnswer::Node(NodeReply { outcome: NameOutcome::Done, node }), stable_at)
            }
            Err(error) => {
                // That a name is gone is told when that is durable, too.
                let stable_at = self.names.node(directory).map_or(0, |found| found.stable_at);
                (NameAnswer::Node(NodeReply { outcome: error.into(), node: None }), stable_at)
            }
        }
    }

    fn list(&self, list: &NameList) -> Answer {
        let directory = list.directory.unwrap_or(self.names.root());
        let max = NAMES_MAX.min(list.max as usize);
        let after = (!list.after.is_empty()).then_some(&list.after[..]);
        match self.names.list(directory, after, max + 1) {
            Ok(found) => {
                let more = found.found.len() > max;
                let entries = found.found.into_iter().take(max);
                let entries =
                    entries.map(|e| NameEntry { number: e.number, kind: e.kind, name: e.name.into_vec() }).collect();
                let reply = ListReply { outcome: NameOutcome::Done, more, entries };
                (NameAnswer::List(reply), found.stable_at)
            }
            Err(error) => (NameAnswer::List(ListReply { outcome: error.into(), more: false, entries: Vec::new() }), 0),
        }
    }

    /// `refusal`: why it is not made now, unless it was before. That is remembered like any other answer: a copy of what was refused must not be done later.
    fn change(&mut self, change: &ChangeName, refusal: Option<NameOutcome>, now_unix_ns: i64) -> Answer {
        let known = self.recent.get(change.client, change.change);
        let is_stale = self.recent.is_stale(change.client, change.change, change.waits_from);
        if known.is_none() && is_stale {
            return failed(NameOutcome::Stale);
        }
        let answered = known.unwrap_or_else(|| {
            let answered = match refusal {
                Some(refusal) => self.refused(&change.what, refusal),
                None => self.make_change(&change.what, now_unix_ns).map_or_else(
                    // What stands in the way may not be durable yet.
                    |error| Answered { outcome: error.into(), number: None, position: self.names.position() },
                    |(number, position)| Answered { outcome: NameOutcome::Done, number, position },
                ),
            };
            self.recent.insert(change.client, change.change, answered);
            answered
        });
        let node = answered.number.and_then(|number| node_of(&self.names, number));
        // What is told of it may have changed again meanwhile.
        let position = node.as_ref().map_or(0, |(_, stable_at)| *stable_at).max(answered.position);
        let position = if planted(Planted::NameAnsweredEarly) { 0 } else { position };
        let node = node.map(|(node, _)| node);
        (NameAnswer::Node(NodeReply { outcome: answered.outcome, node }), position)
    }

    /// Why something is not made: that there is something else in the way comes before want of room. So who made a name, and asks again of a server that knows nothing of
    /// that, is not told that it is not there.
    fn refused(&self, change: &NameChange, refusal: NameOutcome) -> Answered {
        let nothing_there = Answered { outcome: refusal, number: None, position: 0 };
        let (NameChange::Make { directory, name, .. } | NameChange::Link { directory, name, .. }) = change else {
            return nothing_there;
        };
        match self.names.lookup(directory_of(&self.names, *directory), name).map_err(NameOutcome::from) {
            Ok(found) => Answered { outcome: NameOutcome::Exists, position: found.stable_at, ..nothing_there },
            Err(NameOutcome::NotFound) => nothing_there,
            Err(outcome) => Answered { outcome, position: self.names.position(), ..nothing_there },
        }
    }

    /// What is changed, unless it is gone, and where in the journals that stands.
    fn make_change(&mut self, change: &NameChange, now: i64) -> Result<(Option<FileNumber>, u64), NamesError> {
        let names = &mut self.names;
        let (number, done) = match change {
            NameChange::Make { directory, name, new } => {
                let directory = directory_of(names, *directory);
                let made = names.make(directory, name, new, now)?;
                return Ok((Some(made.number), made.position));
            }
            NameChange::Link { number, directory, name } => {
                let directory = directory_of(names, *directory);
                (Some(*number), names.link(*number, directory, name, now)?)
            }
            NameChange::Remove { directory, name } => (None, names.remove(directory_of(names, *directory), name, now)?),
            NameChange::RemoveDirectory { directory, name } => {
                (None, names.remove_directory(directory_of(names, *directory), name, now)?)
            }
            NameChange::Rename { from_directory, from, to_directory, to, replace } => {
                let (from_directory, to_directory) =
                    (directory_of(names, *from_directory), directory_of(names, *to_directory));
                let number = names.lookup(from_directory, from)?.found.0;
                let rename = Rename { from_directory, from, to_directory, to, replace: *replace };
                (Some(number), names.rename(rename, now)?)
            }
            NameChange::Set { number, set } => {
                let number = directory_of(names, *number);
                (Some(number), names.set(number, *set, now)?)
            }
        };
        if let Some(unnamed) = done.unnamed {
            let kind = names.node(unnamed).map_or(NodeKind::File, |node| node.found.kind);
            self.unnamed.entry(done.position).or_default().push((unnamed, kind));
        }
        Ok((number, done.position))
    }
}

/// On the wire the root is number 0.
fn directory_of(names: &Names, number: FileNumber) -> FileNumber {
    if number.0 == 0 { names.root() } else { number }
}
