//! What is copied: a local file, one of the store, or stdin.

use std::fs::File;
use std::io::{self, Read, StdinLock};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use forebay_client::files::{FileInfo, FileReader, Files, ReadOptions};
use forebay_mover::Sums;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::place::Place;
use crate::failure::Failure;
use crate::file::told::Trouble;
use crate::size::{hex, human_count};

/// The time between two looks whether the command is to end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The mode of what has none.
const PLAIN_MODE: u16 = 0o644;

/// How a file of the store differs from bytes of these sums, as far as that is known of it.
pub fn difference(sums: &Sums, info: &FileInfo) -> Option<String> {
    let (crc32c, adler32) = info.sums.unwrap_or((sums.crc32c, sums.adler32));
    let is_same = (info.length, crc32c, adler32) == (sums.bytes, sums.crc32c, sums.adler32);
    (!is_same).then(|| {
        format!(
            "{} bytes with adler32 {} and CRC32C {}, where the sealed file has {} bytes, {} and {}",
            human_count(sums.bytes),
            hex(sums.adler32),
            hex(sums.crc32c),
            human_count(info.length),
            hex(adler32),
            hex(crc32c)
        )
    })
}

/// A source.
pub enum Source {
    /// Stdin.
    Standard(StdinLock<'static>),
    /// Of this machine.
    Local { file: File, path: PathBuf, mode: u16 },
    /// Of the store, with what was known of it when it was opened.
    Store { reader: Box<FileReader>, info: FileInfo },
}

impl Source {
    /// Opens it.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn open(files: &Files, place: &Place) -> Result<Source, Trouble> {
        match place {
            Place::Standard => Ok(Source::Standard(io::stdin().lock())),
            Place::Local(path) => {
                let opened = File::open(path).and_then(|file| Ok((file.metadata()?.permissions().mode(), file)));
                let (mode, file) =
                    opened.map_err(|error| Failure::file("read", path, &error, "nothing of it was copied"))?;
                Ok(Source::Local { file, path: path.clone(), mode: (mode & 0o777) as u16 })
            }
            Place::Store(path) => {
                let reader = Box::new(files.open_read(path, &ReadOptions::default())?);
                let info = files.infos(&[reader.node().number])?.pop().expect("one answer for one file");
                Ok(Source::Store { reader, info })
            }
        }
    }

    /// Who may do what with it.
    pub fn mode(&self) -> u16 {
        match self {
            Source::Standard(_) => PLAIN_MODE,
            Source::Local { mode, .. } => *mode,
            Source::Store { reader, .. } => reader.node().view.attributes.mode & 0o777,
        }
    }

    /// Nothing more is read.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn close(self) -> Result<(), Trouble> {
        if let Source::Store { reader, .. } = self {
            reader.close()?;
        }
        Ok(())
    }

    /// Whether it is known that nothing comes behind what was read.
    pub fn is_final(&self) -> bool {
        match self {
            Source::Store { info, .. } => info.sealed,
            Source::Standard(_) | Source::Local { .. } => true,
        }
    }

    /// Whether reading does not wait for ever: of stdin nobody knows when something comes. It waits for a moment.
    ///
    /// # Errors
    /// When the system does not say it.
    pub fn is_ready(&self) -> Result<bool, Trouble> {
        let Source::Standard(stdin) = self else { return Ok(true) };
        match poll(&mut [PollFd::new(stdin, PollFlags::IN)], Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) => Err(unread("stdin".as_ref(), &error.into())),
        }
    }

    /// Reads on; 0 at the end.
    ///
    /// # Errors
    /// Why there are no more bytes.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Trouble> {
        match self {
            Source::Standard(stdin) => again(|| stdin.read(into)).map_err(|error| unread("stdin".as_ref(), &error)),
            Source::Local { file, path, .. } => again(|| file.read(into)).map_err(|error| unread(path, &error)),
            Source::Store { reader, .. } => Ok(FileReader::read(reader, into)?),
        }
    }

    /// Compares what was read with what a sealed file should have.
    ///
    /// # Errors
    /// When it differs.
    pub fn check(&self, sums: &Sums) -> Result<(), Trouble> {
        let Source::Store { reader, info } = self else { return Ok(()) };
        match difference(sums, info).filter(|_| info.sealed) {
            None => Ok(()),
            Some(difference) => Err(Failure::data(format!(
                "{}: other bytes were read than it was sealed with: {difference}. The copy was removed; nothing in the store was changed. Copy it again; when \
                 it stays so, report it with the server's log",
                reader.path()
            ))
            .into()),
        }
    }
}

fn unread(path: &Path, error: &io::Error) -> Trouble {
    Failure::file("read", path, error, "the copy is not whole, and was removed").into()
}

/// A signal that came meanwhile is looked for elsewhere.
fn again(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
