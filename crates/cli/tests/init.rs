//! `init` refuses what it does not know, by name, and writes nothing then.

mod common;

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Drives, Ran, forebay, scratch};

const DRIVE_BYTES: u64 = 32 << 20;

/// Names of five drives that are not there yet.
fn five_names() -> Drives {
    let directory = scratch();
    let paths = (0..5).map(|number| directory.path().join(format!("d{number}"))).collect();
    Drives { directory, paths }
}

/// The arguments that make a store of 4+1.
fn making(options: &[&str], paths: &[PathBuf]) -> Vec<OsString> {
    let words = ["init", "--data", "4", "--parity", "1"].iter().chain(options).map(OsString::from);
    words.chain(paths.iter().map(Into::into)).collect()
}

fn init(options: &[&str], paths: &[PathBuf]) -> Ran {
    forebay(making(options, paths))
}

fn files_in(directory: &Path) -> usize {
    fs::read_dir(directory).expect("a directory").count()
}

#[test]
fn a_store_is_described() {
    let directory = scratch();
    let paths = (0..5).map(|number| directory.path().join(format!("drive{number}"))).collect();
    let drives = Drives { directory, paths };
    let made = drives.init(&[]).expect(0).json();
    assert_eq!((made["data_shards"].as_u64(), made["parity_shards"].as_u64()), (Some(4), Some(1)));
    assert!(made["store"].as_str().is_some_and(|store| store.len() == 36), "{made}");
    assert!(made["capacity_bytes"].as_u64().is_some_and(|bytes| bytes > 100 << 20), "{made}");
    // What a server counts is that, without the reserve.
    let told = drives.serve().status()["totals"].clone();
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let reserve = number(&told["segments_reserved"]) * number(&made["segment_bytes"]);
    assert!(reserve > 0, "{told}");
    assert_eq!(number(&told["capacity_bytes"]) + reserve, number(&made["capacity_after_losses_bytes"]));
    assert!(made["seconds"].is_f64(), "{made}");
    let names = five_names();
    let told = init(&["--drive-bytes", "32MiB", "--drive-kind", "disk"], &names.paths).expect(0);
    let screen = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(screen.contains("lanes       1 on disks, slots of 1.00 MiB"), "{screen}");
    assert!(screen.contains("on all drives, ") && screen.contains("are held back for the loss of a drive"), "{screen}");
    assert!(screen.contains("\n  reserve     each lane keeps an eighth"), "{screen}");
    init(&["--drive-kind", "tape"], &names.paths).expect(2).says("say disk or solid-state");
}

#[test]
fn a_drive_that_holds_something_is_refused_and_named() {
    let drives = Drives::five();
    let mut ext4 = vec![0; 1 << 20];
    ext4[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xEF]);
    let contents: [(&[u8], &str); 5] = [
        (b"\x1f\x8b compressed", "gzip"),
        (b"somebody's thesis", "text"),
        (&[0, 0, 0, 0xA5, 0x5A], "unknown data (from byte 3: a5 5a)"),
        (&ext4, "ext2 file system (its mark is at byte 1080)"),
        (b"\x7fELF program", "ELF"),
    ];
    for (bytes, named) in contents {
        let directory = scratch();
        let paths: Vec<_> = (0..5).map(|number| directory.path().join(format!("drive{number}"))).collect();
        fs::write(&paths[3], bytes).expect("written");
        let ran = Drives { directory, paths: paths.clone() };
        let refused = ran.init(&[]).expect(2);
        refused.says(named).says("Nothing was written").says("drive3").says("--force");
        assert_eq!(fs::read(&paths[3]).expect("read"), bytes, "it is as it was");
        assert!(!paths[0].exists(), "no other drive was made");
    }
    drives.init(&[]).expect(2).says("Nothing was written");
}

#[test]
fn a_used_drive_can_be_forced() {
    let drives = Drives::five();
    let server = drives.serve();
    server.put("1/1/1", b"old").expect(0);
    let old = server.ready["store"].clone();
    // A drive that a server has open is refused whatever is said.
    drives.init(&["--force"]).expect(3).says("in use");
    server.terminate().expect(0);
    drives.init(&[]).expect(2).says("a drive of a Forebay store");
    drives.init(&["--force"]).expect(0);
    let server = drives.serve();
    assert_ne!(server.ready["store"], old);
    server.get("1/1/1").expect(1).says("not found");
}

