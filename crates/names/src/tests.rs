//! Names against a model that is a tree of paths; and starts at any moment.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use forebay_types::{FileNumber, NewNode, NodeKind, NodeView, SetAttributes};

/// What stands in journals and snapshots, as a driver keeps it.
#[derive(Clone, Default)]
struct Written {
    journals: BTreeMap<u64, Vec<u8>>,
    snapshots: BTreeMap<u64, (Vec<u8>, bool)>,
}

impl Written {
    fn take(&mut self, names: &mut Names) {
        while let Some(output) = names.next_output() {
            match output {
                Output::Journal { generation, bytes } => self.journals.entry(generation).or_default().extend(bytes),
                Output::Snapshot { generation, bytes, whole_at } => {
                    let (all, whole) = self.snapshots.entry(generation).or_default();
                    all.extend(bytes);
                    *whole = whole_at.is_some();
                }
            }
        }
    }

    fn start(&self, lanes: u16) -> (Names, Vec<Loss>) {
        let mut loader = Loader::new(lanes);
        let newest = self.snapshots.iter().rev().find(|(_, (_, whole))| *whole);
        let from = newest.map_or(0, |(generation, _)| *generation);
        if let Some((_, (bytes, _))) = newest {
            assert_eq!(loader.read(bytes), Ok(bytes.len()));
            assert!(loader.is_whole());
        }
        let mut last = from;
        for (generation, bytes) in self.journals.range(from..) {
            assert_eq!(loader.read(bytes), Ok(bytes.len()));
            last = *generation;
        }
        loader.finish(last)
    }
}

/// Everything under a directory, by path.
fn tree(names: &Names) -> BTreeMap<String, (FileNumber, NodeView)> {
    fn walk(names: &Names, at: FileNumber, path: &str, into: &mut BTreeMap<String, (FileNumber, NodeView)>) {
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let page = names.list(at, after.as_deref(), 3).expect("a directory").found;
            let Some(last) = page.last() else { return };
            after = Some(last.name.clone());
            for entry in page {
                let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                let (number, view) = names.lookup(at, &entry.name).expect("it is listed").found;
                assert_eq!((number, view.kind), (entry.number, entry.kind));
                if entry.kind == NodeKind::Directory {
                    assert_eq!(names.parent(number), Ok(at));
                    walk(names, number, &path, into);
                }
                assert!(into.insert(path, (number, view)).is_none());
            }
        }
    }
    let mut into = BTreeMap::new();
    let root = names.root();
    into.insert(String::new(), (root, names.node(root).expect("the root").found));
    walk(names, root, "", &mut into);
    into
}

#[derive(Clone, Debug)]
enum Step {
    Make(usize, usize, NodeKind),
    Link(usize, usize, usize),
    Remove(usize, usize),
    RemoveDirectory(usize, usize),
    Rename(usize, usize, usize, usize, bool),
    Set(usize, u16),
    Forget(usize),
    Keep(u8, usize),
    Snapshot(usize),
}

const NAMES: [&[u8]; 4] = [b"a", b"bb", b"\xff\xfe", b"d d"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (some, name) = (0..64usize, 0..NAMES.len());
    let kind = prop::sample::select(vec![
        NodeKind::File,
        NodeKind::Directory,
        NodeKind::Directory,
        NodeKind::Link,
        NodeKind::BlockDevice,
    ]);
    let step = prop_oneof![
        6 => (some.clone(), name.clone(), kind).prop_map(|(at, name, kind)| Step::Make(at, name, kind)),
        2 => (some.clone(), some.clone(), name.clone()).prop_map(|(of, at, name)| Step::Link(of, at, name)),
        2 => (some.clone(), name.clone()).prop_map(|(at, name)| Step::Remove(at, name)),
        1 => (some.clone(), name.clone()).prop_map(|(at, name)| Step::RemoveDirectory(at, name)),
        4 => (some.clone(), name.clone(), some.clone(), name, any::<bool>())
            .prop_map(|(at, from, into, to, replace)| Step::Rename(at, from, into, to, replace)),
        1 => (some.clone(), any::<u16>()).prop_map(|(of, mode)| Step::Set(of, mode)),
        1 => some.prop_map(Step::Forget),
        2 => (0..20u8, 0..300usize).prop_map(|(key, bytes)| Step::Keep(key, bytes)),
        2 => (1..300usize).prop_map(Step::Snapshot),
    ];
    prop::collection::vec(step, 1..120)
}

