//! One job, in a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::Control;
use crate::custody::{Answer, Failure, Part, SourceAnswer, SourceStep, Step};
use crate::endpoint::{
    Asked, Content, Destination, Door, EventSource, Fetching, Moved, Origin, Registry, Sending, Source,
};
use crate::machine::{Done, Task};
use crate::name::Name;
use crate::recipe::{Ingredients, Recipe, check, open};
use crate::sums::Sums;

/// How far a job is, for whoever looks for those that hang.
#[derive(Debug)]
pub(super) struct Watch {
    control: Control,
    start: Instant,
    bytes: AtomicU64,
    /// When something was moved last, in milliseconds since the start.
    moved_ms: AtomicU64,
    given_up: AtomicBool,
}

impl Watch {
    pub(super) fn new(control: Control, start: Instant) -> Watch {
        let now = start.elapsed().as_millis() as u64;
        Watch {
            control,
            start,
            bytes: AtomicU64::new(0),
            moved_ms: AtomicU64::new(now),
            given_up: AtomicBool::new(false),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn idle(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.moved_ms.load(Relaxed)))
    }

    /// Whatever it comes to is of no use to anybody.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Relaxed);
    }
}

impl Moved for Watch {
    fn moved(&self, bytes: u64) -> bool {
        self.bytes.fetch_add(bytes, Relaxed);
        self.moved_ms.store(self.start.elapsed().as_millis() as u64, Relaxed);
        self.goes_on()
    }

    fn goes_on(&self) -> bool {
        !self.control.is_stopped() && !self.given_up.load(Relaxed)
    }
}

/// What the jobs of a route are done with.
pub(super) struct Tools {
    pub(super) origin: Origin,
    pub(super) registry: Option<Arc<dyn Registry>>,
    /// Of the source.
    pub(super) door: Option<Arc<dyn Door>>,
    pub(super) destination: Option<Arc<dyn Destination>>,
    pub(super) asked: Option<Arc<dyn Asked>>,
}

pub(super) fn run(task: &Task, tools: &Tools, moved: &dyn Moved) -> Done {
    let origin = &tools.origin;
    match task {
        Task::Scan => Done::Scanned(files_of(origin).scan(moved)),
        Task::List { after, max } => Done::Listed(events_of(origin).accepted(*after, *max)),
        Task::OfRun { run } => Done::OfRun(events_of(origin).of_run(*run).map(Box::new)),
        Task::Examine { events, making } => Done::Examined(events_of(origin).examine(events, making, moved)),
        Task::Source { step: SourceStep::Check, recipe, .. } => Done::Source(check(origin, recipe, moved)),
        Task::Source { step: SourceStep::Release, recipe, content, .. } => {
            let still_whole = || still_whole(origin, recipe, content.as_ref(), moved);
            Done::Source(match &recipe.of {
                Ingredients::Files(parts) => files_of(origin).release(parts, &still_whole),
                Ingredients::Events(events) => events_of(origin).release(events, moved),
            })
        }
        Task::Register { key, text, .. } => {
            let registry = tools.registry.as_deref().expect("a job that registers has where");
            Done::Registered(registry.register(key, text, moved))
        }
        Task::Destination { step, recipe, content, sidecar, .. } => {
            let destination = tools.destination.as_deref().expect("a job at a destination has one");
            if let Step::Pull { temporary, .. } = step {
                return Done::Destination(pull(temporary, recipe, content.as_ref(), tools, moved));
            }
            let sent = (content.as_ref(), sidecar.as_deref());
            Done::Destination(at_destination(step, origin, recipe, sent, (destination, tools.asked.as_deref()), moved))
        }
    }
}

