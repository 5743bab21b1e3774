//! One job, in a thread of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::Control;
use crate::custody::{Answer, Failure, Part, SourceAnswer, SourceStep, Step};
use crate::endpoint::{Destination, EventSource, Moved, Origin, Sending, Source};
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

pub(super) fn run(task: &Task, origin: &Origin, destination: Option<&dyn Destination>, moved: &dyn Moved) -> Done {
    match (task, destination) {
        (Task::Scan, _) => Done::Scanned(files_of(origin).scan(moved)),
        (Task::List { after, max }, _) => Done::Listed(events_of(origin).accepted(*after, *max)),
        (Task::Examine { events }, _) => Done::Examined(events_of(origin).examine(events, moved)),
        (Task::Source { step: SourceStep::Check, recipe, .. }, _) => Done::Source(check(origin, recipe, moved)),
        (Task::Source { step: SourceStep::Release, recipe, content, .. }, _) => {
            let still_whole = || still_whole(origin, recipe, content.as_ref(), moved);
            Done::Source(match &recipe.of {
                Ingredients::Files(parts) => files_of(origin).release(parts, &still_whole),
                Ingredients::Events(events) => events_of(origin).release(events, moved),
            })
        }
        (Task::Destination { step, recipe, content, .. }, Some(destination)) => Done::Destination(match step {
            Step::Ask { name } if is_the_source(origin, recipe.parts(), destination, name) => {
                Answer::Failed(Failure::Refused(format!(
                    "{name} is there the very file of the source, by a link or a mount: no copy of it. Give a destination that is another place, then retry"
                )))
            }
            Step::Ask { name } => destination.ask(name, moved),
            Step::Rename { from, to } => destination.rename(from, to),
            Step::Replace { from, to } => destination.replace(from, to),
            Step::Remove { name } => destination.remove(name),
            Step::Send { temporary, last } => {
                let bytes = content.expect("it was checked before it is sent").bytes;
                destination.send(&Sending { temporary, last, bytes }, open(origin, recipe).as_mut(), moved)
            }
        }),
        (Task::Destination { .. }, None) => unreachable!("a job at a destination has one"),
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
        SourceAnswer::Whole(sums) => match proven {
            Some(proven) if *proven != sums => SourceAnswer::Changed(format!(
                "{} was written since, though its times say that it was not: it comes to {sums}, and {proven} was proven to be at the destinations. It was not let go",
                recipe.of_what()
            )),
            // A person answers for its release.
            _ => SourceAnswer::Whole(sums),
        },
        answer => answer,
    }
}

/// Whether what would prove a file is the file itself: it would be gone with it.
fn is_the_source(origin: &Origin, parts: &[Part], destination: &dyn Destination, name: &Name) -> bool {
    let there = destination.place_of(name);
    there.is_some() && parts.iter().any(|part| files_of(origin).place_of(part) == there)
}

/// The machine has no thread for it: later.
pub(super) fn not_begun(task: &Task, error: &std::io::Error) -> Done {
    let words = format!("no thread could be started: {error}");
    match task {
        Task::Scan => Done::Scanned(Err(words)),
        Task::List { .. } => Done::Listed(Err(words)),
        Task::Examine { .. } => Done::Examined(Err(words)),
        Task::Source { .. } => Done::Source(SourceAnswer::NotNow(words)),
        Task::Destination { .. } => Done::Destination(Answer::Failed(Failure::NotNow(words))),
    }
}
