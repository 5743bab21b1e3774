//! The file system of a cluster, mounted by its own client.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::cluster::Cluster;
use super::rates::{FRAGMENT_BYTES, READERS, WRITERS, in_parallel};

/// `ceph-fuse`, in the foreground.
pub struct Mount {
    child: Child,
    directory: tempfile::TempDir,
}

impl Mount {
    /// Mounts, and waits until it stands.
    ///
    /// # Panics
    /// Where `ceph-fuse` is missing, or the right to mount.
    pub fn of(cluster: &Cluster) -> Mount {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let device = |path: &std::path::Path| path.metadata().map(|metadata| metadata.dev()).ok();
        let before = device(directory.path());
        let child = cluster
            .program("ceph-fuse")
            .arg("-f")
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("needs ceph-fuse: `make deps` installs it");
        let mut mount = Mount { child, directory };
        while device(mount.directory.path()) == before {
            let ended = mount.child.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "ceph-fuse ended: it needs /dev/fuse, and root");
            std::thread::sleep(Duration::from_millis(20));
        }
        mount
    }

    fn path(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("file{number}"))
    }

    /// As many files as there are writers, each written by its own in requests of a fragment's size, and durable.
    pub fn write(&self, payload_bytes: u64) {
        let requests = payload_bytes / WRITERS as u64 / FRAGMENT_BYTES as u64;
        in_parallel(WRITERS, |writer| {
            let block: Vec<u8> = (0..FRAGMENT_BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
            let mut file = File::create(self.path(writer)).expect("made");
            for _ in 0..requests {
                file.write_all(&block).expect("there is room");
            }
            file.sync_all().expect("durable");
        });
    }

    /// Reads them all.
    pub fn read(&self) {
        in_parallel(READERS, |reader| {
            let mut block = vec![0; 1 << 20];
            for number in (reader..WRITERS).step_by(READERS) {
                let mut file = File::open(self.path(number)).expect("it is there");
                while file.read(&mut block).expect("it is read") > 0 {}
            }
        });
    }

    /// Removes them.
    pub fn remove(&self) {
        (0..WRITERS).for_each(|number| std::fs::remove_file(self.path(number)).expect("it is there"));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.directory.path()).status();
        let _ = self.child.wait();
    }
}
