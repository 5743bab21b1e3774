//! A file that is written while a server dies, and what of it must be there afterwards.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_client::ClientConfig;
use forebay_client::files::{FileError, Files, ReadOptions, WriteOptions};

use super::Server;
use super::load::Random;

/// The longest of them.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file, by its number, of which so many bytes were acknowledged.
#[derive(Clone, Debug)]
pub struct WrittenFile {
    number: u32,
    acknowledged_bytes: Arc<AtomicU64>,
    /// Why its writer gave up.
    ended_by: Arc<OnceLock<FileError>>,
}

/// Of every second file the client goes by the network, of the others by what the server has for clients on its machine.
fn files_of(server: &Server, number: u32) -> Files {
    // A writer whose server is gone gives up soon.
    let config = ClientConfig::new(server.address.clone(), "files").deadline(Some(Duration::from_secs(20)));
    let config = ClientConfig { local: number.is_multiple_of(2), ..config };
    Files::connect(config).expect("the server answers")
}

fn path(number: u32) -> String {
    format!("/file{number:06}")
}

fn byte_at(number: u32, place: u64) -> u8 {
    ((place + u64::from(number) * 77) * 31 % 251 + 1) as u8
}

/// In pieces of all sizes, of which some are synchronised.
fn write(files: &Files, number: u32, acknowledged_bytes: &AtomicU64) -> Result<(), FileError> {
    let mut random = Random(u64::from(number));
    let mut file = files.create(path(number), &WriteOptions::default())?;
    while file.position() < FILE_BYTES_MAX {
        let end = file.position() + 1 + random.below(40_000);
        let piece: Vec<u8> = (file.position()..end).map(|place| byte_at(number, place)).collect();
        file.write(&piece)?;
        if random.percent(40) {
            file.sync()?;
            acknowledged_bytes.store(end, Ordering::SeqCst);
        }
    }
    file.close()?;
    acknowledged_bytes.store(file.position(), Ordering::SeqCst);
    Ok(())
}

impl WrittenFile {
    /// Writes one in a thread of its own until the server is gone or it is long enough.
    pub fn begin(server: &Server, number: u32) -> WrittenFile {
        let files = files_of(server, number);
        let written = WrittenFile { number, acknowledged_bytes: Arc::default(), ended_by: Arc::default() };
        let (acknowledged_bytes, ended_by) = (Arc::clone(&written.acknowledged_bytes), Arc::clone(&written.ended_by));
        std::thread::spawn(move || {
            // It is killed under it.
            if let Err(error) = write(&files, number, &acknowledged_bytes) {
                ended_by.set(error).expect("this alone sets it");
            }
        });
        written
    }

    /// Writes one to its end.
    pub fn whole(server: &Server, number: u32) -> WrittenFile {
        let written = WrittenFile { number, acknowledged_bytes: Arc::default(), ended_by: Arc::default() };
        write(&files_of(server, number), number, &written.acknowledged_bytes).expect("the server takes it");
        written
    }

    /// Until something of it was acknowledged. Who loads the server beside it waits for that at some point: it may have filled the store of a test
    /// before the file has begun.
    pub fn wait_until_begun(&self) {
        loop {
            let ended_by = self.ended_by.get();
            if self.acknowledged_bytes() > 0 {
                return;
            }
            assert!(ended_by.is_none(), "{}: {ended_by:?}", path(self.number));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// So many bytes from its beginning on were acknowledged.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes.load(Ordering::SeqCst)
    }

    /// Reads it: what was acknowledged is there, and what is there was written. How many bytes.
    pub fn verify(&self, server: &Server) -> u64 {
        let acknowledged = self.acknowledged_bytes();
        let mut found = Vec::new();
        match files_of(server, self.number).open_read(path(self.number), &ReadOptions::default()) {
            Ok(mut file) => drop(file.read_to_end(&mut found).expect("it is read")),
            Err(FileError::NotFound { .. }) if acknowledged == 0 => {}
            Err(error) => panic!("{acknowledged} bytes were acknowledged: {error}"),
        }
        let count = found.len() as u64;
        assert!(count >= acknowledged, "{}: {count} bytes of {acknowledged} acknowledged ones", path(self.number));
        let wrong = (0..).zip(&found).find(|(place, byte)| **byte != byte_at(self.number, *place));
        assert!(wrong.is_none(), "{}: {wrong:?} was not written there", path(self.number));
        count
    }

    /// Removes it.
    pub fn remove(&self, server: &Server) {
        match files_of(server, self.number).remove(path(self.number)) {
            Ok(()) | Err(FileError::NotFound { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// It was removed.
    pub fn expect_removed(&self, server: &Server) {
        let found = files_of(server, self.number).lookup(path(self.number));
        assert!(matches!(found, Err(FileError::NotFound { .. })), "{} is back: {found:?}", path(self.number));
    }
}
