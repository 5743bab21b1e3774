//! What a client of files makes of the answers.

use std::collections::BTreeMap;

use forebay_client::{Answer, SessionEvent};
use forebay_protocol::{FileInfo, ListReply, Node, NodeReply};
use forebay_types::{Adler32, FileNumber, FileOutcome, NameOutcome, ReadOutcome, Time, crc32c};

use super::{Asked, CLIENTS_MAX, FileClient, Known, SHARED, Sealed, owner_of};

impl FileClient {
    pub(super) fn take_answers(&mut self, _: Time) {
        for lane in 0..self.links.lanes.len() {
            while let Some(event) = self.links.lanes[lane].take_event() {
                match event {
                    SessionEvent::Answer { request, answer } => {
                        let asked = self.asked.remove(&(lane, request)).expect("it was asked");
                        self.operations += 1;
                        self.take(asked, answer);
                    }
                    SessionEvent::Failed { request, .. } => {
                        let asked = self.asked.remove(&(lane, request)).expect("it was asked");
                        self.give_up(asked);
                    }
                    SessionEvent::Greeted(_) | SessionEvent::PutsFailed { .. } => {}
                }
            }
        }
    }

    /// Nobody knows whether it was done, or will be.
    fn give_up(&mut self, asked: Asked) {
        match asked {
            Asked::MakeKnown(_) | Asked::LookUpKnown(_) | Asked::List | Asked::Fence => self.is_naming = false,
            Asked::Make(_) | Asked::Link(..) | Asked::Remove(_) | Asked::Rename(..) => {
                self.is_naming = false;
                self.is_doubtful(self.after(&asked));
            }
            Asked::LetGo(file, opening) => self.unnamed.push((file, opening)),
            Asked::Write(file, change, ..) => {
                let known = self.files.get_mut(&file).expect("it is known");
                known.is_answered(change);
                known.is_open = false;
            }
            Asked::Open(file, _)
            | Asked::Close(file)
            | Asked::Cut(file, _)
            | Asked::Seal(file)
            | Asked::Read(file, ..)
            | Asked::Stat(file) => {
                let known = self.files.get_mut(&file).expect("it is known");
                (known.waits, known.is_open) = (false, false);
            }
        }
    }

    fn is_doubtful(&mut self, after: BTreeMap<String, Option<FileNumber>>) {
        (self.doubt, self.is_fenced) = (Some(after), false);
    }

    /// The names when a change is made; of what is made the number is not known.
    fn after(&self, asked: &Asked) -> BTreeMap<String, Option<FileNumber>> {
        let mut names: BTreeMap<String, Option<FileNumber>> =
            self.names.iter().map(|(name, number)| (name.clone(), Some(*number))).collect();
        match asked {
            Asked::Make(name) => drop(names.entry(name.clone()).or_insert(None)),
            Asked::Link(name, number) => drop(names.entry(name.clone()).or_insert(Some(*number))),
            Asked::Remove(name) => drop(names.remove(name)),
            Asked::Rename(from, to) if self.names.get(from) != self.names.get(to) => {
                let number = names.remove(from).flatten();
                names.insert(to.clone(), number);
            }
            _ => {}
        }
        names
    }

    fn take(&mut self, asked: Asked, answer: Answer) {
        match (asked, answer) {
            (Asked::MakeKnown(name) | Asked::LookUpKnown(name), Answer::Node(reply)) => self.take_known(name, reply),
            (Asked::Fence, Answer::Node(reply)) => {
                self.is_naming = false;
                self.is_fenced = reply.outcome == NameOutcome::Done;
            }
            (Asked::List, Answer::Names(reply)) => self.take_list(reply),
            (
                asked @ (Asked::Make(_) | Asked::Link(..) | Asked::Remove(_) | Asked::Rename(..)),
                Answer::Node(reply),
            ) => {
                self.is_naming = false;
                self.take_change(&asked, reply);
            }
            (Asked::Read(file, start, wanted), Answer::FileBytes(outcome, bytes)) => {
                self.take_read(file, start, wanted, outcome, &bytes);
            }
            (Asked::LetGo(..), Answer::File(_)) => {}
            (Asked::Stat(file), Answer::FileInfos(infos)) => self.take_info(file, infos[0]),
            (asked, Answer::File(reply)) => self.take_file(asked, reply.outcome),
            (asked, answer) => panic!("{answer:?} answers {asked:?}"),
        }
    }

