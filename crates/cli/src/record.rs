//! `forebay record`: accepted events become verified stream files.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use forebay_client::Class;
use forebay_recorder::{
    self as recorder, DirectoryError, Mode, RecorderConfig, RecorderControl, RecorderError, RecorderProgress,
};
use forebay_types::StreamName;

use crate::connect::{AskOptions, parse_seconds};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::size::{human_bytes, human_count, parse_bytes};

const AFTER_HELP: &str = "\
Examples:
  forebay record --out /data/files
      records every stream into /data/files/<stream>/run<run>_<number>.raw (or .mdf), a .json beside each, until Ctrl-C
  forebay record --out /data/files --stream physics --once
      records what is accepted into one stream now, then ends

A file is written under a temporary name, synced, renamed, read back past the page cache and compared; only then does the
store forget its events. Killed at any point and started again on the same directory, every accepted event ends up in exactly
one file of each of its streams. A file that does not come back as it was written is kept under a name that ends in .bad and
its events are recorded again.";

/// The options of `record`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RecordCommand {
    #[command(flatten)]
    ask: AskOptions,

    /// Where the directories of the streams are, or are made
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

    /// A file that gets no event for so many seconds is closed
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    close_after: Duration,

    /// Wait so many seconds at most for an undecided event, so that files come out in order
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    order_wait: Duration,

    /// Memory for fetched events, for each stream
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_bytes)]
    fetch_bytes: u64,
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
    let config = RecorderConfig {
        streams: (!command.stream.is_empty()).then(|| command.stream.clone()),
        mode: if command.once { Mode::Once } else { Mode::Continuous },
        file_bytes: command.file_bytes,
        close_after: command.close_after,
        order_wait: command.order_wait,
        fetch_bytes: command.fetch_bytes,
        ..RecorderConfig::new(&command.ask.server.server, &command.out)
    };
    let (control, progress, start) = (RecorderControl::default(), RecorderProgress::default(), Instant::now());
    let interrupt = Interrupt::catch()?;
    let mut bar = output.progress(0, "record {spinner} {msg}");
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| recorder::run(&config, &control, &progress));
        while !thread.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
            if interrupt.is_set() {
                control.stop();
            }
            bar.update(0, || words(&progress));
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    drop(bar);
    let seconds = start.elapsed().as_secs_f64();
    output.line(&format!("{} in {seconds:.1} s", words(&progress)));
    for (stream, counts) in progress.streams() {
        let (events, files) = (human_count(counts.events_shipped), counts.files);
        output.line(&format!("  {stream:<16} {events} events in {files} files, {}", human_bytes(counts.bytes_shipped)));
    }
    let mut object = serde_json::to_value(progress.all.counts()).expect("counts are numbers");
    object["streams"] = serde_json::to_value(progress.streams()).expect("names are strings");
    object["seconds"] = seconds.into();
    let failed = match &result {
        Err(error) => Some(failure(error)),
        Ok(()) if command.once && interrupt.is_set() => Some(Failure::retry(
            "interrupted; what was released is recorded and verified, and what is left is still in the store. Start again to record it",
        )),
        Ok(()) => None,
    };
    output.result(&mut object, failed)
}

/// How a recorder that did not record everything ends.
pub fn failure(error: &RecorderError) -> Failure {
    match error {
        error if error.is_retryable() => Failure::retry(error),
        RecorderError::Directory(DirectoryError::Io { source, .. }) => match source.kind() {
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotFound => Failure::usage(error),
            _ => Failure::data(error),
        },
        RecorderError::Directory(DirectoryError::InTheWay { .. })
        | RecorderError::Start { .. }
        | RecorderError::Zero { .. } => Failure::usage(error),
        RecorderError::Stream { source, .. } if source.is_usage() => Failure::usage(error),
        _ => Failure::data(error),
    }
}

fn words(progress: &RecorderProgress) -> String {
    let counts = progress.all.counts();
    let mut words = format!(
        "{} events shipped in {} files, {}",
        human_count(counts.events_shipped),
        human_count(counts.files),
        human_bytes(counts.bytes_shipped)
    );
    if counts.mismatched > 0 {
        words += &format!(", {} files did not come back as they were written (.bad)", human_count(counts.mismatched));
    }
    if counts.fragments_lost > 0 {
        words += &format!(", {} fragments lost in the store", human_count(counts.fragments_lost));
    }
    words
}
