//! The way by XRootD's library. All threads have one connection to a server, and no program is started for a question.

use std::sync::{Mutex, PoisonError};

use forebay_mover::endpoint::{Content, Moved};
use forebay_mover::{Summer, Sums};
use forebay_xrdcl::{Error, File, checksum, remove, rename, set, stat};

use super::answer::Stat;
use super::trouble::Trouble;
use super::{CONNECTION_SECONDS, Cut, REQUEST_SECONDS, Way, checksum_seconds};
use crate::Address;

/// So much is read back at once.
const BLOCK_BYTES: usize = 4 << 20;
/// Who waits is asked so often while nothing moves.
const TICK_MILLISECONDS: u32 = 100;
/// A file that was cut off is closed and taken away so soon, or left to the next attempt.
const CLEAN_SECONDS: u16 = 5;

/// A connection that nothing is asked of is closed so soon, and with it what a failed attempt left open there.
const IDLE_SECONDS: i32 = 15;

/// What the library is told, for the whole process.
const SETTINGS: [(&str, i32); 11] = [
    // A write is not gone on with elsewhere: the mover makes another attempt, under another name.
    ("WriteRecovery", 0),
    ("ReadRecovery", 0),
    // A file that is called .meta4 is a file. Taken for a list of others it has ended the whole process (5.5.3).
    ("MetalinkProcessing", 0),
    ("ConnectionRetry", 1),
    ("ConnectionWindow", CONNECTION_SECONDS as i32),
    ("RequestTimeout", REQUEST_SECONDS as i32),
    ("StreamTimeout", REQUEST_SECONDS as i32),
    // A server that was away is asked again at once: when, the mover decides.
    ("StreamErrorWindow", 0),
    ("TimeoutResolution", 1),
    ("DataServerTTL", IDLE_SECONDS),
    ("LoadBalancerTTL", IDLE_SECONDS),
];

/// A server, by the library.
pub(super) struct Library {
    server: String,
    scheme: String,
    host: String,
    connections: Connections,
    sums_pages: bool,
}

/// Connections of their own for files that are written. The library does not close a file of which a write failed: its server has it open, and its space taken, until the connection ends.
#[derive(Default)]
struct Connections(Mutex<(Vec<u32>, u32)>);

impl Connections {
    /// One that nobody uses.
    fn take(&self) -> u32 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = all.1;
        all.0.pop().unwrap_or_else(|| {
            all.1 = next.wrapping_add(1);
            next
        })
    }

    /// Gives one back of which nothing failed. Others end when they are idle.
    fn give_back(&self, number: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.push(number);
    }
}

impl Library {
    /// Whether the library takes what it is told here: what the environment says it takes first.
    pub(super) fn is_free() -> bool {
        SETTINGS.iter().all(|(name, _)| std::env::var_os(format!("XRD_{}", name.to_uppercase())).is_none())
    }

    /// The library for a server.
    pub(super) fn new(address: &Address) -> Library {
        for (name, value) in SETTINGS {
            set(name, value);
        }
        let (scheme, host) = (address.scheme_name().to_owned(), address.host().to_owned());
        // As `xrdcp` takes it, which sums pages if it is not told; here all is compared when it has arrived.
        let sums_pages = std::env::var_os("XRD_CPUSEPGWRTRD").is_some_and(|value| value == "1");
        let server = format!("{scheme}://{host}");
        Library { server, scheme, host, connections: Connections::default(), sums_pages }
    }

    fn fill(&self, file: &mut File, content: &mut dyn Content, moved: &dyn Moved) -> Result<Sums, Cut> {
        let mut summer = Summer::default();
        while let Some(block) = content.next_block().map_err(Cut::Source)? {
            while !file.has_room(TICK_MILLISECONDS)? {
                check(moved)?;
            }
            file.write(summer.sums().bytes, block, REQUEST_SECONDS)?;
            summer.update(block);
            if !moved.moved(block.len() as u64) {
                return Err(Trouble::Stopped.into());
            }
        }
        while !file.is_written(TICK_MILLISECONDS)? {
            check(moved)?;
        }
        file.sync(REQUEST_SECONDS)?;
        moved.moved(0);
        Ok(summer.sums())
    }
}

fn check(moved: &dyn Moved) -> Result<(), Trouble> {
    if moved.goes_on() { Ok(()) } else { Err(Trouble::Stopped) }
}

impl From<Error> for Trouble {
    fn from(Error(words): Error) -> Trouble {
        Trouble::parse(&words)
    }
}

impl From<Error> for Cut {
    fn from(error: Error) -> Cut {
        Cut::Trouble(error.into())
    }
}

impl Way for Library {
    fn stat(&self, path: &str, _: &dyn Moved) -> Result<Stat, Trouble> {
        let (bytes, flags) = stat(&self.server, path, REQUEST_SECONDS)?;
        Ok(Stat::new(bytes, flags))
    }

    fn checksum(&self, path: &str, algorithm: &str, bytes: u64, _: &dyn Moved) -> Result<String, Trouble> {
        let seconds = u16::try_from(checksum_seconds(bytes)).unwrap_or(u16::MAX).saturating_add(REQUEST_SECONDS);
        Ok(checksum(&self.server, &format!("{path}?cks.type={algorithm}"), seconds)?)
    }

    fn write(&self, path: &str, bytes: u64, content: &mut dyn Content, moved: &dyn Moved) -> Result<Option<Sums>, Cut> {
        let number = self.connections.take();
        // What is before the host tells connections apart; who writes is told by a login.
        let url = format!("{}://f{number:x}@{}/{path}?oss.asize={bytes}", self.scheme, self.host);
        let mut file = File::create(&url, REQUEST_SECONDS)?;
        if self.sums_pages {
            file.sum_pages();
        }
        match self.fill(&mut file, content, moved) {
            Ok(sums) => {
                file.close(REQUEST_SECONDS)?;
                self.connections.give_back(number);
                Ok(Some(sums))
            }
            Err(cut) => {
                // Closed or not, half of it is there: it is taken away at once.
                let _ = file.close(CLEAN_SECONDS);
                let _ = remove(&self.server, path, CLEAN_SECONDS);
                Err(cut)
            }
        }
    }

    fn read(&self, path: &str, summer: &mut Summer, moved: &dyn Moved) -> Result<(), Trouble> {
        let mut file = File::open(&format!("{}/{path}", self.server), REQUEST_SECONDS)?;
        let (mut block, mut offset) = (vec![0; BLOCK_BYTES], 0);
        loop {
            let read = file.read(offset, &mut block, REQUEST_SECONDS)?;
            if read == 0 {
                return Ok(());
            }
            summer.update(&block[..read]);
            offset += read as u64;
            if !moved.moved(read as u64) {
                return Err(Trouble::Stopped);
            }
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Trouble> {
        Ok(rename(&self.server, from, to, REQUEST_SECONDS)?)
    }

    fn remove(&self, path: &str) -> Result<(), Trouble> {
        Ok(remove(&self.server, path, REQUEST_SECONDS)?)
    }
}
