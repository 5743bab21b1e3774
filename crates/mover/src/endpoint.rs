//! What a source and a destination must be able to do. They decide nothing: each answer is what happened, in their own words.

use crate::custody::{Answer, Part, SourceAnswer};
use crate::machine::Scanned;
use crate::name::Name;
use crate::sums::Sums;

/// The bytes of a consignment, block by block.
pub trait Content {
    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// Why the source does not give them.
    fn next_block(&mut self) -> Result<Option<&[u8]>, SourceAnswer>;
}

/// Where files come from. Every call may be made at the same time as others, and may be made again after it was cut off.
pub trait Source: Send + Sync {
    /// All that is there and might be moved. `moved` is told of each thing that was looked at.
    ///
    /// # Errors
    /// Why nobody can tell.
    fn scan(&self, moved: &dyn Moved) -> Result<Scanned, String>;

    /// Reads all of it, looks at its structure, and says what its bytes come to. `moved` is told of all that was read.
    fn check(&self, parts: &[Part], moved: &dyn Moved) -> SourceAnswer;

    /// The bytes, from their beginning.
    ///
    /// # Errors
    /// Why the source does not give them.
    fn open<'a>(&'a self, parts: &'a [Part]) -> Result<Box<dyn Content + 'a>, SourceAnswer>;

    /// Lets it go, if its bytes still come to `content`. Done twice it is as done once.
    fn release(&self, parts: &[Part], content: Option<&Sums>, moved: &dyn Moved) -> SourceAnswer;

    /// Where a file lies on this machine: its file system and its number there. Nothing for what lies elsewhere.
    fn place_of(&self, part: &Part) -> Option<(u64, u64)>;
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// The name that it has until it was asked for.
    pub temporary: &'a Name,
    /// The name that it gets later, for destinations that must know it from the beginning.
    pub last: &'a Name,
    /// How long it is. What the source gives may come to something else: then it was written meanwhile, and the machine sees that from the sums.
    pub bytes: u64,
}

/// Where files go.
pub trait Destination: Send + Sync {
    /// What lies under a name: [`Answer::Told`].
    fn ask(&self, name: &Name, moved: &dyn Moved) -> Answer;

    /// Streams the bytes there under a temporary name that nothing has, durably: [`Answer::Sent`], with what they came to.
    fn send(&self, sending: &Sending, content: &mut dyn Content, moved: &dyn Moved) -> Answer;

    /// Gives a file another name, durably, unless that is taken: [`Answer::Done`], [`Answer::Taken`].
    fn rename(&self, from: &Name, to: &Name) -> Answer;

    /// The same, in the place of what has the name: [`Answer::Done`].
    fn replace(&self, from: &Name, to: &Name) -> Answer;

    /// Takes a file away; one that is not there is as good: [`Answer::Done`].
    fn remove(&self, name: &Name) -> Answer;

    /// Where a file lies on this machine, as of a source.
    fn place_of(&self, name: &Name) -> Option<(u64, u64)>;
}

/// Who is told how far a job is.
pub trait Moved: Sync {
    /// So many bytes more. Whether it shall go on: a mover that ends waits for nobody.
    fn moved(&self, bytes: u64) -> bool;

    /// Whether it shall go on. To ask for it is no progress: for those who wait while nothing moves.
    fn goes_on(&self) -> bool {
        true
    }
}
