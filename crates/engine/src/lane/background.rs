//! Work that nobody waits for: mending what was found damaged, making lost shards anew, looking at everything once per period.
//!
//! It goes in steps of one flush, some of them on their way at once; while requests come, the place of each that is over rests before another takes
//! it, for as long as the share of the time demands: less after one that brings protection back than after others. That no place waits for the others
//! keeps as few as possible on their way for that share, which puts notice least. Each step pins its segment: what it reads and writes is not freed
//! meanwhile.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::time::Duration;

use forebay_types::{EventKey, FileNumber, Time};

use super::{Lane, Read, State};
use crate::check::{FlushCheck, FlushPlace};
use crate::read::Reader;
use crate::repair::Repaired;
use crate::segments::{FlushSpan, SegmentIndex};

use super::compact::{Compaction, Live, Tables};
use super::files::FileRead;
use super::losses::ReadSuspect;
use super::rebuild::Rebuild;
use super::scrub::{Mend, Scrub};

/// Steps at once, at most; more while they bring protection back. Beside puts at full rate each step waits its turn at the drives, so that
/// how many there are is what share of them a rebuild has (`bench/README.md`).
const STEPS_MAX: usize = 12;
const REPAIRS_MAX: usize = 20;

/// Bytes that all steps of a lane at once read from a drive at once, at most: of disks, which want large pieces, nothing else shall wait long for them;
/// longer for what brings protection back.
const STEPS_BYTES_MAX: u32 = 8 << 20;
const REPAIRS_BYTES_MAX: u32 = 16 << 20;

/// For so long after a request the lane counts as asked.
const ASKED: Duration = Duration::from_millis(50);

/// What is done beside the requests.
#[derive(Default)]
pub(super) struct Background {
    running: usize,
    /// Until when the places of steps that are over rest: of those that bring protection back, and of others.
    resting_repairs: Rests,
    resting_others: Rests,
    asked_until: Time,
    pub(super) rebuild: Rebuild,
    pub(super) scrub: Scrub,
    pub(super) compaction: Compaction,
}

/// The ends of rests, the first of them first.
#[derive(Default)]
struct Rests(BinaryHeap<Reverse<Time>>);

impl Rests {
    fn begin(&mut self, until: Time) {
        self.0.push(Reverse(until));
    }

    /// Forgets those that are over.
    fn pass(&mut self, now: Time) {
        while self.0.peek().is_some_and(|until| until.0 <= now) {
            self.0.pop();
        }
    }

    fn next(&self) -> Option<Time> {
        self.0.peek().map(|until| until.0)
    }
}

/// What a step came to.
pub(super) enum Stepped {
    /// The flush of a segment was made anew for the shards that it lacks.
    Rebuilt(FlushPlace, Repaired),
    /// A flush was looked at.
    Checked(FlushPlace, FlushCheck, Mend),
    /// What was found damaged in it was written again.
    Mended(FlushPlace, FlushCheck, Mend, Repaired),
    /// The table of a flush was read, or those of all flushes of a segment, if they could be.
    Tabled(Option<FlushSpan>, Option<Tables>),
    /// What lives of a flush was read.
    Lives(Vec<Live>),
    /// An event of so many bytes was read, as the payload of one record, if all of it could be.
    Joined(EventKey, u64, Option<Vec<u8>>),
    /// Fragments were read that lie where something is lost.
    Suspected(Vec<ReadSuspect>),
    /// A part of a sealed file was read, to sum it.
    Summed(FileNumber, FileRead),
}

/// A step that is over.
pub(super) struct Step {
    /// It keeps these from being freed; most are about one.
    segments: Vec<SegmentIndex>,
    began: Time,
    pub(super) stepped: Stepped,
}

impl Lane {
    /// Somebody asked for something: what is done beside it yields.
    pub(super) fn is_asked(&mut self) {
        self.background.asked_until = self.now + ASKED;
    }

    /// Starts what may be started now.
    pub(super) fn work_in_background(&mut self) {
        if !matches!(self.state, State::Serving) || self.writer.frozen {
            return;
        }
        self.write_copies();
        self.try_all_stuck_again();
        self.background.resting_repairs.pass(self.now);
        self.background.resting_others.pass(self.now);
        while self.may_repair() && (self.mend_on() || self.rebuild_on()) {}
        while self.may_step() && (self.compact_on() || self.sum_on() || self.scrub_on()) {}
        self.name_losses();
        self.see_to_asked();
        self.list_what_moved();
        self.tell_damage();
    }

    /// Whether requests come.
    pub(super) fn has_requests(&self) -> bool {
        self.now < self.background.asked_until
    }

    /// Whether one step more may start that brings protection back.
    fn may_repair(&self) -> bool {
        let background = &self.background;
        let resting = if self.has_requests() { background.resting_repairs.0.len() } else { 0 };
        background.running + resting < self.places(REPAIRS_MAX, REPAIRS_BYTES_MAX)
    }

