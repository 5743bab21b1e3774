//! Names: made, moved, removed, sealed, and those that are none.

use forebay_client::files::{FileError, Owner, WriteOptions};

use super::store::Store;

const LONG: [u8; 256] = [b'n'; 256];

#[test]
fn directories_are_made_and_removed() {
    let store = Store::start();
    store.file(&["mkdir", "/a", "/b"]).expect(0);
    store.file(&["mkdir", "/a"]).expect(2).says("/a: the name is taken");
    store.file(&["mkdir", "/x/y"]).expect(1).says("/x/: there is no such");
    let made = store.file(&["mkdir", "-p", "--json", "/x/y/z", "/a"]).expect(0).json();
    assert_eq!(made["entries"][0]["path"], "/x/y/z");
    assert_eq!(store.list(&["/"]), ["a/", "b/", "x/"]);
    store.put("/x/y/file", b"bytes");
    store.file(&["mkdir", "-p", "/x/y/file/d"]).expect(2).says("not a directory");

    store.file(&["rm", "/x"]).expect(2).says("Give -r");
    store.file(&["rm", "/x/y/gone"]).expect(1).says("no such file");
    for root in ["/", "//", "/x/..", "/x/."] {
        store.file(&["rm", "-r", root]).expect(2).says("cannot be removed");
    }
    let removed = store.file(&["rm", "-r", "--json", "/x", "/a", "/gone"]).expect(1).json();
    assert_eq!((&removed["removed"], &removed["failed"]), (&5.into(), &1.into()), "{removed}");
    assert_eq!(store.list(&[]), ["b/"]);
}

#[test]
fn a_link_is_removed_and_not_what_it_leads_to() {
    let store = Store::start();
    let (files, owner) = (store.files(), Owner { mode: 0o777, owner: 0, group: 0 });
    store.file(&["mkdir", "/d"]).expect(0);
    store.put("/d/file", b"bytes");
    files.symlink(b"d", "/link", &owner).expect("made");
    files.symlink(b"/d", "/d/back", &owner).expect("made");
    assert_eq!(store.list(&["/link"]), ["back", "file"]);
    assert_eq!(
        (store.stat("/link")["kind"].clone(), store.stat("/link")["target"].clone()),
        ("link".into(), "d".into())
    );
    store.file(&["rm", "-r", "/link/"]).expect(0);
    assert_eq!(store.list(&["-R", "/"]), ["/d/", "/d/back", "/d/file"]);
    store.file(&["rm", "-r", "/d"]).expect(0);
    assert!(store.list(&["/"]).is_empty());
}

#[test]
fn names_are_moved_in_one_step() {
    let store = Store::start();
    store.put("/a", b"of a");
    store.put("/b", b"of b");
    store.file(&["mkdir", "/d"]).expect(0);
    store.file(&["mv", "/a", "/b"]).expect(2).says("/b: the name is taken");
    assert_eq!((store.cat("/a"), store.cat("/b")), (b"of a".to_vec(), b"of b".to_vec()));
    let moved = store.file(&["mv", "--force", "--json", "/a", "/b"]).expect(0).json();
    assert_eq!((&moved["entries"][0]["from"], &moved["entries"][0]["to"]), (&"/a".into(), &"/b".into()));
    assert_eq!(store.cat("/b"), b"of a");
    store.put("/c", b"of c");
    store.file(&["mv", "/b", "forebay:/c", "/d"]).expect(0);
    assert_eq!(store.list(&["-R", "/"]), ["/d/", "/d/b", "/d/c"]);
    store.file(&["mv", "/d", "/d/e"]).expect(2).says("cannot be moved into itself");
    store.file(&["mv", "/d/b", "/d/c", "/nowhere"]).expect(1);
    store.file(&["mv", "/gone", "/here"]).expect(1).says("/gone: there is no such");
    store.file(&["mv", "/d", "/e"]).expect(0);
    assert_eq!(store.cat("/e/c"), b"of c");
}

#[test]
fn names_are_any_bytes_and_shown_escaped() {
    let store = Store::start();
    store.file_bytes(&[b"mkdir", b"/\xff\n\\"]).expect(0);
    store.file_bytes(&[b"mkdir", b"forebay:/\xff\n\\/\xc3\xa9"]).expect(0);
    assert_eq!(store.list(&["-R", "/"]), [r"/\xff\x0a\\/", r"/\xff\x0a\\/é/"]);
    let told = store.file(&["ls", "--json"]).expect(0).json();
    assert_eq!(told["entries"][0]["path"], r"/\xff\x0a\\");
    store.file_bytes(&[b"stat", b"/\xff\n\\/gone\x01"]).expect(1).says(r"/\xff\x0a\\/gone\x01: there is no such");
    store.file_bytes(&[b"rm", b"-r", b"/\xff\n\\"]).expect(0);
    assert!(store.list(&["/"]).is_empty());
}

