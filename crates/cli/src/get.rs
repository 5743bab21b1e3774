//! `forebay get`: reads one fragment.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use forebay_client::Class;
use forebay_types::{FragmentId, crc32c};

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::{Output, write_stdout};
use crate::size::{hex, human_count};

const AFTER_HELP: &str = "\
Examples:
  forebay get 1920/17/0x30000 fragment.bin        write the fragment of source 0x30000 to a file
  forebay get 1/7/256 - | hexdump -C              or to stdout

The bytes are compared with the checksum that their writer computed. A file appears whole or not at all.

Exit codes: 1 when the fragment is not found, deleted, or lost (the message says which); 3 when its bytes exist but too
few of their drives answer now, or the server does not.";

/// The options of `get`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct GetCommand {
    #[command(flatten)]
    ask: AskOptions,

    /// The fragment, RUN/EVENT/SOURCE, each decimal or 0x...
    #[arg(value_name = "RUN/EVENT/SOURCE")]
    id: FragmentId,

    /// The file to write, replaced when it is there; - for stdout
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
}

/// Reads the fragment.
///
/// # Errors
/// Why there are no bytes.
pub fn run(command: &GetCommand, output: &Output) -> Result<(), Failure> {
    let GetCommand { id, .. } = *command;
    let to_stdout = command.file.as_os_str() == "-";
    if to_stdout && output.json {
        return Err(Failure::usage("--json and FILE - both want stdout; nothing was read. Name a file"));
    }
    let mut client = command.ask.connect(Class::Monitor)?;
    let start = Instant::now();
    let bytes = client.get(id)?;
    let seconds = start.elapsed().as_secs_f64();
    if to_stdout {
        write_stdout(&bytes);
        return Ok(());
    }
    write(&command.file, &bytes).map_err(|error| {
        Failure::file("write", &command.file, &error, "the fragment is still in the store; give another FILE")
    })?;
    output.object(&serde_json::json!({
        "id": id.to_string(),
        "outcome": "found",
        "bytes": bytes.len(),
        "crc32c": hex(crc32c(&bytes)),
        "seconds": seconds,
    }));
    output.line(&format!("{id}: {} bytes after {:.1} ms", human_count(bytes.len() as u64), seconds * 1e3));
    Ok(())
}

/// Writes beside the file and renames, so that no half of a fragment bears its name. What is no plain file is written to.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As readable as any file that the user makes; the umask takes its share.
    let permissions = Permissions::from_mode(0o666);
    let mut file =
        tempfile::Builder::new().prefix(".forebay-").suffix(".part").permissions(permissions).tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