    /// Whether one step more may start of what can wait.
    fn may_step(&self) -> bool {
        let background = &self.background;
        let resting = background.resting_repairs.0.len() + background.resting_others.0.len();
        let resting = if self.has_requests() { resting } else { 0 };
        background.running + resting < self.places(STEPS_MAX, STEPS_BYTES_MAX)
    }

    /// How many steps may be on their way at once, where there are so many at most, reading so much of a drive.
    fn places(&self, most: usize, bytes_max: u32) -> usize {
        most.min((bytes_max / self.config.background_read_bytes.max(1)).max(1) as usize)
    }

    /// When [`Lane::work_in_background`] has something to do although nothing came.
    pub(super) fn next_background(&self) -> Option<Time> {
        if !matches!(self.state, State::Serving) || self.writer.frozen {
            return None;
        }
        let Background { resting_repairs, resting_others, .. } = &self.background;
        let repair_at = if self.may_repair() { None } else { resting_repairs.next() };
        let first = resting_repairs.next().into_iter().chain(resting_others.next()).min();
        let step_at = if self.may_step() { None } else { first };
        let (repair_at, step_at) = (repair_at.unwrap_or(self.now), step_at.unwrap_or(self.now));
        let step = match self.background.running {
            0 if self.has_to_mend() || self.has_to_rebuild() => Some(repair_at),
            0 if self.has_to_compact() => Some(step_at),
            0 => [self.next_scrub(), self.next_compaction(), self.summing.next()]
                .into_iter()
                .flatten()
                .min()
                .map(|at| at.max(step_at)),
            _ => None,
        };
        let naming = self.has_losses_to_name().then_some(self.now);
        [step, self.next_tell(), self.next_try(), naming].into_iter().flatten().min()
    }

    /// The share of the time, beside requests, for what such a step belongs to.
    fn percent_of_time(&self, step: &Stepped) -> u8 {
        let percent = match step {
            Stepped::Rebuilt(..) | Stepped::Mended(..) => self.config.rebuild_percent,
            Stepped::Tabled(..) | Stepped::Lives(..) | Stepped::Joined(..) => self.compaction_percent(),
            Stepped::Checked(..) | Stepped::Suspected(..) | Stepped::Summed(..) => self.config.background_percent,
        };
        percent.clamp(1, 100)
    }

    /// Starts a step on a segment.
    pub(super) fn start_step<F>(&mut self, segment: SegmentIndex, work: impl FnOnce(Reader) -> F)
    where
        F: Future<Output = Stepped> + 'static,
    {
        self.start_step_on(vec![segment], |mut readers| work(readers.remove(0)));
    }

    /// Starts a step on segments, with a reader for each.
    pub(super) fn start_step_on<F>(&mut self, segments: Vec<SegmentIndex>, work: impl FnOnce(Vec<Reader>) -> F)
    where
        F: Future<Output = Stepped> + 'static,
    {
        self.background.running += 1;
        segments.iter().for_each(|segment| self.segments.get_mut(*segment).pins += 1);
        let task = self.tasks.reserve();
        let reader = |segment: &_| Reader { io: self.io.clone(), task, segment: self.read_segment(*segment) };
        let readers = segments.iter().map(reader).collect();
        let (began, work) = (self.now, work(readers));
        let step = async move { Read::Stepped(Step { segments, began, stepped: work.await }) };
        if let Some(over) = self.tasks.start(task, Box::pin(step)) {
            self.read_is_over(task, over);
        }
    }

    pub(super) fn step_is_over(&mut self, step: Step) {
        let Step { segments, began, stepped } = step;
        self.background.running -= 1;
        segments.iter().for_each(|segment| self.segments.get_mut(*segment).pins -= 1);
        let segment = segments[0];
        if self.has_requests() {
            let percent = u32::from(self.percent_of_time(&stepped));
            let until = self.now + self.now.since(began) * (100 - percent) / percent;
            let Background { resting_repairs, resting_others, .. } = &mut self.background;
            let is_repair = matches!(stepped, Stepped::Rebuilt(..) | Stepped::Mended(..));
            if is_repair { resting_repairs.begin(until) } else { resting_others.begin(until) }
        }
        match stepped {
            Stepped::Rebuilt(place, repaired) => self.flush_is_rebuilt(segment, place, repaired),
            Stepped::Checked(place, check, mend) => self.flush_is_checked(segment, place, check, mend),
            Stepped::Mended(place, check, mend, repaired) => {
                self.flush_is_mended(segment, &check, repaired);
                self.note_check(segment, place, &check, mend.found_by());
            }
            Stepped::Tabled(of, tables) => self.flushes_are_tabled(segment, of, tables),
            Stepped::Lives(live) => self.flush_lives(segment, live),
            Stepped::Joined(key, bytes, payload) => self.event_is_read(segment, key, bytes, payload),
            Stepped::Suspected(read) => self.suspects_are_read(read),
            Stepped::Summed(file, read) => self.part_is_summed(file, read),
        }
    }
}
