//! A client that fills a store with files, and knows what each of them must hold.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_client::files::{Detail, FileError, FileWriter, Files, ReadOptions, WriteOptions};
use forebay_client::{Client, ClientConfig};

use super::common::load::Random;

/// Longer than any start, and than it takes until there is room to remove something: only a hang comes here.
const HANG: Duration = Duration::from_secs(120);

/// What is written over at once, at most.
const BLOCK_BYTES: usize = 64 << 10;

/// What a client did.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub written: u64,
    pub overwritten: u64,
    pub removed: u64,
    /// Times that the store had no room.
    pub refused: u64,
    /// Files that were read and compared.
    pub verified: u64,
}

impl Totals {
    pub fn add(&mut self, more: &Totals) {
        self.written += more.written;
        self.overwritten += more.overwritten;
        self.removed += more.removed;
        self.refused += more.refused;
        self.verified += more.verified;
    }
}

/// A file that is there.
struct Kept {
    bytes: Vec<u8>,
    is_sealed: bool,
}

/// What there is of a client.
pub struct Filler {
    files: Files,
    number: u64,
    random: Random,
    next: u64,
    /// What was acknowledged, by path.
    kept: BTreeMap<String, Kept>,
    totals: Totals,
}

/// Does something again as long as the server does not answer; gives refusals.
fn patiently<T>(what: &str, mut step: impl FnMut() -> Result<T, FileError>) -> Result<T, FileError> {
    let start = Instant::now();
    loop {
        match step() {
            Err(error) if error.is_retryable() && !matches!(error, FileError::NoSpace { .. }) => {
                assert!(start.elapsed() < HANG, "{what}: {error}");
            }
            done => return done,
        }
    }
}

/// Writes a whole file in a store that has room for it.
pub fn whole(files: &Files, path: &str, bytes: &[u8]) {
    let mut writer = files.create(path, &WriteOptions::default()).expect("there is room");
    writer.write(bytes).and_then(|()| writer.close()).expect("there is room");
}

impl Filler {
    /// A client with a directory of its own.
    pub fn begin(address: &str, number: u64, seed: u64) -> Filler {
        let config = ClientConfig { seed: number, ..ClientConfig::new(address, format!("filler{number}")) };
        let config = config.deadline(Some(Duration::from_secs(1)));
        let files = Files::new(Client::connect(config).expect("it serves")).expect("a client");
        files.make_directory(format!("/{number}"), &WriteOptions::default().owner).expect("made");
        let random = Random(seed << 8 | number);
        Filler { files, number, random, next: 0, kept: BTreeMap::new(), totals: Totals::default() }
    }

    /// Goes on until it is told that it is over; looks at all that it has after each start.
    pub fn run(&mut self, is_over: &AtomicBool, refused: &AtomicU64, starts: &AtomicU64) -> Totals {
        let mut seen = 0;
        while !is_over.load(Ordering::SeqCst) {
            let before = self.totals.refused;
            match self.random.below(100) {
                0..60 => self.write_one(),
                60..85 => self.write_over(),
                _ => self.remove_one(),
            }
            if self.totals.refused > before {
                refused.fetch_add(1, Ordering::SeqCst);
                self.remove_one();
            }
            let now = starts.load(Ordering::SeqCst);
            if std::mem::replace(&mut seen, now) != now {
                self.verify();
            }
        }
        self.totals.clone()
    }

