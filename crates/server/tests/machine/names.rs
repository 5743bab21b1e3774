//! Names on the pretended lane: what is told is durable, and a start finds it again.

use forebay_protocol::{ChangeName, Class, ErrorCode, ListReply, NameChange, NameList, NameLookup, NodeReply};
use forebay_server::Service;
use forebay_types::{FileNumber, NameOutcome, NewNode, NodeKind, SetAttributes};

use crate::fake::{FakeLane, Will, World, config};

fn new(kind: NodeKind) -> NewNode {
    NewNode { kind, mode: 0o640, owner: 3, group: 4, device: 0, target: Vec::new() }
}

/// Names as a client asks for them.
struct Asker {
    world: World,
    id: u64,
    change: u64,
}

impl Asker {
    fn new(mut world: World) -> Asker {
        let id = world.connect(Class::Monitor);
        Asker { world, id, change: 0 }
    }

    fn settle(&mut self) {
        for _ in 0..6 {
            self.world.turn(true);
            self.world.lane.settle();
        }
        self.world.turn(true);
    }

    fn reply(&mut self) -> NodeReply {
        self.settle();
        let frames = self.world.take(self.id);
        assert_eq!(frames.len(), 1, "{frames:?}");
        frames[0].message()
    }

    fn change(&mut self, what: NameChange) -> NodeReply {
        self.change += 1;
        self.world.ask(self.id, 5, &ChangeName { client: 9, change: self.change, waits_from: self.change, what });
        self.reply()
    }

    /// A change comes once more, of a client that waits for all from there on.
    fn change_again(&mut self, change: u64, what: NameChange) -> NodeReply {
        self.world.ask(self.id, 5, &ChangeName { client: 9, change, waits_from: change, what });
        self.reply()
    }

    fn make(&mut self, directory: FileNumber, name: &str, kind: NodeKind) -> FileNumber {
        let reply = self.change(NameChange::Make { directory, name: name.into(), new: new(kind) });
        assert_eq!(reply.outcome, NameOutcome::Done);
        reply.node.expect("it was made").number
    }

    fn lookup(&mut self, directory: Option<FileNumber>, name: &str) -> NodeReply {
        self.world.ask(self.id, 6, &NameLookup { directory, name: name.into() });
        self.reply()
    }

    fn list(&mut self, directory: Option<FileNumber>, after: &str, max: u32) -> (Vec<String>, bool) {
        self.world.ask(self.id, 7, &NameList { directory, after: after.into(), max });
        self.settle();
        let reply: ListReply = self.world.take(self.id).remove(0).message();
        let text = |name: &Vec<u8>| String::from_utf8(name.clone()).expect("text");
        (reply.entries.iter().map(|entry| text(&entry.name)).collect(), reply.more)
    }

    /// The server is started again on what the lane has.
    fn restart(self) -> Asker {
        let before = self.world.lane;
        let lane = FakeLane { segments_free: 100, files: before.files, ended: before.ended, ..FakeLane::default() };
        let mut world = World::new(config());
        (world.service, world.lane) = (Service::new(config()), lane);
        (0..10).for_each(|_| {
            world.turn(true);
            world.lane.settle();
        });
        Asker::new(world)
    }
}

const ROOT: FileNumber = FileNumber(0);

