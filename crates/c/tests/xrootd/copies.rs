//! Files in and out by `xrdcp`, `xrdfs` and `curl`, and what may happen to them on the way.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use forebay::*;

use crate::common::door::{Door, client, failed_client, good_client};
use crate::common::world::*;
use crate::{adler32, local, until};

#[test]
fn files_go_in_and_out_with_the_checksums_that_the_store_keeps() {
    let Some(door) = Door::shared() else { return };
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let (gate, files) = (door.serve(&world.address(), ""), world.files());
    let bytes = content(1, 9_000_001);
    let from = local(&here, "from", &bytes);
    // With sums of pages, which is xrdcp's default, and without.
    for (name, pages) in [("on", "1"), ("off", "0")] {
        let url = gate.url(&format!("/run7/{name}"));
        let back = here.path().join(name).to_str().expect("text").to_owned();
        for words in [[from.as_str(), &url], [&url, &back]] {
            let copied = client("xrdcp").env("XRD_CPUSEPGWRTRD", pages).arg("--nopbar").args(words).output();
            good_client(&copied.expect("it runs"));
        }
        assert!(fs::read(&back).expect("there") == bytes, "{name}");
        assert!(stat(&files, format!("/run7/{name}").as_bytes()).expect("there").is_sealed);
    }
    let told = good_client(&gate.xrdfs(&["query", "checksum", "/run7/on"]));
    assert_eq!(told.trim(), format!("adler32 {}", adler32(&bytes)));
    let told = good_client(&gate.xrdfs(&["query", "checksum", "/run7/on?cks.type=crc32c"]));
    assert_eq!(told.trim(), format!("crc32c {:08x}", forebay_types::crc32c(&bytes)));
    good_client(&gate.xrdcp(&["--cksum", "adler32:source", &from, &gate.url("/run7/sum")]));
    // In four streams, and eight files at once.
    for number in 0..8 {
        local(&here, &format!("many{number}"), &content(number, 700_000));
    }
    let many: Vec<String> = (0..8).map(|number| format!("{}/many{number}", here.path().display())).collect();
    good_client(&gate.xrdfs(&["mkdir", "/many"]));
    let url = gate.url("/many/");
    let mut words: Vec<&str> = vec!["--parallel", "8", "--streams", "4"];
    words.extend(many.iter().map(String::as_str));
    words.push(&url);
    good_client(&gate.xrdcp(&words));
    for number in 0..8 {
        let reader = open_read(&files, format!("/many/many{number}").as_bytes());
        assert!(pread(&reader, 0, 800_000) == content(number, 700_000), "{number}");
    }
}

#[test]
fn names_are_listed_looked_at_renamed_and_removed() {
    let Some(door) = Door::shared() else { return };
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let gate = door.serve(&world.address(), "");
    let from = local(&here, "from", b"some bytes");
    good_client(&gate.xrdcp(&[&from, &gate.url("/a/b/file")]));
    let told = good_client(&gate.xrdfs(&["stat", "/a/b/file"]));
    assert!(told.contains("Size:   10") && told.contains("IsWritable"), "{told}");
    let told = good_client(&gate.xrdfs(&["ls", "-l", "/a/b"]));
    assert!(told.contains(" 10 ") && told.contains("/a/b/file"), "{told}");
    good_client(&gate.xrdfs(&["mkdir", "-p", "/x/y"]));
    good_client(&gate.xrdfs(&["mv", "/a/b/file", "/x/y/moved"]));
    assert!(failed_client(&gate.xrdfs(&["stat", "/a/b/file"])).contains("no such file"));
    assert_eq!(good_client(&gate.xrdfs(&["cat", "/x/y/moved"])), "some bytes");
    // What is there is replaced only by who says so.
    assert!(failed_client(&gate.xrdcp(&[&from, &gate.url("/x/y/moved")])).contains("file exists"));
    let other = local(&here, "other", b"others");
    good_client(&gate.xrdcp(&["-f", &other, &gate.url("/x/y/moved")]));
    assert_eq!(good_client(&gate.xrdfs(&["cat", "/x/y/moved"])), "others");
    assert_eq!(good_client(&gate.xrdfs(&["ls", "/x/y"])).trim(), "/x/y/moved", "and nothing is left beside it");
    let said = failed_client(&gate.xrdfs(&["truncate", "/x/y/moved", "1"]));
    assert!(said.contains("not permitted"), "{said}");
    assert!(failed_client(&gate.xrdfs(&["rmdir", "/x/y"])).contains("not empty"));
    good_client(&gate.xrdfs(&["rm", "/x/y/moved"]));
    good_client(&gate.xrdfs(&["rmdir", "/x/y"]));
    assert!(failed_client(&gate.xrdfs(&["ls", "/x/y"])).contains("no such file"));
    assert!(failed_client(&gate.xrdfs(&["cat", "/x"])).contains("directory"));
    let room = good_client(&gate.xrdfs(&["spaceinfo", "/"]));
    assert!(room.contains("Total:") && !room.contains("Free:               0\n"), "{room}");
    let long = format!("/{}", "n".repeat(256));
    assert!(failed_client(&gate.xrdcp(&[&from, &gate.url(&long)])).contains("too long"));
}

