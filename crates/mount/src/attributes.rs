//! What the kernel is told of a number.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_client::Answer;
use forebay_protocol::{FileInfo, Node};
use forebay_types::{FileNumber, NodeKind, ReadOutcome};
use fuser::{Errno, FileAttr, FileType, INodeNo};

use crate::errors;
use crate::file::{OpenFile, Then};
use crate::machine::{Machine, NAMES_LANE, Reply};
use crate::requests;

/// How long the kernel believes a name, and what it was told of what may change: others may change them.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// The same of the attributes of a sealed file, of which mode, owner and links alone may change.
const LONG: Duration = Duration::from_secs(60);

/// The size of a block, of which nothing here depends.
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// What is known of something that has a number.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) attributes: FileAttr,
    /// The kernel may believe the attributes for so long.
    pub(crate) believed: Duration,
}

/// What was written of a file and not answered when the store was asked how long it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    end: u64,
    cuts: u64,
}

pub(crate) fn file_type(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::File => FileType::RegularFile,
        NodeKind::Directory => FileType::Directory,
        NodeKind::Link => FileType::Symlink,
        NodeKind::Pipe => FileType::NamedPipe,
        NodeKind::Socket => FileType::Socket,
        NodeKind::CharacterDevice => FileType::CharDevice,
        NodeKind::BlockDevice => FileType::BlockDevice,
    }
}

fn time_of(unix_ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(unix_ns.unsigned_abs());
    if unix_ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

impl Machine {
    /// The number that the kernel has for one of the store: the root has 1 there, and everything else one more than here, where 0 is nobody's.
    pub(crate) fn inode(&self, number: FileNumber) -> INodeNo {
        if number == self.config.root { INodeNo::ROOT } else { INodeNo(number.0.saturating_add(1)) }
    }

    /// The other way round.
    pub(crate) fn number(&self, inode: INodeNo) -> FileNumber {
        if inode == INodeNo::ROOT { self.config.root } else { FileNumber(inode.0.saturating_sub(1)) }
    }

    /// What is known of a node; of a file with what its lane knows.
    pub(crate) fn known(&mut self, node: &Node, info: Option<&FileInfo>, unanswered: Unanswered) -> Known {
        self.known_directories.saw(self.now, node);
        let view = &node.view;
        let kept = view.attributes;
        let mut written = kept.written_unix_ns;
        let mut changed = kept.changed_unix_ns;
        let mut size = view.target.len() as u64;
        let mut is_sealed = false;
        if let Some(info) = info {
            size = info.length.max(unanswered.end);
            is_sealed = info.sealed;
            if info.outcome == ReadOutcome::Found {
                written = info.written_unix_ns;
            }
        }
        if let Some(ours) = self.files.get(&node.number) {
            size = size.max(ours.unanswered_end());
            written = written.max(ours.unsaid_written_unix_ns().unwrap_or(written));
        }
        // Writing changes it, too; a time that was set to lie ahead does not.
        if written <= self.now_unix_ns {
            changed = changed.max(written);
        }
        let inode = self.inode(node.number);
        let attributes = FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: time_of(kept.accessed_unix_ns),
            mtime: time_of(written),
            ctime: time_of(changed),
            crtime: time_of(changed),
            kind: file_type(view.kind),
            perm: kept.mode & 0o7777,
            nlink: view.links,
            uid: kept.owner,
            gid: kept.group,
            rdev: view.device as u32,
            blksize: BLOCK_BYTES,
            flags: 0,
        };
        Known { attributes, believed: if is_sealed { LONG } else { SHORT } }
    }

    /// What is on its way of a file now.
    pub(crate) fn unanswered(&self, number: FileNumber) -> Unanswered {
        let of = |file: &OpenFile| Unanswered { end: file.unanswered_end(), cuts: file.cuts() };
        self.files.get(&number).map(of).unwrap_or_default()
    }

    /// Whether what was on its way was cut since, so that its end means nothing any more.
    pub(crate) fn was_cut_since(&self, number: FileNumber, unanswered: Unanswered) -> bool {
        self.files.get(&number).is_some_and(|file| file.cuts() != unanswered.cuts)
    }

    /// Goes on with what is known of a node, once the lane of a file was asked.
    pub(crate) fn with_known(
        &mut self,
        node: Node,
        then: impl FnOnce(&mut Machine, Result<Known, Errno>) + Send + 'static,
    ) {
        self.with_known_of(node, Box::new(then));
    }

    fn with_known_of(&mut self, node: Node, then: Then<Known>) {
        if node.view.kind != NodeKind::File {
            let known = self.known(&node, None, Unanswered::default());
            return then(self, Ok(known));
        }
        let (file, unanswered) = (node.number, self.unanswered(node.number));
        let lane = self.lane(file);
        self.ask_or_fail(lane, requests::stat(file), move |machine, answer| {
            if machine.was_cut_since(file, unanswered) {
                return machine.with_known_of(node, then);
            }
            let known = answer.and_then(info_of).map(|info| machine.known(&node, Some(&info), unanswered));
            then(machine, known);
        });
    }

    fn get_root(&mut self, reply: Reply<Known>) {
        let number = self.wait_or_remember(|machine| &mut machine.root, reply);
        let root = self.config.root;
        self.ask_or_fail(NAMES_LANE, requests::node(root), move |machine, answer| {
            let known = answer.and_then(node_of).map(|node| machine.known(&node, None, Unanswered::default()));
            machine.remember(|machine| &mut machine.root, number, known);
        });
    }

    /// Tells what is known of a number.
    pub(crate) fn get_attributes(&mut self, inode: INodeNo, reply: Reply<Known>) {
        if inode == INodeNo::ROOT {
            return self.get_root(reply);
        }
        let number = self.number(inode);
        let unanswered = self.unanswered(number);
        // Of what is no file its lane knows nothing.
        let asked = vec![(NAMES_LANE, requests::node(number)), (self.lane(number), requests::stat(number))];
        self.ask_all(asked, move |machine, mut answers| {
            let info = answers.pop().expect("both were asked");
            let node = match answers.pop().expect("both were asked").and_then(node_of) {
                Ok(node) => node,
                Err(error) => return reply(Err(if error == Errno::ENOENT { Errno::ESTALE } else { error })),
            };
            if node.view.kind != NodeKind::File || machine.was_cut_since(number, unanswered) {
                return machine.with_known(node, |_, known| reply(known));
            }
            reply(info.and_then(info_of).map(|info| machine.known(&node, Some(&info), unanswered)));
        });
    }
}

/// Something of which nothing but its kind is known: as an entry of a directory, the kernel asks for it by its name.
pub(crate) fn unknown(kind: FileType) -> Known {
    let attributes = FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    };
    Known { attributes, believed: Duration::ZERO }
}

/// The node that an answer gives.
pub(crate) fn node_of(answer: Answer) -> Result<Node, Errno> {
    let Answer::Node(reply) = answer else { unexpected(&answer) };
    errors::of_name(reply.outcome)?;
    reply.node.ok_or(Errno::EIO)
}

/// What an answer says of one file.
pub(crate) fn info_of(answer: Answer) -> Result<FileInfo, Errno> {
    let Answer::FileInfos(infos) = answer else { unexpected(&answer) };
    let info = infos.into_iter().next().expect("one answer for one file");
    errors::of_read(info.outcome)?;
    Ok(info)
}

/// The session gives each request an answer of its own kind.
pub(crate) fn unexpected(answer: &Answer) -> ! {
    unreachable!("the session answered with {answer:?} to something else")
}
