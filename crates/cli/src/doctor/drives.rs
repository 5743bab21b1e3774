//! What each drive is, and what they make together.

use forebay_store::{Examination, ExaminedDrive, ExaminedStore, Standing};

use super::report::{Drive, Geometry, LastStart, MissingDrive, Report, Segment, SuperblockDamage};

/// The report as far as the drives alone tell it.
pub fn report(examination: &Examination, quick: bool) -> Report {
    let store = examination.store.as_ref();
    let mut report = Report {
        store: store.map(|store| store.superblock.store.to_string()),
        quick,
        drives: examination.drives.iter().map(|drive| drive_of(drive, store)).collect(),
        ..Report::default()
    };
    report.start.refused = examination.refusals.iter().map(ToString::to_string).collect();
    if let Some(store) = store {
        fill(&mut report, store);
    }
    for drive in &report.drives {
        let number = drive.number.map_or(String::new(), |number| format!(" (drive {number})"));
        if let Some(reason) = &drive.reason {
            report.warnings.push(format!("{}{number}: {reason}", drive.path));
        }
        for place in &drive.superblocks_damaged {
            let (path, offset, reason) = (&drive.path, place.offset_bytes, &place.reason);
            report.warnings.push(format!(
                "{path}{number}: its superblock at byte {offset} is damaged, the other one counts ({reason}). The next start writes it anew"
            ));
        }
    }
    report
}

fn fill(report: &mut Report, store: &ExaminedStore) {
    let superblock = &store.superblock;
    let geometry = superblock.geometry;
    report.geometry = Some(Geometry {
        data_shards: geometry.data_shards,
        parity_shards: geometry.parity_shards,
        data_shards_min: geometry.data_shards_min,
        lanes: geometry.lanes,
        unit_bytes: geometry.unit_bytes,
        slot_bytes: geometry.slot_bytes,
        checkpoint_bytes: geometry.checkpoint_bytes,
        fragment_bytes_max: geometry.fragment_bytes_max,
        created_unix_s: superblock.created_unix_s,
        format_version: superblock.format_version,
    });
    report.last_start = Some(LastStart {
        epoch: superblock.epoch,
        generation: superblock.generation,
        membership: superblock.membership,
        clean: superblock.clean,
        program: superblock.program.is_known().then(|| superblock.program.to_string()),
    });
    let absent = superblock.drives.iter().filter(|entry| store.absent.contains(&entry.number));
    report.drives_missing = absent
        .map(|entry| MissingDrive {
            number: entry.number.0,
            uuid: entry.uuid.to_string(),
            member: store.is_member(entry.number),
            bytes: entry.bytes,
            segments: 0,
        })
        .collect();
    if report.start.refused.is_empty() {
        let members = report.drives_missing.iter().filter(|drive| drive.member);
        report.start.members_taken_out = members.map(|drive| drive.number).collect();
    }
}

/// Tells the drives that are missed from those that left the store, once all lanes were looked at: on these nothing lies any more that is stored.
pub fn tell_left(report: &mut Report) {
    let segments = |number| {
        let holds = |segment: &&Segment| {
            let lies_there = segment.shards.iter().any(|shard| shard.drive == number);
            lies_there && !matches!(segment.at_start, "unused" | "freed")
        };
        report.lanes.iter().flat_map(|lane| &lane.segments).filter(holds).count() as u64
    };
    let may_bring = |number| {
        let unknown = report.readable.unknown.iter().chain(&report.readable.possibly_acknowledged);
        let needed = report.readable.unavailable_by.iter().flat_map(|by| &by.drives);
        unknown.flat_map(|unknown| &unknown.drives).chain(needed).any(|drive| *drive == number)
    };
    let unreadable = report.lanes.iter().any(|lane| lane.unreadable.is_some());
    let mut missing = std::mem::take(&mut report.drives_missing);
    missing.iter_mut().for_each(|drive| drive.segments = segments(drive.number));
    let is_missed = |drive: &MissingDrive| drive.member || drive.segments > 0 || unreadable || may_bring(drive.number);
    (report.drives_missing, report.drives_left) = missing.into_iter().partition(is_missed);
}

fn drive_of(drive: &ExaminedDrive, store: Option<&ExaminedStore>) -> Drive {
    let (state, reason) = standing(drive);
    let newest = drive.newest.as_ref();
    let cut_off = store.and_then(|store| drive.cut_off_from(&store.superblock));
    let damaged = drive.superblocks.iter().filter_map(|place| {
        let reason = place.generation.as_ref().err()?.clone();
        Some(SuperblockDamage { offset_bytes: place.offset_bytes, reason })
    });
    let behind = store
        .zip(newest)
        .filter(|(store, newest)| state == "member" && newest.generation < store.superblock.generation);
    let reason = reason
        .or_else(|| {
            let (now, before) = (drive.bytes?, cut_off?);
            Some(format!("it has {now} bytes and had {before} when the store was made: it was cut off"))
        })
        .or_else(|| {
            let (store, newest) = behind?;
            let (own, generation) = (newest.generation, store.superblock.generation);
            Some(format!("its superblock is of generation {own}, the newest is {generation}: it missed a write"))
        });
    Drive {
        path: drive.path.display().to_string(),
        state,
        number: newest.map(|superblock| superblock.number.0),
        uuid: newest.map(|superblock| superblock.drive.to_string()),
        store: newest.map(|superblock| superblock.store.to_string()),
        bytes: drive.bytes,
        cut_off_from_bytes: cut_off,
        generation: newest.map(|superblock| superblock.generation),
        // Where there is none at all, the reason says it.
        superblocks_damaged: if newest.is_some() { damaged.collect() } else { Vec::new() },
        reason,
    }
}

/// The word for what a drive is, and what an operator should know of it.
fn standing(drive: &ExaminedDrive) -> (&'static str, Option<String>) {
    match &drive.standing {
        Standing::Member(_) => ("member", None),
        Standing::Out(_) => ("out", None),
        Standing::Foreign(store) => {
            ("other-store", Some(format!("it belongs to store {store} and was not looked at any further")))
        }
        Standing::NeverJoined => {
            let words = "it was being put in when the store fell, and the store went on without it: nothing was ever stored on it";
            ("never-joined", Some(words.to_owned()))
        }
        Standing::Copy(others) => {
            let others: Vec<String> = others.iter().map(|path| path.display().to_string()).collect();
            let words = "which of them is right cannot be told, and none was looked at any further. Name one of them alone to see what it brings";
            ("copy", Some(format!("it has the UUID of {}: {words}", others.join(", "))))
        }
        Standing::OtherHistory { epoch } => (
            "other-history",
            Some(format!(
                "it went on by itself in start {epoch}, apart from the newest of the others, and was not looked at any further. Name the drives \
                 of its half alone to see what they hold"
            )),
        ),
        Standing::Newer(reason) => ("newer", Some(format!("{reason}. It was not looked at any further"))),
        Standing::NoSuperblock(what) => ("no-superblock", Some(format!("it {what}. It was not looked at any further"))),
        Standing::NotOpened(reason) => ("not-opened", Some(reason.clone())),
        Standing::Silent(waited) => ("silent", Some(silent_words(waited.as_secs()))),
    }
}

/// What it means that a drive does not answer.
fn silent_words(seconds: u64) -> String {
    format!(
        "it did not answer for {seconds} s and was given up: all else is told as if it were missing. What it holds may be as good as ever. See to its \
         cabling and to what the system says of it (`dmesg`, `smartctl`), or give it longer with --drive-timeout. This command may not be able to \
         end before it answers"
    )
}
