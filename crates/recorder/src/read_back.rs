//! Reads a file as the disk holds it, not as the page cache remembers it.

use std::io::{self, Read};
use std::os::fd::AsFd;

use forebay_mover::events::EventKind;
use forebay_mover::events::parts::PartsReader;
pub use forebay_mover::local::ReadMode;
use forebay_mover::local::Uncached;
use forebay_rawdata::EventReader;
use rustix::fs::{Mode, openat};

use crate::digest::{Digest, Digester};
use crate::machine::ReadBack;

/// Reads the file `name` of `kind` whole, checks each event, and says what is there. An error is one of the
/// operating system and says nothing of the file; bytes that are no events are none.
pub(crate) fn read_back(directory: impl AsFd, name: &str, kind: EventKind) -> (io::Result<ReadBack>, ReadMode) {
    let attempt = |mode| match attempt(&directory, name, kind, mode) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ReadBack::Missing),
        found => found,
    };
    match attempt(ReadMode::Direct) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            (attempt(ReadMode::CacheDropped), ReadMode::CacheDropped)
        }
        found => (found, ReadMode::Direct),
    }
}

fn attempt(directory: impl AsFd, name: &str, kind: EventKind, mode: ReadMode) -> io::Result<ReadBack> {
    let mut reader = Digested::open(directory, name, mode)?;
    let (events, problem) = count_events(kind, &mut reader);
    Ok(judged(reader.finish()?, events, problem))
}

/// How many events a file of `kind` has, and what is wrong with it, if anything is.
fn count_events(kind: EventKind, reader: impl Read) -> (u64, Option<String>) {
    let mut events = 0;
    let mut problem = None;
    match kind.format() {
        Some(format) => {
            for event in EventReader::new(format, reader) {
                match event {
                    Ok(_) => events += 1,
                    // Its own words are for whoever hands in files.
                    Err(error) => problem = Some(format!("{}: {}", error.place(), error.problem)),
                }
            }
        }
        None => {
            for event in PartsReader::new(reader) {
                match event {
                    Ok(_) => events += 1,
                    Err(error) => problem = Some(error.to_string()),
                }
            }
        }
    }
    (events, problem)
}

fn judged(digest: Digest, events: u64, problem: Option<String>) -> ReadBack {
    match problem {
        None => ReadBack::File { digest, events },
        Some(problem) => ReadBack::Unreadable { message: format!("{digest}: {problem}") },
    }
}

/// What the bytes of a file of `kind` come to: the answer to [`crate::machine::Step::ReadBack`] of whoever holds them in memory.
pub fn read_back_bytes(kind: EventKind, bytes: &[u8]) -> ReadBack {
    let (events, problem) = count_events(kind, bytes);
    let mut digester = Digester::default();
    digester.update(bytes);
    judged(digester.digest(), events, problem)
}

/// A reader that hashes what it reads, in blocks.
struct Digested {
    file: Uncached,
    /// What of the block is not handed out.
    rest: std::ops::Range<usize>,
    digester: Digester,
    failed: Option<io::Error>,
}

impl Digested {
    fn open(directory: impl AsFd, name: &str, mode: ReadMode) -> io::Result<Digested> {
        let file = Uncached::new(openat(directory, name, mode.flags(), Mode::empty())?.into(), mode)?;
        Ok(Digested { file, rest: 0..0, digester: Digester::default(), failed: None })
    }

    /// Reads the next block; nothing at the end of the file.
    fn refill(&mut self) -> io::Result<()> {
        self.rest = 0..0;
        if self.file.refill()? {
            self.digester.update(self.file.block());
            self.rest = 0..self.file.block().len();
        }
        Ok(())
    }

    /// The digest of the whole file, read to its end.
    fn finish(mut self) -> io::Result<Digest> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.refill()?;
        while !self.rest.is_empty() {
            self.refill()?;
        }
        Ok(self.digester.digest())
    }
}

impl Read for Digested {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty()
            && let Err(error) = self.refill()
        {
            // The readers of events wrap errors; the cause is kept for `finish`.
            let told = error.kind().into();
            self.failed = Some(error);
            return Err(told);
        }
        let bytes = into.len().min(self.rest.len());
        into[..bytes].copy_from_slice(&self.file.block()[self.rest.start..self.rest.start + bytes]);
        self.rest.start += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the tests write the files that are read back")]
mod tests {
    use std::fs::File;

    use forebay_rawdata::{Format, Generator};
    use forebay_types::RunId;

    use super::*;

    fn file(events: usize) -> Vec<u8> {
        let mut generator = Generator::new(Format::Faser, 3, RunId(9));
        (0..events).flat_map(|_| generator.next_event().bytes).collect()
    }

    #[test]
    fn a_file_of_several_blocks_is_read_whole() {
        let directory = tempfile::tempdir_in(".").expect("a directory");
        let path = directory.path().join("file");
        for events in [1, 130] {
            let bytes = file(events);
            std::fs::write(&path, &bytes).expect("written");
            let mut digester = Digester::default();
            digester.update(&bytes);
            let handle = File::open(directory.path()).expect("opened");
            let (found, _) = read_back(handle, "file", EventKind::Faser);
            assert_eq!(found.expect("read"), ReadBack::File { digest: digester.digest(), events: events as u64 });
        }
    }

    #[test]
    fn damage_names_the_checksum_of_the_whole_file() {
        let directory = tempfile::tempdir_in(".").expect("a directory");
        let path = directory.path().join("file");
        let mut bytes = file(100);
        bytes[0] = 0;
        std::fs::write(&path, &bytes).expect("written");
        let mut digester = Digester::default();
        digester.update(&bytes);
        let handle = File::open(directory.path()).expect("opened");
        let (Ok(ReadBack::Unreadable { message }), _) = read_back(&handle, "file", EventKind::Faser) else {
            panic!("it is damaged");
        };
        assert!(message.contains(&digester.digest().to_string()), "{message}");
        assert!(message.contains("event at byte 0"), "{message}");
        assert!(!message.contains("copy it again"), "advice for files that are handed in: {message}");
        assert_eq!(read_back(&handle, "none", EventKind::Faser).0.expect("looked for"), ReadBack::Missing);
    }
}
