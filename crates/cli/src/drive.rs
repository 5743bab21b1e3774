//! `forebay drive`: the drives of a server that runs.

mod leave;
mod list;
mod scrub;

use std::time::Duration;

use clap::{Args, Subcommand};
use forebay_client::{ChangeDrive, Class, Client, DriveChange};
use forebay_types::DriveNumber;
use serde::{Deserialize, Serialize};

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::Output;
use crate::status::parse;

/// The time between two looks at a replacement.
const LOOK: Duration = Duration::from_millis(200);

const AFTER_HELP: &str = "\
Examples:
  forebay drive list                             every drive, what lives on it, what was found damaged there
  forebay drive replace 3 /dev/sdh               put a new drive in for drive 3; what drive 3 held is made anew on it
  forebay drive retire 3                         take drive 3 out of use: it is read until nothing lives on it any more
  forebay drive fail 3                           give drive 3 up at once: it is neither written to nor read any more
  forebay drive scrub                            look at every byte that is stored now, and mend what is damaged

The server goes on serving all the while. A drive that fails by itself is taken out by itself; `replace` is what is left to do
then, unless there are more drives than a segment has shards: what it held is then made anew on the others at once.
`forebay status` shows how far that is.

Exit codes: 1 when a scrub found what cannot be mended; 2 when the server refuses (it says why, and nothing was changed); 3 when it does not answer, or a new drive cannot
be put in for now, as another one is being put in.";

/// The options of `drive`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DriveCommand {
    #[command(flatten)]
    ask: AskOptions,

    #[command(subcommand)]
    command: DriveSubcommand,
}

/// What is done.
#[derive(Debug, Subcommand)]
enum DriveSubcommand {
    /// Every drive that the store has had, what lives on it, and what was found wrong there
    List,
    /// Give a drive up at once: it is neither written to nor read any more
    Fail {
        /// The number of the drive, as `list` shows it
        drive: u16,

        /// Though something that is stored comes out of reach by it
        #[arg(long)]
        force: bool,
    },
    /// Take a drive out of use: nothing more is written to it, and it is read until what lives on it lies elsewhere
    Retire {
        /// The number of the drive, as `list` shows it
        drive: u16,
    },
    /// Look at every byte that is stored now, without waiting for its turn, and mend what is damaged
    Scrub {
        /// Do not wait until that is over
        #[arg(long)]
        no_wait: bool,
    },
    /// Put a new drive in for one that failed or is to go
    Replace {
        /// The number of the drive that it replaces, as `list` shows it
        drive: u16,

        /// Where the new one is, on the server, from the root: a block device, or a file, which is made if it is not there
        #[arg(value_parser = parse_path)]
        path: String,

        /// Destroy whatever the new drive holds
        #[arg(long)]
        force: bool,

        /// Do not wait until it is a member
        #[arg(long)]
        no_wait: bool,
    },
}

/// The part of the status that is looked at meanwhile.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Progress {
    replacement: Option<Replacement>,
}

/// As the server tells it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Replacement {
    drive: u16,
    path: String,
    state: String,
    done_bytes: u64,
    total_bytes: u64,
    number: Option<u16>,
    reason: Option<String>,
    is_retryable: bool,
}

/// A path means something to the server only when it does not depend on where a command is typed.
fn parse_path(text: &str) -> Result<String, String> {
    let absolute = text.starts_with('/');
    absolute
        .then(|| text.to_owned())
        .ok_or_else(|| "expected a path from the root, such as /dev/sdh: it is looked up by the server".to_owned())
}

/// Lists or changes drives.
///
/// # Errors
/// What the server refuses, and why.
pub fn run(command: &DriveCommand, output: &Output) -> Result<(), Failure> {
    let mut client = command.ask.connect(Class::Monitor)?;
    match &command.command {
        DriveSubcommand::List => list::list(&mut client, output),
        DriveSubcommand::Fail { drive, force } => leave::fail(&mut client, *drive, *force, output),
        DriveSubcommand::Retire { drive } => leave::retire(&mut client, *drive, output),
        DriveSubcommand::Scrub { no_wait } => scrub::scrub(&mut client, *no_wait, output),
        DriveSubcommand::Replace { drive, path, force, no_wait } => {
            if let Some(failure) = under_way(parse(&client.status()?)?) {
                return Err(failure);
            }
            let change_to = DriveChange::Replace { path: path.clone(), force: *force };
            change(&mut client, *drive, change_to)?;
            if *no_wait {
                output.object(&serde_json::json!({ "drive": drive, "path": path, "done": "begun" }));
                output.line(&format!(
                    "{path} is being put in for drive {drive}; `forebay drive list` shows how far that is"
                ));
                return Ok(());
            }
            wait(&mut client, *drive, path, output)
        }
    }
}

fn change(client: &mut Client, drive: u16, change: DriveChange) -> Result<(), Failure> {
    Ok(client.change_drive(ChangeDrive { drive: DriveNumber(drive), change })?)
}

/// One drive is replaced at a time.
fn under_way(progress: Progress) -> Option<Failure> {
    let found = progress.replacement.filter(|found| !matches!(found.state.as_str(), "done" | "failed"))?;
    Some(Failure::retry(format!(
        "another drive is being replaced now ({} for drive {}: {}); nothing was changed. Type it again when that is over: `forebay drive list` shows \
         how far it is",
        found.path, found.drive, found.state
    )))
}

/// Waits until the new drive is a member, and says what comes next.
fn wait(client: &mut Client, drive: u16, path: &str, output: &Output) -> Result<(), Failure> {
    let mut bar = output.progress(1000, "{msg} [{bar:40}]");
    loop {
        let progress: Progress = parse(&client.status()?)?;
        let found = progress.replacement.filter(|found| found.drive == drive && found.path == path);
        let Some(found) = found else {
            return Err(Failure::retry(format!(
                "the server knows nothing of {path} any more: it was started anew meanwhile. `forebay drive list` shows whether it is a member"
            )));
        };
        match (found.state.as_str(), found.number) {
            ("done", Some(number)) => {
                drop(bar);
                output
                    .object(&serde_json::json!({ "drive": drive, "path": path, "done": "replaced", "number": number }));
                output.line(&format!(
                    "{path} is drive {number} now and takes the place of drive {drive}. What lived on drive {drive} is made anew on it: \
                     `forebay status` shows how far that is. Start the server with {path} from now on"
                ));
                return Ok(());
            }
            ("failed", _) => {
                let why = found.reason.unwrap_or_default();
                let why = format!("{path} was not put in for drive {drive}: {why}");
                return Err(if found.is_retryable { Failure::retry(why) } else { Failure::usage(why) });
            }
            (state, _) => {
                let done = found.done_bytes.saturating_mul(1000) / found.total_bytes.max(1);
                bar.update(done, || format!("{path}: {state}"));
                std::thread::sleep(LOOK);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_replacement_that_has_to_wait_for_another_may_succeed_later() {
        let of = |state: &str| {
            let replacement = Replacement { state: state.to_owned(), ..Replacement::default() };
            under_way(Progress { replacement: Some(replacement) }).map(|failure| failure.exit)
        };
        assert_eq!(["looking", "zeroing", "joining"].map(of), [Some(Exit::Retry); 3]);
        assert_eq!(["done", "failed"].map(of), [None; 2]);
        assert_eq!(under_way(Progress::default()), None);
    }
}
