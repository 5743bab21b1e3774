//! `rados bench`: whole objects, as fast as a client can write and read them.

use serde_json::Value;

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
        // It writes one object for each second before the one that counts.
        let last =
            told.rfind("\"total_time_run\"").and_then(|at| told[..at].rfind('{')).expect("it says how long it took");
        let mut values = serde_json::Deserializer::from_str(&told[last..]).into_iter::<Value>();
        let result = values.next().and_then(Result::ok).expect("JSON");
        let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
        number(&result["total_time_run"]).expect("seconds")
    }
}
