//! The way by XRootD's own programs, `xrdcp` and `xrdfs`.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use forebay_mover::endpoint::{Content, Moved};
use forebay_mover::{Summer, Sums};

use super::answer::Stat;
use super::trouble::Trouble;
use super::{CONNECTION_SECONDS, Cut, REQUEST_SECONDS, Way, checksum_seconds};
use crate::process::{Ended, Running};
use crate::{Address, OpenError};

/// What does not end by itself after so long is ended.
const PROGRAM: Duration = Duration::from_secs(90);
/// An answer is no longer.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// So much is read back at once.
const BLOCK_BYTES: usize = 1 << 20;

/// The programs, and how they are to be run.
#[derive(Clone)]
pub(super) struct Programs {
    server: String,
    token_file: Option<PathBuf>,
}

impl Programs {
    /// The programs for a server.
    ///
    /// # Errors
    /// When they are not there.
    pub(super) fn find(address: &Address, token_file: Option<&Path>) -> Result<Programs, OpenError> {
        for name in ["xrdcp", "xrdfs"] {
            // What it answers differs; that it runs is enough.
            let mut command = Command::new(name);
            command.arg("--help").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().map_err(|error| {
                OpenError::Missing(format!(
                    "{} goes by XRootD's programs, and {name} does not run: {error}. Install xrdcp and xrdfs (Debian: apt install xrootd-client)",
                    address.scheme_name()
                ))
            })?;
        }
        let server = format!("{}://{}", address.scheme_name(), address.host());
        Ok(Programs { server, token_file: token_file.map(Path::to_owned) })
    }

    fn command(&self, program: &str, request_seconds: u64) -> Command {
        let mut command = Command::new(program);
        let seconds = request_seconds.to_string();
        command
            // A write is not gone on with elsewhere: the mover makes another attempt, under another name.
            .env("XRD_WRITERECOVERY", "0")
            .env("XRD_READRECOVERY", "0")
            .env("XRD_CPRETRY", "0")
            .env("XRD_CONNECTIONRETRY", "1")
            .env("XRD_CONNECTIONWINDOW", CONNECTION_SECONDS.to_string())
            .env("XRD_REQUESTTIMEOUT", &seconds)
            .env("XRD_STREAMTIMEOUT", &seconds)
            .env("XRD_TIMEOUTRESOLUTION", "1")
            // A file that is called .meta4 is a file.
            .env("XRD_METALINKPROCESSING", "0")
            // Its words are taken apart, and those of a log are others.
            .env_remove("XRD_LOGLEVEL");
        if let Some(token_file) = &self.token_file {
            command.env("BEARER_TOKEN_FILE", token_file);
        }
        command
    }

    /// Runs `xrdfs` for one answer.
    fn ask(&self, words: &[&str], request_seconds: u64, goes_on: &dyn Fn() -> bool) -> Result<String, Trouble> {
        let start = Instant::now();
        let limit = PROGRAM + Duration::from_secs(request_seconds.saturating_sub(REQUEST_SECONDS.into()));
        let goes_on = || start.elapsed() < limit && goes_on();
        let mut command = self.command("xrdfs", request_seconds);
        command.arg(&self.server).args(words);
        let ended = |ended| match ended {
            Ended::Stopped if start.elapsed() >= limit => Trouble::Hung,
            ended => trouble(&ended),
        };
        let mut running = Running::start(&mut command, &goes_on).map_err(|error| not_started(&error))?;
        running.close_stdin();
        let answer = read_answer(&mut running).map_err(ended)?;
        let (status, said) = running.finish().map_err(ended)?;
        match status.success() {
            true => Ok(answer),
            false => Err(failed(status, &said)),
        }
    }

    /// The server fetches a file from another one; nothing is seen of that meanwhile.
    pub(super) fn pull(&self, from: &str, path: &str, bytes: u64, moved: &dyn Moved) -> Result<(), Trouble> {
        let fetching = Duration::from_secs(checksum_seconds(bytes));
        let start = Instant::now();
        let goes_on = || if start.elapsed() < fetching { moved.moved(0) } else { moved.goes_on() };
        let mut command = self.command("xrdcp", u64::from(REQUEST_SECONDS) + fetching.as_secs());
        let to = format!("{}/{path}?oss.asize={bytes}", self.server);
        command.args(["--tpc", "only", "--posc", "--nopbar", "--silent", from, &to]);
        let mut running = Running::start(&mut command, &goes_on).map_err(|error| not_started(&error))?;
        running.close_stdin();
        read_answer(&mut running).map_err(|ended| trouble(&ended))?;
        ended(running)
    }

    /// What changes names is waited for by nobody: it has an end of its own.
    fn change(&self, words: &[&str]) -> Result<(), Trouble> {
        self.ask(words, REQUEST_SECONDS.into(), &|| true).map(|_| ())
    }
}

fn read_answer(running: &mut Running<'_>) -> Result<String, Ended> {
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = running.read(&mut buffer)?;
        let room = ANSWER_BYTES_MAX.saturating_sub(answer.len()).min(read);
        answer.extend_from_slice(&buffer[..room]);
        if read == 0 {
            return Ok(String::from_utf8_lossy(&answer).into_owned());
        }
    }
}

fn not_started(error: &std::io::Error) -> Trouble {
    Trouble::Client(format!("XRootD's program could not be started: {error}"))
}

fn trouble(ended: &Ended) -> Trouble {
    match ended {
        Ended::Stopped => Trouble::Stopped,
        Ended::Closed => Trouble::Client("XRootD's program closed its pipe".to_owned()),
        Ended::Io(error) => Trouble::Client(format!("the pipe to XRootD's program: {error}")),
    }
}

