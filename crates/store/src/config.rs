//! How a store is run.

use std::time::Duration;

use forebay_media::MediaConfig;
use serde::{Deserialize, Serialize};

/// How a store is run; nothing of it is stored on the drives.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Memory for the data of recent flushes, all lanes together, in bytes: what a filter that follows closely reads without touching a drive. The
    /// buffers of flushes that fill and are on their way are part of it; they alone take up to `flush_bytes` times k+m times `flush_depth` + 1 in
    /// each lane, whatever is said here.
    pub cache_bytes: u64,
    /// Memory for the index (all that is known of events, flushes and segments), all lanes together, in bytes; puts are refused retryably when it is full. 0: a quarter of the machine's memory.
    pub index_bytes: u64,
    /// Bytes of a full flush on each drive.
    pub flush_bytes: u64,
    /// Flushes of a lane on their way at once.
    pub flush_depth: u32,
    /// The least time between two flushes that are not full, in microseconds: 0 for flash, some thousands for disks.
    pub flush_interval_us: u64,
    /// A drive that does not answer for so many milliseconds is taken out, as long as nothing that is stored comes out of reach by it.
    pub drive_timeout_ms: u64,
    /// An event with missing fragments is offered to filters after so many milliseconds.
    pub incomplete_after_ms: u64,
    /// After so many leases that nobody answered an event is accepted into the stream `debug`.
    pub lease_attempts_max: u16,
    /// How drives are reached.
    pub media: MediaConfig,
    /// Nothing is written.
    #[serde(skip)]
    pub read_only: bool,
    /// Drives can be made to fail by a request. For tests and the demo.
    #[serde(skip)]
    pub fault_injection: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            cache_bytes: 256 << 20,
            index_bytes: 0,
            flush_bytes: 1 << 20,
            flush_depth: 4,
            flush_interval_us: 0,
            drive_timeout_ms: 1000,
            incomplete_after_ms: 5000,
            lease_attempts_max: 5,
            media: MediaConfig::default(),
            read_only: false,
            fault_injection: false,
        }
    }
}

impl StoreConfig {
    /// Memory for the index in bytes.
    pub fn index_bytes(&self) -> u64 {
        if self.index_bytes > 0 { self.index_bytes } else { machine_memory_bytes() / 4 }
    }

    pub(crate) fn drive_timeout(&self) -> Duration {
        Duration::from_millis(self.drive_timeout_ms)
    }
}

/// The machine's memory, in bytes.
pub(crate) fn machine_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}
