//! What several machines, and clients without a mount, do with the same files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, symlink};

use rustix::io::Errno;

use super::common::mounted::{Mounted, has_fuse};
use super::common::{Drives, Server, noise};
use super::{errno_of, files_of, names_in};

/// A store, its server, and two machines that have it mounted; `None` where nothing can be mounted.
fn two_machines() -> Option<(Drives, Server, [Mounted; 2])> {
    if !has_fuse() {
        return None;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let mounted = [(); 2].map(|()| Mounted::start(&server.address, &[]));
    Some((drives, server, mounted))
}

fn open_log(mounted: &Mounted) -> File {
    OpenOptions::new().append(true).create(true).open(mounted.join("log")).expect("opened")
}

fn append(mut file: &File, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    file.write_all(bytes.as_ref()).and_then(|()| file.sync_all())
}

#[test]
fn files_of_other_clients_are_seen() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let files = files_of(&server);
    let mounted = Mounted::start(&server.address, &[]);
    let bytes = noise(5, 2_500_000);
    let mut file = files.create("/native", &Default::default()).expect("made");
    file.write_all(&bytes).expect("taken");
    file.close().expect("sealed");
    assert!(fs::read(mounted.join("native")).expect("read") == bytes);
    assert!(fs::read(mounted.join("native")).expect("read") == bytes, "as the kernel keeps it");
    fs::create_dir(mounted.join("directory")).expect("made");
    for number in 0..3000 {
        files.symlink(b"target", format!("/directory/{number:04}"), &owner()).expect("made");
    }
    let names = names_in(&mounted.join("directory"));
    assert!(names.len() == 3000 && names[2999] == "2999");
    symlink("x", mounted.join("link")).expect("made");
    assert_eq!(files.lookup_link("/link").expect("there").view.target, b"x");
    mounted.terminate().expect(0);
}

#[test]
fn a_file_that_another_machine_writes_is_followed_as_it_grows() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let (writes, reads) = (Mounted::start(&server.address, &[]), Mounted::start(&server.address, &[]));
    let bytes = noise(6, 1_000_000);
    let mut native = files_of(&server).create("/native", &Default::default()).expect("made");
    let mut mounted = File::create(writes.join("mounted")).expect("made");
    let mut open = None;
    // Steps that end within pages and within what is read ahead.
    for end in [1, 5000, 5001, 300_000, 999_999, 1_000_000] {
        native.write_all(&bytes[native.position() as usize..end]).and_then(|()| native.flush()).expect("taken");
        let begin = mounted.metadata().expect("known").len() as usize;
        mounted.write_all(&bytes[begin..end]).and_then(|()| mounted.sync_all()).expect("taken");
        let each = ["native", "mounted"].map(|name| reads.join(name));
        for path in &each {
            while fs::metadata(path).expect("there").len() < end as u64 {
                std::thread::yield_now();
            }
            assert!(fs::read(path).expect("read") == bytes[..end], "{}: {end}", path.display());
        }
        // Who has them open sees it as well.
        let open = open.get_or_insert_with(|| each.map(|path| File::open(path).expect("there")));
        for file in open {
            let mut found = vec![0; end];
            file.read_exact_at(&mut found, 0).expect("it is there");
            assert!(found == bytes[..end], "{end}");
        }
    }
    drop(mounted);
    native.close().expect("sealed");
    writes.terminate().expect(0);
    reads.terminate().expect(0);
}

#[test]
fn two_machines_write_one_file_side_by_side_and_never_over_each_other() {
    let Some((_drives, _server, mounted)) = two_machines() else { return };
    let open = |by: usize, append: bool| {
        OpenOptions::new().write(true).append(append).create(true).truncate(false).open(mounted[by].join("file"))
    };
    let [one, other] = [0, 1].map(|by| open(by, false).expect("opened"));
    let write = |file: &File, start, bytes: &[u8]| file.write_all_at(bytes, start).and_then(|()| file.sync_all());
    write(&one, 0, &[1; 1000]).expect("the first");
    write(&other, 1000, &[2; 1000]).expect("beside it");
    assert_eq!(errno_of(write(&other, 999, &[2; 2])), Errno::BUSY.raw_os_error());
    assert_eq!(errno_of(write(&one, 1500, &[1; 10])), Errno::BUSY.raw_os_error());
    drop(one);
    let expected = [[1; 1000], [2; 1000]].concat();
    assert!(fs::read(mounted[1].join("file")).expect("read") == expected, "what was refused is nowhere");
    // Who has closed it lets others write over what it wrote, when its mount has heard of that: the kernel tells it after the program.
    while let Err(error) = write(&other, 990, &[3; 10]) {
        assert_eq!(error.raw_os_error(), Some(Errno::BUSY.raw_os_error()), "{error}");
        std::thread::yield_now();
    }
    drop(other);
    // Both know where it ends.
    while [0, 1].iter().any(|by| fs::metadata(mounted[*by].join("file")).expect("there").len() != 2000) {
        std::thread::yield_now();
    }
    let [one, other] = [0, 1].map(|by| open(by, true).expect("opened"));
    append(&one, b"the first").expect("taken");
    let mut expected = [&[1; 990][..], &[3; 10], &[2; 1000], b"the first"].concat();
    append(&other, b"the second").expect("it asks where the file ends");
    expected.extend(b"the second");
    drop((one, other));
    let found = fs::read(mounted[0].join("file")).expect("read");
    assert!(found == expected, "nothing is mixed: {:?}", found.get(985..));
    for mounted in mounted {
        mounted.terminate().expect(0);
    }
}