#[test]
fn options_that_make_no_store_are_refused() {
    let directory = scratch();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let five: Vec<String> = (0..5).map(|number| path(&format!("d{number}"))).collect();
    let init = |options: &[&str], drives: &[String]| {
        forebay(["init"].into_iter().chain(options.iter().copied()).chain(drives.iter().map(String::as_str)))
    };
    let size = ["--drive-bytes", "32MiB"];
    let with = |more: &[&'static str]| [&["--data", "4", "--parity", "1"], more].concat();
    init(&with(&size), &five[..4]).expect(2).says("needs at least 5");
    init(&with(&[]), &five).expect(2).says("--drive-bytes");
    init(&with(&["--drive-bytes", "1MiB"]), &five).expect(2).says("Nothing was written");
    let memory = ["--drive-bytes", "32MiB", "--index-bytes", "4KiB"];
    init(&with(&memory), &five).expect(2).says("--index-bytes").says("Nothing was written");
    let tiny =
        ["--drive-bytes", "32MiB", "--index-bytes", "1MiB", "--fragment-bytes-mean", "1MiB", "--unit-bytes", "100"];
    init(&with(&tiny), &five).expect(2).says("multiples of 4096");
    init(&["--data", "0", "--parity", "1"], &five).expect(2).says("no width");
    let folder = [path("."), five[1].clone(), five[2].clone(), five[3].clone(), five[4].clone()];
    init(&with(&size), &folder).expect(2).says("directory");
    assert!(fs::read_dir(directory.path()).expect("read").next().is_none(), "nothing was made");
}

#[test]
fn a_file_of_holes_gets_space_for_all_of_it() {
    for options in [&[][..], &["--drive-bytes", "32MiB"]] {
        let drives = five_names();
        for path in &drives.paths {
            File::create(path).and_then(|file| file.set_len(DRIVE_BYTES)).expect("a file of holes");
        }
        init(options, &drives.paths).expect(0);
        for path in &drives.paths {
            let metadata = fs::metadata(path).expect("there");
            assert_eq!(metadata.len(), DRIVE_BYTES);
            assert!(metadata.blocks() * 512 >= DRIVE_BYTES, "{} bytes have space", metadata.blocks() * 512);
        }
        drives.serve().put("1/1/1", b"kept").expect(0);
    }
}

#[test]
fn a_single_byte_anywhere_in_a_file_is_found() {
    let drives = five_names();
    for path in &drives.paths {
        fs::write(path, vec![0; DRIVE_BYTES as usize]).expect("written");
    }
    let place = (10 << 20) + 5000;
    let file = File::options().write(true).open(&drives.paths[2]).expect("opens");
    file.write_all_at(&[0x2A], place).expect("written");
    init(&[], &drives.paths).expect(2).says(&format!(
        "{} holds unknown data (from byte {place}: 2a 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00). Nothing was written. Name another \
         drive, or say --force to destroy what it holds",
        drives.paths[2].display()
    ));
    assert!(fs::read(&drives.paths[0]).expect("read").iter().all(|&byte| byte == 0), "nothing was written");
    init(&["--force"], &drives.paths).expect(0);
}

#[test]
fn files_that_exist_are_made_anew_with_another_size_when_forced() {
    let drives = five_names();
    // Longer ones, shorter ones, empty ones and used ones.
    for (path, bytes) in drives.paths.iter().zip([0, 1 << 20, DRIVE_BYTES, 48 << 20, 64 << 20]) {
        fs::write(path, vec![7; bytes as usize]).expect("written");
    }
    for bytes in [DRIVE_BYTES, 48 << 20, 40 << 20] {
        let size = bytes.to_string();
        let refused = init(&["--drive-bytes", &size], &drives.paths).expect(2);
        refused.says("Nothing was written");
        init(&["--force", "--drive-bytes", &size], &drives.paths).expect(0);
        for path in &drives.paths {
            assert_eq!(fs::metadata(path).expect("there").len(), bytes);
        }
        let server = drives.serve();
        server.get("1/1/1").expect(1).says("not found");
        server.put("1/1/1", b"of this store").expect(0);
        server.terminate().expect(0);
    }
}

#[test]
fn one_drive_under_two_names_is_refused() {
    let drives = five_names();
    fs::write(&drives.paths[0], vec![0; DRIVE_BYTES as usize]).expect("written");
    let path = |name: &str| drives.directory.path().join(name);
    fs::hard_link(&drives.paths[0], path("hard")).expect("linked");
    std::os::unix::fs::symlink("d0", path("soft")).expect("linked");
    for (of, name) in [(0, "hard"), (0, "soft"), (0, "d0"), (3, "d3"), (3, "./d3")] {
        let mut paths = drives.paths.clone();
        paths[4] = path(name);
        init(&["--drive-bytes", "32MiB"], &paths).expect(2).says(&format!(
            "{} and {} are one drive, given twice. Nothing was written. Name each drive once",
            paths[of].display(),
            paths[4].display()
        ));
    }
    assert_eq!(files_in(drives.directory.path()), 3, "nothing was made");
}

#[test]
fn places_where_no_drive_can_be_are_named() {
    let drives = five_names();
    let directory = drives.directory.path();
    fs::write(directory.join("file"), b"").expect("written");
    let size = ["--drive-bytes", "32MiB"];
    let with = |last: PathBuf| {
        let mut paths = drives.paths.clone();
        paths[4] = last;
        let ran = init(&size, &paths).expect(2);
        assert_eq!(files_in(directory), 1, "nothing was made: {ran:?}");
        (ran, paths[4].clone())
    };
    let (ran, path) = with(directory.join("no/d4"));
    ran.says(&format!(
        "{} cannot become a drive: the directory {} does not exist. Nothing was written. Make the directory, or name another place",
        path.display(),
        directory.join("no").display()
    ));
    let (ran, path) = with(directory.join("file/d4"));
    ran.says(&format!("cannot look at {}", path.display())).says("nothing was changed");
    // A directory that is seen to refuse only when it does: what was made before is removed again.
    let (ran, _) = with(PathBuf::from("/proc/d4"));
    if rustix::process::geteuid().is_root() {
        ran.says("cannot create /proc/d4").says("No store was made; everything is as it was");
    } else {
        ran.says("this user has no permission to write to /proc");
    }
}

/// Runs the program as a user who is not above permissions. Root gives that up first; `None` where it cannot, which has been said.
fn without_privilege(arguments: &[OsString]) -> Option<Ran> {
    let program = env!("CARGO_BIN_EXE_forebay");
    if !rustix::process::geteuid().is_root() {
        return Some(forebay(arguments));
    }
    let drop_rights = ["--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"];
    let output = Command::new("setpriv").args(drop_rights).arg(program).args(arguments).output();
    let ran = output.ok().map(|output| Ran {
        exit: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    });
    if ran.as_ref().is_none_or(|ran| ran.stderr.starts_with("setpriv:")) {
        println!("skipped: needs setpriv (util-linux), and the right to give up rights");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have setpriv: {ran:?}");
        return None;
    }
    ran
}

#[test]
fn what_this_user_may_not_write_is_said() {
    let drives = five_names();
    let locked = drives.directory.path().join("locked");
    fs::create_dir(&locked).expect("a directory");
    let kept = locked.join("kept");
    fs::write(&kept, vec![0; DRIVE_BYTES as usize]).expect("written");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permitted");
    mode(&locked, 0o555);
    mode(&kept, 0o444);
    let mut paths = drives.paths.clone();
    for (last, place) in [(locked.join("d4"), &locked), (kept.clone(), &kept)] {
        paths[4] = last;
        let Some(ran) = without_privilege(&making(&["--drive-bytes", "32MiB"], &paths)) else { return };
        ran.expect(2).says(&format!(
            "{} cannot become a drive: this user has no permission to write to {}. Nothing was written. Change its permissions, run as a \
             user who may, or name another place",
            paths[4].display(),
            place.display()
        ));
    }
    mode(&kept, 0o000);
    let Some(ran) = without_privilege(&making(&["--drive-bytes", "32MiB"], &paths)) else { return };
    ran.expect(2).says(&format!("cannot look at {}", kept.display())).says("nothing was changed");
    mode(&locked, 0o755);
    assert_eq!(files_in(drives.directory.path()), 1, "nothing was made");
}

#[test]
fn drives_that_do_not_fit_together_are_refused_before_any_is_made() {
    let drives = five_names();
    let stat = rustix::fs::statvfs(drives.directory.path()).expect("a file system");
    // Each has room alone, all five have not.
    let bytes = (stat.f_bavail * stat.f_frsize / 3).next_multiple_of(4096).to_string();
    let refused = init(&["--index-bytes", "1TiB", "--drive-bytes", &bytes], &drives.paths).expect(3);
    refused.says("has no room for the 5 drives that are to be made on it").says(" are missing. Nothing was written");
    assert_eq!(files_in(drives.directory.path()), 0);
}
