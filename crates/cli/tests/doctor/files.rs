//! Files of a store that starts no more.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use forebay_client::files::{Files, Owner, WriteOptions};
use forebay_types::crc32c;
use serde_json::Value;

use crate::common::{Drives, noise};
use crate::look::{doctor, overwrite, places};

/// More than is ever read through.
const HUGE_BYTES: u64 = 3 << 40;

const OWNER: Owner = Owner { mode: 0o750, owner: 0, group: 0 };

/// Files of all kinds in a store of two lanes that was stopped in order, and what they hold.
fn stored() -> (Drives, BTreeMap<Vec<u8>, Vec<u8>>) {
    let drives = Drives::five();
    let server = drives.serve();
    let files = Files::new(server.client("files")).expect("a client");
    files.make_directories("/run5/empty", &OWNER).expect("made");
    let mut written = BTreeMap::new();
    for (number, (path, bytes, seal)) in [
        (&b"/run5/raw.mdf"[..], 5 << 20, true),
        (b"/run5/small", 700, true),
        (b"/run5/open", 300_000, false),
        (b"/\xff\x01 \"x\"", 20, true),
        (b"/none", 0, true),
        (b"/removed", 5000, true),
    ]
    .into_iter()
    .enumerate()
    {
        let bytes = noise(number as u64, bytes);
        let options = WriteOptions { seal, owner: Owner { mode: 0o640, ..OWNER }, ..WriteOptions::default() };
        let mut file = files.create(path, &options).expect("made");
        file.write(&bytes).and_then(|()| file.close()).expect("written");
        written.insert(path.to_vec(), bytes);
    }
    // With a hole.
    let mut file = files.create("/sparse", &WriteOptions::default()).expect("made");
    file.write_at(1 << 20, b"behind a hole").and_then(|()| file.close()).expect("written");
    written.insert(b"/sparse".to_vec(), [vec![0; 1 << 20], b"behind a hole".to_vec()].concat());
    // Of some terabytes, where nothing but its end was ever written; what it holds is looked at apart.
    let mut file = files.create("/huge", &WriteOptions { seal: false, ..WriteOptions::default() }).expect("made");
    file.write_at(HUGE_BYTES - 3, b"end").and_then(|()| file.close()).expect("written");
    files.link("/run5/small", "/again").expect("linked");
    written.insert(b"/again".to_vec(), written[&b"/run5/small"[..]].clone());
    // Deeper than paths can be here: it is found by its number.
    let deep = [&b"/"[..], &[b'd'; 200]].concat().repeat(30);
    files.make_directories(&deep, &OWNER).expect("made");
    let deep = [deep, b"/file".to_vec()].concat();
    let mut file = files.create(&deep, &WriteOptions::default()).expect("made");
    file.write(b"deep down").and_then(|()| file.close()).expect("written");
    files.symlink(b"run5/small", "/link", &OWNER).expect("made");
    files.remove("/removed").expect("removed");
    written.remove(&b"/removed"[..]);
    server.terminate().expect(0);
    (drives, written)
}

fn export(exit: i32, directory: &Path, paths: &[PathBuf]) -> (Value, Value) {
    let name = directory.display().to_string();
    let report = doctor(&["--json", "--export", &name], paths).expect(exit).json();
    assert!(!directory.join("files.json.part").exists() && !directory.join("file.part").exists());
    let list = fs::read(directory.join("files.json")).expect("a list");
    (report, serde_json::from_slice(&list).expect("JSON"))
}

fn place(directory: &Path, path: &[u8]) -> PathBuf {
    directory.join("files").join(std::ffi::OsStr::from_bytes(&path[1..]))
}

/// Whether a file is that which is nearly all hole, and takes no room.
fn is_huge(path: &Path) -> bool {
    let known = fs::metadata(path).expect("exported");
    let mut end = [0; 3];
    fs::File::open(path).and_then(|file| file.read_exact_at(&mut end, HUGE_BYTES - 3)).expect("read");
    known.len() == HUGE_BYTES && known.blocks() < 100 && &end == b"end"
}

/// Lines of files.
fn files_of(list: &Value) -> Vec<&Value> {
    list["entries"].as_array().expect("entries").iter().filter(|line| line["kind"] == "file").collect()
}

