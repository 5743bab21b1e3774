//! `forebay file`: the files of a store.

mod cat;
mod change;
mod copy;
mod entry;
mod list;
pub mod path;
mod stat;
mod tail;
mod told;
mod tree;
mod usage;

use clap::{Args, Subcommand};
use forebay_client::Class;
use forebay_client::files::{FileError, Files, Owner};
use forebay_types::NodeKind;
use rustix::process::{getgid, getuid};

use crate::connect::FilesOptions;
use crate::failure::Failure;
use crate::output::Output;
pub use entry::kind_word;

pub use tail::{TailCommand, run as tail};

const AFTER_HELP: &str = "\
Examples:
  forebay file cp raw.dat forebay:/run17/        copy a file into the store; it is sealed, and its sums are compared
  forebay file cp -r forebay:/run17 .            copy a directory out of it
  forebay file ls -l /run17                      what is in a directory
  forebay file stat /run17/raw.dat               all that is known of a file
  forebay file rm -r /run17                      remove a directory with all that is in it

Paths begin at the root of the store and are any bytes. Where they are shown, a backslash is doubled, and what is no UTF-8 or cannot be printed is \\xNN.
A file that is sealed never changes again. One that is neither sealed nor being written was left by its writer: it can be read as far as it
was acknowledged, sealed, or removed.

Exit codes: 1 when something is not there, lost or mismatched; 2 when it cannot be done as it was given (a name that is taken, say); 3 when it should be
tried again (no room, drives missing, no answer).";

/// The options of `file`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct FileCommand {
    #[command(flatten)]
    options: FilesOptions,

    #[command(subcommand)]
    command: FileSubcommand,
}

/// What is done.
#[derive(Debug, Subcommand)]
enum FileSubcommand {
    /// List directories
    Ls(list::ListCommand),
    /// Say all that is known of files and directories
    Stat(stat::StatCommand),
    /// Write the bytes of files to stdout
    Cat(cat::CatCommand),
    /// Copy files into the store, out of it, and within it
    Cp(copy::CopyCommand),
    /// Remove files, links and directories
    Rm(change::RemoveCommand),
    /// Give files and directories other names, in one step
    Mv(change::MoveCommand),
    /// Make directories
    Mkdir(change::MakeDirectoryCommand),
    /// Seal files: they never change again
    Seal(change::SealCommand),
    /// Say how many bytes and files are in directories
    Du(usage::UsageCommand),
}

/// Does it.
///
/// # Errors
/// Why it is not done.
pub fn run(command: &FileCommand, output: &Output) -> Result<(), Failure> {
    let connect = |class| command.options.connect(class);
    match &command.command {
        FileSubcommand::Ls(options) => list::run(options, &connect(Class::Monitor)?, output),
        FileSubcommand::Stat(options) => stat::run(options, &connect(Class::Monitor)?, output),
        FileSubcommand::Du(options) => usage::run(options, &connect(Class::Monitor)?, output),
        FileSubcommand::Cat(options) => cat::run(options, || connect(Class::Monitor), output),
        FileSubcommand::Cp(options) => copy::run(options, || connect(Class::Mover), output),
        FileSubcommand::Rm(options) => change::remove(options, &connect(Class::Mover)?, output),
        FileSubcommand::Mv(options) => change::rename(options, &connect(Class::Mover)?, output),
        FileSubcommand::Mkdir(options) => change::make_directories(options, &connect(Class::Mover)?, output),
        FileSubcommand::Seal(options) => change::seal(options, &connect(Class::Mover)?, output),
    }
}

/// What the user of this command makes is theirs.
fn owner(mode: u16) -> Owner {
    Owner { mode, owner: getuid().as_raw(), group: getgid().as_raw() }
}

/// Where something comes that is to be called `to`, or to lie there under its own name when that is a directory.
fn into_directory(files: &Files, to: &[u8], name: Option<&[u8]>) -> Result<Vec<u8>, FileError> {
    match (files.lookup(to), name) {
        (Ok(node), Some(name)) if node.view.kind == NodeKind::Directory => Ok(path::join(to, name)),
        (Ok(_) | Err(FileError::NotFound { .. }), _) => Ok(to.to_vec()),
        (Err(error), _) => Err(error),
    }
}