#[test]
fn what_machines_append_by_turns_is_all_there() {
    let Some((_drives, server, mounted)) = two_machines() else { return };
    let mut expected = String::new();
    for turn in 0..40 {
        let path = mounted[turn % 2].join("log");
        // As `>>` and as a program that reads what it appends to: neither asks where the file ends.
        let mut file = OpenOptions::new().append(true).read(turn % 3 == 0).create(true).open(path).expect("opened");
        for line in 0..1 + turn % 3 {
            let words = format!("turn {turn}, line {line}\n");
            file.write_all(words.as_bytes()).expect("taken");
            expected.push_str(&words);
        }
    }
    let stored = files_of(&server).stat("/log").expect("there").length();
    assert_eq!(stored, Some(expected.len() as u64), "nothing was written over");
    for mounted in mounted {
        while fs::metadata(mounted.join("log")).expect("there").len() < expected.len() as u64 {
            std::thread::yield_now();
        }
        assert_eq!(fs::read_to_string(mounted.join("log")).expect("read"), expected);
        mounted.terminate().expect(0);
    }
}

#[test]
fn what_machines_append_is_kept_while_others_have_the_file_open() {
    let Some((_drives, _server, mounted)) = two_machines() else { return };
    let open = |by: usize| open_log(&mounted[by]);
    let kept = [open(0), open(1)];
    let mut expected = String::new();
    for turn in 0..40 {
        let words = format!("turn {turn}\n");
        // By those that have it open all the time, and by one that opens it for each line while the others do.
        let appended = match turn % 4 {
            0 | 1 => append(&kept[turn % 2], &words),
            _ => append(&open(turn % 2), &words),
        };
        appended.expect("nobody else appends at this moment");
        expected.push_str(&words);
    }
    assert_eq!(fs::read_to_string(mounted[0].join("log")).expect("read"), expected);
    // At once: each is there once, and nothing is mixed.
    let line = |by: usize, line: usize| format!("machine {by}, line {line}\n");
    std::thread::scope(|scope| {
        for (by, file) in kept.iter().enumerate() {
            scope.spawn(move || (0..200).for_each(|number| append(file, line(by, number)).expect("it goes behind")));
        }
    });
    drop(kept);
    let text = fs::read_to_string(mounted[0].join("log")).expect("read");
    let (before, after) = text.split_at(expected.len());
    assert_eq!(before, expected);
    for by in 0..2 {
        let own = format!("machine {by}");
        let found: Vec<&str> = after.split_inclusive('\n').filter(|line| line.starts_with(&own)).collect();
        assert_eq!(found, (0..200).map(|number| line(by, number)).collect::<Vec<String>>());
    }
    assert_eq!(after.lines().count(), 400, "nothing besides, and no holes");
    for mounted in mounted {
        mounted.terminate().expect(0);
    }
}

/// As `> log` on one machine while a daemon on another keeps the file open.
#[test]
fn what_a_machine_cuts_off_is_nobodys_any_more() {
    let Some((_drives, _server, mounted)) = two_machines() else { return };
    let open = |by: usize| open_log(&mounted[by]);
    let kept = [open(0), open(1)];
    for turn in 0..8 {
        let (cuts, first) = (turn % 2, turn / 2 % 2);
        let left = if turn < 4 { "" } else { "before 0, " };
        append(&kept[0], "before 0, ").and_then(|()| append(&kept[1], "before 1, ")).expect("it goes behind");
        kept[cuts].set_len(left.len() as u64).expect("cut");
        for by in [first, 1 - first, first] {
            append(&kept[by], format!("{turn} by {by}, ")).expect("what others wrote there was cut off");
        }
        let found = fs::read_to_string(mounted[cuts].join("log")).expect("read");
        assert_eq!(found, format!("{left}{turn} by {first}, {turn} by {}, {turn} by {first}, ", 1 - first));
        kept[cuts].set_len(0).expect("cut");
    }
    for mounted in mounted {
        mounted.terminate().expect(0);
    }
}

fn owner() -> forebay_client::files::Owner {
    forebay_client::files::Owner { mode: 0o777, owner: 0, group: 0 }
}
