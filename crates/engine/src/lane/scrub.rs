//! Looking at every byte of every closed segment once per period, or when an operator asks for it, and mending what is damaged: what a scrub finds, and what a read met.
//!
//! What is damaged is written again where it lies: those units and headers alone that are not what they should be, with the bytes that the other
//! shards give for them and the sums confirm. A mending write that is torn leaves damaged what was damaged before, nothing else. On what
//! drives something was found is counted, and told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_format::{SegmentId, SegmentState};
use forebay_types::{DriveNumber, Time};

use super::Lane;
use super::background::Stepped;
use crate::api::{DriveHealth, LaneEvent, ScrubStatus};
use crate::check::{FlushCheck, FlushPlace, HeaderCheck, ShardCheck};
use crate::losses::FoundBy;
use crate::planted::{Planted, planted};
use crate::repair::{Repaired, Target, Wanted};
use crate::segments::{Segment, SegmentIndex};

/// Flushes that reads found damaged, and that wait to be mended, at most: what is more, a scrub finds.
const MENDS_MAX: usize = 1024;

/// Segments that are due are looked for so often.
const LOOK: Duration = Duration::from_secs(1);

/// Damage is told at most so often.
const TELL: Duration = Duration::from_secs(10);

/// On whose behalf a flush is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mend {
    /// The period has passed.
    Scrub,
    /// A read met damage.
    Read,
    /// A rebuild met damage.
    Rebuild,
}

impl Mend {
    pub(super) fn found_by(self) -> FoundBy {
        match self {
            Mend::Scrub => FoundBy::Scrub,
            Mend::Read => FoundBy::Read,
            Mend::Rebuild => FoundBy::Rebuild,
        }
    }
}

/// A segment that is looked at.
struct Scrubbing {
    segment: SegmentIndex,
    left: VecDeque<FlushPlace>,
    running: usize,
}

/// What is looked at, and what was found.
#[derive(Default)]
pub(super) struct Scrub {
    mends: VecDeque<(SegmentIndex, SegmentId, Option<u32>, Mend)>,
    /// Checked flushes whose damage is to be mended.
    found: VecDeque<(SegmentIndex, FlushPlace, FlushCheck, Mend)>,
    current: Option<Scrubbing>,
    /// Segments that an operator wants looked at.
    asked: BTreeSet<(SegmentIndex, SegmentId)>,
    /// An operator asked, and what there is has not all been looked at yet, and mended, or what of it is lost named.
    round_is_on: bool,
    /// Steps on their way that mend.
    mending: usize,
    looked_at: Option<Time>,
    drives: BTreeMap<DriveNumber, DriveHealth>,
    /// Found since it was told last.
    untold: BTreeMap<DriveNumber, u64>,
    told_at: Option<Time>,
    /// Rounds that have ended since the start, each when everything was looked at that was there when it began.
    rounds: u32,
    round_ended: Option<Time>,
    checked_in_round: u64,
    status: ScrubStatus,
}

impl Scrub {
    /// The number of the round that is on.
    pub(super) fn round(&self) -> u32 {
        self.rounds + 1
    }
}

impl Lane {
    /// A read or a rebuild met damage in a flush.
    pub(super) fn mend_soon(&mut self, segment: SegmentIndex, flush: Option<u32>, mend: Mend) {
        let id = self.segments.get(segment).id;
        let mends = &mut self.background.scrub.mends;
        let waits = mends.iter().any(|(waiting, of, at, _)| (*waiting, *of, *at) == (segment, id, flush));
        if !self.config.read_only && mends.len() < MENDS_MAX && !waits {
            mends.push_back((segment, id, flush, mend));
        }
    }

    /// Has everything looked at that is stored now, whenever that was looked at last. What is written to now is closed for it. How far it is says
    /// [`ScrubStatus::segments_asked`].
    pub fn scrub_all(&mut self) {
        if self.config.read_only || !self.is_serving() {
            return;
        }
        if !self.writer.frozen {
            self.retire_segment();
        }
        let alive = self.segments.iter().filter(|(_, segment)| segment.live_records > 0);
        let scrub = &mut self.background.scrub;
        scrub.asked = alive.map(|(index, segment)| (index, segment.id)).collect();
        (scrub.round_is_on, scrub.looked_at) = (true, None);
    }

