//! `forebay file du`: how many bytes and files are in directories.

use clap::Args;
use forebay_client::files::{Detail, Files, escape};
use forebay_types::NodeKind;
use serde_json::json;

use super::entry::Entry;
use super::path::{StorePath, parse_store_path};
use super::told::{Entries, Trouble, Troubles};
use super::tree::{Step, Tree};
use crate::failure::Failure;
use crate::output::{Output, stdout_failure};
use crate::size::{counted, human_bytes};

const AFTER_HELP: &str = "\
Examples:
  forebay file du /                              each directory of the store, with what is below it
  forebay file du -s /run17 /run18               the sums alone

Counted are the bytes of files, without parity and without what the store keeps beside them (`forebay status` tells what is used on the drives). A file with
several names is counted at each.
Exit codes: 1 when something is not there; 3 when the length of some files cannot be said now, or the server does not answer.";

/// The options of `du`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct UsageCommand {
    /// The sum of each PATH alone
    #[arg(short, long)]
    summary: bool,

    /// Directories or files
    #[arg(value_name = "PATH", default_value = "/", value_parser = parse_store_path())]
    paths: Vec<StorePath>,
}

/// What is in a directory, with all below.
#[derive(Clone, Copy, Default)]
struct Total {
    bytes: u64,
    files: u64,
    /// Files of which nobody can say now how long they are.
    unknown: u64,
}

impl Total {
    fn add(&mut self, other: Total) {
        self.bytes += other.bytes;
        self.files += other.files;
        self.unknown += other.unknown;
    }

    fn of(entry: &Entry) -> Total {
        match (entry.kind, entry.length()) {
            (NodeKind::File, Some(bytes)) => Total { bytes, files: 1, unknown: 0 },
            (NodeKind::File, None) => Total { bytes: 0, files: 1, unknown: 1 },
            _ => Total::default(),
        }
    }
}

/// Counts.
///
/// # Errors
/// What could not be counted.
pub fn run(command: &UsageCommand, files: &Files, output: &Output) -> Result<(), Failure> {
    let (mut entries, mut troubles) = (Entries::begin(output), Troubles::new(output));
    let mut unknown = 0;
    for StorePath(path) in &command.paths {
        let counted = count(command, files, path, &mut entries, &mut troubles);
        unknown += troubles.take(counted).map_or(0, |total| total.unknown);
        if troubles.is_over() || stdout_failure().is_some() {
            break;
        }
    }
    let failure = troubles.failure().or_else(|| {
        let files = counted(unknown, "file");
        let message = format!("of {files} it cannot be said now how long they are, and their bytes are not counted. `forebay file ls -lR` says which");
        (unknown > 0).then(|| Failure::retry(message))
    });
    entries.end(failure)
}

fn count(
    command: &UsageCommand,
    files: &Files,
    path: &[u8],
    entries: &mut Entries<'_>,
    troubles: &mut Troubles<'_>,
) -> Result<Total, Trouble> {
    let known = Entry::known(path, files.stat(path)?);
    let mut totals = vec![Total::of(&known)];
    if known.kind == NodeKind::Directory {
        let mut tree = Tree::new(files, path, Detail::Sizes);
        while let Some(step) = tree.next_step() {
            match troubles.take(step) {
                Some(Step::Entry(entry)) => last(&mut totals).add(Total::of(&entry)),
                Some(Step::Enter(_)) => totals.push(Total::default()),
                Some(Step::Leave(path)) => {
                    let total = totals.pop().expect("it was entered");
                    last(&mut totals).add(total);
                    if !command.summary {
                        tell(&path, total, entries);
                    }
                }
                None => {}
            }
            if troubles.is_over() || stdout_failure().is_some() {
                return Ok(Total::default());
            }
        }
    }
    let total = *last(&mut totals);
    tell(path, total, entries);
    Ok(total)
}

fn last(totals: &mut [Total]) -> &mut Total {
    totals.last_mut().expect("the first one stays")
}

fn tell(path: &[u8], Total { bytes, files, unknown }: Total, entries: &mut Entries<'_>) {
    let path = escape(path);
    let words = || format!("{:>10} {:>16}  {path}", human_bytes(bytes), counted(files, "file"));
    entries.add(|| json!({ "path": path, "bytes": bytes, "files": files, "unknown": unknown }), words);
}
