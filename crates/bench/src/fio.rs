//! The baseline of what goes to drives: fio, eight operations in flight, past the page cache.

use std::path::Path;
use std::process::Command;

/// Bytes a second that fio writes over a file that exists, in blocks of 1 MiB.
///
/// # Panics
/// When fio is missing or fails: a benchmark without its baseline says nothing.
pub fn write_bytes_per_s(file: &Path, bytes: u64) -> f64 {
    let report = fio(file, bytes, &["--rw=write", "--bs=1M"]);
    report["write"]["bw_bytes"].as_f64().expect("fio says how fast it was")
}

/// Bytes a second that fio reads and writes in a file that exists, `reads` blocks for each that it writes, as a rebuild does.
///
/// # Panics
/// As [`write_bytes_per_s`].
pub fn mixed_bytes_per_s(file: &Path, bytes: u64, reads: u8) -> f64 {
    let percent = u32::from(reads) * 100 / (u32::from(reads) + 1);
    let report = fio(file, bytes, &["--rw=rw", "--bs=128k", &format!("--rwmixread={percent}")]);
    let of = |way: &str| report[way]["bw_bytes"].as_f64().expect("fio says how fast it was");
    of("read") + of("write")
}

fn fio(file: &Path, bytes: u64, options: &[&str]) -> serde_json::Value {
    let output = Command::new("fio")
        .args(["--name=baseline", "--ioengine=io_uring", "--direct=1", "--iodepth=8"])
        .args(["--numjobs=1", "--output-format=json", "--overwrite=1", "--allow_file_create=0"])
        .args(options)
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={bytes}"))
        .output()
        .expect("needs fio: `make deps` installs it");
    assert!(output.status.success(), "fio failed: {}", String::from_utf8_lossy(&output.stderr));
    let mut report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("fio prints JSON");
    report["jobs"][0].take()
}
