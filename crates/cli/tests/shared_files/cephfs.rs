//! The same on a real CephFS: two mounts by ceph-fuse, of which the owner's is shut out.

use std::process::Command;
use std::time::Duration;

use super::*;
use crate::ceph::Ceph;
use crate::common::noise;
use crate::common::owners::id;
use forebay_client::{Client, ClientConfig};

/// A mount of its own client; gone when it is dropped.
struct Mount {
    directory: TempDir,
}

impl Mount {
    fn new(ceph: &Ceph) -> Mount {
        let directory = tempfile::Builder::new().prefix("forebay-cephfs").tempdir().expect("a directory");
        let output = Command::new("ceph-fuse").arg("-c").arg(ceph.configuration()).arg(directory.path()).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Mount { directory }
    }

    fn drive(&self) -> PathBuf {
        self.directory.path().join("store/drive0")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Also one that was shut out, and is in use.
        for words in [["fusermount3", "-uz"], ["fusermount", "-uz"], ["umount", "-l"]] {
            let done = Command::new(words[0]).arg(words[1]).arg(self.directory.path()).output();
            if done.is_ok_and(|output| output.status.success()) {
                return;
            }
        }
    }
}

/// The cluster, and a command that shuts the owner's mount out of it; nothing where there is none.
fn cephfs() -> Option<(&'static Ceph, String)> {
    let ceph = Ceph::with_files()?;
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: needs /dev/fuse");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fence-cephfs.py");
    Some((ceph, script.to_str().expect("text").to_owned()))
}

/// Programs of Ceph are started by the command: longer, so that ten times it is enough for them.
const DEAD_AFTER: &str = "6";

fn serve(drive: &Path, fence: &str) -> Server {
    let options = ["--fence-command", fence, "--dead-after", DEAD_AFTER];
    let mut server = Server::start_at(FREE, &options, &[drive.to_owned()]).unwrap_or_else(|ran| panic!("{ran:?}"));
    server.collect_log();
    server
}

fn standby(listen: &str, drive: PathBuf, fence: &str) -> JoinHandle<Server> {
    let (listen, fence) = (listen.to_owned(), fence.to_owned());
    std::thread::spawn(move || {
        let options = ["--fence-command", &fence, "--dead-after", DEAD_AFTER, "--standby"];
        let mut server = Server::start_at(&listen, &options, &[drive]).unwrap_or_else(|ran| panic!("{ran:?}"));
        server.collect_log();
        server
    })
}

fn make(mount: &Mount) {
    let drive = mount.drive();
    fs::create_dir_all(drive.parent().expect("it has one")).expect("made");
    let words = ["init", "--data", "1", "--parity", "0", "--drive-bytes", "256MiB", "--lanes", "2", "--force"];
    forebay(words.into_iter().map(OsStr::new).chain([drive.as_os_str()])).expect(0);
}

#[test]
fn a_standby_on_another_mount_shuts_out_the_one_of_a_server_that_is_gone_or_stands_still() {
    let Some((ceph, fence)) = cephfs() else { return };
    let (first, second) = (Mount::new(ceph), Mount::new(ceph));
    make(&first);
    let server = serve(&first.drive(), &fence);
    server.run_with(&["file", "cp", "-", "forebay:/b.raw"], &noise(7, 3_000_000)).expect(0);
    // Its process is gone, and so is its lock; of its mount nobody knows, so that it is shut out.
    let server = take_over_under_load(server, |server, other| {
        server.send_kill();
        standby(other, second.drive(), &fence)
    });
    assert_eq!(server.run(&["file", "cat", "forebay:/b.raw"]).expect(0).stdout, noise(7, 3_000_000));
    assert!(fs::read(first.drive()).is_err(), "its mount was shut out");
    server.terminate().expect(0).says("is fenced, as the fencing command says");
    drop(first);

    // One that stands still, and goes on when it was replaced.
    let (first, third) = (second, Mount::new(ceph));
    let old = serve(&first.drive(), &fence);
    let mut client = old.client("test");
    put(&mut client, 1000..1100);
    let config = ClientConfig::new(old.address.clone(), "asks").deadline(Some(Duration::from_secs(5)));
    let mut client = Client::connect(config).expect("connected");
    old.freeze();
    let asks = std::thread::spawn(move || client.get(id(1007)).map(|_| ()));
    let new = standby(FREE, third.drive(), &fence).join().expect("it serves");
    let mut client = new.client("test");
    assert_has(&mut client, 1000..1100);
    put(&mut client, 1100..1200);
    wake(&old);
    assert!(asks.join().expect("no panic").is_err(), "it answered what it was asked while it stood still");
    old.wait().expect(3);
    assert_has(&mut client, 1000..1200);
    new.terminate().expect(0);
}
