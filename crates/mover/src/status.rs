//! How a mover is, in a file beside its journal, for other processes: also when it is dead.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this module writes the file and reads it, and asks whether a process lives"
)]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};

use crate::monitor::Report;

/// A longer one is none.
const BYTES_MAX: u64 = 16 << 20;
/// A mover writes it every two seconds; one that did not for so long is not there, or hangs.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// The path of the file of a journal.
pub fn path_of(journal: &Path) -> PathBuf {
    let mut path = journal.as_os_str().to_owned();
    path.push(".status.json");
    PathBuf::from(path)
}

/// The name of this machine.
pub(crate) fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Writes it; whoever reads it sees the one before, or this one. It is not made durable.
pub(crate) fn write(journal: &Path, report: &Report) -> io::Result<()> {
    let path = path_of(journal);
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let text = serde_json::to_vec(report)?;
    File::create(&part)?.write_all(&text)?;
    fs::rename(&part, &path)
}

/// What the mover with this journal said last; nothing when none ever did.
///
/// # Errors
/// A file that cannot be read, or is none of a mover.
pub fn read(journal: &Path) -> io::Result<Option<Report>> {
    let file = match File::open(path_of(journal)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

/// How a mover is, as far as another process can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Runs,
    /// It ended in order, so long ago.
    Ended(Duration),
    /// Its process is gone, or it has said nothing for too long; it was last heard of so long ago.
    Gone(Duration),
}

/// Whether the mover that said this lives, at a moment in milliseconds since 1970.
pub fn life_of(report: &Report, unix_ms: u64) -> Life {
    let silent = Duration::from_millis(unix_ms.saturating_sub(report.unix_ms));
    if report.ended {
        return Life::Ended(silent);
    }
    let pid = i32::try_from(report.process).ok().filter(|_| report.machine == machine()).and_then(Pid::from_raw);
    // One that belongs to somebody else lives too.
    let is_gone = pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH));
    if is_gone || silent >= SILENT_AFTER { Life::Gone(silent) } else { Life::Runs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_whoever_wrote_it_lives_until_it_does_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let journal = directory.path().join("move.sqlite");
        assert_eq!(read(&journal).expect("none"), None);
        let mut report = Report { machine: machine(), process: std::process::id(), unix_ms: 1000, ..Report::default() };
        write(&journal, &report).expect("written");
        assert_eq!(read(&journal).expect("there"), Some(report.clone()));
        assert_eq!(life_of(&report, 2000), Life::Runs);
        assert_eq!(life_of(&report, 31_000), Life::Gone(Duration::from_secs(30)), "it hangs");
        // No process has the highest number.
        report.process = i32::MAX as u32;
        assert_eq!(life_of(&report, 2000), Life::Gone(Duration::from_secs(1)));
        report.machine = "another".to_owned();
        assert_eq!(life_of(&report, 2000), Life::Runs);
        report.ended = true;
        assert_eq!(life_of(&report, 2000), Life::Ended(Duration::from_secs(1)));
        fs::write(path_of(&journal), "{").expect("written");
        assert!(read(&journal).is_err());
    }
}
