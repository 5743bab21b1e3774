//! `forebay file cp`: copies files into the store, out of it, and within it.

mod chunks;
mod many;
mod place;
mod sink;
mod source;

use std::time::Instant;

use clap::Args;
use forebay_client::files::Files;
use forebay_mover::{Summer, Sums};
use serde_json::json;

use super::told::{Trouble, Troubles};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{Output, Progress};
use crate::size::{counted, hex, human_bytes};

use chunks::Chunks;
use place::{Place, parse_place};
use sink::Sink;
use source::Source;

const AFTER_HELP: &str = "\
Examples:
  forebay file cp raw.dat forebay:/run17/raw.dat      into the store
  forebay file cp forebay:/run17/raw.dat .            out of it, into this directory
  forebay file cp -r /data/run17 forebay:/            a directory with all that is in it
  forebay file cp forebay:/a forebay:/b               within the store
  tar -c run17 | forebay file cp - forebay:/run17.tar

A path that begins with forebay: is in the store, any other is a local one (./forebay:x is a local file of such a name). A copy in the store is sealed when all of
it is there, and its sums (adler32, CRC32C) are compared with those of what was read; a copy out of it is compared with the sums of the sealed file, and
appears whole or not at all. A copy in the store bears its name while it is written, so that others can follow it (`forebay tail -f`); only with --force, where
something has that name, it takes its place when it is whole. Links in directories stay links. Ctrl-C removes what was not copied whole.

A copy goes on when the server is started anew meanwhile. When the store is full it waits for room as long as --timeout says, and then leaves the file unsealed with
what was acknowledged.
Exit codes: 1 when something is not there, lost, or came with other bytes; 2 when a name is taken, without --force; 3 when there is no room or no answer.";

/// The options of `cp`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CopyCommand {
    /// Directories, with all that is in them
    #[arg(short, long)]
    recursive: bool,

    /// Replace files that have the name already, each in one step when its copy is whole
    #[arg(short, long)]
    force: bool,

    /// What to copy: local files, forebay:/PATH, or - for stdin
    #[arg(value_name = "SRC", required = true, value_parser = parse_place())]
    sources: Vec<Place>,

    /// Its name, or a directory to copy it to: local, or forebay:/PATH
    #[arg(value_name = "DST", value_parser = parse_place())]
    target: Place,
}

/// What was copied.
#[derive(Default)]
struct Counts {
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    /// Files of the store that were not sealed, and may grow.
    not_sealed: u64,
}

/// Which side of a copy failed, and how.
enum Stopped {
    Source(Trouble),
    Sink(Trouble),
}

impl From<Trouble> for Stopped {
    fn from(trouble: Trouble) -> Stopped {
        Stopped::Source(trouble)
    }
}

/// Copies, one after the other.
struct Copier<'a> {
    files: &'a Files,
    force: bool,
    interrupt: Interrupt,
    progress: Progress,
    troubles: Troubles<'a>,
    counts: Counts,
    chunks: Chunks,
    /// Where the last file came, and its sums.
    last: Option<(Place, Sums)>,
}

/// Copies.
///
/// # Errors
/// What was not copied.
pub fn run(
    command: &CopyCommand,
    connect: impl FnOnce() -> Result<Files, Failure>,
    output: &Output,
) -> Result<(), Failure> {
    check(command)?;
    let interrupt = Interrupt::catch()?;
    let (files, start) = (connect()?, Instant::now());
    let mut copier = Copier {
        files: &files,
        force: command.force,
        interrupt,
        progress: output.progress(0, "copy {spinner} {msg}"),
        troubles: Troubles::new(output),
        counts: Counts::default(),
        chunks: Chunks::default(),
        last: None,
    };
    if command.sources.len() > 1 && !command.target.is_directory(&files)? {
        return Err(Failure::usage(format!(
            "{}: several files are copied, and it is no directory; nothing was copied. Make it first",
            command.target
        )));
    }
    for from in &command.sources {
        let copied = copier.argument(from, &command.target, command.recursive);
        copier.troubles.take(copied);
        if copier.troubles.is_over() {
            break;
        }
    }
    copier.end(start.elapsed().as_secs_f64(), output)
}