/// What is expected: for each directory its entries, for each number what it is.
#[derive(Clone, Default)]
struct Model {
    directories: BTreeMap<FileNumber, BTreeMap<Vec<u8>, FileNumber>>,
    kinds: BTreeMap<FileNumber, NodeKind>,
    kept: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Model {
    fn names_of(&self, number: FileNumber) -> usize {
        self.directories.values().flat_map(|entries| entries.values()).filter(|of| **of == number).count()
    }

    fn lies_in(&self, number: FileNumber, ancestor: FileNumber) -> bool {
        number == ancestor
            || self.directories.iter().any(|(directory, entries)| {
                directory != &number && entries.values().any(|of| *of == number) && self.lies_in(*directory, ancestor)
            })
    }

    fn gone(&mut self, number: FileNumber) -> Option<FileNumber> {
        let is_gone = self.names_of(number) == 0;
        is_gone.then(|| {
            self.kinds.remove(&number);
            self.directories.remove(&number);
            number
        })
    }
}

fn play(steps: &[Step], lanes: u16, mut look: impl FnMut(&Names, &Model, &Written)) {
    let mut names = Names::new(lanes);
    let mut written = Written::default();
    let root = names.root();
    let mut model = Model::default();
    model.directories.insert(root, BTreeMap::new());
    model.kinds.insert(root, NodeKind::Directory);
    // Numbers that had names, too: they are asked for as any.
    let mut all = vec![root];
    let mut now = 0;
    for step in steps {
        now += 1;
        let some = |at: usize| all[at % all.len()];
        match *step {
            Step::Make(at, name, kind) => {
                let (at, name) = (some(at), NAMES[name]);
                let target = if kind == NodeKind::Link { b"x/y".to_vec() } else { Vec::new() };
                let new = NewNode { kind, mode: 0o644, owner: 1, group: 2, device: 7, target };
                let made = names.make(at, name, &new, now);
                match model.directories.get(&at) {
                    Some(entries) if entries.contains_key(name) => assert_eq!(made, Err(NamesError::Exists)),
                    Some(_) => assert!(made.is_ok(), "{made:?}"),
                    None => assert!(matches!(made, Err(NamesError::NotFound | NamesError::NotDirectory)), "{made:?}"),
                }
                if let Ok(made) = made {
                    assert!(!all.contains(&made.number), "numbers are given once");
                    all.push(made.number);
                    model.kinds.insert(made.number, kind);
                    if kind == NodeKind::Directory {
                        model.directories.insert(made.number, BTreeMap::new());
                    }
                    let entries = model.directories.get_mut(&at).expect("it was made there");
                    entries.insert(name.to_vec(), made.number);
                }
            }
            Step::Link(of, at, name) => {
                let (of, at, name) = (some(of), some(at), NAMES[name]);
                let done = names.link(of, at, name, now);
                let may = model.kinds.get(&of).is_some_and(|kind| *kind != NodeKind::Directory)
                    && model.directories.get(&at).is_some_and(|entries| !entries.contains_key(name));
                assert_eq!(done.is_ok(), may, "{done:?}");
                if may {
                    model.directories.get_mut(&at).expect("it is there").insert(name.to_vec(), of);
                }
            }
            Step::Remove(at, name) => {
                let (at, name) = (some(at), NAMES[name]);
                let done = names.remove(at, name, now);
                let there = model.directories.get(&at).and_then(|entries| entries.get(name)).copied();
                let may = there.filter(|of| model.kinds[of] != NodeKind::Directory);
                assert_eq!(done.is_ok(), may.is_some(), "{done:?}");
                if let Some(of) = may {
                    model.directories.get_mut(&at).expect("it is there").remove(name);
                    assert_eq!(done.expect("it may").unnamed, model.gone(of));
                }
            }
            Step::RemoveDirectory(at, name) => {
                let (at, name) = (some(at), NAMES[name]);
                let done = names.remove_directory(at, name, now);
                let there = model.directories.get(&at).and_then(|entries| entries.get(name)).copied();
                let may = there.filter(|of| model.directories.get(of).is_some_and(BTreeMap::is_empty));
                assert_eq!(done.is_ok(), may.is_some(), "{done:?}");
                if let Some(of) = may {
                    model.directories.get_mut(&at).expect("it is there").remove(name);
                    assert_eq!(done.expect("it may").unnamed, model.gone(of));
                }
            }
            Step::Rename(at, from, into, to, replace) => {
                let (at, from, into, to) = (some(at), NAMES[from], some(into), NAMES[to]);
                let rename = Rename { from_directory: at, from, to_directory: into, to, replace };
                let done = names.rename(rename, now);
                let of = model.directories.get(&at).and_then(|entries| entries.get(from)).copied();
                let there = model.directories.get(&into).and_then(|entries| entries.get(to)).copied();
                let is_directory = |of: &FileNumber| model.kinds[of] == NodeKind::Directory;
                let gives_way = |of: &FileNumber, there: &FileNumber| {
                    there == of
                        || is_directory(of) == is_directory(there)
                            && model.directories.get(there).is_none_or(BTreeMap::is_empty)
                };
                let may = of.filter(|of| {
                    model.directories.contains_key(&into)
                        && !(is_directory(of) && model.lies_in(into, *of))
                        && there.is_none_or(|there| replace && gives_way(of, &there))
                });
                assert_eq!(done.is_ok(), may.is_some(), "{done:?}");
                if let Some(of) = may.filter(|of| Some(*of) != there) {
                    model.directories.get_mut(&at).expect("it is there").remove(from);
                    model.directories.get_mut(&into).expect("it is there").insert(to.to_vec(), of);
                    let unnamed = there.and_then(|there| model.gone(there));
                    assert_eq!(done.expect("it may").unnamed, unnamed);
                }
            }
            Step::Set(of, mode) => {
                let of = some(of);
                let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                let known = names.node(of).is_ok();
                assert_eq!(names.set(of, set, now).is_ok(), known);
            }
            Step::Forget(of) => names.forget(some(of)),
            Step::Keep(key, bytes) => {
                let (key, value) = (vec![b'k', key], vec![key; bytes]);
                let before = names.position();
                assert!(names.keep(&key, &value) > before);
                model.kept.insert(key, value);
            }
            Step::Snapshot(bytes) => {
                if names.snapshot.is_none() {
                    names.begin_snapshot().expect("there are many numbers");
                }
                names.go_on_with_snapshot(bytes);
            }
        }
        written.take(&mut names);
        look(&names, &model, &written);
    }
}

proptest! {
    #[test]
    fn names_are_as_the_model_has_them(steps in steps(), lanes in 1..4u16) {
        play(&steps, lanes, |names, model, _| {
            let tree = tree(names);
            let entries: usize = model.directories.values().map(BTreeMap::len).sum();
            assert_eq!(tree.len(), entries + 1, "all lie under the root");
            for (number, view) in tree.values() {
                assert_eq!(view.kind, model.kinds[number]);
                let links = match model.directories.get(number) {
                    Some(entries) => 2 + entries.values().filter(|of| model.kinds[of] == NodeKind::Directory).count(),
                    None => model.names_of(*number),
                };
                assert_eq!(view.links as usize, links);
            }
            let named: Vec<FileNumber> = names.numbers().map(|(number, _)| number).collect();
            assert!(named.iter().eq(model.kinds.keys()));
            assert_eq!(names.entries(), entries as u64);
            let heap_bytes: usize = names.nodes.iter().map(|(_, node)| node.heap_bytes()).sum();
            let least: usize = model.kept.iter().map(|(key, value)| key.len() + value.len()).sum();
            let kept = names.bytes() - names.nodes.bytes() - heap_bytes;
            assert!(least <= kept && kept <= least + 140 * model.kept.len(), "{kept} bytes are kept, {least} at least");
        });
    }

    /// Whatever was written until now, snapshots half made among it, gives the same names again, and a journal that goes on.
    #[test]
    fn a_start_finds_what_was_there(steps in steps(), lanes in 1..4u16) {
        play(&steps, lanes, |names, model, written| {
            let (mut again, losses) = written.start(lanes);
            assert_eq!(losses, []);
            assert_eq!(tree(&again), tree(names));
            let kept: BTreeMap<Vec<u8>, Vec<u8>> = again.kept().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            assert_eq!(kept, model.kept);
            // It gives no number twice either.
            let mut known: Vec<FileNumber> = tree(names).values().map(|(number, _)| *number).collect();
            let new = NewNode { kind: NodeKind::File, mode: 0, owner: 0, group: 0, device: 0, target: Vec::new() };
            for at in 0..3u8 {
                let made = again.make(again.root(), &[b'n', b'0' + at], &new, 1).expect("nobody has such a name").number;
                assert!(!known.contains(&made));
                known.push(made);
            }
        });
    }
}

/// With what a lane knows of a file (`crates/engine/src/files`) these are the 200 bytes of `docs/files.md`, after a start, too.
#[test]
fn a_file_takes_little_beside_its_name() {
    let mut names = Names::new(2);
    let new = NewNode { kind: NodeKind::File, mode: 0o644, owner: 0, group: 0, device: 0, target: Vec::new() };
    let directory = NewNode { kind: NodeKind::Directory, ..new.clone() };
    let (count, mut written) = (40_000, Written::default());
    let mut at = names.root();
    for number in 0..count {
        if number % 10_000 == 0 {
            let name = format!("directory{number}");
            at = names.make(names.root(), name.as_bytes(), &directory, 1).expect("made").number;
        }
        names.make(at, format!("{number:08}").as_bytes(), &new, 1).expect("made");
    }
    written.take(&mut names);
    let (again, losses) = written.start(2);
    assert_eq!((losses, again.entries()), (Vec::new(), names.entries()));
    for names in [names, again] {
        let bytes = names.bytes() / count - 8;
        assert!(bytes < 90, "{bytes} bytes beside its name");
    }
}

#[test]
fn what_is_no_name_is_refused() {
    let mut names = Names::new(2);
    let root = names.root();
    let file = NewNode { kind: NodeKind::File, mode: 0o644, owner: 0, group: 0, device: 0, target: Vec::new() };
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert_eq!(names.make(root, name, &file, 1), Err(NamesError::BadName), "{name:?}");
        assert_eq!(names.lookup(root, name).map(drop), Err(NamesError::BadName));
    }
    assert_eq!(names.make(root, &[b'x'; 256], &file, 1), Err(NamesError::TooLong));
    let made = names.make(root, &[0xFF; 255], &file, 1).expect("255 bytes that are no text are a name");
    assert_eq!(names.make(made.number, b"a", &file, 1), Err(NamesError::NotDirectory));
    let link = NewNode { kind: NodeKind::Link, target: vec![b'a'; 4096], ..file.clone() };
    assert_eq!(names.make(root, b"link", &link, 1), Err(NamesError::TooLong));
    assert_eq!(names.make(FileNumber(12345), b"a", &file, 1), Err(NamesError::NotFound));
    let rename = Rename { from_directory: root, from: &[0xFF; 255], to_directory: root, to: b"..", replace: true };
    assert_eq!(names.rename(rename, 1), Err(NamesError::BadName));
}

