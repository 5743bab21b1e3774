//! `forebay mount`: the files of a store as a directory.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use forebay_mount::{MountConfig, MountError, ServeError, Unmounter};
use signal_hook::iterator::Signals;

use crate::connect::{parse_positive_seconds, parse_seconds};
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::output::{Output, write_stdout};

const AFTER_HELP: &str = "\
Examples:
  forebay mount 127.0.0.1:7420 /mnt/forebay
      the files of the store that this server has, until `fusermount3 -u /mnt/forebay` (or `umount`, as root)
  forebay mount --foreground --allow-other server17:7420 /mnt/forebay
      the same for all users, and until Ctrl-C; for systemd, and to see its log

A file that was closed is sealed a minute later (--seal-after-s): from then on it never changes. docs/mount.md says what else is not as in a
local file system.

Exit codes: 1 when at the end the server did not take in time what was written and not synchronised; 2 when the directory cannot be mounted on or the
store has no files; 3 when the server does not answer.";

/// What the process in the background says first when the mount stands.
const READY: &str = "ready\n";

/// The options of `mount`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct MountCommand {
    /// The server, HOST:PORT; of a store in a cluster all of its servers, with commas
    #[arg(value_name = "ADDR")]
    server: String,

    /// The directory that shows the files, best an empty one
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Stay in the foreground until Ctrl-C or SIGTERM, and log to stderr [default: return when the mount stands]
    #[arg(long)]
    foreground: bool,

    /// Seal a file so many seconds after the last who wrote to it has closed it
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    seal_after_s: Duration,

    /// Let a request wait so many seconds for a server that is away or a store that is full, before it fails
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_positive_seconds)]
    patience_s: Duration,

    /// Let other users see the mount, too [default: only the one who mounts]
    #[arg(long)]
    allow_other: bool,

    /// Refuse all changes [default: no]
    #[arg(long)]
    read_only: bool,

    /// Let reads and writes go past the kernel's cache: faster where much is read once in large requests, slower in small ones and where it is read again [default: no]
    #[arg(long)]
    direct_io: bool,

    /// The process in the background, which the command starts itself.
    #[arg(long, hide = true)]
    background: bool,
}

/// Mounts, and serves until somebody unmounts it.
///
/// # Errors
/// Why there is no mount, or what was not written at its end.
pub fn run(command: &MountCommand, output: &Output) -> Result<(), Failure> {
    if command.foreground || command.background { serve(command, output) } else { start() }
}

fn serve(command: &MountCommand, output: &Output) -> Result<(), Failure> {
    let signals = interrupt::signals();
    let interrupt = Interrupt::catch()?;
    let signals = Signals::new(signals)
        .map_err(|error| Failure::retry(format!("signals cannot be caught: {error}; nothing was mounted")))?;
    let mut mounted = forebay_mount::mount(&MountConfig {
        address: command.server.clone(),
        directory: command.directory.clone(),
        seal_after: command.seal_after_s,
        patience: command.patience_s,
        allow_other: command.allow_other,
        read_only: command.read_only,
        direct_io: command.direct_io,
    })?;
    watch_signals(interrupt, signals, mounted.unmounter());
    if command.background {
        write_stdout(READY.as_bytes());
    }
    output.line(&format!("{} shows the files of {}", command.directory.display(), command.server));
    output.object(&serde_json::json!({ "directory": command.directory, "server": command.server }));
    if command.background {
        leave_terminal()?;
    }
    Ok(mounted.serve()?)
}

/// The first signal unmounts. Where programs use the mount the process ends once what they wrote is safe, and they are told that it is gone.
fn watch_signals(interrupt: Interrupt, mut signals: Signals, mut unmounter: Unmounter) {
    std::thread::spawn(move || {
        if interrupt.is_set() || signals.forever().next().is_some() {
            unmounter.unmount();
        }
    });
}

/// Nobody reads or stops it by its terminal any more.
fn leave_terminal() -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::retry(format!("the terminal cannot be left: {error}; unmounted again"));
    // It is no leader of a group, as its parent was another process of the same.
    rustix::process::setsid().map_err(|error| failed(error.into()))?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stderr(&null).map_err(|error| failed(error.into()))
}

/// Runs the same command in the background, and returns when the mount stands.
fn start() -> Result<(), Failure> {
    let failed =
        |error| Failure::retry(format!("no process can be started for the mount: {error}; nothing was mounted"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut background = Command::new(program);
    background.args(std::env::args_os().skip(1)).arg("--background");
    let mut child = background.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut told = BufReader::new(child.stdout.take().expect("a pipe"));
    let (mut first, mut rest) = (String::new(), String::new());
    told.read_line(&mut first).and_then(|_| told.read_to_string(&mut rest)).map_err(failed)?;
    if first == READY {
        write_stdout(rest.as_bytes());
        return Ok(());
    }
    // It has said why.
    write_stdout(format!("{first}{rest}").as_bytes());
    let code = child.wait().ok().and_then(|status| status.code());
    std::process::exit(code.unwrap_or(crate::failure::Exit::Retry.code().into()))
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Failure {
        match error {
            MountError::Client(error) => error.into(),
            error => Failure::usage(error),
        }
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Failure {
        match error {
            ServeError::Client(error) => error.into(),
            ServeError::Thread(_) => Failure::retry(error),
            ServeError::Unwritten { .. } => Failure::data(error),
        }
    }
}
