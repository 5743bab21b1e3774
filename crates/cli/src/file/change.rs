//! `forebay file rm`, `mv`, `mkdir` and `seal`: what changes names, or that a file may change.

use clap::Args;
use forebay_client::files::{Detail, FileError, Files, escape};
use forebay_types::NodeKind;
use serde_json::json;

use super::entry::Entry;
use super::path::{StorePath, last_name, parse_store_path};
use super::told::{Entries, Trouble, Troubles};
use super::tree::{Step, Tree};
use super::{into_directory, owner};
use crate::failure::Failure;
use crate::output::Output;
use crate::size::{counted, hex, human_count};

const AFTER_REMOVE_HELP: &str = "\
Examples:
  forebay file rm /run17/raw.dat /run17/log      remove files; their bytes are gone when nobody has them open any more
  forebay file rm -r /run17                      remove a directory with all that is in it

Sealed files and those that are being written are removed as well. Of a link, the link itself goes.
Exit codes: 1 when something is not there; 2 when it is a directory, without -r; 3 when it could not be made durable now.";

const AFTER_MOVE_HELP: &str = "\
Examples:
  forebay file mv /run17/raw.part /run17/raw.dat      another name, in one step: after a crash too it has one of both
  forebay file mv --force /new /current               and what has that name already gives way in the same step
  forebay file mv /a /b /archive                      into a directory

Exit codes: 1 when something is not there, or nobody knows whether it was done; 2 when the name is taken, without --force; 3 when it could not be made
durable now.";

const AFTER_MAKE_HELP: &str = "\
Examples:
  forebay file mkdir /run17
  forebay file mkdir -p /2026/run17/calibration       with those on the way that are not there; good when it is there already

Exit codes: 1 when a directory on the way is not there; 2 when the name is taken; 3 when it could not be made durable now.";

const AFTER_SEAL_HELP: &str = "\
Examples:
  forebay file seal /run17/raw.dat               it never changes again, and has sums from then on
  forebay file seal -r /run17                    and so does each file in a directory that nobody has open for writing

For files whose writer left them: a copy that ended well is sealed already. What is written to a file afterwards is refused. Sealing
again is good. With -r the files that somebody writes are told and left alone; to seal such a one name it itself.
Exit codes: 1 when something is not there; 2 when it is no file, or a directory without -r; 3 when it could not be made durable now.";

/// The options of `rm`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_REMOVE_HELP)]
pub struct RemoveCommand {
    /// Directories too, with all that is in them
    #[arg(short, long)]
    recursive: bool,

    /// What to remove
    #[arg(value_name = "PATH", required = true, value_parser = parse_store_path())]
    paths: Vec<StorePath>,
}

/// The options of `mv`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_MOVE_HELP)]
pub struct MoveCommand {
    /// What has the name already gives way
    #[arg(short, long)]
    force: bool,

    /// What gets another name
    #[arg(value_name = "SRC", required = true, value_parser = parse_store_path())]
    sources: Vec<StorePath>,

    /// The other name, or a directory to move it to
    #[arg(value_name = "DST", value_parser = parse_store_path())]
    target: StorePath,
}

/// The options of `mkdir`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_MAKE_HELP)]
pub struct MakeDirectoryCommand {
    /// Also those on the way that are not there
    #[arg(short, long)]
    parents: bool,

    /// The directories
    #[arg(value_name = "PATH", required = true, value_parser = parse_store_path())]
    paths: Vec<StorePath>,
}

/// The options of `seal`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_SEAL_HELP)]
pub struct SealCommand {
    /// Directories too: each file in them that nobody has open for writing
    #[arg(short, long)]
    recursive: bool,

    /// The files
    #[arg(value_name = "PATH", required = true, value_parser = parse_store_path())]
    paths: Vec<StorePath>,
}

/// Removes.
///
/// # Errors
/// What was not removed.
pub fn remove(command: &RemoveCommand, files: &Files, output: &Output) -> Result<(), Failure> {
    let (mut removed, mut troubles) = (0, Troubles::new(output));
    for StorePath(path) in &command.paths {
        let begun = removal(files, path, command.recursive);
        match troubles.take(begun) {
            Some(Removal::Tree(path)) => remove_tree(files, path, &mut removed, &mut troubles),
            Some(Removal::Done) => removed += 1,
            None => {}
        }
        if troubles.is_over() {
            break;
        }
    }
    output.line(&format!("{} removed", counted(removed, "name")));
    let failed = troubles.count();
    output.result(&mut json!({ "removed": removed, "failed": failed }), troubles.failure())
}

enum Removal<'a> {
    Done,
    /// It is a directory with what is in it.
    Tree(&'a [u8]),
}

fn removal<'a>(files: &Files, path: &'a [u8], recursive: bool) -> Result<Removal<'a>, Trouble> {
    // A slash at the end would lead through a link to what is not to be removed.
    let path = &path[..path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1)];
    if last_name(path).is_none() {
        let message = "the root, . and .. cannot be removed; nothing was. Name what is to go";
        return Err(Failure::usage(format!("{}/: {message}", escape(path))).into());
    }
    if files.lookup_link(path)?.view.kind == NodeKind::Directory {
        if recursive {
            return Ok(Removal::Tree(path));
        }
        let message = "it is a directory; nothing was removed. Give -r to remove it with all that is in it";
        return Err(Failure::usage(format!("{}: {message}", escape(path))).into());
    }
    files.remove(path)?;
    Ok(Removal::Done)
}

