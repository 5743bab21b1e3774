//! A source and its destinations, and what is true of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_mover::custody::{Answer, ConsignmentId, Part, PartIdentity, SourceAnswer, Step};
use forebay_mover::machine::{Kind, Scanned, Seen};
use forebay_mover::recipe::{Form, Recipe};
use forebay_mover::{Name, Sums, Told};
use forebay_types::{RunId, Time};

use super::stream::Stream;

/// A file of the source.
#[derive(Clone, Debug)]
pub(super) struct Original {
    pub(super) bytes: Vec<u8>,
    pub(super) identity: PartIdentity,
    pub(super) written: Time,
    pub(super) announced: bool,
    pub(super) damaged: bool,
}

/// Whose a file at a destination is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Mover(ConsignmentId),
    Somebody,
}

#[derive(Clone, Debug)]
struct Copy {
    bytes: Vec<u8>,
    owner: Owner,
    /// When it was first told that it has these bytes, since it was last another.
    told_right: Option<Time>,
}

#[derive(Debug, Default)]
pub(super) struct Destination {
    pub(super) away_until: Time,
    copies: BTreeMap<Name, Copy>,
    /// Names that a file of the mover's was given.
    given: BTreeSet<Name>,
    /// Names that were told of twice, far enough apart, and had these bytes all that time; and when that was last.
    proven: BTreeMap<(Name, Vec<u8>), Time>,
    /// When what has a name comes to tape.
    tape: BTreeMap<(Name, Vec<u8>), Time>,
    /// What it told to be on tape, and was.
    told_on_tape: BTreeSet<(Name, Vec<u8>)>,
}

impl Destination {
    pub(super) fn put(&mut self, name: &Name, bytes: Vec<u8>, owner: Owner) {
        self.copies.insert(name.clone(), Copy { bytes, owner, told_right: None });
    }

    pub(super) fn has(&self, name: &Name) -> bool {
        self.copies.contains_key(name)
    }

    /// Whether somebody else may put a file there. Until it is proven, a name that a file of the mover's was given is the mover's: who takes that away and puts
    /// another there is not told from a destination that lies.
    pub(super) fn is_free(&self, name: &Name) -> bool {
        !self.has(name) && !self.given.contains(name)
    }

    /// Whether a file of the mover's was given this name, ever.
    pub(super) fn was_given(&self, name: &Name) -> bool {
        self.given.contains(name)
    }

    pub(super) fn bytes(&self, name: &Name) -> Option<&[u8]> {
        self.copies.get(name).map(|copy| copy.bytes.as_slice())
    }

    /// A person takes away what was in the way.
    pub(super) fn clear(&mut self, name: &Name) {
        self.copies.remove(name);
    }

    /// It loses a file, or other bytes are there. Whether there was one of the mover's.
    pub(super) fn spoil(&mut self, name: &Name, drop: bool) -> bool {
        let Some(copy) = self.copies.get_mut(name).filter(|copy| copy.owner != Owner::Somebody) else { return false };
        copy.told_right = None;
        match copy.bytes.first_mut() {
            // Never back to what it was.
            Some(first) if !drop => *first = first.wrapping_add(1),
            _ => drop_copy(&mut self.copies, name),
        }
        true
    }

    /// It says that it has a file, and has less of it, or other bytes.
    pub(super) fn truncate_or_flip(&mut self, name: &Name, cut: bool) {
        let copy = self.copies.get_mut(name).expect("it is there");
        if cut {
            copy.bytes.pop();
        } else if let Some(last) = copy.bytes.last_mut() {
            *last ^= 64;
        }
    }

    pub(super) fn is_proven(&self, name: &Name, bytes: &[u8], since: Time) -> bool {
        self.proven.get(&(name.clone(), bytes.to_vec())).is_some_and(|at| *at >= since)
    }

    /// With which bytes a name was proven since.
    pub(super) fn proven_as(&self, name: &Name, since: Time) -> impl Iterator<Item = &[u8]> {
        let is_of = move |((of, _), at): &(&(Name, Vec<u8>), &Time)| of == name && **at >= since;
        self.proven.iter().filter(is_of).map(|((_, bytes), _)| bytes.as_slice())
    }

    /// What is there comes to tape then, unless it is known already when it does.
    pub(super) fn comes_to_tape(&mut self, name: &Name, at: Time) {
        if let Some(copy) = self.copies.get(name) {
            self.tape.entry((name.clone(), copy.bytes.clone())).or_insert(at);
        }
    }

    pub(super) fn is_on_tape(&self, name: &Name, bytes: &[u8]) -> bool {
        self.told_on_tape.contains(&(name.clone(), bytes.to_vec()))
    }

    /// The bytes of that name that were proven and come to this.
    pub(super) fn proven_bytes(&self, name: &Name, content: &Sums) -> Option<Vec<u8>> {
        let of_name = self.proven.range((name.clone(), Vec::new())..).take_while(|((of, _), _)| of == name);
        of_name.map(|((_, bytes), _)| bytes).find(|bytes| Sums::of(bytes) == *content).cloned()
    }

    pub(super) fn temporaries(&self) -> impl Iterator<Item = &Name> {
        self.copies.keys().filter(|name| name.file().starts_with(".forebay-"))
    }

    pub(super) fn of_the_mover(&self) -> impl Iterator<Item = (&Name, ConsignmentId)> {
        self.copies.iter().filter_map(|(name, copy)| match copy.owner {
            Owner::Mover(id) => Some((name, id)),
            Owner::Somebody => None,
        })
    }

