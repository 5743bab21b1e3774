//! Programs that know nothing of files that never change again, on a mount that seals them at once.

use std::fs;

use super::common::mounted::{Mounted, has_fuse, has_peer};
use super::common::{self, Drives, noise};
use super::{files_of, run};

#[test]
fn editors_and_copies_go_on_though_files_are_sealed_at_once() {
    if !has_fuse() || !has_peer("rsync") || !has_peer("vim.tiny") {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let files = files_of(&server);
    let mounted = Mounted::start(&server.address, &["--seal-after-s", "0.01"]);
    let wait_for_seal = |path: &str| while !files.stat(path).expect("there").is_sealed() {};
    fs::write(mounted.join("notes"), b"the first line\nthe end\n").expect("written");
    // Of files below /tmp it makes no copies before it writes: that is what `backupskip` is.
    for (before, after) in [("first", "second"), ("second", "third"), ("third", "fourth")] {
        wait_for_seal("/notes");
        run(
            "vim.tiny",
            &[
                "-N",
                "-u",
                "NONE",
                "-es",
                "-c",
                "set backupskip=",
                "-c",
                &format!("%s/{before}/{after}/"),
                "-c",
                "wq",
                "notes",
            ],
            mounted.path(),
        );
        let text = fs::read_to_string(mounted.join("notes")).expect("read");
        assert_eq!(text, format!("the {after} line\nthe end\n"));
    }
    wait_for_seal("/notes");
    run("sed", &["-i", "s/fourth/last/", "notes"], mounted.path());
    assert_eq!(fs::read_to_string(mounted.join("notes")).expect("read"), "the last line\nthe end\n");

    let outside = common::scratch();
    for number in 0..20 {
        fs::write(outside.path().join(format!("file{number}")), noise(number, 30_000)).expect("written");
    }
    let from = format!("{}/", outside.path().display());
    for changed in [7, 8, 8] {
        run("rsync", &["-a", &from, "there"], mounted.path());
        (0..20).for_each(|number| wait_for_seal(&format!("/there/file{number}")));
        fs::write(outside.path().join(format!("file{changed}")), noise(100 + changed, 40_000)).expect("written");
    }
    run("rsync", &["-a", "--delete", &from, "there"], mounted.path());
    run("diff", &["-r", outside.path().to_str().expect("UTF-8"), "there"], mounted.path());
    run("tar", &["cf", "all.tar", "there"], mounted.path());
    run("mkdir", &["out"], mounted.path());
    run("tar", &["xf", "all.tar", "-C", "out"], mounted.path());
    run("diff", &["-r", "there", "out/there"], mounted.path());
    run("dd", &["if=there/file1", "of=blocks", "bs=1k", "conv=fsync"], mounted.path());
    run("cmp", &["there/file1", "blocks"], mounted.path());
    mounted.terminate().expect(0);
}