    fn take_known(&mut self, name: &'static str, reply: NodeReply) {
        self.is_naming = false;
        match reply.outcome {
            NameOutcome::Done => {
                let number = reply.node.expect("it is there").number;
                let place = if name == SHARED { &mut self.shared } else { &mut self.directory };
                assert!(place.is_none_or(|known| known == number), "{name} is {number}, and was {place:?}");
                *place = Some(number);
            }
            NameOutcome::Exists | NameOutcome::NotFound | NameOutcome::NoSpace | NameOutcome::IndexFull => {}
            outcome => panic!("{name}: {outcome}"),
        }
    }

    fn take_change(&mut self, asked: &Asked, reply: NodeReply) {
        let after = self.after(asked);
        let number = reply.node.as_ref().map(|Node { number, .. }| *number);
        let expected = match asked {
            Asked::Make(name) | Asked::Link(name, _) if self.names.contains_key(name) => NameOutcome::Exists,
            _ => NameOutcome::Done,
        };
        match reply.outcome {
            NameOutcome::NoSpace | NameOutcome::IndexFull | NameOutcome::Unavailable => return,
            // Made before, and asked again of a server that does not remember.
            outcome if outcome != expected => {
                let repeated = matches!(
                    (asked, outcome),
                    (Asked::Make(_) | Asked::Link(..), NameOutcome::Exists)
                        | (Asked::Remove(_) | Asked::Rename(..), NameOutcome::NotFound)
                );
                assert!(repeated, "{asked:?} came to {outcome} instead of {expected}");
                self.is_doubtful(after);
                return;
            }
            NameOutcome::Exists => return,
            _ => {}
        }
        if let Asked::Make(_) = asked {
            let number = number.expect("what was made has a number");
            assert!(self.names.values().all(|known| *known != number), "number {number} is given twice");
        }
        self.names = after.into_iter().filter_map(|(name, known)| Some((name, known.or(number)?))).collect();
        self.forget_unnamed();
    }

    /// What has no name any more is not looked at again, and is to be closed.
    pub(super) fn forget_unnamed(&mut self) {
        let (names, shared) = (&self.names, self.shared);
        let waits: Vec<FileNumber> = self.asked.values().filter_map(Asked::file).collect();
        let is_forgotten = |file: &FileNumber, _: &mut Known| {
            Some(*file) != shared && !waits.contains(file) && names.values().all(|known| known != file)
        };
        let forgotten = self.files.extract_if(.., is_forgotten);
        self.unnamed.extend(forgotten.map(|(file, known)| (file, known.opening)).filter(|(_, opening)| *opening > 0));
    }

    fn take_list(&mut self, reply: ListReply) {
        self.is_naming = false;
        assert_eq!(reply.outcome, NameOutcome::Done);
        let text = |name: &Vec<u8>| String::from_utf8(name.clone()).expect("clients write text");
        let found: BTreeMap<String, FileNumber> =
            reply.entries.iter().map(|entry| (text(&entry.name), entry.number)).collect();
        let is_after = |after: &BTreeMap<String, Option<FileNumber>>| {
            after.len() == found.len()
                && after.iter().all(|(name, known)| found.get(name).is_some_and(|is| known.is_none_or(|k| k == *is)))
        };
        let may = found == self.names || self.doubt.as_ref().is_some_and(is_after);
        assert!(may, "there is {found:?}, and should be {:?} or {:?}", self.names, self.doubt);
        (self.names, self.doubt) = (found, None);
        self.forget_unnamed();
    }

