//! `forebay file cp`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use forebay_client::files::Owner;

use super::common::{forebay, noise};
use super::store::{Store, place, word};

/// What is in a directory: bytes of files, targets of links, nothing of directories.
fn content(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").map(|entry| entry.expect("an entry")) {
            let (path, kind) = (entry.path(), entry.file_type().expect("a kind"));
            let bytes = match kind {
                _ if kind.is_dir() => None,
                _ if kind.is_symlink() => {
                    Some(fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes())
                }
                _ => Some(fs::read(&path).expect("a file")),
            };
            if kind.is_dir() {
                todo.push(path.clone());
            }
            found.insert(path.strip_prefix(root).expect("below it").to_owned(), bytes);
        }
    }
    found
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/c/d")).expect("made");
    fs::create_dir(root.join("empty")).expect("made");
    let files: [(&[u8], usize); 6] = [
        (b"raw.dat", 3_000_000),
        (b"a/none", 0),
        (b"a/one", 1),
        (b"a/b/c/d/piece", 1 << 20),
        (b"a/\xff\n", 77),
        (b"-x", 9),
    ];
    for (seed, (name, bytes)) in files.into_iter().enumerate() {
        fs::write(root.join(OsStr::from_bytes(name)), noise(seed as u64, bytes)).expect("written");
    }
    symlink("raw.dat", root.join("link")).expect("made");
    symlink("/nowhere/at/all", root.join("a/dangling")).expect("made");
}

#[test]
fn a_tree_goes_into_the_store_within_it_and_out_of_it_byte_for_byte() {
    let (store, local) = (Store::start(), place());
    let tree = local.path().join("run17");
    fs::create_dir(&tree).expect("made");
    make_tree(&tree);
    let copied = store.file(&["cp", "-r", "--json", word(&tree), "forebay:/"]).expect(0).json();
    let counts =
        ["files", "directories", "links", "bytes", "failed"].map(|name| copied[name].as_u64().expect("a number"));
    assert_eq!(counts, [6, 6, 2, 3_000_000 + 1 + (1 << 20) + 77 + 9, 0], "{copied}");
    for path in ["/run17/raw.dat", "/run17/a/none", "/run17/a/b/c/d/piece"] {
        assert_eq!(store.stat(path)["state"], "sealed", "{path}");
    }
    store.file(&["cp", "-r", "forebay:/run17", "forebay:/again"]).expect(0);
    assert_eq!(store.stat("/run17/raw.dat")["adler32"], store.stat("/again/raw.dat")["adler32"]);
    store.file(&["cp", "-r", "forebay:/again", word(local.path())]).expect(0);
    assert!(
        content(&tree) == content(&local.path().join("again")),
        "{:?}",
        content(&local.path().join("again")).keys()
    );

    // What is there already is not touched, and told; what is not, copied.
    fs::remove_file(tree.join("a/one")).expect("removed");
    fs::write(tree.join("raw.dat"), b"other bytes").expect("written");
    let ran = store.file(&["cp", "-r", "forebay:/run17", word(local.path())]).expect(2);
    ran.says("/raw.dat: the name is taken").says("with 7 names it was not done");
    assert!(fs::read(tree.join("a/one")).expect("there") == noise(2, 1));
    assert_eq!(fs::read(tree.join("raw.dat")).expect("there"), b"other bytes");
    store.file(&["cp", "-r", "--force", "forebay:/run17", word(local.path())]).expect(0);
    assert!(content(&tree) == content(&local.path().join("again")));
    // The root, and what is in it.
    store.file(&["cp", "-r", "forebay:/", word(&local.path().join("all"))]).expect(0);
    assert!(content(&local.path().join("all/run17")) == content(&tree));
    store.file(&["cp", "-r", &format!("{}/.", word(&tree)), "forebay:/dot"]).expect(0);
    assert_eq!(store.list(&["/dot"]), store.list(&["/run17"]));
}

#[test]
fn one_file_is_copied_to_a_name_or_into_a_directory_with_its_sums_and_its_mode() {
    let (store, local) = (Store::start(), place());
    let (bytes, path) = (noise(7, 2_000_000), local.path().join("raw.dat"));
    fs::write(&path, &bytes).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
    let copied = store.file(&["cp", "--json", word(&path), "forebay:/renamed"]).expect(0).json();
    let known = store.stat("/renamed");
    assert_eq!((&copied["adler32"], &copied["crc32c"]), (&known["adler32"], &known["crc32c"]));
    assert_eq!((&copied["to"], &known["mode"]), (&"forebay:/renamed".into(), &"0640".into()));
    store.file(&["mkdir", "/d"]).expect(0);
    store.file(&["cp", word(&path), "forebay:/renamed", "forebay:/d"]).expect(0);
    assert_eq!(store.list(&["/d"]), ["raw.dat", "renamed"]);
    let (back, other) = (local.path().join("back"), local.path().join("other"));
    store.file(&["cp", "forebay:/d/raw.dat", word(&back)]).expect(0);
    assert!(fs::read(&back).expect("there") == bytes);
    assert_eq!(fs::metadata(&back).expect("there").permissions().mode() & 0o777, 0o640);
    fs::create_dir(&other).expect("made");
    store.file(&["cp", "forebay:/renamed", word(&other)]).expect(0);
    assert!(fs::read(other.join("renamed")).expect("there") == bytes);
    store.file_with(&["cp", "-", "forebay:/from-stdin"], &bytes).expect(0);
    assert!(store.cat("/from-stdin") == bytes);
}

