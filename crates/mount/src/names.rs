//! Calls for names: looked up, made, linked, removed, renamed.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_client::{Answer, Request};
use forebay_protocol::{ChangeName, NameChange, NameLookup, Node};
use forebay_types::{FileNumber, NameOutcome, NewNode, NodeKind, Time};
use fuser::{Errno, INodeNo};

use crate::attributes::{Known, Unanswered, node_of, unexpected};
use crate::errors;
use crate::file::Then;
use crate::machine::{Machine, NAMES_LANE, Reply};
use crate::requests;

/// So long what is known of a directory decides the group of what is made in it.
const DIRECTORY_KEPT: Duration = Duration::from_secs(1);

/// Directories that are remembered.
const DIRECTORIES_MAX: usize = 4096;

/// The bit of a mode by which what is made in a directory gets its group.
const SET_GROUP: u16 = 0o2000;

/// Mode and group of directories that were seen lately.
#[derive(Default)]
pub(crate) struct KnownDirectories(BTreeMap<FileNumber, (Time, u16, u32)>);

impl KnownDirectories {
    /// A node was told.
    pub(crate) fn saw(&mut self, now: Time, node: &Node) {
        if node.view.kind == NodeKind::Directory {
            if self.0.len() >= DIRECTORIES_MAX {
                self.0.clear();
            }
            self.0.insert(node.number, (now, node.view.attributes.mode, node.view.attributes.group));
        }
    }

    fn get(&self, now: Time, number: FileNumber) -> Option<(u16, u32)> {
        let (seen, mode, group) = *self.0.get(&number)?;
        (now.since(seen) < DIRECTORY_KEPT).then_some((mode, group))
    }

    /// A directory is about to change.
    pub(crate) fn forget(&mut self, number: FileNumber) {
        self.0.remove(&number);
    }
}

/// A change that is tried.
struct Trial {
    what: NameChange,
    since: Time,
    refusals: u32,
    /// Under which start of the store it was asked first.
    epoch: u64,
}

impl Machine {
    /// What a name stands for.
    pub(crate) fn lookup(
        &mut self,
        parent: INodeNo,
        name: Vec<u8>,
        then: impl FnOnce(&mut Machine, Result<Known, Errno>) + Send + 'static,
    ) {
        let lookup = NameLookup { directory: Some(self.number(parent)), name };
        self.ask_or_fail(NAMES_LANE, Request::NameLookup(lookup), move |machine, answer| {
            match answer.and_then(node_of) {
                Ok(node) => machine.with_known(node, then),
                Err(error) => then(machine, Err(error)),
            }
        });
    }

    /// What a number is.
    pub(crate) fn ask_kind(
        &mut self,
        number: FileNumber,
        then: impl FnOnce(&mut Machine, Result<NodeKind, Errno>) + Send + 'static,
    ) {
        if self.files.contains_key(&number) {
            return then(self, Ok(NodeKind::File));
        }
        self.ask_or_fail(NAMES_LANE, requests::node(number), move |machine, answer| {
            then(machine, answer.and_then(node_of).map(|node| node.view.kind));
        });
    }

    /// Where a link leads.
    pub(crate) fn read_link(&mut self, inode: INodeNo, reply: Reply<Vec<u8>>) {
        let node = requests::node(self.number(inode));
        self.ask_or_fail(NAMES_LANE, node, move |_, answer| {
            reply(answer.and_then(node_of).map(|node| node.view.target));
        });
    }

    /// Makes something; in a directory that says so it gets that one's group.
    pub(crate) fn make(
        &mut self,
        parent: INodeNo,
        name: Vec<u8>,
        mut new: NewNode,
        then: impl FnOnce(&mut Machine, Result<Node, Errno>) + Send + 'static,
    ) {
        let directory = self.number(parent);
        self.with_directory(directory, move |machine, known| {
            let (mode, group) = match known {
                Ok(known) => known,
                Err(error) => return then(machine, Err(error)),
            };
            if mode & SET_GROUP != 0 {
                new.group = group;
                if new.kind == NodeKind::Directory {
                    new.mode |= SET_GROUP;
                }
            }
            machine.change(NameChange::Make { directory, name, new }, move |machine, made| {
                then(machine, made.and_then(|node| node.ok_or(Errno::EIO)));
            });
        });
    }

    /// Goes on with mode and group of a directory.
    fn with_directory(
        &mut self,
        directory: FileNumber,
        then: impl FnOnce(&mut Machine, Result<(u16, u32), Errno>) + Send + 'static,
    ) {
        if let Some(known) = self.known_directories.get(self.now, directory) {
            return then(self, Ok(known));
        }
        self.ask_or_fail(NAMES_LANE, requests::node(directory), move |machine, answer| {
            let known = answer.and_then(node_of).map(|node| {
                machine.known_directories.saw(machine.now, &node);
                (node.view.attributes.mode, node.view.attributes.group)
            });
            then(machine, known);
        });
    }