#[test]
fn what_is_no_name_is_refused_and_changes_nothing() {
    let store = Store::start();
    let files = store.files();
    store.file(&["mkdir", "/d"]).expect(0);
    store.put("/file", b"bytes");
    let long = [b"/", &LONG[..]].concat();
    store.file_bytes(&[b"mkdir", &long]).expect(2).says("at most 255 bytes");
    store.file_bytes(&[b"mv", b"/file", &long]).expect(2).says("at most 255 bytes");
    store.file_bytes(&[b"cp", b"-", &[b"forebay:", &long[..]].concat()]).expect(2).says("at most 255 bytes");
    store.file_bytes(&[b"cat", &long]).expect(2).says("at most 255 bytes");
    for path in ["/d/..", "/d/.", "/"] {
        store.file(&["mkdir", path]).expect(2).says("must not be empty");
        store.file(&["mv", "/file", &format!("{path}/../d/..")]).expect(2);
    }
    // No argument of a program can have a zero in it.
    let options = WriteOptions::default();
    assert!(matches!(files.create(b"/a\0b", &options).map(drop), Err(FileError::BadName { .. })));
    assert!(matches!(files.rename("/file", b"/\0", true), Err(FileError::BadName { .. })));
    // Above the root there is the root.
    assert_eq!(store.cat("/../d/../../file"), b"bytes");
    assert_eq!(store.list(&["/d/.."]), ["d/", "file"]);
    store.file_bytes(&[b"mkdir", &long[..256]]).expect(0);
    assert_eq!(store.list(&["/"]).len(), 3);
}

#[test]
fn what_is_sealed_stays_so_and_sealing_again_is_good() {
    let store = Store::start();
    let files = store.files();
    let mut writer = files.create("/open", &WriteOptions::default()).expect("made");
    writer.write(b"some bytes").expect("taken");
    writer.sync().expect("durable");
    let open = store.stat("/open");
    assert_eq!((&open["state"], &open["bytes"], &open["adler32"]), (&"being-written".into(), &10.into(), &().into()));
    for _ in 0..2 {
        let ran = store.file(&["seal", "/open"]).expect(0);
        assert!(String::from_utf8_lossy(&ran.stdout).contains("/open: sealed, 10 bytes, adler32"), "{ran:?}");
    }
    assert!(matches!(writer.write(b"more").and_then(|()| writer.sync()), Err(FileError::Sealed { .. })));
    assert_eq!(store.cat("/open"), b"some bytes");
    store.file(&["mkdir", "/d"]).expect(0);
    store.file(&["seal", "/d"]).expect(2).says("it is a directory");
    store.file(&["seal", "/gone", "/open"]).expect(1).says("/gone");
}

#[test]
fn what_nobody_writes_in_a_directory_is_sealed() {
    let store = Store::start();
    let files = store.files();
    store.file(&["mkdir", "-p", "/run/deep/empty"]).expect(0);
    let write = |path: &str, seal| {
        let mut writer = files.create(path, &WriteOptions { seal, ..WriteOptions::default() }).expect("made");
        writer.write(path.as_bytes()).and_then(|()| writer.sync()).expect("durable");
        writer
    };
    for (path, seal) in [("/run/left", false), ("/run/deep/left", false), ("/run/sealed", true), ("/outside", false)] {
        write(path, seal).close().expect("closed");
    }
    let mut writer = write("/run/deep/written", true);
    let told = store.file(&["seal", "-r", "/run", "--json"]).expect(0).json();
    let mut told: Vec<_> =
        told["entries"].as_array().expect("entries").iter().map(|e| (&e["path"], &e["state"])).collect();
    told.sort_by_key(|(path, _)| path.as_str());
    let expected = [("/run/deep/left", "sealed"), ("/run/deep/written", "being-written"), ("/run/left", "sealed")];
    assert!(
        told.iter().map(|(path, state)| (path.as_str(), state.as_str())).eq(expected.map(|(p, s)| (Some(p), Some(s))))
    );
    assert_eq!(store.stat("/outside")["state"], "not-sealed");
    let told = store.file(&["seal", "-r", "/run"]).expect(0);
    assert_eq!(told.stdout, b"/run/deep/written: not sealed, somebody writes to it\n");
    writer.write(b" and more").and_then(|()| writer.close()).expect("it goes on");
    assert_eq!(store.cat("/run/deep/written"), b"/run/deep/written and more");
}