#[test]
fn four_of_five_drives_give_every_file_under_its_names() {
    let (drives, written) = stored();
    for missing in 0..5 {
        let mut paths = drives.paths.clone();
        paths.remove(missing);
        let directory = drives.directory.path().join(format!("export{missing}"));
        let (report, list) = export(0, &directory, &paths);
        for (path, bytes) in &written {
            assert!(fs::read(place(&directory, path)).expect("exported") == *bytes, "{}", path.escape_ascii());
        }
        // Two names of one file are two names of one file.
        let of = |path: &[u8]| fs::metadata(place(&directory, path)).expect("there");
        assert_eq!((of(b"/again").ino(), of(b"/again").mode() & 0o7777), (of(b"/run5/small").ino(), 0o640));
        assert_eq!(fs::read_link(place(&directory, b"/link")).expect("a link").as_os_str(), "run5/small");
        assert!(fs::metadata(place(&directory, b"/run5/empty")).expect("there").is_dir());
        assert!(!place(&directory, b"/removed").exists());
        let by_number: Vec<_> = fs::read_dir(directory.join("files-by-number")).expect("there").collect();
        let deep = by_number[0].as_ref().expect("listed").path();
        assert!(by_number.len() == 1 && fs::read(&deep).expect("exported") == b"deep down");
        let totals = [("files", 8), ("files_lost", 0), ("files_unavailable", 0)];
        let bytes: usize = written.iter().filter(|(path, _)| **path != b"/again").map(|(_, bytes)| bytes.len()).sum();
        let bytes = bytes + HUGE_BYTES as usize + b"deep down".len();
        for (key, count) in totals.into_iter().chain([("file_bytes", bytes)]) {
            assert_eq!((&list[key], &report["export"][key]), (&count.into(), &count.into()), "{key}: {report}");
        }
        for line in files_of(&list) {
            let path = line["paths"][0].as_str().expect("a path");
            if path.len() > 4096 {
                assert!(line["file"].as_str().is_some_and(|file| file.starts_with("files-by-number/")), "{line}");
                continue;
            }
            if path == "/huge" {
                assert!(is_huge(&place(&directory, b"/huge")) && line["crc32c"].is_string(), "{line}");
                continue;
            }
            let known = written.iter().find(|(known, _)| forebay_client::files::escape(known) == path);
            let (known, bytes) = known.expect("one that was written");
            assert_eq!(line["crc32c"], format!("{:08x}", crc32c(bytes)), "{line}");
            assert_eq!((&line["bytes"], &line["file"]), (&bytes.len().into(), &format!("files{path}").into()));
            assert_eq!((&line["sealed"], &line["missing"]), (&(known != b"/run5/open").into(), &serde_json::json!([])));
            let of = fs::metadata(place(&directory, known)).expect("there");
            let modified = of.mtime() * 1_000_000_000 + of.mtime_nsec();
            assert_eq!(line["written_unix_ns"].as_i64(), Some(modified), "{line}");
        }
    }
}

#[test]
fn of_a_file_that_is_damaged_beyond_parity_the_rest_is_exported_and_the_places_are_listed() {
    let (drives, written) = stored();
    let bytes = &written[&b"/run5/raw.mdf"[..]];
    // A piece in the middle, wherever it lies on two of the drives.
    let places = places(&drives, &bytes[2 << 20..(2 << 20) + (256 << 10)]);
    let other = places.iter().map(|(drive, _)| *drive).find(|drive| *drive != places[0].0).expect("on several");
    for (drive, at) in places.iter().filter(|(drive, _)| [places[0].0, other].contains(drive)) {
        overwrite(&drives.paths[*drive], *at, b"rot");
    }
    let directory = drives.directory.path().join("export");
    let (report, list) = export(1, &directory, &drives.paths);
    assert_eq!(
        (&report["verdict"], &report["export"]["files_lost"], &list["files"]),
        (&"lost".into(), &1.into(), &7.into())
    );
    let lines = files_of(&list);
    let line = lines.iter().find(|line| line["paths"][0] == "/run5/raw.mdf").expect("it is listed");
    assert!(line["crc32c"].is_null(), "{line}");
    let read = fs::read(place(&directory, b"/run5/raw.mdf")).expect("exported");
    assert_eq!(read.len(), bytes.len());
    let mut expected = bytes.clone();
    let missing = line["missing"].as_array().expect("a list");
    for place in missing {
        let (at, count) = (place["offset_bytes"].as_u64(), place["bytes"].as_u64());
        let at = at.expect("a number") as usize;
        expected[at..at + count.expect("a number") as usize].fill(0);
        assert_eq!(place["outcome"], "lost");
    }
    assert!(read == expected && missing.len() == 1, "{line}");
    let first = &report["readable"]["lost"][0];
    assert!(first.as_str().is_some_and(|words| words.starts_with("/run5/raw.mdf (file ")), "{first}");
}

