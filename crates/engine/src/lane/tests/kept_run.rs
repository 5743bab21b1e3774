//! The run under which files stand: in stores that have files, and in those that may get some.

use forebay_types::{EventKey, FileNumber, FileOutcome, PutOutcome, ReadOutcome, RunId, SourceId, Verdict, crc32c};

use super::Driven;
use crate::api::{Admission, FetchFile, FileAdmission, FileWrite, LaneConfig, Put, Reply, Token, WriteAt};
use crate::files::WriterNumber;
use crate::hidden::Hidden;
use crate::lane::{KeptRun, Lane};

const KEPT: EventKey = FileNumber(7).key();
const FILE: FileNumber = FileNumber(5);
const WRITER: WriterNumber = WriterNumber(1);

fn without_files() -> Driven {
    Driven::new(|config| config.has_files = false)
}

fn decide(driven: &mut Driven, key: EventKey, verdict: &Verdict) {
    let token = driven.token();
    while let Admission::Busy = driven.lane.decide(token, key, verdict, false) {
        driven.turn();
    }
    assert!(matches!(driven.reply(), Reply::Decided { token: of, .. } if of == token));
}

/// As a further start finds the lane.
fn started_again(driven: &mut Driven) {
    let config = driven.lane.config.clone();
    driven.media = forebay_media::MemoryMedia::new(&driven.drives);
    driven.lane = Lane::new(LaneConfig { epoch: config.epoch + 1, read_only: true, ..config }, driven.now);
    while driven.lane.serves_reads().is_err() {
        driven.turn();
    }
}

#[test]
fn a_store_with_files_takes_no_fragments_of_their_run() {
    let mut driven = Driven::new(|_| {});
    let put = |key: EventKey| Put { id: key.fragment(SourceId(1)), expected: 1, crc: crc32c(b"bytes") };
    assert_eq!(driven.lane.put(Token(1), &put(KEPT), b"bytes"), Admission::Done(PutOutcome::KeptRun));
    driven.put(EventKey::new(RunId::FILES.0 - 1, 7), 1, 1, 100);
    assert_eq!(driven.read(KEPT, 1).0, ReadOutcome::NotFound);
}

#[test]
fn a_store_without_files_takes_them_and_has_no_files() {
    let mut driven = without_files();
    driven.put(KEPT, 1, 1, 100);
    driven.put(FILE.key(), 1, 1, 100);
    driven.delete(FILE.key());
    assert_eq!(driven.read(KEPT, 1), (ReadOutcome::Found, vec![1; 100]));
    let refused = Admission::Done(FileOutcome::NoFiles);
    let lane = &mut driven.lane;
    assert_eq!(lane.open_file(FILE, WRITER, true), refused);
    let write = FileWrite {
        file: FILE,
        at: WriteAt::End,
        crc: crc32c(b"x"),
        writer: WRITER,
        appends: false,
        may_take_last: false,
    };
    assert_eq!(lane.write_file(Token(1), &write, b"x"), FileAdmission::Done(FileOutcome::NoFiles));
    assert_eq!(lane.set_file(Token(2), FILE, Some(1), None), refused);
    assert_eq!(lane.seal_file(Token(3), FILE), refused);
    assert_eq!(lane.end_file(Token(4), FILE), refused);
    let not_found = FetchFile::Done(ReadOutcome::NotFound, 0);
    assert_eq!(lane.read_file(Token(5), FILE, 0, 10, &mut Vec::new()), not_found, "what is over there was an event");
    assert_eq!((lane.outcome_of_unknown_file(FILE), lane.file(FILE)), (ReadOutcome::NotFound, None));
    assert!(lane.runs().iter().any(|run| run.run == RunId::FILES));
}

#[test]
fn what_a_lane_knows_of_the_run_of_files_is_found_by_the_next_start() {
    let mut driven = without_files();
    driven.put(EventKey::new(1, 7), 1, 1, 100);
    driven.delete(EventKey::new(1, 7));
    started_again(&mut driven);
    assert_eq!(driven.lane.kept_run(), KeptRun::Unused);

    let mut driven = without_files();
    driven.put(KEPT, 1, 1, 100);
    started_again(&mut driven);
    assert_eq!(driven.lane.kept_run(), KeptRun::Used { stored: 1, finished: 0 });

    let mut driven = without_files();
    (1..=3).for_each(|source| driven.put(KEPT, source, 3, 100));
    driven.put(FILE.key(), 1, 1, 100);
    decide(&mut driven, KEPT, &Verdict::Accept(vec!["physics".parse().expect("a name")]));
    decide(&mut driven, FILE.key(), &Verdict::Reject);
    started_again(&mut driven);
    assert_eq!(driven.lane.kept_run(), KeptRun::Used { stored: 1, finished: 1 });
}

#[test]
fn what_cannot_be_read_may_be_of_the_run_of_files() {
    let mut driven = without_files();
    driven.put(EventKey::new(1, 7), 1, 1, 100);
    driven.lane.hidden.add_ids(ReadOutcome::Lost, (1, 5), (0, 9));
    assert_eq!(driven.lane.kept_run(), KeptRun::Unused, "other runs lie there");
    driven.lane.hidden.add_ids(ReadOutcome::Lost, (1, u32::MAX), (0, 9));
    assert_eq!(driven.lane.kept_run(), KeptRun::Hidden(ReadOutcome::Lost));
    driven.lane.hidden = Hidden::default();
    driven.lane.segments_unreadable = 1;
    assert_eq!(driven.lane.kept_run(), KeptRun::Hidden(ReadOutcome::Unavailable));
}