    /// Makes something, and tells what the kernel wants to know of it.
    pub(crate) fn make_known(&mut self, parent: INodeNo, name: Vec<u8>, new: NewNode, reply: Reply<Known>) {
        self.make(parent, name, new, move |machine, made| match made {
            // Nothing was written to it.
            Ok(node) => {
                let known = machine.known(&node, None, Unanswered::default());
                reply(Ok(known));
            }
            Err(error) => reply(Err(error)),
        });
    }

    /// Gives something one name more.
    pub(crate) fn link(&mut self, inode: INodeNo, parent: INodeNo, name: Vec<u8>, reply: Reply<Known>) {
        let (number, directory) = (self.number(inode), self.number(parent));
        self.change(NameChange::Link { number, directory, name }, move |machine, linked| match linked {
            Ok(_) => machine.get_attributes(inode, reply),
            Err(error) => reply(Err(error)),
        });
    }

    /// Takes the name of what is no directory away.
    pub(crate) fn remove(&mut self, parent: INodeNo, name: Vec<u8>, reply: Reply<()>) {
        let directory = self.number(parent);
        self.change(NameChange::Remove { directory, name }, move |_, done| reply(done.map(drop)));
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&mut self, parent: INodeNo, name: Vec<u8>, reply: Reply<()>) {
        let directory = self.number(parent);
        self.change(NameChange::RemoveDirectory { directory, name }, move |_, done| reply(done.map(drop)));
    }

    /// Gives something another name.
    pub(crate) fn rename(
        &mut self,
        (from_parent, from): (INodeNo, Vec<u8>),
        (to_parent, to): (INodeNo, Vec<u8>),
        replace: bool,
        reply: Reply<()>,
    ) {
        let (from_directory, to_directory) = (self.number(from_parent), self.number(to_parent));
        let rename = NameChange::Rename { from_directory, from, to_directory, to, replace };
        self.change(rename, move |_, done| reply(done.map(drop)));
    }

    /// Changes names, again and again while the store has no room or too few drives.
    pub(crate) fn change(
        &mut self,
        what: NameChange,
        then: impl FnOnce(&mut Machine, Result<Option<Node>, Errno>) + Send + 'static,
    ) {
        self.try_change(Trial { what, since: self.now, refusals: 0, epoch: self.epoch }, Box::new(then));
    }

    fn try_change(&mut self, trial: Trial, then: Then<Option<Node>>) {
        // One that was refused is another one the next time: the server remembers what it answered.
        let change = self.next_change;
        self.next_change += 1;
        self.changes.insert(change);
        let waits_from = *self.changes.first().expect("it was entered just now");
        let client = self.config.client;
        let request = ChangeName { client, change, waits_from, what: trial.what.clone() };
        self.ask_or_fail(NAMES_LANE, Request::ChangeName(request), move |machine, answer| {
            machine.changes.remove(&change);
            let reply = match answer {
                Ok(Answer::Node(reply)) => reply,
                Ok(other) => unexpected(&other),
                Err(error) => return then(machine, Err(error)),
            };
            if errors::name_may_change(reply.outcome)
                && let Some(wait) = machine.again_after(trial.since, trial.refusals)
            {
                let trial = Trial { refusals: trial.refusals + 1, ..trial };
                return machine.later(wait, move |machine| machine.try_change(trial, then));
            }
            let result = errors::of_name(reply.outcome).map(|()| reply.node);
            let restarted = machine.epoch != trial.epoch;
            let result = if restarted { after_restart(&trial.what, reply.outcome, result) } else { result };
            then(machine, result);
        });
    }
}

/// What was asked again of a server that was started anew may have been done by the one before.
fn after_restart(
    what: &NameChange,
    outcome: NameOutcome,
    result: Result<Option<Node>, Errno>,
) -> Result<Option<Node>, Errno> {
    match (what, outcome) {
        (NameChange::Remove { .. } | NameChange::RemoveDirectory { .. }, NameOutcome::NotFound) => Ok(None),
        (NameChange::Make { .. } | NameChange::Link { .. }, NameOutcome::Exists)
        | (NameChange::Rename { .. }, NameOutcome::NotFound) => {
            tracing::warn!(
                "the server was started anew while a name was changed, and nobody knows whether the change that was asked again ({outcome}) was \
                 done before: the program is told an input/output error. See what is there"
            );
            Err(Errno::EIO)
        }
        _ => result,
    }
}
