//! `forebay file ls`: lists directories.

use clap::Args;
use forebay_client::files::{Detail, Files};
use forebay_types::NodeKind;

use super::entry::Entry;
use super::path::{StorePath, join, parse_store_path};
use super::told::{Entries, Trouble, Troubles};
use super::tree::{Step, Tree};
use crate::failure::Failure;
use crate::output::{Output, stdout_failure};

const AFTER_HELP: &str = "\
Examples:
  forebay file ls /run17                         names; directories end with a slash
  forebay file ls -l /run17                      with mode, links, user, group, bytes, time of the last write, and whether it is sealed
  forebay file ls -R / | grep raw                all that is in the store, a path on each line
  forebay file ls -lR --json / | jq -r '.entries[] | select(.state == \"not-sealed\") | .path'

The state of a file is sealed, being-written, not-sealed (its writer left it), out-of-reach, or lost.
Exit codes: 1 when something is not there; 3 when the server does not answer.";

/// The options of `ls`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ListCommand {
    /// All that is known of each
    #[arg(short, long)]
    long: bool,

    /// And what is in directories, with all below: whole paths are shown
    #[arg(short = 'R', long)]
    recursive: bool,

    /// What to list
    #[arg(value_name = "PATH", default_value = "/", value_parser = parse_store_path())]
    paths: Vec<StorePath>,
}

/// Lists.
///
/// # Errors
/// What could not be listed.
pub fn run(command: &ListCommand, files: &Files, output: &Output) -> Result<(), Failure> {
    let mut list = List { command, files, entries: Entries::begin(output), troubles: Troubles::new(output) };
    for StorePath(path) in &command.paths {
        let listed = list.path(path);
        list.troubles.take(listed);
        if list.is_over() {
            break;
        }
    }
    list.entries.end(list.troubles.failure())
}

struct List<'a> {
    command: &'a ListCommand,
    files: &'a Files,
    entries: Entries<'a>,
    troubles: Troubles<'a>,
}

impl List<'_> {
    /// Nobody wants more.
    fn is_over(&self) -> bool {
        self.troubles.is_over() || stdout_failure().is_some()
    }

    fn path(&mut self, path: &[u8]) -> Result<(), Trouble> {
        let detail = if self.command.long { Detail::All } else { Detail::Names };
        let node = self.files.lookup(path)?;
        if node.view.kind != NodeKind::Directory {
            let entry = match detail {
                Detail::All => Entry::known(path, self.files.stat(path)?),
                _ => Entry { path: path.to_vec(), number: node.number, kind: node.view.kind, info: None, node: None },
            };
            self.tell(&entry, path);
            return Ok(());
        }
        if self.command.recursive {
            self.tree(path, detail);
            return Ok(());
        }
        let shows_paths = self.command.paths.len() > 1;
        for listed in self.files.list(path, detail)? {
            let listed = listed?;
            let name = if shows_paths { join(path, &listed.name) } else { listed.name.clone() };
            self.tell(&Entry::listed(join(path, &listed.name), listed), &name);
            if self.is_over() {
                break;
            }
        }
        Ok(())
    }

    fn tree(&mut self, path: &[u8], detail: Detail) {
        let mut tree = Tree::new(self.files, path, detail);
        while let Some(step) = tree.next_step() {
            if let Some(Step::Entry(entry) | Step::Enter(entry)) = self.troubles.take(step) {
                self.tell(&entry, &entry.path);
            }
            if self.is_over() {
                break;
            }
        }
    }

    fn tell(&mut self, entry: &Entry, name: &[u8]) {
        // It was removed while it was asked about.
        if self.command.long && entry.node.is_none() {
            return;
        }
        let words = || if self.command.long { entry.long(name) } else { entry.short(name) };
        self.entries.add(|| entry.object(), words);
    }
}
