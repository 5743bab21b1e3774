//! Names: looked up, listed, changed.

use forebay_client::files::{Detail, FileError, Files};
use forebay_protocol::Kind;
use forebay_types::{NameOutcome, NodeKind, SetAttributes};

use super::peer::Peer;
use super::{content, options, owner};

fn file(files: &Files, path: &str, bytes: &[u8]) {
    let mut writer = files.create(path, &options()).expect("made");
    writer.write(bytes).expect("taken");
    writer.close().expect("durable");
}

#[test]
fn names_are_made_looked_up_renamed_and_removed() {
    let peer = Peer::start();
    let files = peer.connect();
    let made = files.make_directory("/data", &owner()).expect("made");
    assert_eq!(
        (made.view.kind, files.lookup("data/./..//data/").expect("there").number),
        (NodeKind::Directory, made.number)
    );
    assert!(matches!(files.make_directory("/data", &owner()), Err(FileError::Exists { .. })));
    file(&files, "/data/one", b"one");
    files.link("/data/one", "/data/two").expect("linked");
    files.symlink(b"data/two", "/short", &owner()).expect("made");
    assert_eq!(files.lookup("/short").expect("there").number, files.lookup("/data/one").expect("there").number);
    let link = files.stat_link("/short").expect("there");
    assert_eq!(
        (link.node.view.kind, link.length(), &link.node.view.target[..]),
        (NodeKind::Link, Some(8), &b"data/two"[..])
    );

    assert!(matches!(files.rename("/data/one", "/data/two", false), Err(FileError::Exists { .. })));
    file(&files, "/data/three", b"three");
    files.rename("/data/three", "/data/two", true).expect("renamed");
    assert_eq!(files.stat("/short").expect("there").length(), Some(5));
    let NotFound(path) =
        files.rename("/data/gone", "/data/x", true).map_err(NotFound::of).expect_err("it is not there");
    assert_eq!(path, "/data/gone");

    assert!(matches!(files.remove("/data"), Err(FileError::IsDirectory { .. })));
    assert!(matches!(files.remove_directory("/data"), Err(FileError::NotEmpty { .. })));
    assert!(matches!(files.remove_directory("/data/one"), Err(FileError::NotDirectory { .. })));
    for path in ["/data/one", "/data/two"] {
        files.remove(path).expect("removed");
    }
    files.remove_directory("/data/").expect("removed");
    assert!(matches!(files.stat("/short"), Err(FileError::NotFound { .. })));
    assert!(matches!(files.list("/short", Detail::Names), Err(FileError::NotFound { .. })));
}

struct NotFound(String);

