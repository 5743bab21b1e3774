//! The baseline of everything that is written: fio, 1 MiB blocks, eight in flight, past the page cache.

use std::path::Path;
use std::process::Command;

/// Bytes a second that fio writes over a file that exists.
///
/// # Panics
/// When fio is missing or fails: a benchmark without its baseline says nothing.
pub fn write_bytes_per_s(file: &Path, bytes: u64) -> f64 {
    let output = Command::new("fio")
        .args(["--name=baseline", "--rw=write", "--ioengine=io_uring", "--direct=1", "--bs=1M", "--iodepth=8"])
        .args(["--numjobs=1", "--output-format=json", "--overwrite=1", "--allow_file_create=0"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={bytes}"))
        .output()
        .expect("needs fio: `make deps` installs it");
    assert!(output.status.success(), "fio failed: {}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("fio prints JSON");
    report["jobs"][0]["write"]["bw_bytes"].as_f64().expect("fio says how fast it was")
}