#[test]
fn several_servers_stand_before_one_store() {
    let Some(door) = Door::shared() else { return };
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let (one, other) = (door.serve(&world.address(), ""), door.serve(&world.address(), " prefix=/area connections=2"));
    let bytes = content(5, 3_000_000);
    let from = local(&here, "from", &bytes);
    good_client(&one.xrdcp(&[&from, &one.url("/area/file")]));
    assert_eq!(good_client(&other.xrdfs(&["stat", "/file"])).matches("3000000").count(), 1);
    let told = good_client(&other.xrdfs(&["query", "checksum", "/file"]));
    assert!(told.contains(&adler32(&bytes)), "{told}");
    // The second server fetches it from the first one by itself.
    good_client(&one.xrdcp(&["--tpc", "only", "--cksum", "adler32", &one.url("/area/file"), &other.url("/copied")]));
    failed_client(&one.xrdcp(&["--tpc", "only", &one.url("/area/nothing"), &other.url("/nothing")]));
    until(|| stat(&world.files(), b"/area/nothing").is_err());
    let reader = open_read(&world.files(), b"/area/copied");
    assert!(pread(&reader, 0, 4_000_000) == bytes);
    good_client(&other.xrdfs(&["mv", "/copied", "/deeper/still/copied"]));
    assert_eq!(good_client(&one.xrdfs(&["ls", "/area/deeper/still"])).trim(), "/area/deeper/still/copied");
}

#[test]
fn the_web_has_ranges_digests_and_webdav() {
    let Some(door) = Door::shared() else { return };
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let gate = door.serve(&world.address(), "");
    let bytes = content(6, 2_000_000);
    let from = local(&here, "from", &bytes);
    let curl = |words: &[&str]| client("curl").args(["-sS", "--fail"]).args(words).output().expect("it runs");
    let url = gate.http("/web/file");
    good_client(&curl(&["-T", &from, &url]));
    let whole = curl(&[&url]);
    assert!(whole.status.success() && whole.stdout == bytes);
    let range = curl(&["-r", "1000000-1000099", &url]);
    assert!(range.status.success() && range.stdout == bytes[1_000_000..1_000_100]);
    let head = good_client(&curl(&["-I", "-H", "Want-Digest: adler32", &url]));
    assert!(head.to_lowercase().contains(&format!("digest: adler32={}", adler32(&bytes))), "{head}");
    let found = good_client(&curl(&["-X", "PROPFIND", "-H", "Depth: 1", &gate.http("/web/")]));
    assert!(found.contains("/web/file") && found.contains("2000000"), "{found}");
    good_client(&curl(&["-X", "MOVE", "-H", &format!("Destination: {}", gate.http("/web/moved")), &url]));
    good_client(&curl(&["-X", "DELETE", &gate.http("/web/moved")]));
    assert!(failed_client(&curl(&[&gate.http("/web/moved")])).contains("404"));
}