#[test]
fn names_are_made_listed_renamed_and_removed_and_found_by_the_next_start() {
    let mut asker = Asker::new(World::new(config()));
    let directory = asker.make(ROOT, "run 7", NodeKind::Directory);
    let file = asker.make(directory, "a", NodeKind::File);
    let other = asker.make(directory, "b", NodeKind::File);
    asker.make(directory, "c", NodeKind::File);
    assert_eq!(asker.list(Some(directory), "", 2), (vec!["a".to_owned(), "b".to_owned()], true));
    assert_eq!(asker.list(Some(directory), "b", 2), (vec!["c".to_owned()], false));
    let found = asker.lookup(Some(directory), "a").node.expect("it is there");
    assert_eq!((found.number, found.view.kind, found.view.attributes.owner), (file, NodeKind::File, 3));
    assert_eq!(asker.lookup(Some(directory), "").node.expect("the directory").view.links, 2);
    // Over what is there, when that is asked.
    let rename = |replace| NameChange::Rename {
        from_directory: directory,
        from: "a".into(),
        to_directory: directory,
        to: "b".into(),
        replace,
    };
    assert_eq!(asker.change(rename(false)).outcome, NameOutcome::Exists);
    assert_eq!(asker.change(rename(true)).node.expect("it is there").number, file);
    assert!(asker.world.lane.ended.contains(&other), "what gave way ends");
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    assert_eq!(asker.change(NameChange::Set { number: file, set }).node.expect("there").view.attributes.mode, 0o600);
    assert_eq!(
        asker.change(NameChange::RemoveDirectory { directory: ROOT, name: "run 7".into() }).outcome,
        NameOutcome::NotEmpty
    );
    assert_eq!(asker.change(NameChange::Remove { directory, name: "c".into() }).outcome, NameOutcome::Done);
    assert_eq!(asker.lookup(Some(directory), "c").outcome, NameOutcome::NotFound);
    let mut asker = asker.restart();
    assert_eq!(asker.list(None, "", 10), (vec!["run 7".to_owned()], false));
    assert_eq!(asker.list(Some(directory), "", 10), (vec!["b".to_owned()], false));
    let found = asker.lookup(Some(directory), "b").node.expect("it is there");
    assert_eq!((found.number, found.view.attributes.mode), (file, 0o600));
    assert!(asker.make(directory, "d", NodeKind::File) > other, "no number is given twice");
}

#[test]
fn nothing_is_told_before_it_is_durable() {
    let mut asker = Asker::new(World::new(config()));
    let make = NameChange::Make { directory: ROOT, name: "a".into(), new: new(NodeKind::File) };
    let (id, change) = (asker.id, ChangeName { client: 9, change: 1, waits_from: 1, what: make });
    asker.world.ask(id, 5, &change);
    (0..5).for_each(|_| asker.world.turn(true));
    // Neither the change, nor who sees it.
    asker.world.ask(id, 6, &NameLookup { directory: None, name: "a".into() });
    asker.world.ask(id, 7, &NameList { directory: None, after: Vec::new(), max: 10 });
    (0..5).for_each(|_| asker.world.turn(true));
    assert_eq!(asker.world.take(id).len(), 0);
    asker.settle();
    let frames = asker.world.take(id);
    assert_eq!(frames.iter().map(|frame| frame.request).collect::<Vec<_>>(), [5, 6, 7]);
    let made: NodeReply = frames[0].message();
    // Asked again, as by a client that did not get its answer: it is not made twice, and not refused.
    let other = asker.world.connect(Class::Monitor);
    asker.world.ask(other, 8, &change);
    asker.settle();
    assert_eq!(asker.world.take(other)[0].message::<NodeReply>(), made);
}

#[test]
fn what_is_no_name_is_refused() {
    let mut asker = Asker::new(World::new(config()));
    let mut make = |name: &[u8]| {
        asker.change(NameChange::Make { directory: ROOT, name: name.to_vec(), new: new(NodeKind::File) }).outcome
    };
    for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert_eq!(make(bad), NameOutcome::BadName, "{bad:?}");
    }
    assert_eq!(make(&[b'x'; 256]), NameOutcome::TooLong);
    assert_eq!(make(&[b'x'; 255]), NameOutcome::Done);
    assert_eq!(make(b"\xff\xfe"), NameOutcome::Done, "any bytes may be a name");
}

#[test]
fn in_a_full_store_names_go_and_none_come() {
    let mut asker = Asker::new(World::new(config()));
    let file = asker.make(ROOT, "a", NodeKind::File);
    asker.world.lane.is_full_of_files = true;
    assert_eq!(asker.change(NameChange::Remove { directory: ROOT, name: "a".into() }).outcome, NameOutcome::Done);
    assert!(asker.world.lane.ended.contains(&file));
    let make = NameChange::Make { directory: ROOT, name: "b".into(), new: new(NodeKind::File) };
    assert_eq!(asker.change(make.clone()).outcome, NameOutcome::NoSpace);
    asker.world.lane.is_full_of_files = false;
    asker.settle();
    assert_eq!(asker.change(make).outcome, NameOutcome::Done);
}

