//! What the owner file says.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::process::Process;

/// A file that is longer is none.
pub(crate) const BYTES_MAX: u64 = 16 << 10;

const VERSION: u32 = 1;

/// What the owner wrote last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    /// One more with each owner.
    pub(crate) epoch: u64,
    /// A random number of this owner.
    pub(crate) token: u64,
    /// One more with each write.
    pub(crate) pulse: u64,
    /// It owns the store no more, and has nothing on its way.
    pub(crate) given_back: bool,
    dead_after_ms: u64,
    /// Where clients reach it.
    pub(crate) address: SocketAddr,
    /// Where it finds the drive.
    pub(crate) drive: String,
    pub(crate) process: Process,
}

/// Why an owner file says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It is none, or was damaged.
    #[error("is no owner file, or damaged ({0})")]
    Damaged(String),
    /// A newer program wrote it.
    #[error("is of version {0}, which this program does not know")]
    Newer(u32),
}

/// The server that owns a store of shared files.
#[derive(Clone, Debug)]
pub struct Holder {
    pub(crate) record: Arc<Record>,
}

impl PartialEq for Holder {
    fn eq(&self, other: &Self) -> bool {
        self.record.identity() == other.record.identity()
    }
}

impl Eq for Holder {}

impl Holder {
    pub(crate) fn of(record: Record) -> Holder {
        Holder { record: Arc::new(record) }
    }

    /// The one of whom an owner file says this; also of one that gave the store back.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<Holder, RecordError> {
        Record::decode(bytes).map(Holder::of)
    }

    /// What the owner file says.
    pub fn encode(&self) -> Vec<u8> {
        self.record.encode()
    }

    /// The name of its machine.
    pub fn host(&self) -> &str {
        &self.record.process.host
    }

    /// Its process there.
    pub fn pid(&self) -> u32 {
        self.record.process.pid
    }

    /// Where clients reach it.
    pub fn address(&self) -> SocketAddr {
        self.record.address
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {} on {})", self.address(), self.pid(), self.host())
    }
}

impl Record {
    /// The first one of an owner.
    pub(crate) fn new(
        epoch: u64,
        token: u64,
        dead_after: Duration,
        place: (SocketAddr, String),
        process: Process,
    ) -> Record {
        let dead_after_ms = u64::try_from(dead_after.as_millis()).unwrap_or(u64::MAX);
        let (address, drive) = place;
        Record { version: VERSION, epoch, token, pulse: 0, given_back: false, dead_after_ms, address, drive, process }
    }

    /// What makes this owner known from all others.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.epoch, self.token)
    }

    /// Changes when the owner shows that it lives.
    pub(crate) fn pulse_bytes(&self) -> Vec<u8> {
        [self.epoch, self.token, self.pulse].map(u64::to_le_bytes).concat()
    }

    /// After how long without a pulse this owner takes itself for dead.
    pub(crate) fn dead_after(&self) -> Duration {
        Duration::from_millis(self.dead_after_ms)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("plain data");
        bytes.push(b'\n');
        bytes
    }

    /// What it says is given to a command that ends processes and switches machines off: nothing passes that cannot be meant.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let damaged = |error: serde_json::Error| RecordError::Damaged(error.to_string());
        let Versioned { version } = serde_json::from_slice(bytes).map_err(damaged)?;
        if version != VERSION {
            return Err(RecordError::Newer(version));
        }
        let record: Record = serde_json::from_slice(bytes).map_err(damaged)?;
        let wrong = |what: &str| RecordError::Damaged(format!("{what} cannot be meant"));
        let process = &record.process;
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if process.pid < 2 || i32::try_from(process.pid).is_err() {
            return Err(wrong("its process"));
        }
        if process.host.is_empty() || process.host.starts_with('-') || !is_name(&process.host) {
            return Err(wrong("its host"));
        }
        if !is_name(&process.machine_id) || !is_name(&process.boot_id) {
            return Err(wrong("its machine"));
        }
        if !record.drive.starts_with('/') || record.drive.contains(char::is_control) {
            return Err(wrong("its drive"));
        }
        if record.epoch == u64::MAX {
            return Err(wrong("its epoch"));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let process = Process { pid: 4711, host: "hlt-1.example".to_owned(), ..Process::default() };
        let address = "10.1.0.5:7420".parse().expect("an address");
        Record::new(3, 99, Duration::from_secs(9), (address, "/mnt/store/drive0".to_owned()), process)
    }

    #[test]
    fn a_record_reads_as_it_was_written_and_its_pulse_changes() {
        let mut record = record();
        assert_eq!(Record::decode(&record.encode()), Ok(record.clone()));
        let before = (Holder::of(record.clone()), record.pulse_bytes());
        record.pulse += 1;
        record.address = "10.1.0.5:7421".parse().expect("an address");
        assert_eq!(before.0, Holder::of(record.clone()));
        assert_ne!(before.1, record.pulse_bytes());
        assert_eq!(before.0.to_string(), "10.1.0.5:7420 (process 4711 on hlt-1.example)");
    }

    #[test]
    fn what_cannot_be_meant_is_no_record() {
        let written = String::from_utf8(record().encode()).expect("text");
        assert!(matches!(Record::decode(b""), Err(RecordError::Damaged(_))));
        for cut in 0..written.len() - 3 {
            assert!(Record::decode(&written.as_bytes()[..cut]).is_err(), "{cut}");
        }
        assert_eq!(
            Record::decode(written.replace("\"version\": 1", "\"version\": 2").as_bytes()),
            Err(RecordError::Newer(2))
        );
        for (from, to) in [
            ("4711", "0"),
            ("4711", "1"),
            ("4711", "-1"),
            ("4711", "3000000000"),
            ("hlt-1.example", ""),
            ("hlt-1.example", "-rf"),
            ("hlt-1.example", "a b"),
            ("hlt-1.example", "$(x)"),
            ("10.1.0.5:7420", "hlt-1:7420"),
            ("/mnt/store", "store"),
            ("/mnt/store", "/mnt\\n/store"),
            ("\"epoch\": 3", "\"epoch\": 18446744073709551615"),
        ] {
            let changed = written.replace(from, to);
            assert_ne!(changed, written);
            assert!(matches!(Record::decode(changed.as_bytes()), Err(RecordError::Damaged(_))), "{to}");
        }
    }
}