    /// A new file of up to 3 MiB; half of them are small.
    fn write_one(&mut self) {
        let path = format!("/{}/{}", self.number, self.next);
        self.next += 1;
        let small = self.random.percent(50);
        let count = 1 + self.random.below(if small { 20_000 } else { 3 << 20 });
        let bytes = self.random.bytes(count as usize);
        // Some stay open to be written over.
        let is_sealed = self.random.percent(60);
        match self.write_whole(&path, &bytes, is_sealed) {
            Ok(()) => {
                self.totals.written += 1;
                self.kept.insert(path, Kept { bytes, is_sealed });
            }
            Err(FileError::NoSpace { .. }) => {
                self.totals.refused += 1;
                self.remove(&path);
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Some bytes of a file that is not sealed.
    fn write_over(&mut self) {
        let mut open: Vec<&String> =
            self.kept.iter().filter(|(_, kept)| !kept.is_sealed).map(|(path, _)| path).collect();
        if open.is_empty() {
            return;
        }
        let path = open.swap_remove(self.random.below(open.len() as u64) as usize).clone();
        let bytes = &self.kept[&path].bytes;
        let start = self.random.below(bytes.len() as u64) as usize;
        let count = (1 + self.random.below(BLOCK_BYTES as u64) as usize).min(bytes.len() - start);
        let new = self.random.bytes(count);
        let options = options(false);
        let mut writer = patiently(&path, || self.files.open_write(&path, &options)).expect("it is there");
        let done = patiently(&path, || writer.write_at(start as u64, &new).and_then(|()| writer.sync()));
        self.close(&path, &mut writer);
        let kept = &mut self.kept.get_mut(&path).expect("chosen just now").bytes[start..start + count];
        match done {
            Ok(()) => {
                self.totals.overwritten += 1;
                kept.copy_from_slice(&new);
            }
            // It was refused; all of it, or none.
            Err(FileError::NoSpace { .. }) => {
                self.totals.refused += 1;
                let read = read_range(&self.files, &path, start, count);
                assert!(
                    read == *kept || read == new,
                    "{path}: {count} bytes from {start} on are neither the old nor the new ones"
                );
                kept.copy_from_slice(&read);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn remove_one(&mut self) {
        let chosen = self.random.below(self.kept.len().max(1) as u64) as usize;
        if let Some(path) = self.kept.keys().nth(chosen).cloned() {
            self.kept.remove(&path);
            self.remove(&path);
        }
    }

    /// What removes is never refused for good: there may be no room for a moment, while a lane makes some.
    fn remove(&mut self, path: &str) {
        let start = Instant::now();
        loop {
            match patiently(path, || self.files.remove(path)) {
                Ok(()) | Err(FileError::NotFound { .. } | FileError::ChangeUnknown { .. }) => break,
                Err(error @ FileError::NoSpace { .. }) => assert!(start.elapsed() < HANG, "{error}"),
                Err(error) => panic!("{error}"),
            }
        }
        self.totals.removed += 1;
    }

    /// Reads all that there must be, and sees that what was removed is not there.
    pub fn verify(&mut self) {
        for (path, kept) in &self.kept {
            let length = patiently(path, || self.files.stat(path)).expect("it is there").length();
            assert_eq!(length, Some(kept.bytes.len() as u64), "{path}");
            assert!(
                read_range(&self.files, path, 0, kept.bytes.len()) == kept.bytes,
                "{path} has other bytes than were written"
            );
            self.totals.verified += 1;
        }
        let there = patiently("a list", || {
            let mut listing = self.files.list(format!("/{}", self.number), Detail::Names)?;
            let mut names = Vec::new();
            loop {
                let page = listing.next_page()?;
                if page.is_empty() {
                    return Ok(names);
                }
                names.extend(page.into_iter().map(|listed| format!("/{}/{}", self.number, listed.name.escape_ascii())));
            }
        });
        let mut there = there.expect("listed");
        there.sort_unstable();
        assert_eq!(there, self.kept.keys().cloned().collect::<Vec<_>>(), "what is there of client {}", self.number);
    }

    pub fn remove_all(&mut self) {
        while !self.kept.is_empty() {
            self.remove_one();
        }
    }

    fn write_whole(&self, path: &str, bytes: &[u8], seal: bool) -> Result<(), FileError> {
        let options = options(seal);
        // An attempt that nobody answered may have made it.
        let mut writer = patiently(path, || match self.files.create(path, &options) {
            Err(FileError::Exists { .. } | FileError::ChangeUnknown { .. }) => self.files.open_write(path, &options),
            made => made,
        })?;
        writer.set_position(0);
        let done = patiently(path, || {
            let written = writer.position() as usize;
            writer.write(&bytes[written..]).and_then(|()| writer.sync())
        });
        if done.is_err() {
            self.close(path, &mut writer);
            return done;
        }
        patiently(path, || writer.close())
    }

    /// What it has not written by now is not to be written any more.
    fn close(&self, path: &str, writer: &mut FileWriter) {
        patiently(path, || writer.abandon()).expect("the server answers");
    }
}

/// Who writes is told soon that there is no room.
fn options(seal: bool) -> WriteOptions {
    WriteOptions { seal, patience: Some(Duration::from_millis(300)), ..WriteOptions::default() }
}

fn read_range(files: &Files, path: &str, start: usize, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let done = patiently(path, || {
        let mut file = files.open_read(path, &ReadOptions::default())?;
        let mut at = 0;
        while at < count {
            match file.read_at((start + at) as u64, &mut bytes[at..])? {
                0 => break,
                more => at += more,
            }
        }
        file.close()?;
        Ok(at)
    });
    assert_eq!(done.expect("it is read"), count, "{path}: it ends too early");
    bytes
}
