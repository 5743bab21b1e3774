//! A file that holds the input, for what reads files alone.

use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A path at which a file of `bytes` bytes lies that has these pieces, each behind its offset, and zeros elsewhere. It is the same path each
/// time, in the directory for such files (`TMPDIR`).
///
/// # Panics
/// When it cannot be written.
pub fn file_of(pieces: &[(u64, &[u8])], bytes: u64) -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let path = PATH.get_or_init(|| std::env::temp_dir().join(format!("forebay-fuzz-{}", std::process::id())));
    let mut file = std::fs::File::create(path).expect("a file for the input");
    file.set_len(bytes).expect("a file for the input");
    for (offset, piece) in pieces {
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(*offset)).expect("a place in the file");
        file.write_all(piece).expect("a file for the input");
    }
    path.clone()
}
