//! What a source and a destination must be able to do. They decide nothing: each answer is what happened, in their own words.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use forebay_client::AcceptedPage;
use forebay_types::{EventKey, RunId};

use crate::custody::{Answer, Failure, Part, SourceAnswer};
use crate::events::{Events, Examined, Making, OfRun};
use crate::machine::Scanned;
use crate::monitor::Space;
use crate::name::Name;

/// The bytes of a consignment or of one of its parts, block by block.
pub trait Content {
    /// Reads the next block; whether there was one before the end.
    ///
    /// # Errors
    /// Why the source does not give it.
    fn refill(&mut self) -> Result<bool, SourceAnswer>;

    /// The block that was read last; no byte before the first and at the end.
    fn block(&self) -> &[u8];

    /// The next block; none at the end.
    ///
    /// # Errors
    /// Why the source does not give it.
    fn next_block(&mut self) -> Result<Option<&[u8]>, SourceAnswer> {
        if self.refill()? { Ok(Some((*self).block())) } else { Ok(None) }
    }

    /// The file of this machine that all of this is, where it is one and nothing of it was read yet: for whoever lets somebody else read it. Then
    /// [`Content::compare_file`] tells whether it stayed what it was.
    ///
    /// # Errors
    /// Why the source does not give it.
    fn file(&mut self) -> Result<Option<BorrowedFd<'_>>, SourceAnswer> {
        Ok(None)
    }

    /// That what was given as a file is still what was found.
    ///
    /// # Errors
    /// What it is instead.
    fn compare_file(&self) -> Result<(), SourceAnswer> {
        Ok(())
    }
}

impl<C: Content + ?Sized> Content for Box<C> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        (**self).refill()
    }

    fn block(&self) -> &[u8] {
        (**self).block()
    }

    fn file(&mut self) -> Result<Option<BorrowedFd<'_>>, SourceAnswer> {
        (**self).file()
    }

    fn compare_file(&self) -> Result<(), SourceAnswer> {
        (**self).compare_file()
    }
}

impl<C: Content + ?Sized> Content for &mut C {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        (**self).refill()
    }

    fn block(&self) -> &[u8] {
        (**self).block()
    }

    fn file(&mut self) -> Result<Option<BorrowedFd<'_>>, SourceAnswer> {
        (**self).file()
    }

    fn compare_file(&self) -> Result<(), SourceAnswer> {
        (**self).compare_file()
    }
}

/// Where files come from. Every call may be made at the same time as others, and may be made again after it was cut off.
pub trait Source: Send + Sync {
    /// All that is there and might be moved. `moved` is told of each thing that was looked at.
    ///
    /// # Errors
    /// Why nobody can tell.
    fn scan(&self, moved: &dyn Moved) -> Result<Scanned, String>;

    /// The bytes of a part, from their beginning. Behind the last of them it is looked whether the part is still what was found.
    ///
    /// # Errors
    /// Why the source does not give them.
    fn open<'a>(&'a self, part: &'a Part) -> Result<Box<dyn Content + 'a>, SourceAnswer>;

    /// Lets the parts go, if all of them are what was found. `still_whole` reads all of them once more, and says whether they come to what was proven: it is asked where somebody may
    /// have written what looks as it did. Done twice it is as done once.
    fn release(&self, parts: &[Part], still_whole: &dyn Fn() -> SourceAnswer) -> SourceAnswer;

    /// What whoever wrote a file put beside it to say that it is complete, if there is something. `by_stem`: also what has its name but for the ending, and may be of another file with
    /// that.
    fn said_of(&self, _name: &Name, _by_stem: bool) -> Option<Vec<u8>> {
        None
    }

    /// How many events a run has, where somebody counted them.
    ///
    /// # Errors
    /// Why that cannot be told now.
    fn events_of_run(&self, _run: RunId) -> Result<Option<u64>, SourceAnswer> {
        Ok(None)
    }

    /// Where a file lies on this machine: its file system and its number there. Nothing for what lies elsewhere.
    fn place_of(&self, part: &Part) -> Option<(u64, u64)>;
}

/// Where accepted events come from. Every call may be made at the same time as others, and may be made again after it was cut off.
pub trait EventSource: Send + Sync {
    /// Accepted events that were not released, ascending, behind `after`, at most `max`.
    ///
    /// # Errors
    /// Why nobody can tell.
    fn accepted(&self, after: Option<EventKey>, max: u32) -> Result<AcceptedPage, String>;

