//! The command by which an operator makes sure that a server has ended, or can write no more.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use forebay_media::Licence;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::record::Holder;

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Words for a shell, which get by variables whom to fence.
#[derive(Clone, Debug)]
pub struct FenceCommand {
    words: String,
    limit: Duration,
}

/// Why somebody is not fenced, or not known to be.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// There is no shell, or no process may be started.
    #[error("the fencing command cannot be started: {0}")]
    Start(io::Error),
    /// It says so itself.
    #[error("the fencing command {}", ended(*.0))]
    Failed(ExitStatus),
    /// It was ended by force.
    #[error("the fencing command did not end within {} s, and was killed", .0.as_secs())]
    Hangs(Duration),
    /// Nobody waits any more.
    #[error("the fencing command was killed, as this server was stopped")]
    Stopped,
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
    }
}

impl FenceCommand {
    /// These words; one that has not ended after `limit` is killed, and counts as failed.
    pub fn new(words: String, limit: Duration) -> FenceCommand {
        FenceCommand { words, limit }
    }

    /// Runs it, for this server. Exit code 0 alone means that it is fenced.
    ///
    /// # Errors
    /// [`FenceError`].
    pub(crate) fn run(&self, holder: &Holder, is_stopped: &dyn Fn() -> bool) -> Result<(), FenceError> {
        let mut child = self.start(holder).map_err(FenceError::Start)?;
        let until = Licence::now() + self.limit;
        loop {
            if let Some(status) = child.try_wait().map_err(FenceError::Start)? {
                return if status.success() { Ok(()) } else { Err(FenceError::Failed(status)) };
            }
            let error = match () {
                () if is_stopped() => FenceError::Stopped,
                () if Licence::now() >= until => FenceError::Hangs(self.limit),
                () => {
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            end(&mut child);
            return Err(error);
        }
    }

    /// What it says goes where the server's log goes. A group of its own, so that it is ended with all that it started.
    fn start(&self, holder: &Holder) -> io::Result<Child> {
        let said = io::stderr().as_fd().try_clone_to_owned()?;
        let (record, process) = (&holder.record, &holder.record.process);
        Command::new("sh")
            .arg("-c")
            .arg(&self.words)
            .env("FOREBAY_OWNER_HOST", &process.host)
            .env("FOREBAY_OWNER_PID", process.pid.to_string())
            .env("FOREBAY_OWNER_ADDRESS", record.address.to_string())
            .env("FOREBAY_OWNER_DRIVE", &record.drive)
            .env("FOREBAY_OWNER_MACHINE_ID", &process.machine_id)
            .env("FOREBAY_OWNER_BOOT_ID", &process.boot_id)
            .stdin(Stdio::null())
            .stdout(Stdio::from(said))
            .process_group(0)
            .spawn()
    }
}

fn end(child: &mut Child) {
    // It may have ended meanwhile.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use crate::record::Record;

    fn run(words: &str, limit: Duration, is_stopped: bool) -> Result<(), FenceError> {
        let process = Process { pid: 4711, host: "hlt-1".to_owned(), boot_id: "b-7".to_owned(), ..Process::default() };
        let place = ("10.1.0.5:7420".parse().expect("an address"), "/mnt/a b/drive0".to_owned());
        let record = Record::new(3, 99, Duration::from_secs(9), place, process);
        FenceCommand::new(words.to_owned(), limit).run(&Holder::of(record), &|| is_stopped)
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn only_exit_code_0_means_fenced() {
        run("true", LONG, false).expect("fenced");
        let words = |result: Result<(), FenceError>| result.expect_err("not fenced").to_string();
        assert_eq!(words(run("exit 7", LONG, false)), "the fencing command ended with exit code 7");
        assert_eq!(words(run("kill -9 $$", LONG, false)), "the fencing command was ended by signal 9");
        assert!(words(run("no-such-program-at-all", LONG, false)).ends_with("127"));
    }

    #[test]
    fn it_is_told_whom_to_fence() {
        let words = "test $FOREBAY_OWNER_HOST = hlt-1 && test $FOREBAY_OWNER_PID = 4711 && test $FOREBAY_OWNER_ADDRESS = 10.1.0.5:7420 \
                     && test \"$FOREBAY_OWNER_DRIVE\" = '/mnt/a b/drive0' && test $FOREBAY_OWNER_BOOT_ID = b-7 && test -z \"$FOREBAY_OWNER_MACHINE_ID\"";
        run(words, LONG, false).expect("fenced");
    }

    #[test]
    fn one_that_hangs_is_killed_with_what_it_started() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let words = format!("sleep 1000 & echo $! > {}; wait", file.path().display());
        assert!(matches!(run(&words, Duration::from_millis(500), false), Err(FenceError::Hangs(_))));
        if let Ok(sleeper) = std::fs::read_to_string(file.path()).expect("read").trim().parse::<i32>() {
            let pid = Pid::from_raw(sleeper).expect("a process");
            // Whoever inherited it asks how it ended, or not: then it is a zombie.
            let state = || std::fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap_or_default();
            while rustix::process::test_kill_process(pid).is_ok() && !state().contains(") Z") {
                std::thread::sleep(LOOK);
            }
        }
        assert!(matches!(run("sleep 1000", LONG, true), Err(FenceError::Stopped)));
    }
}