    fn take_read(&mut self, file: FileNumber, start: usize, wanted: usize, outcome: ReadOutcome, bytes: &[u8]) {
        let is_named = Some(file) == self.shared || self.names.values().any(|known| *known == file);
        let in_doubt = self.doubt.is_some() || self.is_naming;
        let own = self.number;
        let known = self.files.get_mut(&file).expect("it is known");
        known.waits = false;
        match outcome {
            ReadOutcome::Found if known.shared => {
                for (at, byte) in (start..).zip(bytes) {
                    let owner = owner_of(at);
                    let may = *byte == 0 || u64::from(*byte - 1) % CLIENTS_MAX == owner;
                    assert!(may, "byte {at} of the shared file is {byte}, which its writer {owner} does not write");
                    if owner == own && at < known.content.longest() {
                        known.content.read(at, 1, &[*byte]);
                    }
                }
            }
            ReadOutcome::Found => known.content.read(start, wanted, bytes),
            ReadOutcome::NotFound => {
                assert!(
                    known.content.length().is_none_or(|length| length == 0) || !is_named,
                    "what was written is there"
                );
            }
            ReadOutcome::Deleted => assert!(!is_named || in_doubt, "file {file} has a name and is over"),
            ReadOutcome::Unavailable => {}
            ReadOutcome::Lost => panic!("no more went wrong than parity makes up for, and file {file} is lost"),
        }
    }

    fn take_info(&mut self, file: FileNumber, info: FileInfo) {
        let known = self.files.get_mut(&file).expect("it is known");
        known.waits = false;
        if info.outcome != ReadOutcome::Found || known.shared {
            return;
        }
        let length = info.length as usize;
        let content = &mut known.content;
        assert!(content.length().is_none_or(|known| known == length), "it has {length} bytes instead of {content:?}");
        match content.sealed() {
            Sealed::Yes => assert!(info.sealed, "file {file} was sealed"),
            Sealed::No => assert!(!info.sealed, "nobody sealed file {file}"),
            Sealed::Perhaps if info.sealed => content.is_sealed(),
            Sealed::Perhaps => {}
        }
        if let (Some((crc, adler32)), Some(bytes)) = (info.sums, content.certain()) {
            let mut sum = Adler32::default();
            sum.update(&bytes);
            assert_eq!((crc, adler32), (crc32c(&bytes), sum.finish()), "the sums of file {file}");
        }
    }

    fn take_file(&mut self, asked: Asked, outcome: FileOutcome) {
        let file = asked.file().expect("it is of a file");
        let is_named = Some(file) == self.shared || self.names.values().any(|known| *known == file);
        let in_doubt = self.doubt.is_some() || self.is_naming;
        let known = self.files.get_mut(&file).expect("it is known");
        match outcome {
            FileOutcome::Removed => assert!(!is_named || in_doubt, "file {file} has a name and is over"),
            FileOutcome::Sealed => {
                assert!(known.content.sealed() != Sealed::No, "nobody sealed file {file}");
                known.content.is_sealed();
            }
            FileOutcome::Conflict => panic!("writers of file {file} write nothing of each other"),
            FileOutcome::ChecksumMismatch
            | FileOutcome::TooLarge
            | FileOutcome::TooManyChanges
            | FileOutcome::NoFiles => {
                panic!("{asked:?} came to {outcome}")
            }
            _ => {}
        }
        let done = outcome == FileOutcome::Done;
        match asked {
            Asked::Write(_, change, range, value) => {
                known.is_answered(change);
                if done {
                    assert!(known.content.sealed() != Sealed::Yes, "a sealed file was written to");
                    known.content.write_done(range, value);
                } else {
                    known.is_open = false;
                }
            }
            Asked::Cut(_, length) => {
                known.waits = false;
                if done {
                    known.content.cut_done(length);
                } else {
                    known.is_open = false;
                }
            }
            Asked::Seal(_) => {
                known.waits = false;
                if done {
                    known.content.is_sealed();
                }
                known.is_open &= done;
            }
            Asked::Open(_, opening) => {
                known.waits = false;
                known.is_open = done && opening == known.opening;
            }
            Asked::Close(_) => known.waits = false,
            asked => panic!("{asked:?} is answered otherwise"),
        }
    }
}

impl Known {
    /// A write is waited for no more. What it wrote may be written again when none before it is, either.
    fn is_answered(&mut self, change: u64) {
        self.writes.get_mut(&change).expect("it was asked").is_answered = true;
        while let Some(first) = self.writes.first_entry()
            && first.get().is_answered
        {
            first.remove();
        }
    }
}

impl Asked {
    fn file(&self) -> Option<FileNumber> {
        match self {
            Asked::Open(file, _)
            | Asked::Close(file)
            | Asked::Write(file, ..)
            | Asked::Cut(file, _)
            | Asked::Seal(file)
            | Asked::Read(file, ..)
            | Asked::Stat(file) => Some(*file),
            _ => None,
        }
    }
}