    /// Ends the round that was asked for when nothing of it is left, and all that it found lost has a name.
    pub(super) fn see_to_asked(&mut self) {
        let named = self.losses.being_named() == 0 || planted(Planted::LossUnnamed);
        let scrub = &mut self.background.scrub;
        let mended = scrub.found.is_empty() && scrub.mends.is_empty() && scrub.mending == 0;
        scrub.round_is_on &= !(scrub.asked.is_empty() && scrub.current.is_none() && mended && named);
    }

    fn is_asked_for(&self, index: SegmentIndex, id: SegmentId) -> bool {
        self.background.scrub.asked.contains(&(index, id))
    }

    pub(super) fn has_to_mend(&self) -> bool {
        let scrub = &self.background.scrub;
        !scrub.mends.is_empty() || !scrub.found.is_empty() || scrub.current.is_some()
    }

    /// Starts to mend a flush, or to look at one that a read found damaged; whether there was one.
    pub(super) fn mend_on(&mut self) -> bool {
        while let Some((segment, place, check, mend)) = self.background.scrub.found.pop_front() {
            self.segments.get_mut(segment).pins -= 1;
            if self.segments.get(segment).live_records == 0 {
                continue;
            }
            let targets = self.damaged_shards(&check);
            if targets.is_empty() {
                self.note_check(segment, place, &check, mend.found_by());
                continue;
            }
            self.background.scrub.mending += 1;
            self.start_step(segment, move |reader| async move {
                let repaired = reader.repair(place, &targets).await;
                Stepped::Mended(place, check, mend, repaired)
            });
            return true;
        }
        while let Some((segment, id, flush, mend)) = self.background.scrub.mends.pop_front() {
            let here = self.segments.find(segment).is_some_and(|s| s.id == id && s.live_records > 0);
            let place = if here { self.flush_places(segment).into_iter().find(|p| p.flush == flush) } else { None };
            if let Some(place) = place {
                self.check_step(segment, place, mend);
                return true;
            }
        }
        false
    }

    fn check_step(&mut self, segment: SegmentIndex, place: FlushPlace, mend: Mend) {
        self.start_step(segment, move |reader| async move {
            let check = reader.check_flush(place, true).await;
            Stepped::Checked(place, check, mend)
        });
    }

    /// Starts to look at the next flush of a segment whose period has passed; whether there was one.
    pub(super) fn scrub_on(&mut self) -> bool {
        if self.losses.are_many_suspects() || self.background.scrub.current.is_none() && !self.begin_scrubbing() {
            return false;
        }
        let current = self.background.scrub.current.as_mut().expect("begun just now");
        let segment = current.segment;
        if self.segments.get(segment).live_records == 0 {
            current.left.clear();
        }
        match current.left.pop_front() {
            Some(place) => {
                current.running += 1;
                self.check_step(segment, place, Mend::Scrub);
                true
            }
            None => self.end_scrubbing(),
        }
    }

    fn begin_scrubbing(&mut self) -> bool {
        if self.next_scrub().is_none_or(|at| at > self.now) {
            return false;
        }
        self.background.scrub.looked_at = Some(self.now);
        let period = self.config.scrub_period;
        // What was asked for ends first: a short period would go on finding what is damaged beyond repair.
        let ends = self.background.scrub.round_is_on && self.background.scrub.asked.is_empty();
        let due = self.segments.iter().filter(|(index, segment)| {
            let rests = segment.state != SegmentState::Open && !segment.writing && segment.live_records > 0;
            let period_is_over = !period.is_zero() && segment.scrub_at <= self.now && !ends;
            rests && (period_is_over || self.is_asked_for(*index, segment.id))
        });
        let Some(index) = due.min_by_key(|(_, segment)| segment.scrub_at).map(|(index, _)| index) else {
            // Of what was asked for, the rest is being closed, or died.
            let (scrub, segments) = (&mut self.background.scrub, &self.segments);
            scrub.asked.retain(|(index, id)| segments.find(*index).is_some_and(|s| s.id == *id && s.live_records > 0));
            return false;
        };
        let segment = self.segments.get_mut(index);
        segment.pins += 1;
        segment.scrub_at = self.now + period;
        segment.scrub_round = self.background.scrub.round();
        let id = segment.id;
        self.background.scrub.asked.remove(&(index, id));
        let left = self.flush_places(index).into();
        self.background.scrub.current = Some(Scrubbing { segment: index, left, running: 0 });
        // There may be more that are due.
        self.background.scrub.looked_at = None;
        true
    }