fn failed(status: std::process::ExitStatus, said: &str) -> Trouble {
    match said.trim().is_empty() {
        true => Trouble::Client(format!("XRootD's program said nothing; {status}")),
        false => Trouble::parse(said),
    }
}

/// How a program opens what it is told as the file that it is.
const STDIN: &str = "/dev/stdin";
/// Where a process is asked for how much it has read.
const PROCESSES: &str = "/proc";

/// Whether a program on this machine can open the file that it is given, and it can be seen how far it is.
fn can_read_by_itself() -> bool {
    Path::new(STDIN).exists() && bytes_read_by("self").is_some()
}

/// How much a process has read until now, if that can be told.
fn bytes_read_by(process: &str) -> Option<u64> {
    let counters = std::fs::read_to_string(format!("{PROCESSES}/{process}/io")).ok()?;
    counters.lines().find_map(|line| line.strip_prefix("rchar:"))?.trim().parse().ok()
}

/// Lets a program read the file by itself: no byte of it comes by here.
fn copy(command: &mut Command, file: BorrowedFd<'_>, bytes: u64, moved: &dyn Moved) -> Result<(), Trouble> {
    let (process, told) = (Cell::new(None), Cell::new(0));
    let goes_on = || {
        let read: Option<u64> = process.get().and_then(|id: u32| bytes_read_by(&id.to_string()));
        // It reads other files, too, when it starts.
        let more = read.map_or(0, |read| read.min(bytes).saturating_sub(told.get()));
        told.set(told.get() + more);
        if more > 0 { moved.moved(more) } else { moved.goes_on() }
    };
    let stdin = file.try_clone_to_owned().map_err(|error| not_started(&error))?;
    let running = Running::start_with(command, stdin.into(), &goes_on).map_err(|error| not_started(&error))?;
    process.set(Some(running.id()));
    ended(running)?;
    moved.moved(bytes - told.get());
    Ok(())
}

/// Gives a program the bytes one after the other; what they came to.
fn pipe(command: &mut Command, content: &mut dyn Content, moved: &dyn Moved) -> Result<Sums, Cut> {
    let goes_on = || moved.goes_on();
    let mut running = Running::start(command, &goes_on).map_err(|error| not_started(&error))?;
    let mut summer = Summer::default();
    while let Some(block) = content.next_block().map_err(Cut::Source)? {
        summer.update(block);
        match running.write(block) {
            Ok(()) if moved.moved(block.len() as u64) => {}
            Ok(()) => return Err(Trouble::Stopped.into()),
            Err(Ended::Closed) => {
                let (status, said) = running.finish().map_err(|ended| trouble(&ended))?;
                return Err(failed(status, &said).into());
            }
            Err(ended) => return Err(trouble(&ended).into()),
        }
    }
    ended(running)?;
    Ok(summer.sums())
}

/// Waits for the end of a program that is told no more.
fn ended(running: Running<'_>) -> Result<(), Trouble> {
    let (status, said) = running.finish().map_err(|ended| trouble(&ended))?;
    if status.success() { Ok(()) } else { Err(failed(status, &said)) }
}

impl Way for Programs {
    fn stat(&self, path: &str, moved: &dyn Moved) -> Result<Stat, Trouble> {
        Stat::parse(&self.ask(&["stat", path], REQUEST_SECONDS.into(), &|| moved.goes_on())?)
    }

    fn checksum(&self, path: &str, algorithm: &str, bytes: u64, moved: &dyn Moved) -> Result<String, Trouble> {
        // The server reads all of it meanwhile: nothing is seen of that, and it is progress.
        let computing = Duration::from_secs(checksum_seconds(bytes));
        let start = Instant::now();
        let goes_on = || if start.elapsed() < computing { moved.moved(0) } else { moved.goes_on() };
        let asked = format!("{path}?cks.type={algorithm}");
        self.ask(&["query", "checksum", &asked], u64::from(REQUEST_SECONDS) + computing.as_secs(), &goes_on)
    }

    fn write(&self, path: &str, bytes: u64, content: &mut dyn Content, moved: &dyn Moved) -> Result<Option<Sums>, Cut> {
        // How long it will be, so that the server may look for a place, as xrdcp says it of files.
        let url = format!("{}/{path}?oss.asize={bytes}", self.server);
        let mut command = self.command("xrdcp", REQUEST_SECONDS.into());
        command.args(["--posc", "--nopbar", "--silent"]);
        if let Some(file) = content.file().map_err(Cut::Source)?.filter(|_| can_read_by_itself()) {
            copy(command.args([STDIN, &url]), file, bytes, moved)?;
            content.compare_file().map_err(Cut::Source)?;
            return Ok(None);
        }
        pipe(command.args(["-", &url]), content, moved).map(Some)
    }

    fn read(&self, path: &str, summer: &mut Summer, moved: &dyn Moved) -> Result<(), Trouble> {
        let goes_on = || moved.goes_on();
        let mut command = self.command("xrdcp", REQUEST_SECONDS.into());
        command.args(["--nopbar", "--silent", &format!("{}/{path}", self.server), "-"]);
        let mut running = Running::start(&mut command, &goes_on).map_err(|error| not_started(&error))?;
        running.close_stdin();
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let read = running.read(&mut block).map_err(|ended| trouble(&ended))?;
            if read == 0 {
                break;
            }
            summer.update(&block[..read]);
            if !moved.moved(read as u64) {
                return Err(Trouble::Stopped);
            }
        }
        ended(running)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Trouble> {
        self.change(&["mv", from, to])
    }

    fn remove(&self, path: &str) -> Result<(), Trouble> {
        self.change(&["rm", path])
    }
}