fn check(command: &CopyCommand) -> Result<(), Failure> {
    let in_store = |place: &Place| matches!(place, Place::Store(_));
    if command.target == Place::Standard {
        return Err(Failure::usage("cp does not write to stdout; nothing was copied. `forebay file cat` does"));
    }
    if !in_store(&command.target) && !command.sources.iter().all(in_store) {
        return Err(Failure::usage(
            "both sides are local; nothing was copied. A path in the store begins with forebay:, as in forebay:/run17/raw.dat",
        ));
    }
    let from_stdin = command.sources.iter().filter(|place| **place == Place::Standard).count();
    if from_stdin > 0 && command.sources.len() > 1 {
        return Err(Failure::usage("stdin is copied alone; nothing was copied. Name - and one DST"));
    }
    Ok(())
}

impl Copier<'_> {
    /// Ctrl-C.
    fn interrupted(&self) -> Option<Failure> {
        self.interrupt.is_set().then(|| {
            Failure::retry(
                "interrupted; what was copied whole is there, and of what was not nothing is left. Copy again with --force to go on",
            )
        })
    }

    /// Copies a file; what it was copied to is whole then, and has the sums of what was read.
    fn file(&mut self, from: &Place, to: &Place) -> Result<(), Trouble> {
        let mut source = Source::open(self.files, from)?;
        let mut sink = Sink::create(self.files, to, source.mode(), self.force)?;
        let sums = match self.bytes(&mut source, &mut sink) {
            Ok(sums) => sums,
            Err(Stopped::Source(trouble)) => {
                sink.discard();
                return Err(trouble);
            }
            // It says what is left.
            Err(Stopped::Sink(trouble)) => return Err(trouble),
        };
        sink.finish(&sums)?;
        self.counts.files += 1;
        self.counts.not_sealed += u64::from(!source.is_final());
        source.close()?;
        self.last = Some((to.clone(), sums));
        Ok(())
    }

    /// Copies the bytes, and compares them with what they should be; their sums.
    fn bytes(&mut self, source: &mut Source, sink: &mut Sink<'_>) -> Result<Sums, Stopped> {
        let mut summer = Summer::default();
        loop {
            while !self.interrupt.is_set() && !source.is_ready()? {}
            let mut chunk = self.chunks.take();
            let count = if self.interrupt.is_set() { 0 } else { source.read(&mut chunk)? };
            let bytes = self.chunks.give_on(chunk, count);
            // Who has ended the program that writes to stdin wants no copy of what came.
            if let Some(failure) = self.interrupted() {
                return Err(Trouble::from(failure).into());
            }
            if count == 0 {
                let sums = summer.sums();
                source.check(&sums)?;
                return Ok(sums);
            }
            summer.update(&bytes);
            sink.write(bytes).map_err(Stopped::Sink)?;
            self.counts.bytes += count as u64;
            let counts = &self.counts;
            self.progress.update(0, || format!("{}, {}", counted(counts.files, "file"), human_bytes(counts.bytes)));
        }
    }

    /// Tells what was done.
    fn end(self, seconds: f64, output: &Output) -> Result<(), Failure> {
        let Copier { counts, troubles, progress, last, .. } = self;
        drop(progress);
        let rate = human_bytes((counts.bytes as f64 / seconds.max(1e-6)) as u64);
        let bytes = human_bytes(counts.bytes);
        output.line(&format!("{} copied, {bytes} in {seconds:.1} s ({rate}/s)", counted(counts.files, "file")));
        if counts.not_sealed > 0 {
            let files = counted(counts.not_sealed, "file");
            output.note(&format!(
                "forebay: of these, {files} in the store not sealed: what they had when they were read was copied"
            ));
        }
        let mut object = json!({
            "files": counts.files,
            "directories": counts.directories,
            "links": counts.links,
            "bytes": counts.bytes,
            "not_sealed": counts.not_sealed,
            "failed": troubles.count(),
            "seconds": seconds,
        });
        if let Some((to, sums)) = last.filter(|_| counts.files == 1) {
            object["to"] = to.to_string().into();
            object["crc32c"] = hex(sums.crc32c).into();
            object["adler32"] = hex(sums.adler32).into();
        }
        output.result(&mut object, troubles.failure())
    }
}