#[test]
fn what_has_a_name_gives_way_only_when_that_is_asked_and_the_copy_is_whole() {
    let (store, local) = (Store::start(), place());
    let path = local.path().join("file");
    fs::write(&path, b"local").expect("written");
    store.put("/file", b"in the store");
    store
        .file(&["cp", word(&path), "forebay:/file"])
        .expect(2)
        .says("forebay:/file: the name is taken")
        .says("--force");
    store.file(&["cp", "forebay:/file", word(&path)]).expect(2).says("the name is taken");
    assert_eq!((store.cat("/file"), fs::read(&path).expect("there")), (b"in the store".to_vec(), b"local".to_vec()));
    store.file(&["cp", "--force", "forebay:/file", word(&path)]).expect(0);
    assert_eq!(fs::read(&path).expect("there"), b"in the store");
    fs::write(&path, b"local").expect("written");
    store.file(&["cp", "--force", word(&path), "forebay:/file"]).expect(0);
    assert_eq!(store.cat("/file"), b"local");
    // A directory never does.
    store.file(&["mkdir", "-p", "/d/file"]).expect(0);
    store.file(&["cp", "--force", word(&path), "forebay:/d"]).expect(2).says("it is a directory");
    fs::create_dir_all(local.path().join("d/file")).expect("made");
    store.file(&["cp", "--force", "forebay:/file", word(&local.path().join("d"))]).expect(2).says("it is a directory");
    // Nothing else is left anywhere.
    assert_eq!(store.list(&["-R", "/"]), ["/d/", "/d/file/", "/file"]);
    assert_eq!(content(local.path()).len(), 3);
}

#[test]
fn what_cannot_be_copied_as_it_was_asked_is_refused() {
    let (store, local) = (Store::start(), place());
    let path = local.path().join("file");
    fs::write(&path, b"bytes").expect("written");
    store.file(&["mkdir", "-p", "/d/e"]).expect(0);
    store.put("/file", b"bytes");
    let (local_path, gone) = (word(local.path()), local.path().join("gone"));
    store.file(&["cp", local_path, "forebay:/x"]).expect(2).says("Give -r");
    store.file(&["cp", "forebay:/d", local_path]).expect(2).says("Give -r");
    store.file(&["cp", word(&gone), "forebay:/x"]).expect(2).says("nothing of it was copied");
    store.file(&["cp", "forebay:/gone", local_path]).expect(1).says("/gone: there is no such file");
    store.file(&["cp", word(&path), "forebay:/nowhere/x"]).expect(1);
    store.file(&["cp", word(&path), "forebay:/nowhere/"]).expect(2).says("there is no such directory");
    store.file(&["cp", "forebay:/file", "forebay:/file", word(&gone)]).expect(2).says("no directory");
    store.file(&["cp", "forebay:/file", "-"]).expect(2).says("forebay file cat");
    for to in ["forebay:/d/e", "forebay:/d/e/f", "forebay:/d/f", "forebay:/"] {
        store.file(&["cp", "-r", "forebay:/d", to]).expect(2).says("into itself");
    }
    store.file(&["cp", "forebay:/file", "/dev/full"]).expect(3).says("cannot write /dev/full");
    assert_eq!(store.list(&["-R", "/"]), ["/d/", "/d/e/", "/file"]);
    assert_eq!(content(local.path()).len(), 1);
    // Names that only look like it are local.
    let ran = forebay([OsStr::new("file"), OsStr::new("cp"), path.as_os_str(), OsStr::new("./forebay:/x")]);
    ran.expect(2).says("both sides are local");
}

#[test]
fn what_is_copied_out_of_the_store_stays_in_its_directory() {
    let (store, local) = (Store::start(), place());
    let (outside, inside) = (local.path().join("outside"), local.path().join("inside"));
    fs::create_dir(&outside).expect("made");
    fs::create_dir(&inside).expect("made");
    symlink(&outside, inside.join("d")).expect("made");
    store.file(&["mkdir", "-p", "/tree/d"]).expect(0);
    store.put("/tree/d/file", b"bytes");
    store.put("/tree/here", b"bytes");
    store
        .file(&["cp", "-r", "forebay:/tree/.", word(&inside)])
        .expect(2)
        .says("inside/d: something else than a directory");
    assert!(content(&outside).is_empty() && fs::read(inside.join("here")).expect("there") == b"bytes");
    // Into the store, too.
    let owner = Owner { mode: 0o777, owner: 0, group: 0 };
    store.file(&["mkdir", "/outside", "/inside"]).expect(0);
    store.files().symlink(b"/outside", "/inside/d", &owner).expect("made");
    store.file(&["cp", "-r", "forebay:/tree/.", "forebay:/inside"]).expect(2).says("something else than a directory");
    assert_eq!(store.list(&["-R", "/outside"]), [""; 0]);
    assert_eq!(store.list(&["/inside"]), ["d", "here"]);
}

#[test]
fn what_is_no_file_is_left_out_and_told() {
    let (store, local) = (Store::start(), place());
    let tree = local.path().join("tree");
    fs::create_dir(&tree).expect("made");
    fs::write(tree.join("file"), b"bytes").expect("written");
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).expect("made");
    store
        .file(&["cp", "-r", word(&tree), "forebay:/"])
        .expect(2)
        .says("tree/socket: it is a socket and no file; it was left out");
    assert_eq!(store.list(&["/tree"]), ["file"]);
}