    /// When segments that are due are looked for.
    pub(super) fn next_scrub(&self) -> Option<Time> {
        let period = self.config.scrub_period;
        let scrub = &self.background.scrub;
        let on = (!period.is_zero() || scrub.round_is_on) && self.segments.len() > 0 && scrub.current.is_none();
        let look = if period.is_zero() { LOOK } else { LOOK.min(period) };
        on.then(|| scrub.looked_at.map_or(self.now, |looked_at| looked_at + look))
    }

    /// After a start it is not known what was looked at when: each segment's turn lies somewhere in the next period, where its number says.
    pub(super) fn spread_scrubs(&mut self) {
        let (now, period) = (self.now, self.config.scrub_period);
        let indices: Vec<SegmentIndex> = self.segments.iter().map(|(index, _)| index).collect();
        for index in indices {
            let segment = self.segments.get_mut(index);
            let spread = (segment.id.counter ^ u64::from(segment.id.nonce)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
            segment.scrub_at = now + period.mul_f64(spread as f64 / 65536.0);
        }
    }

    fn end_scrubbing(&mut self) -> bool {
        let scrub = &mut self.background.scrub;
        let Some(current) = scrub.current.take_if(|current| current.running == 0 && current.left.is_empty()) else {
            return false;
        };
        scrub.status.segments_checked += 1;
        scrub.checked_in_round += 1;
        self.segments.get_mut(current.segment).pins -= 1;
        self.try_stuck_again(current.segment);
        self.see_to_round();
        true
    }

    /// Segments that are to be looked at in this round, and those of them that were.
    fn of_round(&self) -> (u64, u64) {
        let round = self.background.scrub.round();
        let of_round = |(_, segment): &(SegmentIndex, &Segment)| {
            let rests = segment.state != SegmentState::Open && !segment.writing && segment.live_records > 0;
            rests && segment.scrub_round <= round
        };
        self.segments
            .iter()
            .filter(of_round)
            .fold((0, 0), |(all, done), (_, segment)| (all + 1, done + u64::from(segment.scrub_round == round)))
    }

    /// Ends the round when nothing of it is left.
    fn see_to_round(&mut self) {
        let (all, done) = self.of_round();
        let scrub = &mut self.background.scrub;
        if all == done && scrub.checked_in_round > 0 && scrub.current.is_none() {
            scrub.rounds += 1;
            (scrub.round_ended, scrub.checked_in_round) = (Some(self.now), 0);
        }
    }

    pub(super) fn flush_is_checked(&mut self, segment: SegmentIndex, place: FlushPlace, check: FlushCheck, mend: Mend) {
        let scrub = &mut self.background.scrub;
        scrub.status.bytes_read += check.bytes_read;
        scrub.status.units_lost += u64::from(check.rows_lost);
        if mend == Mend::Scrub
            && let Some(current) = &mut scrub.current
        {
            current.running -= 1;
        }
        for shard in &check.shards {
            let wrong = self.note_damage(shard);
            // A read that met it counted it.
            if mend == Mend::Scrub && wrong > 0 {
                self.count_damaged(shard.place.drive, wrong);
            }
        }
        if check.is_right() {
            self.note_check(segment, place, &check, mend.found_by());
            if mend == Mend::Rebuild {
                // What stopped the rebuild has passed.
                self.try_stuck_again(segment);
            }
        } else {
            // What is lost shows when the rest is mended: a header that is written again makes more of it readable.
            self.segments.get_mut(segment).pins += 1;
            self.background.scrub.found.push_back((segment, place, check, mend));
        }
        if mend == Mend::Scrub {
            self.end_scrubbing();
        }
    }

    /// Counts what is not right of a shard, by its drive, and gives how much that is.
    fn note_damage(&mut self, shard: &ShardCheck) -> u64 {
        let units = |unreadable| {
            let wrong = shard.units.iter().filter(|units| units.unreadable == unreadable);
            wrong.map(|units| u64::from(units.rows.end - units.rows.start)).sum::<u64>()
        };
        let header = u64::from(!matches!(shard.header, HeaderCheck::Right | HeaderCheck::Absent));
        let (damaged, unreadable) = (units(false), units(true));
        if damaged + unreadable + header == 0 {
            return 0;
        }
        let health = self.health_of(shard.place.drive);
        health.units_damaged += damaged;
        health.units_unreadable += unreadable;
        health.headers_damaged += header;
        *self.background.scrub.untold.entry(shard.place.drive).or_default() += damaged + unreadable + header;
        damaged + unreadable + header
    }

    pub(super) fn health_of(&mut self, drive: DriveNumber) -> &mut DriveHealth {
        let new = DriveHealth { drive: drive.0, ..DriveHealth::default() };
        self.background.scrub.drives.entry(drive).or_insert(new)
    }

    /// The shards of a flush that can be written again where they lie.
    fn damaged_shards(&self, check: &FlushCheck) -> Vec<Target> {
        if check.headers == 0 {
            return Vec::new();
        }
        let target = |(number, shard): (usize, &ShardCheck)| {
            let header = !matches!(shard.header, HeaderCheck::Right | HeaderCheck::Absent);
            let damaged = header || !shard.units.is_empty();
            (damaged && self.is_member(shard.place.drive) && self.answers(shard.place.drive)).then(|| Target {
                shard: number,
                drive: shard.place.drive,
                uuid: self.drive_uuid(shard.place.drive),
                slot_offset_bytes: self.slot_offset(shard.place),
                units: Wanted::Rows(shard.units.iter().map(|units| units.rows.clone()).collect()),
                header,
            })
        };
        check.shards.iter().enumerate().filter_map(target).collect()
    }

    pub(super) fn flush_is_mended(&mut self, segment: SegmentIndex, check: &FlushCheck, repaired: Repaired) {
        self.background.scrub.mending -= 1;
        self.counters.media_bytes_written += repaired.bytes_written;
        if repaired.is_whole() {
            self.background.scrub.status.flushes_mended += 1;
            self.try_stuck_again(segment);
            for shard in &check.shards {
                let units: u64 = shard.units.iter().map(|units| u64::from(units.rows.end - units.rows.start)).sum();
                let header = u64::from(!matches!(shard.header, HeaderCheck::Right | HeaderCheck::Absent));
                if units + header > 0 {
                    self.health_of(shard.place.drive).mended += units + header;
                }
            }
        } else {
            self.background.scrub.status.flushes_not_mended += 1;
        }
    }

    pub(super) fn next_tell(&self) -> Option<Time> {
        let scrub = &self.background.scrub;
        (!scrub.untold.is_empty()).then(|| scrub.told_at.map_or(self.now, |told| told + TELL))
    }

    /// Tells on which drives damage was found. The control part has what lies on them beside segments written anew.
    pub(super) fn tell_damage(&mut self) {
        if self.next_tell().is_none_or(|at| at > self.now) {
            return;
        }
        self.background.scrub.told_at = Some(self.now);
        for (drive, places) in std::mem::take(&mut self.background.scrub.untold) {
            self.events.push_back(LaneEvent::DamageFound { drive, places });
        }
    }

    /// What was looked at.
    pub(super) fn scrub_status(&self) -> ScrubStatus {
        let mut status = self.background.scrub.status.clone();
        status.period_s = self.config.scrub_period.as_secs();
        (status.round_segments, status.round_segments_checked) = self.of_round();
        status.round_ended_s = self.background.scrub.round_ended.map(|at| self.now.since(at).as_secs_f64());
        let (scrub, segments) = (&self.background.scrub, &self.segments);
        let lives = |(index, id): &&(SegmentIndex, SegmentId)| {
            segments.find(*index).is_some_and(|segment| segment.id == *id && segment.live_records > 0)
        };
        if scrub.round_is_on {
            // What is looked at, mended or named now counts as one.
            status.segments_asked = scrub.asked.iter().filter(lives).count() as u64 + 1;
        }
        status
    }

    /// What is known of the drives.
    pub(super) fn drive_health(&self) -> Vec<DriveHealth> {
        let mut drives = self.background.scrub.drives.clone();
        for (drive, segments_alive) in self.segments.by_drive() {
            let new = DriveHealth { drive: drive.0, ..DriveHealth::default() };
            drives.entry(drive).or_insert(new).segments_alive = segments_alive;
        }
        drives.into_values().collect()
    }
}