impl NotFound {
    fn of(error: FileError) -> NotFound {
        match error {
            FileError::NotFound { path } => NotFound(path),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn directories_are_made_with_those_on_the_way() {
    let peer = Peer::start();
    let files = peer.connect();
    let deepest = files.make_directories("/a/b/../b/./c//d/", &owner()).expect("made");
    assert_eq!(files.lookup("/a/b/c/d").expect("there").number, deepest.number);
    assert_eq!(files.make_directories("/a/b/c/d", &owner()).expect("there").number, deepest.number);
    assert_eq!(files.make_directories("/", &owner()).expect("there").view.kind, NodeKind::Directory);
    file(&files, "/a/file", b"");
    assert!(matches!(files.make_directories("/a/file/x", &owner()), Err(FileError::NotDirectory { .. })));
    assert!(matches!(files.make_directories("/a/file", &owner()), Err(FileError::Exists { .. })));
}

#[test]
fn a_directory_is_listed_page_by_page_with_a_question_for_each_lane() {
    let peer = Peer::start();
    let files = peer.connect();
    files.make_directory("/d", &owner()).expect("made");
    for number in 0..25 {
        file(&files, &format!("/d/{number:02}"), &content(number, number as usize));
    }
    files.make_directory("/d/\u{e9}", &owner()).expect("made");
    peer.state().page_max = 10;
    for detail in [Detail::Names, Detail::Sizes, Detail::All] {
        peer.state().asked.clear();
        let listed: Vec<_> = files.list("/d", detail).expect("there").collect::<Result<_, _>>().expect("listed");
        assert_eq!(listed.len(), 26);
        assert!(listed.windows(2).all(|pair| pair[0].name < pair[1].name));
        for (place, entry) in listed.iter().enumerate().take(25) {
            assert_eq!(entry.name, format!("{place:02}").as_bytes());
            let length = entry.info.as_ref().map(|info| info.length);
            assert_eq!(length, (detail != Detail::Names).then_some(place as u64));
            assert_eq!(entry.node.as_ref().map(|node| node.number), (detail == Detail::All).then_some(entry.number));
        }
        assert_eq!((listed[25].kind, listed[25].info.is_some()), (NodeKind::Directory, false));
        let asked = |kind| peer.state().asked.iter().filter(|asked| **asked == kind).count();
        assert_eq!(asked(Kind::NameList), 3);
        assert!(asked(Kind::FileStat) <= 9, "{} questions about 25 files in 3 pages and lanes", asked(Kind::FileStat));
    }
    let mut listing = files.list("/d", Detail::Names).expect("there");
    let pages: Vec<usize> = std::iter::repeat_with(|| listing.next_page().expect("listed").len()).take(4).collect();
    assert_eq!(pages, [10, 10, 6, 0]);
    file(&files, "/file", b"");
    assert!(matches!(files.list("/file", Detail::Names), Err(FileError::NotDirectory { .. })));
}

#[test]
fn what_is_kept_is_changed_where_it_is_kept() {
    let peer = Peer::start();
    let files = peer.connect();
    file(&files, "/file", b"some bytes");
    files.make_directory("/d", &owner()).expect("made");
    let set = SetAttributes { mode: Some(0o600), written_unix_ns: Some(5_000_000_000), ..SetAttributes::default() };
    files.set("/file", &set).expect("set");
    files.set("/d", &set).expect("set");
    let (of_file, of_directory) = (files.stat("/file").expect("there"), files.stat("/d").expect("there"));
    assert_eq!((of_file.written_unix_ns(), of_directory.written_unix_ns()), (5_000_000_000, 5_000_000_000));
    assert_eq!((of_file.node.view.attributes.mode, of_directory.node.view.attributes.mode), (0o600, 0o600));
    assert_eq!(of_file.node.view.attributes.written_unix_ns, 1_000, "the names know nothing of it");
    assert!(of_file.is_sealed());
    // Of what nobody wrote the names say when it was made.
    let writer = files.create("/empty", &options()).expect("made");
    let empty = files.stat("/empty").expect("there");
    assert_eq!((empty.length(), empty.written_unix_ns(), empty.is_sealed()), (Some(0), 1_000, false));
    drop(writer);
}

#[test]
fn names_that_are_none_are_told_and_not_asked_for() {
    let peer = Peer::start();
    let files = peer.connect();
    files.lookup("/").expect("there");
    peer.state().asked.clear();
    let long = vec![b'n'; 256];
    for path in [&long[..], b"/a\0b", b"/x/..", b"/", b"/a/."] {
        let made = files.make_directory(path, &owner());
        match path.len() {
            256 => assert!(matches!(made, Err(FileError::TooLong { .. })), "{made:?}"),
            _ => assert!(matches!(made, Err(FileError::BadName { .. })), "{made:?}"),
        }
    }
    assert!(matches!(files.lookup(&long), Err(FileError::TooLong { .. })));
    assert!(matches!(files.lookup_in(None, &long), Err(FileError::TooLong { .. })));
    assert!(matches!(files.lookup_in(None, b"a/b"), Err(FileError::BadName { .. })));
    assert!(matches!(files.stat("/a\0b"), Err(FileError::BadName { .. })));
    assert_eq!(peer.state().asked, []);
    let shown = files.stat(b"/\xff\n").expect_err("it is not there").to_string();
    assert!(shown.starts_with("/\\xff\\x0a: "), "{shown}");
    files.make_directory(&long[1..], &owner()).expect("as long as names may be");
    // Links in a circle.
    files.symlink(b"b", "/a", &owner()).expect("made");
    files.symlink(b"/a", "/b", &owner()).expect("made");
    assert!(matches!(files.stat("/a"), Err(FileError::LinkLoop { .. })));
    assert!(matches!(files.make_directory("/a/c", &owner()), Err(FileError::LinkLoop { .. })));
    files.remove("/a").expect("a link itself can be removed");
}

#[test]
fn a_change_that_finds_no_room_is_made_when_there_is_some() {
    let peer = Peer::start();
    let files = peer.connect();
    peer.state().name_outcomes.extend([NameOutcome::NoSpace, NameOutcome::Unavailable, NameOutcome::IndexFull]);
    files.make_directory("/a", &owner()).expect("made");
    assert_eq!(peer.state().asked.iter().filter(|kind| **kind == Kind::ChangeName).count(), 4);
    peer.state().name_outcomes.push_back(NameOutcome::ReadOnly);
    assert!(matches!(files.remove_directory("/a"), Err(FileError::ReadOnly { .. })));
}

#[test]
fn a_change_that_a_server_did_before_it_died_is_not_told_as_refused() {
    let peer = Peer::start();
    let files = peer.connect();
    let restart = |kind| peer.state().restart_in = Some((kind, 1));
    restart(Kind::ChangeName);
    let made = files.make_directory("/a", &owner());
    assert!(matches!(made, Err(FileError::ChangeUnknown { outcome: NameOutcome::Exists, .. })), "{made:?}");
    restart(Kind::ChangeName);
    files.remove_directory("/a").expect("it is gone, as was asked");
    // What it did not do is done by the next one.
    peer.state().did_it = false;
    restart(Kind::ChangeName);
    files.make_directory("/b", &owner()).expect("made");
    // And what is refused without a restart is refused.
    assert!(matches!(files.remove_directory("/a"), Err(FileError::NotFound { .. })));
}