#[test]
fn a_copy_of_a_change_has_the_answer_of_the_first_though_the_store_became_full_or_empty_since() {
    let mut asker = Asker::new(World::new(config()));
    let make = |name: &str| NameChange::Make { directory: ROOT, name: name.into(), new: new(NodeKind::File) };
    asker.world.lane.is_full_of_files = true;
    // It is noticed by what is written.
    asker.change(NameChange::Set { number: ROOT, set: SetAttributes::default() });
    assert_eq!(asker.change(make("a")).outcome, NameOutcome::NoSpace);
    asker.world.lane.is_full_of_files = false;
    asker.settle();
    assert_eq!(
        asker.change_again(2, make("a")).outcome,
        NameOutcome::NoSpace,
        "its client was told that it is not made"
    );
    assert_eq!(asker.lookup(None, "a").outcome, NameOutcome::NotFound);
    let file = asker.make(ROOT, "b", NodeKind::File);
    asker.world.lane.is_full_of_files = true;
    asker.change(NameChange::Set { number: ROOT, set: SetAttributes::default() });
    assert_eq!(asker.change_again(3, make("b")).outcome, NameOutcome::Done);
    // Who asks anew of a full store hears of what is there before it hears of the room.
    assert_eq!(asker.change(make("b")).outcome, NameOutcome::Exists);
    assert_eq!(asker.change(make("c")).outcome, NameOutcome::NoSpace);
    let in_file = NameChange::Make { directory: file, name: "d".into(), new: new(NodeKind::File) };
    assert_eq!(asker.change(in_file).outcome, NameOutcome::NotDirectory);
}

#[test]
fn names_take_no_more_memory_than_they_may() {
    let mut world = World::new(config());
    world.lane.index_bytes_max = Some(10_000);
    world.now = world.now + std::time::Duration::from_secs(10);
    let mut asker = Asker::new(world);
    let mut make = |number: u32| {
        let make = NameChange::Make { directory: ROOT, name: number.to_string().into(), new: new(NodeKind::File) };
        asker.change(make).outcome
    };
    let made = (0..1000).take_while(|number| make(*number) == NameOutcome::Done).count();
    assert!((30..200).contains(&made), "{made}");
    assert_eq!(make(2000), NameOutcome::IndexFull);
    assert_eq!(asker.change(NameChange::Remove { directory: ROOT, name: "0".into() }).outcome, NameOutcome::Done);
}

#[test]
fn many_changes_make_a_snapshot_and_a_start_reads_it() {
    let mut asker = Asker::new(World::new(config()));
    let directory = asker.make(ROOT, "many", NodeKind::Directory);
    for number in 0..16_000 {
        asker.change += 1;
        let make = NameChange::Make { directory, name: format!("{number:05}").into(), new: new(NodeKind::File) };
        asker.world.ask(asker.id, 5, &ChangeName { client: 9, change: asker.change, waits_from: 1, what: make });
        if number % 500 == 499 {
            asker.settle();
            let frames = asker.world.take(asker.id);
            assert!(
                frames.len() == 500 && frames.iter().all(|f| f.message::<NodeReply>().outcome == NameOutcome::Done)
            );
        }
    }
    (0..100).for_each(|_| asker.settle());
    let kept: Vec<u64> = asker.world.lane.files.keys().map(|file| file.0).filter(|file| *file < 1 << 20).collect();
    assert!(kept.iter().all(|file| *file >= 2), "files of the first generation ended: {kept:?}");
    let mut asker = asker.restart();
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let (page, more) = asker.list(Some(directory), &after, 5000);
        all.extend(page);
        after = all.last().expect("some").clone();
        if !more {
            break;
        }
    }
    assert_eq!(all, (0..16_000).map(|number| format!("{number:05}")).collect::<Vec<_>>());
}

