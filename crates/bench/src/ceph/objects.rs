//! `rados bench`: whole objects, as fast as a client can write and read them.

use super::cluster::{Cluster, POOL};

/// So long at most; it ends by its number of objects.
const SECONDS: &str = "3600";

/// Objects of one size.
pub struct Objects<'a> {
    pub cluster: &'a Cluster,
    pub object_bytes: u64,
    pub objects: u64,
    pub at_once: usize,
}

impl Objects<'_> {
    /// Writes them; seconds.
    pub fn write(&self) -> f64 {
        self.bench(&[
            "write",
            "--no-cleanup",
            "-b",
            &self.object_bytes.to_string(),
            "--max-objects",
            &self.objects.to_string(),
        ])
    }

    /// Reads them in order; seconds.
    pub fn read(&self) -> f64 {
        self.bench(&["seq"])
    }

    /// Removes them.
    pub fn remove(&self) {
        let status = self.cluster.program("rados").args(["-p", POOL, "cleanup"]).stdout(std::io::stderr()).status();
        assert!(status.expect("needs rados").success(), "rados cleanup failed");
    }

    fn bench(&self, what: &[&str]) -> f64 {
        let mut command = self.cluster.program("rados");
        command.args(["-p", POOL, "--format", "json", "-t", &self.at_once.to_string(), "bench", SECONDS]).args(what);
        let output = command.output().expect("needs rados: `make deps` installs it");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command:?}: {told} {}", String::from_utf8_lossy(&output.stderr));
        // What it prints is no JSON as a whole: of a write the last brace is missing.
        let seconds =
            told.split_once("\"total_time_run\":\"").and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
        seconds.unwrap_or_else(|| panic!("it does not say how long it took: {told}"))
    }
}
