//! A program of somebody else's that is asked, or told, one thing: its exit code is the answer.

use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_mover::custody::Failure;
use forebay_mover::endpoint::{Asked, Moved, Registry};
use rustix::fs::{Access, access};

use crate::process::{Ended, Running};
use crate::words::plain_end;

/// What a program exits with that cannot now (`EX_TEMPFAIL` of sysexits.h).
const LATER: i32 = 75;

/// A program, run anew each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherCommand {
    program: PathBuf,
}

/// No program.
#[derive(Debug, thiserror::Error)]
#[error("{} is no program that can be run here: {why}", path.display())]
pub struct CommandError {
    path: PathBuf,
    why: String,
}

impl OtherCommand {
    /// A program, by its path.
    ///
    /// # Errors
    /// What cannot be run by this user.
    pub fn new(program: &Path) -> Result<OtherCommand, CommandError> {
        let failed = |why: String| CommandError { path: program.to_owned(), why };
        let program_is = std::fs::metadata(program).map_err(|error| failed(error.to_string()))?;
        if !program_is.is_file() {
            return Err(failed("it is no file".to_owned()));
        }
        access(program, Access::EXEC_OK).map_err(|error| failed(error.to_string()))?;
        // Wherever somebody may be then.
        let program = std::path::absolute(program).map_err(|error| failed(error.to_string()))?;
        Ok(OtherCommand { program })
    }

    /// Runs it; what it says when it exits with 75, and nothing when with 0.
    fn run(&self, argument: Option<&str>, input: &str, moved: &dyn Moved) -> Result<Option<String>, Failure> {
        let (shown, goes_on) = (self.program.display(), || moved.goes_on());
        let mut command = Command::new(&self.program);
        command.args(argument);
        let ended = |ended: Ended| match ended {
            Ended::Stopped => Failure::Unknown(format!("{shown} did not end in time, or the mover ends: it was ended")),
            Ended::Closed => Failure::Unknown(format!("{shown} closed its pipe")),
            Ended::Io(error) => Failure::Unknown(format!("the pipe to {shown}: {error}")),
        };
        let started = Running::start(&mut command, &goes_on);
        let mut running = started.map_err(|error| Failure::NotNow(format!("{shown} could not be started: {error}")))?;
        match running.write(input.as_bytes()) {
            // What it does not want to hear it need not.
            Ok(()) | Err(Ended::Closed) => running.close_stdin(),
            Err(error) => return Err(ended(error)),
        }
        let (status, said) = running.finish().map_err(ended)?;
        let said = plain_end(&said);
        match status.code() {
            Some(0) => Ok(None),
            Some(LATER) => Ok(Some(format!("{shown} says not now (it ended with {LATER}): {said}"))),
            Some(_) => Err(Failure::Refused(format!("{shown} ended with {status}: {said}"))),
            // Killed by somebody: it may have done what it was to do.
            None => Err(Failure::Unknown(format!("{shown} ended with {status}: {said}"))),
        }
    }
}

impl Registry for OtherCommand {
    fn register(&self, _key: &str, text: &str, moved: &dyn Moved) -> Result<(), Failure> {
        self.run(None, text, moved)?.map_or(Ok(()), |words| Err(Failure::NotNow(words)))
    }
}

impl Asked for OtherCommand {
    fn is_there(&self, address: &str, moved: &dyn Moved) -> Result<bool, Failure> {
        self.run(Some(address), "", moved).map(|not_yet| not_yet.is_none())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Waits;

    impl Moved for Waits {
        fn moved(&self, _: u64) -> bool {
            true
        }
    }

    /// For so many questions.
    struct Impatient(std::sync::atomic::AtomicU32);

    impl Moved for Impatient {
        fn moved(&self, _: u64) -> bool {
            self.goes_on()
        }

        fn goes_on(&self) -> bool {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 3
        }
    }

    fn program(directory: &tempfile::TempDir, script: &str) -> OtherCommand {
        let path = directory.path().join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("changed");
        OtherCommand::new(&path).expect("a program")
    }

    #[test]
    fn its_exit_code_is_the_answer_and_the_end_of_what_it_says_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let of = |script: &str| program(&directory, script).register("key", "text\n", &Waits);
        assert_eq!(of("read line; test \"$line\" = text"), Ok(()));
        assert_eq!(of("exit 0"), Ok(()), "it need not listen");
        let said = |answer: Result<(), Failure>| answer.expect_err("it did not");
        assert!(matches!(said(of("echo full >&2; exit 75")), Failure::NotNow(words) if words.contains("full")));
        let long =
            "i=0; while [ $i -lt 3000 ]; do echo words and more words >&2; i=$((i+1)); done; echo the end >&2; exit 3";
        assert!(matches!(said(of(long)), Failure::Refused(words) if words.ends_with("the end") && words.len() < 1000));
        assert!(matches!(said(of("kill -9 $$")), Failure::Unknown(_)));
        let asked = program(&directory, "case $1 in *there) exit 0;; *later) exit 75;; esac; exit 1");
        let is_there = |address| asked.is_there(address, &Waits);
        assert_eq!((is_there("s3://b/there"), is_there("s3://b/later")), (Ok(true), Ok(false)));
        assert!(matches!(is_there("s3://b/c"), Err(Failure::Refused(_))));
    }

    #[test]
    fn one_that_hangs_is_ended_with_all_that_it_started() {
        let directory = tempfile::tempdir().expect("a directory");
        let pid = directory.path().join("pid");
        let hangs = program(&directory, &format!("sleep 1000 & echo $! > {}; wait", pid.display()));
        // As long as it takes until it has said which.
        let answer = loop {
            let answer = hangs.register("key", "text", &Impatient(Default::default()));
            if std::fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n')) {
                break answer;
            }
        };
        assert!(matches!(answer, Err(Failure::Unknown(_))), "{answer:?}");
        let pid = std::fs::read_to_string(&pid).expect("it said so").trim().to_owned();
        let is_gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            // One that nobody waits for is no more.
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        while !is_gone() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_cannot_be_run_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("none");
        assert!(OtherCommand::new(&path).is_err() && OtherCommand::new(directory.path()).is_err());
        std::fs::write(&path, b"text").expect("written");
        assert!(OtherCommand::new(&path).expect_err("no program").to_string().contains("no program"));
    }
}