#[test]
fn what_is_not_durable_is_not_told_before_it_is() {
    let mut names = Names::new(1);
    let root = names.root();
    let file = NewNode { kind: NodeKind::File, mode: 0o644, owner: 0, group: 0, device: 0, target: Vec::new() };
    let first = names.make(root, b"a", &file, 1).expect("made");
    assert_eq!(names.lookup(root, b"a").expect("found").stable_at, first.position);
    names.is_durable(first.position);
    assert_eq!(names.lookup(root, b"a").expect("found").stable_at, 0);
    let second = names.make(root, b"b", &file, 2).expect("made");
    assert!(second.position > first.position);
    assert_eq!(names.node(first.number).expect("there").stable_at, 0, "nothing changed of it");
    assert_eq!(names.list(root, None, 9).expect("listed").stable_at, second.position);
    let gone = names.remove(root, b"b", 3).expect("removed");
    assert_eq!(gone.unnamed, Some(second.number));
    assert_eq!(names.node(second.number).expect("who has it open may ask").found.links, 0);
    names.is_durable(gone.position);
    names.forget(second.number);
    assert_eq!(names.node(second.number).map(drop), Err(NamesError::NotFound));
    assert_eq!(names.durable(), gone.position);
}

#[test]
fn a_part_of_a_journal_that_is_missing_is_told() {
    let mut names = Names::new(1);
    let root = names.root();
    let mut written = Vec::new();
    let directory =
        NewNode { kind: NodeKind::Directory, mode: 0o755, owner: 0, group: 0, device: 0, target: Vec::new() };
    let file = NewNode { kind: NodeKind::File, ..directory.clone() };
    let mut frame = |names: &mut Names| match names.next_output() {
        Some(Output::Journal { bytes, .. }) => written.push(bytes),
        other => panic!("{other:?}"),
    };
    let made = names.make(root, b"d", &directory, 1).expect("made").number;
    frame(&mut names);
    let inside = names.make(made, b"f", &file, 1).expect("made").number;
    frame(&mut names);
    let rename = Rename { from_directory: made, from: b"f", to_directory: root, to: b"g", replace: false };
    names.rename(rename, 2).expect("renamed");
    frame(&mut names);
    names.link(inside, made, b"h", 3).expect("linked");
    frame(&mut names);
    let mut loader = Loader::new(1);
    assert_eq!(loader.read(&written[3]), Ok(written[3].len()));
    let (names, losses) = loader.finish(0);
    // The directory's own part came with the entry; its name did not, so that nothing in it can be reached.
    let lost = [(made, NodeKind::Directory), (inside, NodeKind::File)];
    assert_eq!(losses, lost.map(|(number, kind)| Loss::Nameless { number, kind }));
    assert_eq!(names.lookup(made, b"h").map(drop), Err(NamesError::NotFound), "it has no name");
    let mut loader = Loader::new(1);
    assert_eq!(loader.read(&written[2][..written[2].len() - 1]), Ok(0), "a change counts when it is whole");
    assert_eq!(loader.finish(0).1, []);
}

#[test]
fn what_a_newer_version_wrote_is_told_apart_from_damage() {
    let frame = |tag: u8| {
        let mut frame = [1, 0, 0, 0].to_vec();
        frame.extend(forebay_types::crc32c(&[tag]).to_le_bytes());
        frame.push(tag);
        frame
    };
    assert_eq!(Loader::new(1).read(&frame(200)), Err(crate::JournalError::Newer { tag: 200 }));
    let known = Loader::new(1).read(&frame(1));
    assert!(matches!(known, Err(crate::JournalError::Malformed { .. })), "{known:?}");
}
