//! `forebay record`: accepted events become verified files in a directory. It is a case of `forebay move`, with defaults of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use forebay_client::Class;
use forebay_types::StreamName;

use crate::connect::{AskOptions, parse_seconds};
use crate::failure::Failure;
use crate::mover::{self, MoveOptions};
use crate::output::Output;
use crate::size::parse_bytes;

const AFTER_HELP: &str = "\
Examples:
  forebay record --out /data/files
      records every stream into /data/files/<stream>/run<run>-<number>.raw (or .mdf, .besiii), a .json beside each, until Ctrl-C
  forebay record --out /data/files --stream physics --once
      records what is accepted into one stream now, then ends

It is `forebay move --from 'stream:*' --to DIR --sidecar`, with these defaults; `forebay move status|list|show --journal FILE` tell of its files. A file is written under a
temporary name, synchronised, read back past the page cache, renamed, and read back again; only then does the store forget its events. Killed at any point and started again,
every accepted event ends up in exactly one file of each of its streams. What does not come back as it was written is written again a few times, then told, and kept in the store.

Exit codes with --once: 0, all that was accepted is in files and released; 1, something is quarantined, or fragments were lost in the store; 3, something could not be reached for
30 s, or somebody else has the directory or a stream.";

/// With --once: so long a server or a directory may be away.
const PATIENCE_S: u64 = 30;
/// What an earlier version kept in the directory of each stream.
const OLD_JOURNAL: &str = ".forebay-record.journal";

/// The options of `record`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RecordCommand {
    #[command(flatten)]
    ask: AskOptions,

    /// Where the directories of the streams are, or are made [no default]
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// A stream to record; repeatable [default: all streams]
    #[arg(long, value_name = "NAME")]
    stream: Vec<StreamName>,

    /// End when nothing accepted is left [default: run until Ctrl-C]
    #[arg(long)]
    once: bool,

    /// A file is closed before it would grow larger; one event alone may be larger
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
    file_bytes: u64,

    /// A file is closed so many seconds after its first event, whatever its size
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    close_after: Duration,

    /// Wait so many seconds at most for an undecided event, so that files come out in order
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    order_wait: Duration,

    /// The seconds between the first time that a file is read back by its name and the second, before its events are released
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    recheck_after: Duration,

    /// Where the recorder remembers what it has begun; never below --out [default: one for each --out in the user's state directory]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

/// Records until it is over.
///
/// # Errors
/// Why not everything was recorded.
pub fn run(command: &RecordCommand, output: &Output) -> Result<(), Failure> {
    let client = command.ask.connect(Class::Monitor)?;
    if client.info().read_only {
        return Err(Failure::usage(
            "this server was started read-only and releases nothing: every event would be recorded again by the next recorder. No file was begun, and \
             what is accepted stays in the store. Record when the server is started for writing; to have the events in files now, \
             `forebay doctor --export DIR DRIVE..` writes them, beside this server",
        ));
    }
    drop(client);
    mover::move_files(&command.recording()?.options(command.once)?, output)
}

impl RecordCommand {
    fn recording(&self) -> Result<Recording<'_>, Failure> {
        if self.file_bytes == 0 {
            return Err(Failure::usage(
                "--file-bytes 0: nothing fits into files of no bytes; nothing was recorded. Give at least 1",
            ));
        }
        Ok(Recording {
            server: &self.ask.server.server,
            out: &self.out,
            streams: &self.stream,
            file_bytes: self.file_bytes,
            close_after: self.close_after,
            order_wait: self.order_wait,
            recheck_after: self.recheck_after,
            journal: self.journal.as_deref(),
        })
    }
}

/// What is recorded, and how.
pub struct Recording<'a> {
    /// The server of the store.
    pub server: &'a str,
    /// Where the directories of the streams are.
    pub out: &'a Path,
    /// Which streams; none: every one.
    pub streams: &'a [StreamName],
    /// The largest file.
    pub file_bytes: u64,
    /// How long one is open.
    pub close_after: Duration,
    /// How long an undecided event is waited for.
    pub order_wait: Duration,
    /// The time between the two proofs.
    pub recheck_after: Duration,
    /// Where is remembered what was begun, if not where it usually is.
    pub journal: Option<&'a Path>,
}

impl Recording<'_> {
    /// The mover that does it.
    ///
    /// # Errors
    /// A directory that cannot be recorded to.
    pub fn options(&self, once: bool) -> Result<MoveOptions, Failure> {
        let out = self.make_directory()?;
        let to = out.to_str().ok_or_else(|| {
            Failure::usage(format!(
                "{} is no text, and the journal keeps addresses as text; nothing was recorded",
                out.display()
            ))
        })?;
        let names: Vec<&str> = self.streams.iter().map(StreamName::as_str).collect();
        let streams = if names.is_empty() { "*".to_owned() } else { names.join(",") };
        let journal = self.journal.map(Path::to_path_buf);
        // One for each directory, whatever is recorded there: names are given once.
        let journal = journal.map_or_else(|| mover::usual_journal("record", to), Ok)?;
        let mut words: Vec<String> =
            ["move", "--from", &format!("stream:{streams}"), "--to", to, "--server", self.server, "--sidecar"]
                .map(str::to_owned)
                .into();
        let mut say = |option: &str, value: String| words.extend([option.to_owned(), value]);
        say("--merge", self.file_bytes.to_string());
        say("--merge-wait", self.close_after.as_secs_f64().to_string());
        say("--order-wait", self.order_wait.as_secs_f64().to_string());
        say("--recheck-after", self.recheck_after.as_secs_f64().to_string());
        say("--patience", PATIENCE_S.to_string());
        words.extend(once.then(|| "--once".to_owned()));
        let options = MoveOptions::of_words(words)?;
        Ok(options.with_journal(journal))
    }

    /// The directory, without links on the way.
    fn make_directory(&self) -> Result<PathBuf, Failure> {
        let advice = "nothing was recorded. Give a directory that this user can write to (--out)";
        fs::create_dir_all(self.out).map_err(|error| Failure::file("make", self.out, &error, advice))?;
        let failed = |error| Failure::file("look at", self.out, &error, advice);
        let out = fs::canonicalize(self.out).map_err(failed)?;
        for entry in fs::read_dir(&out).map_err(failed)? {
            let old = entry.map_err(failed)?.path().join(OLD_JOURNAL);
            if old.exists() {
                return Err(Failure::usage(format!(
                    "{} was written by an earlier version of `forebay record`, and what it had not released yet would be recorded here again; nothing was recorded. \
                     Give another directory (--out); this one stays as it is",
                    old.display()
                )));
            }
        }
        Ok(out)
    }
}
