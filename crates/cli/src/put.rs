//! `forebay put`: stores one fragment.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use forebay_client::{Class, PutResult};
use forebay_types::limits::FRAGMENT_BYTES_MAX;
use forebay_types::{FragmentId, PutOutcome, crc32c};

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::{hex, human_count};

const AFTER_HELP: &str = "\
Examples:
  forebay put 1920/17/0x30000 fragment.bin        store a file as the fragment of source 0x30000
  echo hello | forebay put 1/7/256 -              store what comes on stdin
  forebay put --expected 11 1920/17/5 f.bin       say that the event has 11 fragments, so that filters wait for them

The fragment is on stable media at the stated protection when the command ends with 0. Putting the same bytes again is
good; other bytes under the same id are refused with exit code 1. A fragment of an event that is already decided is
dropped, counted and acknowledged (exit code 0, said on stderr). Exit code 3: keep the file and try again.";

/// The options of `put`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct PutCommand {
    #[command(flatten)]
    ask: AskOptions,

    /// How many fragments the event should have, this one included [default: not known]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    expected: Option<u16>,

    /// The fragment, RUN/EVENT/SOURCE, each decimal or 0x...
    #[arg(value_name = "RUN/EVENT/SOURCE")]
    id: FragmentId,

    /// The file with its bytes; - for stdin
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
}

/// Stores the fragment.
///
/// # Errors
/// Why it is not stored.
pub fn run(command: &PutCommand, output: &Output) -> Result<(), Failure> {
    let PutCommand { id, .. } = *command;
    let bytes = read(&command.file)?;
    let mut client = command.ask.connect(Class::Readout)?;
    client.put(id, command.expected.unwrap_or(0), &bytes)?;
    let flushed = client.flush();
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    flushed?;
    let PutResult { outcome, latency, .. } = results.pop().expect("a put that was taken has a result after a flush");
    if !outcome.is_acknowledged() {
        return Err(Failure::put(id, outcome));
    }
    if outcome == PutOutcome::Late {
        output.note(&format!("forebay: fragment {id}: {outcome}"));
    }
    let seconds = latency.as_secs_f64();
    let word = if outcome == PutOutcome::Late { "late" } else { "durable" };
    output.object(&serde_json::json!({
        "id": id.to_string(),
        "outcome": word,
        "bytes": bytes.len(),
        "crc32c": hex(crc32c(&bytes)),
        "seconds": seconds,
    }));
    output.line(&format!("{id}: {} bytes {word} after {:.1} ms", human_count(bytes.len() as u64), seconds * 1e3));
    Ok(())
}

/// The whole file, or stdin; a little more than any store takes at most.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let most = FRAGMENT_BYTES_MAX as u64 + 1;
    let result = if path.as_os_str() == "-" {
        io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    result.map_err(|error| Failure::file("read", path, &error, "nothing was sent"))?;
    Ok(bytes)
}
