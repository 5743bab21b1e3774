//! Programs that are fed or listened to, and ended as soon as nobody waits for them: not one of their pipes is waited for without a look at who waits.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};

/// Who waits is asked so often while nothing moves.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// A program that closed its pipes ends so soon that it is looked for so often.
const ENDS_SOON: Duration = Duration::from_millis(1);
/// As much as Linux lets everybody have.
const PIPE_BYTES: usize = 1 << 20;
/// Of what a program says of itself so much is kept.
const STDERR_BYTES_MAX: usize = 16 << 10;

/// Why a program was not waited for.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Nobody waits for it.
    Stopped,
    /// It takes or gives nothing more: see how it ended.
    Closed,
    /// This machine.
    Io(io::Error),
}

impl From<Errno> for Ended {
    fn from(error: Errno) -> Ended {
        Ended::Io(error.into())
    }
}

/// A program that runs. It is ended when this is dropped.
pub(crate) struct Running<'a> {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    said: Vec<u8>,
    goes_on: &'a dyn Fn() -> bool,
}

impl<'a> Running<'a> {
    /// Starts a program, with pipes for all that it is told and says.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn start(command: &mut Command, goes_on: &'a dyn Fn() -> bool) -> io::Result<Running<'a>> {
        Running::start_with(command, Stdio::piped(), goes_on)
    }

    /// The same, and what it is told is given by somebody else.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn start_with(
        command: &mut Command,
        stdin: Stdio,
        goes_on: &'a dyn Fn() -> bool,
    ) -> io::Result<Running<'a>> {
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        // What is typed at the mover's terminal is for the mover.
        command.process_group(0);
        // SAFETY: between fork and exec it makes one system call, and touches no memory but its own stack.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let mut child = command.spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let running = Running { child, stdin, stdout, stderr, said: Vec::new(), goes_on };
        running.prepare()?;
        Ok(running)
    }

    fn prepare(&self) -> Result<(), Errno> {
        let Running { stdin, stdout, stderr, .. } = self;
        let pipes =
            [stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)];
        for pipe in pipes.into_iter().flatten() {
            ioctl_fionbio(pipe, true)?;
        }
        for pipe in pipes.into_iter().take(2).flatten() {
            // Slower with less, when this user has too many pipes.
            let _ = fcntl_setpipe_size(pipe, PIPE_BYTES);
        }
        Ok(())
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives it all these bytes.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), Ended> {
        while !bytes.is_empty() {
            let Some(stdin) = &self.stdin else { return Err(Ended::Closed) };
            match rustix::io::write(stdin, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::AGAIN) => self.wait_for_pipes(true)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => return Err(Ended::Closed),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The next bytes that it gives; 0 at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Ended> {
        loop {
            let Some(stdout) = &self.stdout else { return Ok(0) };
            match rustix::io::read(stdout, &mut *buffer) {
                Ok(read) => return Ok(read),
                Err(Errno::AGAIN) => self.wait_for_pipes(false)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// It is told no more.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end: how it ended, and what it said of itself.
    pub(crate) fn finish(mut self) -> Result<(ExitStatus, String), Ended> {
        self.stdin = None;
        let mut rest = [0; 4096];
        while self.read(&mut rest)? > 0 {}
        self.stdout = None;
        while self.stderr.is_some() {
            self.wait_for_pipes(false)?;
        }
        loop {
            if let Some(status) = self.child.try_wait().map_err(Ended::Io)? {
                return Ok((status, String::from_utf8_lossy(&self.said).into_owned()));
            }
            self.check()?;
            std::thread::sleep(ENDS_SOON);
        }
    }

    fn check(&self) -> Result<(), Ended> {
        if (self.goes_on)() { Ok(()) } else { Err(Ended::Stopped) }
    }

    /// Waits a moment until it takes or gives something, and takes in what it says of itself.
    fn wait_for_pipes(&mut self, writing: bool) -> Result<(), Ended> {
        self.check()?;
        let stdin = self.stdin.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT));
        let stdout = self.stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN));
        let stderr = self.stderr.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN));
        let waited_for = if writing { stdin } else { stdout };
        let mut pipes: Vec<PollFd<'_>> = waited_for.into_iter().chain(stderr).collect();
        match poll(&mut pipes, Some(&TICK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        drop(pipes);
        self.listen()
    }

    /// Takes in what it says of itself; all of it, so that it is never held up by that. The end of it is kept.
    fn listen(&mut self) -> Result<(), Ended> {
        let mut words = [0; 4096];
        while let Some(stderr) = &self.stderr {
            match rustix::io::read(stderr, &mut words) {
                Ok(0) => self.stderr = None,
                Ok(read) => {
                    self.said.extend_from_slice(&words[..read]);
                    let too_many = self.said.len().saturating_sub(STDERR_BYTES_MAX);
                    self.said.drain(..too_many);
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Before its input ends, which it would take for the end of the file; with all that it has started.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_is_fed_and_listened_to() {
        let mut running = Running::start(&mut shell("cat; echo said >&2; exit 3"), &|| true).expect("it starts");
        running.write(b"bytes").expect("written");
        running.close_stdin();
        let mut buffer = [0; 64];
        let read = running.read(&mut buffer).expect("read");
        assert_eq!(&buffer[..read], b"bytes");
        let (status, said) = running.finish().expect("it ends");
        assert_eq!((status.code(), said.as_str()), (Some(3), "said\n"));
    }

    #[test]
    fn one_that_takes_nothing_or_gives_nothing_is_ended_when_nobody_waits() {
        for script in ["exec sleep 1000", "exec >&- 2>&-; exec sleep 1000"] {
            for writes in [true, false] {
                let left = Cell::new(3);
                let goes_on = || {
                    left.set(left.get() - 1);
                    left.get() > 0
                };
                let mut running = Running::start(&mut shell(script), &goes_on).expect("it starts");
                let ended = match writes {
                    true => running.write(&vec![0; 4 << 20]),
                    false => running.finish().map(|_| ()),
                };
                assert!(matches!(ended, Err(Ended::Stopped)), "{script} {ended:?}");
            }
        }
    }

    #[test]
    fn one_that_says_a_lot_is_not_held_up_by_that() {
        let script = "i=0; while [ $i -lt 5000 ]; do echo 'words and more words and more words' >&2; i=$((i+1)); done; cat >/dev/null";
        let mut running = Running::start(&mut shell(script), &|| true).expect("it starts");
        running.write(&vec![0; 4 << 20]).expect("written");
        let (status, said) = running.finish().expect("it ends");
        assert!(status.success() && said.len() == STDERR_BYTES_MAX);
    }

    #[test]
    fn one_that_ends_early_takes_no_more() {
        let mut running = Running::start(&mut shell("echo no >&2; exit 1"), &|| true).expect("it starts");
        assert!(matches!(running.write(&vec![0; 4 << 20]), Err(Ended::Closed)));
        assert_eq!(running.finish().expect("it ends").1, "no\n");
    }
}
