//! `forebay tail`: the end of a file, and what comes behind it.

use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use forebay_client::Class;
use forebay_client::files::{FileError, FileReader, Files, ReadOptions, length_of};
use forebay_types::{FileNumber, ReadOutcome};

use super::cat::print;
use super::path::{StorePath, parse_store_path};
use crate::connect::FilesOptions;
use crate::failure::Failure;
use crate::output::{Output, stdout_failure};
use crate::size::parse_bytes;

/// The time between two looks at a file that may grow.
const LOOK: Duration = Duration::from_millis(200);

const AFTER_HELP: &str = "\
Examples:
  forebay tail /run17/raw.dat | hexdump -C       the last 4 KiB
  forebay tail -f /run17/daq.log                 and what is written from then on, until the file is sealed
  forebay tail -f --from 0 /run17/raw.dat | monitor

What is followed is the file, also when it gets another name. It goes on when the server is started anew meanwhile, for as long as --timeout says.
Exit codes with --follow: 0 when the file was sealed and all of it is printed; 1 when it was removed; 3 when the server does not answer (the
message says with which --from to go on).";

/// The options of `tail`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TailCommand {
    #[command(flatten)]
    options: FilesOptions,

    /// Print what is written from then on, too, until the file is sealed or removed
    #[arg(short, long)]
    follow: bool,

    /// Begin so many bytes before the end
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_bytes)]
    bytes: u64,

    /// Begin at this byte of the file [default: as --bytes says]
    #[arg(long, value_name = "OFFSET", value_parser = parse_bytes, conflicts_with = "bytes")]
    from: Option<u64>,

    /// The file
    #[arg(value_name = "PATH", value_parser = parse_store_path())]
    path: StorePath,
}

/// Prints.
///
/// # Errors
/// What cannot be read.
pub fn run(command: &TailCommand, output: &Output) -> Result<(), Failure> {
    if output.json {
        return Err(Failure::usage(
            "--json and the bytes of a file both want stdout; nothing was read. Leave --json out",
        ));
    }
    let files = command.options.connect(Class::Monitor)?;
    let mut reader = files.open_read(&command.path.0, &ReadOptions::default())?;
    reader.set_position(command.from.unwrap_or(reader.length().saturating_sub(command.bytes)));
    if command.follow {
        follow(&files, &mut reader, output)?;
    } else {
        print(&mut reader, None)?;
    }
    Ok(reader.close()?)
}

/// How a file is that may grow.
enum Seen {
    Growing { length: Option<u64> },
    Sealed,
    Removed,
}

/// Whoever reads up to the end behind this look has all of a file that was sealed then.
fn look(files: &Files, number: FileNumber) -> Result<Seen, FileError> {
    let named = match files.lookup_in(Some(number), b"") {
        Ok(node) => node.view.links > 0,
        Err(FileError::NotFound { .. }) => false,
        Err(error) => return Err(error),
    };
    let info = files.infos(&[number])?.pop();
    Ok(match info {
        Some(info) if named && info.outcome != ReadOutcome::Deleted => match info.sealed {
            true => Seen::Sealed,
            false => Seen::Growing { length: length_of(&info) },
        },
        _ => Seen::Removed,
    })
}

fn follow(files: &Files, reader: &mut FileReader, output: &Output) -> Result<(), Failure> {
    let (number, first) = (reader.node().number, reader.position());
    while stdout_failure().is_none() {
        let seen = look(files, number).map_err(|error| stopped(error, reader))?;
        if let Seen::Growing { length: Some(length) } = seen
            && length < reader.position()
            && first < reader.position()
        {
            let path = reader.path();
            output.note(&format!("forebay: {path}: it was cut to {length} bytes, and is followed from there"));
            reader.set_position(length);
        }
        match (print(reader, None), seen) {
            (Err(FileError::Removed { .. }), _) | (Ok(()), Seen::Removed) => return Err(removed(reader)),
            (Err(error), _) => return Err(stopped(error, reader)),
            (Ok(()), Seen::Sealed) => break,
            (Ok(()), Seen::Growing { .. }) => sleep(LOOK),
        }
    }
    Ok(())
}

fn removed(reader: &FileReader) -> Failure {
    Failure::data(format!(
        "{}: the file was removed, or another one took its name, before it was sealed; it was printed up to byte {}. There is no more of it",
        reader.path(),
        reader.position()
    ))
}

/// With where to go on.
fn stopped(error: FileError, reader: &FileReader) -> Failure {
    let failure = Failure::from(error);
    let (message, position) = (&failure.message, reader.position());
    let message = format!("{message}. It was printed up to byte {position}: go on with --from {position}");
    Failure { message, ..failure }
}
