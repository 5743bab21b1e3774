//! `forebay trace`: what happened to an event.

mod report;
mod words;

use std::path::PathBuf;

use clap::Args;
use forebay_client::Class;
use forebay_mover::find::{FoundInFiles, find_event};
use forebay_types::EventKey;
use serde_json::Value;

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::hex;
use crate::status::parse;

const AFTER_HELP: &str = "\
Examples:
  forebay trace 1920/17                          what the store knows of event 17 of run 1920
  forebay trace 1920/17 --files /data/files      and in which recorded files it is, and where there
  forebay trace 1920/17 --json | jq .fragments

When a fragment arrived is told as the time at which its flush was written to the drives, just before it was acknowledged. A fragment that was moved to
make room, or written again after a crash or the loss of a drive, has the time of that. Whether a drive holds what it should is told by the header of the
flush there; `forebay drive scrub` looks at every byte.

An event that is over is never told as one that was not found. How it ended is remembered of the newest events, and of those whose decision
is still on the drives; of older ones it is only known that they are over. In which files it was recorded stands in their sidecars, not on the server: name their
directory with --files, on the machine where it is; `forebay move show RUN/EVENT --journal FILE` tells every step of its file.

Exit codes: 1 when nothing of the event was ever seen, or something of it is lost; 3 when a part of it is out of reach now, or the server
does not answer.";

/// The options of `trace`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TraceCommand {
    #[command(flatten)]
    ask: AskOptions,

    /// The event, RUN/EVENT, each decimal or 0x...
    #[arg(value_name = "RUN/EVENT")]
    event: EventKey,

    /// The directory of recorded files (--out of `forebay record`, --to of `forebay move`), to say in which of them the event is [default: files are not looked at]
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
}

/// Asks, looks and tells.
///
/// # Errors
/// When the event is unknown, or something of it is lost or out of reach.
pub fn run(command: &TraceCommand, output: &Output) -> Result<(), Failure> {
    let key = command.event;
    let mut client = command.ask.connect(Class::Monitor)?;
    let json = client.trace(key)?;
    let trace: report::Trace = parse(&json)?;
    let files = match &command.files {
        None => None,
        Some(directory) => {
            let found = find_event(directory, key);
            let advice = "give the directory that was recorded to (--out of `forebay record`); of the event in the store nothing was changed";
            Some(found.map_err(|error| Failure::file("read", directory, &error, advice))?)
        }
    };
    output.object(&object(&json, files.as_ref())?);
    for line in words::lines(key, &trace, files.as_ref()) {
        output.line(&line);
    }
    match words::failure(key, &trace, files.as_ref()) {
        Some(failure) => Err(Failure { told_json: true, ..failure }),
        None => Ok(()),
    }
}

fn object(json: &str, files: Option<&FoundInFiles>) -> Result<Value, Failure> {
    let mut trace: Value = parse(json)?;
    trace["files"] = serde_json::to_value(files).expect("what was found has string keys");
    write_checksums(&mut trace);
    Ok(trace)
}

/// Checksums are text in every other place where they are told.
fn write_checksums(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(write_checksums),
        Value::Object(all) => {
            for (key, value) in all {
                match value.as_u64().and_then(|crc| u32::try_from(crc).ok()).filter(|_| key == "crc32c") {
                    Some(crc) => *value = hex(crc).into(),
                    None => write_checksums(value),
                }
            }
        }
        _ => {}
    }
}