#[test]
fn what_a_client_that_vanishes_wrote_is_taken_away() {
    let Some(door) = Door::shared() else { return };
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let (gate, files) = (door.serve(&world.address(), ""), world.files());
    let mut command = client("xrdcp");
    command.args(["--nopbar", "-", &gate.url("/half")]).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(&content(7, 40_000_000)).expect("taken");
    until(|| stat(&files, b"/half").is_ok_and(|known| known.length > 0));
    let known = stat(&files, b"/half").expect("there");
    assert!(!known.is_sealed, "nobody takes it for whole");
    // A checksum of it is none.
    let said = failed_client(&gate.xrdfs(&["query", "checksum", "/half"]));
    assert!(said.contains("text file busy"), "{said}");
    child.kill().expect("ours to end");
    child.wait().expect("it ends");
    until(|| stat(&files, b"/half").err() == Some(FOREBAY_NOT_FOUND));
    assert!(gate.said().contains("Unpersisting"));
    // By the web.
    let from = local(&here, "from", &content(7, 40_000_000));
    let mut command = client("curl");
    command.args(["-sS", "--limit-rate", "2M", "-T", &from, &gate.http("/web")]).stdout(Stdio::null());
    let mut child = command.spawn().expect("it runs");
    until(|| stat(&files, b"/web").is_ok_and(|known| known.length > 0));
    child.kill().expect("ours to end");
    child.wait().expect("it ends");
    until(|| stat(&files, b"/web").err() == Some(FOREBAY_NOT_FOUND));
}

#[test]
fn a_full_store_is_told_to_the_client_and_has_its_room_again() {
    let Some(door) = Door::shared() else { return };
    let (world, here) = (World::with_drives_of(32 << 20), tempfile::tempdir().expect("a directory"));
    let (gate, files) = (door.serve(&world.address(), " patience_s=1"), world.files());
    let kept = local(&here, "kept", &content(8, 1_000_000));
    good_client(&gate.xrdcp(&[&kept, &gate.url("/kept")]));
    let large = local(&here, "large", &content(9, 300_000_000));
    let said = failed_client(&gate.xrdcp(&[&large, &gate.url("/large")]));
    assert!(said.contains("no space"), "{said}");
    until(|| stat(&files, b"/large").err() == Some(FOREBAY_NOT_FOUND));
    assert!(gate.said().contains("the store is full"), "the log has the store's words: {}", gate.said());
    // What was let go of is room for others.
    until(|| gate.xrdcp(&["-f", &kept, &gate.url("/again")]).status.success());
    assert!(pread(&open_read(&files, b"/kept"), 0, 2_000_000) == content(8, 1_000_000));
}

#[test]
fn a_copy_goes_on_when_the_store_is_started_again() {
    let Some(door) = Door::shared() else { return };
    let (mut world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let gate = door.serve(&world.address(), "");
    let bytes = content(10, 30_000_000);
    let mut command = client("xrdcp");
    command.args(["--nopbar", "-", &gate.url("/file")]).stdin(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(&bytes[..20_000_000]).expect("taken");
    world.stop();
    // What is written meanwhile waits.
    let writes = std::thread::spawn({
        let rest = bytes[20_000_000..].to_vec();
        move || pipe.write_all(&rest).expect("taken")
    });
    std::thread::sleep(Duration::from_millis(300));
    world.start();
    writes.join().expect("written");
    assert!(child.wait().expect("it ends").success(), "{}", gate.said());
    assert!(pread(&open_read(&world.files(), b"/file"), 0, 31_000_000) == bytes);
    let back = here.path().join("back").to_str().expect("text").to_owned();
    good_client(&gate.xrdcp(&[&gate.url("/file"), &back]));
    assert!(fs::read(&back).expect("there") == bytes);
}

#[test]
fn settings_that_are_wrong_are_said_before_the_server_starts() {
    let Some(door) = Door::shared() else { return };
    for (store, options, said) in [
        ("nowhere", "", "must be the store's HOST:PORT"),
        ("127.0.0.1:1", " conections=3", "conections=3 is no option"),
        ("127.0.0.1:1", " connections=0", "connections=0 is no option"),
        ("127.0.0.1:1", " prefix=area", "prefix=area is no option"),
    ] {
        let refused = door.refused(store, options);
        assert!(refused.contains(said), "{refused}");
    }
}
