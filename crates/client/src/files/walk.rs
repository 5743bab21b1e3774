//! The way from a path to what it stands for, as a machine: one name after the other, links followed.

use std::collections::VecDeque;

use forebay_protocol::{NameLookup, Node};
use forebay_types::{NAME_BYTES_MAX, NameOutcome, NodeKind};

/// Symbolic links that are followed on one way.
pub const LINKS_MAX: u32 = 40;

/// What is next on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// To ask this, and to say the answer with [`Walk::answered`].
    Ask(NameLookup),
    /// Here it is.
    Found(Node),
    /// There is no such thing, or no way.
    Failed(WalkError),
}

/// Why a path leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkError {
    /// What the names say.
    Name(NameOutcome),
    /// More than [`LINKS_MAX`] symbolic links.
    LinkLoop,
}

enum Part {
    /// Only a directory may stand before it: `.`, or a slash at the end.
    Here,
    /// `..`
    Up,
    Name(Vec<u8>),
}

/// A way to a path. Paths begin at the root, also without a slash, and are any bytes; `.`, `..` and links are as in POSIX.
pub struct Walk {
    todo: VecDeque<Part>,
    /// Where the way has come to; `None`: the root, of which nothing else is known.
    here: Option<Node>,
    follows_last: bool,
    links: u32,
    /// What the last question was about is where the way goes on, whatever it is: a link was followed to come there.
    goes_up: bool,
    failed: Option<WalkError>,
}

/// The parts of a path, in order.
fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Part> + '_ {
    let ends = path.ends_with(b"/").then_some(Part::Here);
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let part = |name: &[u8]| match name {
        b"." => Part::Here,
        b".." => Part::Up,
        name => Part::Name(name.to_vec()),
    };
    names.map(part).chain(ends)
}

/// What the names would say to a name that cannot be one.
pub(super) fn check_name(name: &[u8]) -> Result<(), NameOutcome> {
    let bad = matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, 0 | b'/'));
    if name.len() > NAME_BYTES_MAX {
        Err(NameOutcome::TooLong)
    } else if bad {
        Err(NameOutcome::BadName)
    } else {
        Ok(())
    }
}

impl Walk {
    /// A way to `path`. `follows_last`: also when the last name is a link, what it leads to is meant.
    pub fn new(path: &[u8], follows_last: bool) -> Walk {
        let failed = path.is_empty().then_some(WalkError::Name(NameOutcome::NotFound));
        Walk { todo: parts(path).collect(), here: None, follows_last, links: 0, goes_up: false, failed }
    }

    fn fail(&mut self, outcome: NameOutcome) -> WalkStep {
        self.failed = Some(WalkError::Name(outcome));
        WalkStep::Failed(WalkError::Name(outcome))
    }

    /// What is next.
    pub fn next_step(&mut self) -> WalkStep {
        if let Some(error) = self.failed {
            return WalkStep::Failed(error);
        }
        loop {
            let Some(part) = self.todo.pop_front() else {
                return match self.here.take() {
                    Some(node) => WalkStep::Found(node),
                    None => self.ask(None, Vec::new()),
                };
            };
            if self.here.as_ref().is_some_and(|node| node.view.kind != NodeKind::Directory) {
                return self.fail(NameOutcome::NotDirectory);
            }
            let here = self.here.as_ref().map(|node| (node.number, node.parent));
            match (part, here) {
                (Part::Here, _) | (Part::Up, None) => {}
                (Part::Up, Some((_, parent))) => return self.ask(Some(parent), Vec::new()),
                (Part::Name(name), here) => {
                    if let Err(outcome) = check_name(&name) {
                        return self.fail(outcome);
                    }
                    return self.ask(here.map(|(number, _)| number), name);
                }
            }
        }
    }

    fn ask(&mut self, directory: Option<forebay_types::FileNumber>, name: Vec<u8>) -> WalkStep {
        self.goes_up = name.is_empty();
        WalkStep::Ask(NameLookup { directory, name })
    }

    /// What was answered to the question of the last step: what was found, or why not.
    pub fn answered(&mut self, found: Result<Node, NameOutcome>) {
        let node = match found {
            Ok(node) => node,
            Err(outcome) => {
                self.failed = Some(WalkError::Name(outcome));
                return;
            }
        };
        let is_followed = node.view.kind == NodeKind::Link && !self.goes_up;
        if !is_followed || (self.todo.is_empty() && !self.follows_last) {
            self.here = Some(node);
            return;
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            self.failed = Some(WalkError::LinkLoop);
        }
        let target = node.view.target;
        if target.is_empty() {
            self.failed = Some(WalkError::Name(NameOutcome::NotFound));
        }
        if target.starts_with(b"/") {
            self.here = None;
        }
        parts(&target).rev().for_each(|part| self.todo.push_front(part));
    }
}