fn remove_tree(files: &Files, path: &[u8], removed: &mut u64, troubles: &mut Troubles<'_>) {
    let mut tree = Tree::new(files, path, Detail::Names);
    let failed = troubles.count();
    while let Some(step) = tree.next_step() {
        let done = match troubles.take(step) {
            Some(Step::Entry(entry)) => files.remove(&entry.path),
            Some(Step::Leave(path)) => files.remove_directory(&path),
            Some(Step::Enter(_)) | None => continue,
        };
        *removed += u64::from(troubles.take(done).is_some());
        if troubles.is_over() {
            return;
        }
    }
    // What was told of what is in it is told.
    if troubles.count() == failed {
        *removed += u64::from(troubles.take(files.remove_directory(path)).is_some());
    }
}

/// Renames.
///
/// # Errors
/// What kept its name.
pub fn rename(command: &MoveCommand, files: &Files, output: &Output) -> Result<(), Failure> {
    let target = &command.target.0;
    if command.sources.len() > 1 && files.lookup(target)?.view.kind != NodeKind::Directory {
        return Err(FileError::NotDirectory { path: escape(target) }.into());
    }
    let (mut entries, mut troubles) = (Entries::begin(output), Troubles::new(output));
    for StorePath(from) in &command.sources {
        let renamed = into_directory(files, target, last_name(from))
            .and_then(|to| files.rename(from, &to, command.force).map(|()| to));
        if let Some(to) = troubles.take(renamed) {
            let (from, to) = (escape(from), escape(&to));
            entries.add(|| json!({ "from": from, "to": to }), || format!("{from} is {to} now"));
        }
        if troubles.is_over() {
            break;
        }
    }
    entries.end(troubles.failure())
}

/// Makes directories.
///
/// # Errors
/// What was not made.
pub fn make_directories(command: &MakeDirectoryCommand, files: &Files, output: &Output) -> Result<(), Failure> {
    let (mut entries, mut troubles) = (Entries::begin(output), Troubles::new(output));
    for StorePath(path) in &command.paths {
        let made = match command.parents {
            true => files.make_directories(path, &owner(0o755)),
            false => files.make_directory(path, &owner(0o755)),
        };
        if let Some(node) = troubles.take(made) {
            let path = escape(path);
            entries.add(|| json!({ "path": path, "number": node.number.0 }), || format!("{path} is there"));
        }
        if troubles.is_over() {
            break;
        }
    }
    entries.end(troubles.failure())
}

/// Seals files.
///
/// # Errors
/// What was not sealed.
pub fn seal(command: &SealCommand, files: &Files, output: &Output) -> Result<(), Failure> {
    let (mut entries, mut troubles) = (Entries::begin(output), Troubles::new(output));
    for StorePath(path) in &command.paths {
        match files.seal(path).and_then(|()| files.stat(path)) {
            Err(FileError::IsDirectory { .. }) if command.recursive => {
                seal_tree(files, path, &mut entries, &mut troubles);
            }
            Err(FileError::IsDirectory { path }) => {
                let message =
                    "it is a directory; nothing was sealed. Give -r to seal each file in it that nobody writes";
                troubles.take(Err::<(), _>(Failure::usage(format!("{path}: {message}"))));
            }
            sealed => {
                if let Some(status) = troubles.take(sealed) {
                    add_sealed(&mut entries, &Entry::known(path, status));
                }
            }
        }
        if troubles.is_over() {
            break;
        }
    }
    entries.end(troubles.failure())
}

fn seal_tree(files: &Files, path: &[u8], entries: &mut Entries<'_>, troubles: &mut Troubles<'_>) {
    let mut tree = Tree::new(files, path, Detail::Sizes);
    while let Some(step) = tree.next_step() {
        let Some(Step::Entry(entry)) = troubles.take(step) else { continue };
        let is_open = entry.kind == NodeKind::File && entry.info.as_ref().is_none_or(|info| !info.sealed);
        if is_open {
            let sealed = files.seal_unless_written(&entry.path).and_then(|_| files.stat(&entry.path));
            if let Some(status) = troubles.take(sealed) {
                add_sealed(entries, &Entry::known(&entry.path, status));
            }
        }
        if troubles.is_over() {
            return;
        }
    }
}

fn add_sealed(entries: &mut Entries<'_>, entry: &Entry) {
    entries.add(|| entry.object(), || sealed_words(entry));
}

fn sealed_words(entry: &Entry) -> String {
    if entry.info.as_ref().is_some_and(|info| !info.sealed) {
        return format!("{}: not sealed, somebody writes to it", escape(&entry.path));
    }
    let bytes = entry.length().map_or("bytes that are out of reach".to_owned(), |bytes| human_count(bytes) + " bytes");
    let sums = match entry.info.as_ref().and_then(|info| info.sums) {
        Some((crc, adler32)) => format!("adler32 {}, CRC32C {}", hex(adler32), hex(crc)),
        None => "its sums are being computed".to_owned(),
    };
    format!("{}: sealed, {bytes}, {sums}", escape(&entry.path))
}
