//! `forebay file stat`: all that is known of files and directories.

use clap::Args;
use forebay_client::files::Files;

use super::entry::Entry;
use super::path::{StorePath, parse_store_path};
use super::told::{Entries, Troubles};
use crate::failure::Failure;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  forebay file stat /run17/raw.dat               kind, number, bytes, state, sums, mode, owner, links, times
  forebay file stat --json /run17/raw.dat | jq -r '.entries[].adler32'

Of a link, the link itself is told. The sums are those of all bytes of a sealed file; a file that was not written in order is read once
for them, and has them a moment after it was sealed.
Exit codes: 1 when something is not there; 3 when the server does not answer.";

/// The options of `stat`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct StatCommand {
    /// What to tell of
    #[arg(value_name = "PATH", required = true, value_parser = parse_store_path())]
    paths: Vec<StorePath>,
}

/// Tells.
///
/// # Errors
/// What is not there.
pub fn run(command: &StatCommand, files: &Files, output: &Output) -> Result<(), Failure> {
    let (mut entries, mut troubles) = (Entries::begin(output), Troubles::new(output));
    for StorePath(path) in &command.paths {
        if let Some(status) = troubles.take(files.stat_link(path)) {
            let entry = Entry::known(path, status);
            entries.add(|| entry.object(), || entry.lines().join("\n"));
        }
        if troubles.is_over() {
            break;
        }
    }
    entries.end(troubles.failure())
}
