//! The files of a server as a directory.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{REQUEST_BYTES, each_stream, read_all};
use crate::process::{Server, binary};

/// `forebay mount`, in the foreground.
pub struct Mount {
    child: Child,
    directory: tempfile::TempDir,
}

impl Mount {
    /// Mounts, and waits until it stands: until it shows a file that is there.
    ///
    /// # Panics
    /// Where `/dev/fuse` is missing.
    pub fn of(server: &Server, shown: &str) -> Mount {
        Mount::with(server, shown, &[])
    }

    /// The same with options.
    ///
    /// # Panics
    /// As [`Mount::of`].
    pub fn with(server: &Server, shown: &str, options: &[&str]) -> Mount {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let child = Command::new(binary())
            .args(["mount", "--foreground", &server.address()])
            .args(options)
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program is there");
        let start = Instant::now();
        while !directory.path().join(shown).exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "the mount does not stand: it needs /dev/fuse");
            std::thread::sleep(Duration::from_millis(5));
        }
        Mount { child, directory }
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Where it shows a file of the root.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Bytes a second of files that are written and durable.
    pub fn write(&self, streams: usize, total_bytes: u64) -> f64 {
        let block = vec![5; REQUEST_BYTES];
        each_stream(streams, total_bytes, |stream, bytes| {
            let mut file = File::create(self.directory.path().join(format!("mount{stream}"))).expect("made");
            for _ in 0..bytes / REQUEST_BYTES as u64 {
                file.write_all(&block).expect("there is room");
            }
            file.sync_all().expect("durable");
        })
    }

    /// Bytes a second of files that were written natively, and that the kernel has not seen yet.
    pub fn read(&self, streams: usize, total_bytes: u64) -> f64 {
        each_stream(streams, total_bytes, |stream, bytes| {
            let path = self.directory.path().join(format!("native{stream}"));
            let mut file = File::open(path).expect("it is there");
            read_all(&mut file, bytes);
        })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.directory.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
