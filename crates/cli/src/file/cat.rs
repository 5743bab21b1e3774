//! `forebay file cat`: the bytes of files, to stdout.

use clap::Args;
use forebay_client::files::{FileError, FileReader, Files, ReadOptions};

use super::path::{StorePath, parse_store_path};
use crate::failure::Failure;
use crate::output::{Output, stdout_failure, write_stdout};
use crate::size::parse_bytes;

/// Bytes that go to stdout at once.
const CHUNK_BYTES: u64 = 1 << 20;

const AFTER_HELP: &str = "\
Examples:
  forebay file cat /run17/raw.dat | hexdump -C | less
  forebay file cat --offset 1MiB --bytes 4096 /run17/raw.dat > page

Each piece is compared with the checksum that its writer computed. Behind the end of a file there is nothing, which is no error. What is not sealed is
written as far as it was acknowledged.
Exit codes: 1 when a file is not there, or bytes are lost (what comes before them was written); 3 when they are out of reach, or the server does not answer.";

/// The options of `cat`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CatCommand {
    /// Begin at this byte of each file
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_bytes)]
    offset: u64,

    /// At most so many bytes of each file [default: up to its end]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    bytes: Option<u64>,

    /// The files
    #[arg(value_name = "PATH", required = true, value_parser = parse_store_path())]
    paths: Vec<StorePath>,
}

/// Writes them.
///
/// # Errors
/// The first that cannot be read.
pub fn run(
    command: &CatCommand,
    connect: impl FnOnce() -> Result<Files, Failure>,
    output: &Output,
) -> Result<(), Failure> {
    if output.json {
        return Err(Failure::usage(
            "--json and the bytes of files both want stdout; nothing was read. Leave --json out",
        ));
    }
    let files = connect()?;
    for StorePath(path) in &command.paths {
        let mut reader = files.open_read(path, &ReadOptions::default())?;
        reader.set_position(command.offset);
        print(&mut reader, command.bytes)?;
        reader.close()?;
    }
    Ok(())
}

/// Writes what comes at the reader's place to stdout, up to the present end of the file.
///
/// # Errors
/// What cannot be read; what comes before it was written.
pub fn print(reader: &mut FileReader, bytes: Option<u64>) -> Result<(), FileError> {
    let mut left = bytes.unwrap_or(u64::MAX);
    let mut chunk = vec![0; CHUNK_BYTES.min(left) as usize];
    while left > 0 && stdout_failure().is_none() {
        let wanted = left.min(CHUNK_BYTES) as usize;
        let count = reader.read(&mut chunk[..wanted])?;
        if count == 0 {
            break;
        }
        write_stdout(&chunk[..count]);
        left -= count as u64;
    }
    Ok(())
}