fn at_destination(
    step: &Step,
    origin: &Origin,
    recipe: &Recipe,
    (content, sidecar): (Option<&Sums>, Option<&str>),
    (destination, asked): (&dyn Destination, Option<&dyn Asked>),
    moved: &dyn Moved,
) -> Answer {
    match (step, sidecar) {
        (Step::Ask { name }, _) if is_the_source(origin, recipe.parts(), destination, name) => {
            Answer::Failed(Failure::Refused(format!(
                "{name} is there the very file of the source, by a link or a mount: no copy of it. Give a destination that is another place, then retry"
            )))
        }
        (Step::Ask { name }, _) => destination.ask(name, moved),
        (Step::AskTape { name }, _) => match asked {
            Some(asked) => {
                asked.is_there(&destination.address_of(name), moved).map_or_else(Answer::Failed, Answer::OnTape)
            }
            None => destination.on_tape(name, moved),
        },
        (Step::Rename { from, to }, _) => destination.rename(from, to),
        (Step::Replace { from, to }, _) => destination.replace(from, to),
        (Step::Remove { name }, _) => destination.remove(name),
        (Step::Pull { .. }, _) => unreachable!("it is done without the source"),
        (Step::Send { temporary, last }, Some(text)) => {
            let sending = Sending { temporary, last, bytes: text.len() as u64 };
            destination.send(&sending, &mut Text { text, is_read: None }, moved)
        }
        (Step::Send { temporary, last }, None) => {
            let bytes = content.expect("it was checked before it is sent").bytes;
            destination.send(&Sending { temporary, last, bytes }, open(origin, recipe).as_mut(), moved)
        }
    }
}

/// A destination fetches a file of the source itself.
fn pull(temporary: &Name, recipe: &Recipe, content: Option<&Sums>, tools: &Tools, moved: &dyn Moved) -> Answer {
    let destination = tools.destination.as_deref().expect("a job at a destination has one");
    let door = tools.door.as_deref().expect("what is fetched has a door");
    let [part] = recipe.parts() else { unreachable!("only a file as it is is fetched") };
    let bytes = content.expect("it was checked before it is fetched").bytes;
    destination.pull(&Fetching { temporary, source: &part.name, bytes, door }, moved)
}

/// A text that is sent.
struct Text<'a> {
    text: &'a str,
    /// Whether it was given, and its end was met.
    is_read: Option<bool>,
}

impl Content for Text<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        self.is_read = Some(self.is_read.is_some() || self.text.is_empty());
        Ok(self.is_read == Some(false))
    }

    fn block(&self) -> &[u8] {
        if self.is_read == Some(false) { self.text.as_bytes() } else { &[] }
    }
}

fn files_of(origin: &Origin) -> &dyn Source {
    match origin {
        Origin::Files(source) => source.as_ref(),
        Origin::Events(_) => unreachable!("the machine knows which routes have files"),
    }
}

fn events_of(origin: &Origin) -> &dyn EventSource {
    match origin {
        Origin::Events(source) => source.as_ref(),
        Origin::Files(_) => unreachable!("the machine knows which routes have events"),
    }
}

/// Whether what is there comes to what was proven.
fn still_whole(origin: &Origin, recipe: &Recipe, proven: Option<&Sums>, moved: &dyn Moved) -> SourceAnswer {
    match check(origin, recipe, moved) {
        SourceAnswer::Whole(checked) => match proven {
            Some(proven) if *proven != checked.sums => SourceAnswer::Changed(format!(
                "{} was written since, though its times say that it was not: it comes to {}, and {proven} was proven to be at the destinations. It was not let go",
                recipe.of_what(),
                checked.sums
            )),
            // A person answers for its release.
            _ => SourceAnswer::Whole(checked),
        },
        answer => answer,
    }
}

/// Whether what would prove a file is the file itself: it would be gone with it.
fn is_the_source(origin: &Origin, parts: &[Part], destination: &dyn Destination, name: &Name) -> bool {
    let there = destination.place_of(name);
    there.is_some() && parts.iter().any(|part| files_of(origin).place_of(part) == there)
}

/// What a job came to that was not begun, or was given up.
pub(super) fn failed(task: &Task, failure: Failure) -> Done {
    match task {
        Task::Scan => Done::Scanned(Err(failure.words().to_owned())),
        Task::List { .. } => Done::Listed(Err(failure.words().to_owned())),
        Task::OfRun { .. } => Done::OfRun(Err(failure.words().to_owned())),
        Task::Examine { .. } => Done::Examined(Err(failure.words().to_owned())),
        Task::Source { .. } => Done::Source(SourceAnswer::NotNow(failure.words().to_owned())),
        Task::Destination { .. } => Done::Destination(Answer::Failed(failure)),
        Task::Register { .. } => Done::Registered(Err(failure)),
    }
}
