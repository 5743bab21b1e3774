//! The thread that asks drives for their wear, by `smartctl` where that is installed: seldom, and far from the threads that serve.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_store::ControlHandle;

use crate::smart::SmartReport;

/// The program that asks.
const PROGRAM: &str = "smartctl";

/// How often each drive is asked: its wear changes by the month.
const EVERY: Duration = Duration::from_secs(3600);

/// How long the program may take for one drive.
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_LOOK: Duration = Duration::from_millis(20);

/// More output than this is no answer.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

#[derive(Default)]
struct Shared {
    reports: Mutex<(BTreeMap<u16, SmartReport>, bool)>,
    stopped: Condvar,
}

/// What the drives said last, by number. Its clones are the same.
#[derive(Clone, Default)]
pub(crate) struct SmartReports(Arc<Shared>);

impl SmartReports {
    pub(crate) fn get(&self) -> BTreeMap<u16, SmartReport> {
        self.lock().0.clone()
    }

    /// The thread ends soon: at once when it asks nobody just now.
    pub(crate) fn stop(&self) {
        self.lock().1 = true;
        self.0.stopped.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, (BTreeMap<u16, SmartReport>, bool)> {
        self.0.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.lock().1
    }

    /// Waits for the next time to ask; whether it came.
    fn wait(&self) -> bool {
        let waited = self.0.stopped.wait_timeout_while(self.lock(), EVERY, |(_, stopped)| !*stopped);
        !waited.unwrap_or_else(PoisonError::into_inner).0.1
    }
}

/// Asks drives.
pub(crate) struct SmartThread {
    pub(crate) reports: SmartReports,
    pub(crate) store: ControlHandle,
    /// Files are asked for, too: for tests.
    pub(crate) of_files: bool,
}

impl SmartThread {
    /// Asks until it is stopped.
    pub(crate) fn run(self) {
        let mut told = false;
        loop {
            for (number, path) in self.drives() {
                self.ask_one(number, &path, &mut told);
            }
            if !self.reports.wait() {
                return;
            }
        }
    }
}

impl SmartThread {
    /// Number and path of each drive that can be asked now.
    fn drives(&self) -> Vec<(u16, PathBuf)> {
        let drives = self.store.status().drives.into_iter();
        let there = drives.filter_map(|drive| Some((drive.number, PathBuf::from(drive.path?))));
        there.filter(|(_, path)| self.of_files || is_block_device(path)).collect()
    }

    fn ask_one(&self, number: u16, path: &Path, told: &mut bool) {
        match ask(Path::new(PROGRAM), path, TIMEOUT, &|| self.reports.is_stopped()) {
            Ok(report) => {
                self.reports.lock().0.insert(number, report);
            }
            Err(why) if !*told => {
                *told = true;
                tracing::info!(drive = number, path = %path.display(), "the wear of drives is not known: {why}");
            }
            Err(why) => tracing::debug!(drive = number, "its wear is not known: {why}"),
        }
    }
}

fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device())
}

/// Asks one drive.
///
/// # Errors
/// Why there is no answer, in words.
fn ask(program: &Path, drive: &Path, timeout: Duration, stopped: &dyn Fn() -> bool) -> Result<SmartReport, String> {
    let mut command = Command::new(program);
    // No configuration of anybody changes what comes out; the drive is not woken up for it.
    command.args(["--json=c", "--all", "--nocheck=standby", "--"]).arg(drive);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{} is not installed", program.display()),
        _ => format!("{} cannot be started: {error}", program.display()),
    })?;
    let output = child.stdout.take().expect("a pipe");
    let reader = std::thread::Builder::new().name("forebay-smartctl".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        output.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).map(|_| bytes)
    });
    let ended = wait_for(&mut child, timeout, stopped);
    if let Err(why) = ended {
        // Whether it could be killed or not: it is waited for no longer, and what reads from it ends with it.
        let _ = child.kill();
        let _ = child.try_wait();
        return Err(why);
    }
    let bytes = reader.map_err(|error| format!("no thread for its output: {error}"))?.join();
    let bytes = bytes
        .map_err(|_| "its output could not be read".to_owned())?
        .map_err(|error| format!("its output: {error}"))?;
    // Its exit code is a set of flags, most of them about the drive: the output alone counts.
    SmartReport::parse(&bytes)
}

fn wait_for(child: &mut Child, timeout: Duration, stopped: &dyn Fn() -> bool) -> Result<(), String> {
    let until = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if stopped() => return Err("the server stops".to_owned()),
            Ok(None) if Instant::now() >= until => return Err(format!("no answer within {} s", timeout.as_secs())),
            Ok(None) => std::thread::sleep(TIMEOUT_LOOK),
            Err(error) => return Err(format!("it cannot be waited for: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fake(script: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join(PROGRAM);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("executable");
        (directory, program)
    }

    fn ask_fake(script: &str, timeout: Duration, stopped: bool) -> Result<SmartReport, String> {
        let (_directory, program) = fake(script);
        ask(&program, Path::new("/dev/nvme9n9"), timeout, &|| stopped)
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn the_program_is_asked_about_the_drive_and_its_exit_code_does_not_matter() {
        let script = r#"[ "$1 $2 $4 $5" = "--json=c --all -- /dev/nvme9n9" ] || exit 1
            echo '{"nvme_smart_health_information_log":{"percentage_used":3}}'; exit 64"#;
        assert_eq!(ask_fake(script, LONG, false).map(|report| report.used_percent), Ok(Some(3)));
    }

    #[test]
    fn a_program_that_hangs_fails_talks_too_much_or_is_missing_is_no_answer() {
        let told = ask_fake("exec sleep 1000", Duration::from_millis(50), false).expect_err("it hangs");
        assert!(told.contains("no answer"), "{told}");
        assert!(ask_fake("exec sleep 1000", LONG, true).is_err(), "a stop does not wait for it");
        assert!(ask_fake("exit 1", LONG, false).is_err());
        assert!(ask_fake("head -c 3000000 /dev/zero", LONG, false).is_err());
        let told =
            ask(Path::new("/nonexistent/smartctl"), Path::new("/dev/null"), LONG, &|| false).expect_err("missing");
        assert!(told.contains("not installed"), "{told}");
    }

    #[test]
    fn only_block_devices_are_asked() {
        let (_directory, program) = fake("exit 0");
        assert!(!is_block_device(&program) && !is_block_device(Path::new("/dev/null")));
    }
}