#[test]
fn without_too_many_drives_what_there_is_of_names_and_files_is_exported() {
    let (drives, written) = stored();
    for gone in [[0, 1], [2, 4]] {
        let left: Vec<PathBuf> = (0..5).filter(|n| !gone.contains(n)).map(|n| drives.paths[n].clone()).collect();
        let directory = drives.directory.path().join(format!("export{}", gone[0]));
        let (report, list) = export(1, &directory, &left);
        assert_eq!(report["verdict"], "out-of-reach");
        let mut right = 0;
        for line in files_of(&list) {
            let Some(file) = line["file"].as_str() else { continue };
            // Whatever it is called, its bytes are those that were written but where it says that they are missing.
            let file = line["paths"][0].as_str().map_or(directory.join(file), |path| {
                let known = written.keys().find(|known| forebay_client::files::escape(known) == path);
                match known {
                    Some(known) => place(&directory, known),
                    None => directory.join(file),
                }
            });
            if fs::metadata(&file).expect("exported").len() == HUGE_BYTES {
                right += usize::from(line["missing"] == serde_json::json!([]));
                continue;
            }
            let read = fs::read(&file).expect("exported");
            let missing: Vec<_> = line["missing"].as_array().expect("a list").iter().collect();
            let range = |place: &Value| {
                let at = place["offset_bytes"].as_u64().expect("a number") as usize;
                at..at + place["bytes"].as_u64().expect("a number") as usize
            };
            let is_of = |bytes: &&Vec<u8>| {
                let mut bytes = (*bytes).clone();
                missing.iter().for_each(|place| bytes[range(place)].fill(0));
                bytes == read
            };
            let same: Vec<_> = written.values().filter(|bytes| bytes.len() == read.len()).collect();
            // One that was removed is there, too, when nobody can tell that it was.
            let is_other = read.len() == 5000 || read.len() == b"deep down".len();
            assert!(same.iter().any(is_of) || is_other, "{line}");
            right += usize::from(missing.is_empty());
        }
        assert_eq!(report["export"]["files"].as_u64().map(|whole| whole <= right as u64), Some(true), "{report}");
        let counted = ["files", "files_lost", "files_unavailable"].map(|key| report["export"][key].as_u64());
        assert_eq!(counted.into_iter().flatten().sum::<u64>(), files_of(&list).len() as u64);
    }
}

#[test]
fn files_whose_names_are_lost_are_exported_by_their_numbers() {
    let (drives, written) = stored();
    // What keeps the names, wherever it lies, with what is beside it on the other drives.
    for drive in &drives.paths {
        let bytes = fs::read(drive).expect("read");
        let found = bytes.windows(7).enumerate().filter(|(_, window)| *window == b"raw.mdf").map(|(at, _)| at as u64);
        for at in found {
            drives.paths.iter().for_each(|path| overwrite(path, at, b"rotten."));
        }
    }
    let directory = drives.directory.path().join("export");
    let (report, list) = export(1, &directory, &drives.paths);
    let damaged = report["readable"]["names_damaged"].as_array().expect("a list");
    assert!(report["verdict"] == "lost" && !damaged.is_empty(), "{report}");
    let by_number: Vec<Vec<u8>> = files_of(&list)
        .iter()
        .filter(|line| line["paths"] == serde_json::json!([]) && line["missing"] == serde_json::json!([]))
        .filter(|line| line["bytes"] != HUGE_BYTES)
        .map(|line| fs::read(directory.join(line["file"].as_str().expect("exported"))).expect("read"))
        .collect();
    for path in [&b"/run5/raw.mdf"[..], b"/run5/small", b"/run5/open", b"/sparse"] {
        assert!(by_number.contains(&written[path]), "{}: {report}", path.escape_ascii());
    }
    assert!(report["error"].as_str().is_some_and(|words| words.contains("nor all names of files")), "{report}");
    let screen = String::from_utf8(doctor(&[], &drives.paths).expect(1).stdout).expect("UTF-8");
    assert!(screen.contains("names of files: "), "{screen}");
}