#[test]
fn what_a_crash_left_of_a_change_is_cut_and_lost_names_come_back_under_lost_and_found() {
    let mut asker = Asker::new(World::new(config()));
    let file = asker.make(ROOT, "a", NodeKind::File);
    asker.world.lane.files.entry(file).or_default().bytes.extend(b"bytes");
    let journal = FileNumber(1);
    asker.world.lane.files.get_mut(&journal).expect("the journal").bytes.extend([40, 0, 0, 0, 1]);
    let mut asker = asker.restart();
    let other = asker.make(ROOT, "b", NodeKind::File);
    asker.world.lane.files.entry(other).or_default().bytes.extend(b"others");
    let mut asker = asker.restart();
    assert_eq!(asker.list(None, "", 10).0, ["a", "b"]);
    // A byte in the middle is another one: nobody knows what was said there and behind.
    asker.world.lane.files.get_mut(&journal).expect("the journal").bytes[20] ^= 1;
    let mut asker = asker.restart();
    asker.settle();
    assert_eq!(asker.list(None, "", 10).0, ["lost+found"]);
    let found = asker.lookup(None, "lost+found").node.expect("there").number;
    assert_eq!(asker.list(Some(found), "", 10).0, [file.0.to_string(), other.0.to_string()]);
    assert!(asker.world.lane.ended.iter().all(|ended| ended.0 < 1 << 20), "no bytes went");
    // It stays so.
    let mut asker = asker.restart().restart();
    assert_eq!(asker.list(Some(found), "", 10).0.len(), 2);
}

#[test]
fn of_names_that_are_out_of_reach_a_start_that_writes_waits_and_one_that_does_not_leaves_them_out() {
    for (read_only, later) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut asker = Asker::new(World::new(config()));
        asker.make(ROOT, "a", NodeKind::File);
        let (journal, next) = (FileNumber(1), FileNumber(3));
        let reach = asker.world.lane.files[&journal].bytes.len();
        asker.make(ROOT, "b", NodeKind::File);
        // What comes behind it is in the next journal once more.
        let behind = asker.world.lane.files[&journal].bytes[reach..].to_vec();
        asker.world.lane.files.entry(next).or_default().bytes = behind;
        let config = forebay_server::ServiceConfig { read_only, ..config() };
        let before = asker.world.lane;
        let mut world = World::new(config.clone());
        world.lane = FakeLane { segments_free: 100, files: before.files, ..FakeLane::default() };
        (world.lane.reads_files_later, world.lane.out_of_reach) = (later, Some((journal, reach)));
        world.service = Service::new(config);
        let mut asker = Asker::new(world);
        (0..3).for_each(|_| asker.settle());
        if read_only {
            assert_eq!(asker.list(None, "", 10).0, ["a", "b"], "later: {later}");
            continue;
        }
        asker.world.ask(asker.id, 2, &NameLookup { directory: None, name: Vec::new() });
        asker.settle();
        let error = asker.world.take(asker.id)[0].error();
        assert!(error.code == ErrorCode::NotServing && error.sentence.contains("too few"), "{}", error.sentence);
        asker.world.lane.out_of_reach = None;
        (0..3).for_each(|_| asker.settle());
        assert_eq!(asker.lookup(None, "a").outcome, NameOutcome::Done, "its drives are back");
    }
}

#[test]
fn names_are_asked_on_lane_0_when_they_are_there() {
    let mut world = World::new(config());
    world.lane.not_serving = true;
    world.service = Service::new(config());
    let id = world.connect(Class::Monitor);
    world.ask(id, 2, &NameLookup { directory: None, name: Vec::new() });
    world.turn(true);
    let error = world.take(id)[0].error();
    assert!(error.code == ErrorCode::NotServing && error.retryable, "{}", error.sentence);
    world.lane.not_serving = false;
    world.lane.will.push_back(Will::BeBusy);
    let mut asker = Asker { world, id, change: 0 };
    asker.settle();
    assert_eq!(asker.lookup(None, "").outcome, NameOutcome::Done);
}