    /// What the store has of a run and of the stream in it, as they are now.
    ///
    /// # Errors
    /// Why nobody can tell.
    fn of_run(&self, run: RunId) -> Result<OfRun, String>;

    /// Reads events and puts each together; the answers are in their order.
    ///
    /// # Errors
    /// Why none of them was read.
    fn examine(&self, events: &[EventKey], making: &Making, moved: &dyn Moved) -> Result<Vec<Examined>, String>;

    /// The bytes of a file of events.
    fn open<'a>(&'a self, events: &'a Events) -> Box<dyn Content + 'a>;

    /// Fragments of events that were read and are lost in the store.
    fn fragments_lost(&self) -> u64;

    /// Lets the events go. Done twice it is as done once.
    fn release(&self, events: &Events, moved: &dyn Moved) -> SourceAnswer;
}

/// What a route begins with.
#[derive(Clone)]
pub enum Origin {
    /// Files.
    Files(Arc<dyn Source>),
    /// Accepted events.
    Events(Arc<dyn EventSource>),
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

/// What is fetched.
#[derive(Clone, Copy)]
pub struct Fetching<'a> {
    /// The name that it has until it was asked for.
    pub temporary: &'a Name,
    /// Its name at the source.
    pub source: &'a Name,
    /// How long it is.
    pub bytes: u64,
    /// Where it is fetched.
    pub door: &'a dyn Door,
}

/// Where files go.
pub trait Destination: Send + Sync {
    /// What lies under a name: [`Answer::Told`].
    fn ask(&self, name: &Name, moved: &dyn Moved) -> Answer;

    /// Streams the bytes there under a temporary name that nothing has, durably: [`Answer::Sent`], with what they came to.
    fn send(&self, sending: &Sending, content: &mut dyn Content, moved: &dyn Moved) -> Answer;

    /// Fetches the file by the door of its source, under a temporary name that nothing has: [`Answer::Pulled`]. Most destinations cannot, and are not asked.
    fn pull(&self, _fetching: &Fetching, _moved: &dyn Moved) -> Answer {
        Answer::Failed(Failure::Refused("it cannot fetch files itself".to_owned()))
    }

    /// Gives a file another name, durably, unless that is taken: [`Answer::Done`], [`Answer::Taken`].
    fn rename(&self, from: &Name, to: &Name) -> Answer;

    /// The same, in the place of what has the name: [`Answer::Done`].
    fn replace(&self, from: &Name, to: &Name) -> Answer;

    /// Takes a file away; one that is not there is as good: [`Answer::Done`].
    fn remove(&self, name: &Name) -> Answer;

    /// Whether what has the name is on tape there: [`Answer::OnTape`], or nothing with [`Answer::Told`]. Most destinations cannot say, and are not asked.
    fn on_tape(&self, name: &Name, moved: &dyn Moved) -> Answer;

    /// The address of a name, for people and their programs.
    fn address_of(&self, name: &Name) -> String;

    /// Where a file lies on this machine, as of a source.
    fn place_of(&self, name: &Name) -> Option<(u64, u64)>;
}

/// Where others can fetch the files of a source.
pub trait Door: Send + Sync {
    /// The address of a file there.
    fn address_of(&self, name: &Name) -> String;

    /// What whoever fetches it shows there, if the door wants that.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn token(&self) -> Result<Option<String>, Failure>;
}

/// Where files are registered once they are proven. To register one twice with the same key is to register it once.
pub trait Registry: Send + Sync {
    /// Registers what a sidecar's text says, under a key that no other file has.
    ///
    /// # Errors
    /// Why it was not, or that nobody knows.
    fn register(&self, key: &str, text: &str, moved: &dyn Moved) -> Result<(), Failure>;
}

/// Somebody else who says whether a file is where it is to be in the end, on tape for one.
pub trait Asked: Send + Sync {
    /// Whether what has the address is.
    ///
    /// # Errors
    /// Why nobody can tell.
    fn is_there(&self, address: &str, moved: &dyn Moved) -> Result<bool, Failure>;
}

/// What a source lies on.
pub trait HasSpace: Send + Sync {
    /// What it takes still.
    ///
    /// # Errors
    /// Why nobody can tell.
    fn space(&self) -> Result<Space, String>;
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