    /// What a file of the mover's is, for the step of a consignment that changes it.
    fn of(&self, name: &Name, id: ConsignmentId) -> Option<&Copy> {
        let copy = self.copies.get(name)?;
        assert_eq!(copy.owner, Owner::Mover(id), "{name} belongs to somebody else, and consignment {id} changes it");
        Some(copy)
    }

    /// Does a step, as it should be done. `content`: what is sent.
    pub(super) fn does(
        &mut self,
        id: ConsignmentId,
        step: &Step,
        content: Option<&[u8]>,
        recheck_after: Duration,
        now: Time,
    ) -> Answer {
        match step {
            Step::Ask { name } => Answer::Told(self.copies.get_mut(name).map(|copy| {
                let first = *copy.told_right.get_or_insert(now);
                if now.since(first) >= recheck_after {
                    self.proven.insert((name.clone(), copy.bytes.clone()), now);
                }
                Sums::of(&copy.bytes).into()
            })),
            Step::AskTape { name } => {
                let Some(copy) = self.copies.get(name) else { return Answer::Told(None) };
                let key = (name.clone(), copy.bytes.clone());
                let is_there = self.tape.get(&key).is_some_and(|at| *at <= now);
                if is_there {
                    self.told_on_tape.insert(key);
                }
                Answer::OnTape(is_there)
            }
            Step::Send { temporary, .. } | Step::Pull { temporary, .. } => {
                let bytes = content.expect("it is sent").to_vec();
                let is_sent = matches!(step, Step::Send { .. });
                assert!(!is_sent || !self.has(temporary), "{temporary} is given twice");
                self.of(temporary, id);
                let answer = if is_sent { Answer::Sent(Sums::of(&bytes)) } else { Answer::Pulled };
                self.put(temporary, bytes, Owner::Mover(id));
                answer
            }
            Step::Rename { from, to } if self.copies.contains_key(from) && self.copies.contains_key(to) => {
                Answer::Taken
            }
            Step::Rename { from, to } | Step::Replace { from, to } => match self.of(from, id).cloned() {
                None => Answer::Failed(forebay_mover::custody::Failure::Unknown("no such file".to_owned())),
                Some(copy) => {
                    self.of(to, id);
                    drop_copy(&mut self.copies, from);
                    self.given.insert(to.clone());
                    self.put(to, copy.bytes, copy.owner);
                    Answer::Done
                }
            },
            Step::Remove { name } => {
                self.of(name, id);
                drop_copy(&mut self.copies, name);
                Answer::Done
            }
        }
    }
}

fn drop_copy(copies: &mut BTreeMap<Name, Copy>, name: &Name) {
    copies.remove(name);
}

/// Only one of the sums, as most destinations tell.
pub(super) fn half(told: Told, adler: bool) -> Told {
    if adler { Told { crc32c: None, ..told } } else { Told { adler32: None, ..told } }
}

#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) files: BTreeMap<Name, Original>,
    /// Of a route of events, what it has instead.
    pub(super) stream: Stream,
    inodes: u64,
}

/// What is in a file, by its name: some have events of one of two runs.
pub(super) fn kind_of(name: &Name) -> Kind {
    match name.file().rsplit_once('.') {
        Some((stem, "raw")) => Kind::Events { run: RunId(u32::from(stem.len() > 5)), form: Form::Concatenated },
        _ => Kind::File,
    }
}

impl Source {
    pub(super) fn add(&mut self, name: Name, bytes: Vec<u8>, announced: bool, damaged: bool, now: Time) {
        self.inodes += 1;
        let identity = PartIdentity { bytes: bytes.len() as u64, modified_ns: now.0 as i64, inode: self.inodes };
        self.files.insert(name, Original { bytes, identity, written: now, announced, damaged });
    }

    /// Somebody writes to a file.
    pub(super) fn write(&mut self, name: &Name, now: Time) {
        let Some(file) = self.files.get_mut(name) else { return };
        file.bytes.push(7);
        file.identity.bytes += 1;
        (file.identity.modified_ns, file.written) = (now.0 as i64, now);
    }

    pub(super) fn scan(&self, now: Time) -> Scanned {
        let seen = |(name, file): (&Name, &Original)| Seen {
            name: name.clone(),
            identity: file.identity,
            changed_ns: file.identity.modified_ns,
            untouched: now.since(file.written),
            announced: file.announced,
            kind: kind_of(name),
        };
        Scanned { files: self.files.iter().map(seen).collect(), left_alone: Vec::new() }
    }

    /// All bytes that a recipe makes, if what it is made of is still what was found; that they are compressed shows, and no other form of files.
    pub(super) fn make(&self, recipe: &Recipe, now: Time) -> Result<Vec<u8>, SourceAnswer> {
        let bytes = self.uncompressed(recipe, now)?;
        Ok(if recipe.zstd.is_some() { [b"zstd", bytes.as_slice()].concat() } else { bytes })
    }

    /// The same before they are compressed.
    pub(super) fn uncompressed(&self, recipe: &Recipe, now: Time) -> Result<Vec<u8>, SourceAnswer> {
        if let Some(events) = recipe.events() {
            return self.stream.make(events, now);
        }
        let found: Result<Vec<&Original>, SourceAnswer> = recipe.parts().iter().map(|part| self.find(part)).collect();
        Ok(found?.into_iter().flat_map(|original| original.bytes.iter().copied()).collect())
    }

    /// The file, if it is still what was found.
    pub(super) fn find(&self, part: &Part) -> Result<&Original, SourceAnswer> {
        let there = self.files.get(&part.name).filter(|file| file.identity == part.identity);
        there.ok_or_else(|| SourceAnswer::Changed(format!("{} changed", part.name)))
    }
}
